"""What each line of a history is likely worth to what comes next, without a model.

A line is worth the names it holds (weighted by how likely the agent names them again) and what is said in it. What
counts is how recently a name appeared, how often, and whether the agent wrote it itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import exp, log1p
from sys import intern

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.names import parts_of, specifics_of
from planner.reading.lines import Part, read_lines
from planner.reading.patterns import lazy_pattern

__all__ = ["Relevance", "focused", "line_relevance"]

SUPERSEDED_WEIGHT = 0.5
"""What lines of a superseded turn are worth against the same lines in the turn that superseded it."""
FOCUS_WEIGHT = 3.0
"""What lines of a turn that names something in the caller's focus are worth."""
SAID_RELEVANCE = 0.03
"""Relevance of a token of the user's own words and of what says how something failed, whatever they name. Like the ones
below it is of the right order and no more: a third or twice of any changed nine exams by a question or two of 144."""
PART_RELEVANCE = {"user": 0.001, "assistant": 0.0025, "call": 0.0001, "result": 0.00002}
"""Relevance of other tokens by who says them: agents say what matters, hosts less, results mostly repeat."""

CHARACTERS_PER_TOKEN = 4
TELLING_CHARACTERS = 160
"""What is said in a line counts up to this length."""

_WORDS = lazy_pattern(r"[^\W\d_]{3,}")
"""Words of three letters and more: `the retry`, but not `id` or `x2`."""


Names = tuple[tuple[str, ...], ...]
"""What each line of a turn names: every name of a line once."""


@dataclass(frozen=True)
class Relevance:
    """Relevance of all lines of a history."""

    weights: Mapping[str, float]
    """By name: the likelihood that the agent names it again."""
    names: Mapping[str, Names]
    """By turn id: what each line names, parts of it that are names of the history by themselves included."""
    bases: Mapping[str, array[float]]
    """By turn id: what each line is worth for what is said in it, whatever it names."""
    turn_weights: Mapping[str, float]
    """What the relevance of a turn's lines is multiplied with, by turn id; 1 where it is left out."""

    def of_turn(self, turn_id: str) -> float:
        """The relevance of a turn: of all its lines together, each name counted where it stands."""
        return sum(self.of_lines(turn_id)) * self.turn_weights.get(turn_id, 1.0)

    def of_lines(self, turn_id: str) -> list[float]:
        """The relevance of each line of a turn by itself, in their order."""
        weights = self.weights
        return [
            base + sum([weights[name] for name in names]) if names else base
            for names, base in zip(self.names[turn_id], self.bases[turn_id], strict=True)
        ]


@dataclass(slots=True)
class _Sightings:
    """Where a name was seen."""

    count: int = 0
    turns: int = 0
    last_turn: int = 0
    last_written: int = 0
    last_offset: int = 0
    spoken: bool = False
    called: bool = False
    asked: bool = False

    def note(self, part: Part, turn: int, offset: int) -> None:
        """Note one more line, of turn number `turn`, that ends behind `offset` characters of the history."""
        self.count += 1
        if self.last_turn != turn:
            self.turns += 1
            self.last_turn = turn
        self.last_offset = offset
        if part == "user":
            self.asked = True
        elif part != "result":
            self.last_written = turn
            if part == "call":
                self.called = True
            else:
                self.spoken = True


def line_relevance(evidence: Evidence) -> Relevance:
    """The relevance of every line of `evidence`."""
    named = _named(evidence)
    sightings = {name: _Sightings() for name in set(chain.from_iterable(chain.from_iterable(named.values())))}
    parts = {
        name: held
        for name in sightings
        if not name.isidentifier() and len(held := [part for part in parts_of(name) if part in sightings]) > 1
    }
    lines: dict[str, Names] = {}
    bases: dict[str, array[float]] = {}
    total, offset = len(evidence.turns), 0
    for turn_id, turn in evidence.turns.items():
        number = turn.turn.number
        recency = 0.5 + 1 / (1 + log1p(total - number))
        own: list[tuple[str, ...]] = []
        for line, names in zip(turn.lines, named[turn_id], strict=True):
            offset += len(line.text)
            if names and not parts.keys().isdisjoint(names):
                names = tuple(dict.fromkeys(part for name in names for part in parts.get(name, (name,))))
            for name in names:
                sightings[name].note(line.part, number, offset)
            own.append(names)
        lines[turn_id] = tuple(own)
        bases[turn_id] = array("d", [worth * recency for worth in turn.once(_said_relevance)])
    weights = {name: _likelihood(name, seen, total, offset) for name, seen in sightings.items()}
    return Relevance(weights, lines, bases, dict(_turn_weights(evidence, "")))


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


def _said_relevance(turn: TurnEvidence) -> array[float]:
    """What is said in each line of `turn` is worth, by what the line is and how much it says."""
    failures = frozenset(turn.failure_lines)
    worths = array("d")
    for line in turn.lines:
        said = line.source == "user" or line.number in failures
        worth = SAID_RELEVANCE if said else PART_RELEVANCE[line.part]
        worths.append(worth * (min(len(line.text), TELLING_CHARACTERS) / CHARACTERS_PER_TOKEN))
    return worths


def _named(evidence: Evidence) -> dict[str, Names]:
    """What each line names, by turn id; a text that stands in several lines is read once."""
    read: dict[str, tuple[str, ...]] = {}
    return {turn_id: turn.once(_names, read) for turn_id, turn in evidence.turns.items()}


def _names(turn: TurnEvidence, read: dict[str, tuple[str, ...]]) -> Names:
    """What each line of `turn` names; what was `read` of a text before is shared."""
    names: list[tuple[str, ...]] = [()] * len(turn.lines)
    for line in read_lines(turn.lines):
        own = read.get(line.text)
        if own is None:
            own = read[line.text] = tuple(map(intern, specifics_of(line.text)))
        names[line.number - 1] = own
    return tuple(names)


def _likelihood(name: str, seen: _Sightings, turns: int, characters: int) -> float:
    """The likelihood that the agent names something again, from where and how often it was seen.

    The coefficients are a logistic regression of "the agent itself writes this name later" over 43 cuts of public
    agent sessions; boosted trees over 26 features, cross-validated by session, ranked no better.
    """
    age = turns - seen.last_turn
    written_age = turns - seen.last_written if seen.last_written else 2 * turns
    behind = characters - seen.last_offset
    score = -1.45 + 0.7 * log1p(seen.count) - 0.68 * log1p(seen.turns) - 0.61 * log1p(age)
    score += 1.66 * behind / max(1, characters) - 0.35 * log1p(behind / 2000) - 0.4 * log1p(written_age)
    score += 0.73 * seen.spoken + 1.39 * seen.called - 1.16 * seen.asked - 1.28 * (age == 0)
    if name[0] in "/h":
        score += 0.88 if name[0] == "/" else 0.53 * name.startswith(("https://", "http://"))
    elif name.isdigit():
        score -= 1.91
    return 1 / (1 + exp(-score))
