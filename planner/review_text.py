"""Review of a plan as a page of text: the verdict, the brief, failures, findings, facts, and the turns in rows.

Reads the plan, and its history while that is in memory. Decides nothing and prints nothing.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Protocol

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.turns import call_head
from planner.reading.secrets import Secrets, redact

HEAD_CHARACTERS = 200
"""Largest length of a turn's first words in its row."""
FAILED_CHARACTERS = 40
"""Largest length of a failed call in the line with its error."""
TASK_CHARACTERS = 240
"""Largest length of the task."""
MOST_LINES = 12
"""Largest number of lines of one section, unless the whole review is wanted."""
ROWS_A_LINE = 2
"""Factor between the largest number of rows of turns and that of lines of other sections."""
FEWEST_FOLDED = 3
"""Smallest number of neighbouring turns with one strategy that share a row."""
STRATEGIES = ("keep", "summarize", "reference", "drop")
SET_BY_HAND = "set by hand"
"""Reason of a decision that a person changed; its row is always shown."""
HEADING = ("turn", "strategy", "score", "before", "after", "content: reason")


class ReviewedPlan(Protocol):
    """Parts of a `CompactionPlan` that a review reads. `planner.plan` has the classes of the values with type ``Any``;
    it imports this module, so that they cannot be named here."""

    @property
    def task(self) -> str:
        """The task."""

    @property
    def history(self) -> Any:
        """`HistoryStamp` of the planned history."""

    @property
    def turns(self) -> Sequence[Any]:
        """`TurnDecision` of each turn."""

    @property
    def brief(self) -> str:
        """Text of the brief."""

    @property
    def extracted_facts(self) -> Sequence[Any]:
        """Each an `ExtractedFact`."""

    @property
    def findings(self) -> Sequence[Any]:
        """Each a `Finding`."""

    @property
    def target_tokens(self) -> int:
        """Largest number of tokens asked for."""

    @property
    def estimated_tokens(self) -> int:
        """Tokens of the view."""

    @property
    def provenance(self) -> Any:
        """`Provenance` of the plan."""

    @property
    def bound(self) -> Any:
        """`Bound` with analysis and layout; None for a plan from disk."""

    @property
    def secrets(self) -> Secrets:
        """Secrets that no review shows."""


@dataclass(frozen=True)
class PlanNotes:
    """Texts about the turns of a plan. Without the history in memory there are only failures."""

    heads: Mapping[str, str] = field(default_factory=dict)
    """One line about each turn, by its id: its calls, or its sender and first words."""
    failures: Sequence[Mapping[str, str]] = ()
    """Failed approaches. Each has ``turn`` (its id), ``what`` (the failed calls) and ``how`` (lines that show it)."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Text that is left in the view in place of each removed turn, by turn id."""


@dataclass(frozen=True)
class Section:
    """One part of the page."""

    title: str
    lines: Sequence[str]
    is_prose: bool = False
    """True if long lines are wrapped; otherwise they are cut at the page's width."""


def plan_notes(plan: ReviewedPlan) -> PlanNotes:
    """Return the notes of `plan`, from its history if that is still in memory."""
    bound = plan.bound
    if bound is None:
        return PlanNotes(failures=tuple(_failures(plan, {}, None)))
    evidence: Evidence = bound.analysis.evidence
    heads = {turn_id: _head(turn, evidence.root) for turn_id, turn in evidence.turns.items()}
    entries = bound.layout.entries
    left = {own.turn_id: text for own in plan.turns if (text := entries.get(own.turn_id, ""))}
    return PlanNotes(heads, tuple(_failures(plan, heads, evidence)), left)


def _head(turn: TurnEvidence, root: str) -> str:
    """Return the turn's calls, or its sender and first words; paths are relative to `root`."""
    if turn.calls:
        return "; ".join(call_head(call, root) for call in turn.calls)
    words = next((line.text.strip() for line in turn.lines if line.text.strip()), "")
    return f"{turn.turn.kind}: {words}"[:HEAD_CHARACTERS]


def _failures(plan: ReviewedPlan, heads: Mapping[str, str], evidence: Evidence | None) -> Iterator[dict[str, str]]:
    """Yield `PlanNotes.failures`, in the plan's words if there is no evidence. `heads`: `PlanNotes.heads`."""
    for decision in plan.turns:
        if decision.failed_approach:
            turn = evidence.turns[decision.turn_id] if evidence else None
            calls = turn.failed_calls if turn else ()
            tried = "; ".join(call_head(call, evidence.root if evidence else "", failed=True) for call in calls)
            what = tried or heads.get(decision.turn_id, "")
            yield {"turn": decision.turn_id, "what": what, "how": _how(decision, turn)}


def _how(decision: Any, turn: TurnEvidence | None) -> str:
    """Return the lines of the turn that show the failure, on one line; else the decision's summary or reason."""
    failing = (line for line in turn.lines if line.number in turn.failure_lines) if turn else ()
    texts = [line.text.strip() for line in failing if line.part != "call"]
    errors = [text for text in texts if text and not text.startswith("Traceback (")]
    return " · ".join(dict.fromkeys(errors)) or decision.summary or decision.reason


def review_text(plan: ReviewedPlan, width: int, *, whole: bool = False) -> str:
    """Return the review of `plan` as text of `width` columns; with `whole` nothing is left out."""
    return "\n\n".join(
        "\n".join(_laid_out(section, width)) for section in review_sections(plan, plan_notes(plan), whole=whole)
    )


def _laid_out(section: Section, width: int) -> Iterator[str]:
    """Yield the lines of a section within `width` columns, indented below its title if it has one."""
    yield from [section.title] if section.title else []
    indent = "  " if section.title else ""
    for line in section.lines:
        if section.is_prose:
            yield from textwrap.wrap(line, width, initial_indent=indent, subsequent_indent=indent) or [""]
        else:
            yield indent + _shortened(line, width - len(indent))


def review_sections(
    plan: ReviewedPlan,
    notes: PlanNotes,
    *,
    whole: bool = False,
    most: int = MOST_LINES,
    brief_lines: int | None = None,
    cost: str = "",
) -> Iterator[Section]:
    """Yield the sections of the review that have lines, without secrets.

    `whole`: True to leave nothing out. `most`: about how many lines a section has otherwise. `brief_lines`: number of
    lines of the brief, by default all. `cost`: a sentence about the price of the change.
    """
    limit = None if whole else most
    constraints = [_fact_line(fact) for fact in plan.extracted_facts if fact.type == "constraint"]
    sections = (
        Section("", [*_verdict(plan), *([cost] if cost else [])], is_prose=True),
        Section("", [f"Task: {_shortened(_one_line(plan.task), TASK_CHARACTERS)}"], is_prose=True),
        Section("Brief, first in the view", _first(plan.brief.splitlines(), brief_lines), is_prose=True),
        Section("Failed approaches, kept", _first([_failure_line(one, whole=whole) for one in notes.failures], limit)),
        Section("Findings", _first([finding_line(finding) for finding in plan.findings], limit)),
        Section("Facts", [*_first(constraints, limit), *_other_facts(plan.extracted_facts, whole=whole)]),
        Section("", _rows(plan.turns, notes.heads, limit)),
        Section("Left in place of what is removed", "\n".join(notes.left.values()).splitlines() if whole else ()),
        Section("Planner", list(_provenance(plan.provenance)), is_prose=True),
    )
    redacted_lines = redact([list(section.lines) for section in sections], plan.secrets)
    for section, lines in zip(sections, redacted_lines, strict=True):
        if lines:
            yield replace(section, lines=lines)


def _first(lines: Sequence[str], limit: int | None) -> list[str]:
    """Return the first `limit` lines and the number of the others; all lines if only one would be left out."""
    if limit is None or len(lines) <= limit + 1:
        return list(lines)
    return [*lines[:limit], f"… and {len(lines) - limit} more"]


def _verdict(plan: ReviewedPlan) -> Iterator[str]:
    """Yield sentences on the sizes before and after, the target, and the number of turns with each strategy."""
    before, after = plan.history.tokens, plan.estimated_tokens
    share = f" ({after / before:.0%})" if before else ""
    met = "met" if after <= plan.target_tokens else "not met, see the findings"
    yield f"{before:,} tokens → {after:,}{share}; target {plan.target_tokens:,}: {met}."
    counts = Counter(decision.strategy for decision in plan.turns)
    of_each = ", ".join(f"{counts[own]} {own}" for own in STRATEGIES if counts[own])
    yield f"{plan.history.turns:,} turns: {of_each}." if of_each else "No messages, so nothing to plan."


def _rows(turns: Sequence[Any], heads: Mapping[str, str], limit: int | None) -> list[str]:
    """Return a heading and aligned rows, one for each run of turns of `row_groups`. With a `limit`, these are at most
    `ROWS_A_LINE` times as many: those changed by hand, then those with most tokens."""
    groups = row_groups(turns, fold=limit is not None)
    if not groups:
        return []
    shown = groups
    if limit is not None and len(groups) > ROWS_A_LINE * limit + 1:
        by_size = sorted(groups, key=lambda run: (all(own.reason != SET_BY_HAND for own in run), -_size(run)))
        first_ids = {run[0].turn_id for run in by_size[: ROWS_A_LINE * limit]}
        shown = [run for run in groups if run[0].turn_id in first_ids]
    rows = [HEADING, *(_cells(run, heads) for run in shown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rest = len(groups) - len(shown)
    more = [f"… and {rest} smaller rows"] if rest else []
    return [_row(row, widths) for row in rows] + more


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return the cells of a row as one line, numbers to the right."""
    turn, strategy, *numbers, text = cells
    aligned = [turn.ljust(widths[0]), strategy.ljust(widths[1])]
    aligned += [number.rjust(width) for number, width in zip(numbers, widths[2:5], strict=True)]
    return " ".join([*aligned, text])


def _size(run: Sequence[Any]) -> int:
    return sum(own.tokens_before for own in run)


def row_groups(turns: Sequence[Any], *, fold: bool = True) -> list[list[Any]]:
    """Return the turns of each row, in order. With `fold`, at least `FEWEST_FOLDED` neighbours of one strategy share a
    row; otherwise each turn has its own."""
    rows: list[list[Any]] = []
    for _, run in groupby(turns, key=lambda own: own.strategy):
        group = list(run)
        rows += [group] if fold and len(group) >= FEWEST_FOLDED else ([own] for own in group)
    return rows


def _cells(run: Sequence[Any], heads: Mapping[str, str]) -> tuple[str, ...]:
    """Return the cells of the row for `run`. For several turns they contain the highest score, the sum of the tokens,
    and the kinds of turns with their numbers."""
    first, last = run[0].turn_id, run[-1].turn_id
    failed = sum(own.failed_approach for own in run)
    content = heads.get(first, "") if first == last else _kinds(run, heads, failed)
    mark, reason = "✗ " if failed else "", _counted(own.reason for own in run)
    return (
        first if first == last else f"{first}-{last}",
        run[0].strategy,
        f"{max(own.relevance_score for own in run):.2f}",
        f"{_size(run):,}",
        f"{sum(own.tokens_after for own in run):,}",
        _one_line(f"{mark}{content}: {reason}" if content and reason else f"{mark}{content or reason}"),
    )


def _kinds(run: Sequence[Any], heads: Mapping[str, str], failed: int) -> str:
    """Return the description of a row for several turns: their number, how many `failed`, and tools or senders."""
    kinds = _counted(heads.get(own.turn_id, "").partition(" ")[0].rstrip(":") for own in run)
    marks = f", {failed} failed" if failed else ""
    return f"{len(run)} turns{marks} ({kinds})" if kinds else f"{len(run)} turns{marks}"


def _counted(words: Iterable[str]) -> str:
    """Return the distinct `words`, the most frequent first, with the count of each that occurs more than once. If all
    are the same word, return it alone."""
    counts = Counter(word for word in words if word)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(word if count == 1 else f"{count}× {word}" for word, count in counts.most_common())


def _failure_line(failure: Mapping[str, str], *, whole: bool) -> str:
    """Return one of `PlanNotes.failures` as a line; unless `whole`, the failed calls are shortened."""
    what = _one_line(failure["what"])
    what = what if whole else _shortened(what, FAILED_CHARACTERS)
    return f"✗ {failure['turn']} {what}".rstrip() + f": {_one_line(failure['how'])}"


def _other_facts(facts: Sequence[Any], *, whole: bool) -> Iterator[str]:
    """Yield the facts that are no constraints; unless `whole`, only how many of each type there are."""
    others = [fact for fact in facts if fact.type != "constraint"]
    if whole:
        yield from map(_fact_line, others)
    elif others:
        counts = Counter(fact.type for fact in others)
        yield f"others: {', '.join(f'{count} {kind}' for kind, count in counts.items())}"


def _fact_line(fact: Any) -> str:
    quoted = f' "{_one_line(fact.quote)}"' if fact.quote not in ("", fact.content) else ""
    return f"{fact.type} ({fact.source}): {_one_line(fact.content)}{quoted}"


def finding_line(finding: Any) -> str:
    """Return a finding as one line."""
    place = f"{finding.turn_id}: " if finding.turn_id else ""
    repair = f"; {_one_line(finding.repair)}" if finding.repair else ""
    return f"{finding.code}: {place}{_one_line(finding.problem)}{repair}"


def _provenance(provenance: Any) -> Iterator[str]:
    """Yield lines on the planner, its model and prompts, its usage and its notes."""
    own, usage = provenance, provenance.usage
    yield " ".join(part for part in (f"planner {own.planner}", own.model, own.prompts[:19]) if part)
    if usage.requests:
        yield f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out, {usage.requests} requests"
    if own.filled_tokens and own.planner != "rules":
        yield f"The rules filled {own.filled_tokens:,} tokens of space that the model left."
    yield from map(_one_line, own.notes)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shortened(text: str, width: int) -> str:
    """Return the first `width` characters of `text`, ending in "…" if something is missing."""
    return text if len(text) <= width else text[: max(0, width - 1)].rstrip() + "…"
