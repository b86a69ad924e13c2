"""Writes a plan as a page of text that a person reviews: sizes, page of memory, failures, problems, facts and turns.

It reads the plan, and the conversation while that is in memory. It decides nothing and prints nothing.
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
from planner.reading.lines import one_line
from planner.reading.secrets import Secrets, redact

HEAD_CHARACTERS = 200
"""Largest length of the first words of a turn that its row in the review shows."""
FAILED_CHARACTERS = 40
"""Largest length of the description of a failed call, in the review's line with its error."""
TASK_CHARACTERS = 240
"""Largest length of the task in the review."""
MOST_LINES = 12
"""Largest number of lines of one section of the review, unless the whole review is wanted."""
ROWS_A_LINE = 2
"""Largest number of rows of turns in the review, as a multiple of the largest number of lines of another section."""
FEWEST_FOLDED = 3
"""Smallest number of neighbouring turns with the same strategy that share a row of the review."""
STRATEGIES = ("keep", "summarize", "reference", "drop")
SET_BY_HAND = "set by hand"
"""Reason for a decision on a turn that a person changed. The review always shows such a turn."""
HEADING = ("turn", "strategy", "score", "before", "after", "content: reason")


class ReviewedPlan(Protocol):
    """Parts of a `CompactionPlan` that a review reads. Values whose classes are in `planner.plan` have the type
    ``Any``, because that module imports this one."""

    @property
    def task(self) -> str:
        """Task of the agent, which the plan was made for."""

    @property
    def history(self) -> Any:
        """Size and digest of the planned history, a `HistoryStamp`."""

    @property
    def turns(self) -> Sequence[Any]:
        """Decisions on all turns, each a `TurnDecision`."""

    @property
    def brief(self) -> str:
        """Page of memory at the front of the compacted messages."""

    @property
    def extracted_facts(self) -> Sequence[Any]:
        """Facts that are carried along, each an `ExtractedFact`."""

    @property
    def findings(self) -> Sequence[Any]:
        """Remarks on problems of the plan, each a `Finding`."""

    @property
    def target_tokens(self) -> int:
        """Largest number of tokens that the caller asked for."""

    @property
    def estimated_tokens(self) -> int:
        """Tokens of the compacted messages."""

    @property
    def provenance(self) -> Any:
        """Planner and model that made the plan, and what it cost, as a `Provenance`."""

    @property
    def bound(self) -> Any:
        """Conversation that the plan is made for, read and compacted, as a `Bound`; None for a plan from disk."""

    @property
    def secrets(self) -> Secrets:
        """Secrets of the conversation, which no review shows."""


@dataclass(frozen=True)
class PlanNotes:
    """Texts about the turns of a plan, for its review. Only `failures` exist if the conversation is not in memory."""

    heads: Mapping[str, str] = field(default_factory=dict)
    """Line about each turn, by its id: its calls, or its sender and first words."""
    failures: Sequence[Mapping[str, str]] = ()
    """Failed attempts. Each has ``turn`` (the id), ``what`` (the failed calls) and ``how`` (lines that show it)."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Text in place of each removed turn in the compacted messages, by turn id."""


@dataclass(frozen=True)
class Section:
    """Part of a review, with a title and lines."""

    title: str
    lines: Sequence[str]
    is_prose: bool = False
    """True if long lines are wrapped; False if they are cut at the width of the page."""


def plan_notes(plan: ReviewedPlan) -> PlanNotes:
    """Collect the texts about the turns of `plan` that its review shows, as far as the conversation is in memory."""
    bound = plan.bound
    if bound is None:
        return PlanNotes(failures=tuple(_failures(plan, {}, None)))
    evidence: Evidence = bound.analysis.evidence
    heads = {turn_id: _head(turn, evidence.root) for turn_id, turn in evidence.turns.items()}
    entries = bound.layout.entries
    left = {decision.turn_id: text for decision in plan.turns if (text := entries.get(decision.turn_id, ""))}
    return PlanNotes(heads, tuple(_failures(plan, heads, evidence)), left)


def _head(turn: TurnEvidence, root: str) -> str:
    """Return one line about `turn`: its calls, or its sender and first words. Paths are relative to `root`."""
    if turn.calls:
        return "; ".join(call_head(call, root) for call in turn.calls)
    words = next((line.text.strip() for line in turn.lines if line.text.strip()), "")
    return f"{turn.turn.kind}: {words}"[:HEAD_CHARACTERS]


def _failures(plan: ReviewedPlan, heads: Mapping[str, str], evidence: Evidence | None) -> Iterator[dict[str, str]]:
    """Yield each failed attempt in the form of `PlanNotes.failures`. Without `evidence`, the plan's words are used.
    `heads`: one line about each turn, by its id."""
    for decision in plan.turns:
        if decision.failed_approach:
            turn = evidence.turns[decision.turn_id] if evidence else None
            calls = turn.failed_calls if turn else ()
            tried = "; ".join(call_head(call, evidence.root if evidence else "", failed=True) for call in calls)
            what = tried or heads.get(decision.turn_id, "")
            yield {"turn": decision.turn_id, "what": what, "how": _how(decision, turn)}


def _how(decision: Any, turn: TurnEvidence | None) -> str:
    """Return the lines of the turn that show how it failed, joined to one line; if there are none, the summary or
    reason in the decision."""
    failing = turn.statements_of(turn.failure_lines) if turn else ()
    texts = [line.text.strip() for line in failing if line.part != "call"]
    errors = [text for text in texts if text and not text.startswith("Traceback (")]
    return " · ".join(dict.fromkeys(errors)) or decision.summary or decision.reason


def review_text(plan: ReviewedPlan, width: int, *, whole: bool = False) -> str:
    """Return `plan` as text of `width` columns for a person who reviews it; with `whole` nothing is left out."""
    return "\n\n".join(
        "\n".join(_laid_out(section, width)) for section in review_sections(plan, plan_notes(plan), whole=whole)
    )


def _laid_out(section: Section, width: int) -> Iterator[str]:
    """Yield the lines of `section`, at most `width` columns wide. They are indented below its title, if it has one."""
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
    """Yield the sections of the review of `plan` that are not empty, without secrets. `whole`: True to leave nothing
    out; `most`: about how many lines a section has otherwise; `brief_lines`: number of lines of the page of memory,
    None for all; `cost`: a sentence about the price of the change."""
    limit = None if whole else most
    constraints = [_fact_line(fact) for fact in plan.extracted_facts if fact.type == "constraint"]
    failures = [_failure_line(failure, whole=whole) for failure in notes.failures]
    sections = (
        Section("", [*_verdict(plan), *([cost] if cost else [])], is_prose=True),
        Section("", [f"Task: {_shortened(one_line(plan.task), TASK_CHARACTERS)}"], is_prose=True),
        Section("Brief, first in the view", _first(plan.brief.splitlines(), brief_lines), is_prose=True),
        Section("Failed approaches, kept", _first(failures, limit)),
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
    """Return the first `limit` lines, and a line with the number of the others. Return all lines if there is only one
    more, or without a `limit`."""
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
    numbers = ", ".join(f"{counts[strategy]} {strategy}" for strategy in STRATEGIES if counts[strategy])
    yield f"{plan.history.turns:,} turns: {numbers}." if numbers else "No messages, so nothing to plan."


def _rows(turns: Sequence[Any], heads: Mapping[str, str], limit: int | None) -> list[str]:
    """Return a table of the turns, with aligned columns and a heading: one row for each group of `row_groups`. With a
    `limit`, it has at most `ROWS_A_LINE` times as many rows: turns changed by hand, then those with most tokens."""
    groups = row_groups(turns, fold=limit is not None)
    if not groups:
        return []
    shown = groups
    if limit is not None and len(groups) > ROWS_A_LINE * limit + 1:
        by_size = sorted(groups, key=lambda run: (all(turn.reason != SET_BY_HAND for turn in run), -_size(run)))
        first_ids = {run[0].turn_id for run in by_size[: ROWS_A_LINE * limit]}
        shown = [run for run in groups if run[0].turn_id in first_ids]
    rows = [HEADING, *(_cells(run, heads) for run in shown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    hidden = len(groups) - len(shown)
    more = [f"… and {hidden} smaller rows"] if hidden else []
    return [_row(row, widths) for row in rows] + more


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return the cells of a table's row as one line, aligned to the `widths` of the columns, numbers at the right."""
    turn, strategy, *numbers, text = cells
    aligned = [turn.ljust(widths[0]), strategy.ljust(widths[1])]
    aligned += [number.rjust(width) for number, width in zip(numbers, widths[2:5], strict=True)]
    return " ".join([*aligned, text])


def _size(run: Sequence[Any]) -> int:
    """Return the tokens of some turns in the history, by the decisions `run` on them."""
    return sum(decision.tokens_before for decision in run)


def row_groups(turns: Sequence[Any], *, fold: bool = True) -> list[list[Any]]:
    """Return the turns of each row in the review's table, in order. With `fold`, at least `FEWEST_FOLDED` neighbours
    with the same strategy share a row; otherwise each turn has its own."""
    rows: list[list[Any]] = []
    for _, run in groupby(turns, key=lambda decision: decision.strategy):
        group = list(run)
        rows += [group] if fold and len(group) >= FEWEST_FOLDED else ([decision] for decision in group)
    return rows


def _cells(run: Sequence[Any], heads: Mapping[str, str]) -> tuple[str, ...]:
    """Return the cells of the table's row for `run`, decisions on neighbouring turns. For several turns, they contain
    the highest score, the sums of the tokens, and how many turns of each kind there are."""
    first, last = run[0].turn_id, run[-1].turn_id
    failed = sum(decision.failed_approach for decision in run)
    content = heads.get(first, "") if first == last else _kinds(run, heads, failed)
    mark, reason = "✗ " if failed else "", _counted(decision.reason for decision in run)
    return (
        first if first == last else f"{first}-{last}",
        run[0].strategy,
        f"{max(decision.relevance_score for decision in run):.2f}",
        f"{_size(run):,}",
        f"{sum(decision.tokens_after for decision in run):,}",
        one_line(f"{mark}{content}: {reason}" if content and reason else f"{mark}{content or reason}"),
    )


def _kinds(run: Sequence[Any], heads: Mapping[str, str], failed: int) -> str:
    """Describe several turns in few words: their number, how many of them failed (`failed`), and their tools or
    senders: ``5 turns, 1 failed (3× search, read, user)``."""
    kinds = _counted(heads.get(decision.turn_id, "").partition(" ")[0].rstrip(":") for decision in run)
    marks = f", {failed} failed" if failed else ""
    return f"{len(run)} turns{marks} ({kinds})" if kinds else f"{len(run)} turns{marks}"


def _counted(words: Iterable[str]) -> str:
    """Return the distinct `words` with their counts, the most frequent first: ``3× search, read``. One word alone has
    no count."""
    counts = Counter(word for word in words if word)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(word if count == 1 else f"{count}× {word}" for word, count in counts.most_common())


def _failure_line(failure: Mapping[str, str], *, whole: bool) -> str:
    """Return a failed attempt, one of `PlanNotes.failures`, as a line. Unless `whole`, it is shortened."""
    what = one_line(failure["what"])
    what = what if whole else _shortened(what, FAILED_CHARACTERS)
    return f"✗ {failure['turn']} {what}".rstrip() + f": {one_line(failure['how'])}"


def _other_facts(facts: Sequence[Any], *, whole: bool) -> Iterator[str]:
    """Yield lines on the facts that are no demands of the user; unless `whole`, only the number of each type."""
    others = [fact for fact in facts if fact.type != "constraint"]
    if whole:
        yield from map(_fact_line, others)
    elif others:
        counts = Counter(fact.type for fact in others)
        yield f"others: {', '.join(f'{count} {kind}' for kind, count in counts.items())}"


def _fact_line(fact: Any) -> str:
    quoted = f' "{one_line(fact.quote)}"' if fact.quote not in ("", fact.content) else ""
    return f"{fact.type} ({fact.source}): {one_line(fact.content)}{quoted}"


def finding_line(finding: Any) -> str:
    """Return a remark on a problem of the plan, a `Finding`, as one line."""
    place = f"{finding.turn_id}: " if finding.turn_id else ""
    repair = f"; {one_line(finding.repair)}" if finding.repair else ""
    return f"{finding.code}: {place}{one_line(finding.problem)}{repair}"


def _provenance(provenance: Any) -> Iterator[str]:
    """Yield lines on the planner, its model and prompts, its usage and its notes."""
    usage = provenance.usage
    yield " ".join(
        part for part in (f"planner {provenance.planner}", provenance.model, provenance.prompts[:19]) if part
    )
    if usage.requests:
        yield f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out, {usage.requests} requests"
    if provenance.filled_tokens and provenance.planner != "rules":
        yield f"The rules filled {provenance.filled_tokens:,} tokens of space that the model left."
    yield from map(one_line, provenance.notes)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)].rstrip() + "…"
