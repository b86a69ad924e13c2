"""The order in which lines deserve free space: by relevance for their tokens, best first.

A greedy order: each pick is the line (with the neighbours it needs to be understood) that adds most of what no earlier
pick holds yet, for what it costs. The order follows from the history alone, never from a planner's answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from planner.evidence import Evidence
from planner.reading.lines import Line
from planner.reading.tokens import TokenCounter
from planner.relevance.relevance import Relevance

__all__ = ["HEAD_TOKENS", "Pick", "line_tokens", "rank_lines"]

PLAIN_SHARE, CONTEXT_SHARE = 0.5, 0.5
"""How much of a name's relevance is that it stands at all, and how much that it stands among its words."""
HEAD_TOKENS = 16
"""Raw tokens of a turn's id with the head and outcome of one call: about what its first line costs besides itself."""
PROSE_HEAD_TOKENS = 4
"""Raw tokens of a turn's id alone: words stand without a call."""
MARK_TOKENS = 1
"""Raw tokens of the mark in front of a line that does not follow the one above it."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Lines of one turn that are taken together."""

    turn_id: str
    numbers: tuple[int, ...]
    priority: float
    """Relevance for each raw token at the time it was picked; never rises from one pick to the next."""


@dataclass
class _State:
    """What stands so far."""

    named: bytearray
    understood: bytearray
    standing: dict[str, set[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Ground:
    evidence: Evidence
    relevance: Relevance
    counter: TokenCounter
    pinned: Mapping[str, frozenset[int]]
    whole: Collection[str]
    state: _State
    costs: dict[str, int] = field(default_factory=dict)
    """Of the lines that were asked for, by their text."""

    def cost_of(self, line: Line) -> int:
        cost = self.costs.get(line.text)
        if cost is None:
            cost = self.costs[line.text] = line_tokens(self.counter, line)
        return cost


def rank_lines(
    evidence: Evidence,
    relevance: Relevance,
    counter: TokenCounter,
    pinned: Mapping[str, frozenset[int]],
    whole: Collection[str],
    budget_tokens: float,
) -> tuple[Pick, ...]:
    """Picks from best to worst until about `budget_tokens` raw tokens are spent.

    `pinned` lines by turn id, and all lines of the turns that stand `whole`, are taken to stand already.
    """
    names = len(relevance.weights)
    ground = _Ground(evidence, relevance, counter, pinned, whole, _State(bytearray(names), bytearray(names)))
    _lay_ground(ground)
    heap = [(-_ratio(ground, turn_id, numbers), at, turn_id, numbers) for at, (turn_id, numbers) in _candidates(ground)]
    heap = [entry for entry in heap if entry[0] < 0]
    heapq.heapify(heap)
    picks: list[Pick] = []
    spent, priority = 0.0, float("inf")
    while heap and spent < budget_tokens:
        _, order, turn_id, numbers = heapq.heappop(heap)
        ratio = _ratio(ground, turn_id, numbers)
        if ratio <= 0:
            continue
        if heap and ratio < -heap[0][0] - 1e-12:
            heapq.heappush(heap, (-ratio, order, turn_id, numbers))
            continue
        spent += _cost(ground, turn_id, numbers)
        priority = min(priority, ratio)
        for number in numbers:
            _stand(ground, turn_id, number)
        picks.append(Pick(turn_id, numbers, priority))
    return tuple(picks)


def line_tokens(counter: TokenCounter, line: Line) -> int:
    """Raw tokens of `line` with its line break and a mark: never less than it comes to in a note, which leaves out
    indentation and the root of paths. Asked of the text as it was counted before, so that nothing is counted twice."""
    return counter.raw(line.text + "\n") + MARK_TOKENS


def _lay_ground(ground: _Ground) -> None:
    for turn_id, numbers in ground.pinned.items():
        for number in sorted(numbers):
            _stand(ground, turn_id, number)
    for turn_id in sorted(ground.whole):
        for line in ground.evidence.turns[turn_id].lines:
            _stand(ground, turn_id, line.number)


def _candidates(ground: _Ground) -> Iterator[tuple[int, tuple[str, tuple[int, ...]]]]:
    """Every line by itself, and with its neighbours where it does not explain itself; numbered for a fixed order."""
    order = 0
    for turn_id, turn in ground.evidence.turns.items():
        if turn_id in ground.whole:
            continue
        for line, worth in zip(turn.lines, ground.relevance.lines[turn_id], strict=True):
            if not line.text.strip() or line.number in turn.boilerplate_lines:
                continue
            groups: list[tuple[int, ...]] = [(line.number,)]
            groups += [
                tuple(sorted(line.number + step for step in (0, *steps)))
                for steps in {use.neighbours for use in worth.uses if use.neighbours}
            ]
            for numbers in groups:
                yield order, (turn_id, numbers)
                order += 1


def _ratio(ground: _Ground, turn_id: str, numbers: tuple[int, ...]) -> float:
    gain = _gain(ground, turn_id, numbers)
    cost = _cost(ground, turn_id, numbers) if gain > 0 else 0.0
    return gain / cost if cost > 0 else 0.0


def _cost(ground: _Ground, turn_id: str, numbers: tuple[int, ...]) -> float:
    """Raw tokens that a pick adds; 0 if all of it stands."""
    standing = ground.state.standing.get(turn_id)
    lines = ground.evidence.turns[turn_id].lines
    if standing is not None:
        return sum([ground.cost_of(lines[number - 1]) for number in numbers if number not in standing])
    is_prose = all(lines[number - 1].part in ("user", "assistant") for number in numbers)
    head = PROSE_HEAD_TOKENS if is_prose else HEAD_TOKENS
    return head + sum([ground.cost_of(lines[number - 1]) for number in numbers])


def _gain(ground: _Ground, turn_id: str, numbers: tuple[int, ...]) -> float:
    state, relevance = ground.state, ground.relevance
    named, understood, weights = state.named, state.understood, relevance.weights
    standing: Collection[int] = state.standing.get(turn_id, ())
    lines = relevance.lines[turn_id]
    counted: set[int] = set()
    gain = 0.0
    for number in numbers:
        uses, base = lines[number - 1]
        if number not in standing:
            gain += base
        for name, neighbours in uses:
            if name not in counted:
                share = 0.0 if named[name] else PLAIN_SHARE
                if not understood[name] and _explained(neighbours, number, standing, numbers):
                    counted.add(name)
                    share += CONTEXT_SHARE
                gain += share * weights[name]
    return gain * relevance.turn_weights.get(turn_id, 1.0)


def _explained(
    neighbours: tuple[int, ...], number: int, standing: Collection[int], with_it: Collection[int] = ()
) -> bool:
    """True if the words around a name of line `number` stand, or stand `with_it`."""
    return not neighbours or all(number + step in standing or number + step in with_it for step in neighbours)


def _stand(ground: _Ground, turn_id: str, number: int) -> None:
    """Note that a line stands, and what it and its neighbours now say."""
    state = ground.state
    standing = state.standing.setdefault(turn_id, set())
    standing.add(number)
    lines = ground.relevance.lines[turn_id]
    for at in range(number - 2, number + 3):
        if at in standing:
            for name, neighbours in lines[at - 1].uses:
                state.named[name] = 1
                if _explained(neighbours, at, standing):
                    state.understood[name] = 1
