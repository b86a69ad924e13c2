"""A Claude Code session log (one JSON line per block, result and event) as a transcript.

Lines form a tree by ``parentUuid``; read is the branch that the session is on. Every content block of an answer
has a line of its own, and results are logged as they arrive, also in the middle of the answer that asked for
them: the message id says what belongs together. The format is not documented; the fields read here are what
versions 1 and 2 write, others are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from applier.adapters.transcripts.assembly import Assembly, line_ranges
from applier.adapters.transcripts.document import Document
from applier.adapters.transcripts.transcript import Transcript, seconds
from planner.errors import TranscriptError
from planner.evidence.hosts import is_host_text
from planner.reading.messages import Block

__all__ = ["is_claude_code", "read_claude_code"]


class _LogMessage(BaseModel):
    role: str
    content: str | list[dict[str, Any]]
    id: str | None = None


class _LogLine(BaseModel):
    """A line that may belong to the conversation."""

    model_config = ConfigDict(frozen=True)

    number: int
    """Where it stands in the file, from 1."""
    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    parent: str | None = Field(default=None, alias="parentUuid")
    logical_parent: str | None = Field(default=None, alias="logicalParentUuid")
    is_sidechain: bool = Field(default=False, alias="isSidechain")
    parent_tool_use_id: str | None = None
    is_meta: bool | None = Field(default=False, alias="isMeta")
    is_summary: bool | None = Field(default=False, alias="isCompactSummary")
    is_api_error: bool | None = Field(default=False, alias="isApiErrorMessage")
    compaction: dict[str, Any] = Field(default_factory=dict, alias="compactMetadata")
    timestamp: str | None = None
    message: _LogMessage | None = None
    attachment: dict[str, Any] | None = None
    content: Any = None
    """Of a system line."""

    @property
    def names_no_parent(self) -> bool:
        """True if the writer kept no tree (``--output-format stream-json``): lines follow each other."""
        return "parent" not in self.model_fields_set

    @property
    def of_a_subagent(self) -> bool:
        """True for the conversation of a subagent."""
        return self.is_sidechain or self.parent_tool_use_id is not None

    @property
    def is_boundary(self) -> bool:
        """True where the agent compacted its context."""
        return self.type == "system" and self.subtype == "compact_boundary"

    @property
    def speaks(self) -> bool:
        """True if the model saw it: words, calls, results, attachments, output of local commands."""
        if self.type in ("user", "assistant"):
            return self.message is not None
        if self.type == "system":
            return self.subtype == "local_command" and isinstance(self.content, str)
        return self.type == "attachment" and self.attachment is not None

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """The blocks of its message; none if that is plain text."""
        content = self.message.content if self.message else ""
        return [] if isinstance(content, str) else content


def _log_lines(values: Iterable[tuple[int, Any]], name: str) -> list[_LogLine]:
    """The `values` (line number, JSON) of the log `name`.

    Raises:
        TranscriptError: a line has a field of another form; the text names the line and the field.
    """
    return [_line(number, value, name) for number, value in values]


def _line(number: int, value: Any, name: str) -> _LogLine:
    place = f"{name}, line {number}"
    if not isinstance(value, dict):
        raise TranscriptError(f"{place}: expected a log entry as an object, found {type(value).__name__}")
    try:
        line = _LogLine.model_validate({**value, "number": number})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(step) for step in first["loc"])
        raise TranscriptError(f"{place}: {field}: {first['msg']}, found {first['input']!r:.60}") from None
    for block in line.blocks:
        if not isinstance(block.get("type"), str):
            raise TranscriptError(f"{place}: expected a block with a 'type', found {str(block)[:60]!r}")
    return line


def _active_branch(lines: Sequence[_LogLine], name: str) -> tuple[list[_LogLine], list[str]]:
    """The lines of the branch that ends with the last words of the log, in order; and what was left out."""
    main = _distinct([line for line in lines if not line.of_a_subagent])
    aside = [line.number for line in lines if line.of_a_subagent and line.speaks]
    if not any(line.speaks for line in main):
        main, aside = _distinct(lines), []
    warnings = [f"{name}, {line_ranges(aside)}: conversations of subagents, not read"] if aside else []
    parents, lost = _parents(main)
    warnings += [f"{name}, line {number}: the line it follows is not in this log" for number in lost]
    chosen = _with_siblings(main, _path(main, parents))
    left = [line.number for line in main if line.speaks and line.number not in chosen]
    if left:
        warnings.append(f"{name}, {line_ranges(left)}: a branch that the session left, not read")
    return [line for line in main if line.number in chosen], warnings


def _distinct(lines: Sequence[_LogLine]) -> list[_LogLine]:
    """`lines` without those that repeat an earlier one, as a resumed session does."""
    seen: set[str] = set()
    kept = []
    for line in lines:
        if line.uuid is None or line.uuid not in seen:
            kept.append(line)
            seen.add(line.uuid or "")
    return kept


def _parents(lines: Sequence[_LogLine]) -> tuple[dict[str, str | None], list[int]]:
    """The parent of each line by uuid, and the numbers of lines whose parent is missing.

    A missing parent, and the start of a compacted context that names none, is the line before.
    """
    known = {line.uuid for line in lines if line.uuid}
    parents: dict[str, str | None] = {}
    lost: list[int] = []
    before: str | None = None
    for line in lines:
        if line.uuid is None:
            continue
        parent = line.parent or line.logical_parent
        missing = parent is not None and parent not in known
        if missing and before is not None:
            lost.append(line.number)
        follows = missing or (parent is None and (line.names_no_parent or line.is_boundary or line.is_summary))
        parents[line.uuid] = before if follows else parent
        before = line.uuid
    return parents, lost


def _path(lines: Sequence[_LogLine], parents: dict[str, str | None]) -> set[str]:
    """Uuids from the last line that speaks up to its root."""
    at = next((line.uuid for line in reversed(lines) if line.speaks and line.uuid), None)
    path: set[str] = set()
    while at is not None and at not in path:
        path.add(at)
        at = parents.get(at)
    return path


def _with_siblings(lines: Sequence[_LogLine], path: set[str]) -> set[int]:
    """Numbers of the lines on `path`, and of the other pieces of the answers and results they belong to."""
    on_path = [line for line in lines if line.uuid in path or line.uuid is None]
    chosen = {line.number for line in on_path}
    answers = {line.message.id for line in on_path if line.type == "assistant" and line.message}
    done = set(_ids(on_path, "tool_result", "tool_use_id"))
    siblings = [
        line
        for line in lines
        if line.type == "assistant" and line.message and line.message.id and line.message.id in answers
    ]
    chosen.update(line.number for line in siblings)
    open_calls = set(_ids([*on_path, *siblings], "tool_use", "id")) - done
    for line in lines:
        results = set(_ids([line], "tool_result", "tool_use_id"))
        if line.number not in chosen and results and results <= open_calls:
            chosen.add(line.number)
            open_calls -= results
    return chosen


def _ids(lines: Sequence[_LogLine], kind: str, key: str) -> Iterator[str]:
    for line in lines:
        for block in line.blocks:
            if block["type"] == kind:
                yield str(block.get(key))


_TEXT_FIELDS = ("content", "snippet", "text", "stdout")
_NAME_FIELDS = ("filename", "path", "hookName")


def _attached(attachment: dict[str, Any]) -> tuple[str | list[dict[str, Any]], bool] | None:
    """The words of `attachment`, and whether the host wrote them; None if it holds none."""
    if attachment.get("type") == "queued_command":
        prompt = attachment.get("prompt")
        host = attachment.get("commandMode") == "task-notification" or bool(attachment.get("isMeta"))
        return (prompt, host) if isinstance(prompt, str | list) and prompt else None
    text = next((text for field in _TEXT_FIELDS if (text := _text(attachment.get(field)))), "")
    if not text:
        return None
    named = next((str(attachment[field]) for field in _NAME_FIELDS if attachment.get(field)), "")
    head = f"{attachment.get('type')} {named}".rstrip()
    return f"<system-reminder>\n{head}:\n{text}\n</system-reminder>", True


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.strip("\n") if value.strip() else ""
    if isinstance(value, list):
        return "\n".join(item for item in value if isinstance(item, str))
    if isinstance(value, dict):
        file = value.get("file", value)
        return _text(file.get("content")) if isinstance(file, dict) else ""
    return ""


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
    lines, warnings = _active_branch(_log_lines(values, document.name), document.name)
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
        elif line.speaks and not _add(assembly, line):
            empty.append(line.number)
    for numbers, what in (
        (errors, "errors of the API, not words of the model"),
        (empty, "attachments without text"),
    ):
        if numbers:
            assembly.warnings.append(f"{document.name}, {line_ranges(numbers)}: {what}; left out")
    log = dict(values)
    return assembly.finish("claude_code", document, {line.number: log[line.number] for line in lines}, part=part)


def _carried(boundary: _LogLine, lines: Sequence[_LogLine]) -> frozenset[int]:
    """The numbers of the lines that the compaction at `boundary` left in the context as they were."""
    segment = boundary.compaction.get("preservedSegment")
    if not isinstance(segment, dict):
        return frozenset()
    numbers = {line.uuid: line.number for line in lines}
    head, tail = numbers.get(segment.get("headUuid")), numbers.get(segment.get("tailUuid"))
    return frozenset(range(head, tail + 1)) if head and tail else frozenset()


def _add(assembly: Assembly, line: _LogLine) -> bool:
    """Add what `line` says; False if it says nothing."""
    when = seconds(line.timestamp)
    if line.type == "assistant" and line.message:
        content = line.message.content
        answer = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assembly.assistant(line.message.id or f"line {line.number}", answer, line.number, when)
    elif line.message:
        host = bool(line.is_meta or line.is_summary)
        content = line.message.content
        marked = _marked_as_host(content) if line.is_meta and not line.is_summary else content
        assembly.user(marked, line.number, when, host=host)
    elif line.attachment:
        words = _attached(line.attachment)
        if words is None:
            return False
        assembly.user(words[0], line.number, when, host=words[1])
    else:
        assembly.user(str(line.content), line.number, when, host=True)
    return True


def _marked_as_host(content: str | list[Block]) -> str | list[Block]:
    """`content`, which the log says the host wrote, so marked that it stays the host's once it is a message."""
    if not isinstance(content, str):
        return [{**b, "text": _marked(str(b.get("text")))} if b["type"] == "text" else b for b in content]
    return _marked(content)


def _marked(text: str) -> str:
    return text if is_host_text(text) else f"<system-reminder>\n{text}\n</system-reminder>"
