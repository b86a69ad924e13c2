"""A history processor for pydantic-ai agents: each model request goes out as a session prepares it.

::

    agent = Agent(model, capabilities=[ProcessHistory(compacted_history(session))])

What is not compacted stays the same objects, and system prompts stay whatever the plan says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

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
from pydantic_core import to_jsonable_python

from planner.messages import Block, Message, blocks, message_digest, result_text, to_json

if TYPE_CHECKING:
    from applier.session.session import Session

__all__ = ["compacted_history"]

_FOREIGN = "pydantic_ai"
"""Type of a block that only carries a part this module cannot translate; it is kept or dropped as a whole."""


def compacted_history(session: Session) -> Callable[[list[ModelMessage]], list[ModelMessage]]:
    """The processor for `session`, which is one conversation: give each its own."""

    def compacted(messages: list[ModelMessage]) -> list[ModelMessage]:
        _observe(session, messages)
        rows = [(message, list(_pairs(message))) for message in messages]
        plain = [(message, _plain(message, pairs)) for message, pairs in rows if pairs]
        whole = {message_digest(made): message for message, made in plain}
        parts = {to_json(block): part for _, pairs in rows for block, part in pairs}
        view = session.prepare([made for _, made in plain])
        return _with_system([whole.get(message_digest(m)) or _rebuilt(m, parts) for m in view], messages)

    return compacted


def _observe(session: Session, messages: Sequence[ModelMessage]) -> None:
    """Tell the size of the last prompt; pydantic-ai counts cached tokens in."""
    last = next((m for m in reversed(messages[-2:]) if isinstance(m, ModelResponse)), None)
    if last is not None and last.usage.input_tokens:
        session.observe({"input_tokens": last.usage.input_tokens})


def _plain(message: ModelMessage, pairs: Sequence[tuple[Block, Any]]) -> Message:
    content = sorted((block for block, _ in pairs), key=lambda block: block["type"] != "tool_result")
    if isinstance(message, ModelResponse):
        return {"role": "assistant", "content": [block for block, _ in pairs]}
    return {"role": "user", "content": content}


def _pairs(message: ModelMessage) -> Iterator[tuple[Block, Any]]:
    """Each part as a block, with the part; pieces of a user prompt are parts of their own."""
    for part in message.parts:
        if isinstance(part, SystemPromptPart):
            continue
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            for piece in part.content:
                yield _user_block(piece), replace(part, content=[piece])
        else:
            yield _block(part), part


def _block(part: Any) -> Block:
    if isinstance(part, TextPart | UserPromptPart):
        return {"type": "text", "text": part.content or " "}
    if isinstance(part, ToolCallPart):
        return {
            "type": "tool_use",
            "id": part.tool_call_id,
            "name": part.tool_name,
            "input": part.args_as_dict(),
        }
    if isinstance(part, ToolReturnPart):
        text = part.model_response_str(wrap_if_error=False)
        result = {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": text}
        return result if part.outcome == "success" else {**result, "is_error": True}
    if isinstance(part, ThinkingPart) and part.signature:
        return {"type": "thinking", "thinking": part.content, "signature": part.signature}
    return {"type": _FOREIGN, "part": to_jsonable_python(part)}


def _user_block(piece: Any) -> Block:
    if isinstance(piece, str):
        return {"type": "text", "text": piece or " "}
    if isinstance(piece, BinaryContent) and piece.is_image:
        source = {"type": "base64", "media_type": piece.media_type, "data": piece.base64}
        return {"type": "image", "source": source}
    return {"type": _FOREIGN, "part": to_jsonable_python(piece)}


def _rebuilt(message: Message, parts: Mapping[str, Any]) -> ModelMessage:
    """A message of the view, of the parts it had and new ones."""
    found = [parts.get(to_json(block)) or _part(block, message["role"], parts) for block in blocks(message)]
    return ModelResponse(parts=found) if message["role"] == "assistant" else ModelRequest(parts=found)


def _part(block: Block, role: str, parts: Mapping[str, Any]) -> Any:
    if block["type"] == "tool_use":
        return ToolCallPart(block["name"], block["input"], block["id"])
    if block["type"] == "tool_result":
        calls = {p.tool_call_id: p.tool_name for p in parts.values() if isinstance(p, ToolCallPart)}
        name, outcome = calls.get(block["tool_use_id"], ""), "failed" if block.get("is_error") else "success"
        return ToolReturnPart(name, result_text(block), block["tool_use_id"], outcome=cast(Any, outcome))
    text = block["text"] if block["type"] == "text" else to_json(block)
    return TextPart(text) if role == "assistant" else UserPromptPart(text)


def _with_system(view: list[ModelMessage], messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """`view` with the system prompts and instructions that stood in messages which are gone."""
    kept = {id(part) for message in view for part in message.parts}
    lost = [p for m in messages for p in m.parts if isinstance(p, SystemPromptPart) and id(p) not in kept]
    if lost and view and isinstance(view[0], ModelRequest):
        view[0] = replace(view[0], parts=[*lost, *view[0].parts])
    last = next((m for m in reversed(messages) if isinstance(m, ModelRequest)), None)
    if last is not None and view and isinstance(view[-1], ModelRequest) and view[-1].instructions is None:
        view[-1] = replace(view[-1], instructions=last.instructions, run_id=last.run_id)
    return view
