"""How much may be said again behind a plan; numbers only."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Allowance"]


@dataclass(frozen=True, slots=True)
class Allowance:
    """Bounds on what is carried over a compaction, in tokens of the prompt."""

    files: int = 5
    tokens_each: int = 5_000
    tokens_in_all: int = 50_000
    share_of_goal: float = 0.5
    """And never more than this share of what the prompt is to have afterwards."""

    def tokens(self, goal_tokens: int) -> int:
        """What files may take of a prompt of `goal_tokens`."""
        return min(self.tokens_in_all, int(goal_tokens * self.share_of_goal))
