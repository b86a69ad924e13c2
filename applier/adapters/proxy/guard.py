"""Who may use the proxy: an ASGI layer in front of everything else.

A loopback proxy answers to loopback names only, none answers another site's page, and beyond loopback every request
needs the proxy's own token.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["LOOPBACK_HOSTS", "TOKEN_HEADER", "Guard", "refusal"]

TOKEN_HEADER = "x-compactor-token"
LOOPBACK_HOSTS = frozenset(("127.0.0.1", "::1", "localhost"))


class Guard:
    """Refuses what may not come in; the rest goes on to `app`."""

    def __init__(self, app: ASGIApp, *, token: str, is_loopback: bool, max_body_bytes: int) -> None:
        """An empty `token` asks for none."""
        self._app, self._token = app, token
        self._is_loopback, self._max_body_bytes = is_loopback, max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        refused = self._refused(Headers(scope=scope)) if scope["type"] == "http" else None
        await (refused or self._app)(scope, receive, send)

    def _refused(self, headers: Mapping[str, str]) -> JSONResponse | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._is_loopback and _name(f"//{host}") not in LOOPBACK_HOSTS:
            return refusal(403, "permission_error", f"host {host!r} is not this machine")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return refusal(403, "permission_error", "requests of other sites' pages are refused")
        if self._token and not _matches(headers.get(TOKEN_HEADER, ""), self._token):
            return refusal(401, "authentication_error", f"the header {TOKEN_HEADER} must hold the proxy's token")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self._max_body_bytes:
            return refusal(413, "request_too_large", f"a request may have {self._max_body_bytes:,} bytes")
        return None


def refusal(status: int, kind: str, message: str) -> JSONResponse:
    """An error of the proxy's own, in the form of the Messages API, which OpenAI's clients read, too."""
    error = {"type": kind, "message": f"compactor proxy: {message}"}
    return JSONResponse({"type": "error", "error": error}, status_code=status)


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _matches(offered: str, token: str) -> bool:
    return hmac.compare_digest(offered.encode(), token.encode())
