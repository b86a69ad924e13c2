"""Keeps a team's store within its bounds, beside the requests: at the start and every so many hours."""

from __future__ import annotations

import logging
import threading

from applier.adapters.proxy.configuration import RetentionTable
from applier.session.persistence import SessionStore
from applier.store.retention import collect_garbage
from planner.errors import StoreError

__all__ = ["Cleaning"]

_DAY_SECONDS, _HOUR_SECONDS, _MEGABYTE = 86_400, 3_600, 1_000_000
_logger = logging.getLogger("applier.proxy")


class Cleaning:
    """A thread, if there are bounds at all."""

    def __init__(self, store: SessionStore, bounds: RetentionTable) -> None:
        """Begins with `start`."""
        self._store, self._bounds = store, bounds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Clean now and then."""
        if self._bounds.older_than_days or self._bounds.larger_than_megabytes:
            self._thread.start()

    def stop(self) -> None:
        """Wait for what is under way, and end."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._store.close()

    def _run(self) -> None:
        days, megabytes = self._bounds.older_than_days, self._bounds.larger_than_megabytes
        older = None if days is None else days * _DAY_SECONDS
        larger = None if megabytes is None else round(megabytes * _MEGABYTE)
        while not self._stopped.is_set():
            try:
                garbage = self._store.use(
                    lambda store: collect_garbage(store, older_than_seconds=older, larger_than_bytes=larger)
                )
                _logger.info("cleaned the store: %d conversations went, %d stay", len(garbage.histories), garbage.kept)
            except StoreError as error:
                _logger.warning("the store could not be cleaned: %s", error)
            self._stopped.wait(self._bounds.every_hours * _HOUR_SECONDS)
