"""Databases below a store: `Backend` lists what every database does, `SqlBackend` does it in SQL.

A database holds records: a text as the key, bytes as the body. `SqliteBackend` is an SQLite file that only its owner
can read; PostgreSQL has a module of its own, as it needs a driver.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar

from planner.errors import StoreDamaged, StoreError, StoreReplaced


class Backend(ABC):
    """Database for records: a text of ASCII characters as the key, bytes as the body. To use your own database,
    implement the abstract methods, and pass the object to `Store`. Several threads and processes may use it at once.
    All methods but `transaction`, `hold`, `flush` and `close` are called inside a transaction, by its thread."""

    place: str = "the store"
    """File or address of the database, for error texts, without a password."""

    patience_seconds: float | None = None
    """Time after which an operation on a server is broken off, in seconds; None for no limit."""

    @abstractmethod
    def transaction(self, *, write: bool = False) -> AbstractContextManager[object]:
        """Run the ``with`` block as one transaction, which sees nothing of other unfinished transactions.

        With `write`, other writers wait until the block ends; then all that it wrote is on disk. If the block raises an
        error, nothing is written.

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
        """Reserve `name` for the ``with`` block, so that only one process works on what the name stands for; yield
        True, or False if another process keeps the name for longer than `seconds`.

        A process that dies releases its names. This default reserves nothing.

        Raises:
            StoreError: the database could not be asked.
        """
        return nullcontext(True)

    def damages(self) -> list[str]:
        """Return a text for each problem that the database's own check finds in its files; this default checks none."""
        return []

    def flush(self) -> list[str]:
        """Erase deleted content from every file and log; return a text for each place that may still have some."""
        return []

    def file_bytes(self) -> int:
        """Return the size of the database's files in bytes, including free pages; 0 if unknown."""
        return 0


VERSION_TABLE = "compactor_schema"
"""Table with the version of the store's format."""
MAX_PARAMETERS = 500
"""Largest number of values in one statement; SQLite before 3.32 takes 999."""
FORK_SECONDS = 2.0
"""Longest time in seconds that a fork of the process waits for another thread's transaction; most take milliseconds."""


class SqlBackend(Backend):
    """SQL database with one connection that all threads share, one transaction at a time.

    The connection is closed while the process forks, because connections of SQLite and PostgreSQL do not survive a fork
    ("How To Corrupt An SQLite Database File", 2.6). If a transaction takes longer than `FORK_SECONDS`, the parent keeps
    its connection and continues the transaction; the child opens a connection of its own.
    """

    placeholder: ClassVar[str]
    """Mark for a value in the driver's statements: ``?`` or ``%s``."""
    begin_read: ClassVar[str]
    """Statement that starts a transaction that only reads."""
    begin_write: ClassVar[str]
    """Statement that starts a transaction that writes, and makes other writers wait."""
    tables_sql: ClassVar[str]
    """Statement that returns the names of all tables."""
    size_sql: ClassVar[str]
    """Statement that returns the size of the tables on disk in bytes."""
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
        """Run the ``with`` block as one transaction. A transaction inside another one would wait for ever."""
        with self._connected():
            process = os.getpid()
            try:
                self.first(self.begin_write if write else self.begin_read)
                yield
                if os.getpid() != process:
                    raise StoreError(f"{self.place}: the process was forked in mid-transaction; do it again")
                self.connection.execute("COMMIT")
            except BaseException:
                if os.getpid() == process:  # in a forked child, the connection is the parent's
                    with suppress(*self.errors):
                        self.connection.execute("ROLLBACK")
                raise

    def first(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run the first statement of a transaction and return its rows. If the server has closed the connection since
        its last use, connect again and repeat the statement."""
        try:
            return self.rows(sql, values)
        except self.errors:
            if not getattr(self.connection, "closed", False):  # another error; SQLite has no such attribute
                raise
        self.connection = self.connect()
        return self.rows(sql, values)

    def rows(self, sql: str, values: Sequence[object] = (), *, types: tuple[type, ...] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with ``?`` for each of `values`, and return its rows; none for a statement without result.

        Raises:
            StoreDamaged: the columns of a row do not have the `types`, which happens if an SQLite file is damaged.
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
        """Run the statement `sql` once for each of `rows`, the values for its ``?``."""
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
        """Close the connection, outside a transaction; the next transaction connects again."""
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
        """Raise a StoreError if the database of the open connection is no longer the one at `place`."""


_backends: weakref.WeakSet[SqlBackend] = weakref.WeakSet()
"""All backends of this process; their connections are closed before a fork."""
_locks: dict[str, threading.Lock] = {}
"""Locks by place of the database. Only one connection at a time is used in this process, because SQLite before 3.51.3
can damage a file if one connection writes to it while another moves its log into it."""
_locks_held: list[threading.Lock] = []
"""Locks that this process holds for the short time while it forks."""
_parents_connections: list[Any] = []
"""Connections of the parent, in a forked child. They are kept here because Python closes a connection that nothing
refers to, and that would end the parent's work on it."""


def _before_fork() -> None:
    """Wait for running transactions and close the connections, because a child process must not share them."""
    _locks_held.extend(lock for lock in list(_locks.values()) if lock.acquire(timeout=FORK_SECONDS))
    for backend in list(_backends):
        if _locks[backend.place] in _locks_held:  # else a transaction took too long; the parent continues it
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


FOLDER_MODE, FILE_MODE = 0o700, 0o600
"""Permissions of new folders and files: only their owner can use them."""

_BUSY = "SQLITE_BUSY", "SQLITE_LOCKED"
"""Names of the errors for a file that another process has locked."""
_CURES = {
    **dict.fromkeys(_BUSY, "another process is writing to it and did not finish in time; try again"),
    "SQLITE_FULL": "the disk is full; free some space",
    "SQLITE_READONLY": "it cannot be written; check its permissions and those of its folder",
    "SQLITE_CANTOPEN": "it cannot be opened; check that it is a file and may be written",
    "SQLITE_PERM": "it may not be opened; check its permissions",
    "SQLITE_NOTADB": "not a store of this program; give another file",
    "SQLITE_IOERR": "the disk failed or is full",
}
"""Problem and remedy, by the name of SQLite's error."""
_NO_ROOM = "SQLITE_FULL", "SQLITE_IOERR"
"""Beginnings of the names of SQLite's errors for a full disk."""
_BESIDE = "-wal", "-shm", "-journal"
"""Suffixes of files that SQLite creates next to a database; it would write through a stranger's link at their place."""


class SqliteBackend(SqlBackend):
    """Database in an SQLite file that only its owner can read. Its settings (a write-ahead log, full synchronization)
    make each commit survive a power failure."""

    placeholder = "?"
    begin_read = "BEGIN"
    begin_write = "BEGIN IMMEDIATE"
    tables_sql = "SELECT name FROM sqlite_master WHERE type = 'table'"
    size_sql = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    errors = (sqlite3.Error, UnicodeDecodeError, MemoryError)
    """Errors of the driver. A damaged file may cause `UnicodeDecodeError`, or by a wrong length `MemoryError`."""

    def __init__(self, path: Path, busy_timeout_seconds: float) -> None:
        """Create the file at `path` if there is none. `busy_timeout_seconds`: longest wait for other processes."""
        self._identity = _created_and_checked(path)
        self._path = path.resolve()
        self._timeout = busy_timeout_seconds
        self._is_alone = False
        super().__init__(str(self._path))

    def connect(self) -> sqlite3.Connection:
        """Return a new connection. On a full disk, it is opened for exclusive use and closed after one transaction,
        because only such a connection can still read then."""
        self._is_alone = False
        try:
            return self._opened()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(_NO_ROOM):
                raise
        self._is_alone = True
        return self._opened()

    def _opened(self) -> sqlite3.Connection:
        """Return a new connection. Configure it, unless the file belongs to another program."""
        connection = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False)
        try:
            if self._is_alone:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            tables = {name for (name,) in connection.execute(self.tables_sql)}
            if not tables or VERSION_TABLE in tables:  # another program's file stays unchanged; `open_store` refuses it
                self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Run the block with a connection; close it afterwards if it was opened for exclusive use."""
        with super()._connected():
            try:
                yield
            finally:
                if self._is_alone:
                    self.disconnect()

    def check(self) -> None:
        """Raise a StoreReplaced if the file was removed or replaced, because later writes to it would be lost."""
        try:
            status = _stat(self._path)
        except StoreError as error:
            raise StoreReplaced(str(error)) from error
        if (status.st_dev, status.st_ino) != self._identity:
            raise StoreReplaced(f"{self.place}: the file was replaced while in use; open the store again")

    def create(self) -> None:
        """Create the table of the records, sorted by key."""
        self.rows("CREATE TABLE records (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID")

    def _configure(self, connection: sqlite3.Connection) -> None:
        """Set the connection's log and durability, waiting for other processes that change the log."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:  # unlike other statements, this one does not wait by itself
                if error.sqlite_errorname not in _BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        for pragma in ("synchronous = FULL", "mmap_size = 0", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")

    def explain(self, error: Exception) -> StoreError:
        """Return a `StoreDamaged` for an `error` caused by a damaged file, and a `StoreError` for any other error."""
        name = "_".join(str(getattr(error, "sqlite_errorname", "")).split("_")[:2])
        is_text_damaged = isinstance(error, UnicodeDecodeError) or "Could not decode to UTF-8" in str(error)
        if name == "SQLITE_CORRUPT" or is_text_damaged:  # the driver's error about text has no code
            return StoreDamaged(f"{self.place}: the file is damaged ({error}); restore it from a backup")
        if isinstance(error, MemoryError):
            text = "it asks for more memory than there is; if that stays, it is damaged: restore it from a backup"
            return StoreError(f"{self.place}: {text}")
        return StoreError(f"{self.place}: {_CURES.get(name, error)}")

    def damages(self) -> list[str]:
        """Return the problems that SQLite's own check finds."""
        return [str(problem) for (problem,) in self.rows("PRAGMA integrity_check") if problem != "ok"]

    def flush(self) -> list[str]:
        """Rewrite the file and empty its log, as both may keep deleted content. Return a text for each place with
        some."""
        remains = []
        with self._connected():
            try:
                self.rows("VACUUM")
            except sqlite3.Error as error:
                where = "until `compactor store flush` bytes of what was deleted may be in it"
                remains.append(f"{self.explain(error)}; {where}")
            busy, _, _ = self.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0]
        if busy:
            remains.append(
                f"{self.place}-wal still holds what was deleted: another process reads the store; "
                "run `compactor store flush` when it has ended"
            )
        return remains


def _created_and_checked(path: Path) -> tuple[int, int]:
    """Create the store's file if it does not exist, and raise a StoreError if it is not safe to use. Return its device
    and inode, by which a file that replaces it is noticed."""
    try:
        _make_private_file(path)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: the store cannot be made here: {_cause_of(error)}") from error
    status = _stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path}: {_CURES['SQLITE_CANTOPEN']}")
    if os.name == "posix" and os.geteuid() not in (0, status.st_uid):
        raise StoreError(f"{path}: the file belongs to another user, who could read it: give another file")
    for ending in ("", *_BESIDE):
        beside = Path(f"{path.resolve()}{ending}")
        with suppress(OSError):  # through a link, SQLite would write to somebody else's file
            there = os.lstat(beside)
            if stat.S_ISLNK(there.st_mode) or (stat.S_ISREG(there.st_mode) and there.st_nlink > 1):
                raise StoreError(f"{beside}: the file has another name, by a link: give the store a file of its own")
    return status.st_dev, status.st_ino


def _make_private_file(path: Path) -> None:
    """Create an empty file and its folders, which only their owner may read. An existing file keeps its mode and is not
    opened: closing it would release all locks that the process holds on it ("How To Corrupt An SQLite …", 2.2)."""
    for folder in [folder for folder in reversed(path.parents) if not folder.is_dir()]:
        folder.mkdir(FOLDER_MODE, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))
    except FileExistsError:
        path.stat()  # raises an error for a link without target, as another user could create the target


def _stat(path: Path) -> os.stat_result:
    """Return the file's status (device, inode, …); raise a StoreError if there is no file."""
    try:
        return path.stat()
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: the store cannot be read: {_cause_of(error)}") from error


def _cause_of(error: Exception) -> str:
    """Return the text of a file error without the path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
