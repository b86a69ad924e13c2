"""`compactor resume` and `hooks`: a client's own sessions, compacted into one that it resumes, or kept by its hooks.

A session is never overwritten, and the change of a client's settings is shown first.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from applier.adapters.client_hooks import HookCall, brief_after_compaction, read_call, with_hooks, without_hooks
from applier.adapters.transcripts import CLIENTS, Client, read_transcript
from applier.adapters.transcripts.claude_code import config_folder
from applier.cli.files import make_folder, read_file, write_whole
from applier.cli.options import (
    agreed,
    as_json,
    change_options,
    naming_store,
    output_option,
    store_anywhere,
    store_option,
    together,
)
from applier.cli.planning import apply_and_record, planned, planning_options, write_view
from applier.cli.screen import echo, one_line, print_json, working
from applier.program import program
from applier.receipt import in_sight
from applier.sheet import reviewed
from applier.store.opening import STORE_VARIABLE, open_store
from planner.errors import SettingsError, TranscriptError
from planner.placeholders import history_key
from planner.reading.history import read_history

__all__ = ["hooks_command", "resume_command"]

EVENT = "pre_compact"
"""The kind of the event by which a compacted session finds its plan again."""


@click.command
@click.argument("session", metavar="SESSION")
@planning_options
@output_option("Write the new session there.")
@click.option("--in-client", is_flag=True, help="Write it where the client looks, not beside SESSION.")
@click.option("--dry-run", is_flag=True, help="Say what would happen; write nothing.")
@store_option
@as_json
def resume_command(
    session: str, output: Path | None, in_client: bool, dry_run: bool, store: str | None, as_json: bool, **how: Any
) -> None:
    """Compact a client's session so that the client resumes it.

    SESSION is the log of a session of Claude Code (in ~/.claude/projects) or of Codex (in ~/.codex/sessions): a file,
    the session's id, or "last" for the newest one of this folder. The compacted one gets an id of its own and is
    written beside it; SESSION is not touched. Every original is in the store first.
    """
    if output and in_client:
        raise click.UsageError("-o and --in-client exclude each other: give one.")
    log = _log_of(session)
    read = read_file(log)
    client = read.client
    if client is None:
        known = " or ".join(form.title for form in CLIENTS)
        raise TranscriptError(f"{log}: expected a session log ({known}), found {read.format} messages")
    with working("planning…"):
        sheet = reviewed(planned(read, log, **how), read.messages)
    session_id, now = str(uuid4()), datetime.now(UTC)
    name = client.log_name(session_id, now)
    in_place = client.log_folder(read.working_folder, now, os.environ) / name
    place = in_place if in_client else output or log.absolute().parent / name
    written = sheet.changes and not dry_run
    if written:
        if place.exists():
            raise SettingsError(f"{place}: is there already: a session is never overwritten; name a new file")
        make_folder(place.parent)
        write_view(sheet, read, place, store, session_id)
    typed = _typed(client, read.working_folder, session_id, place, in_place)
    if as_json:
        new = {"session": str(log), "written": written, "session_id": session_id, "file": str(place), "resume": typed}
        print_json({**sheet.to_json(), **new})
        return
    before, after = sheet.plan.history.tokens, sheet.plan.estimated_tokens
    if not sheet.changes:
        echo(f"Nothing to compact: all {before:,} tokens stay. No session was written.")
    elif dry_run:
        echo(f"{before:,} tokens would become {after:,}, in {place}")
    else:
        originals = f"{history_key(sheet.plan.history.digest)}:t1, t2, …"
        lines = (f"{before:,} tokens became {after:,}, in {place}", in_sight(sheet.plan), f"Go on there:  {typed}")
        echo("\n".join(filter(None, lines)))
        echo(f"Originals:    compactor restore {originals}; the old session is as it was")


def _log_of(session: str) -> Path:
    """The log that `session` is, or that a client keeps under this id, or as the last one of this folder."""
    if Path(session).is_file():
        return Path(session)
    folder = os.getcwd() if session == "last" else ""
    logs = [log for client in CLIENTS for log in client.logs(folder, os.environ)]
    named = [log for log in logs if folder or log.stem[-36:] == session]
    if not named:
        where = f"worked in {folder}" if folder else "has this id"
        raise click.UsageError(f"{session}: no such file, and no session that the clients keep {where}: name its log.")
    return max(named, key=lambda log: log.stat().st_mtime)


def _typed(client: Client, folder: str, session_id: str, place: Path, in_place: Path) -> str:
    """What a person types to go on: where the client does not look, the file is copied to `in_place` first."""
    steps = [client.resume_command(session_id)]
    if folder:
        steps.insert(0, f"cd {shlex.quote(folder)}")
    if not client.finds(place, in_place):
        goal = in_place.parent
        is_home = goal.is_relative_to(Path.home())
        target = f"~/{shlex.quote(str(goal.relative_to(Path.home())))}" if is_home else shlex.quote(str(goal))
        steps.insert(0, f"mkdir -p {target} && cp {shlex.quote(str(place))} {target}/{in_place.name}")
    return " && ".join(steps)


_changing = together(
    click.option(
        "--settings",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The client's settings (default: settings.json in $CLAUDE_CONFIG_DIR or ~/.claude).",
    ),
    change_options,
)


@click.group
def hooks_command() -> None:
    """Hook into Claude Code's own compaction.

    Before it, the originals and a plan go to the store; the compacted session begins with the plan's brief and with
    how any turn is restored.
    """


@hooks_command.command
@_changing
@store_option
@as_json
def install(store: str | None, **how: Any) -> None:
    """Show the change to the client's settings, and make it."""
    line = shlex.join(program("hooks", "run"))
    if store:
        line = f"{STORE_VARIABLE}={shlex.quote(store_anywhere(store))} {line}"
    _change(lambda old: with_hooks(old, line), **how)


@hooks_command.command
@_changing
@as_json
def remove(**how: Any) -> None:
    """Show the change that takes our hooks out of the settings, and make it."""
    _change(without_hooks, **how)


@hooks_command.command
def run() -> None:
    """Do what a hook does; the client calls it, with the event on standard input.

    Whatever fails is said in a line on standard error, and the client goes on.
    """
    try:
        call = read_call(sys.stdin.buffer.read())
        if call.hook_event_name == "PreCompact":
            _keep(call)
        elif call.source == "compact":
            echo(_brief(call.session_id), nl=False)
    except Exception as error:  # noqa: BLE001 - the client's session must never break on us
        echo(f"compactor: {one_line(str(error))[:300]}; the session goes on without us", err=True)


_Change = Callable[[Mapping[str, Any]], dict[str, Any]]


def _change(change: _Change, *, settings: Path | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    path = settings or config_folder(os.environ) / "settings.json"
    try:
        if path.exists() and not path.is_file():  # a device may have no end, a pipe no writer
            raise ValueError("expected a file")
        before = path.read_text("utf-8-sig") if path.exists() else ""
        old = json.loads(before) if before.strip() else {}
        if not isinstance(old, dict):
            raise ValueError(f"expected a JSON object, found {type(old).__name__}")  # noqa: TRY004 - as of any content
        new = change(old)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: cannot be changed: {error}") from None
    after = before if new == old else json.dumps(new, indent=2, ensure_ascii=False) + "\n"
    diff = _difference(before, after, str(path))
    write = bool(diff) and not dry_run
    if as_json:
        print_json({"settings": str(path), "change": diff, "written": write})
    else:
        echo(diff or f"{path}: nothing to change\n", nl=False)
    if write and agreed(yes=yes, as_json=as_json):
        make_folder(path.parent)
        write_whole(path, after)


def _difference(before: str, after: str, name: str) -> str:
    old, new = ([f"{line}\n" for line in text.splitlines()] for text in (before, after))
    return "".join(unified_diff(old, new, name, name))


def _keep(call: HookCall) -> None:
    """Originals and a plan by rules to the store: a client's hook may take no minute and spend no tokens."""
    read = read_transcript(Path(call.transcript_path))
    plan = planned(read, call.transcript_path, focus=call.custom_instructions or None, planner="rules")
    with open_store() as store:
        key = store.save_history(read_history(read.messages))
        note = f"{key} before the client compacts"
        folder = read.working_folder
        apply_and_record(plan, read.messages, store, folder, kind=EVENT, session=call.session_id, message=note)


def _brief(session_id: str) -> str:
    with open_store() as store:
        events = [event for event in store.events(session_id) if event.get("kind") == EVENT]
        if not events:
            return ""
        plan = store.load_plan(str(events[-1]["plan"]))
    return brief_after_compaction(plan, history_key(plan.history.digest), naming_store(shlex.join(program())))
