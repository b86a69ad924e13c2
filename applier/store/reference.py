"""Names of stored things: history keys, turn ids and the references made of both.

Reads and writes names only; whether something stands behind a name is the store's to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from planner.errors import ReferenceNotFound

__all__ = ["Reference", "digest_range", "history_key", "parse_key", "parse_reference"]

SHORT_DIGITS = 8
"""Hex digits of a digest in a history key: 4 billion keys, and a clash is noticed, never guessed."""

_KEY = re.compile(r"(?:h|sha256:)([0-9a-f]{8,64})")
_REFERENCE = re.compile(r"(?:(.+):)?t([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference as its parts."""

    digits: str
    """The first hex digits of the history's digest; empty in a bare ``t12``."""
    turn: int


def history_key(digest: str) -> str:
    """``h1a2b3c4d`` for the history digest ``sha256:1a2b3c4d…``."""
    return "h" + digest.removeprefix("sha256:")[:SHORT_DIGITS]


def parse_key(key: str) -> str:
    """The hex digits of a history key (``h`` and 8 to 64 digits) or of a full ``sha256:`` digest.

    Raises:
        ReferenceNotFound: `key` is neither.
    """
    found = _KEY.fullmatch(key.strip())
    if found is None:
        raise ReferenceNotFound(f"{key!r} is no history key; expected one like h1a2b3c4d")
    return found[1]


def digest_range(digits: str) -> tuple[bytes, bytes]:
    """The least and the greatest digest that begin with the hex `digits`."""
    return bytes.fromhex(digits.ljust(64, "0")), bytes.fromhex(digits.ljust(64, "f"))


def parse_reference(reference: str) -> Reference:
    """The parts of ``h1a2b3c4d:t12``, or of a bare ``t12``.

    Raises:
        ReferenceNotFound: `reference` has another form.
    """
    found = _REFERENCE.fullmatch(reference.strip())
    if found is None:
        raise ReferenceNotFound(f"{reference!r} is no reference; expected one like h1a2b3c4d:t12")
    return Reference(parse_key(found[1]) if found[1] else "", int(found[2]))
