"""Opens the store a command was told to use; a command that only reads makes no new one."""

from __future__ import annotations

from applier.store.opening import open_store, store_file
from applier.store.protocol import Store
from applier.store.reference import parse_key
from planner.errors import ReferenceNotFound, StoreError

__all__ = ["existing_store", "known_history", "latest_history", "store_anywhere"]


def existing_store(name: str | None) -> Store:
    """The store `name` (None: the default), which must be there.

    Raises:
        StoreError: there is none, or it cannot be opened.
    """
    file = store_file(name)
    if file is not None and file.is_dir():
        raise StoreError(f"{file}: a folder, not a store: --store names its file")
    if file is not None and not file.is_file():
        raise StoreError(f"{file}: no store there yet: `compactor apply` makes it; --store names another")
    return open_store(name)


def store_anywhere(name: str) -> str:
    """The store `name` as it is called from any folder: a file by its whole path."""
    file = store_file(name)
    return name if file is None else str(file.absolute())


def known_history(store: Store, key: str) -> str:
    """`key`, of a history that the store holds.

    Raises:
        ReferenceNotFound: it holds none of that name.
    """
    digits = parse_key(key)
    for history in store.histories():
        if any(name.startswith(digits) for name in (history.key[1:], history.digest.removeprefix("sha256:"))):
            return key
    raise ReferenceNotFound(f"no history h{digits} in this store: `compactor store list` names those that are there")


def latest_history(store: Store) -> str:
    """The key of the history saved last.

    Raises:
        StoreError: nothing was saved yet.
    """
    known = store.histories()
    if not known:
        raise StoreError("the store holds no history yet: `compactor apply` saves one")
    return known[-1].key
