"""The user's own words in a view: which typed lines stay verbatim, in any language, and how much room they have.

The size of a message and its names and figures decide. English words such as *never* raise the rank of a line. Text
that the user pasted does not count as typed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from planner.analysis import Analysis
from planner.evidence import TurnEvidence
from planner.evidence.hosts import binding_lines
from planner.evidence.words import figures_of, specifics_of, without_figures
from planner.reading.lines import Line

OWN_WORDS_SHARE = 0.5
"""Share that the user's typed words may take of the room for memory, without the lines of failures. With a fifth,
views keep .60 of the entities that CompactBench's chats ask for, with two fifths .96."""
LEAST_WORDS_TOKENS = 400
"""Tokens of typed words that stay at any target, however small: a few sentences."""
PAGE_FACTOR = 0.2
"""Factor for both limits if a model wrote the brief, which repeats the user's demands in fewer words."""
ENDS_SHARE = 0.25
"""Share of the room for typed words that the first and last lines of a long message may take. There are two such
messages: the user's last one and their first one."""
MOST_NEWS = 8
"""Largest number of names and figures that raise a message's rank: with more it is a list or a paste, not a wish."""


class OwnWords(NamedTuple):
    """Typed lines that stay verbatim."""

    lines: dict[str, frozenset[int]]
    """Numbers of these lines, by turn id."""
    left_out: dict[str, frozenset[int]]
    """Numbers of the other typed lines, by turn id."""


def words_limit(memory_tokens: float, outcome_tokens: float, *, beside_page: bool) -> float:
    """Return the largest number of tokens for the user's typed words in a view.

    `memory_tokens`: the room for anything but the live tail. `outcome_tokens`: tokens that lines of failures and of
    later successes take of it. `beside_page`: True if a model writes the brief.
    """
    share = OWN_WORDS_SHARE * max(memory_tokens - outcome_tokens, memory_tokens / 2)
    return (PAGE_FACTOR if beside_page else 1.0) * max(share, LEAST_WORDS_TOKENS)


def own_words(analysis: Analysis, most_tokens: float) -> OwnWords:
    """Return the typed lines that stay verbatim. If all fit in `most_tokens`, all stay.

    Otherwise the first that stay, while there is room, are both ends of the user's last and first message. Then come
    lines with binding words in English. Whole messages follow, those with many names and figures for their size first,
    as answers, consent and corrections are rather short. Last come both ends of the other messages. A line that was
    typed twice stays once, where it was typed last.
    """
    turns = analysis.evidence.turns
    room = raw_limit = most_tokens / analysis.counter.scale
    typed = _typed_once(turns)
    speaking = [turns[turn_id] for turn_id, lines in typed.items() if lines and not turns[turn_id].turn.live]
    raw_tokens = {turn.turn.id: turn.tokens_of(line.number for line in typed[turn.turn.id]) for turn in speaking}
    words: dict[str, frozenset[int]] = {}
    for turn in (*speaking[:1], *speaking[1:][-1:]):
        numbers = _ends(turn, typed[turn.turn.id], ENDS_SHARE * raw_limit)
        words[turn.turn.id] = numbers
        room -= turn.tokens_of(numbers)
    fits = sum(raw_tokens.values()) <= raw_limit
    all_numbers = {turn_id: frozenset(line.number for line in lines) for turn_id, lines in typed.items()}
    for turn_id, binding in ({} if fits else _binding(typed)).items():
        if not turns[turn_id].turn.live:
            room = _grow(words, turns[turn_id], binding, room)
    for turn in sorted(speaking, key=lambda turn: raw_tokens[turn.turn.id] ** 0.3 / (1 + _news(typed[turn.turn.id]))):
        room = _grow(words, turn, all_numbers[turn.turn.id], room)
    incomplete = [turn for turn in speaking if words.get(turn.turn.id) != all_numbers[turn.turn.id]]
    for at, turn in enumerate(incomplete):
        room = _grow(words, turn, _ends(turn, typed[turn.turn.id], room / (len(incomplete) - at)), room)
    left_out = {turn_id: all_numbers[turn_id] - words.get(turn_id, frozenset()) for turn_id in raw_tokens}
    return OwnWords(words, {turn_id: numbers for turn_id, numbers in left_out.items() if numbers})


def _typed_once(turns: dict[str, TurnEvidence]) -> dict[str, list[Line]]:
    """Return the typed lines by turn id, the newest turn first; a line that was typed again later is left out."""
    seen: set[str] = set()
    typed: dict[str, list[Line]] = {}
    for turn_id, turn in reversed(turns.items()):
        lines = {line.text.strip(): line for line in turn.typed_lines}
        typed[turn_id] = sorted(line for text, line in lines.items() if text not in seen)
        seen.update(lines)
    return typed


def _news(lines: Sequence[Line]) -> int:
    """Return the number of distinct names and figures in each line, added up; at most `MOST_NEWS`."""
    return min(MOST_NEWS, sum(len({*specifics_of(line.text), *figures_of(line.text)}) for line in lines))


def _binding(typed: Mapping[str, Sequence[Line]]) -> dict[str, frozenset[int]]:
    """Return the numbers of the lines with a binding word in English (never, must), by turn id, in the order of
    `typed`. If lines of several turns differ only in figures, only the line of the first turn is returned, which is the
    newest."""
    seen: set[str] = set()
    binding: dict[str, frozenset[int]] = {}
    for turn_id, lines in typed.items():
        forms = {without_figures(line.text.strip()): line.number for line in binding_lines(lines)}
        binding[turn_id] = frozenset(number for form, number in forms.items() if form not in seen)
        seen.update(forms)
    return binding


def _grow(words: dict[str, frozenset[int]], turn: TurnEvidence, numbers: frozenset[int], room: float) -> float:
    """Add line `numbers` to those of `turn` in `words` if all fit in `room` raw tokens; return the remaining room."""
    kept = words.get(turn.turn.id, frozenset())
    cost = turn.tokens_of(numbers - kept)
    if cost > room:
        return room
    words[turn.turn.id] = kept | numbers
    return room - cost


def _ends(turn: TurnEvidence, lines: Sequence[Line], most: float) -> frozenset[int]:
    """Return the numbers of the lines of a message that fit in `most` raw tokens. If not all fit, these come first: the
    first and the last line, then lines with binding words in English, then lines from both ends inward."""
    if turn.tokens_of(line.number for line in lines) <= most:
        return frozenset(line.number for line in lines)
    inward = chain.from_iterable(zip(lines, reversed(lines), strict=True))
    in_order = dict.fromkeys([*lines[:1], *lines[-1:], *binding_lines(lines), *inward])
    totals = accumulate(turn.line_tokens[line.number - 1] for line in in_order)
    return frozenset(line.number for line, total in zip(in_order, totals, strict=True) if total <= most)
