"""A message list as plain pieces of text, and how many o200k tokens they are.

One way of counting for histories and for results, so that sizes can be compared. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

from planner.reading.lines import call_text
from planner.reading.messages import Block, Message, blocks, result_text, to_json
from planner.reading.tokens import TokenCounter

__all__ = [
    "Speaker",
    "agent_values",
    "forget_counts",
    "message_tokens",
    "one_space",
    "pieces",
    "plain_text",
    "text_tokens",
]

Speaker = Literal["agent", "other"]


def pieces(messages: Iterable[Message]) -> Iterator[tuple[Speaker, str]]:
    """Each block's text with who wrote it: the agent (its words, its calls), or anybody else."""
    for message in messages:
        for block in blocks(message):
            text = _block_text(block)
            if text:
                yield ("agent" if message["role"] == "assistant" and not _is_result(block) else "other"), text


def plain_text(messages: Iterable[Message]) -> str:
    """All text of `messages`, one piece below the other."""
    return "\n".join(text for _, text in pieces(messages))


def _is_result(block: Block) -> bool:
    return bool(block["type"].endswith("tool_result"))


def _block_text(block: Block) -> str:
    kind = block["type"]
    if kind in ("text", "thinking"):
        return str(block.get(kind) or "")
    if kind in ("tool_use", "server_tool_use"):
        return call_text(block)
    if _is_result(block):
        return result_text(block)
    source = block.get("source")
    return str(source.get("data", "")) if isinstance(source, dict) and source.get("type") == "text" else ""


def agent_values(message: Message) -> Iterator[tuple[str, bool]]:
    """What the agent writes in `message`: its text, and each string of its calls' inputs (then True)."""
    for block in blocks(message):
        if block["type"] == "text":
            yield str(block.get("text") or ""), False
        elif block["type"] in ("tool_use", "server_tool_use"):
            for value in _strings(block.get("input")):
                yield value, True


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def one_space(text: str) -> str:
    """`text` with each run of white space as one space."""
    return " ".join(text.split())


def forget_counts() -> None:
    """Count texts anew that were counted before: for timings."""
    _counter.cache_clear()


@lru_cache(maxsize=1)
def _counter() -> TokenCounter:
    return TokenCounter(1.0)


def text_tokens(text: str) -> int:
    """o200k tokens of `text`, unscaled."""
    return _counter().raw(text)


def message_tokens(messages: Sequence[Message]) -> int:
    """o200k tokens of all text in `messages`: words, calls with their inputs as JSON, results."""
    return sum(text_tokens(_counted(block)) for message in messages for block in blocks(message))


def _counted(block: Block) -> str:
    if block["type"] in ("tool_use", "server_tool_use"):
        return f"{block.get('name', '')} {to_json(block.get('input'))}"
    return _block_text(block)
