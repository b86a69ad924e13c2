"""Updates an earlier plan of the same session: what a planner has read already, and what rules add since.

A model reads no turn twice, so that its page of memory (brief) and its choices are carried on until it makes others;
lines that rules chose to fill space compete again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from planner.brief import PageStatement, brief_text, read_brief
from planner.evidence import TurnEvidence
from planner.plan import CompactionPlan, PlanRequest, Proposal, proposed


def read_and_new(request: PlanRequest, earlier: CompactionPlan | None) -> tuple[list[TurnEvidence], list[TurnEvidence]]:
    """Return two lists: the turns that a planner model has read for the plan `earlier`, and all others."""
    turns = list(request.evidence.turns.values())
    if earlier is None:
        return [], turns
    unread = frozenset(earlier.provenance.unread_turns)
    read = [turn for turn in turns[: earlier.provenance.read_turns] if turn.turn.id not in unread]
    read_ids = {turn.turn.id for turn in read}
    return read, [turn for turn in turns if turn.turn.id not in read_ids]


def written_brief(earlier: CompactionPlan) -> list[PageStatement]:
    """Return the statements on the page of memory of `earlier` that a model wrote, and not rules."""
    return [statement for statement in read_brief(earlier.brief) if not _cites_new(statement.turns, earlier)]


def carried_on(proposal: Proposal, earlier: CompactionPlan) -> Proposal:
    """Update the plan `earlier`, which a model made, by rules: return its page of memory and its choices, with what the
    rules' `proposal` has on later turns. So a model's work is not lost if no model is asked this time."""
    written = written_brief(earlier)
    written_texts = {statement.text for statement in written}
    new_statements = [
        statement
        for statement in read_brief(proposal.brief)
        if _cites_new(statement.turns, earlier) and statement.text not in written_texts
    ]
    past = earlier.provenance
    note = f"the brief of t1-t{past.read_turns + 1} stays, followed by what rules read from the turns since"
    reading = past.model_dump(include={"read_turns", "unread_turns", "named"})
    provenance = proposal.provenance.model_copy(update={**reading, "notes": (note,)})
    named = {
        decision.turn_id: proposed(decision, decision.strategy)
        for decision in earlier.turns
        if decision.turn_id in past.named
    }
    turns = {**proposal.turns, **named}  # an earlier choice is valid until a planner makes another one
    return replace(proposal, turns=turns, brief=brief_text([*written, *new_statements]), provenance=provenance)


def _cites_new(turn_ids: Iterable[str], earlier: CompactionPlan) -> bool:
    """Return True if the planner of `earlier` has not read one of the turns `turn_ids`. It has read the first
    ``read_turns``, and the turn after these, which was the last one and not answered yet at that time."""
    past = earlier.provenance
    return any(turn_id in past.unread_turns or int(turn_id[1:]) > past.read_turns + 1 for turn_id in turn_ids)
