"""Reads a file or text as JSON or JSONL values with their line numbers, and writes values as JSON text.

Damaged lines, as a killed program leaves them, are reported, and complete records in them are read. Size and nesting
are limited; every error names the file and the place in it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.errors import TranscriptError
from planner.reading.secrets import quoted

MAX_MEGABYTES = 512
"""Largest input: a request to the API may have 32 MB, and the longest session logs seen have 124 MB."""
MAX_DEPTH = 200
"""Deepest allowed nesting of JSON: far above any tool's input, far below the limit of Python's recursion."""
_MEGABYTE = 2**20
_QUOTED_CHARACTERS = 7
"""Number of characters of the text that an error quotes: too few to reveal a secret."""


@dataclass(frozen=True)
class Document:
    """A file or text, parsed as JSON or JSONL."""

    name: str
    """Path of the file, or ``text``, for errors and warnings."""
    path: str | None
    value: Any
    """JSON value of the document; for JSONL, the list of the values of all lines."""
    lines: tuple[tuple[int, Any], ...] = ()
    """Number and value of each line of JSONL, counted from 1; empty for JSON."""
    damage: tuple[TranscriptError, ...] = ()
    """Errors in damaged lines of JSONL, as a killed writer or two writers at once leave them."""

    @property
    def damage_notes(self) -> list[str]:
        """Warnings about the damaged lines, for people."""
        return [f"{error}; left out" for error in self.damage]


def load_document(source: str | bytes | os.PathLike[str]) -> Document:
    """Parse `source`, which is a path or the text itself. Bytes, and anything that begins with ``{`` or ``[`` or has
    several lines, are text. Raise TranscriptError if it cannot be read."""
    if isinstance(source, bytes):
        return _parsed("text", None, *_decoded("text", source))
    if isinstance(source, str) and (source.lstrip("\ufeff \t\r\n")[:1] in ("{", "[") or "\n" in source):
        return _parsed("text", None, source)
    if not os.fspath(source):
        raise TranscriptError("text: empty; expected a path or the text of a transcript")
    return _parsed(str(source), str(source), *_decoded(str(source), file_content(Path(source))))


def file_content(path: Path) -> bytes:
    """Read the file `path`. Raise TranscriptError if it cannot be read or is larger than `MAX_MEGABYTES`."""
    try:
        with path.open("rb") as stream:
            pieces = iter(lambda: stream.read(_MEGABYTE), b"")
            raw = b"".join(islice(pieces, MAX_MEGABYTES + 1))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TranscriptError(f"{str(path)[:200]}: {reason}; expected a transcript file") from None
    if len(raw) > MAX_MEGABYTES * _MEGABYTE:
        raise TranscriptError(f"{path}: more than {MAX_MEGABYTES} MB; expected a transcript of at most that size")
    return raw


def _decoded(name: str, raw: bytes) -> tuple[str, TranscriptError | None]:
    """Return `raw` as text, with bytes that are not UTF-8 replaced by U+FFFD, and an error about the first such byte,
    or None."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TranscriptError(f"{name}: starts with the byte order mark of UTF-16 (0x{raw[:2].hex()}); expected UTF-8")
    try:
        return raw.decode(), None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problem = f"byte 0x{raw[error.start]:02x} at offset {error.start} is not UTF-8"
        text = f"{name}, line {line}: {problem}; expected JSON or JSONL in UTF-8"
        return raw.decode(errors="replace"), TranscriptError(text)


def _parsed(name: str, path: str | None, text: str, undecoded: TranscriptError | None = None) -> Document:
    """Parse `text` as JSONL if it has several lines and the first is JSON, or at least half are JSON objects; else as
    one JSON value. `undecoded`: the error of a byte that is not UTF-8, if there is one."""
    text = text.removeprefix("\ufeff")
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line and not line.isspace()]
    if not lines:
        raise TranscriptError(f"{name}: empty; expected a list of messages as JSON or JSONL")
    if len(lines) == 1 or not (_is_json(lines[0][1]) or _is_damaged_jsonl(text, lines)):
        if undecoded:
            raise undecoded
        return document_of(_value(name, text, 1), name, path)
    values, damage = _records(name, lines)
    damage += [undecoded] if undecoded else []
    if not values:
        raise damage[0]
    return Document(name, path, [value for _, value in values], tuple(values), tuple(damage))


def _is_damaged_jsonl(text: str, lines: Sequence[tuple[int, str]]) -> bool:
    """Return True if at least half of `lines` are JSON objects, but the whole `text` is not one JSON value."""
    objects = sum(line[0] == "{" and _is_json(line) for _, line in lines)
    return 2 * objects >= len(lines) and not _is_json(text)


def _records(name: str, lines: Sequence[tuple[int, str]]) -> tuple[list[tuple[int, Any]], list[TranscriptError]]:
    """Parse numbered `lines` of JSONL. Return the values with their numbers, and an error for each damaged line."""
    values, damage, at = list[tuple[int, Any]](), list[TranscriptError](), 0
    while at < len(lines):
        number, line = lines[at]
        number = max(number, values[-1][0] + 1) if values else number  # a damaged line may give several records
        try:
            values.append((number, _value(name, line, number)))
        except TranscriptError as error:
            joined, line_count = _joined_value([line for _, line in lines[at : at + _MOST_JOINED]])
            values += enumerate(joined or _whole_records(line), number)
            damage += [] if joined else [error]
            at += line_count - 1
        at += 1
    return values, damage


_MOST_JOINED, _MOST_STARTS = 40, 1_000
"""Largest number of lines that are joined to one JSON value; largest number of ``{`` in a damaged line that are tried
as the beginning of an object."""


def _joined_value(lines: Sequence[str]) -> tuple[list[Any], int]:
    """Join the first of `lines` with the next ones until they are one JSON value, as some writers do not escape line
    ends in texts. Return a list with the value, and its number of lines; if there is none, an empty list and 1."""
    for count in range(2, len(lines) + 1):
        if _is_json(lines[count - 1]):  # this line is a record of its own
            break
        with suppress(ValueError, RecursionError):
            value = json.loads("\n".join(lines[:count]), strict=False)
            return ([] if _is_deeper(value, MAX_DEPTH) else [value]), count
    return [], 1


def _whole_records(line: str) -> list[Any]:
    """Return the complete JSON objects in a damaged `line`: those at its beginning, and one at its end."""
    decode, records, at = json.JSONDecoder().raw_decode, list[Any](), 0
    for start in map(re.Match.start, islice(re.finditer(r"\{", line), _MOST_STARTS)):
        if start < at:
            continue
        with suppress(ValueError, RecursionError):
            value, end = decode(line, start)
            follows_last, ends_line = start == at, not line[end:].strip("\0 \r")
            if (follows_last or ends_line) and not _is_deeper(value, MAX_DEPTH):
                records.append(value)
                at = end
    return records


def document_of(value: Any, name: str, path: str | None = None) -> Document:
    """Return a `Document` for a parsed `value`. An object without ``messages`` counts as one line of a log (JSONL)."""
    if isinstance(value, Mapping) and "messages" not in value:
        return Document(name, path, [value], ((1, value),))
    return Document(name, path, value)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _value(name: str, text: str, first_line: int) -> Any:
    """Parse the JSON `text`, which begins at the line `first_line` of the file `name`, or raise a TranscriptError."""
    place = f"{name}, line {first_line}"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{name}, line {first_line + error.lineno - 1}, column {error.colno}"
        found = error.doc[error.pos : error.pos + _QUOTED_CHARACTERS]
        problem = f"not JSON ({error.msg.lower()}, found {found!r}); expected one value, or one on each line"
        if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string"):
            problem = f"the JSON breaks off here ({error.msg.lower()}); expected a complete file"
        raise TranscriptError(f"{place}: {problem}") from None
    except ValueError as error:  # Python refuses integers of thousands of digits
        raise TranscriptError(f"{place}: not JSON that can be read ({str(error).split(';')[0]})") from None
    except RecursionError:
        raise TranscriptError(f"{place}: nested too deeply to be a transcript") from None
    if _is_deeper(value, MAX_DEPTH):
        raise TranscriptError(f"{place}: nested too deeply to be a transcript (more than {MAX_DEPTH} levels)")
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    """Return True if lists and objects in the JSON `value` are nested in more than `depth` levels."""
    if depth < 0:
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_is_deeper(item, depth - 1) for item in inner if isinstance(item, dict | list))


def json_text(value: Any, indent: int | None = None) -> str:
    """Return `value` as JSON with a line end. Characters beyond ASCII are escaped only if `value` contains half of a
    surrogate pair, which UTF-8 cannot express."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent)
    return text + "\n"


def malformed(error: ValidationError, place: str) -> TranscriptError:
    """Convert pydantic's `error` about the value at `place` (file and line) to a TranscriptError of one line."""
    first = error.errors(include_url=False)[0]
    # besides keys, pydantic's path contains types: ``list[dict[str,any]]``, ``Item``
    steps = [str(step) for step in first["loc"] if "[" not in str(step) and not str(step)[:1].isupper()]
    return TranscriptError(f"{place}: {'.'.join(steps) or 'line'}: {first['msg']}, found {quoted(first['input'])}")
