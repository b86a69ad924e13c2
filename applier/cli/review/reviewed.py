"""Brings a plan before a person: applies their changes, lets the guards check again, renders what would happen."""

from __future__ import annotations

from collections.abc import Sequence

from applier.cli.edits import edited
from applier.cli.options import Edit
from applier.cli.review.sheet import Sheet, review_sheet
from applier.view import preview
from planner.evidence import gather_evidence
from planner.plan import CompactionPlan
from planner.reading.history import read_history
from planner.reading.tokens import TokenCounter

__all__ = ["reviewed"]


def reviewed(
    plan: CompactionPlan, messages: Sequence[object], edits: Sequence[Edit] = (), *, fold: bool = True
) -> Sheet:
    """The review of `plan` over `messages` after `edits`; its plan is the guarded one. Writes nothing.

    Raises:
        SettingsError: an edit names a turn that is not there.
        StalePlan: the plan was made for other messages.
    """
    shown = preview(edited(plan, edits), messages)
    history = read_history(messages)
    evidence = gather_evidence(history, TokenCounter.for_model(plan.target_model))
    return review_sheet(shown.plan, evidence, shown, fold=fold)
