"""Who may talk to the pages: an ASGI layer in front of everything else.

A page holds a transcript and can write files, so only the browser that opened the printed link may use it: the token
in the link works once, for a key that the page keeps and sends with each request. Other hosts, other sites' pages and
bodies that a plain form could send are refused, and every answer carries a policy under which no text can run.
"""

from __future__ import annotations

import hmac
import secrets
import threading

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["KEY_HEADER", "Keys", "PageGuard", "refusal"]

KEY_HEADER = "x-compactor-key"
PROTECTED = "/api/"
"""Below this path every request needs the key; above are the page's own files, which hold nothing of a transcript."""
OPENING = "/api/open"
"""Where the token is exchanged for the key."""
MAX_BODY_BYTES = 8 * 2**20
"""A revision of 100,000 turns and a brief has less."""
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Keys:
    """The token of the link, good for one exchange, and the key it is exchanged for."""

    def __init__(self) -> None:
        """New secrets."""
        self.token, self.key = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._lock = threading.Lock()
        self._is_used = False

    def exchange(self, token: str) -> str:
        """The key for the `token` of the link, the first time; else nothing."""
        with self._lock:
            if self._is_used or not _matches(token, self.token):
                return ""
            self._is_used = True
            return self.key


class PageGuard:
    """Refuses what may not come in; the rest goes on to `app`, and every answer gets the policy."""

    def __init__(self, app: ASGIApp, *, keys: Keys, port: int) -> None:
        """Answer to this machine's names at `port` only."""
        self._app, self._keys = app, keys
        self._hosts = frozenset((f"127.0.0.1:{port}", f"localhost:{port}"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refused = self._refused(scope, Headers(scope=scope))
        await (refused or self._app)(scope, receive, send_with_policy)

    def _refused(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        host, path = headers.get("host", ""), scope["path"]
        if host not in self._hosts:
            return refusal(403, f"host {host[:80]!r} is not this page's")
        if headers.get("origin", f"http://{host}") != f"http://{host}":
            return refusal(403, "requests of other sites' pages are refused")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return refusal(403, "requests of other sites' pages are refused")
        if not path.startswith(PROTECTED):
            return None
        if path != OPENING and not _matches(headers.get(KEY_HEADER, ""), self._keys.key):
            return refusal(401, "this page was not opened by the link that the command printed")
        if scope["method"] == "POST" and headers.get("content-type", "").split(";")[0] != "application/json":
            return refusal(415, "expected application/json")
        length = headers.get("content-length", "")
        if scope["method"] == "POST" and not (length.isdecimal() and int(length[:20]) <= MAX_BODY_BYTES):
            return refusal(413, f"a request may have {MAX_BODY_BYTES:,} bytes, and must say how many it has")
        return None


def refusal(status: int, problem: str) -> JSONResponse:
    """An answer that says in one line why there is no other."""
    return JSONResponse({"problem": problem}, status_code=status)


def _matches(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())
