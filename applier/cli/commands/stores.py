"""`compactor restore`, `undo`, `facts`, `log`, `store`: restore, list, check, back up and delete what is stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click

from applier.adapters.transcripts import write_transcript
from applier.cli import options
from applier.cli.files import read_file, write_whole
from applier.cli.screen import day, echo, print_data, print_json, print_table, screen
from applier.store.archive import back_up, export_conversation, import_archive, open_archive
from applier.store.excerpt import LAST_LINE
from applier.store.listing import StoredConversation, conversations, facts_about, is_within, known_facts, stored_facts
from applier.store.opening import open_store
from applier.store.retention import collect_garbage
from applier.store.store import Store
from applier.view import holds_view, originals_behind
from planner.errors import ReferenceNotFound, StalePlan, StoreError
from planner.plan import FactType, Finding
from planner.prices import switch_money

_FEW = 4
"""Number of imported conversations from which `import` prints their number instead of their keys."""
_SHOWN_SECONDS = 0.1
"""Shortest time for which an agent waited for a compaction that the log mentions, in seconds."""
_TASK_SHOWN = 60
"""Number of characters at which a task is cut in the list of conversations."""


@click.command
@click.argument("history", required=False)
@click.option("--type", "kind", type=click.Choice(get_args(FactType)), help="Only facts of this type.")
@click.option("--words", metavar="TEXT", default="", help="Only facts with words of TEXT, best first.")
@click.option("--project", metavar="DIR", help="Only facts of conversations that worked in this folder.")
@click.option(
    "--since",
    type=options.since,
    metavar="DATE|DAYS",
    default="1970-01-01",
    help="Only facts extracted since then: 2026-11-01, or 7d.",
)
@options.with_store
@options.as_json
def facts_command(
    history: str | None, kind: str | None, words: str, project: str | None, since: float, store: Store, as_json: bool
) -> None:
    """Print the extracted facts, each with its turn.

    HISTORY is a key that `compactor store list` shows; without it, all conversations of the store are searched.
    """
    if history:
        stored = [fact for fact in stored_facts(store, [history]) if not project or is_within(fact.folder, project)]
        facts = facts_about(stored, kind=kind, since=since, words=words)
    elif not store.histories():
        raise StoreError("the store contains no history yet: `compactor apply` saves one")
    else:
        facts = known_facts(store, project=project or "", kind=kind, since=since, words=words)
    if as_json:
        places = ({"history": stored.history, "folder": stored.folder} for stored in facts)
        pairs = zip(facts, places, strict=True)
        print_json([{**stored.fact.model_dump(mode="json"), **place} for stored, place in pairs])
        return
    cited = ((stored.fact, stored.reference) for stored in facts)
    rows = ((fact.type, reference, day(fact.timestamp), fact.quote or fact.content) for fact, reference in cited)
    print_table(("type", "from", "date", "fact"), rows, whole=("from", "date"), empty="no facts")


@click.command
@click.option("--session", help="Only events of this session.")
@click.option("-n", "count", type=click.IntRange(1), default=50, show_default=True, help="The newest N events.")
@options.with_store
@options.as_json
def log_command(session: str | None, count: int, store: Store, as_json: bool) -> None:
    """Print the events of the store, oldest first."""
    events = store.events(session)[-count:]
    if as_json:
        print_json(list(events))
        return
    titles = ("time (UTC)", "session", "what", "before", "after", "")
    empty = f"no events of session {session}" if session else "no events"
    print_table(titles, map(_event_cells, events), right=("before", "after"), empty=empty)


def _event_cells(event: Mapping[str, Any]) -> Iterator[str]:
    """Yield the cells of the row of an event in the table of `log`."""
    yield datetime.fromtimestamp(event["time"], UTC).strftime("%Y-%m-%d %H:%M:%S")
    yield str(event.get("session", ""))
    yield str(event.get("kind", ""))
    for key in ("tokens_before", "tokens_after"):
        yield f"{event[key]:,}" if isinstance(event.get(key), int) and event[key] else ""
    seconds = event.get("waited_seconds", 0.0)
    wait = f"the agent waited {seconds:.1f} s" if seconds >= _SHOWN_SECONDS else ""
    yield "; ".join(filter(None, (str(event.get("message", "")), switch_money(event.get("dollars", {})), wait)))


@click.group
def store_command() -> None:
    """List, verify, back up and move conversations; forget one, or all old ones."""


_SORT_KEYS: Mapping[str, Callable[[StoredConversation], Any]] = {
    "date": lambda conversation: conversation.history.used,
    "size": lambda conversation: conversation.history.size_bytes,
    "project": lambda conversation: conversation.folder,
}
"""Functions that return the value by which conversations are sorted, by the value of the option ``--sort``."""


@store_command.command(name="list")
@click.option("--sort", type=click.Choice(list(_SORT_KEYS)), default="date", show_default=True, help="Smallest first.")
@options.with_store
@options.as_json
def list_(sort: str, store: Store, as_json: bool) -> None:
    """List the conversations: last use, size of messages, project and task."""
    stored = sorted(conversations(store), key=_SORT_KEYS[sort])
    if as_json:
        names = ("key", "digest", "messages", "turns", "used", "size_bytes")
        histories = [{name: getattr(one.history, name) for name in names} for one in stored]
        pairs = zip(histories, stored, strict=True)
        print_json([{**history, "folder": one.folder, "task": one.task} for history, one in pairs])
        return
    rows = map(_conversation_cells, stored)
    titles = ("history", "used", "turns", "bytes", "project", "task")
    print_table(titles, rows, right=("turns", "bytes"), whole=titles[:4], empty="no history")


def _conversation_cells(conversation: StoredConversation) -> Iterator[str]:
    """Yield the cells of the row of a conversation in the table of `store list`."""
    history = conversation.history
    yield from (history.key, day(history.used), f"{history.turns:,}", f"{history.size_bytes:,}")
    yield from (conversation.folder, " ".join(conversation.task.split())[:_TASK_SHOWN])


@store_command.command
@click.option(
    "--older-than", type=options.age, metavar="TIME", help="Remove conversations unused for this time: 30d, 12h."
)
@click.option(
    "--larger-than", type=options.size, help="Then remove the longest unused while the store is larger: 2GB, 500MB."
)
@options.change_options
@options.with_store
@options.as_json
def gc(
    older_than: float | None, larger_than: float | None, dry_run: bool, yes: bool, store: Store, as_json: bool
) -> int:
    """Delete conversations unused for long, or the oldest while the store is too large.

    A conversation that was used within a day stays, and so does one that it refers to. Shows the change and asks. Exit
    1 if some of the deleted content is left in a file.
    """
    if older_than is None and larger_than is None:
        raise click.UsageError("name a limit: --older-than 30d, --larger-than 2GB, or both.")
    collect = partial(collect_garbage, store, older_than_seconds=older_than, larger_than_bytes=larger_than)
    garbage = collect(dry_run=True)
    if not as_json:
        rows = ((one.key, day(one.used), f"{one.messages:,}", f"{one.size_bytes:,}") for one in garbage.histories)
        titles = ("history", "used", "messages", "bytes")
        print_table(titles, rows, right=("messages", "bytes"), whole=("history", "used"), empty="no history to remove")
        echo(
            f"{garbage.kept:,} stay; {garbage.events:,} old events to remove; about {garbage.bytes_after:,} bytes left"
        )
    is_done = not dry_run and (garbage.histories or garbage.events) and options.agreed(yes=yes, as_json=as_json)
    if is_done:
        garbage = collect()
        if not as_json:
            echo(f"removed: {garbage.bytes_before:,} bytes before, {garbage.bytes_after:,} now")
    if as_json:
        names = ("kept", "events", "bytes_before", "bytes_after")
        numbers = {name: getattr(garbage, name) for name in names}
        keys = [one.key for one in garbage.histories]
        print_json({"removed" if is_done else "would_remove": keys, **numbers, "left": _as_data(garbage.left)})
        return 1 if garbage.left else 0
    return _report_left(garbage.left, as_json=False)


_overwrite = click.option("--overwrite", is_flag=True, help="Replace the file if it is there.")


@store_command.command
@click.argument("file", type=options.OUTPUT_FILE)
@_overwrite
@options.with_store
def backup(file: Path, overwrite: bool, store: Store) -> None:
    """Copy the whole store to FILE, which is a store too; others may use the store meanwhile."""
    back_up(store, file, overwrite=overwrite)
    echo(f"{file}: {file.stat().st_size:,} bytes; use it with --store, or import it with `store import --backup`")


@store_command.command
@click.argument("history")
@options.output_option("Where to write it.", required=True)
@_overwrite
@options.with_store
def export(history: str, output: Path, overwrite: bool, store: Store) -> None:
    """Write one conversation to a file: history, plans, facts, events and its session's state.

    HISTORY is a key that `compactor store list` shows. Everyone with the file can read all of it.
    """
    export_conversation(store, history, output, overwrite=overwrite)
    echo(f"{output}: {output.stat().st_size:,} bytes; import it with `compactor store import`")


@store_command.command(name="import")
@click.argument("file", type=options.EXISTING_FILE)
@click.option("--backup", "is_backup", is_flag=True, help="FILE is a backup of your own store: import all of it.")
@options.store_option
@options.as_json
def import_(file: Path, is_backup: bool, store: str | None, as_json: bool) -> None:
    """Import the conversation in FILE into the store, all of it or nothing; make the store if need be."""
    with open_archive(file) as archive, open_store(store) as opened:
        keys = import_archive(opened, archive, is_own_backup=is_backup)
        ends = [one.history.key for one in conversations(opened) if one.history.key in keys]
    if as_json:
        print_json({"histories": keys})
    else:
        what = ", ".join(ends) if len(ends) < _FEW else f"{len(ends)} conversations"
        echo(f"{file}: {what} imported; their references can be restored")


@store_command.command
@click.argument("history")
@click.option("--yes", is_flag=True, help="Confirm the deletion, which is final.")
@options.with_store
@options.as_json
def forget(history: str, yes: bool, store: Store, as_json: bool) -> int:
    """Delete a conversation for good, with its plans, facts, events and session states.

    HISTORY is a key that `compactor store list` shows, or a plan's id. Exit 1 if some of it is left.
    """
    if not yes:
        raise click.UsageError(f"forgotten content cannot be restored: use --yes to delete {history}.")
    left = store.forget(history)
    if not as_json:
        echo(f"{history} is forgotten; its references cannot be restored")
    return _report_left(left, as_json=as_json)


@store_command.command
@options.with_store
@options.as_json
def flush(store: Store, as_json: bool) -> int:
    """Remove content of deleted conversations from the database's own logs too; exit 1 if some is left."""
    return _report_left(store.flush(), as_json=as_json)


def _report_left(left: Sequence[Finding], *, as_json: bool) -> int:
    """Print the remarks `left` on places that still have deleted content; return the exit code, 1 if there are any."""
    if as_json:
        print_json({"left": _as_data(left)})
    for finding in () if as_json else left:
        repair = f": {finding.repair}" if finding.repair else ""
        echo(f"compactor: left: {finding.problem}{repair}", err=True)
    return 1 if left else 0


def _as_data(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings (remarks) as JSON data."""
    return [finding.model_dump(mode="json") for finding in findings]


@store_command.command
@options.with_store
@options.as_json
def verify(store: Store, as_json: bool) -> int:
    """Recompute every digest in the store; exit 1 if anything is damaged."""
    findings, size = store.verify(), store.size()
    if as_json:
        print_json({"findings": _as_data(findings)})
    else:
        for finding in findings:
            screen().print(f"{finding.code}: {finding.problem}")
        verdict = f"{len(findings)} damaged" if findings else "all whole"
        histories = f"{size.histories} {'history' if size.histories == 1 else 'histories'}"
        screen().print(f"{histories}, {size.messages} messages, {size.file_bytes:,} bytes: {verdict}")
    return 1 if findings else 0


def _line_range(text: str) -> tuple[int, int]:
    """Return first and last line in a value of the option ``--lines``: ``3-9``, ``3``, or ``3-`` (to the end)."""
    first, dash, last = text.partition("-")
    with suppress(ValueError):
        end = int(last or (LAST_LINE if dash else first))
        if 1 <= int(first) <= end:
            return int(first), end
    raise click.BadParameter(f"{text[:40]!r}: expected lines like 3-9, 3 or 3-, counted from 1.")


@click.command
@click.argument("references", metavar="REF", callback=lambda _context, _argument, text: _references(text))
@click.option(
    "--lines",
    type=_line_range,
    metavar="FIRST-LAST",
    help="Only these lines, first and last included; 3- is from line 3 to the end.",
)
@click.option(
    "--search", metavar="TEXT", help="Only lines that contain TEXT, match it as a pattern, or contain its words."
)
@options.with_store
@options.as_json
def restore_command(
    references: Iterator[str], lines: tuple[int, int] | None, search: str | None, store: Store, as_json: bool
) -> None:
    """Print the exact original of a turn that was compacted.

    REF is KEY:t12, or t12 if the store has one conversation; t12-t14,t20 are several turns, each after its reference.
    Lines are counted as in a plan's excerpts and in a search.
    """
    originals = [store.restore(reference, lines=lines, search=search) for reference in references]
    if as_json:
        fields = ("reference", "messages", "text", "lines", "total_lines")
        values = [{name: getattr(original, name) for name in fields} for original in originals]
        print_json(values if len(values) > 1 else values[0])
        return
    media = [block["type"] for original in originals for block in original.blocks if block["type"] != "text"]
    if media:
        echo(f"compactor: note: not text, only with --json: {', '.join(media)}", err=True)
    text = "".join(f"{one.reference}\n{one.text}\n" if len(originals) > 1 else f"{one.text}\n" for one in originals)
    if screen().is_terminal:
        echo(text, nl=False)
    else:
        print_data(text)


def _references(text: str) -> Iterator[str]:
    """Return the reference of each turn in `text`: ``KEY:t12``, ``KEY:t13`` and ``KEY:t20`` for ``KEY:t12-t13,t20``. A
    text of another form is returned alone, and unchanged."""
    history, colon, turns = text.rpartition(":")
    ranges = options.turn_ranges(turns)
    numbers = (number for first, last in ranges for number in range(first, last + 1))
    return (f"{history}{colon}t{number}" for number in numbers) if ranges else iter([text])


@click.command
@click.argument("view", type=options.EXISTING_FILE)
@options.output_option(required=True)
@options.store_option
@options.as_json
def undo_command(view: Path, output: Path, store: str | None, as_json: bool) -> None:
    """Write the original transcript of a compacted one.

    VIEW is a transcript that `compactor apply` wrote; the agent may have continued it. FILE gets the originals,
    followed by the messages that were added to VIEW.
    """
    options.check_output(output, view=view)
    conversation = read_file(view)
    if not holds_view(conversation.messages):
        raise ReferenceNotFound(f"{view}: contains no compacted part, so there is nothing to undo")
    with options.existing_store(store) as opened:
        earlier = originals_behind(opened, conversation.messages)
        if earlier is None:
            cause = "the compacted part was edited, or its originals are in another store or were forgotten"
            raise StalePlan(f"{view}: {cause}: name the store with --store, or use `compactor restore`")
        key, originals = earlier.key, len(opened.load_history(earlier.key).messages)
        write_whole(output, write_transcript(earlier.messages, conversation))
        opened.record_event({"time": time.time(), "kind": "undo", "history": key, "message": f"{key} to {output}"})
    added = len(earlier.messages) - originals
    if as_json:
        print_json({"history": key, "originals": originals, "added": added, "output": str(output)})
    else:
        echo(f"Wrote {originals} original messages and {added} added later to {output}")
