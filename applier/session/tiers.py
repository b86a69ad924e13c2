"""Situation that a tier reads, the signature of all tiers, the tiers of whole turns, and those of single results.

A tier returns edits, or None if there is nothing to do; it changes nothing itself. The edits of tiers of turns have a
`CompactionPlan` that passed the guards, so failed approaches and the user's words stay.

Tiers of results also shorten text that a user pasted, and pictures. Each call stays, and a placeholder replaces its
result, so pairs are never split. Lines of a failure and words of the user stay verbatim. Restored content is shortened
only if several of its pages together would not fit the window. Old pictures of tool results are removed first, the
user's last. The line on how to restore is added when the original is stored.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from applier.session.frame import Edits, Frame, Place
from applier.session.history_tracker import HistoryTracker, Result
from applier.session.request import Gauge
from planner.analysis import Analysis
from planner.evidence.calls import CallKind
from planner.guards import check_plan
from planner.placeholders import clean, with_gaps
from planner.plan import CompactionPlan, HistoryStamp, Provenance, Strategy, TurnDecision
from planner.reading.lines import Line
from planner.reading.media import MANY_IMAGES, Load, MediaLimits, media_mark, picture_load, pictures_in, source_data
from planner.reading.messages import Block, History, Turn, blocks, plain_message, readable_text
from planner.settings import RESTORE_TOOL, PlanSettings, bare_tool_name

WORTH_SHARE, NEW_SHARE = 0.75, 0.5
"""Shares for a compaction that is requested soon after the last one. If the goal would leave more than the first share
of the present list, it becomes the size that the last plan left plus the second share of what was added since."""
FLOOR_SHARE = 0.4
"""Largest share of a small window that `PlanTurns.floor_tokens` may take."""
KEPT_SHARE = 0.25
"""Largest share of a small window that the newest messages may keep, whatever a preset's constant is."""
FULL_SHARE, LEAST_SHARE = 0.9, 0.05
"""Shares of the room if the live tail is long. The tail and the rest of the view together may fill the first share; the
rest always has the second."""
PREVIEW_SHARE = 0.08
"""Largest length of a preview in characters for each token of the limit, so that a small window shows less."""
LOOK_UP_TOOLS = frozenset((RESTORE_TOOL, "search_context"))
"""Names of the tools that return removed content, in pages of which each fits the window."""


@dataclass(frozen=True)
class Situation:
    """State of a session for a tier."""

    tracker: HistoryTracker
    frame: Frame
    gauge: Gauge
    tokens: int
    """Tokens of the whole prompt as it would be sent now."""
    limit_tokens: int
    new_from: int
    """Index in the history of the first message that was not sent yet."""
    make_plan: Callable[..., CompactionPlan]
    """`Planning.make` of the session, which asks its planner or the rules."""
    settings: PlanSettings
    """Settings of plans, including the agent's model, its window and its tools."""
    focus: str = ""
    load: Load = field(default_factory=Load)
    """Pictures and bytes of the messages as they would be sent now."""
    limits: MediaLimits = field(default_factory=MediaLimits)
    carried_tokens: Callable[[], int] = int
    """Function that counts the tokens to repeat after a plan: files, lists, rules."""

    @property
    def room_tokens(self) -> int:
        """Tokens available for messages, after system and tools."""
        return self.gauge.room_tokens(self.limit_tokens)

    def preview_characters(self, characters: int) -> int:
        """Return the length of a preview in this window, at most `characters`."""
        return min(characters, int(self.limit_tokens * PREVIEW_SHARE))

    def is_look_up(self, result: Result) -> bool:
        """Return True if `result` is an answer of a tool that returns removed content."""
        tool = result.call.name
        return bare_tool_name(tool) in LOOK_UP_TOOLS or tool == (self.settings.restore_tool or RESTORE_TOOL)

    def visible_results(self) -> list[Result]:
        """Return the tool results that are still sent whole, oldest first."""
        return [result for result in self.tracker.results if self._is_visible(result)]

    def arrived(self) -> list[Result]:
        """Return the results that were not sent yet, without removed content that the agent looked up.

        Takes time in proportion to the number of new results.
        """
        new = self.tracker.results_from(self.new_from)
        return [result for result in new if self._is_visible(result) and not self.is_look_up(result)]

    def _is_visible(self, result: Result) -> bool:
        return result.message >= self.frame.start and result.place not in self.frame.placeholders


Tier = Callable[[Situation], Edits | None]
"""Function from a situation to edits, named in the log by ``__name__`` or a ``name`` attribute."""


@dataclass(frozen=True, slots=True)
class PlanTurns:
    """Tier that plans: the planner ranks the turns, and each is kept, summarized, referenced or dropped to fit.

    Numbers count messages without the live tail, system and tools.
    """

    target_share: float = 0.25
    """Share of the room for messages that is left."""
    history_share: float = 0.0
    """Share of the whole history that is left, if that is less; 0: not used."""
    target_tokens: int = 0
    """Largest number of tokens that are left; 0: no such limit."""
    floor_tokens: int = 0
    """Smallest goal in tokens; in a small window at most `FLOOR_SHARE` of the room."""
    keep_last_messages: int = 0
    """Number of newest messages that do not change."""
    keep_last_tokens: int = 0
    """Tokens of the newest turns that do not change; at most `KEPT_SHARE` of the room."""
    keep_user_words: bool = False
    """True if only the user's messages are kept by `keep_last_tokens`."""
    max_freed_tokens: int = 0
    """Largest number of tokens freed in one round; 0: no limit."""
    rules_only: bool = False
    name: str = "plan"

    def goal_tokens(self, room_tokens: int, history_tokens: int) -> int:
        """Return the tokens that a plan should leave of a history of `history_tokens`, without the live tail, if
        `room_tokens` are available for messages."""
        floor = min(self.floor_tokens, int(room_tokens * FLOOR_SHARE))
        share = int(room_tokens * self.target_share)
        if self.history_share:
            share = min(share, int(history_tokens * self.history_share))
        share = max(floor, share)
        return min(share, self.target_tokens) if self.target_tokens else share

    def __call__(self, situation: Situation) -> Edits | None:
        """Plan the whole history, originals and all."""
        analysis = situation.tracker.analysis
        kept = self._kept(situation, analysis.history)
        target = self.target_tokens_for(situation)
        plan = situation.make_plan(analysis, target, situation.focus, rules_only=self.rules_only)
        plan = _keeping(plan, plan.bound_analysis or analysis, kept)
        undecided_from = len(situation.tracker) - self.keep_last_messages if self.keep_last_messages else None
        return Edits(f"{_counts(plan)}, {_author(plan.provenance)}", plan=plan, undecided_from=undecided_from)

    def target_tokens_for(self, situation: Situation) -> int:
        """Return the target for the planner, in tokens of the counter.

        That is the goal and the live tail, without the text that is repeated after the plan.
        """
        room, gauge, tracker = situation.room_tokens, situation.gauge, situation.tracker
        live = gauge.of_messages(sum(tracker.counted[tracker.live_start :]))
        older = max(0, situation.tokens - gauge.prompt(0) - live)
        goal = self.goal_tokens(room, gauge.of_messages(tracker.tokens))
        if goal > older * WORTH_SHARE:
            new = gauge.of_messages(sum(tracker.counted[situation.frame.start : tracker.live_start]))
            goal = min(goal, older - int(new * (1 - NEW_SHARE)))
        if self.max_freed_tokens:
            goal = max(goal, older - self.max_freed_tokens)
        goal = min(goal, max(int(room * LEAST_SHARE), int(room * FULL_SHARE) - live))
        return max(1, gauge.countable(goal + live) - situation.carried_tokens())

    def _kept(self, situation: Situation, history: History) -> set[str]:
        """Return the ids of the newest turns that the preset keeps, whatever the planner decides."""
        counted, last = situation.tracker.counted, len(situation.tracker)
        kept = {turn.id for turn in history.turns if turn.stop > last - self.keep_last_messages}
        left = min(self.keep_last_tokens, situation.gauge.countable(situation.room_tokens * KEPT_SHARE))
        for turn in reversed(history.turns):
            if self.keep_user_words and turn.kind != "user":
                continue
            left -= sum(counted[turn.start : turn.stop])
            if left < 0:
                break
            kept.add(turn.id)
        return kept


@dataclass(frozen=True, slots=True)
class SnipMiddle:
    """Tier that removes the middle of a list with too many messages."""

    over_messages: int = 50
    keep_first: int = 3
    keep_last: int = 47
    batch_messages: int = 10
    """Number of further messages before the next removal, as each removal bills the later messages again."""
    name: str = "snip"

    def __call__(self, situation: Situation) -> Edits | None:
        """Remove the middle if the list has too many messages."""
        sent = len(situation.frame.head) + len(situation.tracker) - situation.frame.start
        if sent <= self.over_messages + self.batch_messages:
            return None
        tail = len(situation.tracker) - self.keep_last
        plan = _positional_plan(situation, self.name, lambda turn: turn.start < self.keep_first or turn.stop > tail)
        return Edits(f"{_counts(plan)}, by place", plan=plan, undecided_from=0)


@dataclass(frozen=True, slots=True)
class RetreatHead:
    """Tier of last resort that removes the oldest turns until the rest fits."""

    goal_share: float = 0.5
    """Share of the room for messages that is left."""
    name: str = "retreat"

    def __call__(self, situation: Situation) -> Edits | None:
        """Drop turns from the front until the rest is within the goal."""
        tracker = situation.tracker
        goal = situation.gauge.countable(situation.room_tokens * self.goal_share)
        fitting = sum(size <= goal for size in accumulate(reversed(tracker.counted)))  # messages from the end
        border = len(tracker) - fitting
        if border == 0:
            return None
        plan = _positional_plan(situation, self.name, lambda turn: turn.start >= border)
        return Edits(f"{_counts(plan)}, oldest first", plan=plan, undecided_from=0)


def _keeping(plan: CompactionPlan, analysis: Analysis, kept: Collection[str]) -> CompactionPlan:
    """Return `plan` with the turns `kept`, checked again by the guards; `plan` itself if it keeps them already."""
    if all(decision.strategy == "keep" for decision in plan.turns if decision.turn_id in kept):
        return plan
    turns = tuple(
        decision.model_copy(update={"strategy": "keep"}) if decision.turn_id in kept else decision
        for decision in plan.turns
    )
    return check_plan(plan.model_copy(update={"turns": turns}), analysis)


def _positional_plan(situation: Situation, planner: str, stays: Callable[[Turn], bool]) -> CompactionPlan:
    """Return a plan that keeps the live tail and the turns for which `stays` is true, and drops all others."""
    analysis, settings = situation.tracker.analysis, situation.settings

    def decision(turn: Turn) -> TurnDecision:
        kept, reason = turn.live or stays(turn), "by its place in the conversation"
        strategy: Strategy = "keep" if kept else "drop"
        return TurnDecision(turn_id=turn.id, strategy=strategy, relevance_score=float(kept), reason=reason)

    plan = CompactionPlan(
        task="",
        history=HistoryStamp.of(analysis.history, analysis.tokens),
        target_tokens=situation.gauge.countable(situation.room_tokens),
        target_model=settings.target_model,
        window_tokens=settings.window_tokens,
        restore_tool=settings.restore_tool,
        turns=tuple(decision(turn) for turn in analysis.history.turns),
        estimated_tokens=analysis.tokens,
        provenance=Provenance(planner=planner),
    )
    return check_plan(plan, analysis)


def _author(provenance: Provenance) -> str:
    """Return the name of a plan's planner; for the rules also why no model planned, if one could have."""
    notes = "; ".join(provenance.notes) if provenance.planner == "rules" else ""
    return f"by {provenance.planner}" + (f" ({notes})" if notes else "")


def _counts(plan: CompactionPlan) -> str:
    counts = Counter(decision.strategy for decision in plan.turns)
    return ", ".join(f"{count} {strategy}" for strategy, count in counts.items())


TEXT_ROOM_SHARE = 0.2
"""Share of the limit that stays free for later messages when a user's own text is cut to fit."""
SMALL_WINDOW_SHARE = 0.8
"""Largest share of the room for messages, whatever a preset's constant is: more would not fit a small window."""
RESTORE_LINE_TOKENS = 40
"""Largest size of the line on how to restore a result."""
TAIL_SHARE = 0.25
"""Share of a preview that shows the end of a result, where errors mostly are."""
LEAST_LEFT_OUT = 200
"""Smallest number of characters that are worth a mark that they are missing."""


@dataclass(frozen=True, slots=True)
class DemoteLarge:
    """Tier that leaves previews of large new results, whose originals are stored.

    It shortens every result over `over_tokens`. In the newest message it also shortens the largest results, until the
    others have at most `characters` together and fit the window.
    """

    over_tokens: int = sys.maxsize
    characters: int = sys.maxsize
    preview_characters: int = 2_000
    """Length of a preview; three-layer and s08 show 2,000 characters."""
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
        made = {result.place: _preview(situation.tracker, result, most) for result in demoted}
        return _replaced(made, "large results")


@dataclass(frozen=True, slots=True)
class FitNewest:
    """Tier of last resort, which also shortens the live tail if the prompt would not fit the window otherwise.

    It shortens results first, beginning with the largest; content that the agent looked up comes last. Then it cuts the
    middle of text that a user pasted, and of long lines in the compacted part.
    """

    preview_characters: int = 2_000
    name: str = "fit_newest"

    def __call__(self, situation: Situation) -> Edits | None:
        """Shorten large content until the prompt is within the limit."""
        over, tracker = situation.tokens - situation.limit_tokens, situation.tracker
        least, made = situation.preview_characters(self.preview_characters), dict[Place, str]()
        results = [result for result in situation.visible_results() if result.message >= tracker.live_start]
        for result in sorted(results, key=lambda result: (situation.is_look_up(result), -result.tokens)):
            if over > 0 and (preview := _preview(tracker, result, least)):
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
    """Return `text` without `over` tokens in its middle, and the number of freed tokens.

    At least `least` characters of both ends remain. `by_line`: each line is cut to `least` characters, as in the notes
    of a compacted part.
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
    """Size of the newest part of the history in which all results are kept, too."""
    over_tokens: int = 0
    """Size of a result in tokens; only a larger one is worth a placeholder."""
    over_characters: int = 0
    """Length of a result in characters; only a longer one is worth a placeholder."""
    kinds: frozenset[CallKind] = frozenset()
    """Kinds of calls whose results may be removed; empty for all kinds."""
    min_free_tokens: int = 0
    """Smallest saving for which results are cleared."""
    preview_characters: int = 0
    """Length of each preview; 0 leaves only the lines that must stay."""
    name: str = "clear_results"

    def __call__(self, situation: Situation) -> Edits | None:
        """Clear old results."""
        tracker = situation.tracker
        known = [result for result in tracker.results if not self.kinds or result.call.kind in self.kinds]
        newest = {result.place for result in known[-self.keep_last :]} if self.keep_last else set()
        may_go = {result.place for result in situation.visible_results()} - newest
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
        made = {result.place: _preview(tracker, result, self.preview_characters) for result in old}
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
            same = (r for r in situation.visible_results() if r.text == result.text and r.place not in stubbed)
            first = next((r for r in same if r.call.identity == result.call.identity), result)
            if first.place < result.place:
                turn_id = situation.tracker.turn_id(first.message)
                stubbed[result.place] = f"[Unchanged: the same result as in {turn_id}, above]"
        return _replaced(stubbed, "unchanged re-reads")


def _replaced(texts: dict[Place, str], what: str) -> Edits | None:
    """Return edits that replace content by these `texts`, except by empty ones; None if all are empty."""
    shorter = {place: text for place, text in texts.items() if text}
    return Edits(f"{len(shorter)} {what}", placeholders=shorter) if shorter else None


def _preview(tracker: HistoryTracker, result: Result, characters: int) -> str:
    """Return the first and last lines of a result, `characters` in all, with all lines that must stay between them.

    With 0 `characters`, a line that describes the call replaces the first and last lines. Empty if the preview saves no
    tokens.
    """
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
    """Return both ends of `text`, `characters` in all, with a mark for the gap; `text` itself if the gap is small."""
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
    """Return the numbers of as many of the first `lines` as fit in `characters`."""
    sizes = accumulate(len(line.text) + 1 for line in lines)
    return {line.number for line, size in zip(lines, sizes, strict=True) if size <= characters}


ROOM_SHARE = 0.5
"""Share of a limit that is filled after a removal of pictures; the rest stays free, since each removal rewrites the
cache."""
TEXT_CHARACTERS = 2_000
"""Length of the text that remains of a result whose picture is removed."""


@dataclass(frozen=True, slots=True)
class _Held:
    """Block of the list that is sent, with its pictures."""

    place: Place
    """Message and block in the history. A message of the compacted part has an index below zero."""
    block: Block
    load: Load
    rank: tuple[int, Place]
    """Sort key of the order of removal: tool results, then the user's pictures, then the live tail; oldest first."""


def fit_pictures(situation: Situation) -> Edits | None:
    """Remove pictures until the request is within the limits; None if it already is, or if there are none to remove."""
    limits, load, tracker, frame = situation.limits, situation.load, situation.tracker, situation.frame
    if limits.excess(load) <= 1:
        return None
    held = [
        *_held(frame.head, -len(frame.head), situation),
        *_held(tracker.plain[frame.start :], frame.start, situation),
    ]
    gone = _to_remove(sorted(held, key=lambda one: one.rank), limits, load)
    if not gone:
        return None
    texts = {one.place: _text_of(one.block) for one in gone}
    cut = {place: text for place, text in texts.items() if place[0] < 0}
    count = sum(one.load.images for one in gone)
    return Edits(
        f"{count} pictures: {load.images} pictures and {load.size:,} bytes are more than a request may have",
        placeholders={place: text for place, text in texts.items() if place[0] >= 0},
        head=_without(frame.head, cut) if cut else (),
    )


def _held(messages: Sequence[object], start: int, situation: Situation) -> Iterator[_Held]:
    """Yield the blocks with pictures in user `messages`, of which the first has the index `start` in the history."""
    live_start, replaced = situation.tracker.live_start, situation.frame.placeholders
    for at, message in enumerate(map(plain_message, messages), start):
        for number, block in enumerate(blocks(message)):
            pictures = () if (at, number) in replaced else pictures_in([block])
            load = sum(map(picture_load, pictures), Load())
            if load.images and message["role"] == "user":
                of_user, is_live = block["type"] != "tool_result", at >= live_start and at >= 0
                yield _Held((at, number), block, load, (2 * is_live + of_user, (at, number)))


def _to_remove(held: Sequence[_Held], limits: MediaLimits, load: Load) -> list[_Held]:
    """Return the blocks of `held` to remove, so that a request with this `load` is within `limits`.

    First come pictures that are too large alone, then large ones in tool results if many pictures forbid them, then the
    others in order of their rank.
    """
    gone = [one for one in held if one.load.largest > limits.largest]
    load = _less(load, gone, limits)
    if load.large and load.images > MANY_IMAGES:  # a request with many pictures may have no large one
        large = [one for one in held if one.load.large and one not in gone and one.block["type"] == "tool_result"]
        gone, load = gone + large, _less(load, large, limits)
    has_large = load.large and load.images > MANY_IMAGES  # those of the user stay, so other pictures go
    most = replace(limits, images=MANY_IMAGES) if has_large else limits
    if most.excess(replace(load, large=0)) <= 1:
        return gone
    for one in held:
        if most.excess(replace(load, large=0)) <= ROOM_SHARE:
            break
        if one not in gone:
            gone, load = [*gone, one], _less(load, [one], limits)
    return gone


def _less(load: Load, gone: Sequence[_Held], limits: MediaLimits) -> Load:
    """Return `load` without the blocks `gone`."""
    less = sum((one.load for one in gone), Load())
    size = sum(len(source_data(picture)) for one in gone for picture in pictures_in([one.block]))
    largest = 0 if less.largest > limits.largest else load.largest
    return Load(load.images - less.images, load.large - less.large, load.size - size, largest)


def _text_of(block: Block) -> str:
    """Return the text that replaces a block with pictures: its own text, and a mark for each picture."""
    inner = block.get("content")
    parts = inner if isinstance(inner, list) else [block]
    marks = [mark for part in parts if isinstance(part, dict) and (mark := media_mark(part))]
    text = "\n".join(readable_text([part]) for part in parts if not (isinstance(part, dict) and media_mark(part)))
    return "\n".join(filter(None, [text[:TEXT_CHARACTERS], *marks]))


def _without(head: Sequence[object], cut: dict[Place, str]) -> tuple[object, ...]:
    """Return `head` with each text of `cut` in place of the block at its place."""
    made: list[object] = []
    for at, message in enumerate(head, -len(head)):
        numbers = {number for place, number in cut if place == at}
        if not numbers:
            made.append(message)
            continue
        plain = plain_message(message)
        content = [*blocks(plain)]
        for number in numbers:
            text = f"{clean(cut[at, number])}\n[picture removed, its turn is stored]"
            content[number] = _as_text(content[number], text)
        made.append({**plain, "content": content})
    return tuple(made)


def _as_text(block: Block, text: str) -> Block:
    return {**block, "content": text} if block["type"] == "tool_result" else {"type": "text", "text": text}
