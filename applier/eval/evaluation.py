"""Runs methods over cuts at target sizes: one row of numbers for each, and their means.

Pure apart from the worker processes it may use; prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from applier.eval.cuts import CUT_SHARES, Cut, CutKind, cuts_of_file
from applier.eval.integrity import Integrity, measure_integrity
from applier.eval.labels import FailureFlags, Labelled, Labels, measure_labels
from applier.eval.methods import CompactedList, Method, NotRecorded, as_compacted, methods_for
from applier.eval.survival import NeedRecall, Survival, measure_recall, measure_survival
from applier.eval.texts import message_tokens, text_tokens

__all__ = [
    "OWN_SUMMARY",
    "EvaluationJob",
    "EvaluationMean",
    "EvaluationRow",
    "evaluate",
    "evaluate_files",
    "evaluation_means",
    "measured",
]

OWN_SUMMARY = "own summary"
"""What the transcript's agent kept itself; added wherever a transcript holds it."""


@dataclass(frozen=True)
class EvaluationRow:
    """One method at one target on one cut."""

    method: str
    ratio: float
    """The target, as a share of the tokens before the cut."""
    cut: str
    kind: CutKind
    size: float
    """Tokens of the result over tokens of the part before the cut."""
    recall: NeedRecall
    survival: Survival
    integrity: Integrity | None
    """None in a quick run."""
    labelled: Labelled | None
    flags: FailureFlags | None
    """Of the cut, whatever the method."""


@dataclass(frozen=True)
class EvaluationJob:
    """What to run. Methods are named, so that a worker process can find them itself."""

    methods: tuple[str, ...]
    ratios: tuple[float, ...] = (0.25, 0.10, 0.04)
    shares: tuple[float, ...] = CUT_SHARES
    labels: Mapping[str, Labels] | None = None
    quick: bool = False
    """Recall and survival only."""
    model: str | None = None
    """The planner model of the method ``model``."""


@dataclass(frozen=True)
class EvaluationMean:
    """One method at one target: means over the cuts of one kind. None where nothing was measured."""

    kind: CutKind
    method: str
    ratio: float
    cuts: int
    size: float
    largest: float
    """The largest size of all cuts."""
    plain: float
    in_context: float
    failures_kept: float
    demands_kept: float
    labelled_failed: float | None
    """Over labels, not over cuts."""
    labelled_constraints: float | None
    labelled_answers: float | None
    flag_precision: float | None
    """Of the turns that the planner's evidence takes for failed: how many a reader does."""
    flag_recall: float | None
    violations: int | None
    """Over all cuts together."""
    restored: float | None
    first_changed_message: float | None
    payback_calls: float | None
    planner_input_ratio: float | None
    planner_output_ratio: float | None


def evaluate(
    methods: Mapping[str, Method], cuts: Sequence[Cut], ratios: Sequence[float], quick: bool = True
) -> list[EvaluationRow]:
    """Every method at every ratio on every cut, in this process.

    Where nothing was recorded for a cut, there is no row. Where the agent's own summary stands to compare, every
    method gets that summary's size as its target.
    """
    return [row for cut in cuts for row in _rows_of_cut(methods, cut, ratios, quick)]


def _rows_of_cut(
    methods: Mapping[str, Method], cut: Cut, ratios: Sequence[float], quick: bool
) -> Iterator[EvaluationRow]:
    for name, method in _with_own(methods, cut).items():
        for ratio in _targets(cut, ratios):
            with suppress(NotRecorded):
                compacted = as_compacted(method(list(cut.messages), cut.task, int(ratio * cut.tokens)))
                yield measured(cut, name, compacted, ratio, quick)


def _with_own(methods: Mapping[str, Method], cut: Cut) -> dict[str, Method]:
    if cut.kind != "own summary":
        return dict(methods)
    own: Method = lambda *_: [{"role": "user", "content": cut.own_summary}]  # noqa: E731
    return {**methods, OWN_SUMMARY: own}


def _targets(cut: Cut, ratios: Sequence[float]) -> Sequence[float]:
    if cut.kind != "own summary":
        return ratios
    return [message_tokens([{"role": "user", "content": cut.own_summary}]) / cut.tokens]


def measured(cut: Cut, name: str, compacted: CompactedList, ratio: float, quick: bool = True) -> EvaluationRow:
    """The row of `compacted`, which the method `name` made of `cut` for the target `ratio`."""
    return EvaluationRow(
        method=name,
        ratio=ratio,
        cut=cut.name,
        kind=cut.kind,
        size=message_tokens(compacted.messages) / cut.tokens,
        recall=measure_recall(cut.needs, compacted.messages),
        survival=measure_survival(cut.messages, compacted.messages),
        integrity=None if quick else measure_integrity(cut.messages, compacted),
        labelled=measure_labels(cut.labels, compacted.messages) if cut.labels else None,
        flags=cut.flags,
    )


def evaluate_files(
    job: EvaluationJob, paths: Sequence[Path], workers: int = 1, done: Callable[[], None] = lambda: None
) -> list[EvaluationRow]:
    """The job over transcript files, in `workers` processes; `done` is called as each file is finished."""
    rows: list[EvaluationRow] = []
    for of_file in _mapped(partial(_file_rows, job=job), paths, workers):
        rows += of_file
        done()
    return rows


def _file_rows(path: Path, job: EvaluationJob) -> list[EvaluationRow]:
    cuts = cuts_of_file(path, job.shares, job.labels)
    return [row for cut in cuts for row in evaluate(_named(job, cut), [cut], job.ratios, job.quick)]


def _named(job: EvaluationJob, cut: Cut) -> dict[str, Method]:
    return methods_for(cut.name, job.methods, job.model)


def _mapped(
    work: Callable[[Path], list[EvaluationRow]], paths: Sequence[Path], workers: int
) -> Iterator[list[EvaluationRow]]:
    if workers == 1:
        yield from map(work, paths)
        return
    text_tokens("")  # loads the vocabulary once, for the workers to inherit where processes are forked
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(work, paths)


def evaluation_means(rows: Sequence[EvaluationRow]) -> list[EvaluationMean]:
    """One mean per kind of cut, method and target, in order of first appearance."""
    groups: dict[tuple[CutKind, str, float], list[EvaluationRow]] = {}
    for row in rows:
        ratio = 0.0 if row.kind == "own summary" else row.ratio
        groups.setdefault((row.kind, row.method, ratio), []).append(row)
    return [_mean_of(kind, method, own) for (kind, method, _), own in groups.items()]


def _mean_of(kind: CutKind, method: str, rows: Sequence[EvaluationRow]) -> EvaluationMean:
    def sound(value: Callable[[Integrity], float | None]) -> float | None:
        return _mean(value(row.integrity) for row in rows if row.integrity)

    failed, constraints, answers = (
        _mean(float(stands) for row in rows if row.labelled for stands in getattr(row.labelled, name))
        for name in ("failed", "constraints", "answers")
    )
    checked = [row.integrity.violations for row in rows if row.integrity]
    return EvaluationMean(
        kind=kind,
        method=method,
        ratio=fmean(row.ratio for row in rows),
        cuts=len(rows),
        size=fmean(row.size for row in rows),
        largest=max(row.size for row in rows),
        plain=fmean(row.recall.plain for row in rows),
        in_context=fmean(row.recall.in_context for row in rows),
        failures_kept=fmean(row.survival.failures_kept for row in rows),
        demands_kept=fmean(row.survival.demands_kept for row in rows),
        labelled_failed=failed,
        labelled_constraints=constraints,
        labelled_answers=answers,
        flag_precision=_mean(row.flags.precision for row in rows if row.flags),
        flag_recall=_mean(row.flags.recall for row in rows if row.flags),
        violations=sum(checked) if checked else None,
        restored=sound(lambda s: s.restored),
        first_changed_message=sound(lambda s: s.first_changed_message),
        payback_calls=sound(lambda s: s.payback_calls),
        planner_input_ratio=sound(lambda s: s.planner_input_ratio),
        planner_output_ratio=sound(lambda s: s.planner_output_ratio),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
