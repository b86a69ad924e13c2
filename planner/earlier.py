"""What a plan takes over from an earlier one of its session: the page that a planner wrote, and what it chose.

Lines that rules chose to fill space are no choice of a planner: they compete again. What came since is read anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from planner.brief import Statement, brief_text, read_brief
from planner.evidence import TurnEvidence
from planner.plan import CompactionPlan
from planner.proposal import PlanRequest, Proposal, TurnProposal

__all__ = ["carried_on", "earlier_plan", "named_turns", "read_and_new", "written_brief"]


def earlier_plan(request: PlanRequest) -> CompactionPlan | None:
    """The previous plan, if a planner has read turns for it, and they are the first of this very history."""
    plan = request.previous
    if plan is None or not 0 < plan.provenance.read_turns < plan.history.turns <= len(request.history.turns):
        return None
    return plan if request.history.digest_at(plan.history.messages) == plan.history.digest else None


def read_and_new(request: PlanRequest, earlier: CompactionPlan | None) -> tuple[list[TurnEvidence], list[TurnEvidence]]:
    """The turns that a planner has read by the time of `earlier`, and those that are to be read yet."""
    turns = list(request.evidence.turns.values())
    if earlier is None:
        return [], turns
    unread = frozenset(earlier.provenance.unread_turns)
    read = [turn for turn in turns[: earlier.provenance.read_turns] if turn.turn.id not in unread]
    known = {turn.turn.id for turn in read}
    return read, [turn for turn in turns if turn.turn.id not in known]


def written_brief(earlier: CompactionPlan) -> list[Statement]:
    """The statements that a planner wrote: without the rules' record of the turns that it has not read."""
    return [one for one in read_brief(earlier.brief) if not _cites_since(one.turns, earlier)]


def named_turns(earlier: CompactionPlan) -> dict[str, TurnProposal]:
    """What a planner said of turns, as far as it was done: that stands until something new is said."""
    named = frozenset(earlier.provenance.named)
    return {
        decision.turn_id: TurnProposal(
            turn_id=decision.turn_id,
            score=decision.relevance_score,
            reason=decision.reason,
            strategy=decision.strategy,
            summary=decision.summary,
            excerpts=decision.excerpts,
            failed_approach=decision.failed_approach,
        )
        for decision in earlier.turns
        if decision.turn_id in named
    }


def carried_on(proposal: Proposal, earlier: CompactionPlan) -> Proposal:
    """`proposal` by rules behind what a planner wrote and chose: of its page stands what is of turns since."""
    written = written_brief(earlier)
    known = {one.text for one in written}
    since = [one for one in read_brief(proposal.brief) if _cites_since(one.turns, earlier) and one.text not in known]
    past = earlier.provenance
    note = f"the brief of t1-t{past.read_turns + 1} stands, and behind it what rules read off the turns since"
    provenance = {
        "read_turns": past.read_turns,
        "unread_turns": past.unread_turns,
        "named": past.named,
        "notes": (note,),
    }
    return replace(
        proposal,
        turns={**proposal.turns, **named_turns(earlier)},
        brief=brief_text([*written, *since]),
        provenance=proposal.provenance.model_copy(update=provenance),
    )


def _cites_since(turn_ids: Iterable[str], earlier: CompactionPlan) -> bool:
    """True if any of the turns was not read, or comes behind the last that the planner saw, which was live then."""
    past = earlier.provenance
    return any(turn_id in past.unread_turns or int(turn_id[1:]) > past.read_turns + 1 for turn_id in turn_ids)
