"""What is shown of a result that is not sent whole: its ends, and what no stand-in may lose.

Lines that show a failure and words of the user stay verbatim in every preset. Decides nothing about size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from applier.session.ledger import Ledger, Result
from planner.evidence.calls import calls_of
from planner.evidence.failures import failures_of
from planner.evidence.sources import attributed
from planner.evidence.user_words import constraints_of
from planner.reading.lines import Line, statements, turn_lines
from planner.reading.messages import blocks

__all__ = ["ends_of", "obligations_of"]

Lines = Sequence[Line]


def ends_of(ledger: Ledger, result: Result, head_characters: int, tail_characters: int) -> str:
    """The first and last lines of a result up to so many characters, and everything that must stay."""
    lines, bound = _lines(ledger, result)
    head = _taken(lines, head_characters)
    tail = _taken(lines[::-1], tail_characters)
    return _joined(lines, head | tail | bound)


def obligations_of(ledger: Ledger, result: Result) -> str:
    """Only what must stay of a result; mostly nothing."""
    lines, bound = _lines(ledger, result)
    return _joined(lines, bound)


def _lines(ledger: Ledger, result: Result) -> tuple[Lines, set[int]]:
    """The lines of a result, and the numbers of those that must stay."""
    history = ledger.history
    turn = history.by_id[ledger.turn_id(result.message)]
    before = sum(len(blocks(message)) for message in history.messages[turn.start : result.message])
    calls = calls_of(history, turn)
    lines = attributed(turn_lines(history, turn), calls)
    read = tuple(statements(lines))
    bound = {*failures_of(read, calls).lines, *constraints_of(read).lines}
    own = [line for line in lines if line.block == before + result.block]
    return own, bound & {line.number for line in own}


def _taken(lines: Iterable[Line], characters: int) -> set[int]:
    taken: set[int] = set()
    for line in lines:
        characters -= len(line.text) + 1
        if characters < 0:
            break
        taken.add(line.number)
    return taken


def _joined(lines: Lines, numbers: set[int]) -> str:
    """The chosen lines; ``…`` where lines are left out."""
    parts: list[str] = []
    before = None
    for line in lines:
        if line.number not in numbers:
            continue
        follows = before is not None and line.number == before + 1
        if parts and not (follows and line.continues):
            parts.append("\n" if follows else "\n…\n")
        parts.append(line.text)
        before = line.number
    return "".join(parts)
