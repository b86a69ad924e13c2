"""What each line of a history is likely worth to what comes next, without a model.

A line is worth the names it holds (weighted by how likely the agent names them again) and what is said in it. What
counts is how recently a name appeared, how often, and whether the agent wrote it itself.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice, repeat
from math import exp, log1p
from operator import sub

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.line_names import LineNames, NameForm, Rows, form_of, line_names
from planner.evidence.names import specifics_of
from planner.reading.lines import Part, small_type
from planner.reading.patterns import lazy_pattern
from planner.relevance.numbering import Numbering

__all__ = ["WORTHS", "Relevance", "Sightings", "focused", "line_relevance"]

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

_SAID: Mapping[Part, int] = {"assistant": 1, "call": 2, "user": 4}
"""What stands for each of those who named a name, in a sum."""
_SAID_SCORES = [0.73 * bool(who & 1) + 1.39 * bool(who & 2) - 1.16 * bool(who & 4) for who in range(8)]
"""By the sum."""
_FORM_SCORES: Mapping[NameForm, float] = {"other": 0.0, "rooted": 0.88, "url": 0.53, "digits": -1.91}

_WORDS = lazy_pattern(r"[^\W\d_]{3,}")
"""Words of three letters and more: `the retry`, but not `id` or `x2`."""


_TELLINGS = TELLING_CHARACTERS + 1
WORTHS = tuple(
    relevance * (characters / CHARACTERS_PER_TOKEN)
    for relevance in (*PART_RELEVANCE.values(), FAILURE_RELEVANCE, SAID_RELEVANCE)
    for characters in range(_TELLINGS)
)
"""What is said in a line is worth, by what the line is and, for each of these, by how much it says."""
_FIRST_WORTHS = dict(zip((*PART_RELEVANCE, "failure", "said"), range(0, len(WORTHS), _TELLINGS), strict=True))
"""Where in these each begins."""


class Bases:
    """What each line of a turn is worth for what is said in it, whatever it names: two bytes a line."""

    __slots__ = ("places", "recency")

    def __init__(self, places: array[int], recency: float) -> None:
        """The `places` of the lines in `WORTHS`, which are multiplied with the `recency` of the turn."""
        self.places, self.recency = places, recency

    def __iter__(self) -> Iterator[float]:
        """What each line is worth, in their order."""
        recency = self.recency
        return (WORTHS[place] * recency for place in self.places)


@dataclass(frozen=True)
class Relevance:
    """Relevance of all lines of a history, whose names are numbered from 0."""

    weights: array[float]
    """By name: the likelihood that the agent names it again."""
    names: Mapping[str, Rows]
    """By turn id: what each line names, parts of it that are names of the history by themselves included."""
    bases: Mapping[str, Bases]
    """By turn id."""
    turn_weights: Mapping[str, float]
    """What the relevance of a turn's lines is multiplied with, by turn id; 1 where it is left out."""

    def of_turn(self, turn_id: str) -> float:
        """The relevance of a turn: of all its lines together, each name counted where it stands."""
        named = sum(map(self.weights.__getitem__, self.names[turn_id].flat))
        return (sum(self.bases[turn_id]) + named) * self.turn_weights.get(turn_id, 1.0)

    def of_lines(self, turn_id: str) -> list[float]:
        """The relevance of each line of a turn by itself, in their order."""
        weight = self.weights.__getitem__
        return [
            base + sum(map(weight, names)) for names, base in zip(self.names[turn_id], self.bases[turn_id], strict=True)
        ]


class Sightings:
    """Where each name was seen, in a history that is read from its beginning and may grow; a number of each name."""

    def __init__(self) -> None:
        """Of a history without turns; `extend` is yet to be told of any."""
        self.numbering = Numbering()
        self.names: dict[str, Rows] = {}
        """By turn id: what each line names, parts of its names that are names of the history by themselves included."""
        self.lines = array("I")
        """How many lines hold it."""
        self.turns = array("I")
        self.last_turn = array("I")
        self.last_written = array("I")
        """The last turn in which the agent wrote it, or 0."""
        self.last_offset = array("Q")
        """How many characters of the history there are up to the end of the last line that holds it."""
        self.said_by = bytearray()
        """Who named it: the sum of their `_SAID`."""
        self.characters = 0
        self._digests: list[str] = []
        self._starts = array("Q")
        """How many characters of the history there are before each turn."""

    def begin(self, evidence: Evidence) -> bool:
        """True if what was seen are the first turns of `evidence`."""
        turns = [turn.turn.digest for turn in islice(evidence.turns.values(), len(self._digests))]
        return turns == self._digests

    def extend(self, evidence: Evidence, named: Callable[[TurnEvidence], LineNames]) -> None:
        """Note the turns of `evidence` that come behind those that were seen; all is as if it was read at once.

        A name that they bring may be a part of earlier ones: where these stand it was seen, too. `named` gives what
        each line of a turn names; of most turns it is asked once.
        """
        turns, known = list(evidence.turns.values()), len(self.numbering)
        earlier, new = turns[: len(self._digests)], turns[len(self._digests) :]
        numbered = [_numbered(named(turn), self.numbering) for turn in new]
        self._make_room()
        fresh = frozenset(self.numbering.identities[known:] if earlier else ())
        for turn, start in zip(earlier, self._starts, strict=True):
            names = named(turn)
            if not fresh.isdisjoint(names.parts.flat):
                rows = self.names[turn.turn.id] = _with_parts(*_numbered(names, self.numbering), self.numbering)
                self._note(turn, _of(rows, known), start)
        for turn, own in zip(new, numbered, strict=True):
            rows = self.names[turn.turn.id] = _with_parts(*own, self.numbering)
            self._digests.append(turn.turn.digest)
            self._starts.append(self.characters)
            self.characters = self._note(turn, rows, self.characters)

    def _make_room(self) -> None:
        """Of names that have a number since, nothing was seen yet."""
        more = len(self.numbering) - len(self.lines)
        for counts in (self.lines, self.turns, self.last_turn, self.last_written):
            counts.frombytes(bytes(4 * more))
        self.last_offset.frombytes(bytes(8 * more))
        self.said_by.extend(bytes(more))

    def _note(self, turn: TurnEvidence, names: Rows, start: int) -> int:
        """Note the `names` of a turn, before which there are `start` characters; how many there are behind it."""
        number, flat, ends = turn.turn.number, names.flat, names.ends
        offsets = array("Q", accumulate(map(len, turn.lines.words()), initial=start))
        widths = map(sub, ends[1:], ends)
        lines, turns, last_turn, last_offset = self.lines, self.turns, self.last_turn, self.last_offset
        for name, offset in zip(flat, chain.from_iterable(map(repeat, offsets[1:], widths)), strict=True):
            last_offset[name] = offset
        for name, times in Counter(flat).items():
            lines[name] += times
            turns[name] += 1
            last_turn[name] = number
        for part, first, stop in turn.lines.spans():
            for name in set(flat[ends[first] : ends[stop]]) if part in _SAID else ():
                self.said_by[name] |= _SAID[part]
                if part != "user":
                    self.last_written[name] = number
        return offsets[-1]


def line_relevance(evidence: Evidence, kept: list[Sightings] | None = None) -> Relevance:
    """The relevance of every line of `evidence`.

    What was seen of names is put into `kept`, and what is there of the first turns is gone on from: it is taken out
    meanwhile, so that nobody else goes on from it at the same time. Without `kept` nothing goes on from this, and what
    the lines of each turn name is forgotten as soon as it is numbered.
    """
    try:
        seen = kept.pop() if kept else Sightings()
    except IndexError:  # another thread was first
        seen = Sightings()
    seen = seen if seen.begin(evidence) else Sightings()
    seen.extend(evidence, _named if kept is None else _named_once)
    total = len(evidence.turns)
    bases: dict[str, Bases] = {}
    for turn_id, turn in evidence.turns.items():
        recency = 0.5 + 1 / (1 + log1p(total - turn.turn.number))
        bases[turn_id] = Bases(turn.once(_said), recency)
    weights = _likelihoods(seen, map(form_of, seen.numbering.identities), total)
    relevance = Relevance(weights, dict(seen.names), bases, dict(_turn_weights(evidence, "")))
    if kept is not None:
        kept[:] = [seen]
    return relevance


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


def _said(turn: TurnEvidence) -> array[int]:
    """Where in `WORTHS` what is said in each line of `turn` stands."""
    told = [length if length < TELLING_CHARACTERS else TELLING_CHARACTERS for length in map(len, turn.lines.words())]
    places = array("H")
    for part, first, stop in turn.lines.spans():
        start = _FIRST_WORTHS[part]
        places.extend([start + characters for characters in told[first:stop]])
    for number in turn.failure_lines:
        places[number - 1] = _FIRST_WORTHS["failure"] + told[number - 1]
    for line in turn.lines.of_sources("user"):
        places[line.number - 1] = _FIRST_WORTHS["said"] + told[line.number - 1]
    return places


def _named(turn: TurnEvidence) -> LineNames:
    return line_names(turn.lines)


def _named_once(turn: TurnEvidence) -> LineNames:
    return turn.once(_named)


def _numbered(named: LineNames, numbering: Numbering) -> tuple[Rows, array[int], Rows]:
    """What each line names, by `numbering`; the names that have parts and these, by their identities."""
    identities = dict.fromkeys(named.lines.flat)
    rows = named.lines.mapped(dict(zip(identities, numbering.add(identities), strict=True)))
    return rows, named.joined, named.parts


def _with_parts(rows: Rows, joined: array[int], parts: Rows, numbering: Numbering) -> Rows:
    """`rows` of a turn, behind each name that is `joined` those of its `parts` that are names; each once in a line."""
    rows = Rows(array(small_type(len(numbering)), rows.flat), rows.ends)
    known = map(numbering.known, parts)
    with_own = {name: [name, *held] for name, held in zip(numbering.known(joined), known, strict=True) if held}
    if not with_own:
        return rows
    flat, ends = array(rows.flat.typecode), array("I", [0])
    for names in rows:
        if with_own.keys().isdisjoint(names):
            flat += names
        else:
            flat.extend(dict.fromkeys(chain.from_iterable([with_own.get(name, (name,)) for name in names])))
        ends.append(len(flat))
    return Rows(flat, array(small_type(len(flat)), ends))


def _of(rows: Rows, first: int) -> Rows:
    """Of each row the numbers from `first` on."""
    kept = [[name for name in row if name >= first] for row in rows]
    return Rows(array("I", chain.from_iterable(kept)), array("I", accumulate(map(len, kept), initial=0)))


def _likelihoods(seen: Sightings, forms: Iterable[NameForm], turns: int) -> array[float]:
    """By name the likelihood that the agent names it again, from where and how often it was seen in so many turns.

    The coefficients are a logistic regression of "the agent itself writes this name later" over 43 cuts of public
    agent sessions; boosted trees over 26 features, cross-validated by session, ranked no better.
    """
    logs = [log1p(number) for number in range(2 * turns + 1)]
    ages = [0.61 * logs[turns - turn] for turn in range(turns + 1)]
    new = [1.28 * (turn == turns) for turn in range(turns + 1)]
    writings = [0.4 * logs[turns - turn if turn else 2 * turns] for turn in range(turns + 1)]
    characters = seen.characters
    most = max(1, characters)
    names = zip(
        seen.lines, seen.turns, seen.last_turn, seen.last_offset, seen.last_written, seen.said_by, forms, strict=True
    )
    scores = (
        (-1.45 + 0.7 * log1p(lines) - 0.68 * logs[turns_with] - ages[last_turn])
        + (1.66 * (distance := characters - last_offset) / most - 0.35 * log1p(distance / 2000) - writings[written])
        + (_SAID_SCORES[said_by] - new[last_turn])
        + _FORM_SCORES[form]
        for lines, turns_with, last_turn, last_offset, written, said_by, form in names
    )
    return array("d", (1 / (1 + exp(-score)) for score in scores))
