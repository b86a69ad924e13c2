"""The specifics of a text: paths, URLs, identifiers, ids and numbers of three digits or more.

Kept apart from the planner's own extraction on purpose: a measure must not share the blind spots of
what it measures. Finds strings; never judges them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["occurrences", "path_splits", "specifics", "stands"]

_URL = r"https?://[^\s\"'`<>()\[\]{}|\\^]+"
"""``https://example.org/a?b=1``; ends where prose or markup goes on: not the bracket in ``(https://a.org)``."""
_PATH = r"(?:~|\.{1,2})?(?:/[\w.@+-]+)+|[\w.@+-]+(?:/[\w.@+-]+)+"
"""``/srv/app``, ``~/x``, ``../lib/a.py``, ``src/a.py``; not a slash alone. ``and/or`` matches: `_is_path` judges."""
_WORD = r"\w+(?:[.\-:@]+\w+)*"
"""``get_user``, ``ticket-4711``, ``a.b.c``; without the full stop that ends a sentence."""
_CANDIDATE = re.compile(rf"(?<![\w/])(?:(?P<url>{_URL})|(?P<path>{_PATH})|(?P<word>{_WORD}))")
"""What may be a specific, from its first character on: in ``x/y.py`` never ``y.py`` alone."""

_TRAILING = ".,;:!?-…"
_NOISE = re.compile(r"(?<![\w:.\\])\\[bnrt](?=\w)|\.{3,}")
r"""Escapes of a regular expression or string in front of a name (``\bname``), not a folder of ``C:\temp``; and dots
between two names."""
_PHRASE = re.compile(r"\d+-?[a-z]+")
"""``40-line``, ``3rd``: a number with a word; not ``a1b2``."""
_NUMBER = re.compile(r"\d+(?:[.,:\-]\d+)*")
"""``1500``, ``3.14``, ``12:30``, ``2026-01-31``; not ``v1.2``."""
_DOTTED = re.compile(r"[A-Za-z_]\w+(?:\.[A-Za-z_]\w*)+")
"""``os.path``; not ``e.g`` or ``1.5``."""
_HUMPS = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
"""Inside ``getUser`` and ``HTTPClient``; not in ``User`` or ``USER``."""
_EDGE = re.compile(r"\w")
"""A character that would make a name another name."""


def specifics(text: str) -> list[str]:
    """The distinct specifics of `text` in order of first appearance."""
    distinct: dict[str, None] = {}
    for match in _CANDIDATE.finditer(_NOISE.sub("  ", text)):
        word = match.group().rstrip(_TRAILING)
        if match["url"] or (_is_path(word) if match["path"] else _is_specific(word)):
            distinct[word] = None
        elif match["word"]:
            distinct.update(dict.fromkeys(part for part in re.split(r"[^\w.]+", word) if _is_specific(part)))
    return list(distinct)


def _is_path(text: str) -> bool:
    """True for ``/a``-like and ``a/b``-like names of letters; not for ``1/2``."""
    return len(text) >= 4 and any(len(re.sub(r"[\d_\W]", "", part)) >= 2 for part in text.split("/"))


def _is_specific(word: str) -> bool:
    if _NUMBER.fullmatch(word):
        return sum(c.isdigit() for c in word) >= 3
    if len(word) < 4 or not word.isascii() or _PHRASE.fullmatch(word):
        return False
    if re.search(r"[-:@]", word):
        return any(c.isdigit() for c in word) or word.count("-") >= 2 or "@" in word
    if "." in word:
        return bool(_DOTTED.fullmatch(word))
    has_letter, has_digit = any(c.isalpha() for c in word), any(c.isdigit() for c in word)
    return ("_" in word.strip("_") and has_letter) or (has_letter and has_digit) or bool(_HUMPS.search(word))


def occurrences(specific: str, text: str) -> Iterator[int]:
    """Where `specific` stands in `text` as a whole word: offsets, ascending."""
    at = text.find(specific)
    while at >= 0:
        end = at + len(specific)
        if not (at and _EDGE.match(text, at - 1)) and not (end < len(text) and _EDGE.match(text, end)):
            yield at
        at = text.find(specific, at + 1)


def stands(specific: str, text: str) -> bool:
    """True if `specific` stands in `text` as a whole word."""
    return any(True for _ in occurrences(specific, text))


def path_splits(specific: str) -> list[tuple[str, str]]:
    """A path as (root, rest) at every place that leaves a rest of two components or more."""
    if "/" not in specific or "://" in specific:
        return []
    cuts = [at for at, character in enumerate(specific) if character == "/" and at > 0]
    return [(specific[:at], specific[at + 1 :]) for at in cuts if "/" in specific[at + 1 :].rstrip("/")]
