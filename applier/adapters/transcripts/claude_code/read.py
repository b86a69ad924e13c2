"""A Claude Code session log as a transcript. Read only: what is written back is an Anthropic transcript.

Every content block of an answer has a line of its own, and results are logged as they arrive, also in the
middle of the answer that asked for them; the message id says what belongs together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from applier.adapters.transcripts.assembly import Assembly, line_ranges
from applier.adapters.transcripts.claude_code.attachments import attached
from applier.adapters.transcripts.claude_code.branch import active_branch
from applier.adapters.transcripts.claude_code.lines import LogLine, log_lines
from applier.adapters.transcripts.document import Document
from applier.adapters.transcripts.timestamps import seconds
from applier.adapters.transcripts.transcript import Transcript

__all__ = ["is_claude_code", "read_claude_code"]


def is_claude_code(values: Sequence[tuple[int, Any]]) -> bool:
    """True if one of `values` is a line of such a log with a message in it."""
    return any(
        isinstance(value, dict)
        and value.get("type") in ("user", "assistant")
        and isinstance(value.get("message"), dict)
        and any(key in value for key in ("uuid", "sessionId", "session_id"))
        for _, value in values
    )


def read_claude_code(document: Document, values: Sequence[tuple[int, Any]], part: int | None) -> Transcript:
    """The conversation of the log; only its `part`-th part between the agent's own compactions if named.

    Raises:
        TranscriptError: a line is not as the format has it, or nothing was said.
    """
    lines, warnings = active_branch(log_lines(values, document.name), document.name)
    assembly = Assembly(document.name, warnings=warnings)
    if document.torn:
        assembly.warnings.append(f"{document.torn}; left out")
    errors: list[int] = []
    empty: list[int] = []
    for line in lines:
        if line.is_boundary:
            assembly.compacted(line.number, _carried(line, lines))
        elif line.is_api_error:
            errors.append(line.number)
        elif line.speaks and not _said(assembly, line):
            empty.append(line.number)
    for numbers, what in (
        (errors, "errors of the API, not words of the model"),
        (empty, "attachments without text"),
    ):
        if numbers:
            assembly.warnings.append(f"{document.name}, {line_ranges(numbers)}: {what}; left out")
    return assembly.finish("claude_code", path=document.path, part=part)


def _carried(boundary: LogLine, lines: Sequence[LogLine]) -> frozenset[int]:
    """The numbers of the lines that the compaction at `boundary` left in the context as they were."""
    segment = boundary.compaction.get("preservedSegment")
    if not isinstance(segment, dict):
        return frozenset()
    numbers = {line.uuid: line.number for line in lines}
    head, tail = numbers.get(segment.get("headUuid")), numbers.get(segment.get("tailUuid"))
    return frozenset(range(head, tail + 1)) if head and tail else frozenset()


def _said(assembly: Assembly, line: LogLine) -> bool:
    """Add what `line` says; False if it says nothing."""
    when = seconds(line.timestamp)
    if line.type == "assistant" and line.message:
        content = line.message.content
        said = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assembly.assistant(line.message.id or f"line {line.number}", said, line.number, when)
    elif line.message:
        host = bool(line.is_meta or line.is_summary)
        assembly.user(line.message.content, line.number, when, host=host)
    elif line.attachment:
        words = attached(line.attachment)
        if words is None:
            return False
        assembly.user(words[0], line.number, when, host=words[1])
    else:
        assembly.user(str(line.content), line.number, when, host=True)
    return True
