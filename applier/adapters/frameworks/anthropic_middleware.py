"""`CompactionMiddleware`: an anthropic client's requests go out as a session prepares them.

Answers "prompt is too long" with one shorter request before the caller sees it. Leaves alone what is no full
conversation: other endpoints, ``count_tokens``, requests on a server-held thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anthropic
import anyio.to_thread

from applier.adapters.frameworks.exchange import Exchange

if TYPE_CHECKING:
    from anthropic import APIResponse, AsyncAPIResponse
    from anthropic._middleware import AsyncCallNext, CallNext
    from anthropic._request import APIRequest

    from applier.session import Session

__all__ = ["CompactionMiddleware"]


class CompactionMiddleware(anthropic.Middleware):
    """Compaction for a whole client, with no change to the loop around it.

    ::

        client = anthropic.Anthropic(middleware=[CompactionMiddleware(session)])

    An answer that the window cut off is asked for again with a shorter prompt. A streamed one is not, its beginning
    is with the caller already: the next request is compacted instead.

    The session's planner may use the same client: its requests leave this middleware out.
    """

    for_agents_only = True
    """Read by `planner.model.client`: a planner's own request must not wait for the session that waits for it."""

    def __init__(self, session: Session | Callable[[Mapping[str, Any]], Session | None]) -> None:
        """One `session`, or a function that names the session of a request body (None: leave it alone).

        A client that several conversations share (subagents) needs the function.
        """
        self._choose = session if callable(session) else lambda _body: session

    def handle(self, request: APIRequest, call_next: CallNext) -> APIResponse[Any]:
        """One attempt of a synchronous client."""
        exchange = self._exchange(request)
        if exchange is None:
            return call_next(request)
        response = _read(exchange, call_next(exchange.first()))
        shorter = exchange.second(response)
        return response if shorter is None else _read(exchange, call_next(shorter))

    async def handle_async(self, request: APIRequest, call_next: AsyncCallNext) -> AsyncAPIResponse[Any]:
        """One attempt of an asynchronous client; the session works in a thread meanwhile."""
        exchange = self._exchange(request)
        if exchange is None:
            return await call_next(request)
        first = await anyio.to_thread.run_sync(exchange.first)
        response = await _read_async(exchange, await call_next(first))
        shorter = await anyio.to_thread.run_sync(exchange.second, response)
        return response if shorter is None else await _read_async(exchange, await call_next(shorter))

    def _exchange(self, request: APIRequest) -> Exchange | None:
        body = request.json
        if request.method.lower() != "post" or request.url.split("?")[0] != "/v1/messages":
            return None
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or body.get("thread"):
            return None
        session = self._choose(body)
        return None if session is None else Exchange(session, request, body)


def _read(exchange: Exchange, response: APIResponse[Any]) -> APIResponse[Any]:
    """`response`, with the session told of its usage; an error is read, a stream is told of as it runs."""
    if not response.http_response.is_success:
        response.http_response.read()
    elif response.is_closed and not exchange.request.stream:
        exchange.observe(response.parse())
    return response


async def _read_async(exchange: Exchange, response: AsyncAPIResponse[Any]) -> AsyncAPIResponse[Any]:
    if not response.http_response.is_success:
        await response.http_response.aread()
    elif response.is_closed and not exchange.request.stream:
        exchange.observe(await response.parse())
    return response
