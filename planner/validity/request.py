"""A request as the rules see it: plain messages, what stands around them, and the model's family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.families import ModelFamily
from planner.messages import Block, Message, blocks

__all__ = ["THINKING", "Request", "place_of"]

THINKING = ("thinking", "redacted_thinking")


def place_of(message: int, block: int | None = None, inner: int | None = None) -> str:
    """``messages[3]``, ``messages[3].content[1]`` or ``messages[3].content[1].content[0]``."""
    parts = (index for index in (block, inner) if index is not None)
    return f"messages[{message}]" + "".join(f".content[{index}]" for index in parts)


@dataclass(frozen=True)
class Request:
    """What is sent; the rules only read it."""

    messages: Sequence[Message]
    family: ModelFamily
    model: str = ""
    thinking_enabled: bool | None = None
    """None: not known, and the rules that need it are not asked."""
    system: str | Sequence[Block] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    window_tokens: int | None = None

    def blocks(self, *roles: str) -> Iterator[tuple[int, int, Block]]:
        """Each top-level block with the index of its message and its own, of messages with one of `roles`."""
        for at, message in enumerate(self.messages):
            if not roles or message["role"] in roles:
                for index, block in enumerate(blocks(message)):
                    yield at, index, block

    def places(self) -> Iterator[tuple[str, Block]]:
        """Every block of the messages with its place, those inside results included."""
        for at, index, block in self.blocks():
            yield place_of(at, index), block
            inner = block.get("content")
            for number, item in enumerate(inner if isinstance(inner, list) else ()):
                if isinstance(item, dict):
                    yield place_of(at, index, number), item

    def marked_places(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Everything that may carry a cache mark, in the order the API reads: tools, system, messages."""
        for number, tool in enumerate(self.tools or ()):
            yield f"tools[{number}]", tool
        if self.system and not isinstance(self.system, str):
            for number, block in enumerate(self.system):
                yield f"system[{number}]", block
        yield from self.places()

    @property
    def last_assistant(self) -> int | None:
        """Index of the last assistant message."""
        found = (at for at in reversed(range(len(self.messages))) if self.messages[at]["role"] == "assistant")
        return next(found, None)
