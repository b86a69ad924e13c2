"""What holds whatever a plan says: each guard reads one decision or fact and repairs it, only ever keeping more.

Pure and idempotent: guarding a guarded plan finds nothing new. The planner's answer, a person's edit and a file
from disk all go through here before anything is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.grounding import invented
from planner.layout.placeholders import excerpt_numbers, ranges_of
from planner.plan import ExtractedFact, Finding, TurnDecision
from planner.reading.lines import join_lines

__all__ = ["LIVE_RESULT_FLOOR_TOKENS", "LIVE_SHARE", "guard_decisions", "guard_facts", "may_demote"]

LIVE_SHARE = 1 / 3
"""The live tail may fill this share of the target before results in it are demoted to the store."""
LIVE_RESULT_FLOOR_TOKENS = 400
"""A smaller live tail is never demoted, whatever the target."""
PREVIEW_LINES = 3
"""A demoted result always shows this many of its first and of its last lines."""
OPENING_LINES = 2
"""How many lines speak for a turn whose summary had to go."""

Repair = tuple[TurnDecision, Finding]
_Guard = Callable[[TurnEvidence, TurnDecision], Repair | None]


@dataclass(frozen=True)
class Guarded:
    """Decisions for every turn of the history, in order, and what had to be said of them."""

    decisions: dict[str, TurnDecision]
    findings: tuple[Finding, ...]


def may_demote(evidence: Evidence, target_tokens: int) -> bool:
    """True if the live tail is so large against the target that its results give way to previews."""
    live = sum(turn.tokens for turn in evidence.turns.values() if turn.turn.live)
    return live > max(LIVE_RESULT_FLOOR_TOKENS, target_tokens * LIVE_SHARE)


def guard_decisions(
    evidence: Evidence, decisions: Iterable[TurnDecision], target_tokens: int, broken: Mapping[str, str] = {}
) -> Guarded:
    """One sound decision for every turn of `evidence`.

    `broken` names turns that the API would refuse as they are, and why: those are kept untouched.
    """
    given: dict[str, TurnDecision] = {}
    findings: list[Finding] = []
    for decision in decisions:
        if decision.turn_id in evidence.turns:
            given[decision.turn_id] = decision
        else:
            findings.append(
                Finding(code="unknown_turn", turn_id=decision.turn_id, problem="no such turn", repair="ignored")
            )
    sound: dict[str, TurnDecision] = {}
    demote = may_demote(evidence, target_tokens)
    for turn_id, turn in evidence.turns.items():
        decision, said = _guarded(turn, given.get(turn_id), demote, broken.get(turn_id, ""))
        sound[turn_id] = decision
        findings += said
    return Guarded(sound, tuple(findings))


def _guarded(
    turn: TurnEvidence, decision: TurnDecision | None, demote: bool, broken: str
) -> tuple[TurnDecision, list[Finding]]:
    if decision is None:
        kept = TurnDecision(turn_id=turn.turn.id, strategy="keep", relevance_score=1.0, reason="no decision")
        return kept, [_finding("missing_decision", turn, "the plan says nothing of it", "kept")]
    findings: list[Finding] = []
    decision = _meant(decision)
    for guard in _guards(demote, broken):
        repaired = guard(turn, decision)
        if repaired is not None:
            decision, finding = repaired
            findings.append(finding)
    return _meant(decision), findings


def _meant(decision: TurnDecision) -> TurnDecision:
    """`decision` without the words its strategy does not use: they must not come back unchecked with a repair."""
    unused = {"summary": "", "excerpts": ()} if decision.strategy != "summarize" else {}
    if decision.strategy in ("keep", "drop"):
        unused["mentions"] = ()
    return decision.model_copy(update=unused)


def _guards(demote: bool, broken: str) -> Iterator[_Guard]:
    yield lambda turn, decision: _broken(turn, decision, broken)
    yield lambda turn, decision: _live(turn, decision, demote)
    yield _flagged
    yield _excerpts_in_range
    yield _true_summary
    yield _true_mentions
    yield _failed
    yield _users_words
    yield _says_something


def _finding(code: str, turn: TurnEvidence, problem: str, repair: str) -> Finding:
    return Finding(code=code, turn_id=turn.turn.id, problem=problem, repair=repair)


def _keep(decision: TurnDecision) -> TurnDecision:
    return decision.model_copy(update={"strategy": "keep", "excerpts": (), "summary": "", "mentions": ()})


def _broken(turn: TurnEvidence, decision: TurnDecision, why: str) -> Repair | None:
    if not why:
        return None
    return _keep(decision), _finding("invalid_history", turn, why, "kept as it is")


def _live(turn: TurnEvidence, decision: TurnDecision, demote: bool) -> Repair | None:
    """The live tail and messages of unknown kind stay; a huge live result may show a preview."""
    if decision.strategy == "keep" or not (turn.turn.live or turn.turn.kind == "other"):
        return None
    if not (demote and turn.turn.kind == "tools" and decision.strategy == "summarize"):
        return _keep(decision), _finding(
            "live_tail", turn, f"{decision.strategy} would touch what is not answered", "kept"
        )
    preview = preview_lines(turn)
    missing = preview - excerpt_numbers(decision)
    if not missing and not decision.summary:
        return None
    return _with_lines(decision, preview).model_copy(update={"summary": ""}), _finding(
        "live_preview", turn, "the preview of a live result lacks its ends", "added"
    )


def preview_lines(turn: TurnEvidence) -> frozenset[int]:
    """Everything but results, and the first and last lines of each result."""
    shown = {line.number for line in turn.lines if line.part != "result"}
    for call in turn.calls:
        own = [line.number for line in turn.lines if line.block == call.result_block]
        shown.update(own[:PREVIEW_LINES] + own[-PREVIEW_LINES:])
    return frozenset(shown)


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
    named = invented(decision.summary, turn.text) if decision.summary else []
    if decision.strategy != "summarize" or not named:
        return None
    changed = _with_lines(decision.model_copy(update={"summary": ""}), _opening(turn))
    return changed, _finding(
        "invented_summary",
        turn,
        f"the summary names {named[0]!r}, which the turn does not hold",
        "replaced by lines",
    )


def _true_mentions(turn: TurnEvidence, decision: TurnDecision) -> Repair | None:
    text = turn.text
    held = tuple(name for name in decision.mentions if name.strip() and name in text)
    if held == decision.mentions:
        return None
    return decision.model_copy(update={"mentions": held}), _finding(
        "invented_mention", turn, "a name is listed that the turn does not hold", "left out"
    )


def _opening(turn: TurnEvidence) -> frozenset[int]:
    filled = [line.number for line in turn.lines if line.text.strip()]
    return frozenset(filled[:OPENING_LINES] + filled[-1:])


def _with_lines(decision: TurnDecision, lines: Iterable[int]) -> TurnDecision:
    """`decision` as a summary in which `lines` stand too."""
    standing = excerpt_numbers(decision) if decision.strategy == "summarize" else set()
    update = {"strategy": "summarize", "excerpts": ranges_of(standing | set(lines))}
    return decision.model_copy(update=update)


def _failed(turn: TurnEvidence, decision: TurnDecision) -> Repair | None:
    """A failed approach stays with the lines that show it; one only the planner knows of, with its opening."""
    if decision.strategy == "keep" or not decision.failed_approach:
        return None
    lines = frozenset(turn.decisive_lines)
    if not lines and decision.strategy in ("drop", "reference") and not turn.failed:
        lines = _opening(turn)
    if lines <= _standing(decision):
        return None
    return _with_lines(decision, lines), _finding(
        "failed_approach", turn, f"{decision.strategy} would lose how it failed", "its decisive lines stay"
    )


def _users_words(turn: TurnEvidence, decision: TurnDecision) -> Repair | None:
    lines = frozenset(turn.demand_lines)
    if decision.strategy == "keep" or lines <= _standing(decision):
        return None
    return _with_lines(decision, lines), _finding(
        "user_words", turn, f"{decision.strategy} would lose words of the user", "they stay verbatim"
    )


def _standing(decision: TurnDecision) -> set[int]:
    return excerpt_numbers(decision) if decision.strategy == "summarize" else set()


def _says_something(turn: TurnEvidence, decision: TurnDecision) -> Repair | None:
    if decision.strategy != "summarize" or decision.summary.strip() or decision.excerpts:
        return None
    lines = _opening(turn)
    if not lines:
        return decision.model_copy(update={"strategy": "reference"}), _finding(
            "empty_summary", turn, "a summary without words of a turn without text", "referenced"
        )
    return _with_lines(decision, lines), _finding("empty_summary", turn, "a summary without words", "its opening stays")


def guard_facts(
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
    named = invented(f"{fact.content}\n{fact.quote}", turn.text)
    if named:
        return f"the fact names {named[0]!r}, which {fact.source} does not hold"
    if fact.type == "constraint" and not _is_verbatim(fact.quote, turn):
        return f"the quote {fact.quote[:60]!r} is not the user's own words in {fact.source}"
    return ""


def _is_verbatim(quote: str, turn: TurnEvidence) -> bool:
    said = join_lines(turn.user_lines)
    return bool(quote.strip()) and " ".join(quote.split()) in " ".join(said.split())
