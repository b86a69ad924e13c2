"""`compactor apply`: turn a plan into the new transcript; originals are in the store first."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from applier.adapters.transcripts import Transcript, write_transcript
from applier.cli.files import read_file, read_plan, write_whole
from applier.cli.options import Edit, as_json, edits, part, plan_file, store_option, transcript
from applier.cli.review import Sheet, reviewed
from applier.cli.screen import print_json, working
from applier.store.opening import open_store
from applier.store.reference import history_key
from applier.view import apply
from planner.plan import CompactionPlan
from planner.reading.messages import Message

__all__ = ["command"]


@click.command
@plan_file
@transcript
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(allow_dash=True, path_type=Path),
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

    FILE has the format of TRANSCRIPT. Every original is in the store before the view is written.
    """
    if output is None and not dry_run:
        raise click.UsageError("say by -o where the new transcript goes, or --dry-run.")
    read = read_file(transcript, part)
    with working("applying…"):
        sheet = reviewed(read_plan(plan_file), read.messages, edits)
        if output and not dry_run:
            _put(_committed(sheet.plan, read.messages, output, store) if sheet.changes else read.messages, read, output)
    _report(sheet, output, dry_run=dry_run, as_json=as_json)


def _committed(plan: CompactionPlan, messages: list[Message], output: Path, store: str | None) -> list[Any]:
    """The view, once originals, plan and facts are in the store."""
    key = history_key(plan.history.digest)
    with open_store(store) as opened:
        view = apply(plan, messages, store=opened)
        plan_id = opened.save_plan(plan)
        opened.save_facts(plan.extracted_facts, key)
        opened.record_event(
            {
                "time": time.time(),
                "kind": "apply",
                "history": key,
                "plan": plan_id,
                "tokens_before": plan.history.tokens,
                "tokens_after": plan.estimated_tokens,
                "message": f"{key} by {plan_id} to {output}",
            }
        )
    return view


def _put(view: list[Any], read: Transcript, output: Path) -> None:
    text = write_transcript(view, read)
    if str(output) == "-":
        click.echo(text, nl=False)
    else:
        write_whole(output, text)


def _report(sheet: Sheet, output: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """What was done, on standard error if the view itself is on standard output."""
    plan = sheet.plan
    if as_json:
        print_json({**sheet.to_json(), "applied": not dry_run, "output": str(output or "")})
        return
    if not sheet.changes:
        click.echo(f"Nothing changes: all {plan.history.tokens:,} tokens stay.", err=str(output) == "-")
        return
    key = history_key(plan.history.digest)
    done = "would become" if dry_run else "became"
    removed = next(own.turn_id for own in plan.turns if own.strategy != "keep")
    click.echo(
        f"{plan.history.tokens:,} tokens {done} {plan.estimated_tokens:,}."
        + ("" if dry_run else f" Originals: compactor restore {key}:{removed}"),
        err=str(output) == "-",
    )
