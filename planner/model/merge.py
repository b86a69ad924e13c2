"""All pieces as one proposal, over what the rules say: the prior for every turn the model left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add

from planner.model.asking import Outcome
from planner.model.prompts import Prompts
from planner.plan import ExtractedFact, Provenance, Usage
from planner.proposal import Proposal, TurnProposal

__all__ = ["merged"]


def merged(outcomes: Sequence[Outcome], model: str, prompts: Prompts, prior: Proposal) -> Proposal:
    """`outcomes`, in the order of the history, over `prior`; `model` as it was asked for."""
    facts: dict[tuple[str, str], ExtractedFact] = {}
    turns: dict[str, TurnProposal] = dict(prior.turns)
    for outcome in outcomes:
        if outcome.reading is not None:
            turns |= _weighed(outcome.reading.turns, prior.turns)
            for fact in outcome.reading.facts:
                facts.setdefault((fact.type, fact.content), fact)
    provenance = Provenance(
        planner="model",
        model=model or next((outcome.model for outcome in outcomes if outcome.model), ""),
        prompts=prompts.hash,
        usage=reduce(add, (outcome.usage for outcome in outcomes), Usage()),
        notes=tuple(outcome.note for outcome in outcomes if outcome.note),
    )
    return Proposal(turns, provenance, (*prior.facts, *facts.values()))


def _weighed(turns: Mapping[str, TurnProposal], prior: Mapping[str, TurnProposal]) -> dict[str, TurnProposal]:
    """The model's word on each turn, on top of what the rules know of it (that it is outdated, say)."""
    return {turn_id: replace(turn) for turn_id, turn in turns.items()}
