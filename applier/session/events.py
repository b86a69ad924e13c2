"""What happened in a session, as values: for hooks, for logging, for the store and for OpenTelemetry.

Says what was done and what it cost; never decides anything, and no listener can break the session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Event", "EventKind", "Hook", "Hooks", "Listeners"]

logger = logging.getLogger("applier.session")

EventKind = Literal[
    "pre_compact",
    "post_compact",
    "not_worth_it",
    "vetoed",
    "tier_failed",
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
    "still_too_large",
    "store_failed",
    "prepare_failed",
]

_WARNINGS = frozenset(("tier_failed", "breaker_opened", "fixed_parts_too_large", "store_failed", "prepare_failed"))


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; tokens are the session's calibrated estimate of whole prompts."""

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

    def as_json(self) -> dict[str, Any]:
        """The event as JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Event:
        """The event that `as_json` gave; what this version does not know is left out."""
        return cls(**{name: data[name] for name in cls.__slots__ if name in data})


Hook = Callable[[Event], object]
"""Called with each event of its kind. A ``pre_compact`` hook that returns False vetoes the compaction,
unless the window forces it. What a hook raises is logged and ignored."""
Hooks = Mapping[str, Hook | Sequence[Hook]]
"""Hooks by event kind; ``"*"`` hears everything."""


class Listeners:
    """Everyone who hears of events: hooks, and the standard log."""

    def __init__(self, hooks: Hooks | None = None) -> None:
        """Call `hooks`, each by the kind it is named for."""
        self._hooks = {kind: [given] if callable(given) else list(given) for kind, given in (hooks or {}).items()}

    def tell(self, event: Event) -> bool:
        """Tell all of them; False if a hook returned False."""
        level = logging.WARNING if event.kind in _WARNINGS else logging.INFO
        logger.log(level, "%s: %s", event.kind, event.message, extra={"compactor_event": event.as_json()})
        answers = [_ask(hook, event) for kind in (event.kind, "*") for hook in self._hooks.get(kind, ())]
        return not any(answer is False for answer in answers)


def _ask(hook: Hook, event: Event) -> object:
    try:
        return hook(event)
    except Exception:  # a listener's own trouble must not reach the agent
        logger.exception("hook for %s failed", event.kind)
        return None
