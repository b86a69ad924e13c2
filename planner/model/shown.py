"""Which lines of each turn the planner model gets to see, under one budget for all.

First what must be seen (failures, constraints, user words), then how turns begin and end, then the lines
worth most for their tokens. Never decides what survives; the model may point at any line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from planner.evidence import Evidence, TurnEvidence
from planner.reading.lines import Line
from planner.reading.tokens import TokenCounter
from planner.relevance.ranking import rank_lines
from planner.relevance.relevance import Relevance

__all__ = ["choose_lines"]

_KEY = re.compile(r"(?<= )\w+=")

NUMBER_TOKENS = 3
"""Raw tokens of a line's number, separator and line break."""
MUST_SHARE, ENDS_SHARE = 0.5, 0.7
"""Shares of the budget that are spent at most when the musts, then the ends, have been chosen: what is left
goes to worth, so that one wall of user text cannot hide everything else."""
OWN_LINES, OUTDATED_LINES, RUN_LINES = 12, 2, 4
"""How many lines may be shown just for standing at an end: of the agent's words and calls, of those of an
outdated turn, and of the result of something that ran (its last lines say how it went)."""


@dataclass
class _Choice:
    """What has been chosen so far, and what it cost in raw tokens."""

    counter: TokenCounter
    most_per_turn: int
    spent: int = 0
    spent_by_turn: Counter[str] = field(default_factory=Counter)
    shown: dict[str, set[int]] = field(default_factory=dict)

    def take(self, turn_id: str, line: Line, limit: float) -> bool:
        """Show `line` if it fits; True if it is shown now."""
        shown = self.shown.setdefault(turn_id, set())
        if line.number in shown:
            return True
        cost = self.counter.raw(line.text) + NUMBER_TOKENS
        if self.spent + cost > limit or self.spent_by_turn[turn_id] + cost > self.most_per_turn:
            return False
        shown.add(line.number)
        self.spent += cost
        self.spent_by_turn[turn_id] += cost
        return True


def choose_lines(
    evidence: Evidence,
    turns: Sequence[TurnEvidence],
    worth: Relevance,
    counter: TokenCounter,
    limit: int,
    most_per_turn: int,
) -> Mapping[str, tuple[Line, ...]]:
    """The lines to show of each of `turns`, in order, by turn id; together at most `limit` raw tokens.

    No turn shows more than `most_per_turn` of them.
    """
    choice = _Choice(counter, most_per_turn)
    _take_rounds(choice, ((t, _musts(t)) for t in turns), limit * MUST_SHARE)
    _take_rounds(choice, ((t, _ends(t)) for t in turns), limit * ENDS_SHARE)
    _take_worth(choice, evidence, worth, {t.turn.id for t in turns}, limit)
    return {t.turn.id: tuple(line for line in t.lines if line.number in choice.shown.get(t.turn.id, ())) for t in turns}


def _take_rounds(choice: _Choice, wanted: Iterable[tuple[TurnEvidence, Sequence[Line]]], limit: float) -> None:
    """One line a turn in each round, the newest turns first, while they fit."""
    queues = [(t.turn.id, iter(lines)) for t, lines in wanted][::-1]
    while queues:
        queues = [(turn_id, lines) for turn_id, lines in queues if _take_next(choice, turn_id, lines, limit)]


def _take_next(choice: _Choice, turn_id: str, lines: Iterator[Line], limit: float) -> bool:
    line = next(lines, None)
    return line is not None and choice.take(turn_id, line, limit)


def _musts(turn: TurnEvidence) -> list[Line]:
    """Failure and constraint lines, then the user's words from both ends inwards."""
    urgent = [line for line in turn.lines if line.number in turn.obligations]
    return urgent + _from_ends(turn.user_lines)


def _ends(turn: TurnEvidence) -> list[Line]:
    """The agent's words and calls from both ends inwards, then how each result begins and ends."""
    if turn.superseded_by:
        return _from_ends(_own_lines(turn))[:OUTDATED_LINES]
    run = {call.result_block for call in turn.calls if call.kind == "run"}
    results = groupby((line for line in turn.lines if line.part == "result"), key=lambda line: line.block)
    ends = [_from_ends(list(lines)[::-1])[: RUN_LINES if block in run else 1] for block, lines in results]
    return _from_ends(_own_lines(turn))[:OWN_LINES] + [line for lines in ends for line in lines]


def _own_lines(turn: TurnEvidence) -> list[Line]:
    return [t for t in turn.lines if t.part in ("assistant", "call") and not _said_by_header(turn, t)]


def _from_ends(lines: Sequence[Line]) -> list[Line]:
    """First, last, second, last but one, …; blank lines left out."""
    lines = [line for line in lines if line.text.strip()]
    half = (len(lines) + 1) // 2
    order = [line for pair in zip(lines[:half], reversed(lines), strict=False) for line in pair]
    return order[: len(lines)]


def _said_by_header(turn: TurnEvidence, line: Line) -> bool:
    """True for the line of a short call that its card's header repeats."""
    return line.part == "call" and len(turn.calls) == 1 and _KEY.sub("", line.text) == turn.head


def _take_worth(choice: _Choice, evidence: Evidence, worth: Relevance, among: set[str], limit: int) -> None:
    """What the rules would keep, best first: the model should choose from the best there is."""
    live = {turn_id for turn_id, turn in evidence.turns.items() if turn.turn.live}
    shown = {turn_id: frozenset(numbers) for turn_id, numbers in choice.shown.items()}
    picks = rank_lines(evidence, worth, choice.counter, shown, live, max(0, limit - choice.spent))
    for pick in picks:
        turn = evidence.turns[pick.turn_id]
        for number in pick.numbers if pick.turn_id in among else ():
            line = turn.lines[number - 1]
            if line.text.strip() and not _said_by_header(turn, line):
                choice.take(pick.turn_id, line, limit)
