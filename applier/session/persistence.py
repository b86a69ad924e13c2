"""What of a session outlives its process: the frame in force and the one before it, exact to the byte.

Reads and writes one named state of the store; the history and the plans are stored on their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from applier.session.commit import Committed
from applier.session.frame import Frame
from applier.store.protocol import Store
from planner.errors import StoreDamaged
from planner.reading.messages import plain_message

__all__ = ["SavedSession", "load_session", "save_session"]


class _SavedFrame(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: str
    messages: int
    plan_id: str
    head: list[dict[str, Any]]
    start: int
    stand_ins: list[tuple[int, int, str]]
    additions: list[tuple[int, str]]
    unthinking: list[int]

    @classmethod
    def of(cls, committed: Committed) -> _SavedFrame:
        frame = committed.frame
        return cls(
            key=committed.key,
            messages=committed.messages,
            plan_id=committed.plan_id,
            head=[plain_message(message) for message in frame.head],
            start=frame.start,
            stand_ins=[(*place, text) for place, text in frame.stand_ins.items()],
            additions=list(frame.additions.items()),
            unthinking=sorted(frame.unthinking),
        )

    def committed(self, store: Store) -> Committed:
        frame = Frame(
            store.load_plan(self.plan_id) if self.plan_id else None,
            tuple(self.head),
            self.start,
            MappingProxyType({(message, block): text for message, block, text in self.stand_ins}),
            MappingProxyType(dict(self.additions)),
            frozenset(self.unthinking),
        )
        return Committed(frame, self.key, self.messages, self.plan_id)


class SavedSession(BaseModel):
    """The state of a session as it is stored."""

    model_config = ConfigDict(extra="forbid")

    version: int = 1
    frame: _SavedFrame
    before: _SavedFrame | None = None
    """What `undo` goes back to."""
    compactions: int = 0
    reclaimed_tokens: int = 0
    ratio: float = 1.0
    """The meter's calibration."""

    def current(self, store: Store) -> Committed:
        """The frame in force."""
        return self.frame.committed(store)

    def previous(self, store: Store) -> Committed | None:
        """The frame before it."""
        return self.before.committed(store) if self.before else None


def save_session(
    store: Store,
    session_id: str,
    committed: Committed,
    before: Committed | None,
    numbers: Mapping[str, float],
) -> None:
    """Store how the session stands; `numbers` are the other fields of `SavedSession`.

    Raises:
        StoreError: it could not; what was stored before stands.
    """
    saved = SavedSession(
        frame=_SavedFrame.of(committed),
        before=_SavedFrame.of(before) if before else None,
        **dict(numbers),  # type: ignore[arg-type]
    )
    store.set_state(_name(session_id), saved.model_dump(mode="json"))


def load_session(store: Store, session_id: str) -> SavedSession | None:
    """What was stored of that session, or None.

    Raises:
        StoreDamaged: it is not what `save_session` writes.
    """
    data = store.get_state(_name(session_id))
    try:
        return SavedSession.model_validate(data) if data is not None else None
    except ValidationError as error:
        raise StoreDamaged(f"session {session_id}: its state cannot be read: {error.errors()[0]['msg']}") from None


def _name(session_id: str) -> str:
    return f"session:{session_id}"
