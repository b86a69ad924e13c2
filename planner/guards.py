"""What holds whatever a plan says: each guard reads one decision, fact or statement and repairs it, only ever keeping
more.

Pure and idempotent: guarding a guarded plan finds nothing new. The planner's answer, a person's edit and a file
from disk all go through here before anything is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from planner.analysis import Analysis
from planner.brief import check_brief
from planner.decision import TurnDecision
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.grounding import invented
from planner.layout.layout import Layout, lay_out
from planner.layout.placeholders import excerpt_numbers, media_marks, ranges_of
from planner.layout.thinking import thinking_policy
from planner.plan import CompactionPlan, ExtractedFact, Finding
from planner.proposal import Proposal
from planner.reading.lines import join_lines
from planner.relevance.ranking import pinned_lines, preview_lines
from planner.selection import demotes_live

__all__ = ["guard_plan", "strike_invented"]

OPENING_LINES = 2
"""How many lines speak for a turn whose summary had to go."""

Repair = tuple[TurnDecision, Finding]
_Guard = Callable[[TurnEvidence, TurnDecision], Repair | None]


@dataclass(frozen=True)
class _Context:
    """What the guards of one plan go by."""

    analysis: Analysis
    demoted: bool
    """True if the live tail is too large for the window, so that its results give way to previews."""


def guard_plan(plan: CompactionPlan, analysis: Analysis) -> CompactionPlan:
    """`plan` behind the guards: repaired where needed, counted, with what was wrong; bound to its layout.

    `analysis` must be of the history the plan was made for. Idempotent.
    """
    evidence = analysis.evidence
    live = sum(turn.tokens for turn in evidence.turns.values() if turn.turn.live)
    context = _Context(analysis, demotes_live(live, plan.window_tokens))
    decisions, findings = _guard_decisions(context, plan.turns)
    facts, fact_findings = _guard_facts(evidence, plan.extracted_facts)
    brief, brief_findings = check_brief(plan.brief, evidence)
    findings = (*findings, *fact_findings, *brief_findings)
    layout = _laid_out(plan, analysis, decisions, brief)
    if _grows(layout, evidence):
        problem = "the view would be no smaller"
        findings = (*findings, Finding(code="would_grow", problem=problem, repair="all kept"))
        kept = {turn_id: _keep(decision) for turn_id, decision in decisions.items()}
        decisions, _ = _guard_decisions(context, kept.values())
        layout = _laid_out(plan, analysis, decisions, brief)
        if _grows(layout, evidence):
            decisions, layout = kept, _laid_out(plan, analysis, kept, brief)
    known = set(plan.findings)
    update = {
        "turns": tuple(_counted(analysis, layout, decisions)),
        "brief": brief,
        "extracted_facts": facts,
        "estimated_tokens": layout.tokens,
        "findings": (*plan.findings, *(finding for finding in findings if finding not in known)),
    }
    return plan.model_copy(update=update).bind(analysis, layout)


def _grows(layout: Layout, evidence: Evidence) -> bool:
    return layout.first_changed is not None and layout.tokens >= evidence.tokens


def _laid_out(plan: CompactionPlan, analysis: Analysis, decisions: dict[str, TurnDecision], brief: str) -> Layout:
    return lay_out(
        analysis.history,
        analysis.evidence,
        analysis.counter,
        decisions,
        brief=brief,
        thinking=thinking_policy(plan.target_model),
        restore_tool=plan.restore_tool,
    )


def _counted(analysis: Analysis, layout: Layout, decisions: dict[str, TurnDecision]) -> Iterator[TurnDecision]:
    after = {turn_id: analysis.counter.text(entry + "\n") if entry else 0 for turn_id, entry in layout.entries.items()}
    for turn_id, turn in analysis.evidence.turns.items():
        tokens = {"tokens_before": turn.tokens, "tokens_after": after.get(turn_id, turn.tokens)}
        yield decisions[turn_id].model_copy(update=tokens)


def strike_invented(evidence: Evidence, proposal: Proposal) -> tuple[Proposal, tuple[Finding, ...]]:
    """`proposal` without the gists that name what their turn does not hold, before anything is weighed by them."""
    turns = dict(proposal.turns)
    findings: list[Finding] = []
    for turn_id, asked in proposal.turns.items():
        names = invented(asked.summary, evidence.turns[turn_id].names) if asked.summary else []
        if names:
            turns[turn_id] = replace(asked, summary="")
            findings.append(_invented_summary(evidence.turns[turn_id], names[0], "left out"))
    return replace(proposal, turns=turns), tuple(findings)


def _guard_decisions(
    context: _Context, decisions: Iterable[TurnDecision]
) -> tuple[dict[str, TurnDecision], tuple[Finding, ...]]:
    """One sound decision for every turn, in order."""
    turns = context.analysis.evidence.turns
    by_turn: dict[str, TurnDecision] = {}
    findings: list[Finding] = []
    for decision in decisions:
        if decision.turn_id in turns:
            by_turn[decision.turn_id] = decision
        else:
            findings.append(
                Finding(code="unknown_turn", turn_id=decision.turn_id, problem="no such turn", repair="ignored")
            )
    sound: dict[str, TurnDecision] = {}
    guards = tuple(_guards(context))
    for turn_id, turn in turns.items():
        sound[turn_id], more = _guarded(guards, turn, by_turn.get(turn_id))
        findings += more
    return sound, tuple(findings)


def _guarded(
    guards: Sequence[_Guard], turn: TurnEvidence, decision: TurnDecision | None
) -> tuple[TurnDecision, list[Finding]]:
    findings: list[Finding] = []
    if decision is None:
        decision = TurnDecision(turn_id=turn.turn.id, strategy="keep", relevance_score=1.0, reason="no decision")
        findings.append(_finding("missing_decision", turn, "the plan says nothing of it", "kept"))
    decision = _meant(decision)
    for guard in guards:
        repaired = guard(turn, decision)
        if repaired is not None:
            decision, finding = repaired
            findings.append(finding)
    return _meant(decision), findings


def _meant(decision: TurnDecision) -> TurnDecision:
    """`decision` without the words its strategy does not use: they must not come back unchecked with a repair."""
    return decision if decision.strategy == "summarize" else _without_words(decision)


def _without_words(decision: TurnDecision) -> TurnDecision:
    return (
        decision.model_copy(update={"summary": "", "excerpts": ()})
        if decision.summary or decision.excerpts
        else decision
    )


def _guards(context: _Context) -> Iterator[_Guard]:
    yield lambda turn, decision: _broken(turn, decision, context.analysis.broken.get(turn.turn.id, ""))
    yield lambda turn, decision: _live(turn, decision, context.demoted)
    yield _flagged
    yield _excerpts_in_range
    yield _true_summary
    yield _failed
    yield _users_words
    yield lambda turn, decision: _media(turn, decision, bool(media_marks(context.analysis.history, turn)))
    yield _says_something


def _finding(code: str, turn: TurnEvidence, problem: str, repair: str) -> Finding:
    return Finding(code=code, turn_id=turn.turn.id, problem=problem, repair=repair)


def _keep(decision: TurnDecision) -> TurnDecision:
    return decision.model_copy(update={"strategy": "keep", "excerpts": (), "summary": ""})


def _broken(turn: TurnEvidence, decision: TurnDecision, why: str) -> Repair | None:
    if not why:
        return None
    return _keep(decision), _finding("invalid_history", turn, why, "kept as it is")


def _live(turn: TurnEvidence, decision: TurnDecision, demoted: bool) -> Repair | None:
    """The live tail and messages of unknown kind stay; a live result that no window holds shows a preview."""
    if not (turn.turn.live or turn.turn.must_stand):
        return None
    if not (demoted and turn.turn.kind == "tools" and turn.turn.live):
        if decision.strategy == "keep":
            return None
        problem = f"{decision.strategy} would touch what is not answered"
        return _keep(decision), _finding("live_tail", turn, problem, "kept")
    preview = preview_lines(turn)
    cut = decision
    if decision.strategy != "summarize" or decision.summary or preview - _standing(turn, decision):
        cut = decision.model_copy(update={"strategy": "summarize", "summary": "", "excerpts": ranges_of(preview)})
    return cut, _finding(
        "live_demoted", turn, "the live tail alone would fill the window", "its results show a preview"
    )


def _flagged(turn: TurnEvidence, decision: TurnDecision) -> Repair | None:
    """A failure that the evidence shows is called one."""
    if not turn.failed or decision.failed_approach or decision.strategy == "keep":
        return None
    return decision.model_copy(update={"failed_approach": True}), _finding(
        "failure_not_named",
        turn,
        "the turn shows a failure that the plan does not name",
        "marked as failed approach",
    )


def _excerpts_in_range(turn: TurnEvidence, decision: TurnDecision) -> Repair | None:
    last = len(turn.lines)
    sound = tuple((a, min(b, last)) for a, b in decision.excerpts if a <= b and a <= last)
    if sound == decision.excerpts:
        return None
    return decision.model_copy(update={"excerpts": sound}), _finding(
        "excerpt_out_of_range", turn, f"an excerpt names lines outside 1-{last}", "cut to the turn's lines"
    )


def _true_summary(turn: TurnEvidence, decision: TurnDecision) -> Repair | None:
    names = invented(decision.summary, turn.names) if decision.summary else []
    if decision.strategy != "summarize" or not names:
        return None
    changed = _with_lines(turn, decision.model_copy(update={"summary": ""}), _opening(turn))
    return changed, _invented_summary(turn, names[0], "replaced by lines")


def _invented_summary(turn: TurnEvidence, name: str, repair: str) -> Finding:
    return _finding("invented_summary", turn, f"the summary names {name!r}, which the turn does not hold", repair)


def _opening(turn: TurnEvidence) -> frozenset[int]:
    filled = [line.number for line in turn.lines if line.text.strip()]
    return frozenset(filled[:OPENING_LINES] + filled[-1:])


def _with_lines(turn: TurnEvidence, decision: TurnDecision, lines: Iterable[int]) -> TurnDecision:
    """`decision` as a summary in which `lines` stand too."""
    update = {"strategy": "summarize", "excerpts": ranges_of(_standing(turn, decision) | set(lines))}
    return decision.model_copy(update=update)


def _failed(turn: TurnEvidence, decision: TurnDecision) -> Repair | None:
    """A failed approach stays with the lines that show it; one only the planner knows of, with its opening."""
    if decision.strategy == "keep" or not decision.failed_approach:
        return None
    lines = frozenset(turn.decisive_lines)
    if not lines and decision.strategy in ("drop", "reference") and not turn.failed:
        lines = _opening(turn)
    if lines <= _standing(turn, decision):
        return None
    return _with_lines(turn, decision, lines), _finding(
        "failed_approach", turn, f"{decision.strategy} would lose how it failed", "its decisive lines stay"
    )


def _users_words(turn: TurnEvidence, decision: TurnDecision) -> Repair | None:
    lines = pinned_lines(turn, demoted=False)
    if decision.strategy == "keep" or lines <= _standing(turn, decision):
        return None
    return _with_lines(turn, decision, lines), _finding(
        "user_words", turn, f"{decision.strategy} would lose words of the user", "they stay verbatim"
    )


def _standing(turn: TurnEvidence, decision: TurnDecision) -> set[int]:
    return excerpt_numbers(decision, len(turn.lines)) if decision.strategy == "summarize" else set()


def _media(turn: TurnEvidence, decision: TurnDecision, has_media: bool) -> Repair | None:
    """An image or document leaves at least its mark and an id that restores it."""
    if decision.strategy != "drop" or not has_media:
        return None
    problem = "drop would lose an image or document without a trace"
    return decision.model_copy(update={"strategy": "reference"}), _finding("media", turn, problem, "referenced")


def _says_something(turn: TurnEvidence, decision: TurnDecision) -> Repair | None:
    if decision.strategy != "summarize" or decision.summary.strip() or decision.excerpts:
        return None
    lines = _opening(turn)
    if not lines:
        return decision.model_copy(update={"strategy": "reference"}), _finding(
            "empty_summary", turn, "a summary without words of a turn without text", "referenced"
        )
    return _with_lines(turn, decision, lines), _finding(
        "empty_summary", turn, "a summary without words", "its opening stays"
    )


def _guard_facts(
    evidence: Evidence, facts: Sequence[ExtractedFact]
) -> tuple[tuple[ExtractedFact, ...], tuple[Finding, ...]]:
    """The facts that their source turns bear out."""
    sound: list[ExtractedFact] = []
    findings: list[Finding] = []
    for fact in facts:
        problem = _fact_problem(evidence, fact)
        if problem:
            findings.append(Finding(code="invented_fact", turn_id=fact.source, problem=problem, repair="left out"))
        else:
            sound.append(fact)
    return tuple(sound), tuple(findings)


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
