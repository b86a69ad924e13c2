"""Lines of turns that are not shown as cards: what they are, and what planners chose of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby

from planner.evidence import TurnEvidence
from planner.model.answer import spans
from planner.model.cards import turn_head
from planner.model.entries import BEST_SCORE
from planner.model.prompts import one_line
from planner.plan import CompactionPlan, TurnDecision
from planner.proposal import PlanRequest, read_and_new

__all__ = ["turn_heads", "turn_index"]

HEAD_CHARACTERS = 100


def turn_heads(request: PlanRequest, turns: Iterable[TurnEvidence]) -> str:
    """A line for each of `turns`."""
    shorten = request.evidence.shown
    return "\n".join(f"{turn.turn.id} · {turn_head(turn, HEAD_CHARACTERS, shorten)}" for turn in turns)


def turn_index(request: PlanRequest, earlier: CompactionPlan, most_tokens: int) -> str:
    """What planners chose of the turns they have read: a line each where words of them stand, else one for a run.

    Turns that none has named are left out. Heads get shorter until all lines fit `most_tokens`.
    """
    read, _ = read_and_new(request, earlier)
    decisions = earlier.decisions
    named = frozenset(earlier.provenance.named) & decisions.keys()
    turns = [turn for turn in read if turn.turn.id in named]
    text = ""
    for characters in (80, 40, 0):
        lines: list[str] = []
        for (fate, stands), run in groupby(turns, partial(_fate, decisions)):
            members = list(run)
            if stands and characters:
                lines += (_line(request, turn, decisions[turn.turn.id], characters) for turn in members)
            else:
                name = spans(turn.turn.number for turn in members)
                lines.append(f"{name} · {sum(turn.tokens for turn in members)} tokens · {fate}")
        text = "\n".join(lines)
        if request.counter.text(text) <= most_tokens:
            break
    return text


def _fate(decisions: Mapping[str, TurnDecision], turn: TurnEvidence) -> tuple[str, bool]:
    """What was decided of a turn, and whether words of it stand."""
    strategy = decisions[turn.turn.id].strategy
    return strategy, strategy in ("keep", "summarize")


def _line(request: PlanRequest, turn: TurnEvidence, decision: TurnDecision, characters: int) -> str:
    head = turn_head(turn, characters, request.evidence.shown)
    gist = one_line(decision.summary, characters)
    score = round(decision.relevance_score * BEST_SCORE)
    return f"{turn.turn.id} · {turn.tokens} tokens · {head} · {decision.strategy} {score}{' · ' * bool(gist)}{gist}"
