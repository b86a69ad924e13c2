"""`compactor eval`: what survives of your own transcripts, by method and size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich import box
from rich.table import Table

from applier.cli.options import as_json
from applier.cli.screen import print_json, progress, screen
from applier.evaluation.labels import read_labels
from applier.evaluation.methods import METHODS
from applier.evaluation.run import Job, evaluate_files
from applier.evaluation.samples import transcript_paths
from applier.evaluation.summary import Summary, summarize
from planner.errors import TranscriptError

__all__ = ["command"]

_EXISTING = click.Path(exists=True, path_type=Path)


@click.command(name="eval")
@click.argument("places", metavar="TRANSCRIPTS...", nargs=-1, required=True, type=_EXISTING)
@click.option(
    "--method",
    "methods",
    multiple=True,
    default=["rules"],
    show_default=True,
    help=f"What to compare, once each: {', '.join(METHODS)}, or module:function.",
)
@click.option(
    "--ratio",
    "ratios",
    type=click.FloatRange(0, 1, min_open=True),
    multiple=True,
    default=[0.25, 0.10, 0.04],
    show_default=True,
    help="Target sizes, as shares of the tokens.",
)
@click.option("--labels", type=_EXISTING, multiple=True, help="Files of labels made by reading.")
@click.option("--model", help="The planner model of the method `model`.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--quick", is_flag=True, help="Recall and survival only; no validity, restores and payback.")
@as_json
def command(
    places: tuple[Path, ...],
    methods: tuple[str, ...],
    ratios: tuple[float, ...],
    labels: tuple[Path, ...],
    model: str | None,
    workers: int,
    quick: bool,
    as_json: bool,
) -> None:
    """Cut TRANSCRIPTS (files, or folders of them) and measure what the agent needed after the cut.

    Plain recall: the share of specifics it wrote later that still stand. In context: with half of the words
    around them. The method never sees what comes after the cut.
    """
    paths = transcript_paths(places)
    if not paths:
        raise TranscriptError(f"{places[0]}: no transcripts (.json, .jsonl) in there")
    job = Job(tuple(methods), tuple(ratios), labels=read_labels(labels) if labels else None, quick=quick, model=model)
    with progress("measuring", len(paths)) as done:
        rows = evaluate_files(job, paths, workers, done)
    if as_json:
        print_json({"means": [asdict(mean) for mean in summarize(rows)], "cuts": [asdict(row) for row in rows]})
    else:
        _print(summarize(rows))


COLUMNS = {
    "cut": "kind",
    "method": "method",
    "target": "ratio",
    "cuts": "cuts",
    "size": "size",
    "plain": "plain",
    "context": "in_context",
    "failed": "failures_kept",
    "said": "demands_kept",
    "invalid": "violations",
    "restored": "restored",
    "payback": "payback_calls",
}
"""Titles of the table with the field of `Summary` behind each."""


def _print(means: Sequence[Summary]) -> None:
    shown = {title: name for title, name in COLUMNS.items() if any(getattr(mean, name) is not None for mean in means)}
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for title in shown:
        table.add_column(title, justify="left" if title in ("cut", "method") else "right")
    for mean in means:
        table.add_row(*(_cell(getattr(mean, name)) for name in shown.values()))
    screen().print(table if means else "no cut of these transcripts is long enough to measure")


def _cell(value: str | float | None) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
