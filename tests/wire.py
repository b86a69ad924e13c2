"""What the Messages API and OpenAI's chat completions look like on the wire; used by the loopback server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["as_completion", "as_events", "as_message"]


def as_message(
    number: int,
    content: Sequence[dict[str, Any]],
    stop_reason: str,
    category: str,
    usage: dict[str, int],
    body: dict[str, Any],
) -> dict[str, Any]:
    """A response of the Messages API; `category` is why it was refused."""
    details = {"type": "refusal", "category": category} if stop_reason == "refusal" else None
    return {
        "id": f"msg_{number:06d}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", ""),
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "stop_details": details,
        "usage": usage,
    }


def as_events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events that stream `message`."""
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        opened, delta = _opened(block)
        yield {"type": "content_block_start", "index": index, "content_block": opened}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _opened(block: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A block as its stream opens it, and the one delta that fills it."""
    if block["type"] == "tool_use":
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        return {**block, "input": {}}, delta
    if block["type"] == "thinking":
        return {**block, "thinking": ""}, {"type": "thinking_delta", "thinking": block["thinking"]}
    return {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}


def as_completion(content: Sequence[dict[str, Any]], body: dict[str, Any]) -> dict[str, Any]:
    """Text as OpenAI words it: the message, or the arguments of the tool that was asked for."""
    text = "".join(block.get("text", "") for block in content)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if body.get("tools"):
        function = {"name": body["tools"][0]["function"]["name"], "arguments": text}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": message, "logprobs": None}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }
