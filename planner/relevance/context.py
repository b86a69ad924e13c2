"""Which neighbouring lines a name needs to be understood: those that hold the words around it.

Decides nothing about worth. The words of a line are found once, however many names stand around them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from planner.reading.lines import Line

__all__ = ["Surroundings"]

CONTEXT_CHARACTERS = 60
"""A name is understood by the words within this distance on either side."""
LEAST_CHARACTERS = 8
"""Less than this of a neighbouring line is no context."""
WORD_CHARACTERS = 3
"""Shorter words say little."""

_WORDS = re.compile(rf"[^\W\d_]{{{WORD_CHARACTERS},}}")
"""Words of three letters and more: `the retry`, but not `id` or `x2`."""
_REACHES: tuple[tuple[int, ...], ...] = ((1,), (-1,), (-1, 1), (1, 2), (-2, -1), (-1, 1, 2), (-2, -1, 1))
"""Neighbours that may be needed to understand a name, fewest first."""


class Surroundings:
    """The words of the lines of one turn, read as far as they are asked for."""

    def __init__(self, lines: Sequence[Line]) -> None:
        """Of the `lines` of a turn, all of them."""
        self._lines = lines
        self._words: dict[int, tuple[list[int], list[int]]] = {}

    def steps(self, at: int, start: int, stop: int) -> tuple[int, ...]:
        """Which neighbours of line `at` (from 0) hold the words around its characters `start` to `stop`, as steps."""
        length = len(self._lines[at].text)
        first, last = max(0, start - CONTEXT_CHARACTERS), min(length, stop + CONTEXT_CHARACTERS)
        before, after = CONTEXT_CHARACTERS - (start - first), CONTEXT_CHARACTERS - (last - stop)
        if (before <= LEAST_CHARACTERS and after <= LEAST_CHARACTERS) or self._is_head(at):
            return ()
        own = self._count(at, first, start) + self._count(at, stop, last)
        # The most words that so many characters hold, each with a blank behind it.
        if own >= (before + 1) // (WORD_CHARACTERS + 1) + (after + 1) // (WORD_CHARACTERS + 1):
            return ()
        beside = self._beside(at, -1, before)
        beside.update(self._beside(at, 1, after))
        around = own + sum(beside.values())
        if 2 * own >= around:
            return ()
        for steps in _REACHES:
            if all(step in beside for step in steps) and 2 * (own + sum(beside[step] for step in steps)) >= around:
                return steps
        return tuple(beside)

    def _is_head(self, at: int) -> bool:
        """True for the line of a call that holds its short arguments: each is a text of its own."""
        line = self._lines[at]
        return line.part == "call" and (at == 0 or self._lines[at - 1].block != line.block)

    def _beside(self, at: int, step: int, characters: int) -> dict[int, int]:
        """How many words each neighbour on one side has within so many characters, by steps."""
        words: dict[int, int] = {}
        lines, block, place = self._lines, self._lines[at].block, at + step
        while characters > LEAST_CHARACTERS and 0 <= place < len(lines) and lines[place].block == block:
            length = len(lines[place].text)
            first, last = (0, min(characters, length)) if step > 0 else (max(0, length - characters), length)
            words[place - at] = self._count(place, first, last)
            characters -= length + 1
            place += step
        return words

    def _count(self, at: int, first: int, last: int) -> int:
        """How many words stand in characters `first` to `last` of line `at`, cut ones as far as they reach in."""
        if last - first < WORD_CHARACTERS:
            return 0
        known = self._words.get(at)
        if known is None:
            spans = [match.span() for match in _WORDS.finditer(self._lines[at].text)]
            known = self._words[at] = (
                [start + WORD_CHARACTERS for start, _ in spans],
                [stop - WORD_CHARACTERS for _, stop in spans],
            )
        return bisect_right(known[0], last) - bisect_left(known[1], first)
