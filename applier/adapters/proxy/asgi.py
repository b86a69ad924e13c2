"""The proxy as an ASGI application: two endpoints with sessions behind them, everything else passed on.

Decides which upstream a request is for; one that is for none is refused, for its key was given for another.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from applier.adapters.proxy.conversations import NAME_HEADER
from applier.adapters.proxy.gateway import Gateway, Passage
from applier.adapters.proxy.guard import TOKEN_HEADER, Guard, refusal
from applier.adapters.proxy.wires import CHAT, MESSAGES, Wire
from planner.errors import SettingsError

__all__ = ["MAX_BODY_BYTES", "Upstreams", "proxy_app"]

MAX_BODY_BYTES = 64 * 2**20
"""Twice what the Messages API takes: a history that outgrew it may still come in to be compacted."""
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_CONNECT_SECONDS = 10.0
_OF_A_CONNECTION = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
"""Headers that are a connection's, not a request's (RFC 9110, 7.6.1)."""
_OF_THE_PROXY = frozenset((b"host", b"content-length", TOKEN_HEADER.encode(), NAME_HEADER.encode()))
_TOO_LONG = (400, 413)


@dataclass(frozen=True)
class Upstreams:
    """Where requests of either API go; empty: nowhere, they are refused."""

    anthropic: str = "https://api.anthropic.com"
    openai: str = "https://api.openai.com"
    """Without the ``/v1`` that its clients' base URLs end in."""
    read_seconds: float = 600.0
    """How long a provider may say nothing: a model may think for minutes."""

    def check(self) -> None:
        """See that they can be reached.

        Raises:
            SettingsError: one is no address.
        """
        for address in filter(None, (self.anthropic, self.openai)):
            if not _is_address(address):
                raise SettingsError(f"upstream {address!r}: expected an address such as https://api.example.org")

    def of(self, path: str, headers: Mapping[str, str]) -> str:
        """The one that a request is for; empty if there is none."""
        if _is_anthropics(path, headers):
            return self.anthropic
        return self.openai if path.startswith("/v1/") else ""


def _is_address(text: str) -> bool:
    try:
        url = urlsplit(text)
    except ValueError:
        return False
    return url.scheme in ("http", "https") and bool(url.hostname)


def _is_anthropics(path: str, headers: Mapping[str, str]) -> bool:
    """By what only its clients send: its API demands a version, its keys have a form; ``/api/…`` is Claude Code's."""
    return (
        path == "/"
        or f"{path}/".startswith(("/v1/messages/", "/api/"))
        or "x-api-key" in headers
        or any(name.startswith("anthropic-") for name in headers)
        or headers.get("authorization", "").rpartition(" ")[2].startswith("sk-ant-")
    )


class _Passing(Response):
    """A streamed answer that passes on as it arrives; if the provider breaks it off, so does this."""

    def __init__(self, upstream: httpx.Response, chunks: AsyncIterator[bytes]) -> None:
        self.status_code, self.background = upstream.status_code, None
        # an error's body was read, and decoded, to see whether it is about the length
        decoded = {b"content-encoding", b"content-length"} if upstream.is_stream_consumed else set()
        left_out = _OF_A_CONNECTION | decoded
        self.raw_headers = [pair for pair in upstream.headers.raw if pair[0].lower() not in left_out]
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        async with anyio.create_task_group() as group:

            async def stop_when_gone() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            group.start_soon(stop_when_gone)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                async for chunk in self._chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            except httpx.HTTPError:
                pass  # returned without an end: the server closes the connection, as the provider did
            group.cancel_scope.cancel()


class _Proxy:
    """The endpoints; one client for all requests."""

    def __init__(self, gateway: Gateway, upstreams: Upstreams) -> None:
        self.gateway, self.upstreams = gateway, upstreams
        timeout = httpx.Timeout(upstreams.read_seconds, connect=_CONNECT_SECONDS)
        self.client = httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=None))

    async def messages(self, request: Request) -> Response:
        """Anthropic's Messages API."""
        return await self._converse(request, MESSAGES)

    async def chat(self, request: Request) -> Response:
        """OpenAI's chat completions."""
        return await self._converse(request, CHAT)

    async def anything(self, request: Request) -> Response:
        """What the proxy does not understand."""
        self.gateway.metrics.add("requests", 'kind="passed"')
        base, body = self.upstreams.of(request.url.path, request.headers), await _read(request)
        if isinstance(body, Response):
            return body
        return await self._pass(request, base, body) if base else _homeless(request)

    async def health(self, _request: Request) -> Response:
        """That it runs."""
        return PlainTextResponse("ok\n")

    async def metrics(self, _request: Request) -> Response:
        """Prometheus' text format."""
        count = len(self.gateway.conversations)
        return PlainTextResponse(self.gateway.metrics.text(open_conversations=count))

    async def _converse(self, request: Request, wire: Wire) -> Response:
        base, raw = self.upstreams.of(request.url.path, request.headers), await _read(request)
        if isinstance(raw, Response):
            return raw
        if not base:
            return _homeless(request)
        started = time.perf_counter()
        passage = await anyio.to_thread.run_sync(self.gateway.prepare, wire, base, raw, dict(request.headers))
        self.gateway.metrics.add("added_seconds", amount=time.perf_counter() - started)
        return await self._pass(request, base, passage.raw, passage)

    async def _pass(self, request: Request, base: str, body: bytes, passage: Passage | None = None) -> Response:
        try:
            upstream = await self._send(request, base, body, is_read=passage is not None)
            if passage is not None and upstream.status_code in _TOO_LONG:
                upstream = await self._again(request, base, passage, upstream)
        except httpx.TimeoutException:
            return refusal(504, "timeout_error", "the provider did not answer in time")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return refusal(502, "api_error", f"the provider cannot be reached ({type(error).__name__})")
        self.gateway.metrics.add("upstream_responses", f'status="{upstream.status_code // 100}xx"')
        return _Passing(upstream, self._chunks(upstream, passage))

    async def _send(self, request: Request, base: str, body: bytes, *, is_read: bool) -> httpx.Response:
        headers = list(_forwarded(request.headers.raw, is_read=is_read))
        url = httpx.URL(base)
        path = url.raw_path.rstrip(b"/") + request.scope.get("raw_path", request.url.path.encode())
        query = request.scope["query_string"]
        url = url.copy_with(raw_path=path + (b"?" + query if query else b""))
        outgoing = httpx.Request(request.method, url, headers=headers, content=body or None)
        return await self.client.send(outgoing, stream=True)

    async def _again(self, request: Request, base: str, passage: Passage, refused: httpx.Response) -> httpx.Response:
        """The answer to a shorter request, if the first one was `refused` for its length and there is a shorter one."""
        text = (await refused.aread()).decode("utf-8", "replace")
        shorter = await anyio.to_thread.run_sync(self.gateway.shorter, passage, refused.status_code, text)
        return refused if shorter is None else await self._send(request, base, shorter, is_read=True)

    async def _chunks(self, upstream: httpx.Response, passage: Passage | None) -> AsyncIterator[bytes]:
        """The answer's bytes as they arrive; the session hears of it even if the client hangs up."""
        reader = passage.reader(upstream.headers.get("content-type", "")) if passage and upstream.is_success else None
        try:
            if upstream.is_stream_consumed:
                yield upstream.content
                return
            async for chunk in upstream.aiter_raw():
                if reader is not None:
                    reader.feed(chunk)
                yield chunk
        finally:
            with anyio.CancelScope(shield=True):
                await upstream.aclose()
                if reader is not None and passage is not None:
                    await anyio.to_thread.run_sync(self.gateway.observe, passage, reader.observed())


def _homeless(request: Request) -> Response:
    """The answer to a request that is for no upstream."""
    path = request.url.path
    if _is_anthropics(path, request.headers):
        return refusal(404, "not_found_error", f"{path}: no upstream for Anthropic's API: start with --upstream URL")
    if path.startswith("/v1/"):
        cure = "start with --openai-upstream URL"
        return refusal(404, "not_found_error", f"{path}: no upstream for OpenAI's API: {cure}")
    what = "neither of Anthropic's API nor of OpenAI's, whose base URL ends in /v1 here"
    return refusal(404, "not_found_error", f"{path}: {what}")


async def _read(request: Request) -> bytes | Response:
    """The whole body; an answer instead if it is too large or the client went away."""
    parts, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                return refusal(413, "request_too_large", f"a request may have {MAX_BODY_BYTES:,} bytes")
            parts.append(chunk)
    except ClientDisconnect:
        return Response(status_code=499)
    return b"".join(parts)


def _forwarded(headers: Iterable[tuple[bytes, bytes]], *, is_read: bool) -> Iterable[tuple[bytes, bytes]]:
    """The client's headers that go upstream; an answer that is to be read must not come compressed."""
    left_out = _OF_A_CONNECTION | _OF_THE_PROXY | ({b"accept-encoding"} if is_read else set())
    yield from (pair for pair in headers if pair[0].lower() not in left_out)
    if is_read:
        yield b"accept-encoding", b"identity"


def proxy_app(gateway: Gateway, upstreams: Upstreams, *, token: str = "", is_loopback: bool = True) -> Starlette:
    """The application; its shutdown closes the sessions of `gateway`."""
    proxy = _Proxy(gateway, upstreams)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        await proxy.client.aclose()
        await anyio.to_thread.run_sync(gateway.conversations.close)

    return Starlette(
        routes=[
            Route("/health", proxy.health),
            Route("/metrics", proxy.metrics),
            Route("/v1/messages", proxy.messages, methods=["POST"]),
            Route("/v1/chat/completions", proxy.chat, methods=["POST"]),
            Route("/{path:path}", proxy.anything, methods=_METHODS),
        ],
        middleware=[Middleware(Guard, token=token, is_loopback=is_loopback, max_body_bytes=MAX_BODY_BYTES)],
        lifespan=lifespan,
    )
