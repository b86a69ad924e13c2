"""Tiers that work on single tool results: demote large ones, clear old ones, answer unchanged re-reads.

Every removed result leaves its call in place and a placeholder behind it, so pairs are never split. Lines that show a
failure and words of the user stay verbatim in each, and what the agent's own tool brought back is demoted only where
several of its pages at once would not fit the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from applier.session.frame import Edits, Place, Placeholder
from applier.session.history_tracker import HistoryTracker, Result
from applier.session.tiers import Situation
from planner.api import RESTORE_TOOL, bare_tool_name
from planner.evidence.calls import CallKind, calls_of
from planner.evidence.outcomes import failures_of
from planner.evidence.sources import attributed
from planner.evidence.user_words import constraints_of
from planner.reading.lines import Line, statements, turn_lines
from planner.reading.messages import blocks

__all__ = ["BudgetResults", "ClearResults", "DemoteLarge", "FitNewest", "StubRereads"]

RESTORE_LINE_TOKENS = 40
"""What the line on how to restore a result takes at most."""
PREVIEW_SHARE = 0.08
"""A preview has at most so many characters for each token of the limit: in a small window less is shown."""
TAIL_SHARE = 0.25
"""How much of a preview shows the end of a result: an error mostly stands there."""
SMALL_WINDOW_SHARE = 0.8
"""Of the room that messages have: whatever a preset's constant says, more would not fit the window otherwise."""
LOOK_UPS = frozenset((RESTORE_TOOL, "search_context"))
"""Answers of these are what was removed before; they come in pages of which each one fits."""


def _is_look_up(situation: Situation, result: Result) -> bool:
    return bare_tool_name(result.tool) in LOOK_UPS or result.tool == (situation.settings.restore_tool or RESTORE_TOOL)


@dataclass(frozen=True, slots=True)
class DemoteLarge:
    """Any new result over `over_tokens` goes to the store and leaves a preview."""

    over_tokens: int
    preview_characters: int = 2_000
    """Three-layer and s08 both show 2,000."""
    name: str = "demote_large"

    def __call__(self, situation: Situation) -> Edits | None:
        """Demote what has just arrived."""
        most = min(self.over_tokens, situation.room_tokens * SMALL_WINDOW_SHARE)
        new = (result for result in situation.new_results() if not _is_look_up(situation, result))
        large = [result for result in new if situation.gauge.of_messages(result.tokens) > most]
        return _previews(situation, large, self.preview_characters, "large output")


@dataclass(frozen=True, slots=True)
class BudgetResults:
    """Results of the newest message over `characters` together: the largest go first, until the rest fit."""

    characters: int = 200_000
    preview_characters: int = 2_000
    name: str = "budget_results"

    def __call__(self, situation: Situation) -> Edits | None:
        """Demote the largest results of the last message."""
        last = len(situation.tracker) - 1
        results = [r for r in situation.new_results() if r.message == last and not _is_look_up(situation, r)]
        chosen: list[Result] = []
        for result in sorted(results, key=lambda result: -result.tokens):
            if self._fits(situation, [r for r in results if r not in chosen]):
                break
            chosen.append(result)
        return _previews(situation, chosen, self.preview_characters, "results of one message over budget")

    def _fits(self, situation: Situation, results: Sequence[Result]) -> bool:
        tokens = situation.gauge.of_messages(sum(result.tokens for result in results))
        characters = sum(len(result.text) for result in results)
        return characters <= self.characters and tokens <= situation.room_tokens * SMALL_WINDOW_SHARE


@dataclass(frozen=True, slots=True)
class FitNewest:
    """What the model waits for, last of all, where the prompt would not fit the window otherwise: largest first, and
    what was looked up behind everything else."""

    preview_characters: int = 2_000
    name: str = "fit_newest"

    def __call__(self, situation: Situation) -> Edits | None:
        """Demote results of the live tail until the prompt is within the limit."""
        over, tracker = situation.tokens - situation.limit_tokens, situation.tracker
        results = [r for r in situation.standing() if r.message >= tracker.live_start]
        made: list[Placeholder] = []
        for result in sorted(results, key=lambda result: (_is_look_up(situation, result), -result.tokens)):
            if over <= 0:
                break
            preview = _previewed(situation, result, self.preview_characters)
            if preview is not None:
                made.append(preview)
                left = tracker.counter.text(preview.text) + RESTORE_LINE_TOKENS
                over -= situation.gauge.of_messages(result.tokens - left)
        reason = f"{len(made)} results: would not fit the window otherwise"
        return Edits(reason, placeholders=tuple(made)) if made else None


@dataclass(frozen=True, slots=True)
class ClearResults:
    """Old results give way to a line that says what they were, the newest stay."""

    keep_last: int = 3
    """The newest results (of `kinds`) that stay."""
    protect_tokens: int = 0
    """And all results within so many newest tokens of the history."""
    over_tokens: int = 0
    over_characters: int = 0
    """Only larger ones are worth a placeholder."""
    kinds: frozenset[CallKind] = frozenset()
    """Kinds of calls whose results may go; none: all."""
    min_free_tokens: int = 0
    """Do nothing for less."""
    preview_characters: int = 0
    """How much of each stays; 0: nothing but what must."""
    name: str = "clear_results"

    def __call__(self, situation: Situation) -> Edits | None:
        """Clear old results."""
        known = [result for result in situation.tracker.results if not self.kinds or result.kind in self.kinds]
        newest = {result.place for result in known[-self.keep_last :]} if self.keep_last else set()
        border = self._border(situation)
        old = [
            result
            for result in situation.standing()
            if result.place not in newest
            and result.message < border
            and (not self.kinds or result.kind in self.kinds)
            and result.tokens > self.over_tokens
            and len(result.text) > max(self.over_characters, self.preview_characters)
        ]
        if not old or sum(result.tokens for result in old) < self.min_free_tokens:
            return None
        cleared = tuple(self._cleared(situation.tracker, old))
        return Edits(f"{len(cleared)} old results", placeholders=cleared) if cleared else None

    def _border(self, situation: Situation) -> int:
        """Messages from here on are protected; what the model has not answered yet always is."""
        tracker = situation.tracker
        border = min(len(tracker) - 1, tracker.live_start)
        left = self.protect_tokens - sum(tracker.counted[border:])
        while left > 0 and border > 0:
            border -= 1
            left -= tracker.counted[border]
        return border

    def _cleared(self, tracker: HistoryTracker, old: Iterable[Result]) -> Iterator[Placeholder]:
        for result in old:
            if self.preview_characters:
                made = _preview(tracker, result, self.preview_characters)
            else:
                shown = f"[Previous: used {result.tool or 'a tool'}]\n{_pinned_part(tracker, result)}"
                made = Placeholder(*result.place, shown.rstrip())
            if _is_shorter(tracker, made, result):
                yield made


@dataclass(frozen=True, slots=True)
class StubRereads:
    """A call made again with the same answer, while the first answer still stands, is answered by a stub."""

    over_characters: int = 400
    name: str = "stub_rereads"

    def __call__(self, situation: Situation) -> Edits | None:
        """Stub what has just arrived."""
        stubbed: dict[Place, Placeholder] = {}
        for result in situation.new_results():
            if len(result.text) <= self.over_characters or _is_look_up(situation, result):
                continue
            earlier = situation.tracker.repeated_by(result)
            first = next((r for r in earlier if situation.stands(r) and r.place not in stubbed), None)
            if first is not None:
                turn_id = situation.tracker.turn_id(first.message)
                text = f"[Unchanged: the same result as in {turn_id}, above]"
                stubbed[result.place] = Placeholder(*result.place, text)
        if not stubbed:
            return None
        return Edits(f"{len(stubbed)} unchanged re-reads", placeholders=tuple(stubbed.values()))


def _previews(situation: Situation, results: Sequence[Result], characters: int, reason: str) -> Edits | None:
    made = (_previewed(situation, result, characters) for result in results)
    shorter = tuple(preview for preview in made if preview is not None)
    return Edits(f"{len(shorter)} results: {reason}", placeholders=shorter) if shorter else None


def _previewed(situation: Situation, result: Result, characters: int) -> Placeholder | None:
    """The preview of a result, at most so many characters, fewer in a small window; None if that gains nothing."""
    made = _preview(situation.tracker, result, min(characters, int(situation.limit_tokens * PREVIEW_SHARE)))
    return made if _is_shorter(situation.tracker, made, result) else None


def _is_shorter(tracker: HistoryTracker, made: Placeholder, result: Result) -> bool:
    """True if something is gained, which is told by tokens: of a screenshot no character is shown."""
    return tracker.counter.text(made.text) + RESTORE_LINE_TOKENS < result.tokens


def _preview(tracker: HistoryTracker, result: Result, characters: int) -> Placeholder:
    """The first and last lines of a result up to so many characters, and everything that must stay."""
    tail_characters = int(characters * TAIL_SHARE)
    lines, pinned = _lines(tracker, result)
    head = _taken(lines, characters - tail_characters)
    tail = _taken(lines[::-1], tail_characters)
    shown = _joined(lines, head | tail | pinned)
    size = f"[{len(result.text):,} characters in all]" if result.text else "[no text]"
    return Placeholder(*result.place, f"{shown}\n{size}" if shown else size)


def _pinned_part(tracker: HistoryTracker, result: Result) -> str:
    """Only what must stay of a result; mostly nothing."""
    lines, pinned = _lines(tracker, result)
    return _joined(lines, pinned)


def _lines(tracker: HistoryTracker, result: Result) -> tuple[Sequence[Line], set[int]]:
    """The lines of a result, and the numbers of those that must stay."""
    history = tracker.history
    turn = history.by_id[tracker.turn_id(result.message)]
    before = sum(len(blocks(message)) for message in history.messages[turn.start : result.message])
    calls = calls_of(history, turn)
    lines = attributed(turn_lines(history, turn), calls)
    read = tuple(statements(lines))
    pinned = {*failures_of(read, calls).lines, *constraints_of(read).lines}
    own = [line for line in lines if line.block == before + result.block]
    return own, pinned & {line.number for line in own}


def _taken(lines: Iterable[Line], characters: int) -> set[int]:
    taken: set[int] = set()
    for line in lines:
        characters -= len(line.text) + 1
        if characters < 0:
            break
        taken.add(line.number)
    return taken


def _joined(lines: Sequence[Line], numbers: set[int]) -> str:
    """The chosen lines; ``…`` where lines are left out."""
    parts: list[str] = []
    before = None
    for line in lines:
        if line.number not in numbers:
            continue
        follows = before is not None and line.number == before + 1
        if parts and not (follows and line.continues):
            parts.append("\n" if follows else "\n…\n")
        parts.append(line.text)
        before = line.number
    return "".join(parts)
