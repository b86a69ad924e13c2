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
"""Share of the room for memory, after failures, for the user's typed words, in any language. A fifth keeps .60 of the
entities that CompactBench's chats ask for, two fifths .96."""
LEAST_WORDS_TOKENS = 400
"""Tokens of typed words that stay at any target, however small: a few sentences."""
PAGE_FACTOR = 0.5
"""So much of both stays beside a page that a model wrote, which holds what binds in fewer words: graded at a tenth,
four short sessions of talk answered 48 of 66 questions instead of 42."""
ENDS_SHARE = 0.25
"""Share of that room for the latest message, and for the first one, if a message is too long to stay whole."""
MOST_NEWS = 8
"""Largest number of names and figures that count for a message; with more it is a list or pasted text, not a wish."""


def words_limit(memory_tokens: float, outcome_tokens: float, planner: str) -> float:
    """Return the tokens that the user's typed words may take of the room for memory, in addition to those of the
    outcomes of failed actions."""
    share = OWN_WORDS_SHARE * max(memory_tokens - outcome_tokens, memory_tokens / 2)
    return (1.0 if planner == "rules" else PAGE_FACTOR) * max(share, LEAST_WORDS_TOKENS)


def own_words(analysis: Analysis, most_tokens: float) -> tuple[dict[str, frozenset[int]], int]:
    """Return the typed lines that stay verbatim, by turn id, and the number of turns with lines that do not fit.

    If everything fits in `most_tokens`, everything stays. Otherwise size decides, in any language: first the ends of
    the latest and of the first message; then lines that bind in English; then whole messages, ordered by their names
    and figures divided by the root of their tokens, as answers, consent and corrections are rather short; then the ends
    of the others. A line that was typed twice stays once, where it was typed last.
    """
    turns = analysis.evidence.turns
    room = whole_room = most_tokens / analysis.counter.scale
    seen: set[str] = set()
    typed: dict[str, list[Line]] = {}
    for turn_id, turn in reversed(turns.items()):
        own = {line.text.strip(): line for line in turn.typed_lines}
        typed[turn_id] = sorted(line for text, line in own.items() if text not in seen)
        seen.update(own)
    speaking = [turns[turn_id] for turn_id, own in typed.items() if own and not turns[turn_id].turn.live]
    cost = {turn.turn.id: turn.tokens_of(line.number for line in typed[turn.turn.id]) for turn in speaking}
    words: dict[str, frozenset[int]] = {}
    for turn in (*speaking[:1], *speaking[1:][-1:]):
        numbers = _ends(turn, typed[turn.turn.id], ENDS_SHARE * whole_room)
        words[turn.turn.id] = numbers
        room -= turn.tokens_of(numbers)
    fits = sum(cost.values()) <= whole_room
    every = {turn_id: frozenset(line.number for line in own) for turn_id, own in typed.items()}
    for turn_id, binding in ({} if fits else _binding(typed)).items():
        if not turns[turn_id].turn.live:
            room = _grow(words, turns[turn_id], binding, room)
    for turn in sorted(speaking, key=lambda turn: cost[turn.turn.id] ** 0.3 / (1 + _news(typed[turn.turn.id]))):
        room = _grow(words, turn, every[turn.turn.id], room)
    cut = [turn for turn in speaking if words.get(turn.turn.id) != every[turn.turn.id]]
    for at, turn in enumerate(cut):
        room = _grow(words, turn, _ends(turn, typed[turn.turn.id], room / (len(cut) - at)), room)
    return words, len(cut)


def _news(lines: Sequence[Line]) -> int:
    """Return the number of names and figures in some lines of a message, at most `MOST_NEWS`."""
    return min(MOST_NEWS, sum(len({*specifics_of(line.text), *figures_of(line.text)}) for line in lines))


def _binding(typed: Mapping[str, Sequence[Line]]) -> dict[str, frozenset[int]]:
    """Return the lines that bind in English, by turn id, the newest first; of lines that differ only in figures the
    newest first, older values last."""
    seen: set[str] = set()
    binding: dict[str, frozenset[int]] = {}
    for turn_id, lines in typed.items():
        forms = {without_figures(line.text.strip()): line.number for line in binding_lines(lines)}
        binding[turn_id] = frozenset(number for form, number in forms.items() if form not in seen)
        seen.update(forms)
    return binding


def _grow(words: dict[str, frozenset[int]], turn: TurnEvidence, numbers: frozenset[int], room: float) -> float:
    """Add lines to the words of a turn if they fit; return the remaining room."""
    own = words.get(turn.turn.id, frozenset())
    more = turn.tokens_of(numbers - own)
    if more > room:
        return room
    words[turn.turn.id] = own | numbers
    return room - more


def _ends(turn: TurnEvidence, lines: Sequence[Line], most: float) -> frozenset[int]:
    """Return the lines at both ends of a message, and those that bind in English, within `most` raw tokens."""
    if turn.tokens_of(line.number for line in lines) <= most:
        return frozenset(line.number for line in lines)
    inward = chain.from_iterable(zip(lines, reversed(lines), strict=True))
    in_order = dict.fromkeys([*lines[:1], *lines[-1:], *binding_lines(lines), *inward])
    ends = accumulate(turn.line_tokens[line.number - 1] for line in in_order)
    return frozenset(line.number for line, end in zip(in_order, ends, strict=True) if end <= most)
