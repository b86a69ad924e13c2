"""`compactor eval`: what survives of your own transcripts, by method and size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from applier.bench.labels import read_labels
from applier.bench.methods import METHODS
from applier.bench.picture import recall_picture
from applier.bench.run import Job, Row, evaluate_files
from applier.bench.samples import transcript_paths
from applier.bench.summary import Summary, summarize
from applier.cli.commands.eval_probes import exam
from applier.cli.files import write_whole
from applier.cli.options import as_json
from applier.cli.screen import clean, one_line, plain_table, print_json, progress, screen
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
@click.option("--picture", metavar="FILE", type=click.Path(path_type=Path), help="Draw recall against size, as SVG.")
@click.option("--lost", is_flag=True, help="Say what each cut lost, too.")
@click.option(
    "--probes",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Let a model write, answer and grade questions instead; they are kept in FILE. Needs a key.",
)
@click.option("--quick", is_flag=True, help="Recall and survival only; no validity, restores and payback.")
@as_json
def command(
    places: tuple[Path, ...],
    methods: tuple[str, ...],
    ratios: tuple[float, ...],
    labels: tuple[Path, ...],
    model: str | None,
    workers: int,
    picture: Path | None,
    lost: bool,
    probes: Path | None,
    quick: bool,
    as_json: bool,
) -> None:
    """Measure what survives of what an agent needed later.

    TRANSCRIPTS are files, or folders of them; each is cut, and what stands before the cut is compacted.
    Plain recall: the share of specifics it wrote later that still stand. In context: with half of the words
    around them. The method never sees what comes after the cut.
    """
    paths = transcript_paths(places)
    if not paths:
        raise TranscriptError(f"{places[0]}: no transcripts (.json, .jsonl) in there")
    job = Job(tuple(methods), tuple(ratios), labels=read_labels(labels) if labels else None, quick=quick, model=model)
    if probes:
        exam(job, paths, probes, as_json=as_json)
        return
    with progress("measuring", len(paths)) as done:
        rows = evaluate_files(job, paths, workers, done)
    means = summarize(rows)
    if picture:
        write_whole(picture, recall_picture(means))
    if as_json:
        print_json({"means": [asdict(mean) for mean in means], "cuts": [asdict(row) for row in rows]})
        return
    for row in rows if lost else ():
        _print_lost(screen(), row)
    _print(means)


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
    "labels: failed": "labelled_failed",
    "said so": "labelled_constraints",
    "answers": "labelled_answers",
    "invalid": "violations",
    "restored": "restored",
    "payback": "payback_calls",
}
"""Titles of the table with the field of `Summary` behind each."""


def _print(means: Sequence[Summary]) -> None:
    shown = {title: name for title, name in COLUMNS.items() if any(getattr(mean, name) is not None for mean in means)}
    table = plain_table(*shown, right=shown.keys() - {"cut", "method"})
    for mean in means:
        table.add_row(*(_cell(getattr(mean, name)) for name in shown.values()))
    screen().print(table if means else "no cut of these transcripts is long enough to measure")


def _cell(value: str | float | None) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _print_lost(console: Console, row: Row) -> None:
    console.print(clean(f"{row.cut} {row.method} {row.ratio:.2f}", "bold"))
    losses = {
        "lost": row.recall.lost,
        "bare": row.recall.bare,
        "failed": row.survival.failures_lost,
        "said": row.survival.demands_lost,
        "labels": row.labelled.lost if row.labelled else (),
    }
    for title, lost in losses.items():
        for what in lost:
            console.print(clean(f"  {title}: {one_line(what)}"), soft_wrap=True)
