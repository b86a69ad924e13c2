"""The order in which lines deserve free space: by relevance for their tokens, best first.

A greedy order: each pick is the line (with the neighbours it needs to be understood) that adds most of what no earlier
pick holds yet, for what it costs. A line is rated by the most it can add, and exactly when its turn has come. The order
follows from the history alone, never from a planner's answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.changes import unchanged_lines
from planner.reading.lines import Line, read_lines
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
        self.relevance = relevance.lines[evidence.turn.id]
        self.weight = relevance.turn_weights.get(evidence.turn.id, 1.0)
        self.standing: set[int] = set()
        self._counter = counter
        self._needed: dict[int, tuple[int, ...]] = {}

    def needed(self, number: int) -> tuple[int, ...]:
        """The lines that must stand too for line `number` to be understood."""
        known = self._needed.get(number)
        if known is None:
            known = self._needed[number] = neighbours(self.evidence.lines, number - 1)
        return known

    def explains(self, number: int, with_it: Collection[int] = ()) -> bool:
        """True if the words around line `number` stand, or stand `with_it`."""
        needed = self.needed(number)
        return self.standing.issuperset(needed) or all(one in self.standing or one in with_it for one in needed)

    def cost(self, numbers: Iterable[int]) -> int:
        """Raw tokens that a pick adds; 0 if all of it stands."""
        cost, is_prose = 0, True
        for number in numbers:
            if number not in self.standing:
                line = self.evidence.lines[number - 1]
                cost += line_tokens(self._counter, line)
                is_prose = is_prose and line.part in ("user", "assistant")
        if self.standing:
            return cost
        return cost + (PROSE_HEAD_TOKENS if is_prose else HEAD_TOKENS)


_UNNAMED, _NAMED, _UNDERSTOOD = 0, 1, 2
_SHARES = ((PLAIN_SHARE, 0.0, 0.0), (PLAIN_SHARE + CONTEXT_SHARE, CONTEXT_SHARE, 0.0))
"""What a name still adds, by whether its line is understood and by what stands of the name."""


class _Ground:
    """What stands so far of a history, and what each further pick would add."""

    def __init__(self, evidence: Evidence, relevance: Relevance, counter: TokenCounter) -> None:
        self.turns = {turn_id: _Turn(turn, relevance, counter) for turn_id, turn in evidence.turns.items()}
        self._weights = relevance.weights
        self._states = dict.fromkeys(relevance.weights, _UNNAMED)

    def bound(self, turn: _Turn, number: int) -> float:
        """The most that one line adds by itself for each token."""
        names, base = turn.relevance[number - 1]
        shares = _SHARES[True]
        gain = base + sum([shares[self._states[name]] * self._weights[name] for name in names])
        return gain * turn.weight / (turn.cost((number,)) or 1)

    def best(self, turn: _Turn, number: int) -> tuple[float, tuple[int, ...]]:
        """What a line adds for each token, by itself or with the lines that explain it; and which lines these are."""
        alone = self._ratio(turn, (number,)), (number,)
        if not turn.relevance[number - 1].names or turn.explains(number):
            return alone
        group = tuple(sorted((number, *turn.needed(number))))
        return max(alone, (self._ratio(turn, group), group), key=itemgetter(0))

    def _ratio(self, turn: _Turn, numbers: Sequence[int]) -> float:
        """What a pick adds for each token; 0 if all of it stands."""
        cost = turn.cost(numbers)
        return self._gain(turn, numbers) / cost if cost > 0 else 0.0

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
    heap = [
        (-ground.bound(turn, number), order, turn, number)
        for order, (turn, number) in enumerate(_candidates(ground, whole))
    ]
    heapq.heapify(heap)
    picks: list[Pick] = []
    spent, priority = 0.0, float("inf")
    while heap and spent < budget_tokens:
        _, order, turn, number = heapq.heappop(heap)
        most = -heap[0][0] if heap else 0.0
        bound = ground.bound(turn, number)
        ratio, numbers = ground.best(turn, number) if bound >= most else (bound, ())
        if ratio < most - 1e-12:
            heapq.heappush(heap, (-ratio, order, turn, number))
            continue
        if ratio <= 0:
            break
        spent += turn.cost(numbers)
        priority = min(priority, ratio)
        for one in numbers:
            ground.stand(turn, one)
        picks.append(Pick(turn.evidence.turn.id, numbers, priority))
        if not turn.explains(number):
            heapq.heappush(heap, (-priority, order, turn, number))
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


def _candidates(ground: _Ground, whole: Collection[str]) -> Iterator[tuple[_Turn, int]]:
    """Every line that says something, by its turn and number."""
    for turn_id, turn in ground.turns.items():
        if turn_id not in whole:
            idle = turn.evidence.boilerplate_lines | unchanged_lines(turn.evidence)
            for line in read_lines(turn.evidence.lines):
                if line.number not in idle and line.text.strip():
                    yield turn, line.number
