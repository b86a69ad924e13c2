"""Reads a turn as numbered lines, so that parts of it can be cited, kept or shown by their line numbers.

Line numbers count from 1 within the turn. A long physical line is split into pieces, each with its own number, so that
one entry of a 100,000-character JSON line can be cited. No byte changes: the joined pieces are the text. To read the
meaning of a long line, short neighbouring pieces are joined to one *statement*. So are lines of indented JSON, which
then means the same as JSON on one line.
"""

from __future__ import annotations

import json
import textwrap
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Literal, NamedTuple, overload

from planner.reading.lazy import lazy_pattern
from planner.reading.messages import Block, History, Turn, readable_text, result_text

Part = Literal["user", "assistant", "call", "result"]
Source = Literal["user", "host", "agent", "tool", "document", "planner"]
"""Author of a text. ``host``: the client or agent program. ``document``: attached or fetched text. ``planner``: an
earlier summary. Only ``user`` is the user."""

WRAP_CHARACTERS = 240
"""Largest width of a line, about 60 tokens. A wider one is cut into pieces at the places that `_cut` chooses."""
READ_LINES = 10_000
"""Largest number of lines of a content block that are read, half of them at either end. The lines between them are only
stored. So many lines may have over two million characters, more than fits a context window."""
PIECE_CHARACTERS = 60
"""Smallest length of a JSON record inside a long line that becomes a piece by itself."""
STATEMENT_CHARACTERS = 160
"""Largest length of neighbouring pieces of one physical line that are joined and read together, as one statement."""

_ESCAPE = lazy_pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
"""Control codes for a terminal, such as colours, which it does not print (ECMA-48, 5.4): ``\\x1b[31m``."""
_GUTTER = lazy_pattern(r"^\s*(\d+)→")
"""Line number that a tool prints before a line of a file: `` 12→def f():``; not data such as ``4711 | alice``."""
ENCODED_CHARACTERS = 200
"""Smallest length of a line that may be encoded data."""
_ENCODED = lazy_pattern(rf"[A-Za-z0-9+/=_-]{{{ENCODED_CHARACTERS},}}")
"""Line of base64, such as a picture in a tool result; not a long path, nor words of any script."""
_WIDE = lazy_pattern(r"[\u1100-\u11ff\u2e80-\ud7a3\uf900-\ufaff\uff00-\uffef]")
"""Character of an East Asian script, or its punctuation."""
_BREAK = lazy_pattern(r"[\s,;{}()\[\]|]")
"""Separator after which a long line may be cut."""
_LAST_BREAK = lazy_pattern(rf"(?s:.*){_BREAK.pattern}")
"""Text up to its last separator."""
SENTENCE_END = lazy_pattern(r"(?<=[^\s\"])[.!?:;][\"')]? |[。！？；।۔]")
"""End of a sentence: ``it. The``, ``吗？``; not ``3.11``, ``a.py`` or ``find . -name``, nor ``"key": "value"``."""
_FIELD_END = lazy_pattern(r"(?:[\"\d\]}]|true|false|null), ?(?=\")")
"""Comma between two JSON fields: ``"a": 1, "b"``."""
_RECORD_END = lazy_pattern(r"[}\]], ?(?=[{\[\"])|\\n(?<=[^\\]\\n)(?:\\n)*")
"""End of a JSON record before the next one, as in ``}, {``; or an escaped line break in a JSON string."""
_JSON = lazy_pattern(r"\s*+(?:[\"{}\[\]]|(?:-?\d[\d.eE+-]{0,40}+|true|false|null),?\s*$)")
"""Beginning of a line of indented JSON: ``"id": 7,``, ``{``, ``true``; not ``7 passed,``."""
_JSON_END = lazy_pattern(r"\s*+[}\]]+,?\s*$")
"""Line of indented JSON that ends an object or a list: ``},``."""
_GAPS_IN_JSON = {"{": "", "[": "", ",": " "}
"""Text between two lines of indented JSON that are joined to one, by the last character of the first."""


class Line(NamedTuple):
    """One line of a turn, or a piece of a long line."""

    number: int
    """Number of the line in the turn, from 1."""
    part: Part
    """Kind of content block that contains the line."""
    text: str
    block: int
    """Index of the content block in the turn, counted over all its messages from 0."""
    continues: bool
    """True if the line is a further piece of a long line: there is no line break before it."""
    source: Source
    """Author of the line, by the role and type of its block; `planner.evidence.hosts` corrects it for text of the host
    program in the user's message."""


class Statement(NamedTuple):
    """Neighbouring pieces of one long line, or lines of indented JSON, that are read together; or a whole line."""

    lines: tuple[Line, ...]
    text: str
    """Text of the joined pieces; of lines of JSON without their indentation, on one line."""

    @property
    def part(self) -> Part:
        """Kind of content block that contains the statement."""
        return self.lines[0].part

    @property
    def source(self) -> Source:
        """Author of the statement."""
        return self.lines[0].source

    @property
    def block(self) -> int:
        """Index in the turn of the content block that contains the statement."""
        return self.lines[0].block

    @property
    def numbers(self) -> tuple[int, ...]:
        """Line numbers of the pieces in the turn."""
        return tuple(line.number for line in self.lines)


class BlockText(NamedTuple):
    """Text of one content block of a turn, divided into lines."""

    part: Part
    """Kind of content block."""
    source: Source
    """Author of the text, by the role and type of the block."""
    block: int
    """Index of the block in the turn."""
    text: str
    first: int
    """Index of the first line of the text among the lines of the turn."""
    stop: int
    """Index after the last line of the text."""
    bounds: array[int]
    """Indexes in `text` at which its lines start, and at the end the length of `text`."""

    @property
    def read(self) -> Sequence[int]:
        """Indexes of the lines that are read: all, or the first and last `READ_LINES` / 2 of a very long block."""
        every, half = range(self.first, self.stop), READ_LINES // 2
        return every if len(every) <= READ_LINES else [*every[:half], *every[-half:]]

    def read_lines(self) -> Iterator[tuple[int, str]]:
        """Yield index and text of each line of the block; of a very long block only of the lines in `read`."""
        return ((index, self.words(index)) for index in self.read)

    def size(self, index: int) -> int:
        """Return the number of characters of a line, and 1 for the line break after it. `index`: place of the line
        among all lines of the turn, from 0."""
        place = index - self.first
        start, stop = self.bounds[place], self.bounds[place + 1]
        return stop - start if self.text.endswith("\n", start, stop) else stop - start + 1

    def words(self, index: int) -> str:
        """Return the text of a line. `index`: place of the line among all lines of the turn, from 0."""
        place = index - self.first
        return self.text[self.bounds[place] : self.bounds[place + 1]].removesuffix("\n")


@dataclass(frozen=True, slots=True)
class Lines(Sequence[Line]):
    """All lines of a turn, as a sequence. To save memory, only texts of blocks are stored; lines are made on demand."""

    texts: tuple[BlockText, ...]
    sources: Mapping[int, Source] = field(default_factory=dict)
    """Author by line number, only for lines with another author than the role and type of their block show."""

    def __len__(self) -> int:
        """Return the number of lines in the turn."""
        return self.texts[-1].stop if self.texts else 0

    def __iter__(self) -> Iterator[Line]:
        """Iterate over all lines of the turn, in order."""
        return chain.from_iterable(map(self._at, self.texts))

    @overload
    def __getitem__(self, at: int) -> Line: ...
    @overload
    def __getitem__(self, at: slice) -> list[Line]: ...
    def __getitem__(self, at: int | slice) -> Line | list[Line]:
        """Return the line at the index `at`, which is one less than the line's number; or a list for a slice."""
        count = len(self)
        if isinstance(at, slice):
            return self.numbered([index + 1 for index in range(*at.indices(count))])
        if not -count <= at < count:
            raise IndexError(f"no line {at} of {count}")
        return self.numbered([at % count + 1])[0]

    def numbered(self, numbers: Iterable[int]) -> list[Line]:
        """Return the lines with these line numbers, in the order of `numbers`."""
        lines: list[Line] = []
        for number in numbers:
            text = self.texts[bisect_right(self.texts, number - 1, key=attrgetter("first")) - 1]
            lines += self._at(text, (number - 1,))
        return lines

    def text(self, number: int) -> str:
        """Return the text of the line with this line number."""
        return self.text_at(number - 1).words(number - 1)

    def text_at(self, index: int) -> BlockText:
        """Return the text of the block that contains the line at `index`, one less than its number."""
        return self.texts[bisect_right(self.texts, index, key=attrgetter("first")) - 1]

    def goes_on(self, number: int) -> bool:
        """Return True if the line with this line number and the next one are pieces of the same long line."""
        text = self.text_at(number - 1)
        return number < text.stop and text.text[text.bounds[number - text.first] - 1] != "\n"

    def of_block(self, block: int | None) -> list[Line]:
        """Return the lines of the content block with the index `block` in the turn; an empty list for None."""
        text = self.text_of_block(block)
        return [*self._at(text)] if text else []

    def text_of_block(self, block: int | None) -> BlockText | None:
        """Return the text of the content block with the index `block` in the turn; None if it has none."""
        at = bisect_left(self.texts, block or 0, key=attrgetter("block"))
        return self.texts[at] if at < len(self.texts) and self.texts[at].block == block else None

    def chosen(self, numbers: Set[int], block: int | None) -> list[Line]:
        """Return the lines with one of these `numbers` in the content block with the index `block`; none for None."""
        text = self.text_of_block(block)
        return [*self._at(text, [at for at in range(text.first, text.stop) if at + 1 in numbers])] if text else []

    def outside(self, blocks: Container[int | None]) -> Iterator[Line]:
        """Yield the lines of all content blocks of the turn except those with the indexes `blocks`."""
        return (line for text in self.texts if text.block not in blocks for line in self._at(text))

    def of_part(self, part: Part) -> Iterator[Line]:
        """Yield the lines of one kind of content block, such as ``result``."""
        return (line for text in self.texts if text.part == part for line in self._at(text))

    def of_sources(self, *sources: Source) -> Iterator[Line]:
        """Yield the lines that these authors wrote, such as ``user``."""
        texts = (text for text in self.texts if self.sources or text.source in sources)
        return (line for text in texts for line in self._at(text) if line.source in sources)

    def to_read(self) -> list[Line]:
        """Return all lines of the turn, except those in the middle of very long blocks, which are only stored."""
        return [line for text in self.texts for line in self._at(text, text.read)]

    def _at(self, text: BlockText, indices: Iterable[int] | None = None) -> Iterator[Line]:
        """Yield the lines of `text` at `indices`, all of which must be in it; without `indices`, all its lines."""
        part, author, block, words, first, stop, bounds = text
        for index in range(first, stop) if indices is None else indices:
            start, end = bounds[index - first], bounds[index - first + 1]
            continues = start > 0 and words[start - 1] != "\n"
            source = self.sources.get(index + 1, author)
            yield Line(index + 1, part, words[start:end].removesuffix("\n"), block, continues, source)


def turn_lines(history: History, turn: Turn) -> Lines:
    """Return every line of text in `turn`: messages, arguments of tool calls, and results. Thinking is left out."""
    texts: list[BlockText] = []
    first = 0
    for block, (role, content) in enumerate(history.blocks_of(turn)):
        part, source, text = _read_block(role, content)
        if text is not None:
            bounds = array("I", [*_line_starts(text), len(text)])  # takes a tenth of the memory of a list
            stop = first + len(bounds) - 1
            texts.append(BlockText(part, source, block, text, first, stop, bounds))
            first = stop
    return Lines(tuple(texts))


def line_count(text: str) -> int:
    """Return the number of lines in `text`, a whole content block. Each piece of a long line counts as one."""
    return sum(1 for _ in _line_starts(text))


def without_escapes(text: str) -> str:
    """Return `text` as a terminal prints it, without control codes such as those for colours."""
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def one_line(text: str) -> str:
    """Return `text` on one line: each run of white space becomes one space."""
    return " ".join(text.split())


def join_lines(lines: Sequence[Line]) -> str:
    """Return the exact text from which neighbouring `lines` were made: a line break only where the text has one."""
    if len(lines) == 1:
        return lines[0].text
    return "".join(line.text if line.continues or at == 0 else f"\n{line.text}" for at, line in enumerate(lines))


def statements(lines: Iterable[Line], most_characters: float = STATEMENT_CHARACTERS) -> Iterator[Statement]:
    """Join neighbouring pieces of long lines to statements of up to `most_characters`, as a piece alone may have no
    meaning; a short line is one statement. Lines of indented JSON in a tool's result are joined, too, up to the first
    comma after `most_characters`. Yield the statements in order."""
    pieces: list[Line] = []
    texts: list[str] = []
    length = 0
    for line in lines:
        between = _text_between(pieces[-1], line) if pieces else None
        is_full = (length + len(line.text) if line.continues else length) > most_characters
        may_part = line.continues or between == " "  # lines of JSON part only after a comma
        if pieces and (between is None or (is_full and may_part)):
            yield Statement(tuple(pieces), "".join(texts))
            pieces, texts, length = [], [], 0
        texts.append(line.text if line.continues or not pieces else f"{between}{line.text.lstrip()}")
        pieces.append(line)
        length += len(texts[-1])
    if pieces:
        yield Statement(tuple(pieces), "".join(texts))


def _text_between(before: Line, line: Line) -> str | None:
    """Return the text ("" or a space) between `before` and `line` if both are joined to one statement, as pieces of a
    long line or lines of indented JSON; None if they do not belong together."""
    if line.number != before.number + 1:
        return None
    is_json = line.part == "result" and line.block == before.block and (before.continues or _JSON.match(before.text))
    if line.continues or (is_json and _JSON_END.match(line.text)):
        return ""
    return _GAPS_IN_JSON.get(before.text.rstrip()[-1:]) if is_json and _JSON.match(line.text) else None


def numbers_of(some_statements: Iterable[Statement]) -> tuple[int, ...]:
    """Return the line numbers of all lines in `some_statements`, ascending, each once."""
    return tuple(sorted({line.number for statement in some_statements for line in statement.lines}))


def without_indentation(texts: Sequence[str], *, viewed: bool = True) -> list[str]:
    """Return neighbouring lines without the indentation that they share, which saves tokens. If a tool printed
    consecutive line numbers (`` 12→``) before all of them, only the first number stays. `viewed`: False if such numbers
    are data, as in the output of a command, so that all stay."""
    numbers = [match[1] for text in texts if viewed and (match := _GUTTER.match(text))]
    are_numbered = len(numbers) == len(texts) and all(
        int(number) == int(numbers[0]) + at for at, number in enumerate(numbers)
    )
    shortened = [(_GUTTER.sub("", text) if are_numbered else text).rstrip() for text in texts]
    shortened = textwrap.dedent("\n".join(shortened)).split("\n") if len(shortened) > 1 else shortened
    shortened[0] = shortened[0].lstrip()
    return [f"{numbers[0]}→{shortened[0]}", *shortened[1:]] if are_numbered else shortened


def text_width(text: str) -> int:
    """Return the number of characters in `text`, where an East Asian one counts as three, as it has more tokens."""
    return len(text) if text.isascii() else len(text) + 2 * len(_WIDE.findall(text))


def is_encoded(text: str) -> bool:
    """Return True if the line `text` is encoded data such as base64, which means nothing to a reader."""
    return _ENCODED.fullmatch(text.strip()) is not None


def without_numbers(text: str) -> str:
    """Return `text`, a file as a tool printed it, without the line numbers at the start of its lines."""
    return "\n".join(_GUTTER.sub("", line) for line in text.split("\n"))


def _read_block(role: str, block: Block) -> tuple[Part, Source, str | None]:
    """Return the kind, the author and the text, if any, of a content block in a message of this `role`."""
    kind, text = block["type"], block.get("text")
    part: Part = "assistant" if role == "assistant" else "user"
    senders: dict[str, Source] = {"assistant": "agent", "user": "user"}  # a system message is the host program's
    if kind == "text" and isinstance(text, str):
        return part, senders.get(role, "host"), text
    if kind.endswith("tool_use"):
        return "call", "agent", call_text(block)
    if kind.endswith("tool_result"):
        return "result", "tool", result_text(block)
    if kind == "compaction":
        return part, "agent", readable_text(block) or None
    return part, "document", (readable_text(block) or None) if kind in ("document", "search_result") else None


def call_text(block: Block) -> str:
    """Return a tool call as text: ``Tool key=value key=value`` on one line. An argument of several lines is below that
    line, its key on a line of its own and its value unchanged."""
    return "\n".join([text for _, text in _call_parts(block.get("name", ""), block.get("input"))])


def keys_of_call_lines(name: str, arguments: object) -> list[str]:
    """Return for each line of a call's text (`call_text`) the name of the argument of several lines that it is part of;
    "" for the line of short arguments and for a line with a key alone."""
    keys: list[str] = []
    for part_key, text in _call_parts(name, arguments):
        keys += ["", *[part_key] * (line_count(text) - 1)]
    return keys


def _call_parts(name: object, arguments: object) -> Iterator[tuple[str, str]]:
    """Yield the line of a call's short arguments, after "", then each argument of several lines after its name."""
    if not isinstance(arguments, dict):
        yield "", f"{name} {arguments if arguments is not None else ''}".rstrip()
        return
    inline = [str(name)]
    below: list[tuple[str, str]] = []
    for key, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
        if "\n" in text:
            below.append((str(key), f"{key}:\n{text}"))
        else:
            inline.append(f"{key}={text}")
    yield "", " ".join(inline)
    yield from below


def _line_starts(text: str) -> Iterator[int]:
    """Yield the indexes in `text` at which lines, and pieces of long lines, start."""
    start = 0
    for line in text.split("\n"):
        yield start
        if 3 * len(line) > WRAP_CHARACTERS and text_width(line) > WRAP_CHARACTERS:  # the width is at most 3 * len(line)
            yield from (start + cut for cut in _cuts(line))
        start += len(line) + 1


def _cuts(line: str) -> Iterator[int]:
    """Yield where a long line is cut: after JSON records and escaped line breaks, unless the piece would be shorter
    than `PIECE_CHARACTERS`. Pieces that are still too wide are cut again where `_cut` finds a place."""
    ends = [match.end() for match in _RECORD_END.finditer(line)]
    start = 0
    for end in (*ends, len(line)):
        if end < len(line) and end - start < PIECE_CHARACTERS:
            continue
        while (latest := _latest_end(line, start, end)) < end:
            start = _cut(line, start, latest)
            yield start
        if end < len(line):
            start = end
            yield start


def _latest_end(line: str, start: int, end: int) -> int:
    """Return the last index, at most `end`, up to which a piece of `line` from `start` is not too wide."""
    most = min(end, start + WRAP_CHARACTERS)
    if line.isascii() or text_width(line[start:most]) <= WRAP_CHARACTERS:
        return most
    # a piece of wide characters alone may have a third of the characters, as each counts as three; with ASCII, more
    return min(most, start + WRAP_CHARACTERS // 3 + sum(map(str.isascii, line[start:most])) // 2)


def _cut(line: str, start: int, end: int) -> int:
    """Return where to cut `line` for a piece from `start` to about `end`. The first of these places that exists is
    used: after the last JSON field, or else the last sentence, after the first quarter of the piece; after the last
    separator in its second half; after a separator that is near its end; at `end`."""
    half = (end - start) // 2
    for pattern in (_FIELD_END, SENTENCE_END):
        if ends := [match.end() for match in pattern.finditer(line, start + half // 2, end)]:
            return ends[-1]
    last_break = _LAST_BREAK.match(line, start + half + 1, end) or _BREAK.search(line, end, end + half)
    return last_break.end() if last_break else end
