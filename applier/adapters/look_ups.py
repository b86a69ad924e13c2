"""What a search of the agent answers: the best hits in a few lines each, the ids of others, and how to narrow it.

Short by default: a look-up should cost less than what it saves. Reads results only; searches nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["MATCHES_CHARACTERS", "SEARCH_TURNS", "search_answer"]

SEARCH_TURNS, TURN_CHARACTERS = 5, 400
"""So many turns are shown if the agent names no number, with so much of each on average: seven look-ups of a reader
took 2,000 tokens and less."""
MATCHES_CHARACTERS = 3_000
"""Of the lines of one turn that match so much is shown at once."""
MOST_NAMED = 12
"""Of the turns that are not shown so many are named."""

_HIT = re.compile(r"^\d+: \s*(?:\d+(?:→|\t))?\s*(.*)$", re.MULTILINE)
"""A line that matches, without its number and the one that a tool put before it: ``12:     40→	return None``; not
``11- near``."""


def search_answer(hits: Sequence[tuple[str, str]], turns: int, limit: int, most_characters: int) -> str:
    """The answer for `hits`, best first: references with their excerpts. `turns` match in all.

    A hit that says the same as one above, a file that was read again, is only named.
    """
    room = min(most_characters, limit * TURN_CHARACTERS)
    shown: list[str] = []
    named: list[str] = []
    known: set[str] = set()
    for reference, excerpt in hits:
        lines = set(_HIT.findall(excerpt))
        entry = f"{reference}\n{excerpt}"
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
