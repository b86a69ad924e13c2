"""Turn cards: what the planner model sees of each turn, within a token budget for all of them.

A card is a header line (id, size, what was called, flags) and lines of the turn under their own numbers, so
that the model can answer by pointing. Decides nothing about what survives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.evidence import TurnEvidence
from planner.model.headers import card_headers
from planner.model.shown import choose_lines
from planner.model.untrusted import safe_text
from planner.proposal import PlanRequest
from planner.reading.lines import Line

__all__ = ["PROMPT_TOKENS", "Card", "card_budget", "turn_cards"]

PROMPT_TOKENS = 3_000
"""What a request holds besides the cards: the instructions, the answer's schema, the task (measured)."""
HEADERS_SHARE = 0.4
"""The most of the budget that may go to headers."""


@dataclass(frozen=True)
class Card:
    """One turn as the planner model sees it, or a run of small turns behind one header."""

    turns: Sequence[TurnEvidence]
    header: str
    lines: tuple[Line, ...]
    tokens: int

    @property
    def text(self) -> str:
        """The header, and the shown lines below it."""
        return _text(self.turns[0], self.header, self.lines)


def card_budget(request: PlanRequest) -> int:
    """Tokens all cards together may have: the planner's share of the history less the prompt around them."""
    settings = request.settings
    share = int(request.evidence.tokens * settings.planner_input_ratio)
    return max(settings.planner_input_floor_tokens, share) - min(PROMPT_TOKENS, share // 2)


def turn_cards(request: PlanRequest) -> tuple[Card, ...]:
    """A card for every turn of the history, in order, within `card_budget`; the same every time."""
    counter = request.counter
    turns = list(request.evidence.turns.values())
    budget = int(card_budget(request) / counter.scale)
    groups = card_headers(turns, counter.raw, int(budget * HEADERS_SHARE))
    left = budget - sum(counter.raw(header) + 1 for _, header in groups)
    alone = [group[0] for group, _ in groups if len(group) == 1]
    most_per_turn = int(request.settings.piece_tokens / counter.scale / 2)
    worth = request.relevance
    shown = choose_lines(request.evidence, alone, worth, counter, max(0, left), most_per_turn)
    cards = []
    for group, header in groups:
        lines = shown.get(group[0].turn.id, ()) if len(group) == 1 else ()
        tokens = math.ceil(counter.raw(_text(group[0], header, lines)) * counter.scale)
        cards.append(Card(group, header, lines, tokens))
    return tuple(cards)


def _text(turn: TurnEvidence, header: str, lines: Sequence[Line]) -> str:
    return "\n".join([header, *(f"{line.number}{_mark(turn, line)} {safe_text(line.text)}" for line in lines)])


def _mark(turn: TurnEvidence, line: Line) -> str:
    """What kind of line it is: part of a call, a sign of failure, or said and answered."""
    return ">" if line.part == "call" else "!" if line.number in turn.failure_lines else "|"
