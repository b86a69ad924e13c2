"""The tables of the store, made and changed by numbered steps, oldest first.

A step that has shipped is never edited: a change is a new step at the end.
"""

from __future__ import annotations

from collections.abc import Callable

from applier.store.database import Database, Dialect, Transaction
from planner.errors import StoreError

__all__ = ["MIGRATIONS", "migrate"]

Step = Callable[[Transaction, Dialect], None]


def migrate(database: Database) -> None:
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
    return int(transaction.rows("SELECT version FROM compactor_schema")[0][0])


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


MIGRATIONS: tuple[Step, ...] = (_step_1,)
"""Step n brings a store of version n-1 to version n."""
