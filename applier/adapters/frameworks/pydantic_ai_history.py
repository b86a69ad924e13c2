"""A capability for pydantic-ai agents: each model request goes out as a session prepares it.

::

    agent = Agent(model, capabilities=[CompactedHistory(session)])

The run's own messages stay whole: ``all_messages()`` and ``new_messages()`` are what they were without it. What is not
compacted stays the same objects, and system prompts stay whatever the plan says. An agent that serves several
conversations passes a function that names the session of a run: ``lambda ctx: sessions[ctx.deps.thread]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, partial
from operator import is_
from typing import Any, cast

import anyio.to_thread
from pydantic_ai import RetryModelRequest, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_core import to_jsonable_python

from applier.adapters.frameworks.bridge import SessionOf, opener, through
from applier.session import Session
from applier.session.request import fields_of_body
from planner.reading.messages import Block, Message, blocks, result_text, to_json

__all__ = ["CompactedHistory"]

_TRIES = 2
"""Attempts at a request: a prompt that is too long is tried once more, shorter."""


@dataclass
class CompactedHistory(AbstractCapability[Any]):
    """Compaction as a capability; a prompt that is too long is tried once more, shorter."""

    session: Session | SessionOf[RunContext[Any]]
    """One conversation, or a function that names the session of each run."""
    _given: Sequence[ModelMessage] = field(default=(), init=False, repr=False)
    """The whole list that the run's newest request was made of."""

    def __post_init__(self) -> None:
        """Say now what settings no session could be opened with."""
        self._session_of = opener(self.session)

    async def for_run(self, _ctx: RunContext[Any]) -> CompactedHistory:
        """One of its own for each run."""
        return copy(self)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Each attempt at a request; the session works in a thread meanwhile."""
        self._given = list(request_context.messages)
        session = self._session_of(ctx)
        if session is None:
            return request_context
        _tell(session, request_context)
        view = await anyio.to_thread.run_sync(_through, session.prepare, self._given)
        return request_context if view is None else replace(request_context, messages=view)

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """A failed attempt.

        Raises:
            RetryModelRequest: the prompt was too long, and the session has a shorter one.
        """
        session = self._session_of(ctx) if request_context.attempt < _TRIES else None
        if session is not None:
            recover = partial(session.recover, error=error)
            if await anyio.to_thread.run_sync(_through, recover, self._given) is not None:
                raise RetryModelRequest from error
        raise error


def _through(
    act: Callable[[list[Message]], list[Message] | None], messages: Sequence[ModelMessage]
) -> list[ModelMessage] | None:
    """`messages` after `act` on their plain form; None if that says None, changes nothing, or they have no such form.

    Takes the whole list: messages that say nothing to the model, and system prompts, stay out of the plain form.
    """
    spoken = [message for message in messages if any(map(_speaks, message.parts))]
    parts = cache(lambda: {to_json(block): part for message in spoken for block, part in _pairs_of(message)})
    view = through(act, spoken, _plain_of, lambda message: _rebuilt(message, parts()))
    if view is None or (len(view) == len(spoken) and all(map(is_, view, spoken))):
        return None
    return _with_system(view, messages)


def _tell(session: Session, request: ModelRequestContext) -> None:
    """Tell the size of the last prompt (pydantic-ai counts cached tokens in) and what the next request says."""
    messages = request.messages
    last = next((m for m in reversed(messages[-2:]) if isinstance(m, ModelResponse)), None)
    if last is not None and last.usage.input_tokens:
        session.observe({"input_tokens": last.usage.input_tokens})
    settings: Mapping[str, Any] = cast(Mapping[str, Any], request.model_settings or {})
    texts = [part.content for message in messages for part in message.parts if isinstance(part, SystemPromptPart)]
    body = {
        "model": request.model.model_name,
        "system": "\n".join([*texts, getattr(messages[-1], "instructions", None) or ""]).strip("\n") or None,
        "tools": [
            {"name": tool.name, "description": tool.description or "", "input_schema": tool.parameters_json_schema}
            for tool in request.model_request_parameters.function_tools
        ],
        "thinking": settings.get("anthropic_thinking"),
        "max_tokens": settings.get("max_tokens"),
    }
    session.set_request(**fields_of_body(body))


def _with_system(view: list[ModelMessage], messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """`view` with the system prompts and instructions that stood in messages which are gone."""
    kept = {id(part) for message in view for part in message.parts}
    lost = [p for m in messages for p in m.parts if isinstance(p, SystemPromptPart) and id(p) not in kept]
    if lost and isinstance(view[0], ModelRequest):
        view[0] = replace(view[0], parts=[*lost, *view[0].parts])
    newest, last = messages[-1], view[-1]
    if isinstance(newest, ModelRequest) and isinstance(last, ModelRequest) and last is not newest:
        view[-1] = replace(newest, parts=last.parts)
    return view


_FOREIGN = "pydantic_ai"
"""Type of a block that only carries a part this module cannot translate; it is kept or dropped as a whole."""


def _plain_of(message: ModelMessage) -> Message:
    """`message` as blocks; results stand first, as the Messages API wants them."""
    content = [block for block, _ in _pairs_of(message)]
    if isinstance(message, ModelResponse):
        return {"role": "assistant", "content": content}
    return {"role": "user", "content": sorted(content, key=lambda block: block["type"] != "tool_result")}


def _speaks(part: Any) -> bool:
    """False for system prompts, which are no part of the conversation, and empty texts, which the API refuses."""
    return not isinstance(part, SystemPromptPart) and (
        not isinstance(part, TextPart | UserPromptPart) or bool(part.content)
    )


def _pairs_of(message: ModelMessage) -> Iterator[tuple[Block, Any]]:
    """Each part that speaks as a block, with the part; pieces of a user prompt are parts of their own."""
    for part in filter(_speaks, message.parts):
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            for piece in part.content:
                yield _block(piece), replace(part, content=[piece])
        else:
            yield _block(part), part


def _block(part: Any) -> Block:
    """`part`, or a piece of a user prompt, as a block."""
    if isinstance(part, str | TextPart | UserPromptPart):
        return {"type": "text", "text": part if isinstance(part, str) else part.content}
    if isinstance(part, BinaryContent) and part.is_image:
        return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.base64}}
    if isinstance(part, ToolCallPart):
        return {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
    if isinstance(part, ToolReturnPart):
        text = part.model_response_str(wrap_if_error=False)
        result = {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": text}
        return result if part.outcome == "success" else {**result, "is_error": True}
    if isinstance(part, ThinkingPart) and part.signature:
        return {"type": "thinking", "thinking": part.content, "signature": part.signature}
    return {"type": _FOREIGN, "part": to_jsonable_python(part)}


def _rebuilt(message: Message, parts: Mapping[str, Any]) -> ModelMessage:
    """A message of the view, of the `parts` it had and new ones."""
    made = [parts.get(to_json(block)) or _part(block, message["role"], parts) for block in blocks(message)]
    return ModelResponse(parts=made) if message["role"] == "assistant" else ModelRequest(parts=made)


def _part(block: Block, role: str, parts: Mapping[str, Any]) -> Any:
    if block["type"] == "tool_use":
        return ToolCallPart(block["name"], block["input"], block["id"])
    if block["type"] == "tool_result":
        calls = {p.tool_call_id: p.tool_name for p in parts.values() if isinstance(p, ToolCallPart)}
        name, outcome = calls.get(block["tool_use_id"], ""), "failed" if block.get("is_error") else "success"
        return ToolReturnPart(name, result_text(block), block["tool_use_id"], outcome=cast(Any, outcome))
    text = block["text"] if block["type"] == "text" else to_json(block)
    return TextPart(text) if role == "assistant" else UserPromptPart(text)
