"""OpenAI's chat completions: what is refused of a request, and an answer whole or streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from applier.testing.api_request import Block

__all__ = ["completion", "completion_chunks", "unanswered_calls"]


def unanswered_calls(messages: list[Block]) -> str:
    """What OpenAI refuses: a call without its answer right behind it, an answer without its call; else empty."""
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"tool_call_id {message['tool_call_id']} is not found in 'tool_calls' of a preceding message"
            waiting.remove(message["tool_call_id"])
        elif waiting:
            break
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}
    return f"tool_call_ids did not have response messages: {', '.join(sorted(waiting))}" if waiting else ""


def completion(message: Block, body: Mapping[str, Any]) -> Block:
    """`message`, an answer in the Messages API's form to the request `body`, as a chat completion.

    Where the request forces a function, text is its arguments.
    """
    text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
    calls = [
        _call(block["id"], block["name"], json.dumps(block["input"]))
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    forced = body.get("tool_choice")
    if isinstance(forced, dict) and text:
        calls, text = [_call(f"call_{message['id']}", forced["function"]["name"], text)], ""
    said: Block = {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
    usage = message["usage"]
    read = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    return {
        "id": f"chatcmpl-{message['id']}",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", ""),
        "choices": [{"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": said}],
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": usage["output_tokens"],
            "total_tokens": read + usage["output_tokens"],
        },
    }


def _call(call_id: str, name: str, arguments: str) -> Block:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion_chunks(answer: Block) -> Iterator[Block]:
    """The chunks that stream a completion: pieces of its message, why it ends, then the usage by itself."""
    (choice,) = answer["choices"]
    chunk = {**answer, "object": "chat.completion.chunk", "choices": [], "usage": None}
    for delta in _deltas(choice["message"]):
        yield {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield {**chunk, "usage": answer["usage"]}


def _deltas(message: Block) -> Iterator[Block]:
    yield {"role": "assistant", "content": ""}
    if message["content"]:
        yield {"content": message["content"]}
    for index, call in enumerate(message.get("tool_calls", ())):
        yield {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": call["function"]["arguments"]}}]}
