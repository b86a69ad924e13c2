"""What a compaction now would do, for the person who typed ``/compactor preview`` into Claude Code.

Planned by rules: a preview asks no model and stores nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, Field

from applier.receipt import forecast
from applier.settings import load_settings
from planner.api import plan_compaction
from planner.reading.messages import Message, blocks

__all__ = ["PreviewCall", "preview_text"]

USAGE = "/compactor preview [WORDS]: what a compaction now would do, with WORDS for its focus. /compact [WORDS]: do it."
TASK = "Go on with what is asked."
"""Rules read the task from the record; a plan has one all the same."""
REMINDER = "<system-reminder>"
"""How a block begins that the client itself puts into a user's message: each request gets it anew."""


class PreviewCall(BaseModel):
    """What the shim says; other fields are ignored."""

    session_id: str = Field(pattern=r"^[\w.-]{1,200}$")
    model: str = ""
    arguments: str = ""
    """What was typed behind the command."""
    api: tuple[dict[str, Any], ...] = ()
    """The transcript in the API's form, with what the client itself says in it."""


def preview_text(call: PreviewCall, log: str) -> str:
    """What is shown for `call`; `log` is the file of its session, or empty."""
    first, _, focus = call.arguments.strip().partition(" ")
    if first not in ("", "preview"):
        return USAGE
    settings = load_settings().plan
    settings = settings.changed(target_model=settings.target_model or call.model)
    plan = plan_compaction(list(_shown(call.api)), TASK, planner="rules", settings=settings, focus=focus or None)
    review = f"compactor plan {shlex.quote(log)} --planner rules --web" if log else "compactor plan SESSION.jsonl --web"
    return forecast(plan, review)


def _shown(api: Sequence[Message]) -> Iterator[Message]:
    """`api` as a compaction gets it, without reminders."""
    for message in api:
        content = [block for block in blocks(message) if not str(block.get("text", "")).startswith(REMINDER)]
        if content or message.get("role") != "user":
            yield {**message, "content": content} if message.get("role") == "user" else message
