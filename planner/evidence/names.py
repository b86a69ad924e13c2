"""The specifics of a text: what an agent cannot guess again once it is gone.

Paths, URLs, identifiers, ids and numbers of three digits or more. Decides nothing about their worth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

__all__ = ["Specific", "SpecificKind", "find_specifics", "parts_of", "specifics_of"]

SpecificKind = Literal["url", "path", "identifier", "number"]

_URL = r"https?://[^\s\"'<>`|\\^{}\[\]()]+"
_PATH = r"(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\](?=[\w.@-]))?(?:[\w.@+%$-]+[/\\])+[\w.@+%$*-]*|[/~]\w[\w.-]+"
_FILE = r"\b\w[\w-]*(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,5}\b"
_WORD = r"[A-Za-z_$@#][\w$]*(?:(?:[.:-]|::)\w+)*|\d[\w]*(?:[.:-]\w+)*"
_TOKEN = re.compile(f"(?P<url>{_URL})|(?P<path>{_PATH})|(?P<file>{_FILE})|(?P<word>{_WORD})")

_HUMPS = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2,}[a-z]")
_DIGITS = re.compile(r"\d{3}")
_SEPARATORS = re.compile(r"[/\\.:-]+")
MOST_COMPONENTS = 24
"""A name with more components is no name; what is behind them is read as one."""
_TRAILING = ".,:;!?-"


@dataclass(frozen=True, slots=True)
class Specific:
    """One specific where it stands in a text."""

    kind: SpecificKind
    text: str
    start: int

    @property
    def stop(self) -> int:
        """Behind its last character."""
        return self.start + len(self.text)


def find_specifics(text: str) -> Iterator[Specific]:
    """Every specific of `text`, in order."""
    for match in _TOKEN.finditer(text):
        found = match.group().rstrip(_TRAILING)
        kind = _kind(match.lastgroup or "", found)
        if kind is not None:
            yield Specific(kind, found, match.start())


def specifics_of(text: str) -> dict[str, SpecificKind]:
    """The distinct specifics of `text` with their kinds, in order of first appearance."""
    found: dict[str, SpecificKind] = {}
    for specific in find_specifics(text):
        found.setdefault(specific.text, specific.kind)
    return found


@lru_cache(maxsize=2**16)
def parts_of(name: str) -> tuple[str, ...]:
    """`name`, and what stands as a whole word wherever it stands: runs of its components, four characters or more."""
    breaks = [match.span() for match in _SEPARATORS.finditer(name)][:MOST_COMPONENTS]
    starts, stops = [0, *(stop for _, stop in breaks)], [*(start for start, _ in breaks), len(name)]
    runs = (name[start:stop] for at, start in enumerate(starts) for stop in stops[at:])
    return tuple(dict.fromkeys((name, *(run for run in runs if len(run) >= 4))))


def _kind(group: str, text: str) -> SpecificKind | None:
    if group == "url":
        return "url"
    if group in ("path", "file"):
        return "path" if len(text) >= 4 and re.search(r"[A-Za-z]", text) else None
    if text.isdigit():
        return "number" if len(text) >= 3 else None
    return "identifier" if _is_identifier(text) else None


def _is_identifier(text: str) -> bool:
    """Words a dictionary does not hold: with an underscore, humps, digits, or joined by ``.``, ``:``, ``-``."""
    if len(text) < 4:
        return False
    inner = text.strip("_$@#")
    if "_" in inner or _HUMPS.search(inner) or "::" in inner:
        return True
    if any(mark in inner for mark in ".:-"):
        return True
    return bool(_DIGITS.search(inner)) or (inner.isupper() and any(c.isdigit() for c in inner))
