"""Order in which lines fill free space: by relevance per token, best first.

The order is greedy: each pick is the line, with the neighbours that explain it, that adds most per token to earlier
picks. It depends on the history alone, never on a planner's answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import NamedTuple

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.names import parts_of, specifics_of
from planner.reading.lines import BlockText, Lines, Part, is_encoded
from planner.reading.patterns import lazy_pattern
from planner.relevance.relevance import Relevance, block_weight

__all__ = ["MARK_TOKENS", "KeptTexts", "Pick", "one_line", "rank_lines"]

CONTEXT_CHARACTERS = 60
"""Characters on either side within which neighbours count as context of a line, minus a quarter of the line's length:
fitted so that literal exams score as with the distance of each name (`compactor eval --probes`)."""
LEAST_CHARACTERS = 8
"""Smallest part of a neighbouring line, in characters, that counts as context."""
HEAD_TOKENS = 16
"""Raw tokens that the first line of a turn with calls costs in addition: about those of its id, and of the head and
outcome of one call."""
MARK_TOKENS = 1
"""Raw tokens of the mark before a line that does not follow the one above it."""
STEM_CHARACTERS = 6
"""Number of first letters by which words are compared, so that endings do not count."""
NEWS_SHARE = 0.2
"""Share of a printed line's longer words above which new ones make it no repetition: fewer are a new mark or time."""
MOST_COMPARED = 256
"""Largest number of kept lines with which a line is compared, the last ones that share a name: comparing with all would
take quadratic time in a long log."""
ROUNDING = 1e-12
"""Largest difference of two sums of the same numbers in another order, which counts as equal."""

_WORD = lazy_pattern(r"\w+")
_LONG_WORD = lazy_pattern(r"[^\W\d_]{3,}|\d+")


class Pick(NamedTuple):
    """Lines of one turn that are chosen together."""

    turn_id: str
    numbers: tuple[int, ...]
    priority: float
    """Relevance per raw token at the time of the pick; never rises from one pick to the next."""


def rank_lines(
    evidence: Evidence,
    relevance: Relevance,
    pinned: Mapping[str, frozenset[int]],
    whole: Collection[str],
    budget_tokens: float,
) -> Iterator[Pick]:
    """Yield picks from best to worst until about `budget_tokens` raw tokens are spent; each is computed on demand.

    `pinned`: numbers of lines by turn id that count as picked already; `whole`: ids of turns of which all lines do. A
    line's worth only falls as its names are picked elsewhere, so the best old value in a heap is counted again, and
    the line waits if it is no longer the best.
    """
    kept_texts = KeptTexts()
    turns = [_Turn(turn, relevance, kept_texts) for turn in evidence.turns.values()]
    for turn in turns:
        turn.pick_lines(range(1, len(turn.costs) + 1) if turn.id in whole else pinned.get(turn.id, ()))
    behind = _by_worth([turn for turn in enumerate(turns) if turn[1].id not in whole])
    newest = next(behind, None)
    waiting = [newest] if newest else []
    spent, priority = 0.0, float("inf")
    while waiting and spent < budget_tokens:
        best = heappop(waiting)
        if best is newest and (newest := next(behind, None)):
            heappush(waiting, newest)
        _, place, number = best
        turn = turns[place]
        around = turn.with_neighbours(number)
        worth, cost = turn.worth(around)
        if worth <= 0:
            continue
        if waiting and worth < -waiting[0][0] - ROUNDING:
            heappush(waiting, (-worth, place, number))
            continue
        numbers = turn.news(around)
        if number not in numbers:
            continue
        spent += cost
        priority = min(priority, worth)
        turn.pick_lines(numbers)
        yield Pick(turn.id, numbers, priority)


def _by_worth(turns: Collection[tuple[int, _Turn]]) -> Iterator[tuple[float, int, int]]:
    """Yield the informative lines of `turns`, which have their places, the best first: minus its worth alone, its
    place and its number. Only those that are compared are tuples at a time."""
    worths, places, numbers = array("d"), array("I"), array("I")
    for place, turn in turns:
        numbers.extend(turn.informative_lines)
        places.extend(repeat(place, len(turn.informative_lines)))
        worths.extend(-turn.worth((number,))[0] for number in turn.informative_lines)
    for at in array("I", sorted(range(len(worths)), key=worths.__getitem__)):
        yield worths[at], places[at], numbers[at]


class KeptTexts:
    """Names and words of lines or statements that are kept already."""

    def __init__(self) -> None:
        """Begin empty."""
        self.lines: dict[Hashable, list[tuple[Collection[Hashable], str, str]]] = {}
        """Lines by each name in them: all names, text, place. Names of one line alone share a list."""

    def add(self, names: Collection[Hashable], text: str, place: str = "") -> None:
        """Record a line by its distinct names; `place`: id of the entry that shows it, or another owner."""
        alone = [(names, text, place)]
        for name in names:
            kept = self.lines.setdefault(name, alone)
            if len(kept) > 1:
                kept += alone
            elif kept is not alone:
                self.lines[name] = kept + alone

    def repeats(
        self, names: Collection[Hashable], text: Callable[[], str], part: Part, places: Collection[str] = ()
    ) -> bool:
        """Return True if one kept line contains all `names` and words of another line, which is in `part` of a turn.

        For lines of calls and results most of their longer words are enough. Kept lines at any of `places` are not
        compared. `text` returns the line's text, which is seldom needed.
        """
        all_names, printed = frozenset(names), part in ("call", "result")
        if not all_names or not all_names <= self.lines.keys():
            return False
        candidates, words = min((self.lines[name] for name in names), key=len), _words(text(), printed)
        return any(
            _covers(line, words, printed)
            for line_names, line, place in candidates[-MOST_COMPARED:]
            if place not in places and all_names.issubset(line_names)
        )

    def add_text(self, text: str, place: str = "") -> None:
        """Record a line with all its names, including parts of names."""
        self.add(tuple({*chain.from_iterable(map(parts_of, specifics_of(text))), one_line(text)}), text, place)

    def repeats_text(self, text: str, part: Part, places: Collection[str] = ()) -> bool:
        """Return the same as `repeats` for a line by its text; without names it needs an equal line."""
        return self.repeats(specifics_of(text) or [one_line(text)], partial(str, text), part, places)


def _covers(text: str, words: frozenset[str], printed: bool) -> bool:
    """Return True if `text` contains all `words`, or if `printed`, all but `NEWS_SHARE` of them."""
    folded, most = text.casefold(), printed * NEWS_SHARE * len(words)
    lacking = [word for word in words if word not in folded]  # a quick test before words are split
    return len(lacking) <= most and len(words - _words(folded, printed)) <= most


def one_line(text: str) -> str:
    """Return `text` with its white space folded, the key of a line without names."""
    return " ".join(text.split())


def _words(text: str, printed: bool) -> frozenset[str]:
    """Return the words of a text without endings (``conflicts`` and ``Conflict`` are the same); if `printed` only
    longer ones, and numbers: ``not``, ``4``; not ``if``, ``M``."""
    words = (_LONG_WORD if printed else _WORD).findall(text.casefold())
    stem = 4 if printed else STEM_CHARACTERS
    return frozenset(word[:stem] if word.isalpha() else word for word in words)


class _Turn:
    """Turn whose lines compete: their value and cost, and the picked ones."""

    def __init__(self, evidence: TurnEvidence, relevance: Relevance, kept_texts: KeptTexts) -> None:
        self.id = turn_id = evidence.turn.id
        self.names, self.bases = relevance.names[turn_id], relevance.bases[turn_id]
        self.weight = relevance.turn_weights.get(turn_id, 1.0)
        self.costs = evidence.line_tokens
        self.picked: set[int] = set()
        self.lines, self._weights, self._kept_texts = evidence.lines, relevance.weights.column, kept_texts
        self._head = HEAD_TOKENS if evidence.calls else 1
        self._block_weights = evidence.once(_block_weights)
        self.informative_lines = evidence.once(_informative_lines)
        self._neighbours = evidence.once(_neighbours)

    def worth(self, numbers: Iterable[int]) -> tuple[float, int]:
        """Return the value per raw token that lines would add to the picked ones, and the raw tokens they would cost; a
        name that is kept already adds nothing."""
        picked, kept_names, names = self.picked, self._kept_texts.lines, self.names
        weights, places, bounds = self._weights, names.places, names.bounds
        gain, cost = 0.0, 0 if picked else self._head
        for number in numbers:
            if number not in picked:
                cost += self.costs[number - 1] + MARK_TOKENS
                value = self.bases[number - 1]
                for name in places[bounds[number - 1] : bounds[number]]:
                    if name not in kept_names:
                        value += weights[name]
                gain += value * self._block_weights[number - 1]
        return gain * self.weight / (cost or 1), cost

    def with_neighbours(self, number: int) -> range:
        """Return the numbers of line `number` and the neighbours that explain it, found once for all plans."""
        reach, at = self._neighbours, 2 * number
        if not reach[at]:
            found = with_neighbours(self.lines, number)
            reach[at], reach[at + 1] = number - found.start + 1, found.stop - number
        return range(number + 1 - reach[at], number + reach[at + 1])

    def news(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Return those of the numbers whose lines are picked, or repeat no kept line."""
        return tuple(number for number in numbers if number in self.picked or not self._is_repeated(number))

    def _is_repeated(self, number: int) -> bool:
        part = self.lines.text_at(number - 1).part
        return self._kept_texts.repeats(self.names.between(number - 1, number), partial(self.lines.text, number), part)

    def pick_lines(self, numbers: Iterable[int]) -> None:
        """Record lines as picked, so that their names add nothing to the worth of others."""
        for number in numbers:
            if number not in self.picked:
                self._kept_texts.add(self.names.between(number - 1, number), self.lines.text(number))
            self.picked.add(number)


def _neighbours(turn: TurnEvidence) -> bytearray:
    """Return an empty cache with two bytes for each line, from index twice its number: how many lines explain it up to
    and including itself, and how many from itself on; 0 until they are found."""
    return bytearray(2 * len(turn.lines) + 2)


def _block_weights(turn: TurnEvidence) -> Sequence[float]:
    """Return the factor for the relevance of each line of a turn, in order, which is that of its block."""
    blocks = (array("d", [block_weight(text)]) * (text.stop - text.first) for text in turn.lines.texts)
    return array("d", chain.from_iterable(blocks))


def _informative_lines(turn: TurnEvidence) -> array[int]:
    """Return the numbers of the lines that may be picked: not empty, encoded, boilerplate, idle or unchanged."""
    idle = turn.boilerplate_lines | turn.idle_lines | turn.unchanged_lines
    read = ((at + 1, text.words(at)) for text in turn.lines.texts for at in text.read if at + 1 not in idle)
    return array("I", [number for number, words in read if words.strip() and not is_encoded(words)])


def with_neighbours(lines: Lines, number: int) -> range:
    """Return the numbers of line `number` and its nearest neighbours, until they have half of the text nearby. A long
    line needs no neighbours."""
    at, alone = number - 1, range(number, number + 1)
    text = lines.text_at(at)
    length = len(text.words(at).strip())
    room = CONTEXT_CHARACTERS - length // 4
    if length >= 2 * room:  # more than half of all that may be near
        return alone
    if text.part == "call" and at == text.first:  # the short arguments: each is a text of its own
        return alone
    beside = _near(text, range(at + 1, text.stop), room) | _near(text, range(at - 1, text.first - 1, -1), room)
    around, picked, first, last = length + sum(beside.values()), length, number, number
    for index in sorted(beside, key=lambda index: abs(index - at)):
        if 2 * picked >= around:
            break
        first, last = min(first, index + 1), max(last, index + 1)
        picked += beside[index]
    return range(first, last + 1)


def _near(text: BlockText, indices: Iterable[int], room: int) -> dict[int, int]:
    """Return by index how many characters of each line are near; in the order of `indices`, at most `room` in all."""
    near = {}
    for index in indices:
        if room <= LEAST_CHARACTERS:
            break
        words = text.words(index)
        near[index] = min(len(words.strip()), room)
        room -= len(words) + 1
    return near
