"""Store in a PostgreSQL database, in a schema of its own. Needs the extra ``postgres``."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any

from applier.store.backend import SqlBackend
from planner.errors import StoreDamaged, StoreError

try:
    import psycopg
except ImportError as error:
    cure = "pip install 'relevance-compactor[postgres]', or in a clone pip install '.[postgres]'"
    raise StoreError(f"a postgresql:// store needs psycopg: {cure}") from error

SCHEMA = "compactor"
_WRITER_LOCK = 0x636F6D70
"""Number of the advisory lock that every writer takes on the server, so that saving and deleting never overlap."""
_POLL_SECONDS = 0.02
"""Pause in seconds between two attempts to reserve a name that another process holds."""
_KEEPALIVE_SETTINGS = {"tcp_keepalives_idle": 10, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3}
"""Settings by which the server notices after 25 seconds that a process lost its network, and releases its locks."""
_REST_SECONDS = 3.0
"""Time in seconds for which a server that did not answer is not asked again, so that callers do not wait each time."""


class PostgresBackend(SqlBackend):
    """Store's database on a PostgreSQL server, in a schema of its own; one process at a time may write."""

    placeholder = "%s"
    begin_read = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    begin_write = f"BEGIN; SELECT pg_advisory_xact_lock({_WRITER_LOCK})"
    tables_sql = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{SCHEMA}'"
    size_sql = (
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c "
        f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{SCHEMA}' AND c.relkind = 'r'"
    )
    errors = (psycopg.Error,)

    def __init__(self, url: str, place: str, busy_timeout_seconds: float) -> None:
        """Prepare the database at `url`; errors name it by `place`, which has no password. `busy_timeout_seconds`:
        longest wait for another process."""
        super().__init__(place)
        self._url = url
        self._timeout = busy_timeout_seconds
        self._rests_until = 0.0

    def connect(self) -> psycopg.Connection[Any]:
        """Return a new connection; raise an error at once if the server failed to answer a moment ago."""
        if time.monotonic() < self._rests_until:
            raise psycopg.OperationalError("the server did not answer a moment ago")
        try:
            connection = psycopg.connect(self._url, autocommit=True, connect_timeout=max(2, round(self._timeout)))
        except psycopg.errors.ConnectionTimeout:
            self._rests_until = time.monotonic() + _REST_SECONDS
            raise
        settings = {"lock_timeout": max(1, round(self._timeout * 1000)), "search_path": SCHEMA, **_KEEPALIVE_SETTINGS}
        connection.execute("; ".join(f"SET {name} = {value}" for name, value in settings.items()))
        return connection

    @contextmanager
    def hold(self, name: str, seconds: float) -> Iterator[bool]:
        """Reserve `name` by an advisory lock, which the server releases if the connection ends. Yield True, or False if
        another process keeps the name for longer than `seconds`."""
        number = int.from_bytes(sha256(name.encode()).digest()[:8], signed=True)  # such a lock has a number as its name
        until = time.monotonic() + seconds
        while not (is_held := self._call_for_lock("pg_try_advisory_lock", number)) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        try:
            yield is_held
        finally:
            if is_held:
                with suppress(StoreError):
                    self._call_for_lock("pg_advisory_unlock", number)

    def _call_for_lock(self, function: str, number: int) -> bool:
        """Call the server's `function` for the advisory lock `number`; return its answer, True for success."""
        with self._connected():
            return bool(self.first(f"SELECT {function}(?)", (number,))[0][0])

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Run the block with a connection, which is broken off if the block takes longer than `patience_seconds`."""
        with super()._connected():
            if self.patience_seconds is None:
                yield
                return
            watch = threading.Timer(self.patience_seconds, self._break_off, (self.connection,))
            watch.daemon = True
            watch.start()
            try:
                yield
            finally:
                watch.cancel()

    def _break_off(self, connection: psycopg.Connection[Any]) -> None:
        """Shut the connection's socket, so that a statement that waits for the server fails; the timer calls this."""
        self._rests_until = time.monotonic() + _REST_SECONDS
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)

    def explain(self, error: Exception) -> StoreError:
        """Return a `StoreError` with the server's error text; a `StoreDamaged` if the data is damaged."""
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return StoreError(f"{self.place}: another process is writing to it and did not finish in time; try again")
        kind = StoreDamaged if isinstance(error, psycopg.errors.DataCorrupted) else StoreError
        return kind(f"{self.place}: {' '.join(str(error).split()) or type(error).__name__}")

    def create(self) -> None:
        """Create the table of the records, for which the server collects no statistics: these contain samples of keys
        and contents, which would stay when a record is deleted."""
        self.rows(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        self.rows('CREATE TABLE records (key TEXT COLLATE "C" PRIMARY KEY, body BYTEA NOT NULL)')
        self.rows("ALTER TABLE records ALTER COLUMN key SET STATISTICS 0, ALTER COLUMN body SET STATISTICS 0")

    def flush(self) -> list[str]:
        """Rewrite the table without deleted content, and return a text for each place that may still have some."""
        remains = [
            f"{self.place}: the server's write-ahead log, its replicas and backups keep what was deleted for a while"
        ]
        with self._connected():
            try:
                self.rows(f"VACUUM FULL {SCHEMA}.records")
            except psycopg.Error as error:
                where = "the table's files still hold what was deleted, until a VACUUM FULL"
                remains.append(f"{self.explain(error)}; {where}")
        return remains
