"""`compactor apply`: turn a plan into the new transcript; originals are in the store first."""

from __future__ import annotations

from pathlib import Path

import click

from applier.adapters.transcripts import Transcript
from applier.cli.files import read_file, read_plan, write_whole
from applier.cli.options import OutputFile, as_json, edits, part, plan_file, spare, store_option, transcript
from applier.cli.review import Sheet, reviewed
from applier.cli.screen import echo, print_json, working
from applier.cli.work import applied_text
from applier.sheet import Edit
from applier.store.reference import history_key

__all__ = ["command"]


@click.command
@plan_file
@transcript
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=OutputFile(allow_dash=True),
    help="Where the new transcript goes; - for standard output.",
)
@click.option("--dry-run", is_flag=True, help="Say what would happen; write nothing.")
@edits
@part
@store_option
@as_json
def command(
    plan_file: Path,
    transcript: Path,
    output: Path | None,
    dry_run: bool,
    edits: tuple[Edit, ...],
    part: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Apply a plan and write the new transcript.

    FILE has the format of TRANSCRIPT; of a session log it is a log with a session id of its own (`compactor resume`
    puts it where the client looks). Every original is in the store before the view is written.
    """
    if output is None and not dry_run:
        raise click.UsageError("say by -o where the new transcript goes, or --dry-run.")
    spare({"plan": plan_file}, output)
    read = read_file(transcript, part)
    with working("applying…"):
        sheet = reviewed(read_plan(plan_file), read.messages, edits)
        if output and not dry_run:
            _write_view(sheet, read, output, store)
    _report(sheet, output, dry_run=dry_run, as_json=as_json)


def _write_view(sheet: Sheet, read: Transcript, output: Path, store: str | None) -> None:
    text = applied_text(sheet, read, output, store)
    if str(output) == "-":
        click.echo(text, nl=False)
    else:
        write_whole(output, text)


def _report(sheet: Sheet, output: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """What was done, on standard error if the view itself is on standard output."""
    plan, aside = sheet.plan, str(output) == "-"
    if as_json:
        print_json({**sheet.to_json(), "applied": not dry_run, "output": str(output or "")}, err=aside)
        return
    if not sheet.changes:
        echo(f"Nothing changes: all {plan.history.tokens:,} tokens stay.", err=aside)
        return
    key = history_key(plan.history.digest)
    done = "would become" if dry_run else "became"
    removed = next(own.turn_id for own in plan.turns if own.strategy != "keep")
    originals = "" if dry_run else f" Originals: compactor restore {key}:{removed}"
    echo(f"{plan.history.tokens:,} tokens {done} {plan.estimated_tokens:,}.{originals}", err=aside)
