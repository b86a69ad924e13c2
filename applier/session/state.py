"""State of a session: its arguments, and three values that change with each call.

The ledger has the history and what was sent, the pressure sizes and prices, the planning the planner. A call works on a
copy, which becomes the state in one step at its end, so that a failed call changes nothing.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from applier.session.edits import Frame, View, with_breakpoint
from applier.session.events import EventLog, Hooks
from applier.session.history_tracker import HistoryTracker
from applier.session.ledger import Committed, LastList, Ledger, SavedFrame, SavedSession, Undoable, load_session
from applier.session.planning import BreakerState, Planned, Planning
from applier.session.presets import Preset, preset_named
from applier.session.pressure import Level, Measurement, Pause, Pressure, level_after
from applier.session.request import AgentCall
from applier.session.tiers import PlanTurns
from applier.settings import SessionSettings, load_settings
from applier.store.excerpt import Restored
from applier.store.opening import SessionStore
from applier.store.store import Store
from applier.view import holds_view, originals_behind
from planner.api import check_argument
from planner.errors import ReferenceNotFound, SettingsError, StoreDamaged, StoreError, TranscriptError
from planner.prices import cache_prices, register_prices
from planner.reading.messages import plain_message, result_ids, unmarked
from planner.reading.tokens import TokenCounter, binds_reasoning
from planner.settings import declared_uses, misnamed_uses


@dataclass(frozen=True)
class Setup:
    """Arguments with which a session was opened, and the objects made of them; only `marks` gets other values later."""

    session_id: str
    settings: SessionSettings
    preset: Preset
    store: SessionStore
    log: EventLog
    clock: Callable[[], float]
    is_shared: bool = False
    """True if other processes may serve the session, too (`applier.session.sharing`)."""
    marks: list[str] = field(default_factory=list)
    """Digests of the newest list, by which the proxy finds the session that a request belongs to."""

    @classmethod
    def of(
        cls,
        settings: SessionSettings | None,
        window_tokens: int | None,
        preset: str | Preset | None,
        store: Store | str | Path | SessionStore | None,
        clock: Callable[[], float],
        hooks: Hooks | None,
        session_id: str | None,
        is_shared: bool,
    ) -> Setup:
        """Check the arguments of `Session` and return them, with defaults for missing ones.

        None as `settings` means those of environment and project file, None as `session_id` a new id. `window_tokens`,
        if it is not None, replaces the one of the settings. Raise SettingsError if an argument is wrong, or if a shared
        session has no `session_id`.
        """
        check_argument("settings", settings, SessionSettings, "SessionSettings(…)")
        check_argument("preset", preset, str | Preset, "a name or a Preset")
        check_argument("hooks", hooks, Mapping, "callables by event kind")
        check_argument("session_id", session_id, str, "text")
        if not callable(clock):
            raise SettingsError(f"clock: expected a function that gives seconds, found {type(clock).__name__}")
        if is_shared and not session_id:
            raise SettingsError("is_shared: a session is shared by its session_id")
        if settings is None:
            settings = load_settings(window_tokens=window_tokens)
        elif window_tokens is not None:
            settings = settings.changed(window_tokens=window_tokens)
        register_prices(settings.prices)
        own_id = session_id or uuid.uuid4().hex[:12]
        shared = store if isinstance(store, SessionStore) else SessionStore(store)
        shared.folder, shared.clock = settings.project, clock
        preset = preset_named(settings.preset if preset is None else preset).tuned(settings)
        return cls(own_id, settings, preset, shared, EventLog(own_id, clock, hooks, shared), clock, is_shared)


@dataclass
class State:
    """Everything that a session knows at one moment; a call changes a copy of it."""

    setup: Setup
    ledger: Ledger
    pressure: Pressure
    planning: Planning

    @classmethod
    def of(cls, setup: Setup, planning: Planning, call: AgentCall, owner: str) -> State:
        """Return the state of a new session with the first request `call`. `owner`: id by which its compacted lists are
        recognized. Raise SettingsError if system prompt and tools leave no room for messages."""
        settings, counter = setup.settings, TokenCounter.for_model(call.model)
        tracker = HistoryTracker(counter, uses=declared_uses(settings.tool_uses, call.tools or ()))
        pressure = Pressure(settings, AgentCall(call.model), setup.preset.expected_growth_tokens)
        state = cls(setup, Ledger(tracker, owner, store_opening=setup.store.opening), pressure, planning)
        state.take_call(call)
        if no_room := pressure.no_room:
            raise SettingsError(no_room)
        return state

    def copy(self) -> State:
        """Return a copy of the state for one call. Store, log and worker thread are shared, not copied."""
        return State(self.setup, copy.copy(self.ledger), copy.copy(self.pressure), copy.copy(self.planning))

    @property
    def tokens(self) -> int:
        """Tokens that the prompt would have if it were sent now."""
        return self.pressure.gauge.prompt(self.ledger.view.total)

    @property
    def plan_goal(self) -> PlanTurns | None:
        """Way to shorten the list by which the preset makes plans, with the size to leave; None if it makes none."""
        return next((row.tier for row in self.setup.preset.steps if isinstance(row.tier, PlanTurns)), None)

    @property
    def goal_tokens(self) -> int:
        """Tokens that the next plan should leave, without the newest, unanswered messages."""
        pressure, tier = self.pressure, self.plan_goal
        if tier is None:
            return pressure.room_tokens
        return tier.goal_tokens(pressure.room_tokens, pressure.gauge.of_messages(self.ledger.tracker.tokens))

    @property
    def kept_tokens(self) -> int:
        """Tokens of older messages that the next plan will probably leave: its goal, or what the last plan left."""
        return max(self.goal_tokens, self.pressure.left_tokens)

    @property
    def live_tokens(self) -> int:
        """Tokens of the newest messages, which the model has not answered and which every plan leaves."""
        tracker = self.ledger.tracker
        return self.pressure.gauge.of_messages(sum(tracker.counted[tracker.live_start :]))

    @property
    def is_too_long(self) -> bool:
        """True if the prompt would be too long for the model's window if it were sent now."""
        return self.tokens > self.pressure.limit_tokens

    @property
    def is_too_heavy(self) -> bool:
        """True if the list would have more pictures or more bytes than the provider accepts if it were sent now."""
        return self.pressure.limits.excess(self.ledger.view.load) > 1

    @property
    def is_in_turn(self) -> bool:
        """True if the list ends with tool results, and the model (GPT-6.2 or later) would lose the reasoning of its
        present turn if the list was changed now."""
        plain = self.ledger.tracker.plain
        return binds_reasoning(self.pressure.call.model) and bool(plain) and bool(result_ids(plain[-1]))

    def measure(self) -> Measurement:
        """Return the numbers (size, limit, cost, time) by which triggers decide whether to compact."""
        pressure, tokens, at = self.pressure, self.tokens, self.ledger.last.at
        return Measurement(
            tokens=tokens,
            limit_tokens=pressure.limit_tokens,
            level=level_after(pressure.level, tokens, pressure.limit_tokens),
            beside_tokens=pressure.gauge.prompt(0),
            goal_tokens=self.kept_tokens,
            carried_tokens=pressure.carried_tokens,
            growth_tokens_per_call=pressure.growth_tokens,
            idle_seconds=0.0 if at is None else max(0.0, self.setup.clock() - at),
            requested=pressure.requested,
            prices=cache_prices(pressure.call.model),
        )

    def take_call(self, call: AgentCall) -> None:
        """Store the fields of the next request besides its messages: model, system prompt, tools and so on."""
        self.pressure.take_call(call, self.ledger.tracker.counter)
        self.ledger.strips_thinking = self.pressure.call.thinking_policy == "strip"

    def receive(self, messages: Sequence[object]) -> None:
        """Add the new messages of the caller's list to the history; forget earlier changes of the list that do not fit
        any more. Raise TranscriptError if `messages` is not a list of messages."""
        ledger, log = self.ledger, self.setup.log
        if not len(ledger.tracker) and isinstance(messages, Sequence):  # the first list
            self._continue_from_view(messages)
        if (tools := self.pressure.call.tools) and self.setup.settings.tool_uses:
            log.trouble("misnamed_use", "; ".join(misnamed_uses(self.setup.settings.tool_uses, tools)))
        arrival = ledger.take(messages, is_shared=self.setup.is_shared)
        if arrival.start == 0 and (view := ledger.unknown_view):  # the first list
            text = f"the list begins with a view of {view}, whose originals are not found in this session's store"
            log("unknown_view", f"{text}: it is kept as it is, and restoring a turn needs the key (`{view}:t1`)")
        if arrival.changed:  # the sizes at which tiers were paused belong to another history
            self.pressure.pauses, self.pressure.left_tokens = {}, 0
            log("history_changed", f"messages from {arrival.start} on are not those known before")
        elif arrival.edited:
            text = f"message {min(arrival.edited)} was edited in place; it is read again"
            if ledger.outdated_plan is not None:
                text += ", and the compacted part, which may hold its old text, is replaced"
            log("history_edited", text)

    def _continue_from_view(self, messages: Sequence[object]) -> None:
        """Use stored originals as the history, if the first list begins with messages that this program compacted."""
        stored, ledger, store = None, self.ledger, self.setup.store
        with suppress(TranscriptError, StoreError):
            if holds_view(messages) and store.exists:
                for owner in (ledger.owner, ""):  # of this session, or of one without an id
                    stored = stored or store.use(partial(originals_behind, messages=messages, owner=owner))
        if stored is None:
            return
        ledger.tracker, _ = ledger.tracker.extended_by(stored.messages)
        plan_id = stored.plan_id if stored.plan is not None else ""
        frame = Frame(
            stored.plan, plan_id, tuple(unmarked(plain_message(m)) for m in messages[: stored.head]), stored.start
        )
        self._continue_from(Committed(frame, stored.key, stored.start), stored.start)
        ledger.tracker = ledger.tracker.recognizing(messages, stored.head)
        text = f"the list begins with a view of {stored.start} messages: its originals are in the store"
        self.setup.log("resumed", text)

    def _continue_from(self, committed: Committed, messages: int) -> None:
        """Continue from the list that an earlier call or another process made by the frame `committed` and sent.
        `messages`: number of messages of the history that it covered."""
        ledger = self.ledger
        ledger.take_into_force(committed)
        ledger.tracker = ledger.tracker.recognizing(ledger.view.messages, len(ledger.frame.head))
        ledger.last = LastList(messages, frame=ledger.frame, undoable=ledger.undoable)
        self.planning.previous = committed.frame.plan

    def notice_lost_store(self) -> bool:
        """Return True if the store's file was removed. Then forget what was stored: the next list is sent whole, and
        compaction may be tried again at once."""
        opening = self.setup.store.opening
        if opening == self.ledger.store_opening:
            return False
        ledger = self.ledger
        ledger.store_opening, ledger.undoable, ledger.keys[:] = opening, (), []
        ledger.take_into_force(Committed(ledger.without_refused_thinking(Frame())))
        self.pressure.pauses = {}
        self.setup.log("store_failed", "the store's file was taken away: nothing is left out that was stored there")
        return True

    def restore(self, reference: str, **wanted: Any) -> Restored:
        """Return the original of a turn of this session, its parent or its children, after storing the whole history.

        `reference`: ``t12``, or ``KEY:t12`` with the store key of a history. `wanted`: the options of `Store.restore`
        that select lines or a page. Raise ReferenceNotFound if none of these histories has that turn.
        """
        ledger, store, key = self.ledger, self.setup.store, self.ledger.committed.key
        if len(ledger.tracker):
            with suppress(StoreError):  # a full disk can still be read
                key = store.save(ledger.tracker.history)
                self.notice_lost_store()
                ledger.keys[:] = [*(older for older in ledger.keys if older != key), key]
        name = self._with_key(reference.strip(), key)
        try:
            return store.use(lambda opened: opened.restore(name, within=tuple(ledger.keys), **wanted))
        except ReferenceNotFound as error:
            number = name.rpartition(":")[2].removeprefix("t")
            is_later = number.isdecimal() and int(number) > len(ledger.tracker.history.turns) > 0
            has_sent_list = ledger.last.at is not None
            if has_sent_list or not is_later:
                raise
            # this process has only the stored part of the history, from before a restart
            text = f"{error}; later turns are known once `prepare` was called"
            raise ReferenceNotFound(text, error.elsewhere) from None

    def _with_key(self, name: str, key: str) -> str:
        """Return the reference `name` with the store `key` of its history, ``KEY:t12``, unless it has a key or `key` is
        empty. Raise ReferenceNotFound if the caller's list begins with an unknown view (a compacted list), as ``t12``
        may then be a turn of that view or of this session."""
        if ":" in name:
            return name
        if view := self.ledger.unknown_view:
            own = f", or {key}:{name} for one of this session" if key else ""
            text = f"{name!r}: the list begins with a view of {view}, which has other turns: give a key"
            raise ReferenceNotFound(f"{text}, {view}:{name} for a turn of the view{own}")
        return f"{key}:{name}" if key else name

    def store_left_out(self) -> None:
        """Store content that the list to send leaves out and the store lacks: the thinking of a new message, or a
        message that the caller edited and the list shortens. If that fails, leave out only what is stored."""
        self.notice_lost_store()
        ledger, setup = self.ledger, self.setup
        if ledger.committed.holds(ledger.frame, len(ledger.tracker)):
            return
        try:
            ledger.commit(ledger.frame, setup.store, ledger.view)
        except StoreError as error:
            setup.store.note_failure(error)
            ledger.fall_back()
            if not setup.log.troubles.get("store_failed"):
                setup.log("store_failed", f"only what is stored is left out: {error}")

    def to_send(self, frame: Frame | None = None, view: View | None = None) -> list[Any]:
        """Return the list to send, with a prompt-cache mark at the end of its compacted part. `frame`, `view`:
        changes to the history, and the list that they make, if they are not in force yet; None: those in force."""
        ledger, call = self.ledger, self.pressure.call
        return with_breakpoint((view or ledger.view).messages, frame or ledger.frame, ledger.tracker, call)

    def resume(self) -> None:
        """Continue from the state that an earlier process stored, if there is one. Model and thinking setting are those
        of its last request, until the next request sets them, unless the caller named another model. Raise StoreError
        if the stored state cannot be read."""
        setup = self.setup
        saved = setup.store.use(lambda store: load_session(store, setup.session_id))
        setup.log.load(setup.store.use(lambda store: store.events(setup.session_id)))
        if saved is not None:
            if self.pressure.call.model in ("", saved.model):
                self.take_call(replace(self.pressure.call, model=saved.model, thinking=saved.thinking))
            self.continue_from(saved)
            self.take_pauses(saved)
            setup.log("resumed", f"{len(self.ledger.tracker)} messages, {self.ledger.compactions} compactions")

    def continue_from(self, saved: SavedSession) -> None:
        """Replace this state by the stored state `saved`. Raise StoreError, with nothing changed, if that fails."""
        use, ledger, session_id = self.setup.store.use, self.ledger, self.setup.session_id
        tracker = HistoryTracker(ledger.tracker.counter, uses=ledger.tracker.uses)
        if saved.frame.key:
            tracker, _ = tracker.extended_by(use(lambda store: store.load_history(saved.frame.key)).messages)
        length, committed = len(tracker), use(saved.frame.committed)
        if max(saved.frame.start, saved.before.start if saved.before else 0) > length:
            raise StoreDamaged(f"session {session_id}: its state goes beyond the history that is stored with it")
        ledger.undoable = (Undoable(use(saved.before.committed).frame, 0),) if saved.before else ()
        ledger.tracker, ledger.unknown_answers = tracker, frozenset()
        measured = (saved.ratio, saved.extra_tokens) != (1.0, 0.0)  # the values of a new formula
        ratio, extra = saved.ratio, saved.extra_tokens
        self.pressure.gauge = replace(self.pressure.gauge, ratio=ratio, extra_tokens=extra, is_resumed=measured)
        self.planning.count_read(saved.read_tokens)
        ledger.compactions = saved.compactions
        self._continue_from(committed, length)
        if not saved.is_sent:  # the frame of the list that was sent last is unknown: none is assumed
            ledger.last = replace(ledger.last, frame=Frame())
        ledger.saved = ledger.committed, saved.read_tokens, saved.is_sent

    def take_pauses(self, saved: SavedSession) -> None:
        """Pause the tiers (ways to shorten the list) that are paused in the stored state `saved`."""
        self.pressure.pauses = {(tier, forced): Pause(*sizes) for tier, forced, *sizes in saved.rests}

    def to_save(self) -> SavedSession:
        """Return the state in the form in which it is stored for a restart."""
        ledger, call, gauge = self.ledger, self.pressure.call, self.pressure.gauge
        older = [replace(ledger.committed, frame=undoable.frame) for undoable in ledger.undoable[-1:]]
        return SavedSession(
            frame=SavedFrame.of(ledger.committed),
            before=SavedFrame.of(older[0]) if older else None,
            is_sent=ledger.is_sent,
            compactions=ledger.compactions,
            ratio=gauge.ratio,
            extra_tokens=gauge.extra_tokens,
            read_tokens=self.planning.read_tokens,
            rests=[(*tier, *until) for tier, until in self.pressure.pauses.items()],
            model=call.model,
            thinking=None if call.thinking is None else dict(call.thinking),
        )


@dataclass(frozen=True, slots=True)
class SessionState:
    """Size and limits of a session after a call, for the user's program. Later calls do not change the object."""

    session_id: str
    level: Level
    """Fullness of the window, from ``normal`` to ``exhausted``."""
    tokens: int
    """Tokens of the prompt that would be sent now, with system prompt and tools."""
    window_tokens: int
    limit_tokens: int
    """Largest size of a prompt in tokens: the window without the part kept free for the answer."""
    compactions: int
    reclaimed_tokens: int
    """Tokens by which the prompt would be longer without any compaction; content compacted twice counts once."""
    breaker: BreakerState
    """State of the pause after failures of the planner: ``open`` while the planner is not asked."""
    history_key: str
    """Key of the history in the store; empty if it is not stored, or if the caller changed its messages since."""
    history_messages: int
    planned: tuple[Planned, ...]
    """Requests to planners in this process, in order, with cost and reason of failure."""

    @classmethod
    def of(cls, state: State) -> SessionState:
        """Return the present values of the session's internal `state`."""
        ledger, pressure = state.ledger, state.pressure
        return cls(
            session_id=state.setup.session_id,
            level=state.measure().level,
            tokens=state.tokens,
            window_tokens=pressure.window_tokens,
            limit_tokens=pressure.limit_tokens,
            compactions=ledger.compactions,
            reclaimed_tokens=pressure.gauge.of_messages(max(0, ledger.tracker.tokens - ledger.view.total)),
            breaker=state.planning.breaker,
            history_key=ledger.committed.key,
            history_messages=len(ledger.tracker),
            planned=tuple(state.planning.planned),
        )
