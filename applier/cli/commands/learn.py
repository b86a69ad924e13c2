"""`compactor learn` and `commits`: what finished conversations of a project teach the next, and what they committed.

Reads conversations one by one, keeps what each says in the store, and shows the change to the project's files. Nothing
is written there without a yes, and no model is asked for more than the cap.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime
from difflib import unified_diff
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from applier.cli.files import make_folder, write_unchanged
from applier.cli.options import agreed, as_json, change_options, import_extra, store_option, with_store
from applier.cli.screen import echo, print_json, print_table, progress, shorten, show_page
from applier.learning.conversations import MANY, Conversation, Unread, conversations_in, stored_conversations
from applier.learning.files import INSTRUCTIONS, digest_of, file_of, is_told, learned_lines, merged
from applier.learning.kinds import KINDS
from applier.learning.memory import Batch, Memory
from applier.learning.opening import file_below
from applier.learning.propose import Line, proposed_lines
from applier.learning.readers import Reader, open_reader
from applier.learning.review import MOST_CANDIDATES
from applier.processes import all_cores, in_processes
from applier.store.opening import open_store, store_file
from applier.store.store import Store
from planner.errors import PlannerUnavailable, SettingsError
from planner.plan import Usage
from planner.prices import money

__all__ = ["commits_command", "learn_command"]

MOST_FAILURES = 3
"""So many conversations in a row for which the model gave no answer end the asking."""
SHOWN_CHARACTERS = 160
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_PLACE = click.Path(exists=True, path_type=Path)


@click.command
@click.argument("logs", nargs=-1, type=_PLACE)
@click.option("--project", type=_FOLDER, default=".", help="The project's folder (default: this one).")
@click.option("--also", multiple=True, metavar="DIR", help="Where the project lay, too: on another machine, say.")
@click.option("--into", metavar="FILE", default="", help="One file of the project, as AGENTS.md, between marks.")
@click.option("--planner", type=click.Choice(["auto", "rules", "model"]), help="Who reads (default: auto).")
@click.option("--model", help="The model that reads, or an instructor provider string.")
@click.option("--prompts", metavar="DIR", type=_FOLDER, help="Your own folder of prompts.")
@click.option("--cap", type=click.FloatRange(0), default=1.0, show_default=True, help="Dollars that it may cost.")
@click.option("--batch", is_flag=True, help="Ask by Anthropic's batch API: half the price, within a day.")
@click.option("--web", is_flag=True, help="Review the lines in a browser on this machine, and write them there.")
@click.option("--approve", is_flag=True, help="Only approve what stands in the files already: a colleague's lines.")
@change_options
@store_option
@as_json
def learn_command(
    project: Path,
    into: str,
    approve: bool,
    web: bool,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
    **reading: Any,
) -> None:
    """Propose what finished conversations teach the next.

    Reads the conversations of the store that worked in the project, or the logs of clients in LOGS, files or folders.
    Decisions, lasting wishes and errors that came back become lines of .compactor/learned/decisions.md and errors.md,
    each with where it is from. The change is shown, and made after your yes; what you edit or delete there stays so.
    """
    if dry_run and reading["batch"]:
        raise click.UsageError("--batch keeps in the store what was sent: not with --dry-run.")
    if web and (approve or dry_run or yes or as_json):
        raise click.UsageError("--web asks in the browser: not with --approve, --dry-run, --yes or --json.")
    now = time.time()
    today = datetime.fromtimestamp(now, UTC).date()
    report: dict[str, Any] = {"lines": []}
    with ExitStack() as stack:
        memory = Memory(stack.enter_context(_store(store, stack, dry_run=dry_run)), str(project), writes=not dry_run)
        texts = _texts(project, into)
        if approve:
            changes = texts
            keys = {line: digest_of(line)[:16] for line in _all_lines(texts, into)}
        else:
            report, lines = _read_all(memory, project, now, today, **reading)
            report["lines"] = [line.line for line in lines]
            keys = {line.line: line.key for line in lines}
            changes = _changes(texts, lines, memory.approved, today, into)
        if web:
            _print(report)
            _review(memory, project, texts, lines, today, into)
            return
        new = [line for line in _all_lines(changes, into) if line in keys and not memory.knows(line)]
        shown = [f"{line}\n" for line in new] if approve else _difference(texts, changes)
        if as_json:
            print_json({**report, "change": "".join(shown)})
        else:
            _print(report)
            echo("".join(shown) or "Nothing new to propose.\n", nl=False)
        if shown and not dry_run and agreed(yes=yes, as_json=as_json):
            _write(memory, project, texts, changes, {keys[line]: digest_of(line) for line in new}, into)


def _write(
    memory: Memory,
    project: Path,
    texts: Mapping[str, str],
    changes: Mapping[str, str],
    approved: Mapping[str, str],
    into: str,
) -> None:
    for name in (name for name in changes if changes[name] != texts[name]):
        make_folder((project / name).parent)
        write_unchanged(project / name, changes[name], sha256(texts[name].encode()).hexdigest())
    gone = {*_all_lines(texts, into)}.difference(_all_lines(changes, into))
    memory.approve(approved, ended=set(map(digest_of, gone)))


def _review(
    memory: Memory, project: Path, texts: Mapping[str, str], lines: Sequence[Line], today: date, into: str
) -> None:
    """Have the lines that are new reviewed in a browser: what is refused there is kept as a line without a form."""
    pages = import_extra("applier.web", "web")
    told = _all_lines(_changes(texts, lines, memory.approved, today, into), into)
    new = [line for line in lines if line.line in told and not memory.knows(line.line)]
    standing = [line for line in lines if line not in new]

    def write(agreed: Collection[str], refused: Collection[str]) -> str:
        now = _texts(project, into)
        chosen = [line for line in new if line.key in agreed]
        changes = _changes(now, [*standing, *chosen], memory.approved, today, into)
        approved = {line.key: digest_of(line.line) for line in chosen}
        _write(memory, project, now, changes, {**approved, **dict.fromkeys(refused, "")}, into)
        names = [name for name in changes if changes[name] != now[name]]
        return f"Written: {len(chosen)} ({', '.join(names) or 'no file changed'}); refused: {len(refused)}"

    change = "".join(_difference(texts, _changes(texts, standing, memory.approved, today, into)))
    if not (new or change):
        echo("Nothing new to propose.")
    else:
        show_page(pages.PageServer(pages.LineReview(project.resolve().name, new, change, write)))


def _print(report: Mapping[str, Any]) -> None:
    for line in _report_lines(report) if "unread" in report else ():
        echo(line)
    bad = [f"{one['name']}: {shorten(one['why'], SHOWN_CHARACTERS)}" for one in report.get("unread", ()) if one["bad"]]
    for problem in (*report.get("problems", ()), *bad):
        echo(f"compactor: {problem}", err=True)


def _report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    count = report["conversations"]
    read = f"{report['read_now']} of them now, by {report['reader']}"
    yield f"{count} finished conversation{'s' * (count != 1)} of this project, read {read}"
    others = Counter(one["why"] for one in report["unread"] if not one["bad"])
    yield from (f"left out: {number} that {why}" for why, number in others.most_common())
    if not count and any(why.startswith("worked in") for why in others):
        yield "did this project lie in one of these folders? Name it with --also"
    elif not (count or others):
        yield "name logs of a client to be read, as ~/.claude/projects or ~/.codex/sessions"


def _store(name: str | None, stack: ExitStack, *, dry_run: bool) -> Store:
    """The store; for a dry run where there is none yet one that goes away."""
    file = store_file(name)
    if dry_run and file is not None and not file.exists():
        return open_store(Path(stack.enter_context(tempfile.TemporaryDirectory()), "store.db"))
    return open_store(name)


def _read_all(
    memory: Memory,
    project: Path,
    now: float,
    today: date,
    *,
    logs: Sequence[Path],
    also: Sequence[str],
    planner: str | None,
    model: str | None,
    prompts: Path | None,
    cap: float,
    batch: bool,
) -> tuple[dict[str, Any], list[Line]]:
    """Read the project's conversations that were not read yet, and have a model review what they teach; what that came
    to, and the lines."""
    places = [str(project), *also]
    every = conversations_in(logs, places, now) if logs else stored_conversations(memory.store, places, now)
    with open_reader(planner, model, prompts, by_batch=batch) as reader:
        apart = bool(logs) and reader.model is None
        told = [file_below(project, name) or "" for name in INSTRUCTIONS]
        lines = partial(_all_proposed, memory, told, today)
        unseen = len(memory.review.unseen(lines())) if reader.model is not None else 0
        own = [one for one in every if isinstance(one, Conversation)]
        report = _read_due(own, memory, reader, cap, unseen, apart=apart)
        taught = lines()
        if reader.model is not None:
            _review_lines(taught, memory, reader, cap, report)
    unread = [vars(one) for one in every if isinstance(one, Unread)]
    return {**report, "unread": unread}, memory.lines(taught)


def _all_proposed(memory: Memory, told: Sequence[str], today: date) -> list[Line]:
    return [line for line in proposed_lines(memory.heard, today) if not is_told(line, told)]


def _review_lines(lines: Sequence[Line], memory: Memory, reader: Reader, cap: float, report: dict[str, Any]) -> None:
    """Have those of `lines` reviewed that were not yet, as far as the cap allows."""
    while unseen := len(memory.review.unseen(lines)):
        reckoned = reader.reckoned_review(memory.review, min(unseen, MOST_CANDIDATES))
        why = f"that may cost {money(reckoned)} more: raise --cap"
        try:
            if report["dollars"] + reckoned <= cap:
                review, usage = reader.review(memory.review, lines)
                memory.keep_review(review)
                report["dollars"] += reader.price(usage)
                continue
        except PlannerUnavailable as error:
            why = str(error)
            report["dollars"] += reader.price(error.usage) if isinstance(error.usage, Usage) else 0.0
        report["problems"].append(f"not reviewed, and not shown: {unseen} lines; {why}; run it again")
        return


def _read_due(
    every: Sequence[Conversation], memory: Memory, reader: Reader, cap: float, unseen: int, *, apart: bool
) -> dict[str, Any]:
    """Read those that were not read yet, one by one; many on all cores if they can be read `apart` from this process.

    Raises:
        SettingsError: it might cost more than `cap`; nothing was asked.
    """
    due = [one for one in every if not memory.is_read(one, reader.name)]
    sent = _sent(memory, reader)
    reckoned = 0.0 if sent else reader.reckoned(due, memory.review, unseen)
    if reckoned > cap:
        raise SettingsError(
            f"{len(due)} conversations, and a review of what they teach, may cost {money(reckoned)} with "
            f"{reader.name}, more than --cap {cap:g}: raise it, or say --planner rules"
        )
    if reckoned:
        what = f"{len(due)} conversations to read, and what they teach to review"
        echo(f"{what}, with {reader.name}: at most {money(reckoned)}", err=True)
    problems: list[str] = []
    usage, failures, read_now = Usage(), 0, 0
    many: Generator[tuple[Conversation, Any]] | None
    many = in_processes(reader.read, due, all_cores()) if apart and len(due) >= MANY else None
    if due and reader.client is not None:
        many = _batched(reader, memory, due, sent)
    with progress("reading conversations", len(due)) as step, closing(many) if many else nullcontext():
        for one, made in many or ((one, None) for one in due):
            try:
                if many and not made:
                    raise PlannerUnavailable("the process that read it died")
                if isinstance(made, Exception):
                    raise made
                lessons, evidence, used = made or reader.read(one)
                memory.keep(one, reader.name, lessons, evidence)
                usage, failures, read_now = usage + used, 0, read_now + 1
            except PlannerUnavailable as error:
                usage = usage + error.usage if isinstance(error.usage, Usage) else usage
                problems.append(f"{one.name}: {error}")
                failures += 1
            step()
            if reader.client is None and (failures >= MOST_FAILURES or reader.cost(usage) > cap):
                problems.append(f"stopped behind {one.name}: run it again to go on")
                break
    missing = len(due) - read_now - len(problems) if reader.client is not None else 0
    if missing > 0:
        problems.append(f"not in the batch: {missing}; run it again to ask about them")
    read = {"conversations": len(every), "read_now": read_now, "reader": reader.name, "dollars": reader.cost(usage)}
    return {**read, "problems": problems}


def _sent(memory: Memory, reader: Reader) -> str:
    """The id of the batch that this reader sent and nobody read; empty if there is none."""
    noted = memory.batch
    if noted is None or noted.reader != reader.name or reader.client is None:
        return ""
    return noted.id or reader.sent_batch(noted.since, noted.requests)


def _batched(
    reader: Reader, memory: Memory, due: Sequence[Conversation], sent: str
) -> Generator[tuple[Conversation, Any]]:
    """What each of `due` teaches by the batch that was `sent` before, or else by a new one of all that is due."""
    from planner.model.batches import MOST_REQUESTS

    batch = sent
    if not batch:
        asked = due[:MOST_REQUESTS]
        noted = Batch(reader.name, time.time(), len(asked))
        memory.note_batch(noted)  # should this process end before it knows the id, the next one looks for it
        batch = reader.send(asked)
        memory.note_batch(replace(noted, id=batch))
    echo(f"{batch} is under way; if this is stopped, the same command fetches its answers", err=True)
    yield from reader.answers(batch, due)
    memory.note_batch(None)


def _texts(project: Path, into: str) -> dict[str, str]:
    """What stands in the files, by their names.

    Raises:
        SettingsError: one is a link, which a stranger may have laid, lies elsewhere, or is no text of a usual size.
    """
    texts = {}
    for name in dict.fromkeys(file_of(kind, into) for kind in KINDS):
        place = Path(os.path.realpath(project), name)
        text = file_below(place.parent, place.name) if os.path.lexists(place) else ""
        if text is None or Path(os.path.realpath(place)) != place:
            raise SettingsError(f"{name}: expected a text file in UTF-8, no link, in {project} itself, of at most 2 MB")
        texts[name] = text
    return texts


def _changes(
    texts: Mapping[str, str], lines: Sequence[Line], approved: Mapping[str, str], today: date, into: str
) -> dict[str, str]:
    """`texts` with `lines` in them, each in the file that its kind belongs to."""
    own = {name: [line for line in lines if file_of(line.kind, into) == name] for name in texts}
    return {name: merged(text, own[name], approved, today, shared=bool(into)) for name, text in texts.items()}


def _all_lines(texts: Mapping[str, str], into: str) -> list[str]:
    return [line for text in texts.values() for line in learned_lines(text, shared=bool(into))]


def _difference(texts: Mapping[str, str], changes: Mapping[str, str]) -> list[str]:
    pairs = ((name, texts[name].splitlines(), changes[name].splitlines()) for name in changes)
    return [f"{line}\n" for name, old, new in pairs for line in unified_diff(old, new, name, name, lineterm="")]


@click.command
@click.argument("commit", required=False)
@click.option("--project", type=_FOLDER, default=".", help="The project's folder (default: this one).")
@with_store
@as_json
def commits_command(commit: str | None, project: Path, store: Store, as_json: bool) -> None:
    """Print which conversation made which commit.

    COMMIT is a hash, or a conversation; without it, all commits of the conversations that `compactor learn` has read.
    """
    rows = [
        (made, f"{name}:{turn}", str(read["day"]), subject)
        for name, read in Memory(store, str(project)).conversations.items()
        for made, subject, turn in read["commits"]
        if not commit or commit == name or (len(commit) >= 7 and (made.startswith(commit) or commit.startswith(made)))
    ]
    if as_json:
        names = ("commit", "from", "date", "subject")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(("commit", "from", "date", "subject"), rows, empty="no commits in what `compactor learn` has read")
