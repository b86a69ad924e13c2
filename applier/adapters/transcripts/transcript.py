"""What a transcript is once it is read: Anthropic messages, and what is needed to write them back.

Says where calls and results do not pair as the API wants; repairs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from planner.reading.messages import Block, Message, blocks

__all__ = ["Format", "Transcript", "pairing_warnings", "seconds"]

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
    """Where it came from. ``path``: the file, if it was one. Of a session log ``lines``: the line numbers behind
    each message, and ``log``: the lines by number. The rest belongs to `write_transcript`."""

    @property
    def is_session_log(self) -> bool:
        """True for the log of a client that can resume a session from it."""
        return self.format in ("claude_code", "codex")


def seconds(value: object) -> float | None:
    """`value`, ISO 8601 (UTC where it names no zone) or a number of seconds, in seconds; None if neither."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) if math.isfinite(value) else None
        if not isinstance(value, str):
            return None
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def pairing_warnings(messages: Sequence[Message], places: Sequence[str]) -> Iterator[str]:
    """One warning per call without a result and per result without a call; `places` names each message."""
    calls: dict[str, Block] = {}
    for i, (message, place) in enumerate(zip(messages, places, strict=True)):
        results = _blocks(message, "user", "tool_result")
        yield from _unanswered(calls, results, places[i - 1], last=False)
        yield from _unasked(calls, results, place)
        calls = {str(call.get("id")): call for call in _blocks(message, "assistant", "tool_use")}
    yield from _unanswered(calls, [], places[-1] if places else "", last=True)


def _blocks(message: Message, role: str, kind: str) -> list[Block]:
    return [block for block in blocks(message) if block["type"] == kind] if message["role"] == role else []


def _unanswered(calls: dict[str, Block], results: list[Block], place: str, *, last: bool) -> Iterator[str]:
    answered = {str(result.get("tool_use_id")) for result in results}
    for key, call in calls.items():
        if key not in answered:
            end = "is the last thing and still open" if last else "has no result"
            yield f"{place}: the call {key} ({call.get('name')}) {end}"


def _unasked(calls: dict[str, Block], results: list[Block], place: str) -> Iterator[str]:
    seen: set[str] = set()
    for result in results:
        key = str(result.get("tool_use_id"))
        if key not in calls:
            yield f"{place}: the result {key} answers no call of the message before it"
        elif key in seen:
            yield f"{place}: the call {key} has a second result"
        seen.add(key)
