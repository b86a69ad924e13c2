"""Finds the parts of a conversation that stay whatever a planner decides: unanswered turns, the user's words, why
something failed, and how it succeeded later.

They depend on the context window, the target and the page of memory (brief). The unanswered turns, the *live tail*, are
shortened to previews only if they would fill the window. If not all of the user's typed words fit, the size of a
message, its names and its figures, and what the agent took up of it decide which lines stay, in any language; English
words such as *never* raise the rank of a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf, log
from typing import NamedTuple

from propcache.api import cached_property

from planner.analysis import Analysis
from planner.brief import covered_failures, covers_success
from planner.evidence import TurnEvidence
from planner.evidence.effects import reported_later, retried
from planner.evidence.hosts import binding_lines, introduces, is_tag
from planner.evidence.words import figures_of, specifics_of, without_figures, without_numbers
from planner.layout import first_note, leading_turn
from planner.live_tail import previews
from planner.reading.lazy import lazy_pattern
from planner.reading.lines import Line, statements
from planner.reading.messages import History

LEAST_ROOM_SHARE = 0.1
"""Smallest room for everything but the unanswered turns, as a share of the target or of these turns, whichever is
larger. Without it, the compacted messages could consist of the last tool results alone."""
LEAST_ROOM_BESIDE_LIVE = 0.5
"""Largest share of the target that the smallest room for everything but the unanswered turns may take."""
LIVE_SHARE = 0.5
"""Largest share of the context window for unanswered turns. Larger ones would leave no room for an answer, and are
*demoted*: previews replace their results and long texts."""
OWN_WORDS_SHARE = 0.5
"""Largest share of the room (without the lines of failures) for words that the user typed. With a fifth, compacted
messages keep .60 of the entities that the chats of CompactBench ask for; with two fifths, .96."""
LEAST_WORDS_TOKENS = 400
"""Tokens of the user's typed words for which there is room at any target: a few sentences."""
PAGE_FACTOR = 0.2
"""Factor for the room for the user's typed words if a model wrote the page of memory, which repeats their demands."""
ENDS_SHARE = 0.5
"""Largest share of the room for typed words that the first and last lines of the user's last message may take, and
again those of their first one."""
MOST_NEWS = 8
"""Largest number of names and figures that raise the rank of a user's message. With more, it is rather a list."""


@dataclass(frozen=True)
class Pinned:
    """Parts of a conversation that stay whatever a planner decides, for one context window and one target."""

    analysis: Analysis
    whole: frozenset[str]
    """Ids of turns that stay whole: unanswered turns, turns that must not change, and compacted messages whose
    originals are unknown, if the target has room for these."""
    demoted: Mapping[str, frozenset[int]]
    """Numbers of the lines that previews show, by the ids of unanswered turns; empty if these fit the window."""
    user_words: Mapping[str, frozenset[int]]
    """Numbers of the lines that the user typed and that stay verbatim, by turn id; all of them if they fit."""
    words_left_out: Mapping[str, frozenset[int]]
    """Numbers of the lines that the user typed and for which there is no room, by turn id."""
    failures: Mapping[str, frozenset[int]]
    """Numbers of the lines that show best why something failed, by turn id, unless the page of memory replaces them."""
    successes: Mapping[str, frozenset[int]]
    """Numbers of the lines with the later success of a failed action, by turn id, so that the agent does not act again;
    without those that the page of memory replaces."""
    offers: Mapping[str, frozenset[int]]
    """Numbers of the lines with the agent's question or offer that the user's latest short reply ("yes") answers, by
    turn id."""
    covered: Mapping[str, frozenset[int]]
    """Numbers of the lines on failures that the page of memory replaces, by turn id."""

    @cached_property
    def lines(self) -> Mapping[str, frozenset[int]]:
        """Numbers of all lines that stay at any target, by turn id; turns without such lines are left out."""
        lines: dict[str, frozenset[int]] = {}
        for kept in (self.failures, self.successes, self.user_words, self.offers, self.demoted):
            lines |= {
                turn_id: numbers | lines.get(turn_id, frozenset()) for turn_id, numbers in kept.items() if numbers
            }
        return lines


def pinned(
    analysis: Analysis, window_tokens: int, target_tokens: int, model: str, brief: str | None, planner: str
) -> Pinned:
    """Find the parts of a conversation that stay in addition to the page of memory, `brief` (None if it is not written
    yet): unanswered turns, failures, and the user's words. `model`: model that reads the compacted messages. `planner`:
    name of the planner. If it is not ``rules``, the user's words get less room, as its page of memory repeats them,
    unless `brief` is empty."""
    turns = analysis.evidence.turns
    covered = covered_failures(brief or "", analysis.evidence)
    failures = {
        turn_id: frozenset(turn.decisive_lines) - covered.get(turn_id, frozenset())
        for turn_id, turn in turns.items()
        if turn.decisive_lines
    }
    successes = {
        turn_id: numbers
        for turn_id, numbers in analysis.once(_successes).items()
        if not (brief and covers_success(brief, turn_id, turns[turn_id].statements_of(sorted(numbers))))
    }
    live = [turn for turn in turns.values() if turn.turn.live]
    tail_fits = sum(turn.tokens for turn in live) <= window_tokens * LIVE_SHARE
    demoted = frozenset(turn.turn.id for turn in live if not tail_fits and turn.turn.kind in ("tools", "user"))
    whole = {turn_id for turn_id, turn in turns.items() if turn.turn.must_stay or turn.turn.live} - demoted
    view_id = unknown_view(analysis.history)
    whole |= {view_id} if view_id and turns[view_id].tokens <= target_tokens else set()
    # the API may refuse the unanswered calls without the thinking at the beginning of their run
    whole |= {leading_turn(analysis.history, {turn.turn.id for turn in live}, model)} - {""}
    memory = memory_room(target_tokens, analysis.evidence.live_tokens)
    limit = words_limit(memory, analysis.once(_outcome_tokens), beside_page=planner != "rules" and brief != "")
    words = analysis.once(own_words, min(limit, (1 - LIVE_SHARE) * window_tokens))
    return Pinned(
        analysis,
        whole=frozenset(whole.union(analysis.broken)),
        demoted=analysis.once(previews, demoted, window_tokens) if demoted else {},
        user_words=words.lines,
        words_left_out=words.left_out,
        failures=failures,
        successes=successes,
        offers=_offers(live),
        covered=covered,
    )


def _successes(analysis: Analysis) -> dict[str, frozenset[int]]:
    """Return the numbers of the lines that show how a failed action succeeded later, by turn id: the first line of the
    successful call, and the lines that show how it ended; or the lines that may report what became of it."""
    turns = analysis.evidence.turns
    lines: dict[str, frozenset[int]] = {}
    for turn_id, call_number in analysis.evidence.once(retried).values():
        turn = turns[turn_id]
        call = turn.calls[call_number]
        shown = {turn.lines.of_block(call.block)[0].number, *turn.outcomes[call_number].lines}
        lines[turn_id] = lines.get(turn_id, frozenset()) | shown
    for report in analysis.evidence.once(reported_later).values():
        lines[report.turn_id] = lines.get(report.turn_id, frozenset()).union(report.lines)
    return lines


def _offers(live: Iterable[TurnEvidence]) -> dict[str, frozenset[int]]:
    """Return the lines of `Pinned.offers`, as the reply in one of the `live` turns means nothing without them."""
    return {turn.choice.turn_id: frozenset(turn.choice.lines) for turn in live if turn.choice is not None}


def _outcome_tokens(analysis: Analysis) -> float:
    """Return the tokens of the lines on failures and on later successes, outside of the unanswered turns."""
    successes = analysis.once(_successes)
    turns = [turn for turn in analysis.evidence.turns.values() if not turn.turn.live]
    ended = [turn for turn in turns if turn.decisive_lines or turn.turn.id in successes]
    lines = [(turn, {*turn.decisive_lines, *successes.get(turn.turn.id, ())}) for turn in ended]
    return analysis.counter.scale * sum(turn.tokens_of(numbers) for turn, numbers in lines)


def memory_room(target_tokens: float, live_tokens: float) -> float:
    """Return how many of the `target_tokens` there are for everything but the unanswered turns, which have
    `live_tokens`: what these leave, but at least the smallest room. A larger target never gives less room."""
    least = min(LEAST_ROOM_BESIDE_LIVE * target_tokens, LEAST_ROOM_SHARE * max(live_tokens, target_tokens))
    return max(target_tokens - live_tokens, least)


def unknown_view(history: History) -> str:
    """Return the id of a turn at the beginning (one of the first two) that looks like the result of a compaction; empty
    without one. Its original messages are unknown, as they would be planned instead otherwise."""
    return next((turn.id for turn in history.turns[:2] if first_note(history.messages_of(turn)) is not None), "")


NARROWEST_WRAPPED, WIDEST_WRAPPED = 50, 120
"""Smallest and largest width in characters at which mail programs and editors wrap text."""
_ENDS_SENTENCE = lazy_pattern(r"[.!?。！？…][\"'”’)\]]?$")


class OwnWords(NamedTuple):
    """Lines that the user typed, divided into those that stay verbatim and the others."""

    lines: dict[str, frozenset[int]]
    """Numbers of the lines that stay, by turn id."""
    left_out: dict[str, frozenset[int]]
    """Numbers of the lines for which there is no room, by turn id."""


def words_limit(memory_tokens: float, outcome_tokens: float, *, beside_page: bool) -> float:
    """Return how many tokens of words that the user typed stay verbatim at most. `memory_tokens`: the room for
    everything but the unanswered turns. `outcome_tokens`: tokens that lines on failures and later successes take of it.
    `beside_page`: True if a model writes the page of memory, which repeats the user's demands."""
    share = OWN_WORDS_SHARE * max(memory_tokens - outcome_tokens, memory_tokens / 2)
    return (PAGE_FACTOR if beside_page else 1.0) * max(share, LEAST_WORDS_TOKENS)


def own_words(analysis: Analysis, most_tokens: float) -> OwnWords:
    """Choose the lines that the user typed and that stay verbatim. If all fit in `most_tokens`, all stay.

    Otherwise passages (lines, or paragraphs wrapped at a fixed width) are chosen in this order while there is room:
    (1) of the user's last and first message those that the agent took up, and both ends; (2) lines with binding words
    in English (never, must); (3) whole messages, first those with many names and figures for their size, as answers and
    corrections are short, and last those that differ from a later one in figures alone; (4) the first passage of each
    other message; (5) other passages, first those that the agent took up or that have many names and figures; (6) both
    ends of messages of which nothing stays yet. A line that was typed twice stays where it was typed last, unless it
    answers two questions.
    """
    turns = analysis.evidence.turns
    room = raw_limit = most_tokens / analysis.counter.scale
    typed = _typed_once(turns)
    speaking = [turns[turn_id] for turn_id, lines in typed.items() if lines and not turns[turn_id].turn.live]
    raw_tokens = {turn.turn.id: turn.tokens_of(line.number for line in typed[turn.turn.id]) for turn in speaking}
    all_numbers = {turn_id: _numbers(typed[turn_id]) for turn_id in raw_tokens}
    if sum(raw_tokens.values()) <= raw_limit:
        return OwnWords(all_numbers, {})
    words: dict[str, frozenset[int]] = {}
    passages = {turn.turn.id: _passages(typed[turn.turn.id]) for turn in speaking}
    for turn in (*speaking[:1], *speaking[1:][-1:]):
        of_turn = passages[turn.turn.id]
        numbers = _fitting(turn, [*_taken_up(analysis, turn, of_turn), *_inward(of_turn)], ENDS_SHARE * raw_limit)
        words[turn.turn.id] = numbers
        room -= turn.tokens_of(numbers)
    for turn_id, binding in _binding(passages).items():
        room = _grow(words, turns[turn_id], binding, room)
    for turn_id in _ranked(typed, raw_tokens):
        room = _grow(words, turns[turn_id], all_numbers[turn_id], room)
    incomplete = [turn for turn in speaking if words.get(turn.turn.id) != all_numbers[turn.turn.id]]
    for turn in reversed(incomplete):
        room = _grow(words, turn, _numbers(chain(*passages[turn.turn.id][:1])), room)
    others = [(turn, one) for turn in incomplete for one in passages[turn.turn.id] if not introduces(one[-1].text)]
    dense = [(*spoken, _density(*spoken, _news(spoken[1]) + _uptake(analysis, *spoken))) for spoken in others]
    for turn, passage, _ in sorted(dense, key=lambda spoken: -spoken[2]):
        room = _grow(words, turn, _numbers(passage), room)
    silent = [turn for turn in incomplete if not words.get(turn.turn.id)]
    for at, turn in enumerate(silent):  # messages of long lines alone
        pieces = [[line] for line in typed[turn.turn.id]]
        room = _grow(words, turn, _fitting(turn, _inward(pieces), room / (len(silent) - at)), room)
    left_out = {turn_id: numbers - words.get(turn_id, frozenset()) for turn_id, numbers in all_numbers.items()}
    return OwnWords(words, {turn_id: numbers for turn_id, numbers in left_out.items() if numbers})


def _typed_once(turns: dict[str, TurnEvidence]) -> dict[str, list[Line]]:
    """Return the lines that the user typed by turn id, the newest turn first, each line once; an answer once for each
    question. Long lines are compared whole, as two wishes may begin alike."""
    seen: set[tuple[str, str]] = set()
    typed: dict[str, list[Line]] = {}
    for turn_id, turn in reversed(turns.items()):
        question = turn.choice.text if turn.choice else ""
        whole = {(question, line.text.strip()): line.lines for line in statements(turn.typed_lines, inf)}
        typed[turn_id] = sorted(chain.from_iterable(lines for text, lines in whole.items() if text not in seen))
        seen.update(whole)
    return typed


def _ranked(typed: Mapping[str, Sequence[Line]], raw_tokens: Mapping[str, float]) -> list[str]:
    """Return the ids in `raw_tokens` (size of each message by turn id, the newest first) in the order in which whole
    messages are chosen: first those with many names and figures for their size, and last those that differ from a later
    one in figures alone. `typed`: the lines of each message."""
    forms: set[str] = set()
    ranks: dict[str, tuple[bool, float]] = {}
    for turn_id, size in raw_tokens.items():
        form = without_figures("\n".join(line.text for line in typed[turn_id]))
        ranks[turn_id] = form in forms, size**0.3 / (1 + _news(typed[turn_id]))
        forms.add(form)
    return sorted(raw_tokens, key=lambda turn_id: ranks[turn_id])


def _density(turn: TurnEvidence, lines: Sequence[Line], information: float) -> float:
    """Return the `information` in some lines of a turn for each raw token."""
    return information / max(1, turn.tokens_of(line.number for line in lines))


def _numbers(lines: Iterable[Line]) -> frozenset[int]:
    return frozenset(line.number for line in lines)


def _news(lines: Sequence[Line]) -> int:
    """Return how much information `lines` have: the sum of each line's names and figures, at most `MOST_NEWS`."""
    return min(MOST_NEWS, sum(len({*specifics_of(line.text), *figures_of(line.text)}) for line in lines))


def _binding(passages: Mapping[str, Sequence[Sequence[Line]]]) -> dict[str, frozenset[int]]:
    """Return by turn id the numbers of the lines with a binding word in English (never, must); of a wrapped paragraph
    with one, all lines. `passages`: passages by turn id, the newest turn first, which is the order of the result. If
    lines of several turns differ only in figures, only the newest one is returned."""
    seen: set[str] = set()
    binding: dict[str, frozenset[int]] = {}
    for turn_id, of_turn in passages.items():
        forms: dict[str, frozenset[int]] = {}
        for passage in of_turn:
            is_wrapped = not any(line.continues for line in passage)
            for line in binding_lines(passage):
                forms[without_figures(line.text.strip())] = _numbers(passage if is_wrapped else [line])
        binding[turn_id] = frozenset(chain(*(numbers for form, numbers in forms.items() if form not in seen)))
        seen.update(forms)
    return binding


def _grow(words: dict[str, frozenset[int]], turn: TurnEvidence, numbers: frozenset[int], room: float) -> float:
    """Add the lines with these `numbers` to those of `turn` in `words`, if they fit in `room`. Return the room left."""
    kept = words.get(turn.turn.id, frozenset())
    cost = turn.tokens_of(numbers - kept)
    if cost > room:
        return room
    words[turn.turn.id] = kept | numbers
    return room - cost


def _passages(lines: Sequence[Line]) -> list[tuple[Line, ...]]:
    """Divide the `lines` of a message into passages that have a meaning alone: whole lines, and paragraphs that were
    wrapped at a fixed width. Lines without words, or with nothing but a tag, are left out."""
    width = max((len(line.text) for line in lines if len(line.text) <= WIDEST_WRAPPED), default=0)
    passages: list[tuple[Line, ...]] = []
    for statement in statements(lines, inf):
        if is_tag(statement.text) or not any(map(str.isalnum, statement.text)):
            continue
        before = passages[-1][-1] if passages else None
        if before is not None and statement.numbers[0] == before.number + 1 and _goes_on(before, statement.text, width):
            passages[-1] += statement.lines
        else:
            passages.append(statement.lines)
    return passages


def _goes_on(line: Line, following: str, width: int) -> bool:
    """Return True if the `following` line continues `line`, as its first word had no room in the `width` at which the
    text is wrapped. Lines that differ in numbers alone are entries of a list."""
    text = line.text.rstrip()
    is_full = " " in text and len(text) <= width < len(text) + 1 + len(following.split(maxsplit=1)[0])
    is_list = without_numbers(text) == without_numbers(following.rstrip())
    return is_full and width >= NARROWEST_WRAPPED and not is_list and not _ENDS_SENTENCE.search(text)


def _inward(passages: Sequence[Sequence[Line]]) -> Iterator[frozenset[int]]:
    """Yield the numbers of the lines of each of the `passages` of a message in the order in which they are chosen if
    not all fit: the first and the last, those with binding words in English, those from both ends inward. Passages
    that only announce others are left out."""
    meaningful = [passage for passage in passages if not introduces(passage[-1].text)]
    binding = [passage for passage in meaningful if binding_lines(passage)]
    inward = chain.from_iterable(zip(meaningful, reversed(meaningful), strict=True))
    yield from dict.fromkeys(map(_numbers, [*passages[:1], *passages[-1:], *binding, *inward]))


def _taken_up(analysis: Analysis, turn: TurnEvidence, passages: Sequence[Sequence[Line]]) -> list[frozenset[int]]:
    """Return the numbers of the lines of those `passages` of a message that have names that the agent wrote later,
    those first that have most for their size: in a long form or prompt, these are what is asked."""
    dense = [(_density(turn, passage, _uptake(analysis, turn, passage)), _numbers(passage)) for passage in passages]
    return [numbers for density, numbers in sorted(dense, key=lambda passage: -passage[0]) if density]


def _uptake(analysis: Analysis, turn: TurnEvidence, lines: Sequence[Line]) -> float:
    """Return how much the agent took up of `lines` of a turn: the number of their names that it wrote in later turns,
    of which those in many lines of the conversation count less."""
    occurrences = analysis.occurrences
    rows, columns = occurrences.rows[turn.turn.id], occurrences.columns
    names = {*chain.from_iterable(rows.between(line.number - 1, line.number) for line in lines)}
    later = [name for name in names if columns.last_written[name] > turn.turn.number]
    return sum(1 / (1 + log(columns.lines[name])) for name in later)


def _fitting(turn: TurnEvidence, parts: Iterable[frozenset[int]], most: float) -> frozenset[int]:
    """Return the numbers of the lines of those `parts` of a message, in order, that fit in `most` raw tokens."""
    words: dict[str, frozenset[int]] = {}
    for numbers in parts:
        most = _grow(words, turn, numbers, most)
    return words.get(turn.turn.id, frozenset())
