"""One statement about a history with its turns, and what those that make some share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.evidence.calls import Call
from planner.evidence.gather import Evidence, TurnEvidence
from planner.evidence.outcomes import Outcome

__all__ = ["LINE_CHARACTERS", "Said", "ended_calls", "shortened"]

LINE_CHARACTERS = 300
"""Of one line so much."""


@dataclass(frozen=True, slots=True)
class Said:
    """One statement and the ids of the turns it rests on."""

    text: str
    turn_ids: tuple[str, ...]


def ended_calls(evidence: Evidence) -> Iterator[tuple[TurnEvidence, Call, Outcome]]:
    """Every call with its turn and how it ended, in the order of the history."""
    for turn in evidence.turns.values():
        for call, outcome in zip(turn.calls, turn.outcomes, strict=True):
            yield turn, call, outcome


def shortened(text: str, most: int = LINE_CHARACTERS) -> str:
    """`text` in one line of so many characters; a cut is marked, and made between words where there are several."""
    text = " ".join(text.split())
    return text if len(text) <= most else (text[:most].rpartition(" ")[0] or text[: most - 1]) + "…"
