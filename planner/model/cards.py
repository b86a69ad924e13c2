"""Turn cards: what the planner model sees of each turn, within a token budget for all of them.

A card is a header line (id, size, what was called, hints) and lines of the turn under their own numbers, so that
the model can answer by pointing. Decides nothing about what survives.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.calls import Call
from planner.evidence.changes import edit_sides
from planner.model.prompts import one_line, safe_text
from planner.model.shown import card_text, choose_lines
from planner.placeholders import ranges_of
from planner.proposal import PlanRequest
from planner.reading.lines import Line

__all__ = ["Card", "turn_cards", "turn_head"]

HEADERS_SHARE = 0.4
"""The most of the budget that may go to headers."""
HEAD_CHARACTERS = (240, 120, 60, 30, 0)
"""How long a turn's head may be: the first length at which all headers fit."""

_CHANGE_DIRECTORY = re.compile(r"^cd \S+ (?:&&|;) ")


@dataclass(frozen=True)
class Card:
    """One turn as the planner model sees it, or a run of small turns behind one header."""

    turns: Sequence[TurnEvidence]
    header: str
    lines: tuple[Line, ...]
    text: str
    """The header, and the lines below it."""
    tokens: int


def turn_cards(request: PlanRequest, turns: Sequence[TurnEvidence], budget_tokens: int) -> tuple[Card, ...]:
    """A card for every one of `turns`, in order, together within `budget_tokens`; the same every time."""
    counter = request.counter
    budget = int(budget_tokens / counter.scale)
    shorten = request.evidence.shown
    groups = _headers(turns, shorten, counter.raw, int(budget * HEADERS_SHARE))
    left = budget - sum(counter.raw(header) + 1 for _, header in groups)
    alone = {group[0].turn.id: group[0] for group, _ in groups if len(group) == 1}
    said = {group[0].turn.id: _said(group[0], header, shorten) for group, header in groups}
    most_per_turn = int(request.settings.piece_tokens / counter.scale / 2)
    shown = choose_lines(request, list(alone.values()), max(0, left), most_per_turn, said)
    cards = []
    for group, header in groups:
        lines = shown.get(group[0].turn.id, ()) if len(group) == 1 else ()
        text = _text(request.evidence, group[0], header, lines)
        cards.append(Card(group, header, lines, text, math.ceil(counter.raw(text) * counter.scale)))
    return tuple(cards)


def _text(evidence: Evidence, turn: TurnEvidence, header: str, lines: Sequence[Line]) -> str:
    marks = _marks(turn)
    shown = (f"{line.number}{marks[line.number]} {safe_text(card_text(line, evidence))}" for line in lines)
    return "\n".join([header, *shown])


def _marks(turn: TurnEvidence) -> Mapping[int, str]:
    """What kind of line each is; the prompt explains the marks."""
    marks = {line.number: ":" if line.source == "planner" else _PART_MARKS[line.part] for line in turn.lines}
    for place, call in enumerate(turn.calls, 1):
        marks |= edit_sides(call, turn.lines_of(call.block))
        if len(turn.calls) > 1:
            marks |= {line.number: f"|{place}" for line in turn.lines_of(call.result_block)}
    marks |= {number: "!" for number in turn.failure_lines if marks[number][0] in "|>"}
    return marks | {line.number: '"' for line in turn.user_lines}


_PART_MARKS = {"user": "|", "assistant": ":", "call": ">", "result": "|"}

_Group = tuple[Sequence[TurnEvidence], str]
"""Neighbouring turns that share a card (mostly one turn), and the card's header."""


def _said(turn: TurnEvidence, header: str, shorten: Callable[[str], str]) -> frozenset[int]:
    """Numbers of the lines of calls that `header` repeats: their subject stands there in full, and is all they say."""
    first = {call.block: turn.lines_of(call.block)[:1] for call in turn.calls}
    return frozenset(
        line.number
        for call in turn.calls
        for line in first[call.block]
        if one_line(shorten(call.subject), len(call.subject) + 1) in header
        and not [key for key, value in call.input.items() if key != _RETELLS and not _is_below(value, call)]
    )


_RETELLS = "description"
"""An argument that retells the subject."""


def _is_below(value: object, call: Call) -> bool:
    """True if the header has `value` of `call`, or it takes lines of its own below the first."""
    return value == call.subject or (isinstance(value, str) and "\n" in value)


def _headers(
    turns: Sequence[TurnEvidence], shorten: Callable[[str], str], cost: Callable[[str], int], limit: int
) -> list[_Group]:
    """A header for every turn, together at most `limit` raw tokens as `cost` counts them.

    First heads are cut shorter; then neighbouring small turns share one card, twice as many each time.
    """
    groups: list[_Group] = []
    for characters in HEAD_CHARACTERS:
        groups = [([turn], _header(turn, characters, shorten)) for turn in turns]
        if _fits(groups, cost, limit):
            return groups
    run = 2
    while run < 2 * len(turns):
        groups = [(group, _run_header(group)) for group in _runs(turns, run)]
        if _fits(groups, cost, limit):
            return groups
        run *= 2
    return groups


def _fits(groups: Sequence[_Group], cost: Callable[[str], int], limit: int) -> bool:
    return sum(cost(header) + 1 for _, header in groups) <= limit


def _header(turn: TurnEvidence, characters: int, shorten: Callable[[str], str]) -> str:
    parts = [f"## {turn.turn.id}", f"{turn.tokens}/{len(turn.lines)}"]
    if characters:
        parts.append(turn_head(turn, characters, shorten))
    parts += _hints(turn)
    return " · ".join(part for part in parts if part)


def turn_head(turn: TurnEvidence, characters: int, shorten: Callable[[str], str]) -> str:
    """The turn's calls with their subjects, the same call once; or who speaks; on one line of `characters`.

    `shorten` leaves out the folder that most paths are in.
    """
    heads = [f"{call.name} {_clipped(shorten(call.subject), characters // 2)}".strip() for call in turn.calls]
    counted = Counter(heads)
    head = "; ".join(f"{head} ×{n}" if n > 1 else head for head, n in counted.items())
    return one_line(head or _SPEAKERS.get(turn.turn.kind, turn.turn.kind), characters)


_SPEAKERS = {"user": "user", "assistant": "agent"}


def _clipped(subject: str, most: int) -> str:
    """`subject` within `most` characters: of a path its end says most, of anything else its beginning."""
    line = _CHANGE_DIRECTORY.sub("", one_line(subject, len(subject) + 1))
    if len(line) <= most:
        return line
    return f"…{line[1 - most :]}" if "/" in line and " " not in line else f"{line[: most - 1]}…"


def _hints(turn: TurnEvidence) -> list[str]:
    refused = any(map(turn.is_refused, turn.calls))
    hints = ["hint: refused by the user"] if refused else ["hint: failed?"] if turn.failed else []
    if not turn.failed and any(outcome.status == "passed" for outcome in turn.outcomes):
        hints.append("hint: passed")
    if turn.superseded_by:
        hints.append(f"hint: done again at {turn.superseded_by}")
    elif turn.edited_later_at:
        hints.append(f"hint: edited later at {turn.edited_later_at}")
    if turn.turn.live:
        hints.append("LIVE")
    elif turn.obligations:
        hints.append(f"kept {_ranges(turn.obligations)}")
    return hints


def _ranges(numbers: Iterable[int]) -> str:
    """Line numbers as ``3-5,12``."""
    return ",".join(f"{low}-{high}" if low < high else f"{low}" for low, high in ranges_of(numbers))


def _run_header(group: Sequence[TurnEvidence]) -> str:
    if len(group) == 1:
        return _header(group[0], HEAD_CHARACTERS[-1], str)
    tokens, lines = sum(turn.tokens for turn in group), sum(len(turn.lines) for turn in group)
    return f"## {group[0].turn.id}-{group[-1].turn.id} · {tokens}/{lines} · {len(group)} turns"


def _runs(turns: Sequence[TurnEvidence], most: int) -> Iterator[Sequence[TurnEvidence]]:
    """Runs of at most `most` neighbours; a turn that must be seen stands alone."""
    run: list[TurnEvidence] = []
    for turn in turns:
        alone = turn.failed or bool(turn.constraint_lines) or turn.turn.live
        if run and (alone or len(run) == most or turn.turn.number > run[-1].turn.number + 1):
            yield run
            run = []
        run.append(turn)
        if alone:
            yield run
            run = []
    if run:
        yield run
