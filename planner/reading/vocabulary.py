"""OpenAI's o200k vocabulary on this machine, from tiktoken's cache folder or the ``offline`` extra; and an estimate of
its tokens for machines without it, from the shape of a text, rather too high than too low.

Never downloads: tiktoken's own download has no time limit and hangs behind a firewall.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
from binascii import a2b_base64
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from planner.reading.patterns import lazy_pattern

if TYPE_CHECKING:
    import regex
    import tiktoken

__all__ = ["O200K_URL", "estimate_tokens", "load_vocabulary"]

O200K_URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
_O200K_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Digest of the file at that URL, as tiktoken checks it: a damaged cache is ignored."""

_WORD_TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SPLIT = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_WORD_TAIL}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_WORD_TAIL}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
"""Pattern by which o200k divides text into pieces before it merges bytes; the vocabulary was trained with it."""

_LETTER = {" ": 0.02, "": 0.06, ".": 0.08, "_": 0.08}
"""Tokens for each letter of a word beyond its first token, by its first character; 0.15 after other signs.

Fitted to agent transcripts: a word after a space is mostly one token, one after ``/`` or ``-`` mostly two.
"""
LONG_WORD = 14
"""Length from which a word is read in pieces of four letters, as few words of the vocabulary are longer."""
_PACKED = lazy_pattern(r"(?=[A-Za-z+=]{0,23}\d)[A-Za-z0-9+=]{24,}")
"""Base64, digests; not a long name without digits, nor a path."""
_PACKED_TOKENS = 0.7
"""Tokens for each character of a run of letters that form no words."""

_WIDE = (
    (0x0, 0.4), (0x80, 2.0), (0xA0, 0.4), (0x180, 2.0), (0x370, 0.4), (0x530, 2.0), (0x590, 0.4), (0x700, 2.0),
    (0x900, 1.0), (0xE80, 3.0), (0x2000, 1.0), (0x2800, 3.0), (0x3000, 1.0), (0xA000, 3.0), (0xAC00, 1.0),
    (0xD7B0, 3.0), (0xFF00, 1.0), (0xFFF0, 4.0), (0x1F000, 2.0), (0x1FB00, 4.0),
)  # fmt: skip
"""Tokens of a character of a word that is not ASCII, by the first character of its range in Unicode.

Latin, Greek, Cyrillic, Hebrew and Arabic words have few tokens; Indic scripts, symbols, CJK and Hangul at most one a
character; emoji two; control characters and rare scripts one for every byte.
"""


@lru_cache(maxsize=1)
def load_vocabulary() -> tiktoken.Encoding | None:
    """Return o200k from this machine; None if it has none."""
    import tiktoken

    for data in _candidates():
        if hashlib.sha256(data).hexdigest() == _O200K_SHA256:
            return tiktoken.Encoding("o200k_base", pat_str=_SPLIT, mergeable_ranks=_ranks(data), special_tokens={})
    return None


def _candidates() -> Iterator[bytes]:
    import gzip  # these two take a twentieth of what importing the package takes
    import tempfile

    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    name = hashlib.sha1(O200K_URL.encode(), usedforsecurity=False).hexdigest()
    cached = Path(folder or Path(tempfile.gettempdir(), "data-gym-cache"), name)
    if cached.is_file():
        yield cached.read_bytes()
    extra = importlib.util.find_spec("bpe_openai")
    if extra is not None and extra.origin is not None:
        bundled = Path(extra.origin).parent / "data" / "o200k_base.tiktoken.gz"
        if bundled.is_file():
            yield gzip.decompress(bundled.read_bytes())


def _ranks(data: bytes) -> dict[bytes, int]:
    words = data.split()  # a token in base64 and its rank, by turns
    return dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


@lru_cache(maxsize=1)
def _pieces() -> regex.Pattern[str]:
    import regex

    return regex.compile(_SPLIT)


def estimate_tokens(text: str) -> int:
    """Return the approximate number of o200k tokens in `text`; measured 1.03 to 1.22 of the true count on agent
    transcripts."""
    packed = sum(map(len, _PACKED.findall(text)))
    return math.ceil(_PACKED_TOKENS * packed + sum(map(_piece_tokens, _pieces().findall(_PACKED.sub("", text)))))


@lru_cache(maxsize=65536)
def _piece_tokens(piece: str) -> float:
    if not piece.isascii():
        ranges = (bisect_right(_WIDE, ord(char), key=itemgetter(0)) - 1 for char in piece)
        return max(1.0, sum(_WIDE[number][1] for number in ranges))
    if piece.isspace():
        return 1 + len(piece) / 16
    lead = "" if piece[0].isalpha() else piece[0]
    word = piece[len(lead) :].replace("'", "")
    if word.isalpha():
        return 1 + _LETTER.get(lead, 0.15) * len(word) + max(0, len(word) - LONG_WORD) / 4
    if piece.isdigit():
        return 1
    signs = piece.strip()
    if not signs.isprintable():
        return len(piece)
    return 1 + len(piece) / 16 if len(set(signs)) == 1 else max(1.0, len(piece) / 2.6)
