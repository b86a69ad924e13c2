"""Evidence of every turn of a history, gathered once and shared by planners, fit and guards."""

from __future__ import annotations

from dataclasses import dataclass

from planner.history import History, Turn
from planner.lines import Line, turn_lines
from planner.tokens import TokenCounter

__all__ = ["Evidence", "TurnEvidence", "gather_evidence"]


@dataclass(frozen=True)
class TurnEvidence:
    """What one turn holds."""

    turn: Turn
    lines: tuple[Line, ...]
    tokens: int
    """Of the whole turn, as it stands in the history."""
    head: str
    """The turn in one line: its calls with their principal arguments, or who speaks."""
    failure_lines: tuple[int, ...]
    """Numbers of the lines that show that something failed here; empty when nothing did."""
    constraint_lines: tuple[int, ...]
    """Numbers of the lines with words of the user that bind the agent; whoever's message carries them."""
    superseded_by: str
    """The later turn that made this one outdated (the same file read or written again), or empty."""

    @property
    def failed(self) -> bool:
        """True if this turn is a failed approach."""
        return bool(self.failure_lines)


@dataclass(frozen=True)
class Evidence:
    """Evidence of all turns, by turn id, in order."""

    turns: dict[str, TurnEvidence]

    @property
    def tokens(self) -> int:
        """Of the whole history."""
        return sum(turn.tokens for turn in self.turns.values())


def gather_evidence(history: History, counter: TokenCounter) -> Evidence:
    """The evidence of `history`, deterministic, without a model."""
    return Evidence({turn.id: _turn_evidence(history, turn, counter) for turn in history.turns})


def _turn_evidence(history: History, turn: Turn, counter: TokenCounter) -> TurnEvidence:
    tokens = counter.messages(history.messages_of(turn))
    return TurnEvidence(turn, turn_lines(history, turn), tokens, turn.kind, (), (), "")
