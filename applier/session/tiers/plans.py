"""Tiers that treat whole turns: plan by relevance, snip the middle, let the head retreat.

All of them end in a `CompactionPlan` that went through the guards, so failed approaches and the user's words
stay whichever tier it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from applier.session.edits import Edits
from applier.session.tiers.situation import Situation
from planner.analysis import Analysis, analyze_history
from planner.api import check_plan
from planner.plan import CompactionPlan, HistoryStamp, Provenance, Strategy, TurnDecision
from planner.reading.history import History, Turn
from planner.reading.tokens import TokenCounter

__all__ = ["PlanTurns", "RetreatHead", "SnipMiddle", "changed_decisions"]

WORTH_SHARE, ASKED_SHARE = 0.75, 0.5
"""Where the goal would leave more than the first share of what there is, the second is the goal: someone has asked
for a compaction in a roomy window."""
FLOOR_SHARE = 0.4
KEPT_SHARE = 0.25
"""Of a small window, the newest messages may keep this share whatever a preset's constant says."""


@dataclass(frozen=True, slots=True)
class PlanTurns:
    """The planner ranks, the solver fits: every turn kept, summarized, referenced or dropped."""

    target_share: float = 0.25
    """The prompt afterwards, as a share of the limit."""
    target_tokens: int = 0
    """And at most so many tokens; 0: the share alone."""
    floor_tokens: int = 0
    """But at least so many, where a small window has them: up to `FLOOR_SHARE` of the limit."""
    keep_first_messages: int = 0
    keep_last_messages: int = 0
    keep_last_tokens: int = 0
    """The newest messages that stay as they are, on top of the target; a quarter of the limit at most."""
    keep_user_words: bool = False
    """Only user messages are kept by `keep_last_tokens`."""
    max_freed_tokens: int = 0
    """Free no more than this in one round; 0: no limit."""
    rules_only: bool = False
    name: str = "plan"

    def goal_tokens(self, limit_tokens: int) -> int:
        """The prompt that is aimed at."""
        floor = min(self.floor_tokens, int(limit_tokens * FLOOR_SHARE))
        share = max(floor, int(limit_tokens * self.target_share))
        return min(share, self.target_tokens) if self.target_tokens else share

    def __call__(self, situation: Situation) -> Edits | None:
        """Plan the whole history, originals and all."""
        history = situation.ledger.history
        kept = self._kept(situation, history)
        target = self.target_tokens_for(situation)
        plan = situation.make_plan(history, target, situation.focus, rules_only=self.rules_only)
        plan = changed_decisions(plan, plan.bound_analysis or _analysis(history, plan), dict.fromkeys(kept, "keep"))
        unweighed_from = len(situation.ledger) - self.keep_last_messages if self.keep_last_messages else None
        return Edits(f"{_counts(plan)}, by {plan.provenance.planner}", plan=plan, unweighed_from=unweighed_from)

    def target_tokens_for(self, situation: Situation) -> int:
        """What the planner is asked for, by the counter: the goal without what stands beside its plan."""
        goal = self.goal_tokens(situation.limit_tokens)
        if goal > situation.tokens * WORTH_SHARE:
            goal = int(situation.tokens * ASKED_SHARE)
        if self.max_freed_tokens:
            goal = max(goal, situation.tokens - self.max_freed_tokens)
        ledger = situation.ledger
        wanted = [turn for turn in ledger.history.turns if turn.id in situation.wanted]
        reserved = sum(sum(ledger.counted[turn.start : turn.stop]) for turn in wanted)
        return max(1, situation.meter.countable(goal) - reserved - situation.carried_tokens())

    def _kept(self, situation: Situation, history: History) -> set[str]:
        counted, last = situation.ledger.counted, len(situation.ledger)
        first = self.keep_first_messages
        kept = {t.id for t in history.turns if t.start < first or t.stop > last - self.keep_last_messages}
        left = min(self.keep_last_tokens, situation.meter.countable(situation.limit_tokens * KEPT_SHARE))
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
        sent = len(situation.frame.head) + len(situation.ledger) - situation.frame.start
        if sent <= self.over_messages + self.batch_messages:
            return None
        last = len(situation.ledger)
        plan = _positional_plan(situation, self.name, partial(self._strategy, last, situation.wanted))
        return Edits(f"{_counts(plan)}, by place", plan=plan, unweighed_from=0)

    def _strategy(self, last: int, wanted: Collection[str], turn: Turn) -> Strategy:
        ends = turn.start < self.keep_first or turn.stop > last - self.keep_last
        return "keep" if ends or turn.id in wanted else "drop"


@dataclass(frozen=True, slots=True)
class RetreatHead:
    """The last resort: the oldest turns leave, group by group, until the rest fits."""

    goal_share: float = 0.5
    """Of the limit."""
    name: str = "retreat"

    def __call__(self, situation: Situation) -> Edits | None:
        """Drop from the front until what is kept is within the goal."""
        ledger = situation.ledger
        left = situation.meter.countable(situation.limit_tokens * self.goal_share)
        border = len(ledger)
        while border > 0 and left - ledger.counted[border - 1] >= 0:
            border -= 1
            left -= ledger.counted[border]
        if border == 0:
            return None
        plan = _positional_plan(situation, self.name, lambda turn: "drop" if turn.start < border else "keep")
        return Edits(f"{_counts(plan)}, oldest first", plan=plan, unweighed_from=0)


def changed_decisions(plan: CompactionPlan, analysis: Analysis, strategies: dict[str, Strategy]) -> CompactionPlan:
    """`plan` with other strategies for some turns, guarded again; the same plan if nothing changes."""
    changed = {
        decision.turn_id: decision.model_copy(update={"strategy": strategies[decision.turn_id]})
        for decision in plan.turns
        if strategies.get(decision.turn_id, decision.strategy) != decision.strategy
    }
    if not changed:
        return plan
    turns = tuple(changed.get(decision.turn_id, decision) for decision in plan.turns)
    return check_plan(plan.model_copy(update={"turns": turns}), analysis)


def _positional_plan(situation: Situation, planner: str, strategy: Callable[[Turn], Strategy]) -> CompactionPlan:
    history = situation.ledger.history
    tokens = sum(situation.ledger.counted)
    plan = CompactionPlan(
        task="",
        history=HistoryStamp.of(history, tokens),
        target_tokens=situation.meter.countable(situation.limit_tokens),
        turns=tuple(_decisions(history, strategy)),
        estimated_tokens=tokens,
        provenance=Provenance(planner=planner),
    )
    return check_plan(plan, _analysis(history, plan))


def _analysis(history: History, plan: CompactionPlan) -> Analysis:
    return analyze_history(history, TokenCounter.for_model(plan.target_model))


def _decisions(history: History, strategy: Callable[[Turn], Strategy]) -> Iterator[TurnDecision]:
    for turn in history.turns:
        chosen: Strategy = "keep" if turn.live else strategy(turn)
        yield TurnDecision(
            turn_id=turn.id,
            strategy=chosen,
            relevance_score=1.0 if chosen == "keep" else 0.0,
            reason="by its place in the conversation",
        )


def _counts(plan: CompactionPlan) -> str:
    counts: dict[str, int] = {}
    for decision in plan.turns:
        counts[decision.strategy] = counts.get(decision.strategy, 0) + 1
    return ", ".join(f"{count} {strategy}" for strategy, count in counts.items())
