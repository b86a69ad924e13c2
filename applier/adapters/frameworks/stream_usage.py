"""The SDK's stream classes, made to tell the prompt's size and why the answer ended, as the events pass by.

Changes no event and reads nothing ahead.
"""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, get_origin

import anthropic

__all__ = ["listening"]


def listening(stream_class: type[Any], hear: Callable[[object], None]) -> type[Any]:
    """`stream_class` (``Stream[…]`` or ``AsyncStream[…]``), calling `hear` with the message that starts and its end."""
    plain = get_origin(stream_class) or stream_class

    def events(stream: Any) -> Iterator[Any]:
        for event in plain.__stream__(stream):
            _tell(event, hear)
            yield event

    async def async_events(stream: Any) -> AsyncIterator[Any]:
        async for event in plain.__stream__(stream):
            _tell(event, hear)
            yield event

    chosen = async_events if issubclass(plain, anthropic.AsyncStream) else events
    return types.new_class(
        f"Listening{plain.__name__}", (stream_class,), exec_body=lambda body: body.update(__stream__=chosen)
    )


def _tell(event: Any, hear: Callable[[object], None]) -> None:
    kind = getattr(event, "type", "")
    if kind == "message_start":
        hear(event.message)
    elif kind == "message_delta":
        hear(event.delta)
