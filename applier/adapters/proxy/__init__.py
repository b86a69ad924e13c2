"""A proxy between any client and its provider, with a session behind every conversation; needs the extra ``proxy``.

An endpoint for each API with sessions behind it on a port, everything else passed on. Who may come in is `entrance`'s
to say, and `upstreams`' where a request goes.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import cast

import anyio
import anyio.to_thread
import httpx
import zstandard
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Send

from applier.adapters.proxy.cleaning import Cleaning
from applier.adapters.proxy.configuration import ProxySettings, RetentionTable, file_session
from applier.adapters.proxy.entrance import TOKEN_HEADER, Entrance
from applier.adapters.proxy.gateway import (
    IDLE_SECONDS,
    NAME_HEADER,
    PERSON_HEADER,
    Asker,
    Conversations,
    Gateway,
    Passage,
)
from applier.adapters.proxy.metrics import Metrics
from applier.adapters.proxy.people import People
from applier.adapters.proxy.responses_planner import ResponsesPlanner
from applier.adapters.proxy.upstreams import LOGIN_PATH, RefusedError, Upstreams, Way, way_of
from applier.adapters.proxy.wires import CHAT, MAX_READ_BYTES, MESSAGES, RESPONSES, Wire
from applier.serving import AppServer
from applier.session import Session
from applier.session.persistence import SessionStore
from applier.session.presets import preset_named
from applier.session.sharing import marks_of
from applier.settings import load_settings
from applier.store.opening import store_file
from planner.api import PlannerChoice
from planner.errors import SettingsError, StoreError
from planner.prices import CACHE_LIFETIME_SECONDS, register_prices
from planner.proposal import Account
from planner.reading.families import names_provider

__all__ = ["ProxyServer", "ProxySettings", "Upstreams"]

_logger = logging.getLogger("applier.proxy")
MAX_BODY_BYTES = 64 * 2**20
"""Of a conversation; twice what the Messages API takes: a history that outgrew it may still come in to be compacted.
A larger one passes unread, as all does that the proxy does not understand: such bodies are never held."""
_STOP_SECONDS = 10
"""How long answers under way may still run after the proxy was told to stop, where no team's file says it."""
_LOOK_SECONDS, _PROBE_SECONDS = 2.0, 5.0
"""How old what `/ready` says may be, for it is asked without a token; how long an upstream may take to be there."""
_PATIENCE_SECONDS = 5.0
"""After so long a store on a server is given up for the request that waits for it."""
_BACKLOG = 512
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_CONNECT_SECONDS = 10.0
_OF_A_CONNECTION = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
"""Headers that are a connection's, not a request's (RFC 9110, 7.6.1)."""
_OF_THE_PROXY = frozenset(
    (b"host", b"content-length", TOKEN_HEADER.encode(), NAME_HEADER.encode(), PERSON_HEADER.encode())
)
_TOO_LONG = (400, 413)
_ENCODED_PIECE = 4096
"""Of an encoded body is decoded at once: a small one may stand for a very large one."""
Body = bytes | AsyncIterator[bytes]
"""Of a request: held, or as it arrives."""


class ProxyServer(AppServer):
    """The proxy; a context manager that listens from its start.

    ::

        with ProxyServer(ProxySettings(session={"window_tokens": 60_000})) as proxy:
            client = anthropic.Anthropic(base_url=proxy.url)
    """

    def __init__(self, settings: ProxySettings | None = None) -> None:
        """Open the port; nothing is answered yet.

        Raises:
            SettingsError: it would listen beyond loopback without a token, the port is taken, or a setting of a
                session is wrong.
            StoreError: who has a token cannot be read.
        """
        settings = settings or ProxySettings()
        if not settings.is_loopback and not settings.token and not settings.has_people:
            example = secrets.token_urlsafe(24)
            raise SettingsError(
                f"{settings.host} can be reached by others: set a token ($COMPACTOR_PROXY_TOKEN), such as {example}"
            )
        self.settings, self.metrics = settings, Metrics(by_person=settings.has_people)
        self.rules_for_want_of_upstream = False
        """Conversations were planned by rules because no model can be asked where they go."""
        team = settings.team
        self._session_settings = file_session(team.session) if team else load_settings(**settings.session)
        register_prices(self._session_settings.prices)
        preset_named(self._session_settings.preset)
        self._store = SessionStore(settings.store, _PATIENCE_SECONDS)
        self.people = People(self._store, team.limits.quota_of) if team and settings.has_people else None
        idle_seconds = CACHE_LIFETIME_SECONDS if self._is_shared else IDLE_SECONDS
        conversations = Conversations(self._open_session, settings.own, idle_seconds=idle_seconds, marks=self._marks)
        self.gateway = Gateway(conversations, self.metrics, self._store, self.people)
        cleaning = Cleaning(SessionStore(settings.store), team.retention if team else RetentionTable())
        super().__init__(
            _app(self, cleaning),
            _listening(settings.host, settings.port),
            team.grace_seconds if team else _STOP_SECONDS,
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

    def _open_session(self, session_id: str, model: str, asker: Asker | None) -> Session:
        """Its planner asks as the agent does; a model that names its provider there, as the environment says."""
        settings = self._session_settings
        planner: PlannerChoice = settings.planner
        if names_provider(settings.planner_model):
            asker = None
        elif asker is None and planner != "rules":
            planner, self.rules_for_want_of_upstream = "rules", True
        elif isinstance(asker, ResponsesPlanner) and planner != "rules":
            asker.model, planner = settings.planner_model, asker
        client = asker if isinstance(asker, Account) else None
        return Session(
            settings=settings,
            planner=planner,
            client=client,
            model=model,
            store=self._store,
            session_id=session_id,
            is_shared=self._is_shared,
        )

    @property
    def _is_shared(self) -> bool:
        """True if proxies of several machines may use the store; where each call leaves a session stands in it then,
        so that one which was let go goes on as if it had been held."""
        with suppress(StoreError):
            return store_file(self.settings.store) is None
        return False

    def _marks(self, session_ids: list[str]) -> Mapping[str, list[str]]:
        """By what any proxy on the store knows those conversations; nothing where it does not say."""
        with suppress(StoreError):
            return self._store.use(lambda store: marks_of(store, session_ids)) if self._is_shared else {}
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


def _app(server: ProxyServer, cleaning: Cleaning) -> ASGIApp:
    """The application; its shutdown closes the sessions of its gateway."""
    proxy = _Proxy(server)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        cleaning.start()
        yield
        await proxy.client.aclose()
        await anyio.to_thread.run_sync(cleaning.stop)
        await anyio.to_thread.run_sync(server.gateway.close)

    return Starlette(
        routes=[
            Route("/health", proxy.health),
            Route("/ready", proxy.ready),
            Route("/metrics", proxy.metrics),
            Route("/v1/messages", partial(proxy.answer, wire=MESSAGES), methods=["POST"]),
            Route("/v1/messages/count_tokens", proxy.count, methods=["POST"]),
            Route("/v1/chat/completions", partial(proxy.answer, wire=CHAT), methods=["POST"]),
            *(
                Route(front + path, partial(proxy.answer, wire=RESPONSES), methods=["POST"])
                for front in ("/v1", LOGIN_PATH)
                for path in ("/responses", "/responses/compact")
            ),
            Route("/{path:path}", proxy.answer, methods=_METHODS),
        ],
        exception_handlers={
            RefusedError: lambda request, error: cast(RefusedError, error).answer(request.url.path, request.headers),
            ClientDisconnect: lambda _request, _error: Response(status_code=499),
        },
        lifespan=lifespan,
        middleware=[Middleware(Entrance, settings=server.settings, metrics=server.metrics, people=server.people)],
    )


class _Proxy:
    """The endpoints; one client for all requests."""

    def __init__(self, server: ProxyServer) -> None:
        self.server, self.gateway, self.settings = server, server.gateway, server.settings
        timeout = httpx.Timeout(self.settings.upstreams.read_seconds, connect=_CONNECT_SECONDS)
        self.client = httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=None))
        self._looked_at, self._parts = -_LOOK_SECONDS, dict[str, str]()
        self._looking = anyio.Lock()

    async def health(self, request: Request) -> Response:
        """That it is alive; to its one user also why nothing is compacted, if that is so."""
        if self.settings.team or not hmac.compare_digest(
            request.headers.get(TOKEN_HEADER, "").encode(), self.settings.token.encode()
        ):
            return PlainTextResponse("ok\n")
        problem = await anyio.to_thread.run_sync(self.server.store_problem)
        return PlainTextResponse(f"ok, but nothing is compacted: {problem}\n" if problem else "ok\n")

    async def ready(self, _request: Request) -> Response:
        """Whether it can do its work, and which part of it cannot."""
        async with self._looking:
            if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
                self._parts, self._looked_at = await self._looked(), time.monotonic()
        parts = self._parts if not self.server.is_stopping else {**self._parts, "proxy": "stopping"}
        ready = all(state == "ok" for state in parts.values())
        return JSONResponse({"ready": ready, **parts}, status_code=200 if ready else 503)

    async def _looked(self) -> dict[str, str]:
        """Each part with ``ok`` or what it is not; the whole reason is in the log, for anybody may ask here."""
        problem = await anyio.to_thread.run_sync(self.server.store_problem)
        parts = {"store": "cannot be used" if problem else "ok"}
        of = self.settings.upstreams
        for name, address in (("anthropic", of.anthropic), ("openai", of.openai), ("chatgpt", of.chatgpt)):
            try:
                if address:
                    parts[name] = "ok"
                    await self.client.head(address, timeout=_PROBE_SECONDS)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                parts[name], problem = "cannot be reached", problem or f"{name}: {type(error).__name__}"
        if problem:
            _logger.warning("not ready: %s", problem)
        return parts

    async def metrics(self, _request: Request) -> Response:
        return PlainTextResponse(self.gateway.metrics.text(len(self.gateway.conversations)))

    async def answer(self, request: Request, wire: Wire | None = None) -> Response:
        """To a request of the API `wire`, or to one that the proxy does not understand."""
        if request.headers.get("upgrade", "").lower() == "websocket":
            # by this status Codex goes on with ordinary requests at once; by another it tries again for seconds
            raise RefusedError(426, "invalid_request_error", "no WebSockets here: ask by POST")
        way = way_of(self.settings.upstreams, request.url.path, request.headers)
        body = _streamed(request)
        raw = await _whole(body) if wire else body
        if isinstance(raw, bytes) and "content-encoding" in request.headers:
            plain = await anyio.to_thread.run_sync(_decoded, raw, request.headers["content-encoding"])
            wire, raw = (wire, plain) if plain is not None else (None, raw)
        if wire is None or not isinstance(raw, bytes):
            self.gateway.metrics.add("requests", 'kind="passed"')
            counts = self.server.people is not None and "json" in request.headers.get("content-type", "")
            return await self._pass(request, way, self._weighed(raw) if counts and raw else raw)
        started = time.perf_counter()
        passage = await anyio.to_thread.run_sync(
            self.gateway.prepare, wire, way, raw, dict(request.headers), request.url.path
        )
        self.gateway.metrics.add("added_seconds", amount=time.perf_counter() - started)
        if passage.reply is not None:
            return Response(passage.reply[0], media_type=passage.reply[1])
        return await self._pass(request, way, passage.raw, passage)

    async def _weighed(self, body: Body) -> AsyncIterator[bytes]:
        """`body` as it passes; what was not read, such as a batch, counts by its size."""
        size = 0
        async for chunk in _joined(body, _nothing()) if isinstance(body, bytes) else body:
            size += len(chunk)
            yield chunk
        await anyio.to_thread.run_sync(self.gateway.spend_unread, size)

    async def count(self, request: Request) -> Response:
        """The tokens of a list as it would be sent now."""
        way = way_of(self.settings.upstreams, request.url.path, request.headers)
        raw = await _whole(_streamed(request))
        if isinstance(raw, bytes):
            raw = await anyio.to_thread.run_sync(self.gateway.as_sent, raw, dict(request.headers))
        else:
            self.gateway.metrics.add("requests", 'kind="passed"')
        return await self._pass(request, way, raw)

    async def _pass(self, request: Request, way: Way, body: Body, passage: Passage | None = None) -> Response:
        try:
            upstream = await self._send(request, way, body, is_read=passage is not None)
            if passage is not None and upstream.status_code in _TOO_LONG:
                text = (await upstream.aread()).decode("utf-8", "replace")
                shorter = await anyio.to_thread.run_sync(self.gateway.shorter, passage, upstream.status_code, text)
                if shorter is not None:
                    upstream = await self._send(request, way, shorter, is_read=True)
        except httpx.TimeoutException:
            raise RefusedError(504, "timeout_error", "the provider did not answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            problem = f"the provider cannot be reached ({type(error).__name__})"
            raise RefusedError(502, "api_error", problem) from None
        self.gateway.metrics.add("upstream_responses", f'status="{upstream.status_code // 100}xx"')
        return _Passing(upstream, self._chunks(upstream, passage))

    async def _send(self, request: Request, way: Way, body: Body, *, is_read: bool) -> httpx.Response:
        """Send `body` with the client's headers; an answer that is to be read must not come compressed."""
        left_out = _OF_A_CONNECTION | _OF_THE_PROXY
        left_out |= {b"accept-encoding", b"content-encoding"} if is_read else set()
        left_out -= set() if isinstance(body, bytes) else {b"content-length"}
        headers = [pair for pair in request.headers.raw if pair[0].lower() not in left_out]
        headers += [(b"accept-encoding", b"identity")] if is_read else []
        url, query = httpx.URL(way.base), request.scope["query_string"]
        path = url.raw_path.rstrip(b"/") + request.scope.get("raw_path", request.url.path.encode())[way.cut :]
        url = url.copy_with(raw_path=path + (b"?" + query if query else b""))
        outgoing = httpx.Request(request.method, url, headers=headers, content=body or None)
        return await self.client.send(outgoing, stream=True)

    async def _chunks(self, upstream: httpx.Response, passage: Passage | None) -> AsyncIterator[bytes]:
        """The answer's bytes as they arrive; the session hears of it even if the client hangs up.

        It hears before the client has all of it: the next request may go to another proxy.
        """
        answer, is_read = bytearray(), passage is not None and upstream.is_success
        try:
            if upstream.is_stream_consumed:
                yield upstream.content
                return
            async for chunk in upstream.aiter_raw():
                if is_read and len(answer) <= MAX_READ_BYTES:
                    answer += chunk
                    if upstream.headers.get("content-length") == str(len(answer)):
                        is_read = False
                        await self._hear(upstream, passage, answer)
                yield chunk
        finally:
            with anyio.CancelScope(shield=True):
                await upstream.aclose()
                if is_read:
                    await self._hear(upstream, passage, answer)

    async def _hear(self, upstream: httpx.Response, passage: Passage | None, answer: bytearray) -> None:
        if passage is not None:
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


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


async def _joined(start: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield start
    async for chunk in rest:
        yield chunk
