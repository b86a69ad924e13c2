"""The model planner without the model: what would be sent, and answers that were recorded for it.

For comparing prompts on transcripts, and for tests that must not reach a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import PlannerUnavailable
from planner.model.answer import read_answer
from planner.model.asking import Outcome, good_enough, salvage_note
from planner.model.merge import merged
from planner.model.pieces import Piece, plan_pieces
from planner.model.prompts import load_prompts
from planner.model.responses import last_answer
from planner.plan import Usage
from planner.proposal import PlanRequest, Proposal
from planner.rules import RulesPlanner

__all__ = ["RecordedPlanner", "rendered_prompts"]


def rendered_prompts(request: PlanRequest, prompts_dir: str | Path | None = None) -> tuple[str, ...]:
    """What the planner model would read for `request`, system prompt first: one text a piece."""
    prompts = load_prompts(prompts_dir)
    return tuple(f"{prompts.render('system')}\n\n{piece.prompt}" for piece in plan_pieces(request, prompts))


@dataclass(frozen=True)
class RecordedPlanner:
    """Plans from the texts a model answered to `rendered_prompts`, one a piece, in order."""

    answers: Sequence[str]
    prompts_dir: str | Path | None = None

    def propose(self, request: PlanRequest) -> Proposal:
        """Rank the turns of ``request.history`` as the answers say; each is used as a last answer would be.

        Raises:
            PlannerUnavailable: no answer can be used, or there is not one a piece.
        """
        prompts = load_prompts(self.prompts_dir)
        pieces = plan_pieces(request, prompts)
        if len(pieces) != len(self.answers):
            raise PlannerUnavailable(
                f"recorded answers: {len(self.answers)} for {len(pieces)} pieces: record them again"
            )
        outcomes = [self._read(text, piece, request) for text, piece in zip(self.answers, pieces, strict=True)]
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if errors and len(errors) == len(outcomes):
            raise errors[0]
        return merged(outcomes, "recorded", prompts, RulesPlanner().propose(request))

    def _read(self, text: str, piece: Piece, request: PlanRequest) -> Outcome:
        tokens = request.counter.text
        usage = Usage(input_tokens=tokens(piece.prompt), output_tokens=tokens(text), requests=1)
        answer = last_answer(text)
        reading = read_answer(answer, piece.scope, request.now) if answer is not None else None
        if reading is None or not good_enough(reading, piece.scope):
            error = PlannerUnavailable(f"recorded answer for {piece.scope.name}: cannot be used: record it again")
            return Outcome(None, usage, "", str(error), error)
        return Outcome(reading, usage, "", salvage_note(reading, piece.scope, usage) if reading.problems else "")
