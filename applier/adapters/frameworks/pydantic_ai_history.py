"""A history processor for pydantic-ai agents: each model request goes out as a session prepares it.

::

    agent = Agent(model, capabilities=[ProcessHistory(compacted_history(session))])

What is not compacted stays the same objects, and system prompts stay whatever the plan says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart

from applier.adapters.frameworks.pydantic_ai_messages import pairs_of, plain_of, rebuilt
from planner.reading.messages import message_digest, to_json

if TYPE_CHECKING:
    from applier.session import Session

__all__ = ["compacted_history"]


def compacted_history(session: Session) -> Callable[[list[ModelMessage]], list[ModelMessage]]:
    """The processor for `session`, which is one conversation: give each its own."""

    def compacted(messages: list[ModelMessage]) -> list[ModelMessage]:
        _observe(session, messages)
        rows = [(message, list(pairs_of(message))) for message in messages]
        plain = [(message, plain_of(message, pairs)) for message, pairs in rows if pairs]
        whole = {message_digest(made): message for message, made in plain}
        parts = {to_json(block): part for _, pairs in rows for block, part in pairs}
        view = session.prepare([made for _, made in plain])
        return _with_system([whole.get(message_digest(m)) or rebuilt(m, parts) for m in view], messages)

    return compacted


def _observe(session: Session, messages: Sequence[ModelMessage]) -> None:
    """Tell the size of the last prompt; pydantic-ai counts cached tokens in."""
    last = next((m for m in reversed(messages[-2:]) if isinstance(m, ModelResponse)), None)
    if last is not None and last.usage.input_tokens:
        session.observe({"input_tokens": last.usage.input_tokens})


def _with_system(view: list[ModelMessage], messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """`view` with the system prompts and instructions that stood in messages which are gone."""
    kept = {id(part) for message in view for part in message.parts}
    lost = [p for m in messages for p in m.parts if isinstance(p, SystemPromptPart) and id(p) not in kept]
    if lost and view and isinstance(view[0], ModelRequest):
        view[0] = replace(view[0], parts=[*lost, *view[0].parts])
    last = messages[-1] if messages else None
    if isinstance(last, ModelRequest) and view and view[-1] is not last and isinstance(view[-1], ModelRequest):
        view[-1] = replace(last, parts=view[-1].parts)
    return view
