"""Shares one session among several processes, such as proxies behind a balancer, one call at a time.

The processes use one store: each call continues from the state that the last call stored, whatever process that was
in. States are numbered, so that a process notices a newer one. Answers to lists unknown to a process are sent without
their thinking, which the API might refuse. No process waits long for another; while the store cannot be reached, each
continues with its own state.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from applier.session.edits import Frame
from applier.session.ledger import LastList, SavedFrame, SavedSession, session_name
from applier.session.pressure import Gauge, Level
from applier.session.state import State
from applier.store.store import Store
from planner.errors import ReferenceNotFound, StoreDamaged, StoreError, TranscriptError
from planner.reading.tokens import TokenCounter

HOLD_SECONDS = 2.0
"""Longest time that a call waits for a call of another process in the same session."""
PLAN_SECONDS = 120.0
"""Longest time that other processes wait for a plan made in advance by one, unless the window is nearly full."""

LAST_FIELDS = "messages", "counted_tokens", "at", "newest", "is_answered"
"""Fields of `LastList`, the last list sent to the model, that are stored as they are."""


class PressureFields(BaseModel):
    """Sizes and limits of a `Pressure` that change with each call, in the form in which they are stored."""

    model_config = ConfigDict(from_attributes=True)

    level: Level
    growth_tokens: float
    carried_tokens: int
    left_tokens: int
    maximum_tokens: int
    requested: str
    focus: str


class SavedSharedSession(SavedSession):
    """Stored state of a session that several processes share, from which any of them can continue."""

    number: int = Field(ge=1)
    """Number of the state, which grows with each change."""
    messages: int = Field(ge=0)
    """Number of messages in the history when the last list was sent. This field and the next ones, up to `is_answered`,
    describe that list (`LastList`)."""
    counted_tokens: int
    at: float | None
    newest: str
    is_answered: bool
    cached_messages: int
    moving: PressureFields
    marks: list[str]
    """Digests by which the proxy finds the session of a request."""
    gauge: Gauge
    """Formula that turns our token counts into the provider's token counts."""
    planner: str
    """Id of the process that makes the next plan in advance, or has made it."""
    planner_until: float
    """Time until which other processes wait for a plan made in advance instead of making one."""


@dataclass
class _StateChange:
    """Function that replaces the stored state of a session after a call, unless another process has changed it."""

    number: int
    """Number of the stored state from which the call began."""
    frame: SavedFrame | None
    """Changes to the history (a frame) in the state from which the call began."""
    to: SavedSharedSession
    """State after the call."""
    is_made: bool = False
    """True if this call's state was stored; False if another process's state stays."""

    def __call__(self, data: Any) -> Any:
        """Return the state to store in place of the stored `data`, as JSON data. If another process has stored a state
        meanwhile, this call's state replaces it only if this call alone has compacted the list. Then, or if both sent a
        list for the same messages, the next answer may belong to either, so `is_answered` becomes False."""
        number = _state_number(data)
        unknown_answer = {"number": number + 1, "is_answered": False}
        newer = _validated(data) if number != self.number and data else None
        if newer is not None and newer.frame == self.to.frame:  # it has the same compacted part
            return data
        if isinstance(newer, SavedSharedSession) and newer.frame != self.frame:  # the other process has compacted
            return {**data, **unknown_answer} if newer.messages == self.to.messages else data
        if number != self.number:  # this process has compacted, the other one has only sent a list
            self.to = self.to.model_copy(update=unknown_answer)
        self.is_made = True
        return self.to.model_dump(mode="json")


class Sharing:
    """Loads the state of a shared session before each call, and stores it after the call."""

    def __init__(self, session_id: str) -> None:
        """Prepare for the session with this id. This process gets a random id, as other processes may share it."""
        self.process, self._name = uuid.uuid4().hex, session_name(session_id)

    @contextmanager
    def around_call(self, state: State) -> Iterator[None]:
        """Enclose one call: wait up to `HOLD_SECONDS` for other processes, load the newest state, and store it
        afterwards. If the store fails, that is reported, and the call runs on this process's own state."""
        with ExitStack() as stack:
            problem, is_alone, store, ledger = "", False, state.setup.store, state.ledger
            try:
                is_alone = stack.enter_context(self._hold(state, HOLD_SECONDS))
                self._load_newest(state)
                store.failed_at = None if ledger.known_state.is_lost else store.failed_at
            except Exception as error:  # noqa: BLE001 - DESIGN rule 8: the host's agent never breaks
                problem = f"this process continues with its own state: {error}"
                store.note_failure(error)
            ledger.note_known_state(is_lost=bool(problem))
            state.setup.log.trouble("store_failed", problem)
            known = ledger.known_state
            is_planned = known.planner != self.process and state.setup.clock() < known.planner_until  # by another
            state.planning.is_elsewhere = not is_alone or is_planned
            yield
            self._save(state)

    def load(self, state: State) -> None:
        """Load the newest state of the session; if that fails, this process's own state stays."""
        with suppress(StoreError, TranscriptError):
            self._load_newest(state)

    def note(self, state: State) -> None:
        """Store changes made between two calls, unless another process is in a call of the same session."""
        try:
            with ExitStack() as stack:
                if not state.ledger.known_state.is_lost and stack.enter_context(self._hold(state, 0)):
                    self._save(state)
        except StoreError as error:
            state.setup.log.trouble("store_failed", f"other processes do not know of the newest answer: {error}")

    def _hold(self, state: State, seconds: float) -> AbstractContextManager[bool]:
        """Reserve the session for this process. Yield False if another one keeps it for longer than `seconds`."""
        return state.setup.store.use(lambda store: store.backend.hold(self._name, seconds))

    def _load_newest(self, state: State) -> None:
        """Load the session's state if another process has changed it. Raise StoreError if it cannot be read."""
        store, ledger, known = state.setup.store, state.ledger, state.ledger.known_state
        data = store.use(lambda opened: opened.get_state(self._name))
        number = _state_number(data)
        if number == known.number:
            return
        if known.number is None:
            state.setup.log.load(store.use(lambda opened: opened.events(state.setup.session_id)))
        unsaved = 0 if known.is_saved else ledger.last.messages  # a list that only this process knows it has sent
        try:
            saved = None if data is None else _validated(data)
            if saved is not None and not (known.is_saved and saved.frame == known.frame):
                state.continue_from(saved)
        except (StoreDamaged, ReferenceNotFound, TranscriptError):
            ledger.note_known_state(number=number)  # the state of this process will replace the damaged one
            raise
        ledger.note_known_state(number=number, frame=saved.frame if saved else None, is_saved=saved is not None)
        if isinstance(saved, SavedSharedSession):
            ledger.note_known_state(planner=saved.planner, planner_until=saved.planner_until)
            _continue_from(state, saved)
            is_answered = saved.is_answered and unsaved != saved.messages  # else the answer may belong to either list
            ledger.last = replace(ledger.last, is_answered=is_answered)

    def _save(self, state: State) -> None:
        """Store the session's state, unless another process has stored its own meanwhile."""
        store, ledger = state.setup.store, state.ledger
        ledger.note_known_state(is_saved=False)
        if ledger.known_state.is_lost:
            return
        try:
            if not ledger.committed.key:  # `store forget` removes the state of a session by its stored history
                ledger.commit(ledger.frame, store, ledger.view)
            self._note_planner(state)
            change = _StateChange(ledger.known_state.number or 0, ledger.known_state.frame, self._to_store(state))
            store.use(lambda opened: opened.change_state(self._name, change))
        except StoreError as error:
            state.setup.log.trouble("store_failed", f"other processes do not know of the newest call: {error}")
            return
        if change.is_made:
            ledger.note_known_state(number=change.to.number, frame=change.to.frame, is_saved=True)
            ledger.last = replace(ledger.last, is_answered=change.to.is_answered)

    def _note_planner(self, state: State) -> None:
        """Record, for other processes, whether this process makes a plan in advance or has made one."""
        planning, ledger = state.planning, state.ledger
        if planning.worker.job is not None or planning.ready is not None:
            ledger.note_known_state(
                planner=self.process, planner_until=(planning.worker.started_at or 0.0) + PLAN_SECONDS
            )
        elif ledger.known_state.planner == self.process:
            ledger.note_known_state(planner_until=0.0)

    def _to_store(self, state: State) -> SavedSharedSession:
        ledger = state.ledger
        return SavedSharedSession(
            **dict(state.to_save()),
            number=(ledger.known_state.number or 0) + 1,
            **{name: getattr(ledger.last, name) for name in LAST_FIELDS},
            cached_messages=ledger.cached_messages,
            moving=PressureFields.model_validate(state.pressure),
            marks=state.setup.marks,
            gauge=state.pressure.gauge,
            planner=ledger.known_state.planner,
            planner_until=ledger.known_state.planner_until,
        )


def _continue_from(state: State, saved: SavedSharedSession) -> None:
    """Take over the values of the stored state `saved`, except its frame (list changes), which was loaded before."""
    ledger, pressure = state.ledger, state.pressure
    for name, value in saved.moving:
        setattr(pressure, name, value)
    state.planning.count_read(saved.read_tokens)
    ledger.compactions, ledger.cached_messages = saved.compactions, saved.cached_messages
    state.take_pauses(saved)
    scales = [TokenCounter.for_model(model).scale for model in (saved.model, pressure.call.model)]
    if scales[0] == scales[1]:  # else the stored formula belongs to another tokenizer
        pressure.gauge = saved.gauge.with_fixed(pressure.gauge.fixed_tokens)
    # if the stored frame was not sent, the frame of the last list is unknown: none is assumed
    frame, last = ledger.frame if saved.is_sent else Frame(), {name: getattr(saved, name) for name in LAST_FIELDS}
    ledger.last = LastList(**last, frame=frame, undoable=ledger.undoable)


def _state_number(data: Any) -> int:
    """Return the number of a stored state; 0 if it has none because the session was not shared."""
    number = data.get("number") if isinstance(data, dict) else None
    return number if isinstance(number, int) else 0


def _validated(data: Any) -> SavedSession:
    """Return stored data as a session's state; raise StoreDamaged if it is not valid."""
    try:
        return (SavedSharedSession if _state_number(data) else SavedSession).model_validate(data)
    except ValidationError as error:
        raise StoreDamaged(f"the state of a session cannot be read: {error.errors()[0]['msg']}") from None


def marks_of(store: Store, session_ids: Sequence[str]) -> Mapping[str, list[str]]:
    """Return the digests that identify these sessions for the proxy (see `Session.mark`), by session id. Raise
    StoreError if they cannot be read."""
    states = store.get_states([session_name(session_id) for session_id in session_ids])
    return {name.removeprefix(session_name("")): data.get("marks", []) for name, data in states.items()}
