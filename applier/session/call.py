"""What happens at a call, top to bottom: a list arrives, tiers run, originals are stored, a list goes out.

Nothing here may break the agent: whatever fails, a valid list comes back and the log says what happened. Not safe for
threads: `Session` holds the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from applier.learning.learned_files import lines_for, opening_text
from applier.learning.memory import Memory
from applier.session.compaction import NO_BOUNDS, Compaction, attempt, may_store, rest, rests, situation_of
from applier.session.frame import Edits, draft
from applier.session.history_tracker import Arrival
from applier.session.persistence import session_name
from applier.session.planning import first_words
from applier.session.presets import Step, level_after
from applier.session.request import TooLong
from applier.session.state import State
from applier.session.tiers import PlanTurns
from planner.analysis import analyze_history
from planner.errors import StoreError
from planner.reading.messages import blocks

__all__ = ["compact", "prepare", "recover", "undo"]

LEAST_SAVINGS_SHARE = 0.4
"""In a small window, saving this share of the limit is enough whatever a preset's constant says."""
CLEARLY_SHORTER = 0.75
"""What a reactive retry aims at, as a share of the limit."""
AHEAD_CALLS = 4
"""A plan is made beforehand when so many more calls of average growth would fire a step that plans."""
LONG_HISTORY_TOKENS = 200_000
"""Planning by rules takes about a second for each 100,000 tokens."""


def prepare(state: State, messages: Sequence[object]) -> list[Any]:
    """What to send; whatever fails, a list that is valid if the caller's is."""
    received = False
    problem = ""
    try:
        arrival = state.receive(messages)
        received = True
        _work(state, arrival)
    except Exception as error:  # noqa: BLE001 - DESIGN rule 8: the host's agent never breaks
        problem = f"{type(error).__name__}: {error}"
    state.trouble("prepare_failed", problem)
    state.is_recovering = False
    if received:
        return _hand_out(state)
    return list(messages) if isinstance(messages, Iterable) else []


def _work(state: State, arrival: Arrival) -> None:
    """Everything between the arrival of a list and its sending, in order."""
    if arrival.changed:
        state.log("history_changed", f"messages from {arrival.start} on are not those known before")
    elif arrival.edited_from is not None:
        state.log("history_edited", f"message {arrival.edited_from} was edited where it stands; read again")
    if state.troubles.get("fixed_parts_too_large"):
        return
    state.give_up_lost()
    _tell_learned(state, arrival)
    if not may_store(state) and state.tokens > state.limit_tokens:  # asked at every call before planning in vain
        with suppress(StoreError):
            state.store.save(state.tracker.history)
            state.store_failed_at = None
    unsent = min(arrival.start, state.last.messages)
    if state.is_shared and not arrival.changed:  # what another process has sent is new here, but was sent
        unsent = min(state.last.messages, len(state.tracker))
    _note_new(state, unsent)
    for tier in state.preset.arrival if may_store(state) else ():
        attempt(state, tier, "arrival", forced=True, new_from=unsent)
    state.tracker.know(state.planning.take_up())
    for step in state.preset.steps:
        _step(state, step)
    state.requested = state.focus = ""
    _warn_if_too_large(state)
    _plan_ahead(state)


def _hand_out(state: State) -> list[Any]:
    """The list to send, once the store has what it leaves out."""
    state.store_left_out()
    state.level = state.measure().level
    sent = state.hand_out()
    _save(state)
    state.note_use()
    return sent


def _tell_learned(state: State, arrival: Arrival) -> None:
    """Say in a new conversation, behind what was said last, the approved lines that matter to its task."""
    project, most, tracker = state.settings.project, state.settings.learned_tokens, state.tracker
    is_new = arrival.start == 0 and state.last.at is None and state.committed.frame.is_empty
    if not (project and most and is_new and tracker.plain[-1]["role"] == "user" and may_store(state)):
        return
    try:
        approved = state.store.use(lambda store: Memory(store, project).approved)
        today = datetime.fromtimestamp(state.clock(), UTC).date()
        task = state.planning.task or first_words(tracker.history)
        lines = lines_for(task, Path(project), set(approved.values()), today)
        text, count = opening_text(lines, tracker.counter, most)
        if text:
            edits = Edits("learned", additions={len(tracker) - 1: text})
            state.commit(draft(state.committed.frame, edits, tracker, state.committed.key))
            sources = "; ".join(line.rpartition(" (")[2].rstrip(")") for line in lines[:count])
            state.log("learned", f"begins with approved lines of {project}: {sources}")
    except StoreError as error:
        state.log("store_failed", f"nothing was told of earlier conversations: {error}")


def _note_new(state: State, start: int) -> None:
    """Note whether the model asked for a compaction."""
    tracker = state.tracker
    newest = tracker.plain[max(start, len(tracker) - 2) :]
    for block in (block for message in newest for block in blocks(message)):
        if block["type"] == "tool_use" and block.get("name") == state.settings.compact_tool:
            asked = block.get("input")
            state.request("tool", str(asked.get("focus", "")) if isinstance(asked, dict) else "")


def _step(state: State, step: Step) -> None:
    """Run one row of the preset if its trigger fires, it does not rest, and the store works."""
    measured = state.measure()
    state.level = measured.level
    fired = next((when for when in step.when if when.fires(measured)), None)
    if fired is None or not may_store(state):
        return
    forced = measured.level in ("critical", "exhausted")
    if step.tier is state.preset.plan_goal and state.planning.is_under_way and not (forced or measured.requested):
        return  # the plan that is being made comes with one of the next calls
    is_bound = not (forced or measured.requested)
    least = min(step.min_savings_tokens, int(measured.limit_tokens * LEAST_SAVINGS_SHARE))
    bounds = (least, step.max_payback_calls) if is_bound else NO_BOUNDS
    if not measured.requested and rests(state, step.tier, forced):
        return
    trigger = measured.requested or (measured.level if forced else fired.name)
    done = attempt(state, step.tier, trigger, bounds, forced=forced)
    if done.applied and not any(when.name == "every turn" for when in step.when):
        rest(state, step.tier, forced)
        rest(state, step.tier, forced=True)


def _warn_if_too_large(state: State) -> None:
    """Say once that even the last resort was not enough: the provider will refuse the prompt."""
    tokens, limit = state.tokens, state.limit_tokens
    problem = "over the limit" if tokens > limit and state.preset.steps else ""
    state.trouble("still_too_large", problem, f"{tokens} tokens of at most {limit}: no step could make it smaller")


def _plan_ahead(state: State) -> None:
    """Have the worker plan on a snapshot while the agent waits for its answer."""
    planning, tracker, settings = state.planning, state.tracker, state.settings
    is_slow = planning.asks_a_model or tracker.tokens >= LONG_HISTORY_TOKENS
    if not (is_slow if settings.background is None else settings.background):
        return
    if planning.is_under_way or not _is_due(state):
        return
    history, counter, known = tracker.history, tracker.counter, tracker.known_analysis
    planned = planning.ready.history.turns if planning.ready is not None else 0
    if len(history.turns) - planned >= settings.background_new_turns:
        target = (state.preset.plan_goal or PlanTurns()).target_tokens_for(situation_of(state))
        planning.worker.start(lambda: planning.ask(analyze_history(history, counter, known), target), state.clock())


def _is_due(state: State) -> bool:
    """True if a step that plans will fire in a few calls."""
    measured, goal = state.measure(), state.preset.plan_goal
    tokens = int(measured.tokens + AHEAD_CALLS * measured.growth_tokens_per_call)
    level = level_after(measured.level, tokens, measured.limit_tokens)
    grown = max(0, tokens - measured.beside_tokens - measured.goal_tokens)
    ahead = replace(measured, tokens=tokens, level=level, carried_tokens=measured.carried_tokens + AHEAD_CALLS * grown)
    planning = (step for step in state.preset.steps if step.tier is goal)
    return any(when.fires(ahead) for step in planning for when in step.when if not when.requested)


def compact(
    state: State, messages: Sequence[object], focus: str, *, dry_run: bool, at_limit: bool = False
) -> Compaction:
    """The manual command; `at_limit` where a client asks that has a window of its own."""
    state.receive(messages)
    most = state.maximum_tokens
    state.maximum_tokens = min(most, state.tokens) if at_limit else most
    try:
        return _compacted(state, focus, dry_run=dry_run)
    finally:
        state.maximum_tokens = most


def _compacted(state: State, focus: str, *, dry_run: bool) -> Compaction:
    if not dry_run:
        state.store_left_out()
    if not focus and _stands(state):
        return replace(Compaction.nothing(state, "", "nothing was answered since the last compaction"), stands=True)
    done = Compaction.nothing(state, "", "nothing to do")
    for tier in state.preset.manual:
        done = attempt(state, tier, "manual", focus=focus, dry_run=dry_run)
        if done.applied or (dry_run and done.tier):
            break
    if done.applied:
        state.tracker.returned(done.messages, len(state.committed.frame.head))
        _save(state)
    return done


def _stands(state: State) -> bool:
    """True if the compaction in force was asked for and nothing was answered since: another one would be planned and
    billed anew for next to nothing."""
    plan, tracker = state.committed.frame.plan, state.tracker
    changes = (event for event in reversed(state.log.events) if event.kind in ("post_compact", "undone"))
    last = next((event.trigger for event in changes if event.trigger != "arrival"), "")
    if plan is None or last != "manual" or state.tokens > state.limit_tokens:
        return False
    since = tracker.plain[plan.history.messages :]
    return plan.history.begins(tracker.history) and all(message["role"] != "assistant" for message in since)


def recover(state: State, messages: Sequence[object], refused: TooLong) -> list[Any] | None:
    """Something clearly shorter, once for each list prepared; None if there is nothing."""
    if state.is_recovering:
        return None
    try:
        state.receive(messages)
    except Exception as error:  # noqa: BLE001 - DESIGN rule 8: the host's agent never breaks
        state.trouble("prepare_failed", f"{type(error).__name__}: {error}")
        return None
    state.is_recovering = True
    state.maximum_tokens = refused.maximum_tokens or state.maximum_tokens
    state.gauge = state.gauge.refused(state.view.total, refused.actual_tokens, state.limit_tokens)
    before = state.tokens
    for tier in state.preset.recovery:
        if state.tokens > state.limit_tokens * CLEARLY_SHORTER or state.tokens == before:
            attempt(state, tier, "prompt_too_long", forced=True)
    if state.tokens == before:
        return None
    state.requested = state.focus = ""
    state.log("recovered", "a shorter list goes out", tokens_before=before, tokens_after=state.tokens)
    return _hand_out(state)


def undo(state: State) -> bool:
    """Back to the frame before the last compaction."""
    if not state.undoable:
        return False
    before = state.tokens
    (older, since), state.undoable = state.undoable[-1], state.undoable[:-1]
    state.thought_since = since or 0
    state.take_into_force(replace(state.committed, frame=older))
    state.cached_messages = 0
    for step in state.preset.steps:
        rest(state, step.tier, forced=False, is_held=True)
        rest(state, step.tier, forced=True, is_held=True)
    state.log("undone", "the last compaction was taken back", tokens_before=before, tokens_after=state.tokens)
    _save(state)
    return True


def _save(state: State) -> None:
    """Store how the session stands, if that has changed; one that is shared is saved with the call."""
    committed, standing = state.committed, (state.planning.read_tokens, state.is_sent)
    if state.is_shared or (committed, *standing) == state.saved:
        return
    problem = ""
    try:
        if not (committed.key or committed.frame.is_empty):  # nothing stored holds the way it went
            state.commit(committed.frame, state.view)
        name, saved = session_name(state.session_id), state.to_save().model_dump(mode="json")
        state.store.use(lambda store: store.set_state(name, saved))
        state.saved = state.committed, *standing
    except StoreError as error:
        problem = f"a restart would not continue from here: {error}"
    state.trouble("store_failed", problem)
