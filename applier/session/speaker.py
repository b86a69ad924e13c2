"""Says events: to the log, the hooks, OpenTelemetry and the store; keeps them for `Session.log`.

Nothing that listens can stop what is being told about.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from applier.session.events import Event, EventKind, Hooks, Listeners
from applier.session.telemetry import Telemetry
from applier.store.protocol import Store
from planner.errors import StoreError

__all__ = ["Speaker"]

logger = logging.getLogger("applier.session")


class Speaker:
    """The voice of one session."""

    def __init__(
        self,
        session_id: str,
        clock: Callable[[], float],
        hooks: Hooks | None,
        store: Callable[[], Store],
    ) -> None:
        """Speak for `session_id`; `store` opens it when there is something to record."""
        self.said: list[Event] = []
        self._session_id = session_id
        self._clock = clock
        self._listeners = Listeners(hooks)
        self._telemetry = Telemetry()
        self._store = store
        self._records = True

    def __call__(self, kind: EventKind, message: str, **fields: Any) -> bool:
        """Say it; False if a hook answered False."""
        event = Event(kind, self._session_id, self._clock(), message=message, **fields)
        self.said.append(event)
        self._telemetry.count(event)
        agreed = self._listeners.tell(event)
        self._record(event)
        return agreed

    @contextmanager
    def span(self, name: str, **attributes: str | int) -> Iterator[None]:
        """An OpenTelemetry span, where there is one."""
        with self._telemetry.span(name, session=self._session_id, **attributes):
            yield

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Write nothing to the store meanwhile: a dry run."""
        self._records = False
        try:
            yield
        finally:
            self._records = True

    def load(self, store: Store) -> None:
        """Remember what earlier processes said in this session."""
        self.said = [Event.from_json(data) for data in store.events(self._session_id)] + self.said

    def _record(self, event: Event) -> None:
        if not self._records:
            return
        try:
            data = {**event.as_json(), "time": event.at, "session": self._session_id}
            self._store().record_event(data)
        except StoreError as error:
            logger.warning("event not recorded: %s", error)
