"""Means of rows over cuts: what a table or a picture shows of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from applier.bench.cuts import CutKind
from applier.bench.run import Row
from applier.bench.soundness import Soundness

__all__ = ["Summary", "summarize"]


@dataclass(frozen=True)
class Summary:
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
    violations: int | None
    """Over all cuts together."""
    restored: float | None
    first_changed_message: float | None
    payback_calls: float | None
    planner_input_ratio: float | None
    planner_output_ratio: float | None


def summarize(rows: Sequence[Row]) -> list[Summary]:
    """One summary per kind of cut, method and target, in order of first appearance."""
    groups: dict[tuple[CutKind, str, float], list[Row]] = {}
    for row in rows:
        ratio = 0.0 if row.kind == "own summary" else row.ratio
        groups.setdefault((row.kind, row.method, ratio), []).append(row)
    return [_summary(kind, method, own) for (kind, method, _), own in groups.items()]


def _summary(kind: CutKind, method: str, rows: Sequence[Row]) -> Summary:
    def sound(value: Callable[[Soundness], float | None]) -> float | None:
        return _mean(value(row.soundness) for row in rows if row.soundness)

    failed, constraints, answers = (
        _mean(float(found) for row in rows if row.labelled for found in getattr(row.labelled, name))
        for name in ("failed", "constraints", "answers")
    )
    checked = [row.soundness.violations for row in rows if row.soundness]
    return Summary(
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
        violations=sum(checked) if checked else None,
        restored=sound(lambda s: s.restored),
        first_changed_message=sound(lambda s: s.first_changed_message),
        payback_calls=sound(lambda s: s.payback_calls),
        planner_input_ratio=sound(lambda s: s.planner_input_ratio),
        planner_output_ratio=sound(lambda s: s.planner_output_ratio),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return fmean(found) if found else None
