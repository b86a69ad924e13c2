"""Answers of a script: blocks, an error in the API's words, or an answer that breaks off.

Also the forms in which it is sent: whole or streamed, as a message or as one of OpenAI's chat completions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from applier.testing.api_request import Block, Request

__all__ = [
    "Answer",
    "Failure",
    "Reply",
    "Script",
    "completion",
    "completion_chunks",
    "events",
    "overloaded",
    "rate_limited",
    "refuse",
    "say",
    "unanswered_calls",
    "use",
]

Fault = Literal["", "hangs_up_at_once", "hangs_up", "half_an_event", "garbage", "stalls"]
_DELTA_CHARACTERS = 40
"""Length of a stream's deltas, short enough that every text of a test comes in several."""


@dataclass(frozen=True)
class Answer:
    """Blocks of an assistant message; the server adds ids of calls and signatures of thinking."""

    content: Sequence[Block] = ()
    stop_reason: str = ""
    """Reason to stop; empty means ``tool_use`` if it calls a client tool, else ``end_turn``."""
    fault: Fault = ""
    """Fault of the connection: closed before the answer or half way, a stream that ends amid an event or in garbage, or
    no answer at all."""
    hold: Callable[[], object] | None = None
    """Function called once in the middle of a stream; the rest follows when it returns."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``usage`` to send with ``output_tokens`` instead of the counted ones."""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Failure:
    """Error instead of an answer."""

    status: int
    kind: str
    message: str = ""
    """Message; empty means `kind` in words."""
    headers: tuple[tuple[str, str], ...] = (("retry-after", "0"), ("retry-after-ms", "1"))
    """Headers that let a client retry at once."""

    def as_json(self) -> dict[str, Any]:
        """Return the failure as the API sends it."""
        return {"type": "error", "error": {"type": self.kind, "message": self.message or self.kind.replace("_", " ")}}


Reply = Answer | Failure | str | Sequence[Block]
Script = Callable[[Request], Reply] | Sequence[Reply | Callable[[Request], Reply]] | Answer | Failure | str
"""Script: a function of the request, or replies and such functions in order, the last one repeated, or one for all."""


def say(text: str) -> Block:
    """Return a text block."""
    return {"type": "text", "text": text}


def use(name: str, call_id: str = "", **arguments: object) -> Block:
    """Return a tool call; without an id the server adds one."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def refuse() -> Answer:
    """Return a refusal of the model, which the API sends without text."""
    return Answer((), "refusal")


def overloaded() -> Failure:
    """Return error 529."""
    return Failure(529, "overloaded_error", "Overloaded")


def rate_limited() -> Failure:
    """Return error 429."""
    text = "This request would exceed your organization's rate limit"
    return Failure(429, "rate_limit_error", text)


def events(message: Block) -> Iterator[Block]:
    """Yield the events that stream `message`."""
    start = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        empty, deltas = _streamed(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _streamed(block: Block) -> tuple[Block, list[Block]]:
    """Return a block as its stream opens it, and the deltas that complete it."""
    if block["type"] in ("tool_use", "server_tool_use"):
        pieces = _pieces(json.dumps(block["input"]))
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    if block["type"] == "thinking":
        text = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
        signature = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*text, signature]
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
    return block, []


def _pieces(text: str) -> list[str]:
    return [text[at : at + _DELTA_CHARACTERS] for at in range(0, len(text), _DELTA_CHARACTERS)]


def unanswered_calls(messages: list[Block]) -> str:
    """Return OpenAI's refusal of a call without an answer, or of an answer without a call; empty if there is
    neither."""
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


def completion(message: Block, request: Request) -> Block:
    """Return `message`, an answer of the Messages API, as a chat completion; a forced function gets its text as
    arguments."""
    text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
    calls = [
        _call(block["id"], block["name"], json.dumps(block["input"]))
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    body = request.body
    forced = body.get("tool_choice")
    if isinstance(forced, dict) and text:
        calls, text = [_call(f"call_{message['id']}", forced["function"]["name"], text)], ""
    spoken: Block = {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
    usage = message["usage"]
    read = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    return {
        "id": f"chatcmpl-{message['id']}",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", ""),
        "choices": [{"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": spoken}],
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": usage["output_tokens"],
            "total_tokens": read + usage["output_tokens"],
        },
    }


def _call(call_id: str, name: str, arguments: str) -> Block:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion_chunks(answer: Block) -> Iterator[Block]:
    """Yield the chunks that stream a completion: pieces of its message, its stop reason, then the usage alone."""
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
