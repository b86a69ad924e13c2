"""Pictures and bytes of messages, and the numbers that a provider accepts.

The limits are the API's (REFERENCE 1, rule 20) until an error names smaller ones. Measures only;
`applier.session.picture_tier` chooses what to remove.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.reading.media import image_size, source_data, visible_pages
from planner.reading.messages import Block, Message, blocks, json_pieces

__all__ = ["MANY_IMAGES", "PICTURES", "Load", "MediaLimits", "load_of", "picture_load", "pictures_in"]

PICTURES = ("image", "document")
MANY_IMAGES, MANY_IMAGES_PIXELS = 20, 2_000
"""Number of images in a request above which each side of an image is limited, and that limit in pixels."""


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
    pieces = json_pieces(message, ensure_ascii=False, default=str)
    size = sum(len(piece.encode(errors="replace")) for piece in pieces)
    return sum((picture_load(picture) for picture in pictures_in(blocks(message))), Load(size=size))


def picture_load(picture: Block) -> Load:
    """Return the load of one image or document, without its bytes as JSON."""
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
    """Largest size of one picture in bytes; unknown until an error names it."""

    def excess(self, load: Load) -> float:
        """Return `load` as a share of the nearest limit; a request over 1 is refused."""
        mixed = load.images / MANY_IMAGES if load.large else 0.0
        return max(load.images / self.images, load.size / self.size, load.largest / self.largest, mixed)
