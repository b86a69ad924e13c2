"""Which neighbouring lines a line needs to be understood: those that hold most of what stands around it.

A long line explains itself. Decides nothing about worth.
"""

from __future__ import annotations

from collections.abc import Iterable

from planner.reading.lines import Lines

__all__ = ["Surroundings"]

CONTEXT_CHARACTERS = 60
"""A line is understood by what stands within this distance of it on either side, less a quarter of what it holds
itself: fitted so that the literal exams score as with the distance of each name (`compactor eval --probes`)."""
LEAST_CHARACTERS = 8
"""Less than this of a neighbouring line is no context."""

_REACHES: tuple[tuple[int, ...], ...] = ((1,), (-1,), (-1, 1), (1, 2), (-2, -1), (-1, 1, 2), (-2, -1, 1))
"""Neighbours that may be needed to understand a line, as steps, fewest first."""


_MOST = 255
"""Of a longer line it makes no difference how much longer it is: it explains itself, and nothing is near behind it."""


class Surroundings:
    """How long the lines of a turn are, and where its texts begin: all that it takes to tell what explains what."""

    __slots__ = ("_lengths", "_lines", "filled")

    def __init__(self, lines: Lines) -> None:
        """Of all `lines` of a turn."""
        words = list(lines.words())
        self._lines = lines
        self._lengths = _in_bytes(map(len, words))
        self.filled = _in_bytes(map(len, map(str.strip, words)))
        """The lengths without blanks at either end."""

    def neighbours(self, at: int) -> tuple[int, ...]:
        """Numbers of the lines around line `at` (from 0) that must stand for it to be understood."""
        own = self.filled[at]
        room = CONTEXT_CHARACTERS - own // 4
        if room <= LEAST_CHARACTERS or own >= 2 * room:
            return ()
        part, first, stop = self._lines.span_at(at)
        if part == "call" and at == first:  # the short arguments: each is a text of its own
            return ()
        beside = {**self._beside(range(at - 1, first - 1, -1), at, room), **self._beside(range(at + 1, stop), at, room)}
        around = own + sum(beside.values())
        if 2 * own >= around:
            return ()
        for steps in _REACHES:
            if all(map(beside.__contains__, steps)) and 2 * (own + sum(map(beside.__getitem__, steps))) >= around:
                return tuple([at + 1 + step for step in steps])
        return tuple([at + 1 + step for step in beside])

    def _beside(self, places: range, at: int, room: int) -> dict[int, int]:
        """How many characters each line of `places` has within `room`, by its distance from line `at`."""
        characters: dict[int, int] = {}
        for place in places:
            if room <= LEAST_CHARACTERS:
                break
            characters[place - at] = min(self.filled[place], room)
            room -= self._lengths[place] + 1
        return characters


def _in_bytes(lengths: Iterable[int]) -> bytes:
    """`lengths` in a byte each."""
    return bytes([length if length < _MOST else _MOST for length in lengths])
