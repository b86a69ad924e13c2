"""What a caller may tune about planning. Bounds stand on the fields; unknown keys are refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["PlanSettings"]


class PlanSettings(BaseModel):
    """Settings of one planning call."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    target_ratio: float = Field(default=0.25, gt=0, le=1)
    """The share of the history's tokens the view may have when no target is given."""
    target_model: str = ""
    """The model that will read the view: decides token counts and thinking. Empty: a current Claude."""
    window_tokens: int = Field(default=200_000, ge=1_000)
    """Of the model that will read the view: only a live tail that would not fit it otherwise is demoted."""
    restore_tool: str = ""
    """The agent's tool that returns a turn whole, to be named in the view; empty if it has none."""
    min_savings_tokens: int = Field(default=0, ge=0)
    """A plan that saves fewer tokens keeps everything instead."""
    planner_input_ratio: float = Field(default=0.24, gt=0, le=1)
    """The share of the history's tokens the planner model may read, prompt and cards together."""
    planner_input_floor_tokens: int = Field(default=20_000, ge=500)
    """It may read this many tokens of a small history whatever the ratio says: what it is told besides takes 6,000."""
    piece_tokens: int = Field(default=60_000, ge=2_000)
    """Cards over this many tokens are planned in parallel pieces of at most this size."""
    max_output_tokens: int = Field(default=8_192, ge=256)
    """The planner model's output limit for one piece."""
    timeout_seconds: float = Field(default=120.0, gt=0)
    """For a planning call by a model, its requests, re-asks, retries and pieces included."""
    max_reasks: int = Field(default=2, ge=0, le=10)
    """How often an answer that is not a valid plan goes back to the model."""
