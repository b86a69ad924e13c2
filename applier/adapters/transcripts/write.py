"""Writes messages in the format they were read from; session logs have no way back but Anthropic JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from applier.adapters.transcripts.openai_chat import to_openai
from applier.adapters.transcripts.transcript import Transcript
from planner.reading.messages import plain_message

__all__ = ["write_transcript"]


def write_transcript(messages: Sequence[object], like: Transcript) -> str:
    """`messages` (Anthropic messages, such as a view) as text in the format of `like`.

    What stands around the messages in that file (system, tools, other fields and conversations) is kept.
    A session log comes back as an Anthropic object with ``task``, ``system`` and ``messages``.

    Raises:
        TranscriptError: an entry is not a message; the text names its index.
    """
    plain = [plain_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    source = like.source
    if "value" not in source:
        system = {"system": like.system} if like.system else {}
        return _text({"task": like.task, **system, "messages": plain}, indent=None, ascii_only=False)
    entries = [*source["lifted"], *to_openai(plain)] if like.format.startswith("openai") else plain
    value = _replaced(source["value"], source["where"], entries)
    ascii_only = bool(source.get("ascii"))
    if like.format.endswith("jsonl"):
        return "".join(_text(entry, indent=None, ascii_only=ascii_only) for entry in value)
    return _text(value, indent=source.get("indent"), ascii_only=ascii_only)


def _replaced(value: Any, where: Sequence[str | int], entries: list[Any]) -> Any:
    """A copy of `value` with `entries` at `where`; nothing else is copied."""
    if not where:
        return entries
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[where[0]] = _replaced(value[where[0]], where[1:], entries)
    return copy


def _text(value: Any, *, indent: int | None, ascii_only: bool) -> str:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate can only be written escaped
        text = json.dumps(value, indent=indent, ensure_ascii=True)
    return text + "\n"
