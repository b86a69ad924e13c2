"""Messages as plain JSON data, whatever the caller holds: dicts, or the SDK's own objects.

Reads only. A message that is plain already is returned as the same object, so that what is not
compacted stays byte-identical when it is sent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.errors import TranscriptError

__all__ = ["Block", "Message", "blocks", "message_digest", "plain_message", "result_text", "to_json"]

Message = dict[str, Any]
"""One message: ``{"role": …, "content": str | list[Block]}``."""
Block = dict[str, Any]
"""One content block: ``{"type": "text" | "tool_use" | "tool_result" | …}``; unknown types pass through."""


def plain_message(message: object, place: str = "message") -> Message:
    """`message` as plain JSON data: the same object if it already is.

    Raises:
        TranscriptError: `message` has no role, or its content is neither text nor a list of blocks.
    """
    data = message if isinstance(message, dict) else _dumped(message, place)
    role, content = data.get("role"), data.get("content")
    if not isinstance(role, str):
        raise TranscriptError(f'{place}: expected a \'role\' of "user" or "assistant", found {role!r}')
    if isinstance(content, str):
        return data
    if not isinstance(content, list):
        raise TranscriptError(
            f"{place}: expected 'content' to be text or a list of blocks, found {type(content).__name__}"
        )
    plain = [_plain_block(block, f"{place}, block {i}") for i, block in enumerate(content)]
    if all(new is old for new, old in zip(plain, content, strict=True)):
        return data
    return {**data, "content": plain}


def _plain_block(block: object, place: str) -> Block:
    data = block if isinstance(block, dict) else _dumped(block, place)
    if not isinstance(data.get("type"), str):
        raise TranscriptError(f"{place}: expected a block with a 'type', found {str(data)[:80]!r}")
    inner = data.get("content")
    if isinstance(inner, list) and any(not isinstance(item, dict | str) for item in inner):
        data = {**data, "content": [_dumped(item, place) for item in inner]}
    return data


def _dumped(value: object, place: str) -> dict[str, Any]:
    """An SDK object as the dict it was parsed from, without the fields nobody set."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        dumped = dump(mode="json", exclude_unset=True)
        if isinstance(dumped, dict):
            return dumped
    if isinstance(value, Mapping):
        return dict(value)
    raise TranscriptError(f"{place}: expected a message or block as a dict, found {type(value).__name__}")


def blocks(message: Message) -> Sequence[Block]:
    """The content blocks of `message`; text content counts as one text block."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def result_text(block: Block) -> str:
    """The text of a ``tool_result`` (or of any block whose content is text), nested blocks joined by line."""
    content = block.get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(_inner_texts(content)) if isinstance(content, list) else ""


def _inner_texts(content: Sequence[Any]) -> Iterator[str]:
    for item in content:
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict) and isinstance(item.get("text"), str):
            yield item["text"]


def to_json(value: object) -> str:
    """`value` as compact JSON in ASCII: lone surrogates survive, key order is kept."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def message_digest(message: Message) -> str:
    """SHA-256 of what `message` says; where its ``cache_control`` marks stand does not count.

    Callers move cache marks from call to call, and a plan must survive that.
    """
    if isinstance(message["content"], list):
        message = {**message, "content": [_unmarked(block) for block in message["content"]]}
    text = json.dumps(message, ensure_ascii=True, sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def _unmarked(block: Block) -> Block:
    return {k: v for k, v in block.items() if k != "cache_control"} if "cache_control" in block else block
