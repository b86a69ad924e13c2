"""A curve of numbers as lines of block characters, for a terminal of any width."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["curve_lines"]

BLOCKS = " ▁▂▃▄▅▆▇█"


def curve_lines(values: Sequence[int], width: int, height: int, top: int) -> list[str]:
    """`values` as `height` lines of at most `width` columns, `top` at the upper edge.

    Several values share a column where there are more of them than columns; the column shows their highest.
    """
    columns = _columns(values, width)
    eighths = [min(height * 8, round(value / max(1, top) * height * 8)) for value in columns]
    return [
        "".join(BLOCKS[max(0, min(8, level - 8 * row))] for level in eighths).rstrip()
        for row in reversed(range(height))
    ]


def _columns(values: Sequence[int], width: int) -> list[int]:
    count = min(len(values), width)
    edges = [index * len(values) // count for index in range(count + 1)] if count else [0]
    return [max(values[first:last]) for first, last in pairwise(edges)]
