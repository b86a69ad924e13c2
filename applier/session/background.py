"""Plans in a thread of its own while the agent waits on something else.

Works on a snapshot and changes nothing: what it made is taken up, or thrown away, on the caller's side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Done", "Worker"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """How a job ended: with a value, or with what it raised."""

    value: T | None
    error: Exception | None


class Worker(Generic[T]):
    """One job at a time, debounced; never waited for unless asked."""

    def __init__(self, debounce_seconds: float) -> None:
        """A job starts at the earliest `debounce_seconds` after the one before it started."""
        self._debounce = debounce_seconds
        self._started_at: float | None = None
        self._thread: threading.Thread | None = None
        self._done: Done[T] | None = None

    @property
    def is_busy(self) -> bool:
        """True while a job runs or its result was not taken."""
        return self._done is not None or (self._thread is not None and self._thread.is_alive())

    def start(self, job: Callable[[], T], now: float) -> bool:
        """Start `job` unless one is running, or it is too soon; True if it was started."""
        if self.is_busy or (self._started_at is not None and now - self._started_at < self._debounce):
            return False
        self._started_at = now
        self._thread = threading.Thread(target=self._run, args=(job,), name="compactor-plan", daemon=True)
        self._thread.start()
        return True

    def take(self) -> Done[T] | None:
        """What the last job came to, once; None while there is nothing."""
        done, self._done = self._done, None
        return done

    def wait(self, timeout_seconds: float | None = None) -> None:
        """Wait for the running job; only ever asked for by tests and scripts."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _run(self, job: Callable[[], T]) -> None:
        try:
            self._done = Done(job(), None)
        except Exception as error:  # noqa: BLE001 - handed to the caller's side as a value
            self._done = Done(None, error)
