"""What each line of a history is worth to what comes next, without a model.

A line is worth the specifics it holds (weighted by how likely the agent names them again) and what is said in it.
The weights are a logistic regression of "the agent itself writes this specific later" on public agent sessions;
what counts is how recently a specific appeared, how often, and whether the agent wrote it itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from planner.evidence import Evidence, TurnEvidence
from planner.lines import Line
from planner.specifics import SpecificKind, find_specifics

__all__ = ["ConceptUse", "LineWorth", "Worth", "weigh_lines"]

CONTEXT_CHARACTERS = 60
"""A specific is understood by the words within this distance on either side."""

_WORDS = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True)
class ConceptUse:
    """One specific in one line."""

    concept: int
    alone: bool
    """True if the line by itself holds at least half of the words around the specific."""


@dataclass(frozen=True, slots=True)
class LineWorth:
    """What a line holds: its specifics, and a worth of its own for what is said in it."""

    uses: tuple[ConceptUse, ...]
    base: float


@dataclass(frozen=True)
class Worth:
    """Worth of all lines of a history."""

    weights: tuple[float, ...]
    """Per concept: the likelihood that the agent names it again."""
    lines: Mapping[str, tuple[LineWorth, ...]]
    """By turn id, in the order of the turn's lines."""


@dataclass(slots=True)
class _Sightings:
    kind: SpecificKind
    count: int = 0
    last_turn: int = 0
    spoken: bool = False
    called: bool = False
    asked: bool = False
    turns: set[int] = field(default_factory=set)


def weigh_lines(evidence: Evidence, task: str) -> Worth:
    """The worth of every line of `evidence` for an agent that works on `task`."""
    numbers: dict[str, int] = {}
    sightings: list[_Sightings] = []
    uses: dict[str, list[list[ConceptUse]]] = {}
    for turn in evidence.turns.values():
        uses[turn.turn.id] = [list(_uses(turn, line, numbers, sightings)) for line in turn.lines]
    total = len(evidence.turns)
    weights = tuple(_likelihood(seen, total) for seen in sightings)
    bases = {turn.turn.id: [_base(turn, line, total) for line in turn.lines] for turn in evidence.turns.values()}
    lines = {
        turn_id: tuple(LineWorth(tuple(u), b) for u, b in zip(turn_uses, bases[turn_id], strict=True))
        for turn_id, turn_uses in uses.items()
    }
    return Worth(weights, lines)


def _uses(turn: TurnEvidence, line: Line, numbers: dict[str, int], sightings: list[_Sightings]) -> Iterable[ConceptUse]:
    for specific in find_specifics(line.text):
        number = numbers.setdefault(specific.text, len(numbers))
        if number == len(sightings):
            sightings.append(_Sightings(specific.kind))
        _record(sightings[number], turn, line)
        yield ConceptUse(number, _stands_alone(turn, line, specific.start, specific.stop))


def _record(seen: _Sightings, turn: TurnEvidence, line: Line) -> None:
    seen.count += 1
    seen.last_turn = turn.turn.number
    seen.spoken = seen.spoken or line.part == "assistant"
    seen.called = seen.called or line.part == "call"
    seen.asked = seen.asked or line.part == "user"


def _likelihood(seen: _Sightings, turns: int) -> float:
    """The likelihood that the agent names a specific again, from where it was seen."""
    age = turns - seen.last_turn
    score = -2.4 + 0.5 * math.log1p(seen.count) - 0.95 * math.log1p(age) + 1.0 * age / max(1, turns)
    score += 1.3 * seen.spoken + 2.0 * seen.called - 0.8 * seen.asked - 2.3 * (seen.kind == "number")
    return 1 / (1 + math.exp(-score))


def _stands_alone(turn: TurnEvidence, line: Line, start: int, stop: int) -> bool:
    """True if `line` holds at least half of the words around its characters `start` to `stop`."""
    before, after = (
        line.text[max(0, start - CONTEXT_CHARACTERS) : start],
        line.text[stop : stop + CONTEXT_CHARACTERS],
    )
    missing_before, missing_after = CONTEXT_CHARACTERS - len(before), CONTEXT_CHARACTERS - len(after)
    own = len(_WORDS.findall(before)) + len(_WORDS.findall(after))
    around = len(_WORDS.findall(_neighbour(turn, line, -1)[-missing_before:])) if missing_before > 8 else 0
    around += len(_WORDS.findall(_neighbour(turn, line, 1)[:missing_after])) if missing_after > 8 else 0
    return own >= around


def _neighbour(turn: TurnEvidence, line: Line, step: int) -> str:
    at = line.number - 1 + step
    if 0 <= at < len(turn.lines) and turn.lines[at].block == line.block:
        return turn.lines[at].text
    return ""


PART_WORTH = {"user": 0.02, "assistant": 0.012, "call": 0.002, "result": 0.0006}
"""Worth of a token of what is said, by who says it: users and agents say what matters, results mostly repeat."""


def _base(turn: TurnEvidence, line: Line, turns: int) -> float:
    length = min(len(line.text), 160) / 4
    recency = 1 / (1 + math.log1p(turns - turn.turn.number))
    return PART_WORTH[line.part] * length * (0.5 + recency)
