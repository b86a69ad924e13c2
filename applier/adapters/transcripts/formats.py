"""Reads a transcript of any known format and writes one back; tells the format by what is inside the file.

What is written has the format of what was read: a session log comes back as a log that its client can resume.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from applier.adapters.transcripts.claude_code import is_claude_code, read_claude_code
from applier.adapters.transcripts.codex import is_codex, read_codex
from applier.adapters.transcripts.document import Document, load_document
from applier.adapters.transcripts.messages import MessageFile, read_messages
from applier.adapters.transcripts.openai_chat import to_openai
from applier.adapters.transcripts.session_log import session_log
from applier.adapters.transcripts.transcript import Transcript
from planner.errors import TranscriptError
from planner.reading.messages import plain_message

__all__ = ["read_transcript", "write_transcript"]


def read_transcript(
    source: str | bytes | os.PathLike[str] | Sequence[object] | Mapping[str, Any], *, part: int | None = None
) -> Transcript:
    """The conversation in `source`: a path, the text itself, or a list of messages (dicts or SDK objects).

    Formats: Anthropic messages (a list, or an object with ``messages`` and perhaps ``system``, ``tools``,
    ``task``), OpenAI chat messages, either one as JSONL, Claude Code sessions, Codex rollouts.
    `part` names one conversation of a file that holds several, or one stretch between a session log's own
    compactions (-1: what the agent's context held last); without it a session is read whole.

    Raises:
        TranscriptError: it is none of these; the text names file, line or index, and what was expected.
    """
    if isinstance(source, str | bytes | os.PathLike):
        return _read(load_document(source), part)
    value = dict(source) if isinstance(source, Mapping) else source
    if not isinstance(value, dict | Sequence):
        raise TranscriptError(f"messages: expected a path, text or list, found {type(source).__name__}")
    value = value if isinstance(value, dict) else list(value)
    return read_messages(MessageFile("input", value, None, {"path": None, "value": value}), part)


def _read(document: Document, part: int | None) -> Transcript:
    one = isinstance(document.value, dict) and not isinstance(document.value.get("messages"), list)
    values = document.lines if document.lines is not None else ((1, document.value),) if one else ()
    if is_claude_code(values):
        return read_claude_code(document, values, part)
    if is_codex(values):
        return read_codex(document, values, part)
    if document.torn:
        raise document.torn
    as_lines = document.lines is not None or (one and "role" in document.value)
    value = [value for _, value in values] if as_lines else document.value
    numbers = tuple(number for number, _ in values) if as_lines else None
    kept = {"path": document.path, "value": value, "indent": document.indent, "ascii": document.ascii}
    return read_messages(MessageFile(document.name, value, numbers, kept), part)


def write_transcript(messages: Sequence[object], like: Transcript, *, session_id: str = "") -> str:
    """`messages` (Anthropic messages, such as a view) as text in the format of `like`.

    What stands around the messages in that file (system, tools, other fields and conversations) is kept. Of a
    session log the lines of messages that are in `like` are kept, under a new session id: `session_id`, or one
    that follows from the messages.

    Raises:
        TranscriptError: an entry is not a message; the text names its index.
    """
    plain = [plain_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    source = like.source
    if like.is_session_log:
        return "".join(_text(line, None, ascii_only=False) for line in session_log(plain, like, session_id))
    entries = [*source["lifted"], *to_openai(plain)] if like.format.startswith("openai") else plain
    value = _replaced(source["value"], source["where"], entries)
    ascii_only = bool(source.get("ascii"))
    if like.format.endswith("jsonl"):
        return "".join(_text(entry, None, ascii_only=ascii_only) for entry in value)
    return _text(value, source.get("indent"), ascii_only=ascii_only)


def _replaced(value: Any, where: Sequence[str | int], entries: list[Any]) -> Any:
    """A copy of `value` with `entries` at `where`; nothing else is copied."""
    if not where:
        return entries
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[where[0]] = _replaced(value[where[0]], where[1:], entries)
    return copy


def _text(value: Any, indent: int | None, *, ascii_only: bool) -> str:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate can only be written escaped
        text = json.dumps(value, indent=indent, ensure_ascii=True)
    return text + "\n"
