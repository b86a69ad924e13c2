"""What holds whatever a planner, a person or a file says: what a planner answers is put in sound form, and each guard
reads one decision, fact or statement of a plan and repairs it, only ever keeping more.

Pure and idempotent: guarding a guarded plan finds nothing new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from planner.analysis import Analysis
from planner.brief import check_brief
from planner.errors import PlanRejected, SettingsError, StalePlan
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.grounding import invented
from planner.layout import lay_out, leading_turn
from planner.placeholders import line_numbers, media_marks, ranges_of
from planner.plan import (
    CompactionPlan,
    ExtractedFact,
    Finding,
    Layout,
    Provenance,
    TurnDecision,
    whole_characters,
)
from planner.proposal import Proposal, TurnProposal, proposed
from planner.reading.lines import join_lines
from planner.selection import KEPT, Pinned, opening_lines, pinned, preview_lines

__all__ = ["check_plan", "sound_proposal"]

NO_WORDS: Mapping[str, Any] = {"summary": "", "excerpts": ()}


class _TurnFinding(NamedTuple):
    """What a guard finds wrong with a decision, and what changes in it."""

    code: str
    problem: str
    repair: str
    update: Mapping[str, Any]


def check_plan(plan: CompactionPlan, analysis: Analysis, least_savings: int = 0) -> CompactionPlan:
    """`plan` behind the guards: repaired where needed, counted, with what was wrong; bound to what was read.

    All is kept where `least_savings` tokens are not saved, or none at all. Idempotent.

    Raises:
        StalePlan: the plan was made for another history.
        SettingsError: an argument of the wrong type.
    """
    if not isinstance(plan, CompactionPlan):
        raise SettingsError(f"plan: expected a CompactionPlan, found {type(plan).__name__}")
    if not isinstance(analysis, Analysis):
        wanted = "what planner.analysis.analyze(messages) returns"
        raise SettingsError(f"analysis: expected {wanted}, found {type(analysis).__name__}")
    if plan.history.digest != analysis.history.digest:
        count = len(analysis.history.messages)
        raise StalePlan(f"the plan was made for other messages than these {count}: plan again")
    too_little = Finding(code="would_grow", problem="the view would be no smaller", repair="all kept")
    if least_savings:
        problem = f"fewer tokens would be saved than the {least_savings} that a plan must save"
        too_little = Finding(code="saves_too_little", problem=problem, repair="all kept")
    brief, of_brief = analysis.once(_checked_brief, plan.brief)
    stands = pinned(analysis, plan.window_tokens, plan.target_tokens, plan.target_model, brief)
    sound, findings = _guard_decisions(stands, plan.turns, plan.target_model)
    facts, of_facts = _guard_facts(analysis.evidence, plan.extracted_facts)
    findings += (*of_facts, *of_brief)
    for decisions in _ever_more(stands, sound, plan.target_model):
        tool = plan.restore_tool
        layout = lay_out(analysis, decisions, brief=brief, model=plan.target_model, restore_tool=tool)
        least = max(1, least_savings if decisions is sound else 1)
        if layout.first_changed is None or analysis.tokens - layout.tokens >= least:
            break
    if stands.demands_stored:
        problem = f"what the user demands in {stands.demands_stored} turns more would fill the window"
        findings.append(Finding(code="demands_stored", problem=problem, repair="stored, each under its turn"))
    if decisions is not sound:
        findings.append(too_little)
    known = set(plan.findings)
    update = {
        "turns": tuple(_counted(analysis, layout, decisions)),
        "brief": brief,
        "extracted_facts": facts,
        "estimated_tokens": layout.tokens,
        "findings": (*plan.findings, *(finding for finding in findings if finding not in known)),
    }
    return plan.model_copy(update=update).bind(analysis, layout)


def _checked_brief(analysis: Analysis, brief: str) -> tuple[str, tuple[Finding, ...]]:
    return check_brief(brief, analysis.evidence)


def _ever_more(stands: Pinned, sound: dict[str, TurnDecision], model: str) -> Iterator[dict[str, TurnDecision]]:
    """What is tried until a view is smaller: `sound`; all kept but live results that no window holds; all kept."""
    yield sound
    kept = {turn_id: decision.model_copy(update=KEPT) for turn_id, decision in sound.items()}
    yield _guard_decisions(stands, kept.values(), model)[0]
    yield kept


def _counted(analysis: Analysis, layout: Layout, decisions: Mapping[str, TurnDecision]) -> Iterator[TurnDecision]:
    after = {turn_id: analysis.counter.text(entry + "\n") if entry else 0 for turn_id, entry in layout.entries.items()}
    for turn_id, turn in analysis.evidence.turns.items():
        tokens = {"tokens_before": turn.tokens, "tokens_after": after.get(turn_id, turn.tokens)}
        yield decisions[turn_id].model_copy(update=tokens)


def _guard_decisions(
    stands: Pinned, decisions: Iterable[TurnDecision], model: str
) -> tuple[dict[str, TurnDecision], list[Finding]]:
    """One sound decision for every turn, in order."""
    turns = stands.analysis.evidence.turns
    by_turn = {decision.turn_id: decision for decision in decisions}
    findings = [_no_such_turn(turn_id) for turn_id in by_turn if turn_id not in turns]
    sound: dict[str, TurnDecision] = {}
    for turn_id, turn in turns.items():
        decision = by_turn.get(turn_id)
        if decision is None:
            decision = TurnDecision(turn_id=turn_id, strategy="keep", relevance_score=1.0, reason="no decision")
            problem = "the plan says nothing of it"
            findings.append(Finding(code="missing_decision", turn_id=turn_id, problem=problem, repair="kept"))
        for guard in _GUARDS:
            decision = _meant(decision)
            wrong = guard(stands, turn, decision)
            if wrong is not None:
                decision = decision.model_copy(update=wrong.update)
                findings.append(Finding(code=wrong.code, turn_id=turn_id, problem=wrong.problem, repair=wrong.repair))
        sound[turn_id] = _meant(decision)
    kept = {turn_id for turn_id, decision in sound.items() if decision.strategy == "keep" or turns[turn_id].turn.live}
    if lead := leading_turn(stands.analysis.history, kept, model):
        problem = f"{sound[lead].strategy} would touch the thinking that leads the last calls"
        findings.append(Finding(code="live_tail", turn_id=lead, problem=problem, repair="kept"))
        sound[lead] = sound[lead].model_copy(update=KEPT)
    return sound, findings


def _no_such_turn(turn_id: object) -> Finding:
    return Finding(code="unknown_turn", turn_id=str(turn_id), problem="no such turn", repair="ignored")


def _meant(decision: TurnDecision) -> TurnDecision:
    """`decision` without the words its strategy does not use: they must not come back unchecked with a repair."""
    idle = decision.strategy != "summarize" and (decision.summary or decision.excerpts)
    return decision.model_copy(update=NO_WORDS) if idle else decision


def _untouched(stands: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    """What the API would refuse, the live tail and messages of unknown kind stay; a live result that no window holds
    shows a preview."""
    own = turn.turn
    if why := stands.analysis.broken.get(own.id):
        return _TurnFinding("invalid_history", why, "kept as it is", KEPT)
    if own.id in stands.demoted:
        preview = preview_lines(turn)
        shown = decision.strategy == "summarize" and not decision.summary and preview <= _standing(turn, decision)
        update = {} if shown else {"strategy": "summarize", "summary": "", "excerpts": ranges_of(preview)}
        problem = "the live tail alone would fill the window"
        return _TurnFinding("live_demoted", problem, "what is long in it shows a preview", update)
    if (own.live or own.must_stand) and decision.strategy != "keep":
        return _TurnFinding("live_tail", f"{decision.strategy} would touch what is not answered", "kept", KEPT)
    return None


def _flagged(_stands: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    """A failure that the evidence shows is called one."""
    if not turn.failed or decision.failed_approach or decision.strategy == "keep":
        return None
    problem = "the turn shows a failure that the plan does not name"
    return _TurnFinding("failure_not_named", problem, "marked as failed approach", {"failed_approach": True})


def _excerpts_in_range(_stands: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    last = len(turn.lines)
    within = tuple((a, min(b, last)) for a, b in decision.excerpts if a <= b and a <= last)
    if within == decision.excerpts:
        return None
    problem = f"an excerpt names lines outside 1-{last}"
    return _TurnFinding("excerpt_out_of_range", problem, "cut to the turn's lines", {"excerpts": within})


def _true_summary(_stands: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    problem = _invention(turn, decision.summary)
    if not problem:
        return None
    update = {**_lines_too(turn, decision, opening_lines(turn)), "summary": ""}
    return _TurnFinding("invented_summary", problem, "replaced by lines", update)


def _invention(turn: TurnEvidence, summary: str) -> str:
    """What is wrong with a gist of `turn` that names what the turn does not hold; empty if nothing is."""
    names = invented(summary, turn.names) if summary else []
    return f"the summary names {names[0]!r}, which the turn does not hold" if names else ""


def _lines_too(turn: TurnEvidence, decision: TurnDecision, lines: Iterable[int]) -> dict[str, Any]:
    """What makes `decision` a summary in which `lines` stand too."""
    return {"strategy": "summarize", "excerpts": ranges_of(_standing(turn, decision).union(lines))}


def _standing(turn: TurnEvidence, decision: TurnDecision) -> set[int]:
    return line_numbers(decision.excerpts, len(turn.lines))


def _failed(stands: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    """A failed approach stays by a statement of the brief, or else with the lines that show it; one only the planner
    knows of, with its opening."""
    lines = stands.failures[turn.turn.id] if decision.failed_approach else frozenset()
    by_planner = decision.failed_approach and not turn.failed and turn.turn.id not in stands.told
    if by_planner and decision.strategy in ("drop", "reference"):
        lines = opening_lines(turn)
    return _loss_finding("failed_approach", turn, decision, lines, "how it failed", "its decisive lines stay")


def _users_words(stands: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    lines = stands.user_words.get(decision.turn_id, frozenset())
    return _loss_finding("user_words", turn, decision, lines, "words of the user", "they stay verbatim")


def _loss_finding(
    code: str, turn: TurnEvidence, decision: TurnDecision, lines: frozenset[int], what: str, repair: str
) -> _TurnFinding | None:
    if decision.strategy == "keep" or lines <= _standing(turn, decision):
        return None
    return _TurnFinding(code, f"{decision.strategy} would lose {what}", repair, _lines_too(turn, decision, lines))


def _media(stands: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    """An image or document leaves at least its mark and an id that restores it."""
    if decision.strategy != "drop" or not media_marks(stands.analysis.history, turn):
        return None
    problem = "drop would lose an image or document without a trace"
    return _TurnFinding("media", problem, "referenced", {"strategy": "reference"})


def _says_something(_stands: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    if decision.strategy != "summarize" or decision.summary.strip() or decision.excerpts:
        return None
    lines = opening_lines(turn)
    update = _lines_too(turn, decision, lines) if lines else {"strategy": "reference"}
    return _TurnFinding(
        "empty_summary", "a summary without words", "its opening stays" if lines else "referenced", update
    )


_GUARDS: tuple[Callable[[Pinned, TurnEvidence, TurnDecision], _TurnFinding | None], ...] = (
    *(_untouched, _flagged, _excerpts_in_range, _true_summary),
    *(_failed, _users_words, _media, _says_something),
)
"""In this order: what one repairs the next ones read."""


def _guard_facts(evidence: Evidence, facts: Iterable[ExtractedFact]) -> tuple[tuple[ExtractedFact, ...], list[Finding]]:
    """The facts that their source turns bear out."""
    problems = [(fact, _fact_problem(evidence, fact)) for fact in facts]
    findings = [
        Finding(code="invented_fact", turn_id=fact.source, problem=problem, repair="left out")
        for fact, problem in problems
        if problem
    ]
    return tuple(fact for fact, problem in problems if not problem), findings


def _fact_problem(evidence: Evidence, fact: ExtractedFact) -> str:
    turn = evidence.turns.get(fact.source)
    if turn is None:
        return f"the fact's source {fact.source} is no turn"
    names = invented(f"{fact.content}\n{fact.quote}", turn.names)
    if names:
        return f"the fact names {names[0]!r}, which {fact.source} does not hold"
    if (fact.type == "constraint" or fact.quote) and not _is_verbatim(fact.quote, turn):
        return f"the quote {fact.quote[:60]!r} is not the user's own words in {fact.source}"
    return ""


def _is_verbatim(quote: str, turn: TurnEvidence) -> bool:
    words = join_lines(turn.user_lines)
    return bool(quote.strip()) and " ".join(quote.split()) in " ".join(words.split())


def sound_proposal(analysis: Analysis, proposal: Proposal) -> tuple[Proposal, tuple[Finding, ...]]:
    """`proposal` without what no decision can hold, or its turn does not, and what that was.

    Raises:
        PlanRejected: it is no `Proposal`, or does not say where it came from.
    """
    if not isinstance(proposal, Proposal) or not isinstance(proposal.turns, Mapping):
        raise PlanRejected(f"planner: expected a Proposal with turns by id, found {type(proposal).__name__}")
    if not isinstance(proposal.provenance, Provenance):
        raise PlanRejected(f"planner: expected its Provenance, found {type(proposal.provenance).__name__}")
    turns: dict[str, TurnProposal] = {}
    findings: list[Finding] = []
    for turn_id, asked in proposal.turns.items():
        turn = analysis.evidence.turns.get(turn_id)
        sound, finding = (None, _no_such_turn(turn_id)) if turn is None else _sound(turn, asked)
        turns |= {turn_id: sound} if sound else {}
        findings += [finding] if finding else []
    facts = tuple(fact for fact in proposal.facts if isinstance(fact, ExtractedFact))
    if len(facts) < len(proposal.facts):
        findings.append(Finding(code="unsound_proposal", problem="a fact that is no ExtractedFact", repair="left out"))
    page = str(whole_characters(proposal.brief)) if isinstance(proposal.brief, str) else ""
    brief, of_brief = analysis.once(_checked_brief, page)
    return replace(proposal, turns=turns, facts=facts, brief=brief), (*findings, *of_brief)


def _sound(turn: TurnEvidence, asked: TurnProposal) -> tuple[TurnProposal | None, Finding | None]:
    """What can be used of what is proposed for `turn`, and what is wrong with it."""
    turn_id, problem = turn.turn.id, f"expected a TurnProposal, found {type(asked).__name__}"
    try:
        if isinstance(asked, TurnProposal):
            strategy = "keep" if asked.strategy is None else asked.strategy
            fields = {**vars(asked), "turn_id": turn_id, "strategy": strategy}
            sound = proposed(TurnDecision(relevance_score=fields.pop("score"), **fields))
            sound, problem = replace(sound, strategy=asked.strategy), _invention(turn, sound.summary)
            if not problem:
                return sound, None
            finding = Finding(code="invented_summary", turn_id=turn_id, problem=problem, repair="left out")
            return replace(sound, summary=""), finding
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        problem = f"{wrong['loc'][0]}: {wrong['msg']}"
    return None, Finding(code="unsound_proposal", turn_id=turn_id, problem=problem, repair="ignored")
