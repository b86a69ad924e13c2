"""Decides to which provider's address (upstream) a request is sent, by its path and the form of its key.

A request without an upstream is refused, because its key is for another provider. The operator's key is the one that a
team's proxy sends in place of people's own; it is used only on paths that agents need. The proxy's own errors are here
too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
from starlette.responses import JSONResponse, Response

from planner.errors import SettingsError
from planner.reading.secrets import quoted

LOGIN_PATH = "/backend-api/codex"
"""Beginning of the paths that Codex uses with a ChatGPT login."""
_LOGIN_HEADER = "chatgpt-account-id"
"""Header of Codex's requests with a ChatGPT login."""
_OPENAI_CODES = {401: ("invalid_request_error", "invalid_api_key"), 429: ("insufficient_quota", "insufficient_quota")}
"""Type and code of OpenAI's errors, by their HTTP status."""
_CODEX_LIMIT = "usage_limit_reached"
"""Error type that Codex shows as a spent quota."""
_OPENAI_PATHS = ("/v1/chat/", "/v1/responses", LOGIN_PATH)
"""Beginnings of paths whose errors have OpenAI's form."""
_POSTED = re.compile(r"/v1/(?:messages(?:/count_tokens)?|chat/completions|responses(?:/compact)?)")
"""Paths that agents post to: ``/v1/messages``; not ``/v1/messages/batches``."""
_FETCHED = re.compile(r"/v1/models(?:/(?!\.{1,2}$)[A-Za-z0-9._:@-]+)?|/(?:api/hello)?")
"""Paths of GET requests by agents: models, Claude Code's check; not ``/v1/models/a/b`` nor ``/v1/models/..``."""
_PLAIN_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~:@-]+)+")
"""Path that every server reads alike: ``/v1/files/f_1``; not ``/v1/../x``, ``/v1//x`` nor ``/v1/%2e%2e/x``."""
PATH_PATTERN = r"^(?:/[A-Za-z0-9._~:@-]+)+(?:/\*)?$"
"""Pattern of a path in a setting: ``/v1/embeddings``, or ``/v1/files/*`` for all paths below it; not ``v1/files``."""


@dataclass(frozen=True)
class Upstreams:
    """Addresses of the providers, one for each API. Requests of an API with an empty address are refused.

    Raises:
        SettingsError: One of the addresses is not valid.
    """

    anthropic: str = "https://api.anthropic.com"
    openai: str = "https://api.openai.com"
    """Address for OpenAI's API, without the ``/v1`` that clients have at the end of their base URLs."""
    chatgpt: str = "https://chatgpt.com/backend-api/codex"
    """Address for Codex with a ChatGPT login. It replaces the ``/v1`` at the front of the path."""
    read_seconds: float = 600.0
    """Longest silence of a provider, in seconds; a model may think for minutes."""
    anthropic_key: str = field(default="", repr=False)
    """Team's key for Anthropic, sent in place of people's own keys; empty to send people's own keys."""
    openai_key: str = field(default="", repr=False)
    """Team's key for OpenAI, sent in place of people's own keys; empty to send people's own keys."""
    paths: tuple[str, ...] = ()
    """More paths on which a team's key may be sent, in the form of `PATH_PATTERN`."""

    def __post_init__(self) -> None:
        """Raise SettingsError if an address is not valid."""
        for address in filter(None, (self.anthropic, self.openai, self.chatgpt)):
            scheme = ""
            with suppress(httpx.InvalidURL):
                scheme = httpx.URL(address).scheme
            # a path is added to the address
            if scheme not in ("http", "https") or not host_of(address) or set("?# ") & set(address):
                raise SettingsError(f"upstream {quoted(address)}: expected an address such as https://api.example.org")


def host_of(url: str) -> str | None:
    """Return the host name in `url`; None if it has none or is malformed."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


@dataclass(frozen=True)
class Destination:
    """Address to which one request is sent on, and the key to add to it."""

    base: str
    """Address of the provider; empty if there is none for the request."""
    cut: int = 0
    """Number of characters to remove from the front of the request's path before it is added to the address."""
    key: tuple[str, str] | None = field(default=None, repr=False)
    """Header (name, value) with the team's key for the provider; None if people send their own."""

    @property
    def place(self) -> str:
        """Address of the provider for an error text, without user, password and path."""
        url = httpx.URL(self.base)
        return str(url.copy_with(userinfo=b"", raw_path=b"/")).rstrip("/")

    def url(self, path: str) -> str:
        """Return the provider's URL for a request that came to `path` of the proxy."""
        return self.base.rstrip("/") + path[self.cut :]


def with_version(path: str) -> str:
    """Return `path` with ``/v1`` in front if a client left it out: OpenCode posts to ``/messages``."""
    versioned = f"/v1{path}"
    return versioned if _POSTED.fullmatch(versioned) or _FETCHED.fullmatch(versioned) else path


def may_use_team_key(upstreams: Upstreams, method: str, path: str) -> bool:
    """Return True if the team's key may be sent with `method` to the undecoded `path`. On other paths it would give
    people access to files, batches and the whole organization; by other methods they could delete models."""
    pattern = {"POST": _POSTED, "GET": _FETCHED, "HEAD": _FETCHED}.get(method)
    if pattern is not None and pattern.fullmatch(path):
        return True
    folders = tuple(allowed.removesuffix("*") for allowed in upstreams.paths if allowed.endswith("/*"))
    return bool(_PLAIN_PATH.fullmatch(path)) and (path in upstreams.paths or path.startswith(folders))


def destination_of(upstreams: Upstreams, path: str, headers: Mapping[str, str]) -> Destination:
    """Return the provider's address and the team's key for a request; raise RefusedError if no provider is set."""
    if _LOGIN_HEADER in headers or path.startswith(LOGIN_PATH):
        # the address, such as `…/backend-api/codex`, replaces this beginning of the path
        cut = next((len(front) for front in (LOGIN_PATH, "/v1") if path.startswith(f"{front}/")), 0)
        destination = Destination(upstreams.chatgpt, cut)
        problem = "no upstream for a ChatGPT login: start with --chatgpt-upstream URL"
        if not cut:
            destination, problem = Destination(""), "no path of Codex, whose base URL ends in /v1 here"
    elif _is_anthropic(path, headers):
        key = ("x-api-key", upstreams.anthropic_key) if upstreams.anthropic_key else None
        destination = Destination(upstreams.anthropic, 0, key)
        problem = "no upstream for Anthropic's API: start with --upstream URL"
    elif path.startswith("/v1/"):
        key = ("authorization", f"Bearer {upstreams.openai_key}") if upstreams.openai_key else None
        destination = Destination(upstreams.openai, 0, key)
        problem = "no upstream for OpenAI's API: start with --openai-upstream URL"
    else:
        destination = Destination("")
        problem = "no path of Anthropic's API, nor of OpenAI's, whose base URL ends in /v1 here"
    if not destination.base:
        raise RefusedError(404, "not_found_error", f"{path}: {problem}")
    return destination


def _is_anthropic(path: str, headers: Mapping[str, str]) -> bool:
    """Return True for a request of Anthropic's API, by its path, the form of its key, or its headers. A key of OpenAI's
    form is sent to Anthropic only on the path of its messages, which OpenAI does not have."""
    key = headers.get("authorization", "").rpartition(" ")[2]
    if f"{path}/".startswith("/v1/messages/") or key.startswith("sk-ant-"):
        return True
    if key.startswith("sk-") or any(name.startswith("openai-") for name in headers):  # a key or client of OpenAI
        return False
    return (
        path == "/"
        or path.startswith("/api/")
        or "x-api-key" in headers
        or any(name.startswith("anthropic-") for name in headers)
    )


class RefusedError(Exception):
    """Error that the proxy itself answers to a request, in place of the provider."""

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
        """Store the parts of the answer: HTTP status, and the error's type in the Messages API (`kind`), text and code.
        `retry_after_seconds`: header ``retry-after``; 0 for none. `closes`: True to close the connection afterwards."""
        super().__init__(message)
        self._status, self._kind, self._message = status, kind, f"compactor proxy: {message}"
        self._seconds, self._code, self._closes = retry_after_seconds, code, closes

    def answer(self, path: str, headers: Mapping[str, str]) -> Response:
        """Return the error as an HTTP answer, in the form of the API that the request to `path` used."""
        fields: dict[str, object] = {"message": self._message}
        details = {"details": {"error_code": self._code}} if self._code else {}
        content: dict[str, object] = {"type": "error", "error": {"type": self._kind, **fields, **details}}
        if path.startswith(_OPENAI_PATHS) or (path.startswith("/v1/") and not _is_anthropic(path, headers)):
            kind, code = _OPENAI_CODES.get(self._status, (self._kind, None))
            if self._seconds and path.endswith("/responses"):  # a spent quota, in the form that Codex shows
                kind, fields = _CODEX_LIMIT, {**fields, "resets_at": round(time.time()) + self._seconds}
            content = {"error": {"type": kind, **fields, "param": None, "code": code}}
        # a retry would get the same answer; the SDKs of both providers obey this header
        final = {"x-should-retry": "false"} if self._status in _OPENAI_CODES else {}
        waiting = {"retry-after": str(self._seconds)} if self._seconds else {}
        closing = {"connection": "close"} if self._closes else {}
        return JSONResponse(content, status_code=self._status, headers=final | waiting | closing)
