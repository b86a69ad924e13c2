"""What stands before anything is fitted in: obligations always, claims and facts as far as their shares go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.evidence import TurnEvidence
from planner.guards import preview_lines
from planner.plan import ExtractedFact
from planner.proposal import PlanRequest

__all__ = ["facts_in_view", "standing_lines"]

CLAIMS_SHARE = 0.2
"""Claims (other words of the user, more lines of failures, setbacks) fill at most this share of the target."""
FACTS_SHARE = 0.03
"""Facts at the front of the view take at most this share of the target."""


def standing_lines(request: PlanRequest, whole: frozenset[str]) -> Mapping[str, frozenset[int]]:
    """Line numbers by id of each turn that does not stand `whole`."""
    turns = {turn_id: turn for turn_id, turn in request.evidence.turns.items() if turn_id not in whole}
    standing = {
        turn_id: set(turn.obligations | (preview_lines(turn) if turn.turn.live else frozenset()))
        for turn_id, turn in turns.items()
    }
    left = request.target_tokens * CLAIMS_SHARE
    for turn, number in _claims(turns.values()):
        if number not in standing[turn.turn.id]:
            left -= request.counter.text(turn.lines[number - 1].text)
            if left < 0:
                break
            standing[turn.turn.id].add(number)
    return {turn_id: frozenset(numbers) for turn_id, numbers in standing.items()}


def _claims(turns: Iterable[TurnEvidence]) -> Iterator[tuple[TurnEvidence, int]]:
    """Each claim, kind by kind, of each kind the newest first."""
    newest_first = list(turns)[::-1]
    for of_kind in zip(*(turn.claims for turn in newest_first), strict=True):
        for turn, numbers in zip(newest_first, of_kind, strict=True):
            yield from ((turn, number) for number in numbers)


def facts_in_view(facts: Sequence[ExtractedFact], request: PlanRequest) -> tuple[ExtractedFact, ...]:
    """The facts, the newest of which are shown as far as their share of the target goes."""
    left = request.target_tokens * FACTS_SHARE
    shown: list[ExtractedFact] = []
    for fact in reversed(facts):
        cost = request.counter.text(request.evidence.shown(fact.quote or fact.content)) + 8
        in_view = fact.in_view and fact.type not in ("constraint", "error") and cost <= left
        left -= cost if in_view else 0
        shown.append(fact.model_copy(update={"in_view": in_view}))
    return tuple(reversed(shown))
