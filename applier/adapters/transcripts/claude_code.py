"""Claude Code: its session logs (one JSON line per block, result and event) are read as transcripts and written as
sessions that it resumes.

Lines form a tree by ``parentUuid``; read is the branch that the session is on, no line before the one that it
follows. Every content block of an answer has a line of its own, and results are logged as they arrive, also in the
middle of the answer that asked for them: the message id says what belongs together. The format is not documented;
the fields read here are what versions 1 and 2 write, others are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from applier.adapters.transcripts.document import Document, json_text, malformed
from applier.adapters.transcripts.session_log import Assembly, LogLine, Origins
from applier.adapters.transcripts.transcript import Client, Transcript, seconds
from planner.errors import TranscriptError
from planner.evidence.hosts import is_host_text
from planner.reading.messages import Block, Message, blocks
from planner.reading.tokens import TokenCounter

__all__ = ["CLAUDE_CODE"]

_NO_NAME = re.compile(r"[^A-Za-z0-9]")
"""What the client replaces in a folder's path to name its project: ``/w/my.app`` is ``-w-my-app``."""
_ENVELOPE = ("userType", "entrypoint", "cwd", "version", "gitBranch")
"""What each line of a session repeats."""
_TITLE_CHARACTERS = 80


class _ClaudeCode:
    name = "claude_code"
    title = "a session of Claude Code"

    def detects(self, document: Document) -> bool:
        return any(
            isinstance(value, dict)
            and value.get("type") in ("user", "assistant")
            and isinstance(value.get("message"), dict)
            and any(key in value for key in ("uuid", "sessionId", "session_id"))
            for _, value in document.log_lines
        )

    def read(self, document: Document, part: int | None) -> Transcript:
        assembly = Assembly(document)
        lines = _active_branch([_line(number, value, document.name) for number, value in document.log_lines], assembly)
        errors = [line.number for line in lines if line.is_api_error]
        empty: list[int] = []
        for line in lines:
            if line.is_boundary:
                assembly.compacted(line.number, _carried(line, lines))
            elif line.speaks and not line.is_api_error and not _add(assembly, line):
                empty.append(line.number)
        assembly.note(errors, "errors of the API, not words of the model; left out")
        assembly.note(empty, "attachments without text; left out")
        log = dict(document.log_lines)
        return assembly.finish(self, {line.number: log[line.number] for line in lines}, part=part)

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:
        lines = list(_chained(messages, Origins(messages, like, session_id)))
        if lines:
            title = " ".join(like.task.split())[:_TITLE_CHARACTERS]
            lines.append({"type": "summary", "summary": f"{title} (compacted)", "leafUuid": lines[-1]["uuid"]})
        return "".join(map(json_text, lines))

    def log_name(self, session_id: str, now: datetime) -> str:  # noqa: ARG002
        return f"{session_id}.jsonl"

    def log_folder(self, working_folder: str, now: datetime, environment: Mapping[str, str]) -> Path:  # noqa: ARG002
        # without a working folder of its own: the project that we are in
        root = environment.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
        return Path(root, "projects", _NO_NAME.sub("-", working_folder or os.getcwd()))

    def finds(self, place: Path, in_place: Path) -> bool:
        return os.path.realpath(place) == os.path.realpath(in_place)

    def resume_command(self, session_id: str) -> str:
        return f"claude --resume {session_id}"


CLAUDE_CODE: Client = _ClaudeCode()


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


def _line(number: int, value: Any, name: str) -> _LogLine:
    place = f"{name}, line {number}"
    if not isinstance(value, dict):
        raise TranscriptError(f"{place}: expected a log entry as an object, found {type(value).__name__}")
    try:
        line = _LogLine.model_validate({**value, "number": number})
    except ValidationError as error:
        raise malformed(error, place) from None
    for block in line.blocks:
        if not isinstance(block.get("type"), str):
            raise TranscriptError(f"{place}: expected a block with a 'type', found {str(block)[:60]!r}")
    return line


def _active_branch(lines: Sequence[_LogLine], assembly: Assembly) -> list[_LogLine]:
    """The lines of the branch that ends with the last words of the log; what is left out is noted in `assembly`."""
    main = _distinct([line for line in lines if not line.of_a_subagent])
    if any(line.speaks for line in main):
        aside = [line.number for line in lines if line.of_a_subagent and line.speaks]
        assembly.note(aside, "conversations of subagents, not read")
    else:
        main = _distinct(lines)
    parents, lost = _parents(main)
    for number in lost:
        assembly.note([number], "the line it follows is not in this log")
    main = _in_order(main, parents)
    chosen = _with_siblings(main, _path(main, parents))
    left = [line.number for line in main if line.speaks and line.number not in chosen]
    assembly.note(left, "a branch that the session left, not read")
    return [line for line in main if line.number in chosen]


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


def _in_order(lines: Sequence[_LogLine], parents: dict[str, str | None]) -> list[_LogLine]:
    """`lines` in the order of the log, but none before the line that it follows."""
    by_uuid = {line.uuid: line for line in lines if line.uuid}
    ordered: dict[int, _LogLine] = {}
    for line in lines:
        chain: dict[int, _LogLine] = {}
        at: _LogLine | None = line
        while at is not None and at.number not in ordered and at.number not in chain:
            chain[at.number] = at
            at = by_uuid.get(parents.get(at.uuid or "") or "")
        ordered.update((link.number, link) for link in reversed(chain.values()))
    return list(ordered.values())


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


def _attached(attachment: dict[str, Any]) -> tuple[str | list[dict[str, Any]], bool]:
    """The words of `attachment`, empty if it holds none, and whether the host wrote them."""
    if attachment.get("type") == "queued_command":
        prompt = attachment.get("prompt")
        host = attachment.get("commandMode") == "task-notification" or bool(attachment.get("isMeta"))
        return (prompt if isinstance(prompt, str | list) else ""), host
    text = next((text for field in _TEXT_FIELDS if (text := _text(attachment.get(field)))), "")
    if not text:
        return "", True
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
    else:
        content, host = _attached(line.attachment) if line.attachment else (str(line.content), True)
        assembly.user(content, line.number, when, host=host)
        return bool(content)
    return True


def _marked_as_host(content: str | list[Block]) -> str | list[Block]:
    """`content`, which the log says the host wrote, so marked that it stays the host's once it is a message."""
    if not isinstance(content, str):
        return [{**b, "text": _marked(str(b.get("text")))} if b["type"] == "text" else b for b in content]
    return _marked(content)


def _marked(text: str) -> str:
    return text if is_host_text(text) else f"<system-reminder>\n{text}\n</system-reminder>"


def _chained(messages: Sequence[Message], origins: Origins) -> Iterator[LogLine]:
    envelope, session = _envelope(origins.log), origins.session_id
    # The client takes the newest usage for the size of its context: the log's own would make it compact at once.
    usage = {"input_tokens": TokenCounter().messages(messages), "output_tokens": 0}
    usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    renamed: dict[str, str] = {}
    parent, moment = None, origins.start
    for message in messages:
        held = [line for line in origins.lines_of(message) if not _is_blank(line)]
        for line in held or list(_new_lines(message, len(renamed), origins)):
            uuid = str(uuid5(UUID(session), str(len(renamed))))
            renamed[str(line.get("uuid") or uuid)] = uuid
            moment = line.get("timestamp") or moment
            own = {"parentUuid": parent, "isSidechain": False, "uuid": uuid, "timestamp": moment, "sessionId": session}
            yield {**envelope, **_rebound(line, renamed, usage), **own}
            parent = uuid


def _envelope(log: Mapping[int, LogLine]) -> LogLine:
    newest: LogLine = next((line for line in reversed(list(log.values())) if "cwd" in line), {})
    return {key: newest[key] for key in _ENVELOPE if key in newest}


def _is_blank(line: LogLine) -> bool:
    """True for blank text of the assistant, which the API refuses."""
    if line.get("type") != "assistant":
        return False
    content = blocks(line["message"])
    return all(block.get("type") == "text" and not str(block.get("text", "")).strip() for block in content)


def _rebound(line: LogLine, renamed: Mapping[str, str], usage: LogLine) -> LogLine:
    """`line` with what refers to other lines of its old log brought over or left out."""
    kept = {key: value for key, value in line.items() if key not in ("logicalParentUuid", "session_id")}
    asker = kept.pop("sourceToolAssistantUUID", None)
    if asker in renamed:
        kept["sourceToolAssistantUUID"] = renamed[asker]
    if line.get("type") == "assistant":
        kept["message"] = {**line["message"], "usage": usage}
    return kept


def _new_lines(message: Message, number: int, origins: Origins) -> Iterator[LogLine]:
    """Lines for a message that the log does not hold; a block of the assistant has one of its own."""
    if message["role"] == "assistant":
        answer = {"type": "message", "role": "assistant", "model": "<synthetic>", "stop_reason": None}
        answer["id"] = f"msg_{uuid5(UUID(origins.session_id), f'answer {number}').hex}"
        for block in blocks(message):
            yield {"type": "assistant", "message": {**answer, "content": [block]}}
        return
    ours = {} if origins.wrote(message) else {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
    yield {"type": "user", "message": {"role": "user", "content": message["content"]}, **ours}
