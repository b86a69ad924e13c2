"""`compactor demo`: the main job on a transcript that really happened, with no key and no server."""

from __future__ import annotations

import importlib.resources
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from applier.adapters.transcripts import Transcript, read_transcript
from applier.cli.files import write_whole
from applier.cli.options import OutputFile, as_json, show_all
from applier.cli.print_sheet import print_sheet
from applier.cli.screen import echo, print_json, screen, working
from applier.sheet import reviewed
from applier.store.opening import open_store
from applier.store.records import history_key
from applier.view import apply
from planner.api import plan_compaction
from planner.errors import StoreDamaged
from planner.plan import CompactionPlan
from planner.reading.history import read_history
from planner.validity import check_messages

__all__ = ["demo_command"]

RATIO = 0.25


@click.command
@click.option(
    "--copy",
    "copy",
    metavar="FILE",
    type=OutputFile(),
    help="Only write the demo's transcript to FILE, to try the other commands on.",
)
@show_all
@as_json
def demo_command(copy: Path | None, show_all: bool, as_json: bool) -> None:
    """Do all of it on a real agent's run.

    Plans, reviews, applies and restores a transcript that ships with the package. Works
    offline, by rules; the store is a temporary one.
    """
    text = importlib.resources.files("applier.eval").joinpath("transcript.json").read_text("utf-8")
    if copy:
        write_whole(copy, text)
        return
    with working("planning…"):
        read = _before_last_call(read_transcript(text))
        plan = plan_compaction(read.messages, read.task, planner="rules", target_ratio=RATIO)
        sheet = reviewed(plan, read.messages, fold=not show_all)
        view, removed = _apply_and_restore(plan, read)
    if as_json:
        print_json({**sheet.to_json(), "restored_turns": len(removed)})
        return
    print_sheet(screen(), sheet, whole=show_all)
    violations = list(check_messages(view))
    breaches = f"breaks {len(violations)} rules" if violations else "breaks no rule"
    echo(
        f"\nApplied: {len(read.messages)} messages of {plan.history.tokens:,} tokens became "
        f"{len(view)} of {plan.estimated_tokens:,}; the list {breaches} of the Messages API."
    )
    echo(f"Restored: all {len(removed)} removed turns came back byte-exact, {removed[0]} for one.")
    echo("Your own: compactor plan TRANSCRIPT --task '…'")


def _before_last_call(read: Transcript) -> Transcript:
    """`read` as it stood when the model was called for the last time: that is when one compacts."""
    answered = read.messages[-1]["role"] == "assistant"
    return replace(read, messages=read.messages[:-1]) if answered else read


def _apply_and_restore(plan: CompactionPlan, read: Transcript) -> tuple[list[Any], list[str]]:
    """The view, and the references of all turns that were removed, each of which came back as it was."""
    history = read_history(read.messages)
    key = history_key(history.digest)
    removed = [own.turn_id for own in plan.turns if own.strategy != "keep"]
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "store.db")) as store:
        view = apply(plan, read.messages, store=store)
        for turn_id in removed:
            if store.restore(f"{key}:{turn_id}").messages != history.messages_of(history.by_id[turn_id]):
                raise StoreDamaged(f"{key}:{turn_id} did not come back as it was")
    return view, [f"{key}:{turn_id}" for turn_id in removed]
