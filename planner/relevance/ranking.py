"""Order in which lines fill free space: by relevance per token, the best first.

A pick is a line with the neighbours that explain it. Each pick is the one that adds most relevance per token to the
earlier picks. The order depends on the history alone, never on a planner's answer. A name's *place* is its index in the
list of all names, as in `planner.relevance.relevance`.
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

CONTEXT_CHARACTERS = 60
"""Number of characters on either side of a line in which neighbours count as its context. A quarter of the line's
length is subtracted. Fitted on literal exams (`compactor eval --probes`)."""
LEAST_CHARACTERS = 8
"""Smallest number of characters of a neighbour that count as context."""
HEAD_TOKENS = 16
"""Raw tokens that the first line of a turn with calls costs in addition, for the turn's id and for one call with its
outcome."""
MARK_TOKENS = 1
"""Raw tokens of the mark before a line that does not follow the one above it."""
STEM_CHARACTERS, PRINTED_STEM_CHARACTERS = 6, 4
"""Number of first letters by which words of a text, and those of a printed line, are compared. Endings do not count."""
NEWS_SHARE = 0.2
"""Largest share of new words in a printed line that counts as a repetition, as these may be a new mark or time."""
MOST_COMPARED = 256
"""Largest number of kept lines with which a line is compared. More would take quadratic time in a long log."""
ROUNDING = 1e-12
"""Largest difference of two sums that count as equal, as they may be of the same numbers in another order."""

_WORD = lazy_pattern(r"\w+")
_LONG_WORD = lazy_pattern(r"[^\W\d_]{3,}|\d+")


class Pick(NamedTuple):
    """Lines of one turn that are chosen together."""

    turn_id: str
    numbers: tuple[int, ...]
    """Numbers of the lines."""
    priority: float
    """Relevance per raw token at the time of the pick. It never rises from one pick to the next."""


class KeptLine(NamedTuple):
    """Line or statement that is kept already."""

    names: Collection[Hashable]
    text: str
    owner: str
    """Id of the entry that shows it; may be empty."""


class _Candidate(NamedTuple):
    """Line that may be picked next; the best candidate is the smallest."""

    negative_worth: float
    """Relevance per raw token with the sign reversed."""
    turn_index: int
    number: int
    """Number of the line in its turn."""


class _Worth(NamedTuple):
    """Value of lines that may be picked."""

    per_token: float
    tokens: int


def rank_lines(
    evidence: Evidence,
    relevance: Relevance,
    pinned: Mapping[str, frozenset[int]],
    whole: Collection[str],
    budget_tokens: float,
) -> Iterator[Pick]:
    """Yield picks from the best to the worst until about `budget_tokens` raw tokens are spent.

    `pinned`: numbers of lines that count as picked already, by turn id. `whole`: ids of turns whose lines all count as
    picked already. Each pick is computed when it is asked for.
    """
    kept_texts = KeptTexts()
    turns = [_Turn(turn, relevance, kept_texts) for turn in evidence.turns.values()]
    for turn in turns:
        turn.pick_lines(range(1, len(turn.costs) + 1) if turn.id in whole else pinned.get(turn.id, ()))
    by_worth = _by_worth(turns, whole)
    # a line is worth less once its names are picked elsewhere, so the worth in the heap is the most that it can be
    newest = next(by_worth, None)
    heap = [newest] if newest else []
    spent, priority = 0.0, float("inf")
    while heap and spent < budget_tokens:
        best = heappop(heap)
        if best is newest and (newest := next(by_worth, None)):
            heappush(heap, newest)
        turn = turns[best.turn_index]
        around = turn.with_neighbours(best.number)
        worth, tokens = turn.worth(around)
        if worth <= 0:
            continue
        if heap and worth < -heap[0].negative_worth - ROUNDING:
            heappush(heap, best._replace(negative_worth=-worth))  # another line may be better now
            continue
        numbers = turn.news(around)
        if best.number not in numbers:
            continue
        spent += tokens
        priority = min(priority, worth)
        turn.pick_lines(numbers)
        yield Pick(turn.id, numbers, priority)


def _by_worth(turns: Sequence[_Turn], whole: Collection[str]) -> Iterator[_Candidate]:
    """Yield the informative lines of all turns that are not `whole`, those with the highest worth first. The worth is
    that of the line without its neighbours. Lines wait in arrays, as most are never reached."""
    negative_worths, turn_indices, numbers = array("d"), array("I"), array("I")
    for index, turn in enumerate(turns):
        if turn.id not in whole:
            new = [number for number in turn.informative_lines if number not in turn.picked]
            numbers.extend(new)
            turn_indices.extend(repeat(index, len(new)))
            negative_worths.extend(-worth for worth in turn.worths_alone(new))
    for at in array("I", sorted(range(len(numbers)), key=negative_worths.__getitem__)):
        yield _Candidate(negative_worths[at], turn_indices[at], numbers[at])


class KeptTexts:
    """Names and words of lines and statements that are kept already."""

    def __init__(self) -> None:
        """Begin empty."""
        self.lines: dict[Hashable, list[KeptLine]] = {}
        """Kept lines by each of their names. To save memory, names that occur in one line alone share its list."""

    def add(self, names: Collection[Hashable], text: str, owner: str = "") -> None:
        """Record a line by its distinct `names`; `owner`: see `KeptLine`."""
        line = KeptLine(names, text, owner)
        only_this = [line]
        for name in names:
            lines = self.lines.setdefault(name, only_this)
            if len(lines) > 1:
                lines.append(line)
            elif lines is not only_this:
                self.lines[name] = [*lines, line]  # a new list, as the old one may belong to other names, too

    def repeats(
        self, names: Collection[Hashable], text: Callable[[], str], part: Part, owners: Collection[str] = ()
    ) -> bool:
        """Return True if one kept line contains all `names` and all words of another line, in `part` of a turn.

        A line of a call or a result may have `NEWS_SHARE` of new words. Kept lines of any of `owners` are not compared.
        `text`: function that returns the line's text, as it is seldom needed.
        """
        all_names, is_printed = frozenset(names), part in ("call", "result")
        if not all_names or not all_names <= self.lines.keys():
            return False
        candidates, words = min((self.lines[name] for name in names), key=len), _words(text(), is_printed)
        return any(
            _covers(line.text, words, is_printed)
            for line in candidates[-MOST_COMPARED:]
            if line.owner not in owners and all_names.issubset(line.names)
        )

    def add_text(self, text: str, owner: str = "") -> None:
        """Record a line by all its names, by their parts, and by its whole text; `owner`: see `KeptLine`."""
        self.add(tuple({*chain.from_iterable(map(parts_of, specifics_of(text))), one_line(text)}), text, owner)

    def repeats_text(self, text: str, part: Part, owners: Collection[str] = ()) -> bool:
        """Return `repeats` for the names in `text`. A text without names repeats only a kept line with an equal
        text."""
        return self.repeats(specifics_of(text) or [one_line(text)], partial(str, text), part, owners)


def _covers(text: str, words: frozenset[str], is_printed: bool) -> bool:
    """Return True if `text` contains all `words`. Of the words of a printed line `NEWS_SHARE` may be missing."""
    folded, most_missing = text.casefold(), NEWS_SHARE * len(words) if is_printed else 0
    missing = [word for word in words if word not in folded]  # a quick test before the text is split into words
    return len(missing) <= most_missing and len(words - _words(folded, is_printed)) <= most_missing


def one_line(text: str) -> str:
    """Return `text` in one line, with single blanks. It is the key of a line without names."""
    return " ".join(text.split())


def _words(text: str, is_printed: bool) -> frozenset[str]:
    """Return the words of a text without their endings, so that ``conflicts`` and ``Conflict`` are equal. Of a printed
    line only words of three letters and more and numbers are returned: ``not``, ``4``; not ``if``, ``M``."""
    words = (_LONG_WORD if is_printed else _WORD).findall(text.casefold())
    stem = PRINTED_STEM_CHARACTERS if is_printed else STEM_CHARACTERS
    return frozenset(word[:stem] if word.isalpha() else word for word in words)


class _Turn:
    """Turn whose lines may be picked: their value and cost, and the picked ones."""

    def __init__(self, evidence: TurnEvidence, relevance: Relevance, kept_texts: KeptTexts) -> None:
        self.id = turn_id = evidence.turn.id
        self.names, self.bases = relevance.names[turn_id], relevance.bases[turn_id]
        self._recency = relevance.recencies[turn_id]
        self.weight = relevance.turn_weights.get(turn_id, 1.0)
        self.costs = evidence.line_tokens
        self.picked: set[int] = set()
        self.lines, self._weights, self._kept_texts = evidence.lines, relevance.weights.column, kept_texts
        self._head = HEAD_TOKENS if evidence.calls else 1
        self._block_weights = evidence.once(_block_weights)
        self.informative_lines = evidence.once(_informative_lines)
        self._neighbours = evidence.once(_neighbours)

    def worth(self, numbers: Iterable[int]) -> _Worth:
        """Return the value per raw token that the lines with these `numbers` add to the picked ones, and their raw
        tokens. A name that is kept already adds nothing."""
        new = [number for number in numbers if number not in self.picked]
        cost = (0 if self.picked else self._head) + sum(self.costs[number - 1] + MARK_TOKENS for number in new)
        return _Worth(sum(self._values(new)) * self.weight / (cost or 1), cost)

    def worths_alone(self, numbers: Sequence[int]) -> Iterator[float]:
        """Yield the value per raw token that each of the lines, none of which is picked, adds alone."""
        head = MARK_TOKENS if self.picked else MARK_TOKENS + self._head
        for number, value in zip(numbers, self._values(numbers), strict=True):
            yield value * self.weight / (self.costs[number - 1] + head)

    def _values(self, numbers: Iterable[int]) -> Iterator[float]:
        """Yield the value of each line."""
        kept_names, weights, bases, recency = self._kept_texts.lines, self._weights, self.bases, self._recency
        places, bounds, block_weights = self.names.places, self.names.bounds, self._block_weights
        for number in numbers:
            value = bases[number - 1] * recency
            for name in places[bounds[number - 1] : bounds[number]]:
                if name not in kept_names:
                    value += weights[name]
            yield value * block_weights[number - 1]

    def with_neighbours(self, number: int) -> range:
        """Return the numbers of line `number` and of the neighbours that explain it."""
        cache, before, after = self._neighbours, 2 * number, 2 * number + 1
        if not cache[before]:
            around = with_neighbours(self.lines, number)
            cache[before], cache[after] = number - around.start + 1, around.stop - number
        return range(number + 1 - cache[before], number + cache[after])

    def news(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Return those of `numbers` whose lines are picked already or repeat no kept line."""
        return tuple(number for number in numbers if number in self.picked or not self._is_repeated(number))

    def _is_repeated(self, number: int) -> bool:
        """Return True if a kept line has all names and words of the line with this number."""
        part = self.lines.text_at(number - 1).part
        return self._kept_texts.repeats(self.names.between(number - 1, number), partial(self.lines.text, number), part)

    def pick_lines(self, numbers: Iterable[int]) -> None:
        """Record the lines with these `numbers` as picked, so that their names add nothing to the worth of others."""
        for number in numbers:
            if number not in self.picked:
                self._kept_texts.add(self.names.between(number - 1, number), self.lines.text(number))
            self.picked.add(number)


def _neighbours(turn: TurnEvidence) -> bytearray:
    """Return an empty cache for the neighbours of each line, shared by all plans. Line n has the bytes 2n and
    2n + 1. They count the lines from its first neighbour to itself, and from itself to its last neighbour. Both include
    the line, and are 0 until they are known."""
    return bytearray(2 * len(turn.lines) + 2)


def _block_weights(turn: TurnEvidence) -> Sequence[float]:
    """Return the weight of each line's block, in the order of the lines."""
    blocks = (array("d", [block_weight(text)]) * (text.stop - text.first) for text in turn.lines.texts)
    return array("d", chain.from_iterable(blocks))


def _informative_lines(turn: TurnEvidence) -> array[int]:
    """Return the numbers of the lines that may be picked: all that are not empty, encoded, boilerplate, idle or
    unchanged."""
    idle = turn.boilerplate_lines | turn.idle_lines | turn.unchanged_lines
    read = ((at + 1, text.words(at)) for text in turn.lines.texts for at in text.read if at + 1 not in idle)
    return array("I", [number for number, words in read if words.strip() and not is_encoded(words)])


def with_neighbours(lines: Lines, number: int) -> range:
    """Return the numbers of line `number` and of its nearest neighbours, until these are half of the text near it.

    A long line has no neighbours, nor has the line with a call's short arguments, as it is understandable alone.
    """
    at, alone = number - 1, range(number, number + 1)
    text = lines.text_at(at)
    length = len(text.words(at).strip())
    room = CONTEXT_CHARACTERS - length // 4
    is_long = length >= 2 * room  # it is half of the text near it
    if is_long or (text.part == "call" and at == text.first):
        return alone
    near = _near(text, range(at + 1, text.stop), room) | _near(text, range(at - 1, text.first - 1, -1), room)
    all_characters, picked_characters = length + sum(near.values()), length
    first = last = number
    for index in sorted(near, key=lambda index: abs(index - at)):
        if 2 * picked_characters >= all_characters:
            break
        first, last = min(first, index + 1), max(last, index + 1)
        picked_characters += near[index]
    return range(first, last + 1)


def _near(text: BlockText, indices: Iterable[int], room: int) -> dict[int, int]:
    """Return the number of characters that count as context of each line, by its index. Lines are read in the order of
    `indices` until they have `room` characters together."""
    near = {}
    for index in indices:
        if room <= LEAST_CHARACTERS:
            break
        words = text.words(index)
        near[index] = min(len(words.strip()), room)
        room -= len(words) + 1
    return near
