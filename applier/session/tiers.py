"""What a tier sees, the one signature of all tiers, and the tiers: of whole turns, and of single tool results.

A tier decides which edits to make and makes none: it returns them, or None when there is nothing to do. Those of turns
end in a `CompactionPlan` that went through the guards, so failed approaches and the user's words stay whichever it was.
Those of results leave each call in place and a placeholder behind it, so pairs are never split; lines that show a
failure and words of the user stay verbatim, and what the agent's own tool brought back is demoted only where several of
its pages at once would not fit the window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from applier.session.frame import Edits, Frame, Place
from applier.session.history_tracker import HistoryTracker, Result
from applier.session.request import Gauge
from planner.analysis import Analysis
from planner.api import RESTORE_TOOL, bare_tool_name, check_plan
from planner.evidence.calls import CallKind
from planner.plan import CompactionPlan, HistoryStamp, Provenance, TurnDecision
from planner.reading.history import History, Turn
from planner.reading.lines import Line
from planner.reading.messages import blocks, plain_message
from planner.settings import PlanSettings

__all__ = [
    "BudgetResults",
    "ClearResults",
    "DemoteLarge",
    "FitNewest",
    "PlanTurns",
    "RetreatHead",
    "Situation",
    "SnipMiddle",
    "StubRereads",
    "Tier",
]

WORTH_SHARE, ASKED_SHARE = 0.75, 0.5
"""Where the goal would leave more than the first share of what there is, someone has asked for a compaction in a roomy
window: the goal is the second share of what came since the last plan, and what that plan left."""
FLOOR_SHARE = 0.4
KEPT_SHARE = 0.25
"""Of a small window, the newest messages may keep this share whatever a preset's constant says."""
FULL_SHARE, LEAST_SHARE = 0.9, 0.05
"""Where what the model waits for fills the window up to the first share, the rest may have the second."""


@dataclass(frozen=True)
class Situation:
    """The session as one tier sees it."""

    tracker: HistoryTracker
    frame: Frame
    gauge: Gauge
    tokens: int
    """Of the whole prompt as it would be sent now."""
    limit_tokens: int
    new_from: int
    """Index in the history of the first message that was not sent yet."""
    make_plan: Callable[..., CompactionPlan]
    """`Planning.make`: the planner, its fall-back and its breaker are behind this."""
    settings: PlanSettings
    """Of the plans: the agent's model, its window and its tools among them."""
    wanted: Collection[str] = ()
    """Ids of turns that the agent has named since they were removed: a plan keeps them."""
    focus: str = ""
    carried_tokens: Callable[[], int] = int
    """What will be said again behind a plan, by the counter: files, lists, rules."""

    @property
    def room_tokens(self) -> int:
        """What the messages may have beside system and tools."""
        return self.gauge.room_tokens(self.limit_tokens)

    @property
    def message_tokens(self) -> int:
        """What the messages have."""
        return max(0, self.tokens - self.gauge.prompt(0))

    @property
    def live_tokens(self) -> int:
        """What the model waits for; no plan touches it."""
        return self.gauge.of_messages(sum(self.tracker.counted[self.tracker.live_start :]))

    @property
    def unplanned_tokens(self) -> int:
        """What came since the last plan, without what the model waits for."""
        return self.gauge.of_messages(sum(self.tracker.counted[self.frame.start : self.tracker.live_start]))

    def standing(self) -> list[Result]:
        """Tool results that are still sent whole, oldest first."""
        return [result for result in self.tracker.results if self.stands(result)]

    def new_results(self) -> list[Result]:
        """Those of them that were not sent yet; work proportional to the new ones."""
        return [result for result in self.tracker.results_from(self.new_from) if self.stands(result)]

    def stands(self, result: Result) -> bool:
        """True if `result` is sent whole."""
        return result.message >= self.frame.start and result.place not in self.frame.placeholders


Tier = Callable[[Situation], Edits | None]
"""``__name__`` or a ``name`` attribute names it in the log."""


@dataclass(frozen=True, slots=True)
class PlanTurns:
    """The planner ranks, the solver fits: every turn kept, summarized, referenced or dropped.

    Numbers are of the messages; what the model waits for, system and tools stand beside them.
    """

    target_share: float = 0.25
    """What is left, as a share of the room that messages have."""
    target_tokens: int = 0
    """And at most so many tokens; 0: the share alone."""
    floor_tokens: int = 0
    """But at least so many, where a small window has them: up to `FLOOR_SHARE` of the room."""
    list_share: float = 0.0
    """A share of the list as it is sent, in place of all three; 0: not used."""
    keep_last_messages: int = 0
    keep_last_tokens: int = 0
    """The newest messages that stay as they are, on top of the target; a quarter of the limit at most."""
    keep_user_words: bool = False
    """Only user messages are kept by `keep_last_tokens`."""
    max_freed_tokens: int = 0
    """Free no more than this in one round; 0: no limit."""
    rules_only: bool = False
    name: str = "plan"

    def goal_tokens(self, room_tokens: int, message_tokens: int = 0) -> int:
        """What is to be left of messages that have `message_tokens`."""
        if self.list_share:
            return int(min(message_tokens or room_tokens, room_tokens) * self.list_share)
        floor = min(self.floor_tokens, int(room_tokens * FLOOR_SHARE))
        share = max(floor, int(room_tokens * self.target_share))
        return min(share, self.target_tokens) if self.target_tokens else share

    def __call__(self, situation: Situation) -> Edits | None:
        """Plan the whole history, originals and all."""
        analysis = situation.tracker.analysis
        kept = self._kept(situation, analysis.history)
        target = self.target_tokens_for(situation)
        plan = situation.make_plan(analysis, target, situation.focus, rules_only=self.rules_only)
        plan = _keeping(plan, plan.bound_analysis or analysis, kept)
        unweighed_from = len(situation.tracker) - self.keep_last_messages if self.keep_last_messages else None
        return Edits(f"{_counts(plan)}, {_author(plan.provenance)}", plan=plan, unweighed_from=unweighed_from)

    def target_tokens_for(self, situation: Situation) -> int:
        """What the planner is asked for, by the counter: the goal, without what stands beside its plan."""
        room, live = situation.room_tokens, situation.live_tokens
        older = max(0, situation.message_tokens - live)
        goal = self.goal_tokens(room, older)
        if goal > older * WORTH_SHARE and not self.list_share:
            goal = min(goal, older - int(situation.unplanned_tokens * (1 - ASKED_SHARE)))
        if self.max_freed_tokens:
            goal = max(goal, older - self.max_freed_tokens)
        goal = min(goal, max(int(room * LEAST_SHARE), int(room * FULL_SHARE) - live))
        tracker = situation.tracker
        wanted = [turn for turn in tracker.history.turns if turn.id in situation.wanted]
        reserved = sum(sum(tracker.counted[turn.start : turn.stop]) for turn in wanted)
        return max(1, situation.gauge.countable(goal + live) - reserved - situation.carried_tokens())

    def _kept(self, situation: Situation, history: History) -> set[str]:
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
        return kept | set(situation.wanted)


@dataclass(frozen=True, slots=True)
class SnipMiddle:
    """Over so many messages, the middle goes and both ends stay."""

    over_messages: int = 50
    keep_first: int = 3
    keep_last: int = 47
    batch_messages: int = 10
    """Wait for so many more: every snip bills the messages behind it anew."""
    name: str = "snip"

    def __call__(self, situation: Situation) -> Edits | None:
        """Snip when the list that is sent has more messages than it may."""
        sent = len(situation.frame.head) + len(situation.tracker) - situation.frame.start
        if sent <= self.over_messages + self.batch_messages:
            return None
        tail = len(situation.tracker) - self.keep_last
        plan = _positional_plan(
            situation,
            self.name,
            lambda turn: turn.start < self.keep_first or turn.stop > tail or turn.id in situation.wanted,
        )
        return Edits(f"{_counts(plan)}, by place", plan=plan, unweighed_from=0)


@dataclass(frozen=True, slots=True)
class RetreatHead:
    """The last resort: the oldest turns leave, group by group, until the rest fits."""

    goal_share: float = 0.5
    """Of the room that messages have."""
    name: str = "retreat"

    def __call__(self, situation: Situation) -> Edits | None:
        """Drop from the front until what is kept is within the goal."""
        tracker = situation.tracker
        left = situation.gauge.countable(situation.room_tokens * self.goal_share)
        border = len(tracker)
        while border > 0 and left - tracker.counted[border - 1] >= 0:
            border -= 1
            left -= tracker.counted[border]
        if border == 0:
            return None
        plan = _positional_plan(situation, self.name, lambda turn: turn.start >= border)
        return Edits(f"{_counts(plan)}, oldest first", plan=plan, unweighed_from=0)


def _keeping(plan: CompactionPlan, analysis: Analysis, kept: Collection[str]) -> CompactionPlan:
    """`plan` that keeps these turns, guarded again; the same plan if it does."""
    if all(decision.strategy == "keep" for decision in plan.turns if decision.turn_id in kept):
        return plan
    turns = tuple(
        decision.model_copy(update={"strategy": "keep"}) if decision.turn_id in kept else decision
        for decision in plan.turns
    )
    return check_plan(plan.model_copy(update={"turns": turns}), analysis)


def _positional_plan(situation: Situation, planner: str, stays: Callable[[Turn], bool]) -> CompactionPlan:
    analysis, settings = situation.tracker.analysis, situation.settings
    plan = CompactionPlan(
        task="",
        history=HistoryStamp.of(analysis.history, analysis.tokens),
        target_tokens=situation.gauge.countable(situation.room_tokens),
        target_model=settings.target_model,
        window_tokens=settings.window_tokens,
        restore_tool=settings.restore_tool,
        turns=tuple(_by_place(turn, turn.live or stays(turn)) for turn in analysis.history.turns),
        estimated_tokens=analysis.tokens,
        provenance=Provenance(planner=planner),
    )
    return check_plan(plan, analysis)


def _by_place(turn: Turn, stays: bool) -> TurnDecision:
    return TurnDecision(
        turn_id=turn.id,
        strategy="keep" if stays else "drop",
        relevance_score=float(stays),
        reason="by its place in the conversation",
    )


def _author(provenance: Provenance) -> str:
    """Who made a plan; of rules also why not a model, where one might have."""
    notes = "; ".join(provenance.notes) if provenance.planner == "rules" else ""
    return f"by {provenance.planner}{f' ({notes})' * bool(notes)}"


def _counts(plan: CompactionPlan) -> str:
    counts = Counter(decision.strategy for decision in plan.turns)
    return ", ".join(f"{count} {strategy}" for strategy, count in counts.items())


RESTORE_LINE_TOKENS = 40
"""What the line on how to restore a result takes at most."""
PREVIEW_SHARE = 0.08
"""A preview has at most so many characters for each token of the limit: in a small window less is shown."""
TAIL_SHARE = 0.25
"""How much of a preview shows the end of a result: an error mostly stands there."""
LEAST_LEFT_OUT = 200
"""Characters of a text; fewer are not worth the mark."""
TEXT_ROOM_SHARE = 0.2
"""Of the limit: where a user's own text is cut to fit, so much is left for what comes next."""
SMALL_WINDOW_SHARE = 0.8
"""Of the room that messages have: whatever a preset's constant says, more would not fit the window otherwise."""
LOOK_UPS = frozenset((RESTORE_TOOL, "search_context"))
"""Answers of these are what was removed before; they come in pages of which each one fits."""


def _is_look_up(situation: Situation, result: Result) -> bool:
    tool = result.call.name
    return bare_tool_name(tool) in LOOK_UPS or tool == (situation.settings.restore_tool or RESTORE_TOOL)


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
        newest = [r for r in situation.new_results() if r.message == last and not _is_look_up(situation, r)]
        largest = sorted(newest, key=lambda result: -result.tokens)
        count = next(n for n in range(len(largest) + 1) if self._fits(situation, largest[n:]))
        return _previews(situation, largest[:count], self.preview_characters, "results of one message over budget")

    def _fits(self, situation: Situation, results: Sequence[Result]) -> bool:
        tokens = situation.gauge.of_messages(sum(result.tokens for result in results))
        characters = sum(len(result.text) for result in results)
        return characters <= self.characters and tokens <= situation.room_tokens * SMALL_WINDOW_SHARE


@dataclass(frozen=True, slots=True)
class FitNewest:
    """What the model waits for, last of all, where the prompt would not fit the window otherwise: results, largest
    first, and what was looked up behind everything else; then what a user pasted, to both of its ends; then lines in
    the compacted part that no message needs so long."""

    preview_characters: int = 2_000
    name: str = "fit_newest"

    def __call__(self, situation: Situation) -> Edits | None:
        """Demote what is large until the prompt is within the limit."""
        over, tracker = situation.tokens - situation.limit_tokens, situation.tracker
        results = [r for r in situation.standing() if r.message >= tracker.live_start]
        made: dict[Place, str] = {}
        for result in sorted(results, key=lambda result: (_is_look_up(situation, result), -result.tokens)):
            if over <= 0:
                break
            preview = _preview(situation, result, self.preview_characters)
            if preview:
                made[result.place] = preview
                left = tracker.counter.text(preview) + RESTORE_LINE_TOKENS
                over -= situation.gauge.of_messages(result.tokens - left)
        most = min(self.preview_characters, int(situation.limit_tokens * PREVIEW_SHARE))
        over += int(situation.limit_tokens * TEXT_ROOM_SHARE) if over > 0 else 0
        for place, text in sorted(_user_texts(situation), key=lambda item: -len(item[1])):
            tokens = situation.gauge.of_messages(tracker.counter.text(text))
            kept = max(most, int(len(text) * (1 - over / max(1, tokens))))
            if over <= 0 or (shown := _ends(text, kept)) == text:
                break
            made[place] = shown
            over -= tokens - situation.gauge.of_messages(tracker.counter.text(made[place]) + RESTORE_LINE_TOKENS)
        head = _cut_head(situation, over, most) if over > 0 else situation.frame.head
        edits = _replaced(made, "texts: would not fit the window otherwise")
        if head == situation.frame.head:
            return edits
        return replace(edits or Edits("compacted part cut: would not fit the window otherwise"), head=head)


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
        known = [result for result in situation.tracker.results if self._may_go(result)]
        newest = {result.place for result in known[-self.keep_last :]} if self.keep_last else set()
        border = self._border(situation)
        old = [
            result
            for result in situation.standing()
            if result.place not in newest
            and result.message < border
            and self._may_go(result)
            and result.tokens > self.over_tokens
            and len(result.text) > max(self.over_characters, self.preview_characters)
        ]
        if not old or sum(result.tokens for result in old) < self.min_free_tokens:
            return None
        made = {result.place: self._left(situation.tracker, result) for result in old}
        return _replaced(made, "old results")

    def _may_go(self, result: Result) -> bool:
        return not self.kinds or result.call.kind in self.kinds

    def _left(self, tracker: HistoryTracker, result: Result) -> str:
        """What is left of a result; empty if that gains nothing."""
        if self.preview_characters:
            return _if_shorter(tracker, _shown(tracker, result, self.preview_characters), result)
        lines, pinned = _lines(tracker, result)
        label = f"[Previous: used {result.call.name or 'a tool'}]\n{_joined(lines, pinned)}"
        return _if_shorter(tracker, label.rstrip(), result)

    def _border(self, situation: Situation) -> int:
        """Messages from here on are protected; what the model has not answered yet always is."""
        tracker = situation.tracker
        border = min(len(tracker) - 1, tracker.live_start)
        left = self.protect_tokens - sum(tracker.counted[border:])
        while left > 0 and border > 0:
            border -= 1
            left -= tracker.counted[border]
        return border


@dataclass(frozen=True, slots=True)
class StubRereads:
    """A call made again with the same answer, while the first answer still stands, is answered by a stub."""

    over_characters: int = 400
    name: str = "stub_rereads"

    def __call__(self, situation: Situation) -> Edits | None:
        """Stub what has just arrived."""
        stubbed: dict[Place, str] = {}
        for result in situation.new_results():
            if len(result.text) <= self.over_characters or _is_look_up(situation, result):
                continue
            earlier = situation.tracker.repeated_by(result)
            first = next((r for r in earlier if situation.stands(r) and r.place not in stubbed), None)
            if first is not None:
                turn_id = situation.tracker.turn_id(first.message)
                stubbed[result.place] = f"[Unchanged: the same result as in {turn_id}, above]"
        return _replaced(stubbed, "unchanged re-reads")


def _user_texts(situation: Situation) -> Iterator[tuple[Place, str]]:
    """What users say in the messages that are sent one by one."""
    tracker, frame = situation.tracker, situation.frame
    for at in range(frame.start, len(tracker)):
        if tracker.plain[at]["role"] == "user":
            for number, block in enumerate(blocks(tracker.plain[at])):
                if block["type"] == "text" and (at, number) not in frame.placeholders:
                    yield (at, number), str(block.get("text", ""))


def _cut_head(situation: Situation, over: int, characters: int) -> tuple[object, ...]:
    """The messages of the compacted part with what users said there cut by `over` tokens in all, and in its notes each
    longer line to `characters` of its ends: what is left out is in the store."""
    counter, cut = situation.tracker.counter, list[object]()
    for message in situation.frame.head:
        plain = plain_message(message)
        content = list(blocks(plain))
        for at, block in enumerate(content):
            text = str(block.get("text", "")) if plain["role"] == "user" and block["type"] == "text" else ""
            tokens = situation.gauge.of_messages(counter.text(text))
            if "<compacted" in text:
                shown = "\n".join(_ends(line, characters) for line in text.split("\n"))
            else:
                shown = _ends(text, max(characters, int(len(text) * (1 - over / max(1, tokens)))))
            if over > 0 and len(shown) < len(text):
                content[at] = {**block, "text": shown}
                over -= tokens - situation.gauge.of_messages(counter.text(shown))
        cut.append(message if content == blocks(plain) else {**plain, "content": content})
    return tuple(cut)


def _ends(text: str, characters: int) -> str:
    """The beginning and the end of `text`, and how much is left out between; `text` where that is little."""
    left, tail = len(text) - characters, int(characters * TAIL_SHARE)
    if left < LEAST_LEFT_OUT:
        return text
    return f"{text[: characters - tail]} … {left:,} characters left out, in the store … {text[-tail:]}"


def _previews(situation: Situation, results: Sequence[Result], characters: int, reason: str) -> Edits | None:
    made = {result.place: _preview(situation, result, characters) for result in results}
    return _replaced(made, f"results: {reason}")


def _replaced(texts: dict[Place, str], what: str) -> Edits | None:
    """Those in place of results that are not empty."""
    shorter = {place: text for place, text in texts.items() if text}
    return Edits(f"{len(shorter)} {what}", placeholders=shorter) if shorter else None


def _preview(situation: Situation, result: Result, characters: int) -> str:
    """The preview of a result, at most so many characters, fewer in a small window; empty if that gains nothing."""
    most = min(characters, int(situation.limit_tokens * PREVIEW_SHARE))
    return _if_shorter(situation.tracker, _shown(situation.tracker, result, most), result)


def _if_shorter(tracker: HistoryTracker, text: str, result: Result) -> str:
    """`text` if something is gained, which is told by tokens: of a screenshot no character is shown."""
    return text if tracker.counter.text(text) + RESTORE_LINE_TOKENS < result.tokens else ""


def _shown(tracker: HistoryTracker, result: Result, characters: int) -> str:
    """The first and last lines of a result up to so many characters, and everything that must stay."""
    tail_characters = int(characters * TAIL_SHARE)
    lines, pinned = _lines(tracker, result)
    head = _taken(lines, characters - tail_characters)
    tail = _taken(lines[::-1], tail_characters)
    shown = _joined(lines, head | tail | pinned)
    size = f"[{len(result.text):,} characters in all]" if result.text else "[no text]"
    return f"{shown}\n{size}" if shown else size


def _lines(tracker: HistoryTracker, result: Result) -> tuple[Sequence[Line], set[int]]:
    """The lines of a result, and the numbers of those that must stay."""
    read = tracker.evidence_of(result.message)
    before = sum(len(blocks(message)) for message in tracker.plain[read.turn.start : result.message])
    own = [line for line in read.lines if line.block == before + result.block]
    pinned = {*read.failure_lines, *read.constraint_lines}
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
