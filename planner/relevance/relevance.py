"""What each line of a history is likely worth to what comes next, without a model.

A line is worth the names it holds (weighted by how likely the agent names them again) and what is said in it. What
counts is how recently a name appeared, how often, and whether the agent wrote it itself.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import exp, log1p

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.names import parts_of, specifics_of
from planner.reading.lines import Part
from planner.reading.patterns import lazy_pattern

__all__ = ["Relevance", "focused", "line_relevance"]

SUPERSEDED_WEIGHT = 0.5
"""What lines of a superseded turn are worth against the same lines in the turn that superseded it."""
FOCUS_WEIGHT = 3.0
"""What lines of a turn that names something in the caller's focus are worth."""
SAID_RELEVANCE, FAILURE_RELEVANCE = 0.03, 0.004
"""Relevance of a token of the user's own words, and of what says how something failed (the lines that say most of it
stand anyway), whatever they name. Like the ones below of the right order and no more: a third or twice of any changed
twelve exams by a question or two of 192."""
PART_RELEVANCE = {"user": 0.0025, "assistant": 0.0025, "call": 0.0001, "result": 0.00002}
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


class _Sightings:
    """Where each name was seen, in a history that is read from its beginning."""

    def __init__(self, lines: Mapping[str, Names]) -> None:
        """Of a history whose `lines` hold these names, by turn id; `note` is yet to be told of each turn."""
        self.lines = lines
        self.counts = Counter(chain.from_iterable(chain.from_iterable(lines.values())))
        """How many lines hold it."""
        self.turns: Counter[str] = Counter()
        self.last_turn: dict[str, int] = {}
        self.last_written: dict[str, int] = {}
        """The last turn in which the agent wrote it."""
        self.last_offset: dict[str, int] = {}
        """How many characters of the history there are up to the end of the last line that holds it."""
        self.by_part: dict[Part, set[str]] = {"user": set(), "assistant": set(), "call": set()}
        self.characters = 0

    def note(self, turn: TurnEvidence) -> None:
        """Note the next turn."""
        number, lines = turn.turn.number, self.lines[turn.turn.id]
        offset, last_offset = self.characters, self.last_offset
        for line, names in zip(turn.lines, lines, strict=True):
            offset += len(line.text)
            for name in names:
                last_offset[name] = offset
            if names and line.part != "result":
                self.by_part[line.part].update(names)
                if line.part != "user":
                    self.last_written.update(dict.fromkeys(names, number))
        self.characters = offset
        held = dict.fromkeys(chain.from_iterable(lines), number)
        self.turns.update(held.keys())
        self.last_turn.update(held)


def line_relevance(evidence: Evidence) -> Relevance:
    """The relevance of every line of `evidence`."""
    lines = _named(evidence)
    bases: dict[str, array[float]] = {}
    sightings, total = _Sightings(lines), len(evidence.turns)
    for turn_id, turn in evidence.turns.items():
        sightings.note(turn)
        recency = 0.5 + 1 / (1 + log1p(total - turn.turn.number))
        bases[turn_id] = array("d", [worth * recency for worth in turn.once(_said_relevance)])
    return Relevance(_likelihoods(sightings, total), lines, bases, dict(_turn_weights(evidence, "")))


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
        worth = FAILURE_RELEVANCE if line.number in failures else PART_RELEVANCE[line.part]
        if line.source == "user":
            worth = SAID_RELEVANCE
        worths.append(worth * (min(len(line.text), TELLING_CHARACTERS) / CHARACTERS_PER_TOKEN))
    return worths


def _named(evidence: Evidence) -> dict[str, Names]:
    """What each line names, by turn id, parts of its names that are names of the history by themselves included."""
    read: dict[str, tuple[str, ...]] = {}
    pool: dict[str, str] = {}
    lines = {turn_id: turn.once(_names, read, pool) for turn_id, turn in evidence.turns.items()}
    joined = {turn_id: turn.once(_joined, lines[turn_id]) for turn_id, turn in evidence.turns.items()}
    parts = _parts(set().union(*joined.values()), set(chain.from_iterable(chain.from_iterable(lines.values()))))
    return {
        turn_id: own if parts.keys().isdisjoint(joined[turn_id]) else _with_parts(own, parts)
        for turn_id, own in lines.items()
    }


def _joined(_turn: TurnEvidence, lines: Names) -> frozenset[str]:
    """Of the names in the `lines` of a turn those that may have parts."""
    return frozenset(name for name in chain.from_iterable(lines) if not name.isidentifier())


def _parts(joined: Iterable[str], names: Collection[str]) -> dict[str, list[str]]:
    """Of the `joined` names that have parts which are among `names`, too: all these, the name itself first."""
    return {name: held for name in joined if len(held := [part for part in parts_of(name) if part in names]) > 1}


def _with_parts(lines: Names, parts: Mapping[str, Sequence[str]]) -> Names:
    """What each line names, the `parts` of its names included, each once."""
    return tuple(
        [
            names
            if parts.keys().isdisjoint(names)
            else tuple(dict.fromkeys(part for name in names for part in parts.get(name, (name,))))
            for names in lines
        ]
    )


def _names(turn: TurnEvidence, read: dict[str, tuple[str, ...]], pool: dict[str, str]) -> Names:
    """What each line of `turn` names; what was `read` of a text before, and the names in the `pool`, are shared."""
    names: list[tuple[str, ...]] = [()] * len(turn.lines)
    for line in turn.lines.to_read():
        own = read.get(line.text)
        if own is None:
            own = read[line.text] = tuple([pool.setdefault(name, name) for name in specifics_of(line.text)])
        names[line.number - 1] = own
    return tuple(names)


def _likelihoods(seen: _Sightings, turns: int) -> dict[str, float]:
    """By name the likelihood that the agent names it again, from where and how often it was seen in so many turns.

    The coefficients are a logistic regression of "the agent itself writes this name later" over 43 cuts of public
    agent sessions; boosted trees over 26 features, cross-validated by session, ranked no better.
    """
    logs = [log1p(number) for number in range(2 * turns + 1)]
    spoken, called, asked = seen.by_part["assistant"], seen.by_part["call"], seen.by_part["user"]
    characters, turns_with, last_turn, last_offset = seen.characters, seen.turns, seen.last_turn, seen.last_offset
    distances = {
        offset: 1.66 * (characters - offset) / max(1, characters) - 0.35 * log1p((characters - offset) / 2000)
        for offset in set(last_offset.values())
    }
    likelihoods: dict[str, float] = {}
    for name, count in seen.counts.items():
        age = turns - last_turn[name]
        written = seen.last_written.get(name)
        score = -1.45 + 0.7 * log1p(count) - 0.68 * logs[turns_with[name]] - 0.61 * logs[age]
        score += distances[last_offset[name]] - 0.4 * logs[turns - written if written else 2 * turns]
        score += 0.73 * (name in spoken) + 1.39 * (name in called) - 1.16 * (name in asked) - 1.28 * (age == 0)
        if name[0] in "/h":
            score += 0.88 if name[0] == "/" else 0.53 * name.startswith(("https://", "http://"))
        elif name.isdigit():
            score -= 1.91
        likelihoods[name] = 1 / (1 + exp(-score))
    return likelihoods
