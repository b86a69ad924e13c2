"""`compactor eval` and `prompts eval`: what survives of your own transcripts, by method and size, by exam, by prompts.

Cuts of transcripts are measured, or exams of questions literally held on compacted views. Prints what `applier.eval`
measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from applier.adapters.transcripts import transcript_files
from applier.cli.options import OUTPUT_FILE, SHARE, as_csv, as_json
from applier.cli.screen import clean, echo, one_line, print_csv, print_json, print_table, progress, screen
from applier.eval.evaluation import (
    EvaluationMean,
    EvaluationRow,
    cuts_of_file,
    draw_recall,
    evaluate_files,
    evaluation_means,
)
from applier.eval.exam import QUESTION_KINDS, ExamMean, ExamView, exam_means, exam_samples, exam_views, read_exams
from applier.eval.methods import METHODS
from applier.eval.prompt_comparison import DEFAULT_RATIO, PromptVariant, compare_prompts
from planner.errors import SettingsError, TranscriptError

__all__ = ["eval_command", "prompts_eval_command"]

COLUMNS = {
    "method": "method",
    "target": "ratio",
    "cuts": "cuts",
    "size": "size",
    "plain": "plain",
    "context": "in_context",
    "failed": "failures_kept",
    "said": "demands_kept",
    "invalid": "violations",
    "payback": "payback_calls",
}
"""Titles of the table with the field of `EvaluationMean` behind each."""
PROMPT_COLUMNS = {"prompts": "method"} | {
    title: COLUMNS[title] for title in ("cuts", "size", "plain", "context", "failed", "said")
}
"""Likewise of two folders of prompts."""

_EXISTING = click.Path(exists=True, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_places = click.argument("places", metavar="TRANSCRIPTS...", nargs=-1, required=True, type=_EXISTING)


@click.command
@_places
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
    "ratios",
    type=SHARE,
    multiple=True,
    help="Target sizes, as shares of the tokens (default: .25, .1, .04; with --probes .1).",
)
@click.option("--model", help="The planner model of the method `model`.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--chart", metavar="FILE", type=OUTPUT_FILE, help="Draw recall against size: .svg, .png and others.")
@click.option("--lost", is_flag=True, help="Say what each cut lost, too.")
@click.option(
    "--probes",
    metavar="FILE|DIR",
    type=_EXISTING,
    help="Exams to hold instead: questions about the transcripts, as JSON (docs/evaluation.md says the form).",
)
@click.option("--quick", is_flag=True, help="Recall and survival only; no validity, restores and payback.")
@as_json
@as_csv
def eval_command(
    places: tuple[Path, ...],
    methods: tuple[str, ...],
    ratios: tuple[float, ...],
    model: str | None,
    workers: int,
    chart: Path | None,
    lost: bool,
    probes: Path | None,
    quick: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Measure what survives of what an agent needed later.

    TRANSCRIPTS are files, or folders with such in and below them; each is cut, and what stands before the cut is
    compacted. Plain recall: the share of specifics it wrote later that still stand. In context: with half of the
    words around them. The method never sees what comes after the cut.
    """
    paths = transcript_files(places)
    if not paths:
        raise TranscriptError(f"{places[0]}: no transcripts (.json, .jsonl) in there")
    if probes:
        views = _exam_views(probes, paths, methods, ratios or (0.10,), model)
        _print_exams(views, lost=lost, as_json=as_json, as_csv=as_csv)
        return
    with progress("measuring", len(paths)) as done:
        rows, problems = evaluate_files(
            paths, methods, ratios or (0.25, 0.10, 0.04), quick=quick, model=model, workers=workers, done=done
        )
    if problems and not rows:
        raise TranscriptError(problems[0])
    means = evaluation_means(rows)
    if chart:
        draw_recall(means, chart)
    if as_csv:
        print_csv([{"cut": row.cut} | _fields(evaluation_means([row])[0]) for row in rows])
    elif as_json:
        print_json({"means": [asdict(mean) for mean in means], "cuts": [asdict(row) for row in rows]})
    else:
        for row in rows if lost else ():
            _print_losses(row)
        _print_means(COLUMNS, means)
    if problems:
        raise TranscriptError(f"not measured: {'; '.join(problems)}")


def _fields(mean: EvaluationMean) -> dict[str, object]:
    return {name: getattr(mean, name) for name in COLUMNS.values() if name != "cuts"}


def _print_means(columns: Mapping[str, str], means: Sequence[EvaluationMean]) -> None:
    rows = [{title: getattr(mean, name) for title, name in columns.items()} for mean in means]
    _print_rows(rows, "no cut of these transcripts is long enough to measure")


def _print_rows(rows: Sequence[Mapping[str, str | float | None]], empty: str = "") -> None:
    """A table of `rows`, whose keys are the titles; what none of them has is left out."""
    titles = [title for title in (rows[0] if rows else ()) if any(row[title] is not None for row in rows)]
    print_table(titles, ([_cell(row[title]) for title in titles] for row in rows), right=titles[1:], empty=empty)


def _cell(value: str | float | None) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _print_losses(row: EvaluationRow) -> None:
    losses = (row.recall.lost, row.recall.bare, row.survival.failures_lost, row.survival.demands_lost)
    titled = zip(("lost", "bare", "failed", "said"), losses, strict=True)
    lines = (f"{title}: {what}" for title, lost in titled for what in lost)
    _print_list(f"{row.cut} {row.method} {row.ratio:.2f}", lines)


def _print_list(title: str, lines: Iterable[str]) -> None:
    screen().print(clean(title, "bold"), soft_wrap=True)
    for line in lines:
        echo(f"  {one_line(line)}")


def _exam_views(
    probes: Path, paths: Sequence[Path], methods: Sequence[str], ratios: Sequence[float], model: str | None
) -> list[ExamView]:
    """What each method shows for the exams `probes` on the transcripts of `paths`."""
    exams = read_exams([probes])
    views: list[ExamView] = []
    with progress("holding exams", len(exams)) as done:
        for sample in exam_samples(exams, paths):
            views += exam_views(sample, methods, ratios, model)
            done()
    missing = [name for name in methods if name not in {view.method for view in views}]
    if missing:
        raise SettingsError(f"{missing[0]}: nothing recorded for these exams: answer the prompts written there")
    return views


def _print_exams(views: Sequence[ExamView], *, lost: bool, as_json: bool, as_csv: bool) -> None:
    means = exam_means([(view, view.scores) for view in views])
    if as_csv:
        print_csv([row for view in views for row in _answers(view)])
        return
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


def _answers(view: ExamView) -> Iterator[dict[str, object]]:
    scores = view.scores
    for own in view.exam.questions:
        yield _names(view) | {"question": own.number, "kind": own.kind, "score": scores[own.number]}


def _names(view: ExamView) -> dict[str, object]:
    return {"transcript": view.exam.transcript, "method": view.method, "target": view.ratio, "size": view.size}


def _scores(mean: ExamMean) -> dict[str, Any]:
    kinds: dict[str, Any] = {kind: mean.by_kind.get(kind) for kind in QUESTION_KINDS}
    numbers = {"exams": mean.exams, "size": f"{mean.size:.3f}", "score": mean.score}
    return {"method": mean.method, "target": mean.ratio, **numbers, **kinds}


@click.command(name="eval")
@_places
@click.option(
    "--prompts", "folders", metavar="DIR", type=_FOLDER, multiple=True, help="One or two; one: against the packaged."
)
@click.option("--answers", metavar="DIR", type=_FOLDER, multiple=True, help="Recorded answers, one for each --prompts.")
@click.option("--model", help="The planner model to ask.")
@click.option("--ratio", type=SHARE, default=DEFAULT_RATIO, show_default=True)
@as_json
def prompts_eval_command(
    places: Sequence[Path],
    folders: Sequence[Path],
    answers: Sequence[Path],
    ratio: float,
    as_json: bool,
    model: str | None,
) -> None:
    """Compare two folders of prompts by what they keep.

    TRANSCRIPTS are planned by both at the same target. Below the table stands what only one of them kept: that is
    what to read when editing a prompt.
    """
    if len(folders) > 2 or len(answers) not in (0, 2):
        raise click.UsageError("give at most two --prompts, and --answers for both or for none.")
    sides = zip([None, None, *folders][-2:], answers or (None, None), strict=True)
    first, second = (PromptVariant(place, recorded, model=model) for place, recorded in sides)
    cuts = [cut for path in transcript_files(places) for cut in cuts_of_file(path)]
    with progress("planning", len(cuts)) as done:
        rows, differences = compare_prompts(first, second, cuts, ratio, done)
    means = evaluation_means(rows)
    if as_json:
        print_json({"means": [asdict(mean) for mean in means], "differences": list(map(asdict, differences))})
        return
    _print_means(PROMPT_COLUMNS, means)
    for keeper in dict.fromkeys(difference.kept_by for difference in differences):
        own = (difference for difference in differences if difference.kept_by == keeper)
        echo("")
        _print_list(f"only {keeper} kept:", (f"{one.cut} {one.turn_id}: {one.what}: {one.line}" for one in own))
