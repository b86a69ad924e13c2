"""The order in which lines deserve free space: by relevance for their tokens, best first.

A greedy order: each pick is the line (with the neighbours it needs to be understood) that adds most of what no earlier
pick holds yet, for what it costs. The order follows from the history alone, never from a planner's answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.evidence import Evidence, TurnEvidence
from planner.reading.lines import Line
from planner.reading.tokens import TokenCounter
from planner.relevance.context import neighbours
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


class _Turn:
    """One turn whose lines compete: what stands of it so far, and what its lines need, are worth and cost."""

    def __init__(self, evidence: TurnEvidence, relevance: Relevance, counter: TokenCounter) -> None:
        self.evidence = evidence
        self.standing: set[int] = set()
        self.relevance = relevance.lines[evidence.turn.id]
        self.weight = relevance.turn_weights.get(evidence.turn.id, 1.0)
        self.neighbours = [neighbours(evidence.lines, at) if own.names else () for at, own in enumerate(self.relevance)]
        """Of each line those that must stand too for it to be understood."""
        self._costs = [line_tokens(counter, line) for line in evidence.lines]

    def explains(self, number: int, with_it: Collection[int] = ()) -> bool:
        """True if the words around line `number` stand, or stand `with_it`."""
        needed = self.neighbours[number - 1]
        return not needed or all(other in self.standing or other in with_it for other in needed)

    def cost(self, numbers: Sequence[int]) -> int:
        """Raw tokens that a pick adds; 0 if all of it stands."""
        costs, standing = self._costs, self.standing
        if standing:
            return sum([costs[number - 1] for number in numbers if number not in standing])
        lines = self.evidence.lines
        is_prose = all(lines[number - 1].part in ("user", "assistant") for number in numbers)
        head = PROSE_HEAD_TOKENS if is_prose else HEAD_TOKENS
        return head + sum([costs[number - 1] for number in numbers])


_UNNAMED, _NAMED, _UNDERSTOOD = 0, 1, 2
_SHARES = ((PLAIN_SHARE, 0.0, 0.0), (PLAIN_SHARE + CONTEXT_SHARE, CONTEXT_SHARE, 0.0))
"""What a name still adds, by whether its line is understood and by what stands of the name."""


class _Ground:
    """What stands so far of a history, and what each further pick would add."""

    def __init__(self, evidence: Evidence, relevance: Relevance, counter: TokenCounter) -> None:
        self.turns = {turn_id: _Turn(turn, relevance, counter) for turn_id, turn in evidence.turns.items()}
        self._weights = relevance.weights
        self._states = dict.fromkeys(relevance.weights, _UNNAMED)

    def ratio(self, turn: _Turn, numbers: Sequence[int]) -> float:
        """What a pick adds for each token; 0 if all of it stands."""
        gain = self._gain(turn, numbers)
        cost = turn.cost(numbers) if gain > 0 else 0
        return gain / cost if cost > 0 else 0.0

    def _gain(self, turn: _Turn, numbers: Sequence[int]) -> float:
        weights, states = self._weights, self._states
        gain = 0.0
        for number in numbers:
            names, base = turn.relevance[number - 1]
            if number not in turn.standing:
                gain += base
            if names:
                shares = _SHARES[turn.explains(number, numbers)]
                gain += sum([shares[states[name]] * weights[name] for name in names])
        return gain * turn.weight

    def stand(self, turn: _Turn, number: int) -> None:
        """Note that a line stands, and what it and its neighbours now say."""
        standing, states = turn.standing, self._states
        standing.add(number)
        for at in range(number - 2, number + 3):
            if at in standing and (names := turn.relevance[at - 1].names):
                state = _UNDERSTOOD if turn.explains(at) else _NAMED
                for name in names:
                    if states[name] < state:
                        states[name] = state


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
    ground = _Ground(evidence, relevance, counter)
    _lay_ground(ground, pinned, whole)
    candidates = enumerate(_candidates(ground, whole))
    rated = ((-ground.ratio(ground.turns[turn_id], numbers), at, turn_id, numbers) for at, (turn_id, numbers) in candidates)
    heap = [entry for entry in rated if entry[0] < 0]
    heapq.heapify(heap)
    picks: list[Pick] = []
    spent, priority = 0.0, float("inf")
    while heap and spent < budget_tokens:
        _, order, turn_id, numbers = heapq.heappop(heap)
        turn = ground.turns[turn_id]
        ratio = ground.ratio(turn, numbers)
        if ratio <= 0:
            continue
        if heap and ratio < -heap[0][0] - 1e-12:
            heapq.heappush(heap, (-ratio, order, turn_id, numbers))
            continue
        spent += turn.cost(numbers)
        priority = min(priority, ratio)
        for number in numbers:
            ground.stand(turn, number)
        picks.append(Pick(turn_id, numbers, priority))
    return tuple(picks)


def line_tokens(counter: TokenCounter, line: Line) -> int:
    """Raw tokens of `line` with its line break and a mark: never less than it comes to in a note, which leaves out
    indentation and the root of paths. Asked of the text as it was counted before, so that nothing is counted twice."""
    return counter.raw(line.text + "\n") + MARK_TOKENS


def _lay_ground(ground: _Ground, pinned: Mapping[str, frozenset[int]], whole: Collection[str]) -> None:
    for turn_id, numbers in pinned.items():
        for number in sorted(numbers):
            ground.stand(ground.turns[turn_id], number)
    for turn_id in sorted(whole):
        turn = ground.turns[turn_id]
        for line in turn.evidence.lines:
            ground.stand(turn, line.number)


def _candidates(ground: _Ground, whole: Collection[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every line by itself, and with its neighbours where it does not explain itself."""
    for turn_id, turn in ground.turns.items():
        if turn_id in whole:
            continue
        for line in turn.evidence.lines:
            number = line.number
            if number in turn.evidence.boilerplate_lines or not line.text.strip():
                continue
            yield turn_id, (number,)
            if needed := turn.neighbours[number - 1]:
                yield turn_id, tuple(sorted((number, *needed)))
