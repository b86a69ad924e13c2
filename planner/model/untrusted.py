"""Text from a history, made safe to stand inside a prompt as data.

Nothing in it can close the tags around it, begin a line that looks like a card's, or break the request.
"""

from __future__ import annotations

import re

__all__ = ["TAGS", "one_line", "safe_text"]

TAGS = ("task", "focus", "user_words", "before", "history", "after")
"""The boundary tags of the prompts; none of them can come out of a history."""

_TAG = re.compile(rf"<(?=\s*/?\s*(?:{'|'.join(TAGS)})\b)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")
_SPACE = re.compile(r"\s+")


def safe_text(text: str) -> str:
    """`text` with boundary tags escaped, control characters and other line breaks than ``\\n`` blanked.

    Lone surrogates become question marks: no request can carry them.
    """
    text = text.encode("utf-8", "replace").decode()
    return _TAG.sub("&lt;", _CONTROL.sub(" ", text))


def one_line(text: str, most_characters: int) -> str:
    """`text` safe and on one line, its end cut off with ``…`` when it is longer than `most_characters`."""
    line = _SPACE.sub(" ", safe_text(text)).strip()
    return line if len(line) <= most_characters else line[: most_characters - 1].rstrip() + "…"
