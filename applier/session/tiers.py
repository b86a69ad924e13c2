"""Situation that a tier reads, the signature of all tiers, and the tiers of whole turns.

A tier returns edits, or None if there is nothing to do; it changes nothing itself. The edits of tiers of turns have a
`CompactionPlan` that passed the guards, so failed approaches and the user's words stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import accumulate

from applier.session.frame import Edits, Frame
from applier.session.history_tracker import HistoryTracker, Result
from applier.session.request import Gauge
from planner.analysis import Analysis
from planner.guards import check_plan
from planner.plan import CompactionPlan, HistoryStamp, Provenance, Strategy, TurnDecision
from planner.reading.media import Load, MediaLimits
from planner.reading.messages import History, Turn
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
        unweighed_from = len(situation.tracker) - self.keep_last_messages if self.keep_last_messages else None
        return Edits(f"{_counts(plan)}, {_author(plan.provenance)}", plan=plan, unweighed_from=unweighed_from)

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
        return Edits(f"{_counts(plan)}, by place", plan=plan, unweighed_from=0)


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
        return Edits(f"{_counts(plan)}, oldest first", plan=plan, unweighed_from=0)


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
