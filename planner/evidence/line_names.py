"""What each line of a turn names, as numbers: of a name its identity is held, 64 bits, and never its text.

The names of a history as texts took more room than the history. Decides nothing about their worth.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, overload

from planner.evidence.names import parts_of, specifics_of
from planner.reading.lines import Line

__all__ = ["LineNames", "NameForm", "Rows", "form_of", "line_names"]

NameForm = Literal["other", "rooted", "url", "digits"]
"""How a name is written, as far as its worth depends on it: ``/srv/a``, ``https://a.b``, ``4711``."""
_FORMS: tuple[NameForm, ...] = ("other", "rooted", "url", "digits")
_FORM_BITS = 3
"""The lowest bits of an identity, which say its form; the others are of the hash of its text."""


class Rows(Sequence["array[int]"]):
    """Rows of numbers of different lengths, in two arrays."""

    __slots__ = ("ends", "flat")

    def __init__(self, kind: Literal["I", "q"]) -> None:
        """No row yet; `kind` is the typecode of the numbers."""
        self.flat: array[int] = array(kind)
        """All rows, one behind the other."""
        self.ends = array("I", [0])
        """Where each row begins in `flat`, and where the last one ends."""

    def append(self, row: Iterable[int]) -> None:
        """Put `row` behind the last one."""
        self.flat.extend(row)
        self.ends.append(len(self.flat))

    def mapped(self, numbers: Mapping[int, int]) -> Rows:
        """The same rows, each number given by `numbers`."""
        rows = Rows("I")
        rows.flat.extend(map(numbers.__getitem__, self.flat))
        rows.ends = self.ends
        return rows

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


def line_names(read: Iterable[Line], count: int) -> LineNames:
    """What the `read` lines of a turn name, in their order; the others, of `count` in all, name nothing."""
    found: dict[str, list[int]] = {}
    joined: dict[int, list[int]] = {}
    lines = Rows("q")
    for line in read:
        own = found.get(line.text)
        if own is None:
            own = found[line.text] = []
            for name in specifics_of(line.text):
                identity = _identity(name)
                own.append(identity)
                if not name.isidentifier() and identity not in joined:
                    joined[identity] = [_identity(part) for part in parts_of(name)[1:] if not _is_word(part)]
        while len(lines) < line.number - 1:
            lines.append(())
        lines.append(own)
    while len(lines) < count:
        lines.append(())
    parts = Rows("q")
    for row in joined.values():
        if row:
            parts.append(row)
    return LineNames(lines, array("q", [name for name, row in joined.items() if row]), parts)


def form_of(identity: int) -> NameForm:
    """How the name with this identity is written."""
    return _FORMS[identity & _FORM_BITS]


def _identity(name: str) -> int:
    """The same for the same name; of 2M tokens with 200,000 names two are taken for one in a billionth of cases."""
    form: NameForm = "other"
    if name[0] == "/":
        form = "rooted"
    elif name.startswith(("https://", "http://")):
        form = "url"
    elif name.isdigit():
        form = "digits"
    return hash(name) & ~_FORM_BITS | _FORMS.index(form)


def _is_word(part: str) -> bool:
    """True for what a dictionary may hold, which is no name by itself."""
    return part.isascii() and part.isalpha() and part.islower()
