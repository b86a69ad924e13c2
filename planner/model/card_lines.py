"""Chooses the lines on the cards: one order of all lines of the turns, cut off at the end of the budget.

The order depends on the turns alone, so a larger budget shows everything that a smaller one shows. Three queues share
the budget: short texts, the ends of long ones and everything that people typed; the agent's own texts; and all lines by
relevance per token, as the rules planner ranks them.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain

from planner.evidence import TurnEvidence
from planner.placeholders import argument_lines, call_line
from planner.programming.coding_tools import commands_in
from planner.proposal import PlanRequest
from planner.reading.lines import BlockText, Line, is_encoded, text_width, without_escapes
from planner.relevance.ranking import rank_lines

__all__ = ["card_text", "is_in_header", "is_sentence", "lines_of_cards", "sources_of_repeats"]

SHORT_TOKENS = 100
"""Size in raw tokens up to which a text is shown whole: the replies of a game, most answers of tools, people's
messages. With 30 the cards of a game contained 12 of 16 answers, with 60 13, with 100 all."""
RECENT_TURNS = 4
"""Number of newest turns of which the ends of long results are shown; also by how much longer than `SHORT_TOKENS` a
text of the newest turn may be to be shown whole: five times, and less for each earlier turn."""
SHARES = (0.7, 0.1, 0.2)
"""Shares of the budget for three queues while they have lines: short texts, ends and typed words; the agent's texts;
the most relevant lines. With half for the first the cards of a group chat contained 9 of 16 answers, with .7 and .9
15."""
NUMBER_TOKENS = 2.5
"""Raw tokens of a line's number, mark and line break (2.3 to 2.6 on the cards of six sessions)."""
FOLD_TOKENS = 14
"""Raw tokens of the header of a run of turns without their own cards."""
GAP_LINES = 2
"""Largest number of lines between two shown lines that are also shown, as scattered lines of code are unreadable."""
SENTENCE_WIDTH = 48
"""Width from which a line without marks of code counts as prose."""
REPEAT_CHARACTERS = 24
"""Length of a line from which it is left out if another card shows the same text."""

_NUMBERED = re.compile(r"\A\s*(\d{1,9})([→:\t]| \|)")
_NUMBERED_ANYWHERE = re.compile(r"\A\s*(\d{1,9})([→:])")
"""Number that a viewer prints before a line: `` 12→``, ``12: ``; in the first pattern, for files, also ``12<tab>`` and
``12 | ``, which elsewhere are a column of data: ``4711<tab>user_0``."""
_CODE_MARKS = frozenset("{};=|<>")
"""Characters that a line of prose does not contain."""
LEAST_NUMBERED = 3
"""Smallest number of lines with consecutive numbers that count as numbered by a viewer."""
_KEYS = re.compile(r"\bdescription=.*|\b\w++=")
_BETWEEN = re.compile(r"[;,]|\b\w+=")
"""Separator of a call's words in a header: ``TaskUpdate taskId=5, status=done; Read a.py``."""

Piece = tuple[TurnEvidence, Sequence[int]]
"""Turn, and the numbers of some of its lines that are shown or left out together."""


def card_text(request: PlanRequest, turn: TurnEvidence, line: Line) -> str:
    """Return `line` of `turn` as a card shows it: without colours, with relative paths, and without a viewer's number,
    as cards have their own."""
    text = line.text[turn.once(_viewer_numbers).get(line.number, 0) :]
    call = turn.once(argument_lines).get(line.number) if line.part == "call" else None
    evidence = request.evidence
    return evidence.shown(without_escapes(text) if call is None else call_line(call, text, evidence.root))


def _viewer_numbers(turn: TurnEvidence) -> Mapping[int, int]:
    """Return by line number where the text of a line that a viewer numbered begins. Lines of a result count as numbered
    if most of those that begin with a number are consecutive."""
    starts: dict[int, int] = {}
    for call in turn.calls:
        form = _NUMBERED if call.kind in ("read", "write") and (call.path or commands_in(call)) else _NUMBERED_ANYWHERE
        numbered: dict[int, int] = {}
        consecutive, expected = 0, ""
        for line in turn.lines_of(call.result_block):
            if not line.continues and (prefix := form.match(line.text)):
                numbered[line.number] = prefix.end()
                consecutive += f"{prefix[1]}{prefix[2]}" == expected
                expected = f"{int(prefix[1]) + 1}{prefix[2]}"
        if consecutive >= max(LEAST_NUMBERED - 1, len(numbered) / 2):
            starts |= numbered
    return starts


def lines_of_cards(
    request: PlanRequest, turns: Sequence[TurnEvidence], header: Callable[[TurnEvidence], str], most_raw_tokens: float
) -> Mapping[str, frozenset[int]]:
    """Return the numbers of the lines to show, by the ids of the turns with their own cards.

    Together with the `header` of each such turn, and one header for each run of other turns, they take at most
    `most_raw_tokens`.
    """
    cards = _Cards(request, turns, header)
    for turn, numbers in _in_order(request, turns):
        if not cards.take(turn, numbers, most_raw_tokens):
            break
    return {turn_id: frozenset(numbers) for turn_id, numbers in cards.shown.items()}


def sources_of_repeats(
    request: PlanRequest, turns: Sequence[TurnEvidence], shown: Mapping[str, Set[int]]
) -> Mapping[str, Mapping[str, int]]:
    """Return which cards show the lines of results that are left out, as a planner would otherwise not know that a page
    or a room still looks as before: by turn id, the number of such lines by the id of the turn that shows them.

    `shown`: numbers of the shown lines by turn id.
    """
    with_cards = [turn for turn in turns if turn.turn.id in shown]
    shown_in: dict[str, str] = {}
    for turn in with_cards:
        for number in shown[turn.turn.id]:
            shown_in.setdefault(_unmarked(card_text(request, turn, turn.lines[number - 1])), turn.turn.id)
    repeats: dict[str, Counter[str]] = {turn.turn.id: Counter() for turn in with_cards}
    for turn in with_cards:
        for line in turn.lines:
            if line.part == "result" and line.number not in shown[turn.turn.id] and not _is_hidden(turn, line.number):
                plain = _unmarked(card_text(request, turn, line))
                if len(plain) >= REPEAT_CHARACTERS and shown_in.get(plain, turn.turn.id) != turn.turn.id:
                    repeats[turn.turn.id][shown_in[plain]] += 1
    return repeats


def _in_order(request: PlanRequest, turns: Sequence[TurnEvidence]) -> Iterator[Piece]:
    """Yield the lines of `turns` in pieces, the most needed first; those of the live tail, which stays whole, last."""
    live = [turn for turn in turns if turn.turn.live]
    evidence = replace(request.evidence, turns={turn.turn.id: turn for turn in turns})
    ranked = rank_lines(evidence, request.relevance, {}, [turn.turn.id for turn in live], math.inf)
    needed = ((evidence.turns[pick.turn_id], pick.numbers) for pick in ranked)
    others = _figures_first(turn for turn in reversed(turns) if not turn.turn.live)
    staying = ((turn, [line.number]) for turn in live for line in turn.lines.to_read())
    return _by_share(zip((_first_lines(turns), _written(turns), chain(needed, others, staying)), SHARES, strict=True))


def _figures_first(turns: Iterable[TurnEvidence]) -> Iterator[Piece]:
    """Yield each line as a piece, those with figures and short ones first; the ranking leaves out repeated values."""
    lines = ((turn, line) for turn in turns for line in turn.lines.to_read())
    order = (
        (not any(map(str.isdigit, line.text)), turn.line_tokens[line.number - 1], turn, line) for turn, line in lines
    )
    yield from ((turn, [line.number]) for _, _, turn, line in sorted(order, key=lambda one: one[:2]))


def _by_share(queues: Iterable[tuple[Iterator[Piece], float]]) -> Iterator[Piece]:
    """Yield pieces of all queues without lines that came before, always from the queue furthest below its share."""
    shares = dict(queues)
    spent = dict.fromkeys(shares, 0.0)
    seen: dict[str, set[int]] = defaultdict(set)
    while spent:
        queue = min(spent, key=lambda queue: spent[queue] / shares[queue])
        piece = next(queue, None)
        if piece is None:
            del spent[queue]
            continue
        turn, numbers = piece
        new = [number for number in numbers if number not in seen[turn.turn.id]]
        seen[turn.turn.id].update(new)
        spent[queue] += turn.tokens_of(new) + NUMBER_TOKENS * len(new)
        if new:
            yield turn, new


def _written(turns: Sequence[TurnEvidence]) -> Iterator[Piece]:
    """Yield an earlier compaction's text; then the agent's answers, its questions with their options, and sentences
    that it wrote in calls (letters, documents): the newest first, each from its end."""
    for turn in reversed(turns):
        yield from ((turn, [line.number]) for line in reversed([*turn.lines.of_sources("planner")]))
    texts = [(turn, text) for turn in reversed(turns) for text in reversed(turn.lines.texts)]
    for turn, text in texts:
        asked = any(call.kind == "ask" and text.block in (call.block, call.result_block) for call in turn.calls)
        is_answer = asked or (text.part == "assistant" and not turn.calls)
        if is_answer or text.part == "call":
            lines = (turn.lines[number - 1] for number in reversed(_filled(turn, text)))
            yield from ((turn, [line.number]) for line in lines if is_answer or is_sentence(line.text))


def is_sentence(text: str) -> bool:
    """Return True for a line of prose in any script: not for code, a heading, or a row of a table."""
    return text_width(text) >= SENTENCE_WIDTH and _CODE_MARKS.isdisjoint(text)


def _first_lines(turns: Sequence[TurnEvidence]) -> Iterator[Piece]:
    """Yield short texts and the ends of long ones, the first message first and then the newest; then everything that
    people typed, the shortest message first; then short texts of the agent with its calls."""
    newest = [*turns[:1], *reversed(turns[1:])]
    for turn in newest:
        age = turns[-1].turn.number - turn.turn.number
        yield from ((turn, numbers) for text in turn.lines.texts if (numbers := _short_or_ends(turn, text, age)))
        if turn.decisive_lines:
            yield turn, turn.decisive_lines
    for turn in sorted(turns, key=lambda turn: turn.tokens_of(line.number for line in turn.typed_lines)):
        yield from ((turn, [line.number]) for line in turn.typed_lines)
    for turn in newest:
        beside = (_filled(turn, text) for text in turn.lines.texts if text.part == "assistant")
        yield from ((turn, numbers) for numbers in beside if turn.tokens_of(numbers) <= SHORT_TOKENS)


def _short_or_ends(turn: TurnEvidence, text: BlockText, age: int) -> Sequence[int]:
    """Return the numbers of the lines of `text` that represent it on a card; `age`: number of turns after this one.

    These are all of a short text; of a longer one, the ends of typed text, the first line of a call, and the ends of a
    new result or the outcome of an old one. Short text of the agent with calls is left out, as it mostly announces
    them.
    """
    numbers = _filled(turn, text)
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


def _filled(turn: TurnEvidence, text: BlockText) -> list[int]:
    """Return the numbers of the lines of `text` that a card may show."""
    return [index + 1 for index in text.read if not _is_hidden(turn, index + 1)]


def _ends(turn: TurnEvidence, numbers: Sequence[int], most_tokens: float) -> Sequence[int]:
    """Return the first and last of some line numbers, at either end within `most_tokens` raw tokens but at least
    one."""
    ends: set[int] = set()
    for some in (numbers, numbers[::-1]):
        spent = 0
        for number in some:
            spent += turn.line_tokens[number - 1]
            if spent > most_tokens and number != some[0]:
                break
            ends.add(number)
    return sorted(ends)


def _is_hidden(turn: TurnEvidence, number: int) -> bool:
    """Return True for a line that no card shows: one without a word (``)``), encoded data, a host's boilerplate, and
    all but the end of a run that passed."""
    text = turn.lines.text(number)
    if number in turn.boilerplate_lines or number in turn.idle_lines or is_encoded(text):
        return True
    return not any(map(str.isalnum, text)) and (not text.strip() or turn.lines[number - 1].source != "user")


class _Cards:
    """Lines chosen so far, and their raw tokens."""

    def __init__(
        self, request: PlanRequest, turns: Sequence[TurnEvidence], header: Callable[[TurnEvidence], str]
    ) -> None:
        self.shown: dict[str, set[int]] = {}
        """Numbers of the shown lines, by the ids of the turns with their own card."""
        self._request, self._header = request, header
        self._places = {turn.turn.id: place for place, turn in enumerate(turns)}
        self._folded = [False, *[True] * len(turns), False]
        """True for each turn without a card, with one more entry on either side."""
        self._spent: float = FOLD_TOKENS
        self._most_a_turn = request.settings.piece_tokens / request.counter.scale / 2  # of one piece
        self._spent_by_turn: dict[str, float] = defaultdict(float)
        self._texts: set[tuple[str, str]] = set()
        """Texts of shown lines, each with its part of the turn, with ``result``, and with its turn id, to find repeats
        within a part, anywhere, and within a turn."""

    def take(self, turn: TurnEvidence, numbers: Iterable[int], limit: float) -> bool:
        """Add lines of `turn` that are not yet shown, and those in short gaps between shown lines; return False if the
        cards would take more than `limit` raw tokens. Lines beyond a single card's limit are ignored."""
        turn_id = turn.turn.id
        shown = self.shown.get(turn_id, set())
        new, lines = set(numbers) - shown, {}
        for number in sorted({*new, *_between(turn, new, shown)} - shown):
            line = turn.lines[number - 1]
            text = card_text(self._request, turn, line)
            if not _is_hidden(turn, number) and not self._repeats(turn, line, text):
                lines[number] = line.part, text
        cost = sum(self._request.counter.raw(text) + NUMBER_TOKENS for _, text in lines.values())
        if turn_id in self.shown and self._spent_by_turn[turn_id] + cost > self._most_a_turn:
            return True
        opening = 0.0 if turn_id in self.shown else self._opening(turn)
        if self._spent + cost + opening > limit:
            return False
        self._spent += cost + opening
        self._spent_by_turn[turn_id] += cost
        self._folded[self._places[turn_id] + 1] = False
        self.shown.setdefault(turn_id, set()).update(lines)
        for part, text in lines.values():
            plain = _unmarked(text)
            self._texts |= {(part, plain), ("result", plain), (turn_id, plain)}
        return True

    def _opening(self, turn: TurnEvidence) -> float:
        """Return the raw tokens that a card of `turn` costs without lines: its header, and a header more or less if it
        splits or ends a run of turns without cards."""
        place = self._places[turn.turn.id] + 1
        runs = self._folded[place - 1] + self._folded[place + 1] - 1
        return self._request.counter.raw(self._header(turn)) + 1 + runs * FOLD_TOKENS

    def _repeats(self, turn: TurnEvidence, line: Line, text: str) -> bool:
        """Return True for a line that need not be shown, as the header or a shown line has the same text.

        A line of a result is compared with all lines, another one with lines of its own part, since a planned action is
        not a done one; the user's with the same message, and never if it is short and has a figure.
        """
        plain = _unmarked(text)
        if line.source == "user":
            is_value = len(plain) < REPEAT_CHARACTERS and any(map(str.isdigit, plain))
            return not is_value and (turn.turn.id, plain) in self._texts
        if line.number in turn.obligations:
            return False
        if line.part == "call" and is_in_header(text, self._header(turn)):
            return True
        return len(plain) >= REPEAT_CHARACTERS and (line.part, plain) in self._texts


def _between(turn: TurnEvidence, new: Set[int], shown: Set[int]) -> Iterator[int]:
    """Yield the lines in short gaps of one text between each of the `new` lines and the nearest new or `shown` one."""
    for number in new:
        for step in (-1, 1):
            near = range(number + step, number + step * (GAP_LINES + 2), step)
            other = next((one for one in near if one in shown or one in new), number)
            before, after = min(number, other), max(number, other)
            if after - before > 1 and turn.lines.text_at(before - 1).stop >= after:
                yield from range(before + 1, after)


def is_in_header(text: str, header: str) -> bool:
    """Return True if the header of a card has all words of a call's line."""
    return not _words(_KEYS.sub(" ", text)) - _words(header)


def _words(text: str) -> set[str]:
    return set(_BETWEEN.sub(" ", text).split())


def _unmarked(text: str) -> str:
    """Return `text` without a diff's mark, for comparison with the text of an edit."""
    return text.strip().lstrip("+-").strip()
