"""Store in an SQLite file that only its owner can read: commits are on disk at once, one connection a process."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from applier.store.backend import VERSION_TABLE, SqlBackend
from planner.errors import StoreDamaged, StoreError, StoreReplaced

Identity = tuple[int, int]
"""Device number and inode of a file, which stay the same if the file is renamed."""

FOLDER_MODE, FILE_MODE = 0o700, 0o600
"""Permissions of new folders and files: for their owner alone."""

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
_NO_MEMORY = "it asks for more memory than there is; if that stays, it is damaged: restore it from a backup"
_NO_ROOM = "SQLITE_FULL", "SQLITE_IOERR"
"""Beginnings of the names of SQLite's errors for a full disk."""
_RETRY_SECONDS = 0.01
_BESIDE = "-wal", "-shm", "-journal"
"""Suffixes of the files that SQLite creates next to a database. It would follow a stranger's link at their place."""
_UNREADABLE = "Could not decode to UTF-8"
"""Text of the driver's error for damaged text, which has no error code."""


class SqliteBackend(SqlBackend):
    """SQLite database with settings that survive a power failure: a write-ahead log, and full synchronization."""

    placeholder = "?"
    begin_read = "BEGIN"
    begin_write = "BEGIN IMMEDIATE"
    tables_sql = "SELECT name FROM sqlite_master WHERE type = 'table'"
    size_sql = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    errors = (sqlite3.Error, UnicodeDecodeError, MemoryError)
    """Exceptions that the driver raises. A damaged file may cause `UnicodeDecodeError` or, by a wrong length,
    `MemoryError`."""

    def __init__(self, path: Path, busy_timeout_seconds: float) -> None:
        """Create the file at `path` if there is none. `busy_timeout_seconds`: longest wait for other processes."""
        self._identity = _created_and_checked(path)
        self._path = path.resolve()
        self._timeout = busy_timeout_seconds
        self._is_alone = False
        super().__init__(str(self._path))

    def connect(self) -> sqlite3.Connection:
        """Return a new connection. On a full disk, this is one that excludes all others, as only such a connection can
        read then; it is closed after one transaction."""
        self._is_alone = False
        try:
            return self._opened()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(_NO_ROOM):
                raise
        self._is_alone = True
        return self._opened()

    def _opened(self) -> sqlite3.Connection:
        """Return a new connection, configured unless the file belongs to another program."""
        connection = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False)
        try:
            if self._is_alone:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            tables = {name for (name,) in connection.execute(self.tables_sql)}
            if not tables or VERSION_TABLE in tables:  # `open_store` refuses another program's file, still unchanged
                self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Run the block with a connection; close it afterwards if it excludes all others."""
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
                time.sleep(_RETRY_SECONDS)
        for pragma in ("synchronous = FULL", "mmap_size = 0", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")

    def explain(self, error: Exception) -> StoreError:
        """Return a `StoreDamaged` for an `error` caused by a damaged file, and a `StoreError` for any other error."""
        name = "_".join(str(getattr(error, "sqlite_errorname", "")).split("_")[:2])
        if name == "SQLITE_CORRUPT" or isinstance(error, UnicodeDecodeError) or _UNREADABLE in str(error):
            return StoreDamaged(f"{self.place}: the file is damaged ({error}); restore it from a backup")
        if isinstance(error, MemoryError):
            return StoreError(f"{self.place}: {_NO_MEMORY}")
        return StoreError(f"{self.place}: {_CURES.get(name, error)}")

    def damages(self) -> list[str]:
        """Return the problems that SQLite's own check finds."""
        return [str(problem) for (problem,) in self.rows("PRAGMA integrity_check") if problem != "ok"]

    def flush(self) -> list[str]:
        """Rewrite the file and empty its log, because deleted content may remain in both. Return a text for each place
        that may still have some."""
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


def _created_and_checked(path: Path) -> Identity:
    """Create the store's file if it does not exist, check that it is safe to use, and return its identity."""
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
        _check_not_linked(Path(f"{path.resolve()}{ending}"))
    return status.st_dev, status.st_ino


def _make_private_file(path: Path) -> None:
    """Create an empty file and its folders, which only their owner may read. An existing file keeps its mode and is not
    opened: closing it would release every lock that the process holds on it (POSIX; "How To Corrupt An SQLite Database
    File", 2.2)."""
    for folder in [folder for folder in reversed(path.parents) if not folder.is_dir()]:
        folder.mkdir(FOLDER_MODE, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))
    except FileExistsError:
        path.stat()  # raises an error for a link to no file: another user could own the place that it leads to


def _cause_of(error: Exception) -> str:
    """Return the text of a file error without the path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _check_not_linked(path: Path) -> None:
    """Raise a StoreError for a file with several names, as writing to it would change another's file. SQLite's log
    files also depend on the name."""
    with suppress(OSError):
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1):
            raise StoreError(f"{path}: the file has another name, by a link: give the store a file of its own")


def _stat(path: Path) -> os.stat_result:
    """Return the file's status (device, inode, …); raise a StoreError if there is no file."""
    try:
        return path.stat()
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: the store cannot be read: {_cause_of(error)}") from error
