"""Chooses the lines on the cards, the excerpts of turns that the planner model reads.

All lines of the turns are put in one order, and the first that fit in the budget are shown. The order does not depend
on the budget, so a larger budget shows everything that a smaller one shows. Three queues share the budget: (1) short
texts, the ends of long ones, and everything that people typed; (2) the agent's own texts; (3) all lines by relevance
per token. Sizes are in raw tokens: those of a `TokenCounter` before it multiplies by its `scale`.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from planner.evidence import TurnEvidence
from planner.placeholders import argument_lines, call_line
from planner.plan import PlanRequest
from planner.programming.coding_tools import commands_in
from planner.reading.lines import BlockText, Line, is_encoded, text_width, without_escapes
from planner.relevance import rank_lines

SHORT_TOKENS = 100
"""Size in raw tokens up to which a text is shown whole: the replies of a game, most answers of tools, people's
messages. With 30, the excerpts of a game session answered 12 of 16 test questions; with 60, 13; with 100, all."""
RECENT_TURNS = 4
"""Number of newest turns whose cards show the ends of long tool results. In recent turns also longer calls and results
are shown whole: in the newest one up to five times `SHORT_TOKENS`, and less in each earlier turn."""
SHARES = (0.7, 0.1, 0.2)
"""Shares of the token budget for the three queues of lines: short texts, ends and typed words; the agent's texts; the
most relevant lines. A queue without further lines leaves its share to the others. With a first share of .5, the cards
of a group chat answered 9 of 16 test questions; with .7 and .9, 15."""
NUMBER_TOKENS = 2.5
"""Raw tokens that a line of a card costs beyond its text: number, mark and line break (2.3 to 2.6 in six sessions)."""
FOLD_TOKENS = 14
"""Raw tokens of the one header that neighbouring turns without cards share."""
REPEAT_TOKENS = 7
"""Raw tokens of the remark in the header of a turn's excerpt that another excerpt shows the same lines."""
GAP_LINES = 2
"""Largest number of lines between two shown lines that are shown, too, as scattered lines are hard to read."""
SENTENCE_WIDTH = 48
"""Smallest width (a Chinese character counts as 3) of a line that counts as prose; it also has no marks of code."""
REPEAT_CHARACTERS = 24
"""Smallest length of a line that is left out because another turn's card shows the same text."""

_NUMBERED_ANYWHERE = re.compile(r"\A\s*(\d{1,9})([→:])")
"""Line number that a tool prints before a line of any output: `` 12→``, ``12: ``."""
_NUMBERED_FILE = re.compile(r"\A\s*(\d{1,9})([→:\t]| \|)")
"""Line number that a tool prints before a line of a file: also ``12<tab>`` and ``12 | ``, which elsewhere are data:
``4711<tab>user_0``."""
_CODE_MARKS = frozenset("{};=|<>")
"""Characters that a line of prose does not contain."""
LEAST_NUMBERED = 3
"""Smallest number of lines with consecutive numbers from which the numbers count as printed by the tool."""
_KEYS = re.compile(r"\bdescription=.*|\b\w++=")
"""Parts of a call's line that the header of a card leaves out: argument names (``path=``), descriptions."""
_BETWEEN = re.compile(r"[;,]|\b\w+=")
"""Text between the words of calls in the header of a card: ``TaskUpdate taskId=5, status=done; Read a.py``."""


class LineGroup(NamedTuple):
    """Lines of one turn that are shown to the planner model together, or left out together."""

    turn: TurnEvidence
    numbers: Sequence[int]


def card_line(request: PlanRequest, turn: TurnEvidence, line: Line) -> str:
    """Return `line` of `turn` as the planner model reads it: without terminal colours, with relative paths, and without
    the line number that the tool printed before it, as the card has its own numbers."""
    text = line.text[turn.once(_viewer_numbers).get(line.number, 0) :]
    call = turn.once(argument_lines).get(line.number) if line.part == "call" else None
    evidence = request.evidence
    return evidence.shown(without_escapes(text) if call is None else call_line(call, text, evidence.root))


def _viewer_numbers(turn: TurnEvidence) -> Mapping[int, int]:
    """Return by line number the length of the number that a tool printed at the start of a line. A result whose
    printed numbers are mostly not consecutive has none, as those numbers are data."""
    lengths: dict[int, int] = {}
    for call in turn.calls:
        shows_file = call.kind in ("read", "write") and (call.path or commands_in(call))
        form = _NUMBERED_FILE if shows_file else _NUMBERED_ANYWHERE
        numbered: dict[int, int] = {}
        consecutive, expected = 0, ""
        for line in turn.lines.of_block(call.result_block):
            if not line.continues and (prefix := form.match(line.text)):
                numbered[line.number] = prefix.end()
                consecutive += f"{prefix[1]}{prefix[2]}" == expected
                expected = f"{int(prefix[1]) + 1}{prefix[2]}"
        if consecutive >= max(LEAST_NUMBERED - 1, len(numbered) / 2):
            lengths |= numbered
    return lengths


def lines_of_cards(
    request: PlanRequest, turns: Sequence[TurnEvidence], header: Callable[[TurnEvidence], str], most_raw_tokens: float
) -> Mapping[str, tuple[frozenset[int], Mapping[str, int]]]:
    """Choose the lines that the cards of `turns` show. The lines, the `header` of each card, and one header for each
    group of neighbouring turns without cards take at most `most_raw_tokens` together.

    Return two values for each turn with a card, by its id: the numbers of the shown lines; and how many result lines
    are left out because another card shows the same text, by the other's id (``{"t12": 30}``: the page was unchanged).
    """
    cards = _Cards(request, turns, header, most_raw_tokens)
    for group in _in_order(request, turns):
        if not cards.add(group):
            break
    repeats = _repeats_by_source(request, turns, cards)
    return {turn_id: (frozenset(numbers), repeats[turn_id]) for turn_id, numbers in cards.shown.items()}


def _repeats_by_source(
    request: PlanRequest, turns: Sequence[TurnEvidence], cards: _Cards
) -> Mapping[str, Mapping[str, int]]:
    """Return by turn id how many of its left-out lines each other card shows (see `lines_of_cards`). Only cards are
    counted that have reserved the tokens for this remark in their header."""
    by_id = {turn.turn.id: turn for turn in turns}
    shown_in: dict[str, str] = {}
    for turn_id, numbers in cards.shown.items():
        for number in numbers:
            line = by_id[turn_id].lines[number - 1]
            shown_in.setdefault(_unmarked(card_line(request, by_id[turn_id], line)), turn_id)
    repeats: dict[str, Counter[str]] = defaultdict(Counter)
    for turn_id in cards.with_remark & cards.shown.keys():
        turn, shown = by_id[turn_id], cards.shown[turn_id]
        for line in turn.lines:
            if line.part == "result" and line.number not in shown and not _is_hidden(turn, line.number):
                plain = _unmarked(card_line(request, turn, line))
                if len(plain) >= REPEAT_CHARACTERS and shown_in.get(plain, turn_id) != turn_id:
                    repeats[turn_id][shown_in[plain]] += 1
    return repeats


def _in_order(request: PlanRequest, turns: Sequence[TurnEvidence]) -> Iterator[LineGroup]:
    """Yield the lines of `turns` in groups, the most useful for the planner model first. Of turns that the agent has
    not answered yet, all but short texts, ends and written texts come last, as these turns stay whole in any case."""
    live = [turn for turn in turns if turn.turn.live]
    evidence = replace(request.evidence, turns={turn.turn.id: turn for turn in turns})
    ranked = rank_lines(evidence, request.relevance, {}, [turn.turn.id for turn in live], math.inf)
    needed = (LineGroup(evidence.turns[pick.turn_id], pick.numbers) for pick in ranked)
    others = _figures_first(turn for turn in reversed(turns) if not turn.turn.live)
    staying = (LineGroup(turn, [line.number]) for turn in live for line in turn.lines.to_read())
    return _by_share(zip((_first_lines(turns), _written(turns), chain(needed, others, staying)), SHARES, strict=True))


def _figures_first(turns: Iterable[TurnEvidence]) -> Iterator[LineGroup]:
    """Yield each line of `turns` as a group of its own: lines with digits before others, then short before long. The
    ranking by relevance leaves out repeated values, such as amounts; here they get a place on the cards."""

    def order(group: LineGroup) -> tuple[bool, float]:
        (number,) = group.numbers
        has_figure = any(map(str.isdigit, group.turn.lines.text(number)))
        return not has_figure, group.turn.line_tokens[number - 1]

    yield from sorted((LineGroup(turn, [line.number]) for turn in turns for line in turn.lines.to_read()), key=order)


def _by_share(queues: Iterable[tuple[Iterator[LineGroup], float]]) -> Iterator[LineGroup]:
    """Merge `queues`: the next group comes from the one furthest below its share of tokens. Repeated lines go out."""
    shares = dict(queues)
    spent = dict.fromkeys(shares, 0.0)
    seen: dict[str, set[int]] = defaultdict(set)
    while spent:
        queue = min(spent, key=lambda queue: spent[queue] / shares[queue])
        group = next(queue, None)
        if group is None:
            del spent[queue]
            continue
        seen_of_turn = seen[group.turn.turn.id]
        new_numbers = [number for number in group.numbers if number not in seen_of_turn]
        seen_of_turn.update(new_numbers)
        spent[queue] += group.turn.tokens_of(new_numbers) + NUMBER_TOKENS * len(new_numbers)
        if new_numbers:
            yield LineGroup(group.turn, new_numbers)


def _written(turns: Sequence[TurnEvidence]) -> Iterator[LineGroup]:
    """Yield, line by line, the texts of an earlier compaction; then what the agent wrote: its answers, its questions
    with their options, and sentences in calls (letters, documents). New texts come before old ones, and the last line
    of a text before its first."""
    for turn in reversed(turns):
        yield from (LineGroup(turn, [line.number]) for line in reversed([*turn.lines.of_sources("planner")]))
    texts = [(turn, text) for turn in reversed(turns) for text in reversed(turn.lines.texts)]
    for turn, text in texts:
        is_question = any(call.kind == "ask" and text.block in (call.block, call.result_block) for call in turn.calls)
        is_whole = is_question or (text.part == "assistant" and not turn.calls)
        if is_whole or text.part == "call":
            lines = (turn.lines[number - 1] for number in reversed(_showable(turn, text)))
            yield from (LineGroup(turn, [line.number]) for line in lines if is_whole or is_sentence(line.text))


def is_sentence(text: str) -> bool:
    """Return True if the line `text` is prose in any script, and not code, a heading, or a row of a table."""
    return text_width(text) >= SENTENCE_WIDTH and _CODE_MARKS.isdisjoint(text)


def _first_lines(turns: Sequence[TurnEvidence]) -> Iterator[LineGroup]:
    """Yield the lines that nearly every card should show, in groups: short texts, the ends of long ones and why
    something failed, from the first turn and then the newest turns; then all that people typed, short messages first;
    then short texts that the agent wrote before its calls."""
    newest = [*turns[:1], *reversed(turns[1:])]
    for turn in newest:
        age = turns[-1].turn.number - turn.turn.number
        yield from (
            LineGroup(turn, numbers) for text in turn.lines.texts if (numbers := _short_or_ends(turn, text, age))
        )
        if turn.decisive_lines:
            yield LineGroup(turn, turn.decisive_lines)
    for turn in sorted(turns, key=lambda turn: turn.tokens_of(line.number for line in turn.typed_lines)):
        yield from (LineGroup(turn, [line.number]) for line in turn.typed_lines)
    for turn in newest:
        texts = (_showable(turn, text) for text in turn.lines.texts if text.part == "assistant")
        yield from (LineGroup(turn, numbers) for numbers in texts if turn.tokens_of(numbers) <= SHORT_TOKENS)


def _short_or_ends(turn: TurnEvidence, text: BlockText, age: int) -> Sequence[int]:
    """Return the numbers of the lines that represent `text` on a card. `age`: number of turns after `turn`.

    A short text is shown whole, unless the agent wrote it with tool calls, as it mostly announces them: then no line is
    shown. Of a long message the ends of its typed lines are shown, of a call its first line, of a recent result its
    ends, and of an older result the lines with its outcome.
    """
    numbers = _showable(turn, text)
    tokens, limit = turn.tokens_of(numbers), SHORT_TOKENS * (1 + RECENT_TURNS / (1 + age))
    if text.part in ("user", "assistant") and tokens > SHORT_TOKENS:
        typed = frozenset(line.number for line in turn.typed_lines)
        return _ends(turn, [number for number in numbers if number in typed], SHORT_TOKENS / 2)
    if tokens <= limit:
        return () if text.part == "assistant" and turn.calls else numbers
    if text.part == "call":
        return numbers[:1]
    if age < RECENT_TURNS:
        return _ends(turn, numbers, limit / 2)
    outcome_lines = (outcome.lines for _, call, outcome in turn.ended_calls if call.result_block == text.block)
    return sorted(frozenset().union(*outcome_lines))


def _showable(turn: TurnEvidence, text: BlockText) -> list[int]:
    """Return the numbers of the lines of `text` that a card may show."""
    return [index + 1 for index in text.read if not _is_hidden(turn, index + 1)]


def _ends(turn: TurnEvidence, numbers: Sequence[int], most_tokens: float) -> Sequence[int]:
    """Return the line `numbers` at the beginning and at the end: at either end lines of at most `most_tokens` raw
    tokens together, or one line if that is longer."""
    ends: set[int] = set()
    for from_one_end in (numbers, numbers[::-1]):
        spent = 0
        for number in from_one_end:
            spent += turn.line_tokens[number - 1]
            if spent > most_tokens and number != from_one_end[0]:
                break
            ends.add(number)
    return sorted(ends)


def _is_hidden(turn: TurnEvidence, number: int) -> bool:
    """Return True if no card shows the line, as it has no content: encoded data, text that the host program adds to
    every conversation, all but the end of a successful run's output, or a line without a word (``)``) that the user did
    not type."""
    text = turn.lines.text(number)
    if number in turn.boilerplate_lines or number in turn.idle_lines or is_encoded(text):
        return True
    has_word, is_typed = any(map(str.isalnum, text)), turn.lines[number - 1].source == "user"
    return not has_word and not (is_typed and text.strip())


class _Cards:
    """Lines chosen so far for the cards of all turns. No card, nor all together, exceed their limits of raw tokens."""

    def __init__(
        self, request: PlanRequest, turns: Sequence[TurnEvidence], header: Callable[[TurnEvidence], str], limit: float
    ) -> None:
        self.shown: dict[str, set[int]] = {}
        """Numbers of the shown lines, by the ids of the turns with their own card."""
        self.with_remark: set[str] = set()
        """Ids of the turns for which a remark on repeated lines is counted in the size of their header."""
        self._request, self._header = request, header
        self._unspent = limit - FOLD_TOKENS
        self._most_of_card = request.settings.piece_tokens / request.counter.scale / 2  # half of a question
        self._spent_by_turn: dict[str, float] = defaultdict(float)
        self._places = {turn.turn.id: place for place, turn in enumerate(turns, 1)}
        self._without_card = [False, *[True] * len(turns), False]
        """True at the place of each turn without its own card, counted from 1; False before the first and after the
        last, so that every turn has neighbours."""
        self._texts: dict[str, set[str]] = defaultdict(set)
        """Texts of all shown lines under ""; the same by the part of a turn, ``result``; the user's also by turn id."""

    def add(self, group: LineGroup) -> bool:
        """Add the lines of `group` to the card of its turn, and those in short gaps between shown lines. A group that
        would make its card too large is skipped. Return False if it would make all cards together too large."""
        turn, turn_id, candidates = group.turn, group.turn.turn.id, self._candidates(group)
        repeats = {n for n, text in candidates.items() if self._is_repeat(turn, turn.lines[n - 1], text)}
        texts = {number: text for number, text in candidates.items() if number not in repeats}
        cost = sum(self._request.counter.raw(text) + NUMBER_TOKENS for text in texts.values())
        if turn_id not in self.with_remark and any(turn.lines[number - 1].part == "result" for number in repeats):
            self.with_remark.add(turn_id)
            cost += REPEAT_TOKENS
        has_card = turn_id in self.shown
        if has_card and self._spent_by_turn[turn_id] + cost > self._most_of_card:
            return True
        cost_with_card = cost if has_card else cost + self._card_tokens(turn)
        if cost_with_card > self._unspent:
            return False
        self._unspent -= cost_with_card
        self._spent_by_turn[turn_id] += cost
        self._without_card[self._places[turn_id]] = False
        self._show(turn, texts)
        return True

    def _candidates(self, group: LineGroup) -> Mapping[int, str]:
        """Return the texts, by line number, that `group` would add to a card: of its lines, and of short gaps."""
        turn, shown = group.turn, self.shown.get(group.turn.turn.id, set())
        new = set(group.numbers) - shown
        numbers = sorted({*new, *_between(turn, new, shown)} - shown)
        return {n: card_line(self._request, turn, turn.lines[n - 1]) for n in numbers if not _is_hidden(turn, n)}

    def _show(self, turn: TurnEvidence, texts: Mapping[int, str]) -> None:
        """Add the lines `texts`, by number, to the card of `turn`, and to the texts that no other line may repeat."""
        self.shown.setdefault(turn.turn.id, set()).update(texts)
        for number, text in texts.items():
            line = turn.lines[number - 1]
            for key in ("", line.part, *([turn.turn.id] if line.source == "user" else [])):
                self._texts[key].add(_unmarked(text))

    def _card_tokens(self, turn: TurnEvidence) -> float:
        """Return the raw tokens that all cards grow by if `turn` gets a card without lines: its header, and one shared
        header more or fewer, as the groups of its neighbours change."""
        place = self._places[turn.turn.id]  # a card splits its turn's group, or ends it if the turn was alone
        more_runs = self._without_card[place - 1] + self._without_card[place + 1] - 1
        return self._request.counter.raw(self._header(turn)) + 1 + more_runs * FOLD_TOKENS

    def _is_repeat(self, turn: TurnEvidence, line: Line, text: str) -> bool:
        """Return True if `line`, which its card would show as `text`, can be left out, as the same text is shown.

        A line of the user is compared with those of its own turn; a short one with a digit is never a repeat. A line of
        a result is compared with all shown lines, and any other only with those of the same part, as the announcement
        of an action does not show that it was done. A line of a call also repeats what the header shows.
        """
        plain = _unmarked(text)
        is_short = len(plain) < REPEAT_CHARACTERS
        if line.source == "user":
            is_value = is_short and any(map(str.isdigit, plain))
            return not is_value and plain in self._texts[turn.turn.id]
        if line.number in turn.obligations:  # why something failed
            return False
        if line.part == "call" and is_in_header(text, self._header(turn)):
            return True
        return not is_short and plain in self._texts["" if line.part == "result" else line.part]


def _between(turn: TurnEvidence, new: Set[int], shown: Set[int]) -> Iterator[int]:
    """Yield the numbers of the lines in short gaps: between a line of `new` and another of `new` or `shown` at most
    `GAP_LINES` + 1 lines away in the same text."""
    for number in new:
        for step in (-1, 1):
            near = range(number + step, number + step * (GAP_LINES + 2), step)
            other = next((at for at in near if at in shown or at in new), number)
            before, after = min(number, other), max(number, other)
            if turn.lines.text_at(before - 1).stop >= after:  # in one text
                yield from range(before + 1, after)


def is_in_header(text: str, header: str) -> bool:
    """Return True if the `header` of a card contains all words of `text`, the line of a call."""
    return _words(_KEYS.sub(" ", text)) <= _words(header)


def _words(text: str) -> set[str]:
    return set(_BETWEEN.sub(" ", text).split())


def _unmarked(text: str) -> str:
    """Return `text` without the ``+`` or ``-`` of a diff, so that it equals the same line in the text of an edit."""
    return text.strip().lstrip("+-").strip()
