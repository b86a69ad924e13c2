"""Which neighbouring lines a line needs to be understood: those that hold most of what stands around it.

A long line explains itself. Decides nothing about worth.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from operator import itemgetter

from planner.reading.lines import Lines

__all__ = ["Surroundings"]

CONTEXT_CHARACTERS = 60
"""A line is understood by what stands within this distance of it on either side, less a quarter of what it holds
itself: fitted so that the literal exams score as with the distance of each name (`compactor eval --probes`)."""
LEAST_CHARACTERS = 8
"""Less than this of a neighbouring line is no context."""

_REACHES: tuple[tuple[int, ...], ...] = ((1,), (-1,), (-1, 1), (1, 2), (-2, -1), (-1, 1, 2), (-2, -1, 1))
"""Neighbours that may be needed to understand a line, as steps, fewest first."""


_FIRST = itemgetter(1)


class Surroundings:
    """How long the lines of a turn are, and where its texts begin: all that it takes to tell what explains what."""

    def __init__(self, lines: Lines) -> None:
        """Of all `lines` of a turn, which are not kept."""
        words = list(lines.words())
        self._lengths = array("H", map(len, words))
        self.filled = array("H", map(len, map(str.strip, words)))
        """The lengths without blanks at either end."""
        self._spans = tuple(lines.spans())

    def neighbours(self, at: int) -> tuple[int, ...]:
        """Numbers of the lines around line `at` (from 0) that must stand for it to be understood."""
        own = self.filled[at]
        room = CONTEXT_CHARACTERS - own // 4
        if room <= LEAST_CHARACTERS or own >= 2 * room:
            return ()
        part, first, stop = self._spans[bisect_right(self._spans, at, key=_FIRST) - 1]
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
