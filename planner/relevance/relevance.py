"""The likely worth of each line of a history for the next steps, without a model.

The relevance of a line is the sum of the weights of its names and a value for its words. The weight of a name is the
likelihood that the agent uses it again, from where it occurred and who wrote it. Names are here all specifics and words
of a text; a name's *place* is its index in the list of all names. A longer history adds its new turns to the counts.
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

WRITERS: Sequence[Part] = ("assistant", "call", "user")
"""Parts of a turn whose names are recorded, each by a bit of `Columns.writers`."""
WORD, NUMBER = 1, 2
"""Kinds of names in `Columns.kinds`: plain words, and whole numbers."""
_BITS = {part: 1 << at for at, part in enumerate(WRITERS)}


@dataclass(frozen=True, slots=True)
class Rows:
    """Names in each line of a turn, by their places, which take a tenth of the memory of texts."""

    places: array[int]
    """Places of the names in all lines, one line after the other. In each line a name occurs once."""
    bounds: array[int]
    """Index in `places` at which each line begins, and after them the end of the last line."""

    @classmethod
    def of(cls, lines: Iterable[Collection[int]]) -> Rows:
        """Return the rows of `lines`, each with the places of its names."""
        places, bounds = array("I"), array("I", [0])
        for line in lines:
            places.extend(line)
            bounds.append(len(places))
        return cls(places, bounds)

    def __iter__(self) -> Iterator[array[int]]:
        """Iterate over the lines, each with the places of its names."""
        return (self.between(at, at + 1) for at in range(len(self.bounds) - 1))

    def between(self, first: int, stop: int) -> array[int]:
        """Return the places of the names in the lines from index `first` up to, but not including, `stop`."""
        return self.places[self.bounds[first] : self.bounds[stop]]


class Columns(NamedTuple):
    """Counts of all names. The values of a name are at its place in each column."""

    lines: array[int]
    """Number of lines with the name."""
    turns: array[int]
    """Number of turns with the name."""
    last_turns: array[int]
    """Number of the last turn with the name: 9 for ``t9``."""
    last_written: array[int]
    """Number of the last turn in which the agent wrote the name, or 0."""
    last_offsets: array[int]
    """Number of characters of the history up to the end of the last line with the name."""
    writers: array[int]
    """Bits of those `WRITERS` that have contained the name."""
    kinds: array[int]
    """Kind of the name: `WORD`, `NUMBER` or 0 for others."""

    @classmethod
    def empty(cls) -> Columns:
        """Return columns without names."""
        return cls(*(array(kind) for kind in "IIIIIBB"))

    def grown(self, names: Collection[str]) -> Columns:
        """Return a copy with new `names` at the end."""
        longer = Columns(*(column + array(column.typecode, bytes(len(names) * column.itemsize)) for column in self))
        kinds = (WORD if is_word(name) else NUMBER if name.isdigit() else 0 for name in names)
        return longer._replace(kinds=self.kinds + array("B", kinds))


@dataclass
class Occurrences:
    """Names in the turns of a history, and their counts. Nothing changes it after `extended` has returned it.

    `rows`, `columns` and `parts` refer to a name by its place.
    """

    digests: tuple[str, ...] = ()
    """Digests of the turns."""
    rows: dict[str, Rows] = field(default_factory=dict)
    """Names in each line, by turn id. Those components of a name that occur as names themselves follow it."""
    names: list[str] = field(default_factory=list)
    """All names, in the order of their places. A list takes a fifth of the memory of a dict."""
    joined: list[str] = field(default_factory=list)
    """Names that may have several components."""
    parts: dict[int, Sequence[int]] = field(default_factory=dict)
    """Places of a name and of its components, by the place of the name. Components count if they occur as names
    themselves and are neither words nor numbers."""
    columns: Columns = field(default_factory=Columns.empty)
    characters: int = 0
    """Number of characters of all turns."""

    def extended(self, evidence: Evidence) -> Occurrences:
        """Return the occurrences in all turns of `evidence`. Only new turns are read if it begins with the same
        turns."""
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
        """Count the names in `new` turns, and in `earlier` turns components of names that are now names themselves."""
        known, offset = len(self.names), 0  # number of names so far; number of characters before a turn
        places = dict(zip(self.names, count(), strict=False))
        seen: dict[int, array[int]] = {}
        self.rows |= {turn.turn.id: _read(turn, places, seen) for turn in new}
        del seen  # frees its memory before the columns grow
        new_names = [*islice(places, known, None)]
        self.names += new_names
        self.columns = self.columns.grown(new_names)
        self.joined += [name for name in new_names if not (name.isidentifier() or name.isdigit())]
        gaining = {place for place in self._gain_parts(places, known) if place < known}
        del places
        for turn in earlier if gaining else ():
            rows = self.rows[turn.turn.id]
            if not gaining.isdisjoint(rows.places):
                rows = self.rows[turn.turn.id] = self._expanded(rows)
                self._count(turn, rows, offset, known)
            offset += _length(turn)
        for turn in new:
            rows = self.rows[turn.turn.id] = self._expanded(self.rows[turn.turn.id])
            self._count(turn, rows, self.characters, 0)
            self.characters += _length(turn)

    def _gain_parts(self, places: Mapping[str, int], known: int) -> Iterator[int]:
        """Record the components of each name that has one among the names after the first `known` ones, and yield the
        place of the name. `places`: places by name. Words and numbers do not count as components, as `words_of` finds
        them in the same line anyway."""
        kinds = self.columns.kinds
        for name in self.joined:
            held = [place for part in parts_of(name) if (place := places.get(part, -1)) >= 0 and not kinds[place]]
            if len(held) > 1 and max(held) >= known:
                self.parts[held[0]] = array("I", held)
                yield held[0]

    def _expanded(self, rows: Rows) -> Rows:
        """Return `rows` with the components of each name after it."""
        if self.parts.keys().isdisjoint(rows.places):
            return rows
        return Rows.of(map(self._with_parts, rows))

    def _with_parts(self, line: array[int]) -> Collection[int]:
        """Return the names of one line with the components of each name after it, each once."""
        if self.parts.keys().isdisjoint(line):
            return line
        return dict.fromkeys(chain.from_iterable([self.parts.get(place, (place,)) for place in line]))

    def _count(self, turn: TurnEvidence, rows: Rows, offset: int, least: int) -> None:
        """Count those names in `rows`, the names of `turn`, whose place is at least `least`. `offset`: number of
        characters of the history before the turn."""
        number = turn.turn.number
        lines, turns, last_turns, last_written, last_offsets, writers, _ = self.columns
        for text in turn.lines.texts:
            written, bit = text.part in ("assistant", "call"), _BITS.get(text.part, 0)
            places, bounds = rows.between(text.first, text.stop), rows.bounds[text.first : text.stop + 1]
            # the end of each line is repeated for each of its names; of several lines with a name the last counts
            ends_of_lines = chain.from_iterable(map(repeat, text.bounds[1:], map(sub, bounds[1:], bounds)))
            ends = dict(zip(places, ends_of_lines, strict=True))
            for place, times in Counter(places).items():
                if place < least:
                    continue
                lines[place] += times
                last_offsets[place] = offset + ends[place]
                if last_turns[place] != number:
                    turns[place] += 1
                    last_turns[place] = number
                if written:
                    last_written[place] = number
                writers[place] |= bit
            offset += len(text.text)


def _read(turn: TurnEvidence, place_of: dict[str, int], seen: dict[int, array[int]]) -> Rows:
    """Return the names in each line of `turn`, without the middle of long blocks. `place_of`: places by name; new names
    are added to it. `seen`: names of the lines that were read, by the hash of their text, so that repeated lines are
    read once."""
    places, counts = array("I"), array("I", bytes(4 * (len(turn.lines) + 1)))
    for text in turn.lines.texts:
        for at in text.read:
            line = text.words(at)
            key = hash(line)
            if (names := seen.get(key)) is None:
                names = seen[key] = array("I", [place_of.setdefault(name, len(place_of)) for name in names_of(line)])
            places.extend(names)
            counts[at + 1] = len(names)
    return Rows(places, array("I", accumulate(counts)))


def _length(turn: TurnEvidence) -> int:
    """Return the number of characters of a turn."""
    return sum(len(text.text) for text in turn.lines.texts)


def is_word(name: str) -> bool:
    """Return True for a name that is a plain word: ``refund``, ``频率``; not ``toJson`` or ``4711``."""
    return name.isalpha() and name == name.casefold()


def names_of(text: str) -> dict[str, None]:
    """Return the specifics of `text` and its words in any script, each once, as keys."""
    return dict.fromkeys([*specifics_of(text), *words_of(text)])


SUPERSEDED_WEIGHT = 0.5
"""Weight of the lines of a superseded turn, compared with those of the turn that superseded it."""
TASK_WEIGHT, FOCUS_WEIGHT = 0.3, 4.0
"""Addition to the weight of a turn that contains all words of the task, and of one that contains all words of the
focus."""
ANSWER_WEIGHT, LAST_ANSWER_WEIGHT = 2.0, 4.0
"""Weight of a turn without calls, in which the agent answers or concludes, compared with other turns; and of such a
turn if the user has just replied to it."""
PART_RELEVANCE: Mapping[Part, float] = {"user": 0.0025, "assistant": 0.0025, "call": 0.0001, "result": 0.00002}
"""Value of each token of a line by its part of the turn, without its names. People and agents state what matters;
results mostly repeat. Only the order of magnitude counts: a third or twice of any value changed fifteen exams by a
question or two of 240."""
HOST_RELEVANCE = 0.0003
"""Value of each token of a host's text in the user's message, such as a project's rules: many pages, available in a
file."""

SHORT_RESULT_WEIGHT, SHORT_RESULT_WIDTH = 2.0, 300
"""Weight of a result of at most this width, compared with a very long one. A short result is the outcome of its call, a
long one is material."""

CHARACTERS_PER_TOKEN = 4
INFORMATIVE_CHARACTERS = 160
"""Largest number of characters of a line that add to its value."""

WRITER_SCORES: Mapping[Part, float] = {"assistant": 0.73, "call": 1.39, "user": -1.16}
"""Addition to a name's score for each part that contains it in any turn."""
NUMBER_SCORE = -1.91
"""Addition to the score of a name that is a number: ``4711``."""

_TURN_ID = lazy_pattern(r"\bt\d{1,7}\b")


@dataclass(frozen=True)
class Weights(Mapping[str, float]):
    """Weights by name. They are stored in a column, as a dict would take five times the memory."""

    names: Sequence[str]
    column: array[float]
    """Weights in the order of `names`."""

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
    """Value of the words of each line, without its names and the turn's age, by turn id."""
    recencies: Mapping[str, float]
    """Factors for these values by the turn's age, by turn id."""
    turn_weights: Mapping[str, float]
    """Factor for the relevance of a turn's lines, by turn id; 1 if missing."""

    def names_in(self, turn_id: str, first: int, stop: int) -> list[str]:
        """Return the names in a turn's lines from index `first` up to, but not including, `stop`. A name is repeated
        for each line that contains it."""
        return [self.weights.names[place] for place in self.names[turn_id].between(first, stop)]

    def of_turn(self, turn_id: str) -> float:
        """Return the relevance of all lines of a turn together."""
        named = sum(map(self.weights.column.__getitem__, self.names[turn_id].places))
        words = sum(self.bases[turn_id]) * self.recencies[turn_id]
        return (words + named) * self.turn_weights.get(turn_id, 1.0)


def line_relevance(evidence: Evidence, occurrences: Occurrences) -> Relevance:
    """Return the relevance of every line of `evidence`; `occurrences`: counts of the names in the same turns."""
    turns = evidence.turns.items()
    bases = {turn_id: turn.once(_bases) for turn_id, turn in turns}
    recencies = {turn_id: 0.5 + 1 / (1 + log1p(len(turns) - turn.turn.number)) for turn_id, turn in turns}
    lines = sum(len(turn.lines) for turn in evidence.turns.values())
    weights = Weights(occurrences.names, array("d", _likelihoods(occurrences, lines)))
    return Relevance(weights, occurrences.rows, bases, recencies, dict(_turn_weights(evidence)))


def block_weight(text: BlockText) -> float:
    """Return the factor for the lines of a block: up to `SHORT_RESULT_WEIGHT` for a result, the shorter the more, and 1
    for others."""
    share = SHORT_RESULT_WIDTH / max(SHORT_RESULT_WIDTH, text_width(text.text)) if text.part == "result" else 0.0
    return 1 + (SHORT_RESULT_WEIGHT - 1) * share


def focused(relevance: Relevance, evidence: Evidence, task: str, focus: str) -> Relevance:
    """Return `relevance` with more weight on turns that share words with `task` and `focus`.

    Rare words count most, as in search. A turn counts as if it contained all words of `focus` if its id is among them.
    """
    shares = {turn_id: TASK_WEIGHT * share for turn_id, share in _shared_words(relevance, task).items()}
    for turn_id, share in _shared_words(relevance, focus).items():
        shares[turn_id] = shares.get(turn_id, 0.0) + FOCUS_WEIGHT * share
    for turn_id in evidence.turns.keys() & _TURN_ID.findall(focus):
        shares[turn_id] = FOCUS_WEIGHT
    weights = {turn_id: relevance.turn_weights.get(turn_id, 1.0) * (1 + share) for turn_id, share in shares.items()}
    return replace(relevance, turn_weights={**relevance.turn_weights, **weights})


def _shared_words(relevance: Relevance, text: str) -> dict[str, float]:
    """Return by turn id the share of the names in `text` that the turn contains, from 0 to 1; rare names count more."""
    wanted = {name for line in text.splitlines() for name in names_of(line)}
    places = {place for place, name in enumerate(relevance.weights.names if wanted else ()) if name in wanted}
    if not places:
        return {}
    shared = {turn_id: places.intersection(rows.places) for turn_id, rows in relevance.names.items()}
    turns_with = Counter(chain.from_iterable(shared.values()))
    rarity = {place: log1p(len(shared) / times) for place, times in turns_with.items()}
    whole = sum(rarity[place] for place in places if place in rarity)
    return {turn_id: sum(map(rarity.__getitem__, own)) / whole for turn_id, own in shared.items() if own}


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
    """Return the value of the words of each line, in order, without the turn's age; 0 in the middle of long blocks."""
    failures, sources = frozenset(turn.failure_lines), turn.lines.sources
    worths = array("d", bytes(8 * len(turn.lines)))
    for text in turn.lines.texts:
        for at in text.read:
            relevance = _token_relevance(text.part, sources.get(at + 1, text.source), at + 1 in failures)
            worths[at] = relevance * (min(len(text.words(at)), INFORMATIVE_CHARACTERS) / CHARACTERS_PER_TOKEN)
    return worths


def _token_relevance(part: Part, source: Source, failed: bool) -> float:
    """Return the value of a token by its part and source; in a line that shows a failure, as if the agent wrote it."""
    if source == "host" and part == "user":
        return HOST_RELEVANCE
    return PART_RELEVANCE["assistant" if failed or source == "user" else part]


def _likelihoods(names: Occurrences, all_lines: int) -> Iterator[float]:
    """Yield for each name the likelihood that the agent uses it again; `all_lines`: number of lines of the history. The
    coefficients are a logistic regression of "the agent itself writes this name later" over 43 cuts of public agent
    sessions. Boosted trees over 26 features, cross-validated by session, ranked no better."""
    characters, all_turns = names.characters, len(names.digests)
    logs = [log1p(number) for number in range(2 * all_turns + 1)]
    writers_score = [sum(WRITER_SCORES[part] for part in WRITERS if bits & _BITS[part]) for bits in range(8)]
    log_lines, most = log1p(all_lines + 1), max(1, characters)
    for lines, turns, last_turn, last_written, offset, writers, kind in zip(*names.columns, strict=True):
        distance = characters - offset  # from the name's last line to the end of the history
        score = (
            -1.45
            + 0.7 * log1p(lines)
            - 0.68 * logs[turns]
            - 0.61 * logs[all_turns - last_turn]
            + 1.66 * distance / most
            - 0.35 * log1p(distance / 2000)
            - 0.4 * logs[all_turns - last_written if last_written else 2 * all_turns]
            + writers_score[writers]
            - 1.28 * (last_turn == all_turns)
            + NUMBER_SCORE * (kind == NUMBER)
        )
        likelihood = 1 / (1 + exp(-score))
        # a plain word is worth the less, the more lines contain it
        yield likelihood * (1 - log1p(lines) / log_lines) if kind == WORD else likelihood
