"""What a tier is shown, what its change would bring and cost, why it is rejected if so, and what callers are told.

Measures and judges; stores nothing and puts nothing into force.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from applier.session.carryover import carried_text
from applier.session.frame import Addition, Edits, Frame, View, draft, first_difference
from applier.session.persistence import key_for
from applier.session.planning import BreakerState, Planned, within
from applier.session.state import State
from applier.session.tiers import Situation
from applier.session.triggers import Level
from planner.layout.cache_cost import CACHE_LIFETIME_SECONDS, payback_calls
from planner.plan import CompactionPlan
from planner.validity import check_messages

__all__ = [
    "Bounds",
    "Compaction",
    "Draft",
    "Rejection",
    "SessionState",
    "draft_of",
    "goal_tokens_of",
    "rejection",
    "situation_of",
    "with_carried",
]

OUTPUT_PRICE = 5.0
"""An output token costs about five input tokens on every current Claude model."""
WANTED_SHARE = 0.05
"""Turns that the agent has named come back whole up to this share of the room that messages have."""
ANY_WINDOW_TOKENS = 10**9
"""Of plans: what the model waits for they leave whole. Where it cannot fit, the session's own last tier cuts it."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """Where a session stands; a value, safe to keep."""

    session_id: str
    level: Level
    tokens: int
    """Of the list that would be sent now, with system and tools."""
    window_tokens: int
    limit_tokens: int
    """What a prompt may have: the window without the output reserve."""
    compactions: int
    reclaimed_tokens: int
    spared_tokens: int
    """What the last answered prompt would have had more if nothing had ever been compacted, as the provider counts."""
    breaker: BreakerState
    history_key: str
    """Under which the store has the history as of the last commit; empty before."""
    history_messages: int
    sent_messages: int
    planned: tuple[Planned, ...]
    """Who was asked for plans in this process, what that cost and what failed, in order."""

    @classmethod
    def of(cls, state: State) -> SessionState:
        """Where `state` stands now."""
        now = state.clock()
        return cls(
            session_id=state.session_id,
            level=state.measure(now, goal_tokens_of(state)).level,
            tokens=state.tokens,
            window_tokens=state.window_tokens,
            limit_tokens=state.limit_tokens,
            compactions=state.compactions,
            reclaimed_tokens=state.reclaimed_tokens,
            spared_tokens=state.spared_tokens,
            breaker=state.planning.breaker.state(now),
            history_key=state.committed.key,
            history_messages=len(state.tracker),
            sent_messages=len(state.view.messages),
            planned=tuple(state.planning.planned),
        )


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did, or would do (``dry_run``)."""

    messages: list[Any]
    """What to send; the list as it was if nothing was worth compacting."""
    applied: bool
    tier: str
    """Which one it was; empty if there was nothing to do."""
    reason: str
    """Why it was done or not, in one line."""
    tokens_before: int
    tokens_after: int
    first_changed_message: int | None
    invalidated_tokens: int
    payback_calls: float | None
    """After how many calls it has paid back in cache terms; None if nothing changed."""
    plan: CompactionPlan | None
    """The plan in force afterwards; None if no tier planned."""

    @classmethod
    def nothing(cls, state: State, tier: str, reason: str) -> Compaction:
        """Nothing was changed."""
        tokens = state.tokens
        return cls(state.to_send(), False, tier, reason, tokens, tokens, None, 0, None, state.committed.frame.plan)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a change must be worth."""

    min_savings_tokens: int = 0
    max_payback_calls: float = math.inf
    may_veto: bool = True


@dataclass(frozen=True)
class Draft:
    """A change as it would be, measured."""

    edits: Edits
    frame: Frame
    key: str
    view: View
    tokens_before: int
    tokens_after: int
    first_changed: int | None
    invalidated_tokens: int
    payback: float

    @property
    def numbers(self) -> dict[str, int | None]:
        """As an event says them."""
        return {
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "first_changed_message": self.first_changed,
            "invalidated_tokens": self.invalidated_tokens,
        }

    def compaction(self, state: State, tier: str, reason: str, *, applied: bool = False) -> Compaction:
        """What callers are told of it."""
        return Compaction(
            messages=state.to_send(self.frame, self.view),
            applied=applied,
            tier=tier,
            reason=reason,
            tokens_before=self.tokens_before,
            tokens_after=self.tokens_after,
            first_changed_message=self.first_changed,
            invalidated_tokens=self.invalidated_tokens,
            payback_calls=self.payback,
            plan=self.frame.plan,
        )


def draft_of(state: State, edits: Edits, now: float) -> Draft:
    """`edits` made on paper."""
    call, tracker, key = state.call, state.tracker, key_for(edits, state.tracker, state.committed)
    frame = state.bound(draft(state.committed.frame, edits, tracker, key, call.thinking_policy, state.restore_tool))
    after = View.of(frame, tracker)
    first = first_difference(state.view.messages, after.messages)
    unchanged = sum(state.view.counted[:first])
    cached = sum(state.view.counted[: state.sent])
    tokens_after = state.gauge.prompt(after.total)
    return Draft(
        edits=edits,
        frame=frame,
        key=key,
        view=after,
        tokens_before=state.tokens,
        tokens_after=tokens_after,
        first_changed=first,
        invalidated_tokens=state.gauge.of_messages(max(0, cached - unchanged)),
        payback=_payback(state, tokens_after, state.gauge.prompt(unchanged), edits, now),
    )


def _payback(state: State, after: int, unchanged: int, edits: Edits, now: float) -> float:
    usage = edits.plan.provenance.usage if edits.plan else None
    planning = usage.input_tokens + OUTPUT_PRICE * usage.output_tokens if usage else 0.0
    if state.last_call_at is not None and not within(CACHE_LIFETIME_SECONDS, state.last_call_at, now):
        unchanged = after  # nothing is cached any more: all of it is written again anyway
    before, prices = state.tokens, state.prices
    return payback_calls(before, before - after, unchanged, prices.write, prices.read, planning)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a change is not made."""

    reason: str
    missing_tokens: int = 0
    """So much more must be there before the same change can be worth it: what a plan leaves does not shrink."""


def rejection(state: State, drafted: Draft, bounds: Bounds) -> Rejection | None:
    """What speaks against the change; None if it may be made."""
    saved = drafted.tokens_before - drafted.tokens_after
    missing = bounds.min_savings_tokens - saved
    if saved <= 0:
        return Rejection(f"it would not shrink: {drafted.tokens_before} to {drafted.tokens_after} tokens", missing)
    if missing > 0:
        return Rejection(f"it would save {saved} tokens, fewer than {bounds.min_savings_tokens}", missing)
    if drafted.payback > bounds.max_payback_calls:
        calls, most = drafted.payback, bounds.max_payback_calls
        return Rejection(f"it would pay back after {calls:.0f} calls, more than {most:.0f}")
    broken = _broken_rule(state, drafted)
    return Rejection(broken) if broken else None


def _broken_rule(state: State, drafted: Draft) -> str:
    """A rule of the API that the changed list breaks and the history does not."""
    model, thinking = state.model, state.call.thinking_enabled
    after = [v for v in check_messages(drafted.view.messages, model=model, thinking_enabled=thinking) if v.refused]
    if not after:
        return ""
    before = {v.code for v in check_messages(state.tracker.originals, model=model, thinking_enabled=thinking)}
    broken = next((violation for violation in after if violation.code not in before), None)
    return f"it would break a rule of the API: {broken}" if broken else ""


def situation_of(state: State, new_from: int | None = None, focus: str = "") -> Situation:
    """The session as a tier sees it; afterwards plans are made for the agent as its request says it is."""
    tracker = state.tracker
    wanted = _wanted_that_fit(state)
    names = [named.name for turn_id, named in state.wanted.items() if turn_id not in wanted]
    of_agent = {
        "target_model": state.model,
        "window_tokens": ANY_WINDOW_TOKENS,
        "restore_tool": state.restore_tool,
    }
    state.planning.settings = state.settings.plan.model_copy(update=of_agent)
    return Situation(
        tracker=tracker,
        frame=state.committed.frame,
        gauge=state.gauge,
        tokens=state.tokens,
        limit_tokens=state.limit_tokens,
        new_from=len(tracker) if new_from is None else new_from,
        make_plan=state.planning.make,
        settings=state.planning.settings,
        wanted=wanted,
        focus=" ".join(part for part in (focus or state.focus, *names) if part),
        carried_tokens=lambda: tracker.counter.text(_carried(state, frozenset())),
    )


def _wanted_that_fit(state: State) -> frozenset[str]:
    left = state.gauge.countable(state.room_tokens * WANTED_SHARE)
    kept: set[str] = set()
    for named in sorted(state.wanted.values(), key=lambda named: named.tokens):
        left -= named.tokens
        if left >= 0:
            kept.add(named.turn_id)
    return frozenset(kept)


def goal_tokens_of(state: State) -> int:
    """What the next plan would leave of the messages."""
    goal = state.preset.plan_goal
    messages = state.gauge.of_messages(state.view.total)
    return goal.goal_tokens(state.room_tokens, messages) if goal is not None else state.room_tokens


def _carried(state: State, kept_turns: frozenset[str]) -> str:
    goal = state.gauge.countable(goal_tokens_of(state))
    rules, carries = state.settings.permissions, state.preset.carries
    return carried_text(state.tracker, state.marks, rules, carries, goal, kept_turns)


def with_carried(state: State, edits: Edits) -> Edits:
    """What survives besides the plan goes behind the newest user message, where it is read last."""
    tracker = state.tracker
    last = len(tracker) - 1
    if edits.plan is None or tracker.plain[last]["role"] != "user":
        return edits
    text = _carried(state, frozenset(d.turn_id for d in edits.plan.turns if d.strategy == "keep"))
    return replace(edits, additions=(*edits.additions, Addition(last, text))) if text else edits
