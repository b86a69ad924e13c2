"""From a path or text to JSON values with their lines, and back to text. Decides what is JSON and what is JSONL.

Knows no format. Bounds size and depth; every error names the file and the place in it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.errors import TranscriptError

__all__ = ["MAX_DEPTH", "MAX_MEGABYTES", "Document", "json_text", "load_document", "malformed"]

MAX_MEGABYTES = 512
"""Larger input is refused: a request to the API may have 32 MB, and the longest session logs seen have 124 MB."""
MAX_DEPTH = 200
"""Deeper nesting is refused: far above any tool's input, far below where Python's own recursion ends."""
_MEGABYTE = 2**20


@dataclass(frozen=True)
class Document:
    """A parsed file or text."""

    name: str
    """For messages to people: the path, or ``text``."""
    path: str | None
    value: Any
    """The one JSON value; None for JSONL."""
    lines: tuple[tuple[int, Any], ...] | None = None
    """JSONL: each value with its line number, counted from 1; None for one JSON value."""
    torn: TranscriptError | None = None
    """JSONL whose last line breaks off, as a log does whose writer was killed: what to raise for it."""
    indent: int | None = None
    """How the JSON was indented; None if it was not."""
    ascii: bool = False
    """True if the text is pure ASCII, so that it can stay so."""

    @property
    def log_lines(self) -> Sequence[tuple[int, Any]]:
        """The values of what may be a log, by line; an object that is no list of messages is a log of one line."""
        if self.lines is not None:
            return self.lines
        is_line = isinstance(self.value, dict) and not isinstance(self.value.get("messages"), list)
        return ((1, self.value),) if is_line else ()


def load_document(source: str | bytes | os.PathLike[str]) -> Document:
    """Read `source`: a path, or the text itself (it starts with ``{`` or ``[``, or has several lines).

    Raises:
        TranscriptError: it cannot be read, is not UTF-8, is empty, too large, nested too deeply or not JSON; the
            text names the place.
    """
    if isinstance(source, bytes):
        return _parsed("text", None, _decoded("text", source))
    if isinstance(source, str) and (source.lstrip("\ufeff \t\r\n")[:1] in ("{", "[") or "\n" in source):
        return _parsed("text", None, source)
    if not os.fspath(source):
        raise TranscriptError("text: empty; expected a path or the text of a transcript")
    return _parsed(str(source), str(source), _decoded(str(source), _content(Path(source))))


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            _refuse_binary(str(path), stream.peek(1))
            pieces = iter(lambda: stream.read(_MEGABYTE), b"")
            raw = b"".join(islice(pieces, MAX_MEGABYTES + 1))
    except IsADirectoryError:
        raise TranscriptError(f"{path}: a directory; expected a transcript file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TranscriptError(f"{str(path)[:200]}: {reason}; expected a transcript file") from None
    if len(raw) > MAX_MEGABYTES * _MEGABYTE:
        raise TranscriptError(
            f"{path}, line {_line_at(raw, MAX_MEGABYTES * _MEGABYTE)}: more than {MAX_MEGABYTES} MB up to here; "
            "expected a transcript of at most that size"
        )
    return raw


def _refuse_binary(name: str, raw: bytes) -> None:
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        mark = raw[:2].hex()
        raise TranscriptError(f"{name}: starts with the byte order mark of UTF-16 (0x{mark}); expected UTF-8")
    zero = raw.find(b"\0")
    if zero >= 0:
        raise TranscriptError(f"{name}: a binary file (byte 0x00 at offset {zero}); expected JSON or JSONL in UTF-8")


def _decoded(name: str, raw: bytes) -> str:
    _refuse_binary(name, raw)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise TranscriptError(
            f"{name}, line {_line_at(raw, error.start)}: byte 0x{raw[error.start]:02x} at offset {error.start} "
            "is not UTF-8; expected JSON or JSONL in UTF-8"
        ) from None


def _line_at(raw: bytes, offset: int) -> int:
    return raw.count(b"\n", 0, offset) + 1


class _MoreValuesError(Exception):
    """Behind the first JSON value stands another one; the argument is the text of the first."""


def _parsed(name: str, path: str | None, text: str) -> Document:
    """The document: one value in all, or one on each line."""
    text = text.removeprefix("\ufeff")
    if not text or text.isspace():
        raise TranscriptError(f"{name}: empty; expected a list of messages as JSON or JSONL")
    try:
        return Document(name, path, _value(name, text, 1), indent=_indent(text), ascii=text.isascii())
    except _MoreValuesError as error:
        if "\n" in error.args[0].strip():
            wanted = "expected one JSON value, or one on each line"
            raise TranscriptError(f"{name}: {wanted}, found several over several lines") from None
    values, torn = _values(name, text.split("\n"))
    return Document(name, path, None, tuple(values), torn, ascii=text.isascii())


def _values(name: str, lines: Sequence[str]) -> tuple[list[tuple[int, Any]], TranscriptError | None]:
    """The values of `lines` with their numbers; the error of the last one if it is no value."""
    values: list[tuple[int, Any]] = []
    torn: TranscriptError | None = None
    for number, line in enumerate(lines, 1):
        if not line or line.isspace():
            continue
        if torn:
            raise torn
        try:
            values.append((number, _value(name, line, number)))
        except _MoreValuesError:
            raise TranscriptError(f"{name}, line {number}: expected one JSON value on a line") from None
        except TranscriptError as error:
            torn = error
    return values, torn


def _value(name: str, text: str, first_line: int) -> Any:
    place = f"{name}, line {first_line}"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise _MoreValuesError(text[: error.pos]) from None
        raise TranscriptError(_no_json(error, name, first_line)) from None
    except ValueError as error:  # Python refuses integers of thousands of digits
        raise TranscriptError(f"{place}: not JSON that can be read ({str(error).split(';')[0]})") from None
    except RecursionError:
        raise TranscriptError(f"{place}: nested too deeply to be a transcript") from None
    if _is_deeper(value, MAX_DEPTH):
        raise TranscriptError(f"{place}: nested too deeply to be a transcript (more than {MAX_DEPTH} levels)")
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _no_json(error: json.JSONDecodeError, name: str, first_line: int) -> str:
    place = f"{name}, line {first_line + error.lineno - 1}, column {error.colno}"
    breaks_off = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
    if breaks_off:
        return f"{place}: the JSON breaks off here ({error.msg.lower()}); expected a complete file"
    return f"{place}: not JSON ({error.msg.lower()}, found {error.doc[error.pos : error.pos + 20]!r})"


def _indent(text: str) -> int | None:
    """How far the first entry of a JSON text that begins a line for it is indented.

    Matches ``[\\n  {"role"`` (2); not ``[{"role"``, which stands on one line.
    """
    start = re.match(r"\s*[\[{]\r?\n( *)\S", text)
    return len(start.group(1)) if start else None


def json_text(value: Any, indent: int | None = None, *, ascii_only: bool = False) -> str:
    """`value` as JSON that ends a line; a lone surrogate is escaped, for UTF-8 has none."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent, ensure_ascii=True)
    return text + "\n"


def malformed(error: ValidationError, place: str) -> TranscriptError:
    """What to raise for the value at `place` that has another form."""
    first = error.errors(include_url=False)[0]
    steps = [str(step) for step in first["loc"] if "[" not in str(step) and not str(step)[:1].isupper()]
    if first["type"] == "value_error":
        return TranscriptError(f"{place}: {first['msg'].removeprefix('Value error, ')}")
    return TranscriptError(f"{place}: {'.'.join(steps) or 'line'}: {first['msg']}, found {first['input']!r:.60}")
