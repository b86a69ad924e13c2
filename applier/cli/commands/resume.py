"""`compactor resume`: a client's session, compacted into one that the client resumes; the old one stays as it is."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from applier.adapters.transcripts import CLIENTS, Client, Transcript, write_transcript
from applier.cli.files import make_folder, read_file, write_whole
from applier.cli.options import OutputFile, as_json, planning, store_option
from applier.cli.review import Sheet, reviewed
from applier.cli.screen import echo, print_json, working
from applier.cli.work import apply_and_record, planned
from applier.store.opening import open_store
from applier.store.reference import history_key
from planner.errors import SettingsError, TranscriptError

__all__ = ["command"]


@click.command
@click.argument("session", metavar="SESSION.jsonl", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@planning
@click.option("-o", "--output", metavar="FILE", type=OutputFile(), help="Write the new session there.")
@click.option("--in-client", is_flag=True, help="Write it where the client looks, not beside SESSION.jsonl.")
@click.option("--dry-run", is_flag=True, help="Say what would happen; write nothing.")
@store_option
@as_json
def command(
    session: Path,
    output: Path | None,
    in_client: bool,
    dry_run: bool,
    store: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Compact a client's session so that the client resumes it.

    SESSION.jsonl is a session of Claude Code (in ~/.claude/projects) or a rollout of Codex (in ~/.codex/sessions).
    The compacted one gets an id of its own and is written beside it; SESSION.jsonl is not touched. Every original
    is in the store first.
    """
    if output and in_client:
        raise click.UsageError("-o and --in-client exclude each other: give one.")
    read = read_file(session)
    client = read.client
    if client is None:
        known = " or ".join(form.title for form in CLIENTS)
        raise TranscriptError(f"{session}: expected a session log ({known}), found {read.format} messages")
    with working("planning…"):
        sheet = reviewed(planned(read, session, **how), read.messages)
    session_id, now = str(uuid4()), datetime.now(UTC)
    name = client.log_name(session_id, now)
    in_place = client.log_folder(read.working_folder, now, os.environ) / name
    place = in_place if in_client else output or session.absolute().parent / name
    if sheet.changes and not dry_run:
        _write(sheet, read, session_id, place, store)
    typed = _typed(client, read.working_folder, session_id, place, in_place)
    _report(sheet, session_id, place, typed, dry_run=dry_run, as_json=as_json)


def _write(sheet: Sheet, read: Transcript, session_id: str, place: Path, store: str | None) -> None:
    if place.exists():
        raise SettingsError(f"{place}: is there already: a session is never overwritten; name a new file")
    with open_store(store) as opened:
        note = f"{history_key(sheet.plan.history.digest)} to {place}"
        view = apply_and_record(sheet.plan, read.messages, opened, message=note, session=session_id)
    make_folder(place.parent)
    write_whole(place, write_transcript(view, read, session_id=session_id))


def _typed(client: Client, folder: str, session_id: str, place: Path, in_place: Path) -> str:
    """What a person types to go on: where the client does not look, the file is copied to `in_place` first."""
    steps = [client.resume_command(session_id)]
    if folder:
        steps.insert(0, f"cd {shlex.quote(folder)}")
    if not client.finds(place, in_place):
        goal = _quoted(in_place.parent)
        steps.insert(0, f"mkdir -p {goal} && cp {shlex.quote(str(place))} {goal}/{in_place.name}")
    return " && ".join(steps)


def _quoted(path: Path) -> str:
    """`path` for a shell; the home folder is ``~``."""
    home = Path.home()
    return f"~/{shlex.quote(str(path.relative_to(home)))}" if path.is_relative_to(home) else shlex.quote(str(path))


def _report(sheet: Sheet, session_id: str, place: Path, typed: str, *, dry_run: bool, as_json: bool) -> None:
    plan = sheet.plan
    if as_json:
        written = {"written": sheet.changes and not dry_run, "session_id": session_id, "file": str(place)}
        print_json({**sheet.to_json(), **written, "resume": typed})
    elif not sheet.changes:
        echo(f"Nothing to compact: all {plan.history.tokens:,} tokens stay. No session was written.")
    elif dry_run:
        echo(f"{plan.history.tokens:,} tokens would become {plan.estimated_tokens:,}, in {place}")
    else:
        key = history_key(plan.history.digest)
        echo(f"{plan.history.tokens:,} tokens became {plan.estimated_tokens:,}, in {place}")
        echo(f"Go on there:  {typed}")
        echo(f"Originals:    compactor restore {key}:t1, t2, …; the old session is as it was")
