"""Runs methods over samples at target sizes: one row of numbers for each, and their means.

Pure apart from the worker processes it may use; prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from applier.bench.cuts import CUT_SHARES, Cut, CutKind
from applier.bench.labels import Labelled, Labels, measure_labels
from applier.bench.methods import OWN_SUMMARY, find_method
from applier.bench.outcome import Method, Outcome, as_outcome
from applier.bench.recall import Recall, measure_recall
from applier.bench.samples import cuts_of_file
from applier.bench.soundness import Soundness, measure_soundness
from applier.bench.survival import Survival, measure_survival
from applier.bench.texts import message_tokens, text_tokens

__all__ = ["Job", "Row", "evaluate", "evaluate_files", "measured"]


@dataclass(frozen=True)
class Row:
    """One method at one target on one cut."""

    method: str
    ratio: float
    """The target, as a share of the tokens before the cut."""
    cut: str
    kind: CutKind
    size: float
    """Tokens of the result over tokens of the part before the cut."""
    recall: Recall
    survival: Survival
    soundness: Soundness | None
    """None in a quick run."""
    labelled: Labelled | None


@dataclass(frozen=True)
class Job:
    """What to run. Methods are named, so that a worker process can find them itself."""

    methods: tuple[str, ...]
    ratios: tuple[float, ...] = (0.25, 0.10, 0.04)
    shares: tuple[float, ...] = CUT_SHARES
    labels: Mapping[str, Labels] | None = None
    quick: bool = False
    """Recall and survival only."""
    model: str | None = None
    """The planner model of the method ``model``."""


def evaluate(
    methods: Mapping[str, Method], cuts: Sequence[Cut], ratios: Sequence[float], quick: bool = True
) -> list[Row]:
    """Every method at every ratio on every cut, in this process.

    Where the agent's own summary stands to compare, every method gets that summary's size as its target.
    """
    return [
        measured(cut, name, as_outcome(method(list(cut.messages), cut.task, int(ratio * cut.tokens))), ratio, quick)
        for cut in cuts
        for name, method in _with_own(methods, cut).items()
        for ratio in _targets(cut, ratios)
    ]


def _with_own(methods: Mapping[str, Method], cut: Cut) -> dict[str, Method]:
    if cut.kind != "own summary":
        return dict(methods)
    own: Method = lambda *_: [{"role": "user", "content": cut.own_summary}]  # noqa: E731
    return {**methods, OWN_SUMMARY: own}


def _targets(cut: Cut, ratios: Sequence[float]) -> Sequence[float]:
    if cut.kind != "own summary":
        return ratios
    return [message_tokens([{"role": "user", "content": cut.own_summary}]) / cut.tokens]


def measured(cut: Cut, name: str, outcome: Outcome, ratio: float, quick: bool = True) -> Row:
    """The row of `outcome`, which the method `name` made of `cut` for the target `ratio`."""
    return Row(
        method=name,
        ratio=ratio,
        cut=cut.name,
        kind=cut.kind,
        size=message_tokens(outcome.messages) / cut.tokens,
        recall=measure_recall(cut.needs, outcome.messages),
        survival=measure_survival(cut.messages, outcome.messages),
        soundness=None if quick else measure_soundness(cut.messages, outcome),
        labelled=measure_labels(cut.labels, outcome.messages) if cut.labels else None,
    )


def evaluate_files(
    job: Job, paths: Sequence[Path], workers: int = 1, done: Callable[[], None] = lambda: None
) -> list[Row]:
    """The job over transcript files, in `workers` processes; `done` is called as each file is finished."""
    rows: list[Row] = []
    for found in _mapped(partial(_file_rows, job=job), paths, workers):
        rows += found
        done()
    return rows


def _file_rows(path: Path, job: Job) -> list[Row]:
    methods = {name: find_method(name, job.model) for name in job.methods}
    return evaluate(methods, cuts_of_file(path, job.shares, job.labels), job.ratios, job.quick)


def _mapped(work: Callable[[Path], list[Row]], paths: Sequence[Path], workers: int) -> Iterator[list[Row]]:
    if workers == 1:
        yield from map(work, paths)
        return
    text_tokens("")  # loads the vocabulary once, for the workers to inherit where processes are forked
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(work, paths)
