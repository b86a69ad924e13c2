"""Entrance of the proxy: checks each request, sets its owner and key, and logs it.

Every request passes here first. Tokens of the proxy are not forwarded.
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
from applier.adapters.proxy.quotas import TOKEN_START, People
from applier.adapters.proxy.upstreams import RefusedError, host_of, opens, way_of, with_version

TOKEN_HEADER = "x-compactor-token"
_OPEN_PATHS = ("/health", "/ready")
"""Paths without a token, for balancers and supervisors."""
_LOGGED_CHARACTERS = 80
_LOGGER = "applier.proxy"
_logger = logging.getLogger(_LOGGER)


class Entrance:
    """Lets requests in or refuses them, and logs the status of each.

    A proxy on loopback accepts only loopback host names, and no proxy answers pages of another site. If the settings
    have a token, every request needs it. If people have tokens, a request needs its sender's, who must have quota left.
    """

    def __init__(self, app: ASGIApp, settings: ProxySettings, metrics: Metrics, people: People | None) -> None:
        """Pass admitted requests to `app`, and count them in `metrics`. `people`: None if people have no tokens."""
        self.app, self.settings, self.metrics, self.people = app, settings, metrics, people
        self._front = f"/{settings.own.secret}"
        shown = {NAME_HEADER: settings.own.secret, TOKEN_HEADER: settings.token}
        self._shown = [(name.encode(), value.encode()) for name, value in shown.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with an error."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope, started, status = self._plain(scope), time.perf_counter(), 499  # 499: the client left without an answer

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if scope["path"] not in (*_OPEN_PATHS, "/metrics"):
                    self.metrics.seconds("first_byte_seconds", time.perf_counter() - started)
            await send(message)

        headers = Headers(scope=scope)
        try:
            within = {**scope, "headers": await self._let_in(scope, headers)}
        except RefusedError as error:
            await error.answer(scope["path"], headers)(scope, receive, noting)
        else:
            await self.app(within, receive, noting)
        finally:
            _log(scope, status, time.perf_counter() - started)

    def _plain(self, scope: Scope) -> Scope:
        """Return `scope` with the path of the API, ``/v1`` included. A client that can send no headers has the secret
        of the own client at the beginning of its path; the secret and the proxy's token become headers."""
        path, raw, headers = scope["path"], scope.get("raw_path", b""), scope["headers"]
        if len(self._front) > 1 and path.startswith(f"{self._front}/"):
            front = len(self._front)
            path, raw, headers = path[front:], raw[front:], [*headers, *self._shown]
        added = with_version(path).removesuffix(path)
        return {**scope, "path": added + path, "raw_path": added.encode() + raw, "headers": headers}

    async def _let_in(self, scope: Scope, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Return the headers with which the request is passed on. Raise RefusedError if it is not admitted."""
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
        raw = [pair for pair in headers.raw if pair[0].lower() != PERSON_HEADER.encode()]
        is_open = scope["path"] in _OPEN_PATHS
        if self.people is not None and not is_open:
            raw = await self._as_person(self.people, scope, headers, raw)
        elif token and not is_open and not shows_token(headers, token):
            raise RefusedError(401, "authentication_error", f"the header {TOKEN_HEADER} must hold the proxy's token")
        self.metrics.add("arrivals")
        return raw

    async def _as_person(
        self, people: People, scope: Scope, headers: Headers, raw: list[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        """Return the headers `raw` without the person's token, with their name, and with the operator's key if any.

        Raises:
            RefusedError: The token is not valid, the person's quota is spent, or there is no key for the provider.
        """
        header, token = _token_of(headers)
        person = await anyio.to_thread.run_sync(people.person, token) if token else ""
        if not person:
            problem = "this token is not known, or was revoked" if token else "no token"
            cure = f"send yours in {TOKEN_HEADER}, or in place of the provider's key"
            raise RefusedError(401, "authentication_error", f"{problem}: {cure}")
        PERSON.set(person)
        if scope["path"] == "/metrics":
            return raw
        if scope["method"] == "POST" and (seconds := people.wait_seconds(person)):
            problem = f"{person} has spent the quota of this day; the next begins in {seconds} seconds, at 00:00 UTC"
            raise RefusedError(429, "rate_limit_error", problem, seconds)
        key = self._operator_key(scope, headers)
        if key is None and header != TOKEN_HEADER:
            problem = f"the proxy has no key for this upstream: send yours, and the token in {TOKEN_HEADER}"
            raise RefusedError(401, "authentication_error", problem)
        left_out = {TOKEN_HEADER, *(CREDENTIALS if key else ())}
        kept = [pair for pair in raw if pair[0].lower().decode("latin-1") not in left_out]
        added = {PERSON_HEADER: person, **dict([key] if key else [])}
        return [*kept, *((name.encode(), value.encode()) for name, value in added.items())]

    def _operator_key(self, scope: Scope, headers: Headers) -> tuple[str, str] | None:
        """Return the name and value of the header with the operator's key; None if people use their own. Raise
        RefusedError if the key may not be used on this path."""
        key = way_of(self.settings.upstreams, scope["path"], headers).key
        if key is not None and not opens(self.settings.upstreams, scope["method"], scope["raw_path"].decode("latin-1")):
            cure = (
                "the team's key goes out on the paths that agents need; upstreams.paths in the proxy's file adds others"
            )
            raise RefusedError(403, "permission_error", f"{scope['path'][:_LOGGED_CHARACTERS]}: {cure}")
        return key


def shows_token(headers: Mapping[str, str], token: str) -> bool:
    """Return True if a request contains the proxy's `token`; for an empty `token`, if it contains none."""
    return hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), token.encode())


def _token_of(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the header that contains a person's token, and the token; both are empty without one."""
    if token := headers.get(TOKEN_HEADER, ""):
        return TOKEN_HEADER, token
    shown = ((name, headers.get(name, "").rpartition(" ")[2]) for name in CREDENTIALS)
    return next((pair for pair in shown if pair[1].startswith(TOKEN_START)), ("", ""))


def _log(scope: Scope, status: int, seconds: float) -> None:
    """Log one line about a request, without its query, which is private."""
    path = scope["raw_path"].partition(b"?")[0].decode("latin-1")[:_LOGGED_CHARACTERS]
    level = (
        logging.DEBUG if path in _OPEN_PATHS and status < 400 else logging.WARNING if status >= 400 else logging.INFO
    )
    _logger.log(level, "%s %s %s %d %.3fs", PERSON.get() or "-", scope["method"], ascii(path)[1:-1], status, seconds)


class WithoutTexts(logging.Formatter):
    """Formats log lines without content of conversations. Of a session's event it shows kind and sizes, of other parts'
    messages only their place."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        """Return `record` as a line."""
        event = getattr(record, "compactor_event", None)
        if event is not None:
            sizes = f"{event['tokens_before']} -> {event['tokens_after']} tokens"
            record.message = f"{event['session_id']} {event['kind']} {event['tier']} {sizes}"
        elif record.name != _LOGGER:
            record.message = f"{record.module}:{record.lineno}"
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return the name of the error's class, without its text."""
        return str(ei[0].__name__)
