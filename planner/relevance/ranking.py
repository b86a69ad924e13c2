"""The order in which lines deserve free space: by relevance for their tokens, best first.

A greedy order: each pick is the line (with the neighbours it needs to be understood) that adds most of what no earlier
pick holds yet, for what it costs. A line is rated by the most it can add, and exactly when its turn has come. The order
follows from the history alone, never from a planner's answer.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.changes import unchanged_lines
from planner.reading.lines import small_type
from planner.relevance.context import Surroundings
from planner.relevance.relevance import WORTHS, Relevance

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
PARTS = 16
"""Into so many parts lines are told by their bounds; a part is ordered when the better ones are through."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Lines of one turn that are taken together."""

    turn_id: str
    numbers: tuple[int, ...]
    priority: float
    """Relevance for each raw token at the time it was picked; never rises from one pick to the next."""


class _Turn:
    """One turn whose lines compete: what stands of it so far, and what its lines need, are worth and cost."""

    __slots__ = ("_costs", "_heads", "_places", "_recency", "ends", "id", "names", "needed", "standing", "weight")

    def __init__(self, evidence: TurnEvidence, relevance: Relevance) -> None:
        self.id = turn_id = evidence.turn.id
        rows, bases = relevance.names[turn_id], relevance.bases[turn_id]
        self._places, self._recency = bases.places, bases.recency
        self.names, self.ends = rows.flat, rows.ends
        """What line `number` names begins at ``ends[number - 1]`` in `names`, and ends at ``ends[number]``."""
        self.weight = relevance.turn_weights.get(turn_id, 1.0)
        self.standing: set[int] = set()
        self._costs, self._heads = evidence.line_tokens, evidence.once(_head_tokens)
        self.needed = evidence.once(_Needed)

    def base(self, number: int) -> float:
        """What line `number` is worth for what is said in it."""
        return WORTHS[self._places[number - 1]] * self._recency

    def explains(self, number: int) -> bool:
        """True if the words around line `number` stand."""
        return self.standing.issuperset(self.needed[number])

    def cost(self, number: int) -> int:
        """Raw tokens that a line adds, never less than it comes to in a note, which leaves out indentation and the root
        of paths; 0 if it stands."""
        if self.standing:
            return 0 if number in self.standing else self._costs[number - 1] + MARK_TOKENS
        return self._costs[number - 1] + MARK_TOKENS + self._heads[number - 1]

    def cost_of(self, numbers: Sequence[int]) -> int:
        """`cost` of several lines, which one head serves."""
        if len(numbers) == 1:
            return self.cost(numbers[0])
        new = [number for number in numbers if number not in self.standing]
        cost = sum([self._costs[number - 1] for number in new]) + MARK_TOKENS * len(new)
        return cost if self.standing else cost + max([self._heads[number - 1] for number in new])


class _Needed(dict[int, tuple[int, ...]]):
    """By number of a line the lines that must stand too for it to be understood, as far as was asked."""

    __slots__ = ("around",)

    def __init__(self, turn: TurnEvidence) -> None:
        super().__init__()
        self.around = Surroundings(turn.lines)

    def __missing__(self, number: int) -> tuple[int, ...]:
        needed = self[number] = self.around.neighbours(number - 1)
        return needed


class _Ground:
    """What stands so far of a history, and what each further pick would add."""

    def __init__(self, evidence: Evidence, relevance: Relevance) -> None:
        self.turns = {turn_id: _Turn(turn, relevance) for turn_id, turn in evidence.turns.items()}
        self._weights = relevance.weights
        self._left = relevance.weights[:]
        """What each name still adds to a line that is understood."""

    def bound(self, turn: _Turn, number: int) -> float:
        """The most that one line adds by itself for each token."""
        start, stop = turn.ends[number - 1], turn.ends[number]
        gain = turn.base(number)
        if start < stop:
            gain += sum(map(self._left.__getitem__, turn.names[start:stop]))
        return gain * turn.weight / (turn.cost(number) or 1)

    def best(self, turn: _Turn, number: int, bound: float) -> tuple[float, tuple[int, ...]]:
        """What a line adds for each token, by itself or with the lines that explain it; and which lines these are.

        What is understood by itself adds its `bound`.
        """
        names, standing = turn.names[turn.ends[number - 1] : turn.ends[number]], turn.standing
        needed = turn.needed[number]
        if not names or standing.issuperset(needed):
            return 0.0 if number in standing else bound, (number,)
        alone = 0.0
        if number not in standing:
            alone = (turn.base(number) + self._in_part(names)) * turn.weight / turn.cost(number)
        group = tuple(sorted((number, *needed)))
        together = self._gain(turn, group) / turn.cost_of(group)
        return (together, group) if together > alone else (alone, (number,))

    def _gain(self, turn: _Turn, group: tuple[int, ...]) -> float:
        """What the lines of a `group` add, each explained by what stands and by the others."""
        ends, standing, needed = turn.ends, turn.standing, turn.needed
        gain = 0.0
        for number in group:
            if number not in standing:
                gain += turn.base(number)
            start, stop = ends[number - 1], ends[number]
            if start == stop:
                continue
            names = turn.names[start:stop]
            if [one for one in needed[number] if one not in standing and one not in group]:
                gain += self._in_part(names)
            else:
                gain += sum(map(self._left.__getitem__, names))
        return gain * turn.weight

    def _in_part(self, names: Sequence[int]) -> float:
        """What `names` still add to a line that is not understood."""
        left, weights = self._left, self._weights
        return sum([rest if (rest := left[name] - CONTEXT_SHARE * weights[name]) > 0 else 0.0 for name in names])

    def stand(self, turn: _Turn, number: int) -> None:
        """Note that a line stands, and what it and its neighbours now say."""
        standing, left, ends = turn.standing, self._left, turn.ends
        standing.add(number)
        for at in range(number - 2, number + 3):
            if at in standing and (start := ends[at - 1]) < (stop := ends[at]):
                if standing.issuperset(turn.needed[at]):
                    for name in turn.names[start:stop]:
                        left[name] = 0.0
                else:
                    for name in turn.names[start:stop]:
                        left[name] = min(left[name], CONTEXT_SHARE * self._weights[name])


class _Queue:
    """Lines that wait for their turn, the best first. Most never have one: of those only the bounds are held."""

    def __init__(self, ground: _Ground, candidates: Iterable[tuple[_Turn, array[int]]]) -> None:
        """Of the lines with these numbers of each turn."""
        self._turns: list[_Turn] = []
        self._firsts: list[int] = []
        """Where the lines of each turn begin."""
        self._numbers: list[array[int]] = []
        """Of these lines, by turn."""
        self._bounds = array("d")
        for turn, numbers in candidates:
            self._turns.append(turn)
            self._firsts.append(len(self._bounds))
            self._numbers.append(numbers)
            self._bounds.extend([ground.bound(turn, number) for number in numbers])
        ordered = sorted(self._bounds)
        self._limits = array("d", [float("-inf"), *ordered[:: len(ordered) // PARTS + 1]])
        """The least bound of each part of the lines that is not held yet, the best part last."""
        self._above = float("inf")
        """The lines whose bound is not below this are held."""
        self._held: list[tuple[float, int]] = []

    def most(self) -> float:
        """The bound of the best line that waits; 0 if none does."""
        while self._limits and not (self._held and -self._held[0][0] >= self._above):
            below, self._above = self._above, self._limits.pop()
            self._held += [(-bound, at) for at, bound in enumerate(self._bounds) if self._above <= bound < below]
            heapq.heapify(self._held)
        return -self._held[0][0] if self._held else 0.0

    def pop(self) -> tuple[int, _Turn, int] | None:
        """The place, turn and number of the best line; None if none waits."""
        self.most()
        if not self._held:
            return None
        _, at = heapq.heappop(self._held)
        which = bisect_right(self._firsts, at) - 1
        return at, self._turns[which], self._numbers[which][at - self._firsts[which]]

    def push(self, bound: float, at: int) -> None:
        """Let the line at this place wait again, with another bound."""
        if bound >= self._above:
            heapq.heappush(self._held, (-bound, at))
        else:
            self._bounds[at] = bound


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
    turns = ((ground.turns[turn_id], turn) for turn_id, turn in evidence.turns.items() if turn_id not in whole)
    waiting = _Queue(ground, ((own, turn.once(_telling_lines)) for own, turn in turns))
    spent, priority = 0.0, float("inf")
    while spent < budget_tokens and (best := waiting.pop()) is not None:
        at, turn, number = best
        most = waiting.most()
        bound = ground.bound(turn, number)
        ratio, numbers = ground.best(turn, number, bound) if bound >= most else (bound, ())
        if ratio < most - 1e-12:
            waiting.push(ratio, at)
            continue
        if ratio <= 0:
            break
        spent += turn.cost_of(numbers)
        priority = min(priority, ratio)
        for one in numbers:
            ground.stand(turn, one)
        if not turn.explains(number):
            waiting.push(priority, at)
        yield Pick(turn.id, numbers, priority)


def _lay_ground(
    ground: _Ground, evidence: Evidence, pinned: Mapping[str, frozenset[int]], whole: Collection[str]
) -> None:
    for turn_id, numbers in pinned.items():
        for number in sorted(numbers):
            ground.stand(ground.turns[turn_id], number)
    for turn_id in sorted(whole):
        turn = ground.turns[turn_id]
        for number in range(1, len(evidence.turns[turn_id].lines) + 1):
            ground.stand(turn, number)


def _head_tokens(turn: TurnEvidence) -> bytes:
    """What the first line of `turn` that stands costs besides itself, by line."""
    spans = [
        (PROSE_HEAD_TOKENS if part in _PROSE else HEAD_TOKENS, stop - first) for part, first, stop in turn.lines.spans()
    ]
    return b"".join(bytes([tokens]) * count for tokens, count in spans)


def _telling_lines(turn: TurnEvidence) -> array[int]:
    """Numbers of the lines of `turn` that say something."""
    idle = turn.boilerplate_lines | unchanged_lines(turn)
    filled = turn.once(_Needed).around.filled
    telling = [n for n in turn.lines.numbers_to_read() if filled[n - 1] and n not in idle]
    return array(small_type(len(filled)), telling)
