"""Decides which parts of an agent's long conversation may be removed or shortened, and returns a `CompactionPlan`."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.api import plan_compaction, plan_compaction_async
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
    from planner.evidence.calls import failed_outcome
    from planner.evidence.turns import Field, RecordLine, register_field
    from planner.guards import check_plan
    from planner.plan import (
        CompactionPlan,
        ExtractedFact,
        Finding,
        HistoryStamp,
        Planner,
        PlanRequest,
        Proposal,
        Provenance,
        TurnDecision,
        TurnProposal,
        Usage,
    )
    from planner.reading.messages import History, Turn, read_history
    from planner.reading.tokens import TokenCounter
    from planner.settings import PlanSettings, ToolUse
else:
    _HOMES = (
        "errors",
        "settings",
        "reading.tokens",
        "reading.messages",
        "plan",
        "guards",
        "evidence.calls",
        "evidence.turns",
        "api",
    )
    """Modules that define the public names. Those that load least come first, so that an import stays fast."""

    def __getattr__(name: str) -> object:
        """Return the public object `name`. Its module is imported only now (PEP 562), so that importing an error class
        does not load the whole planner."""
        for home in _HOMES if name in __all__ else ():
            value = getattr(import_module(f"planner.{home}"), name, None)
            if getattr(value, "__module__", "") == f"planner.{home}":  # defined there, not imported
                return value
        raise AttributeError(f"module 'planner' has no attribute {name!r}")


__all__ = [
    "ApplyError",
    "CompactionPlan",
    "CompactorError",
    "ExtractedFact",
    "Field",
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
    "RecordLine",
    "ReferenceNotFound",
    "SettingsError",
    "StalePlan",
    "StoreDamaged",
    "StoreError",
    "StoreReplaced",
    "TokenCounter",
    "ToolUse",
    "TranscriptError",
    "Turn",
    "TurnDecision",
    "TurnProposal",
    "Usage",
    "check_plan",
    "failed_outcome",
    "plan_compaction",
    "plan_compaction_async",
    "read_history",
    "register_field",
]


def __dir__() -> list[str]:
    return __all__
