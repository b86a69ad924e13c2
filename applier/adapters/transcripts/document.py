"""From a path or text to JSON values with their lines. Decides what is JSON and what is JSONL.

Reads JSONL a line at a time, within bounds on size and depth. Knows no format; every error names the file and
the place in it.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from planner.errors import TranscriptError

__all__ = ["MAX_DEPTH", "MAX_MEGABYTES", "Document", "load_document"]

MAX_MEGABYTES = 512
"""Larger input is refused: a request to the API may have 32 MB, and the longest session logs seen have 124 MB."""
MAX_DEPTH = 200
"""Deeper nesting is refused: far above any tool's input, far below where Python's own recursion ends."""

_HEAD_BYTES = 4096
"""So much of a file is looked at before it is read as text."""


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
        TranscriptError: it cannot be read, is not UTF-8, is empty, too large, nested too deeply or not JSON; the
            text names the place.
    """
    if isinstance(source, bytes):
        return _Reader("text", None).read(_stream(source))
    if isinstance(source, str) and (source.lstrip("\ufeff \t\r\n")[:1] in ("{", "[") or "\n" in source):
        return _Reader("text", None).read(_stream(source.encode("utf-8", "surrogatepass")), surrogates=True)
    if not os.fspath(source):
        raise TranscriptError("text: empty; expected a path or the text of a transcript")
    with _opened(Path(source)) as stream:
        return _Reader(str(source), str(source)).read(stream)


def _stream(raw: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(raw))


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    try:
        with path.open("rb") as stream:
            yield stream
    except IsADirectoryError:
        raise TranscriptError(f"{path}: a directory; expected a transcript file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TranscriptError(f"{str(path)[:200]}: {reason}; expected a transcript file") from None


class _MoreValuesError(Exception):
    """Behind the first JSON value stands another one."""


class _Reader:
    """One pass over one stream."""

    def __init__(self, name: str, path: str | None) -> None:
        self.name, self.path = name, path
        self.ascii = True

    def read(self, stream: io.BufferedReader, *, surrogates: bool = False) -> Document:
        """The document: one value on each line if a value ends with the first line, else one in all."""
        self._refuse_binary(stream.peek(_HEAD_BYTES)[:_HEAD_BYTES])
        lines = self._lines(stream, "surrogatepass" if surrogates else "strict")
        start, first = next(lines, (0, ""))
        if not first:
            raise TranscriptError(f"{self.name}: empty; expected a list of messages as JSON or JSONL")
        try:
            value = self._value(first.rstrip("\n"), start)
        except (TranscriptError, _MoreValuesError) as error:
            return self._one_value(first, start, lines, error)
        second = next(lines, None)
        if second is None:
            return Document(self.name, self.path, value, None, None, None, self.ascii)
        values, torn = self._values(second, lines)
        return Document(self.name, self.path, None, ((start, value), *values), torn, None, self.ascii)

    def _one_value(
        self, first: str, start: int, lines: Iterator[tuple[int, str]], error: TranscriptError | _MoreValuesError
    ) -> Document:
        """A value over several lines; `error` is what the first line alone was refused for."""
        if isinstance(error, _MoreValuesError):
            raise TranscriptError(f"{self.name}, line {start}: expected one JSON value on a line") from None
        text, number = [first], start
        for at, line in lines:
            text += ["\n"] * (at - number - 1) + [line]
            number = at
        whole = "".join(text)
        try:
            value = self._value(whole, start)
        except _MoreValuesError:
            wanted = "expected one JSON value, or one on each line"
            raise TranscriptError(f"{self.name}: {wanted}, found several over several lines") from None
        return Document(self.name, self.path, value, None, None, _indent(whole), self.ascii)

    def _values(
        self, second: tuple[int, str], lines: Iterator[tuple[int, str]]
    ) -> tuple[list[tuple[int, Any]], TranscriptError | None]:
        """The values of all lines from the `second` on; the error of the last one if it is no value."""
        values: list[tuple[int, Any]] = []
        item: tuple[int, str] | None = second
        while item is not None:
            number, line = item
            item = next(lines, None)
            try:
                values.append((number, self._value(line.rstrip("\n"), number)))
            except _MoreValuesError:
                raise TranscriptError(f"{self.name}, line {number}: expected one JSON value on a line") from None
            except TranscriptError as error:
                if item is not None:
                    raise
                return values, error
        return values, None

    def _lines(self, stream: io.BufferedReader, errors: str) -> Iterator[tuple[int, str]]:
        """The lines that are not blank, with their numbers, within the bound on size."""
        offset, limit = 0, MAX_MEGABYTES * 2**20
        for number in count(1):
            raw = stream.readline(limit - offset + 1)
            if not raw:
                return
            if offset + len(raw) > limit:
                raise TranscriptError(
                    f"{self.name}, line {number}: more than {MAX_MEGABYTES} MB up to here; "
                    "expected a transcript of at most that size"
                )
            line = self._decoded(raw, number, offset, errors)
            offset += len(raw)
            if number == 1:
                line = line.removeprefix("\ufeff")
            if not line.isspace() and line:
                self.ascii = self.ascii and line.isascii()
                yield number, line

    def _refuse_binary(self, raw: bytes, offset: int = 0) -> None:
        if offset == 0 and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            mark = raw[:2].hex()
            raise TranscriptError(f"{self.name}: starts with the byte order mark of UTF-16 (0x{mark}); expected UTF-8")
        zero = raw.find(b"\0")
        if zero >= 0:
            place = f"byte 0x00 at offset {offset + zero}"
            raise TranscriptError(f"{self.name}: a binary file ({place}); expected JSON or JSONL in UTF-8")

    def _decoded(self, raw: bytes, number: int, offset: int, errors: str) -> str:
        self._refuse_binary(raw, offset)
        try:
            return raw.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise TranscriptError(
                f"{self.name}, line {number}: byte 0x{raw[error.start]:02x} at offset {offset + error.start} "
                "is not UTF-8; expected JSON or JSONL in UTF-8"
            ) from None

    def _value(self, text: str, first_line: int) -> Any:
        place = f"{self.name}, line {first_line}"
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            if error.msg == "Extra data":
                raise _MoreValuesError from None
            raise TranscriptError(_no_json(error, self.name, first_line)) from None
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
