"""A person's changes to a plan. The guards check the changed plan like any other; nothing here decides."""

from __future__ import annotations

from collections.abc import Sequence

from applier.cli.options import Edit
from planner.errors import SettingsError
from planner.plan import CompactionPlan

__all__ = ["edited"]

REASON = "set by hand"


def edited(plan: CompactionPlan, edits: Sequence[Edit]) -> CompactionPlan:
    """`plan` with `edits` in place of its decisions; later edits win.

    Raises:
        SettingsError: an edit names a turn that the plan does not have.
    """
    decisions = plan.decisions
    for edit in edits:
        if f"t{edit.last}" not in decisions:
            raise SettingsError(f"--set t{edit.last}={edit.strategy}: the plan has turns t1 to t{len(plan.turns)}")
        for turn_id in (f"t{number}" for number in range(edit.first, edit.last + 1)):
            change = {"strategy": edit.strategy, "reason": REASON}
            decisions[turn_id] = decisions[turn_id].model_copy(update=change)
    return plan.model_copy(update={"turns": tuple(decisions.values())}) if edits else plan
