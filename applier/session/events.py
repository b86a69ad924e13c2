"""What happened in a session, as values: for hooks, for logging, for the store.

Says what was done and what it cost; never decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Event", "EventKind"]

EventKind = Literal[
    "pre_compact",
    "post_compact",
    "tier_failed",
    "not_worth_it",
    "history_changed",
    "breaker_opened",
    "breaker_closed",
    "recalled",
    "recall_pending",
    "recovered",
    "undone",
    "resumed",
    "facts_saved",
    "fixed_parts_too_large",
    "prepare_failed",
    "vetoed",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; counts are in tokens of the session's calibrated counter."""

    kind: EventKind
    session_id: str
    at: float
    """Seconds since the epoch, by the session's clock."""
    trigger: str = ""
    """What started it: ``critical``, ``idle``, ``manual``, ``prompt_too_long``, …"""
    tier: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    first_changed_message: int | None = None
    """Index in the list that was sent before; None if nothing was changed."""
    invalidated_tokens: int = 0
    """Tokens behind the first changed message that the provider had cached and must read anew."""
    message: str = ""
    """One line for a person."""
    details: dict[str, Any] = field(default_factory=dict)
    """JSON data that belongs to this kind only."""

    @property
    def reclaimed_tokens(self) -> int:
        """What the event freed; never negative."""
        return max(0, self.tokens_before - self.tokens_after)
