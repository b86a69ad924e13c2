"""The header line of each card, so short that the headers of any history fit their share of the budget."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from planner.evidence import TurnEvidence
from planner.model.untrusted import one_line

__all__ = ["Group", "card_headers"]

Group = tuple[Sequence[TurnEvidence], str]
"""Neighbouring turns that share a card (mostly one turn), and the card's header."""

HEAD_CHARACTERS = (160, 80, 40, 16, 0)
"""How long a turn's head may be: the first length at which all headers fit."""

_CHANGE_DIRECTORY = re.compile(r"^cd \S+ (?:&&|;) ")


def card_headers(turns: Sequence[TurnEvidence], cost: Callable[[str], int], limit: int) -> list[Group]:
    """A header for every turn, together at most `limit` raw tokens as `cost` counts them.

    First heads are cut shorter; then neighbouring small turns share one card, twice as many each time.
    """
    for characters in HEAD_CHARACTERS:
        groups: list[Group] = [([turn], _header(turn, characters)) for turn in turns]
        if _fits(groups, cost, limit):
            return groups
    run = 2
    while run < 2 * len(turns):
        groups = [(group, _run_header(group)) for group in _runs(turns, run)]
        if _fits(groups, cost, limit):
            return groups
        run *= 2
    return groups


def _fits(groups: Sequence[Group], cost: Callable[[str], int], limit: int) -> bool:
    return sum(cost(header) + 1 for _, header in groups) <= limit


def _header(turn: TurnEvidence, characters: int) -> str:
    parts = [f"## {turn.turn.id}", f"{turn.tokens} tokens", f"{len(turn.lines)} lines"]
    if characters:
        parts.append(one_line(_head(turn, characters), characters))
    parts += _flags(turn)
    return " · ".join(part for part in parts if part)


def _head(turn: TurnEvidence, characters: int) -> str:
    """The turn's calls with their subjects, the same call once; or who speaks."""
    heads = [f"{call.name} {_clipped(call.subject, characters // 2)}".strip() for call in turn.calls]
    counted = Counter(heads)
    return "; ".join(f"{head} ×{n}" if n > 1 else head for head, n in counted.items()) or turn.head


def _clipped(subject: str, most: int) -> str:
    """`subject` within `most` characters: of a path its end says most, of anything else its beginning."""
    line = _CHANGE_DIRECTORY.sub("", one_line(subject, len(subject) + 1))
    if len(line) <= most:
        return line
    return f"…{line[1 - most :]}" if "/" in line and " " not in line else f"{line[: most - 1]}…"


def _flags(turn: TurnEvidence) -> list[str]:
    flags = ["FAILED"] if turn.failed else []
    if turn.superseded_by:
        flags.append(f"outdated by {turn.superseded_by}")
    if turn.turn.live:
        flags.append("LIVE")
    return flags


def _run_header(group: Sequence[TurnEvidence]) -> str:
    if len(group) == 1:
        return _header(group[0], HEAD_CHARACTERS[-1])
    size = sum(turn.tokens for turn in group)
    return f"## {group[0].turn.id}-{group[-1].turn.id} · {len(group)} turns · {size} tokens"


def _runs(turns: Sequence[TurnEvidence], most: int) -> Iterator[Sequence[TurnEvidence]]:
    """Runs of at most `most` neighbours; a turn that must be seen stands alone."""
    run: list[TurnEvidence] = []
    for turn in turns:
        alone = turn.failed or bool(turn.constraint_lines) or turn.turn.live
        if run and (alone or len(run) == most):
            yield run
            run = []
        run.append(turn)
        if alone:
            yield run
            run = []
    if run:
        yield run
