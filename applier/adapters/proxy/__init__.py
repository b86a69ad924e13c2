"""A proxy between any client and its provider, with a session behind every conversation; needs the extra ``proxy``.

An endpoint for each API with sessions behind it on a port, everything else passed on. Decides who may use the proxy,
and which upstream a request is for. One that is for none is refused, for its key was given for another.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx
import zstandard
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from applier.adapters.proxy.gateway import NAME_HEADER, Conversations, Gateway, Metrics, Passage
from applier.adapters.proxy.wires import CHAT, MAX_READ_BYTES, MESSAGES, RESPONSES, Wire
from applier.serving import AppServer
from applier.session import Session
from applier.session.persistence import SessionStore
from applier.session.presets import preset_named
from applier.session.sharing import marks_of
from applier.settings import load_settings
from planner.errors import SettingsError, StoreError
from planner.proposal import Account
from planner.reading.families import names_provider

__all__ = ["ProxyServer", "ProxySettings", "Upstreams"]

MAX_BODY_BYTES = 64 * 2**20
"""Of a conversation; twice what the Messages API takes: a history that outgrew it may still come in to be compacted.
A larger one passes unread, as all does that the proxy does not understand: such bodies are never held."""
_STOP_SECONDS = 10
"""How long answers under way may still run after the proxy was told to stop."""
_PATIENCE_SECONDS = 5.0
"""After so long a store on a server is given up for the request that waits for it."""
_BACKLOG = 512
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_CONNECT_SECONDS = 10.0
_TOKEN_HEADER = "x-compactor-token"
_LOOPBACK_HOSTS = frozenset(("127.0.0.1", "::1", "localhost"))
_OF_A_CONNECTION = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
"""Headers that are a connection's, not a request's (RFC 9110, 7.6.1)."""
_OF_THE_PROXY = frozenset((b"host", b"content-length", _TOKEN_HEADER.encode(), NAME_HEADER.encode()))
_TOO_LONG = (400, 413)
_ENCODED_PIECE = 4096
"""Of an encoded body is decoded at once: a small one may stand for a very large one."""
_LOGIN_HEADER, _LOGIN_PATH = "chatgpt-account-id", "/backend-api/codex"
"""By which Codex's requests with a ChatGPT login are known."""
Body = bytes | AsyncIterator[bytes]
"""Of a request: held, or as it arrives."""


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
    return url.scheme in ("http", "https") and bool(_host(address)) and not (set("?# ") & set(address))


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _base(upstreams: Upstreams, path: str, headers: Mapping[str, str]) -> tuple[str, int]:
    """Of the upstream that a request is for, and how much of the path's front it has instead."""
    cut = 0
    if _LOGIN_HEADER in headers or path.startswith(_LOGIN_PATH):
        base, problem = upstreams.chatgpt, "no upstream for a ChatGPT login: start with --chatgpt-upstream URL"
        cut = next((len(front) for front in (_LOGIN_PATH, "/v1") if path.startswith(f"{front}/")), 0)
        if not cut:
            base, problem = "", "nothing of Codex, whose base URL ends in /v1 here"
    elif _is_anthropics(path, headers):
        base, problem = upstreams.anthropic, "no upstream for Anthropic's API: start with --upstream URL"
    elif path.startswith("/v1/"):
        base, problem = upstreams.openai, "no upstream for OpenAI's API: start with --openai-upstream URL"
    else:
        base, problem = "", "neither of Anthropic's API nor of OpenAI's, whose base URL ends in /v1 here"
    if not base:
        raise _RefusedError(404, "not_found_error", f"{path}: {problem}")
    return base, cut


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


@dataclass(frozen=True)
class ProxySettings:
    """Where the proxy listens, where it sends, and what its sessions are like."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any that is free."""
    token: str = field(default="", repr=False)
    """What every request must carry in ``x-compactor-token``; needed to listen beyond loopback."""
    upstreams: Upstreams = field(default_factory=Upstreams)
    store: str | None = None
    session: dict[str, Any] = field(default_factory=dict)
    """Settings of each session, such as ``window_tokens``, ``preset`` and ``planner``; others as always."""
    own: tuple[str, str] = field(default=("", ""), repr=False)
    """A secret, and the name of the conversations of the one client that shows it as its name (see `Conversations`)."""

    @property
    def is_loopback(self) -> bool:
        """Only this machine can reach it."""
        return self.host in _LOOPBACK_HOSTS


class ProxyServer(AppServer):
    """The proxy; a context manager that listens from its start.

    ::

        with ProxyServer(ProxySettings(session={"window_tokens": 60_000})) as proxy:
            client = anthropic.Anthropic(base_url=proxy.url)
    """

    def __init__(self, settings: ProxySettings = ProxySettings()) -> None:
        """Open the port; nothing is answered yet.

        Raises:
            SettingsError: it would listen beyond loopback without a token, the port is taken, or a setting of a
                session is wrong.
        """
        if not settings.is_loopback and not settings.token:
            example = secrets.token_urlsafe(24)
            raise SettingsError(
                f"{settings.host} can be reached by others: set a token ($COMPACTOR_PROXY_TOKEN), such as {example}"
            )
        self.settings, self.metrics = settings, Metrics()
        self.rules_for_want_of_upstream = False
        """Conversations were planned by rules because no model can be asked where they go."""
        self._session_settings = load_settings(**settings.session)
        preset_named(self._session_settings.preset)
        self._store = SessionStore(settings.store, _PATIENCE_SECONDS)
        conversations = Conversations(self._open_session, settings.own, marks=self._marks)
        self.gateway = Gateway(conversations, self.metrics, self._store)
        super().__init__(
            _app(self.gateway, settings, self.store_problem), _listening(settings.host, settings.port), _STOP_SECONDS
        )

    def store_problem(self) -> str:
        """Why the store cannot be used, in one line; empty while it can."""
        try:
            self._store.use(lambda store: store.get_state("proxy"))
        except StoreError as error:
            return " ".join(str(error).split())
        return ""

    @property
    def named_url(self) -> str:
        """The base URL for the one client whose conversations these are: its requests carry name and token in it."""
        return f"{self.url}/{self.settings.own[0]}" if self.settings.own[0] else self.url

    @property
    def url(self) -> str:
        """The base URL for a client."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def _open_session(self, session_id: str, model: str, account: Account | None) -> Session:
        """Its planner asks as the agent does; a model that names its provider there, as the environment says."""
        settings, planner = self._session_settings, self._session_settings.planner
        if names_provider(settings.planner_model):
            account = None
        elif account is None and planner != "rules":
            planner, self.rules_for_want_of_upstream = "rules", True
        return Session(
            settings=settings,
            planner=planner,
            client=account,
            model=model,
            store=self._store,
            session_id=session_id,
            is_shared=True,
        )

    def _marks(self, session_ids: list[str]) -> dict[str, list[str]]:
        """By what any proxy on the store knows those conversations; nothing where it does not say."""
        try:
            return self._store.use(lambda store: marks_of(store, session_ids))
        except StoreError:
            return {}


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket that is known as TCP: asyncio sends what it is given at once on those only."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingsError(
            f"{host}:{port}: {str(error.strerror).split(' (')[0]}; choose another host or port"
        ) from None
    return socket.socket(fileno=opened.detach())  # looks its protocol up


def _app(gateway: Gateway, settings: ProxySettings, store_problem: Callable[[], str]) -> ASGIApp:
    """The application; its shutdown closes the sessions of `gateway`."""
    proxy = _Proxy(gateway, settings, store_problem)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        await proxy.client.aclose()
        await anyio.to_thread.run_sync(gateway.close)

    return Starlette(
        routes=[
            Route("/health", proxy.health),
            Route("/metrics", proxy.metrics),
            Route("/v1/messages", partial(proxy.answer, wire=MESSAGES), methods=["POST"]),
            Route("/v1/messages/count_tokens", proxy.count, methods=["POST"]),
            Route("/v1/chat/completions", partial(proxy.answer, wire=CHAT), methods=["POST"]),
            *(
                Route(front + path, partial(proxy.answer, wire=RESPONSES), methods=["POST"])
                for front in ("/v1", _LOGIN_PATH)
                for path in ("/responses", "/responses/compact")
            ),
            Route("/{path:path}", proxy.answer, methods=_METHODS),
        ],
        exception_handlers={
            _RefusedError: lambda _request, error: cast(_RefusedError, error).answer,
            ClientDisconnect: lambda _request, _error: Response(status_code=499),
        },
        lifespan=lifespan,
        middleware=[Middleware(_Named, settings=settings)],
    )


class _Named:
    """A request whose path begins with the secret of the own client becomes one that shows it, and the token, in
    headers: not every client can be told to send some."""

    def __init__(self, app: ASGIApp, settings: ProxySettings) -> None:
        self.app, self.front = app, f"/{settings.own[0]}"
        shown = {NAME_HEADER: settings.own[0], _TOKEN_HEADER: settings.token}
        self.shown = [(name.encode(), value.encode()) for name, value in shown.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.front) > 1 and scope.get("path", "").startswith(f"{self.front}/"):
            behind = {key: scope[key][len(self.front) :] for key in ("path", "raw_path")}
            scope = {**scope, **behind, "headers": [*scope["headers"], *self.shown]}
        await self.app(scope, receive, send)


class _RefusedError(Exception):
    """Ends a request with an error of the proxy's own, in the form of the Messages API, which OpenAI's clients read,
    too."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        error = {"type": kind, "message": f"compactor proxy: {message}"}
        self.answer = JSONResponse({"type": "error", "error": error}, status_code=status)


class _Proxy:
    """The endpoints; one client for all requests."""

    def __init__(self, gateway: Gateway, settings: ProxySettings, store_problem: Callable[[], str]) -> None:
        self.gateway, self.settings, self.store_problem = gateway, settings, store_problem
        timeout = httpx.Timeout(settings.upstreams.read_seconds, connect=_CONNECT_SECONDS)
        self.client = httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=None))

    async def health(self, request: Request) -> Response:
        self._guard(request.headers)
        problem = await anyio.to_thread.run_sync(self.store_problem)
        return PlainTextResponse(f"ok, but nothing is compacted: {problem}\n" if problem else "ok\n")

    async def metrics(self, request: Request) -> Response:
        self._guard(request.headers)
        return PlainTextResponse(self.gateway.metrics.text(len(self.gateway.conversations)))

    async def answer(self, request: Request, wire: Wire | None = None) -> Response:
        """To a request of the API `wire`, or to one that the proxy does not understand."""
        self._guard(request.headers)
        if request.headers.get("upgrade", "").lower() == "websocket":
            # by this status Codex goes on with ordinary requests at once; by another it tries again for seconds
            raise _RefusedError(426, "invalid_request_error", "no WebSockets here: ask by POST")
        base = _base(self.settings.upstreams, request.url.path, request.headers)
        body = _streamed(request)
        raw = await _whole(body) if wire else body
        if isinstance(raw, bytes) and "content-encoding" in request.headers:
            plain = await anyio.to_thread.run_sync(_decoded, raw, request.headers["content-encoding"])
            wire, raw = (wire, plain) if plain is not None else (None, raw)
        if wire is None or not isinstance(raw, bytes):
            self.gateway.metrics.add("requests", 'kind="passed"')
            return await self._pass(request, base, raw)
        started = time.perf_counter()
        passage = await anyio.to_thread.run_sync(
            self.gateway.prepare, wire, base[0], raw, dict(request.headers), request.url.path
        )
        self.gateway.metrics.add("added_seconds", amount=time.perf_counter() - started)
        if passage.reply is not None:
            return Response(passage.reply[0], media_type=passage.reply[1])
        return await self._pass(request, base, passage.raw, passage)

    def _guard(self, headers: Mapping[str, str]) -> None:
        """Let in what may come in.

        A loopback proxy answers to loopback names only, none answers another site's page, and where a token is set
        every request needs it.
        """
        host, origin, token = headers.get("host", ""), headers.get("origin"), self.settings.token
        if self.settings.is_loopback and _host(f"//{host}") not in _LOOPBACK_HOSTS:
            raise _RefusedError(403, "permission_error", f"host {host!r} is not this machine")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise _RefusedError(403, "permission_error", "requests of other sites' pages are refused")
        if token and not hmac.compare_digest(headers.get(_TOKEN_HEADER, "").encode(), token.encode()):
            raise _RefusedError(401, "authentication_error", f"the header {_TOKEN_HEADER} must hold the proxy's token")
        self.gateway.metrics.add("arrivals")

    async def count(self, request: Request) -> Response:
        """The tokens of a list as it would be sent now."""
        self._guard(request.headers)
        base = _base(self.settings.upstreams, request.url.path, request.headers)
        raw = await _whole(_streamed(request))
        if isinstance(raw, bytes):
            raw = await anyio.to_thread.run_sync(self.gateway.as_sent, raw, dict(request.headers))
        else:
            self.gateway.metrics.add("requests", 'kind="passed"')
        return await self._pass(request, base, raw)

    async def _pass(
        self, request: Request, base: tuple[str, int], body: Body, passage: Passage | None = None
    ) -> Response:
        try:
            upstream = await self._send(request, base, body, is_read=passage is not None)
            if passage is not None and upstream.status_code in _TOO_LONG:
                text = (await upstream.aread()).decode("utf-8", "replace")
                shorter = await anyio.to_thread.run_sync(self.gateway.shorter, passage, upstream.status_code, text)
                if shorter is not None:
                    upstream = await self._send(request, base, shorter, is_read=True)
        except httpx.TimeoutException:
            raise _RefusedError(504, "timeout_error", "the provider did not answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            problem = f"the provider cannot be reached ({type(error).__name__})"
            raise _RefusedError(502, "api_error", problem) from None
        self.gateway.metrics.add("upstream_responses", f'status="{upstream.status_code // 100}xx"')
        return _Passing(upstream, self._chunks(upstream, passage))

    async def _send(self, request: Request, base: tuple[str, int], body: Body, *, is_read: bool) -> httpx.Response:
        """Send `body` with the client's headers; an answer that is to be read must not come compressed."""
        left_out = _OF_A_CONNECTION | _OF_THE_PROXY
        left_out |= {b"accept-encoding", b"content-encoding"} if is_read else set()
        left_out -= set() if isinstance(body, bytes) else {b"content-length"}
        headers = [pair for pair in request.headers.raw if pair[0].lower() not in left_out]
        headers += [(b"accept-encoding", b"identity")] if is_read else []
        url, query = httpx.URL(base[0]), request.scope["query_string"]
        path = url.raw_path.rstrip(b"/") + request.scope.get("raw_path", request.url.path.encode())[base[1] :]
        url = url.copy_with(raw_path=path + (b"?" + query if query else b""))
        outgoing = httpx.Request(request.method, url, headers=headers, content=body or None)
        return await self.client.send(outgoing, stream=True)

    async def _chunks(self, upstream: httpx.Response, passage: Passage | None) -> AsyncIterator[bytes]:
        """The answer's bytes as they arrive; the session hears of it even if the client hangs up."""
        answer, is_read = bytearray(), passage is not None and upstream.is_success
        try:
            if upstream.is_stream_consumed:
                yield upstream.content
                return
            async for chunk in upstream.aiter_raw():
                if is_read and len(answer) <= MAX_READ_BYTES:
                    answer += chunk
                yield chunk
        finally:
            with anyio.CancelScope(shield=True):
                await upstream.aclose()
                if passage is not None and is_read:
                    is_stream = "event-stream" in upstream.headers.get("content-type", "")
                    observe = partial(self.gateway.observe, is_stream=is_stream)
                    await anyio.to_thread.run_sync(observe, passage, bytes(answer))


class _Passing(StreamingResponse):
    """An answer that passes on as it arrives; if the provider breaks it off, so does this."""

    def __init__(self, upstream: httpx.Response, chunks: AsyncIterator[bytes]) -> None:
        super().__init__(chunks, upstream.status_code)
        # an error's body was read, and decoded, to see whether it is about the length
        decoded = {b"content-encoding", b"content-length"} if upstream.is_stream_consumed else set()
        left_out = _OF_A_CONNECTION | decoded
        self.raw_headers = [pair for pair in upstream.headers.raw if pair[0].lower() not in left_out]

    async def stream_response(self, send: Send) -> None:
        with suppress(httpx.HTTPError):  # without an end: the server closes the connection, as the provider did
            await super().stream_response(send)


def _streamed(request: Request) -> Body:
    """The request's body as it arrives; empty if it has none."""
    has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
    return request.stream() if has_body else b""


def _decoded(raw: bytes, encoding: str) -> bytes | None:
    """`raw` as it was before it was encoded: with a login Codex sends ``zstd``; None if that cannot be told."""
    if encoding.strip().lower() != "zstd":
        return None
    plain, decoding = bytearray(), zstandard.ZstdDecompressor().decompressobj()
    try:
        for at in range(0, len(raw), _ENCODED_PIECE):
            plain += decoding.decompress(raw[at : at + _ENCODED_PIECE])
            if len(plain) > MAX_BODY_BYTES:
                return None
    except zstandard.ZstdError:
        return None
    return bytes(plain) if decoding.eof and not decoding.unused_data else None


async def _whole(body: Body) -> Body:
    """All of `body`; one that is too large to be held goes on as it arrives."""
    if isinstance(body, bytes):
        return body
    start = bytearray()
    async for chunk in body:
        start += chunk
        if len(start) > MAX_BODY_BYTES:
            return _joined(bytes(start), body)
    return bytes(start)


async def _joined(start: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield start
    async for chunk in rest:
        yield chunk
