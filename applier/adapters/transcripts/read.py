"""Reads a transcript of any known format. Tells the format by what is inside, never by a file's name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from applier.adapters.transcripts.claude_code import is_claude_code, read_claude_code
from applier.adapters.transcripts.codex import is_codex, read_codex
from applier.adapters.transcripts.document import Document, load_document
from applier.adapters.transcripts.messages import Given, read_messages
from applier.adapters.transcripts.transcript import Transcript
from planner.errors import TranscriptError

__all__ = ["read_transcript"]


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
    return read_messages(Given("input", value, None, {"path": None, "value": value}), part)


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
    return read_messages(Given(document.name, value, numbers, kept), part)
