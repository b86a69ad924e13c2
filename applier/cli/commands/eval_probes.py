"""`compactor eval --probes`: exams of questions on compacted views, scored literally and by readers' grades."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from applier.cli.screen import clean, one_line, plain_table, print_json, progress, screen
from applier.eval.answer_sheets import AnswerSheet, advance_round, graded_views, read_sheets
from applier.eval.exam import (
    QUESTION_KINDS,
    SUMMARY,
    ExamMean,
    ExamView,
    Target,
    exam_samples,
    exam_views,
    mean_scores,
    read_exams,
)
from planner.errors import SettingsError

__all__ = ["ExamOptions", "hold_exams"]


@dataclass(frozen=True)
class ExamOptions:
    """What the command line asks for."""

    probes: Path
    methods: Sequence[str]
    targets: Sequence[Target]
    model: str | None = None
    round_folder: Path | None = None
    """Where a round of readings is done."""
    sheets: Path | None = None
    """Where answer sheets are."""
    lost: bool = False
    as_json: bool = False


def hold_exams(paths: Sequence[Path], options: ExamOptions) -> None:
    """Hold the exams on the transcripts of `paths` and print the scores.

    Raises:
        TranscriptError: an exam or its transcript cannot be read.
        SettingsError: a method has nothing to show for any of them.
    """
    exams = read_exams([options.probes])
    # The agent's own summary stands beside whatever is measured.
    methods = list(dict.fromkeys([SUMMARY, *options.methods]))
    views: list[ExamView] = []
    with progress("holding exams", len(exams)) as done:
        for sample in exam_samples(exams, paths):
            views += exam_views(sample, methods, options.targets, options.model)
            done()
    missing = [name for name in options.methods if name not in {view.method for view in views}]
    if missing:
        raise SettingsError(f"{missing[0]}: nothing recorded for these exams: answer the prompts written there")
    notes = _round_notes(options.round_folder, views) if options.round_folder else []
    folder = options.sheets or options.round_folder
    graded = graded_views(views, read_sheets(folder)) if folder else []
    means = _means(views, graded)
    if options.as_json:
        print_json({"means": [asdict(mean) for mean in means], "views": [_view_json(view) for view in views]})
        return
    for view in views if options.lost else ():
        _print_lost(view)
    _print(means)
    for note in [*_lookup_notes(graded), *notes]:
        screen().print(note, soft_wrap=True)


def _means(views: Sequence[ExamView], graded: Sequence[tuple[ExamView, AnswerSheet]]) -> list[ExamMean]:
    closed_book = [(view, sheet.grades) for view, sheet in graded if sheet.lookup_calls is None]
    looked_up = [(view, sheet.grades) for view, sheet in graded if sheet.lookup_calls is not None]
    return [
        *mean_scores("literal", [(view, view.scores) for view in views]),
        *mean_scores("graded", closed_book),
        *mean_scores("graded with look-ups", looked_up),
    ]


def _lookup_notes(graded: Sequence[tuple[ExamView, AnswerSheet]]) -> Iterator[str]:
    for view, sheet in graded:
        if sheet.lookup_calls is not None:
            yield f"{view.exam.transcript} {view.method}: {sheet.lookup_calls} look-ups, {sheet.lookup_tokens} tokens"


def _round_notes(folder: Path, views: Sequence[ExamView]) -> list[str]:
    state = advance_round(folder, views)
    notes = [f"{state.views} views in {folder / 'views'}, {len(state.to_answer)} not answered yet"]
    return notes + [f"to grade: {path}" for path in state.to_grade]


def _print(means: Sequence[ExamMean]) -> None:
    numbers = ("exams", "size", "score", *QUESTION_KINDS)
    table = plain_table("method", "target", "scored", *numbers, right=numbers)
    for mean in means:
        target = mean.target if isinstance(mean.target, str) else f"{mean.target:.2f}"
        kinds = (f"{mean.by_kind[kind]:.2f}" if kind in mean.by_kind else "" for kind in QUESTION_KINDS)
        shares = (str(mean.exams), f"{mean.size:.3f}", f"{mean.score:.2f}", *kinds)
        table.add_row(clean(mean.method), target, mean.scored_by, *shares)
    screen().print(table)


def _print_lost(view: ExamView) -> None:
    target = view.target if isinstance(view.target, str) else f"{view.target:.2f}"
    right = len(view.exam.questions) - len(view.lost)
    counts = f"{right}/{len(view.exam.questions)} at {view.size:.3f}"
    screen().print(clean(f"{view.exam.transcript} {view.method} {target}: {counts}", "bold"), soft_wrap=True)
    for question in view.lost:
        line = f"  {question.number} {question.kind}: {one_line(question.text)} -> {one_line(question.answer)}"
        screen().print(clean(line), soft_wrap=True)


def _view_json(view: ExamView) -> dict[str, object]:
    return {
        "transcript": view.exam.transcript,
        "method": view.method,
        "target": view.target,
        "size": view.size,
        "sha": view.sha,
        "lost": [question.number for question in view.lost],
    }
