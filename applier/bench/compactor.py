"""This compactor as a method to measure: plan, preview, list. Writes nothing to any store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from applier.bench.outcome import Outcome
from applier.bench.texts import message_tokens
from applier.view import preview
from planner.api import plan_compaction
from planner.reading.messages import Message

__all__ = ["compact_by"]


def compact_by(
    messages: Sequence[Message],
    task: str,
    target_tokens: int,
    planner: Any = "rules",
    model: str | None = None,
    client: Any = None,
    prompts_dir: str | Path | None = None,
) -> Outcome:
    """`messages` planned by `planner` for the same share of their size, however it counts tokens itself."""
    ratio = min(1.0, target_tokens / max(1, message_tokens(messages)))
    plan = plan_compaction(
        messages, task, target_ratio=ratio, planner=planner, model=model, client=client, prompts_dir=prompts_dir
    )
    shown = preview(plan)
    return Outcome(list(shown.messages), shown.plan)
