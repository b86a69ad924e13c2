"""The store of a session, opened when there is first something to write or to read."""

from __future__ import annotations

import os
from pathlib import Path

from applier.store import open_store
from applier.store.protocol import Store

__all__ = ["LazyStore"]


class LazyStore:
    """Call it to have the store. One that the caller gave stays the caller's to close."""

    def __init__(self, given: Store | str | Path | None) -> None:
        """Use the store `given`, the one at that path, or the default one."""
        self._path = given if given is None or isinstance(given, str | os.PathLike) else None
        self._store = given if self._path is None and not isinstance(given, str | os.PathLike) else None
        self._owned = self._store is None

    @property
    def is_open(self) -> bool:
        """True once it was needed."""
        return self._store is not None

    def __call__(self) -> Store:
        """The store, opened if need be.

        Raises:
            StoreError: it cannot be opened.
        """
        if self._store is None:
            self._store = open_store(self._path)
        return self._store

    def close(self) -> None:
        """Close it if the session opened it."""
        if self._owned and self._store is not None:
            self._store.close()
            self._store = None
