"""One connection to one SQL database, and transactions on it, the same for SQLite and PostgreSQL.

Either all of a transaction is stored or nothing, whatever thread or fork comes between. Knows no table; what
differs between the two databases stands in a `Dialect`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from planner.errors import StoreDamaged, StoreError

__all__ = ["MAX_PARAMETERS", "Database", "Dialect", "Row", "Transaction", "release_database", "shared_database"]

Row = tuple[Any, ...]

MAX_PARAMETERS = 500
"""Values in one statement; SQLite before 3.32 takes 999."""
FORK_SECONDS = 2.0
"""How long a fork waits for a transaction of another thread; they take milliseconds."""


class Dialect(Protocol):
    """What one kind of database needs."""

    place: str
    """The file or address, for error texts; holds no password."""
    placeholder: str
    bytes_type: str
    serial_type: str
    """A primary key that counts upwards by itself."""
    unsampled_sql: str
    """Lets the database keep no samples of the content of ``{table}``; empty if it never does."""
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

    def flush(self, connection: Any) -> list[str]:
        """Take deleted content out of every file and log the database keeps; what it has to leave there."""
        ...


class Transaction:
    """Runs statements; made by `Database.transaction` only."""

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        """Run on `connection`, where a transaction has begun."""
        self._cursor = connection.cursor()
        self._dialect = dialect

    def rows(self, sql: str, values: Sequence[object] = (), *, types: tuple[type, ...] = ()) -> list[Row]:
        """Run one statement with ``?`` for each value; what it returns, if anything.

        Raises:
            StoreDamaged: a column has another type than `types` says: SQLite gives back what a damaged file holds.
        """
        self._cursor.execute(self._translated(sql), values)
        rows = list(self._cursor.fetchall()) if self._cursor.description else []
        if types and any(tuple(map(type, row)) != types for row in rows):
            raise StoreDamaged(f"{self._dialect.place}: holds values that no store writes; restore it from a backup")
        return rows

    def rows_of(self, sql: str, values: Sequence[object], *, types: tuple[type, ...]) -> list[Row]:
        """Run a query whose ``IN (??)`` takes any number of values."""
        rows: list[Row] = []
        for start in range(0, len(values), MAX_PARAMETERS):
            some = values[start : start + MAX_PARAMETERS]
            rows += self.rows(sql.replace("??", ",".join("?" * len(some))), some, types=types)
        return rows

    def each(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run one statement for each of `rows`."""
        if rows:
            self._cursor.executemany(self._translated(sql), rows)

    def _translated(self, sql: str) -> str:
        return sql.replace("?", self._dialect.placeholder)


class Database:
    """A connection that threads share, one transaction at a time.

    Closed while the process forks: neither SQLite nor PostgreSQL has connections that survive it ("How To
    Corrupt An SQLite Database File", 2.6). A transaction that does not end in time goes on in the parent; the
    child gets a connection of its own.
    """

    def __init__(self, dialect: Dialect) -> None:
        """Connect at the first transaction."""
        self.dialect = dialect
        self.users = 0
        """How many stores share it."""
        self._lock = threading.Lock()
        self._owner: int | None = None
        """The thread whose transaction runs."""
        self._paused = False
        self._connection: Any = None
        with _registry_lock:
            _databases.add(self)

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[Transaction]:
        """All or nothing; what was written is on disk when the block ends. Not to be nested.

        Raises:
            StoreError: the database could not do it, or the process forked meanwhile and this is the child;
                nothing was written.
        """
        with self._lock, self._explained():
            connection, process = self._connected(), os.getpid()
            self._owner = threading.get_ident()
            try:
                connection.execute(self.dialect.begin_write if write else self.dialect.begin_read)
                yield Transaction(connection, self.dialect)
                if os.getpid() != process:
                    raise StoreError(f"{self.dialect.place}: the process was forked in mid-transaction; do it again")
                connection.execute("COMMIT")
            except BaseException:
                if os.getpid() == process:
                    with suppress(*self.dialect.errors):
                        connection.execute("ROLLBACK")
                raise
            finally:
                self._owner = None

    def flush(self) -> list[str]:
        """Take deleted content out of every file and log the database keeps; what it has to leave there."""
        with self._lock, self._explained():
            return self.dialect.flush(self._connected())

    def close(self) -> None:
        """Close the connection; a later transaction opens a new one."""
        with self._lock:
            self._disconnect()

    def pause(self) -> None:
        """Close the connection, and let no transaction begin until `resume`; unless one runs and does not end."""
        own = self._owner == threading.get_ident()
        self._paused = not own and self._lock.acquire(timeout=FORK_SECONDS)
        if self._paused:
            with suppress(*self.dialect.errors):
                self._disconnect()

    def resume(self, *, in_child: bool) -> None:
        """Undo `pause`."""
        if self._paused:
            self._paused = False
            self._lock.release()
        elif in_child:  # the thread that holds the lock is not there, and its connection is the parent's
            _of_parent.append(self._connection)
            self._lock, self._owner, self._connection = threading.Lock(), None, None

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
_shared: dict[Hashable, Database] = {}
_registry_lock = threading.RLock()
"""Held around every look at the two."""
_paused: list[Database] = []
_of_parent: list[Any] = []
"""Connections that a child must never close: that would end what the parent does on them."""


def shared_database(key: Callable[[], Hashable], make: Callable[[], Database]) -> Database:
    """The one database of this process with that key, made if need be; to be given up by `release_database`.

    SQLite before 3.51.3 can corrupt a file when several connections write and checkpoint at once.
    """
    with _registry_lock:  # around `key`, too: it may make the file
        name = key()
        database = _shared.get(name)
        if database is None:
            database = _shared[name] = make()
        database.users += 1
        return database


def release_database(database: Database) -> None:
    """Give up one use of `database`; the last one closes it."""
    with _registry_lock:
        database.users -= 1
        if database.users <= 0:
            for key in [key for key, value in _shared.items() if value is database]:
                del _shared[key]
            database.close()


def _before_fork() -> None:
    global _registry_held
    _registry_held = _registry_lock.acquire(timeout=FORK_SECONDS)
    for database in list(_databases):
        database.pause()
        _paused.append(database)


def _after_fork(*, in_child: bool) -> None:
    global _registry_lock
    while _paused:
        _paused.pop().resume(in_child=in_child)
    if _registry_held:
        _registry_lock.release()
    elif in_child:
        _registry_lock = threading.RLock()


_registry_held = False
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(in_child=False),
        after_in_child=lambda: _after_fork(in_child=True),
    )
