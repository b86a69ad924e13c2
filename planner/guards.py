"""What holds whatever a planner, a person or a file says: what a planner answers is put in sound form, and each guard
reads one decision, fact or statement of a plan and repairs it, only ever keeping more.

Pure and idempotent: guarding a guarded plan finds nothing new.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from planner.analysis import Analysis
from planner.brief import check_brief
from planner.errors import PlanRejected
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.grounding import invented
from planner.layout import lay_out
from planner.placeholders import line_numbers, media_marks, ranges_of
from planner.plan import (
    CompactionPlan,
    ExtractedFact,
    Finding,
    Layout,
    Provenance,
    Strategy,
    TurnDecision,
    whole_characters,
)
from planner.proposal import Proposal, TurnProposal
from planner.reading.lines import join_lines
from planner.selection import KEPT, Pinned, preview_lines

__all__ = ["guard_plan", "sound_proposal"]

OPENING_LINES = 2
"""How many lines speak for a turn whose summary had to go."""
STRATEGIES = get_args(Strategy)
NO_OPINION = 0.5
"""The score of a turn of which the planner says nothing that can be used."""
NO_WORDS: Mapping[str, Any] = {"summary": "", "excerpts": ()}


@dataclass(frozen=True)
class _TurnFinding:
    """What a guard finds wrong with a decision, and what changes in it."""

    code: str
    problem: str
    repair: str
    update: Mapping[str, Any]


_Guard = Callable[[Pinned, TurnEvidence, TurnDecision], _TurnFinding | None]


def guard_plan(plan: CompactionPlan, analysis: Analysis) -> CompactionPlan:
    """`plan` behind the guards: repaired where needed, counted, with what was wrong; bound to its layout.

    `analysis` must be of the history the plan was made for. Idempotent.
    """
    brief, of_brief = check_brief(plan.brief, analysis.evidence)
    pinned = Pinned(analysis, plan.window_tokens, plan.target_tokens, brief)
    sound, findings = _guard_decisions(pinned, plan.turns)
    facts, of_facts = _guard_facts(analysis.evidence, plan.extracted_facts)
    findings += (*of_facts, *of_brief)
    for decisions in _ever_more(pinned, sound):
        tool = plan.restore_tool
        layout = lay_out(analysis, decisions, brief=brief, model=plan.target_model, restore_tool=tool)
        if layout.first_changed is None or layout.tokens < analysis.tokens:
            break
    if pinned.gave_way:
        problem = f"what the user demands in {pinned.gave_way} turns more would fill the window"
        findings.append(Finding(code="demands_stored", problem=problem, repair="stored, each under its turn"))
    if decisions is not sound:
        findings.append(Finding(code="would_grow", problem="the view would be no smaller", repair="all kept"))
    known = set(plan.findings)
    update = {
        "turns": tuple(_counted(analysis, layout, decisions)),
        "brief": brief,
        "extracted_facts": facts,
        "estimated_tokens": layout.tokens,
        "findings": (*plan.findings, *(finding for finding in findings if finding not in known)),
    }
    return plan.model_copy(update=update).bind(analysis, layout)


def _ever_more(pinned: Pinned, sound: dict[str, TurnDecision]) -> Iterator[dict[str, TurnDecision]]:
    """What is tried until a view is smaller: `sound`; all kept but live results that no window holds; all kept."""
    yield sound
    kept = {turn_id: decision.model_copy(update=KEPT) for turn_id, decision in sound.items()}
    yield _guard_decisions(pinned, kept.values())[0]
    yield kept


def _counted(analysis: Analysis, layout: Layout, decisions: Mapping[str, TurnDecision]) -> Iterator[TurnDecision]:
    after = {turn_id: analysis.counter.text(entry + "\n") if entry else 0 for turn_id, entry in layout.entries.items()}
    for turn_id, turn in analysis.evidence.turns.items():
        tokens = {"tokens_before": turn.tokens, "tokens_after": after.get(turn_id, turn.tokens)}
        yield decisions[turn_id].model_copy(update=tokens)


def _guard_decisions(
    pinned: Pinned, decisions: Iterable[TurnDecision]
) -> tuple[dict[str, TurnDecision], list[Finding]]:
    """One sound decision for every turn, in order."""
    turns = pinned.analysis.evidence.turns
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
            found = guard(pinned, turn, decision)
            if found is not None:
                decision = decision.model_copy(update=found.update)
                findings.append(Finding(code=found.code, turn_id=turn_id, problem=found.problem, repair=found.repair))
        sound[turn_id] = _meant(decision)
    return sound, findings


def _no_such_turn(turn_id: object) -> Finding:
    return Finding(code="unknown_turn", turn_id=str(turn_id), problem="no such turn", repair="ignored")


def _meant(decision: TurnDecision) -> TurnDecision:
    """`decision` without the words its strategy does not use: they must not come back unchecked with a repair."""
    idle = decision.strategy != "summarize" and (decision.summary or decision.excerpts)
    return decision.model_copy(update=NO_WORDS) if idle else decision


def _broken(pinned: Pinned, turn: TurnEvidence, _decision: TurnDecision) -> _TurnFinding | None:
    why = pinned.analysis.broken.get(turn.turn.id)
    return _TurnFinding("invalid_history", why, "kept as it is", KEPT) if why else None


def _live(pinned: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    """The live tail and messages of unknown kind stay; a live result that no window holds shows a preview."""
    if not (turn.turn.live or turn.turn.must_stand):
        return None
    if not pinned.is_demoted(turn):
        problem = f"{decision.strategy} would touch what is not answered"
        return _TurnFinding("live_tail", problem, "kept", KEPT) if decision.strategy != "keep" else None
    preview = preview_lines(turn)
    stands = decision.strategy == "summarize" and not decision.summary and preview <= _standing(turn, decision)
    update = {} if stands else {"strategy": "summarize", "summary": "", "excerpts": ranges_of(preview)}
    problem = "the live tail alone would fill the window"
    return _TurnFinding("live_demoted", problem, "what is long in it shows a preview", update)


def _flagged(_pinned: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    """A failure that the evidence shows is called one."""
    if not turn.failed or decision.failed_approach or decision.strategy == "keep":
        return None
    problem = "the turn shows a failure that the plan does not name"
    return _TurnFinding("failure_not_named", problem, "marked as failed approach", {"failed_approach": True})


def _excerpts_in_range(_pinned: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    last = len(turn.lines)
    within = tuple((a, min(b, last)) for a, b in decision.excerpts if a <= b and a <= last)
    if within == decision.excerpts:
        return None
    problem = f"an excerpt names lines outside 1-{last}"
    return _TurnFinding("excerpt_out_of_range", problem, "cut to the turn's lines", {"excerpts": within})


def _true_summary(_pinned: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    problem = _invention(turn, decision.summary)
    if not problem:
        return None
    update = {**_lines_too(turn, decision, _opening(turn)), "summary": ""}
    return _TurnFinding("invented_summary", problem, "replaced by lines", update)


def _invention(turn: TurnEvidence, summary: str) -> str:
    """What is wrong with a gist of `turn` that names what the turn does not hold; empty if nothing is."""
    names = invented(summary, turn.names) if summary else []
    return f"the summary names {names[0]!r}, which the turn does not hold" if names else ""


def _opening(turn: TurnEvidence) -> frozenset[int]:
    filled = [line.number for line in turn.lines if line.text.strip()]
    return frozenset(filled[:OPENING_LINES] + filled[-1:])


def _lines_too(turn: TurnEvidence, decision: TurnDecision, lines: Iterable[int]) -> dict[str, Any]:
    """What makes `decision` a summary in which `lines` stand too."""
    return {"strategy": "summarize", "excerpts": ranges_of(_standing(turn, decision).union(lines))}


def _failed(pinned: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    """A failed approach stays by a statement of the brief, or else with the lines that show it; one only the planner
    knows of, with its opening."""
    if decision.strategy == "keep" or not decision.failed_approach:
        return None
    lines = pinned.failure_lines(turn)
    is_told = turn.failed or turn.turn.id in pinned.told
    if not lines and decision.strategy in ("drop", "reference") and not is_told:
        lines = _opening(turn)
    if lines <= _standing(turn, decision):
        return None
    problem = f"{decision.strategy} would lose how it failed"
    return _TurnFinding("failed_approach", problem, "its decisive lines stay", _lines_too(turn, decision, lines))


def _users_words(pinned: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    lines = pinned.user_words(turn)
    if decision.strategy == "keep" or lines <= _standing(turn, decision):
        return None
    problem = f"{decision.strategy} would lose words of the user"
    return _TurnFinding("user_words", problem, "they stay verbatim", _lines_too(turn, decision, lines))


def _standing(turn: TurnEvidence, decision: TurnDecision) -> set[int]:
    return line_numbers(decision.excerpts, len(turn.lines))


def _media(pinned: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    """An image or document leaves at least its mark and an id that restores it."""
    if decision.strategy != "drop" or not media_marks(pinned.analysis.history, turn):
        return None
    problem = "drop would lose an image or document without a trace"
    return _TurnFinding("media", problem, "referenced", {"strategy": "reference"})


def _says_something(_pinned: Pinned, turn: TurnEvidence, decision: TurnDecision) -> _TurnFinding | None:
    if decision.strategy != "summarize" or decision.summary.strip() or decision.excerpts:
        return None
    lines = _opening(turn)
    if not lines:
        problem = "a summary without words of a turn without text"
        return _TurnFinding("empty_summary", problem, "referenced", {"strategy": "reference"})
    problem = "a summary without words"
    return _TurnFinding("empty_summary", problem, "its opening stays", _lines_too(turn, decision, lines))


_GUARDS: tuple[_Guard, ...] = (
    *(_broken, _live, _flagged, _excerpts_in_range, _true_summary),
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


def sound_proposal(evidence: Evidence, proposal: Proposal) -> tuple[Proposal, tuple[Finding, ...]]:
    """`proposal` with all that selection cannot work with, or that its turn does not hold, mended or left out, and what
    that was: numbers within bounds, line ranges within their turn, text that is text.

    Raises:
        PlanRejected: it is no `Proposal`, or does not say where it came from.
    """
    if not isinstance(proposal, Proposal) or not isinstance(proposal.turns, Mapping):
        raise PlanRejected(f"planner: expected a Proposal with turns by id, found {type(proposal).__name__}")
    if not isinstance(proposal.provenance, Provenance):
        raise PlanRejected(f"planner: expected its Provenance, found {type(proposal.provenance).__name__}")
    turns: dict[str, TurnProposal] = {}
    findings: list[Finding] = []
    invented_gists: list[Finding] = []

    def unsound(turn_id: str, problem: str, repair: str) -> None:
        findings.append(Finding(code="unsound_proposal", turn_id=turn_id, problem=problem, repair=repair))

    for turn_id, asked in proposal.turns.items():
        turn = evidence.turns.get(turn_id)
        if turn is None:
            findings.append(_no_such_turn(turn_id))
        elif not isinstance(asked, TurnProposal):
            unsound(turn_id, f"expected a TurnProposal, found {type(asked).__name__}", "ignored")
        else:
            mended = _mended(turn, asked)
            if wrong := [name for name in PROPOSED if getattr(asked, name) != getattr(mended, name)]:
                unsound(turn_id, f"{', '.join(wrong)} out of bounds", "mended")
            if problem := _invention(turn, mended.summary):
                mended, code = replace(mended, summary=""), "invented_summary"
                invented_gists.append(Finding(code=code, turn_id=turn_id, problem=problem, repair="left out"))
            turns[turn_id] = mended
    facts = tuple(fact for fact in proposal.facts if isinstance(fact, ExtractedFact))
    if len(facts) < len(proposal.facts):
        unsound("", "a fact that is no ExtractedFact", "left out")
    sound = replace(proposal, turns=turns, facts=facts, brief=_text(proposal.brief))
    return sound, (*findings, *invented_gists)


PROPOSED = ("score", "reason", "strategy", "summary", "excerpts", "failed_approach")
"""What may be out of bounds in a `TurnProposal`."""


def _mended(turn: TurnEvidence, asked: TurnProposal) -> TurnProposal:
    return TurnProposal(
        turn.turn.id,
        score=_score(asked.score),
        reason=_text(asked.reason),
        strategy=asked.strategy if asked.strategy in STRATEGIES else None,
        summary=_text(asked.summary),
        excerpts=tuple(_ranges(asked.excerpts, len(turn.lines))),
        failed_approach=asked.failed_approach is True,
    )


def _score(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return NO_OPINION
    return float(min(1.0, max(0.0, value)))


def _text(value: object) -> str:
    return str(whole_characters(value)) if isinstance(value, str) else ""


def _ranges(excerpts: object, last: int) -> Iterator[tuple[int, int]]:
    """The line ranges of `excerpts` that a turn of `last` lines has."""
    for pair in excerpts if isinstance(excerpts, tuple | list) else ():
        if isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(end, int) for end in pair):
            first, until = max(1, pair[0]), min(last, pair[1])
            if first <= until:
                yield first, until
