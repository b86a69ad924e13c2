"""Parts of a turn's text: all of it, a range of its lines, or the lines that match a search."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import regex

from applier.store.protocol import Match
from planner.errors import ReferenceNotFound, StoreError
from planner.reading.history import History, Turn, read_history
from planner.reading.lines import Line, join_lines, turn_lines
from planner.reading.messages import Message

__all__ = ["find_matches", "lines_of", "matching_lines", "numbered", "range_of"]

CONTEXT_LINES = 2
SEARCH_SECONDS = 1.0
"""The longest one pattern may work on one turn: a pattern can be written so that it never ends."""


def lines_of(messages: Sequence[Message]) -> tuple[Line, ...]:
    """The lines of the turn that `messages` are."""
    return turn_lines(read_history(messages), Turn("t1", 0, len(messages), "other", "", False))


def range_of(lines: Sequence[Line], wanted: tuple[int, int], reference: str) -> Sequence[Line]:
    """The lines numbered `wanted`, first and last included, as far as there are any.

    Raises:
        ReferenceNotFound: there is none.
    """
    first, last = wanted
    found = lines[max(first, 1) - 1 : max(last, 0)]
    if not found:
        there = f"1 to {len(lines)}" if lines else "none"
        raise ReferenceNotFound(f"{reference}: no lines {first} to {last}; its lines: {there}")
    return found


def matching_lines(lines: Sequence[Line], search: str) -> tuple[int, ...]:
    """Numbers of the lines that hold the text `search`, or if none does, that match it as a pattern.

    Case does not count. A match may span lines.

    Raises:
        StoreError: the pattern takes too long.
    """
    return next(filter(None, (_hits(lines, pattern) for pattern in _patterns(search))), ())


def _patterns(search: str) -> tuple[str, ...]:
    return (regex.escape(search), search) if search else ()


def _hits(lines: Sequence[Line], pattern: str) -> tuple[int, ...]:
    starts: list[int] = []
    end = 0
    for line in lines:
        starts.append(end + bool(starts and not line.continues))
        end = starts[-1] + len(line.text)
    found: set[int] = set()
    for first, last in _spans(join_lines(lines), pattern):
        found.update(range(bisect_right(starts, first) - 1, bisect_right(starts, last - 1)))
    return tuple(lines[index].number for index in sorted(found))


def _spans(text: str, pattern: str) -> Iterator[tuple[int, int]]:
    """Start and end of each match that is not empty."""
    try:
        compiled = regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
        for match in compiled.finditer(text, timeout=SEARCH_SECONDS):
            if match.end() > match.start():
                yield match.span()
    except regex.error:
        return  # plain words that are no pattern either
    except TimeoutError:
        raise StoreError(f"search {pattern!r}: the pattern takes too long; use a simpler one") from None


def numbered(lines: Sequence[Line], hits: Sequence[int]) -> str:
    """The lines `hits` as ``12: text``, those around them as ``11- text``, a gap as ``…``."""
    wanted = set(hits)
    near = {number + step for number in wanted for step in range(-CONTEXT_LINES, CONTEXT_LINES + 1)}
    shown: list[str] = []
    before = 0
    for line in lines:
        if line.number in near:
            if shown and line.number > before + 1:
                shown.append("…")
            shown.append(f"{line.number}{':' if line.number in wanted else '-'} {line.text}")
            before = line.number
    return "\n".join(shown)


def find_matches(history: History, search: str) -> list[Match]:
    """The turns of `history` that hold `search`, or if none does, that match it as a pattern."""
    lines = {turn.id: turn_lines(history, turn) for turn in history.turns}
    for pattern in _patterns(search):
        hits = {turn_id: _hits(of_turn, pattern) for turn_id, of_turn in lines.items()}
        found = [Match(turn_id, hit, numbered(lines[turn_id], hit)) for turn_id, hit in hits.items() if hit]
        if found:
            return found
    return []
