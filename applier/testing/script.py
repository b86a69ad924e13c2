"""Answers of a script: blocks, an error in the API's words, an answer that breaks off; and the events of a stream."""

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
    "events",
    "overloaded",
    "rate_limited",
    "refuse",
    "say",
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
    """Fault of the connection: closed early or half way, an event cut short, garbage, or no answer."""
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
