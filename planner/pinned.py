"""What of a history stands whatever a plan says: the live tail, the user's own words, what decided failures.

It is read once for a window, a target and a brief; the tail gives way to previews only where no window holds it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from planner.analysis import Analysis
from planner.brief import told_demands, told_failures
from planner.evidence import TurnEvidence
from planner.evidence.user_words import typed_lines
from planner.layout import leading_turn
from planner.placeholders import first_note
from planner.reading.history import History
from planner.reading.lines import Line

__all__ = ["Pinned", "pinned", "unknown_view"]

OWN_WORDS_SHARE = 0.5
"""So much of the target the user's own words may take, whatever they say: in agent sessions they are nearly always
less, and no list of words tells in every language what binds (DESIGN, rule 13). A fifth keeps .60 of the entities that
CompactBench's chats ask for, two fifths .96, and the exams score the same with each."""
DEMANDS_SHARE = 0.25
"""So much of the window the user's demands may take; what is beyond it is stored, and a finding says so: a list that
never fits the window helps nobody."""
LONG_MESSAGE_SHARE = 0.125
"""Of the target: what more a message demands that was answered, and that the brief tells, stands no second time. The
long first message of a session took a third to a half of its view beside the page that told it."""
LIVE_SHARE = 0.5
"""A live tail may fill this share of the window; what is larger would leave no room for an answer and is demoted."""
PREVIEW_LINES = 12
"""A demoted result shows this many of its first and of its last lines: about the 2,000 characters that other
systems preview (REFERENCE 5)."""
PREVIEW_SHARE = 0.25
"""All demoted results together show no more of the window: where their lines are long, or they are many, each shows
fewer."""


@dataclass(frozen=True)
class Pinned:
    """What stands of a history whatever a plan says, in a window and at a target of so many tokens."""

    analysis: Analysis
    whole: frozenset[str]
    """Turns that stand whole: what is not answered, what must not be touched, a view whose originals nobody has."""
    demoted: Mapping[str, frozenset[int]]
    """Lines that stand of turns of the live tail, by id, whose results, and what the user pasted, give way to previews:
    no window holds them."""
    user_words: Mapping[str, frozenset[int]]
    """Lines of the user's, by turn id: what he demands, and what else he typed."""
    demands_stored: int
    """Of so many turns the user's demands have no room in the window."""
    failures: Mapping[str, frozenset[int]]
    """Lines that decided failures and that the brief does not tell, by turn id."""
    told: Mapping[str, frozenset[int]]
    """Those that it tells."""

    def lines(self, turn: TurnEvidence) -> frozenset[int]:
        """Numbers of the lines of `turn` that stand at any target."""
        own = self.failures[turn.turn.id] | self.user_words.get(turn.turn.id, frozenset())
        return own | self.demoted.get(turn.turn.id, frozenset())


def pinned(analysis: Analysis, window_tokens: int, target_tokens: int, model: str, brief: str | None) -> Pinned:
    """What stands of a history beside `brief`, for `model` to read; but for that it is read once. None: beside one that
    is yet to be written and tells what was answered."""
    turns = analysis.evidence.turns
    told = told_failures(brief or "", analysis.evidence)
    failures = {
        turn_id: frozenset(turn.decisive_lines) - told.get(turn_id, frozenset()) for turn_id, turn in turns.items()
    }
    live = [turn for turn in turns.values() if turn.turn.live]
    fits = sum(turn.tokens for turn in live) <= window_tokens * LIVE_SHARE
    demoted = frozenset(turn.turn.id for turn in live if not fits and turn.turn.kind in ("tools", "user"))
    whole = {turn_id for turn_id, turn in turns.items() if turn.turn.must_stand or turn.turn.live} - demoted
    view = unknown_view(analysis.history)
    whole |= {view} if view and turns[view].tokens <= target_tokens else set()
    whole |= {leading_turn(analysis.history, {turn.turn.id for turn in live}, model)} - {""}
    words, demands_stored = analysis.once(_user_words, window_tokens, target_tokens, brief)
    previews = analysis.once(_previews, demoted, window_tokens)
    return Pinned(analysis, frozenset(whole.union(analysis.broken)), previews, words, demands_stored, failures, told)


def unknown_view(history: History) -> str:
    """The turn in which the history begins with what looks like a view of ours, told apart before where a store knows
    it; empty if there is none."""
    return next((turn.id for turn in history.turns[:2] if first_note(history.messages_of(turn)) is not None), "")


def _user_words(
    analysis: Analysis, window_tokens: int, target_tokens: int, brief: str | None
) -> tuple[dict[str, frozenset[int]], int]:
    """Of the user's lines, by turn id, what he demands, as far as the window has room, and what else he typed, whatever
    it says, as far as it is a small part of the target; and of how many turns the demands have no room. Of long
    messages what `brief` does not tell, and the last demands.

    The last message comes first, then the first one, then from the newest on; what was said twice stands at its last
    place.
    """
    scale, told = analysis.counter.scale, told_demands(brief, analysis.evidence)
    most = LONG_MESSAGE_SHARE * target_tokens / scale
    room = DEMANDS_SHARE * window_tokens / scale
    left = OWN_WORDS_SHARE * min(target_tokens, (1 - LIVE_SHARE - DEMANDS_SHARE) * window_tokens) / scale
    words: dict[str, frozenset[int]] = {}
    said: set[str] = set()
    stored = 0
    speaking = [turn for turn in analysis.evidence.turns.values() if turn.user_lines or turn.pinned_lines]
    for turn in [*speaking[-1:], *speaking[:-1][:1], *reversed(speaking[1:-1])]:
        turn_id, demanded = turn.turn.id, frozenset(turn.pinned_lines)
        is_long = turn_id in told and turn.tokens_of(demanded) > most
        if is_long:
            demanded = demanded - told[turn_id] | _last_lines(turn, most)
        cost = turn.tokens_of(demanded)
        if cost > room:
            stored, cost, demanded = stored + 1, 0, frozenset()
        room -= cost
        own = [line for line in _first_typed(turn, most) if line.text.strip() not in said]
        typed = frozenset(line.number for line in own)
        cost = turn.tokens_of(typed - demanded)
        if is_long or turn.turn.live or cost > left:
            typed = frozenset()
        else:
            left -= cost
            said.update(line.text.strip() for line in own)
        words[turn_id] = demanded | typed
    return words, stored


def _last_lines(turn: TurnEvidence, most: float) -> frozenset[int]:
    """The last of what a message demands within so many raw tokens: what holds for all of it stands at its end."""
    numbers = turn.pinned_lines[::-1]
    ends = accumulate(turn.line_tokens[number - 1] for number in numbers)
    return frozenset(number for number, end in zip(numbers, ends, strict=True) if end <= most)


def _first_typed(turn: TurnEvidence, most: float) -> Sequence[Line]:
    """The first of what the user typed in a message within so many raw tokens, or at least what a short one holds."""
    every = turn.once(_all_typed)
    ends = accumulate(turn.line_tokens[line.number - 1] for line in every)
    return max(turn.once(_typed), [line for line, end in zip(every, ends, strict=True) if end <= most], key=len)


def _typed(turn: TurnEvidence) -> list[Line]:
    return list(typed_lines(turn.user_lines))


def _all_typed(turn: TurnEvidence) -> list[Line]:
    return list(typed_lines(turn.user_lines, math.inf))


def _previews(analysis: Analysis, demoted: frozenset[str], window_tokens: int) -> dict[str, frozenset[int]]:
    """What stands of each demoted turn: of what is long in it as much as there is room for in the window."""
    turns = [analysis.evidence.turns[turn_id] for turn_id in demoted]
    room = PREVIEW_SHARE * window_tokens / analysis.counter.scale
    for most in range(PREVIEW_LINES, -1, -1):
        shown = {turn.turn.id: _preview(turn, most) for turn in turns}
        if sum(turn.tokens_of(shown[turn.turn.id]) for turn in turns) <= room:
            break
    return shown


def _preview(turn: TurnEvidence, most: int) -> frozenset[int]:
    """The first and last lines of results and of what the user wrote or pasted, `most` at either end, of the user's own
    at least one; all that he typed, and what else is in `turn`."""
    most = max(most, turn.turn.kind == "user")
    long = {call.result_block for call in turn.calls}
    long |= {text.block for text in turn.lines.texts if text.part == "user" and text.source != "document"}
    shown = {line.number for line in (*turn.once(_typed), *turn.lines.outside(long))}
    for own in map(turn.lines_of, long):
        shown.update(line.number for line in (*own[:most], *own[::-1][:most]))
    return frozenset(shown)
