"""What stands whatever a planner says: of each failure the line that says most, what the user demands, and the ends of
a demoted live result."""

from __future__ import annotations

from planner.evidence import TurnEvidence

__all__ = ["pinned_lines", "preview_lines"]

PREVIEW_LINES = 12
"""A demoted result always shows this many of its first and of its last lines: about the 2,000 characters that other
systems preview (REFERENCE 5)."""


def pinned_lines(turn: TurnEvidence, demoted: bool) -> frozenset[int]:
    """Numbers of the lines of `turn` that stand at any target; `demoted` if its live results give way to previews."""
    return turn.obligations | preview_lines(turn) if demoted else turn.obligations


def preview_lines(turn: TurnEvidence) -> frozenset[int]:
    """Everything but results, and the first and last lines of each result."""
    results = {call.result_block for call in turn.calls}
    shown = {line.number for line in turn.lines if line.block not in results}
    for block in results:
        own = [line.number for line in turn.lines_of(block)]
        shown.update(own[:PREVIEW_LINES] + own[-PREVIEW_LINES:])
    return frozenset(shown)
