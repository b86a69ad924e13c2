"""What of a session is stored: the originals before a frame is sent, and the frame itself for a restart.

The only file of a session that touches the store. Whatever goes wrong in there is a `StoreError` to the others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from applier.session.frame import Edits, Frame
from applier.session.history_tracker import HistoryTracker
from applier.store import open_store
from applier.store.protocol import Store
from planner.errors import SettingsError, StoreDamaged, StoreError, StoreReplaced, TranscriptError
from planner.layout.placeholders import history_key
from planner.reading.messages import plain_message

__all__ = ["Committed", "SavedSession", "SessionStore", "commit", "key_for", "load_session", "save_session"]

A = TypeVar("A")
T = TypeVar("T")


class SessionStore:
    """The store of a session, opened when there is first something to write or to read."""

    def __init__(self, given: Store | str | Path | SessionStore | None) -> None:
        """Use the store `given`, which stays the caller's to close, the one at that path, or the default one.

        Raises:
            SettingsError: it is none of these.
        """
        is_known = given is None or isinstance(given, str | os.PathLike | SessionStore)
        if not is_known and not hasattr(given, "save_history"):
            raise SettingsError(f"store: expected a store, a path or None, found {type(given).__name__}")
        self._path: str | os.PathLike[str] | None = None
        self._shared: SessionStore | None = None
        self._store: Store | None = None
        self._owned = given is None or isinstance(given, str | os.PathLike)
        self._reopened = 0
        self._lock = threading.Lock()
        if given is None or isinstance(given, str | os.PathLike):
            self._path = given
        elif isinstance(given, SessionStore):
            self._shared = given
        else:
            self._store = given

    @property
    def is_open(self) -> bool:
        """True once it was needed."""
        return self._shared.is_open if self._shared is not None else self._store is not None

    @property
    def reopened(self) -> int:
        """How often it was opened anew because its file was gone: what was stored before is not in it."""
        return self._shared.reopened if self._shared is not None else self._reopened

    def use(self, act: Callable[[Store], T]) -> T:
        """What `act` does with the store, opened if need be; opened anew where its file was taken away.

        Raises:
            StoreError: it cannot be opened, or does something else than it promises.
        """
        if self._shared is not None:
            return self._shared.use(act)
        store = self._opened()
        try:
            return _done(act, store)
        except StoreReplaced:
            if not self._owned:
                raise
        with self._lock:  # a child's session in another thread may have been first
            if self._store is store:
                self.close()
                self._reopened += 1
        return _done(act, self._opened())

    def _opened(self) -> Store:
        with self._lock:
            if self._store is None:
                self._store = _done(open_store, self._path)
            return self._store

    def after_fork(self) -> None:
        """In a child process: a lock that another thread held is held for ever."""
        self._lock = threading.Lock()
        if self._shared is not None:
            self._shared.after_fork()

    def close(self) -> None:
        """Close it if the session opened it."""
        if self._owned and self._store is not None:
            self._store.close()
            self._store = None


def _done(act: Callable[[A], T], what: A) -> T:
    """What `act` does with `what`.

    Raises:
        StoreError: it does something else than a store promises.
    """
    try:
        return act(what)
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Committed:
    """A frame whose originals are in the store; only `commit` and `load_session` make one that removes anything."""

    frame: Frame = field(default_factory=Frame)
    key: str = ""
    """The history that was stored last; empty if none was, or the list went another way since."""
    messages: int = 0
    """How many messages of the present history the store holds."""
    plan_id: str = ""

    def holds(self, frame: Frame, length: int) -> bool:
        """True if of a history of `length` messages the store has all that `frame` does not send as it came."""
        return frame.start <= self.messages and not any(self.messages <= at < length for at in frame.edited)


def key_for(edits: Edits, tracker: HistoryTracker, before: Committed) -> str:
    """The history to name in the placeholders of `edits`: the one stored last if it holds all they replace."""
    covered = all(made.message < before.messages for made in edits.placeholders)
    return before.key if before.key and covered and edits.plan is None else history_key(tracker.history)


def commit(frame: Frame, key: str, tracker: HistoryTracker, store: SessionStore, before: Committed) -> Committed:
    """Store the history (unless `key` holds all that `frame` changes), the plan and its facts; then it may be sent.

    A placeholder reaches further than its own message: thinking behind it goes, too.

    Raises:
        StoreError: nothing may be sent that was not before.
    """
    reopened = store.reopened
    if key != before.key or not before.holds(frame, len(tracker)):
        key = store.use(lambda opened: opened.save_history(tracker.history))
        before = replace(before, key=key, messages=len(tracker))
    plan = frame.plan
    plan_id = before.plan_id
    if plan is not None and plan is not before.frame.plan:
        plan_id = store.use(lambda opened: opened.save_plan(plan))
        store.use(lambda opened: opened.save_facts(plan.extracted_facts, before.key))
    if store.reopened != reopened:
        store.use(lambda opened: opened.save_history(tracker.history))
    return replace(before, frame=frame, plan_id=plan_id)


class _SavedFrame(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: str = Field(pattern="^(h[0-9a-f]{8,64})?$")
    messages: int = Field(ge=0)
    plan_id: str
    head: list[dict[str, Any]]
    start: int = Field(ge=0)
    placeholders: list[tuple[int, int, str]]
    additions: list[tuple[int, str]]
    unthinking: list[int]

    @field_validator("head")
    @classmethod
    def _of_messages(cls, head: list[dict[str, Any]]) -> list[dict[str, Any]]:
        try:
            for at, message in enumerate(head):
                plain_message(message, f"head[{at}]")
        except TranscriptError as error:
            raise ValueError(str(error)) from None
        return head

    @classmethod
    def of(cls, committed: Committed) -> _SavedFrame:
        frame = committed.frame
        return cls(
            key=committed.key,
            messages=committed.messages,
            plan_id=committed.plan_id if frame.plan is not None else "",
            head=[plain_message(message) for message in frame.head],
            start=frame.start,
            placeholders=[(*place, text) for place, text in frame.placeholders.items()],
            additions=list(frame.additions.items()),
            unthinking=sorted(frame.unthinking),
        )

    def committed(self, store: Store) -> Committed:
        frame = Frame(
            store.load_plan(self.plan_id) if self.plan_id else None,
            tuple(self.head),
            self.start,
            MappingProxyType({(message, block): text for message, block, text in self.placeholders}),
            MappingProxyType(dict(self.additions)),
            frozenset(self.unthinking),
        )
        return Committed(frame, self.key, self.messages, self.plan_id)


class _SavedState(BaseModel):
    """The state of a session as it is stored."""

    model_config = ConfigDict(extra="forbid")

    version: int = 1
    frame: _SavedFrame
    before: _SavedFrame | None = None
    compactions: int = 0
    reclaimed_tokens: int = 0
    ratio: float = 1.0
    extra_tokens: float = 0.0
    read_tokens: int = 0
    model: str = ""
    thinking: dict[str, Any] | None = None


@dataclass(frozen=True)
class SavedSession:
    """Where a session stands, as far as it outlives its process."""

    committed: Committed
    before: Committed | None = None
    """What `undo` goes back to."""
    compactions: int = 0
    reclaimed_tokens: int = 0
    ratio: float = 1.0
    extra_tokens: float = 0.0
    """The gauge's calibration."""
    read_tokens: int = 0
    """What planners have read."""
    model: str = ""
    """The agent's, as it was last told; empty if it never was."""
    thinking: Mapping[str, Any] | None = None
    """How its requests had thinking switched on, as far as that was told."""


def save_session(store: SessionStore, session_id: str, session: SavedSession) -> None:
    """Store where the session stands.

    Raises:
        StoreError: it could not; what was stored before stands.
    """
    saved = _SavedState(
        frame=_SavedFrame.of(session.committed),
        before=_SavedFrame.of(session.before) if session.before else None,
        compactions=session.compactions,
        reclaimed_tokens=session.reclaimed_tokens,
        ratio=session.ratio,
        extra_tokens=session.extra_tokens,
        read_tokens=session.read_tokens,
        model=session.model,
        thinking=None if session.thinking is None else dict(session.thinking),
    )
    store.use(lambda opened: opened.set_state(_name(session_id), saved.model_dump(mode="json")))


def load_session(store: Store, session_id: str) -> SavedSession | None:
    """What was stored of that session, or None.

    Raises:
        StoreDamaged: it is not what `save_session` writes.
    """
    data = store.get_state(_name(session_id))
    if data is None:
        return None
    try:
        saved = _SavedState.model_validate(data)
    except ValidationError as error:
        raise StoreDamaged(f"session {session_id}: its state cannot be read: {error.errors()[0]['msg']}") from None
    return SavedSession(
        committed=saved.frame.committed(store),
        before=saved.before.committed(store) if saved.before else None,
        compactions=saved.compactions,
        reclaimed_tokens=saved.reclaimed_tokens,
        ratio=saved.ratio,
        extra_tokens=saved.extra_tokens,
        read_tokens=saved.read_tokens,
        model=saved.model,
        thinking=saved.thinking,
    )


def _name(session_id: str) -> str:
    return f"session:{session_id}"
