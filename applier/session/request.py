"""What the agent's next request says besides its messages, and what follows from it.

Read anew at every call: model, tools and thinking may change within one conversation. Sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.api import RESTORE_TOOL, restore_tool_of
from planner.layout.thinking import ThinkingPolicy, thinking_policy
from planner.reading.families import model_family
from planner.reading.messages import Block, blocks, plain_message
from planner.reading.tokens import TokenCounter

__all__ = ["MAX_CACHE_MARKS", "AgentCall", "with_breakpoint"]

MAX_CACHE_MARKS = 4
"""``cache_control`` marks that one request may have (Anthropic, prompt caching)."""


@dataclass(frozen=True)
class AgentCall:
    """A request of the agent without its messages; what is None was not told."""

    model: str = ""
    system: str | Sequence[Block] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: Mapping[str, Any] | None = None
    thinking: Mapping[str, Any] | None = None
    betas: tuple[str, ...] = ()
    max_output_tokens: int | None = None

    def fixed_tokens(self, counter: TokenCounter) -> int:
        """System and tools, by the counter."""
        return counter.request((), self.system, self.tools)

    @property
    def thinking_enabled(self) -> bool | None:
        """Whether the request has thinking on; None if nothing was told."""
        return None if self.thinking is None else self.thinking.get("type") != "disabled"

    @property
    def thinking_policy(self) -> ThinkingPolicy:
        """What happens to thinking behind a change: by the model, and by how the request has it switched on.

        Manual thinking (a token budget, Claude up to 4.5) must lead the last calls, so it stays; where the request
        has the API drop what no longer fits, nothing is to be stripped either.
        """
        thinking = self.thinking or {}
        binding = thinking.get("block_binding")
        if isinstance(binding, Mapping) and binding.get("prefix_mismatch_behavior") == "drop_block":
            return "leave"
        if thinking.get("type") == "enabled" and not (self.model and model_family(self.model).preserves_thinking):
            return "leave"
        return thinking_policy(self.model)

    def restore_tool(self, called: str) -> str:
        """The agent's tool that brings back what was removed, `called` so (empty: by its usual name); empty if it has
        none. Taken for granted while untold."""
        called = called or RESTORE_TOOL
        return called if self.tools is None else restore_tool_of(self.tools, called) or restore_tool_of(self.tools)

    @property
    def cache_marks(self) -> int:
        """How many of the cache marks stand on system and tools."""
        system = self.system if isinstance(self.system, Sequence) and not isinstance(self.system, str) else ()
        return sum("cache_control" in part for part in (*system, *(self.tools or ())))


def with_breakpoint(messages: Sequence[object], head: int, call: AgentCall) -> list[object]:
    """`messages` with a cache breakpoint at the end of the first `head`, the compacted part.

    Only where the caller marks its newest messages itself, and a mark is left to set: the same one that it uses.
    """
    listed = list(messages)
    marks = [mark for message in listed[head:] for mark in _marks(message)]
    if not 0 < head <= len(listed) or not marks or len(marks) + call.cache_marks >= MAX_CACHE_MARKS:
        return listed
    last = plain_message(listed[head - 1])
    content = list(blocks(last))
    if not content or not _takes_mark(content[-1]):
        return listed
    content[-1] = {**content[-1], "cache_control": dict(marks[-1])}
    listed[head - 1] = {**last, "content": content}
    return listed


def _marks(message: object) -> list[Mapping[str, Any]]:
    """The marks of `message`, those inside tool results included."""
    content = message.get("content") if isinstance(message, dict) else None
    found: list[Mapping[str, Any]] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            inner = block.get("content")
            found += [part["cache_control"] for part in (block, *_dicts(inner)) if _is_mark(part.get("cache_control"))]
    return found


def _dicts(inner: object) -> list[dict[str, Any]]:
    return [part for part in inner if isinstance(part, dict)] if isinstance(inner, list) else []


def _is_mark(value: object) -> bool:
    return isinstance(value, Mapping)


def _takes_mark(block: Block) -> bool:
    """No mark may stand on thinking or on empty text."""
    if block["type"] == "text":
        return bool(str(block.get("text", "")).strip())
    return block["type"] not in ("thinking", "redacted_thinking")
