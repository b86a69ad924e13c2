"""`compactor eval`: measures what survives of the user's own transcripts, by method and size, or by exam."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from applier.adapters.transcripts import transcript_files
from applier.cli.options import SHARE, as_json
from applier.cli.screen import clean, echo, one_line, print_json, print_table, progress, screen
from applier.eval.evaluation import EvaluationRow, evaluate_files, evaluation_means
from applier.eval.exam import QUESTION_KINDS, ExamMean, ExamView, exam_means, exam_samples, exam_views, read_exams
from applier.eval.methods import METHODS
from planner.errors import SettingsError, TranscriptError

__all__ = ["eval_command"]

COLUMNS = {
    "method": "method",
    "target": "ratio",
    "cuts": "cuts",
    "size": "size",
    "plain": "plain",
    "context": "in_context",
    "failed": "failures_kept",
    "demands": "demands_kept",
    "invalid": "violations",
    "payback": "payback_calls",
}
"""Fields of an `EvaluationMean` by the titles of the table."""

_EXISTING = click.Path(exists=True, path_type=Path)


@click.command
@click.argument("places", metavar="TRANSCRIPTS...", nargs=-1, required=True, type=_EXISTING)
@click.option(
    "--method",
    "methods",
    multiple=True,
    default=["rules"],
    show_default=True,
    help=f"Method to measure; repeatable: {', '.join(METHODS)}, prompts:DIR, recorded:DIR, or module:function.",
)
@click.option(
    "--ratio",
    "ratios",
    type=SHARE,
    multiple=True,
    help="Target sizes, as shares of the tokens (default: .25, .1, .04; with --probes .1).",
)
@click.option("--model", help="Planner model of the methods `model` and `prompts:DIR`.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Number of processes.")
@click.option("--lost", is_flag=True, help="Also list what each cut lost.")
@click.option(
    "--probes",
    metavar="FILE|DIR",
    type=_EXISTING,
    help="Exams to run instead: questions about the transcripts, as JSON (see docs/evaluation.md).",
)
@as_json
def eval_command(
    places: tuple[Path, ...],
    methods: tuple[str, ...],
    ratios: tuple[float, ...],
    model: str | None,
    workers: int,
    lost: bool,
    probes: Path | None,
    as_json: bool,
) -> None:
    """Measure what survives of what an agent needed later.

    Each of TRANSCRIPTS (files, or folders of them) is cut, and the part before the cut is compacted. Plain recall is
    the share of names the agent wrote after the cut that the result contains. Recall in context also needs half of the
    words around them. The method never sees the part after the cut.
    """
    paths = transcript_files(places)
    if not paths:
        raise TranscriptError(f"{places[0]}: contains no transcripts (.json, .jsonl)")
    if probes:
        views = _exam_views(probes, paths, methods, ratios or (0.10,), model)
        _print_exams(views, lost=lost, as_json=as_json)
        return
    with progress("measuring", len(paths)) as done:
        rows, problems = evaluate_files(
            paths, methods, ratios or (0.25, 0.10, 0.04), model=model, workers=workers, done=done
        )
    if problems and not rows:
        raise TranscriptError(problems[0])
    means = evaluation_means(rows)
    if as_json:
        print_json({"means": [asdict(mean) for mean in means], "cuts": [asdict(row) for row in rows]})
    else:
        for row in rows if lost else ():
            _print_losses(row)
        table = [{title: getattr(mean, name) for title, name in COLUMNS.items()} for mean in means]
        _print_rows(table, "nothing measured: the transcripts are too short to cut, or recorded answers are missing")
    if problems:
        raise TranscriptError(f"not measured: {'; '.join(problems)}")


def _print_rows(rows: Sequence[Mapping[str, str | float | None]], empty: str = "") -> None:
    """Print `rows` as a table with their keys as titles; leave out empty columns."""
    titles = [title for title in (rows[0] if rows else ()) if any(row[title] is not None for row in rows)]
    print_table(titles, ([_cell(row[title]) for title in titles] for row in rows), right=titles[1:], empty=empty)


def _cell(value: str | float | None) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _print_losses(row: EvaluationRow) -> None:
    losses = (row.recall.lost, row.recall.bare, row.survival.failures_lost, row.survival.demands_lost)
    titled = zip(("lost", "bare", "failed", "demands"), losses, strict=True)
    lines = (f"{title}: {what}" for title, lost in titled for what in lost)
    _print_list(f"{row.cut} {row.method} {row.ratio:.2f}", lines)


def _print_list(title: str, lines: Iterable[str]) -> None:
    screen().print(clean(title, "bold"), soft_wrap=True)
    for line in lines:
        echo(f"  {one_line(line)}")


def _exam_views(
    probes: Path, paths: Sequence[Path], methods: Sequence[str], ratios: Sequence[float], model: str | None
) -> list[ExamView]:
    """Return the views of each method for the exams in `probes` on the transcripts of `paths`."""
    exams = read_exams([probes])
    views: list[ExamView] = []
    with progress("holding exams", len(exams)) as done:
        for sample in exam_samples(exams, paths):
            views += exam_views(sample, methods, ratios, model)
            done()
    missing = [name for name in methods if name not in {view.method for view in views}]
    if missing:
        raise SettingsError(f"{missing[0]}: no recorded answers: answer the prompts written to that folder")
    return views


def _print_exams(views: Sequence[ExamView], *, lost: bool, as_json: bool) -> None:
    means = exam_means([(view, view.scores) for view in views])
    if as_json:
        of_views = [_names(view) | {"sha": view.sha, "lost": [own.number for own in view.lost]} for view in views]
        print_json({"means": [asdict(mean) for mean in means], "views": of_views})
        return
    for view in views if lost else ():
        right = len(view.exam.questions) - len(view.lost)
        counts = f"{right}/{len(view.exam.questions)} at {view.size:.3f}"
        lines = (f"{question.number} {question.kind}: {question.text} -> {question.answer}" for question in view.lost)
        _print_list(f"{view.exam.transcript} {view.method} {_cell(view.ratio)}: {counts}", lines)
    _print_rows([_scores(mean) for mean in means])


def _names(view: ExamView) -> dict[str, object]:
    return {"transcript": view.exam.transcript, "method": view.method, "target": view.ratio, "size": view.size}


def _scores(mean: ExamMean) -> dict[str, Any]:
    kinds: dict[str, Any] = {kind: mean.by_kind.get(kind) for kind in QUESTION_KINDS}
    numbers = {"exams": mean.exams, "size": f"{mean.size:.3f}", "score": mean.score}
    return {"method": mean.method, "target": mean.ratio, **numbers, **kinds}
