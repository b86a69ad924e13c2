"""One change of the list: a tier is asked, its edits are made on paper, weighed, stored, and put into force.

Decides what a change brings and costs, and why it is rejected; nothing is sent that is not stored, and a tier that
fails changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from applier.session.carryover import carried_text
from applier.session.events import EventKind
from applier.session.frame import Edits, Frame, View, draft, first_difference
from applier.session.planning import within
from applier.session.state import State
from applier.session.tiers import Situation, Tier
from planner.errors import StoreError
from planner.placeholders import history_key
from planner.plan import CompactionPlan, Provenance
from planner.prices import CACHE_LIFETIME_SECONDS, cache_prices, payback_calls, switch_dollars
from planner.validity import Violation, check_messages

__all__ = ["NO_BOUNDS", "Compaction", "attempt", "may_store", "rest", "rests", "situation_of"]

OUTPUT_PRICE = 5.0
"""An output token costs about five input tokens on every current Claude model."""
ANY_WINDOW_TOKENS = 10**9
"""Of plans: what the model waits for they leave whole. Where it cannot fit, the session's own last tier cuts it."""
Bounds = tuple[int, float]
"""What a change must be worth: the tokens it saves at least, and after how many calls it pays back at most."""
NO_BOUNDS: Bounds = (0, math.inf)
REARM_SHARE, FORCED_REARM_SHARE = 0.05, 0.01
"""After a step has run or was rejected, the history grows by this share of the limit, or by what was missing, before
it is tried again. Where the prompt does not fit, it is enough that so much more of it was answered."""
MOST_UNDOABLE = 10
"""So many compactions can be taken back: each one holds a decision for every turn of its history."""
STORE_REST_SECONDS = 30.0
"""After the store has failed, this long nothing is compacted."""


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
    dollars: Mapping[str, float] = field(default_factory=dict)
    """What it costs and saves, where the price of a model is known: see `planner.prices.switch_dollars`."""
    stands: bool = False
    """The last compaction was asked for, too, and nothing was answered since: `messages` is its list as it was."""

    @classmethod
    def nothing(cls, state: State, tier: str, reason: str) -> Compaction:
        """Nothing was changed."""
        tokens = state.tokens
        return cls(state.to_send(), False, tier, reason, tokens, tokens, None, 0, None, state.committed.frame.plan)


def attempt(
    state: State,
    tier: Tier,
    trigger: str,
    bounds: Bounds = NO_BOUNDS,
    *,
    forced: bool = False,
    new_from: int | None = None,
    focus: str = "",
    dry_run: bool = False,
) -> Compaction:
    """Ask one tier, and do what it says if that is worth it; no hook may veto what the window has `forced`."""
    name, numbers, missing = _name_of(tier), dict[str, Any](), 0
    kind: EventKind = "tier_failed"
    with state.log.telemetry.span("tier", session=state.session_id, tier=name, trigger=trigger):
        try:
            edits = tier(situation_of(state, new_from, focus))
            if edits is None:
                return Compaction.nothing(state, "", "nothing to do")
            frame, view, change = _drafted(state, _with_carried(state, edits), name)
        except Exception as error:  # noqa: BLE001 - a tier that fails gives way to the next
            problem = f"{type(error).__name__}: {error}"
        else:
            numbers, missing = _numbers(change), bounds[0] - (change.tokens_before - change.tokens_after)
            kind, problem = "not_worth_it", _objection(state, view, change, bounds)
            if dry_run:
                return replace(change, reason=problem or change.reason)
            if not problem:
                kind, problem = _apply(state, frame, view, change, trigger, forced)
            if state.give_up_lost():  # which showed only now: the tier is asked again, of the whole list
                return attempt(state, tier, trigger, forced=True, new_from=new_from, focus=focus)
            if not problem:
                return replace(change, applied=True)
        state.log(kind, problem, trigger=trigger, tier=name, **numbers)
        if kind != "store_failed":  # that says nothing of the tier
            rest(state, tier, forced, missing)
        return Compaction.nothing(state, name, problem)


def _apply(
    state: State, frame: Frame, view: View, change: Compaction, trigger: str, forced: bool
) -> tuple[EventKind, str]:
    """Store the originals, then put the change into force; else which hook or store is against it."""
    before = state.committed
    agreed = state.log("pre_compact", change.reason, trigger=trigger, tier=change.tier, **_numbers(change))
    if not (forced or agreed):
        return "vetoed", "vetoed by a hook"
    try:
        state.commit(frame, view)
    except StoreError as error:
        state.store_failed_at = state.clock()
        return "store_failed", f"the originals could not be stored: {error}"
    if state.store.opening != state.store_opening:
        return "store_failed", "the store was begun anew"
    if trigger != "arrival":
        state.compactions += 1
        # Without what its plan was made from, which is read anew for each plan, and as large as the history.
        older = replace(before.frame, plan=before.frame.plan and before.frame.plan.unbound())
        state.undoable = (*state.undoable, (older, None))[-MOST_UNDOABLE:]
    if frame.plan is not before.frame.plan:
        state.carried_tokens = 0
    if change.first_changed_message is not None:
        state.cached_messages = min(state.cached_messages, change.first_changed_message)
    state.log("post_compact", change.reason, trigger=trigger, tier=change.tier, **_numbers(change))
    return "post_compact", ""


def _numbers(change: Compaction) -> dict[str, Any]:
    names = ("tokens_before", "tokens_after", "first_changed_message", "invalidated_tokens", "dollars")
    return {name: getattr(change, name) for name in names}


def may_store(state: State) -> bool:
    """False for a while after the store has failed: a plan would be made in vain at every call."""
    return not within(STORE_REST_SECONDS, state.store_failed_at, state.clock())


def rests(state: State, tier: Tier, forced: bool) -> bool:
    """True if `tier` is not to be tried again yet."""
    history, answered = state.rests.get((_name_of(tier), forced), (0, 0))
    if state.tracker.tokens >= history:
        return False
    return state.tokens <= state.limit_tokens or state.tracker.answered_tokens < answered


def rest(state: State, tier: Tier, forced: bool, missing_tokens: int = 0, *, is_held: bool = False) -> None:
    """Let `tier` rest until the history has grown, by `missing_tokens` at least: what a plan leaves does not shrink.

    One that `is_held` waits as long where the prompt gets critical, but is tried at once where it does not fit.
    """
    share = FORCED_REARM_SHARE if forced and not is_held else REARM_SHARE
    growth, tracker = state.gauge.countable(max(missing_tokens, state.limit_tokens * share)), state.tracker
    answered = 0 if is_held else tracker.answered_tokens + growth
    state.rests[_name_of(tier), forced] = tracker.tokens + growth, answered


def _name_of(tier: Tier) -> str:
    return str(getattr(tier, "name", None) or getattr(tier, "__name__", type(tier).__name__))


def situation_of(state: State, new_from: int | None = None, focus: str = "") -> Situation:
    """The session as a tier sees it; afterwards plans are made for the agent as its request says it is."""
    tracker = state.tracker
    of_agent = {
        "target_model": state.call.model,
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
        focus=focus or state.focus,
        carried_tokens=lambda: tracker.counter.text(_carried(state)),
    )


def _carried(state: State, kept_turns: frozenset[str] = frozenset()) -> str:
    settings, files_tokens = state.settings, int(state.gauge.countable(state.goal_tokens) * state.preset.files_share)
    return carried_text(state.tracker, settings.permissions, files_tokens, kept_turns)


def _with_carried(state: State, edits: Edits) -> Edits:
    """What survives besides the plan goes behind the newest user message, where it is read last."""
    last = len(state.tracker) - 1
    if edits.plan is None or state.tracker.plain[last]["role"] != "user":
        return edits
    text = _carried(state, frozenset(d.turn_id for d in edits.plan.turns if d.strategy == "keep"))
    return replace(edits, additions={**edits.additions, last: text}) if text else edits


def _drafted(state: State, edits: Edits, tier: str) -> tuple[Frame, View, Compaction]:
    """`edits` made on paper, and measured."""
    gauge, tracker, committed = state.gauge, state.tracker, state.committed
    covered = edits.plan is None and all(message < committed.messages for message, _ in edits.placeholders)
    key = (covered and committed.key) or history_key(tracker.history.digest)
    frame = state.bound(draft(committed.frame, edits, tracker, key, state.restore_tool))
    view = View.of(frame, tracker)
    first = first_difference(state.view.messages, view.messages)
    unchanged, cached = (sum(state.view.counted[:end]) for end in (first, state.cached_messages))
    tokens_after = gauge.prompt(view.total)
    change = Compaction(
        messages=state.to_send(frame, view),
        applied=False,
        tier=tier,
        reason=edits.reason,
        tokens_before=state.tokens,
        tokens_after=tokens_after,
        first_changed_message=first,
        invalidated_tokens=gauge.of_messages(max(0, cached - unchanged)),
        plan=frame.plan,
        **_price(state, tokens_after, gauge.prompt(unchanged), edits.plan),
    )
    return frame, view, change


def _price(state: State, after: int, unchanged: int, plan: CompactionPlan | None) -> dict[str, Any]:
    """When a change has paid back, and what it costs and saves."""
    made = plan.provenance if plan is not None else Provenance(planner="none")
    planning = made.usage.input_tokens + OUTPUT_PRICE * made.usage.output_tokens
    if state.last.at is not None and not within(CACHE_LIFETIME_SECONDS, state.last.at, state.clock()):
        unchanged = after  # nothing is cached any more: all of it is written again anyway
    before, model = state.tokens, state.call.model
    calls = payback_calls(before, before - after, unchanged, cache_prices(model), planning)
    return {"payback_calls": calls, "dollars": switch_dollars(model, before, after, unchanged, made)}


def _objection(state: State, view: View, change: Compaction, bounds: Bounds) -> str:
    """What speaks against the change; empty if it may be made."""
    (least, most), before, after = bounds, change.tokens_before, change.tokens_after
    if before <= after:
        return f"it would not shrink: {before} to {after} tokens"
    if before - after < least:
        return f"it would save {before - after} tokens, fewer than {least}"
    if (calls := change.payback_calls or 0.0) > most:
        return f"it would pay back after {calls:.0f} calls, more than {most:.0f}"
    return _broken_rule(state, view)


def _broken_rule(state: State, view: View) -> str:
    """A rule of the API that the changed list breaks and the history does not."""
    model, thinking = state.call.model, state.call.thinking
    enabled = None if thinking is None else thinking.get("type") != "disabled"

    def refused(messages: Sequence[object]) -> list[Violation]:
        return [v for v in check_messages(messages, model=model, thinking_enabled=enabled) if v.refused]

    broken = refused(view.messages)
    known = {violation.code for violation in refused(state.tracker.originals)} if broken else set()
    first = next((violation for violation in broken if violation.code not in known), None)
    return f"it would break a rule of the API: {first}" if first else ""
