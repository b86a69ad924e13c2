"""Middleware for clients of the ``anthropic`` SDK: compacts the messages of each request through a session.

The session stores one conversation and decides when to compact it, by the model, system prompt, tools and thinking of
each request. If the provider answers "prompt is too long", one shorter request is sent before the caller sees the
error. Requests of other endpoints pass unchanged.
"""

from __future__ import annotations

import logging
import types
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_origin

import anthropic
import anyio.to_thread
import httpx2

from applier.adapters.frameworks.bridge import SessionOf, opener
from applier.session import Session
from applier.session.refusals import WINDOW_EXCEEDED, stop_reason_of
from applier.session.request import fields_of_body
from planner.errors import SettingsError

if TYPE_CHECKING:
    from anthropic import APIResponse, AsyncAPIResponse
    from anthropic._middleware import AsyncCallNext, CallNext
    from anthropic._request import APIRequest

    _AnyResponse = APIResponse[Any] | AsyncAPIResponse[Any]

__all__ = ["CompactionMiddleware", "SessionOf"]

logger = logging.getLogger("applier.session")


class CompactionMiddleware(anthropic.Middleware):
    """Middleware that compacts the messages of an anthropic client, without a change to the agent's loop.

    ::

        client = anthropic.Anthropic(middleware=[CompactionMiddleware(session)])

    An answer that the window cut off is requested again with a shorter prompt. A streamed answer is not, because the
    caller has its beginning already: the next request is compacted instead.

    The SDK's tool runner stores conversations on the server. They are sent whole instead, because a stored one cannot
    be compacted. A session without its own client for plans uses this one from the first answer on. The planner's
    requests skip the middleware.
    """

    for_agents_only = True
    """Mark by which a planner's requests skip this middleware; else session and planner would wait for each other."""

    def __init__(self, session: Session | SessionOf[Mapping[str, Any]]) -> None:
        """Compact by `session`: a session, or a function that returns the session for the body of a request. A client
        that several conversations share (subagents, threads) needs the function.

        If the function returns None, or cannot open a session because the store or the settings fail, the request is
        sent unchanged.
        """
        self._session_of = opener(session)

    def handle(self, request: APIRequest, call_next: CallNext) -> APIResponse[Any]:
        """Send a request of a synchronous client with compacted messages; if it is too long, once more, shorter."""
        exchange = self._exchange(request)
        if exchange is None:
            return call_next(request)
        outgoing: APIRequest | None = exchange.first()
        while outgoing is not None:
            response, answer = call_next(outgoing), None
            if not response.http_response.is_success:
                response.http_response.read()
            elif exchange.is_whole(response):
                answer = response.parse()
            outgoing = exchange.second(response, answer)
        return response

    async def handle_async(self, request: APIRequest, call_next: AsyncCallNext) -> AsyncAPIResponse[Any]:
        """Do the same as `handle` for an asynchronous client; the session works in a thread."""
        exchange = self._exchange(request)
        if exchange is None:
            return await call_next(request)
        outgoing: APIRequest | None = await anyio.to_thread.run_sync(exchange.first)
        while outgoing is not None:
            response, answer = await call_next(outgoing), None
            if not response.http_response.is_success:
                await response.http_response.aread()
            elif exchange.is_whole(response):
                answer = await response.parse()
            outgoing = await anyio.to_thread.run_sync(exchange.second, response, answer)
        return response

    def _exchange(self, request: APIRequest) -> _Exchange | None:
        """Return the exchange for `request`; None if it has no conversation to compact and is to be sent unchanged."""
        body = request.json
        is_of_messages = request.method.lower() == "post" and request.url.split("?")[0] == "/v1/messages"
        if not is_of_messages or not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            return None
        if body.get("compaction"):
            return None  # because the server compacts now, and needs the caller's own history for that
        if body.get("thread") and _THREAD_HELPER not in str(request.headers.get(_HELPER_HEADER, "")):
            return None  # because the body lacks a part of the conversation, which only the caller could add
        session = self._session_of(body)
        return None if session is None else _Exchange(session, request, _without_thread(request, body))


_HELPER_HEADER, _THREAD_HELPER = "x-stainless-helper", "message-thread"
"""Header in which the SDK names its helpers, and the name of the one that keeps all messages of a stored thread."""


def _without_thread(request: APIRequest, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `body` without the field ``thread``, which asks the provider to store the conversation. If it contains
    only the newest messages of a thread, raise the API's error for an unknown thread, after which the SDK sends all."""
    thread = body.get("thread")
    if isinstance(thread, Mapping) and thread.get("type") == "continue":
        sent = httpx2.Request(request.method, f"https://api.anthropic.com{request.url}")
        message = "the session sends whole conversations: nothing is held by the server"
        details = {"error_code": "thread_not_found"}
        error = {"type": "not_found_error", "message": message, "details": details}
        response = httpx2.Response(404, request=sent, json={"error": error})
        raise anthropic.NotFoundError(message, response=response, body={"type": "error", "error": error})
    return {name: value for name, value in body.items() if name != "thread"}


@dataclass
class _Exchange:
    """Request of the client with its one or two attempts: compacted, and shorter if that was still too long."""

    session: Session
    request: APIRequest
    body: Mapping[str, Any]
    """Body of the request with the caller's own messages."""
    sent: Mapping[str, Any] = field(default_factory=dict)
    """Body that was sent last."""
    is_second: bool = False
    """True once the shorter request was made."""

    def first(self) -> APIRequest:
        """Return the request with compacted messages; unchanged if its fields are not valid."""
        try:
            self.session.set_request(**fields_of_body(self.body), client_follows=True)
        except SettingsError as error:  # send the invalid request: the provider's error explains it better
            logger.warning("the request goes out as it came: %s", error)
            return self._request_with(self.body["messages"])
        return self._request_with(self.session.prepare(self.body["messages"]))

    def is_whole(self, response: _AnyResponse) -> bool:
        """Return True if `response` contains the complete answer, and is not a stream."""
        return response.is_closed and not self.request.stream

    def second(self, response: _AnyResponse, answer: object) -> APIRequest | None:
        """Report the provider's response to the session, and return a shorter request if the first was too long. Return
        None if it was not, or if this is the second response already. `answer`: the content of a complete response."""
        http, problem = response.http_response, answer  # the problem: an answer cut off by the window, or an error
        if http.is_success:
            headers = {name: value for name, value in self.request.headers.items() if isinstance(value, str)}
            self.session.note_sent(self.sent, response._client, path=self.request.url, headers=headers)
            self.session.observe(answer)
        else:
            problem = anthropic.APIStatusError(http.text, response=http, body=http.text)
        if self.is_second or (http.is_success and stop_reason_of(answer) != WINDOW_EXCEEDED):
            return None
        self.is_second = True
        shorter = self.session.recover(self.body["messages"], problem)
        return None if shorter is None else self._request_with(shorter)

    def _request_with(self, messages: list[Any]) -> APIRequest:
        """Return the request with these `messages`, and note its body as the one that was sent last."""
        changed = copy(self.request)  # APIRequest.copy would first deep-copy the whole conversation
        self.sent = {**self.body, "messages": messages}
        changed.options = changed.options.model_copy(update={"json_data": self.sent})
        if changed.stream_cls is not None:
            changed.stream_cls = _listening(changed.stream_cls, self.session.observe)
        return changed


def _listening(stream_class: type[Any], observe: Callable[[object], None]) -> type[Any]:
    """Return a subclass of the SDK's `stream_class` (``Stream[…]``, ``AsyncStream[…]``) that also passes the message
    at the start, with its token counts, and the changes at the end, with the reason to stop, to `observe`. All events
    stay unchanged, and none is read ahead."""
    plain = get_origin(stream_class) or stream_class

    def observed(event: Any) -> Any:
        kind = getattr(event, "type", "")
        if kind in ("message_start", "message_delta"):
            observe(event.message if kind == "message_start" else event.delta)
        return event

    def events(stream: Any) -> Iterator[Any]:
        yield from map(observed, plain.__stream__(stream))

    async def async_events(stream: Any) -> AsyncIterator[Any]:
        async for event in plain.__stream__(stream):
            yield observed(event)

    chosen = async_events if issubclass(plain, anthropic.AsyncStream) else events
    return types.new_class(
        f"Listening{plain.__name__}", (stream_class,), exec_body=lambda body: body.update(__stream__=chosen)
    )
