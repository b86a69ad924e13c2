"""What each line of a turn names, as numbers: of a name its identity is held, 64 bits, and never its text.

The names of a history as texts took more room than the history. Decides nothing about their worth.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Literal, overload

from planner.evidence.names import SpecificKind, parts_of, specifics_in
from planner.reading.lines import Lines, small_type

__all__ = ["LineNames", "NameForm", "Rows", "form_of", "line_names"]

NameForm = Literal["other", "rooted", "url", "digits"]
"""How a name is written, as far as its worth depends on it: ``/srv/a``, ``https://a.b``, ``4711``."""
_FORMS: tuple[NameForm, ...] = ("other", "rooted", "url", "digits")
_FORM_OF: Mapping[SpecificKind, int] = {"identifier": 0, "path": 0, "url": 2, "number": 3}
_ROOTED = 1
_FORM_BITS = 3
"""The lowest bits of an identity, which say its form; the others are of the hash of its text. Of 200,000 names, as 2M
tokens hold, two are taken for one in a billionth of cases."""


class Rows(Sequence["array[int]"]):
    """Rows of numbers of different lengths, in two arrays."""

    __slots__ = ("ends", "flat")

    def __init__(self, flat: array[int], ends: array[int]) -> None:
        """All rows, one behind the other, and where each begins in them, and where the last one ends."""
        self.flat, self.ends = flat, ends

    def mapped(self, numbers: Mapping[int, int]) -> Rows:
        """The same rows, each number given by `numbers`."""
        return Rows(array("I", map(numbers.__getitem__, self.flat)), self.ends)

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.ends) - 1

    def __iter__(self) -> Iterator[array[int]]:
        """Each row, a copy."""
        flat = self.flat
        return (flat[start:stop] for start, stop in pairwise(self.ends))

    @overload
    def __getitem__(self, at: int) -> array[int]: ...
    @overload
    def __getitem__(self, at: slice) -> list[array[int]]: ...
    def __getitem__(self, at: int | slice) -> array[int] | list[array[int]]:
        """Row `at`, from 0, a copy."""
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        return self.flat[self.ends[at] : self.ends[at + 1]]

    def __eq__(self, other: object) -> bool:
        """True for the same rows."""
        return (self.flat, self.ends) == (other.flat, other.ends) if isinstance(other, Rows) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class LineNames:
    """The names of one turn, by their identities."""

    lines: Rows
    """What each line names, each name once."""
    joined: array[int]
    """The names that have parts, each once."""
    parts: Rows
    """The parts of each of these that may be names by themselves."""


def line_names(lines: Lines) -> LineNames:
    """What the `lines` of a turn name; the middle of blocks that are too long to read names nothing."""
    flat: list[int] = []
    widths = [0] * len(lines)
    joined: dict[int, list[int]] = {}
    for _, text, first, starts, end in lines.spans_to_read():
        index, behind = first, iter((*starts[1:], end + 1))
        stop = next(behind)
        row: dict[int, None] = {}
        for place, name, kind in specifics_in(text, starts[0], end):
            if place >= stop:
                flat += row
                widths[index] = len(row)
                row = {}
                while place >= stop:
                    index += 1
                    stop = next(behind)
            identity = _identity(name, _FORM_OF[kind])
            row[identity] = None
            if kind != "number" and identity not in joined and not name.isidentifier():
                joined[identity] = _parts(name)
        flat += row
        widths[index] = len(row)
    parts = {name: row for name, row in joined.items() if row}
    if not parts:
        return LineNames(_rows(flat, widths), _NONE_JOINED, _NO_PARTS)
    of_parts = _rows(chain.from_iterable(parts.values()), map(len, parts.values()))
    return LineNames(_rows(flat, widths), array("q", parts), of_parts)


def _rows(flat: Iterable[int], widths: Iterable[int]) -> Rows:
    numbers = array("q", flat)
    return Rows(numbers, array(small_type(len(numbers)), accumulate(widths, initial=0)))


_NONE_JOINED, _NO_PARTS = array("q"), _rows((), ())
"""Those of most turns."""


def form_of(identity: int) -> NameForm:
    """How the name with this identity is written."""
    return _FORMS[identity & _FORM_BITS]


def _identity(name: str, form: int) -> int:
    return hash(name) & ~_FORM_BITS | (form if name[0] != "/" else _ROOTED)


def _parts(name: str) -> list[int]:
    """The identities of its parts but those that are words which a dictionary may hold: they are no names."""
    parts = [part for part in parts_of(name)[1:] if not (part.isalpha() and part.isascii() and part.islower())]
    return [_identity(part, _form(part)) for part in parts]


def _form(part: str) -> int:
    if part.isdigit():
        return _FORM_OF["number"]
    return _FORM_OF["url"] if part.startswith(("https://", "http://")) else _FORM_OF["identifier"]
