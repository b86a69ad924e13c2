"""A turn as numbered lines: the one coordinate system of excerpts, cards and stand-ins.

Line numbers count from 1 within the turn. A long physical line is wrapped into pieces, each a line of its
own, so that one entry of a 100,000-character JSON line can be pointed at. Changes no byte: joining the
pieces gives the text back. What a long line says is judged by its statements, which are longer than pieces.
"""

from __future__ import annotations

import json
import textwrap
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from itertools import chain, pairwise, repeat
from operator import attrgetter
from typing import Any, Literal, NamedTuple, cast, get_args, overload

from planner.reading.history import History, Turn
from planner.reading.messages import Block, readable_text, result_text
from planner.reading.patterns import lazy_pattern

__all__ = [
    "READ_LINES",
    "WRAP_CHARACTERS",
    "Line",
    "Lines",
    "Part",
    "Source",
    "Statement",
    "call_parts",
    "call_text",
    "dense",
    "join_lines",
    "number_set",
    "numbers_of",
    "small_type",
    "statements",
    "turn_lines",
    "without_numbers",
]

Part = Literal["user", "assistant", "call", "result"]
Source = Literal["user", "host", "agent", "tool", "document", "planner"]
"""Whose words a text is. What is attached or fetched (`document`) and what tools return is never the user's."""

WRAP_CHARACTERS = 240
"""A longer physical line is cut behind a sentence, else behind a separator, else, so that no name is cut, behind the
next one if that is half as far again. About 60 tokens: a line that is chosen stands whole."""
READ_LINES = 10_000
"""Of a longer block so many lines are read, half of them at either end: over two million characters, more than a window
takes. What is between stands in the store, and nowhere else."""
WHOLE_SHARE = 4
"""All lines of a block are as soon made as one of so many of them by itself."""
SENTENCE_CHARACTERS = 60
"""A sentence shorter than this is not cut off by itself."""
STATEMENT_CHARACTERS = 160
"""Pieces of one physical line are read together up to this length."""

_GUTTER = lazy_pattern(r"^\s*(\d+)→")
"""The line number that file viewers print: ``   12→def f():``; not ``4711 | alice`` or ``12<tab>3``, which are data."""
_BREAK = lazy_pattern(r"[\s,;{}()\[\]|]")
_LAST_BREAK = lazy_pattern(rf"(?s:.*){_BREAK.pattern}")
_SENTENCE_END = lazy_pattern(r"[.!?:;] ")
"""``it. The``; not ``3.11`` or ``a.py``."""


class Line(NamedTuple):
    """One line of a turn."""

    number: int
    part: Part
    text: str
    block: int
    """Which block of the turn it belongs to, counted over all its messages from 0."""
    continues: bool
    """True if it goes on with the physical line before it (no line break between them)."""
    source: Source
    """Whose words it is, by its place; `evidence.hosts` tells the host's forms from the user's words."""


class Statement(NamedTuple):
    """Pieces of one physical line that are read together."""

    lines: tuple[Line, ...]
    text: str

    @property
    def part(self) -> Part:
        """Who says it."""
        return self.lines[0].part

    @property
    def source(self) -> Source:
        """Whose words it is."""
        return self.lines[0].source

    @property
    def block(self) -> int:
        """The block of its lines."""
        return self.lines[0].block

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of its lines."""
        return tuple(line.number for line in self.lines)


class _Text(NamedTuple):
    """The text of one block of a turn."""

    part: Part
    block: int
    text: str
    first: int
    """Index of its first line."""
    stop: int
    """The index behind its last line."""


_SOURCES: tuple[Source, ...] = get_args(Source)


class Lines(Sequence[Line]):
    """All lines of a turn, each made when it is asked for: what is held are the texts of the messages and where in them
    lines start, five bytes a line.
    """

    __slots__ = ("_sources", "_starts", "_texts")

    def __init__(self, texts: Sequence[_Text], starts: array[int], sources: bytes) -> None:
        """`starts` and `sources` hold a number for each line of all `texts`, in order."""
        self._texts, self._starts, self._sources = texts, starts, sources

    def __len__(self) -> int:
        """How many lines there are."""
        return len(self._starts)

    def __iter__(self) -> Iterator[Line]:
        """All lines, each made now."""
        return chain.from_iterable(map(self._of_text, self._texts))

    @overload
    def __getitem__(self, at: int) -> Line: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Line, ...]: ...
    def __getitem__(self, at: int | slice) -> Line | tuple[Line, ...]:
        """The line at index `at`, one less than its number."""
        if isinstance(at, slice):
            return tuple([self[index] for index in range(*at.indices(len(self)))])
        index = at if at >= 0 else len(self) + at
        if not 0 <= index < len(self):
            raise IndexError(f"no line {at} of {len(self)}")
        return self._line(index, self._text_at(index))

    def __eq__(self, other: object) -> bool:
        """True for the same lines."""
        if not isinstance(other, Lines):
            return NotImplemented
        return (self._texts, self._starts, self._sources) == (other._texts, other._starts, other._sources)

    __hash__ = None  # type: ignore[assignment]

    @property
    def texts(self) -> tuple[str, ...]:
        """What all lines are cut out of, a text for each block that has one."""
        return tuple([text.text for text in self._texts])

    def words(self) -> Iterator[str]:
        """The text of each line, in order."""
        return chain.from_iterable(map(self._pieces, self._texts))

    def text(self, number: int) -> str:
        """The text of the line with this number, without the rest of it."""
        text = self._text_at(number - 1)
        start, stop = self._ends(number - 1, text)
        return text.text[start:stop]

    def goes_on(self, number: int) -> bool:
        """True if the next line is of the same physical line as the one with this number."""
        text = self._text_at(number - 1)
        return number < text.stop and text.text[self._starts[number] - 1] != "\n"

    def spans(self) -> Iterator[tuple[Part, int, int]]:
        """Of each text who says it, the index of its first line, and the one behind its last."""
        return ((text.part, text.first, text.stop) for text in self._texts)

    def span_at(self, index: int) -> tuple[Part, int, int]:
        """Of the text that the line at `index` is in, as `spans` has it."""
        text = self._text_at(index)
        return text.part, text.first, text.stop

    def heads(self) -> Iterator[tuple[Line, str]]:
        """The first line of each block that has lines, and all of the block's text."""
        return ((self._line(text.first, text), text.text) for text in self._texts)

    def of_block(self, block: int | None) -> Sequence[Line]:
        """The lines of one block; none for None."""
        which = bisect_left(self._texts, -1 if block is None else block, key=_BLOCK)
        if which == len(self._texts) or self._texts[which].block != block:
            return ()
        return _OfText(self, self._texts[which])

    def outside(self, blocks: Container[int | None]) -> Iterator[Line]:
        """The lines of all other blocks."""
        return chain.from_iterable(self._of_text(text) for text in self._texts if text.block not in blocks)

    def chosen(self, numbers: Set[int], block: int | None) -> list[Line]:
        """The lines of one block with these numbers, in order."""
        lines = self.of_block(block)
        if not lines:
            return []
        first = lines[0].number
        own = range(first, first + len(lines))
        fewer, more = (own, numbers) if len(own) < len(numbers) else (numbers, own)
        wanted = sorted([number for number in fewer if number in more])
        if len(wanted) * WHOLE_SHARE > len(lines):
            return [line for line in lines if line.number in numbers]
        text = self._text_at(first - 1)
        return [self._line(number - 1, text) for number in wanted]

    def of_part(self, part: Part) -> Iterator[Line]:
        """The lines that somebody says."""
        return chain.from_iterable(self._of_text(text) for text in self._texts if text.part == part)

    def of_sources(self, *sources: Source) -> Iterator[Line]:
        """The lines whose words these are."""
        codes = [_SOURCES.index(source) for source in sources]
        for text in self._texts:
            own = self._sources[text.first : text.stop]
            if any(code in own for code in codes):
                yield from (line for line in self._of_text(text) if line.source in sources)

    def to_read(self) -> tuple[Line, ...]:
        """All lines but the middle of blocks that are too long to read."""
        if all(text.stop - text.first <= READ_LINES for text in self._texts):
            return tuple(self)
        return tuple([self[index] for first, stop, _ in self._to_read() for index in range(first, stop)])

    def numbers_to_read(self) -> Iterator[int]:
        """The numbers of the lines that are read."""
        return chain.from_iterable(range(first + 1, stop + 1) for first, stop, _ in self._to_read())

    def spans_to_read(self) -> Iterator[tuple[Part, str, int, array[int], int]]:
        """Each text with a run of its lines that is read: who says it, all of it, the index of the first of these,
        where in the text each of them starts, and where the last one ends."""
        for first, stop, text in self._to_read():
            end = self._starts[stop] if stop < text.stop else len(text.text)
            yield text.part, text.text, first, self._starts[first:stop], end

    def _to_read(self) -> Iterator[tuple[int, int, _Text]]:
        """First and last index (half-open) of the lines that are read, of each text."""
        half = READ_LINES // 2
        for text in self._texts:
            if text.stop - text.first <= READ_LINES:
                yield text.first, text.stop, text
            else:
                yield text.first, text.first + half, text
                yield text.stop - half, text.stop, text

    def with_sources(self, sources: Iterable[tuple[int, Source]]) -> Lines:
        """The same lines, those with these numbers of other sources."""
        changed = bytearray(self._sources)
        for number, source in sources:
            changed[number - 1] = _SOURCES.index(source)
        return Lines(self._texts, self._starts, bytes(changed))

    def _text_at(self, index: int) -> _Text:
        return self._texts[bisect_right(self._texts, index, key=_FIRST) - 1]

    def _of_text(self, text: _Text) -> Iterator[Line]:
        """The lines of one text."""
        part, block, words, first, stop = text
        if words.count("\n") + 1 < stop - first:
            return self._of_wrapped(text)
        sources = map(_SOURCES.__getitem__, self._sources[first:stop])
        numbers, pieces = range(first + 1, stop + 1), words.split("\n")
        fields = zip(numbers, repeat(part), pieces, repeat(block), repeat(False), sources, strict=False)
        return map(_LINE, repeat(Line), fields)

    def _of_wrapped(self, text: _Text) -> Iterator[Line]:
        """The lines of a text in which long ones stand in several pieces."""
        part, block, words, first, stop = text
        continues = False
        for number, (start, end) in enumerate(pairwise(chain(self._starts[first:stop], (len(words) + 1,))), first + 1):
            whole = end > len(words) or words[end - 1] == "\n"
            source = _SOURCES[self._sources[number - 1]]
            yield Line(number, part, words[start : end - whole], block, continues, source)
            continues = not whole

    def _pieces(self, text: _Text) -> Iterable[str]:
        """The text of each line of one text."""
        if text.text.count("\n") + 1 < text.stop - text.first:
            return (line.text for line in self._of_wrapped(text))
        return text.text.split("\n")

    def _line(self, index: int, text: _Text) -> Line:
        """The line with this index, which is in `text`."""
        part, block, words, _, _ = text
        start, stop = self._ends(index, text)
        continues = start > 0 and words[start - 1] != "\n"
        return Line(index + 1, part, words[start:stop], block, continues, _SOURCES[self._sources[index]])

    def _ends(self, index: int, text: _Text) -> tuple[int, int]:
        """Where in `text` its line with this index begins and ends."""
        words = text.text
        stop = self._starts[index + 1] if index + 1 < text.stop else len(words) + 1
        return self._starts[index], stop - 1 if stop > len(words) or words[stop - 1] == "\n" else stop


class _OfText(Sequence[Line]):
    """The lines of one text."""

    __slots__ = ("_lines", "_places", "_text")

    def __init__(self, lines: Lines, text: _Text) -> None:
        self._lines, self._text, self._places = lines, text, range(text.first, text.stop)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Line]:
        return self._lines._of_text(self._text)

    @overload
    def __getitem__(self, at: int) -> Line: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Line, ...]: ...
    def __getitem__(self, at: int | slice) -> Line | tuple[Line, ...]:
        if isinstance(at, slice):
            return tuple([self._lines[place] for place in self._places[at]])
        return self._lines[self._places[at]]


_FIRST, _BLOCK = attrgetter("first"), attrgetter("block")
_LINE = cast("Callable[[type[Line], tuple[object, ...]], Line]", tuple.__new__)
"""A `Line` of its fields in order: all lines of a history are made some ten times in a plan."""


def turn_lines(history: History, turn: Turn) -> Lines:
    """Every line of text in `turn`: its words, its calls' inputs, its results. Thinking is left out."""
    texts: list[_Text] = []
    starts, sources = array("I"), bytearray()
    for index, (role, block) in enumerate(history.blocks_of(turn)):
        source = _SOURCES.index(_source(role, block["type"]))
        for part, text in _texts(role, block):
            first = len(starts)
            starts.extend(_starts(text))
            texts.append(_Text(part, index, text, first, len(starts)))
            sources.extend(bytes([source]) * (len(starts) - len(sources)))
    longest = max([len(text.text) for text in texts], default=0)
    return Lines(tuple(texts), array(small_type(longest), starts), bytes(sources))


def small_type(most: int) -> Literal["H", "I"]:
    """The type of arrays whose numbers are none above `most`: two bytes where they fit, else four."""
    return "H" if most < 2**16 else "I"


def join_lines(lines: Sequence[Line]) -> str:
    """Neighbouring `lines` as the exact text they came from."""
    if len(lines) == 1:
        return lines[0].text
    parts: list[str] = []
    for line in lines:
        if parts and not line.continues:
            parts.append("\n")
        parts.append(line.text)
    return "".join(parts)


def statements(lines: Iterable[Line]) -> Iterator[Statement]:
    """`lines` in order, pieces of one physical line together."""
    held: list[Line] = []
    length = 0
    for line in lines:
        goes_on = line.continues and held and line.number == held[-1].number + 1
        if goes_on and length + len(line.text) <= STATEMENT_CHARACTERS:
            held.append(line)
            length += len(line.text)
            continue
        if held:
            yield Statement(tuple(held), join_lines(held))
        held, length = [line], len(line.text)
    if held:
        yield Statement(tuple(held), join_lines(held))


def numbers_of(said: Iterable[Statement]) -> tuple[int, ...]:
    """The numbers of all lines of some statements, ascending, each once."""
    return tuple(sorted({number for statement in said for number in statement.numbers}))


_NO_NUMBERS: frozenset[int] = frozenset()


def number_set(numbers: Iterable[int]) -> frozenset[int]:
    """`numbers` as a set; without any always the same one: most turns have none, and an empty set takes 216 bytes."""
    return frozenset(numbers) or _NO_NUMBERS


def dense(texts: Sequence[str], *, viewed: bool = True) -> list[str]:
    """Neighbouring lines without what costs tokens and says little: of the indentation that all share, and, where a
    file is `viewed`, of the numbers that the viewer counted them with, only the first number stays."""
    numbers = [_GUTTER.match(text) for text in texts] if viewed else []
    first = numbers[0] if numbers else None
    counted = first is not None and all(
        number is not None and int(number[1]) == int(first[1]) + at for at, number in enumerate(numbers)
    )
    bare = [_GUTTER.sub("", text) for text in texts] if counted else list(texts)
    bare = [text.rstrip() for text in bare]
    bare = textwrap.dedent("\n".join(bare)).split("\n") if len(bare) > 1 else bare
    bare[:1] = [text.lstrip() for text in bare[:1]]
    return [f"{first[1]}→{bare[0]}", *bare[1:]] if counted and first is not None else bare


def without_numbers(text: str) -> str:
    """`text` of a file as a viewer shows it, without the numbers in front of its lines."""
    return "\n".join(_GUTTER.sub("", line) for line in text.split("\n"))


def _source(role: str, kind: str) -> Source:
    """Whose words a block of this type is in a message of this role."""
    if kind in ("document", "search_result"):
        return "document"
    if kind.endswith("tool_result"):
        return "tool"
    if kind == "compaction" or kind.endswith("tool_use") or role == "assistant":
        return "agent"
    return "user" if role == "user" else "host"


def _texts(role: str, block: Block) -> Iterator[tuple[Part, str]]:
    kind = block["type"]
    if kind == "text" and isinstance(block.get("text"), str):
        yield ("assistant" if role == "assistant" else "user"), block["text"]
    elif kind.endswith("tool_use"):
        yield "call", call_text(block)
    elif kind.endswith("tool_result"):
        yield "result", result_text(block)
    elif kind in ("document", "search_result", "compaction") and (text := readable_text(block)):
        yield ("assistant" if role == "assistant" else "user"), text


def call_text(block: Block) -> str:
    """A call as text: ``Tool key=value key=value`` on one line, longer values below, each exact."""
    return "\n".join(text for _, text in _call_parts(block.get("name", ""), block.get("input")))


def call_parts(name: str, arguments: object) -> tuple[tuple[str, int], ...]:
    """How many lines each part of a call's text takes: first what stands on one line, under the empty name, then the
    longer values by their names."""
    return tuple((key, sum(1 for _ in _starts(text))) for key, text in _call_parts(name, arguments))


def _call_parts(name: object, arguments: object) -> Iterator[tuple[str, str]]:
    if not isinstance(arguments, dict):
        yield "", f"{name} {arguments if arguments is not None else ''}".rstrip()
        return
    inline = [str(name)]
    below: list[tuple[str, str]] = []
    for key, value in arguments.items():
        text = value if isinstance(value, str) else _json(value)
        if "\n" in text:
            below.append((str(key), f"{key}:\n{text}"))
        else:
            inline.append(f"{key}={text}")
    yield "", " ".join(inline)
    yield from below


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def _starts(text: str) -> Iterator[int]:
    """Where in `text` its lines start, pieces of long ones included."""
    start = 0
    for line in text.split("\n"):
        yield start
        cut = 0
        while len(line) - cut > WRAP_CHARACTERS:
            cut = _cut(line, cut)
            yield start + cut
        start += len(line) + 1


def _cut(line: str, start: int) -> int:
    """Where to cut a long line: behind the last sentence of the window, behind its last separator, behind the next one
    if it is near, else at the end of the window."""
    end, half = start + WRAP_CHARACTERS, WRAP_CHARACTERS // 2
    sentences = [match.end() for match in _SENTENCE_END.finditer(line, start + SENTENCE_CHARACTERS, end)]
    if sentences:
        return sentences[-1]
    found = _LAST_BREAK.match(line, start + half + 1, end) or _BREAK.search(line, end, end + half)
    return found.end() if found else end
