"""The planner that asks a model: cards in, short answers out, one `Proposal` for the fit and the guards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from planner.model.asking import Outcome, ask
from planner.model.clients import open_endpoint, running_loop
from planner.model.pieces import Piece, plan_pieces
from planner.plan import ExtractedFact, Provenance, Usage
from planner.prompts import Prompts, load_prompts
from planner.proposal import PlanRequest, Proposal, TurnProposal

__all__ = ["ModelPlanner", "merged"]

MOST_PARALLEL = 4
"""Pieces asked at once: more would rather run into rate limits than be faster."""


@dataclass(frozen=True)
class ModelPlanner:
    """Ranks turns by asking a model."""

    client: Any = None
    """``anthropic.Anthropic``, ``AsyncAnthropic`` (inside `plan_compaction_async`), an instructor client, or
    None: the SDK's own settings from the environment."""
    model: str | None = None
    """A Claude model, ``provider/model`` for others by instructor's strings, or None: `DEFAULT_MODEL`."""
    prompts_dir: str | Path | None = None
    """A folder whose prompts take the place of the packaged ones."""
    loop: asyncio.AbstractEventLoop | None = field(default_factory=running_loop, repr=False)
    """Where an asynchronous client lives: the loop this planner is made in."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Rank the turns of ``request.history``; what the model leaves out or gets wrong is left out here.

        Raises:
            PlannerUnavailable: no piece got an answer that can be used.
            SettingsError: the prompts or the client cannot be used.
        """
        prompts = load_prompts(self.prompts_dir)
        pieces = [piece for piece in plan_pieces(request, prompts) if piece.scope.to_plan]
        if not pieces:
            return Proposal({}, Provenance(planner="model", prompts=prompts.hash))
        outcomes, model = self._ask_all(pieces, prompts, request)
        if all(outcome.error for outcome in outcomes):
            raise next(outcome.error for outcome in outcomes if outcome.error)
        return merged(outcomes, model, prompts)

    def _ask_all(self, pieces: Sequence[Piece], prompts: Prompts, request: PlanRequest) -> tuple[list[Outcome], str]:
        system, settings = prompts.render("system"), request.settings
        with (
            open_endpoint(self.client, self.model, settings.timeout_seconds, self.loop) as endpoint,
            ThreadPoolExecutor(min(len(pieces), MOST_PARALLEL)) as pool,
        ):
            asked = [pool.submit(ask, endpoint, system, piece, settings, request.now) for piece in pieces]
            return [future.result() for future in asked], endpoint.model


def merged(outcomes: Sequence[Outcome], model: str, prompts: Prompts) -> Proposal:
    """All pieces as one, in the order of the history."""
    turns: dict[str, TurnProposal] = {}
    facts: dict[tuple[str, str], ExtractedFact] = {}
    for outcome in outcomes:
        if outcome.reading is not None:
            turns |= outcome.reading.turns
            for fact in outcome.reading.facts:
                facts.setdefault((fact.type, fact.content), fact)
    provenance = Provenance(
        planner="model",
        model=model or next((outcome.model for outcome in outcomes if outcome.model), ""),
        prompts=prompts.hash,
        usage=reduce(add, (outcome.usage for outcome in outcomes), Usage()),
        notes=tuple(outcome.note for outcome in outcomes if outcome.note),
    )
    return Proposal(turns, provenance, tuple(facts.values()))
