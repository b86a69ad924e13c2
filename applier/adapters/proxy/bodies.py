"""Request bodies: decoded, parsed and written, within limits that are checked before memory is taken.

A body over a limit is no error: it passes unchanged, without compaction. Knows no API.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import zstandard

from applier.store.records import count_values
from planner.reading.messages import json_pieces

__all__ = ["LARGE_BYTES", "MAX_BODY_BYTES", "MAX_DECODED_BYTES", "Body", "collect", "decode", "join", "parse", "write"]

MAX_BODY_BYTES = 64 * 2**20
"""Largest body kept in memory: twice the limit of the Messages API, since a larger history is compacted, too."""
MAX_DECODED_BYTES, MAX_DECODED_LINES = 6 * 2**20, 150_000
"""Largest decoded size in bytes, and number of lines, of a compressed body. A million tokens of code have 5 MB and
120,000 lines. Including a session's work, a body takes up to 20 bytes of memory for each byte, and 700 for each
line."""
MAX_TEXT_CHARACTERS, MAX_LINES = 16 * 2**20, 400_000
"""Largest text in characters, without media, and number of lines of any body: four million tokens. They take 300 MB of
memory at most, like a compressed body; their sender has to transmit all of them."""
_MEDIUM = re.compile(r"image|document|file|audio|video|screenshot")
"""Word in the type of an item or block with a medium, in each API."""
_ENCODED = re.compile(r"(?:data:[\w./+;=-]{1,100},)?[A-Za-z0-9+/=_-]{500,}")
"""Base64, with or without its address."""
LARGE_BYTES = 4 * 2**20
"""Size from which bodies are worked on few at a time."""
MAX_VALUES = 250_000
"""Largest number of objects, lists, strings and numbers in one body: ten for each of 25,000 messages, at most 250 bytes
each."""
MAX_MESSAGES = 20_000
"""Largest number of entries in a list at the top of a body. A session takes 7 kB of memory for each message."""
_MAX_WINDOW_BYTES = 8 * 2**20
"""Largest zstd window, the most that the content coding allows (RFC 9659)."""
_PIECE_BYTES = 128
"""Compressed bytes decoded at once: at most 32 blocks of 128 kB each."""
_LINE_BREAKS = (b"\\n", b"\\r", b"\\f", b"\\u")
"""Escapes in JSON that may break a line."""
Body = bytes | AsyncIterator[bytes]
"""Request body: in memory, or as it arrives."""


async def collect(body: Body) -> Body:
    """Return all of `body`; a body that is too large for memory is passed on as it arrives."""
    if isinstance(body, bytes):
        return body
    start = bytearray()
    async for chunk in body:
        start += chunk
        if len(start) > MAX_BODY_BYTES:
            return join(bytes(start), body)
    return bytes(start)


async def join(start: bytes, rest: AsyncIterator[bytes] | None = None) -> AsyncIterator[bytes]:
    """Yield `start`, then `rest`."""
    yield start
    if rest is not None:
        async for chunk in rest:
            yield chunk


def decode(raw: bytes, encoding: str) -> bytes | None:
    """Return `raw` without its content `encoding`; None unless that is ``zstd`` (sent by Codex) and within limits.

    Decoding stops at the limit: five kilobytes can contain gigabytes.
    """
    if encoding.strip().lower() == "identity":
        return raw
    if encoding.strip().lower() != "zstd" or len(raw) > MAX_DECODED_BYTES:
        return None
    decoder = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()
    plain = bytearray()
    try:
        for at in range(0, len(raw), _PIECE_BYTES):
            plain += decoder.decompress(raw[at : at + _PIECE_BYTES])
            if len(plain) > MAX_DECODED_BYTES:
                return None
    except zstandard.ZstdError:
        return None
    is_whole = decoder.eof and not decoder.unused_data
    return bytes(plain) if is_whole and _count_lines(plain) <= MAX_DECODED_LINES else None


def _count_lines(raw: bytes | bytearray) -> int:
    return sum(map(raw.count, _LINE_BREAKS))


def parse(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON object `raw`; None if it is no object, or exceeds a limit of values, lines, depth, messages or
    text."""
    if count_values(raw, MAX_VALUES) > MAX_VALUES or _count_lines(raw) > MAX_LINES:
        return None
    try:
        body = json.loads(raw.decode("utf-8-sig", "surrogatepass"))
        too_much = len(raw) > MAX_TEXT_CHARACTERS and _count_text(body) > MAX_TEXT_CHARACTERS
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or any(isinstance(one, list) and len(one) > MAX_MESSAGES for one in body.values()):
        return None
    return None if too_much else body


def _count_text(value: Any, *, in_medium: bool = False) -> int:
    """Return the characters of text in JSON data. Base64 of media does not count, for it takes little further memory;
    arguments of calls always count."""
    if isinstance(value, str):
        return 0 if in_medium and _ENCODED.fullmatch(value) else len(value)
    if isinstance(value, list):
        return sum(_count_text(inner, in_medium=in_medium) for inner in value)
    if not isinstance(value, dict):
        return 0
    kind = str(value.get("type"))
    in_medium = (in_medium or _MEDIUM.search(kind) is not None) and not kind.endswith("tool_use")
    return sum(_count_text(inner, in_medium=in_medium) for inner in value.values())


def write(body: dict[str, Any]) -> bytes:
    """Return `body` as JSON."""
    try:
        return b"".join(piece.encode() for piece in json_pieces(body, ensure_ascii=False))
    except UnicodeEncodeError:  # a lone surrogate can only be sent escaped
        return b"".join(piece.encode() for piece in json_pieces(body))
