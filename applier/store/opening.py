"""Opens a store: a named file, the file in the user's state folder, or a PostgreSQL database; checks its format, and
upgrades format 4, whose keys and plan ids had 8 hex digits, to format 5, whose keys have 32.

Only states and events had short forms. A state with a short form that fits two histories is removed, and its session
begins again from its host's whole list.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from applier.store.backend import VERSION_TABLE, Backend, SqlBackend
from applier.store.forgetting import state_name
from applier.store.records import encode, pack, parts, plan_keys, read
from applier.store.sqlite import SqliteBackend
from applier.store.store import Store
from planner.errors import StoreDamaged, StoreError
from planner.placeholders import KEY_DIGITS
from planner.reading.messages import to_json

OLD_FORMAT = 4
_SHORT = re.compile(r"([hp][0-9a-f]{8})((?::t[1-9][0-9]*)?)")
"""``h1a2b3c4d``, ``h1a2b3c4d:t12``, ``p1a2b3c4d`` as a whole text."""
_NAME = re.compile(r"(.*:)(h[0-9a-f]{8})", re.DOTALL)
"""``origin:h1a2b3c4d``: a state's name that ends with a key."""
_EXACT = "head", "messages", "content"
"""Fields that contain messages, which stay byte for byte."""


class WholeNames:
    """Keys and plan ids in full length, for the short ones in the states and events of one store."""

    def __init__(self, backend: Backend) -> None:
        """Read the names of all histories and plans, within a transaction."""
        histories = (("h", key.partition("/")[2]) for key in backend.keys("history/"))
        plans = (("p", plan.digest) for plan in plan_keys(backend))
        self._whole: dict[str, set[str]] = defaultdict(set)
        for letter, digest in (*histories, *plans):
            self._whole[f"{letter}{digest[:8]}"].add(f"{letter}{digest[:KEY_DIGITS]}")

    def state(self, name: str, value: Any) -> tuple[str, Any] | None:
        """Return a state's name and value with keys and ids in full length; None if one fits none or several."""
        unknown: list[str] = []
        value = self._replaced(value, unknown)
        if match := _NAME.fullmatch(name):
            name = match[1] + self._whole_name(match[2], unknown)
        return None if unknown else (name, value)

    def event(self, value: Any) -> Any:
        """Return an event with keys and ids in full length, where a short one fits exactly one."""
        return self._replaced(value, [])

    def _replaced(self, value: Any, unknown: list[str]) -> Any:
        """Return JSON data with keys and ids in full length; add those that fit none or several to `unknown`."""
        if isinstance(value, dict):
            return {key: one if key in _EXACT else self._replaced(one, unknown) for key, one in value.items()}
        if isinstance(value, list):
            return [self._replaced(one, unknown) for one in value]
        match = _SHORT.fullmatch(value) if isinstance(value, str) else None
        return self._whole_name(match[1], unknown) + match[2] if match else value

    def _whole_name(self, short: str, unknown: list[str]) -> str:
        """Return the full length of `short`; unchanged, and added to `unknown`, if it fits none or several."""
        whole = self._whole.get(short, set())
        if len(whole) == 1:
            return next(iter(whole))
        unknown.append(short)
        return short


def upgrade(backend: Backend) -> None:
    """Replace short keys and ids in the states and events of `backend` by their full length. The caller has begun a
    transaction that writes. A state that cannot be replaced is removed."""
    names = WholeNames(backend)
    for key, content in _each(backend, backend.keys("state/")):
        old = state_name(key), json.loads(content)
        new = names.state(*old)
        if new != old:
            backend.remove([key])
            backend.add({f"state/{to_json(new[0])}": pack(encode(new[1], key))} if new else {})
    for key, content in _each(backend, backend.keys("event/")):
        event = json.loads(content)
        if (whole := names.event(event)) != event:
            backend.remove([key])
            backend.add({key: pack(encode(whole, key))})


def _each(backend: Backend, keys: Iterable[str]) -> Iterable[tuple[str, bytes]]:
    for some in parts(list(keys)):
        contents: Mapping[str, bytes] = read(backend, some)
        yield from contents.items()


STORE_VARIABLE = "COMPACTOR_STORE"
"""Environment variable with the store's name, used if the caller passes none."""
REDACT_VARIABLE = "COMPACTOR_REDACT_ORIGINALS"
"""Environment variable for redacting originals, if the caller does not decide."""
BUSY_TIMEOUT_SECONDS = 2.0
"""Time to wait for another process; a commit takes milliseconds, and an agent's request waits for it."""
FORMAT = 5
"""Version of the format: since 4 a store is one table of records, since 5 its keys have 128 bits."""

_EXPECTED = "expected a path, sqlite:///path or postgresql://user@host/name"
_YES, _NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
_CODED = r"%(?!00)[0-9A-Fa-f]{2}"
"""Escaped character: ``%2F``; not ``%00``."""
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^@/?#:,\[\]\s\0]*)(?::[0-9]*)?"
"""Host with or without a port: ``db.example.org:5432``, ``[::1]``, or nothing."""
_SERVER = re.compile(
    rf"postgres(?:ql)?://(?:(?:[^@/?#%\s\0]|{_CODED})*@)?"
    rf"({_HOST}(?:,{_HOST})*(?:/[^@?#\s\0]*)?)(?:\?(?:[^@%\s\0]|{_CODED})*)?"
)
"""Address of a server: ``postgresql://bob:s3%2Fcret@host/db``; not with a bare ``/``, which errors would show."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/.*", re.DOTALL)
"""``sqlite:///a.db``, ``mysql://host/db``; not ``/tmp/a.db``, ``a.db``, ``C:/a.db``."""


def default_path() -> Path:
    """Return the default file of the store; raise a `StoreError` if the user has no home folder."""
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
    `busy_timeout_seconds` is the longest wait for another process. With `redact_originals` histories and states are
    stored without secrets, too; restored content then has ``[secret]`` instead of them. None takes this setting from
    ``$COMPACTOR_REDACT_ORIGINALS``, which is off by default.

    Raises:
        StoreError: the store cannot be created or opened, or belongs to another program or a newer version; or the
            variable is neither yes nor no.
    """
    redacts = _redacts() if redact_originals is None else redact_originals
    name = _name(url_or_path)
    path = store_file(name)
    if path is None:
        from applier.store.postgres import PostgresBackend

        backend: SqlBackend = PostgresBackend(name, store_place(name), busy_timeout_seconds)
    else:
        backend = SqliteBackend(path, busy_timeout_seconds)
    try:
        if check_format(backend) != FORMAT:
            with backend.transaction(write=True):
                _bring_to_format(backend, _version(backend))  # another process may have been first
    except BaseException:
        backend.close()
        raise
    return Store(backend, redact_originals=redacts)


@contextmanager
def temporary_store() -> Iterator[Store]:
    """Yield a store in a temporary folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "store.db")) as store:
        yield store


def store_file(url_or_path: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the file that `open_store` would open, None for a server; raise a `StoreError` for an invalid name."""
    name = _name(url_or_path)
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


def store_place(url_or_path: str | os.PathLike[str] | None = None) -> str:
    """Return the store's file or server without user and password."""
    name = _name(url_or_path)
    server = _SERVER.fullmatch(name)
    return f"postgresql://{server[1]}" if server else str(store_file(name))


def _name(url_or_path: str | os.PathLike[str] | None) -> str:
    if url_or_path is not None and not isinstance(url_or_path, str | bytes | os.PathLike):
        raise StoreError(f"{type(url_or_path).__name__}: {_EXPECTED}")
    return os.fsdecode(url_or_path or os.environ.get(STORE_VARIABLE) or default_path())


def _redacts() -> bool:
    setting = os.environ.get(REDACT_VARIABLE, "").strip().lower()
    if setting not in _YES + _NO:  # to read a misspelled yes as no would store secrets against the user's will
        raise StoreError(f"${REDACT_VARIABLE}: expected 1 or 0, found {setting[:40]!r}")
    return setting in _YES


def _bring_to_format(backend: SqlBackend, version: int) -> None:
    """Make the tables of a new store, or upgrade those of an old one."""
    if version == 0:
        backend.create()
        backend.rows(f"CREATE TABLE {VERSION_TABLE} (version INTEGER NOT NULL)")
        backend.rows(f"INSERT INTO {VERSION_TABLE} VALUES ({FORMAT})")
    elif version == OLD_FORMAT:
        upgrade(backend)
        backend.rows(f"UPDATE {VERSION_TABLE} SET version = {FORMAT}")


def check_format(backend: SqlBackend) -> int:
    """Return the format of the tables: this version's, `OLD_FORMAT`, or 0 if there are none yet."""
    with backend.transaction():
        version = _version(backend)
    if version in (0, OLD_FORMAT, FORMAT):
        return version
    maker, cure = "a newer version", "update relevance-compactor"
    if version < FORMAT:
        maker, cure = "a version from before 0.1.0", "only that reads it: give another file"
    raise StoreError(f"{backend.place}: made by {maker} (store format {version}, this one reads {FORMAT}); {cure}")


def _version(backend: SqlBackend) -> int:
    """Return the format of the existing tables; 0 without any."""
    tables = {row[0] for row in backend.rows(backend.tables_sql)}
    if not tables:
        return 0
    if VERSION_TABLE not in tables:
        raise StoreError(f"{backend.place}: not a store of this program; give another file")
    rows = backend.rows(f"SELECT version FROM {VERSION_TABLE}", types=(int,))
    if len(rows) != 1 or rows[0][0] < 1:
        raise StoreDamaged(f"{backend.place}: its version cannot be read; restore it from a backup")
    return int(rows[0][0])
