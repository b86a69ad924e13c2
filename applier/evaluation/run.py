"""Runs methods over cuts at target sizes and gives one row of numbers each.

Pure apart from the worker processes it may use; prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from applier.evaluation.cuts import Cut
from applier.evaluation.plain_methods import Method
from applier.evaluation.recall import Recall, measure_recall
from applier.evaluation.texts import message_tokens
from applier.evaluation.transcripts import cuts_of_file

__all__ = ["Row", "Summary", "evaluate", "evaluate_cut", "evaluate_files", "summarize"]


@dataclass(frozen=True)
class Row:
    """One method at one target on one cut."""

    method: str
    ratio: float
    cut: str
    size: float
    """Tokens of the result over tokens of the part before the cut."""
    recall: Recall


@dataclass(frozen=True)
class Summary:
    """One method at one target: means over cuts."""

    method: str
    ratio: float
    cuts: int
    size: float
    largest: float
    """The largest size of all cuts."""
    plain: float
    in_context: float


def evaluate_cut(cut: Cut, methods: Mapping[str, Method], ratios: Sequence[float]) -> list[Row]:
    """Every method at every ratio on one cut."""
    return [_row(cut, name, method, ratio) for name, method in methods.items() for ratio in ratios]


def _row(cut: Cut, name: str, method: Method, ratio: float) -> Row:
    result = method(list(cut.messages), cut.task, int(ratio * cut.tokens))
    size = message_tokens(result) / cut.tokens
    return Row(name, ratio, cut.name, size, measure_recall(cut.needs, result))


def evaluate(methods: Mapping[str, Method], cuts: Sequence[Cut], ratios: Sequence[float]) -> list[Row]:
    """Every method at every ratio on every cut, in this process."""
    return [row for cut in cuts for row in evaluate_cut(cut, methods, ratios)]


def evaluate_files(
    methods: Mapping[str, Method],
    paths: Sequence[Path],
    ratios: Sequence[float],
    workers: int = 1,
    done: Callable[[int], None] = lambda _: None,
) -> list[Row]:
    """The same over transcript files, in `workers` processes; `done` hears how many files are finished.

    With more than one worker the methods must be module-level functions or partials of them.
    """
    work = partial(_file_rows, methods=methods, ratios=ratios)
    rows: list[Row] = []
    for count, found in enumerate(_mapped(work, paths, workers), 1):
        rows += found
        done(count)
    return rows


def _file_rows(path: Path, methods: Mapping[str, Method], ratios: Sequence[float]) -> list[Row]:
    return evaluate(methods, cuts_of_file(path), ratios)


def _mapped(work: Callable[[Path], list[Row]], paths: Sequence[Path], workers: int) -> Iterator[list[Row]]:
    if workers == 1:
        yield from map(work, paths)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(work, paths)


def summarize(rows: Sequence[Row]) -> list[Summary]:
    """Means over cuts, one per method and ratio, in order of first appearance."""
    groups: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.method, row.ratio), []).append(row)
    return [
        Summary(
            method,
            ratio,
            len(own),
            fmean(row.size for row in own),
            max(row.size for row in own),
            fmean(row.recall.plain for row in own),
            fmean(row.recall.in_context for row in own),
        )
        for (method, ratio), own in groups.items()
    ]
