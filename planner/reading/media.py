"""How large images and documents in a message are, read from their first bytes. Fetches nothing."""

from __future__ import annotations

import base64
import io
import re
import struct

from planner.reading.messages import Block

__all__ = ["image_size", "media_mark", "source_data", "visible_pages"]

_HEAD_CHARACTERS = 100_000
"""Of base64: every format tells its size within this, but for photographs with a very large preview."""
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")


def source_data(block: Block) -> str:
    """The base64 or text in an ``image`` or ``document`` block; empty if it stands elsewhere (URL, file)."""
    source = block.get("source")
    data = source.get("data") if isinstance(source, dict) else None
    return data if isinstance(data, str) else ""


def image_size(block: Block) -> tuple[int, int] | None:
    """Width and height in pixels of an ``image`` block; None when they cannot be told from its bytes."""
    import imagesize  # type: ignore[import-untyped]  # loads an HTTP client: only where there are images

    try:
        head = _decoded(source_data(block)[:_HEAD_CHARACTERS])
        width, height = imagesize.get(io.BytesIO(head), exif_rotation=False)
    except (ValueError, struct.error, EOFError, OSError):
        return None
    return (width, height) if width > 0 and height > 0 else None


def media_mark(block: Block) -> str:
    """``[image 640x480]``, ``[document report.pdf]`` or ``[file file_1]`` (given to a tool that runs code) for what a
    reader of text cannot see; empty for other blocks."""
    kind, name = block.get("type"), block.get("title")
    if kind == "image":
        size = image_size(block)
        name = f"{size[0]}x{size[1]}" if size else ""
    elif kind == "container_upload":
        kind, name = "file", block.get("file_id")
    elif kind != "document":
        return ""
    short = " ".join(name.split())[:60] if isinstance(name, str) else ""
    return f"[{kind} {short}]" if short else f"[{kind}]"


def visible_pages(block: Block) -> int:
    """Pages of a base64 PDF whose page objects are not compressed; 0 when they cannot be seen."""
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") != "base64":
        return 0
    try:
        return len(_PAGE.findall(_decoded(source_data(block))))
    except ValueError:
        return 0


def _decoded(data: str) -> bytes:
    return base64.b64decode(data + "=" * (-len(data) % 4))
