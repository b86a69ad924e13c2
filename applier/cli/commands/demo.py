"""`compactor demo`: the main job on a transcript that really happened, with no key and no server."""

from __future__ import annotations

import importlib.resources
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click

from applier.adapters.transcripts import Transcript, read_transcript
from applier.cli.files import write_whole
from applier.cli.options import OutputFile, as_json, show_all
from applier.cli.review import Sheet, print_sheet, reviewed
from applier.cli.screen import echo, print_json, screen, working
from applier.store.opening import open_store
from applier.store.reference import history_key
from applier.view import apply
from planner.api import plan_compaction
from planner.errors import StoreDamaged
from planner.reading.history import read_history
from planner.validity import Violation, check_messages

__all__ = ["command"]

RATIO = 0.25


@dataclass(frozen=True)
class _Shown:
    """What the demo did."""

    sheet: Sheet
    messages_before: int
    messages_after: int
    violations: list[Violation]
    restored: int
    """Turns that came back byte-exact."""
    example: str
    """A reference that was restored."""


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
def command(copy: Path | None, show_all: bool, as_json: bool) -> None:
    """Do all of it on a real agent's run.

    Plans, reviews, applies and restores a transcript that ships with the package. Works
    offline, by rules; the store is a temporary one.
    """
    text = importlib.resources.files("applier.eval").joinpath("transcript.json").read_text("utf-8")
    if copy:
        write_whole(copy, text)
        return
    with working("planning…"):
        shown = _shown(_before_last_call(read_transcript(text)), fold=not show_all)
    if as_json:
        print_json({**shown.sheet.to_json(), "restored_turns": shown.restored})
        return
    print_sheet(screen(), shown.sheet, whole=show_all)
    echo("")
    for line in _result(shown):
        screen().print(line, soft_wrap=True)


def _before_last_call(read: Transcript) -> Transcript:
    """`read` as it stood when the model was called for the last time: that is when one compacts."""
    answered = read.messages[-1]["role"] == "assistant"
    return replace(read, messages=read.messages[:-1]) if answered else read


def _shown(read: Transcript, *, fold: bool) -> _Shown:
    plan = plan_compaction(read.messages, read.task, planner="rules", target_ratio=RATIO)
    sheet = reviewed(plan, read.messages, fold=fold)
    removed = [own.turn_id for own in plan.turns if own.strategy != "keep"]
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "store.db")) as store:
        view = apply(plan, read.messages, store=store)
        history = read_history(read.messages)
        key = history_key(history.digest)
        for turn_id in removed:
            if store.restore(f"{key}:{turn_id}").messages != history.messages_of(history.by_id[turn_id]):
                raise StoreDamaged(f"{key}:{turn_id} did not come back as it was")
    found = list(check_messages(view))
    return _Shown(sheet, len(read.messages), len(view), found, len(removed), f"{key}:{removed[0]}")


def _result(shown: _Shown) -> Iterator[str]:
    plan = shown.sheet.plan
    breaches = f"breaks {len(shown.violations)} rules" if shown.violations else "breaks no rule"
    yield (
        f"Applied: {shown.messages_before} messages of {plan.history.tokens:,} tokens became "
        f"{shown.messages_after} of {plan.estimated_tokens:,}; the list {breaches} of the Messages API."
    )
    yield f"Restored: all {shown.restored} removed turns came back byte-exact, {shown.example} for one."
    yield "Your own: compactor plan TRANSCRIPT --task '…'"
