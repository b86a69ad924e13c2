"""Forms of the Messages API for the test server: requests, and answers as blocks, as an error, or as events of a
stream.

Written from the API's documentation alone; it shares no code with the planner that it tests.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

import imagesize  # type: ignore[import-untyped]
from propcache.api import cached_property

Block = dict[str, Any]
THINKING_TYPES = ("thinking", "redacted_thinking")
"""Types of blocks that contain the model's thinking."""
ADAPTIVE_THINKING = (4, 6)
"""First version of Claude that has ``adaptive`` thinking and accepts no prefill (a begun answer as last message)."""
NO_SAMPLING = (4, 7)
"""First version of Claude that refuses ``temperature`` and forced tools."""
SYSTEM_MESSAGES, LATE_SYSTEM_MESSAGES = (4, 8), (5, 5)
"""First versions of Claude that accept ``system`` messages inside the list: most models; Sonnet and Haiku."""
BOUND_THINKING = (5, 1)
"""First version of Claude that accepts a thinking block only if everything before it is as when it was written."""

_VERSION = re.compile(r"^claude-[a-z]+-(\d{1,2})(?:-(\d{1,2}))?(?:-\d{8})?$")
"""Model's name with its version: ``claude-opus-4-6``, ``claude-sonnet-5-5-20260801``; not ``claude-3-5-haiku-…``."""
_LEADING_VERSION = re.compile(r"^claude-(\d)(?:-(\d))?-")
"""Model's name that begins with its version: ``claude-3-5-haiku-20241022``."""
_MARK = "cache_control"
"""Field of a block that marks where the prompt is cached."""
_PDF_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
"""Page in a PDF file: ``/Type /Page``; not ``/Type /Pages``, which lists pages."""


@dataclass(frozen=True)
class Refusal:
    """Reason why the API would refuse a request (400), in the API's words."""

    rule: int
    """Number of the broken rule, 1 to 25, in the list of `applier.testing`; 0 for all other rules."""
    message: str
    """Text of the error."""
    status: int = 400
    """HTTP status of the error."""

    def __str__(self) -> str:
        """Return the rule's number and the message."""
        return f"rule {self.rule}: {self.message}"


PlacedBlock = tuple[int, int, Block]
"""Index of a message, index of a block in it, and the block."""
PromptPart = tuple[str, Block]
"""Place of a part of the prompt (``tools``, ``system prompt``, or the role of its message), and its block."""


@dataclass(frozen=True)
class Request:
    """Body of one request to the Messages API, with its headers, as the test server reads it."""

    body: Mapping[str, Any]
    headers: Mapping[str, str]
    """Headers of the request, by name in lower case."""
    raw: bytes = b""
    """Bytes of the body as they came; empty for a request that did not come over the network."""

    @property
    def model(self) -> str:
        """Name of the requested model."""
        return str(self.body.get("model", ""))

    @cached_property
    def version(self) -> tuple[int, int]:
        """Version of the requested model, such as ``(4, 5)``; a name without one counts as the newest version."""
        match = _VERSION.match(self.model) or _LEADING_VERSION.match(self.model)
        return (int(match[1]), int(match[2] or 0)) if match else (99, 0)

    @property
    def takes_system_messages(self) -> bool:
        """True if the model accepts ``system`` messages inside the list."""
        is_late = "sonnet" in self.model or "haiku" in self.model
        return self.version >= (LATE_SYSTEM_MESSAGES if is_late else SYSTEM_MESSAGES)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Messages of the body. Their form is checked by `shape_problem`, which must have returned no problem."""
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages

    @property
    def prompt(self) -> str:
        """Text of all user messages."""
        return "\n".join(str(block.get("text", "")) for _, _, block in self.blocks("user"))

    @cached_property
    def betas(self) -> frozenset[str]:
        """Names of beta features in the header ``anthropic-beta``."""
        return frozenset(name.strip() for name in self.headers.get("anthropic-beta", "").split(",") if name.strip())

    @property
    def thinking(self) -> Literal["off", "manual", "adaptive"]:
        """Mode of the model's thinking; ``off`` if the request does not mention it."""
        kind = (self.body.get("thinking") or {}).get("type")
        return "manual" if kind == "enabled" else "adaptive" if kind == "adaptive" else "off"

    @property
    def drops_unbound_thinking(self) -> bool:
        """True if the request asks the API to leave out thinking of another conversation instead of refusing it."""
        binding = (self.body.get("thinking") or {}).get("block_binding") or {}
        return bool(binding.get("prefix_mismatch_behavior") == "drop_block")

    @property
    def system(self) -> list[Block]:
        """System prompt as a list of blocks."""
        return blocks_of(self.body.get("system") or [])

    @property
    def tools(self) -> list[Block]:
        """Definitions of the tools that the model may call."""
        return list(self.body.get("tools") or [])

    def blocks(self, *roles: str) -> Iterator[PlacedBlock]:
        """Yield message index, block index and block, for all blocks of messages with one of `roles` (none: all)."""
        for at, message in enumerate(self.messages):
            if not roles or message["role"] in roles:
                for index, block in enumerate(blocks_of(message["content"])):
                    yield at, index, block

    def merged(self) -> list[tuple[int, str, list[Block]]]:
        """Return the messages as the API reads them: neighbours with the same role are joined to one message. For each,
        return the index of its first message, its role, and its blocks."""
        merged: list[tuple[int, str, list[Block]]] = []
        for at, message in enumerate(self.messages):
            if merged and merged[-1][1] == message["role"]:
                merged[-1][2].extend(blocks_of(message["content"]))
            else:
                merged.append((at, message["role"], blocks_of(message["content"])))
        return merged

    def parts(self) -> Iterator[PromptPart]:
        """Yield the parts of the prompt in the API's order: tools (without deferred ones), system prompt, messages."""
        yield from (("tools", tool) for tool in self.tools if not tool.get("defer_loading"))
        yield from (("system prompt", block) for block in self.system)
        yield from ((self.messages[at]["role"], block) for at, _, block in self.blocks())

    @cached_property
    def digests(self) -> list[str]:
        """Digests of the prompt's beginnings: of the empty prompt, then of the prompt up to and with each part. Two
        prompts begin with the same parts if these digests are equal."""
        return list(accumulate(self.parts(), chained, initial=""))

    @cached_property
    def bindings(self) -> dict[tuple[int, int], str]:
        """Digest of everything in the prompt before each block, by the indices of its message and of the block."""
        places = [(at, index) for at, index, _ in self.blocks()]
        # the last parts of the prompt are these blocks; of their digests the last one is not before any block
        return dict(zip(places, self.digests[-len(places) - 1 :], strict=False))

    def shape_problem(self) -> str:
        """Return an error text if messages, system, tools or settings do not have the API's form; empty if all do."""
        messages = self.body.get("messages")
        if not isinstance(messages, list):
            return "messages: Field required" if messages is None else "messages: Input should be a valid list"
        for at, message in enumerate(messages):
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                return f"messages.{at}.role: Field required"
            if problem := _content_problem(message.get("content")):
                return f"messages.{at}.content{problem}"
        for key in ("system", "tools"):
            value = self.body.get(key)
            if value is not None and (problem := _content_problem(value, typed=key == "system")):
                return f"{key}{problem}"
        for key in ("thinking", "tool_choice", "context_management", "cache_control"):
            if not isinstance(self.body.get(key) or {}, dict):
                return f"{key}: Input should be an object"
        return ""


def _content_problem(content: object, *, typed: bool = True) -> str:
    """Return place and problem (``.2.type: Field required``) if `content` is neither a text nor a list of blocks; empty
    if it is right. `typed`: blocks need a ``type``; definitions of tools do not."""
    if isinstance(content, str):
        return ""
    if not isinstance(content, list):
        return ": Input should be a valid string or list"
    for index, block in enumerate(content):
        if not isinstance(block, dict):
            return f".{index}: Input should be an object"
        if typed and not isinstance(block.get("type"), str):
            return f".{index}.type: Field required"
        if not isinstance(block.get("cache_control") or {}, dict):
            return f".{index}.cache_control: Input should be an object"
        inner = block.get("content")
        if block.get("type") == "tool_result" and inner is not None and (problem := _content_problem(inner)):
            return f".{index}.content{problem}"
    return ""


def blocks_of(content: Any) -> list[Block]:
    """Return `content` as blocks; a string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content)


def chained(digest: str, part: PromptPart) -> str:
    """Return the digest of a prompt that ends with `part`; `digest` is the digest of everything before."""
    place, block = part
    return hashlib.sha256(f"{digest}{place}{canonical(block)}".encode()).hexdigest()


def canonical(block: Block) -> str:
    """Return `block` as a JSON text by which blocks are compared: without cache marks, which the model does not see,
    and without fields that are None, which objects of the SDK have."""
    shown = {key: _unmarked(value) for key, value in block.items() if value is not None and key != _MARK}
    return json.dumps(shown, sort_keys=True)


def _unmarked(value: object) -> object:
    """Return the JSON data `value` without cache marks at any depth."""
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != _MARK}
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    return value


def image_pixels(block: Block) -> tuple[int, int] | None:
    """Return width and height of an ``image`` block in pixels; None if its bytes do not show them."""
    width, height = imagesize.get(io.BytesIO(_data(block)))
    return (width, height) if width > 0 and height > 0 else None


def pdf_pages(block: Block) -> int:
    """Return the number of pages of a PDF in a ``document`` block; pages in compressed objects are not counted."""
    return len(_PDF_PAGE.findall(_data(block)))


def _data(block: Block) -> bytes:
    """Return the bytes of an image or document; none if they are not in the block."""
    source = block.get("source") or {}
    try:
        return base64.b64decode(str(source.get("data", ""))) if source.get("type") == "base64" else b""
    except binascii.Error:
        return b""


# Answers of a script.

Fault = Literal["", "hangs_up_at_once", "hangs_up", "half_an_event", "garbage", "stalls"]
"""Fault of the connection that a test can ask for; empty for none."""
_DELTA_CHARACTERS = 40
"""Length of the pieces in which text is streamed, so short that most texts of a test come in several pieces."""


@dataclass(frozen=True)
class Answer:
    """Assistant message that the test server sends; the server adds ids of calls and signatures of thinking."""

    content: Sequence[Block] = ()
    stop_reason: str = ""
    """Reason why the answer ends; empty means ``tool_use`` if it calls a client tool, else ``end_turn``."""
    fault: Fault = ""
    """Fault of the connection: closed at once or half way, an event cut short, garbage, or no answer at all."""
    hold: Callable[[], object] | None = None
    """Function that is called in the middle of a stream, to let a test act then; the rest follows when it returns."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``usage`` to send in place of the counted ones. If any is set, input counts that are not set are 0."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers of the answer: names and values."""


@dataclass(frozen=True)
class Failure:
    """Error that the test server sends instead of an answer."""

    status: int
    """HTTP status."""
    kind: str
    """Type of the error in the API: ``overloaded_error``."""
    message: str = ""
    """Text of the error; if it is empty, the type in words is sent: ``overloaded error``."""
    headers: tuple[tuple[str, str], ...] = (("retry-after", "0"), ("retry-after-ms", "1"))
    """Headers of the error; by default they let a client retry at once."""

    def as_json(self) -> dict[str, Any]:
        """Return the error as the API sends it."""
        return {"type": "error", "error": {"type": self.kind, "message": self.message or self.kind.replace("_", " ")}}


Reply = Answer | Failure | str | Sequence[Block]
"""Reply of the test server to one request: an answer, an error, a text, or the blocks of an answer."""
Script = Callable[[Request], Reply] | Sequence[Reply | Callable[[Request], Reply]] | Answer | Failure | str
"""Replies of the test server: one to all requests, a function that returns the reply to a request, or a list of replies
and functions, one for each request in order. The last entry of a list answers all further requests."""


def say(text: str) -> Block:
    """Return a text block for the answer of a test server."""
    return {"type": "text", "text": text}


def use(name: str, call_id: str = "", **arguments: object) -> Block:
    """Return a tool call for the answer of a test server; without an id the server adds one."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def refuse() -> Answer:
    """Return an answer of the test server in which the model refuses the request; it has no content, as in the API."""
    return Answer((), "refusal")


def overloaded() -> Failure:
    """Return the error 529 (overloaded) for a test server, to see how a client retries."""
    return Failure(529, "overloaded_error", "Overloaded")


def rate_limited() -> Failure:
    """Return the error 429 (too many requests) for a test server, to see how a client retries."""
    text = "This request would exceed your organization's rate limit"
    return Failure(429, "rate_limit_error", text)


def events(message: Block) -> Iterator[Block]:
    """Yield the events by which the API streams `message` piece by piece."""
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
    """Return the two forms in which a stream sends `block`: the empty block of ``content_block_start``, then the pieces
    of its ``content_block_delta`` events. A block of another type is sent whole, without pieces."""
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
    """Return `text` cut into pieces of `_DELTA_CHARACTERS`."""
    return [text[at : at + _DELTA_CHARACTERS] for at in range(0, len(text), _DELTA_CHARACTERS)]
