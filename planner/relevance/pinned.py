"""What stands whatever a planner says, and what stands before anything else where there is space.

Pinned: of each failure the line that says most, what the user demands, and the ends of a demoted live result.
First in line: other words of the user, more lines of failures, the agent's own setbacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from planner.evidence import Evidence, TurnEvidence

__all__ = ["FIRST_IN_LINE_SHARE", "first_in_line", "pinned_lines", "preview_lines"]

FIRST_IN_LINE_SHARE = 0.2
"""What is first in line fills at most this share of the target."""
PREVIEW_LINES = 12
"""A demoted result always shows this many of its first and of its last lines: about the 2,000 characters that other
systems preview (REFERENCE 5)."""


def pinned_lines(turn: TurnEvidence, demoted: bool) -> frozenset[int]:
    """Numbers of the lines of `turn` that stand at any target; `demoted` if its live results give way to previews."""
    return turn.obligations | (preview_lines(turn) if demoted else frozenset())


def preview_lines(turn: TurnEvidence) -> frozenset[int]:
    """Everything but results, and the first and last lines of each result."""
    results = {call.result_block for call in turn.calls}
    shown = {line.number for line in turn.lines if line.block not in results}
    for block in results:
        own = [line.number for line in turn.lines_of(block)]
        shown.update(own[:PREVIEW_LINES] + own[-PREVIEW_LINES:])
    return frozenset(shown)


def first_in_line(evidence: Evidence) -> Iterator[tuple[str, int]]:
    """Turn id and line number of what is first in line, kind by kind, of each kind the newest first."""
    newest_first: Iterable[TurnEvidence] = list(evidence.turns.values())[::-1]
    for of_kind in zip(*(turn.claims for turn in newest_first), strict=True):
        for turn, numbers in zip(newest_first, of_kind, strict=True):
            yield from ((turn.turn.id, number) for number in numbers)
