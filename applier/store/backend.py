"""Databases below a store: `Backend` lists what every database does, `SqlBackend` does it in SQL.

A database holds records: a text as the key, bytes as the body. The differences between SQLite and PostgreSQL are in
their own modules.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, ClassVar

from planner.errors import StoreDamaged, StoreError


class Backend(ABC):
    """Database for records: a text of ASCII characters as the key, bytes as the body. Your own backend implements the
    abstract methods; ``Store(backend)`` does the rest. Several threads and processes may use it at once. All methods
    except `transaction`, `hold`, `flush` and `close` are called inside a transaction, by the thread that began it."""

    place: str = "the store"
    """File or address of the database, for error texts, without a password."""

    patience_seconds: float | None = None
    """Longest duration of an operation on a server, after which it is broken off. None: no limit."""

    @abstractmethod
    def transaction(self, *, write: bool = False) -> AbstractContextManager[object]:
        """Run the ``with`` block as one transaction, which sees nothing of unfinished other ones.

        With `write`, other writers wait for its end. Its writes are on disk when the block ends; if it raises, nothing
        is written.

        Raises:
            StoreError: the database failed; the text names the place and the cure.
        """

    @abstractmethod
    def keys(self, prefix: str) -> list[str]:
        """Return the keys with this prefix, in the order of their characters."""

    @abstractmethod
    def get(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        """Return the bodies of the records with these `keys`, by key; records that do not exist are left out."""

    @abstractmethod
    def add(self, records: Mapping[str, bytes]) -> None:
        """Store `records`; an existing key keeps its body."""

    @abstractmethod
    def remove(self, keys: Iterable[str]) -> None:
        """Delete the records with these keys, if they exist."""

    @abstractmethod
    def close(self) -> None:
        """Close the database; the backend cannot be used afterwards."""

    def hold(self, name: str, seconds: float) -> AbstractContextManager[bool]:  # noqa: ARG002 - a subclass reads both
        """Reserve `name` for the ``with`` block, so that one process at a time works on something; yield True.

        Yield False if another holder keeps the name for longer than `seconds`. A process that dies releases its names.
        This default reserves nothing.

        Raises:
            StoreError: the database could not be asked.
        """
        return nullcontext(True)

    def damages(self) -> list[str]:
        """Return the problems that the database itself finds in its files."""
        return []

    def flush(self) -> list[str]:
        """Erase deleted content from every file and log; return a text for each place that may still have some."""
        return []

    def file_bytes(self) -> int:
        """Return the bytes on disk, including free pages within the files."""
        return 0


Row = tuple[Any, ...]

VERSION_TABLE = "compactor_schema"
"""Table with the version of the store's format."""
MAX_PARAMETERS = 500
"""Largest number of values in one statement; SQLite before 3.32 takes 999."""
FORK_SECONDS = 2.0
"""Longest time that a fork waits for a transaction of another thread, which takes milliseconds."""


class SqlBackend(Backend):
    """SQL database over one connection that all threads share, one transaction at a time.

    The connection is closed while the process forks, because connections of SQLite and PostgreSQL do not survive a fork
    ("How To Corrupt An SQLite Database File", 2.6). A transaction longer than `FORK_SECONDS` continues in the parent;
    the child gets its own connection.
    """

    placeholder: ClassVar[str]
    """Text for a value in the driver's statements: ``?`` or ``%s``."""
    begin_read: ClassVar[str]
    begin_write: ClassVar[str]
    """Statement that starts a transaction that writes, and excludes other writers; `begin_read` starts one that
    reads."""
    tables_sql: ClassVar[str]
    """Statement that returns the names of all tables."""
    size_sql: ClassVar[str]
    """Statement that returns the number of bytes that the tables use on disk."""
    errors: ClassVar[tuple[type[Exception], ...]]
    """Exceptions that the database's driver raises."""

    def __init__(self, place: str) -> None:
        """Store the place of the database; the first transaction connects."""
        self.place = place
        self.connection: Any = None
        _locks.setdefault(place, threading.Lock())
        _backends.add(self)

    @abstractmethod
    def connect(self) -> Any:
        """Return a new DB-API connection in autocommit mode."""

    @abstractmethod
    def explain(self, error: Exception) -> StoreError:
        """Return a `StoreError` for the driver's `error`, with a text on where it happened and what to do."""

    @abstractmethod
    def create(self) -> None:
        """Create the table in which all records of a new store are stored."""

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[None]:
        """Run the ``with`` block as one transaction. One inside another would wait for itself for ever."""
        with self._connected():
            process = os.getpid()
            try:
                self.first(self.begin_write if write else self.begin_read)
                yield
                if os.getpid() != process:
                    raise StoreError(f"{self.place}: the process was forked in mid-transaction; do it again")
                self.connection.execute("COMMIT")
            except BaseException:
                if os.getpid() == process:
                    with suppress(*self.errors):
                        self.connection.execute("ROLLBACK")
                raise

    def first(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Run the first statement of a transaction. If the server has closed the connection meanwhile, connect again
        first."""
        try:
            return self.rows(sql, values)
        except self.errors:
            if not getattr(self.connection, "closed", False):
                raise
        self.connection = self.connect()
        return self.rows(sql, values)

    def rows(self, sql: str, values: Sequence[object] = (), *, types: tuple[type, ...] = ()) -> list[Row]:
        """Run one statement, with ``?`` for each of `values`, and return its rows.

        Raises:
            StoreDamaged: a column has another type than in `types`, as SQLite returns from a damaged file.
        """
        cursor = self.connection.execute(sql.replace("?", self.placeholder), values)
        rows = list(cursor.fetchall()) if cursor.description else []
        if types and any(tuple(map(type, row)) != types for row in rows):
            raise StoreDamaged(f"{self.place}: contains values that no store writes; restore it from a backup")
        return rows

    def keys(self, prefix: str) -> list[str]:
        """Return the keys with this `prefix`, in order."""
        sql = "SELECT key FROM records WHERE key >= ? AND key < ? ORDER BY key"
        return [row[0] for row in self.rows(sql, (prefix, f"{prefix}\x7f"), types=(str,))]

    def get(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the bodies of the existing `keys`, in several statements if there are more than `MAX_PARAMETERS`."""
        wanted = list(keys)
        bodies: dict[str, bytes] = {}
        for start in range(0, len(wanted), MAX_PARAMETERS):
            some_keys = wanted[start : start + MAX_PARAMETERS]
            sql = f"SELECT key, body FROM records WHERE key IN ({','.join('?' * len(some_keys))})"
            bodies.update(self.rows(sql, some_keys, types=(str, bytes)))
        return bodies

    def add(self, records: Mapping[str, bytes]) -> None:
        """Insert `records`; an existing key keeps its body."""
        self._run_for_each("INSERT INTO records VALUES (?, ?) ON CONFLICT DO NOTHING", list(records.items()))

    def remove(self, keys: Iterable[str]) -> None:
        """Delete the records with these `keys`."""
        self._run_for_each("DELETE FROM records WHERE key = ?", [(key,) for key in keys])

    def _run_for_each(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run the statement `sql` once for each row of values."""
        if rows:
            self.connection.cursor().executemany(sql.replace("?", self.placeholder), rows)

    def file_bytes(self) -> int:
        """Return the size of the database on disk, in bytes, as the database itself counts it."""
        return int(self.rows(self.size_sql)[0][0])

    def close(self) -> None:
        """Close the connection; a later transaction opens a new one."""
        with _locks[self.place]:
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connection, between two transactions; the next transaction connects again."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Run the block with a working connection, one thread at a time, and turn driver errors into a `StoreError`."""
        with _locks[self.place]:
            try:
                if self.connection is None or getattr(self.connection, "closed", False):
                    self.connection = self.connect()
                self.check()
                yield
            except self.errors as error:
                raise self.explain(error) from error

    def check(self) -> None:
        """Raise a StoreError if the open connection reaches another database than a new one would."""


_backends: weakref.WeakSet[SqlBackend] = weakref.WeakSet()
_locks: dict[str, threading.Lock] = {}
"""Locks by place of the database: one connection at a time may be used in this process, because SQLite before 3.51.3
can damage a file if several write and checkpoint at once."""
_locks_held: list[threading.Lock] = []
"""Locks that this process holds for the short time while it forks."""
_parents_connections: list[Any] = []
"""Connections that a forked child must never close, because that would end the parent's work on them."""


def _before_fork() -> None:
    """Wait for running transactions and close the connections, because a child process must not share them."""
    _locks_held.extend(lock for lock in list(_locks.values()) if lock.acquire(timeout=FORK_SECONDS))
    for backend in list(_backends):
        if _locks[backend.place] in _locks_held:
            with suppress(*backend.errors):
                backend.disconnect()


def _after_fork(*, in_child: bool) -> None:
    """Release the locks that were taken for the fork; a child also forgets locks and connections of other threads."""
    if in_child:  # the threads that hold the other locks do not exist here, so nobody would release them
        _locks.update({place: threading.Lock() for place, lock in _locks.items() if lock not in _locks_held})
        for backend in list(_backends):
            _parents_connections.append(backend.connection)
            backend.connection = None
    while _locks_held:
        _locks_held.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(in_child=False),
        after_in_child=lambda: _after_fork(in_child=True),
    )
