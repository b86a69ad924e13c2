"""Texts to measure: a message list as plain text, its o200k tokens, and the specifics in it.

Specifics (paths, URLs, identifiers, ids, numbers of three digits or more) are extracted without the planner, as a
measure must not share the blind spots of its subject.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from planner.reading.lines import call_text
from planner.reading.messages import Block, Message, blocks, result_text, strings_in, to_json
from planner.reading.tokens import TokenCounter

__all__ = [
    "agent_values",
    "contains",
    "message_tokens",
    "o200k_counter",
    "occurrences",
    "one_space",
    "path_splits",
    "pieces",
    "plain_text",
    "specifics",
    "text_tokens",
]

_URL = r"https?://[^\s\"'`<>()\[\]{}|\\^]+"
"""URL up to the point where prose or markup continues: ``https://example.org/a?b=1``; not the bracket in
``(https://a.org)``."""
_PATH = r"(?:~|\.{1,2})?(?:/[\w.@+-]+)+|(?<![\w.@+-])[\w.@+-]++(?:/[\w.@+-]++)+"
"""``/srv/app``, ``~/x``, ``../lib/a.py``, ``src/a.py``; not a slash alone. ``and/or`` matches: `_is_path` judges."""
_WORD = r"\w+(?:[.\-:@]+\w+)*"
"""``get_user``, ``ticket-4711``, ``a.b.c``; without the full stop at the end of a sentence."""
_CANDIDATE = re.compile(rf"(?<![\w/])(?:(?P<url>{_URL})|(?P<path>{_PATH})|(?P<word>{_WORD}))")
"""Candidate for a specific, matched from its first character: in ``x/y.py`` never ``y.py`` alone."""

_TRAILING = ".,;:!?-…"
_NOISE = re.compile(r"(?<![\w:.\\])\\[bnrt](?=\w)|\.{3,}")
r"""Escapes before a name (``\bname``), not a folder of ``C:\temp``; and dots between two names."""
_PHRASE = re.compile(r"\d+-?[a-z]+")
"""``40-line``, ``3rd``: a number with a word; not ``a1b2``."""
_NUMBER = re.compile(r"\d+(?:[.,:\-]\d+)*")
"""``1500``, ``3.14``, ``12:30``, ``2026-01-31``; not ``v1.2``."""
_DOTTED = re.compile(r"[A-Za-z_]\w+(?:\.[A-Za-z_]\w*)+")
"""``os.path``; not ``e.g`` or ``1.5``."""
_HUMPS = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
"""Inside ``getUser`` and ``HTTPClient``; not in ``User`` or ``USER``."""
_EDGE = re.compile(r"\w")
"""Character that would make a name another name."""


def pieces(messages: Iterable[Message]) -> list[str]:
    """Return the text of each block that has any."""
    texts = (_block_text(block) for message in messages for block in blocks(message))
    return [text for text in texts if text]


def plain_text(messages: Iterable[Message]) -> str:
    """Return all text of `messages`, joined by line feeds."""
    return "\n".join(pieces(messages))


def _block_text(block: Block) -> str:
    kind = block["type"]
    if kind in ("text", "thinking"):
        return str(block.get(kind) or "")
    if kind in ("tool_use", "server_tool_use"):
        return call_text(block)
    if kind.endswith("tool_result"):
        return result_text(block)
    source = block.get("source")
    return str(source.get("data", "")) if isinstance(source, dict) and source.get("type") == "text" else ""


def agent_values(message: Message) -> Iterator[tuple[str, bool]]:
    """Yield the agent's texts in `message`, and each string of its calls' inputs with True."""
    for block in blocks(message):
        if block["type"] == "text":
            yield str(block.get("text") or ""), False
        elif block["type"] in ("tool_use", "server_tool_use"):
            for value in strings_in(block.get("input")):
                yield value, True


def one_space(text: str) -> str:
    """Return `text` with each run of white space as one space."""
    return " ".join(text.split())


@lru_cache(maxsize=1)
def o200k_counter() -> TokenCounter:
    """Return a counter without scaling."""
    return TokenCounter(1.0)


def text_tokens(text: str) -> int:
    """Return the number of o200k tokens in `text`."""
    return o200k_counter().raw(text)


def message_tokens(messages: Sequence[Message]) -> int:
    """Return the number of o200k tokens in `messages`: texts, calls with their inputs as JSON, results."""
    return sum(text_tokens(_counted(block)) for message in messages for block in blocks(message))


def _counted(block: Block) -> str:
    if block["type"] in ("tool_use", "server_tool_use"):
        return f"{block.get('name', '')} {to_json(block.get('input'))}"
    return _block_text(block)


def specifics(text: str) -> list[str]:
    """Return the distinct specifics of `text` in order of first appearance."""
    distinct: dict[str, None] = {}
    for match in _CANDIDATE.finditer(_NOISE.sub("  ", text)):
        word = match.group().rstrip(_TRAILING)
        if match["url"] or (_is_path(word) if match["path"] else _is_specific(word)):
            distinct[word] = None
        elif match["word"]:
            distinct.update(dict.fromkeys(part for part in re.split(r"[^\w.]+", word) if _is_specific(part)))
    return list(distinct)


def _is_path(text: str) -> bool:
    """Return True for paths of words like ``/a`` and ``a/b``; not for ``1/2``."""
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
    """Yield the offsets of `specific` in `text` as a whole word, ascending."""
    at = text.find(specific)
    while at >= 0:
        end = at + len(specific)
        if not (at and _EDGE.match(text, at - 1)) and not (end < len(text) and _EDGE.match(text, end)):
            yield at
        at = text.find(specific, at + 1)


def contains(specific: str, text: str) -> bool:
    """Return True if `text` contains `specific` as a whole word."""
    return any(True for _ in occurrences(specific, text))


def path_splits(specific: str) -> list[tuple[str, str]]:
    """Return every split of a path into root and rest with a rest of at least two components."""
    if "/" not in specific or "://" in specific:
        return []
    cuts = [at for at, character in enumerate(specific) if character == "/" and at > 0]
    return [(specific[:at], specific[at + 1 :]) for at in cuts if "/" in specific[at + 1 :].rstrip("/")]
