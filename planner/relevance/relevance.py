"""The likely worth of each line of a history for the next steps, without a model.

A line is worth the names in it (weighted by how likely the agent names them again) and its words. A name counts by how
recently and how often it appeared, and whether the agent wrote it itself. A longer history adds its new turns to the
occurrences that were counted before.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, count, islice, repeat, zip_longest
from math import exp, log1p
from operator import sub
from typing import NamedTuple

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.names import parts_of, specifics_of
from planner.evidence.words import words_of
from planner.reading.lazy_property import lazy_property
from planner.reading.lines import BlockText, Part, Source, text_width
from planner.reading.patterns import lazy_pattern

__all__ = ["Occurrences", "Relevance", "Rows", "block_weight", "focused", "is_word", "line_relevance"]

WRITERS: Sequence[Part] = ("assistant", "call", "user")
"""Parts of a turn that are recorded for each name that they contain, each by a bit of `Columns.writers`."""
WORD, NUMBER = 1, 2
"""Kinds of names in `Columns.kinds`: plain words, and whole numbers."""
_BITS = {part: 1 << at for at, part in enumerate(WRITERS)}


@dataclass(frozen=True, slots=True)
class Rows:
    """Names in each line of a turn, each once a line, as indices into `Columns`: a tenth of the memory of texts."""

    places: array[int]
    bounds: array[int]
    """Index in `places` at which each line begins, and after them the end of the last line."""

    @classmethod
    def of(cls, lines: Iterable[Collection[int]]) -> Rows:
        """Return the rows of `lines`, each with the indices of its names."""
        places, bounds = array("I"), array("I", [0])
        for line in lines:
            places.extend(line)
            bounds.append(len(places))
        return cls(places, bounds)

    def __iter__(self) -> Iterator[array[int]]:
        """Iterate over the lines, each with the indices of its names."""
        return (self.between(at, at + 1) for at in range(len(self.bounds) - 1))

    def between(self, first: int, stop: int) -> array[int]:
        """Return the names in the lines from index `first` up to, but not including, `stop`."""
        return self.places[self.bounds[first] : self.bounds[stop]]


class Columns(NamedTuple):
    """Counts of all names; the values of a name are at the same index in each column."""

    lines: array[int]
    """Number of lines with the name."""
    turns: array[int]
    """Number of turns with the name."""
    last_turns: array[int]
    """Number (id without ``t``) of the last turn with the name."""
    last_written: array[int]
    """Number of the last turn in which the agent wrote the name, or 0."""
    last_offsets: array[int]
    """Characters of the history up to the end of the last line with the name."""
    writers: array[int]
    """Bits of the `WRITERS` whose text contains the name."""
    kinds: array[int]
    """`WORD`, `NUMBER` or 0."""

    @classmethod
    def empty(cls) -> Columns:
        """Return the columns of no names."""
        return cls(*(array(kind) for kind in "IIIIIBB"))

    def grown(self, names: Collection[str]) -> Columns:
        """Return a copy with `names`, which do not occur yet, added at the end."""
        longer = Columns(*(column + array(column.typecode, bytes(len(names) * column.itemsize)) for column in self))
        kinds = (WORD if is_word(name) else NUMBER if name.isdigit() else 0 for name in names)
        return longer._replace(kinds=self.kinds + array("B", kinds))


@dataclass
class Occurrences:
    """Names in the first turns of a history, and their counts. `columns`, `rows` and `parts` refer to a name by its
    index in `names`. Not changed after `extended` has returned it."""

    digests: tuple[str, ...] = ()
    """Digests of the turns."""
    rows: dict[str, Rows] = field(default_factory=dict)
    """Names in each line, by turn id; a name with components is followed by those that occur as names themselves."""
    names: list[str] = field(default_factory=list)
    """All names, each once; a list takes a fifth of a dict with places."""
    joined: list[str] = field(default_factory=list)
    """Names with several components."""
    parts: dict[int, Sequence[int]] = field(default_factory=dict)
    """For each name with components that occur as names themselves and are no words: it and these components."""
    columns: Columns = field(default_factory=Columns.empty)
    characters: int = 0
    """Characters of all turns."""

    def extended(self, evidence: Evidence) -> Occurrences:
        """Return the occurrences in all turns of `evidence`, from these if it begins with the same turns, else anew."""
        turns = list(evidence.turns.values())
        digests, known = tuple(turn.turn.digest for turn in turns), len(self.digests)
        if digests[:known] != self.digests:
            return Occurrences().extended(evidence)
        longer = Occurrences(
            digests, {**self.rows}, [*self.names], [*self.joined], {**self.parts}, self.columns, self.characters
        )
        longer._add(turns[:known], turns[known:])
        return longer

    def _add(self, earlier: Sequence[TurnEvidence], new: Sequence[TurnEvidence]) -> None:
        """Count the names in `new` turns, and new names that are components of names in `earlier` turns."""
        known, offset = len(self.names), 0
        places = dict(zip(self.names, count(), strict=False))
        seen: dict[int, array[int]] = {}
        self.rows |= {turn.turn.id: _read(turn, places, seen) for turn in new}
        del seen
        fresh = [*islice(places, known, None)]
        self.names += fresh
        self.columns = self.columns.grown(fresh)
        self.joined += [name for name in fresh if not (name.isidentifier() or name.isdigit())]
        gaining = {place for place in self._gain_parts(places, known) if place < known}
        del places
        for turn in earlier if gaining else ():
            rows = self.rows[turn.turn.id]
            if not gaining.isdisjoint(rows.places):
                rows = self.rows[turn.turn.id] = self._expanded(rows)
                self._note(turn, rows, offset, known)
            offset += _length(turn)
        for turn in new:
            rows = self.rows[turn.turn.id] = self._expanded(self.rows[turn.turn.id])
            self._note(turn, rows, self.characters, 0)
            self.characters += _length(turn)

    def _gain_parts(self, places: Mapping[str, int], known: int) -> Iterator[int]:
        """Yield the indices of names with a component that was added after the first `known` names, and record the
        components. Words and numbers do not count, as `words_of` finds them in the same line.

        `places`: index of each name.
        """
        kinds = self.columns.kinds
        for name in self.joined:
            held = [place for part in parts_of(name) if (place := places.get(part, -1)) >= 0 and not kinds[place]]
            if len(held) > 1 and max(held) >= known:
                self.parts[held[0]] = array("I", held)
                yield held[0]

    def _expanded(self, rows: Rows) -> Rows:
        """Return `rows` with each name followed by its components that occur as names themselves."""
        parts = self.parts
        if parts.keys().isdisjoint(rows.places):
            return rows
        return Rows.of(
            names
            if parts.keys().isdisjoint(names)
            else dict.fromkeys(chain.from_iterable([parts.get(name, (name,)) for name in names]))
            for names in rows
        )

    def _note(self, turn: TurnEvidence, rows: Rows, offset: int, least: int) -> None:
        """Count the names in `rows` of `turn` with an index of at least `least`. The turn begins `offset`
        characters after the beginning of the history."""
        number = turn.turn.number
        lines, turns, last_turns, last_written, last_offsets, writers, _ = self.columns
        for text in turn.lines.texts:
            written, bit = text.part in ("assistant", "call"), _BITS.get(text.part, 0)
            named, bounds = rows.between(text.first, text.stop), rows.bounds[text.first : text.stop + 1]
            ends_of_all = chain.from_iterable(map(repeat, text.bounds[1:], map(sub, bounds[1:], bounds)))
            ends = dict(zip(named, ends_of_all, strict=True))
            for at, times in Counter(named).items():
                if at < least:
                    continue
                lines[at] += times
                last_offsets[at] = offset + ends[at]
                if last_turns[at] != number:
                    turns[at] += 1
                    last_turns[at] = number
                if written:
                    last_written[at] = number
                writers[at] |= bit
            offset += len(text.text)


def _read(turn: TurnEvidence, index_of: dict[str, int], seen: dict[int, array[int]]) -> Rows:
    """Return the names in each line of `turn`, without the middle of long blocks, and add new names to `index_of`.

    `seen`: names of lines by the hash of their text, so that repeated lines are read once.
    """
    places, counts = array("I"), array("I", bytes(4 * (len(turn.lines) + 1)))
    for text in turn.lines.texts:
        for at in text.read:
            line = text.words(at)
            key = hash(line)
            if (names := seen.get(key)) is None:
                names = seen[key] = array("I", [index_of.setdefault(name, len(index_of)) for name in names_of(line)])
            places.extend(names)
            counts[at + 1] = len(names)
    return Rows(places, array("I", accumulate(counts)))


def _length(turn: TurnEvidence) -> int:
    return sum(len(text.text) for text in turn.lines.texts)


def is_word(name: str) -> bool:
    """Return True for a name that is a plain word: ``refund``, ``频率``; not ``toJson`` or ``4711``."""
    return name.isalpha() and name == name.casefold()


def names_of(text: str) -> dict[str, None]:
    """Return the specifics of `text` (paths, identifiers, numbers) and its words in any script, each once."""
    return dict.fromkeys([*specifics_of(text), *words_of(text)])


SUPERSEDED_WEIGHT = 0.5
"""Weight of lines of a superseded turn, compared with those of the turn that superseded it."""
TASK_WEIGHT, FOCUS_WEIGHT = 0.3, 4.0
"""Addition to the weight of a turn that contains all words of the task, and of one with all words of the focus."""
ANSWER_WEIGHT, LAST_ANSWER_WEIGHT = 2.0, 4.0
"""Weight of the agent's texts without a call, its answers and conclusions, relative to its texts with calls; and of the
answer that the user has just replied to."""
PART_RELEVANCE: Mapping[Part, float] = {"user": 0.0025, "assistant": 0.0025, "call": 0.0001, "result": 0.00002}
"""Relevance of each token of a line by its part of the turn, without its names: people and agents state what matters,
results mostly repeat. Only the order of magnitude counts: a third or twice of any value changed fifteen exams by a
question or two of 240."""
HOST_RELEVANCE = 0.0003
"""Relevance of text that a host quotes in the user's message: a project's rules are many pages and available in a
file."""

SHORT_RESULT_WEIGHT, SHORT_RESULT_WIDTH = 2.0, 300
"""Weight of a result of at most this width, relative to a very long one: a short result is the outcome of its call, a
long one is material. The weight falls with the width."""

CHARACTERS_PER_TOKEN = 4
INFORMATIVE_CHARACTERS = 160
"""Number of characters of a line from which further ones do not add to its value."""

WRITER_SCORES: Mapping[Part, float] = {"assistant": 0.73, "call": 1.39, "user": -1.16}
"""Addition to a name's score for each of these parts that has contained it in any turn."""
NUMBER_SCORE = -1.91
"""Addition for a name that is a number: ``4711``."""

_TURN_ID = lazy_pattern(r"\bt\d{1,7}\b")


@dataclass(frozen=True)
class Weights(Mapping[str, float]):
    """Weights by name, as a column in the order of the names: a dict would take five times the memory."""

    names: Sequence[str]
    column: array[float]

    def __getitem__(self, name: str) -> float:
        """Return the weight of `name`."""
        return self.column[self._places[name]]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.names)

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self.names)

    @lazy_property
    def _places(self) -> Mapping[str, int]:
        return {name: place for place, name in enumerate(self.names)}


@dataclass(frozen=True)
class Relevance:
    """Relevance of all lines of a history."""

    weights: Weights
    """Likelihood that the agent uses a name again, by name."""
    names: Mapping[str, Rows]
    """Names in each line, by turn id; components of a name count if they occur as names themselves."""
    bases: Mapping[str, Sequence[float]]
    """Value of each line's words, without its names, by turn id."""
    turn_weights: Mapping[str, float]
    """Factors for the relevance of a turn's lines, by turn id; 1 if missing."""

    def names_in(self, turn_id: str, first: int, stop: int) -> list[str]:
        """Return the names in a turn's lines from index `first` up to, but not including, `stop`; a name of several
        lines repeats."""
        return [self.weights.names[place] for place in self.names[turn_id].between(first, stop)]

    def of_turn(self, turn_id: str) -> float:
        """Return the relevance of a turn: of all its lines together, each name counted in each line."""
        named = sum(map(self.weights.column.__getitem__, self.names[turn_id].places))
        return (sum(self.bases[turn_id]) + named) * self.turn_weights.get(turn_id, 1.0)


def line_relevance(evidence: Evidence, occurrences: Occurrences) -> Relevance:
    """Return the relevance of every line of `evidence`; `occurrences`: the names in the same turns."""
    bases: dict[str, Sequence[float]] = {}
    for turn_id, turn in evidence.turns.items():
        recency = 0.5 + 1 / (1 + log1p(len(evidence.turns) - turn.turn.number))
        bases[turn_id] = array("d", [base * recency for base in turn.once(_bases)])
    lines = sum(len(turn.lines) for turn in evidence.turns.values())
    weights = Weights(occurrences.names, array("d", _likelihoods(occurrences, lines)))
    return Relevance(weights, occurrences.rows, bases, dict(_turn_weights(evidence)))


def block_weight(text: BlockText) -> float:
    """Return the factor for a block's lines: 1, for a result up to `SHORT_RESULT_WEIGHT`, the shorter the more."""
    share = SHORT_RESULT_WIDTH / max(SHORT_RESULT_WIDTH, text_width(text.text)) if text.part == "result" else 0.0
    return 1 + (SHORT_RESULT_WEIGHT - 1) * share


def focused(relevance: Relevance, evidence: Evidence, task: str, focus: str) -> Relevance:
    """Return `relevance` with more weight on turns that share words with `task` and `focus`.

    Rare words count most, as in search. A turn whose id is in `focus` counts as if it contained all of its words.
    """
    shares = {turn_id: TASK_WEIGHT * share for turn_id, share in _shared_words(relevance, task).items()}
    for turn_id, share in _shared_words(relevance, focus).items():
        shares[turn_id] = shares.get(turn_id, 0.0) + FOCUS_WEIGHT * share
    for turn_id in evidence.turns.keys() & _TURN_ID.findall(focus):
        shares[turn_id] = FOCUS_WEIGHT
    weights = {turn_id: relevance.turn_weights.get(turn_id, 1.0) * (1 + share) for turn_id, share in shares.items()}
    return replace(relevance, turn_weights={**relevance.turn_weights, **weights})


def _shared_words(relevance: Relevance, text: str) -> dict[str, float]:
    """Return by turn id the share of the words of `text` that the turn contains, 0 to 1; rare ones count more."""
    named = {name for line in text.splitlines() for name in names_of(line)}
    wanted = {place for place, name in enumerate(relevance.weights.names if named else ()) if name in named}
    held = {turn_id: wanted.intersection(rows.places) for turn_id, rows in relevance.names.items() if wanted}
    times = Counter(chain.from_iterable(held.values()))
    rarity = {name: log1p(len(held) / times[name]) for name in wanted if times[name]}
    whole = sum(rarity.values())
    return {turn_id: sum(map(rarity.__getitem__, names)) / whole for turn_id, names in held.items() if names}


def _turn_weights(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yield turn id and factor for superseded turns and for the agent's answers; other turns have the factor 1."""
    turns = list(evidence.turns.values())
    for turn, following in zip_longest(turns, turns[1:]):
        if turn.superseded_by:
            yield turn.turn.id, SUPERSEDED_WEIGHT
        elif turn.turn.kind == "assistant":
            is_replied_to = following is not None and following.turn.live and following.turn.kind == "user"
            yield turn.turn.id, LAST_ANSWER_WEIGHT if is_replied_to else ANSWER_WEIGHT


def _bases(turn: TurnEvidence) -> Sequence[float]:
    """Return the value of each line, in order, without its names and the turn's age; 0 in the middle of long blocks."""
    failures, sources = frozenset(turn.failure_lines), turn.lines.sources
    worths = array("d", bytes(8 * len(turn.lines)))  # a quarter of a list
    for text in turn.lines.texts:
        for at in text.read:
            relevance = _token_relevance(text.part, sources.get(at + 1, text.source), at + 1 in failures)
            worths[at] = relevance * (min(len(text.words(at)), INFORMATIVE_CHARACTERS) / CHARACTERS_PER_TOKEN)
    return worths


def _token_relevance(part: Part, source: Source, failed: bool) -> float:
    """Return the value of a token by its sender; words about a failure count as if the agent wrote them."""
    if source == "host" and part == "user":
        return HOST_RELEVANCE
    return PART_RELEVANCE["assistant" if failed or source == "user" else part]


def _likelihoods(names: Occurrences, all_lines: int) -> Iterator[float]:
    """Yield for each name the likelihood that the agent uses it again, from its occurrences in the history.

    The coefficients are a logistic regression of "the agent itself writes this name later" over 43 cuts of public
    agent sessions; boosted trees over 26 features, cross-validated by session, ranked no better.
    """
    characters, all_turns = names.characters, len(names.digests)
    logs = [log1p(number) for number in range(2 * all_turns + 1)]
    written_by = [sum(WRITER_SCORES[part] for at, part in enumerate(WRITERS) if bits >> at & 1) for bits in range(8)]
    scale, most = log1p(all_lines + 1), max(1, characters)
    for lines, turns, last_turn, last_written, offset, writers, kind in zip(*names.columns, strict=True):
        distance = characters - offset
        score = (
            -1.45
            + 0.7 * log1p(lines)
            - 0.68 * logs[turns]
            - 0.61 * logs[all_turns - last_turn]
            + 1.66 * distance / most
            - 0.35 * log1p(distance / 2000)
            - 0.4 * logs[all_turns - last_written if last_written else 2 * all_turns]
            + written_by[writers]
            - 1.28 * (last_turn == all_turns)
            + NUMBER_SCORE * (kind == NUMBER)
        )
        likelihood = 1 / (1 + exp(-score))
        # a plain word that most lines contain is worth little
        yield likelihood * (1 - log1p(lines) / scale) if kind == WORD else likelihood
