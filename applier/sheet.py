"""What a person decides from, as data: a person's changes checked by the guards, rows, failures, what it costs.

Pure: everything comes from the plan and, where the transcript is at hand, from what was read and laid out of it.
What the terminal prints and the browser shows. Prints nothing, writes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from applier.view import Preview, preview
from planner.brief import BRIEF_FINDINGS
from planner.errors import SettingsError
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.gather import call_head
from planner.plan import CompactionPlan, Strategy, TurnDecision

__all__ = ["Edit", "Failed", "Row", "Sheet", "review_sheet", "reviewed", "table_rows"]

BY_HAND = "set by hand"
FEWEST_FOLDED = 3
"""Shorter runs save no row worth the detail they hide."""
HEAD_CHARACTERS = 200
"""Of what a turn says more is not shown in its row, however wide the table."""


@dataclass(frozen=True)
class Edit:
    """A person's decision about turns ``t{first}`` to ``t{last}``."""

    first: int
    last: int
    strategy: Strategy
    excerpts: tuple[tuple[int, int], ...] | None = None
    """Of one turn to be summarized: the lines that are to stay; None: those that the plan has."""


@dataclass(frozen=True)
class Row:
    """One line of the table: a turn, or a run of neighbours with the same strategy."""

    turns: str
    """``t7``, or ``t2-t6`` for a run."""
    strategy: Strategy
    score: float
    """Of a run: its highest."""
    tokens_before: int
    tokens_after: int
    what: str
    why: str
    failed: bool
    """True if one of its turns is a failed approach."""


@dataclass(frozen=True)
class Failed:
    """One failed approach and how it shows."""

    turn_id: str
    what: str
    """The calls that failed; where none did, what the turn is."""
    how: str
    """The lines of the turn that show the failure, or the plan's words for it."""


@dataclass(frozen=True)
class Sheet:
    """A review, ready to be printed or dumped."""

    plan: CompactionPlan
    rows: tuple[Row, ...]
    failed: tuple[Failed, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    """What stands in place of each turn that leaves some text, by its id; empty without the transcript."""
    preview: Preview | None = None

    @property
    def changes(self) -> bool:
        """False if applying the plan would leave everything as it is."""
        return self.preview is None or self.preview.first_changed_message is not None

    @property
    def cost(self) -> dict[str, Any]:
        """What switching to the view costs, as JSON data; None calls where it never pays back, or nothing changes."""
        assert self.preview is not None
        names = ("tokens_before", "tokens_after", "first_changed_message", "invalidated_tokens", "payback_calls")
        cost = {name: getattr(self.preview, name) for name in (*names, "thinking")}
        return cost | ({"payback_calls": None} if cost["payback_calls"] == math.inf else {})

    def to_json(self) -> dict[str, Any]:
        """The review as JSON data: the whole plan, what is left in place by turn id, and what it costs."""
        plan = {"plan": self.plan.model_dump(mode="json")}
        return {**plan, "left_in_place": dict(self.left), "cost": self.cost} if self.preview else plan


def reviewed(
    plan: CompactionPlan,
    messages: Sequence[object],
    edits: Sequence[Edit] = (),
    *,
    brief: str | None = None,
    fold: bool = True,
) -> Sheet:
    """The review of `plan` over `messages` after `edits`, and with `brief` in place of its own if one is given.

    Its plan is the one that the guards let pass. Writes nothing.

    Raises:
        SettingsError: an edit names a turn that is not there.
        StalePlan: the plan was made for other messages.
    """
    changed = _edited(plan, edits)
    if brief is not None:
        findings = tuple(finding for finding in changed.findings if finding.code not in BRIEF_FINDINGS)
        changed = changed.model_copy(update={"brief": brief, "findings": findings})
    shown = preview(changed, messages)
    return review_sheet(shown.plan, shown, fold=fold)


def _edited(plan: CompactionPlan, edits: Sequence[Edit]) -> CompactionPlan:
    """`plan` with `edits` in place of its decisions; later edits win."""
    decisions = plan.decisions
    for edit in edits:
        if f"t{edit.last}" not in decisions:
            raise SettingsError(f"--set t{edit.last}={edit.strategy}: the plan has turns t1 to t{len(plan.turns)}")
        for turn_id in (f"t{number}" for number in range(edit.first, edit.last + 1)):
            change: dict[str, Any] = {"strategy": edit.strategy, "reason": BY_HAND}
            if edit.excerpts is not None:
                change["excerpts"] = edit.excerpts
            decisions[turn_id] = decisions[turn_id].model_copy(update=change)
    return plan.model_copy(update={"turns": tuple(decisions.values())}) if edits else plan


def review_sheet(plan: CompactionPlan, preview: Preview | None = None, *, fold: bool = True) -> Sheet:
    """The review of `plan`; with `preview`, whose plan it is, also what each turn is and what it leaves."""
    bound = plan.bound
    evidence = bound.analysis.evidence if bound else None
    heads = {turn_id: _head(turn, evidence.root) for turn_id, turn in evidence.turns.items()} if evidence else {}
    entries = bound.layout.entries if bound else {}
    left = {own.turn_id: text for own in plan.turns if (text := entries.get(own.turn_id, ""))}
    return Sheet(plan, tuple(table_rows(plan, heads, fold=fold)), _failed(plan, heads, evidence), left, preview)


def table_rows(plan: CompactionPlan, heads: Mapping[str, str], *, fold: bool = True) -> list[Row]:
    """The rows of `plan`'s table in turn order; `heads` says in one line what each turn is."""
    rows: list[Row] = []
    for _, group in groupby(plan.turns, key=lambda decision: decision.strategy):
        run = list(group)
        rows += [_row(run, heads)] if fold and len(run) >= FEWEST_FOLDED else [_row([own], heads) for own in run]
    return rows


def _row(run: Sequence[TurnDecision], heads: Mapping[str, str]) -> Row:
    first, last = run[0].turn_id, run[-1].turn_id
    return Row(
        first if first == last else f"{first}-{last}",
        run[0].strategy,
        max(decision.relevance_score for decision in run),
        sum(decision.tokens_before for decision in run),
        sum(decision.tokens_after for decision in run),
        heads.get(first, "") if first == last else _kinds(run, heads),
        _counted(decision.reason for decision in run),
        any(decision.failed_approach for decision in run),
    )


def _kinds(run: Sequence[TurnDecision], heads: Mapping[str, str]) -> str:
    failed = sum(decision.failed_approach for decision in run)
    kinds = _counted(heads.get(decision.turn_id, "").split(" ")[0].rstrip(":") for decision in run)
    marks = f", {failed} failed" if failed else ""
    return f"{len(run)} turns{marks}: {kinds}" if kinds else f"{len(run)} turns{marks}"


def _counted(words: Iterator[str]) -> str:
    """The distinct `words`, most frequent first, each with how often it stands there where they differ."""
    counts = Counter(word for word in words if word)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(word if count == 1 else f"{count}× {word}" for word, count in counts.most_common())


def _head(turn: TurnEvidence, root: str) -> str:
    """Its calls, or who speaks and the first words; paths without the `root` that all share."""
    if turn.calls:
        return "; ".join(call_head(call, root) for call in turn.calls)
    words = next((line.text.strip() for line in turn.lines if line.text.strip()), "")
    return f"{turn.turn.kind}: {words}"[:HEAD_CHARACTERS]


def _failed(plan: CompactionPlan, heads: Mapping[str, str], evidence: Evidence | None) -> tuple[Failed, ...]:
    return tuple(
        Failed(own.turn_id, _tried(own, evidence) or heads.get(own.turn_id, ""), _how(own, evidence))
        for own in plan.turns
        if own.failed_approach
    )


def _tried(decision: TurnDecision, evidence: Evidence | None) -> str:
    """The calls of a turn that failed, of several; empty where what failed is no call of its own."""
    if evidence is None:
        return ""
    calls = evidence.turns[decision.turn_id].failed_calls
    return "; ".join(call_head(call, evidence.root, failed=True) for call in calls)


def _how(decision: TurnDecision, evidence: Evidence | None) -> str:
    turn = evidence.turns[decision.turn_id] if evidence else None
    failing = [line for line in turn.lines if line.number in turn.failure_lines and line.part != "call"] if turn else ()
    texts = [line.text.strip() for line in failing]
    telling = [text for text in texts if text and not text.startswith("Traceback (")]
    return " · ".join(dict.fromkeys(telling)) or decision.summary or decision.reason
