"""Exams and labels for developers: with the agents' own summaries, readers' grades, and labels made by reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from applier.adapters.transcripts import read_transcript, transcript_files
from applier.eval.evaluation import (
    QUESTION_KINDS,
    ExamView,
    cut_at,
    evaluation_means,
    exam_means,
    exam_samples,
    exam_views,
    read_exams,
)
from applier.eval.methods import NotRecorded, methods_for
from tests.bench.answer_sheets import advance_round, graded_views, read_sheets
from tests.bench.labels import failure_flags, measure_labels, read_labels
from tests.bench.looking_up import write_record
from tests.bench.own_summary import summary_rows, summary_views

SUMMARY = 0.0
"""Target that means the size of the agent's own summary."""


def print_exams(
    console: Console,
    places: Sequence[Path],
    probes: Path,
    methods: Sequence[str],
    targets: Sequence[float],
    round_folder: Path | None = None,
    sheets: Path | None = None,
    *,
    look_ups: bool = False,
) -> None:
    """Print the literal scores, and the grades in `sheets` or of the round in `round_folder`, which advances; with
    `look_ups` also of readers with tools."""
    views = list(_views(places, probes, methods, targets, round_folder if look_ups else None))
    shown = [view for view, _ in views]
    notes = []
    if round_folder:
        state = advance_round(round_folder, shown, look_ups=look_ups)
        notes.append(f"{state.views} views in {round_folder / 'views'}, {len(state.to_answer)} not answered yet")
        notes += [f"to grade: {path}" for path in state.to_grade]
    folder = sheets or round_folder
    graded = graded_views(shown, read_sheets(folder)) if folder else []
    of_target = {(view.sha, view.method): target for view, target in views}
    scored = {
        "literal": [(view, view.scores) for view in shown],
        "graded": [(view, sheet.grades) for view, sheet in graded if sheet.lookup_calls is None],
        "graded with look-ups": [(view, sheet.grades) for view, sheet in graded if sheet.lookup_calls is not None],
    }
    table = _table("method", "target", "scored", "exams", "size", "score", *QUESTION_KINDS)
    for scored_by, pairs in scored.items():
        for mean in exam_means([(replace(v, ratio=of_target[v.sha, v.method]), scores) for v, scores in pairs]):
            kinds = (_share(mean.by_kind.get(kind)) for kind in QUESTION_KINDS)
            target = _share(mean.ratio) if mean.ratio else "summary"
            table.add_row(
                mean.method, target, scored_by, f"{mean.exams}", f"{mean.size:.3f}", _share(mean.score), *kinds
            )
    console.print(table)
    for view, sheet in graded:
        if sheet.lookup_calls is not None:
            looked_up = f"{sheet.lookup_calls} look-ups, {sheet.lookup_tokens} tokens"
            notes.append(f"{view.exam.transcript} {view.method}: {looked_up}")
    for note in notes:
        console.print(note, soft_wrap=True)


def _views(
    places: Sequence[Path], probes: Path, methods: Sequence[str], targets: Sequence[float], records: Path | None
) -> Iterator[tuple[ExamView, float]]:
    """Yield each view with its target; store histories in the round at `records`, if one is named."""
    paths = transcript_files(places)
    by_name = {path.stem: path for path in paths}
    for sample in exam_samples(read_exams([probes]), paths):
        if records:
            write_record(sample, records)
        for target in targets:
            path = by_name[sample.exam.transcript]
            made = exam_views(sample, methods, [target]) if target else summary_views(sample, path, methods)
            yield from ((view, target) for view in made)


def print_labels(
    console: Console, places: Sequence[Path], labels: Path, methods: Sequence[str], ratios: Sequence[float]
) -> None:
    """Print the labels that each method keeps, the evidence's agreement with them, and survival beside the agents' own
    summaries."""
    known, paths = read_labels([labels]), transcript_files(places)
    table = _table("transcript", "method", "target", "failed", "constraints", "answers", "precision", "recall")
    for path in (path for path in paths if path.stem in known):
        transcript, own = read_transcript(path), known[path.stem]
        cut = cut_at(path.stem, transcript.messages, transcript.task, own.cut)
        flags = failure_flags(own, transcript.messages)
        agreed = [_share(flags.precision), _share(flags.recall)] if flags else ["", ""]
        for name, method in methods_for(cut.name, methods).items():
            for ratio in ratios:
                try:
                    made = method(list(cut.messages), cut.task, int(ratio * cut.tokens))
                except NotRecorded:
                    continue
                found = measure_labels(own, made)
                shares = (_of(found.failed), _of(found.constraints), _of(found.answers))
                table.add_row(path.stem, name, _share(ratio), *shares, *agreed)
    console.print(table)
    rows = [replace(row, ratio=SUMMARY) for path in paths for row in summary_rows(path, methods)]
    beside = _table("beside own summaries", "cuts", "size", "plain", "context", "failed", "said")
    for mean in evaluation_means(rows):
        shares = map(_share, (mean.size, mean.plain, mean.in_context, mean.failures_kept, mean.demands_kept))
        beside.add_row(mean.method, str(mean.cuts), *shares)
    console.print(beside)


def _table(*titles: str) -> Table:
    table = Table(box=None)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _of(stands: Sequence[bool]) -> str:
    return f"{sum(stands)}/{len(stands)}"
