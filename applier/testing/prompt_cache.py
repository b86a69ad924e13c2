"""Simulates a provider's prompt cache: how many tokens of a prompt are read from it, written to it, or paid in full.

The prompt is cached from its beginning up to each of its cache marks. A later request reads the longest cached
beginning of its own prompt that ends at one of its marks, or at most 19 blocks before one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from itertools import accumulate
from operator import add
from typing import Any

from applier.testing.api_forms import Block, PromptPart, Request, blocks_of, canonical, image_pixels

CACHE_READ_PRICES = (0.1, 0.05, 0.025)
"""Prices of a token read from the cache, relative to an uncached one: of most models, Opus 5.5, Fable 5.1."""
_WRITE_PRICES = {"5m": 1.25, "1h": 2.0}
"""Prices of a token written to the cache, as multiples of the price of an uncached token, by lifetime."""
_SECONDS = {"5m": 300.0, "1h": 3600.0}
"""Lifetimes of cached content in seconds."""
_LOOK_BACK_BLOCKS = 20
"""Number of blocks, from the marked one back, at which the cached beginning of a prompt may end."""
_BYTES_PER_TOKEN = 2.6
"""Bytes of UTF-8 text in a token: for current Claude models 1.7 (code and logs) to 3."""
_BLOCK_TOKENS = 4
"""Tokens of each block besides its content."""
_PIXELS_PER_TOKEN, _MAX_IMAGE_TOKENS = 750, 1600
"""Number of pixels that count as one token, and largest number of tokens of an image."""
_SETTINGS = ("thinking", "tool_choice", "output_config")
"""Settings by which cached messages become invalid if they change; cached tools and system prompt stay valid."""
_Key = tuple[str, str, str]
"""Key of a cached beginning of a prompt: model, settings and digest."""


@dataclass(frozen=True)
class PromptUsage:
    """Billed tokens of one request or of several together."""

    input_tokens: int = 0
    """Tokens paid in full: neither read from the cache nor written to it."""
    cache_read_input_tokens: int = 0
    written_5m: int = 0
    """Tokens written to the cache for five minutes."""
    written_1h: int = 0
    """Tokens written to the cache for an hour."""
    output_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Number of all input tokens, cached or not."""
        return self.input_tokens + self.cache_read_input_tokens + self.written_5m + self.written_1h

    def __add__(self, other: PromptUsage) -> PromptUsage:
        """Return the sum of both usages."""
        return PromptUsage(*map(add, astuple(self), astuple(other)))

    def cost(self, read_price: float = CACHE_READ_PRICES[0]) -> float:
        """Return the price of the input in units of one uncached token; a cached token costs `read_price`."""
        written = self.written_5m * _WRITE_PRICES["5m"] + self.written_1h * _WRITE_PRICES["1h"]
        return self.input_tokens + self.cache_read_input_tokens * read_price + written

    def as_json(self) -> dict[str, Any]:
        """Return the usage as the API sends it."""
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


class PromptCache:
    """Simulated prompt cache of a provider: beginnings of prompts, each with the time when it expires."""

    def __init__(self) -> None:
        """Begin with nothing cached."""
        self._until: dict[_Key, float] = {}  # time of expiry

    def charge(self, request: Request, now: float) -> PromptUsage:
        """Return the tokens that the provider would bill for `request` at the time `now` in seconds. Then cache the
        prompt up to each of its cache marks."""
        keys, tokens = list(_keys(request)), list(accumulate(map(_tokens, request.parts())))  # up to each part
        marks = _marks(request)
        # the longest beginning that is cached, has not expired, and ends at a mark or shortly before it
        readable_ends = {at for mark in marks for at in range(max(0, mark - _LOOK_BACK_BLOCKS + 1), mark + 1)}
        read_at = max((at for at in readable_ends if self._until.get(keys[at], -math.inf) >= now), default=None)
        read_tokens = paid_tokens = 0 if read_at is None else tokens[read_at]  # paid: read or written
        written = dict.fromkeys(_SECONDS, 0)
        # the shortest prompt that is cached; the API has a limit of 512 to 4,096 for each model
        least_tokens = 4096 if "haiku" in request.model or (4, 5) <= request.version < (4, 8) else 1024
        for mark, lifetime in marks.items():
            if tokens[mark] < least_tokens:
                continue
            self._until[keys[mark]] = now + _SECONDS[lifetime]
            written[lifetime] += max(0, tokens[mark] - paid_tokens)
            paid_tokens = max(paid_tokens, tokens[mark])
        if read_at is not None:  # to read from the cache prolongs the lifetime
            self._until[keys[read_at]] = max(self._until[keys[read_at]], now + _SECONDS["5m"])
        all_tokens = tokens[-1] if tokens else 0
        return PromptUsage(all_tokens - paid_tokens, read_tokens, written["5m"], written["1h"])


def request_tokens(request: Request) -> int:
    """Return the number of tokens in the prompt of `request`."""
    return sum(map(_tokens, request.parts()))


def _keys(request: Request) -> Iterator[_Key]:
    """Yield for each part of the prompt the cache's key for the prompt up to and including this part."""
    settings = json.dumps([request.body.get(name) for name in _SETTINGS])
    for (role, _), digest in zip(request.parts(), request.digests[1:], strict=True):
        yield request.model, "" if role in ("tools", "system prompt") else settings, digest


def _marks(request: Request) -> dict[int, str]:
    """Return the lifetime of each cache mark (``5m`` or ``1h``) by the index of the part of the prompt that has it. A
    mark of the whole request counts as one of its last part."""
    marks = [_mark(block) for _, block in request.parts()]
    marks[-1:] = [mark or request.body.get("cache_control") for mark in marks[-1:]]
    return {at: "1h" if mark.get("ttl") == "1h" else "5m" for at, mark in enumerate(marks) if mark}


def _mark(block: Block) -> Mapping[str, Any] | None:
    """Return the cache mark of a block, or of something in its content; None without one."""
    inner = block.get("content")
    marked = [block, *(inner if isinstance(inner, list) else ())]
    return next((marked_block["cache_control"] for marked_block in marked if marked_block.get("cache_control")), None)


def _tokens(part: PromptPart) -> int:
    """Return the estimated number of tokens of one part of a prompt."""
    return _BLOCK_TOKENS + _content_tokens(part[1])


def _content_tokens(block: Block) -> int:
    """Return the estimated number of tokens of a block: of an image by its pixels, else by the length of its text."""
    if block.get("type") == "image":
        # an image of unknown size counts as one with the most tokens
        pixels = math.prod(image_pixels(block) or (_MAX_IMAGE_TOKENS, _PIXELS_PER_TOKEN))
        return min(_MAX_IMAGE_TOKENS, math.ceil(pixels / _PIXELS_PER_TOKEN))
    if block.get("type") == "text":
        return text_tokens(str(block.get("text", "")))
    if block.get("type") == "tool_result":
        return sum(map(_content_tokens, blocks_of(block.get("content") or "")))
    return text_tokens(canonical(block))


def text_tokens(text: str) -> int:
    """Return the estimated number of tokens in `text`."""
    return math.ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)
