"""`compactor eval`: what survives of your own transcripts, by method and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from applier.cli.commands.eval_probes import ExamOptions, hold_exams
from applier.cli.options import OutputFile, as_json
from applier.cli.screen import clean, one_line, plain_table, print_json, progress, screen
from applier.eval.chart import draw_recall
from applier.eval.cuts import transcript_paths
from applier.eval.evaluation import EvaluationJob, EvaluationMean, EvaluationRow, evaluate_files, evaluation_means
from applier.eval.exam import SUMMARY, Target
from applier.eval.labels import read_labels
from applier.eval.methods import METHODS
from planner.errors import TranscriptError

__all__ = ["command"]


class _TargetType(click.ParamType[Target]):
    name = "SHARE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        if value == SUMMARY:
            return SUMMARY
        return click.FloatRange(0, 1, min_open=True).convert(value, param, ctx)


_EXISTING = click.Path(exists=True, path_type=Path)


@click.command(name="eval")
@click.argument("places", metavar="TRANSCRIPTS...", nargs=-1, required=True, type=_EXISTING)
@click.option(
    "--method",
    "methods",
    multiple=True,
    default=["rules"],
    show_default=True,
    help=f"What to compare, once each: {', '.join(METHODS)}, or module:function (by PYTHONPATH).",
)
@click.option(
    "--ratio",
    "targets",
    type=_TargetType(),
    multiple=True,
    help="Target sizes, as shares of the tokens (default: .25, .1, .04); with --probes also `summary`, the size of "
    "the agent's own (default: summary, .1).",
)
@click.option("--labels", type=_EXISTING, multiple=True, help="Files of labels made by reading.")
@click.option("--model", help="The planner model of the method `model`.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--chart", metavar="FILE", type=OutputFile(), help="Draw recall against size: .svg, .png and others.")
@click.option("--lost", is_flag=True, help="Say what each cut lost, too.")
@click.option(
    "--probes", metavar="FILE|DIR", type=_EXISTING, help="Exams to hold instead: questions about the transcripts."
)
@click.option(
    "--write-views",
    "round_folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --probes: write the views for readers into DIR, and take up what they and graders wrote there.",
)
@click.option(
    "--sheets",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="With --probes: report the grades of answer sheets in DIR.",
)
@click.option("--quick", is_flag=True, help="Recall and survival only; no validity, restores and payback.")
@as_json
def command(
    places: tuple[Path, ...],
    methods: tuple[str, ...],
    targets: tuple[Target, ...],
    labels: tuple[Path, ...],
    model: str | None,
    workers: int,
    chart: Path | None,
    lost: bool,
    probes: Path | None,
    round_folder: Path | None,
    sheets: Path | None,
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
    if probes:
        hold_exams(
            paths, ExamOptions(probes, methods, targets or (SUMMARY, 0.10), model, round_folder, sheets, lost, as_json)
        )
        return
    targets = targets or (0.25, 0.10, 0.04)
    ratios = tuple(target for target in targets if not isinstance(target, str))
    if len(ratios) < len(targets) or round_folder or sheets:
        raise click.UsageError("--ratio summary, --write-views and --sheets go with --probes.")
    job = EvaluationJob(
        tuple(methods), ratios, labels=read_labels(labels) if labels else None, quick=quick, model=model
    )
    with progress("measuring", len(paths)) as done:
        rows = evaluate_files(job, paths, workers, done)
    means = evaluation_means(rows)
    if chart:
        draw_recall(means, chart)
    if as_json:
        print_json({"means": [asdict(mean) for mean in means], "cuts": [asdict(row) for row in rows]})
    else:
        _print_all(rows, means, lost=lost)


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
"""Titles of the table with the field of `EvaluationMean` behind each."""
LABEL_COLUMNS = {
    "labels": "method",
    "target": "ratio",
    "failed": "labelled_failed",
    "constraints": "labelled_constraints",
    "answers": "labelled_answers",
    "flag precision": "flag_precision",
    "flag recall": "flag_recall",
}
"""Likewise of what was labelled; the flags are the failures that the planner's evidence sees, whatever the method."""


def _print_all(rows: Sequence[EvaluationRow], means: Sequence[EvaluationMean], *, lost: bool) -> None:
    for row in rows if lost else ():
        _print_lost(screen(), row)
    if not means:
        screen().print("no cut of these transcripts is long enough to measure")
        return
    _print(COLUMNS, means)
    labelled = [mean for mean in means if mean.kind == "labelled"]
    if labelled:
        _print(LABEL_COLUMNS, labelled)


def _print(columns: Mapping[str, str], means: Sequence[EvaluationMean]) -> None:
    shown = {title: name for title, name in columns.items() if any(getattr(mean, name) is not None for mean in means)}
    table = plain_table(*shown, right=shown.keys() - {"cut", "method", "labels"})
    for mean in means:
        table.add_row(*(_cell(getattr(mean, name)) for name in shown.values()))
    screen().print(table)


def _cell(value: str | float | None) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _print_lost(console: Console, row: EvaluationRow) -> None:
    console.print(clean(f"{row.cut} {row.method} {row.ratio:.2f}", "bold"))
    losses = {
        "lost": row.recall.lost,
        "bare": row.recall.bare,
        "failed": row.survival.failures_lost,
        "said": row.survival.demands_lost,
        "labels": row.labelled.lost if row.labelled else (),
        "flagged as failed, not labelled": row.flags.false if row.flags else (),
        "labelled as failed, not flagged": row.flags.missed if row.flags else (),
    }
    for title, lost in losses.items():
        for what in lost:
            console.print(clean(f"  {title}: {one_line(what)}"), soft_wrap=True)
