"""The door of the proxy: who comes in, as whom his request goes on, and the line that is noted of it.

Every request passes here before anything else looks at it. What a person shows to come in never goes further.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Mapping
from typing import Any

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from applier.adapters.proxy.configuration import LOOPBACK_HOSTS, ProxySettings
from applier.adapters.proxy.conversations import CREDENTIALS, NAME_HEADER, PERSON_HEADER
from applier.adapters.proxy.metrics import PERSON, Metrics
from applier.adapters.proxy.people import TOKEN_START, People
from applier.adapters.proxy.upstreams import RefusedError, host_of, way_of

__all__ = ["TOKEN_HEADER", "Entrance", "WithoutTexts", "shows_token"]

TOKEN_HEADER = "x-compactor-token"
_OPEN = ("/health", "/ready")
"""Asked by who has no token: a balancer, a supervisor."""
_PATH_CHARACTERS = 80
_LOGGER = "applier.proxy"
_logger = logging.getLogger(_LOGGER)


class Entrance:
    """Lets in what may come in, and notes what became of it.

    A loopback proxy answers to loopback names only, none answers another site's page. Where a token is set every
    request needs it; where people have tokens of their own, each is let in by his, within his quota.
    """

    def __init__(self, app: ASGIApp, settings: ProxySettings, metrics: Metrics, people: People | None) -> None:
        """In front of `app`."""
        self.app, self.settings, self.metrics, self.people = app, settings, metrics, people
        self._front = f"/{settings.own[0]}"
        shown = {NAME_HEADER: settings.own[0], TOKEN_HEADER: settings.token}
        self._shown = [(name.encode(), value.encode()) for name, value in shown.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let it in, or answer it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope, started, status = self._named(scope), time.perf_counter(), 499

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if scope["path"] not in (*_OPEN, "/metrics"):
                    self.metrics.seconds("first_byte_seconds", time.perf_counter() - started)
            await send(message)

        headers = Headers(scope=scope)
        try:
            within = {**scope, "headers": await self._let_in(scope["method"], scope["path"], headers)}
        except RefusedError as error:
            await error.answer(scope["path"], headers)(scope, receive, noting)
        else:
            await self.app(within, receive, noting)
        finally:
            _note(scope, status, time.perf_counter() - started)

    def _named(self, scope: Scope) -> Scope:
        """A request whose path begins with the secret of the own client becomes one that shows it, and the token, in
        headers: not every client can be told to send some."""
        if len(self._front) > 1 and scope.get("path", "").startswith(f"{self._front}/"):
            behind = {key: scope[key][len(self._front) :] for key in ("path", "raw_path")}
            return {**scope, **behind, "headers": [*scope["headers"], *self._shown]}
        return scope

    async def _let_in(self, method: str, path: str, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The headers that the request goes on with.

        Raises:
            RefusedError: it may not come in.
        """
        host, origin, token = headers.get("host", ""), headers.get("origin"), self.settings.token
        if self.settings.is_loopback and self.people is None and host_of(f"//{host}") not in LOOPBACK_HOSTS:
            raise RefusedError(403, "permission_error", f"host {host!r} is not this machine")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise RefusedError(403, "permission_error", "requests of other sites' pages are refused")
        raw = [pair for pair in headers.raw if pair[0].lower() != PERSON_HEADER.encode()]
        if self.people is not None and path not in _OPEN:
            raw = await self._as_person(self.people, method, path, headers, raw)
        elif token and path not in _OPEN and not shows_token(headers, token):
            raise RefusedError(401, "authentication_error", f"the header {TOKEN_HEADER} must hold the proxy's token")
        self.metrics.add("arrivals")
        return raw

    async def _as_person(
        self, people: People, method: str, path: str, headers: Headers, raw: list[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        """`raw` without the token, with the name of who it is, and with the operator's key if he has one there."""
        name, token = _token_of(headers)
        person = await anyio.to_thread.run_sync(people.person, token) if token else ""
        if not person:
            problem = "this token is not known, or was revoked" if token else "no token"
            cure = f"send yours in {TOKEN_HEADER}, or in place of the provider's key"
            raise RefusedError(401, "authentication_error", f"{problem}: {cure}")
        PERSON.set(person)
        if path == "/metrics":
            return raw
        if method == "POST" and (seconds := people.wait_seconds(person)):
            problem = f"{person} has spent the quota of this day; the next begins in {seconds} seconds, at 00:00 UTC"
            raise RefusedError(429, "rate_limit_error", problem, seconds)
        key = way_of(self.settings.upstreams, path, headers).key
        if key is None and name != TOKEN_HEADER:
            problem = f"the proxy has no key for this upstream: send yours, and the token in {TOKEN_HEADER}"
            raise RefusedError(401, "authentication_error", problem)
        left_out = {TOKEN_HEADER, *(CREDENTIALS if key else ())}
        own = [pair for pair in raw if pair[0].lower().decode("latin-1") not in left_out]
        added = {PERSON_HEADER: person, **dict([key] if key else [])}
        return [*own, *((header.encode(), value.encode()) for header, value in added.items())]


def shows_token(headers: Mapping[str, str], token: str) -> bool:
    """True if a request shows the proxy's `token`; where that is empty, if it shows none."""
    return hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), token.encode())


def _token_of(headers: Mapping[str, str]) -> tuple[str, str]:
    """The header that holds a person's token, and the token; both empty if none does."""
    if token := headers.get(TOKEN_HEADER, ""):
        return TOKEN_HEADER, token
    shown = ((name, headers.get(name, "").rpartition(" ")[2]) for name in CREDENTIALS)
    return next((pair for pair in shown if pair[1].startswith(TOKEN_START)), ("", ""))


def _note(scope: Scope, status: int, seconds: float) -> None:
    """One line of a request, without its query: what stands there is the client's."""
    path = scope.get("raw_path", b"").partition(b"?")[0].decode("latin-1")[:_PATH_CHARACTERS]
    level = logging.DEBUG if path in _OPEN and status < 400 else logging.WARNING if status >= 400 else logging.INFO
    _logger.log(level, "%s %s %s %d %.3fs", PERSON.get() or "-", scope["method"], ascii(path)[1:-1], status, seconds)


class WithoutTexts(logging.Formatter):
    """Lines of a log that quote nobody: what others than the proxy report is said by what, where and how much."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        """The line of `record`."""
        event = getattr(record, "compactor_event", None)
        if event is not None:
            sizes = f"{event['tokens_before']} -> {event['tokens_after']} tokens"
            record.message = f"{event['session_id']} {event['kind']} {event['tier']} {sizes}"
        elif record.name != _LOGGER:
            record.message = f"{record.module}:{record.lineno}"
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Its kind alone."""
        return str(ei[0].__name__)
