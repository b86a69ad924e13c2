"""Turns of a history that the API would refuse as they stand: a plan leaves them alone, so it makes nothing worse."""

from __future__ import annotations

import re

from planner.reading.history import History
from planner.validity import check_messages

__all__ = ["broken_turns"]

_INDEX = re.compile(r"messages\[(\d+)\]")
_STRUCTURE = frozenset(range(1, 10))
"""The rules of pairing and ids; what else is wrong with a message does not grow by cutting around it."""


def broken_turns(history: History) -> dict[str, str]:
    """What is wrong with each turn that breaks a rule of pairing, by turn id; the live tail may wait for results."""
    found: dict[str, str] = {}
    last = history.turns[-1] if history.turns else None
    for violation in check_messages(history.messages):
        at = _INDEX.match(violation.place)
        if at is None or violation.rule not in _STRUCTURE or not violation.refused:
            continue
        turn = next(turn for turn in history.turns if turn.start <= int(at[1]) < turn.stop)
        if turn is not last:
            found.setdefault(turn.id, f"{violation.place}: {violation.problem}")
    return found
