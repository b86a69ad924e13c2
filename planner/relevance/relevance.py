"""The likely worth of each line of a history for the next steps, without a model.

A line is worth the names in it (weighted by how likely the agent names them again) and its words. A name counts by how
recently and how often it appeared, and whether the agent wrote it itself.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import exp, log1p

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.names import defines, parts_of, specifics_of
from planner.evidence.words import words_of
from planner.reading.lines import BlockText, Line, Part, text_width
from planner.reading.patterns import lazy_pattern

__all__ = ["Relevance", "block_weight", "focused", "is_word", "line_relevance"]

SUPERSEDED_WEIGHT = 0.5
"""Weight of lines of a superseded turn, compared with those of the turn that superseded it."""
TASK_WEIGHT, FOCUS_WEIGHT = 0.3, 4.0
"""Weight that a turn gains if it holds all words of the task, and of the caller's focus."""
ANSWER_WEIGHT = 2.0
"""Weight of what the agent says without calling a tool, its answers and conclusions, against what it says beside calls.
"""
PART_RELEVANCE: Mapping[Part, float] = {"user": 0.0025, "assistant": 0.0025, "call": 0.0001, "result": 0.00002}
"""Relevance of a token by its sender, whatever it names: people and agents say what matters, results mostly repeat. As
below only the order of magnitude counts: a third or twice of any changed fifteen exams by a question or two of 240.
Words about a failure are worth as much as a sender's."""
HOST_RELEVANCE = 0.0003
"""Relevance of text that a host quotes in the user's message: rules of a project are many pages, and are in a file of
it."""
DEFINITION_WEIGHT = 10
"""Factor for a line of code with a definition, whose place and arguments are looked for again."""

RECEIPT_WEIGHT, RECEIPT_WIDTH = 2.0, 300
"""Weight of a result of at most this width, against a very long one: a short result is the outcome of its call, a long
one is material. In between it falls with the width."""

CHARACTERS_PER_TOKEN = 4
TELLING_CHARACTERS = 160
"""Length up to which the words of a line count."""

WRITER_SCORES: Mapping[Part, float] = {"assistant": 0.73, "call": 1.39, "user": -1.16}
"""Addition to a name's score for each such part of a turn that contains it."""
NUMBER_SCORE = -1.91
"""Addition for a name that is a number: ``4711``."""

_TURN_ID = lazy_pattern(r"\bt\d{1,7}\b")

Rows = Sequence[tuple[str, ...]]
"""Names in each line of a turn, each once."""


@dataclass(frozen=True)
class Relevance:
    """Relevance of all lines of a history."""

    weights: Mapping[str, float]
    """Likelihood, by name, that the agent names it again."""
    names: Mapping[str, Rows]
    """Names by turn id, including parts of a name that are names of the history themselves."""
    bases: Mapping[str, Sequence[float]]
    """Worth of each line's words by turn id, whatever it names."""
    turn_weights: Mapping[str, float]
    """Factors for the relevance of a turn's lines, by turn id; 1 if left out."""

    def of_turn(self, turn_id: str) -> float:
        """Return the relevance of a turn: of all its lines together, each name counted in each line."""
        named = sum(map(self.weights.__getitem__, chain.from_iterable(self.names[turn_id])))
        return (sum(self.bases[turn_id]) + named) * self.turn_weights.get(turn_id, 1.0)


@dataclass(slots=True)
class _Sighting:
    """Occurrences of a name."""

    lines: int = 0
    """Number of lines with it."""
    turns: int = 0
    last_turn: int = 0
    last_written: int = 0
    """The last turn in which the agent wrote it, or 0."""
    last_offset: int = 0
    """Characters of the history up to the end of the last line with it."""
    writers: tuple[Part, ...] = ()
    """Parts, among those of `WRITER_SCORES`, that contain it."""


def line_relevance(evidence: Evidence) -> Relevance:
    """Return the relevance of every line of `evidence`."""
    turns = evidence.turns
    same: dict[str, str] = {}
    names = _with_parts({turn_id: turn.once(_line_names, same) for turn_id, turn in turns.items()})
    bases: dict[str, Sequence[float]] = {}
    seen: defaultdict[str, _Sighting] = defaultdict(_Sighting)
    characters = 0
    for turn_id, turn in turns.items():
        recency = 0.5 + 1 / (1 + log1p(len(turns) - turn.turn.number))
        bases[turn_id] = array("d", [base * recency for base in turn.once(_bases)])
        characters = _note(turn, names[turn_id], seen, characters)
    weights: dict[str, float] = {}
    lines = sum(len(turn.lines) for turn in turns.values())
    while seen:  # what is seen of all names takes twice the room of the history: it goes as its weight comes
        name, sighting = seen.popitem()
        weights[name] = _likelihood(name, sighting, characters, len(turns))
        if is_word(name):  # what many lines say is no news
            weights[name] *= 1 - log1p(sighting.lines) / log1p(lines + 1)
    return Relevance(weights, names, bases, dict(_turn_weights(evidence)))


def _note(turn: TurnEvidence, names: Rows, seen: Mapping[str, _Sighting], characters: int) -> int:
    """Note the names of `turn`, which begins after `characters` of the history; return the characters after it."""
    number = turn.turn.number
    for text in turn.lines.texts:
        written, scored = text.part in ("assistant", "call"), text.part in WRITER_SCORES
        for row, end in zip(names[text.first : text.stop], text.bounds[1:], strict=True):
            for name in row:
                sighting = seen[name]
                sighting.lines += 1
                sighting.last_offset = characters + end
                if sighting.last_turn != number:
                    sighting.turns += 1
                    sighting.last_turn = number
                if written:
                    sighting.last_written = number
                if scored and text.part not in sighting.writers:
                    sighting.writers = (*sighting.writers, text.part)
        characters += len(text.text)
    return characters


def block_weight(text: BlockText) -> float:
    """Return the factor for the relevance of the lines of a block: more than 1 for short results."""
    share = RECEIPT_WIDTH / max(RECEIPT_WIDTH, text_width(text.text)) if text.part == "result" else 0.0
    return 1 + (RECEIPT_WEIGHT - 1) * share


def focused(relevance: Relevance, evidence: Evidence, task: str, focus: str) -> Relevance:
    """Return `relevance` with more weight on turns that share words with `task` and `focus`.

    Rare words count most, as in search. A turn whose id is in `focus` counts as if it held all of its words.
    """
    shares = {turn_id: TASK_WEIGHT * share for turn_id, share in _shared_words(relevance, task).items()}
    for turn_id, share in _shared_words(relevance, focus).items():
        shares[turn_id] = shares.get(turn_id, 0.0) + FOCUS_WEIGHT * share
    for turn_id in evidence.turns.keys() & _TURN_ID.findall(focus):
        shares[turn_id] = FOCUS_WEIGHT
    weights = {turn_id: relevance.turn_weights.get(turn_id, 1.0) * (1 + share) for turn_id, share in shares.items()}
    return replace(relevance, turn_weights={**relevance.turn_weights, **weights})


def _shared_words(relevance: Relevance, text: str) -> dict[str, float]:
    """Return the share of the words and names of `text` that each turn holds, rare ones weighted, by turn id."""
    wanted = {name for line in text.splitlines() for name in _names_of(line)}
    held = {turn_id: wanted.intersection(chain.from_iterable(rows)) for turn_id, rows in relevance.names.items()}
    times = Counter(chain.from_iterable(held.values()))
    rarity = {name: log1p(len(held) / times[name]) for name in wanted if times[name]}
    whole = sum(rarity.values())
    return {turn_id: sum(map(rarity.__getitem__, names)) / whole for turn_id, names in held.items() if names}


def _turn_weights(evidence: Evidence) -> Iterator[tuple[str, float]]:
    for turn_id, turn in evidence.turns.items():
        if turn.superseded_by:
            yield turn_id, SUPERSEDED_WEIGHT
        elif turn.turn.kind == "assistant":
            yield turn_id, ANSWER_WEIGHT


def _line_names(turn: TurnEvidence, same: dict[str, str]) -> Rows:
    """Return the names in each line of `turn`, equal names as the `same` object; none in the middle of long blocks."""
    rows: list[tuple[str, ...]] = [()] * len(turn.lines)
    for line in turn.lines.to_read():
        rows[line.number - 1] = tuple([same.setdefault(name, name) for name in _names_of(line.text)])
    return rows


def _names_of(text: str) -> list[str]:
    """Return the specifics of a line and its words in any script, each once."""
    return list(dict.fromkeys([*specifics_of(text), *words_of(text)]))


def is_word(name: str) -> bool:
    """Return True for a name that is a plain word: ``refund``, ``频率``; not ``toJson`` or ``4711``."""
    return name.isalpha() and name == name.casefold()


def _with_parts(rows: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return `rows` of all turns; each name is followed by those of its parts that the history names by themselves."""
    known = {name for own in rows.values() for names in own for name in names}
    joined = {name: [part for part in parts_of(name) if part in known] for name in known if not name.isidentifier()}
    parts = {name: own for name, own in joined.items() if len(own) > 1}
    return {turn_id: [_expanded(names, parts) for names in own] for turn_id, own in rows.items()}


def _expanded(names: tuple[str, ...], parts: Mapping[str, list[str]]) -> tuple[str, ...]:
    if parts.keys().isdisjoint(names):
        return names
    return tuple(dict.fromkeys(chain.from_iterable(parts.get(name, (name,)) for name in names)))


def _bases(turn: TurnEvidence) -> Sequence[float]:
    """Return the worth of each line's words in a new turn, whatever it names; 0 for unread lines."""
    failures = frozenset(turn.failure_lines)
    worths = array("d", bytes(8 * len(turn.lines)))  # a quarter of a list
    for line in turn.lines.to_read():
        worths[line.number - 1] = _base(line, failures)
    return worths


def _base(line: Line, failures: Collection[int]) -> float:
    relevance = PART_RELEVANCE["assistant" if line.number in failures or line.source == "user" else line.part]
    if line.source == "host" and line.part == "user":
        relevance = HOST_RELEVANCE
    elif line.part in ("call", "result") and defines(line.text):
        relevance *= DEFINITION_WEIGHT
    return relevance * (min(len(line.text), TELLING_CHARACTERS) / CHARACTERS_PER_TOKEN)


def _likelihood(name: str, seen: _Sighting, characters: int, turns: int) -> float:
    """Return the likelihood that the agent names it again, from its occurrences in a history of this size.

    The coefficients are a logistic regression of "the agent itself writes this name later" over 43 cuts of public
    agent sessions; boosted trees over 26 features, cross-validated by session, ranked no better.
    """
    distance = characters - seen.last_offset
    unwritten = turns - seen.last_written if seen.last_written else 2 * turns
    score = (
        -1.45
        + 0.7 * log1p(seen.lines)
        - 0.68 * log1p(seen.turns)
        - 0.61 * log1p(turns - seen.last_turn)
        + 1.66 * distance / max(1, characters)
        - 0.35 * log1p(distance / 2000)
        - 0.4 * log1p(unwritten)
        + sum(map(WRITER_SCORES.__getitem__, seen.writers))
        - 1.28 * (seen.last_turn == turns)
        + NUMBER_SCORE * name.isdigit()
    )
    return 1 / (1 + exp(-score))
