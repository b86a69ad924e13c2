"""Where the store is: a file, the file of the user's state folder, or a PostgreSQL database; and its tables.

Tables are made by numbered steps, oldest first. A step that has shipped is never edited: a change is a new one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import platformdirs

from applier.store.chain import CONTENT_TABLES
from applier.store.database import Database, Dialect, Transaction
from applier.store.protocol import Store
from applier.store.sql_store import SqlStore
from applier.store.sqlite import sqlite_database
from planner.errors import StoreDamaged, StoreError

__all__ = ["MIGRATIONS", "REDACT_VARIABLE", "STORE_VARIABLE", "default_path", "open_store", "store_file"]

STORE_VARIABLE = "COMPACTOR_STORE"
"""The environment variable that names the store when the caller does not."""
REDACT_VARIABLE = "COMPACTOR_REDACT_ORIGINALS"
"""The environment variable that says whether originals are redacted when the caller does not."""
BUSY_TIMEOUT_SECONDS = 2.0
"""How long to wait for another process; a commit takes milliseconds, and an agent's request waits with it."""
Step = Callable[[Transaction, Dialect], None]

_YES, _NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
_POSTGRES = ("postgresql://", "postgres://")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/[^\\]*")
"""``sqlite:///a.db``, ``mysql://host/db``; not ``/tmp/a.db``, ``a.db``, ``C:/a.db``."""


def default_path() -> Path:
    """The store's file when nobody names another.

    Raises:
        StoreError: whoever runs this has no home.
    """
    try:
        path = Path(platformdirs.user_state_dir("relevance-compactor"), "store.db")
    except RuntimeError:
        path = Path()
    if not path.is_absolute():
        raise StoreError(f"there is no home folder to keep a store in: name its file by ${STORE_VARIABLE}")
    return path


def open_store(
    url_or_path: str | os.PathLike[str] | None = None,
    *,
    busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS,
    redact_originals: bool | None = None,
) -> Store:
    """The store at a path, ``sqlite:///path`` or ``postgresql://…``; made if it is not there.

    None: what ``$COMPACTOR_STORE`` names, else `default_path`. PostgreSQL needs the extra ``postgres``. With
    `redact_originals` (None: what ``$COMPACTOR_REDACT_ORIGINALS`` says, else not) histories and states, too, are
    stored without secrets: what is restored then has ``[secret]`` in their places, and is not what was saved.

    Raises:
        StoreError: it cannot be made or opened, belongs to another program, or to a newer version; or the variable
            says neither yes nor no.
    """
    redacts = _redacts() if redact_originals is None else redact_originals
    name = _name(url_or_path)
    path = store_file(name)
    if path is None:
        from applier.store.postgres import postgres_database

        database = postgres_database(name, busy_timeout_seconds)
    else:
        database = sqlite_database(path, busy_timeout_seconds)
    return _migrated(database, SqlStore(database, redact_originals=redacts))


def store_file(url_or_path: str | os.PathLike[str] | None = None) -> Path | None:
    """The file of the store that `open_store` would open; None for one on a server.

    Raises:
        StoreError: the name is none.
    """
    name = _name(url_or_path)
    if name.startswith(_POSTGRES) and "\0" not in name:
        return None
    plain = name.removeprefix("sqlite:///")
    if plain.startswith((":memory:", "file:")):
        raise StoreError(f"{plain[:80]!r}: names no file of its own; originals must outlive the process: give a path")
    if not plain or _ADDRESS.fullmatch(plain):
        raise StoreError(f"{name[:80]!r}: expected a path, sqlite:///path or postgresql://user@host/name")
    try:
        os.fsencode(plain)
        if "\0" in plain:
            raise ValueError("a path holds no NUL")
        return Path(plain).expanduser().absolute()
    except (RuntimeError, ValueError, OSError) as error:
        raise StoreError(f"{plain[:80]!r}: no file can be named so ({error}): give the store's path in full") from error


def _name(url_or_path: str | os.PathLike[str] | None) -> str:
    if url_or_path is not None and not isinstance(url_or_path, str | bytes | os.PathLike):
        raise StoreError(f"{str(url_or_path)[:80]!r}: expected a path, sqlite:///path or postgresql://user@host/name")
    return os.fsdecode(url_or_path or os.environ.get(STORE_VARIABLE) or default_path())


def _redacts() -> bool:
    said = os.environ.get(REDACT_VARIABLE, "").strip().lower()
    if said not in _YES + _NO:  # taken for no, it would store what was to stay out
        raise StoreError(f"${REDACT_VARIABLE}: expected 1 or 0, found {said[:40]!r}")
    return said in _YES


def _migrated(database: Database, store: SqlStore) -> Store:
    try:
        _migrate(database)
    except BaseException:
        store.close()
        raise
    return store


def _migrate(database: Database) -> None:
    """Bring the tables of `database` to this version.

    Raises:
        StoreError: the database belongs to another program, or to a newer version of this one.
    """
    place = database.dialect.place
    with database.transaction() as transaction:
        if database.dialect.is_foreign(transaction):
            raise StoreError(f"{place}: not a store of this program; give another file")
        version = _version(transaction, database.dialect)
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{place}: made by a newer version (store format {version}, this one reads {len(MIGRATIONS)}); "
            "update relevance-compactor"
        )
    if version < len(MIGRATIONS):
        _run_steps(database)


def _version(transaction: Transaction, dialect: Dialect) -> int:
    if not dialect.has_schema(transaction):
        return 0
    rows = transaction.rows("SELECT version FROM compactor_schema", types=(int,))
    if len(rows) != 1 or rows[0][0] < 0:
        raise StoreDamaged(f"{dialect.place}: its version cannot be read; restore it from a backup")
    return int(rows[0][0])


def _run_steps(database: Database) -> None:
    with database.transaction(write=True) as transaction:
        version = _version(transaction, database.dialect)  # another process may have been first
        if version == 0:
            database.dialect.prepare(transaction)
        for step in MIGRATIONS[version:]:
            step(transaction, database.dialect)
        transaction.rows("UPDATE compactor_schema SET version = ?", (len(MIGRATIONS),))


def _step_1(transaction: Transaction, dialect: Dialect) -> None:
    """Everything of the first version. `body` is always packed content, `digest` its SHA-256."""
    data, serial = dialect.bytes_type, dialect.serial_type
    for sql in (
        "CREATE TABLE compactor_schema (version INTEGER NOT NULL)",
        "INSERT INTO compactor_schema VALUES (0)",
        f"CREATE TABLE blobs (digest {data} PRIMARY KEY, body {data} NOT NULL)",
        f"CREATE TABLE nodes (digest {data} PRIMARY KEY, parent {data} NOT NULL, position INTEGER NOT NULL, "
        f"turn INTEGER NOT NULL, message {data} NOT NULL, says {data} NOT NULL)",
        f"CREATE TABLE histories (seq {serial}, says {data} NOT NULL UNIQUE, tip {data} NOT NULL)",
        f"CREATE TABLE plans (seq {serial}, digest {data} NOT NULL UNIQUE, says {data} NOT NULL, body {data} NOT NULL)",
        f"CREATE TABLE facts (seq {serial}, says {data} NOT NULL, digest {data} NOT NULL, body {data} NOT NULL, "
        "UNIQUE (says, digest))",
        f"CREATE TABLE events (seq {serial}, session TEXT NOT NULL, time DOUBLE PRECISION NOT NULL, "
        f"digest {data} NOT NULL, body {data} NOT NULL)",
        "CREATE INDEX events_session ON events (session, time)",
        f"CREATE TABLE states (name TEXT PRIMARY KEY, digest {data} NOT NULL, body {data} NOT NULL)",
    ):
        transaction.rows(sql)


def _step_2(transaction: Transaction, dialect: Dialect) -> None:
    """Histories that say the same in several forms stand side by side."""
    data, serial = dialect.bytes_type, dialect.serial_type
    for sql in (
        f"CREATE TABLE forms (seq {serial}, says {data} NOT NULL, tip {data} NOT NULL, UNIQUE (says, tip))",
        "INSERT INTO forms (says, tip) SELECT says, tip FROM histories ORDER BY seq",
        "DROP TABLE histories",
        "ALTER TABLE forms RENAME TO histories",
    ):
        transaction.rows(sql)


def _step_3(transaction: Transaction, dialect: Dialect) -> None:
    """A server's planner keeps no values of what is stored: they would outlive what is forgotten."""
    for table in CONTENT_TABLES:
        if dialect.unsampled_sql:
            transaction.rows(dialect.unsampled_sql.format(table=table))


MIGRATIONS: tuple[Step, ...] = (_step_1, _step_2, _step_3)
"""Step n brings a store of version n-1 to version n."""
