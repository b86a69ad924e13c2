"""The upstream (the provider's address) of a request, by its path and the form of its key; and the proxy's own errors.

A request without an upstream is refused, because its key is for another provider. The operator's key is the one that a
team's proxy sends in place of people's own; it is used only on paths that agents need.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
from starlette.responses import JSONResponse, Response

from planner.errors import SettingsError
from planner.reading.secrets import quoted

LOGIN_PATH = "/backend-api/codex"
_LOGIN_HEADER = "chatgpt-account-id"
"""Header of Codex' requests with a ChatGPT login."""
_OPENAI_CODES = {401: ("invalid_request_error", "invalid_api_key"), 429: ("insufficient_quota", "insufficient_quota")}
"""Type and code of OpenAI's errors with these statuses."""
_CODEX_LIMIT = "usage_limit_reached"
"""Error type that Codex shows as a spent quota."""
_OPENAI_PATHS = ("/v1/chat/", "/v1/responses", LOGIN_PATH)
_POSTED = re.compile(r"/v1/(?:messages(?:/count_tokens)?|chat/completions|responses(?:/compact)?)")
"""Paths that agents post to; not ``/v1/messages/batches``."""
_FETCHED = re.compile(r"/v1/models(?:/(?!\.{1,2}$)[A-Za-z0-9._:@-]+)?|/(?:api/hello)?")
"""Paths of GET requests by agents: models, Claude Code's check; not ``/v1/models/a/b`` nor ``/v1/models/..``."""
_PLAIN_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~:@-]+)+")
"""``/v1/files/f_1``; not ``/v1/../x``, ``/v1//x`` nor ``/v1/%2e%2e/x``, which a provider may read as another path."""
PATH_PATTERN = r"^(?:/[A-Za-z0-9._~:@-]+)+(?:/\*)?$"
"""Pattern of a path in a setting: ``/v1/embeddings``, or ``/v1/files/*`` for all paths below it; not ``v1/files``."""


@dataclass(frozen=True)
class Upstreams:
    """Addresses for requests of each API. Requests of an API with an empty address are refused.

    Raises:
        SettingsError: One of them is no address.
    """

    anthropic: str = "https://api.anthropic.com"
    openai: str = "https://api.openai.com"
    """Address without the ``/v1`` at the end of its clients' base URLs."""
    chatgpt: str = "https://chatgpt.com/backend-api/codex"
    """Address for Codex with a ChatGPT login. It takes the place of ``/v1`` in the path."""
    read_seconds: float = 600.0
    """Longest silence of a provider: a model may think for minutes."""
    anthropic_key: str = field(default="", repr=False)
    openai_key: str = field(default="", repr=False)
    """Operator's keys, sent in place of people's own; empty to send each person's own key."""
    paths: tuple[str, ...] = ()
    """More paths on which the operator's key may be sent, in the form of `PATH_PATTERN`."""

    def __post_init__(self) -> None:
        """Check the addresses."""
        for address in filter(None, (self.anthropic, self.openai, self.chatgpt)):
            if not _is_base(address):
                raise SettingsError(f"upstream {quoted(address)}: expected an address such as https://api.example.org")


def _is_base(address: str) -> bool:
    """Return True for an address that a path can follow, such as ``http://127.0.0.1:8000/openai``."""
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(host_of(address)) and not (set("?# ") & set(address))


def host_of(url: str) -> str | None:
    """Return the host in `url`; None if it has none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


@dataclass(frozen=True)
class Way:
    """Destination of one request."""

    base: str
    """Address of the upstream; empty if there is none."""
    cut: int = 0
    """Number of characters at the front of the request's path that are left out behind the address."""
    key: tuple[str, str] | None = field(default=None, repr=False)
    """Name and value of the header with the operator's key; None if people use their own."""

    @property
    def place(self) -> str:
        """Address of the upstream for an error text, without user, password and path."""
        url = httpx.URL(self.base)
        return str(url.copy_with(userinfo=b"", raw_path=b"/")).rstrip("/")

    def url(self, path: str) -> str:
        """Return the address for a request to `path` of the proxy."""
        return self.base.rstrip("/") + path[self.cut :]


def with_version(path: str) -> str:
    """Return `path` with the ``/v1`` that some clients leave out: OpenCode posts to ``/messages``."""
    versioned = f"/v1{path}"
    return versioned if _POSTED.fullmatch(versioned) or _FETCHED.fullmatch(versioned) else path


def opens(upstreams: Upstreams, method: str, path: str) -> bool:
    """Return True if the operator's key may be used for `method` on the undecoded `path`. On other paths it would give
    access to files, batches and whole organizations; by other methods, models could be deleted."""
    needed = {"POST": _POSTED, "GET": _FETCHED, "HEAD": _FETCHED}.get(method)
    if needed is not None and needed.fullmatch(path):
        return True
    below = tuple(one.removesuffix("*") for one in upstreams.paths if one.endswith("/*"))
    return bool(_PLAIN_PATH.fullmatch(path)) and (path in upstreams.paths or path.startswith(below))


def way_of(upstreams: Upstreams, path: str, headers: Mapping[str, str]) -> Way:
    """Return the destination of a request to `path` with `headers`. Raise RefusedError if there is no upstream for
    it."""
    if _LOGIN_HEADER in headers or path.startswith(LOGIN_PATH):
        cut = next((len(front) for front in (LOGIN_PATH, "/v1") if path.startswith(f"{front}/")), 0)
        way, problem = Way(upstreams.chatgpt, cut), "no upstream for a ChatGPT login: start with --chatgpt-upstream URL"
        if not cut:
            way, problem = Way(""), "no path of Codex, whose base URL ends in /v1 here"
    elif _is_anthropic(path, headers):
        key = ("x-api-key", upstreams.anthropic_key) if upstreams.anthropic_key else None
        way, problem = Way(upstreams.anthropic, 0, key), "no upstream for Anthropic's API: start with --upstream URL"
    elif path.startswith("/v1/"):
        key = ("authorization", f"Bearer {upstreams.openai_key}") if upstreams.openai_key else None
        way, problem = Way(upstreams.openai, 0, key), "no upstream for OpenAI's API: start with --openai-upstream URL"
    else:
        way, problem = Way(""), "no path of Anthropic's API, nor of OpenAI's, whose base URL ends in /v1 here"
    if not way.base:
        raise RefusedError(404, "not_found_error", f"{path}: {problem}")
    return way


def _is_anthropic(path: str, headers: Mapping[str, str]) -> bool:
    """Return True for a request of Anthropic's API, by its path, the form of its key, or its headers. A key of OpenAI's
    form goes to Anthropic only on the path of its messages, which OpenAI does not have."""
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
    """Ends a request with an error of the proxy itself."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        retry_after_seconds: int = 0,
        code: str = "",
        *,
        closes: bool = False,
    ) -> None:
        """Store the status of the answer, and of the error its type in the Messages API (`kind`), its text and its
        code. `retry_after_seconds`: value of the header ``retry-after``; 0 for an answer without it. `closes`: True to
        close the connection after the answer."""
        super().__init__(message)
        self._status, self._kind, self._message = status, kind, f"compactor proxy: {message}"
        self._seconds, self._code, self._closes = retry_after_seconds, code, closes

    def answer(self, path: str, headers: Mapping[str, str]) -> Response:
        """Return the answer, in the form of the API of a request to `path`."""
        fields: dict[str, object] = {"message": self._message}
        details = {"details": {"error_code": self._code}} if self._code else {}
        content: dict[str, object] = {"type": "error", "error": {"type": self._kind, **fields, **details}}
        if path.startswith(_OPENAI_PATHS) or (path.startswith("/v1/") and not _is_anthropic(path, headers)):
            kind, code = _OPENAI_CODES.get(self._status, (self._kind, None))
            if self._seconds and path.endswith("/responses"):
                kind, fields = _CODEX_LIMIT, {**fields, "resets_at": round(time.time()) + self._seconds}
            content = {"error": {"type": kind, **fields, "param": None, "code": code}}
        # a repetition would get the same answer; the SDKs of both providers obey this header
        final = {"x-should-retry": "false"} if self._status in _OPENAI_CODES else {}
        waiting = {"retry-after": str(self._seconds)} if self._seconds else {}
        closing = {"connection": "close"} if self._closes else {}
        return JSONResponse(content, status_code=self._status, headers=final | waiting | closing)
