"""From a proposal to a plan: fits it to the target, guards it, and counts what will really stand.

Pure: no model, no store, no clock. The same history and proposal give the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from planner.evidence import Evidence, TurnEvidence
from planner.guards import guard_decisions, guard_facts, may_demote
from planner.layout.layout import Kept, Outline, draw_outline
from planner.layout.placeholders import ranges_of
from planner.layout.thinking import thinking_policy
from planner.plan import CompactionPlan, ExtractedFact, Finding, HistoryStamp, Strategy, TurnDecision
from planner.proposal import PlanRequest, Proposal, TurnProposal
from planner.reading.history import History
from planner.reading.tokens import TokenCounter
from planner.relevance.pinned import facts_in_view, standing_lines
from planner.relevance.selection import Factor, Ground, Pick, picks_in_order
from planner.soundness import sound_proposal

__all__ = ["check_plan", "compose_plan", "outline_of"]

SLACK = 1.15
"""Picks are made for a little more than the target; the exact count decides where they end."""
EXCERPT_WEIGHT = 1.5
"""What a planner pointed at is worth this much more than its lines by themselves."""


@dataclass(frozen=True)
class _Draft:
    """All that is settled before the fit."""

    request: PlanRequest
    proposal: Proposal
    ground: Ground
    facts: tuple[ExtractedFact, ...]


def compose_plan(request: PlanRequest, proposal: Proposal, broken: Mapping[str, str]) -> CompactionPlan:
    """The plan that `proposal` comes to within ``request.target_tokens``."""
    proposal, unsound = sound_proposal(request.evidence, proposal)
    facts, fact_findings = guard_facts(request.evidence, proposal.facts)
    plan = _plan(request, proposal, _all_kept(request, proposal), facts, (*unsound, *fact_findings))
    if request.evidence.tokens <= request.target_tokens:
        return check_plan(plan, request.history, request.evidence, broken)
    draft = _draft(request, proposal, facts, broken)
    update = {"turns": tuple(_fitted(draft).values()), "extracted_facts": draft.facts}
    fitted = check_plan(plan.model_copy(update=update), request.history, request.evidence, broken)
    least = request.settings.min_savings_tokens
    if (saved := request.evidence.tokens - fitted.estimated_tokens) < least:
        problem = f"{saved} tokens would be saved, fewer than the {least} that a plan must save"
        finding = Finding(code="saves_too_little", problem=problem, repair="all kept")
        fitted = check_plan(_with(plan, finding), request.history, request.evidence, broken)
    return _explained(fitted, request)


def _plan(
    request: PlanRequest,
    proposal: Proposal,
    turns: tuple[TurnDecision, ...],
    facts: tuple[ExtractedFact, ...],
    findings: tuple[Finding, ...],
) -> CompactionPlan:
    return CompactionPlan(
        task=request.task,
        history=HistoryStamp.of(request.history, request.evidence.tokens),
        target_tokens=request.target_tokens,
        target_model=request.settings.target_model,
        turns=turns,
        extracted_facts=facts,
        estimated_tokens=0,
        findings=findings,
        provenance=proposal.provenance,
    )


def _all_kept(request: PlanRequest, proposal: Proposal) -> tuple[TurnDecision, ...]:
    return tuple(_decision(turn, _view_of(proposal, turn), "keep") for turn in request.evidence.turns.values())


def _view_of(proposal: Proposal, turn: TurnEvidence) -> TurnProposal:
    return proposal.turns.get(turn.turn.id) or TurnProposal(turn.turn.id, 0.5, "not ranked")


def _decision(
    turn: TurnEvidence,
    view: TurnProposal,
    strategy: Strategy,
    summary: str = "",
    lines: frozenset[int] = frozenset(),
    mentions: tuple[str, ...] = (),
) -> TurnDecision:
    return TurnDecision(
        turn_id=turn.turn.id,
        strategy=strategy,
        relevance_score=min(1.0, max(0.0, view.score)),
        reason=view.reason,
        failed_approach=turn.failed or view.failed_approach,
        summary=summary,
        excerpts=ranges_of(lines),
        mentions=mentions,
    )


def _draft(
    request: PlanRequest, proposal: Proposal, facts: tuple[ExtractedFact, ...], broken: Mapping[str, str]
) -> _Draft:
    evidence = request.evidence
    demote = may_demote(evidence, request.target_tokens)
    whole = frozenset(
        turn_id for turn_id, turn in evidence.turns.items() if turn_id in broken or _stands_whole(turn, demote)
    )
    standing = standing_lines(request, whole)
    gists = {turn_id: view.summary for turn_id, view in proposal.turns.items() if view.summary and turn_id not in whole}
    ground = Ground(evidence, request.worth, request.counter, whole, standing, _factor(proposal), gists)
    return _Draft(request, proposal, ground, facts_in_view(facts, request))


def _stands_whole(turn: TurnEvidence, demote: bool) -> bool:
    return turn.turn.kind == "other" or (turn.turn.live and not (demote and turn.turn.kind == "tools"))


def _factor(proposal: Proposal) -> Factor:
    pointed = {
        turn_id: frozenset(n for first, last in view.excerpts for n in range(first, last + 1))
        for turn_id, view in proposal.turns.items()
        if view.excerpts
    }
    weights = {turn_id: view.weight for turn_id, view in proposal.turns.items()}

    def factor(turn_id: str, number: int) -> float:
        weight = weights.get(turn_id, 1.0)
        return weight * EXCERPT_WEIGHT if number in pointed.get(turn_id, ()) else weight

    return factor


def _fitted(draft: _Draft) -> dict[str, TurnDecision]:
    """The decisions with the most picks whose view is within the target."""
    request = draft.request
    picks = picks_in_order(draft.ground, request.target_tokens / request.counter.scale * SLACK)
    low, high = 0, len(picks)
    while low < high:
        middle = (low + high + 1) // 2
        if _size(draft, _decided(draft, picks[:middle])) <= request.target_tokens:
            low = middle
        else:
            high = middle - 1
    return _decided(draft, picks[:low])


def _size(draft: _Draft, decisions: Mapping[str, TurnDecision]) -> int:
    return _outline(draft.request, decisions, draft.facts).tokens(draft.request.counter)


def _outline(request: PlanRequest, decisions: Mapping[str, TurnDecision], facts: Sequence[ExtractedFact]) -> Outline:
    policy = thinking_policy(request.settings.target_model)
    return draw_outline(request.history, request.evidence, decisions, facts, policy)


def _decided(draft: _Draft, picks: Sequence[Pick]) -> dict[str, TurnDecision]:
    lines = {turn_id: set(numbers) for turn_id, numbers in draft.ground.standing.items()}
    for pick in picks:
        lines.setdefault(pick.turn_id, set()).update(pick.numbers)
    mentions = _mentions(draft, picks, lines)
    kept = _kept_ends(draft, lines)
    gists = {pick.turn_id for pick in picks if pick.gist}
    return {
        turn_id: _chosen(
            draft,
            turn,
            "keep" if turn_id in kept else None,
            draft.ground.gists[turn_id] if turn_id in gists else "",
            frozenset(lines.get(turn_id, ())),
            tuple(mentions.get(turn_id, ())),
        )
        for turn_id, turn in draft.request.evidence.turns.items()
    }


def _kept_ends(draft: _Draft, lines: Mapping[str, set[int]]) -> frozenset[str]:
    """Turns that stand as messages: those that must, and those at either end of which every line stands.

    In the middle a turn that stands whole is cheaper inside a note than as a message that cuts the note in two.
    """
    turns = draft.request.evidence.turns
    complete = [
        turn_id in draft.ground.whole or 0 < len(turns[turn_id].lines) == len(lines.get(turn_id, ()))
        for turn_id in turns
    ]
    head = list(takewhile(lambda at: complete[at], range(len(complete))))
    tail = list(takewhile(lambda at: complete[at], reversed(range(len(complete)))))
    ids = list(turns)
    return draft.ground.whole | {ids[at] for at in (*head, *tail)}


def _mentions(draft: _Draft, picks: Sequence[Pick], lines: Mapping[str, set[int]]) -> dict[str, list[str]]:
    """Names to list at each turn: those picked bare that no line of the view holds anyway."""
    worth = draft.ground.worth
    held = {
        use.concept
        for turn_id, numbers in lines.items()
        for number in numbers
        for use in worth.lines[turn_id][number - 1].uses
    }
    listed: dict[str, list[str]] = {}
    for pick in picks:
        if pick.mention >= 0 and pick.mention not in held:
            listed.setdefault(pick.turn_id, []).append(worth.names[pick.mention])
    return listed


def _chosen(
    draft: _Draft,
    turn: TurnEvidence,
    strategy: Strategy | None,
    gist: str,
    lines: frozenset[int],
    mentions: tuple[str, ...],
) -> TurnDecision:
    view = _view_of(draft.proposal, turn)
    if strategy == "keep":
        return _decision(turn, view, "keep")
    if lines or gist:
        return _decision(turn, view, "summarize", gist, lines, mentions)
    return _decision(turn, view, "reference" if mentions else "drop", mentions=mentions)


def _explained(plan: CompactionPlan, request: PlanRequest) -> CompactionPlan:
    """`plan`, with a finding that says why where the target is not met."""
    if plan.estimated_tokens <= request.target_tokens:
        return plan
    live = sum(t.tokens for t in request.evidence.turns.values() if t.turn.live)
    must = sum(bool(t.obligations) for t in request.evidence.turns.values())
    problem = (
        f"{plan.estimated_tokens} tokens is the least this history comes to, {request.target_tokens} were asked for: "
        f"{live} are in the live tail, and {must} turns hold failures or words of the user that must stay"
    )
    finding = Finding(code="target_unreachable", problem=problem, repair="everything else is left out")
    return _with(plan, finding)


def _with(plan: CompactionPlan, finding: Finding) -> CompactionPlan:
    return plan.model_copy(update={"findings": (*plan.findings, finding)})


def check_plan(
    plan: CompactionPlan, history: History, evidence: Evidence, broken: Mapping[str, str] = {}
) -> CompactionPlan:
    """`plan` behind the guards: repaired where needed, counted, with what was found. Idempotent.

    `history` must be the one the plan was made for.
    """
    counter = TokenCounter.for_model(plan.target_model)
    guarded = guard_decisions(evidence, plan.turns, plan.target_tokens, broken)
    facts, fact_findings = guard_facts(evidence, plan.extracted_facts)
    policy = thinking_policy(plan.target_model)
    decisions = guarded.decisions
    outline = draw_outline(history, evidence, decisions, facts, policy)
    findings = (*guarded.findings, *fact_findings)
    if outline.first_changed is not None and outline.tokens(counter) >= evidence.tokens:
        findings = (
            *findings,
            Finding(code="would_grow", problem="the view would be no smaller", repair="all kept"),
        )
        decisions = {turn_id: _kept_as_is(decision) for turn_id, decision in decisions.items()}
        outline = draw_outline(history, evidence, decisions, facts, policy)
    after = {turn_id: counter.text(entry) for turn_id, entry in outline.entries.items()}
    after |= {s.turn.id: counter.messages(s.messages) for s in outline.segments if isinstance(s, Kept)}
    counted = tuple(
        decisions[turn_id].model_copy(update={"tokens_before": turn.tokens, "tokens_after": after[turn_id]})
        for turn_id, turn in evidence.turns.items()
    )
    known = set(plan.findings)
    update = {
        "turns": counted,
        "extracted_facts": facts,
        "estimated_tokens": outline.tokens(counter),
        "findings": (*plan.findings, *(finding for finding in findings if finding not in known)),
    }
    return plan.model_copy(update=update).bind(history)


def _kept_as_is(decision: TurnDecision) -> TurnDecision:
    return decision.model_copy(update={"strategy": "keep", "excerpts": (), "summary": "", "mentions": ()})


def outline_of(plan: CompactionPlan, history: History, evidence: Evidence) -> Outline:
    """What stands where once `plan` is applied to `history`."""
    return draw_outline(history, evidence, plan.decisions, plan.extracted_facts, thinking_policy(plan.target_model))
