"""What a compaction method is, and what it gives back: a message list, and the plan behind it if there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.plan import CompactionPlan
from planner.reading.messages import Message

__all__ = ["Method", "Outcome", "as_outcome"]


@dataclass(frozen=True)
class Outcome:
    """A compacted list."""

    messages: list[Message]
    plan: CompactionPlan | None = None


Method = Callable[[Sequence[Message], str, int], "list[Message] | Outcome"]
"""``method(messages, task, target_tokens)``; the target in o200k tokens of all text, as the measure counts."""


def as_outcome(result: list[Message] | Outcome) -> Outcome:
    """`result` with or without a plan as an outcome."""
    return result if isinstance(result, Outcome) else Outcome(result)
