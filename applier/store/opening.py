"""Where the store is: a file, the file of the user's state folder, or a PostgreSQL database."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from applier.store.database import Database
from applier.store.migrations import migrate
from applier.store.protocol import Store
from applier.store.sql_store import SqlStore
from applier.store.sqlite import release_sqlite, shared_sqlite

__all__ = ["STORE_VARIABLE", "default_path", "open_store"]

STORE_VARIABLE = "COMPACTOR_STORE"
"""The environment variable that names the store when the caller does not."""
BUSY_TIMEOUT_SECONDS = 10.0
"""How long to wait for another process; a commit takes milliseconds."""


def default_path() -> Path:
    """The store's file when nobody names another."""
    return Path(platformdirs.user_state_dir("relevance-compactor"), "store.db")


def open_store(
    url_or_path: str | os.PathLike[str] | None = None, *, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS
) -> Store:
    """The store at a path, ``sqlite:///path`` or ``postgresql://…``; made if it is not there.

    None: what ``$COMPACTOR_STORE`` names, else `default_path`. PostgreSQL needs the extra ``postgres``.

    Raises:
        StoreError: it cannot be made or opened, belongs to another program, or to a newer version.
    """
    name = os.fspath(url_or_path or os.environ.get(STORE_VARIABLE) or default_path())
    if name.startswith(("postgresql://", "postgres://")):
        from applier.store.postgres import PostgresDialect

        return _opened(SqlStore(Database(PostgresDialect(name, busy_timeout_seconds)), Database.close))
    path = Path(name.removeprefix("sqlite:///")).expanduser().absolute()
    return _opened(SqlStore(shared_sqlite(path, busy_timeout_seconds), release_sqlite))


def _opened(store: SqlStore) -> Store:
    try:
        migrate(store.database)
    except BaseException:
        store.close()
        raise
    return store
