"""What happens at a call, top to bottom: a list arrives, tiers run, originals are stored, a list goes out.

Nothing here may break the agent: whatever fails, a valid list comes back and the log says what happened. Not safe for
threads: `Session` holds the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from applier.session.ahead import plan_ahead, take_up_plan
from applier.session.compaction import (
    Bounds,
    Compaction,
    Draft,
    draft_of,
    goal_tokens_of,
    rejection,
    situation_of,
    with_carried,
)
from applier.session.events import EventKind
from applier.session.frame import Edits, View, draft
from applier.session.gauge import TooLong
from applier.session.history_tracker import Arrival
from applier.session.persistence import commit, save_session
from applier.session.planning import within
from applier.session.presets import Step
from applier.session.recall import Named, restored_text
from applier.session.state import Rest, State
from applier.session.tiers import Tier
from planner.errors import StoreError
from planner.layout.placeholders import history_key
from planner.reading.messages import blocks

__all__ = ["compact", "prepare", "recover", "request", "save", "undo"]

FORCED = Bounds(may_veto=False)
"""Of a step that the window forces."""
REARM_SHARE, FORCED_REARM_SHARE = 0.05, 0.01
"""After a step has run or was rejected, the prompt grows by this share of the limit, or by what was missing, before
it is tried again. Where the prompt does not fit, it is enough that so much more of it was answered."""
LEAST_SAVINGS_SHARE = 0.4
"""In a small window, saving this share of the limit is enough whatever a preset's constant says."""
STORE_REST_SECONDS = 30.0
"""After the store has failed, this long nothing is compacted."""
ROOM_SHARE = 0.75
"""A removed turn is said again at once only while the prompt stays below this share of the limit."""
CLEARLY_SHORTER = 0.75
"""What a reactive retry aims at, as a share of the limit."""


def prepare(state: State, messages: Sequence[object]) -> list[Any]:
    """What to send; whatever fails, a list that is valid if the caller's is."""
    received = False
    try:
        arrival = state.receive(messages)
        received = True
        _work(state, arrival)
        state.failing.pop("prepare_failed", None)
    except Exception as error:  # noqa: BLE001 - DESIGN rule 8: the host's agent never breaks
        _log_once(state, "prepare_failed", f"{type(error).__name__}: {error}")
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
    if state.is_blocked:
        return
    unsent = min(arrival.start, state.called_with)
    _note_new(state, unsent)
    for tier in state.preset.arrival if _may_store(state) else ():
        _attempt(state, tier, "arrival", Bounds(may_veto=False), new_from=unsent)
    named = state.recall.hear(state.tracker.plain[unsent:], state.tracker)
    state.wanted.update((item.turn_id, item) for item in named)
    take_up_plan(state)
    for step in state.preset.steps:
        _step(state, step)
    state.requested = state.focus = ""
    _warn_if_too_large(state)
    _bring_back(state, [item for item in named if item.turn_id in state.wanted])
    plan_ahead(state)


def _hand_out(state: State) -> list[Any]:
    """The list to send, once the store has what it leaves out."""
    _store_left_out(state)
    sent = state.hand_out(state.clock())
    save(state)
    return sent


def _store_left_out(state: State) -> None:
    """Store what the view leaves out, or leave out less: a message came that goes without its thinking, or one that the
    caller has edited where something else stands for it; or the store was begun anew."""
    try:
        state.store_anew()
    except StoreError as error:
        state.store_failed_at = state.clock()
        _log_once(state, "store_failed", f"what is left out is not stored any more: {error}")
    if state.is_left_out_stored:
        return
    before = state.committed
    try:
        stored = commit(before.frame, before.key, state.tracker, state.store, before)
    except StoreError as error:
        state.store_failed_at = state.clock()
        state.fall_back()
        state.log("store_failed", f"only what is stored is left out: {error}")
    else:
        state.take_into_force(stored, state.view)


def _note_new(state: State, start: int) -> None:
    """Note the files that were touched, and whether the model asked for a compaction."""
    tracker = state.tracker
    state.marks.touch(tracker.results_from(start))
    newest = tracker.plain[max(start, len(tracker) - 2) :]
    for block in (block for message in newest for block in blocks(message)):
        if block["type"] == "tool_use" and block.get("name") == state.settings.compact_tool:
            asked = block.get("input")
            request(state, "tool", str(asked.get("focus", "")) if isinstance(asked, dict) else "")


def _step(state: State, step: Step) -> None:
    """Run one row of the preset if its trigger fires, it does not rest, and the store works."""
    measured = state.measure(state.clock(), goal_tokens_of(state))
    fired = next((when for when in step.when if when.fires(measured)), None)
    if fired is None or not _may_store(state):
        return
    forced = measured.level in ("critical", "exhausted")
    if step.tier is state.preset.plan_goal and state.planning.worker.is_running and not (forced or measured.requested):
        return  # the plan that is being made comes with one of the next calls
    bounds = FORCED if forced else Bounds()
    if not forced and not measured.requested:
        least = min(step.min_savings_tokens, int(measured.limit_tokens * LEAST_SAVINGS_SHARE))
        bounds = Bounds(least, step.max_payback_calls)
    if not measured.requested and _rests(state, step.tier, bounds):
        return
    trigger = measured.requested or (measured.level if forced else fired.name)
    done = _attempt(state, step.tier, trigger, bounds)
    if done.applied and not any(when.name == "every turn" for when in step.when):
        _rest(state, step.tier, bounds)
        _rest(state, step.tier, FORCED)


def _attempt(
    state: State,
    tier: Tier,
    trigger: str,
    bounds: Bounds,
    *,
    new_from: int | None = None,
    focus: str = "",
    dry_run: bool = False,
) -> Compaction:
    """Ask one tier, and do what it says if that is worth it."""
    name = name_of(tier)
    with state.log.span("tier", tier=name, trigger=trigger):
        try:
            edits = tier(situation_of(state, new_from, focus))
            drafted = None if edits is None else draft_of(state, with_carried(state, edits), state.clock())
        except Exception as error:  # noqa: BLE001 - a tier that fails gives way to the next
            state.log("tier_failed", f"{type(error).__name__}: {error}", trigger=trigger, tier=name)
            _rest(state, tier, bounds)
            return Compaction.nothing(state, name, f"{type(error).__name__}: {error}")
        if drafted is None:
            return Compaction.nothing(state, "", "nothing to do")
        rejected = rejection(state, drafted, bounds)
        if dry_run:
            return drafted.compaction(state, name, rejected.reason if rejected else drafted.edits.reason)
        if rejected is not None:
            state.log("not_worth_it", rejected.reason, trigger=trigger, tier=name, **drafted.numbers)
            _rest(state, tier, bounds, rejected.missing_tokens)
            return Compaction.nothing(state, name, rejected.reason)
        return _apply(state, drafted, tier, trigger, bounds)


def _apply(state: State, drafted: Draft, tier: Tier, trigger: str, bounds: Bounds) -> Compaction:
    """Store the originals, then put the change into force, unless a hook or the store is against it."""
    name, reason, numbers = name_of(tier), drafted.edits.reason, drafted.numbers
    agreed = state.log("pre_compact", reason, trigger=trigger, tier=name, **numbers)
    if bounds.may_veto and not agreed:
        state.log("vetoed", "a hook said no", trigger=trigger, tier=name)
        _rest(state, tier, bounds)
        return Compaction.nothing(state, name, "vetoed by a hook")
    before = state.committed
    try:
        committed = commit(drafted.frame, drafted.key, state.tracker, state.store, before)
    except StoreError as error:
        state.store_failed_at = state.clock()
        state.log("store_failed", f"nothing was changed: {error}", trigger=trigger, tier=name)
        _rest(state, tier, bounds)
        return Compaction.nothing(state, name, f"the originals could not be stored: {error}")
    done = drafted.compaction(state, name, reason, applied=True)
    state.take_into_force(committed, drafted.view)
    state.reclaimed_tokens += done.tokens_before - done.tokens_after
    if trigger != "arrival":
        state.compactions += 1
        state.may_go_back(before)
    if drafted.edits.plan is not None:
        state.kept_tokens = state.gauge.of_messages(drafted.view.total)
    if drafted.first_changed is not None:
        state.sent = min(state.sent, drafted.first_changed)
    _end_long_rests(state)
    state.log("post_compact", reason, trigger=trigger, tier=name, **numbers)
    return done


def _may_store(state: State) -> bool:
    """False for a while after the store has failed: a plan would be made in vain at every call."""
    return not within(STORE_REST_SECONDS, state.store_failed_at, state.clock())


def _rests(state: State, tier: Tier, bounds: Bounds) -> bool:
    rest = state.rearm.get((name_of(tier), bounds), Rest(0, 0))
    if state.tokens >= max(state.held_below, rest.below_tokens):
        return False
    return state.tokens <= state.limit_tokens or state.answered_tokens < rest.below_answered_tokens


def _rest(state: State, tier: Tier, bounds: Bounds, missing_tokens: int = 0) -> None:
    share = FORCED_REARM_SHARE if bounds == FORCED else REARM_SHARE
    growth = max(missing_tokens, int(state.limit_tokens * share))
    state.rearm[name_of(tier), bounds] = Rest(state.tokens + growth, state.answered_tokens + growth)


def _end_long_rests(state: State) -> None:
    """What the window forces rests no longer where the step that ran last has left more than fits.

    A step tried while a huge result was still whole would else rest until the prompt is as large again.
    """
    most = max(state.limit_tokens, state.tokens)
    for key, rest in state.rearm.items():
        if key[1] == FORCED:
            state.rearm[key] = replace(rest, below_tokens=min(rest.below_tokens, most))


def _warn_if_too_large(state: State) -> None:
    """Say once that even the last resort was not enough: the provider will refuse the prompt."""
    was, state.is_too_large = state.is_too_large, state.tokens > state.limit_tokens
    if state.is_too_large and not was and state.preset.steps:
        reason = f"{state.tokens} tokens of at most {state.limit_tokens}: no step could make it smaller"
        state.log("still_too_large", reason)


def _bring_back(state: State, named: Sequence[Named]) -> None:
    """The first turn that fits is said again at once, behind what is cached; the others with the next plan."""
    at_once = next((item for item in named if _fits(state, item)), None)
    if at_once is not None and _add(state, at_once):
        del state.wanted[at_once.turn_id]
        state.recall.brought_back(at_once.turn_id)
    for item in named:
        if item.turn_id in state.wanted:
            reason = f"the agent named {item.name}: {item.turn_id} comes back with the next plan"
            state.log("recall_pending", reason)


def _fits(state: State, named: Named) -> bool:
    tokens = state.gauge.of_messages(named.tokens)
    return (
        tokens <= state.settings.recall_tokens
        and state.tokens + tokens <= state.limit_tokens * ROOM_SHARE
        and state.tracker.plain[-1]["role"] == "user"
    )


def _add(state: State, named: Named) -> bool:
    """Say a turn again behind what is cached; False if the store would not have it."""
    before = state.committed
    edits = Edits("recall", additions=(restored_text(state.tracker, named, len(state.tracker) - 1),))
    frame = draft(before.frame, edits, state.tracker, before.key, state.call.thinking_policy)
    try:
        committed = commit(frame, before.key, state.tracker, state.store, before)
    except StoreError as error:
        state.log("store_failed", f"nothing was added: {error}")
        return False
    tokens = state.tokens
    state.take_into_force(committed, View.of(frame, state.tracker))
    reason = f"{named.turn_id} is back: the agent named {named.name}"
    state.log("recalled", reason, tokens_before=tokens, tokens_after=state.tokens)
    return True


def request(state: State, trigger: str, focus: str = "") -> None:
    """Compact at the next call."""
    state.requested, state.focus = trigger, focus or state.focus


def name_of(tier: Tier) -> str:
    """What the log calls `tier`."""
    return str(getattr(tier, "name", None) or getattr(tier, "__name__", type(tier).__name__))


def compact(state: State, messages: Sequence[object], focus: str, *, dry_run: bool) -> Compaction:
    """The manual command."""
    state.receive(messages)
    if not dry_run:
        _store_left_out(state)
    if state.handed is None:  # whatever was sent, this process does not know it
        state.awaited = len(state.tracker)
    done = Compaction.nothing(state, "", "nothing to do")
    for tier in state.preset.manual:
        done = _attempt(state, tier, "manual", Bounds(), focus=focus, dry_run=dry_run)
        if done.applied or (dry_run and done.tier):
            break
    if done.applied:
        state.tracker.returned(done.messages, len(state.committed.frame.head))
        state.note_thought_behind(state.awaited + 1 if state.is_awaited else len(state.tracker))
        save(state)
    return done


def recover(state: State, messages: Sequence[object], refused: TooLong) -> list[Any] | None:
    """Something clearly shorter, once for each list prepared; None if there is nothing."""
    if state.is_recovering:
        return None
    state.receive(messages)
    state.is_recovering = True
    _believe(state, refused)
    before = state.tokens
    for tier in state.preset.recovery:
        if state.tokens > state.limit_tokens * CLEARLY_SHORTER or state.tokens == before:
            _attempt(state, tier, "prompt_too_long", Bounds(may_veto=False))
    if state.tokens == before:
        return None
    state.requested = state.focus = ""
    state.log("recovered", "a shorter list goes out", tokens_before=before, tokens_after=state.tokens)
    return _hand_out(state)


def _believe(state: State, refused: TooLong) -> None:
    """The provider knows better how long the prompt was, and how long it may be."""
    if refused.maximum_tokens:
        state.maximum_tokens = refused.maximum_tokens
    counted, actual, gauge = state.view.total, refused.actual_tokens, state.gauge
    known = actual > 0
    state.gauge = gauge.corrected(counted, actual) if known else gauge.doubted(counted, state.limit_tokens)


def undo(state: State) -> bool:
    """Back to the frame before the last compaction."""
    if not state.undoable:
        return False
    before, older = state.tokens, state.undoable.pop()
    frame = state.bound(older.frame)
    state.take_into_force(replace(state.committed, frame=frame, plan_id=older.plan_id), View.of(frame, state.tracker))
    state.sent = 0
    state.held_below = min(state.tokens + int(state.limit_tokens * REARM_SHARE), state.limit_tokens)
    state.log("undone", "the last compaction was taken back", tokens_before=before, tokens_after=state.tokens)
    save(state)
    return True


def save(state: State) -> None:
    """Store how the session stands, if that has changed."""
    committed = state.committed
    stands = committed is state.saved or (state.saved is None and committed.frame.is_empty)
    if stands and state.planning.read_tokens == state.saved_read_tokens:
        return
    try:
        if not (committed.key or committed.frame.is_empty):  # the list went another way, which nothing stored holds
            key = history_key(state.tracker.history)
            committed = commit(committed.frame, key, state.tracker, state.store, committed)
            state.take_into_force(committed, state.view)
        saved = state.to_save()
        save_session(state.store, state.session_id, saved)
    except StoreError as error:
        _log_once(state, "store_failed", f"a restart would not continue from here: {error}")
    else:
        state.failing.pop("store_failed", None)
        state.saved, state.saved_read_tokens = state.committed, saved.read_tokens


def _log_once(state: State, kind: EventKind, message: str) -> None:
    """Log what fails at every call when it begins to."""
    if state.failing.get(kind) != message:
        state.failing[kind] = message
        state.log(kind, message)
