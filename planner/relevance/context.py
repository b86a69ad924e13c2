"""Which neighbouring lines a line needs to be understood: those that hold most of what stands around it.

A long line explains itself. Decides nothing about worth.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.reading.lines import Line

__all__ = ["neighbours"]

CONTEXT_CHARACTERS = 60
"""A line is understood by what stands within this distance of it on either side, less a quarter of what it holds
itself: fitted so that the literal exams score as with the distance of each name (`compactor eval --probes`)."""
LEAST_CHARACTERS = 8
"""Less than this of a neighbouring line is no context."""

_REACHES: tuple[tuple[int, ...], ...] = ((1,), (-1,), (-1, 1), (1, 2), (-2, -1), (-1, 1, 2), (-2, -1, 1))
"""Neighbours that may be needed to understand a line, as steps, fewest first."""


def neighbours(lines: Sequence[Line], at: int) -> tuple[int, ...]:
    """Numbers of the lines around line `at` (from 0) of a turn that must stand for it to be understood."""
    own = len(lines[at].text.strip())
    room = CONTEXT_CHARACTERS - own // 4
    if room <= LEAST_CHARACTERS or own >= 2 * room or _is_head(lines, at):
        return ()
    beside = {**_beside(lines, at, -1, room), **_beside(lines, at, 1, room)}
    around = own + sum(beside.values())
    if 2 * own >= around:
        return ()
    for steps in _REACHES:
        if all(map(beside.__contains__, steps)) and 2 * (own + sum(map(beside.__getitem__, steps))) >= around:
            return tuple([at + 1 + step for step in steps])
    return tuple([at + 1 + step for step in beside])


def _is_head(lines: Sequence[Line], at: int) -> bool:
    """True for the line of a call that holds its short arguments: each is a text of its own."""
    line = lines[at]
    return line.part == "call" and (at == 0 or lines[at - 1].block != line.block)


def _beside(lines: Sequence[Line], at: int, step: int, room: int) -> dict[int, int]:
    """How many characters each neighbour on one side has within `room`, by steps."""
    characters: dict[int, int] = {}
    block, place = lines[at].block, at + step
    while room > LEAST_CHARACTERS and 0 <= place < len(lines) and lines[place].block == block:
        line = lines[place]
        characters[place - at] = min(len(line.text.strip()), room)
        room -= len(line.text) + 1
        place += step
    return characters
