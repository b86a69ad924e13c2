"""Estimates without a model how much each line of a conversation is worth for the next steps, and ranks the lines.

The relevance of a line is the sum of the weights of its names and a value for its words. The weight of a name is the
likelihood that the agent uses it again, from where it occurred and who wrote it (`planner.analysis.Occurrences`).

Lines fill space by relevance per token, the best first. A *pick* is a line with the neighbours that explain it. Each
pick is the one that adds most relevance per token to the earlier picks. The order depends on the conversation, the
task, the focus and the lines that stay in any case, never on a planner's scores.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from itertools import chain, pairwise, repeat, zip_longest
from math import exp, inf, log1p
from typing import NamedTuple

from planner.analysis import BITS, WORD, WRITERS, Analysis, Names, Occurrences, Rows, names_of
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.words import parts_of, specifics_of
from planner.reading.lazy import lazy_pattern
from planner.reading.lines import ENCODED_CHARACTERS, BlockText, Part, Source, is_encoded, one_line, text_width

SUPERSEDED_WEIGHT = 0.5
"""Factor for the relevance of a turn that a later turn repeats or replaces."""
TASK_WEIGHT, FOCUS_WEIGHT = 0.3, 4.0
"""Increases of a turn's relevance (0.3 is 30 %) if it contains all words of the task, and all words of the focus (what
the caller asks to keep in particular)."""
ANSWER_WEIGHT, LAST_ANSWER_WEIGHT = 2.0, 4.0
"""Factors for the relevance of a turn without tool calls, in which the agent answers or concludes: in general, and if
the user has just replied to it."""
NAMED_WEIGHT = 1.0
"""Increase of the relevance of a turn with a call about the only file or page that the user named by its path or
address, as it may contain the task: ``Do what /data/task.md says``. The more they named, the less it is."""
PART_RELEVANCE: Mapping[Part, float] = {"user": 0.0025, "assistant": 0.0025, "call": 0.0001, "result": 0.00002}
"""Relevance of each token of a line, in addition to that of its names, by the part of the turn. People and agents state
what matters; tool results mostly repeat. Only the order of magnitude counts: with a third or twice of any value, the
results of fifteen tests changed by one or two of 240 questions."""
HOST_RELEVANCE = 0.0003
"""Relevance of each token of text that the host program adds to a user's message, such as a project's rules: many
pages, which are also in a file."""

SHORT_RESULT_WEIGHT, SHORT_RESULT_WIDTH = 2.0, 300
"""Factor for the relevance of a tool result, and the largest width with the whole factor. Short results are outcomes;
long ones are material, so that their factor falls to 1."""

INFORMATIVE_CHARACTERS = 160
"""Number of first characters of a line that add to its relevance."""

WRITER_SCORES: Mapping[Part, float] = {"assistant": 0.73, "call": 1.39, "user": -1.16}
"""Additions to the score of a name that the agent's texts, its calls, or the user's messages contain. The score decides
the likelihood that the agent uses the name again."""

_TURN_ID = lazy_pattern(r"\bt\d{1,7}\b")


@dataclass(frozen=True)
class Relevance:
    """Values from which the relevance of every line of a conversation is computed: how likely it is needed again."""

    names: Names
    """All names in the conversation; the index of a name is its place."""
    weights: array[float]
    """Likelihood that the agent uses a name again, in the order of `names`. A dict would take five times the memory."""
    rows: Mapping[str, Rows]
    """Names in each line, by turn id. Components of a name count, too, if they occur as names themselves."""
    bases: Mapping[str, Sequence[float]]
    """Value of each line's words, without that of its names, by turn id. `recencies` are factors for it."""
    recencies: Mapping[str, float]
    """Factor for the values of words, by turn id; it is higher for recent turns."""
    turn_weights: Mapping[str, float]
    """Factor for the relevance of all lines of a turn, by turn id; 1 for a turn without one."""

    def names_in(self, turn_id: str, first: int, stop: int) -> tuple[str, ...]:
        """Return the names in the lines of a turn from index `first` to `stop` - 1. A name is repeated for each line
        that contains it."""
        return self.names.at(self.rows[turn_id].between(first, stop))

    def of_turn(self, turn_id: str) -> float:
        """Return the relevance of all lines of a turn together, to rank whole turns."""
        worth_of_names = sum(map(self.weights.__getitem__, self.rows[turn_id].places))
        worth_of_words = sum(self.bases[turn_id]) * self.recencies[turn_id]
        return (worth_of_words + worth_of_names) * self.turn_weights.get(turn_id, 1.0)


def line_relevance(analysis: Analysis) -> Relevance:
    """Compute the relevance of all lines of a conversation, for any task."""
    evidence, occurrences = analysis.evidence, analysis.occurrences
    turns = evidence.turns.items()
    bases = {turn_id: turn.once(_bases) for turn_id, turn in turns}
    recencies = {turn_id: 0.5 + 1 / (1 + log1p(len(turns) - turn.turn.number)) for turn_id, turn in turns}
    weights = array("d", _likelihoods(occurrences, sum(len(turn.lines) for _, turn in turns)))
    return Relevance(occurrences.names, weights, occurrences.rows, bases, recencies, dict(_turn_weights(evidence)))


def focused(analysis: Analysis, task: str, focus: str) -> Relevance:
    """Return the relevance of all lines, with higher factors for turns that share words with the task and the focus
    (what the caller asks to keep in particular). Rare words count most, as in search. A turn whose id is in `focus`
    counts as if it contained all its words."""
    relevance = analysis.once(line_relevance)
    shares = {turn_id: TASK_WEIGHT * share for turn_id, share in _shared_words(relevance, task).items()}
    for turn_id, share in _shared_words(relevance, focus).items():
        shares[turn_id] = shares.get(turn_id, 0.0) + FOCUS_WEIGHT * share
    for turn_id in analysis.evidence.turns.keys() & _TURN_ID.findall(focus):
        shares[turn_id] = FOCUS_WEIGHT
    weights = {turn_id: relevance.turn_weights.get(turn_id, 1.0) * (1 + share) for turn_id, share in shares.items()}
    return replace(relevance, turn_weights={**relevance.turn_weights, **weights})


def _shared_words(relevance: Relevance, text: str) -> dict[str, float]:
    """Return by turn id the share of the names in `text` that the turn contains, from 0 to 1. Rare names count more."""
    wanted = {name for line in text.splitlines() for name in names_of(line)}
    places = {place for name in wanted if (place := relevance.names.find(name)) is not None}
    if not places:
        return {}
    shared = {turn_id: places.intersection(rows.places) for turn_id, rows in relevance.rows.items()}
    turns_with = Counter(chain.from_iterable(shared.values()))
    rarity = {place: log1p(len(shared) / times) for place, times in turns_with.items()}
    all_rarity = sum(rarity[place] for place in places if place in rarity)
    return {turn_id: sum(map(rarity.__getitem__, found)) / all_rarity for turn_id, found in shared.items() if found}


def _turn_weights(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yield the id and the factor of each turn for which the factor of relevance is not 1: turns that a later one
    repeats, the agent's answers, and calls about what the user named by its path."""
    turns = list(evidence.turns.values())
    named: set[str] = set()
    for turn in turns:
        named |= _paths_in([line.text for line in turn.typed_lines])
    for turn, following in zip_longest(turns, turns[1:]):
        if turn.superseded_by:
            yield turn.turn.id, SUPERSEDED_WEIGHT
        elif turn.turn.kind == "assistant":
            is_replied_to = following is not None and following.turn.live and following.turn.kind == "user"
            yield turn.turn.id, LAST_ANSWER_WEIGHT if is_replied_to else ANSWER_WEIGHT
        elif named and not named.isdisjoint(turn.once(_paths_in_calls)):
            yield turn.turn.id, 1 + NAMED_WEIGHT / len(named)


def _paths_in_calls(turn: TurnEvidence) -> frozenset[str]:
    """Return the paths and addresses in the arguments of the calls in `turn`."""
    return _paths_in(str(value) for call in turn.calls for value in call.input.values())


def _paths_in(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(name for text in texts if "/" in text for name in specifics_of(text) if "/" in name)


def _bases(turn: TurnEvidence) -> Sequence[float]:
    """Return the value of the words of each line of `turn`, in order, without regard to the turn's age; 0 in the middle
    of long blocks. A line that shows a failure has the value of one that the agent wrote."""
    failures, sources = frozenset(turn.failure_lines), turn.lines.sources
    worths = array("d", bytes(8 * len(turn.lines)))
    for text in turn.lines.texts:
        usual = _token_relevance(text.part, text.source, is_failure=False)
        for at, words in text.read_lines():
            number, relevance = at + 1, usual
            if number in failures or number in sources:
                relevance = _token_relevance(text.part, sources.get(number, text.source), number in failures)
            worths[at] = relevance * (min(len(words), INFORMATIVE_CHARACTERS) / 4)  # four characters are a token
    return worths


def _token_relevance(part: Part, source: Source, is_failure: bool) -> float:
    """Return the relevance of each token of a line in this `part` of a turn, by its author and by whether it shows a
    failure."""
    if part == "user" and source == "host":
        return HOST_RELEVANCE
    return PART_RELEVANCE["assistant" if is_failure or source == "user" else part]


def _likelihoods(names: Occurrences, all_lines: int) -> Iterator[float]:
    """Yield for each name the likelihood that the agent uses it again. `all_lines`: number of lines of the history. The
    coefficients are a logistic regression of "the agent itself writes this name later", fitted to public agent sessions
    that were cut at 43 places. Boosted trees over 26 features, cross-validated by session, ranked no better. Two terms
    are left out: a lower score for numbers, which cost answers in support and research, and one for the last turn."""
    characters, all_turns = names.characters, len(names.digests)
    logs = [log1p(number) for number in range(2 * all_turns + 1)]
    writers_score = [sum(WRITER_SCORES[part] for part in WRITERS if bits & BITS[part]) for bits in range(8)]
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
        )
        likelihood = 1 / (1 + exp(-score))
        # the more lines contain a plain word, the less it is worth
        yield likelihood * (1 - log1p(lines) / log_lines) if kind == WORD else likelihood


CONTEXT_CHARACTERS = 60
"""Number of characters on either side of a line in which its neighbours count as its context. A quarter of the line's
length is subtracted, as a long line explains itself. Fitted on questions about literal text (`compactor eval
--probes`)."""
LEAST_CHARACTERS = 8
"""Largest number of remaining characters of that context with which no further neighbour is looked for."""
HEAD_TOKENS = 16
"""Raw tokens that the first shown line of a turn with calls costs in addition, for the turn's id and how a call ended.
"""
MARK_TOKENS = 1
"""Raw tokens of the mark that shows that lines are left out before a line."""
HALF_WORTH_TOKENS = 1_200
"""Raw tokens of picked lines with which further lines of the same turn are worth half, so that one long text does not
take all space. Of 436 questions about 27 sessions it gained 6 at targets of 25, 10 and 5 % together."""
STEM_CHARACTERS, PRINTED_STEM_CHARACTERS = 6, 4
"""Numbers of first letters by which words are compared: those of a text, and those of a line that a program printed.
Endings do not count."""
NEWS_SHARE = 0.2
"""Largest share of new words in a line that a program printed, if it counts as a repetition of another one: the new
words may be a mark or a time."""
MOST_COMPARED = 256
"""Largest number of kept lines with which a line is compared. More would take quadratic time in a long log."""
MOST_CHARACTERS = 255
"""Largest length of a line that is distinguished from longer ones, when its neighbours are looked for."""
ROUNDING = 1e-12
"""Largest difference between sums that count as equal, since the same numbers may be added in another order."""

_WORD = lazy_pattern(r"\w+")
_LONG_WORD = lazy_pattern(r"[^\W\d_]{3,}|\d+")


class Pick(NamedTuple):
    """Neighbouring lines of one turn that are chosen together to fill free space in compacted messages."""

    turn_id: str
    numbers: tuple[int, ...]
    """Numbers of the lines in the turn."""
    priority: float
    """Relevance per raw token that the lines add to the earlier picks. It never rises from one pick to the next."""


def rank_lines(
    evidence: Evidence,
    relevance: Relevance,
    pinned: Mapping[str, frozenset[int]],
    whole: Collection[str],
    budget_tokens: float,
) -> Iterator[Pick]:
    """Rank the lines of a conversation by the relevance that they add per token: yield the best ones first, with the
    neighbours that explain them, until about `budget_tokens` raw tokens are spent.

    `pinned`: numbers of lines that are chosen already, by turn id; `whole`: ids of turns that are wholly chosen
    already. What these contain adds nothing any more. Each pick is computed only when it is asked for.
    """
    kept_texts, weights = KeptTexts(), relevance.weights[:]
    turns: list[_Turn] = []
    for turn_evidence in evidence.turns.values():
        turn = _Turn(turn_evidence, relevance, kept_texts, weights)
        turn.pick_lines(range(1, len(turn.costs) + 1) if turn.id in whole else pinned.get(turn.id, ()))
        turns.append(turn)
    by_worth = _by_worth(turns, whole)
    # a line is worth less once its names are picked elsewhere, so its worth in the heap is an upper bound
    newest = next(by_worth, None)
    heap = [newest] if newest else []
    spent, priority = 0.0, float("inf")
    while heap and spent < budget_tokens:
        best = heappop(heap)
        if best is newest and (newest := next(by_worth, None)):
            heappush(heap, newest)
        _, turn_index, number = best
        turn = turns[turn_index]
        around = turn.with_neighbours(number)
        worth, tokens = turn.worth(around)
        if worth <= 0:
            continue
        if heap and worth < -heap[0][0] - ROUNDING:
            heappush(heap, (-worth, turn_index, number))  # pushed back, as another line may be better now
            continue
        numbers = turn.news(around)
        if number not in numbers:  # the line only repeats kept ones
            continue
        spent += tokens
        priority = min(priority, worth)
        turn.pick_lines(numbers)
        yield Pick(turn.id, numbers, priority)


def _by_worth(turns: Sequence[_Turn], whole: Collection[str]) -> Iterator[tuple[float, int, int]]:
    """Yield the informative lines of all turns that are not `whole`, the best first, as items for a heap: the line's
    relevance per raw token without its neighbours, with the sign reversed; the index of its turn; and its number. Lines
    wait in arrays, as most are never reached."""
    negative_worths, turn_indexes, numbers = array("d"), array("I"), array("I")
    for index, turn in enumerate(turns):
        if turn.id not in whole:
            new = [number for number in turn.informative_lines if number not in turn.picked]
            numbers.extend(new)
            turn_indexes.extend(repeat(index, len(new)))
            negative_worths.extend([-worth for worth in turn.worths_alone(new)])
    for at in array("I", sorted(range(len(numbers)), key=negative_worths.__getitem__)):
        yield negative_worths[at], turn_indexes[at], numbers[at]


class KeptTexts:
    """Lines and statements that are kept already, to find out whether another line only repeats one of them."""

    def __init__(self) -> None:
        """Begin without any lines."""
        self.lines: dict[Hashable, list[tuple[Collection[Hashable], str, str]]] = {}
        """Kept lines by each name that they contain: names, text, and owner (the id of the text that shows the line).
        To save memory, names that occur in one line alone share its list."""

    def add(self, names: Collection[Hashable], text: str, owner: str = "") -> None:
        """Record a kept line with its distinct `names`. `owner`: id of the turn that shows it, if any."""
        line = names, text, owner
        this_line_alone = [line]
        for name in names:
            lines = self.lines.setdefault(name, this_line_alone)
            if lines is this_line_alone:
                continue
            if len(lines) > 1:
                lines.append(line)
            else:
                self.lines[name] = [*lines, line]  # a new list, as the old one may belong to other names, too

    def repeats(
        self, names: Collection[Hashable], text: Callable[[], str], part: Part, owners: Collection[str] = ()
    ) -> bool:
        """Return True if a line adds nothing, because one kept line contains all its `names` and words.

        In a line of a call or a result, a share of `NEWS_SHARE` words may be new. `text`: function that returns the
        line's text, as it is seldom needed; `part`: part of the turn with the line; `owners`: ids of turns whose kept
        lines are not compared.
        """
        all_names, is_printed = frozenset(names), part in ("call", "result")
        if not all_names or not all_names <= self.lines.keys():
            return False
        candidates = min([self.lines[name] for name in names], key=len)[-MOST_COMPARED:]
        texts = [line[1] for line in candidates if line[2] not in owners and all_names.issubset(line[0])]
        words = _words(text(), is_printed) if texts else frozenset()
        most_missing = NEWS_SHARE * len(words) if is_printed else 0
        for folded in map(str.casefold, texts):
            missing = [word for word in words if word not in folded]  # quick test before `folded` is split
            if len(missing) <= most_missing and len(words - _words(folded, is_printed)) <= most_missing:
                return True
        return False

    def add_text(self, text: str, owner: str = "") -> None:
        """Record a kept line with all its names, their parts, and its whole text as a name; `owner`: see `add`."""
        self.add(tuple({*chain.from_iterable(map(parts_of, specifics_of(text))), one_line(text)}), text, owner)

    def repeats_text(self, text: str, part: Part) -> bool:
        """Return True if the line `text` adds nothing to the kept lines, see `repeats`. A line without names repeats
        only an equal line."""
        return self.repeats(specifics_of(text).keys() or [one_line(text)], partial(str, text), part)


def _words(text: str, is_printed: bool) -> frozenset[str]:
    """Return the words of `text` without their endings, so that ``conflicts`` and ``Conflict`` are equal. With
    `is_printed`, a program printed the line, and only words of at least three letters and numbers are returned:
    ``not``, ``4``; not ``if``, ``M``."""
    words = (_LONG_WORD if is_printed else _WORD).findall(text.casefold())
    stem = PRINTED_STEM_CHARACTERS if is_printed else STEM_CHARACTERS
    return frozenset([word[:stem] if word.isalpha() else word for word in words])


class _Turn:
    """Lines of a turn while they are ranked: the value and the cost of each, and which are picked already."""

    def __init__(
        self, evidence: TurnEvidence, relevance: Relevance, kept_texts: KeptTexts, weights: array[float]
    ) -> None:
        """Begin without picked lines. `weights`: those of `relevance`, but 0 for the names of picked lines, which all
        turns share."""
        self.id = turn_id = evidence.turn.id
        self.rows, self.bases = relevance.rows[turn_id], relevance.bases[turn_id]
        self._recency = relevance.recencies[turn_id]
        self.weight = relevance.turn_weights.get(turn_id, 1.0)
        self.costs = evidence.line_tokens
        self.picked: set[int] = set()
        self._picked_tokens = 0
        self.lines, self._weights, self._kept_texts = evidence.lines, weights, kept_texts
        self._head = HEAD_TOKENS if evidence.calls else 1
        lengths = (text.stop - text.first for text in evidence.lines.texts)
        weights_of_lines = map(repeat, evidence.once(_block_weights), lengths)
        self._block_weights = array("d", chain.from_iterable(weights_of_lines))
        self.informative_lines = evidence.once(_informative_lines)
        self._lengths = evidence.once(_lengths)
        self._neighbours = evidence.once(_neighbours)

    def worth(self, numbers: Iterable[int]) -> tuple[float, int]:
        """Return the value per raw token that the lines with these `numbers` add to the picked ones, and the raw tokens
        that they cost. A name that is kept already adds nothing, and the more tokens of the turn are picked, the less
        is added."""
        value, cost = 0.0, 0 if self.picked else self._head
        for number in numbers:
            if number not in self.picked:
                value += self._value(number)
                cost += self.costs[number - 1] + MARK_TOKENS
        share = HALF_WORTH_TOKENS / (HALF_WORTH_TOKENS + self._picked_tokens)
        return value * self.weight * share / (cost or 1), cost

    def worths_alone(self, numbers: Sequence[int]) -> list[float]:
        """Return the value per raw token that each of the lines with these `numbers` adds alone. None of them may be
        picked already."""
        head = MARK_TOKENS if self.picked else MARK_TOKENS + self._head
        return [self._value(number) * self.weight / (self.costs[number - 1] + head) for number in numbers]

    def _value(self, number: int) -> float:
        """Return the value that the line `number` adds to the kept lines, without its turn's factor."""
        bounds, weights = self.rows.bounds, self._weights
        names = self.rows.places[bounds[number - 1] : bounds[number]]
        # a list takes three quarters of the time of `map`
        value = sum([weights[name] for name in names], self.bases[number - 1] * self._recency)
        return value * self._block_weights[number - 1]

    def with_neighbours(self, number: int) -> range:
        """Return the numbers of the line `number` and of the neighbours that explain it."""
        # places in the cache of the numbers of lines before and after this one, both with the line itself
        cache, before, after = self._neighbours, 2 * number, 2 * number + 1
        if not cache[before]:
            around = _with_neighbours(self.lines.text_at(number - 1), self._lengths, number)
            cache[before], cache[after] = number - around.start + 1, around.stop - number
        return range(number + 1 - cache[before], number + cache[after])

    def news(self, numbers: range) -> tuple[int, ...]:
        """Return those of the line `numbers`, all in one block, that are picked or add something to the kept lines."""
        new, part = list[int](), self.lines.text_at(numbers.start - 1).part
        for number in numbers:
            names = self.rows.between(number - 1, number)
            if number in self.picked or not self._kept_texts.repeats(names, partial(self.lines.text, number), part):
                new.append(number)
        return tuple(new)

    def pick_lines(self, numbers: Iterable[int]) -> None:
        """Record the lines with these `numbers` as picked, so that the names in them add nothing to other lines."""
        for number in numbers:
            if number not in self.picked:
                names = self.rows.between(number - 1, number)
                self._kept_texts.add(names, self.lines.text(number))
                self._picked_tokens += self.costs[number - 1]
                for name in names:
                    self._weights[name] = 0.0
            self.picked.add(number)


def _neighbours(turn: TurnEvidence) -> bytearray:
    """Return an empty cache for the neighbours that explain each line, which all plans share. Line n has bytes 2n and
    2n + 1: the numbers of lines from its first neighbour to itself, and from itself to its last; 0 if unknown."""
    return bytearray(2 * len(turn.lines) + 2)


def _block_weights(turn: TurnEvidence) -> Sequence[float]:
    """Return the factor of each block, in order: up to `SHORT_RESULT_WEIGHT` for a tool result, higher for a shorter
    one, and 1 for other blocks."""
    widths = (text_width(text.text) if text.part == "result" else inf for text in turn.lines.texts)
    shares = (SHORT_RESULT_WIDTH / max(SHORT_RESULT_WIDTH, width) for width in widths)
    return tuple([1 + (SHORT_RESULT_WEIGHT - 1) * share for share in shares])


def _lengths(turn: TurnEvidence) -> Sequence[int]:
    """Return the number of characters of each line without blanks at its ends, in order. A longer line counts as
    `MOST_CHARACTERS`, so that each takes one byte of memory."""
    lengths = bytearray()
    for text in turn.lines.texts:
        lines = (text.text[start:stop] for start, stop in pairwise(text.bounds))
        lengths.extend([min(len(line.strip()), MOST_CHARACTERS) for line in lines])
    return lengths


def _informative_lines(turn: TurnEvidence) -> array[int]:
    """Return the numbers of the lines that may be worth showing. Lines are left out that are empty, encoded, fixed text
    of the host program, progress of a successful run, or unchanged by an edit."""
    idle, lengths = turn.boilerplate_lines | turn.idle_lines | turn.unchanged_lines, turn.once(_lengths)
    read = ((at, text) for text in turn.lines.texts for at in text.read if lengths[at] and at + 1 not in idle)
    return array(
        "I", [at + 1 for at, text in read if lengths[at] < ENCODED_CHARACTERS or not is_encoded(text.words(at))]
    )


def _with_neighbours(text: BlockText, lengths: Sequence[int], number: int) -> range:
    """Return the numbers of the line `number` of `text` and of its nearest neighbours, which explain it: so many that
    they are half of the text near it. A long line has no neighbours, as it explains itself, nor has the line with the
    short arguments of a call. `lengths`: see `_lengths`."""
    at, first, last = number - 1, number, number
    length = lengths[at]
    room = CONTEXT_CHARACTERS - length // 4
    is_long = length >= 2 * room  # it is at least half of the text that counts as near
    if is_long or (text.part == "call" and at == text.first):
        return range(number, number + 1)
    after = _near(text, lengths, range(at + 1, text.stop), room)
    before = _near(text, lengths, range(at - 1, text.first - 1, -1), room)
    all_characters, picked_characters = length + sum(after) + sum(before), length
    for below, above in zip_longest(after, before):
        if below is not None and 2 * picked_characters < all_characters:
            last, picked_characters = last + 1, picked_characters + below
        if above is not None and 2 * picked_characters < all_characters:
            first, picked_characters = first - 1, picked_characters + above
    return range(first, last + 1)


def _near(text: BlockText, lengths: Sequence[int], indexes: Iterable[int], room: int) -> list[int]:
    """Return how many characters of each line near another one count as context. Lines are read in the order of
    `indexes` until they have `room` characters together. `lengths`: see `_lengths`."""
    near = []
    for index in indexes:
        if room <= LEAST_CHARACTERS:
            break
        near.append(min(lengths[index], room))
        room -= text.size(index)
    return near
