"""What a search of the agent answers: the best hits in a few lines each, the ids of others, and how to narrow it.

Short by default: a look-up should cost less than what it saves. Reads the results of a search; reads no history itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from planner.reading.lines import Part

__all__ = ["MATCHES_CHARACTERS", "SEARCH_TURNS", "search_answer"]

SEARCH_TURNS, TURN_CHARACTERS = 5, 400
"""So many turns are shown if the agent names no number, with so much of each on average: seven look-ups of a reader
took 2,000 tokens and less."""
MATCHES_CHARACTERS = 3_000
"""Of the lines of one turn that match so much is shown at once."""
ELSEWHERE_TURNS = 2
"""So many are shown where nothing matches as it was filtered, but something would."""
MOST_NAMED = 12
"""Of the turns that are not shown so many are named."""

_HIT = re.compile(r"^\d+: \s*(.*)$", re.MULTILINE)
"""A line that matches, without its number: ``12: return None``; not ``11- near``."""
_NEAR = re.compile(r"^\d+- .*\n?", re.MULTILINE)
"""A line beside one that matches: ``11- near``; not ``12: return None``."""

Hits = tuple[Sequence[tuple[str, str]], int]
"""References with their excerpts, best first, and how many turns match in all."""


def search_answer(
    find: Callable[[Part | None, str | None], Hits], part: Part | None, tool: str | None, limit: int, characters: int
) -> str:
    """The answer to a search: what `find` gives for `part` and `tool`, or, if that is nothing, for neither of them.

    At most `limit` turns in about so many `characters`. Empty if nothing matches.
    """
    hits, turns = find(part, tool)
    if hits or (part is None and tool is None):
        return _shown(hits, turns, min(characters, limit * TURN_CHARACTERS))
    hits, turns = find(None, None)
    asked = " ".join(f"{name}={value}" for name, value in (("part", part), ("tool", tool)) if value is not None)
    elsewhere = _shown(hits, turns, min(characters, ELSEWHERE_TURNS * TURN_CHARACTERS))
    return elsewhere and f"nothing with {asked}; without it:\n{elsewhere}"


def _shown(hits: Sequence[tuple[str, str]], turns: int, room: int) -> str:
    """`hits` within about `room` characters; what does not fit beside the next is shown by its matching lines alone.

    A hit that says the same as one above, a file that was read again, is only named.
    """
    shown: list[str] = []
    named: list[str] = []
    known: set[str] = set()
    for at, (reference, excerpt) in enumerate(hits):
        lines = set(_HIT.findall(excerpt))
        entry = f"{reference}\n{excerpt}"
        if len(entry) > room - (TURN_CHARACTERS // 2 if at + 1 < len(hits) else 0):
            entry = _NEAR.sub("", entry).rstrip("\n")
        if shown and (lines <= known or len(entry) > room):
            named.append(reference)
            continue
        known |= lines
        shown.append(entry if len(entry) <= room else f"{entry[:room]}…")
        room -= len(entry) + 1
    others = turns - len(shown)
    if others:
        names = f" ({', '.join(named[:MOST_NAMED])})" if named else ""
        more = "1 more turn matches" if others == 1 else f"{others} more turns match"
        shown.append(f"… {more}{names}: narrow it by words, part or tool")
    return "\n".join(shown)
