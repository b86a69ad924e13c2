"""What one answer may speak of: the turns of its piece, their lines, and what stands in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from planner.evidence import TurnEvidence
from planner.evidence.grounding import invented
from planner.model.entries import Range
from planner.reading.lines import join_lines

__all__ = ["Scope", "spans"]


@dataclass(frozen=True)
class Scope:
    """The turns of one piece, in order."""

    turns: Sequence[TurnEvidence]

    @cached_property
    def by_number(self) -> dict[int, TurnEvidence]:
        """Turns by number."""
        return {turn.turn.number: turn for turn in self.turns}

    @cached_property
    def to_plan(self) -> frozenset[int]:
        """Numbers of the turns an answer must cover: all but the live tail, which stays whatever it says."""
        return frozenset(number for number, turn in self.by_number.items() if not turn.turn.live)

    @property
    def name(self) -> str:
        """The turns, as ``t1-t50``."""
        return spans(self.by_number)

    def text(self, number: int) -> str:
        """All text of turn `number`."""
        return join_lines(self.by_number[number].lines)

    def words(self, number: int, lines: Sequence[Range]) -> str:
        """The exact text of `lines` of turn `number`."""
        held = self.by_number[number].lines
        return "\n".join(join_lines(held[first - 1 : last]) for first, last in lines)

    def invented(self, text: str, number: int) -> list[str]:
        """Specifics of `text` that turn `number` does not hold."""
        return invented(text, self.by_number[number].names)


def spans(numbers: Iterable[int]) -> str:
    """Turn numbers as ``t1-t3, t7``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"t{first}" if first == last else f"t{first}-t{last}" for first, last in runs)
