"""Opens a store: the file with a given name, the file in the user's state folder, or a PostgreSQL database.

`SessionStore` opens the store of a session when it is first needed, and again if its file was removed.

Checks the format, and upgrades format 4, with keys and plan ids of 8 hex digits, to format 5, with keys of 32. Only
states and events had the short forms. A state with a short key that fits no history or several is deleted; its session
begins again from the agent's whole list.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from applier.store.backend import VERSION_TABLE, Backend, SqlBackend, SqliteBackend
from applier.store.forgetting import state_name
from applier.store.records import SavedChain, bodies, encode, pack, plan_keys, unpack
from applier.store.store import Store
from planner.errors import SettingsError, StoreDamaged, StoreError, StoreReplaced
from planner.placeholders import KEY_DIGITS
from planner.reading.messages import History, to_json

T = TypeVar("T")

OLD_FORMAT = 4
"""Format of stores that `open_store` upgrades."""
_SHORT = re.compile(r"([hp][0-9a-f]{8})((?::t[1-9][0-9]*)?)")
"""Short key, plan id or reference to a turn, as a whole string in a store of format 4: ``h1a2b3c4d:t12``."""
_NAME = re.compile(r"(.*:)(h[0-9a-f]{8})", re.DOTALL)
"""Name of a state that ends with the short key of a history: ``origin:h1a2b3c4d``."""
_EXACT_FIELDS = "head", "messages", "content"
"""Fields of states and events that contain messages, in which nothing is replaced."""


class WholeNames:
    """Full keys of histories and ids of plans, by their short forms in stores of format 4."""

    def __init__(self, backend: Backend) -> None:
        """Read the full keys and ids of all histories and plans in `backend`, within a transaction."""
        histories = (("h", key.partition("/")[2]) for key in backend.keys("history/"))
        plans = (("p", plan.digest) for plan in plan_keys(backend))
        candidates: dict[str, set[str]] = defaultdict(set)
        for letter, digest in (*histories, *plans):
            candidates[f"{letter}{digest[:8]}"].add(f"{letter}{digest[:KEY_DIGITS]}")
        self._whole = {short: min(names) for short, names in candidates.items() if len(names) == 1}

    def record(self, key: str, content: bytes) -> tuple[str, bytes] | None:
        """Return the key and content of a state's or event's record, with the short keys and ids in them replaced by
        full ones. If a short one fits no history or several, it stays as it is in an event; for a state, None is
        returned."""
        value, unknown = json.loads(content), list[str]()
        whole = self._replaced(value, unknown)
        if key.startswith("state/"):
            name = state_name(key)
            if match := _NAME.fullmatch(name):
                name = match[1] + self._replaced(match[2], unknown)
            if unknown:
                return None
            key = f"state/{to_json(name)}"
        return key, content if whole == value else encode(whole, key)

    def _replaced(self, value: Any, unknown: list[str]) -> Any:
        """Return the JSON data `value` with full keys and ids in place of short ones. Those that fit no history or
        several stay, and are added to the list `unknown`."""
        if isinstance(value, dict):
            return {key: item if key in _EXACT_FIELDS else self._replaced(item, unknown) for key, item in value.items()}
        if isinstance(value, list):
            return [self._replaced(item, unknown) for item in value]
        match = _SHORT.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            return value
        if match[1] not in self._whole:
            unknown.append(value)
            return value
        return self._whole[match[1]] + match[2]  # the full key, and ``:t12`` if the value names a turn


def upgrade(backend: Backend) -> None:
    """Upgrade a store of format 4, within a transaction that writes: replace the short keys and ids in its states and
    events by full ones. Delete a state (named JSON value) with a short key that fits no history or several."""
    names = WholeNames(backend)
    for key, body in bodies(backend, [*backend.keys("state/"), *backend.keys("event/")]):
        content = unpack(body, key)
        new = names.record(key, content)
        if new != (key, content):
            backend.remove([key])
            backend.add({new[0]: pack(new[1])} if new else {})


STORE_VARIABLE = "COMPACTOR_STORE"
"""Environment variable with the store's path or address, used if the caller passes none."""
REDACT_VARIABLE = "COMPACTOR_REDACT_ORIGINALS"
"""Environment variable that decides whether secrets are removed from stored messages, unless the caller does."""
BUSY_TIMEOUT_SECONDS = 2.0
"""Longest wait for another process that writes; a commit takes milliseconds, and an agent's request waits for it."""
FORMAT = 5
"""Version of the store's format: since 4 a store is one table of records, since 5 its keys have 128 bits."""

_EXPECTED = "expected a path, sqlite:///path or postgresql://user@host/name"
_YES, _NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
_CODED = r"%(?!00)[0-9A-Fa-f]{2}"
"""Regular expression for an escaped character in an address: ``%2F``; not ``%00``."""
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^@/?#:,\[\]\s\0]*)(?::[0-9]*)?"
"""Regular expression for a host in an address, with a port or without: ``db.example.org:5432``, ``[::1]``, or empty."""
_SERVER = re.compile(
    rf"postgres(?:ql)?://(?:(?:[^@/?#%\s\0]|{_CODED})*@)?"
    rf"({_HOST}(?:,{_HOST})*(?:/[^@?#\s\0]*)?)(?:\?(?:[^@%\s\0]|{_CODED})*)?"
)
"""Address of a PostgreSQL server: ``postgresql://bob:s3%2Fcret@host/db``. A bare ``/`` in the password is an error."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/.*", re.DOTALL)
"""Text that begins like an address: ``sqlite:///a.db``, ``mysql://host/db``; not ``/tmp/a.db``, ``C:/a.db``."""


def default_path() -> Path:
    """Return the path of the default store file; raise a `StoreError` if the user has no home folder."""
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
    """Open the store at a path, ``sqlite:///path`` or ``postgresql://…``; create it if it does not exist.

    Without a name, ``$COMPACTOR_STORE`` is opened, else `default_path`. PostgreSQL needs the extra ``postgres``.
    `busy_timeout_seconds` is the longest wait for another process. `redact_originals`: store ``[secret]`` in place of
    secrets in messages and states, too, so that they cannot be restored. None takes this setting from
    ``$COMPACTOR_REDACT_ORIGINALS``, which is off by default.

    Raises:
        StoreError: the store cannot be created or opened, or belongs to another program or a newer version; or the
            variable is neither yes nor no.
    """
    if redact_originals is None:
        setting = os.environ.get(REDACT_VARIABLE, "").strip().lower()
        if setting not in _YES + _NO:  # to read a misspelled yes as no would store secrets against the user's will
            raise StoreError(f"${REDACT_VARIABLE}: expected 1 or 0, found {setting[:40]!r}")
        redact_originals = setting in _YES
    name = _name_or_default(url_or_path)
    path = store_file(name)
    if path is None:
        from applier.store.postgres import PostgresBackend

        backend: SqlBackend = PostgresBackend(name, store_place(name), busy_timeout_seconds)
    else:
        backend = SqliteBackend(path, busy_timeout_seconds)
    try:
        if check_format(backend) != FORMAT:
            with backend.transaction(write=True):
                version = _version(backend)  # another process may have been first
                if version == 0:
                    backend.create()
                    backend.rows(f"CREATE TABLE {VERSION_TABLE} (version INTEGER NOT NULL)")
                    backend.rows(f"INSERT INTO {VERSION_TABLE} VALUES ({FORMAT})")
                elif version == OLD_FORMAT:
                    upgrade(backend)
                    backend.rows(f"UPDATE {VERSION_TABLE} SET version = {FORMAT}")
    except BaseException:
        backend.close()
        raise
    return Store(backend, redact_originals=redact_originals)


@contextmanager
def temporary_store() -> Iterator[Store]:
    """Yield a store in a temporary folder, which is deleted afterwards."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "store.db")) as store:
        yield store


def store_file(url_or_path: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the file that `open_store` would open; None for a server. Raise a `StoreError` for an invalid name."""
    name = _name_or_default(url_or_path)
    if _SERVER.fullmatch(name):
        return None
    plain = name.removeprefix("sqlite:///")
    if plain.startswith((":memory:", "file:")):
        raise StoreError(f"{plain[:80]!r}: names no file of its own; originals must outlive the process: give a path")
    if not plain or _ADDRESS.fullmatch(plain):
        escaped = " (of user and password / is %2F, @ is %40, % is %25)" if name.startswith("postgres") else ""
        raise StoreError(f"{name.partition(':')[0][:80]!r} address: {_EXPECTED}{escaped}")
    try:
        os.fsencode(plain)
        if "\0" in plain:
            raise ValueError("a path holds no NUL")
        return Path(plain).expanduser().absolute()
    except (RuntimeError, ValueError, OSError) as error:
        raise StoreError(f"{plain[:80]!r}: no file can be named so ({error}): give the store's path in full") from error


def store_exists(url_or_path: str | os.PathLike[str] | None = None) -> bool:
    """Return False if `open_store` would create a new file. Raise a `StoreError` for an invalid name."""
    file = store_file(url_or_path)
    return file is None or file.exists()


def store_place(url_or_path: str | os.PathLike[str] | None = None) -> str:
    """Return the store's file, or the address of its server without user and password, to be shown to a person."""
    name = _name_or_default(url_or_path)
    server = _SERVER.fullmatch(name)
    return f"postgresql://{server[1]}" if server else str(store_file(name))


def _name_or_default(url_or_path: str | os.PathLike[str] | None) -> str:
    """Return a store's path or address as text; if it is empty or None, the one in ``$COMPACTOR_STORE``, else the
    default path. Raise a `StoreError` for a value that is no text or path."""
    if url_or_path is not None and not isinstance(url_or_path, str | bytes | os.PathLike):
        raise StoreError(f"{type(url_or_path).__name__}: {_EXPECTED}")
    return os.fsdecode(url_or_path or os.environ.get(STORE_VARIABLE) or default_path())


def check_format(backend: SqlBackend) -> int:
    """Return the database's format: `FORMAT`, `OLD_FORMAT`, or 0 without tables. Raise a StoreError for any other."""
    with backend.transaction():
        version = _version(backend)
    if version in (0, OLD_FORMAT, FORMAT):
        return version
    maker, cure = "a newer version", "update relevance-compactor"
    if version < FORMAT:
        maker, cure = "a version from before 0.1.0", "only that reads it: give another file"
    raise StoreError(f"{backend.place}: made by {maker} (store format {version}, this one reads {FORMAT}); {cure}")


def _version(backend: SqlBackend) -> int:
    """Return the format that the database's version table names; 0 if there are no tables."""
    tables = {row[0] for row in backend.rows(backend.tables_sql)}
    if not tables:
        return 0
    if VERSION_TABLE not in tables:
        raise StoreError(f"{backend.place}: not a store of this program; give another file")
    rows = backend.rows(f"SELECT version FROM {VERSION_TABLE}", types=(int,))
    if len(rows) != 1 or rows[0][0] < 1:
        raise StoreDamaged(f"{backend.place}: its version cannot be read; restore it from a backup")
    return int(rows[0][0])


REST_SECONDS = 30.0
"""Time in seconds after a failure to write to the store, during which nothing is written and nothing compacted."""


def within(seconds: float, since: float | None, now: float) -> bool:
    """Return True if less than `seconds` have passed from `since` to `now`. Return False if `since` is None (nothing
    happened yet) or after `now` (the clock was set back, so that a wait could take years)."""
    return since is not None and 0 <= now - since < seconds


class SessionStore:
    """Store of a session and of its subagents' sessions, opened when it is first needed."""

    def __init__(self, store: Store | str | Path | None, patience_seconds: float | None = None) -> None:
        """Use `store`: an open store, which the caller closes, the path of one, or None for the default one.

        If the store is on a server, and not the caller's, an operation that takes longer than `patience_seconds` is
        broken off.

        Raises:
            SettingsError: `store` is none of these.
        """
        self._path: str | Path | None = None
        self._patience = patience_seconds
        self._store: Store | None = None
        """Open store; None before its first use. If two threads open it at once, the store of the first one is kept.
        There is no lock, because a lock could stay locked for ever after a fork."""
        if store is None or isinstance(store, str | os.PathLike):
            self._path = store
        elif hasattr(store, "save_history"):
            self._store = store
        else:
            raise SettingsError(f"store: expected a store, a path or None, found {type(store).__name__}")
        self._is_callers = self._store is not None
        self._saved = SavedChain()
        self.folder, self.clock = "", time.time
        """Working folder of the conversation, and function that returns the time; noted with each saved history."""
        self.opening = 0
        """Number of times that the store was opened again because its file was gone, with all that was in it."""
        self.failed_at: float | None = None
        """Time at which the store last failed to save something; None if it works."""

    @property
    def may_write(self) -> bool:
        """True unless the store failed within `REST_SECONDS`. Nothing is compacted while it is False."""
        return not within(REST_SECONDS, self.failed_at, self.clock())

    def note_failure(self, error: Exception) -> None:
        """Note that the store failed with `error`, so that no session writes to it for `REST_SECONDS`. A damaged record
        has no such effect, as other conversations may be sound."""
        if not isinstance(error, StoreDamaged):
            self.failed_at = self.clock()

    @property
    def exists(self) -> bool:
        """True if reading from the store creates no file. Raise a StoreError if its name is invalid."""
        return self._is_callers or store_exists(self._path)

    @property
    def is_open(self) -> bool:
        """True after the store's first use."""
        return self._store is not None

    def use(self, act: Callable[[Store], T]) -> T:
        """Open the store if needed, call `act` with it, and return the result.

        If the store's file was removed or replaced meanwhile, open the store again and call `act` once more, unless the
        caller opened the store.

        Raises:
            StoreError: the store cannot be opened, or `act` raised an error.
        """
        try:
            store = self._open()
            try:
                return act(store)
            except StoreReplaced:
                if self._is_callers:
                    raise
            if self._store is store:  # no other thread has opened it again
                self.opening += 1
                self.close()
            return act(self._open())
        except StoreError:
            raise
        except Exception as error:
            raise StoreError(f"{type(error).__name__}: {error}") from error

    def save(self, history: History) -> str:
        """Store `history` and the folder of its conversation; return the history's key. Its messages must never be
        edited afterwards: the next call recognizes the same objects, and does not store them again.

        Raises:
            StoreError: the history could not be saved.
        """

        def act(store: Store) -> str:
            saved = self._saved = store.save_longer(history, self._saved)  # another thread may replace it at once
            if self.folder:
                store.note_origin(saved.key, self.folder, self.clock())
            return saved.key

        return self.use(act)

    def _open(self) -> Store:
        """Return the store, opened if it is not open yet."""
        opened = open_store(self._path) if self._store is None else self._store
        if self._store is None:
            opened.backend.patience_seconds = self._patience
            self._store = opened
        elif opened is not self._store:  # another thread has opened it in the meantime
            opened.close()
        return self._store

    def close(self) -> None:
        """Close the store, unless the caller opened it."""
        if self._store is not None and not self._is_callers:
            store, self._store = self._store, None
            store.close()
