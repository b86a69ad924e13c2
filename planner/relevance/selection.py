"""Makes a plan meet its target: which lines of which turns stand, chosen by worth for their tokens.

A multiple-choice knapsack. Each turn may be dropped, referenced, summarized at any of many sizes, or kept; going
from one size to the next costs the tokens of the added lines and gains what they hold that is not held yet. Gains
only shrink as more stands (a specific counts once), so picking by gain for cost, best first, is within 1 - 1/e of
the best choice (Khuller, Moss, Naor 1999), and the picks of a smaller target are the first picks of a larger one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from planner.evidence import Evidence
from planner.reading.lines import Line, dense
from planner.reading.tokens import TokenCounter
from planner.relevance.relevance import ConceptUse, LineWorth, Worth

__all__ = ["Factor", "Ground", "Pick", "picks_in_order"]

PLAIN_SHARE, CONTEXT_SHARE = 0.5, 0.5
"""How much of a specific's worth is its bare name, and how much that it stands among its words."""
GAP_TOKENS, HEAD_TOKENS, MENTION_TOKENS = 1, 10, 2
"""Raw tokens of a line break, of a turn's id with the head of one call, and of what parts names."""
GIST_WORTH = 0.15
"""What a planner's own sentence on a turn is worth: as much as a name that is likely needed again."""

Factor = Callable[[str, int], float]
"""What the worth of a line (turn id, line number) is multiplied with."""


@dataclass(frozen=True)
class Ground:
    """What stands before anything is picked, and what may be picked."""

    evidence: Evidence
    worth: Worth
    counter: TokenCounter
    whole: frozenset[str]
    """Turns that stand whole whatever the target."""
    standing: Mapping[str, frozenset[int]]
    """Lines of the others that stand whatever the target: failures, words of the user."""
    factor: Factor
    gists: Mapping[str, str] = field(default_factory=dict)
    """What the planner says of a turn in its own words, by turn id."""
    by_name: bool = True
    """Whether a specific may also stand by its bare name, without its line."""


@dataclass(frozen=True, slots=True)
class Pick:
    """What is added to what stands of one turn: lines, one bare name, or the planner's gist of it."""

    turn_id: str
    numbers: tuple[int, ...]
    mention: int = -1
    """The concept that is named without its line; -1 for lines."""
    gist: bool = False


@dataclass
class _State:
    """What stands so far."""

    named: bytearray
    understood: bytearray
    standing: dict[str, set[int]] = field(default_factory=dict)
    line_costs: dict[Line, int] = field(default_factory=dict)
    """Of the lines that were asked for."""


def picks_in_order(ground: Ground, budget_tokens: float) -> list[Pick]:
    """Picks from best to worst until about `budget_tokens` raw tokens are spent."""
    state = _first_state(ground)
    heap = _heap(ground, state)
    picks: list[Pick] = []
    spent = 0.0
    while heap and spent < budget_tokens:
        _, order, pick = heapq.heappop(heap)
        ratio = _ratio(ground, state, pick)
        if ratio <= 0:
            continue
        if heap and ratio < -heap[0][0] - 1e-12:
            heapq.heappush(heap, (-ratio, order, pick))
            continue
        spent += _cost(ground, state, pick)
        _add(ground, state, pick)
        picks.append(pick)
    return picks


def _add(ground: Ground, state: _State, pick: Pick) -> None:
    for number in pick.numbers:
        _stand(ground.worth, state, pick.turn_id, number)
    if pick.gist:
        state.standing.setdefault(pick.turn_id, set())
    if pick.mention >= 0:
        for concept in ground.worth.holds[pick.mention]:
            state.named[concept] = 1
            state.understood[concept] |= ground.worth.bare[concept]
        state.standing.setdefault(pick.turn_id, set())


def _first_state(ground: Ground) -> _State:
    concepts = len(ground.worth.weights)
    state = _State(bytearray(concepts), bytearray(concepts))
    for turn_id, numbers in ground.standing.items():
        for number in sorted(numbers):
            _stand(ground.worth, state, turn_id, number)
    for turn_id in sorted(ground.whole):
        for line in ground.evidence.turns[turn_id].lines:
            _stand(ground.worth, state, turn_id, line.number)
    return state


def _heap(ground: Ground, state: _State) -> list[tuple[float, int, Pick]]:
    heap = [(-_ratio(ground, state, pick), order, pick) for order, pick in enumerate(_candidates(ground))]
    heap = [entry for entry in heap if entry[0] < 0]
    heapq.heapify(heap)
    return heap


def _candidates(ground: Ground) -> Iterator[Pick]:
    """Every line by itself, and with its neighbours where it does not explain itself."""
    for turn_id, turn in ground.evidence.turns.items():
        if turn_id in ground.whole:
            continue
        for line, worth in zip(turn.lines, ground.worth.lines[turn_id], strict=True):
            if line.text.strip():
                yield Pick(turn_id, (line.number,))
                for steps in {use.neighbours for use in worth.uses if use.neighbours}:
                    yield Pick(turn_id, tuple(sorted(line.number + step for step in (0, *steps))))

    if ground.by_name:
        yield from _mentions(ground)
    yield from (Pick(turn_id, (), gist=True) for turn_id in ground.gists if turn_id not in ground.whole)


def _mentions(ground: Ground) -> Iterator[Pick]:
    """Every specific by its bare name, at the last turn that holds it and may say so."""
    at: dict[int, str] = {}
    for turn_id, lines in ground.worth.lines.items():
        if turn_id not in ground.whole and not ground.evidence.turns[turn_id].turn.live:
            at.update((use.concept, turn_id) for line in lines for use in line.uses)
    for concept, turn_id in at.items():
        yield Pick(turn_id, (), concept)


def _ratio(ground: Ground, state: _State, pick: Pick) -> float:
    gain = _gain(ground, state, pick)
    cost = _cost(ground, state, pick) if gain > 0 else 0.0
    return gain / cost if cost > 0 else 0.0


def _cost(ground: Ground, state: _State, pick: Pick) -> float:
    """Raw tokens that a pick adds; 0 if all of it stands."""
    standing = state.standing.get(pick.turn_id)
    head = HEAD_TOKENS if standing is None else 0
    if pick.gist:
        return ground.counter.raw(ground.gists[pick.turn_id]) + GAP_TOKENS + head
    if pick.mention >= 0:
        name = ground.evidence.shown(ground.worth.names[pick.mention])
        return ground.counter.raw(name) + MENTION_TOKENS + head
    lines = ground.evidence.turns[pick.turn_id].lines
    added = [lines[number - 1] for number in pick.numbers if number not in (standing or ())]
    if not added:
        return 0.0
    return sum(_line_cost(ground, state, line) for line in added) + head


def _line_cost(ground: Ground, state: _State, line: Line) -> int:
    """Raw tokens of a line as it will be shown; a line comes up in many picks and is counted once."""
    cost = state.line_costs.get(line)
    if cost is None:
        text = ground.evidence.shown(line.text)
        shown = dense([text])[0] if line.part in ("call", "result") else text
        cost = state.line_costs[line] = ground.counter.raw(shown) + GAP_TOKENS
    return cost


def _gain(ground: Ground, state: _State, pick: Pick) -> float:
    if pick.gist:
        return GIST_WORTH * ground.factor(pick.turn_id, 0)
    if pick.mention >= 0:
        shares = (_mention_share(ground, state, concept) for concept in ground.worth.holds[pick.mention])
        return sum(shares) * ground.factor(pick.turn_id, 0)
    standing = state.standing.get(pick.turn_id, set())
    lines = ground.worth.lines[pick.turn_id]
    there = standing.union(pick.numbers)
    counted: set[int] = set()
    gain = 0.0
    for number in pick.numbers:
        line: LineWorth = lines[number - 1]
        own = 0.0 if number in standing else line.base
        for use in line.uses:
            if use.concept not in counted:
                share = 0.0 if state.named[use.concept] else PLAIN_SHARE
                if not state.understood[use.concept] and _explained(use, number, there):
                    counted.add(use.concept)
                    share += CONTEXT_SHARE
                own += share * ground.worth.weights[use.concept]
        gain += own * ground.factor(pick.turn_id, number)
    return gain


def _mention_share(ground: Ground, state: _State, concept: int) -> float:
    share = 0.0 if state.named[concept] else PLAIN_SHARE
    if ground.worth.bare[concept] and not state.understood[concept]:
        share += CONTEXT_SHARE
    return share * ground.worth.weights[concept]


def _explained(use: ConceptUse, number: int, standing: Collection[int]) -> bool:
    """True if the words around a specific stand with it."""
    return all(number + step in standing for step in use.neighbours)


def _stand(worth: Worth, state: _State, turn_id: str, number: int) -> None:
    """Note that a line stands, and what it and its neighbours now say."""
    standing = state.standing.setdefault(turn_id, set())
    standing.add(number)
    lines = worth.lines[turn_id]
    for at in range(number - 2, number + 3):
        if at in standing:
            for use in lines[at - 1].uses:
                state.named[use.concept] = 1
                if _explained(use, at, standing):
                    state.understood[use.concept] = 1
