"""``python -m tests.bench planned PLACE… --out DIR --ratio 0.05``: plans by answers that somebody else asks a model
for.

Writes ``DIR/NAME@RATIO.prompt.txt`` for each transcript and ratio, to be answered in ``NAME@RATIO.answer.txt``. A long
history has ``prompt-1``, ``prompt-2`` and on; the last one follows when the others are answered. With all answers it
writes the view, ``NAME@RATIO.view.txt``. Run it again after every answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from applier import preview
from applier.adapters.transcripts import Transcript, read_transcript, transcript_files
from applier.eval.methods import FolderPlanner, NotRecorded
from applier.eval.survival import message_tokens, plain_text
from planner import plan_compaction
from planner.brief import read_brief


@dataclass(frozen=True)
class PlannedView:
    """Transcript at one ratio."""

    name: str
    """``NAME@RATIO``."""
    missing: str = ""
    """Prompt to answer next; empty if there is none."""
    size: float = 0.0
    """Size of the view, as a share of the history's tokens by o200k."""
    brief_words: int = 0
    findings: tuple[str, ...] = ()
    """Codes of the answer's findings."""


def planned_views(transcript: Transcript, name: str, ratios: list[float], out: Path) -> Iterator[PlannedView]:
    """Return the views of `transcript` in `out`, or the prompts to answer first."""
    whole = message_tokens(transcript.messages)
    for ratio in ratios:
        sample = f"{name}@{ratio:g}"
        planner: Any = FolderPlanner(out, sample)
        try:
            plan = plan_compaction(transcript.messages, transcript.task, planner=planner, target_ratio=ratio)
        except NotRecorded as missing:
            yield PlannedView(sample, str(missing))
            continue
        view = preview(plan).messages
        (out / f"{sample}.view.txt").write_text(plain_text(view), "utf-8")
        words = sum(len(statement.text.split()) for statement in read_brief(plan.brief))
        codes = tuple(finding.code for finding in plan.findings)
        yield PlannedView(sample, "", message_tokens(view) / whole, words, codes)


def add_command(commands: Any) -> None:
    """Add the command ``planned``."""
    parser = commands.add_parser("planned", help="prompts of transcripts to be answered, and views from the answers")
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="where prompts, answers and views are")
    parser.add_argument("--ratio", action="append", type=float, help="0.025, 0.05 and 0.1 by default")
    parser.set_defaults(run=_run)


def _run(console: Console, options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    table = Table("view", "size", "words of the brief", "findings", box=None)
    for path in transcript_files(options.places):
        for view in planned_views(read_transcript(path), path.stem, options.ratio or [0.025, 0.05, 0.1], options.out):
            if view.missing:
                console.print(f"{view.name}: {view.missing}", markup=False, highlight=False, soft_wrap=True)
            else:
                table.add_row(view.name, f"{view.size:.3f}", str(view.brief_words), ", ".join(view.findings))
    if table.row_count:
        console.print(table)
