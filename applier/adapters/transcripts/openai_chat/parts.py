"""Content parts and tool calls of OpenAI chat, each with its way there and back.

Part types without an Anthropic block pass through untouched.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from applier.adapters.transcripts.openai_chat.remainder import with_remainder, without_remainder
from planner.reading.messages import Block

__all__ = ["arguments_as_object", "block_of_call", "block_of_part", "call_of_block", "part_of_block"]

_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.S)
_HAS_NO_PART = frozenset({"thinking", "redacted_thinking"})


def block_of_part(part: dict[str, Any]) -> Block:
    """The content block for `part`; the same object if it is one already."""
    return with_remainder(_block(part), part, _part)


def part_of_block(block: Block) -> dict[str, Any] | None:
    """The content part for `block`; None if OpenAI chat has no place for it (thinking)."""
    return without_remainder(block, block_of_part, _part)


def block_of_call(call: dict[str, Any]) -> Block:
    """The ``tool_use`` block for a tool call; its arguments as an object."""
    return with_remainder(_use(call), call, _call)


def call_of_block(block: Block) -> dict[str, Any]:
    """The tool call for a ``tool_use`` block, the arguments string as the model wrote it."""
    return without_remainder(block, block_of_call, _call) or _call(block)


def _block(part: dict[str, Any]) -> Block:
    kind = part["type"]
    if kind == "refusal":
        return {"type": "text", "text": part["refusal"]}
    if kind == "image_url":
        return {"type": "image", "source": _source(part["image_url"]["url"])}
    file = part.get("file")
    if kind == "file" and isinstance(file, dict) and _DATA_URL.fullmatch(str(file.get("file_data"))):
        named = {"title": file["filename"]} if "filename" in file else {}
        return {"type": "document", "source": _source(file["file_data"]), **named}
    return part


def _source(url: str) -> dict[str, Any]:
    data = _DATA_URL.fullmatch(url)
    if data is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": data[1], "data": data[2]}


def _part(block: Block) -> dict[str, Any] | None:
    kind, source = block["type"], block.get("source")
    if kind in _HAS_NO_PART:
        return None
    if kind not in ("image", "document") or not isinstance(source, dict):
        return block
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
        if kind == "document":
            named = {"filename": block["title"]} if "title" in block else {}
            return {"type": "file", "file": {"file_data": url, **named}}
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "image" and source.get("type") == "url":
        return {"type": "image_url", "image_url": {"url": source.get("url")}}
    if kind == "document" and source.get("type") == "text":
        return {"type": "text", "text": str(source.get("data", ""))}
    return block


def _use(call: dict[str, Any]) -> Block:
    if call.get("function"):
        name, value = call["function"]["name"], arguments_as_object(call["function"]["arguments"])
    else:
        name, value = call["custom"]["name"], {"input": call["custom"]["input"]}
    return {"type": "tool_use", "id": call["id"], "name": name, "input": value}


def _call(block: Block) -> dict[str, Any]:
    arguments = json.dumps(block.get("input"), ensure_ascii=False, separators=(",", ":"))
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def arguments_as_object(text: str) -> dict[str, Any]:
    """The object that `text` is as JSON; what is no JSON object stands whole under ``arguments``."""
    try:
        value = json.loads(text, parse_constant=_refused, parse_float=_finite)
    except (ValueError, RecursionError):
        return {"arguments": text}
    return value if isinstance(value, dict) else {"arguments": text}


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number
