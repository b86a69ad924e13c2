"""The planner that asks a model: cards in, short answers out, one `Proposal` for the fit and the guards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.model.asking import Outcome, ask
from planner.model.clients import open_endpoint, running_loop
from planner.model.merge import merged
from planner.model.pieces import Piece, plan_pieces
from planner.model.prompts import Prompts, load_prompts
from planner.proposal import PlanRequest, Proposal
from planner.rules import RulesPlanner

__all__ = ["ModelPlanner"]

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
        """Rank the turns of ``request.history``; what the model leaves out or gets wrong the rules rank.

        Raises:
            PlannerUnavailable: no piece got an answer that can be used.
            SettingsError: the prompts or the client cannot be used.
        """
        prompts = load_prompts(self.prompts_dir)
        pieces = [piece for piece in plan_pieces(request, prompts) if piece.scope.to_plan]
        outcomes, model = self._ask_all(pieces, prompts, request) if pieces else ([], "")
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if errors and len(errors) == len(outcomes):
            raise errors[0]
        return merged(outcomes, model, prompts, RulesPlanner().propose(request))

    def _ask_all(self, pieces: Sequence[Piece], prompts: Prompts, request: PlanRequest) -> tuple[list[Outcome], str]:
        system, settings = prompts.render("system"), request.settings
        with (
            open_endpoint(self.client, self.model, settings.timeout_seconds, self.loop) as endpoint,
            ThreadPoolExecutor(min(len(pieces), MOST_PARALLEL)) as pool,
        ):
            asked = [pool.submit(ask, endpoint, system, piece, settings, request.now) for piece in pieces]
            return [future.result() for future in asked], endpoint.model
