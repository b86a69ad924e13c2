"""Claude Code: reads its session logs as transcripts and writes sessions that it can resume.

A log has one JSON line for each block, result and event. The lines form a tree by ``parentUuid``; only the session's
current branch is read. Results are logged as they arrive, even between the blocks of the answer with their calls, so
the blocks of an answer are joined by its message id. The format is not documented; the fields of versions 1 and 2 are
read, others are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from pydantic import BaseModel, Field, ValidationError

from applier.adapters.transcripts.document import Document, json_text, malformed
from applier.adapters.transcripts.transcript import Assembly, Client, LogLine, Origins, Transcript, marked_as_host
from planner.reading.messages import Block, Message, blocks, readable_text
from planner.reading.secrets import quoted
from planner.reading.tokens import TokenCounter

_NO_NAME = re.compile(r"[^A-Za-z0-9]")
"""Characters of a folder's path that Claude Code replaces to name the project: ``/w/my.app`` becomes ``-w-my-app``."""
_ENVELOPE = ("userType", "entrypoint", "cwd", "version", "gitBranch")
"""Fields that are the same on each line of a session log."""
_OLD_IDS = ("logicalParentUuid", "session_id", "sourceToolAssistantUUID")
"""Fields of a log line that name other lines or the session; they are not copied into a new session."""
_TITLE_CHARACTERS = 80
_LOG_NAME = f"{'-'.join('?' * length for length in (8, 4, 4, 4, 12))}.jsonl"
"""Pattern of a session's file; ``agent-….jsonl`` in the same folder is the log of a subagent."""


class _ClaudeCode:
    """Format of Claude Code's session logs, with the methods of `Client`: reads and writes logs, and knows where they
    are. A log has the session's id as its name; its folder is named after the path of the working folder."""

    name = "claude_code"
    title = "a session of Claude Code"

    def detects(self, document: Document) -> bool:
        """Return True if a line of `document` contains a message, and the id of a line or session."""
        return any(
            isinstance(value, dict)
            and value.get("type") in ("user", "assistant")
            and isinstance(value.get("message"), dict)
            and any(key in value for key in ("uuid", "sessionId", "session_id"))
            for _, value in document.lines
        )

    def read(self, document: Document, part: int | None) -> Transcript:
        """Return the conversation of the session's current branch; what is left out is reported in the warnings."""
        assembly = Assembly(document)
        lines = _active_branch(list(_lines(document, assembly)), assembly)
        errors = [line.number for line in lines if line.is_api_error]
        attached_again = [line.number for line in lines if line.is_attached_again]
        empty: list[int] = []
        summaries: list[int] = []
        has_originals = False
        for line in lines:
            if line.is_boundary:
                assembly.begin_part(line.number, _unchanged_lines(line, lines))
                has_originals = bool(assembly.pieces)
            elif line.is_summary and has_originals and part is None:  # the messages that it summarizes are read
                summaries.append(line.number)
            elif line.has_content and not (line.is_api_error or line.is_attached_again):
                empty += [] if _add(assembly, line) else [line.number]
        assembly.warn(errors, "errors of the API, not words of the model; left out")
        assembly.warn(empty, "attachments without text; left out")
        assembly.warn(attached_again, "attachments that the client sends again by itself; left out")
        assembly.warn(summaries, "summaries of what is read as it was; left out")
        log = dict(document.lines)
        return assembly.finish(self, {line.number: log[line.number] for line in lines}, part=part)

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:
        """Return `messages` as the log of a new session; lines of the old log, in `like`, are used again."""
        lines = list(_session_lines(messages, Origins(messages, like, session_id)))
        if lines:  # a last line with the title by which the client lists the session
            title = " ".join(like.task.split())[:_TITLE_CHARACTERS]
            lines.append({"type": "summary", "summary": f"{title} (compacted)", "leafUuid": lines[-1]["uuid"]})
        return "".join(map(json_text, lines))

    def log_name(self, session_id: str, now: datetime) -> str:  # noqa: ARG002
        return f"{session_id}.jsonl"

    def log_folder(self, working_folder: str, now: datetime, environment: Mapping[str, str]) -> Path:  # noqa: ARG002
        # a log without a working folder goes to the project of the current folder
        return config_folder(environment) / "projects" / _NO_NAME.sub("-", working_folder or os.getcwd())

    def logs(self, working_folder: str, environment: Mapping[str, str]) -> Iterator[Path]:
        project = _NO_NAME.sub("-", working_folder) if working_folder else "*"
        return config_folder(environment).glob(f"projects/{project}/{_LOG_NAME}")

    def finds(self, place: Path, in_place: Path) -> bool:
        return os.path.realpath(place) == os.path.realpath(in_place)

    def resume_command(self, session_id: str) -> str:
        return f"claude --resume {session_id}"


def config_folder(environment: Mapping[str, str]) -> Path:
    """Return Claude Code's folder of settings, sessions and plugins: ``$CLAUDE_CONFIG_DIR``, or ``~/.claude``."""
    return Path(environment.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")).absolute()


CLAUDE_CODE: Client = _ClaudeCode()


_ATTACHED_AGAIN = frozenset(
    {"skill_listing", "agent_listing_delta", "deferred_tools_delta", "deferred_tools_record", "mcp_instructions_delta"}
    | {"environment", "session_context", "model", "date", "attribution", "credential_org", "prompt_snapshot"}
    | {"remote_session_change", "total_tokens_reminder", "output_style"}
)
"""Types of attachments that Claude Code (2.1.33x) sends again by itself in a resumed session, so that a transcript
leaves them out: descriptions of tools, skills and surroundings."""


class _LogMessage(BaseModel):
    role: str
    content: str | list[dict[str, Any]]
    id: str | None = None


class _LogLine(BaseModel):
    """Line of a session log of Claude Code, with the fields that are read here."""

    number: int
    """Line number in the file, from 1."""
    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    parent: str | None = Field(default=None, alias="parentUuid")
    logical_parent: str | None = Field(default=None, alias="logicalParentUuid")
    is_sidechain: bool = Field(default=False, alias="isSidechain")
    """True if a subagent's conversation contains the line."""
    parent_tool_use_id: str | None = None
    is_meta: bool | None = Field(default=False, alias="isMeta")
    """True if Claude Code wrote the line's text into the user's message."""
    is_summary: bool | None = Field(default=False, alias="isCompactSummary")
    is_api_error: bool | None = Field(default=False, alias="isApiErrorMessage")
    compaction: dict[str, Any] = Field(default_factory=dict, alias="compactMetadata")
    message: _LogMessage | None = None
    attachment: dict[str, Any] | None = None
    rendered: list[Any] | None = None
    """Messages in which Claude Code sent an attachment to the model; logged from version 2.1.330 on."""
    content: Any = None
    """Content of a line of the type ``system``."""

    @property
    def is_subagents(self) -> bool:
        """True if the line is part of a subagent's conversation."""
        return self.is_sidechain or self.parent_tool_use_id is not None

    @property
    def is_boundary(self) -> bool:
        """True if Claude Code itself compacted the conversation at this line."""
        return self.type == "system" and self.subtype == "compact_boundary"

    @property
    def has_content(self) -> bool:
        """True if the line has content that the model saw: text, call, result, attachment, a local command's output."""
        if self.type in ("user", "assistant"):
            return self.message is not None
        if self.type == "system":
            return self.subtype == "local_command" and isinstance(self.content, str)
        return self.type == "attachment" and self.attachment is not None

    @property
    def is_attached_again(self) -> bool:
        """True for an attachment that Claude Code adds by itself to each resumed session."""
        return self.attachment is not None and self.attachment.get("type") in _ATTACHED_AGAIN

    @property
    def answer_id(self) -> str | None:
        """Id of the API's answer that the line is a block of; None for a line not written by the model."""
        return self.message.id if self.message and self.type == "assistant" else None

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """Content blocks of the line's message; empty if its content is a text."""
        content = self.message.content if self.message else ""
        return [] if isinstance(content, str) else content

    def block_values(self, kind: str, key: str) -> set[str]:
        """Return the values of `key` in the line's blocks of the type `kind`: the ``id`` of each ``tool_use``."""
        return {str(block.get(key)) for block in self.blocks if block["type"] == kind}


def _lines(document: Document, assembly: Assembly) -> Iterator[_LogLine]:
    """Yield the log lines of `document`. Each line with another form is left out, with a warning in `assembly`."""
    for number, value in document.lines:
        place = f"{document.name}, line {number}"
        if not isinstance(value, dict):
            problem = f"expected a log entry as an object, found {type(value).__name__}"
            assembly.warnings.append(f"{place}: {problem}; left out")
            continue
        try:
            line = _LogLine.model_validate({**value, "number": number})
        except ValidationError as error:
            assembly.warnings.append(f"{malformed(error, place)}; left out")
            continue
        untyped = next((block for block in line.blocks if not isinstance(block.get("type"), str)), None)
        if untyped is None:
            yield line
        else:
            problem = f"expected a block with a 'type', found {quoted(untyped)}"
            assembly.warnings.append(f"{place}: {problem}; left out")


def _active_branch(lines: Sequence[_LogLine], assembly: Assembly) -> list[_LogLine]:
    """Return the lines of the session's current branch: from the newest line that the model saw back to the first.
    Other branches, which the user left, and conversations of subagents get a warning, unless there is nothing else."""
    main = [line for line in lines if not line.is_subagents]
    if any(line.has_content for line in main):
        subagents = [line.number for line in lines if line.is_subagents and line.has_content]
        assembly.warn(subagents, "conversations of subagents, not read")
    else:
        main = list(lines)
    unique: dict[str, _LogLine] = {}  # lines by uuid, as the log of a resumed session repeats lines
    for line in main:
        unique.setdefault(line.uuid or str(line.number), line)
    parents = _parents(unique.values(), assembly)
    ordered: dict[int, _LogLine] = {}  # lines by number, each after its parent
    for line in unique.values():
        ordered.update(reversed(_chain(line, parents, ordered).items()))
    newest = next((line for line in reversed(ordered.values()) if line.has_content and line.uuid), None)
    chosen = _with_siblings(ordered.values(), _chain(newest, parents, {}))
    unread = [line.number for line in ordered.values() if line.has_content and line.number not in chosen]
    assembly.warn(unread, "a branch that the session left, not read")
    return [line for line in ordered.values() if line.number in chosen]


def _parents(lines: Iterable[_LogLine], assembly: Assembly) -> dict[int, _LogLine]:
    """Return the parent of each line (the line that it continues), by the line's number. The line just above counts as
    the parent if the named one is not in the log, if there is no field for one, or if a compaction's line names none.
    """
    by_uuid = {line.uuid: line for line in lines if line.uuid}
    parents: dict[int, _LogLine] = {}
    before: _LogLine | None = None
    for line in by_uuid.values():
        parent_uuid = line.parent or line.logical_parent
        parent = by_uuid.get(parent_uuid) if parent_uuid else None
        if parent_uuid and parent is None and before is not None:
            assembly.warn([line.number], "the line it follows is not in this log")
        has_no_field = "parent" not in line.model_fields_set
        if parent is None and (parent_uuid or has_no_field or line.is_boundary or line.is_summary):
            parent = before
        if parent is not None:
            parents[line.number] = parent
        before = line
    return parents


def _chain(line: _LogLine | None, parents: Mapping[int, _LogLine], end: Mapping[int, _LogLine]) -> dict[int, _LogLine]:
    """Return `line`, its parent, its grandparent and so on, by their line numbers, up to a line that is in `end` or
    already in the chain (a damaged log may contain a circle)."""
    chain: dict[int, _LogLine] = {}
    while line is not None and line.number not in chain and line.number not in end:
        chain[line.number] = line
        line = parents.get(line.number)
    return chain


def _with_siblings(lines: Collection[_LogLine], path: Collection[int]) -> set[int]:
    """Return the numbers of the lines on `path` (line numbers of one branch) and of other lines that belong to it:
    lines without a uuid, other blocks of the same answers, and results of tool calls in all of these."""
    chosen = {line.number for line in lines if line.number in path or line.uuid is None}
    answers = {line.answer_id for line in lines if line.answer_id and line.number in chosen}
    chosen.update(line.number for line in lines if line.answer_id in answers)
    chosen_lines = [line for line in lines if line.number in chosen]
    unanswered = {key for line in chosen_lines for key in line.block_values("tool_use", "id")}
    unanswered -= {key for line in chosen_lines for key in line.block_values("tool_result", "tool_use_id")}
    for line in lines:
        results = line.block_values("tool_result", "tool_use_id")
        if results and results <= unanswered:
            chosen.add(line.number)
            unanswered -= results
    return chosen


_TEXT_FIELDS = ("content", "snippet", "text", "stdout")
"""Fields of an attachment that may hold its text, in the order in which they are tried."""
_NAME_FIELDS = ("filename", "path", "hookName")
"""Fields of an attachment that may hold its name, in the order in which they are tried."""


def _attached(attachment: dict[str, Any], rendered: Sequence[Any] | None) -> tuple[str | list[dict[str, Any]], bool]:
    """Return the content of `attachment` as the model saw it (perhaps empty), and True if Claude Code wrote it, False
    if the user typed it. `rendered`: the messages in which it was sent; None if the log does not have them."""
    if attachment.get("type") == "queued_command":  # words that the user typed while the agent worked
        prompt = attachment.get("prompt")
        from_host = attachment.get("commandMode") == "task-notification" or bool(attachment.get("isMeta"))
        return (prompt if isinstance(prompt, str | list) else ""), from_host
    sent = [readable_text(message.get("content")) for message in rendered or () if isinstance(message, dict)]
    if any(sent):
        return marked_as_host("\n".join(sent)), True
    # older versions log only the data of the attachment
    text = next(filter(None, (_text(attachment.get(field)) for field in _TEXT_FIELDS)), "")
    name = next((str(attachment[field]) for field in _NAME_FIELDS if attachment.get(field)), "")
    heading = f"{attachment.get('type')} {name}".rstrip()
    return (marked_as_host(f"{heading}:\n{text}") if text else ""), True


def _text(value: object) -> str:
    """Return the text in an attachment's field `value`: a text, a list of texts or an object for a file; else empty."""
    if isinstance(value, dict):
        return _text(value.get("file") or value.get("content"))
    if isinstance(value, list):
        return "\n".join(item for item in value if isinstance(item, str))
    return value.strip("\n") if isinstance(value, str) and value.strip() else ""


def _unchanged_lines(boundary: _LogLine, lines: Sequence[_LogLine]) -> frozenset[int]:
    """Return the numbers of earlier lines that Claude Code left in its context when it compacted at `boundary`."""
    segment = boundary.compaction.get("preservedSegment")
    if not isinstance(segment, dict):
        return frozenset()
    numbers = {line.uuid: line.number for line in lines}
    first, last = numbers.get(segment.get("headUuid")), numbers.get(segment.get("tailUuid"))
    return frozenset(range(first, last + 1)) if first and last else frozenset()


def _add(assembly: Assembly, line: _LogLine) -> bool:
    """Add the content of `line` to `assembly`; return False for an attachment or system line without text."""
    content: str | list[Block]
    if line.message is None:
        content, from_host = _attached(line.attachment, line.rendered) if line.attachment else (str(line.content), True)
    else:
        content, from_host = line.message.content, bool(line.is_meta or line.is_summary)
    if line.type == "assistant":
        answer = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assembly.add_assistant(answer, line.number, line.answer_id or f"line {line.number}")
        return True
    if line.is_meta and not line.is_summary:  # Claude Code wrote it into the user's message
        if isinstance(content, str):
            content = marked_as_host(content)
        else:
            content = [{**b, "text": marked_as_host(str(b.get("text")))} if b["type"] == "text" else b for b in content]
    # a summary may have several lines, which are one message
    assembly.add_user(content, line.number, from_host=from_host, joins=bool(line.is_summary))
    return bool(content) or line.message is not None


def _session_lines(messages: Sequence[Message], origins: Origins) -> Iterator[LogLine]:
    """Yield the log lines of a new session with `messages`, each the parent of the next. A message of the old log keeps
    its lines under new ids; others get new lines."""
    newest: LogLine = next((line for line in reversed(list(origins.log.values())) if "cwd" in line), {})
    envelope, session = {key: newest[key] for key in _ENVELOPE if key in newest}, origins.session_id
    # the client takes the newest token counts for its context's size; the old ones would make it compact at once
    usage = {"input_tokens": TokenCounter().messages(messages), "output_tokens": 0}
    usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    renamed: dict[str, str] = {}  # new id of each line by its old one
    parent, moment = None, origins.start  # id of the line before; time of the newest line that has one
    for message in messages:
        for line in origins.lines_of(message) or list(_new_lines(message, len(renamed), origins)):
            uuid = str(uuid5(UUID(session), str(len(renamed))))
            renamed[str(line.get("uuid") or uuid)] = uuid
            moment = line.get("timestamp") or moment
            kept = {key: value for key, value in line.items() if key not in _OLD_IDS}
            if (caller := line.get("sourceToolAssistantUUID")) in renamed:  # the line with the call of this result
                kept["sourceToolAssistantUUID"] = renamed[caller]
            if line.get("type") == "assistant":
                kept["message"] = {**line["message"], "usage": usage}
            place = {"parentUuid": parent, "isSidechain": False, "uuid": uuid, "timestamp": moment}
            yield {**envelope, **kept, **place, "sessionId": session}
            parent = uuid


_AS_OWN_SUMMARY = {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
"""Fields by which Claude Code (2.1.330) marks its own summaries: the model gets them, the user does not see them."""


def _new_lines(message: Message, number: int, origins: Origins) -> Iterator[LogLine]:
    """Yield log lines for a message that is not in the old log. Each block of an assistant's message has a line. Of a
    user's message, texts by a compaction have lines of their own, as only they are marked as a summary. `number` makes
    an answer's id unique."""
    if message["role"] == "assistant":
        answer = {"type": "message", "role": "assistant", "model": "<synthetic>", "stop_reason": None}
        answer["id"] = f"msg_{uuid5(UUID(origins.session_id), f'answer {number}').hex}"
        for block in blocks(message):
            yield {"type": "assistant", "message": {**answer, "content": [block]}}
        return
    for is_new, run in groupby(blocks(message), origins.is_new):
        content, marks = list(run), _AS_OWN_SUMMARY if is_new else {}
        is_plain = len(content) == 1 and set(content[0]) == {"type", "text"}
        plain_text = content[0]["text"] if is_plain else None
        yield {"type": "user", "message": {"role": "user", "content": plain_text or content}, **marks}
