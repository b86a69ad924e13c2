"""The store's SQLite file: durable commits, one connection a process, readable by its owner only."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from applier.store.database import Database, Transaction
from planner.errors import StoreDamaged, StoreError

__all__ = ["SqliteDialect", "release_sqlite", "shared_sqlite"]

APPLICATION_ID = 0x636F6D70
"""Stands in the header of every store file."""

_BUSY = "SQLITE_BUSY", "SQLITE_LOCKED"
_CURES = {
    **dict.fromkeys(_BUSY, "another process is writing to it and did not finish in time; try again"),
    "SQLITE_FULL": "the disk is full; free some space",
    "SQLITE_READONLY": "it cannot be written; check its permissions and those of its folder",
    "SQLITE_CANTOPEN": "it cannot be opened; check that it is a file and may be written",
    "SQLITE_PERM": "it may not be opened; check its permissions",
    "SQLITE_NOTADB": "not a store of this program; give another file",
    "SQLITE_IOERR": "the disk failed or is full",
}
_RETRY_SECONDS = 0.01


class SqliteDialect:
    """SQLite as the store uses it: WAL and FULL for durability, no memory map (its version may be old)."""

    placeholder = "?"
    bytes_type = "BLOB"
    serial_type = "INTEGER PRIMARY KEY AUTOINCREMENT"
    begin_read = "BEGIN"
    begin_write = "BEGIN IMMEDIATE"
    size_sql = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    errors: tuple[type[Exception], ...] = (sqlite3.Error, UnicodeDecodeError)
    """The second: the text of an error can quote a damaged file."""

    def __init__(self, path: Path, busy_timeout_seconds: float) -> None:
        """Use the file at `path`, waiting up to `busy_timeout_seconds` for other processes."""
        self.place = str(path)
        self._path = path
        self._timeout = busy_timeout_seconds
        self._inode = _inode(path)

    def connect(self) -> sqlite3.Connection:
        """A new connection in autocommit mode."""
        connection = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False)
        try:
            self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def check(self) -> None:
        """Raise a StoreError if the file was removed: what is written to it then is lost."""
        if _inode(self._path) != self._inode:
            raise StoreError(f"{self.place}: the file was replaced while in use; open the store again")

    def _configure(self, connection: sqlite3.Connection) -> None:
        if _tables(connection) and not _has_schema(connection):
            return  # foreign: refused by `migrate`, and not touched
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:  # this change alone does not wait for other processes
                if error.sqlite_errorname not in _BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
        for pragma in ("synchronous = FULL", "mmap_size = 0", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")

    def explain(self, error: Exception) -> StoreError:
        """What SQLite raised, with the cure."""
        name = "_".join(str(getattr(error, "sqlite_errorname", "")).split("_")[:2])
        if name == "SQLITE_CORRUPT" or isinstance(error, UnicodeDecodeError):
            return StoreDamaged(f"{self.place}: the file is damaged ({error}); restore it from a backup")
        return StoreError(f"{self.place}: {_CURES.get(name, error)}")

    def is_foreign(self, transaction: Transaction) -> bool:
        """True if the file has tables, but not the store's."""
        return not self.has_schema(transaction) and bool(transaction.rows(_TABLES))

    def has_schema(self, transaction: Transaction) -> bool:
        """True if the store's tables are there."""
        return bool(transaction.rows(_SCHEMA))

    def prepare(self, transaction: Transaction) -> None:
        """Mark the file, for programs that tell files apart."""
        transaction.rows(f"PRAGMA application_id = {APPLICATION_ID}")

    def damages(self, transaction: Transaction) -> list[str]:
        """What SQLite's own check finds."""
        found = [str(row[0]) for row in transaction.rows("PRAGMA integrity_check")]
        return [text for text in found if text != "ok"]

    def flush(self, connection: Any) -> None:
        """Empty the write-ahead log."""
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


_TABLES = "SELECT name FROM sqlite_master"
_SCHEMA = _TABLES + " WHERE name = 'compactor_schema'"


def _tables(connection: sqlite3.Connection) -> bool:
    return connection.execute(_TABLES).fetchone() is not None


def _has_schema(connection: sqlite3.Connection) -> bool:
    return connection.execute(_SCHEMA).fetchone() is not None


_shared: dict[tuple[int, int], Database] = {}
_shared_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # a forked process must not find it held by a thread it does not have
    os.register_at_fork(
        before=_shared_lock.acquire, after_in_parent=_shared_lock.release, after_in_child=_shared_lock.release
    )


def shared_sqlite(path: Path, busy_timeout_seconds: float) -> Database:
    """The one database of this process for the file at `path`, which is made if need be.

    SQLite before 3.51.3 can corrupt a file when several connections write and checkpoint at once.
    """
    with _shared_lock:  # around the making, too: see `_make_file`
        _make_file(path)
        key = _inode(path)
        database = _shared.get(key)
        if database is None:
            database = _shared[key] = Database(SqliteDialect(path, busy_timeout_seconds))
        database.users += 1
        return database


def release_sqlite(database: Database) -> None:
    """Give up one use of `database`; the last one closes it."""
    with _shared_lock:
        database.users -= 1
        if database.users == 0:
            for key in [key for key, value in _shared.items() if value is database]:
                del _shared[key]
            database.close()


def _make_file(path: Path) -> None:
    """An empty file that only its owner reads: transcripts hold secrets. One that is there keeps its mode.

    It is opened only when it is new: closing a file takes every lock from it that the process holds, those of
    other connections too (POSIX; "How To Corrupt An SQLite Database File", 2.2).
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreError(f"{path}: the store cannot be made here: {error.strerror}") from error


def _inode(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise StoreError(f"{path}: the store cannot be read: {error.strerror}") from error
    return found.st_dev, found.st_ino
