"""What a compaction did and where a session stands: plain values for callers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from applier.session.breaker import BreakerState
from applier.session.triggers import Level
from planner.plan import CompactionPlan

__all__ = ["Compaction", "SessionState"]


@dataclass(frozen=True, slots=True)
class SessionState:
    """Where a session stands; a value, safe to keep."""

    session_id: str
    level: Level
    tokens: int
    """Of the list that would be sent now, with system and tools."""
    window_tokens: int
    limit_tokens: int
    """What a prompt may have: the window without the output reserve."""
    compactions: int
    reclaimed_tokens: int
    breaker: BreakerState
    history_key: str
    """Under which the store has the history as of the last commit; empty before."""
    history_messages: int
    sent_messages: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did, or would do (``dry_run``)."""

    messages: list[Any]
    """What to send; the list as it was if nothing was worth compacting."""
    applied: bool
    tier: str
    """Which one it was; empty if there was nothing to do."""
    reason: str
    """Why it was done or not, in one line."""
    tokens_before: int
    tokens_after: int
    first_changed_message: int | None
    invalidated_tokens: int
    payback_calls: float | None
    """After how many calls it has paid back in cache terms; None if nothing changed."""
    plan: CompactionPlan | None
    """The plan in force afterwards; None if no tier planned."""
