"""Checks who may use the proxy: every request passes here first and is let in, refused or logged.

In a team each person has a token and a daily quota. The proxy never forwards a token; the store, which all proxies of
the team share, contains only its digest. Each process writes a record of what each person spent on a day, and the sum
of all records counts. While the store cannot be reached, the last known tokens and amounts apply, and new amounts are
written later.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from applier.adapters.proxy.configuration import LOOPBACK_HOSTS, LimitTable, ProxySettings
from applier.adapters.proxy.conversations import CREDENTIALS, NAME_HEADER, PERSON_HEADER
from applier.adapters.proxy.metrics import PERSON, Metrics
from applier.adapters.proxy.upstreams import RefusedError, destination_of, host_of, may_use_team_key, with_version
from applier.store import Store
from applier.store.opening import SessionStore
from planner.errors import SettingsError, StoreError

TOKEN_START = "cpt_"
"""Beginning of every token; no provider's key begins like this."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Name of a person: ``ada``, ``ci-1``; not ``a b``, ``../x``, nor a text that breaks a line of a log or a metric."""
_TOKENS, _SPENT = "proxy-token:", "proxy-spent:"
"""Beginnings of the names of records in the store: of a person's token, and of what a person spent in a process."""
_READ_SECONDS = 1.0
"""Seconds after which tokens and amounts are read from the store again: a revoked token may work until then."""
_PAUSE_SECONDS = 5.0
"""Pause in writing after the store failed, because each attempt may wait for the database's time-out."""
_logger = logging.getLogger("applier.proxy")


@dataclass(frozen=True)
class Token:
    """Record of a person's token in the store. It does not contain the token itself."""

    name: str
    digest: str
    created: float
    revoked: float | None = None
    """Time when the token was revoked, in seconds since the epoch; None if the token is valid."""


def create_token(store: Store, name: str, now: float) -> str:
    """Return a new token by which the person `name` may use the proxy. It cannot be shown again, as only its digest is
    stored. `now`: seconds since the epoch. Raise SettingsError if they have one already, or the name is not allowed."""
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{name[:80]!r}: a person's name has letters, digits, '.', '_' and '-', at most 64")
    if any(token.name == name and token.revoked is None for token in list_tokens(store)):
        raise SettingsError(f"{name} has a token: revoke it first (`compactor proxy token revoke {name}`)")
    token = TOKEN_START + secrets.token_urlsafe(32)
    store.set_state(_TOKENS + name, {"name": name, "digest": _digest(token), "created": now, "revoked": None})
    return token


def revoke_token(store: Store, name: str, now: float) -> None:
    """Mark the token of `name` as revoked at `now`, in seconds; raise SettingsError if there is none."""
    valid = (token for token in list_tokens(store) if token.revoked is None)
    token = next((token for token in valid if token.name == name), None)
    if token is None:
        raise SettingsError(f"{name[:80]!r} has no token: `compactor proxy token list` shows who has")
    store.set_state(_TOKENS + name, {**vars(token), "revoked": now})


def list_tokens(store: Store) -> list[Token]:
    """Return the records of all tokens, sorted by person, revoked ones included."""
    return [Token(**record) for _, record in sorted(store.states(_TOKENS).items())]


def _digest(token: str) -> str:
    """Return a digest by which a `token` can be checked but not restored. It is written with blanks, because a store
    may remove a text that looks like a key. A token is random, so the digest needs no salt."""
    digits = sha256(token.encode()).hexdigest()
    return " ".join(digits[at : at + 8] for at in range(0, len(digits), 8))


_SpentKey = tuple[str, str, str]
"""Key under which an amount is counted: day in UTC (``2026-05-01``), person, and unit (``tokens`` or ``dollars``)."""


class People:
    """People of a team with tokens and quotas: finds a token's owner, and counts what each spends. Thread-safe."""

    def __init__(
        self, store: SessionStore, limit_of: Callable[[str], LimitTable], now: Callable[[], float] = time.time
    ) -> None:
        """Read tokens and spent amounts from the store; raise StoreError if that fails. `limit_of` returns the quota of
        a person; `now` returns seconds since the epoch."""
        self._store, self._limit_of, self._now = store, limit_of, now
        self._process = secrets.token_hex(8)
        """Name of this process in the records that it writes."""
        self._spent: Counter[_SpentKey] = Counter()
        """Amounts that people spent through this process."""
        self._spent_elsewhere: Counter[_SpentKey] = Counter()
        """Amounts that people spent today through other processes, as last read from the store."""
        self._digests: dict[str, str] = {}
        """Digests of valid tokens by person."""
        self._read_at, self._failed_at, self._day = now(), 0.0, ""
        self._lock = threading.Lock()
        store.use(self._read)

    def person(self, token: str) -> str:
        """Return the name of the person with this `token`; empty if no valid token is like it."""
        self._refresh()
        wanted_digest, name = _digest(token), ""
        for person, digest in self._digests.items():  # always compare all, so that the time taken reveals nothing
            name = person if hmac.compare_digest(digest, wanted_digest) else name
        return name

    def wait_seconds(self, person: str) -> int:
        """Return 0 if `person` has some of today's quota left, else the seconds until the next begins (0:00 UTC)."""
        limit, spent = self._limit_of(person), self.spent(person)
        bounds = ((limit.tokens_a_day, spent["tokens"]), (limit.dollars_a_day, spent["dollars"]))
        if all(bound is None or amount < bound for bound, amount in bounds):
            return 0
        now = datetime.fromtimestamp(self._now(), UTC)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        return max(1, round((midnight - now).total_seconds()))

    def spent(self, person: str) -> dict[str, float]:
        """Return what `person` spent today through all processes: ``{"tokens": 1200, "dollars": 0.01}``."""
        keys = {unit: (self._today(), person, unit) for unit in ("tokens", "dollars")}
        return {unit: self._spent[key] + self._spent_elsewhere[key] for unit, key in keys.items()}

    def spend(self, person: str, tokens: int, dollars: float) -> None:
        """Add to what `person` spent today through this process, and write the sum to the store, unless the store
        failed in the last few seconds."""
        day = self._today()
        with self._lock:
            for unit, amount in (("tokens", tokens), ("dollars", dollars)):
                self._spent[day, person, unit] += amount  # type: ignore[assignment]
            record = {unit: self._spent[day, person, unit] for unit in ("tokens", "dollars")}
            if not 0 <= self._now() - self._failed_at < _PAUSE_SECONDS:
                self._try(lambda store: store.set_state(f"{_SPENT}{day}:{person}:{self._process}", record))

    def close(self) -> None:
        """Write today's amounts once more, as the store may have failed when they were spent."""
        self._failed_at = 0.0
        for day, person in {(day, person) for day, person, _ in self._spent}:
            if day == self._today():
                self.spend(person, 0, 0.0)

    def _today(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%d")

    def _refresh(self) -> None:
        """Read tokens and amounts again if the last reading is more than a second old."""
        if not 0 <= self._now() - self._read_at < _READ_SECONDS:
            self._read_at = self._now()  # set first, so that other threads do not read at the same time
            self._try(self._read)

    def _try(self, act: Callable[[Store], object]) -> None:
        """Call `act` with the store. If the store fails, log it, note the time and go on: requests must not fail."""
        try:
            self._store.use(act)
        except StoreError as error:
            self._failed_at = self._now()
            _logger.warning("the last known tokens and quotas apply: %s", error)

    def _read(self, store: Store) -> None:
        """Read the tokens, and what was spent today through other processes; delete the records of earlier days."""
        day = self._today()
        tokens, records = list_tokens(store), store.states(f"{_SPENT}{day}:")
        elsewhere: Counter[_SpentKey] = Counter()
        for key, record in records.items():
            _, _, person, process = key.split(":")
            for unit in ("tokens", "dollars") if process != self._process else ():
                elsewhere[day, person, unit] += record[unit]
        self._digests = {token.name: token.digest for token in tokens if token.revoked is None}
        self._spent_elsewhere = elsewhere
        if day != self._day:
            for key in store.states(_SPENT):
                if key.split(":")[1] < day:
                    store.set_state(key, None)
            self._day = day


TOKEN_HEADER = "x-compactor-token"
"""Header of a request that contains the proxy's token, or the person's in a team."""
_OPEN_PATHS = ("/health", "/ready")
"""Paths that need no token, for load balancers and supervisors."""
_LOGGED_CHARACTERS = 80
"""Number of characters of a path that logs and errors show."""


class Entrance:
    """Middleware in front of the proxy: lets a request in or refuses it, and logs the status of the answer.

    If the settings have a token (the proxy's own), every request needs it. If a team's people have tokens, it needs one
    of these instead, and to post its person must have quota left. `_OPEN_PATHS` need none. A proxy on loopback accepts
    only host names of loopback, unless people have tokens. Requests from pages of another origin are refused.
    """

    def __init__(self, app: ASGIApp, settings: ProxySettings, metrics: Metrics, people: People | None) -> None:
        """Pass admitted requests to `app`, and count them in `metrics`. `people`: None if people have no tokens."""
        self.app, self.settings, self.metrics, self.people = app, settings, metrics, people
        self._secret_path = f"/{settings.own.secret}"
        secrets_by_header = {NAME_HEADER: settings.own.secret, TOKEN_HEADER: settings.token}
        self._secret_headers = [(name.encode(), value.encode()) for name, value in secrets_by_header.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with an error, and log it."""
        if scope["type"] != "http":  # start and end of the server
            await self.app(scope, receive, send)
            return
        scope, started = self._with_api_path(scope), time.perf_counter()
        status = 499  # as logged if the client disconnects before the answer

        async def send_and_note(message: Message) -> None:
            """Send a part of the answer; note the status and the time when the answer begins."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if scope["path"] not in (*_OPEN_PATHS, "/metrics"):
                    self.metrics.seconds("first_byte_seconds", time.perf_counter() - started)
            await send(message)

        headers = Headers(scope=scope)
        try:
            admitted = {**scope, "headers": await self._admit(scope, headers)}
        except RefusedError as error:
            await error.answer(scope["path"], headers)(scope, receive, send_and_note)
        else:
            await self.app(admitted, receive, send_and_note)
        finally:
            _log(scope, status, time.perf_counter() - started)

    def _with_api_path(self, scope: Scope) -> Scope:
        """Return the request `scope` with the path of the provider's API, such as ``/v1/messages``.

        An agent that the proxy was started for and that cannot set headers has a secret at the start of its path. The
        secret is moved to a header, and the proxy's token is added.
        """
        path, raw, headers = scope["path"], scope.get("raw_path", b""), scope["headers"]
        if len(self._secret_path) > 1 and path.startswith(f"{self._secret_path}/"):
            length = len(self._secret_path)
            path, raw, headers = path[length:], raw[length:], [*headers, *self._secret_headers]
        added = with_version(path).removesuffix(path)
        return {**scope, "path": added + path, "raw_path": added.encode() + raw, "headers": headers}

    async def _admit(self, scope: Scope, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Return the headers with which the request is passed on; raise RefusedError if it may not pass."""
        host, origin, token = headers.get("host", ""), headers.get("origin"), self.settings.token
        if self.settings.is_loopback and self.people is None and host_of(f"//{host}") not in LOOPBACK_HOSTS:
            raise RefusedError(403, "permission_error", f"host {host!r} is not this machine")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise RefusedError(403, "permission_error", "requests of other sites' pages are refused")
        if "content-length" in headers and "transfer-encoding" in headers:
            # a reader that believes the other length would take the rest for a second request (RFC 9112, 6.1)
            problem = "content-length and transfer-encoding: send one of them"
            raise RefusedError(400, "invalid_request_error", problem, closes=True)
        if not scope["path"].startswith("/"):
            raise RefusedError(400, "invalid_request_error", "ask for a path, such as /v1/messages")
        raw = [pair for pair in headers.raw if pair[0].lower() != PERSON_HEADER.encode()]  # no client may claim a name
        is_open = scope["path"] in _OPEN_PATHS
        if self.people is not None and not is_open:
            raw = await self._as_person(self.people, scope, headers, raw)
        elif token and not is_open and not has_token(headers, token):
            raise RefusedError(401, "authentication_error", f"the header {TOKEN_HEADER} must hold the proxy's token")
        self.metrics.add("arrivals")
        return raw

    async def _as_person(
        self, people: People, scope: Scope, headers: Headers, raw: list[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        """Return the headers `raw` with the person's name in place of their token, and the team's key for the provider
        if there is one. Raise RefusedError for a wrong token, a spent quota, or if there is no key for the provider."""
        header, token = _token_of(headers)
        person = await anyio.to_thread.run_sync(people.person, token) if token else ""
        if not person:
            problem = "this token is not known, or was revoked" if token else "no token"
            cure = f"send yours in {TOKEN_HEADER}, or in place of the provider's key"
            raise RefusedError(401, "authentication_error", f"{problem}: {cure}")
        PERSON.set(person)
        if scope["path"] == "/metrics":  # the proxy answers it itself
            return raw
        if scope["method"] == "POST" and (seconds := people.wait_seconds(person)):
            problem = f"{person} has spent the quota of this day; the next begins in {seconds} seconds, at 00:00 UTC"
            raise RefusedError(429, "rate_limit_error", problem, seconds)
        key = self._operator_key(scope, headers)
        if key is None and header != TOKEN_HEADER:  # the token is where the person's own key should be
            problem = f"the proxy has no key for this upstream: send yours, and the token in {TOKEN_HEADER}"
            raise RefusedError(401, "authentication_error", problem)
        removed = {TOKEN_HEADER, *(CREDENTIALS if key else ())}
        kept = [pair for pair in raw if pair[0].lower().decode("latin-1") not in removed]
        added = {PERSON_HEADER: person, **dict([key] if key else [])}
        return [*kept, *((name.encode(), value.encode()) for name, value in added.items())]

    def _operator_key(self, scope: Scope, headers: Headers) -> tuple[str, str] | None:
        """Return the header (name, value) with the team's key for the provider; None if people send their own keys.
        Raise RefusedError for a path on which the team's key may not be used."""
        key = destination_of(self.settings.upstreams, scope["path"], headers).key
        path = scope["raw_path"].decode("latin-1")
        if key is not None and not may_use_team_key(self.settings.upstreams, scope["method"], path):
            problem = "the team's key goes out on the paths that agents need"
            cure = f"{problem}; upstreams.paths in the proxy's file adds others"
            raise RefusedError(403, "permission_error", f"{scope['path'][:_LOGGED_CHARACTERS]}: {cure}")
        return key


def has_token(headers: Mapping[str, str], token: str) -> bool:
    """Return True if a request's `headers` contain the proxy's `token`; if `token` is empty, if they contain none."""
    return hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), token.encode())


def _token_of(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the header that contains a person's token, and the token; both empty if there is none. A
    client that cannot set the proxy's header may send the token in place of the provider's key."""
    if token := headers.get(TOKEN_HEADER, ""):
        return TOKEN_HEADER, token
    credentials = ((name, headers.get(name, "").rpartition(" ")[2]) for name in CREDENTIALS)  # without ``Bearer``
    return next((pair for pair in credentials if pair[1].startswith(TOKEN_START)), ("", ""))


def _log(scope: Scope, status: int, seconds: float) -> None:
    """Log one line about a request: person, method, path, status, duration. The path's query is left out as private."""
    path = scope["raw_path"].partition(b"?")[0].decode("latin-1")[:_LOGGED_CHARACTERS]
    level = logging.WARNING if status >= 400 else logging.DEBUG if path in _OPEN_PATHS else logging.INFO
    _logger.log(level, "%s %s %s %d %.3fs", PERSON.get() or "-", scope["method"], ascii(path)[1:-1], status, seconds)


class WithoutTexts(logging.Formatter):
    """Formatter that keeps content of conversations out of the proxy's log. It shows kind and sizes of a session's
    event, and only the place in the code of other modules' messages."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        """Return `record` as a log line without content of conversations."""
        event = getattr(record, "compactor_event", None)
        if event is not None:
            sizes = f"{event['tokens_before']} -> {event['tokens_after']} tokens"
            record.message = f"{event['session_id']} {event['kind']} {event['tier']} {sizes}"
        elif record.name != _logger.name:
            record.message = f"{record.module}:{record.lineno}"
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return the name of the error's class, without its text."""
        return str(ei[0].__name__)
