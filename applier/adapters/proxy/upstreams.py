"""Which upstream a request is for, by its path and the form of its key, and what tells a client that it is for none.

One that is for none is refused, for its key was given for another.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
from starlette.responses import JSONResponse, Response

from planner.errors import SettingsError

__all__ = ["LOGIN_PATH", "RefusedError", "Upstreams", "Way", "host_of", "way_of"]

LOGIN_PATH = "/backend-api/codex"
_LOGIN_HEADER = "chatgpt-account-id"
"""By which Codex's requests with a ChatGPT login are known, and by the path."""
_OPENAIS_CODES = {401: ("invalid_request_error", "invalid_api_key"), 429: ("insufficient_quota", "insufficient_quota")}
"""Type and code of what OpenAI's API says with these; Codex knows a used-up quota by the type below."""
_CODEX_LIMIT = "usage_limit_reached"
_OPENAIS_PATHS = ("/v1/chat/", "/v1/responses", LOGIN_PATH)


@dataclass(frozen=True)
class Upstreams:
    """Where requests of either API go; empty: nowhere, they are refused.

    Raises:
        SettingsError: one is no address.
    """

    anthropic: str = "https://api.anthropic.com"
    openai: str = "https://api.openai.com"
    """Without the ``/v1`` that its clients' base URLs end in."""
    chatgpt: str = "https://chatgpt.com/backend-api/codex"
    """Of who uses Codex with his ChatGPT login; in the place of ``/v1``."""
    read_seconds: float = 600.0
    """How long a provider may say nothing: a model may think for minutes."""
    anthropic_key: str = field(default="", repr=False)
    openai_key: str = field(default="", repr=False)
    """Go out in place of whatever keys a person shows; empty: each person's own go out."""

    def __post_init__(self) -> None:
        """See that they can be reached."""
        for address in filter(None, (self.anthropic, self.openai, self.chatgpt)):
            if not _is_base(address):
                raise SettingsError(f"upstream {address!r}: expected an address such as https://api.example.org")


def _is_base(address: str) -> bool:
    """True for an address that a path can be put behind, such as ``http://127.0.0.1:8000/openai``."""
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(host_of(address)) and not (set("?# ") & set(address))


def host_of(url: str) -> str | None:
    """The host that `url` names, if it is a URL."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


@dataclass(frozen=True)
class Way:
    """Where a request goes."""

    base: str
    """The upstream's address."""
    cut: int = 0
    """How much of the path's front it has instead."""
    key: tuple[str, str] | None = field(default=None, repr=False)
    """The header by which the upstream knows the operator, if he has a key for it."""

    def url(self, path: str) -> str:
        """Where a request to `path` of the proxy goes."""
        return self.base.rstrip("/") + path[self.cut :]


def way_of(upstreams: Upstreams, path: str, headers: Mapping[str, str]) -> Way:
    """The upstream that a request is for.

    Raises:
        RefusedError: there is none.
    """
    if _LOGIN_HEADER in headers or path.startswith(LOGIN_PATH):
        cut = next((len(front) for front in (LOGIN_PATH, "/v1") if path.startswith(f"{front}/")), 0)
        way, problem = Way(upstreams.chatgpt, cut), "no upstream for a ChatGPT login: start with --chatgpt-upstream URL"
        if not cut:
            way, problem = Way(""), "nothing of Codex, whose base URL ends in /v1 here"
    elif _is_anthropics(path, headers):
        key = ("x-api-key", upstreams.anthropic_key) if upstreams.anthropic_key else None
        way, problem = Way(upstreams.anthropic, 0, key), "no upstream for Anthropic's API: start with --upstream URL"
    elif path.startswith("/v1/"):
        key = ("authorization", f"Bearer {upstreams.openai_key}") if upstreams.openai_key else None
        way, problem = Way(upstreams.openai, 0, key), "no upstream for OpenAI's API: start with --openai-upstream URL"
    else:
        way, problem = Way(""), "neither of Anthropic's API nor of OpenAI's, whose base URL ends in /v1 here"
    if not way.base:
        raise RefusedError(404, "not_found_error", f"{path}: {problem}")
    return way


def _is_anthropics(path: str, headers: Mapping[str, str]) -> bool:
    """By what only its clients send: its API demands a version, its keys have a form; ``/api/…`` is Claude Code's.

    A key of OpenAI's form goes to it for nothing but what is its alone.
    """
    shown = headers.get("authorization", "").rpartition(" ")[2]
    if f"{path}/".startswith("/v1/messages/") or shown.startswith("sk-ant-"):
        return True
    if shown.startswith("sk-") or any(name.startswith("openai-") for name in headers):
        return False
    return (
        path == "/"
        or path.startswith("/api/")
        or "x-api-key" in headers
        or any(name.startswith("anthropic-") for name in headers)
    )


class RefusedError(Exception):
    """Ends a request with an error of the proxy's own."""

    def __init__(self, status: int, kind: str, message: str, retry_after_seconds: int = 0) -> None:
        """`kind` is the Messages API's word for it; `retry_after_seconds`: when it may be asked again, 0: not said."""
        super().__init__(message)
        self._status, self._kind, self._message = status, kind, f"compactor proxy: {message}"
        self._seconds = retry_after_seconds

    def answer(self, path: str, headers: Mapping[str, str]) -> Response:
        """It, in the form of the API that a request speaks."""
        said: dict[str, object] = {"message": self._message}
        content: dict[str, object] = {"type": "error", "error": {"type": self._kind, **said}}
        if path.startswith(_OPENAIS_PATHS) or (path.startswith("/v1/") and not _is_anthropics(path, headers)):
            kind, code = _OPENAIS_CODES.get(self._status, (self._kind, None))
            if self._seconds and path.endswith("/responses"):
                kind, said = _CODEX_LIMIT, {**said, "resets_at": round(time.time()) + self._seconds}
            content = {"error": {"type": kind, **said, "param": None, "code": code}}
        # to be asked again changes nothing of these today: the SDKs of both go by the header
        final = {"x-should-retry": "false"} if self._status in _OPENAIS_CODES else {}
        waiting = {"retry-after": str(self._seconds)} if self._seconds else {}
        return JSONResponse(content, status_code=self._status, headers=final | waiting)
