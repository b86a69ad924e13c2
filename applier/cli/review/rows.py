"""The rows of a review's table: one a turn, or one for a run of neighbouring turns that leave together.

Pure: plan and evidence in, rows out. Prints nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from planner.plan import CompactionPlan, Strategy, TurnDecision

__all__ = ["Row", "table_rows"]

FOLDED: tuple[Strategy, ...] = ("drop", "reference")
"""What is folded: turns that leave no text of their own. What stays or is summarized always has its row."""
FEWEST_FOLDED = 3
"""Shorter runs save no row worth the detail they hide."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    turns: str
    """``t7``, or ``t2-t6`` for a run."""
    strategy: Strategy
    score: float
    """Of a run: its highest."""
    tokens_before: int
    tokens_after: int
    what: str
    why: str
    failed: bool


def table_rows(plan: CompactionPlan, heads: Mapping[str, str], *, fold: bool = True) -> list[Row]:
    """The rows of `plan`'s table in turn order; `heads` says in one line what each turn is."""
    rows: list[Row] = []
    for run in _runs(plan.turns):
        if fold and run[0].strategy in FOLDED and len(run) >= FEWEST_FOLDED:
            rows.append(_folded(run, heads))
        else:
            rows.extend(_single(decision, heads) for decision in run)
    return rows


def _runs(decisions: Sequence[TurnDecision]) -> Iterator[list[TurnDecision]]:
    for _, run in groupby(decisions, key=lambda decision: (decision.strategy, decision.failed_approach)):
        yield list(run)


def _single(decision: TurnDecision, heads: Mapping[str, str]) -> Row:
    return Row(
        decision.turn_id,
        decision.strategy,
        decision.relevance_score,
        decision.tokens_before,
        decision.tokens_after,
        heads.get(decision.turn_id, ""),
        decision.reason,
        decision.failed_approach,
    )


def _folded(run: Sequence[TurnDecision], heads: Mapping[str, str]) -> Row:
    return Row(
        f"{run[0].turn_id}-{run[-1].turn_id}",
        run[0].strategy,
        max(decision.relevance_score for decision in run),
        sum(decision.tokens_before for decision in run),
        sum(decision.tokens_after for decision in run),
        f"{len(run)} turns: {_counted(heads.get(decision.turn_id, '').split(' ')[0] for decision in run)}",
        _counted(decision.reason for decision in run),
        run[0].failed_approach,
    )


def _counted(words: Iterator[str]) -> str:
    """The distinct `words`, most frequent first, each with how often it stands there where they differ."""
    counts = Counter(word for word in words if word)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(word if count == 1 else f"{count}× {word}" for word, count in counts.most_common())
