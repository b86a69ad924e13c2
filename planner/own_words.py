"""The user's own words in a view: which typed lines stay verbatim, in any language, and how much room they have.

Size, names and figures decide; patterns of English only add. Text that the user pasted is not typed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain

from planner.analysis import Analysis
from planner.evidence import TurnEvidence
from planner.evidence.names import specifics_of
from planner.evidence.user_words import binding_lines
from planner.evidence.words import figures_of, without_figures
from planner.reading.lines import Line

__all__ = ["own_words", "words_limit"]

OWN_WORDS_SHARE = 0.5
"""Share of the room for memory, after the lines of failures, that the user's typed words may take. A fifth keeps .60 of
the entities that CompactBench's chats ask for, two fifths .96."""
LEAST_WORDS_TOKENS = 400
"""Tokens of typed words that stay at any target, however small: a few sentences."""
PAGE_FACTOR = 0.5
"""Factor for both limits if a model wrote the brief, which repeats the user's demands in fewer words: with it, four
short sessions of talk answered 48 of 66 questions at a tenth, without it 42."""
ENDS_SHARE = 0.25
"""Share of the room for typed words for the ends of the latest and of the first message, if these are too long."""
MOST_NEWS = 8
"""Number of names and figures above which more do not raise a message's rank: it is a list or a paste, not a wish."""


def words_limit(memory_tokens: float, outcome_tokens: float, planner: str) -> float:
    """Return the largest number of tokens for the user's typed words in a view with room for `memory_tokens`, of which
    the outcomes of failed actions take `outcome_tokens`. `planner`: ``rules``, or another name."""
    share = OWN_WORDS_SHARE * max(memory_tokens - outcome_tokens, memory_tokens / 2)
    return (1.0 if planner == "rules" else PAGE_FACTOR) * max(share, LEAST_WORDS_TOKENS)


def own_words(analysis: Analysis, most_tokens: float) -> tuple[dict[str, frozenset[int]], int]:
    """Return the numbers of the typed lines that stay verbatim, by turn id, and the number of turns that are
    incomplete.

    If everything fits in `most_tokens`, everything stays. Otherwise these stay while there is room: the ends of the
    latest and of the first message; lines with binding words in English; whole messages, those with many names and
    figures for their size first, as answers, consent and corrections are rather short; the ends of the others. A line
    that was typed twice stays once, where it was typed last.
    """
    turns = analysis.evidence.turns
    room = raw_limit = most_tokens / analysis.counter.scale
    seen: set[str] = set()
    typed: dict[str, list[Line]] = {}
    for turn_id, turn in reversed(turns.items()):
        lines = {line.text.strip(): line for line in turn.typed_lines}
        typed[turn_id] = sorted(line for text, line in lines.items() if text not in seen)
        seen.update(lines)
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
    return words, len(incomplete)


def _news(lines: Sequence[Line]) -> int:
    """Return the number of distinct names and figures in each line, added up, at most `MOST_NEWS`."""
    return min(MOST_NEWS, sum(len({*specifics_of(line.text), *figures_of(line.text)}) for line in lines))


def _binding(typed: Mapping[str, Sequence[Line]]) -> dict[str, frozenset[int]]:
    """Return the numbers of lines with a binding word in English (never, must), by turn id, in the order of `typed`,
    the newest turn first; of lines of several turns that differ only in figures, those of the newest turn."""
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
    """Return the numbers of a message's lines that fit in `most` raw tokens: the first and the last, lines with binding
    words in English, then from both ends inward."""
    if turn.tokens_of(line.number for line in lines) <= most:
        return frozenset(line.number for line in lines)
    inward = chain.from_iterable(zip(lines, reversed(lines), strict=True))
    in_order = dict.fromkeys([*lines[:1], *lines[-1:], *binding_lines(lines), *inward])
    totals = accumulate(turn.line_tokens[line.number - 1] for line in in_order)
    return frozenset(line.number for line, total in zip(in_order, totals, strict=True) if total <= most)
