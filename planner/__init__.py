"""Decides what an agent's history may lose: reads it turn by turn and returns a `CompactionPlan`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.api import check_plan, plan_compaction, plan_compaction_async
    from planner.decision import TurnDecision
    from planner.errors import (
        ApplyError,
        CompactorError,
        PlanError,
        PlannerUnavailable,
        PlanRejected,
        ReferenceNotFound,
        SettingsError,
        StalePlan,
        StoreDamaged,
        StoreError,
        StoreReplaced,
        TranscriptError,
    )
    from planner.plan import (
        CompactionPlan,
        ExtractedFact,
        Finding,
        HistoryStamp,
        Provenance,
        Usage,
    )
    from planner.proposal import Planner, PlanRequest, Proposal, TurnProposal
    from planner.reading.history import History, Turn, read_history
    from planner.reading.tokens import TokenCounter
    from planner.settings import PlanSettings
else:
    from planner.lazy_names import lazy_names

    __getattr__ = lazy_names(
        __name__,
        *("planner.errors", "planner.settings", "planner.reading.tokens", "planner.reading.history"),
        *("planner.decision", "planner.plan", "planner.proposal", "planner.api"),
    )

__all__ = [
    "ApplyError",
    "CompactionPlan",
    "CompactorError",
    "ExtractedFact",
    "Finding",
    "History",
    "HistoryStamp",
    "PlanError",
    "PlanRejected",
    "PlanRequest",
    "PlanSettings",
    "Planner",
    "PlannerUnavailable",
    "Proposal",
    "Provenance",
    "ReferenceNotFound",
    "SettingsError",
    "StalePlan",
    "StoreDamaged",
    "StoreError",
    "StoreReplaced",
    "TokenCounter",
    "TranscriptError",
    "Turn",
    "TurnDecision",
    "TurnProposal",
    "Usage",
    "check_plan",
    "plan_compaction",
    "plan_compaction_async",
    "read_history",
]


def __dir__() -> list[str]:
    return __all__
