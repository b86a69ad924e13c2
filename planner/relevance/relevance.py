"""What each line of a history is worth to what comes next, without a model.

A line is worth the specifics it holds (weighted by how likely the agent names them again) and what is said in it.
The weights are a logistic regression of "the agent itself writes this specific later" on public agent sessions;
what counts is how recently a specific appeared, how often, and whether the agent wrote it itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.names import Specific, SpecificKind, find_specifics, parts_of
from planner.reading.lines import Line

__all__ = ["ConceptUse", "LineWorth", "Worth", "weigh_lines"]

CONTEXT_CHARACTERS = 60
"""A specific is understood by the words within this distance on either side."""
READ_LINES = 5_000
"""Of one longer block the specifics of so many lines are weighed, half of them at either end: over a million
characters, more than a window takes. What is said between counts by its length alone."""
LEAST_CHARACTERS = 8
"""Less than this of a neighbouring line is no context."""

_WORDS = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True)
class ConceptUse:
    """One specific in one line."""

    concept: int
    neighbours: tuple[int, ...]
    """Steps to the lines (-1, 1) that must stand too, so that half of the words around the specific do."""
    bare: bool
    """True if no words stand around it."""


@dataclass(frozen=True, slots=True)
class LineWorth:
    """What a line holds: its specifics, and a worth of its own for what is said in it."""

    uses: tuple[ConceptUse, ...]
    base: float


@dataclass(frozen=True)
class Worth:
    """Worth of all lines of a history."""

    names: tuple[str, ...]
    """The specifics, in order of first appearance."""
    weights: tuple[float, ...]
    """Per concept: the likelihood that the agent names it again."""
    bare: tuple[bool, ...]
    """Per concept: it once stood with no words around it, so that its name alone says as much."""
    holds: tuple[tuple[int, ...], ...]
    """Per concept: those that stand wherever it stands: itself, and the specifics that are parts of it."""
    lines: Mapping[str, tuple[LineWorth, ...]]
    """By turn id, in the order of the turn's lines."""


@dataclass(slots=True)
class _Sightings:
    name: str
    kind: SpecificKind
    count: int = 0
    turns: int = 0
    last_turn: int = 0
    last_written: int = 0
    last_offset: int = 0
    spoken: bool = False
    called: bool = False
    asked: bool = False
    bare: bool = False


def weigh_lines(evidence: Evidence) -> Worth:
    """The worth of every line of `evidence` for what the agent does next."""
    found = {turn_id: _found(turn) for turn_id, turn in evidence.turns.items()}
    kinds = {one.text: one.kind for lines in found.values() for line in lines for one in line}
    numbers = {name: number for number, name in enumerate(kinds)}
    holds = {name: tuple(numbers[part] for part in parts_of(name) if part in numbers) for name in kinds}
    sightings = [_Sightings(name, kind) for name, kind in kinds.items()]
    uses: dict[str, list[tuple[ConceptUse, ...]]] = {}
    offset = 0
    for turn_id, turn in evidence.turns.items():
        uses[turn_id] = []
        for line, specifics in zip(turn.lines, found[turn_id], strict=True):
            offset += len(line.text)
            uses[turn_id].append(tuple(_uses(turn, line, specifics, holds)))
            for use in uses[turn_id][-1]:
                _record(sightings[use.concept], use, turn.turn.number, line, offset)
    total = len(evidence.turns)
    weights = tuple(_likelihood(seen, total, offset) for seen in sightings)
    lines = {
        turn_id: tuple(
            LineWorth(own, _base(turn, line, total)) for own, line in zip(uses[turn_id], turn.lines, strict=True)
        )
        for turn_id, turn in evidence.turns.items()
    }
    return Worth(tuple(numbers), weights, tuple(seen.bare for seen in sightings), tuple(holds.values()), lines)


def _found(turn: TurnEvidence) -> list[tuple[Specific, ...]]:
    """The specifics of each line that is weighed."""
    unread = _unread(turn)
    return [() if line.number in unread else tuple(find_specifics(line.text)) for line in turn.lines]


def _unread(turn: TurnEvidence) -> set[int]:
    """Numbers of the lines in the middle of blocks that are too long to weigh."""
    if len(turn.lines) <= READ_LINES:
        return set()
    blocks: dict[int, list[int]] = {}
    for line in turn.lines:
        blocks.setdefault(line.block, []).append(line.number)
    half = READ_LINES // 2
    return {number for numbers in blocks.values() for number in numbers[half : max(half, len(numbers) - half)]}


def _uses(
    turn: TurnEvidence, line: Line, specifics: Iterable[Specific], holds: Mapping[str, Iterable[int]]
) -> Iterator[ConceptUse]:
    for specific in specifics:
        neighbours, bare = _context(turn, line, specific.start, specific.stop)
        for concept in holds[specific.text]:
            yield ConceptUse(concept, neighbours, bare)


def _record(seen: _Sightings, use: ConceptUse, turn: int, line: Line, offset: int) -> None:
    seen.bare = seen.bare or use.bare
    seen.count += 1
    seen.turns += seen.last_turn != turn
    seen.last_turn, seen.last_offset = turn, offset
    if line.part in ("assistant", "call"):
        seen.last_written = turn
    seen.spoken = seen.spoken or line.part == "assistant"
    seen.called = seen.called or line.part == "call"
    seen.asked = seen.asked or line.part == "user"


def _likelihood(seen: _Sightings, turns: int, characters: int) -> float:
    """The likelihood that the agent names a specific again, from where and how often it was seen."""
    age = turns - seen.last_turn
    written_age = turns - seen.last_written if seen.last_written else 2 * turns
    behind = characters - seen.last_offset
    score = -1.45 + 0.7 * math.log1p(seen.count) - 0.68 * math.log1p(seen.turns) - 0.61 * math.log1p(age)
    score += 1.66 * behind / max(1, characters) - 0.35 * math.log1p(behind / 2000) - 0.4 * math.log1p(written_age)
    score += 0.73 * seen.spoken + 1.39 * seen.called - 1.16 * seen.asked - 1.28 * (age == 0)
    score += 0.88 * seen.name.startswith("/") + 0.53 * (seen.kind == "url") - 1.91 * (seen.kind == "number")
    return 1 / (1 + math.exp(-score))


def _context(turn: TurnEvidence, line: Line, start: int, stop: int) -> tuple[tuple[int, ...], bool]:
    """Which neighbours hold the words around characters `start` to `stop` of `line`, and whether there are none."""
    before, after = line.text[max(0, start - CONTEXT_CHARACTERS) : start], line.text[stop : stop + CONTEXT_CHARACTERS]
    words = {0: len(_WORDS.findall(before)) + len(_WORDS.findall(after))}
    if not _is_head(turn, line):
        words |= _words_beside(turn, line, -1, CONTEXT_CHARACTERS - len(before))
        words |= _words_beside(turn, line, 1, CONTEXT_CHARACTERS - len(after))
    around = sum(words.values())
    for steps in _REACHES:
        if 2 * sum(words.get(step, 0) for step in (0, *steps)) >= around and all(step in words for step in steps):
            return steps, around == 0
    return tuple(step for step in words if step), False


def _is_head(turn: TurnEvidence, line: Line) -> bool:
    """True for the line of a call that holds its short arguments: each is a text of its own."""
    return line.part == "call" and (line.number == 1 or turn.lines[line.number - 2].block != line.block)


_REACHES: tuple[tuple[int, ...], ...] = ((), (1,), (-1,), (-1, 1), (1, 2), (-2, -1), (-1, 1, 2), (-2, -1, 1))
"""Neighbours that may be needed, fewest first."""


def _words_beside(turn: TurnEvidence, line: Line, step: int, characters: int) -> dict[int, int]:
    """How many words each neighbour on one side has within so many characters."""
    words: dict[int, int] = {}
    at = line.number - 1 + step
    while characters > LEAST_CHARACTERS and 0 <= at < len(turn.lines) and turn.lines[at].block == line.block:
        text = turn.lines[at].text
        words[at + 1 - line.number] = len(_WORDS.findall(text[:characters] if step > 0 else text[-characters:]))
        characters -= len(text) + 1
        at += step
    return words


PART_WORTH = {"user": 0.0005, "assistant": 0.0005, "call": 0.0001, "result": 0.00002}
"""Worth of a token of what is said, by who says it: users and agents say what matters, results mostly repeat."""


def _base(turn: TurnEvidence, line: Line, turns: int) -> float:
    length = min(len(line.text), 160) / 4
    recency = 1 / (1 + math.log1p(turns - turn.turn.number))
    return PART_WORTH[line.part] * length * (0.5 + recency)
