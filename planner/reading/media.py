"""Finds the media in messages (images, documents, sound, films) and counts their tokens.

It reads the dimensions of an image from its first bytes. A medium is recognised anywhere in JSON data: as a block, as a
data URL, or as base64 next to its type. It fetches nothing.
"""

from __future__ import annotations

import base64
import io
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from planner.reading.messages import Block, field_of

PIXELS_PER_TOKEN = 750
"""Pixels of an image that cost one token (Anthropic)."""
PDF_PAGE_BYTES = 50_000
"""Typical bytes of a PDF page, to estimate the number of pages if they cannot be counted."""
PDF_PAGE_TOKENS = 3_000
"""Tokens that a PDF page is counted with: the most that it costs; the least is 1,500 (Anthropic)."""
STREAM_BYTES_PER_TOKEN = 300
"""Bytes of sound or film that count as one token, few enough that the count is never too low. A second of sound costs
10 to 32 tokens and has at least 3,000 bytes; one of film costs 300 tokens and has at least 100,000 (OpenAI, Google)."""
SEALED_CHARACTERS_PER_TOKEN = 5
"""Characters of base64 that count as one token, in encrypted text or reasoning and in a signature of reasoning."""
_HEAD_CHARACTERS = 100_000
"""Number of base64 characters of an image that are decoded to read its size; too few only for a huge preview."""
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
"""Beginning of one page in the bytes of a PDF; not ``/Type /Pages``, the list of all pages."""
_LEAST_BASE64 = 500
"""Smallest length of a run of base64 that counts as a medium."""
_BASE64 = re.compile(
    rf"(?<![A-Za-z0-9+/_-])(?:data:([\w./+-]{{1,100}});base64,)?[A-Za-z0-9+/_-]{{{_LEAST_BASE64},}}={{0,2}}"
)
"""Run of base64 of `_LEAST_BASE64` characters or more, with or without the prefix ``data:image/png;base64,``. The group
is the type in the prefix. Words with blanks between them do not match."""
_STREAM_NAME = re.compile(r"audio|video")
_SEALED_NAME = re.compile(r"encrypted|signature|sealed")
_TEXT_NAME = re.compile(r"text/|/json|/csv|/xml")
"""Words next to a medium that show text, as `_STREAM_NAME` shows sound or film and `_SEALED_NAME` encrypted data."""
_HINT_CHARACTERS = 100
"""Largest length of a text next to a medium in which its type is looked for. A longer text is content."""

MANY_IMAGES = 20
"""Number of images in a request above which no side of an image may exceed `MANY_IMAGES_PIXELS`."""
MANY_IMAGES_PIXELS = 2_000
"""Largest side, in pixels, of an image in a request with more than `MANY_IMAGES`."""


@dataclass(frozen=True, slots=True)
class Medium:
    """Image, sound or other medium as base64 in JSON data, with the words next to it, which may show its format."""

    data: str
    hints: str
    """Types, keys and short texts around the data, the outermost object first: ``input_audio wav data``."""


def split_media(value: object, hints: str = "") -> tuple[object, list[Medium | Block]]:
    """Separate the media in the JSON data `value` from its text, as their tokens are counted in different ways. Return
    the data without media, and the media: blocks of images and documents, and base64 inside texts. `hints`: words that
    may show the format of the media, such as the type of the block that contains `value`."""
    media: list[Medium | Block] = []
    return _reduced(value, hints, media), media


def _reduced(value: object, hints: str, media: list[Medium | Block]) -> object:
    """Return `value` without its media, which are added to `media`."""
    if isinstance(value, str):
        return _text_reduced(value, hints, media)
    if isinstance(value, list | tuple):
        return [_reduced(item, hints, media) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") in ("image", "document") and isinstance(value.get("source"), Mapping):
        media.append(value)
        return None
    short = (item for item in value.values() if isinstance(item, str) and len(item) <= _HINT_CHARACTERS)
    around = " ".join([hints, *short])
    return {key: _reduced(item, f"{around} {key}", media) for key, item in value.items()}


def _text_reduced(text: str, hints: str, media: list[Medium | Block]) -> str:
    """Return `text` without its base64, which is added to `media`, with `hints` and the text on either side of it."""
    if len(text) < _LEAST_BASE64:
        return text

    def add_medium(match: re.Match[str]) -> str:
        data = match[0].partition(",")[2] if match[1] else match[0]
        before = text[max(0, match.start() - _HINT_CHARACTERS) : match.start()]
        after = text[match.end() : match.end() + _HINT_CHARACTERS]
        media.append(Medium(data, " ".join([hints, match[1] or "", before, after])))
        return ""  # the text without the medium

    return _BASE64.sub(add_medium, text)


def media_tokens(medium: Medium, most_for_an_image: int) -> int:
    """Return how many tokens a medium costs. It counts as an image if its bytes or the words next to it show one.
    Otherwise these words decide: encrypted data, sound or film, or text; without any of them it counts as a document.
    `most_for_an_image`: largest number of tokens for one image."""
    data, hints = medium.data, medium.hints.lower()
    source = {"source": {"type": "base64", "data": data}}
    if image_size(source) or "image" in hints:
        return image_tokens(source, most_for_an_image)
    if _SEALED_NAME.search(hints):
        return len(data) // SEALED_CHARACTERS_PER_TOKEN
    if _STREAM_NAME.search(hints):
        return math.ceil(len(data) * 3 / 4 / STREAM_BYTES_PER_TOKEN)
    return len(data) // 4 if _TEXT_NAME.search(hints) else document_tokens(source)  # four characters are a token


def image_tokens(block: Block, most: int) -> int:
    """Return how many tokens an ``image`` block costs by its pixels, at most `most`; `most` if they are unknown."""
    size = image_size(block)
    return min(most, math.ceil(size[0] * size[1] / PIXELS_PER_TOKEN)) if size else most


def document_tokens(block: Block) -> int:
    """Return how many tokens a document costs by its pages, at least one. Without a count, bytes show their number."""
    pages = visible_pages(block) or len(source_data(block)) * 3 // 4 // PDF_PAGE_BYTES
    return max(1, pages) * PDF_PAGE_TOKENS


def source_data(block: Block) -> str:
    """Return the base64 or text in an ``image`` or ``document`` block; empty if it has only the address of a file."""
    data = field_of(block.get("source"), "data")
    return data if isinstance(data, str) else ""


def image_size(block: Block) -> tuple[int, int] | None:
    """Return width and height in pixels of an ``image`` block; None if its bytes do not show them."""
    import imagesize  # type: ignore[import-untyped]  # loads an HTTP client: only where there are images

    try:
        head = _decoded(source_data(block)[:_HEAD_CHARACTERS])
        width, height = imagesize.get(io.BytesIO(head), exif_rotation=False)
    except (ValueError, struct.error, EOFError, OSError):
        return None
    return (width, height) if width > 0 and height > 0 else None


def visible_pages(block: Block) -> int:
    """Return the number of pages of a PDF in base64, found in its bytes; 0 if it is compressed, or no PDF."""
    if field_of(block.get("source"), "type") != "base64":
        return 0
    try:
        return len(_PAGE.findall(_decoded(source_data(block))))
    except ValueError:
        return 0


def _decoded(data: str) -> bytes:
    """Return the bytes of base64 `data`, which may be in the form for URLs and without padding."""
    return base64.b64decode(data.replace("-", "+").replace("_", "/") + "=" * (-len(data) % 4))
