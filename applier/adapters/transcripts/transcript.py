"""What a transcript is once it is read: Anthropic messages, and what is needed to write them back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from planner.reading.messages import Block, Message

__all__ = ["Format", "Transcript"]

Format = Literal["anthropic", "anthropic_jsonl", "openai", "openai_jsonl", "claude_code", "codex"]


@dataclass(frozen=True)
class Transcript:
    """One conversation, read from any format. Messages are Anthropic messages whatever they were."""

    messages: list[Message] = field(repr=False)
    system: str | list[Block] | None = field(repr=False)
    tools: list[dict[str, Any]] | None = field(repr=False)
    task: str
    """The file's own ``task``; else the last words of the user that set one, else their first; or empty."""
    format: Format
    warnings: tuple[str, ...] = ()
    """What was left out or is not as the API wants it, each with its place; nothing here stops a reader."""
    timestamps: tuple[float | None, ...] = ()
    """Seconds since the epoch, one per message, where the source has them."""
    source: dict[str, Any] = field(default_factory=dict, repr=False)
    """Where it came from. ``path``: the file, if it was one. ``lines``: of a session log, the line numbers
    behind each message. The rest belongs to `write_transcript`."""
