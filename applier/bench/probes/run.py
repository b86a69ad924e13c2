"""Exams over transcript files: questions made once for each cut, asked of every method at every target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from applier.bench.methods import find_method
from applier.bench.outcome import as_outcome
from applier.bench.probes.exam import Grade, examine, make_probes
from applier.bench.probes.model import Ask
from applier.bench.probes.probe import ProbeKind, ProbeSet
from applier.bench.run import Job
from applier.bench.samples import cuts_of_file
from applier.bench.texts import message_tokens

__all__ = ["ExamMean", "ExamRow", "exam_means", "hold_exams"]


@dataclass(frozen=True)
class ExamRow:
    """One method at one target on one cut."""

    method: str
    ratio: float
    cut: str
    size: float
    grade: Grade


@dataclass(frozen=True)
class ExamMean:
    """One method at one target: means over cuts."""

    method: str
    ratio: float
    cuts: int
    size: float
    score: float
    by_kind: dict[ProbeKind, float]


def hold_exams(
    job: Job, paths: Sequence[Path], ask: Ask, known: ProbeSet, done: Callable[[], None] = lambda: None
) -> tuple[list[ExamRow], ProbeSet]:
    """The exams, and `known` with the questions that had to be written; `done` is called as each file is finished.

    Raises:
        PlannerUnavailable: the model could not be used.
    """
    rows: list[ExamRow] = []
    probes = dict(known.probes)
    methods = {name: find_method(name, job.model) for name in job.methods}
    for path in paths:
        for cut in cuts_of_file(path, job.shares):
            if cut.kind != "cut":
                continue
            asked = probes[cut.name] = probes.get(cut.name) or make_probes(cut, ask)
            for name, method in methods.items():
                for ratio in job.ratios:
                    result = as_outcome(method(list(cut.messages), cut.task, int(ratio * cut.tokens))).messages
                    size = message_tokens(result) / cut.tokens
                    rows.append(ExamRow(name, ratio, cut.name, size, examine(asked, result, ask)))
        done()
    return rows, ProbeSet(model=known.model or job.model or "", probes=probes)


def exam_means(rows: Sequence[ExamRow]) -> list[ExamMean]:
    """One mean per method and target, in order of first appearance."""
    groups: dict[tuple[str, float], list[ExamRow]] = {}
    for row in rows:
        groups.setdefault((row.method, row.ratio), []).append(row)
    return [
        ExamMean(
            method,
            ratio,
            len(own),
            fmean(row.size for row in own),
            fmean(row.grade.score for row in own),
            _by_kind(own),
        )
        for (method, ratio), own in groups.items()
    ]


def _by_kind(rows: Sequence[ExamRow]) -> dict[ProbeKind, float]:
    found: dict[ProbeKind, list[float]] = {}
    for row in rows:
        for kind, score in row.grade.by_kind.items():
            found.setdefault(kind, []).append(score)
    return {kind: fmean(scores) for kind, scores in found.items()}
