"""What a person decides from, as data: a person's changes checked by the guards, failures, what it leaves and costs.

Pure: everything comes from the plan and, where the transcript is at hand, from what was read and laid out of it.
What the terminal prints and the browser shows. Prints nothing, writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from applier.view import Preview, preview
from planner.brief import BRIEF_FINDINGS
from planner.errors import SettingsError
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.gather import call_head
from planner.plan import CompactionPlan, Strategy, TurnDecision

__all__ = ["Edit", "Sheet", "review_sheet", "reviewed"]

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
class Sheet:
    """A review, ready to be printed or dumped."""

    plan: CompactionPlan
    heads: Mapping[str, str] = field(default_factory=dict)
    """What each turn is, in one line, by its id; empty without the transcript."""
    failed: Sequence[Mapping[str, str]] = ()
    """The failed approaches: ``turn``; ``what`` failed, its calls or else what the turn is; ``how`` that shows."""
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
        names = ("tokens_before", "tokens_after", "first_changed_message", "invalidated_tokens", "payback_calls")
        cost = {name: getattr(self.preview, name) for name in (*names, "thinking", "dollars")}
        return cost | ({"payback_calls": None} if cost["payback_calls"] == math.inf else {})

    def to_json(self) -> dict[str, Any]:
        """The review as JSON data: the whole plan, what is left in place by turn id, and what it costs."""
        plan = {"plan": self.plan.model_dump(mode="json")}
        return {**plan, "left_in_place": dict(self.left), "cost": self.cost} if self.preview else plan


def reviewed(
    plan: CompactionPlan, messages: Sequence[object], edits: Sequence[Edit] = (), *, brief: str | None = None
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
    return review_sheet(shown.plan, shown)


def _edited(plan: CompactionPlan, edits: Sequence[Edit]) -> CompactionPlan:
    """`plan` with `edits` in place of its decisions; later edits win."""
    decisions = plan.decisions
    for edit in edits:
        if f"t{edit.last}" not in decisions:
            raise SettingsError(f"--set t{edit.last}={edit.strategy}: the plan has turns t1 to t{len(plan.turns)}")
        change: dict[str, Any] = {"strategy": edit.strategy, "reason": "set by hand"}
        if edit.excerpts is not None:
            change["excerpts"] = edit.excerpts
        for turn_id in (f"t{number}" for number in range(edit.first, edit.last + 1)):
            decisions[turn_id] = decisions[turn_id].model_copy(update=change)
    return plan.model_copy(update={"turns": tuple(decisions.values())}) if edits else plan


def review_sheet(plan: CompactionPlan, preview: Preview | None = None) -> Sheet:
    """The review of `plan`; with `preview`, whose plan it is, also what each turn is and what it leaves."""
    bound = plan.bound
    if bound is None:
        return Sheet(plan, failed=tuple(_failed(plan, {}, None)), preview=preview)
    evidence, entries = bound.analysis.evidence, bound.layout.entries
    heads = {turn_id: _head(turn, evidence.root) for turn_id, turn in evidence.turns.items()}
    left = {own.turn_id: text for own in plan.turns if (text := entries.get(own.turn_id, ""))}
    return Sheet(plan, heads, tuple(_failed(plan, heads, evidence)), left, preview)


def _head(turn: TurnEvidence, root: str) -> str:
    """Its calls, or who speaks and the first words; paths without the `root` that all share."""
    if turn.calls:
        return "; ".join(call_head(call, root) for call in turn.calls)
    words = next((line.text.strip() for line in turn.lines if line.text.strip()), "")
    return f"{turn.turn.kind}: {words}"[:HEAD_CHARACTERS]


def _failed(plan: CompactionPlan, heads: Mapping[str, str], evidence: Evidence | None) -> Iterator[dict[str, str]]:
    for own in plan.turns:
        if own.failed_approach:
            turn = evidence.turns[own.turn_id] if evidence else None
            calls = turn.failed_calls if turn else ()
            tried = "; ".join(call_head(call, evidence.root if evidence else "", failed=True) for call in calls)
            yield {"turn": own.turn_id, "what": tried or heads.get(own.turn_id, ""), "how": _how(own, turn)}


def _how(decision: TurnDecision, turn: TurnEvidence | None) -> str:
    """The lines of the turn that show the failure, or the plan's words for it."""
    failing = [line for line in turn.lines if line.number in turn.failure_lines and line.part != "call"] if turn else ()
    texts = [line.text.strip() for line in failing]
    telling = [text for text in texts if text and not text.startswith("Traceback (")]
    return " · ".join(dict.fromkeys(telling)) or decision.summary or decision.reason
