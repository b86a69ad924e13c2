"""Finds the parts of a conversation that stay whatever a planner decides: unanswered turns, the user's words, why
something failed, and how it succeeded later.

They depend on the context window, the target and the page of memory (brief). The unanswered turns, the *live tail*, are
shortened to previews only if they would fill the window. `planner.user_words` chooses among the user's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from propcache.api import cached_property

from planner.analysis import Analysis
from planner.brief import covered_failures, covers_success
from planner.evidence import TurnEvidence
from planner.evidence.effects import reported_later, retried
from planner.layout import first_note
from planner.reading.messages import History
from planner.thinking import leading_turn
from planner.user_words import own_words, words_limit

LEAST_ROOM_SHARE = 0.1
"""Smallest room for everything but the unanswered turns, as a share of the target or of these turns, whichever is
larger. Without it, the compacted messages could consist of the last tool results alone."""
LEAST_ROOM_BESIDE_LIVE = 0.5
"""Largest share of the target that the smallest room for everything but the unanswered turns may take."""
LIVE_SHARE = 0.5
"""Largest share of the context window for unanswered turns. Larger ones would leave no room for an answer, and are
*demoted*: previews replace their results and long texts."""
PREVIEW_LINES = 12
"""Number of lines that a preview shows at the beginning, and again at the end: about 2,000 characters."""
PREVIEW_SHARE = 0.25
"""Largest share of the context window for all previews together; they show fewer lines until they fit."""


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
    """Numbers of the lines that show best why something failed, by turn id, if the page of memory does not replace
    them."""
    successes: Mapping[str, frozenset[int]]
    """Numbers of the lines with the later success of a failed action, by turn id, so that the agent does not act again;
    without those that the page of memory replaces."""
    covered: Mapping[str, frozenset[int]]
    """Numbers of the lines on failures that the page of memory replaces, by turn id."""

    @cached_property
    def lines(self) -> Mapping[str, frozenset[int]]:
        """Numbers of all lines that stay at any target, by turn id; turns without such lines are left out."""
        lines: dict[str, frozenset[int]] = {}
        for kept in (self.failures, self.successes, self.user_words, self.demoted):
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
    whole |= {leading_turn(analysis.history, {turn.turn.id for turn in live}, model)} - {""}
    memory = memory_room(target_tokens, analysis.evidence.live_tokens)
    limit = words_limit(memory, analysis.once(_outcome_tokens), beside_page=planner != "rules" and brief != "")
    words = analysis.once(own_words, min(limit, (1 - LIVE_SHARE) * window_tokens))
    return Pinned(
        analysis,
        whole=frozenset(whole.union(analysis.broken)),
        demoted=analysis.once(_previews, demoted, window_tokens),
        user_words=words.lines,
        words_left_out=words.left_out,
        failures=failures,
        successes=successes,
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


def _previews(analysis: Analysis, demoted: frozenset[str], window_tokens: int) -> dict[str, frozenset[int]]:
    """Return by turn id the numbers of the lines that previews show of the `demoted` turns, which are unanswered but
    too large for the window. The previews show at most `PREVIEW_LINES` at either end of each long part. They show fewer
    lines if all previews together would exceed `PREVIEW_SHARE` of the window."""
    turns = [analysis.evidence.turns[turn_id] for turn_id in demoted]
    room = PREVIEW_SHARE * window_tokens / analysis.counter.scale
    for most in range(PREVIEW_LINES, -1, -1):
        shown = {turn.turn.id: _preview(turn, most) for turn in turns}
        if sum(turn.tokens_of(shown[turn.turn.id]) for turn in turns) <= room:
            break
    return shown


def _preview(turn: TurnEvidence, most: int) -> frozenset[int]:
    """Return the numbers of the lines in the preview of `turn`: the first and last `most` lines of each tool result and
    each text of the user (of the latter at least one at either end), and all other lines of the turn."""
    most = max(most, 1 if turn.turn.kind == "user" else 0)
    long_blocks = {call.result_block for call in turn.calls}
    long_blocks |= {text.block for text in turn.lines.texts if text.part == "user" and text.source != "document"}
    shown = {line.number for line in turn.lines.outside(long_blocks)}
    for lines in map(turn.lines.of_block, long_blocks):
        shown.update(line.number for line in (*lines[:most], *lines[::-1][:most]))
    return frozenset(shown)
