"""From a path or text to JSON values with their lines. Decides what is JSON and what is JSONL.

Knows no format; every error names the file and the place in it.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import TranscriptError

__all__ = ["Document", "load_document"]


@dataclass(frozen=True)
class Document:
    """A parsed file or text."""

    name: str
    """For messages to people: the path, or ``text``."""
    path: str | None
    value: Any
    """The one JSON value; None for JSONL."""
    lines: tuple[tuple[int, Any], ...] | None
    """JSONL: each value with its line number, counted from 1; None for one JSON value."""
    torn: TranscriptError | None
    """JSONL whose last line breaks off, as a log does whose writer was killed: what to raise for it."""
    indent: int | None
    """How the JSON was indented; None if it was not."""
    ascii: bool
    """True if the text is pure ASCII, so that it can stay so."""


def load_document(source: str | bytes | os.PathLike[str]) -> Document:
    """Read `source`: a path, or the text itself (it starts with ``{`` or ``[``, or has several lines).

    Raises:
        TranscriptError: it cannot be read, is not UTF-8, is empty or is not JSON; the text names the place.
    """
    if isinstance(source, bytes):
        return _parse(_decoded(source, "text"), "text", None)
    if isinstance(source, str) and (source.lstrip("\ufeff \t\r\n")[:1] in ("{", "[") or "\n" in source):
        return _parse(source.removeprefix("\ufeff"), "text", None)
    if not os.fspath(source):
        raise TranscriptError("text: empty; expected a path or the text of a transcript")
    path = Path(source)
    return _parse(_decoded(_bytes(path), str(path)), str(path), str(path))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except IsADirectoryError:
        raise TranscriptError(f"{path}: a directory; expected a transcript file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TranscriptError(f"{str(path)[:200]}: {reason}; expected a transcript file") from None


def _decoded(raw: bytes, name: str) -> str:
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TranscriptError(f"{name}: starts with the byte order mark of UTF-16 (0x{raw[:2].hex()}); expected UTF-8")
    zero = raw.find(b"\0")
    if zero >= 0:
        raise TranscriptError(f"{name}: a binary file (byte 0x00 at offset {zero}); expected JSON or JSONL in UTF-8")
    try:
        return raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise TranscriptError(
            f"{name}, line {line}: byte 0x{raw[error.start]:02x} at offset {error.start} is not UTF-8; "
            "expected JSON or JSONL in UTF-8"
        ) from None


def _parse(text: str, name: str, path: str | None) -> Document:
    if not text.strip():
        raise TranscriptError(f"{name}: empty; expected a list of messages as JSON or JSONL")
    try:
        return Document(name, path, _loaded(text, name), None, None, _indent(text), text.isascii())
    except _MoreValuesError:
        lines, torn = _lines(text, name)
        return Document(name, path, None, lines, torn, None, text.isascii())


class _MoreValuesError(Exception):
    """Behind the first JSON value stands another one."""


def _loaded(text: str, name: str, first_line: int = 1) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise _MoreValuesError from None
        raise TranscriptError(_no_json(error, name, first_line)) from None
    except RecursionError:
        raise TranscriptError(f"{name}, line {first_line}: nested too deeply to be a transcript") from None


def _no_json(error: json.JSONDecodeError, name: str, first_line: int) -> str:
    place = f"{name}, line {first_line + error.lineno - 1}, column {error.colno}"
    breaks_off = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
    if breaks_off:
        return f"{place}: the JSON breaks off here ({error.msg.lower()}); expected a complete file"
    return f"{place}: not JSON ({error.msg.lower()}, found {error.doc[error.pos : error.pos + 20]!r})"


def _lines(text: str, name: str) -> tuple[tuple[tuple[int, Any], ...], TranscriptError | None]:
    filled = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    values: list[tuple[int, Any]] = []
    for number, line in filled:
        try:
            values.append((number, _loaded(line, name, number)))
        except _MoreValuesError:
            raise TranscriptError(f"{name}, line {number}: expected one JSON value on a line") from None
        except TranscriptError as error:
            if number != filled[-1][0]:
                raise
            return tuple(values), error
    return tuple(values), None


def _indent(text: str) -> int | None:
    found = re.match(r"\s*[\[{]\r?\n( *)\S", text)
    return len(found.group(1)) if found else None
