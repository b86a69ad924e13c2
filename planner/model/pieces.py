"""What is asked of the planner model: one request, or for a large history several that can run side by side.

Every piece knows the task, the user's words of the whole history, and in one line each its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from planner.evidence import TurnEvidence
from planner.model.cards import Card, turn_cards
from planner.model.prompts import Prompts
from planner.model.scope import Scope
from planner.model.untrusted import one_line, safe_text
from planner.proposal import PlanRequest
from planner.reading.lines import statements

__all__ = ["Piece", "plan_pieces"]

TASK_CHARACTERS, TASK_OPENING = 6_000, 600
"""A longer task is cut in its middle; of one that is a turn of these cards, this much is said again."""
NEIGHBOURS = 12
"""Turns on either side of a piece that are named to it."""
HEAD_CHARACTERS, WORDS_CHARACTERS = 100, 4_000
ANSWER_RATIO = 0.025
"""The share of its turns' tokens that an answer is told to take at most; real answers run a little over."""
ANSWER_FLOOR_TOKENS = 400


@dataclass(frozen=True)
class Piece:
    """One request to the planner model."""

    scope: Scope
    prompt: str
    """The user message: task, sizes, cards."""


def plan_pieces(request: PlanRequest, prompts: Prompts) -> tuple[Piece, ...]:
    """The pieces of ``request.history``, in order, each with cards of at most ``settings.piece_tokens``."""
    pieces = list(_split(turn_cards(request), request.settings.piece_tokens))
    return tuple(_piece(request, prompts, cards, len(pieces)) for cards in pieces)


def _split(cards: Sequence[Card], most_tokens: int) -> Iterator[Sequence[Card]]:
    piece: list[Card] = []
    tokens = 0
    for card in cards:
        if piece and tokens + card.tokens > most_tokens:
            yield piece
            piece, tokens = [], 0
        piece.append(card)
        tokens += card.tokens
    if piece:
        yield piece


def _piece(request: PlanRequest, prompts: Prompts, cards: Sequence[Card], pieces: int) -> Piece:
    scope = Scope([turn for card in cards for turn in card.turns])
    everyone = list(request.evidence.turns.values())
    start = scope.turns[0].turn.number - 1
    stop = scope.turns[-1].turn.number
    elsewhere = [*everyone[:start], *everyone[stop:]]
    prompt = prompts.render(
        "plan",
        task=_task(request.task, scope),
        focus=safe_text(request.focus).strip() or "(nothing in particular)",
        sizes=_sizes(request, scope, pieces),
        user_words=_words(elsewhere) or "(none)",
        before=_heads(everyone[max(0, start - NEIGHBOURS) : start]) or "(none)",
        cards="\n".join(card.text for card in cards),
        after=_heads(everyone[stop : stop + NEIGHBOURS]) or "(none)",
    )
    return Piece(scope, prompt)


def _sizes(request: PlanRequest, scope: Scope, pieces: int) -> str:
    """What the whole is, what may stay, and how long the answer may be."""
    whole, here = request.evidence.tokens, sum(turn.tokens for turn in scope.turns)
    stay = min(whole, request.target_tokens)
    answer = max(ANSWER_FLOOR_TOKENS, int(here * ANSWER_RATIO))
    text = f"The conversation has {len(request.evidence.turns)} turns and {whole} tokens; {stay} may stay."
    if pieces > 1:
        share = stay * here // max(1, whole)
        text += f" These cards are {scope.name}, {here} tokens of it; about {share} of them may stay."
    return f"{text} Your answer may take {answer} tokens."


def _heads(turns: Iterable[TurnEvidence]) -> str:
    return "\n".join(f"{t.turn.id} · {one_line(t.head, HEAD_CHARACTERS)}" for t in turns)


def _words(turns: Sequence[TurnEvidence]) -> str:
    """What binds the agent, then what else users said, newest first, as far as they fit."""
    binding = [(t, said) for t in turns for said in t.statements_of(t.constraint_lines)]
    others = [(t, said) for t in reversed(turns) for said in statements(t.user_lines)]
    found: dict[tuple[int, int], str] = {}
    room = WORDS_CHARACTERS
    for turn, said in (*binding, *others):
        place, text = (turn.turn.number, said.numbers[0]), f"{turn.turn.id}: {one_line(said.text, 200)}"
        if place not in found and said.text.strip() and len(text) < room:
            room -= len(text) + 1
            found[place] = text
    return "\n".join(found[place] for place in sorted(found))


def _task(task: str, scope: Scope) -> str:
    """The task; of one that stands on a card anyway, its beginning."""
    words = " ".join(task.split())
    card = next((t for t in scope.turns if t.user_lines and words in _joined(t)), None)
    if card is not None and len(words) > TASK_OPENING:
        return f"{one_line(task, TASK_OPENING)} (the whole stands in {card.turn.id})"
    text = safe_text(task).strip()
    if len(text) > TASK_CHARACTERS:
        half = TASK_CHARACTERS // 2
        text = f"{text[:half].rstrip()}\n[…]\n{text[-half:].lstrip()}"
    return text or "(not stated)"


def _joined(turn: TurnEvidence) -> str:
    return " ".join(turn.text.split())
