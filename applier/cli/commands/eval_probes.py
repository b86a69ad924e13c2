"""`compactor eval --probes`: exams of questions, literally held on compacted views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from applier.cli.screen import clean, one_line, plain_table, print_json, progress, screen
from applier.eval.exam import QUESTION_KINDS, ExamMean, ExamView, exam_means, exam_samples, exam_views, read_exams
from planner.errors import SettingsError

__all__ = ["ExamOptions", "hold_exams"]


@dataclass(frozen=True)
class ExamOptions:
    """What the command line asks for."""

    probes: Path
    methods: Sequence[str]
    ratios: Sequence[float]
    model: str | None = None
    lost: bool = False
    as_json: bool = False


def hold_exams(paths: Sequence[Path], options: ExamOptions) -> None:
    """Hold the exams on the transcripts of `paths` and print the scores.

    Raises:
        TranscriptError: an exam or its transcript cannot be read.
        SettingsError: a method has nothing to show for any of them.
    """
    exams = read_exams([options.probes])
    views: list[ExamView] = []
    with progress("holding exams", len(exams)) as done:
        for sample in exam_samples(exams, paths):
            views += exam_views(sample, options.methods, options.ratios, options.model)
            done()
    missing = [name for name in options.methods if name not in {view.method for view in views}]
    if missing:
        raise SettingsError(f"{missing[0]}: nothing recorded for these exams: answer the prompts written there")
    means = exam_means([(view, view.scores) for view in views])
    if options.as_json:
        print_json({"means": [asdict(mean) for mean in means], "views": [_view_json(view) for view in views]})
        return
    for view in views if options.lost else ():
        _print_lost(view)
    _print(means)


def _print(means: Sequence[ExamMean]) -> None:
    numbers = ("exams", "size", "score", *QUESTION_KINDS)
    table = plain_table("method", "target", *numbers, right=numbers)
    for mean in means:
        kinds = (f"{mean.by_kind[kind]:.2f}" if kind in mean.by_kind else "" for kind in QUESTION_KINDS)
        shares = (str(mean.exams), f"{mean.size:.3f}", f"{mean.score:.2f}", *kinds)
        table.add_row(clean(mean.method), f"{mean.ratio:.2f}", *shares)
    screen().print(table)


def _print_lost(view: ExamView) -> None:
    right = len(view.exam.questions) - len(view.lost)
    counts = f"{right}/{len(view.exam.questions)} at {view.size:.3f}"
    screen().print(clean(f"{view.exam.transcript} {view.method} {view.ratio:.2f}: {counts}", "bold"), soft_wrap=True)
    for question in view.lost:
        line = f"  {question.number} {question.kind}: {one_line(question.text)} -> {one_line(question.answer)}"
        screen().print(clean(line), soft_wrap=True)


def _view_json(view: ExamView) -> dict[str, object]:
    return {
        "transcript": view.exam.transcript,
        "method": view.method,
        "target": view.ratio,
        "size": view.size,
        "sha": view.sha,
        "lost": [question.number for question in view.lost],
    }
