"""The pictures and bytes of messages, and how many of them a provider accepts.

The limits are the API's (REFERENCE 1, rule 20) until an error names smaller ones. Measures only: what goes is chosen in
`applier.session.picture_tier`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.reading.media import image_size, source_data, visible_pages
from planner.reading.messages import Block, Message, blocks

__all__ = ["MANY_IMAGES", "PICTURES", "Load", "MediaLimits", "load_of", "picture_load", "pictures_in"]

PICTURES = ("image", "document")
MANY_IMAGES, MANY_IMAGES_PIXELS = 20, 2_000
"""In a request of more images than this, each side of an image may have at most so many pixels."""


@dataclass(frozen=True, slots=True)
class Load:
    """Pictures and bytes of messages."""

    images: int = 0
    """Images and document pages."""
    large: int = 0
    """Images of more than `MANY_IMAGES_PIXELS` on a side."""
    size: int = 0
    """Bytes of the messages as JSON."""
    largest: int = 0
    """Bytes of the largest picture."""

    def __add__(self, other: Load) -> Load:
        """Return both loads together."""
        largest = max(self.largest, other.largest)
        return Load(self.images + other.images, self.large + other.large, self.size + other.size, largest)


def load_of(message: Message) -> Load:
    """Return the pictures and bytes of `message`."""
    size = len(json.dumps(message, ensure_ascii=False, default=str).encode(errors="replace"))
    return sum((picture_load(picture) for picture in pictures_in(blocks(message))), Load(size=size))


def picture_load(picture: Block) -> Load:
    """Return the load of one image or document, apart from its bytes as JSON."""
    if picture["type"] == "document":
        return Load(images=visible_pages(picture), largest=len(source_data(picture)))
    is_large = max(image_size(picture) or (0,)) > MANY_IMAGES_PIXELS
    return Load(1, int(is_large), largest=len(source_data(picture)))


def pictures_in(content: Sequence[object]) -> Iterator[Block]:
    """Yield the images and documents in content blocks and in the results among them."""
    for block in content:
        if isinstance(block, dict) and block.get("type") in PICTURES:
            yield block
        elif isinstance(block, dict) and isinstance(inner := block.get("content"), list):
            yield from pictures_in(inner)


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Pictures and bytes that a request may have."""

    images: int = 100
    size: int = 30_000_000
    """Bytes of all messages: the body may have 32 MB, system and tools included."""
    largest: int = sys.maxsize
    """Bytes of one picture; not known before an error names them."""

    def excess(self, load: Load) -> float:
        """Return `load` as a share of the limit that it is nearest to; over 1 the request is refused."""
        mixed = load.images / MANY_IMAGES if load.large else 0.0
        return max(load.images / self.images, load.size / self.size, load.largest / self.largest, mixed)
