"""Tiers: the ways to shorten the list that is sent, each with constants that a preset chooses.

A tier reads a `Situation` and returns `Edits` (the changes it wants), or None if there is nothing to do; it changes
nothing itself. Some tiers return the plan that they want (`PlanWanted`), or make one by the place of the turns: a plan
decides for each turn, and guards check that failed attempts and the user's words stay. The others replace single tool
results and pasted texts by a short text; for pictures see `applier.session.pictures`.

Calls stay, so that each call has its result. In a result, lines of a failure and words of the user stay verbatim. New
content that the agent looked up is shortened only if the prompt would not fit otherwise. The text says how to restore
the original.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from applier.session.edits import Edits, Frame, Place, with_texts
from applier.session.history_tracker import HistoryTracker, Load, Result
from applier.session.pressure import Gauge, MediaLimits
from planner.analysis import Analysis
from planner.evidence.calls import RESTORE_TOOL, CallKind, bare_tool_name
from planner.guards import check_plan
from planner.placeholders import with_gaps
from planner.plan import CompactionPlan, HistoryStamp, Provenance, Strategy, TurnDecision
from planner.reading.lines import Line
from planner.reading.messages import History, Turn, blocks, plain_message
from planner.settings import PlanSettings

WORTH_SHARE, NEW_SHARE = 0.75, 0.5
"""Shares for a plan that is requested soon after the last one. If the usual goal would leave more than the first share
of the present list, the goal is what the last plan left and the second share of what was added since."""
FLOOR_SHARE = 0.4
"""Largest share of a small window that `PlanTurns.floor_tokens` may take."""
KEPT_SHARE = 0.25
"""Largest share of a small window that the newest messages may keep, even if a preset wants to keep more."""
FULL_SHARE, LEAST_SHARE = 0.9, 0.05
"""Shares of the room for messages if the newest, unanswered ones are long: all messages together fill at most the
first, but the older ones may always fill the second."""
PREVIEW_SHARE = 0.08
"""Largest length of a preview, in characters for each token that a prompt may have: shorter in a small window."""
LOOK_UP_TOOLS = frozenset((RESTORE_TOOL, "search_context"))
"""Names of the tools by which the agent reads removed content."""


@dataclass(frozen=True)
class Situation:
    """Data by which a tier (way to shorten the list) decides: history, list that would be sent now, sizes, limits."""

    tracker: HistoryTracker
    frame: Frame
    """Changes to the history that make the list that would be sent now."""
    gauge: Gauge
    tokens: int
    """Tokens of the whole prompt as it would be sent now."""
    limit_tokens: int
    new_from: int
    """Index in the history of the first message that was not sent yet."""
    settings: PlanSettings
    """Settings of plans, with the agent's model, its window and its tools."""
    load: Load = field(default_factory=Load)
    """Number of pictures and size in bytes of the messages that would be sent now."""
    limits: MediaLimits = field(default_factory=MediaLimits)
    """Largest number of pictures and largest size in bytes that a request may have."""
    carried_tokens: Callable[[], int] = int
    """Function that counts the tokens to be repeated after a plan: recent files, task lists, rules."""

    @property
    def room_tokens(self) -> int:
        """Tokens that remain for messages, after system prompt and tools."""
        return self.gauge.room_tokens(self.limit_tokens)

    def preview_characters(self, characters: int) -> int:
        """Return the length of a preview: `characters`, but less in a small window."""
        return min(characters, int(self.limit_tokens * PREVIEW_SHARE))

    def is_look_up(self, result: Result) -> bool:
        """Return True if `result` comes from a tool by which the agent reads removed content."""
        tool = result.call.name
        return bare_tool_name(tool) in LOOK_UP_TOOLS or tool == (self.settings.restore_tool or RESTORE_TOOL)

    def visible_results(self) -> list[Result]:
        """Return the tool results that the present list has whole, oldest first."""
        return [result for result in self.tracker.results if self._is_visible(result)]

    def arrived(self) -> list[Result]:
        """Return the new results, which were not sent yet, except removed content that the agent looked up. Takes time
        in proportion to the number of new results."""
        results = self.tracker.results
        new = results[bisect_left(results, self.new_from, key=lambda result: result.message) :]
        return [result for result in new if self._is_visible(result) and not self.is_look_up(result)]

    def _is_visible(self, result: Result) -> bool:
        """Return True if the present list has `result` whole, neither compacted nor replaced by a preview."""
        return result.message >= self.frame.start and result.place not in self.frame.placeholders


@dataclass(frozen=True, slots=True)
class PlanWanted:
    """Request of a tier (way to shorten the list) for a plan, and how the plan becomes a change of the list."""

    analysis: Analysis
    """History to plan, with everything that was read from it."""
    target_tokens: int
    """Size that the planner should reach, in tokens of our counter."""
    rules_only: bool = False
    """True if the rules plan and no model is asked."""
    kept: Collection[str] = frozenset()
    """Ids of turns that stay whole, whatever a plan decides."""
    undecided_from: int | None = None
    """Index of the first message that the plan does not change; None if it decides on all."""

    def edits_by(self, plan: CompactionPlan) -> Edits:
        """Return the edits that carry out `plan`, which was made for this request."""
        return _edits_by(_plan_that_keeps(plan, plan.bound_analysis or self.analysis, self.kept), self.undecided_from)


Tier = Callable[[Situation], Edits | PlanWanted | None]
"""Way to shorten the list: a function that returns the changes that it wants, or a request for a plan, or None if it
has nothing to do. The log shows its `name` attribute, or else its ``__name__``."""


@dataclass(frozen=True, slots=True)
class PlanTurns:
    """Way to shorten the list (tier) by a plan: each turn is kept, summarized, replaced by a reference, or dropped.
    Numbers count messages without the newest, unanswered ones, and without system prompt and tools."""

    target_share: float = 0.25
    """Share of the room for messages that the plan should leave."""
    history_share: float = 0.0
    """Share of the whole history that the plan should leave, if that is less; 0: not used."""
    target_tokens: int = 0
    """Largest number of tokens that the plan should leave; 0: no such limit."""
    floor_tokens: int = 0
    """Smallest number of tokens that the plan may aim at; in a small window at most `FLOOR_SHARE` of the room."""
    keep_last_messages: int = 0
    """Number of newest messages that the plan does not change."""
    keep_last_tokens: int = 0
    """Tokens of the newest turns that the plan does not change; at most `KEPT_SHARE` of the room."""
    keep_user_words: bool = False
    """True if `keep_last_tokens` applies only to the user's messages."""
    max_freed_tokens: int = 0
    """Largest number of tokens that one plan frees; 0: no limit."""
    rules_only: bool = False
    """True if the rules plan and no model is asked."""
    name: str = "plan"

    def goal_tokens(self, room_tokens: int, history_tokens: int) -> int:
        """Return the tokens that a plan should leave of a history of `history_tokens`, without the newest, unanswered
        messages. `room_tokens`: tokens available for messages."""
        floor = min(self.floor_tokens, int(room_tokens * FLOOR_SHARE))
        share = int(room_tokens * self.target_share)
        if self.history_share:
            share = min(share, int(history_tokens * self.history_share))
        share = max(floor, share)
        return min(share, self.target_tokens) if self.target_tokens else share

    def __call__(self, situation: Situation) -> PlanWanted:
        """Request a plan for the whole history, with the originals of what an earlier plan removed."""
        analysis = situation.tracker.analysis
        kept = self._turns_to_keep(situation, analysis.history)
        undecided_from = len(situation.tracker) - self.keep_last_messages if self.keep_last_messages else None
        return PlanWanted(analysis, self.target_tokens_for(situation), self.rules_only, kept, undecided_from)

    def target_tokens_for(self, situation: Situation) -> int:
        """Return the size that the planner should reach, in tokens of our counter: the goal and the newest, unanswered
        messages, without room for the text that is repeated after the plan."""
        room_tokens, gauge, tracker = situation.room_tokens, situation.gauge, situation.tracker
        live_tokens = gauge.of_messages(sum(tracker.counted[tracker.live_start :]))
        older_tokens = max(0, situation.tokens - gauge.prompt(0) - live_tokens)
        goal_tokens = self.goal_tokens(room_tokens, gauge.of_messages(tracker.tokens))
        if goal_tokens > older_tokens * WORTH_SHARE:  # little would be removed
            new_tokens = gauge.of_messages(sum(tracker.counted[situation.frame.start : tracker.live_start]))
            goal_tokens = min(goal_tokens, older_tokens - int(new_tokens * (1 - NEW_SHARE)))
        if self.max_freed_tokens:
            goal_tokens = max(goal_tokens, older_tokens - self.max_freed_tokens)
        most_tokens = max(int(room_tokens * LEAST_SHARE), int(room_tokens * FULL_SHARE) - live_tokens)
        goal_tokens = min(goal_tokens, most_tokens)
        return max(1, gauge.countable(goal_tokens + live_tokens) - situation.carried_tokens())

    def _turns_to_keep(self, situation: Situation, history: History) -> set[str]:
        """Return the ids of the newest turns that stay whole by this tier's constants, whatever a plan decides."""
        counted, last = situation.tracker.counted, len(situation.tracker)
        kept = {turn.id for turn in history.turns if turn.stop > last - self.keep_last_messages}
        tokens_left = min(self.keep_last_tokens, situation.gauge.countable(situation.room_tokens * KEPT_SHARE))
        for turn in reversed(history.turns):
            if self.keep_user_words and turn.kind != "user":
                continue
            tokens_left -= sum(counted[turn.start : turn.stop])
            if tokens_left < 0:
                break
            kept.add(turn.id)
        return kept


@dataclass(frozen=True, slots=True)
class PlanAgain:
    """Way to shorten the list (tier) after the caller has edited messages that a plan was made of: plan the same
    messages again, by rules. Later messages stay as they are sent now."""

    outdated: CompactionPlan
    """Plan that was made for the messages before they were edited."""
    name: str = "plan_again"

    def __call__(self, situation: Situation) -> PlanWanted:
        """Request a plan by rules for the same messages with the same target."""
        analysis = situation.tracker.analysis_of(self.outdated.history.messages)
        return PlanWanted(analysis, self.outdated.target_tokens, rules_only=True)


@dataclass(frozen=True, slots=True)
class SnipMiddle:
    """Way to shorten the list (tier): remove the middle of a list with too many messages."""

    over_messages: int = 50
    """Number of messages that a list may have: with more than `batch_messages` above it, the middle is removed."""
    keep_first: int = 3
    keep_last: int = 47
    batch_messages: int = 10
    """Number of further messages before the next removal, as after each one later messages are billed again."""
    name: str = "snip"

    def __call__(self, situation: Situation) -> Edits | None:
        """Remove the middle of the list; None if it does not have too many messages."""
        sent = len(situation.frame.head) + len(situation.tracker) - situation.frame.start
        if sent <= self.over_messages + self.batch_messages:
            return None
        tail = len(situation.tracker) - self.keep_last
        plan = _positional_plan(situation, self.name, lambda turn: turn.start < self.keep_first or turn.stop > tail)
        return _edits_by(plan, 0, "by place")  # 0: shortened results stay shortened


@dataclass(frozen=True, slots=True)
class RetreatHead:
    """Way to shorten the list (tier) of last resort: remove the oldest turns until the others fit."""

    goal_share: float = 0.5
    """Share of the room for messages that the remaining turns may fill."""
    name: str = "retreat"

    def __call__(self, situation: Situation) -> Edits | None:
        """Drop the oldest turns until the others fill at most `goal_share` of the room; None if all fit in it."""
        tracker = situation.tracker
        goal = situation.gauge.countable(situation.room_tokens * self.goal_share)
        sizes_from_end = accumulate(reversed(tracker.counted))
        fitting = sum(1 for size in sizes_from_end if size <= goal)  # number of messages at the end
        border = len(tracker) - fitting
        if border == 0:
            return None
        plan = _positional_plan(situation, self.name, lambda turn: turn.start >= border)
        return _edits_by(plan, 0, "oldest first")


def _plan_that_keeps(plan: CompactionPlan, analysis: Analysis, kept: Collection[str]) -> CompactionPlan:
    """Return `plan` with the turns `kept` (ids) kept, checked again by the guards; `plan` itself if it keeps them."""
    if all(decision.strategy == "keep" for decision in plan.turns if decision.turn_id in kept):
        return plan
    turns = tuple(
        decision.model_copy(update={"strategy": "keep"}) if decision.turn_id in kept else decision
        for decision in plan.turns
    )
    return check_plan(plan.model_copy(update={"turns": turns}), analysis)


def _positional_plan(situation: Situation, planner: str, stays: Callable[[Turn], bool]) -> CompactionPlan:
    """Return a plan, checked by the guards, that keeps the unanswered turns and those for which `stays` is true, and
    drops all others. `planner`: name of the tier, for the log."""
    analysis, settings = situation.tracker.analysis, situation.settings
    decisions = []
    for turn in analysis.history.turns:
        kept, reason = turn.live or stays(turn), "by its place in the conversation"
        strategy: Strategy = "keep" if kept else "drop"
        decisions.append(TurnDecision(turn_id=turn.id, strategy=strategy, relevance_score=float(kept), reason=reason))
    plan = CompactionPlan(
        task="",
        history=HistoryStamp.of(analysis.history, analysis.tokens),
        target_tokens=situation.gauge.countable(situation.room_tokens),
        target_model=settings.target_model,
        window_tokens=settings.window_tokens,
        restore_tool=settings.restore_tool,
        turns=tuple(decisions),
        estimated_tokens=analysis.tokens,
        provenance=Provenance(planner=planner),
    )
    return check_plan(plan, analysis)


def _edits_by(plan: CompactionPlan, undecided_from: int | None = None, order: str = "") -> Edits:
    """Return the edits that carry out `plan`, with a text for the log: ``3 keep, 12 drop, by rules (REASON)``. `order`
    replaces the planner's name in it. `undecided_from`: as in `Edits`."""
    counts = Counter(decision.strategy for decision in plan.turns)
    shown = ", ".join(f"{count} {strategy}" for strategy, count in counts.items())
    planner, notes = plan.provenance.planner, "; ".join(plan.provenance.notes)
    author = f"by {planner} ({notes})" if planner == "rules" and notes else f"by {planner}"
    return Edits(f"{shown}, {order or author}", plan=plan, undecided_from=undecided_from)


TEXT_ROOM_SHARE = 0.2
"""Share of the limit that is freed in addition, for later messages, when a user's own text is cut to fit."""
SMALL_WINDOW_SHARE = 0.8
"""Largest share of the room that new results may fill whole, even if a preset allows more."""
RESTORE_LINE_TOKENS = 40
"""Largest size of the line below a shortened result that says how to restore it."""
TAIL_SHARE = 0.25
"""Share of a preview that shows the end of a result, where errors mostly are."""
LEAST_LEFT_OUT = 200
"""Smallest number of characters that are worth leaving out, as a mark takes their place."""


@dataclass(frozen=True, slots=True)
class DemoteLarge:
    """Way to shorten the list (tier): replace large new tool results by previews; the originals are stored. It shortens
    every result over `over_tokens`. In the newest message it also shortens the largest results, until the others have
    at most `characters` together and fit the window."""

    over_tokens: int = sys.maxsize
    characters: int = sys.maxsize
    preview_characters: int = 2_000
    """Length of a preview; three-layer and s08 show 2,000 characters."""
    name: str = "demote_large"

    def __call__(self, situation: Situation) -> Edits | None:
        """Replace new results that are too large by previews; None if there are none."""
        too_large, newest = list[Result](), len(situation.tracker) - 1
        room = situation.room_tokens * SMALL_WINDOW_SHARE
        tokens_left, characters_left = room, self.characters
        for result in sorted(situation.arrived(), key=lambda result: result.tokens):
            tokens, characters = situation.gauge.of_messages(result.tokens), len(result.text)
            is_newest = result.message == newest  # these must fit together
            fits = not is_newest or (tokens <= tokens_left and characters <= characters_left)
            if tokens > min(self.over_tokens, room) or not fits:  # the smallest come first
                too_large.append(result)
            elif is_newest:
                tokens_left, characters_left = tokens_left - tokens, characters_left - characters
        characters_shown = situation.preview_characters(self.preview_characters)
        previews = {result.place: _preview(situation.tracker, result, characters_shown) for result in too_large}
        return _edits_of(previews, "large results")


@dataclass(frozen=True, slots=True)
class FitNewest:
    """Way to shorten the list (tier) of last resort: cut even the newest, unanswered messages, as they would not fit.
    It first shortens tool results, the largest first; those that the agent looked up in the store come last. Then it
    cuts the middle of text that a user pasted, and of long lines in the compacted part."""

    preview_characters: int = 2_000
    name: str = "fit_newest"

    def __call__(self, situation: Situation) -> Edits | None:
        """Shorten large content until the prompt is within the limit; None if nothing can be shortened."""
        tokens_over, tracker = situation.tokens - situation.limit_tokens, situation.tracker
        least_characters, replacements = situation.preview_characters(self.preview_characters), dict[Place, str]()
        results = [result for result in situation.visible_results() if result.message >= tracker.live_start]
        for result in sorted(results, key=lambda result: (situation.is_look_up(result), -result.tokens)):
            if tokens_over > 0 and (preview := _preview(tracker, result, least_characters)):
                replacements[result.place] = preview
                preview_tokens = tracker.counter.text(preview) + RESTORE_LINE_TOKENS
                tokens_over -= situation.gauge.of_messages(result.tokens - preview_tokens)
        if tokens_over > 0:  # the results were not enough
            tokens_over += int(situation.limit_tokens * TEXT_ROOM_SHARE)
        for place, text in sorted(_user_texts(situation), key=lambda item: -len(item[1])):
            shown, freed = _cut_text(situation, text, tokens_over, least_characters)
            if freed:
                replacements[place] = shown
                tokens_over -= freed - situation.gauge.of_messages(RESTORE_LINE_TOKENS)
        head = _cut_head(situation, tokens_over, least_characters)
        edits = _edits_of(replacements, "texts: would not fit the window otherwise")
        if head == situation.frame.head:
            return edits
        return replace(edits or Edits("compacted part cut: would not fit the window otherwise"), head=head)


def _user_texts(situation: Situation) -> Iterator[tuple[Place, str]]:
    """Yield the user's texts after the compacted part, each with its position (message and block index)."""
    tracker, frame = situation.tracker, situation.frame
    for at in range(frame.start, len(tracker)):
        if tracker.plain[at]["role"] == "user":
            for number, block in enumerate(blocks(tracker.plain[at])):
                if block["type"] == "text" and (at, number) not in frame.placeholders:
                    yield (at, number), str(block.get("text", ""))


def _cut_text(
    situation: Situation, text: str, over: int, least_characters: int, *, by_line: bool = False
) -> tuple[str, int]:
    """Cut `over` tokens from the middle of `text`; return the shorter text and the number of freed tokens. Both ends
    keep at least `least_characters` together. `by_line`: cut each line to `least_characters` instead, so that the notes
    in a compacted part, one a line, all keep their beginning."""

    def tokens(text: str) -> int:
        return situation.gauge.of_messages(situation.tracker.counter.text(text))

    if over <= 0:
        return text, 0
    if by_line:
        shown = "\n".join(_both_ends(line, least_characters) for line in text.split("\n"))
    else:
        shown = _both_ends(text, max(least_characters, int(len(text) * (1 - over / max(1, tokens(text))))))
    return shown, max(0, tokens(text) - tokens(shown))


def _cut_head(situation: Situation, over: int, least_characters: int) -> tuple[object, ...]:
    """Return the compacted part (head) with the user's texts and the notes in it cut by `over` tokens in all."""
    new_head: list[object] = []
    for at, message in enumerate(situation.frame.head):
        plain, cut = plain_message(message), dict[Place, str]()
        for number, block in enumerate(blocks(plain)):
            if plain["role"] == "user" and block["type"] == "text":
                text = str(block.get("text", ""))
                is_note = "<compacted" in text  # on turns that were summarized or dropped
                shown, freed = _cut_text(situation, text, over, least_characters, by_line=is_note)
                over -= freed
                cut |= {(at, number): shown} if freed else {}
        new_head.append(with_texts(message, cut, at))
    return tuple(new_head)


@dataclass(frozen=True, slots=True)
class ClearResults:
    """Way to shorten the list (tier): replace each old tool result by a line on it, and keep the newest ones whole."""

    keep_last: int = 3
    """Number of newest results that are kept."""
    protect_tokens: int = 0
    """Size of the newest part of the history in which all results are kept."""
    over_tokens: int = 0
    """Size of a result in tokens; only larger ones are replaced."""
    over_characters: int = 0
    """Length of a result in characters; only longer ones are replaced."""
    kinds: frozenset[CallKind] = frozenset()
    """Kinds of calls whose results may be replaced (``run``, ``read``, …); empty for all kinds."""
    min_free_tokens: int = 0
    """Smallest saving, in tokens of our counter, for which results are replaced at all."""
    preview_characters: int = 0
    """Length of the preview in place of a result; 0 shows only lines that must stay, such as errors."""
    name: str = "clear_results"

    def __call__(self, situation: Situation) -> Edits | None:
        """Replace old results by a line each; None if there are none, or too small ones."""
        tracker = situation.tracker
        of_kinds = [result for result in tracker.results if not self.kinds or result.call.kind in self.kinds]
        newest = {result.place for result in of_kinds[-self.keep_last :]} if self.keep_last else set()
        removable = {result.place for result in situation.visible_results()} - newest
        border, least_characters = self._border(situation), max(self.over_characters, self.preview_characters)
        old = [
            result
            for result in of_kinds
            if result.place in removable
            and result.message < border
            and result.tokens > self.over_tokens
            and len(result.text) > least_characters
        ]
        if not old or sum(result.tokens for result in old) < self.min_free_tokens:
            return None
        previews = {result.place: _preview(tracker, result, self.preview_characters) for result in old}
        return _edits_of(previews, "old results")

    def _border(self, situation: Situation) -> int:
        """Return the index of the first message from which on all results are kept: the newest `protect_tokens` of the
        history, and at least the results that the model has not answered yet."""
        tracker = situation.tracker
        border = min(len(tracker) - 1, tracker.live_start)
        tokens_left = self.protect_tokens - sum(tracker.counted[border:])
        while tokens_left > 0 and border > 0:
            border -= 1
            tokens_left -= tracker.counted[border]
        return border


@dataclass(frozen=True, slots=True)
class StubRereads:
    """Way to shorten the list (tier): replace the result of a repeated call by a note, if the same call had the same
    result before and that is still sent whole."""

    over_characters: int = 400
    name: str = "stub_rereads"

    def __call__(self, situation: Situation) -> Edits | None:
        """Replace new results that repeat an earlier one by notes; None if there are none."""
        stubbed: dict[Place, str] = {}
        for result in situation.arrived():
            if len(result.text) <= self.over_characters:  # a note would save little
                continue
            same = (r for r in situation.visible_results() if r.text == result.text and r.place not in stubbed)
            first = next((r for r in same if r.call.identity == result.call.identity), result)
            if first.place < result.place:  # else `first` is the result itself
                turn_id = situation.tracker.turn_id(first.message)
                stubbed[result.place] = f"[Unchanged: the same result as in {turn_id}, above]"
        return _edits_of(stubbed, "unchanged re-reads")


def _edits_of(texts: dict[Place, str], what: str) -> Edits | None:
    """Return edits that send `texts` in place of the blocks at their positions. Empty texts are left out; None if all
    are empty. `what`: name of the blocks for the log, such as ``old results``."""
    shorter = {place: text for place, text in texts.items() if text}
    return Edits(f"{len(shorter)} {what}", placeholders=shorter) if shorter else None


def _preview(tracker: HistoryTracker, result: Result, characters: int) -> str:
    """Return a short text in place of a result: its first and last lines, `characters` in all, and lines between them
    that must stay (a failure, the user's words). With 0 `characters`, a line that names the tool replaces the first and
    last lines. Return an empty text if the preview would save no tokens."""
    tail_characters = int(characters * TAIL_SHARE)
    lines, must_stay = _lines_of(tracker, result)
    head = _fitting_lines(lines, characters - tail_characters)
    tail = _fitting_lines(lines[::-1], tail_characters)
    shown = with_gaps([line for line in lines if line.number in head | tail | must_stay])
    if characters:
        size = f"[{len(result.text):,} characters in all]" if result.text else "[no text]"
        text = f"{shown}\n{size}" if shown else size
    else:
        text = f"[Previous: used {result.call.name or 'a tool'}]\n{shown}".rstrip()
    return text if tracker.counter.text(text) + RESTORE_LINE_TOKENS < result.tokens else ""


def _both_ends(text: str, characters: int) -> str:
    """Return both ends of `text`, `characters` in all, with a mark for the gap; `text` itself if the gap is small."""
    left_out, tail = len(text) - characters, int(characters * TAIL_SHARE)
    if left_out < LEAST_LEFT_OUT:
        return text
    return f"{text[: characters - tail]} … {left_out:,} characters left out, in the store … {text[-tail:]}"


def _lines_of(tracker: HistoryTracker, result: Result) -> tuple[Sequence[Line], set[int]]:
    """Return the lines of a result, and the numbers of those that must stay: of a failure, or of the user's words."""
    turn = tracker.history.by_id[tracker.turn_id(result.message)]
    evidence = tracker.analysis.evidence.by_digest[turn.digest]
    blocks_before = sum(len(blocks(message)) for message in tracker.plain[turn.start : result.message])
    lines = evidence.lines.of_block(blocks_before + result.block)
    must_stay = {*evidence.failure_lines, *(line.number for line in evidence.typed_lines)}
    return lines, must_stay & {line.number for line in lines}


def _fitting_lines(lines: Sequence[Line], characters: int) -> set[int]:
    """Return the numbers of the first of `lines` that have at most `characters` together, with their line breaks."""
    sizes = accumulate(len(line.text) + 1 for line in lines)
    return {line.number for line, size in zip(lines, sizes, strict=True) if size <= characters}
