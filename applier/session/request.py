"""Agent's requests to the provider, their fields besides messages, and the tokens that answers report.

Fields are read again at every call, as model, tools and thinking may change within a conversation. Sends nothing,
raises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from propcache.api import cached_property

from planner.layout import ThinkingPolicy, thinking_policy
from planner.reading.messages import Block, cache_marks, field_of
from planner.reading.tokens import model_family


@dataclass(frozen=True)
class AgentCall:
    """Fields of an agent's request to its model besides the messages; None if unknown (an empty text for the model)."""

    model: str = ""
    system: str | Sequence[Block] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    thinking: Mapping[str, Any] | None = None
    max_output_tokens: int | None = None
    cache_control: Mapping[str, Any] | None = None
    """Cache mark for the whole request, which the API puts at its end."""

    @cached_property
    def marks(self) -> list[Mapping[str, Any]]:
        """Marks for the provider's prompt cache in system prompt and tools."""
        return list(cache_marks([list(self.tools or ()), self.system]))

    @property
    def thinking_policy(self) -> ThinkingPolicy:
        """Treatment of the model's thinking after an earlier message was changed: ``strip`` (remove) or ``leave``. Some
        models refuse their thinking in a changed conversation. It stays if the request lets the API drop it, or if it
        has a token budget (Claude up to 4.5): then the API requires it before the last calls."""
        thinking = self.thinking or {}
        binding = thinking.get("block_binding")
        if isinstance(binding, Mapping) and binding.get("prefix_mismatch_behavior") == "drop_block":
            return "leave"
        if thinking.get("type") == "enabled" and not (self.model and model_family(self.model).preserves_thinking):
            return "leave"
        return thinking_policy(self.model)


def fields_of_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Messages API request besides its messages, as arguments of `Session.set_request`."""
    output = body.get("max_tokens")
    return {
        "model": str(body.get("model") or ""),
        "system": body.get("system"),
        "tools": body.get("tools") or (),
        "thinking": body.get("thinking"),
        "cache_control": body.get("cache_control"),
        "max_output_tokens": output if isinstance(output, int) and output > 0 else None,
    }


def used_input_tokens(response: object) -> int:
    """Return the prompt tokens that a response reports in its ``usage``, cached ones included; 0 without a usage. If
    the server sampled several times, only the first usage belongs to the prompt as sent. A response that begins with
    the server's own compaction has no usage for that prompt."""
    usage = field_of(response, "usage") or response
    iterations = field_of(usage, "iterations")
    if isinstance(iterations, list) and iterations:
        usage = iterations[0] if field_of(iterations[0], "type") != "compaction" else None
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    values = [field_of(usage, name) for name in names]  # None for a missing field
    return sum(value for value in values if isinstance(value, int) and value > 0)
