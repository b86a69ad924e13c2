"""`compactor eval` and `prompts eval`: what survives of your own transcripts, by method and size, by exam, by prompts.

Cuts of transcripts are measured, or exams of questions literally held on compacted views. Prints what `applier.eval`
measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from applier.cli.options import SHARE, OutputFile, as_csv, as_json
from applier.cli.screen import clean, echo, one_line, print_csv, print_json, print_table, progress, screen
from applier.eval.evaluation import (
    EvaluationMean,
    EvaluationRow,
    cuts_of_file,
    draw_recall,
    evaluate_files,
    evaluation_means,
    transcript_paths,
)
from applier.eval.exam import QUESTION_KINDS, ExamMean, ExamView, exam_means, exam_samples, exam_views, read_exams
from applier.eval.methods import METHODS
from applier.eval.prompt_comparison import DEFAULT_RATIO, Difference, PromptVariant, compare_prompts
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
    "restored": "restored",
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
@click.option("--chart", metavar="FILE", type=OutputFile(), help="Draw recall against size: .svg, .png and others.")
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

    TRANSCRIPTS are files, or folders of them; each is cut, and what stands before the cut is compacted.
    Plain recall: the share of specifics it wrote later that still stand. In context: with half of the words
    around them. The method never sees what comes after the cut.
    """
    paths = transcript_paths(places)
    if not paths:
        raise TranscriptError(f"{places[0]}: no transcripts (.json, .jsonl) in there")
    if probes:
        ratios = ratios or (0.10,)
        _hold_exams(paths, probes, methods, ratios, model=model, lost=lost, as_json=as_json, as_csv=as_csv)
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
        print_csv([_csv_row(row) for row in rows])
    elif as_json:
        print_json({"means": [asdict(mean) for mean in means], "cuts": [asdict(row) for row in rows]})
    else:
        _print_all(rows, means, lost=lost)
    if problems:
        raise TranscriptError(f"not measured: {'; '.join(problems)}")


def _csv_row(row: EvaluationRow) -> dict[str, object]:
    """One method at one target on one cut."""
    (own,) = evaluation_means([row])
    return {"cut": row.cut} | {name: getattr(own, name) for name in COLUMNS.values() if name != "cuts"}


def _print_all(rows: Sequence[EvaluationRow], means: Sequence[EvaluationMean], *, lost: bool) -> None:
    for row in rows if lost else ():
        _print_losses(row)
    if not means:
        echo("no cut of these transcripts is long enough to measure")
        return
    _print_means(COLUMNS, means)


def _print_means(columns: Mapping[str, str], means: Sequence[EvaluationMean]) -> None:
    shown = {title: name for title, name in columns.items() if any(getattr(mean, name) is not None for mean in means)}
    rows = ([_cell(getattr(mean, name)) for name in shown.values()] for mean in means)
    print_table(shown, rows, right=[title for title, name in shown.items() if name != "method"])


def _cell(value: str | float | None) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _print_losses(row: EvaluationRow) -> None:
    losses = {
        "lost": row.recall.lost,
        "bare": row.recall.bare,
        "failed": row.survival.failures_lost,
        "said": row.survival.demands_lost,
    }
    lines = (f"{title}: {what}" for title, lost in losses.items() for what in lost)
    _print_list(f"{row.cut} {row.method} {row.ratio:.2f}", lines)


def _print_list(title: str, lines: Iterable[str]) -> None:
    screen().print(clean(title, "bold"), soft_wrap=True)
    for line in lines:
        echo(f"  {one_line(line)}")


def _hold_exams(
    paths: Sequence[Path],
    probes: Path,
    methods: Sequence[str],
    ratios: Sequence[float],
    *,
    model: str | None,
    lost: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Hold the exams `probes` on the transcripts of `paths` and print the scores.

    Raises:
        TranscriptError: an exam or its transcript cannot be read.
        SettingsError: a method has nothing to show for any of them.
    """
    exams = read_exams([probes])
    views: list[ExamView] = []
    with progress("holding exams", len(exams)) as done:
        for sample in exam_samples(exams, paths):
            views += exam_views(sample, methods, ratios, model)
            done()
    missing = [name for name in methods if name not in {view.method for view in views}]
    if missing:
        raise SettingsError(f"{missing[0]}: nothing recorded for these exams: answer the prompts written there")
    means = exam_means([(view, view.scores) for view in views])
    if as_csv:
        print_csv([row for view in views for row in _answers(view)])
        return
    if as_json:
        print_json({"means": [asdict(mean) for mean in means], "views": [_view_json(view) for view in views]})
        return
    for view in views if lost else ():
        _print_lost_answers(view)
    _print_scores(means)


def _print_scores(means: Sequence[ExamMean]) -> None:
    numbers = ("exams", "size", "score", *QUESTION_KINDS)
    print_table(("method", "target", *numbers), map(_score_cells, means), right=numbers)


def _score_cells(mean: ExamMean) -> Iterator[str]:
    yield from (mean.method, _cell(mean.ratio))
    yield from (str(mean.exams), f"{mean.size:.3f}", f"{mean.score:.2f}")
    yield from (_cell(mean.by_kind.get(kind)) for kind in QUESTION_KINDS)


def _print_lost_answers(view: ExamView) -> None:
    right = len(view.exam.questions) - len(view.lost)
    counts = f"{right}/{len(view.exam.questions)} at {view.size:.3f}"
    lines = (f"{question.number} {question.kind}: {question.text} -> {question.answer}" for question in view.lost)
    _print_list(f"{view.exam.transcript} {view.method} {_cell(view.ratio)}: {counts}", lines)


def _answers(view: ExamView) -> Iterator[dict[str, object]]:
    """A row a question."""
    of_view = {"transcript": view.exam.transcript, "method": view.method, "target": view.ratio, "size": view.size}
    for question in view.exam.questions:
        yield {**of_view, "question": question.number, "kind": question.kind, "score": view.scores[question.number]}


def _view_json(view: ExamView) -> dict[str, object]:
    lost = [question.number for question in view.lost]
    fields = {"method": view.method, "target": view.ratio, "size": view.size, "sha": view.sha}
    return {"transcript": view.exam.transcript, **fields, "lost": lost}


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
    places: tuple[Path, ...],
    folders: tuple[Path, ...],
    answers: tuple[Path, ...],
    model: str | None,
    ratio: float,
    as_json: bool,
) -> None:
    """Compare two folders of prompts by what they keep.

    TRANSCRIPTS are planned by both at the same target. Below the table stands what only one of them kept: that is
    what to read when editing a prompt.
    """
    first, second = _variants(folders, answers, model)
    cuts = [cut for path in transcript_paths(places) for cut in cuts_of_file(path)]
    with progress("planning", len(cuts)) as done:
        rows, differences = compare_prompts(first, second, cuts, ratio, done)
    means = evaluation_means(rows)
    if as_json:
        print_json({"means": [asdict(mean) for mean in means], "differences": list(map(asdict, differences))})
    else:
        _print_means(PROMPT_COLUMNS, means)
        _print_differences(differences)


def _variants(
    folders: Sequence[Path], answers: Sequence[Path], model: str | None
) -> tuple[PromptVariant, PromptVariant]:
    places: list[Path | None] = [None] * (2 - len(folders)) + list(folders)
    recorded: list[Path | None] = [*answers] if answers else [None, None]
    if len(places) != 2 or len(recorded) != 2:
        raise click.UsageError("give at most two --prompts, and --answers for both or for none.")
    first, second = (PromptVariant(place, own, model=model) for place, own in zip(places, recorded, strict=True))
    return first, second


def _print_differences(differences: Sequence[Difference]) -> None:
    for keeper in dict.fromkeys(difference.kept_by for difference in differences):
        own = (difference for difference in differences if difference.kept_by == keeper)
        echo("")
        _print_list(f"only {keeper} kept:", (f"{one.cut} {one.turn_id}: {one.what}: {one.line}" for one in own))
