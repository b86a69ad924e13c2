"""Which lines of turns match what is searched for, and which of them say most.

Knows a turn as its numbered lines and which result answers which call; shows nothing.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import NamedTuple

import regex

from planner.errors import StoreError
from planner.evidence.names import is_identifier
from planner.reading.lines import Line, Part, join_lines

__all__ = ["SEARCH_SECONDS", "Hits", "Searched", "defines", "matching_lines"]

SEARCH_SECONDS = 1.0
"""The longest one search may work: a pattern can be written so that it never ends."""
MAX_SEARCH_CHARACTERS = 1_000
"""Of what is searched for: making a pattern of more takes longer than the search."""
SHOWN_LINES = 3
"""Matching lines of one turn that are worth showing beside other turns: it is to be recognised, not read."""
NAME_WORTH, INSIDE_WORTH = 2.0, 0.5
"""What a name that stands exactly counts, and what a word counts inside a longer one, against a word that stands
exactly: who writes ``drain_queue`` wants that, not prose with the common words of the search."""
RARE = 0.5
"""A word is rare if it says more than so much of what the rarest says; the others are common."""
_PROSE: tuple[Part, ...] = ("user", "assistant", "call")
"""What people and the model wrote themselves; shown before what tools printed."""

_WORD = regex.compile(r'"([^"]*\w[^"]*)"|(\S+)')
"""A word, or a phrase in quotes: ``"red hen" fox``."""
_DEFINES = regex.compile(
    r"[+\s\d→]{0,12}(?:(?:export|default|public|private|protected|static|async|abstract|pub)\s){0,4}"
    r"(?:def|class|func|function|fn|interface|type|struct|enum|trait|const|module)\s+[\w(]"
)
"""Where a name is defined: ``12→func drain(``, ``+async def drain(``; not ``return type(x)``."""


class Searched(NamedTuple):
    """A turn to search."""

    lines: Sequence[Line]
    calls: Mapping[int, int]
    """By the number of a call's block and of its result's: that of the call."""


@dataclass(frozen=True, slots=True)
class Hits:
    """The lines of one turn that match. Word by word these are the best line of each word and all that say more than
    half as much as the best of them."""

    lines: tuple[int, ...]
    """Ascending."""
    best: tuple[int, ...]
    """The same without those whose text stands there twice, best first."""
    telling: int
    """So many of `best` say what no better line of any turn says."""
    weight: float
    """Of the best line."""
    leads: bool
    """True if it has the best line of a word."""
    only_results: bool
    match: regex.Pattern[str]
    """What a line was found by."""
    by_words: bool


Turns = Mapping[str, Searched]
"""Turns by their ids, oldest first."""


def matching_lines(turns: Turns, search: str) -> dict[str, Hits]:
    """What matches in the first of three ways that finds anything: as it stands, as a pattern, word by word.

    Raises:
        StoreError: `search` is too long, or as a pattern takes too long.
    """
    if len(search) > MAX_SEARCH_CHARACTERS:
        raise StoreError(f"search: at most {MAX_SEARCH_CHARACTERS:,} characters, found {len(search):,}")
    deadline = time.monotonic() + SEARCH_SECONDS

    def by_pattern(pattern: str) -> dict[str, Hits]:
        match = _compiled(pattern)
        found = {turn_id: _reached(turn.lines, match, deadline) for turn_id, turn in turns.items()} if match else {}
        return {
            turn_id: _pattern_hits(turns[turn_id], some, match) for turn_id, some in found.items() if some and match
        }

    words = [phrase or word for phrase, word in _WORD.findall(search)]
    ways: tuple[Callable[[], dict[str, Hits]], ...] = (
        lambda: by_pattern(regex.escape(search)),
        lambda: by_pattern(search),
        lambda: _word_hits(turns, list({word.lower(): _Word.of(word) for word in words}.values())),
    )
    return next((hits for way in ways if search.strip() and (hits := way())), {})


def defines(line: Line) -> bool:
    """True if `line` is where a function, type or constant is defined."""
    return _DEFINES.match(line.text) is not None


def _pattern_hits(turn: Searched, numbers: set[int], match: regex.Pattern[str]) -> Hits:
    lines = [line for line in turn.lines if line.number in numbers]
    best = _distinct(sorted(lines, key=_order))
    return Hits(
        tuple(line.number for line in lines),
        tuple(line.number for line in best),
        SHOWN_LINES,
        1.0,
        False,
        all(line.part not in _PROSE for line in lines),
        match,
        False,
    )


def _order(line: Line) -> tuple[bool, bool, int]:
    """Of lines that say the same much: words and calls before what tools printed, there definitions first."""
    return line.part not in _PROSE, not defines(line), line.number


def _distinct(lines: Iterable[Line]) -> list[Line]:
    first: dict[str, Line] = {}
    for line in lines:
        first.setdefault(line.text.strip(), line)
    return list(first.values())


class _Word(NamedTuple):
    """A word that is searched for."""

    written: str
    text: str
    """The same in small letters."""
    stands: regex.Pattern[str]
    """It as no part of a longer one, whatever its case."""
    name: bool

    @classmethod
    def of(cls, text: str) -> _Word:
        start, end = (r"(?<!\w)" if text[0].isalnum() else ""), (r"(?!\w)" if text[-1].isalnum() else "")
        name = " " not in text and (is_identifier(text) or "/" in text.strip("/"))
        stands = regex.compile(f"{start}{regex.escape(text)}{end}", regex.IGNORECASE)
        return cls(text, text.lower(), stands, name)

    def worth_in(self, text: str) -> float:
        """What it counts in `text`, which holds it."""
        found = self.stands.findall(text)
        if self.name and self.written in found:
            return NAME_WORTH
        return 1.0 if found else INSIDE_WORTH


class _Held(NamedTuple):
    """The lines of one turn that hold words."""

    words: dict[int, dict[str, float]]
    """By line number: each word with what it counts there."""
    weights: dict[int, float]
    order: list[Line]
    """Best first; of equal ones that whose call and result together hold more of the words."""


def _word_hits(turns: Turns, words: Sequence[_Word]) -> dict[str, Hits]:
    """For each of the `words` the turn with the best line that holds it, and all with a line that says as much as the
    best of a turn that holds most words.

    Nothing if no turn holds more than half of them and no name stands exactly.
    """
    if len(words) < 2:
        return {}
    held, rarity = _held(turns, words)
    counts = {turn_id: len(set().union(*some.words.values())) for turn_id, some in held.items()}
    most = max(counts.values(), default=0)
    full = [turn_id for turn_id, count in counts.items() if count == most] if 2 * most > len(words) else []
    exact = any(NAME_WORTH in counted.values() for some in held.values() for counted in some.words.values())
    if not full and not exact:
        return {}
    heaviest = {turn_id: some.weights[some.order[0].number] for turn_id, some in held.items()}
    enough = max(heaviest[turn_id] for turn_id in full or heaviest)
    leading = _leading(held, words, rarity)
    match = regex.compile(
        "|".join(regex.escape(word.text) for word in sorted(words, key=lambda word: -len(word.text))), regex.IGNORECASE
    )
    return {
        turn_id: _hits_of(some, leading.get(turn_id, ()), match)
        for turn_id, some in held.items()
        if turn_id in leading or heaviest[turn_id] >= enough
    }


def _held(turns: Turns, words: Sequence[_Word]) -> tuple[dict[str, _Held], dict[str, float]]:
    """The turns that hold any of the `words`, and what each word says by its rarity."""
    counted: dict[str, dict[int, dict[str, float]]] = {}
    for turn_id, turn in turns.items():
        for line in turn.lines:
            text = line.text.lower()
            if some := {word.text: word.worth_in(line.text) for word in words if word.text in text}:
                counted.setdefault(turn_id, {})[line.number] = some
    rarity = _rarities([some for of_turn in counted.values() for some in of_turn.values()])
    held: dict[str, _Held] = {}
    for turn_id, of_turn in counted.items():
        weights = {number: _weight(some, rarity) for number, some in of_turn.items()}
        turn = turns[turn_id]
        lines = [line for line in turn.lines if line.number in of_turn]
        beside: defaultdict[int, set[str]] = defaultdict(set)
        for line in lines:
            beside[turn.calls.get(line.block, -1)] |= of_turn[line.number].keys()
        around = {call: sum(rarity[word] for word in some) for call, some in beside.items() if call >= 0}
        lines.sort(
            key=lambda line: (-weights[line.number], -around.get(turn.calls.get(line.block, -1), 0.0), *_order(line))
        )
        held[turn_id] = _Held(of_turn, weights, lines)
    return held, rarity


def _weight(counted: Mapping[str, float], rarity: Mapping[str, float]) -> float:
    """Of a line with these words: each by its rarity, and more where rare ones stand together than where apart."""
    rare = RARE * max(rarity.values())
    together = sum(worth > INSIDE_WORTH and rarity[word] > rare for word, worth in counted.items())
    return sum(rarity[word] * worth for word, worth in counted.items()) * sqrt(max(1, together))


def _rarities(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What each word says, by how few lines hold it: `DeleteAllItems` more than `func`."""
    counts = Counter(word for some in lines for word in some)
    return {word: log(1 + len(lines) / (1 + count)) for word, count in counts.items()}


def _leading(held: Mapping[str, _Held], words: Sequence[_Word], rarity: Mapping[str, float]) -> dict[str, list[int]]:
    """The best line of each word by turn; of equal ones where something is defined, then the newest.

    A common word has one only on a line that says more than half as much as the best, and a word that is no name only
    where it does not stand inside a longer one.
    """
    leading: defaultdict[str, list[int]] = defaultdict(list)
    most = max(some.weights[some.order[0].number] for some in held.values())
    for word in words:
        least = INSIDE_WORTH if word.name else 1.0
        firsts = [
            (some.weights[line.number], defines(line), age, turn_id, line.number)
            for age, (turn_id, some) in enumerate(held.items())
            if (line := next((line for line in some.order if some.words[line.number].get(word.text, 0) >= least), None))
        ]
        rare = rarity.get(word.text, 0.0) > RARE * max(rarity.values())
        weight, _, _, turn_id, number = max(firsts, default=(0.0, False, 0, "", 0))
        if firsts and (rare or 2 * weight > most):
            leading[turn_id].append(number)
    return leading


def _hits_of(held: _Held, leading: Sequence[int], match: regex.Pattern[str]) -> Hits:
    """The lines it leads with, else its best, then what says more than half as much."""
    most = held.weights[held.order[0].number]
    wanted = set(leading) or {held.order[0].number}
    telling = _distinct(line for line in held.order if line.number in wanted)
    heavy = [line for line in held.order if line.number in wanted or 2 * held.weights[line.number] > most]
    return Hits(
        tuple(sorted(line.number for line in heavy)),
        tuple(line.number for line in _distinct([*telling, *heavy])),
        min(len(telling), SHOWN_LINES),
        most,
        bool(leading),
        all(line.part not in _PROSE for line in held.order),
        match,
        True,
    )


def _reached(lines: Sequence[Line], match: regex.Pattern[str], deadline: float) -> set[int]:
    """The numbers of the lines that a match reaches into. A match may span lines."""
    starts: list[int] = []
    end = 0
    for line in lines:
        starts.append(end + bool(starts and not line.continues))
        end = starts[-1] + len(line.text)
    reached: set[int] = set()
    for first, last in _spans(join_lines(lines), match, deadline):
        reached.update(range(bisect_right(starts, first) - 1, bisect_right(starts, last - 1)))
    return {lines[index].number for index in reached}


def _spans(text: str, match: regex.Pattern[str], deadline: float) -> Iterator[tuple[int, int]]:
    """Start and end of each match that is not empty."""
    try:
        for found in match.finditer(text, timeout=max(0.001, deadline - time.monotonic())):
            if found.end() > found.start():
                yield found.span()
    except TimeoutError:
        raise StoreError(f"search {match.pattern[:80]!r}: the pattern takes too long; use a simpler one") from None


def _compiled(pattern: str) -> regex.Pattern[str] | None:
    """`pattern`, or None for plain words that are no pattern."""
    try:
        return regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
    except (regex.error, RecursionError):
        return None
