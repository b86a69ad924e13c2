"""A planner's answer in sound form: numbers within bounds, line ranges within their turn, text that is text.

What is unusable of one turn is left to the evidence; an answer that is no proposal is rejected. Whether what it
says is true is not judged here but by the guards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import get_args

from planner.decision import Strategy, whole_characters
from planner.errors import PlanRejected
from planner.evidence import Evidence, TurnEvidence
from planner.plan import ExtractedFact, Finding, Provenance
from planner.proposal import Proposal, TurnProposal

__all__ = ["sound_proposal"]

STRATEGIES = get_args(Strategy)
NO_OPINION = 0.5
"""The score of a turn of which the planner says nothing that can be used."""


def sound_proposal(evidence: Evidence, proposal: Proposal) -> tuple[Proposal, tuple[Finding, ...]]:
    """`proposal` with everything that the fit cannot work with mended or left out, and what that was.

    Raises:
        PlanRejected: it is no `Proposal`, or does not say where it came from.
    """
    if not isinstance(proposal, Proposal) or not isinstance(proposal.turns, Mapping):
        raise PlanRejected(f"planner: expected a Proposal with turns by id, found {type(proposal).__name__}")
    if not isinstance(proposal.provenance, Provenance):
        raise PlanRejected(f"planner: expected its Provenance, found {type(proposal.provenance).__name__}")
    turns: dict[str, TurnProposal] = {}
    findings: list[Finding] = []
    for turn_id, said in proposal.turns.items():
        turn = evidence.turns.get(turn_id)
        if turn is None:
            findings.append(
                Finding(code="unknown_turn", turn_id=str(turn_id), problem="no such turn", repair="ignored")
            )
        elif not isinstance(said, TurnProposal):
            findings.append(_unsound(turn_id, f"expected a TurnProposal, found {type(said).__name__}", "ignored"))
        else:
            turns[turn_id] = _mended(turn, said)
            wrong = list(_differences(said, turns[turn_id]))
            if wrong:
                findings.append(_unsound(turn_id, f"{', '.join(wrong)} out of bounds", "mended"))
    facts = tuple(fact for fact in proposal.facts if isinstance(fact, ExtractedFact))
    if len(facts) < len(proposal.facts):
        findings.append(_unsound("", "a fact that is no ExtractedFact", "left out"))
    return replace(proposal, turns=turns, facts=facts, brief=_text(proposal.brief)), tuple(findings)


def _unsound(turn_id: str, problem: str, repair: str) -> Finding:
    return Finding(code="unsound_proposal", turn_id=turn_id, problem=problem, repair=repair)


def _mended(turn: TurnEvidence, said: TurnProposal) -> TurnProposal:
    return TurnProposal(
        turn.turn.id,
        score=_number(said.score, NO_OPINION, 1.0),
        reason=_text(said.reason),
        strategy=said.strategy if said.strategy in STRATEGIES else None,
        summary=_text(said.summary),
        excerpts=tuple(_ranges(said.excerpts, len(turn.lines))),
        failed_approach=said.failed_approach is True,
    )


def _differences(said: TurnProposal, mended: TurnProposal) -> Iterator[str]:
    """Names of the fields that had to be mended."""
    for name in ("score", "reason", "strategy", "summary", "excerpts", "failed_approach"):
        if getattr(said, name) != getattr(mended, name):
            yield name


def _number(value: object, otherwise: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return otherwise
    return float(min(most, max(0.0, value)))


def _text(value: object) -> str:
    return str(whole_characters(value)) if isinstance(value, str) else ""


def _ranges(excerpts: object, last: int) -> Iterator[tuple[int, int]]:
    """The line ranges of `excerpts` that a turn of `last` lines has."""
    for pair in excerpts if isinstance(excerpts, tuple | list) else ():
        if isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(end, int) for end in pair):
            first, until = max(1, pair[0]), min(last, pair[1])
            if first <= until:
                yield first, until
