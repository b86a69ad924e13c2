"""Opens the store a command was told to use; a command that only reads makes no new one."""

from __future__ import annotations

import os
from pathlib import Path

from applier.store.opening import STORE_VARIABLE, default_path, open_store
from applier.store.protocol import Store
from planner.errors import StoreError

__all__ = ["existing_store", "latest_history"]


def existing_store(name: str | None) -> Store:
    """The store `name` (None: the default), which must be there.

    Raises:
        StoreError: there is none, or it cannot be opened.
    """
    place = name or os.environ.get(STORE_VARIABLE) or str(default_path())
    if "://" not in place and not Path(place).expanduser().is_file():
        raise StoreError(f"{place}: no store there yet: `compactor apply` makes it; --store names another")
    return open_store(place)


def latest_history(store: Store) -> str:
    """The key of the history saved last.

    Raises:
        StoreError: nothing was saved yet.
    """
    known = store.histories()
    if not known:
        raise StoreError("the store holds no history yet: `compactor apply` saves one")
    return known[-1].key
