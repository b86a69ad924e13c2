"""Answers each HTTP request to the proxy: sends it on to its provider and returns the provider's answer.

Before a request of a known API is sent, the gateway compacts its messages; all other requests pass unchanged. Further
endpoints report whether the proxy works. Nothing is decided here about sessions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial

import anyio
import anyio.to_thread
import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from applier.adapters.proxy import wires
from applier.adapters.proxy.configuration import ProxySettings
from applier.adapters.proxy.conversations import NAME_HEADER, PERSON_HEADER
from applier.adapters.proxy.entrance import TOKEN_HEADER, has_token
from applier.adapters.proxy.gateway import Gateway, ProxiedRequest
from applier.adapters.proxy.upstreams import LOGIN_PATH, Destination, RefusedError, destination_of
from applier.adapters.proxy.wires import RawBody, Wire

_logger = logging.getLogger("applier.proxy")
_REPEAT_SECONDS, _PROBE_SECONDS = 2.0, 5.0
"""Seconds for which `/ready` repeats its last answer, and seconds that a provider has to answer the check."""
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_CONNECT_SECONDS = 10.0
_CONNECTION_HEADERS = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
"""Headers that concern one connection and are not passed on (RFC 9110, 7.6.1); ``connection`` names further ones."""
_LENGTH = b"content-length"
"""Header that is passed on even if ``connection`` names it: without it the provider would misjudge a body's length."""
_PROXY_HEADERS = frozenset(
    (b"host", b"content-length", TOKEN_HEADER.encode(), NAME_HEADER.encode(), PERSON_HEADER.encode())
)
"""Headers that are meant for the proxy, and those that are set anew in the request to the provider."""
_TOO_LONG = (400, 413)
"""Statuses with which providers refuse a prompt that is too long, among other faults."""
_MOST_LARGE = 2
"""Largest number of large bodies that are prepared at once, and of compressed bodies that are decoded at once, to limit
memory. Further ones wait; smaller bodies never wait."""


class Endpoints:
    """HTTP endpoints of the proxy. All requests to providers share one HTTP client."""

    def __init__(self, settings: ProxySettings, gateway: Gateway, is_stopping: Callable[[], bool]) -> None:
        """Prepare requests by `gateway`. `is_stopping` returns True once the proxy is being stopped."""
        self.settings, self.gateway, self._is_stopping = settings, gateway, is_stopping
        timeout = httpx.Timeout(self.settings.upstreams.read_seconds, connect=_CONNECT_SECONDS)
        self.client = httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=None))
        self._checked_at, self._parts = -_REPEAT_SECONDS, dict[str, str]()  # the last check and its result for `/ready`
        self._check_lock = anyio.Lock()
        self._large, self._decoding = anyio.CapacityLimiter(_MOST_LARGE), anyio.CapacityLimiter(_MOST_LARGE)

    def routes(self) -> list[Route]:
        """Return the paths of the proxy, each with the method that answers its requests."""
        return [
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.metrics),
            Route("/v1/messages", partial(self.answer, wire=wires.MESSAGES), methods=["POST"]),
            Route("/v1/messages/count_tokens", self.count, methods=["POST"]),
            Route("/v1/chat/completions", partial(self.answer, wire=wires.CHAT), methods=["POST"]),
            *(
                Route(front + path, partial(self.answer, wire=wires.RESPONSES), methods=["POST"])
                for front in ("/v1", LOGIN_PATH)
                for path in ("/responses", "/responses/compact")
            ),
            Route("/{path:path}", self.answer, methods=_METHODS),
        ]

    async def health(self, request: Request) -> Response:
        """Answer that the proxy is alive; to its user, who sends the token, also whether the store fails."""
        if self.settings.team or not has_token(request.headers, self.settings.token):
            return PlainTextResponse("ok\n")
        problem = await anyio.to_thread.run_sync(self.gateway.store_problem)
        return PlainTextResponse(f"ok, but nothing is compacted: {problem}\n" if problem else "ok\n")

    async def ready(self, _request: Request) -> Response:
        """Answer ``{"ready": true, "store": "ok"}`` if store and providers can be reached, else with status 503."""
        async with self._check_lock:
            if time.monotonic() - self._checked_at >= _REPEAT_SECONDS:
                self._parts, self._checked_at = await self._check_parts(), time.monotonic()
        parts = self._parts if not self._is_stopping() else {**self._parts, "proxy": "stopping"}
        ready = all(state == "ok" for state in parts.values())
        return JSONResponse({"ready": ready, **parts}, status_code=200 if ready else 503)

    async def _check_parts(self) -> dict[str, str]:
        """Return the state of store and providers: ``ok`` or a fault. Its reason is only logged, as anybody may ask."""
        problem = await anyio.to_thread.run_sync(self.gateway.store_problem)
        parts, problems = {"store": "cannot be used" if problem else "ok"}, [problem] if problem else []
        urls = self.settings.upstreams
        for name, address in (("anthropic", urls.anthropic), ("openai", urls.openai), ("chatgpt", urls.chatgpt)):
            try:
                if address:
                    parts[name] = "ok"
                    await self.client.head(address, timeout=_PROBE_SECONDS)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                parts[name] = "cannot be reached"
                problems.append(f"{name}: {type(error).__name__} (an empty address leaves it out)")
        if problems:
            _logger.warning("not ready: %s", "; ".join(problems))
        return parts

    async def metrics(self, _request: Request) -> Response:
        """Answer with the proxy's counts, in the text format of Prometheus."""
        return PlainTextResponse(self.gateway.metrics.text(len(self.gateway.conversations)))

    async def answer(self, request: Request, wire: Wire | None = None) -> Response:
        """Compact the messages of a request of the API `wire`, and answer it by its provider. `wire`: None for a path
        of another kind, where the request passes unchanged."""
        if request.headers.get("upgrade", "").lower() == "websocket":
            # after this status Codex sends ordinary requests at once; after others it tries again for seconds
            raise RefusedError(426, "invalid_request_error", "no WebSockets here: ask by POST")
        destination = destination_of(self.settings.upstreams, request.url.path, request.headers)
        body = _arriving(request)
        raw = await wires.collect(body) if wire else body  # chunks, not bytes, if the body is too large to be read
        encoding = ",".join(request.headers.getlist("content-encoding"))
        if isinstance(raw, bytes) and encoding:
            plain = await anyio.to_thread.run_sync(wires.decode, raw, encoding, limiter=self._decoding)
            wire, raw = (wire, plain) if plain is not None else (None, raw)
        if wire is None or not isinstance(raw, bytes):  # it is passed on unread
            self.gateway.metrics.add("requests", kind="passed")
            is_charged = self.gateway.people is not None and "json" in request.headers.get("content-type", "")
            return await self._pass(request, destination, self._charged(raw) if is_charged and raw else raw)
        started = time.perf_counter()
        prepare = partial(self.gateway.prepare, wire, destination, raw, dict(request.headers), request.url.path)
        proxied = await anyio.to_thread.run_sync(prepare, limiter=self._large if len(raw) > wires.LARGE_BYTES else None)
        self.gateway.metrics.add("added_seconds", time.perf_counter() - started)
        if isinstance(proxied, Response):  # the proxy's own compaction, which the client asked for
            return proxied
        return await self._pass(request, destination, proxied.raw, proxied)

    async def _charged(self, body: RawBody) -> AsyncIterator[bytes]:
        """Yield the chunks of `body`, which the proxy does not read (a batch); then charge the person for its size."""
        size = 0
        async for chunk in wires.join(body) if isinstance(body, bytes) else body:
            size += len(chunk)
            yield chunk
        await anyio.to_thread.run_sync(self.gateway.spend_unread, size)

    async def count(self, request: Request) -> Response:
        """Answer a request to count tokens by the provider's count of the compacted messages, as last sent."""
        destination = destination_of(self.settings.upstreams, request.url.path, request.headers)
        raw = await wires.collect(_arriving(request))
        if isinstance(raw, bytes):
            as_sent = partial(self.gateway.as_sent, raw, dict(request.headers))
            raw = await anyio.to_thread.run_sync(as_sent, limiter=self._large if len(raw) > wires.LARGE_BYTES else None)
        else:
            self.gateway.metrics.add("requests", kind="passed")
        return await self._pass(request, destination, raw)

    async def _pass(
        self, request: Request, destination: Destination, body: RawBody, proxied: ProxiedRequest | None = None
    ) -> Response:
        """Send the request with `body`, and return the provider's answer. If the provider refuses it as too long, send
        it once more, shorter. `proxied`: the request as the gateway prepared it; None if the proxy did not read it."""
        try:
            upstream = await self._send(request, destination, body, is_read=proxied is not None)
            if proxied is not None and upstream.status_code in _TOO_LONG:
                text = (await upstream.aread()).decode("utf-8", "replace")
                shorter = await anyio.to_thread.run_sync(self.gateway.shorter, proxied, upstream.status_code, text)
                if shorter is not None:
                    upstream = await self._send(request, destination, shorter, is_read=True)
        except httpx.TimeoutException:
            raise RefusedError(504, "timeout_error", f"{destination.place} did not answer in time") from None
        except httpx.InvalidURL as error:  # the client's path is wrong, as the upstream's address was checked
            raise RefusedError(400, "invalid_request_error", f"this path cannot be asked for: {error}") from None
        except httpx.HTTPError as error:
            problem = f"{destination.place} cannot be reached ({type(error).__name__})"
            raise RefusedError(502, "api_error", f"{problem}: is this upstream's address right?") from None
        self.gateway.metrics.add("upstream_responses", status=f"{upstream.status_code // 100}xx")
        return _StreamedAnswer(upstream, proxied, self.gateway)

    async def _send(
        self, request: Request, destination: Destination, body: RawBody, *, is_read: bool
    ) -> httpx.Response:
        """Send `body` to the provider with the client's headers. `is_read`: True if the proxy read the request and will
        read the answer, so that neither may be compressed."""
        removed = _connection_headers(request.headers.raw) | _PROXY_HEADERS
        if is_read:
            removed |= {b"accept-encoding", b"content-encoding"}
        if not isinstance(body, bytes):  # a body that is passed on in chunks has the length that the client announced
            removed -= {b"content-length"}
        headers = [pair for pair in request.headers.raw if pair[0].lower() not in removed]
        headers += [(b"accept-encoding", b"identity")] if is_read else []
        url, query = httpx.URL(destination.base), request.scope["query_string"]
        path = url.raw_path.rstrip(b"/") + request.scope.get("raw_path", request.url.path.encode())[destination.cut :]
        url = url.copy_with(raw_path=path + (b"?" + query if query else b""))
        outgoing = httpx.Request(request.method, url, headers=headers, content=body or None)
        return await self.client.send(outgoing, stream=True)


class _StreamedAnswer(StreamingResponse):
    """Answer of the provider that is passed on to the client as it arrives; breaks off if the provider does.

    The gateway gets the answer before the client has its end, because the client's next request needs what the session
    learns from it, and may go to another proxy. If the client disconnects, the gateway gets the part that arrived.
    """

    def __init__(self, upstream: httpx.Response, proxied: ProxiedRequest | None, gateway: Gateway) -> None:
        self._upstream, self._proxied, self._gateway = upstream, proxied, gateway
        self._answer, self._is_read = bytearray(), proxied is not None and upstream.is_success  # so far; to be reported
        super().__init__(self._chunks(), upstream.status_code)
        # the body of an error is already decoded: it was read to see whether the prompt is too long
        decoded = {b"content-encoding", b"content-length"} if upstream.is_stream_consumed else set()
        removed = _connection_headers(upstream.headers.raw) | decoded
        self.raw_headers = [pair for pair in upstream.headers.raw if pair[0].lower() not in removed]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer to the client; also if that fails, close the provider's and report what arrived of it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await self._upstream.aclose()
            await self._report()

    async def stream_response(self, send: Send) -> None:
        """Send the answer. If the provider breaks off, stop without an end, so that the client notices it."""
        with suppress(httpx.HTTPError):
            await super().stream_response(send)

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Yield the provider's answer as it arrives, collect it, and report it before its last chunk if possible."""
        if self._upstream.is_stream_consumed:  # an error, which was read already
            yield self._upstream.content
            return
        async for chunk in self._upstream.aiter_raw():
            if self._is_read and len(self._answer) <= wires.MAX_READ_BYTES:
                self._answer += chunk
                if self._upstream.headers.get("content-length") == str(len(self._answer)):  # this chunk is the last
                    await self._report()
            yield chunk
        await self._report()

    async def _report(self) -> None:
        """Report the answer to the gateway for session and counts, once, also if the client disconnects meanwhile."""
        if self._is_read and self._proxied is not None:
            self._is_read = False
            is_stream = "event-stream" in self._upstream.headers.get("content-type", "")
            observe = partial(self._gateway.observe, is_stream=is_stream)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(observe, self._proxied, bytes(self._answer))


def _connection_headers(headers: Sequence[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the names of headers that belong to one connection, including those that ``connection`` names."""
    named = b",".join(value for name, value in headers if name.lower() == b"connection").lower().split(b",")
    return _CONNECTION_HEADERS | {name.strip() for name in named} - {_LENGTH}


def _arriving(request: Request) -> RawBody:
    """Return the request's body as chunks, without waiting for its end; empty bytes if it has none."""
    has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
    return request.stream() if has_body else b""
