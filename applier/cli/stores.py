"""Opens the store a command was told to use; a command that only reads makes no new one."""

from __future__ import annotations

from applier.store.opening import open_store, store_file
from applier.store.protocol import Store
from planner.errors import StoreError

__all__ = ["existing_store", "latest_history"]


def existing_store(name: str | None) -> Store:
    """The store `name` (None: the default), which must be there.

    Raises:
        StoreError: there is none, or it cannot be opened.
    """
    file = store_file(name)
    if file is not None and not file.is_file():
        raise StoreError(f"{file}: no store there yet: `compactor apply` makes it; --store names another")
    return open_store(name)


def latest_history(store: Store) -> str:
    """The key of the history saved last.

    Raises:
        StoreError: nothing was saved yet.
    """
    known = store.histories()
    if not known:
        raise StoreError("the store holds no history yet: `compactor apply` saves one")
    return known[-1].key
