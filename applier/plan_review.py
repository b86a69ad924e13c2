"""Review of a plan by a person: their changes, checked by the guards, and what the compaction costs and saves.

Pure: everything comes from the plan and the messages it was made for. Prints nothing, writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from applier.view import Preview, preview
from planner.brief import BRIEF_FINDINGS
from planner.errors import SettingsError
from planner.plan import CompactionPlan, Strategy
from planner.prices import money
from planner.reading.secrets import redact
from planner.review_text import SET_BY_HAND, PlanNotes, plan_notes


@dataclass(frozen=True)
class Edit:
    """A person's decision to keep, summarize, reference or drop the turns ``t{first}`` to ``t{last}``."""

    first: int
    last: int
    strategy: Strategy
    excerpts: tuple[tuple[int, int], ...] | None = None
    """Line ranges to keep of a summarized turn, such as ``((3, 7),)``; None keeps those of the plan."""


@dataclass(frozen=True)
class PlanReview:
    """Checked plan with notes for a person and the list that it makes, to be printed or shown in a browser."""

    plan: CompactionPlan
    notes: PlanNotes = field(default_factory=PlanNotes)
    preview: Preview | None = None
    """Compacted list and its costs; None if the plan was opened without its messages."""

    @property
    def changes(self) -> bool:
        """True if applying the plan changes something, or if that is unknown."""
        return self.preview is None or self.preview.first_changed_message is not None

    @property
    def cost(self) -> dict[str, Any]:
        """Costs and savings of the compaction as JSON data. ``payback_calls`` is None if it never pays back, because
        JSON has no infinity. Needs a `preview`."""
        names = ("tokens_before", "tokens_after", "first_changed_message", "invalidated_tokens", "payback_calls")
        cost = {name: getattr(self.preview, name) for name in (*names, "thinking", "dollars")}
        return cost | ({"payback_calls": None} if cost["payback_calls"] == math.inf else {})

    @property
    def cost_text(self) -> str:
        """Sentence on what the compaction costs and saves; empty if the plan was opened without its messages."""
        preview = self.preview
        if preview is None:
            return ""
        if preview.first_changed_message is None:
            return "Nothing changes; the prompt cache stays as it is."
        calls, dollars = preview.payback_calls or 0.0, preview.dollars
        freed_tokens = preview.tokens_before - preview.tokens_after
        payback = "never pays back in cache terms" if math.isinf(calls) else f"pays back after {calls:.1f} calls"
        written = f"{max(0, preview.invalidated_tokens - freed_tokens):,} tokens are written to the cache once"
        saved = f"each later call reads {freed_tokens:,} fewer"
        planning = f" Planning: {money(dollars['planning'])}." if dollars.get("planning") else ""
        return (
            f"Changes from message {preview.first_changed_message} on: {money(dollars.get('rebilled'), written)}; "
            f"{money(dollars.get('saved'), saved)}; {payback}. Thinking: {preview.thinking}.{planning}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the whole plan, the texts it leaves in place of turns, and the cost, as JSON data without secrets."""
        plan = {"plan": self.plan.to_data()}
        left = redact(dict(self.notes.left), self.plan.secrets)
        return {**plan, "left_in_place": left, "cost": self.cost} if self.preview else plan


def reviewed(
    plan: CompactionPlan, messages: Sequence[object], edits: Sequence[Edit] = (), *, brief: str | None = None
) -> PlanReview:
    """Return the review of `plan` for `messages` after a person's `edits`, as the guards allow them. `brief`: text that
    replaces the plan's brief (the page of memory at the top of the list); None keeps it."""
    decisions = plan.decisions
    for edit in edits:  # if two edits change one turn, the later one counts
        if f"t{edit.last}" not in decisions:
            raise SettingsError(f"--set t{edit.last}={edit.strategy}: the plan has turns t1 to t{len(plan.turns)}")
        change: dict[str, Any] = {"strategy": edit.strategy, "reason": SET_BY_HAND}
        if edit.excerpts is not None:
            change["excerpts"] = edit.excerpts
        for turn_id in (f"t{number}" for number in range(edit.first, edit.last + 1)):
            decisions[turn_id] = decisions[turn_id].model_copy(update=change)
    changed = plan.model_copy(update={"turns": tuple(decisions.values())}) if edits else plan
    if brief is not None:  # the guards' remarks on the old brief do not apply to the new one
        findings = tuple(finding for finding in changed.findings if finding.code not in BRIEF_FINDINGS)
        changed = changed.model_copy(update={"brief": brief, "findings": findings})
    shown = preview(changed, messages)
    return PlanReview(shown.plan, plan_notes(shown.plan), shown)
