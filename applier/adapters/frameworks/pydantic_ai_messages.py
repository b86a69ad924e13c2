"""pydantic-ai messages as plain ones and back, part by part, so that known parts come back as the same objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

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

from planner.reading.messages import Block, Message, blocks, result_text, to_json

__all__ = ["pairs_of", "plain_of", "rebuilt"]

_FOREIGN = "pydantic_ai"
"""Type of a block that only carries a part this module cannot translate; it is kept or dropped as a whole."""


def plain_of(message: ModelMessage, pairs: Sequence[tuple[Block, Any]]) -> Message:
    """`message` with the blocks of its `pairs`; results stand first, as the Messages API wants them."""
    content = [block for block, _ in pairs]
    if isinstance(message, ModelResponse):
        return {"role": "assistant", "content": content}
    return {"role": "user", "content": sorted(content, key=lambda block: block["type"] != "tool_result")}


def pairs_of(message: ModelMessage) -> Iterator[tuple[Block, Any]]:
    """Each part as a block, with the part; pieces of a user prompt are parts of their own.

    System prompts are no part of the conversation, and empty texts are refused by the API.
    """
    for part in message.parts:
        if isinstance(part, SystemPromptPart) or (isinstance(part, TextPart | UserPromptPart) and not part.content):
            continue
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            for piece in part.content:
                yield _user_block(piece), replace(part, content=[piece])
        else:
            yield _block(part), part


def _block(part: Any) -> Block:
    if isinstance(part, TextPart | UserPromptPart):
        return {"type": "text", "text": part.content}
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
        return {"type": "text", "text": piece}
    if isinstance(piece, BinaryContent) and piece.is_image:
        source = {"type": "base64", "media_type": piece.media_type, "data": piece.base64}
        return {"type": "image", "source": source}
    return {"type": _FOREIGN, "part": to_jsonable_python(piece)}


def rebuilt(message: Message, parts: Mapping[str, Any]) -> ModelMessage:
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
