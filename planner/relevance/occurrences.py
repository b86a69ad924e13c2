"""Occurrences of every name of a history: in how many lines and turns, how late, and who wrote it.

A longer history adds its new turns to what was counted before, so that planning again reads only these. Judges nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.names import parts_of, specifics_of
from planner.evidence.words import words_of
from planner.reading.lines import Part

__all__ = ["NUMBER", "WORD", "WRITERS", "Occurrences", "Rows", "is_word", "names_of"]

Rows = Sequence[tuple[str, ...]]
"""Names in each line of a turn, each once."""
WRITERS: Sequence[Part] = ("assistant", "call", "user")
"""Parts of a turn that are noted for each name in them, each by a bit of `Occurrences.writers`."""
WORD, NUMBER = 1, 2
_BITS = {part: 1 << at for at, part in enumerate(WRITERS)}


class Columns(NamedTuple):
    """Numbers of each name."""

    lines: array[int]
    """Number of lines with it."""
    turns: array[int]
    last_turns: array[int]
    last_written: array[int]
    """Number of the last turn in which the agent wrote it, or 0."""
    last_offsets: array[int]
    """Characters of the history up to the end of the last line with it."""
    writers: array[int]
    """Bits of the `WRITERS` whose text has it."""
    kinds: array[int]
    """`WORD`, `NUMBER` or 0."""

    @classmethod
    def empty(cls) -> Columns:
        """Return the columns of no names."""
        return cls(*(array(kind) for kind in "IIIIQBB"))

    def grown(self, names: Collection[str]) -> Columns:
        """Return a copy with `names`, which do not occur yet, behind the others."""
        longer = Columns(*(column + array(column.typecode, bytes(len(names) * column.itemsize)) for column in self))
        kinds = (WORD if is_word(name) else NUMBER if name.isdigit() else 0 for name in names)
        return longer._replace(kinds=self.kinds + array("B", kinds))


@dataclass
class Occurrences:
    """Names of the first turns of a history. Never changes once `extended` has returned it."""

    digests: tuple[str, ...] = ()
    """Digests of the turns."""
    rows: dict[str, Rows] = field(default_factory=dict)
    """Names by turn id, including parts of a name that are names of the history themselves."""
    places: dict[str, int] = field(default_factory=dict)
    """Index of each name in the columns."""
    joined: list[str] = field(default_factory=list)
    """Names that have several components."""
    parts: dict[str, list[str]] = field(default_factory=dict)
    """By a name with components that the history names by themselves: the name, then these."""
    columns: Columns = field(default_factory=Columns.empty)
    characters: int = 0
    """Characters of all turns."""

    def extended(self, evidence: Evidence) -> Occurrences:
        """Return the occurrences in all turns of `evidence`; turns that are counted here are not counted again."""
        turns = list(evidence.turns.values())
        digests, known = tuple(turn.turn.digest for turn in turns), len(self.digests)
        if digests[:known] != self.digests:
            return Occurrences().extended(evidence)
        longer = Occurrences(
            digests, {**self.rows}, {**self.places}, [*self.joined], {**self.parts}, self.columns, self.characters
        )
        longer._add(turns[:known], turns[known:])
        return longer

    def _add(self, earlier: Sequence[TurnEvidence], new: Sequence[TurnEvidence]) -> None:
        """Add the turns in `new`; `earlier` ones are read again where a new name is part of one of theirs."""
        same = {name: name for name in self.places}
        self.rows |= {turn.turn.id: _line_names(turn, same) for turn in new}
        every = chain.from_iterable(chain.from_iterable(self.rows[turn.turn.id] for turn in new))
        fresh = {name: None for name in every if name not in self.places}  # in order: a set's differs by process
        self.places.update((name, place) for place, name in enumerate(fresh, len(self.places)))
        self.columns = self.columns.grown(fresh)
        del same  # as large as the names themselves
        gaining = {name for name in self._gain_parts(fresh) if name not in fresh}
        offset = 0
        for turn in earlier if gaining else ():
            rows = self.rows[turn.turn.id]
            if not gaining.isdisjoint(chain.from_iterable(rows)):
                rows = self.rows[turn.turn.id] = self._expanded(rows)
                self._note(turn, [tuple(filter(fresh.__contains__, names)) for names in rows], offset)
            offset += _length(turn)
        for turn in new:
            rows = self.rows[turn.turn.id] = self._expanded(self.rows[turn.turn.id])
            self._note(turn, rows, self.characters)
            self.characters += _length(turn)

    def _gain_parts(self, fresh: Mapping[str, None]) -> list[str]:
        """Return the names that have some of the `fresh` ones as parts."""
        self.joined += [name for name in fresh if not name.isidentifier()]
        gaining = []
        for name in self.joined:
            parts = parts_of(name)
            if not fresh.keys().isdisjoint(parts) and len(known := [part for part in parts if part in self.places]) > 1:
                self.parts[name] = known
                gaining.append(name)
        return gaining

    def _expanded(self, rows: Rows) -> Rows:
        """Return `rows`; each name is followed by those of its parts that the history names by themselves."""
        parts = self.parts
        if parts.keys().isdisjoint(chain.from_iterable(rows)):
            return rows
        return [
            names
            if parts.keys().isdisjoint(names)
            else tuple(dict.fromkeys(chain.from_iterable(parts.get(name, (name,)) for name in names)))
            for names in rows
        ]

    def _note(self, turn: TurnEvidence, rows: Rows, offset: int) -> None:
        """Note the names in `rows` of `turn`, which begins after `offset` characters of the history."""
        number, places = turn.turn.number, self.places
        lines, turns, last_turns, last_written, last_offsets, writers, _ = self.columns
        for text in turn.lines.texts:
            written, bit = text.part in ("assistant", "call"), _BITS.get(text.part, 0)
            for names, end in zip(rows[text.first : text.stop], text.bounds[1:], strict=True):
                for name in names:
                    at = places[name]
                    lines[at] += 1
                    last_offsets[at] = offset + end
                    if last_turns[at] != number:
                        turns[at] += 1
                        last_turns[at] = number
                    if written:
                        last_written[at] = number
                    writers[at] |= bit
            offset += len(text.text)


def _length(turn: TurnEvidence) -> int:
    return sum(len(text.text) for text in turn.lines.texts)


def _line_names(turn: TurnEvidence, same: dict[str, str]) -> Rows:
    """Return the names in each line of `turn`, equal names as the `same` object; none in the middle of long blocks."""
    rows: list[tuple[str, ...]] = [()] * len(turn.lines)
    for text in turn.lines.texts:
        for at in text.read:
            rows[at] = tuple([same.setdefault(name, name) for name in names_of(text.words(at))])
    return rows


def is_word(name: str) -> bool:
    """Return True for a name that is a plain word: ``refund``, ``频率``; not ``toJson`` or ``4711``."""
    return name.isalpha() and name == name.casefold()


def names_of(text: str) -> dict[str, None]:
    """Return the specifics of a line and its words in any script, each once."""
    return dict.fromkeys([*specifics_of(text), *words_of(text)])
