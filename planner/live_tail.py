"""Shortens the live tail, the unanswered turns at the end, if it would fill the context window: previews then show the
beginning and the end of each of its long results and texts."""

from __future__ import annotations

from planner.analysis import Analysis
from planner.evidence import TurnEvidence

PREVIEW_LINES = 12
"""Number of lines that a preview shows at the beginning, and again at the end: about 2,000 characters."""
PREVIEW_SHARE = 0.25
"""Largest share of the context window for all previews together; they show fewer lines until they fit."""


def previews(analysis: Analysis, demoted: frozenset[str], window_tokens: int) -> dict[str, frozenset[int]]:
    """Return by turn id the numbers of the lines that previews show of the `demoted` turns, which are unanswered but
    too large for the window. The previews show at most `PREVIEW_LINES` at either end of each long part. They show fewer
    lines if all previews together would exceed `PREVIEW_SHARE` of the window."""
    turns = [analysis.evidence.turns[turn_id] for turn_id in demoted]
    room = PREVIEW_SHARE * window_tokens / analysis.counter.scale
    for most in range(PREVIEW_LINES, -1, -1):
        shown = {turn.turn.id: _preview(turn, most) for turn in turns}
        if sum(turn.tokens_of(shown[turn.turn.id]) for turn in turns) <= room:
            break
    return shown


def _preview(turn: TurnEvidence, most: int) -> frozenset[int]:
    """Return the numbers of the lines in the preview of `turn`: the first and last `most` lines of each tool result and
    each text of the user (of the latter at least one at either end), and all other lines of the turn."""
    most = max(most, 1 if turn.turn.kind == "user" else 0)
    long_blocks = {call.result_block for call in turn.calls}
    long_blocks |= {text.block for text in turn.lines.texts if text.part == "user" and text.source != "document"}
    shown = {line.number for line in turn.lines.outside(long_blocks)}
    for lines in map(turn.lines.of_block, long_blocks):
        shown.update(line.number for line in (*lines[:most], *lines[::-1][:most]))
    return frozenset(shown)
