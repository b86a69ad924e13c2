"""A person's changes to a plan. The guards check the changed plan like any other; nothing here decides."""

from __future__ import annotations

from collections.abc import Sequence

from applier.cli.options import Edit
from planner.errors import SettingsError
from planner.plan import CompactionPlan, TurnDecision

__all__ = ["edited"]

REASON = "set by hand"


def edited(plan: CompactionPlan, edits: Sequence[Edit]) -> CompactionPlan:
    """`plan` with `edits` in place of its decisions; later edits win.

    Raises:
        SettingsError: an edit names a turn that the plan does not have, or wants a summary that nobody wrote.
    """
    decisions = plan.decisions
    for edit in edits:
        for number in range(edit.first, edit.last + 1):
            decisions[f"t{number}"] = _changed(plan, f"t{number}", edit)
    return plan.model_copy(update={"turns": tuple(decisions.values())}) if edits else plan


def _changed(plan: CompactionPlan, turn_id: str, edit: Edit) -> TurnDecision:
    old = plan.decisions.get(turn_id)
    if old is None:
        raise SettingsError(f"--set {turn_id}: the plan has turns t1 to t{len(plan.turns)}")
    if edit.strategy == "summarize" and not (old.summary or old.excerpts):
        raise SettingsError(
            f"--set {turn_id}=summarize: it has no summary yet: write one in the plan file, or keep it"
        )
    return old.model_copy(update={"strategy": edit.strategy, "reason": REASON})
