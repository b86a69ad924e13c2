"""Steps of one call of a session: a message list arrives, is shortened if needed, and is returned to be sent.

`steps_of` lists the steps in order. Each step works on a copy of the session's state; if a step fails, its copy is
discarded, the log reports it, and the agent goes on. Not safe for threads: `Session` has the lock.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

from applier.learning.learned import Memory, lines_for, opening_text
from applier.session.compaction import Compaction, attempt, run_row, situation_of
from applier.session.edits import Edits, draft
from applier.session.history_tracker import is_list
from applier.session.ledger import session_name
from applier.session.pictures import fit_pictures
from applier.session.planning import TASK_CHARACTERS
from applier.session.presets import Preset
from applier.session.pressure import level_after
from applier.session.refusals import WINDOW_EXCEEDED, LostResults, TooHeavy, TooLong, stop_reason_of
from applier.session.request import used_input_tokens
from applier.session.state import State
from applier.session.tiers import PlanAgain, PlanTurns
from planner.analysis import analyze_history
from planner.errors import StoreError, TranscriptError
from planner.evidence.hosts import first_words
from planner.reading.messages import blocks, message_digest, plain_message
from planner.validity import answer_calls

AHEAD_STATE = "ahead:"
"""Beginning of the name, ``ahead:SESSION``, under which the store has a plan for a session's next compaction."""

CLEARLY_SHORTER = 0.75
"""Largest size of the prompt that is sent after the API refused a longer one, as a share of the limit."""
AHEAD_CALLS = 4
"""Number of calls before a compaction at which its plan is made, so that the agent need not wait for the plan."""
LONG_HISTORY_TOKENS = 200_000
"""Size of a history from which even plans by rules are made in advance: they take a second per 100,000 tokens."""


def note_requests(state: State) -> None:
    """Request a compaction if the model has just called the tool by which it asks for one (``compact``)."""
    tracker, tool = state.ledger.tracker, state.setup.settings.compact_tool
    newest = tracker.plain[max(state.ledger.unsent_from, len(tracker) - 2) :]  # the call and its result
    for block in (block for message in newest for block in blocks(message)):
        if block["type"] == "tool_use" and block.get("name") == tool:
            arguments = block.get("input")
            state.pressure.request("tool", str(arguments.get("focus", "")) if isinstance(arguments, dict) else "")


def find_store(state: State) -> None:
    """Notice if the store's file was removed. If the store failed earlier and the prompt is too long, try the store
    again, as nothing may be removed from the prompt before it is stored."""
    state.notice_lost_store()
    store = state.setup.store
    if not store.may_write and state.is_too_long:
        with suppress(StoreError):
            store.save(state.ledger.tracker.history)
            store.failed_at = None


def replace_outdated(state: State) -> None:
    """Replace the compacted part of the list, by rules, if the caller edited a message that it was made of. The old
    part is not sent even if this fails: `Ledger.take` has removed it from the list."""
    outdated = state.ledger.outdated_plan
    if outdated is not None and state.setup.store.may_write:
        attempt(state, PlanAgain(outdated), "edited", forced=True)


def begin_with_lessons(state: State) -> None:
    """Add lines learned from earlier conversations to the first list of a new one, at the end of its last message. Only
    lines that a person approved and that are relevant to the task are added."""
    setup, ledger, tracker = state.setup, state.ledger, state.ledger.tracker
    project, most_tokens = setup.settings.project, setup.settings.learned_tokens
    is_new = ledger.arrival.start == 0 and ledger.last.at is None and ledger.frame.is_empty  # nothing was sent yet
    if not (project and most_tokens and is_new and tracker.plain[-1]["role"] == "user" and setup.store.may_write):
        return
    try:
        approved = setup.store.use(lambda store: Memory(store, project).approved)
        today = datetime.fromtimestamp(setup.clock(), UTC).date()
        task = state.planning.task or first_words(tracker.history, TASK_CHARACTERS)
        lines = lines_for(task, Path(project), set(approved.values()), today)
        text, count = opening_text(lines, tracker.counter, most_tokens)
        if text:
            edits = Edits("learned", additions={len(tracker) - 1: text})
            ledger.commit(draft(ledger.frame, edits, tracker, ledger.committed.key), setup.store)
            sources = "; ".join(line.rpartition(" (")[2].rstrip(")") for line in lines[:count])  # at their ends
            setup.log("learned", f"begins with approved lines of {project}: {sources}")
    except StoreError as error:
        setup.log("store_failed", f"nothing was added from earlier conversations: {error}")


def shorten_arrivals(state: State) -> None:
    """Shorten new tool results, while nothing after them is cached yet, so that shortening invalidates no cache."""
    new_from = state.ledger.unsent_from
    for tier in state.setup.preset.arrival if state.setup.store.may_write else ():
        attempt(state, tier, "arrival", forced=True, new_from=new_from)


def take_plan(state: State) -> None:
    """Take the plan that a worker thread made in advance, if it is finished, for the next step that needs a plan."""
    state.ledger.tracker.adopt_analysis(state.planning.take_finished_plan())


def end_request(state: State) -> None:
    """Delete the request for a compaction, because all steps before this one have had the chance to compact."""
    state.pressure.requested = state.pressure.focus = ""


def remove_pictures(state: State) -> None:
    """Remove old pictures if the request has more pictures, or more bytes, than the provider accepts."""
    if state.is_too_heavy and state.setup.preset.steps and state.setup.store.may_write:
        attempt(state, fit_pictures, "pictures", forced=True)


def report_size(state: State) -> None:
    """Report, once, that the prompt is still too long after the last resort, so that the provider will refuse it."""
    problem = "over the limit" if state.is_too_long and state.setup.preset.steps else ""
    message = f"{state.tokens} tokens of at most {state.pressure.limit_tokens}: no step could make it smaller"
    state.setup.log.trouble("still_too_large", problem, message)


def plan_ahead(state: State, *, is_turn_over: bool = False) -> None:
    """Start to make the next plan in a worker thread, while the model writes its answer, so that nobody waits for it.
    `is_turn_over`: the model has ended its turn, and the user reads its answer."""
    planning, tracker, settings = state.planning, state.ledger.tracker, state.setup.settings
    is_slow = planning.asks_a_model or tracker.tokens >= LONG_HISTORY_TOKENS
    is_wanted = is_slow if settings.background is None else settings.background
    if not is_wanted or planning.is_under_way or not _plan_is_due(state, is_held=state.is_in_turn and not is_turn_over):
        return
    history, counter, known, uses = tracker.history, tracker.counter, tracker.known_analysis, tracker.uses
    planned_turns = planning.ready.history.turns if planning.ready is not None else 0  # by the last plan in advance
    if len(history.turns) - planned_turns >= settings.background_new_turns:
        target = (state.plan_goal or PlanTurns()).target_tokens_for(situation_of(state))
        planning_copy = copy.copy(planning)  # the thread must not change the state of the session
        analyze = partial(analyze_history, history, counter, known, uses)
        planning.worker.start(lambda: planning_copy.ask(analyze(), target), state.setup.clock())


def _plan_is_due(state: State, *, is_held: bool) -> bool:
    """Return True if a plan will probably be needed within `AHEAD_CALLS` calls, so that it should be made now.
    `is_held`: the model is in the middle of its turn, when a compaction waits unless the window is nearly full."""
    measured = state.measure()
    tokens = int(measured.tokens + AHEAD_CALLS * measured.growth_tokens_per_call)
    level = level_after(measured.level, tokens, measured.limit_tokens)
    grown = max(0, tokens - measured.beside_tokens - measured.goal_tokens)  # what a compaction could free by then
    ahead = replace(measured, tokens=tokens, level=level, carried_tokens=measured.carried_tokens + AHEAD_CALLS * grown)
    if is_held and level not in ("critical", "exhausted"):
        return False
    # the triggers of the preset's row that plans; a request by the model or the user cannot be foreseen
    triggers = (when for row in state.setup.preset.steps if row.tier is state.plan_goal for when in row.when)
    return any(when.fires(ahead) for when in triggers if not when.requested)


def steps_of(preset: Preset) -> Iterator[Callable[[State], None]]:
    """Yield the steps of a session's call, in order, after the caller's list has arrived (`State.receive`) and before
    `_send`. Each changes the copy of the state that it receives."""
    yield from (note_requests, find_store, replace_outdated, begin_with_lessons, shorten_arrivals, take_plan)
    yield from (partial(run_row, row=row) for row in preset.steps)
    yield from (end_request, remove_pictures, report_size, plan_ahead)


def prepare(state: State, messages: Sequence[object]) -> list[Any]:
    """Return the list of messages to send to the model, made of the caller's list; never raise. After any failure, the
    list is as valid as the caller's, and the log reports the failure. A value that is no list is returned unchanged."""
    log, problems, passed = state.setup.log, list[str](), cast("Any", messages)
    if is_list(messages) and not messages:
        return []
    current = state.copy()
    try:
        current.receive(messages)
    except Exception as error:  # noqa: BLE001 - DESIGN rule 8: the host's agent never breaks
        log.trouble("prepare_failed", f"{type(error).__name__}: {error}")
        return list(messages) if is_list(messages) else passed
    # if system prompt and tools fill the window (`is_full`), no step could help
    for step in () if current.pressure.is_full else steps_of(state.setup.preset):
        draft = current.copy()
        try:
            step(draft)
        except Exception as error:  # noqa: BLE001 - the same: what the step did is discarded
            problems.append(f"{type(error).__name__}: {error}")
        else:
            current = draft
    log.trouble("prepare_failed", "; ".join(problems))
    current.pressure.is_recovering = False
    sent = _send(current)
    state.ledger, state.pressure, state.planning = current.ledger, current.pressure, current.planning
    return sent


def observe(state: State, response: object) -> None:
    """Read the provider's answer to the last list: token counts, whether the window was full, the turn's end."""
    ledger, pressure, last = state.ledger, state.pressure, state.ledger.last
    used, stopped = used_input_tokens(response), stop_reason_of(response)
    pressure.gauge = pressure.gauge.calibrated(last.counted_tokens, used, pressure.limit_tokens)
    ledger.last = replace(last, is_answered=last.is_answered or used > 0)
    if stopped == WINDOW_EXCEEDED:
        pressure.request("window_exceeded")
    if stopped == "end_turn" and state.is_in_turn:
        plan_ahead(state, is_turn_over=True)


def _send(state: State) -> list[Any]:
    """Return the list to send, recorded as sent, after storing the originals of what it leaves out."""
    state.store_left_out()
    ledger, setup = state.ledger, state.setup
    state.pressure.level = state.measure().level
    new = len(ledger.tracker) - ledger.last.messages
    added = sum(ledger.view.counted[-new:]) if ledger.last.messages and new > 0 else None  # None: unknown
    state.pressure.note_sent(ledger.view.total, added, state.kept_tokens)
    sent = state.to_send()
    ledger.note_sent(sent, setup.clock())
    save_for_restart(state)
    ledger.note_use(setup.store)
    return sent


def compact(
    state: State, messages: Sequence[object], focus: str, *, dry_run: bool, at_limit: bool = False
) -> Compaction:
    """Try the preset's ways to shorten the list on request, until one of them changes it, and return the result; with
    `dry_run` apply nothing. `focus`: what matters most, for the planner. `at_limit`: the client's own window is full,
    so the size of the present prompt counts as the limit."""
    if is_list(messages) and not messages:
        return replace(Compaction.nothing(state, "", "no messages"), messages=[])
    state.receive(messages)
    maximum_tokens = state.pressure.maximum_tokens  # `at_limit` lowers it, for this compaction only
    if at_limit:
        state.pressure.maximum_tokens = min(maximum_tokens, state.tokens)
    if not dry_run:
        replace_outdated(state)
        state.store_left_out()
        _take_plan_ahead(state)
    compaction = Compaction.nothing(state, "", "nothing to do")
    if not focus and _just_compacted(state):
        reason = "nothing was answered since the last compaction"
        compaction = replace(compaction, reason=reason, is_repeated=True)
    for tier in () if compaction.is_repeated else state.setup.preset.manual:
        compaction = attempt(state, tier, "manual", focus=focus, dry_run=dry_run)
        if compaction.applied or (dry_run and compaction.tier):  # a dry run ends with the first change it can report
            break
    state.pressure.maximum_tokens = maximum_tokens
    if compaction.applied:
        state.ledger.tracker = state.ledger.tracker.recognizing(compaction.messages, len(state.ledger.frame.head))
        save_for_restart(state)
    return compaction


def store_plan_ahead(state: State, messages: Sequence[object]) -> bool:
    """Ask a model now for the plan of the next compaction, and store it; return False if no model was asked. Raise
    TranscriptError if `messages` is not a list of messages, StoreError if the plan cannot be stored."""
    plan = compact(state, messages, "", dry_run=True).plan
    if plan is None or not state.planning.planned or not plan.provenance.read_turns:
        return False
    store, name = state.setup.store, f"{AHEAD_STATE}{state.setup.session_id}"
    key = store.save(state.ledger.tracker.history)
    store.use(lambda opened: opened.set_state(name, {"history": key, "plan": opened.save_plan(plan)}))
    return True


def _take_plan_ahead(state: State) -> None:
    """Load the plan that `store_plan_ahead` stored, if it covers more messages than the plan in force, to extend it."""
    store, name, plan_in_force = state.setup.store, f"{AHEAD_STATE}{state.setup.session_id}", state.ledger.frame.plan
    with suppress(StoreError):
        if saved := store.use(lambda opened: opened.get_state(name)):
            plan = store.use(lambda opened: opened.load_plan(saved["plan"]))
            if plan_in_force is None or plan_in_force.history.messages < plan.history.messages:
                state.planning.read_ahead = plan


def _just_compacted(state: State) -> bool:
    """Return True if the last compaction was requested and the model has answered nothing since. Another compaction
    would then cost a plan and free next to nothing."""
    plan_in_force, tracker = state.ledger.frame.plan, state.ledger.tracker
    changes = (event for event in reversed(state.setup.log.events) if event.kind in ("post_compact", "undone"))
    last = next((event.trigger for event in changes if event.trigger != "arrival"), "")
    if plan_in_force is None or last != "manual" or state.is_too_long:
        return False
    is_answered = any(message["role"] == "assistant" for message in tracker.plain[plan_in_force.history.messages :])
    return not is_answered and plan_in_force.history.begins(tracker.history)  # else the caller has changed messages


def recover(state: State, messages: Sequence[object], refused: TooLong | TooHeavy | LostResults) -> list[Any] | None:
    """Return another list to send after the provider refused the last one: with notes for missing tool results, or
    shorter. `refused`: the provider's reason. Return None if neither helps, or was tried for this list before."""
    if isinstance(refused, LostResults):
        return _with_missing_results_noted(state, messages)
    pressure = state.pressure
    if pressure.is_recovering:  # the list was made by an earlier `recover`
        return None
    try:
        state.receive(messages)
    except Exception as error:  # noqa: BLE001 - DESIGN rule 8: the host's agent never breaks
        state.setup.log.trouble("prepare_failed", f"{type(error).__name__}: {error}")
        return None
    pressure.is_recovering = True
    replace_outdated(state)
    view, before = state.ledger.view, state.tokens
    if isinstance(refused, TooHeavy):
        pressure.refuse_load(refused, view.load)  # learn the provider's limits
        if state.is_too_heavy:
            attempt(state, fit_pictures, "request_too_large", forced=True)
    else:
        pressure.refuse(refused, view.total)
    has_too_many_bytes = isinstance(refused, TooHeavy) and refused.is_size
    if isinstance(refused, TooLong) or (has_too_many_bytes and state.ledger.view is view):  # no picture was removed
        limit, view_before = pressure.limit_tokens, state.ledger.view
        for tier in state.setup.preset.recovery:  # until the list has changed and is much shorter
            if state.tokens > limit * CLEARLY_SHORTER or state.ledger.view is view_before:
                attempt(state, tier, "prompt_too_long", forced=True)
    if state.ledger.view is view:  # no attempt has changed the list
        return None
    pressure.requested = pressure.focus = ""
    state.setup.log("recovered", "a shorter list is sent", tokens_before=before, tokens_after=state.tokens)
    return _send(state)


def _with_missing_results_noted(state: State, messages: Sequence[object]) -> list[Any] | None:
    """Return the list to send with a note in place of each missing tool result, which the API requires. Return None if
    no result is missing, or if this list was returned before."""
    sent = prepare(state, messages)
    if not is_list(sent):
        return None
    with suppress(TranscriptError):
        answered = answer_calls([plain_message(message) for message in sent])
        digest = "".join(map(message_digest, answered))
        if answered != sent and digest != state.ledger.answered:
            state.ledger.answered = digest
            return answered
    return None


def save_for_restart(state: State) -> None:
    """Store the session's state, if it has changed, so that a restarted process can continue from it. The state of a
    shared session is stored by `Sharing` instead."""
    setup, ledger = state.setup, state.ledger
    read_tokens, is_sent = state.planning.read_tokens, ledger.is_sent
    if setup.is_shared or (ledger.committed, read_tokens, is_sent) == ledger.saved:
        return
    problem = ""
    try:
        if not (ledger.committed.key or ledger.frame.is_empty):  # the caller changed messages since they were stored
            ledger.commit(ledger.frame, setup.store, ledger.view)
        name, saved = session_name(setup.session_id), state.to_save().model_dump(mode="json")
        setup.store.use(lambda store: store.set_state(name, saved))
        ledger.saved = ledger.committed, read_tokens, is_sent
    except StoreError as error:
        problem = f"a restart would not continue from here: {error}"
    setup.log.trouble("store_failed", problem)
