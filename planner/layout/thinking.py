"""What happens to thinking blocks when messages before them change, by what the target model demands.

On models with preserved thinking a thinking block is bound to every message before it, so all thinking behind the
first change goes. Older models drop earlier thinking themselves.
"""

from __future__ import annotations

from typing import Literal

from planner.reading.families import model_family
from planner.reading.messages import Message

__all__ = ["ThinkingPolicy", "thinking_policy", "without_thinking"]

ThinkingPolicy = Literal["strip", "leave"]


def thinking_policy(model: str) -> ThinkingPolicy:
    """``strip`` for models with preserved thinking and unknown ones, ``leave`` for those that drop it themselves."""
    return "strip" if model_family(model).preserves_thinking else "leave"


def without_thinking(message: Message) -> Message | None:
    """`message` without its thinking blocks: the same object if it has none, None if nothing else was in it."""
    content = message["content"]
    if not isinstance(content, list):
        return message
    rest = [block for block in content if block["type"] not in ("thinking", "redacted_thinking")]
    if len(rest) == len(content):
        return message
    return {**message, "content": rest} if rest else None
