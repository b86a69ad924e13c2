"""The provider's prompt cache and its bill: what of a request was read, written and paid in full.

A prefix is cached up to each mark; a later request reads the longest one that ends at a mark or up to 20 blocks
before it. Order: tools, system, messages; a change invalidates everything behind it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from applier.testing.api_request import Block, Digest, Request, add_block, canonical
from applier.testing.pictures import image_pixels

__all__ = ["CACHE_READ_PRICES", "Bill", "PromptCache", "Usage", "request_tokens", "text_tokens"]

CACHE_READ_PRICES = (0.1, 0.05, 0.025)
"""Of one uncached input token: most models, Opus 5.5, Fable 5.1."""
_WRITE_PRICES = {"5m": 1.25, "1h": 2.0}
_SECONDS = {"5m": 300.0, "1h": 3600.0}
_LOOK_BACK_BLOCKS = 20
_BYTES_PER_TOKEN = 2.6
"""Of UTF-8 text: current Claude models take 1.7 to 3 characters a token, code and logs the fewest."""
_BLOCK_TOKENS = 4
_PIXELS_PER_TOKEN, _MAX_IMAGE_TOKENS = 750, 1600
_SETTINGS = ("thinking", "tool_choice", "output_config")
"""What invalidates the cached messages, not the cached tools and system, when it changes."""


@dataclass(frozen=True)
class Usage:
    """What one request is billed by."""

    input_tokens: int = 0
    cache_read_input_tokens: int = 0
    written_5m: int = 0
    written_1h: int = 0
    output_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Everything that was sent."""
        return self.input_tokens + self.cache_read_input_tokens + self.written_5m + self.written_1h

    def cost(self, read_price: float = CACHE_READ_PRICES[0]) -> float:
        """Of the input, in uncached input tokens."""
        written = self.written_5m * _WRITE_PRICES["5m"] + self.written_1h * _WRITE_PRICES["1h"]
        return self.input_tokens + self.cache_read_input_tokens * read_price + written

    def as_json(self) -> dict[str, Any]:
        """As the API sends it."""
        return {
            "input_tokens": self.input_tokens,
            "cache_creation_input_tokens": self.written_5m + self.written_1h,
            "cache_read_input_tokens": self.cache_read_input_tokens,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.written_5m,
                "ephemeral_1h_input_tokens": self.written_1h,
            },
            "output_tokens": self.output_tokens,
        }


@dataclass(frozen=True)
class Bill:
    """The sum of many requests."""

    requests: int
    usage: Usage

    @classmethod
    def of(cls, usages: list[Usage]) -> Bill:
        """Add up."""
        fields = Usage.__dataclass_fields__
        return cls(len(usages), Usage(**{name: sum(getattr(usage, name) for usage in usages) for name in fields}))

    def costs(self) -> dict[float, int]:
        """Of all input, in uncached input tokens, by the price of a cache read."""
        return {price: round(self.usage.cost(price)) for price in CACHE_READ_PRICES}

    def __str__(self) -> str:
        """Two lines for people."""
        costs = ", ".join(f"{cost:,} at {price:g}" for price, cost in self.costs().items())
        usage = self.usage
        written = usage.written_5m + usage.written_1h
        return (
            f"{self.requests} requests, {usage.prompt_tokens:,} prompt tokens: {usage.input_tokens:,} in full, "
            f"{usage.cache_read_input_tokens:,} read, {written:,} written; {usage.output_tokens:,} answered\n"
            f"input in uncached tokens, by the price of a cache read: {costs}"
        )


@dataclass(frozen=True)
class _Step:
    """The prompt up to and with one block."""

    key: str
    tokens: int
    ttl: str
    """``5m`` or ``1h`` where a mark stands, else empty."""


class PromptCache:
    """What is cached now; asks its caller for the time."""

    def __init__(self) -> None:
        """Nothing is."""
        self._until: dict[str, float] = {}

    def charge(self, request: Request, now: float) -> Usage:
        """What the input of `request` costs; its marked prefixes are cached from now on."""
        steps = list(_steps(request))
        total = steps[-1].tokens if steps else 0
        marks = [at for at, step in enumerate(steps) if step.ttl]
        read_at = max((at for mark in marks for at in self._hits(steps, mark, now)), default=None)
        read = 0 if read_at is None else steps[read_at].tokens
        written = {"5m": 0, "1h": 0}
        done = read
        for mark in marks:
            step = steps[mark]
            if step.tokens < request.model.cacheable_tokens:
                continue
            self._until[step.key] = now + _SECONDS[step.ttl]
            written[step.ttl] += max(0, step.tokens - done)
            done = max(done, step.tokens)
        if read_at is not None:
            self._until[steps[read_at].key] = max(self._until[steps[read_at].key], now + _SECONDS["5m"])
        return Usage(total - done, read, written["5m"], written["1h"])

    def _hits(self, steps: list[_Step], mark: int, now: float) -> Iterator[int]:
        for at in range(mark, max(-1, mark - _LOOK_BACK_BLOCKS), -1):
            if self._until.get(steps[at].key, -math.inf) >= now:
                yield at
                return


def request_tokens(request: Request) -> int:
    """What the prompt of `request` counts."""
    return sum(_tokens(block) for _, block in _parts(request))


def _steps(request: Request) -> Iterator[_Step]:
    digest: Digest = hashlib.sha256(request.model.name.encode())
    settings = json.dumps([request.body.get(name) for name in _SETTINGS])
    tokens, parts = 0, list(_parts(request))
    for at, (role, block) in enumerate(parts):
        if role in ("user", "assistant", "system") and settings:
            digest.update(settings.encode())
            settings = ""
        add_block(digest, role, block)
        tokens += _tokens(block)
        mark = _mark(block) or (request.body.get("cache_control") if at == len(parts) - 1 else None)
        yield _Step(digest.hexdigest(), tokens, "" if not mark else "1h" if mark.get("ttl") == "1h" else "5m")


def _parts(request: Request) -> Iterator[tuple[str, Block]]:
    yield from (("tools", tool) for tool in request.tools)
    yield from (("system prompt", block) for block in request.system)
    yield from ((request.messages[at]["role"], block) for at, _, block in request.blocks())


def _mark(block: Block) -> Mapping[str, Any] | None:
    """The cache mark of a block, or of something in its content."""
    if block.get("cache_control"):
        return dict(block["cache_control"])
    inner = block.get("content")
    marks = (item["cache_control"] for item in inner if item.get("cache_control")) if isinstance(inner, list) else ()
    return next(iter(marks), None)


def _tokens(block: Block) -> int:
    return _BLOCK_TOKENS + _content_tokens(block)


def _content_tokens(block: Block) -> int:
    inner = block.get("content")
    if block.get("type") == "image":
        return _image_tokens(block)
    if block.get("type") == "text":
        return text_tokens(str(block.get("text", "")))
    if block.get("type") == "tool_result" and isinstance(inner, list):
        return sum(map(_content_tokens, inner))
    if block.get("type") == "tool_result":
        return text_tokens(str(inner or ""))
    return text_tokens(canonical(block))


def text_tokens(text: str) -> int:
    """What `text` counts."""
    return math.ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)


def _image_tokens(block: Block) -> int:
    pixels = image_pixels(block)
    return min(_MAX_IMAGE_TOKENS, math.ceil(pixels[0] * pixels[1] / _PIXELS_PER_TOKEN)) if pixels else _MAX_IMAGE_TOKENS
