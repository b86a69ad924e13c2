"""How many pixels an image has and how many pages a PDF, as far as their bytes show."""

from __future__ import annotations

import base64
import binascii
import io
import re

import imagesize  # type: ignore[import-untyped]

from applier.testing.api_request import Block

__all__ = ["image_pixels", "pdf_pages"]

_PDF_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
"""``/Type /Page``; not the ``/Type /Pages`` that lists them."""


def image_pixels(block: Block) -> tuple[int, int] | None:
    """Width and height of an ``image`` block; None if its bytes do not say or are elsewhere."""
    width, height = imagesize.get(io.BytesIO(_data(block)))
    return (width, height) if width > 0 and height > 0 else None


def pdf_pages(block: Block) -> int:
    """Pages of a ``document`` block whose page objects are not compressed."""
    return len(_PDF_PAGE.findall(_data(block)))


def _data(block: Block) -> bytes:
    source = block.get("source") or {}
    if source.get("type") != "base64":
        return b""
    try:
        return base64.b64decode(str(source.get("data", "")))
    except binascii.Error:
        return b""
