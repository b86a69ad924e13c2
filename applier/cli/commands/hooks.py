"""`compactor hooks`: keep what Claude Code's own compaction would lose. The change of its settings is shown first."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any

import click

from applier.adapters.client_hooks import HookCall, brief_after_compaction, read_call, with_hooks, without_hooks
from applier.adapters.transcripts import read_transcript
from applier.cli.files import make_folder, write_whole
from applier.cli.options import as_json, store_option
from applier.cli.screen import echo, print_json
from applier.cli.stores import store_anywhere
from applier.cli.work import apply_and_record, planned
from applier.program import program
from applier.store.opening import STORE_VARIABLE, open_store
from applier.store.reference import history_key
from planner.errors import SettingsError
from planner.reading.history import read_history

__all__ = ["command"]

EVENT = "pre_compact"
"""The kind of the event by which a compacted session finds its plan again."""

_settings = click.option(
    "--settings",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The client's settings (default: settings.json in $CLAUDE_CONFIG_DIR or ~/.claude).",
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show the change; write nothing.")
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group
def command() -> None:
    """Hook into Claude Code's own compaction.

    Before it, the originals and a plan go to the store; the compacted session begins with the plan's brief and with
    how any turn is restored.
    """


@command.command
@_settings
@_dry_run
@_yes
@store_option
@as_json
def install(settings: Path | None, dry_run: bool, yes: bool, store: str | None, as_json: bool) -> None:
    """Show the change to the client's settings, and make it."""
    line = shlex.join(program("hooks", "run"))
    if store:
        line = f"{STORE_VARIABLE}={shlex.quote(store_anywhere(store))} {line}"
    _change(settings, lambda old: with_hooks(old, line), dry_run=dry_run, yes=yes, as_json=as_json)


@command.command
@_settings
@_dry_run
@_yes
@as_json
def remove(settings: Path | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Show the change that takes our hooks out of the settings, and make it."""
    _change(settings, without_hooks, dry_run=dry_run, yes=yes, as_json=as_json)


@command.command
def run() -> None:
    """Do what a hook does; the client calls it, with the event on standard input.

    Whatever fails is said in a line on standard error, and the client goes on.
    """
    try:
        echo(_answer(read_call(sys.stdin.buffer.read())), nl=False)
    except Exception as error:  # noqa: BLE001 - the client's session must never break on us
        echo(f"compactor: {' '.join(str(error).split())[:300]}; the session goes on without us", err=True)


def _change(
    path: Path | None,
    change: Callable[[Mapping[str, Any]], dict[str, Any]],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    path = path or Path(os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude"), "settings.json")
    before = _read(path)
    after = _changed(before, change, path)
    diff = "".join(unified_diff(_lines(before), _lines(after), str(path), str(path)))
    write = bool(diff) and not dry_run
    if as_json:
        print_json({"settings": str(path), "change": diff, "written": write})
    else:
        echo(diff or f"{path}: nothing to change\n", nl=False)
    if not write:
        return
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("nobody to ask here: say --yes to make this change.")
    if yes or click.confirm("Make this change?", abort=True, err=as_json):
        make_folder(path.parent)
        write_whole(path, after)


def _read(path: Path) -> str:
    """The settings that are there; empty if none are."""
    if not path.exists():
        return ""
    if not path.is_file():  # a device may have no end, a pipe no writer
        raise SettingsError(f"{path}: cannot be changed: expected a file")
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: cannot be changed: expected UTF-8: {error.reason}") from None


def _changed(before: str, change: Callable[[Mapping[str, Any]], dict[str, Any]], path: Path) -> str:
    """The text of the settings after `change`; as it was if that changes nothing."""
    try:
        old = json.loads(before) if before.strip() else {}
        new = change(old) if isinstance(old, dict) else None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: cannot be changed: {error}") from None
    if new is None:
        raise SettingsError(f"{path}: cannot be changed: expected a JSON object, found {type(old).__name__}")
    return before if new == old else json.dumps(new, indent=2, ensure_ascii=False) + "\n"


def _lines(text: str) -> list[str]:
    return [f"{line}\n" for line in text.splitlines()]


def _answer(call: HookCall) -> str:
    """What standard output says: nothing before a compaction, the brief behind it."""
    if call.hook_event_name == "PreCompact":
        _keep(call)
        return ""
    return _brief(call.session_id) if call.source == "compact" else ""


def _keep(call: HookCall) -> None:
    """Originals and a plan by rules to the store: a client's hook may take no minute and spend no tokens."""
    read = read_transcript(Path(call.transcript_path))
    plan = planned(read, call.transcript_path, focus=call.custom_instructions or None, planner="rules")
    with open_store() as store:
        key = store.save_history(read_history(read.messages))
        note = f"{key} before the client compacts"
        apply_and_record(plan, read.messages, store, kind=EVENT, session=call.session_id, message=note)


def _brief(session_id: str) -> str:
    with open_store() as store:
        kept = [event for event in store.events(session_id) if event.get("kind") == EVENT]
        if not kept:
            return ""
        plan = store.load_plan(str(kept[-1]["plan"]))
    return brief_after_compaction(plan, history_key(plan.history.digest), shlex.join(program()))
