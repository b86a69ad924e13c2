"""What each line of a history is likely worth to what comes next, without a model.

A line is worth the names it holds (weighted by how likely the agent names them again) and what is said in it. What
counts is how recently a name appeared, how often, and whether the agent wrote it itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.names import Specific, SpecificKind, find_specifics, parts_of, specifics_of
from planner.reading.lines import Part
from planner.relevance.context import Surroundings

__all__ = ["LineRelevance", "NameUse", "Relevance", "focused", "line_relevance"]

READ_LINES = 5_000
"""Of one longer block the names of so many lines are weighed, half of them at either end: over a million characters,
more than a window takes. What is said between counts by its length alone."""
SUPERSEDED_WEIGHT = 0.5
"""What lines of a superseded turn are worth against the same lines in the turn that superseded it."""
FOCUS_WEIGHT = 3.0
"""What lines of a turn that names something in the caller's focus are worth."""
SAID_RELEVANCE, HOST_RELEVANCE = 0.03, 0.001
"""Relevance of a token of the user's own words and of what says how something failed, and of what hosts wrote."""
PART_RELEVANCE = {"user": HOST_RELEVANCE, "assistant": 0.0025, "call": 0.0001, "result": 0.00002}
"""Relevance of other tokens by who says them: agents say what matters, results mostly repeat."""

_WORDS = re.compile(r"[^\W\d_]{3,}")
"""Words of three letters and more: `the retry`, but not `id` or `x2`."""


class NameUse(NamedTuple):
    """One name in one line."""

    name: int
    neighbours: tuple[int, ...]
    """Steps to the lines (-1, 1) that must stand too, so that half of the words around the name do."""


class LineRelevance(NamedTuple):
    """What a line holds: its names, and a relevance of its own for what is said in it."""

    uses: tuple[NameUse, ...]
    base: float


@dataclass(frozen=True)
class Relevance:
    """Relevance of all lines of a history."""

    weights: tuple[float, ...]
    """Per name: the likelihood that the agent names it again."""
    lines: Mapping[str, tuple[LineRelevance, ...]]
    """By turn id, in the order of the turn's lines."""
    turn_weights: Mapping[str, float]
    """What the relevance of a turn's lines is multiplied with, by turn id; 1 where it is left out."""
    mentions: Mapping[str, tuple[tuple[_Mention, ...], ...]]
    """By digest of a turn, what each of its lines names: kept for the next, longer history."""

    numbers: Mapping[str, int]
    """Of each name its place in `weights`."""

    def weight_of(self, name: str) -> float:
        """The weight of one name; 0 if the history does not hold it."""
        return self.weights[self.numbers[name]] if name in self.numbers else 0.0

    def of_turn(self, turn_id: str) -> float:
        """The relevance of a turn: of all its lines together, each name counted where it stands."""
        own = sum(line.base + sum(self.weights[use.name] for use in line.uses) for line in self.lines[turn_id])
        return own * self.turn_weights.get(turn_id, 1.0)


class _Mention(NamedTuple):
    """A name where it stands, before names have numbers."""

    text: str
    kind: SpecificKind
    neighbours: tuple[int, ...]


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


def line_relevance(evidence: Evidence, known: Relevance | None = None) -> Relevance:
    """The relevance of every line of `evidence`; turns that `known` has read are not read again."""
    read = known.mentions if known is not None else {}
    mentions = {
        turn_id: read.get(turn.turn.digest) or tuple(_mentions(turn)) for turn_id, turn in evidence.turns.items()
    }
    kinds = {one.text: one.kind for lines in mentions.values() for line in lines for one in line}
    numbers = {name: number for number, name in enumerate(kinds)}
    holds = {name: [numbers[part] for part in parts_of(name) if part in numbers] for name in kinds}
    sightings = [_Sightings(name, kind) for name, kind in kinds.items()]
    total = len(evidence.turns)
    lines: dict[str, tuple[LineRelevance, ...]] = {}
    offset = 0
    for turn_id, turn in evidence.turns.items():
        number = turn.turn.number
        recency = 0.5 + 1 / (1 + math.log1p(total - number))
        own: list[LineRelevance] = []
        failures = frozenset(turn.failure_lines)
        for line, named in zip(turn.lines, mentions[turn_id], strict=True):
            offset += len(line.text)
            uses = tuple([NameUse(name, one.neighbours) for one in named for name in holds[one.text]])
            for use in uses:
                _record(sightings[use.name], number, line.part, offset)
            said = line.source == "user" or line.number in failures
            worth = SAID_RELEVANCE if said else PART_RELEVANCE[line.part]
            own.append(LineRelevance(uses, worth * (min(len(line.text), 160) / 4) * recency))
        lines[turn_id] = tuple(own)
    weights = tuple([_likelihood(seen, total, offset) for seen in sightings])
    by_digest = {turn.turn.digest: mentions[turn_id] for turn_id, turn in evidence.turns.items()}
    return Relevance(weights, lines, dict(_turn_weights(evidence, "")), by_digest, numbers)


def focused(relevance: Relevance, evidence: Evidence, focus: str) -> Relevance:
    """`relevance`, with the turns that name something in `focus` before others."""
    return replace(relevance, turn_weights=dict(_turn_weights(evidence, focus)))


def _turn_weights(evidence: Evidence, focus: str) -> Iterator[tuple[str, float]]:
    wanted = set(specifics_of(focus)) | {word.lower() for word in _WORDS.findall(focus) if len(word) > 4}
    for turn_id, turn in evidence.turns.items():
        if turn.superseded_by:
            yield turn_id, SUPERSEDED_WEIGHT
        elif wanted and any(name in turn.text or name in turn.text.lower() for name in wanted):
            yield turn_id, FOCUS_WEIGHT


def _mentions(turn: TurnEvidence) -> Iterator[tuple[_Mention, ...]]:
    """What each line of `turn` names."""
    unread = _unread(turn)
    steps = Surroundings(turn.lines).steps
    for at, line in enumerate(turn.lines):
        named: Iterable[Specific] = () if line.number in unread else find_specifics(line.text)
        yield tuple([_Mention(one.text, one.kind, steps(at, one.start, one.stop)) for one in named])


def _unread(turn: TurnEvidence) -> set[int]:
    """Numbers of the lines in the middle of blocks that are too long to weigh."""
    if len(turn.lines) <= READ_LINES:
        return set()
    blocks: dict[int, list[int]] = {}
    for line in turn.lines:
        blocks.setdefault(line.block, []).append(line.number)
    half = READ_LINES // 2
    return {number for numbers in blocks.values() for number in numbers[half : max(half, len(numbers) - half)]}


def _record(seen: _Sightings, turn: int, part: Part, offset: int) -> None:
    seen.count += 1
    if seen.last_turn != turn:
        seen.turns += 1
    seen.last_turn, seen.last_offset = turn, offset
    if part == "result":
        return
    if part == "user":
        seen.asked = True
        return
    seen.last_written = turn
    if part == "call":
        seen.called = True
    else:
        seen.spoken = True


def _likelihood(seen: _Sightings, turns: int, characters: int) -> float:
    """The likelihood that the agent names something again, from where and how often it was seen.

    The coefficients are a logistic regression of "the agent itself writes this name later" over 43 cuts of public
    agent sessions; boosted trees over 26 features, cross-validated by session, ranked no better.
    """
    age = turns - seen.last_turn
    written_age = turns - seen.last_written if seen.last_written else 2 * turns
    behind = characters - seen.last_offset
    score = -1.45 + 0.7 * math.log1p(seen.count) - 0.68 * math.log1p(seen.turns) - 0.61 * math.log1p(age)
    score += 1.66 * behind / max(1, characters) - 0.35 * math.log1p(behind / 2000) - 0.4 * math.log1p(written_age)
    score += 0.73 * seen.spoken + 1.39 * seen.called - 1.16 * seen.asked - 1.28 * (age == 0)
    score += 0.88 * seen.name.startswith("/") + 0.53 * (seen.kind == "url") - 1.91 * (seen.kind == "number")
    return 1 / (1 + math.exp(-score))
