"""What the page of a session shows: the size of each prompt, each compaction, what came back, and the bill.

Plain values: whoever measured or recorded a session fills them in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Bill", "Happening", "Report", "SessionRun"]


@dataclass(frozen=True, slots=True)
class Happening:
    """A compaction, or a turn that came back."""

    call: int
    """Number of the call it happened before, from 1."""
    kind: str
    why: str
    tier: str
    tokens_before: int
    tokens_after: int
    invalidated_tokens: int
    message: str


@dataclass(frozen=True, slots=True)
class Bill:
    """Input cost in uncached tokens, at one price of reading the cache."""

    read_price: float
    tokens: float
    tokens_without: float
    """Of the same calls with nothing compacted, however long the prompt."""


@dataclass(frozen=True, slots=True)
class SessionRun:
    """One session, from its first call to its last."""

    name: str
    limit_tokens: int
    """What a prompt may have."""
    sent_tokens: Sequence[int]
    """Of each call."""
    history_tokens: Sequence[int]
    """Of each call: what would be sent without compaction."""
    happenings: Sequence[Happening]
    bills: Sequence[Bill]
    problems: Sequence[str]
    """Rules broken, prompts over the limit, originals that are lost."""


@dataclass(frozen=True, slots=True)
class Report:
    """The page: one run, or several of the same work beside each other."""

    task: str
    runs: Sequence[SessionRun]

    def page(self) -> dict[str, Any]:
        """The report as JSON data."""
        return asdict(self)
