"""Plans that a worker makes beforehand, while the agent waits for its answer.

Decides when one is made and takes up what came of it; what it may do with a plan is decided in `call`.
"""

from __future__ import annotations

from dataclasses import replace

from applier.session.compaction import goal_tokens_of, situation_of
from applier.session.state import State
from applier.session.tiers import PlanTurns
from applier.session.triggers import level_after
from planner.analysis import analyze_history
from planner.errors import StoreError

__all__ = ["plan_ahead", "take_up_plan"]

AHEAD_CALLS = 4
"""A plan is made beforehand when so many more calls of average growth would fire a step that plans."""
LONG_HISTORY_TOKENS = 200_000
"""Planning by rules takes about a second for each 100,000 tokens."""


def take_up_plan(state: State) -> None:
    """Take up what the worker has made, and store its facts if the session has gone on for long."""
    plan, now = state.planning.take_up(), state.clock()
    if plan is None:
        return
    state.tracker.know(plan.bound_analysis)
    if now - (state.facts_at or state.started_at) < state.preset.facts_after_seconds:
        return
    state.facts_at = now
    history, facts = state.tracker.history, plan.extracted_facts
    try:
        key = state.store.use(lambda store: store.save_history(history))
        state.store.use(lambda store: store.save_facts(facts, key))
    except StoreError as error:
        state.log("store_failed", f"facts were not stored: {error}")
    else:
        state.log("facts_saved", f"{len(facts)} facts stored")


def plan_ahead(state: State) -> None:
    """Have the worker plan on a snapshot while the agent waits for its answer."""
    planning, tracker, now = state.planning, state.tracker, state.clock()
    if not _plans_ahead(state) or planning.worker.is_busy or not _is_due(state, now):
        return
    history, counter, known = tracker.history, tracker.counter, tracker.known_analysis
    planned = planning.ready.history.turns if planning.ready is not None else 0
    if len(history.turns) - planned < state.settings.background_new_turns:
        return
    target = (state.preset.plan_goal or PlanTurns()).target_tokens_for(situation_of(state))
    planning.worker.start(lambda: planning.ask(analyze_history(history, counter, known, grows=True), target), now)


def _plans_ahead(state: State) -> bool:
    """As set; else when a model plans, or the history is so long that even the rules take a while."""
    if state.settings.background is not None:
        return state.settings.background
    return state.planning.asks_a_model or state.tracker.tokens >= LONG_HISTORY_TOKENS


def _is_due(state: State, now: float) -> bool:
    """True if a step that plans will fire in a few calls, or facts are to be extracted."""
    measured, goal = state.measure(now, goal_tokens_of(state)), state.preset.plan_goal
    if measured.session_seconds >= state.preset.facts_after_seconds:
        return True
    tokens = int(measured.tokens + AHEAD_CALLS * measured.growth_tokens_per_call)
    level = level_after(measured.level, tokens, measured.limit_tokens)
    ahead = replace(measured, tokens=tokens, level=level)
    planning = (step for step in state.preset.steps if step.tier is goal)
    return any(when.fires(ahead) for step in planning for when in step.when if not when.requested)
