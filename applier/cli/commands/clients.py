"""`compactor resume`: a client's own session, compacted into one that it resumes. A session is never overwritten."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from applier.adapters.transcripts import CLIENTS, Client
from applier.cli.files import make_folder, read_file
from applier.cli.options import as_json, output_option, store_option
from applier.cli.planning import planned, planning_options, write_view
from applier.cli.screen import echo, print_json, working
from applier.receipt import in_sight
from applier.sheet import reviewed
from planner.errors import SettingsError, TranscriptError
from planner.placeholders import history_key

__all__ = ["resume_command"]


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
