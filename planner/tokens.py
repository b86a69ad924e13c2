"""How many tokens something is for the model that will read it, without a network.

tiktoken is not Claude's tokenizer: against current Claude models its o200k vocabulary gives 0.63 to 0.80 of
the true count, against older ones 0.79 to 0.90, so a count is scaled by the worst case of the model's family
and never under-counts. Each text is counted once and remembered.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import math
import os
import struct
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import regex
import tiktoken

from planner.messages import Block, Message, blocks, result_text, to_json

__all__ = ["TokenCounter", "count_tokens_exactly", "family_scale", "load_vocabulary"]

O200K_URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"

# How o200k cuts text before it merges bytes (the split rules that vocabulary was trained with).
_WORD_TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SPLIT = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_WORD_TAIL}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_WORD_TAIL}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

MESSAGE_OVERHEAD = 3
"""Tokens around a block: role, type and id marks; what providers add for chat messages (3 to 4)."""
IMAGE_TOKENS = 1600
"""The most one image costs; Anthropic: width x height / 750, larger images are scaled down to this."""
PDF_PAGE_BYTES, PDF_PAGE_TOKENS = 50_000, 3_000
"""A PDF costs 1,500 to 3,000 tokens a page (Anthropic); pages are guessed from the size."""

_OLDER = ("claude-2", "claude-3", "claude-instant", "sonnet-4-0", "sonnet-4-2", "opus-4-0", "opus-4-1",
          "opus-4-2", "sonnet-4-5", "opus-4-5", "haiku-4-5", "sonnet-4-6", "opus-4-6")  # fmt: skip


def family_scale(model: str) -> float:
    """What an o200k count is multiplied with so that `model` never counts more: the worst ratio measured.

    1.6 for current Claude models (4.7 and later) and unknown ones, 1.27 for older Claude models, 1 for
    OpenAI's, whose tokenizer it is.
    """
    name = model.lower()
    if name.startswith(("gpt-", "o1", "o3", "o4", "openai/")):
        return 1.0
    return 1.27 if any(mark in name for mark in _OLDER) else 1.6


@lru_cache(maxsize=1)
def load_vocabulary() -> tiktoken.Encoding | None:
    """o200k from tiktoken's cache folder or the ``offline`` extra; None if neither is there.

    Never downloads: tiktoken's own download has no time limit and hangs behind a firewall.
    """
    ranks = _cached_ranks() or _bundled_ranks()
    if ranks is None:
        return None
    return tiktoken.Encoding("o200k_base", pat_str=_SPLIT, mergeable_ranks=ranks, special_tokens={})


def _cached_ranks() -> dict[bytes, int] | None:
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    path = (
        Path(folder or Path(tempfile.gettempdir(), "data-gym-cache"))
        / hashlib.sha1(O200K_URL.encode(), usedforsecurity=False).hexdigest()
    )
    return _ranks(path.read_bytes()) if path.is_file() else None


def _bundled_ranks() -> dict[bytes, int] | None:
    spec = importlib.util.find_spec("bpe_openai")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "data" / "o200k_base.tiktoken.gz"
    return _ranks(gzip.decompress(path.read_bytes())) if path.is_file() else None


def _ranks(data: bytes) -> dict[bytes, int] | None:
    try:
        return {
            base64.b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines())
        }
    except ValueError:
        return None


_PIECE = regex.compile(_SPLIT)


def estimate_tokens(text: str) -> int:
    """About how many o200k tokens `text` is, without a vocabulary; rather over than under."""
    return sum(map(_piece_tokens, _PIECE.findall(text)))


@lru_cache(maxsize=65536)
def _piece_tokens(piece: str) -> int:
    if not piece.isascii():
        return max(1, math.ceil(len(piece.encode("utf-8", "surrogatepass")) / 3))
    word = piece.strip()
    if word.isalpha() or word[1:].isalpha():
        return (
            1 if len(word) <= 6 else math.ceil(len(word) / 6) if len(word) <= 12 else math.ceil(len(word) / 4)
        )
    return max(1, math.ceil(len(word) / 4))


@dataclass
class TokenCounter:
    """Counts for one model family; `scale` multiplies raw o200k counts."""

    scale: float = 1.6
    vocabulary: tiktoken.Encoding | None = field(default_factory=load_vocabulary)
    _seen: dict[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def for_model(cls, model: str = "") -> TokenCounter:
        """A counter that does not under-count for `model`."""
        return cls(family_scale(model))

    @property
    def is_estimate(self) -> bool:
        """True without a vocabulary: counts come from the shape of the text alone."""
        return self.vocabulary is None

    def raw(self, text: str) -> int:
        """o200k tokens of `text`, unscaled."""
        known = self._seen.get(text)
        if known is None:
            known = self._seen[text] = self._encode(text)
        return known

    def _encode(self, text: str) -> int:
        if self.vocabulary is None:
            return estimate_tokens(text)
        try:
            return len(self.vocabulary.encode_ordinary(text))
        except UnicodeEncodeError:  # a lone surrogate
            return len(self.vocabulary.encode_ordinary(text.encode("utf-8", "replace").decode()))

    def text(self, text: str) -> int:
        """Tokens of `text`."""
        return math.ceil(self.raw(text) * self.scale)

    def block(self, block: Block) -> int:
        """Tokens of one content block, nested results, images and documents included."""
        kind = block["type"]
        if kind in ("text", "thinking") and isinstance(block.get(kind), str):
            return self.text(block[kind]) + MESSAGE_OVERHEAD
        if kind in ("tool_use", "server_tool_use"):
            return self.text(f"{block.get('name', '')} {to_json(block.get('input'))}") + MESSAGE_OVERHEAD
        if kind == "image":
            return _image_tokens(block)
        if kind == "document":
            return self._document(block)
        if kind == "tool_result":
            return self.text(result_text(block)) + self._media(block.get("content")) + MESSAGE_OVERHEAD
        return self.text(to_json({k: v for k, v in block.items() if k != "type"})) + MESSAGE_OVERHEAD

    def _media(self, content: object) -> int:
        if not isinstance(content, list):
            return 0
        return sum(
            self.block(b) for b in content if isinstance(b, dict) and b.get("type") not in (None, "text")
        )

    def _document(self, block: Block) -> int:
        source = block.get("source")
        data = str(source.get("data", "")) if isinstance(source, dict) else ""
        if isinstance(source, dict) and source.get("type") == "text":
            return self.text(data) + MESSAGE_OVERHEAD
        return max(1, len(data) * 3 // 4 // PDF_PAGE_BYTES) * PDF_PAGE_TOKENS

    def message(self, message: Message) -> int:
        """Tokens of one message."""
        return sum(self.block(block) for block in blocks(message))

    def messages(self, messages: Iterable[Message]) -> int:
        """Tokens of a list of messages."""
        return sum(self.message(message) for message in messages)

    def request(
        self,
        messages: Iterable[Message],
        system: str | Sequence[Block] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> int:
        """Tokens of a whole request: messages, system prompt and tool definitions."""
        fixed = self.text(system) if isinstance(system, str) else sum(map(self.block, system or ()))
        return fixed + sum(self.text(to_json(tool)) for tool in tools or ()) + self.messages(messages)

    def calibrated(self, counted_tokens: int, actual_tokens: int) -> TokenCounter:
        """This counter scaled so that what it counted as `counted_tokens` is the provider's `actual_tokens`.

        `actual_tokens` is a response's ``usage``: input + cache read + cache creation tokens.
        """
        if counted_tokens <= 0 or actual_tokens <= 0:
            return self
        return TokenCounter(self.scale * actual_tokens / counted_tokens, self.vocabulary, self._seen)


def _image_tokens(block: Block) -> int:
    source = block.get("source")
    data = source.get("data") if isinstance(source, dict) else None
    if not isinstance(data, str):
        return IMAGE_TOKENS
    try:
        head = base64.b64decode(data[:64] + "=" * (-len(data[:64]) % 4))
    except ValueError:
        return IMAGE_TOKENS
    if head[:8] != b"\x89PNG\r\n\x1a\n" or len(head) < 24:
        return IMAGE_TOKENS
    width, height = struct.unpack(">II", head[16:24])
    return max(1, min(IMAGE_TOKENS, math.ceil(width * height / 750)))


def count_tokens_exactly(
    client: Any,
    model: str,
    messages: Sequence[Message],
    system: str | Sequence[Block] | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> int:
    """The provider's own count of a request, by its free ``count_tokens`` endpoint (one network call)."""
    extra = {name: value for name, value in (("system", system), ("tools", tools)) if value}
    counted = client.messages.count_tokens(model=model, messages=list(messages), **extra)
    return int(counted.input_tokens)
