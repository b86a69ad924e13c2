"""The order in which lines deserve free space: by relevance for their tokens, best first.

A greedy order: each pick is the line (with the neighbours it needs to be understood) that adds most of what no earlier
pick holds yet, for what it costs. A line is rated by the most it can add, and exactly when its turn has come. The order
follows from the history alone, never from a planner's answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.changes import unchanged_lines
from planner.reading.lines import BlockText, Lines
from planner.relevance.relevance import Relevance

__all__ = ["HEAD_TOKENS", "MARK_TOKENS", "Pick", "rank_lines"]

CONTEXT_SHARE = 0.5
"""How much of a name's relevance is that it stands among its words, and not only that it stands."""
CONTEXT_CHARACTERS = 60
"""A line is understood by what stands within this distance of it on either side, less a quarter of what it holds
itself: fitted so that the literal exams score as with the distance of each name (`compactor eval --probes`)."""
LEAST_CHARACTERS = 8
"""Less than this of a neighbouring line is no context."""
HEAD_TOKENS = 16
"""Raw tokens of a turn's id with the head and outcome of one call: about what its first line costs besides itself."""
PROSE_HEAD_TOKENS = 4
"""Raw tokens of a turn's id alone: words stand without a call."""
MARK_TOKENS = 1
"""Raw tokens of the mark in front of a line that does not follow the one above it."""
ROUNDING = 1e-12
"""Sums of the same numbers differ by less than this."""

_REACHES: tuple[tuple[int, ...], ...] = ((1,), (-1,), (-1, 1), (1, 2), (-2, -1), (-1, 1, 2), (-2, -1, 1))
"""Neighbours that may be needed to understand a line, as steps, fewest first."""


class Pick(NamedTuple):
    """Lines of one turn that are taken together."""

    turn_id: str
    numbers: tuple[int, ...]
    priority: float
    """Relevance for each raw token at the time it was picked; never rises from one pick to the next."""


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
    for turn_id, own in pinned.items():
        ground.stand(turn_id, sorted(own))
    for turn_id in sorted(whole):
        ground.stand(turn_id, range(1, len(evidence.turns[turn_id].lines) + 1))
    competing = [turn for turn_id, turn in ground.turns.items() if turn_id not in whole]
    waiting = [
        (-ground.bound(turn, number), place, number)
        for place, turn in enumerate(competing)
        for number in turn.telling_lines()
    ]
    heapify(waiting)
    spent, priority = 0.0, float("inf")
    while waiting and spent < budget_tokens:
        _, place, number = heappop(waiting)
        turn, next_best = competing[place], -waiting[0][0] if waiting else 0.0
        ratio, numbers, cost = ground.best(turn, number, next_best)
        if ratio < next_best - ROUNDING:
            heappush(waiting, (-ratio, place, number))
            continue
        if ratio <= 0:
            break
        spent += cost
        priority = min(priority, ratio)
        ground.stand(turn.id, numbers)
        if not turn.explains(number):
            heappush(waiting, (-priority, place, number))
        yield Pick(turn.id, numbers, priority)


class _Turn:
    """One turn whose lines compete: what each is worth and costs, and which of them stand so far."""

    def __init__(self, evidence: TurnEvidence, relevance: Relevance) -> None:
        self.id = turn_id = evidence.turn.id
        self.names, self.bases = relevance.names[turn_id], relevance.bases[turn_id]
        self.weight = relevance.turn_weights.get(turn_id, 1.0)
        self.costs = evidence.line_tokens
        self.heads = evidence.once(_head_tokens)
        """By index of a line, what it costs more where nothing of its turn stands."""
        self.standing: set[int] = set()
        self.explained: set[int] = set()
        """Those of the standing lines whose words around them stand, too: their names add nothing any more."""
        self._evidence = evidence
        self._needed = evidence.once(_looked_for)

    def cost(self, number: int) -> int:
        """Raw tokens that a line adds, never less than it comes to in a note, which leaves out indentation and the root
        of paths; 0 if it stands."""
        if self.standing:
            return 0 if number in self.standing else self.costs[number - 1] + MARK_TOKENS
        return self.costs[number - 1] + MARK_TOKENS + self.heads[number - 1]

    def needed(self, number: int) -> tuple[int, ...]:
        """The lines that must stand too for line `number` to be understood."""
        if number not in self._needed:
            self._needed[number] = neighbours(self._evidence.lines, number)
        return self._needed[number]

    def explains(self, number: int) -> bool:
        """True if the words around line `number` stand."""
        return self.standing.issuperset(self.needed(number))

    def telling_lines(self) -> list[int]:
        """Numbers of the lines that say something."""
        idle = self._evidence.boilerplate_lines | unchanged_lines(self._evidence)
        read = self._evidence.lines.to_read()
        return [line.number for line in read if line.text.strip() and line.number not in idle]


class _Ground:
    """What stands so far of a history, and what each further pick would add."""

    def __init__(self, evidence: Evidence, relevance: Relevance) -> None:
        self.turns = {turn_id: _Turn(turn, relevance) for turn_id, turn in evidence.turns.items()}
        self._weights = relevance.weights
        self._left: dict[str, float] = {}
        """What names of standing lines still add to a line that is understood; others add all their weight."""

    def bound(self, turn: _Turn, number: int) -> float:
        """The most that a line adds by itself for each token."""
        worth = turn.bases[number - 1] + self._in_full(turn.names[number - 1])
        return worth * turn.weight / (turn.cost(number) or 1)

    def best(self, turn: _Turn, number: int, most: float) -> tuple[float, tuple[int, ...], int]:
        """What a line adds for each token, by itself or with the lines that explain it; which lines these are, and
        their raw tokens.

        Only its bound, and no lines, where that is less than `most`.
        """
        names, base, cost = turn.names[number - 1], turn.bases[number - 1], turn.cost(number)
        bound = (base + self._in_full(names)) * turn.weight / (cost or 1)
        if bound < most - ROUNDING:
            return bound, (), 0
        needed = turn.needed(number)
        if not names or turn.standing.issuperset(needed):
            return bound if cost else 0.0, (number,), cost
        alone = (base + self._in_part(names)) * turn.weight / cost if cost else 0.0
        group = tuple(sorted((number, *needed)))
        gain, cost_of_group = self._together(turn, group, number)
        together = gain * turn.weight / cost_of_group
        return (together, group, cost_of_group) if together > alone else (alone, (number,), cost)

    def _together(self, turn: _Turn, group: tuple[int, ...], explained: int) -> tuple[float, int]:
        """What the lines of a `group` add, each explained by what stands and by the others, and their raw tokens, one
        head for all; the line that the others explain is `explained`."""
        standing = turn.standing
        gain, cost = 0.0, 0 if standing else max([turn.heads[number - 1] for number in group])
        for number in group:
            if number not in standing:
                gain += turn.bases[number - 1]
                cost += turn.costs[number - 1] + MARK_TOKENS
            if names := turn.names[number - 1]:
                understood = number == explained or standing.union(group).issuperset(turn.needed(number))
                gain += self._in_full(names) if understood else self._in_part(names)
        return gain, cost

    def _in_full(self, names: Iterable[str]) -> float:
        """What `names` still add to a line that is understood."""
        left, weights = self._left, self._weights
        return sum([left[name] if name in left else weights[name] for name in names])

    def _in_part(self, names: Iterable[str]) -> float:
        """What `names` still add to a line that is not understood."""
        left, weights = self._left, self._weights
        rests = [left.get(name, weights[name]) - CONTEXT_SHARE * weights[name] for name in names]
        return sum([rest for rest in rests if rest > 0])

    def stand(self, turn_id: str, numbers: Iterable[int]) -> None:
        """Note that lines stand, and what they and their neighbours now say."""
        turn, left = self.turns[turn_id], self._left
        for number in numbers:
            turn.standing.add(number)
            for at in turn.standing.intersection(range(number - 2, number + 3)) - turn.explained:
                share = CONTEXT_SHARE
                if turn.explains(at):
                    turn.explained.add(at)
                    share = 0.0
                for name in turn.names[at - 1]:
                    part = share * self._weights[name]
                    if name not in left or left[name] > part:
                        left[name] = part


def _head_tokens(turn: TurnEvidence) -> list[int]:
    """What the first line of `turn` that stands costs besides itself, by line."""
    heads: list[int] = []
    for text in turn.lines.texts:
        own = PROSE_HEAD_TOKENS if text.part in ("user", "assistant") else HEAD_TOKENS
        heads += [own] * (text.stop - text.first)
    return heads


def _looked_for(_: TurnEvidence) -> dict[int, tuple[int, ...]]:
    """What `neighbours` says of lines of a turn, by number, as far as it was asked."""
    return {}


def neighbours(lines: Lines, number: int) -> tuple[int, ...]:
    """Which lines around line `number` must stand for it to be understood: those that hold most of what stands near it.

    A long line explains itself.
    """
    at = number - 1
    text = lines.text_at(at)
    own = len(text.words(at).strip())
    room = CONTEXT_CHARACTERS - own // 4
    if room <= LEAST_CHARACTERS or own >= 2 * room:
        return ()
    if text.part == "call" and at == text.first:  # the short arguments: each is a text of its own
        return ()
    before, behind = range(at - 1, text.first - 1, -1), range(at + 1, text.stop)
    beside = {index - at: length for side in (before, behind) for index, length in _near(text, side, room)}
    around = own + sum(beside.values())
    if 2 * own >= around:
        return ()
    enough = (steps for steps in _REACHES if beside.keys() >= {*steps})
    enough = (steps for steps in enough if 2 * (own + sum(beside[step] for step in steps)) >= around)
    return tuple([number + step for step in next(enough, beside)])


def _near(text: BlockText, indices: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Those of the lines at `indices` that are within `room`, and how many characters each has there."""
    for index in indices:
        if room <= LEAST_CHARACTERS:
            return
        words = text.words(index)
        yield index, min(len(words.strip()), room)
        room -= len(words) + 1
