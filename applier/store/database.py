"""One connection to one SQL database, and transactions on it, the same for SQLite and PostgreSQL.

Either all of a transaction is stored or nothing. Knows no table; what differs between the two databases
stands in a `Dialect`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from planner.errors import StoreError

__all__ = ["Database", "Dialect", "Row", "Transaction"]

Row = tuple[Any, ...]

MAX_PARAMETERS = 500
"""Values in one statement; SQLite before 3.32 takes 999."""


class Dialect(Protocol):
    """What one kind of database needs."""

    place: str
    """The file or address, for error texts; holds no password."""
    placeholder: str
    bytes_type: str
    serial_type: str
    """A primary key that counts upwards by itself."""
    begin_read: str
    begin_write: str
    """Starts a transaction that no other process writes beside."""
    size_sql: str
    """Gives the bytes used on disk."""
    errors: tuple[type[Exception], ...]
    """What the driver raises."""

    def connect(self) -> Any:
        """A new DB-API connection in autocommit mode."""
        ...

    def check(self) -> None:
        """Raise a StoreError if an open connection no longer reaches what others would open."""
        ...

    def explain(self, error: Exception) -> StoreError:
        """What the driver raised, as an error that names the place and the cure."""
        ...

    def is_foreign(self, transaction: Transaction) -> bool:
        """True if the database belongs to another program."""
        ...

    def has_schema(self, transaction: Transaction) -> bool:
        """True if the store's tables are there, of whatever version."""
        ...

    def prepare(self, transaction: Transaction) -> None:
        """Make the database ready for the first table."""
        ...

    def damages(self, transaction: Transaction) -> list[str]:
        """What the database itself finds wrong with its file."""
        ...

    def flush(self, connection: Any) -> None:
        """Move deleted content out of every log the database keeps."""
        ...


class Transaction:
    """Runs statements; made by `Database.transaction` only."""

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        """Run on `connection`, where a transaction has begun."""
        self._cursor = connection.cursor()
        self._dialect = dialect

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Run one statement with ``?`` for each value; what it returns, if anything."""
        self._cursor.execute(self._translated(sql), values)
        return list(self._cursor.fetchall()) if self._cursor.description else []

    def rows_of(self, sql: str, values: Sequence[object]) -> list[Row]:
        """Run a query whose ``IN (??)`` takes any number of values."""
        found: list[Row] = []
        for start in range(0, len(values), MAX_PARAMETERS):
            some = values[start : start + MAX_PARAMETERS]
            found += self.rows(sql.replace("??", ",".join("?" * len(some))), some)
        return found

    def each(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run one statement for each of `rows`."""
        if rows:
            self._cursor.executemany(self._translated(sql), rows)

    def _translated(self, sql: str) -> str:
        return sql.replace("?", self._dialect.placeholder)


class Database:
    """A connection that threads share, one transaction at a time.

    Closed while the process forks: neither SQLite nor PostgreSQL has connections that survive it ("How To
    Corrupt An SQLite Database File", 2.6).
    """

    def __init__(self, dialect: Dialect) -> None:
        """Connect at the first transaction."""
        self.dialect = dialect
        self.users = 0
        """How many stores share it."""
        self._lock = threading.Lock()
        self._connection: Any = None
        with _databases_lock:
            _databases.add(self)

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[Transaction]:
        """All or nothing; what was written is on disk when the block ends. Not to be nested, and not to fork in.

        Raises:
            StoreError: the database could not do it; nothing was written.
        """
        with self._lock, self._explained():
            connection = self._connected()
            try:
                connection.execute(self.dialect.begin_write if write else self.dialect.begin_read)
                yield Transaction(connection, self.dialect)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(*self.dialect.errors):
                    connection.execute("ROLLBACK")
                raise

    def flush(self) -> None:
        """Move deleted content out of every log the database keeps."""
        with self._lock, self._explained():
            self.dialect.flush(self._connected())

    def close(self) -> None:
        """Close the connection; a later transaction opens a new one."""
        with self._lock:
            self._disconnect()

    def pause(self) -> None:
        """Close the connection, and let no transaction begin until `resume`."""
        self._lock.acquire()
        with suppress(*self.dialect.errors):
            self._disconnect()

    def resume(self) -> None:
        """Undo `pause`."""
        self._lock.release()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Any:
        if self._connection is None or getattr(self._connection, "closed", False):
            self._connection = self.dialect.connect()
        self.dialect.check()
        return self._connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except self.dialect.errors as error:
            raise self.dialect.explain(error) from error


_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_databases_lock = threading.Lock()
_paused: list[Database] = []


def _before_fork() -> None:
    _databases_lock.acquire()
    for database in list(_databases):
        database.pause()
        _paused.append(database)


def _after_fork() -> None:
    while _paused:
        _paused.pop().resume()
    _databases_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
