"""What a tier wants changed, as data: it holds no message, so nothing can be sent from it.

Only `applier.session.commit` turns edits into something that is sent, after the originals are stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.plan import CompactionPlan

__all__ = ["Addition", "Edits", "StandIn"]


@dataclass(frozen=True, slots=True)
class StandIn:
    """Text in place of one tool result; a line on how to restore the original is added when it is stored."""

    message: int
    """Index in the history."""
    block: int
    text: str


@dataclass(frozen=True, slots=True)
class Addition:
    """Text behind the content of one user message."""

    message: int
    text: str


@dataclass(frozen=True, slots=True)
class Edits:
    """One tier's answer."""

    reason: str
    """In one line, for the log."""
    plan: CompactionPlan | None = None
    stand_ins: tuple[StandIn, ...] = ()
    additions: tuple[Addition, ...] = ()
    unweighed_from: int | None = None
    """Messages of the history from here on stay by their place, not by what is in them: results that were shortened
    stay so. None: the plan has weighed all but the live tail, so what it keeps comes back whole."""
