"""Checks every decision, fact and statement of a plan, and repairs what is wrong. A repair only ever keeps more.

A plan may come from a model, rules, a person or a file, and is not trusted: it must not lose failures, words of the
user or unanswered messages, nor contain made-up names. Checking a repaired plan again finds nothing new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from planner.analysis import Analysis
from planner.brief import PageStatement, check_brief, raw_tokens_of, replaced_effects, unlisted, with_notes, with_record
from planner.errors import PlanRejected, SettingsError, StalePlan
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.grounding import invented
from planner.layout import lay_out, leading_turn
from planner.pinned import Pinned, pinned
from planner.placeholders import line_numbers, media_marks, ranges_of
from planner.plan import (
    CompactionPlan,
    ExtractedFact,
    Finding,
    Layout,
    Proposal,
    Provenance,
    TurnDecision,
    TurnProposal,
    proposed,
    whole_characters,
)
from planner.reading.lines import join_lines
from planner.reading.secrets import MARK, redact
from planner.rules import effects_records
from planner.selection import KEPT, opening_lines

NAMED_TURNS = 5
"""Largest number of turns that a finding names."""
OF_THE_VIEW = frozenset({"effects_cut", "target_unreachable", "user_words_cut"})
"""Kinds of findings on the compacted messages as they are now. Each check replaces the earlier ones."""
ALL_KEPT = frozenset({"saves_too_little", "would_grow"})
"""Kinds of findings on why nothing is changed. They are out of date once something is."""


def check_plan(plan: CompactionPlan, analysis: Analysis, least_savings: int = 0) -> CompactionPlan:
    """Check and repair `plan`. Return it with remarks on the repairs, the exact size of the compacted messages, and its
    `analysis`, with which it can be applied.

    If the compacted messages save less than `least_savings` tokens, or none, everything is kept.

    Raises:
        StalePlan: the plan was made for another history.
        SettingsError: an argument of the wrong type.
    """
    if not isinstance(plan, CompactionPlan):
        raise SettingsError(f"plan: expected a CompactionPlan, found {type(plan).__name__}")
    if not isinstance(analysis, Analysis):
        expected = "what planner.analysis.analyze(messages) returns"
        raise SettingsError(f"analysis: expected {expected}, found {type(analysis).__name__}")
    if plan.history.digest != analysis.history.digest:
        count = len(analysis.history.messages)
        raise StalePlan(f"the plan was made for other messages than these {count}: plan again")
    written, brief_findings = analysis.once(_checked_brief, plan.brief)
    limits = plan.window_tokens, plan.target_tokens, plan.target_model
    pinned_parts = pinned(analysis, *limits, written, plan.provenance.planner)
    sound, findings = _guard_decisions(pinned_parts, plan.turns, plan.target_model)
    facts, fact_findings = _guard_facts(analysis.evidence, plan.extracted_facts)
    findings += (*fact_findings, *brief_findings)
    for decisions in _keeping_ever_more(pinned_parts, sound, plan.target_model):
        lay_out_with = partial(lay_out, analysis, decisions, model=plan.target_model, restore_tool=plan.restore_tool)
        layout = lay_out_with(brief=written)
        wanted = least_savings if decisions is sound else 1  # if more is kept, any saving is enough
        most_tokens = analysis.tokens - max(1, wanted)
        if layout.first_changed is None or layout.tokens <= most_tokens:
            break  # at the latest when everything is kept, as then nothing changes
    removed = {turn_id for turn_id, decision in decisions.items() if decision.strategy != "keep"}
    all_records = analysis.evidence.once(effects_records)
    records = [[one for one in record if not removed.isdisjoint(one.turns)] for record in all_records]
    target = min(plan.target_tokens, most_tokens)
    brief, layout = _with_effects(analysis, written, layout, records, target, most_tokens, lay_out_with)
    findings += _effects_findings(written, brief, records[0])
    findings += _words_findings(pinned_parts, decisions)
    if decisions is not sound:
        findings.append(_too_little(least_savings))
    findings += _target_findings(pinned_parts, decisions, brief, layout.tokens, plan.target_tokens)
    update = {
        "turns": tuple(_counted(analysis, layout, decisions)),
        "brief": brief,
        "extracted_facts": facts,
        "estimated_tokens": layout.tokens,
        "findings": _renewed(plan.findings, findings, is_changed=layout.first_changed is not None),
    }
    return plan.model_copy(update=update).bind(analysis, layout)


def _too_little(least_savings: int) -> Finding:
    """Return the remark that all is kept, since the compacted messages would not be smaller by `least_savings`."""
    problem = "the view would be no smaller"
    if not least_savings:
        return Finding(code="would_grow", problem=problem, repair="all kept")
    return Finding(code="saves_too_little", problem=f"{problem} by {least_savings} tokens", repair="all kept")


def _renewed(earlier: Iterable[Finding], new: Sequence[Finding], *, is_changed: bool) -> tuple[Finding, ...]:
    """Return the `earlier` findings that are not out of date, and then the `new` ones, each once. `is_changed`: True if
    the compacted messages differ from the history."""
    outdated = OF_THE_VIEW.union(ALL_KEPT if is_changed else ())
    outdated |= {"effects_missing"}.intersection(finding.code for finding in new)
    still_true = [finding for finding in earlier if finding.code not in outdated or finding in new]
    return (*still_true, *(finding for finding in new if finding not in still_true))


def _words_findings(pins: Pinned, decisions: Mapping[str, TurnDecision]) -> Iterator[Finding]:
    """Yield a remark that names the turns where `decisions` do not keep all words that the user typed, if any."""
    lost = [*_turns_without_words(pins, decisions)][::-1]
    if lost:
        problem = f"no room for all words that the user typed in {_named(lost)}"
        yield Finding(code="user_words_cut", problem=problem, repair="stored, each under its turn")


def _named(turn_ids: Sequence[str]) -> str:
    """Return the first `NAMED_TURNS` of `turn_ids`, and the number of the others: ``t1, t2, t3, t4, t5 and 2 more``."""
    more = f" and {len(turn_ids) - NAMED_TURNS} more" if len(turn_ids) > NAMED_TURNS else ""
    return ", ".join(turn_ids[:NAMED_TURNS]) + more


def _target_findings(
    pins: Pinned, decisions: Mapping[str, TurnDecision], brief: str, tokens: int, target_tokens: int
) -> Iterator[Finding]:
    """Yield a remark that explains what takes the space if the compacted messages, which have `tokens`, exceed the
    target: what must stay, the page of memory, and the turns that `decisions` keep whole although they need not."""
    if tokens <= target_tokens:
        return
    turns = pins.analysis.evidence.turns
    live = sum(turn.tokens for turn in turns.values() if turn.turn.live)
    kept = sum(bool(turn.decisive_lines or turn.typed_lines) for turn in turns.values())
    problem = (
        f"the view takes {tokens} tokens, {target_tokens} were asked for: {live} are in the live tail, {kept} turns "
        "have failures or words of the user that must stay, and the brief takes "
        f"{pins.analysis.counter.text(brief)}, for which there is always room"
    )
    whole = [turn_id for turn_id, decision in decisions.items() if decision.strategy == "keep"]
    if chosen := [turn_id for turn_id in whole if turn_id not in pins.whole]:
        takes = sum(turns[turn_id].tokens for turn_id in chosen)
        problem += f"; {takes} are in turns that the plan keeps whole: {_named(chosen)}"
    yield Finding(code="target_unreachable", problem=problem)


def _turns_without_words(pins: Pinned, decisions: Mapping[str, TurnDecision]) -> Iterator[str]:
    """Yield the ids of the turns where `decisions` do not keep all words that the user typed."""
    for turn_id, numbers in pins.words_left_out.items():
        decision = decisions[turn_id]
        length = len(pins.analysis.evidence.turns[turn_id].lines)
        if decision.strategy != "keep" and not numbers <= line_numbers(decision.excerpts, length):
            yield turn_id


def _checked_brief(analysis: Analysis, brief: str) -> tuple[str, tuple[Finding, ...]]:
    """Call `check_brief`; a function of `analysis`, so that `Analysis.once` caches the result."""
    return check_brief(brief, analysis.evidence)


def _with_effects(
    analysis: Analysis,
    brief: str,
    layout: Layout,
    records: Sequence[Sequence[PageStatement]],
    target_tokens: int,
    most_tokens: int,
    lay_out_with: Callable[..., Layout],
) -> tuple[str, Layout]:
    """Add the effects and open calls in `records` that the page of memory `brief` lacks, as far as the compacted
    messages then have at most `target_tokens`. One line replaces those for which there is no room; it is added if the
    compacted messages then have at most `most_tokens`. Return the page, and the compacted messages with it.

    `layout`: the compacted messages with `brief`; `records`: as for `with_record`; `lay_out_with`: function that makes
    the compacted messages with another page.
    """
    counter = analysis.counter
    while missing := unlisted(brief, records[0]):
        raw_room = (target_tokens - layout.tokens) / counter.scale - counter.raw("PENDING\nEFFECTS\n")
        raw_room += sum(raw_tokens_of(statement, counter) for statement in replaced_effects(brief))
        longer, _ = analysis.once(_checked_brief, with_record(brief, records, counter, raw_room))
        if len(unlisted(longer, records[0])) == len(missing):
            break
        longer_layout = lay_out_with(brief=longer)
        if longer_layout.tokens > target_tokens:
            break
        brief, layout = longer, longer_layout
    if missing and not replaced_effects(brief):
        longer, _ = analysis.once(_checked_brief, with_record(brief, records, counter, 0))
        longer_layout = lay_out_with(brief=longer)
        if longer_layout.tokens <= most_tokens:
            brief, layout = longer, longer_layout
    return brief, layout


def _effects_findings(written: str, brief: str, record: Sequence[PageStatement]) -> Iterator[Finding]:
    """Yield remarks on the effects and open calls in `record` that the page of memory lacked as it was `written`: on
    those that were added in `brief`, and on those for which there was no room."""
    cut = dict.fromkeys(unlisted(brief, record))
    added = [statement for statement in unlisted(written, record) if statement not in cut]
    if added:
        problem = f"the brief lacks effects or open calls of {_turn_ids(added)}"
        yield Finding(code="effects_missing", problem=problem, repair="listed")
    if cut:
        problem = f"the target has no room for all effects: the brief lacks those of {_turn_ids(cut)}"
        yield Finding(code="effects_cut", problem=problem, repair="stored, each under its turn")


def _turn_ids(statements: Iterable[PageStatement]) -> str:
    """Return the ids of all turns that `statements` cite: ``t3, t9``."""
    turn_ids = {turn_id for statement in statements for turn_id in statement.turns}
    return ", ".join(sorted(turn_ids, key=lambda turn_id: int(turn_id[1:])))


def _keeping_ever_more(pins: Pinned, sound: dict[str, TurnDecision], model: str) -> Iterator[dict[str, TurnDecision]]:
    """Yield sets of decisions, to be tried until the compacted messages are smaller than the original ones: first
    `sound`; then all is kept, except unanswered results that are too large for the window; then all is kept."""
    yield sound
    kept = {turn_id: decision.model_copy(update=KEPT) for turn_id, decision in sound.items()}
    kept_with_previews, _ = _guard_decisions(pins, kept.values(), model)
    yield kept_with_previews
    yield kept


def _counted(analysis: Analysis, layout: Layout, decisions: Mapping[str, TurnDecision]) -> Iterator[TurnDecision]:
    """Yield the decision on each turn with its tokens before and after the compaction."""
    after = {turn_id: analysis.counter.text(entry + "\n") if entry else 0 for turn_id, entry in layout.entries.items()}
    for turn_id, turn in analysis.evidence.turns.items():
        tokens = {"tokens_before": turn.tokens, "tokens_after": after.get(turn_id, turn.tokens)}
        yield decisions[turn_id].model_copy(update=tokens)


def _guard_decisions(
    pinned_parts: Pinned, decisions: Iterable[TurnDecision], model: str
) -> tuple[dict[str, TurnDecision], list[Finding]]:
    """Return one repaired decision for every turn, by turn id and in order, and remarks on repairs. `pinned_parts`:
    what stays whatever a planner decides; `model`: model that reads the compacted messages."""
    turns = pinned_parts.analysis.evidence.turns
    by_turn = {decision.turn_id: decision for decision in decisions}
    findings = [_no_such_turn(turn_id) for turn_id in by_turn if turn_id not in turns]
    sound: dict[str, TurnDecision] = {}
    for turn_id, turn in turns.items():
        decision = by_turn.get(turn_id)
        if decision is None:
            decision = TurnDecision(turn_id=turn_id, strategy="keep", relevance_score=1.0, reason="no decision")
            problem = "the plan has no decision for it"
            findings.append(Finding(code="missing_decision", turn_id=turn_id, problem=problem, repair="kept"))
        sound[turn_id] = _Guarding(pinned_parts, turn, _without_unused_texts(decision), findings).sound()
    kept_ids = {
        turn_id for turn_id, decision in sound.items() if decision.strategy == "keep" or turns[turn_id].turn.live
    }
    # for some models the API refuses calls if the thinking before them was removed: the turn with it stays
    if leading_id := leading_turn(pinned_parts.analysis.history, kept_ids, model):
        problem = f"{sound[leading_id].strategy} would touch the thinking that leads the last calls"
        findings.append(Finding(code="live_tail", turn_id=leading_id, problem=problem, repair="kept"))
        sound[leading_id] = sound[leading_id].model_copy(update=KEPT)
    return sound, findings


def _no_such_turn(turn_id: object) -> Finding:
    """Return a remark on a decision or proposal about a turn that does not exist."""
    return Finding(code="unknown_turn", turn_id=str(turn_id), problem="no such turn", repair="ignored")


def _without_unused_texts(decision: TurnDecision) -> TurnDecision:
    """Return `decision` without a summary and excerpts if its strategy does not use them. Otherwise a later repair that
    changes the strategy to ``summarize`` would use them unchecked."""
    has_unused = decision.strategy != "summarize" and (decision.summary or decision.excerpts)
    return decision.model_copy(update={"summary": "", "excerpts": ()}) if has_unused else decision


@dataclass
class _Guarding:
    """Decision on one turn while it is repaired. Each method is one guard: it replaces `decision` if it finds a
    problem, and adds a remark to `findings`."""

    pins: Pinned
    turn: TurnEvidence
    decision: TurnDecision
    findings: list[Finding]

    def sound(self) -> TurnDecision:
        """Return the decision after all guards. The order matters, as each guard checks the repairs of earlier ones."""
        self.keep_untouchable()
        self.mark_failure()
        self.check_texts()
        self.keep_failure()
        self.keep_later_success()
        self.keep_user_words()
        self.keep_offer()
        self.keep_trace()
        return self.decision

    def note_finding(self, code: str, problem: str, repair: str, **update: Any) -> None:
        """Change the fields in `update` of the decision, and add a remark on the problem and the repair."""
        self.findings.append(Finding(code=code, turn_id=self.turn.turn.id, problem=problem, repair=repair))
        self.decision = _without_unused_texts(self.decision.model_copy(update=update))

    def lines_finding(self, code: str, lines: Iterable[int], problem: str, repair: str, **update: Any) -> None:
        """Keep the lines with these numbers, too, change the fields in `update` of the decision, and add a remark."""
        excerpts = ranges_of(self.kept_lines.union(lines))
        self.note_finding(code, problem, repair, strategy="summarize", excerpts=excerpts, **update)

    @property
    def kept_lines(self) -> set[int]:
        """Numbers of the lines that the decision keeps verbatim."""
        return line_numbers(self.decision.excerpts, len(self.turn.lines))

    def keep_untouchable(self) -> None:
        """Keep a turn that is not answered yet, has blocks of unknown kind, or would be refused by the API. If the
        unanswered turns alone would fill the window, previews replace their long results and texts."""
        turn, decision = self.turn.turn, self.decision
        if broken_rule := self.pins.analysis.broken.get(turn.id):
            self.note_finding("invalid_history", broken_rule, "kept as it is", **KEPT)
        elif turn.id in self.pins.demoted:
            preview = self.pins.demoted[turn.id]
            is_preview = decision.strategy == "summarize" and not decision.summary and preview <= self.kept_lines
            update = {} if is_preview else {"strategy": "summarize", "summary": "", "excerpts": ranges_of(preview)}
            problem = "the live tail alone would fill the window"
            self.note_finding("live_demoted", problem, "what is long in it shows a preview", **update)
        elif (turn.live or turn.must_stay) and decision.strategy != "keep":
            self.note_finding("live_tail", f"{decision.strategy} would touch what is not answered", "kept", **KEPT)

    def mark_failure(self) -> None:
        """Mark a turn as a failed approach if something failed in it and the plan does not report that."""
        if self.turn.failed and not self.decision.failed_approach and self.decision.strategy != "keep":
            problem = "the turn shows a failure that the plan does not name"
            self.note_finding("failure_not_named", problem, "marked as failed approach", failed_approach=True)

    def check_texts(self) -> None:
        """Remove excerpts of lines that the turn does not have. Replace a summary that contains a made-up name by the
        first lines of the turn."""
        last, excerpts = len(self.turn.lines), self.decision.excerpts
        within = tuple((low, min(high, last)) for low, high in excerpts if low <= high and low <= last)
        if within != excerpts:
            problem = f"an excerpt names lines outside 1-{last}"
            self.note_finding("excerpt_out_of_range", problem, "cut to the turn's lines", excerpts=within)
        if problem := _invention(self.turn, self.decision.summary):
            self.lines_finding("invented_summary", opening_lines(self.turn), problem, "replaced by lines", summary="")

    def keep_failure(self) -> None:
        """Keep the lines that show best why something failed, unless a statement of the page of memory replaces them.
        If only the planner reports a failure, there are no such lines, and the first lines of the turn are kept."""
        turn, decision = self.turn, self.decision
        lines = self.pins.failures.get(turn.turn.id, frozenset()) if decision.failed_approach else frozenset()
        only_by_planner = decision.failed_approach and not turn.failed and turn.turn.id not in self.pins.covered
        if only_by_planner and decision.strategy in ("drop", "reference"):
            lines = opening_lines(turn)
        self.loss_finding("failed_approach", lines, "how it failed", "its decisive lines stay")

    def keep_later_success(self) -> None:
        """Keep the lines that show how a failed action succeeded later, so that the agent does not act again."""
        lines = self.pins.successes.get(self.turn.turn.id, frozenset())
        self.loss_finding("later_success", lines, "how a failed action succeeded", "the lines about it stay")

    def keep_user_words(self) -> None:
        """Change the decision so that the words that the user typed stay verbatim, as far as there is room for them."""
        lines = self.pins.user_words.get(self.turn.turn.id, frozenset())
        self.loss_finding("user_words", lines, "words of the user", "they stay verbatim")

    def keep_offer(self) -> None:
        """Keep the agent's question or offer that the user's latest reply answers."""
        lines = self.pins.offers.get(self.turn.turn.id, frozenset())
        self.loss_finding("offer", lines, "what the user's latest reply answers", "it stays")

    def loss_finding(self, code: str, lines: frozenset[int], what: str, repair: str) -> None:
        """If the decision would lose one of the `lines`, keep them, and add a remark. `what`: words for the loss."""
        if self.decision.strategy != "keep" and not lines <= self.kept_lines:
            self.lines_finding(code, lines, f"{self.decision.strategy} would lose {what}", repair)

    def keep_trace(self) -> None:
        """Make sure that something shows what was removed: change ``drop`` of an image or document to ``reference``,
        and replace an empty summary by the first lines of the turn, or by a reference."""
        decision = self.decision
        if decision.strategy == "drop" and self.turn.once(media_marks, self.pins.analysis.history):
            problem = "drop would lose an image or document without a trace"
            self.note_finding("media", problem, "referenced", strategy="reference")
        elif decision.strategy == "summarize" and not decision.summary.strip() and not decision.excerpts:
            if lines := opening_lines(self.turn):
                self.lines_finding("empty_summary", lines, "a summary without words", "its opening stays")
            else:
                self.note_finding("empty_summary", "a summary without words", "referenced", strategy="reference")


def _invention(turn: TurnEvidence, summary: str) -> str:
    """Return a sentence on the first name in `summary` that `turn` does not contain; empty without one."""
    names = invented(summary, turn.names) if summary else []
    return f"the summary names {names[0]!r}, which the turn does not contain" if names else ""


def _guard_facts(evidence: Evidence, facts: Iterable[ExtractedFact]) -> tuple[tuple[ExtractedFact, ...], list[Finding]]:
    """Return the facts that their source turns support, and remarks on the others, which are left out."""
    supported: list[ExtractedFact] = []
    findings: list[Finding] = []
    for fact in facts:
        if problem := _fact_problem(evidence, fact):
            findings.append(Finding(code="invented_fact", turn_id=fact.source, problem=problem, repair="left out"))
        else:
            supported.append(fact)
    return tuple(supported), findings


def _fact_problem(evidence: Evidence, fact: ExtractedFact) -> str:
    """Return why the source turn of `fact` does not support it; empty if it does. The result is cached by the turn."""
    turn = evidence.turns.get(fact.source)
    if turn is None:
        return f"the fact's source {fact.source} is no turn"
    fact_key, checked = (fact.type, fact.content, fact.quote), turn.once(_fact_problems)
    if fact_key not in checked:
        checked[fact_key] = _problem_of(fact, turn)
    return checked[fact_key]


def _fact_problems(_: TurnEvidence) -> dict[tuple[str, str, str], str]:
    """Return an empty cache of the problems of facts, by type, content and quote, as most facts are in every plan."""
    return {}


def _problem_of(fact: ExtractedFact, turn: TurnEvidence) -> str:
    """Return why `turn` does not support `fact`: a made-up name, or a quote that is not the user's; else empty."""
    names = invented(f"{fact.content}\n{fact.quote}", turn.names)
    if names:
        return f"the fact names {names[0]!r}, which {fact.source} does not contain"
    quote, words = " ".join(fact.quote.split()), join_lines(turn.user_lines)
    words = " ".join((redact(words) if MARK in quote else words).split())  # secrets in a plan on disk are marks
    is_quoted = bool(quote) and quote in words
    if (fact.type == "constraint" or quote) and not is_quoted:
        return f"the quote {fact.quote[:60]!r} is not the user's own words in {fact.source}"
    return ""


def sound_proposal(analysis: Analysis, proposal: Proposal) -> tuple[Proposal, tuple[Finding, ...]]:
    """Remove the invalid parts of a planner's `proposal`, and check its page of memory. Return it with remarks on what
    was wrong.

    Raises:
        PlanRejected: `proposal` is not a `Proposal`, or has no provenance.
    """
    if not isinstance(proposal, Proposal) or not isinstance(proposal.turns, Mapping):
        raise PlanRejected(f"planner: expected a Proposal with turns by id, found {type(proposal).__name__}")
    if not isinstance(proposal.provenance, Provenance):
        raise PlanRejected(f"planner: expected its Provenance, found {type(proposal.provenance).__name__}")
    turns: dict[str, TurnProposal] = {}
    findings: list[Finding] = []
    for turn_id, turn_proposal in proposal.turns.items():
        turn = analysis.evidence.turns.get(turn_id)
        sound_turn, finding = (None, _no_such_turn(turn_id)) if turn is None else _sound(turn, turn_proposal)
        if sound_turn:
            turns[turn_id] = sound_turn
        findings += [finding] if finding else []
    facts = tuple(fact for fact in proposal.facts if isinstance(fact, ExtractedFact))
    if len(facts) < len(proposal.facts):
        findings.append(Finding(code="unsound_proposal", problem="a fact that is no ExtractedFact", repair="left out"))
    brief_so_far = str(whole_characters(proposal.brief)) if isinstance(proposal.brief, str) else ""
    brief, brief_findings = analysis.once(_checked_brief, with_notes(brief_so_far, analysis.evidence))
    return replace(proposal, turns=turns, facts=facts, brief=brief), (*findings, *brief_findings)


def _sound(turn: TurnEvidence, turn_proposal: TurnProposal) -> tuple[TurnProposal | None, Finding | None]:
    """Return the valid part of a planner's proposal for `turn`, and a remark on the invalid part. A summary with a
    made-up name is removed alone. With any other fault, the whole proposal is None."""
    turn_id = turn.turn.id
    valid, problem = _with_valid_fields(turn_id, turn_proposal)
    if valid is None:
        return None, Finding(code="unsound_proposal", turn_id=turn_id, problem=problem, repair="ignored")
    if problem := _invention(turn, valid.summary):
        finding = Finding(code="invented_summary", turn_id=turn_id, problem=problem, repair="left out")
        return replace(valid, summary=""), finding
    return valid, None


def _with_valid_fields(turn_id: str, turn_proposal: TurnProposal) -> tuple[TurnProposal | None, str]:
    """Return a planner's proposal with an empty text; if a field has a wrong type or value, None with the problem."""
    if not isinstance(turn_proposal, TurnProposal):
        return None, f"expected a TurnProposal, found {type(turn_proposal).__name__}"
    strategy = "keep" if turn_proposal.strategy is None else turn_proposal.strategy  # a decision needs one
    fields = {**vars(turn_proposal), "turn_id": turn_id, "strategy": strategy}
    try:
        decision = TurnDecision(relevance_score=fields.pop("score"), **fields)
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
        return None, f"{first_error['loc'][0]}: {first_error['msg']}"
    return proposed(decision, turn_proposal.strategy), ""
