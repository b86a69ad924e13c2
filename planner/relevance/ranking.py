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
from typing import NamedTuple

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
PARTS = 64
"""Into so many parts lines are told by their bounds; a part is ordered when the better ones are through."""
ROUNDING = 1e-12
"""Sums of the same numbers differ by less than this."""


class Pick(NamedTuple):
    """Lines of one turn that are taken together."""

    turn_id: str
    numbers: tuple[int, ...]
    priority: float
    """Relevance for each raw token at the time it was picked; never rises from one pick to the next."""


class _Turn:
    """One turn whose lines compete: what stands of it so far, and what its lines need, are worth and cost."""

    __slots__ = (
        "costs",
        "ends",
        "heads",
        "id",
        "is_told",
        "names",
        "needed",
        "places",
        "recency",
        "standing",
        "weight",
    )

    def __init__(self, evidence: TurnEvidence, relevance: Relevance) -> None:
        self.id = turn_id = evidence.turn.id
        rows, bases = relevance.names[turn_id], relevance.bases[turn_id]
        self.places, self.recency = bases.places, bases.recency
        """What is said in line `number` is worth ``WORTHS[places[number - 1]] * recency``, whatever it names."""
        self.names, self.ends = rows.flat, rows.ends
        """What line `number` names begins at ``ends[number - 1]`` in `names`, and ends at ``ends[number]``."""
        self.weight = relevance.turn_weights.get(turn_id, 1.0)
        self.standing = bytearray(len(evidence.lines) + 4)
        """By number, 1 for a line that stands, 2 for one that is explained, too: its names add nothing any more. 0 for
        others, also at -1 and 0 and at two places behind the last line."""
        self.is_told = False
        """True if any line stands."""
        self.costs = evidence.line_tokens
        self.heads = evidence.once(_head_tokens)
        """By index of a line, what it costs more where nothing of its turn stands."""
        self.needed = evidence.once(_Needed)

    def cost(self, number: int) -> int:
        """Raw tokens that a line adds, never less than it comes to in a note, which leaves out indentation and the root
        of paths; 0 if it stands."""
        if not self.is_told:
            return self.costs[number - 1] + MARK_TOKENS + self.heads[number - 1]
        return 0 if self.standing[number] else self.costs[number - 1] + MARK_TOKENS

    def explains(self, number: int) -> bool:
        """True if the words around line `number` stand."""
        return all(map(self.standing.__getitem__, self.needed[number]))


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
        self._left_of = self._left.__getitem__

    def bounds(self, turn: _Turn, numbers: Iterable[int]) -> list[float]:
        """The most that each of these lines adds by itself for each token."""
        names, ends, left_of = turn.names, turn.ends, self._left_of
        places, recency, weight, cost = turn.places, turn.recency, turn.weight, turn.cost
        return [
            (WORTHS[places[number - 1]] * recency + sum(map(left_of, names[ends[number - 1] : ends[number]])))
            * weight
            / (cost(number) or 1)
            for number in numbers
        ]

    def best(self, turn: _Turn, number: int, most: float) -> tuple[float, tuple[int, ...], int]:
        """What a line adds for each token, by itself or with the lines that explain it; which lines these are, and
        their raw tokens.

        Only its bound, and no lines, where that is less than `most`.
        """
        names = turn.names[turn.ends[number - 1] : turn.ends[number]]
        base, left = WORTHS[turn.places[number - 1]] * turn.recency, sum(map(self._left_of, names))
        cost = turn.cost(number)
        bound = (base + left) * turn.weight / (cost or 1)
        if bound < most - ROUNDING:
            return bound, (), 0
        needed = turn.needed[number]
        if not (names and needed) or all(map(turn.standing.__getitem__, needed)):
            return bound if cost else 0.0, (number,), cost
        alone = (base + self._in_part(names)) * turn.weight / cost if cost else 0.0
        group = tuple(sorted((number, *needed)))
        gain, cost_of_group = self._together(turn, group, number, left)
        together = gain * turn.weight / cost_of_group
        return (together, group, cost_of_group) if together > alone else (alone, (number,), cost)

    def _together(self, turn: _Turn, group: tuple[int, ...], explained: int, left: float) -> tuple[float, int]:
        """What the lines of a `group` add, each explained by what stands and by the others, and their raw tokens, one
        head for all: of the line that the others explain, its names add what is `left` of them."""
        ends, standing, costs = turn.ends, turn.standing, turn.costs
        gain, cost = 0.0, 0 if turn.is_told else max([turn.heads[number - 1] for number in group])
        for number in group:
            if not standing[number]:
                gain += WORTHS[turn.places[number - 1]] * turn.recency
                cost += costs[number - 1] + MARK_TOKENS
            if number == explained:
                gain += left
            elif (start := ends[number - 1]) < (stop := ends[number]):
                names = turn.names[start:stop]
                for other in turn.needed[number]:
                    if not standing[other] and other not in group:
                        gain += self._in_part(names)
                        break
                else:
                    gain += sum(map(self._left_of, names))
        return gain, cost

    def _in_part(self, names: Sequence[int]) -> float:
        """What `names` still add to a line that is not understood."""
        left, weights = self._left, self._weights
        return sum([rest if (rest := left[name] - CONTEXT_SHARE * weights[name]) > 0 else 0.0 for name in names])

    def stand(self, turn: _Turn, number: int) -> None:
        """Note that a line stands, and what it and its neighbours now say."""
        standing, left = turn.standing, self._left
        turn.is_told = True
        standing[number] = standing[number] or 1
        for at in range(number - 2, number + 3):
            if standing[at] == 1:
                names = turn.names[turn.ends[at - 1] : turn.ends[at]]
                if turn.explains(at):
                    standing[at] = 2
                    for name in names:
                        left[name] = 0.0
                else:
                    for name in names:
                        if left[name] > (part := CONTEXT_SHARE * self._weights[name]):
                            left[name] = part


class _Queue:
    """Lines that wait for their turn, the best first. Most never have one: of those only the bounds are held."""

    def __init__(self, ground: _Ground, candidates: Iterable[tuple[_Turn, array[int]]]) -> None:
        """Of the lines with these numbers of each turn."""
        self._turns: list[tuple[_Turn, array[int]]] = []
        self._firsts: list[int] = []
        """Where the lines of each turn begin."""
        self._bounds = array("d")
        for turn, numbers in candidates:
            self._turns.append((turn, numbers))
            self._firsts.append(len(self._bounds))
            self._bounds.extend(ground.bounds(turn, numbers))
        ordered = sorted(self._bounds)
        self._limits = array("d", ordered[len(ordered) // PARTS :: len(ordered) // PARTS + 1])
        """The least bound of each part but the first, the worst."""
        kind = small_type(len(ordered))
        self._parts = [array(kind) for _ in range(len(self._limits) + 1)]
        for at, bound in enumerate(self._bounds):
            self._parts[bisect_right(self._limits, bound)].append(at)
        self._above = float("inf")
        """The lines whose bound is not below this are ordered."""
        self._ordered: list[tuple[float, int]] = []
        """A heap of them, each with its bound below zero."""
        self._order()

    def _order(self) -> None:
        """Order parts until a line is found that waits."""
        while self._parts and not self._ordered:
            self._ordered = [(-self._bounds[at], at) for at in self._parts.pop()]
            self._above = self._limits.pop() if self._limits else float("-inf")
        self._ordered.sort()

    def pop(self) -> tuple[int, float]:
        """The place of the best line, of equals the first, and the bound of the next; negative if none waits."""
        if not self._ordered:
            return -1, 0.0
        _, at = heapq.heappop(self._ordered)
        if not self._ordered:
            self._order()
        return at, -self._ordered[0][0] if self._ordered else 0.0

    def line(self, at: int) -> tuple[_Turn, int]:
        """The turn and the number of the line at this place."""
        which = bisect_right(self._firsts, at) - 1
        turn, numbers = self._turns[which]
        return turn, numbers[at - self._firsts[which]]

    def push(self, bound: float, at: int) -> None:
        """Let the line at this place wait again, with another bound."""
        if bound >= self._above:
            heapq.heappush(self._ordered, (-bound, at))
        else:
            self._bounds[at] = bound
            self._parts[bisect_right(self._limits, bound)].append(at)


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
    while spent < budget_tokens:
        at, most = waiting.pop()
        if at < 0:
            break
        turn, number = waiting.line(at)
        ratio, numbers, cost = ground.best(turn, number, most)
        if ratio < most - ROUNDING:
            waiting.push(ratio, at)
            continue
        if ratio <= 0:
            break
        spent += cost
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
