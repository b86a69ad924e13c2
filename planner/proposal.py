"""What a planner is asked and what it answers: ranks, reasons and words; never the final choice.

The fit and the guards turn a `Proposal` into a plan, whoever made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

from planner.evidence import Evidence
from planner.plan import ExtractedFact, Provenance, Strategy
from planner.reading.history import History
from planner.reading.tokens import TokenCounter
from planner.relevance.relevance import Worth, weigh_lines
from planner.settings import PlanSettings

__all__ = ["PlanRequest", "Planner", "Proposal", "TurnProposal"]


@dataclass(frozen=True)
class PlanRequest:
    """All a planner may know. The future is not in it."""

    history: History
    evidence: Evidence
    task: str
    focus: str
    """What the caller wants kept above all; may be empty."""
    target_tokens: int
    counter: TokenCounter
    settings: PlanSettings
    now: float
    """Seconds since the epoch, for the facts' timestamps."""

    @cached_property
    def worth(self) -> Worth:
        """What each line is worth by the evidence; weighed once for planner and fit."""
        return weigh_lines(self.evidence)


@dataclass(frozen=True)
class TurnProposal:
    """What a planner thinks of one turn."""

    turn_id: str
    score: float
    """0 (nothing needs it) to 1 (nothing goes without it)."""
    reason: str = ""
    strategy: Strategy | None = None
    """What the planner would do; the fit may give less when the target demands it. None: by score."""
    summary: str = ""
    excerpts: tuple[tuple[int, int], ...] = ()
    failed_approach: bool = False
    weight: float = 1.0
    """What the worth of the turn's lines is multiplied with in the fit; 1 leaves it as the evidence has it."""


@dataclass(frozen=True)
class Proposal:
    """A planner's answer. Turns it leaves out are ranked by the rules planner."""

    turns: Mapping[str, TurnProposal]
    provenance: Provenance
    facts: tuple[ExtractedFact, ...] = field(default=())


@runtime_checkable
class Planner(Protocol):
    """Anything that ranks turns: pass it as ``plan_compaction(…, planner=…)``."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Rank the turns of ``request.history`` against ``request.task``."""
        ...
