"""Tiers for single tool results and for text that a user pasted, with the text that remains of each.

Each call stays, and a placeholder replaces its result, so pairs are never split. Lines of a failure and words of the
user stay verbatim. Restored content is shortened only if several of its pages together would not fit the window. The
line on how to restore is added when the original is stored.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from applier.session.frame import Edits, Place
from applier.session.history_tracker import HistoryTracker, Result
from applier.session.tiers import Situation
from planner.evidence.calls import CallKind
from planner.placeholders import with_gaps
from planner.reading.lines import Line
from planner.reading.messages import blocks, plain_message

__all__ = ["ClearResults", "DemoteLarge", "FitNewest", "StubRereads"]

TEXT_ROOM_SHARE = 0.2
"""Share of the limit that stays free for later messages when a user's own text is cut to fit."""
SMALL_WINDOW_SHARE = 0.8
"""Largest share of the room for messages, whatever a preset's constant is: more would not fit a small window."""
RESTORE_LINE_TOKENS = 40
"""Largest size of the line on how to restore a result."""
TAIL_SHARE = 0.25
"""Share of a preview that shows the end of a result, where errors mostly are."""
LEAST_LEFT_OUT = 200
"""Characters of a text; fewer are not worth the mark."""


@dataclass(frozen=True, slots=True)
class DemoteLarge:
    """Tier that stores new results and leaves previews: of any result over `over_tokens`, and of the largest in the
    newest message, until the rest has at most `characters` and fits the window."""

    over_tokens: int = sys.maxsize
    characters: int = sys.maxsize
    preview_characters: int = 2_000
    """Three-layer and s08 both show 2,000."""
    name: str = "demote_large"

    def __call__(self, situation: Situation) -> Edits | None:
        """Shorten new results."""
        demoted, newest = list[Result](), len(situation.tracker) - 1
        room = situation.room_tokens * SMALL_WINDOW_SHARE
        tokens_left, characters_left = room, self.characters
        for result in sorted(situation.arrived(), key=lambda result: result.tokens):
            tokens, characters = situation.gauge.of_messages(result.tokens), len(result.text)
            is_newest = result.message == newest
            fits = not is_newest or (tokens <= tokens_left and characters <= characters_left)
            if tokens > min(self.over_tokens, room) or not fits:
                demoted.append(result)
            elif is_newest:
                tokens_left, characters_left = tokens_left - tokens, characters_left - characters
        most = situation.preview_characters(self.preview_characters)
        made = {result.place: _stand_in(situation.tracker, result, most) for result in demoted}
        return _replaced(made, "large results")


@dataclass(frozen=True, slots=True)
class FitNewest:
    """Tier of last resort for the live tail, if the prompt would not fit the window otherwise. It shortens results, the
    largest first and looked-up content last; then text that a user pasted, keeping both ends; then long lines of the
    compacted part."""

    preview_characters: int = 2_000
    name: str = "fit_newest"

    def __call__(self, situation: Situation) -> Edits | None:
        """Shorten large content until the prompt is within the limit."""
        over, tracker = situation.tokens - situation.limit_tokens, situation.tracker
        least, made = situation.preview_characters(self.preview_characters), dict[Place, str]()
        results = [result for result in situation.standing() if result.message >= tracker.live_start]
        for result in sorted(results, key=lambda result: (situation.is_look_up(result), -result.tokens)):
            if over > 0 and (preview := _stand_in(tracker, result, least)):
                made[result.place] = preview
                left = tracker.counter.text(preview) + RESTORE_LINE_TOKENS
                over -= situation.gauge.of_messages(result.tokens - left)
        over += int(situation.limit_tokens * TEXT_ROOM_SHARE) if over > 0 else 0
        for place, text in sorted(_user_texts(situation), key=lambda item: -len(item[1])):
            shown, freed = _cut_text(situation, text, over, least)
            if freed:
                made[place] = shown
                over -= freed - situation.gauge.of_messages(RESTORE_LINE_TOKENS)
        head = _cut_head(situation, over, least)
        edits = _replaced(made, "texts: would not fit the window otherwise")
        if head == situation.frame.head:
            return edits
        return replace(edits or Edits("compacted part cut: would not fit the window otherwise"), head=head)


def _user_texts(situation: Situation) -> Iterator[tuple[Place, str]]:
    """Yield the user's texts in the messages after the compacted part, with their places."""
    tracker, frame = situation.tracker, situation.frame
    for at in range(frame.start, len(tracker)):
        if tracker.plain[at]["role"] == "user":
            for number, block in enumerate(blocks(tracker.plain[at])):
                if block["type"] == "text" and (at, number) not in frame.placeholders:
                    yield (at, number), str(block.get("text", ""))


def _cut_text(situation: Situation, text: str, over: int, least: int, *, by_line: bool = False) -> tuple[str, int]:
    """Return `text` without `over` tokens in its middle, but at least `least` characters of both ends, and the number
    of freed tokens.

    `by_line`: cut each line by itself, as in the notes of a compacted part.
    """

    def tokens(text: str) -> int:
        return situation.gauge.of_messages(situation.tracker.counter.text(text))

    if over <= 0:
        return text, 0
    if by_line:
        shown = "\n".join(_both_ends(line, least) for line in text.split("\n"))
    else:
        shown = _both_ends(text, max(least, int(len(text) * (1 - over / max(1, tokens(text))))))
    return shown, max(0, tokens(text) - tokens(shown))


def _cut_head(situation: Situation, over: int, least: int) -> tuple[object, ...]:
    """Return the messages of the compacted part with the user's texts and the notes cut by `over` tokens in all."""
    cut: list[object] = []
    for message in situation.frame.head:
        plain = plain_message(message)
        content = list(blocks(plain))
        for at, block in enumerate(content):
            if plain["role"] == "user" and block["type"] == "text":
                text = str(block.get("text", ""))
                shown, freed = _cut_text(situation, text, over, least, by_line="<compacted" in text)
                content[at], over = ({**block, "text": shown} if freed else block), over - freed
        cut.append(message if content == blocks(plain) else {**plain, "content": content})
    return tuple(cut)


@dataclass(frozen=True, slots=True)
class ClearResults:
    """Tier that replaces old results by a line that describes them, and keeps the newest."""

    keep_last: int = 3
    """Number of newest results (of `kinds`) to keep."""
    protect_tokens: int = 0
    """Number of newest tokens of the history in which all results are kept, too."""
    over_tokens: int = 0
    over_characters: int = 0
    """Only larger ones are worth a placeholder."""
    kinds: frozenset[CallKind] = frozenset()
    """Kinds of calls whose results may be removed; empty: all."""
    min_free_tokens: int = 0
    """Do nothing for less."""
    preview_characters: int = 0
    """Length of each preview; 0: only what must stay."""
    name: str = "clear_results"

    def __call__(self, situation: Situation) -> Edits | None:
        """Clear old results."""
        tracker = situation.tracker
        known = [result for result in tracker.results if not self.kinds or result.call.kind in self.kinds]
        newest = {result.place for result in known[-self.keep_last :]} if self.keep_last else set()
        may_go = {result.place for result in situation.standing()} - newest
        border, least = self._border(situation), max(self.over_characters, self.preview_characters)
        old = [
            result
            for result in known
            if result.place in may_go
            and result.message < border
            and result.tokens > self.over_tokens
            and len(result.text) > least
        ]
        if not old or sum(result.tokens for result in old) < self.min_free_tokens:
            return None
        made = {result.place: _stand_in(tracker, result, self.preview_characters) for result in old}
        return _replaced(made, "old results")

    def _border(self, situation: Situation) -> int:
        """Return the index of the first protected message; the live tail is always protected."""
        tracker = situation.tracker
        border = min(len(tracker) - 1, tracker.live_start)
        left = self.protect_tokens - sum(tracker.counted[border:])
        while left > 0 and border > 0:
            border -= 1
            left -= tracker.counted[border]
        return border


@dataclass(frozen=True, slots=True)
class StubRereads:
    """Tier that answers a repeated call by a stub, if the same answer is still visible from an earlier call."""

    over_characters: int = 400
    name: str = "stub_rereads"

    def __call__(self, situation: Situation) -> Edits | None:
        """Replace new results by stubs."""
        stubbed: dict[Place, str] = {}
        for result in situation.arrived():
            if len(result.text) <= self.over_characters:
                continue
            same = (r for r in situation.standing() if r.text == result.text and r.place not in stubbed)
            first = next((r for r in same if r.call.identity == result.call.identity), result)
            if first.place < result.place:
                turn_id = situation.tracker.turn_id(first.message)
                stubbed[result.place] = f"[Unchanged: the same result as in {turn_id}, above]"
        return _replaced(stubbed, "unchanged re-reads")


def _replaced(texts: dict[Place, str], what: str) -> Edits | None:
    """Return edits that replace the results that are not empty."""
    shorter = {place: text for place, text in texts.items() if text}
    return Edits(f"{len(shorter)} {what}", placeholders=shorter) if shorter else None


def _stand_in(tracker: HistoryTracker, result: Result, characters: int) -> str:
    """Return the first and last lines of a result up to `characters` (0: a line that describes it), and all lines that
    must stay; empty if this saves no tokens."""
    tail_characters = int(characters * TAIL_SHARE)
    lines, pinned = _lines(tracker, result)
    head = _taken(lines, characters - tail_characters)
    tail = _taken(lines[::-1], tail_characters)
    shown = with_gaps([line for line in lines if line.number in head | tail | pinned])
    if characters:
        size = f"[{len(result.text):,} characters in all]" if result.text else "[no text]"
        text = f"{shown}\n{size}" if shown else size
    else:
        text = f"[Previous: used {result.call.name or 'a tool'}]\n{shown}".rstrip()
    return text if tracker.counter.text(text) + RESTORE_LINE_TOKENS < result.tokens else ""


def _both_ends(text: str, characters: int) -> str:
    """Return the beginning and the end of `text`, and the length of the gap between; `text` itself if the gap is
    small."""
    left, tail = len(text) - characters, int(characters * TAIL_SHARE)
    if left < LEAST_LEFT_OUT:
        return text
    return f"{text[: characters - tail]} … {left:,} characters left out, in the store … {text[-tail:]}"


def _lines(tracker: HistoryTracker, result: Result) -> tuple[Sequence[Line], set[int]]:
    """Return the lines of a result, and the numbers of those that must stay."""
    turn = tracker.history.by_id[tracker.turn_id(result.message)]
    read = tracker.analysis.evidence.by_digest[turn.digest]
    before = sum(len(blocks(message)) for message in tracker.plain[turn.start : result.message])
    own = [line for line in read.lines if line.block == before + result.block]
    pinned = {*read.failure_lines, *(line.number for line in read.typed_lines)}
    return own, pinned & {line.number for line in own}


def _taken(lines: Sequence[Line], characters: int) -> set[int]:
    """Return the numbers of as many of the first `lines` as have so many characters."""
    sizes = accumulate(len(line.text) + 1 for line in lines)
    return {line.number for line, size in zip(lines, sizes, strict=True) if size <= characters}
