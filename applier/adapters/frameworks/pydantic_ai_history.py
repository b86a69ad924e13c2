"""Compacts the messages of pydantic-ai agents before each request to the model, through a session.

::

    agent = Agent(model, capabilities=[CompactedHistory(session)])

A session stores one conversation and decides when to compact it. The run's own messages stay whole: ``all_messages()``
does not change. Messages that are not compacted stay the same objects. System prompts, changed instructions, discovered
tools and parts (pieces of a message) of unknown kinds are never removed. An agent that serves several conversations
passes a function that returns the session of a run: ``lambda ctx: sessions[ctx.deps.thread]``.
"""

from __future__ import annotations

import base64
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
    AudioUrl,
    BaseToolCallPart,
    BaseToolReturnPart,
    BinaryContent,
    CompactionPart,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_core import to_jsonable_python

from applier.adapters.frameworks.bridge import SessionOf, apply_to_plain, opener
from applier.adapters.transcripts.transcript import opaque_block
from applier.session import Session
from applier.session.request import fields_of_body
from planner.reading.messages import OPAQUE, Block, Message, blocks, readable_text, to_json

__all__ = ["CompactedHistory"]

_TRIES = 2
"""Number of attempts at a request: a prompt that is too long is tried once more, shorter."""


@dataclass
class CompactedHistory(AbstractCapability[Any]):
    """Capability of a pydantic-ai agent that compacts its messages before each request. If the provider still refuses a
    prompt as too long, it is tried once more, shorter."""

    session: Session | SessionOf[RunContext[Any]]
    """Session of one conversation, or a function that returns the session of each run."""
    _uncompacted: Sequence[ModelMessage] = field(default=(), init=False, repr=False)
    """All messages of the run's newest request, before they were compacted."""

    def __post_init__(self) -> None:
        """Check `session` now rather than in the first run."""
        self._session_of = opener(self.session)

    async def for_run(self, _ctx: RunContext[Any]) -> CompactedHistory:
        """Return a copy for each run, because a run's messages are stored in it."""
        return copy(self)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request with compacted messages; the session works in a thread."""
        self._uncompacted = list(request_context.messages)
        session = self._session_of(ctx)
        if session is None:
            return request_context
        _describe(session, request_context)
        view = await anyio.to_thread.run_sync(_apply_to_plain, session.prepare, self._uncompacted)
        return request_context if view is None else replace(request_context, messages=view)

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Raise RetryModelRequest if the prompt was too long and the session has a shorter one, with which the request
        is then prepared again; else raise `error`."""
        session = self._session_of(ctx) if request_context.attempt < _TRIES else None
        if session is not None:
            recover = partial(session.recover, error=error)
            if await anyio.to_thread.run_sync(_apply_to_plain, recover, self._uncompacted) is not None:
                raise RetryModelRequest from error
        raise error


def _apply_to_plain(
    act: Callable[[list[Message]], list[Message] | None], messages: Sequence[ModelMessage]
) -> list[ModelMessage] | None:
    """Let `act`, a method of a session, work on pydantic-ai's `messages`, as `apply_to_plain` does; return None also if
    nothing changed. System prompts, and messages without content for the model, are not passed to `act`."""
    sent = [message for message in messages if any(map(_is_in_conversation, message.parts))]
    # original parts by their blocks, made only if a message is rebuilt
    parts = cache(lambda: {to_json(block): part for message in sent for block, part in _pairs_of(message)})
    view = apply_to_plain(act, sent, _plain_of, lambda message: _rebuilt(message, parts()), split=_pieces)
    if view is None or (len(view) == len(sent) and all(map(is_, view, sent))):
        return None
    return _with_system_prompts(view, messages)


def _pieces(message: ModelMessage) -> Iterator[ModelMessage]:
    """Split a request in two, with the parts that can be compacted and with those of unknown kinds, because a message
    with such a part is kept whole. A response is yielded whole."""
    if not isinstance(message, ModelRequest):
        yield message
        return
    must_stay = [any(block["type"] == OPAQUE for block, _ in _pairs_of(ModelRequest([part]))) for part in message.parts]
    for staying in (False, True):
        parts = [part for part, stays in zip(message.parts, must_stay, strict=True) if stays is staying]
        if any(map(_is_in_conversation, parts)):
            yield message if len(parts) == len(message.parts) else replace(message, parts=parts)


def _describe(session: Session, request: ModelRequestContext) -> None:
    """Pass model, system prompt, tools and limits of `request` to `session`, and the last response's token count."""
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


def _with_system_prompts(view: list[ModelMessage], messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Add what a compaction must not remove to the compacted messages `view`, and return them: the system prompts of
    `messages` (the complete list), and the instructions of the newest request, if the last message was made anew."""
    kept = {id(part) for message in view for part in message.parts}
    missing = [p for m in messages for p in m.parts if isinstance(p, SystemPromptPart) and id(p) not in kept]
    if missing and isinstance(view[0], ModelRequest):
        view[0] = replace(view[0], parts=[*missing, *view[0].parts])
    elif missing:
        view.insert(0, ModelRequest(parts=missing))
    newest, last = messages[-1], view[-1]
    if isinstance(newest, ModelRequest) and isinstance(last, ModelRequest) and last is not newest:
        view[-1] = replace(newest, parts=last.parts)  # with the instructions of `newest`
    return view


def _plain_of(message: ModelMessage) -> Message:
    """Return pydantic-ai's `message` as an Anthropic message, with tool results first, as the API demands."""
    content = [block for block, _ in _pairs_of(message)]
    if isinstance(message, ModelResponse):
        return {"role": "assistant", "content": content}
    return {"role": "user", "content": sorted(content, key=lambda block: block["type"] != "tool_result")}


def _is_in_conversation(part: Any) -> bool:
    """Return True unless `part` is a system prompt or an empty text."""
    return not isinstance(part, SystemPromptPart) and (
        not isinstance(part, TextPart | UserPromptPart) or bool(part.content)
    )


def _pairs_of(message: ModelMessage) -> Iterator[tuple[Block, Any]]:
    """Yield a pair for each part of `message` that belongs to the conversation: its Anthropic block, and the part. Each
    piece of a user prompt counts as a part."""
    native = (NativeToolCallPart, NativeToolReturnPart)
    calls, results = ({part.tool_call_id for part in message.parts if isinstance(part, kind)} for kind in native)
    unpaired = calls ^ results  # ids of calls that the provider ran, whose other half is in another message
    for part in filter(_is_in_conversation, message.parts):
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            for piece in part.content:
                yield _block(piece), replace(part, content=[piece])
        elif isinstance(part, CompactionPart) and isinstance(message, ModelResponse) and part is message.parts[0]:
            # the provider compacted here; an empty content would mean that it failed
            yield {"type": "compaction", "content": part.content or _SEALED, "id": part.id}, part
        else:
            must_stay = getattr(part, "tool_call_id", None) in unpaired
            yield (_opaque(part) if must_stay else _block(part)), part


_SEALED = "sealed by the provider"
"""Text in place of a provider's compaction that only the provider can read."""


_Media = BinaryContent | ImageUrl | DocumentUrl | AudioUrl | VideoUrl | UploadedFile


def _block(part: Any) -> Block:
    """Return a part, or a piece of a user prompt, as an Anthropic block; one of an unknown kind as an opaque block."""
    if isinstance(part, str | TextPart | UserPromptPart | TextContent):
        text = part if isinstance(part, str) else part.content
        return {"type": "text", "text": text} if isinstance(text, str) else _opaque(part)
    if isinstance(part, ImageUrl | DocumentUrl):
        kind = "image" if isinstance(part, ImageUrl) else "document"
        return {"type": kind, "source": {"type": "url", "url": part.url}}
    if isinstance(part, BinaryContent) and (part.is_image or part.media_type == "application/pdf"):
        source = {"type": "base64", "media_type": part.media_type, "data": part.base64}
        return {"type": "image" if part.is_image else "document", "source": source}
    if isinstance(part, NativeToolCallPart | NativeToolReturnPart) and _is_of_built_in_tool(part):
        return _opaque(part)
    if isinstance(part, BaseToolCallPart):
        kind = "server_tool_use" if isinstance(part, NativeToolCallPart) else "tool_use"
        return {"type": kind, "id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
    if isinstance(part, NativeToolReturnPart):
        content = to_jsonable_python(part.content)
        return {"type": f"{part.tool_name}_tool_result", "tool_use_id": part.tool_call_id, "content": content}
    if isinstance(part, BaseToolReturnPart):
        flag = {} if part.outcome == "success" else {"is_error": True}
        return {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": _result_content(part), **flag}
    if isinstance(part, ThinkingPart) and part.signature:
        return {"type": "thinking", "thinking": part.content, "signature": part.signature}
    if isinstance(part, ThinkingPart):  # of another provider: a thinking block would need a signature
        return {"type": "redacted_thinking", "data": part.content or part.id or ""}
    return _opaque(part)


def _opaque(part: Any) -> Block:
    """Return `part` as an opaque block, which a compaction passes on unchanged."""
    kind = getattr(part, "part_kind", None) or getattr(part, "kind", None) or type(part).__name__
    return opaque_block(str(kind), to_jsonable_python(part))


def _is_of_built_in_tool(part: Any) -> bool:
    """Return True for a part of pydantic-ai's own tools, such as its tool search, which must stay because later
    requests depend on it. A kind that others declare has their name in front: ``inventory.lookup``."""
    return bool(part.tool_kind) and "." not in part.tool_kind


def _result_content(part: BaseToolReturnPart) -> str | list[Block]:
    """Return the content of a tool result as a text, or as blocks if it contains media or must stay unchanged. Then an
    opaque block is added, because a compaction keeps a result with such a block."""
    items = part.content if isinstance(part.content, list) else [part.content]
    must_stay = _is_of_built_in_tool(part)
    if not must_stay and not any(isinstance(item, _Media) for item in items):
        return part.model_response_str(wrap_if_error=False)
    texts_and_media = (item if isinstance(item, _Media | str) else to_json(to_jsonable_python(item)) for item in items)
    staying = [opaque_block(str(part.tool_kind), part.tool_kind)] if must_stay else []
    return [*map(_block, texts_and_media), *staying]


def _rebuilt(message: Message, parts: Mapping[str, Any]) -> ModelMessage:
    """Return an Anthropic `message` in pydantic-ai's form. `parts`: the original parts, by their blocks as JSON; those
    of unchanged blocks are used again."""
    made = [parts.get(to_json(block)) or _part(block, message["role"], parts) for block in blocks(message)]
    return ModelResponse(parts=made) if message["role"] == "assistant" else ModelRequest(parts=made)


def _part(block: Block, role: str, parts: Mapping[str, Any]) -> Any:
    """Return a new part for `block`. A result gets the name of its tool from the call among the original `parts`."""
    if block["type"] == "tool_use":
        return ToolCallPart(block["name"], block["input"], block["id"])
    if block["type"] == "tool_result":
        calls = {p.tool_call_id: p.tool_name for p in parts.values() if isinstance(p, ToolCallPart)}
        name, outcome = calls.get(block["tool_use_id"], ""), "failed" if block.get("is_error") else "success"
        inner = block.get("content")
        text = readable_text(inner)
        media = [item for item in inner if item.get("source")] if isinstance(inner, list) else []
        content = [*([text] if text else []), *map(_file, media)] if media else text
        return ToolReturnPart(name, content, block["tool_use_id"], outcome=cast(Any, outcome))
    text = block["text"] if block["type"] == "text" else to_json(block)
    return TextPart(text) if role == "assistant" else UserPromptPart(text)


def _file(block: Block) -> Any:
    """Return an image or document block as pydantic-ai's object for a URL or for binary data."""
    source = block["source"]
    if source["type"] == "url":
        return ImageUrl(source["url"]) if block["type"] == "image" else DocumentUrl(source["url"])
    return BinaryContent(base64.b64decode(source["data"]), media_type=source["media_type"])
