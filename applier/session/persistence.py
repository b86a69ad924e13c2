"""Stores the original messages of a session before a shorter list is sent, and the session's state for a restart.

Any failure of the store is raised as a `StoreError`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from applier.session.edits import Frame
from applier.session.history_tracker import HistoryTracker
from applier.store.forgetting import SESSION_STATE
from applier.store.opening import open_store, store_exists
from applier.store.records import SavedChain
from applier.store.store import Store
from planner.errors import ReferenceNotFound, SettingsError, StoreDamaged, StoreError, StoreReplaced
from planner.reading.messages import History, plain_message

T = TypeVar("T")

REST_SECONDS = 30.0
"""Time after a failure of the store in which nothing is compacted, in seconds."""


def within(seconds: float, since: float | None, now: float) -> bool:
    """Return True if less than `seconds` have passed from `since` to `now`. False if `since` is None or after `now`, so
    that a wait ends if the clock was set back."""
    return since is not None and 0 <= now - since < seconds


class SessionStore:
    """Store of a session and of its subagents' sessions, opened when it is first needed."""

    def __init__(self, store: Store | str | Path | None, patience_seconds: float | None = None) -> None:
        """Use `store`: an open store, which the caller closes, the path of one, or None for the default one.

        If this opens a store on a server, an operation longer than `patience_seconds` is broken off.

        Raises:
            SettingsError: `store` is none of these.
        """
        self._path: str | Path | None = None
        self._patience = patience_seconds
        self._store: Store | None = None
        """Open store. If two threads open it at once, the first wins. There is no lock, because a lock could stay
        locked for ever after a fork."""
        if store is None or isinstance(store, str | os.PathLike):
            self._path = store
        elif hasattr(store, "save_history"):
            self._store = store
        else:
            raise SettingsError(f"store: expected a store, a path or None, found {type(store).__name__}")
        self._is_callers = self._store is not None
        self._saved = SavedChain()
        self.folder, self.clock = "", time.time
        """Working folder of the conversation, and clock, which are noted with each saved history."""
        self.opening = 0
        """Number of times that the store was created again because its file was gone, so that earlier content is not in
        it."""
        self.failed_at: float | None = None
        """Time at which the store last failed to save something; None if it works."""

    @property
    def may_write(self) -> bool:
        """True unless the store failed within `REST_SECONDS`. Nothing is compacted while it is False."""
        return not within(REST_SECONDS, self.failed_at, self.clock())

    def note_failure(self, error: Exception) -> None:
        """Write nothing for `REST_SECONDS`, in all sessions, unless `error` is damage, as other conversations may be
        sound."""
        if not isinstance(error, StoreDamaged):
            self.failed_at = self.clock()

    @property
    def exists(self) -> bool:
        """True if reading from the store creates no file. Raise a StoreError if its name is invalid."""
        return self._is_callers or store_exists(self._path)

    @property
    def is_open(self) -> bool:
        """True after the store's first use."""
        return self._store is not None

    def use(self, act: Callable[[Store], T]) -> T:
        """Open the store if needed, call `act` with it, and return the result.

        If the store's file was removed meanwhile, create the store again and call `act` once more, unless the caller
        opened the store.

        Raises:
            StoreError: the store cannot be opened, or behaves unexpectedly.
        """
        try:
            return self._used(act)
        except StoreError:
            raise
        except Exception as error:
            raise StoreError(f"{type(error).__name__}: {error}") from error

    def save(self, history: History) -> str:
        """Store `history` and the folder of its conversation; return the history's key. Its messages must never be
        edited, because the next call compares them by identity.

        Raises:
            StoreError: the history could not be saved.
        """

        def act(store: Store) -> str:
            """Store the history and its folder; return its key."""
            saved = self._saved = store.save_longer(history, self._saved)  # another thread may replace it at once
            if self.folder:
                store.note_origin(saved.key, self.folder, self.clock())
            return saved.key

        return self.use(act)

    def _used(self, act: Callable[[Store], T]) -> T:
        store = self._open()
        try:
            return act(store)
        except StoreReplaced:
            if self._is_callers:
                raise
        if self._store is store:
            self.opening += 1
            self.close()
        return act(self._open())

    def _open(self) -> Store:
        opened = open_store(self._path) if self._store is None else self._store
        if self._store is None:
            opened.backend.patience_seconds = self._patience
            self._store = opened
        elif opened is not self._store:
            opened.close()
        return self._store

    def close(self) -> None:
        """Close the store, unless the caller opened it."""
        if self._store is not None and not self._is_callers:
            store, self._store = self._store, None
            store.close()


@dataclass(frozen=True, slots=True)
class Committed:
    """Frame (changes that make the sent list from the history) whose originals are stored, with what else is stored."""

    frame: Frame = field(default_factory=Frame)
    key: str = ""
    """Store key of the history; empty if no history is stored, or if the caller changed its messages since."""
    messages: int = 0
    """Number of messages of the present history that the store has."""

    def holds(self, frame: Frame, length: int) -> bool:
        """Return True if the store has every message that `frame` (the changes of the list to send) replaces, so that
        nothing is lost. `length`: number of messages of the history."""
        return frame.start <= self.messages and not any(self.messages <= at < length for at in frame.edited)


def commit(frame: Frame, tracker: HistoryTracker, store: SessionStore, before: Committed) -> Committed:
    """Store the originals of what `frame` leaves out, its new plan and facts; return the frame, ready to send.

    `before`: the last committed frame, which shows what is stored already.

    Raises:
        StoreError: something could not be stored, so the frame may not be sent.
    """
    plan = frame.plan if not frame.plan_id else None  # a new plan; the facts of one refer to the whole history
    has_all = before.messages == len(tracker) or (plan is None and before.holds(frame, len(tracker)))
    if not (before.key and has_all):
        key = store.save(tracker.history)
        before = replace(before, key=key, messages=len(tracker))
    if plan is not None:
        frame = replace(frame, plan_id=store.use(lambda opened: opened.save_plan(plan)))
        store.use(lambda opened: opened.save_facts(plan.extracted_facts, before.key, plan.secrets))
    return replace(before, frame=frame)


class SavedFrame(BaseModel):
    """Frame (changes that make the sent list from the history) in the form in which it is stored."""

    model_config = ConfigDict(extra="forbid")

    key: str = Field(pattern="^(h[0-9a-f]{32,64})?$")
    messages: int = Field(ge=0)
    plan_id: str
    head: list[dict[str, Any]]
    start: int = Field(ge=0)
    placeholders: list[tuple[int, int, str]]
    additions: list[tuple[int, str]]
    unthinking: list[int]

    @classmethod
    def of(cls, committed: Committed) -> Self:
        """Return the frame in `committed` in the form in which it is stored."""
        frame = committed.frame
        return cls(
            key=committed.key,
            messages=committed.messages,
            plan_id=frame.plan_id,
            head=[plain_message(message) for message in frame.head],
            start=frame.start,
            placeholders=[(*place, text) for place, text in frame.placeholders.items()],
            additions=list(frame.additions.items()),
            unthinking=sorted(frame.unthinking),
        )

    def committed(self, store: Store) -> Committed:
        """Return the stored changes (a frame) as an object, with the plan by which they were made, unless that was
        deleted or is of another version of this program.

        Raises:
            StoreError: the store failed.
            TranscriptError: an entry of `head` is not a message.
        """
        plan = None
        with suppress(ReferenceNotFound, StoreDamaged):  # the next compaction plans from the originals
            plan = store.load_plan(self.plan_id) if self.plan_id else None
        frame = Frame(
            plan=plan,
            plan_id=self.plan_id if plan is not None else "",
            head=tuple(plain_message(message, f"head[{at}]") for at, message in enumerate(self.head)),
            start=self.start,
            placeholders={(message, block): text for message, block, text in self.placeholders},
            additions=dict(self.additions),
            unthinking=frozenset(self.unthinking),
        )
        return Committed(frame, self.key, self.messages)


class SavedSession(BaseModel):
    """State of a session in the store, from which another process can continue."""

    model_config = ConfigDict(extra="ignore")  # other versions have more fields

    version: int = 1
    frame: SavedFrame
    before: SavedFrame | None = None
    """Changes that made the list before the last compaction, to which `undo` returns; None if there was none."""
    is_sent: bool = True
    """True if the stored list was also sent; False if the model's next answer belongs to an earlier list."""
    compactions: int = 0
    ratio: float = 1.0
    """Measured factor from our count of tokens to the provider's (`Gauge.ratio`)."""
    extra_tokens: float = 0.0
    """Tokens that the provider counts in addition (`Gauge.extra_tokens`)."""
    read_tokens: int = 0
    """Tokens that planners have read for this session."""
    rests: list[tuple[str, bool, int, int]] = []
    """Tiers (ways to shorten the list) that are not tried for now, after an earlier try or `undo`: the tier's name,
    whether it ran because the window was nearly full, and the sizes of the history and of its answered part from which
    it is tried again."""
    model: str = ""
    """Agent's model in its last request; empty if there was no request."""
    thinking: dict[str, Any] | None = None
    """Field ``thinking`` of the agent's last request; None without one."""


def session_name(session_id: str) -> str:
    """Return the name under which the store has the state of the session with this id."""
    return f"{SESSION_STATE}{session_id}"


def load_session(store: Store, session_id: str) -> SavedSession | None:
    """Return the stored state of the session with this id; None if there is none.

    Raises:
        StoreDamaged: the stored state is not valid.
    """
    data = store.get_state(session_name(session_id))
    try:
        return None if data is None else SavedSession.model_validate(data)
    except ValidationError as error:
        raise StoreDamaged(f"session {session_id}: its state cannot be read: {error.errors()[0]['msg']}") from None
