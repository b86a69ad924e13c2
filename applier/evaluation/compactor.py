"""This compactor as a method to measure: plan, preview, list. Writes nothing to any store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from applier.evaluation.texts import message_tokens
from planner.messages import Message

__all__ = ["compact_by"]


def compact_by(
    messages: Sequence[Message], task: str, target_tokens: int, planner: Any = "rules"
) -> list[Message]:
    """`messages` as planned by `planner` for the same share of their size, whatever its own counting."""
    from planner.api import plan_compaction

    from applier.view import preview

    ratio = target_tokens / max(1, message_tokens(messages))
    plan = plan_compaction(messages, task, target_ratio=ratio, planner=planner)
    return list(preview(plan).messages)
