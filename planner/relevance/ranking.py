"""The order in which lines deserve free space: by relevance for their tokens, best first.

A greedy order: each pick is the line (with the neighbours it needs to be understood) that adds most of what no earlier
pick holds yet, for what it costs. A line is rated by the most it can add, and exactly when its turn has come. The order
follows from the history alone, never from a planner's answer.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.changes import unchanged_lines
from planner.relevance.context import neighbours
from planner.relevance.relevance import Relevance

__all__ = ["HEAD_TOKENS", "MARK_TOKENS", "Pick", "rank_lines"]

CONTEXT_SHARE = 0.5
"""How much of a name's relevance is that it stands among its words, and not only that it stands."""
HEAD_TOKENS = 16
"""Raw tokens of a turn's id with the head and outcome of one call: about what its first line costs besides itself."""
PROSE_HEAD_TOKENS = 4
"""Raw tokens of a turn's id alone: words stand without a call."""
MARK_TOKENS = 1
"""Raw tokens of the mark in front of a line that does not follow the one above it."""
_PROSE = frozenset({"user", "assistant"})


@dataclass(frozen=True, slots=True)
class Pick:
    """Lines of one turn that are taken together."""

    turn_id: str
    numbers: tuple[int, ...]
    priority: float
    """Relevance for each raw token at the time it was picked; never rises from one pick to the next."""


class _Turn:
    """One turn whose lines compete: what stands of it so far, and what its lines need, are worth and cost."""

    __slots__ = ("_costs", "_lines", "bases", "id", "names", "needed", "standing", "weight")

    def __init__(self, evidence: TurnEvidence, relevance: Relevance) -> None:
        self.id = turn_id = evidence.turn.id
        self.names, self.bases = relevance.names[turn_id], relevance.bases[turn_id]
        self.weight = relevance.turn_weights.get(turn_id, 1.0)
        self.standing: set[int] = set()
        self._lines, self._costs = evidence.lines, evidence.line_tokens
        self.needed = evidence.once(_Needed)

    def explains(self, number: int) -> bool:
        """True if the words around line `number` stand."""
        return self.standing.issuperset(self.needed[number])

    def cost(self, number: int) -> int:
        """Raw tokens that a line adds, never less than it comes to in a note, which leaves out indentation and the root
        of paths; 0 if it stands."""
        if self.standing:
            return 0 if number in self.standing else self._costs[number - 1] + MARK_TOKENS
        is_prose = self._lines[number - 1].part in _PROSE
        return self._costs[number - 1] + MARK_TOKENS + (PROSE_HEAD_TOKENS if is_prose else HEAD_TOKENS)

    def cost_of(self, numbers: Sequence[int]) -> int:
        """`cost` of several lines, which one head serves."""
        standing = self.standing
        if len(numbers) == 1:
            return self.cost(numbers[0])
        new = [number for number in numbers if number not in standing]
        cost = sum([self._costs[number - 1] for number in new]) + MARK_TOKENS * len(new)
        if standing:
            return cost
        is_prose = all(self._lines[number - 1].part in _PROSE for number in new)
        return cost + (PROSE_HEAD_TOKENS if is_prose else HEAD_TOKENS)


class _Needed(dict[int, tuple[int, ...]]):
    """By number of a line the lines that must stand too for it to be understood, as far as was asked."""

    def __init__(self, turn: TurnEvidence) -> None:
        super().__init__()
        self._lines = turn.lines

    def __missing__(self, number: int) -> tuple[int, ...]:
        needed = self[number] = neighbours(self._lines, number - 1)
        return needed


class _Ground:
    """What stands so far of a history, and what each further pick would add."""

    def __init__(self, evidence: Evidence, relevance: Relevance) -> None:
        self.turns = {turn_id: _Turn(turn, relevance) for turn_id, turn in evidence.turns.items()}
        self._weights = relevance.weights
        self._left = dict(relevance.weights)
        """What each name still adds to a line that is understood."""

    def bound(self, turn: _Turn, number: int) -> float:
        """The most that one line adds by itself for each token."""
        gain = turn.bases[number - 1] + sum(map(self._left.__getitem__, turn.names[number - 1]))
        return gain * turn.weight / (turn.cost(number) or 1)

    def best(self, turn: _Turn, number: int, bound: float) -> tuple[float, tuple[int, ...]]:
        """What a line adds for each token, by itself or with the lines that explain it; and which lines these are.

        What is understood by itself adds its `bound`.
        """
        names, standing = turn.names[number - 1], turn.standing
        needed = turn.needed[number]
        if not names or standing.issuperset(needed):
            return 0.0 if number in standing else bound, (number,)
        alone = 0.0
        if number not in standing:
            alone = (turn.bases[number - 1] + self._in_part(names)) * turn.weight / turn.cost(number)
        group = tuple(sorted((number, *needed)))
        together = self._gain(turn, group) / turn.cost_of(group)
        return (together, group) if together > alone else (alone, (number,))

    def _gain(self, turn: _Turn, group: tuple[int, ...]) -> float:
        """What the lines of a `group` add, each explained by what stands and by the others."""
        left, standing, needed = self._left, turn.standing, turn.needed
        gain = 0.0
        for number in group:
            if number not in standing:
                gain += turn.bases[number - 1]
            names = turn.names[number - 1]
            if [one for one in needed[number] if one not in standing and one not in group]:
                gain += self._in_part(names)
            else:
                gain += sum(map(left.__getitem__, names))
        return gain * turn.weight

    def _in_part(self, names: Sequence[str]) -> float:
        """What `names` still add to a line that is not understood."""
        left, weights = self._left, self._weights
        return sum([rest if (rest := left[name] - CONTEXT_SHARE * weights[name]) > 0 else 0.0 for name in names])

    def stand(self, turn: _Turn, number: int) -> None:
        """Note that a line stands, and what it and its neighbours now say."""
        standing, left, weights = turn.standing, self._left, self._weights
        standing.add(number)
        for at in range(number - 2, number + 3):
            if at in standing and (names := turn.names[at - 1]):
                if turn.explains(at):
                    left.update(dict.fromkeys(names, 0.0))
                else:
                    for name in names:
                        left[name] = min(left[name], CONTEXT_SHARE * weights[name])


def rank_lines(
    evidence: Evidence,
    relevance: Relevance,
    pinned: Mapping[str, frozenset[int]],
    whole: Collection[str],
    budget_tokens: float,
) -> Iterator[Pick]:
    """Picks from best to worst until about `budget_tokens` raw tokens are spent; each is looked for when asked for.

    `pinned` lines by turn id, and all lines of the turns that stand `whole`, are taken to stand already.
    """
    ground = _Ground(evidence, relevance)
    _lay_ground(ground, evidence, pinned, whole)
    heap = [
        (-ground.bound(turn, number), order, turn, number)
        for order, (turn, number) in enumerate(_candidates(ground, evidence, whole))
    ]
    heapq.heapify(heap)
    spent, priority = 0.0, float("inf")
    while heap and spent < budget_tokens:
        _, order, turn, number = heapq.heappop(heap)
        most = -heap[0][0] if heap else 0.0
        bound = ground.bound(turn, number)
        ratio, numbers = ground.best(turn, number, bound) if bound >= most else (bound, ())
        if ratio < most - 1e-12:
            heapq.heappush(heap, (-ratio, order, turn, number))
            continue
        if ratio <= 0:
            break
        spent += turn.cost_of(numbers)
        priority = min(priority, ratio)
        for one in numbers:
            ground.stand(turn, one)
        if not turn.explains(number):
            heapq.heappush(heap, (-priority, order, turn, number))
        yield Pick(turn.id, numbers, priority)


def _lay_ground(
    ground: _Ground, evidence: Evidence, pinned: Mapping[str, frozenset[int]], whole: Collection[str]
) -> None:
    for turn_id, numbers in pinned.items():
        for number in sorted(numbers):
            ground.stand(ground.turns[turn_id], number)
    for turn_id in sorted(whole):
        turn = ground.turns[turn_id]
        for line in evidence.turns[turn_id].lines:
            ground.stand(turn, line.number)


def _candidates(ground: _Ground, evidence: Evidence, whole: Collection[str]) -> Iterator[tuple[_Turn, int]]:
    """Every line that says something, by its turn and number."""
    for turn_id, turn in ground.turns.items():
        if turn_id not in whole:
            for number in evidence.turns[turn_id].once(_telling_lines):
                yield turn, number


def _telling_lines(turn: TurnEvidence) -> array[int]:
    """Numbers of the lines of `turn` that say something."""
    idle = turn.boilerplate_lines | unchanged_lines(turn)
    telling = (line.number for line in turn.lines.to_read() if line.number not in idle and line.text.strip())
    return array("I", telling)
