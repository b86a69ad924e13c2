"""Writes a view as a session log that its client, Claude Code or Codex, resumes as its own.

A message that stands in the log it came from keeps its lines there, with all that the client wrote into them; new
and changed ones get lines of the same form. Every line has a place in the new session's chain. Ids follow from
the session's id, times from the lines around: the same view gives the same bytes.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from applier.adapters.transcripts.transcript import Transcript
from planner.reading.messages import Block, Message, blocks, message_digest, readable_text
from planner.reading.tokens import TokenCounter

__all__ = ["client_file", "client_finds", "resume_command", "session_log", "working_folder"]

Line = dict[str, Any]

_ENVELOPE = ("userType", "entrypoint", "cwd", "version", "gitBranch")
"""Of a Claude Code line: what each line of a session repeats."""
_TITLE_CHARACTERS = 80
_NO_NAME = re.compile(r"[^A-Za-z0-9]")
"""What Claude Code replaces in a folder's path to name its project: ``/w/my.app`` is ``-w-my-app``."""


def session_log(messages: Sequence[Message], like: Transcript, session_id: str = "") -> Iterator[Line]:
    """The lines of a log that holds `messages`, a view of the session `like`, under a session id of its own."""
    session = session_id or _derived_id(messages, like)
    origins = _Origins(like)
    return (
        _codex(messages, like, origins, session)
        if like.format == "codex"
        else _claude(messages, like, origins, session)
    )


def working_folder(like: Transcript) -> str:
    """The folder in which the session of `like` ran last; empty if its log does not say."""
    for line in reversed(like.source["log"].values()):
        folder = line.get("cwd") or (line.get("payload") or {}).get("cwd")
        if isinstance(folder, str):
            return folder
    return ""


def client_file(like: Transcript, session_id: str, now: datetime, environment: Mapping[str, str] | None) -> Path:
    """Where a log of the session `session_id` goes, made from `like`: beside its file, under the client's own name.

    With an `environment`: in the place where the client looks for the sessions of that folder.
    """
    codex = like.format == "codex"
    name = f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{session_id}.jsonl" if codex else f"{session_id}.jsonl"
    if environment is None:
        return Path(like.source["path"] or ".").absolute().parent / name
    if codex:
        root = environment.get("CODEX_HOME") or os.path.expanduser("~/.codex")
        return Path(root, "sessions", f"{now:%Y/%m/%d}", name)
    root = environment.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
    return Path(root, "projects", _NO_NAME.sub("-", working_folder(like)), name)


def client_finds(like: Transcript, place: Path, in_place: Path) -> bool:
    """Whether the client of `like` finds a log at `place`, where `in_place` is the file that `client_file` names.

    Claude Code looks in the folder of the project, by name; Codex below its folder of sessions.
    """
    if like.format == "codex":
        named = place.name.startswith("rollout-") and place.stem[-36:] == in_place.stem[-36:]
        return named and Path(os.path.realpath(place)).is_relative_to(os.path.realpath(in_place.parents[3]))
    return os.path.realpath(place) == os.path.realpath(in_place)


def resume_command(like: Transcript, session_id: str) -> str:
    """What a person types to go on with the session `session_id` in the client of `like`."""
    return f"codex resume {session_id}" if like.format == "codex" else f"claude --resume {session_id}"


def _derived_id(messages: Sequence[Message], like: Transcript) -> str:
    content = "".join(map(message_digest, messages))
    return str(uuid5(NAMESPACE_URL, f"compactor:{like.source['path']}:{content}"))


class _Origins:
    """Which lines of the log the messages of a view came from."""

    def __init__(self, like: Transcript) -> None:
        self.log: Mapping[int, Line] = like.source["log"]
        self.timestamps = [line["timestamp"] for line in self.log.values() if isinstance(line.get("timestamp"), str)]
        self._lines: dict[str, deque[list[Line]]] = defaultdict(deque)
        self.texts: set[str] = set()
        for message, numbers in zip(like.messages, like.source["lines"], strict=True):
            self._lines[message_digest(message)].append([self.log[number] for number in numbers])
            self.texts.update(str(block.get("text")) for block in blocks(message) if block["type"] == "text")

    def lines_of(self, message: Message) -> list[Line]:
        """The lines behind `message`, each time those of its next occurrence; none if it is not from the log."""
        known = self._lines.get(message_digest(message))
        return known.popleft() if known else []

    def wrote(self, message: Message) -> bool:
        """True if some text of `message` is from the log: it is not only a compaction's own words."""
        return any(block["type"] != "text" or block.get("text") in self.texts for block in blocks(message))


def _claude(messages: Sequence[Message], like: Transcript, origins: _Origins, session: str) -> Iterator[Line]:
    envelope = _envelope(origins.log)
    # The client takes the newest usage for the size of its context: the log's own would make it compact at once.
    usage = {"input_tokens": TokenCounter().messages(messages), "output_tokens": 0}
    usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    renamed: dict[str, str] = {}
    parent, moment = None, next(iter(origins.timestamps), _written(0.0))
    for message in messages:
        for line in _spoken(origins.lines_of(message)) or list(_claude_lines(message, session, len(renamed), origins)):
            uuid = str(uuid5(UUID(session), str(len(renamed))))
            renamed[str(line.get("uuid") or uuid)] = uuid
            moment = line.get("timestamp") or moment
            own = {"parentUuid": parent, "isSidechain": False, "uuid": uuid, "timestamp": moment, "sessionId": session}
            yield {**envelope, **_rebound(line, renamed, usage), **own}
            parent = uuid
    if parent:
        title = " ".join(like.task.split())[:_TITLE_CHARACTERS]
        yield {"type": "summary", "summary": f"{title} (compacted)", "leafUuid": parent}


def _envelope(log: Mapping[int, Line]) -> Line:
    lines = [line for line in log.values() if "cwd" in line]
    return {key: lines[-1][key] for key in _ENVELOPE if key in lines[-1]} if lines else {}


def _spoken(lines: Sequence[Line]) -> list[Line]:
    """`lines` without blank text of the assistant, which the API refuses."""
    return [line for line in lines if line.get("type") != "assistant" or not _is_blank(line["message"]["content"])]


def _is_blank(content: str | list[Block]) -> bool:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return all(part.get("type") == "text" and not str(part.get("text", "")).strip() for part in parts)


def _rebound(line: Line, renamed: Mapping[str, str], usage: Line) -> Line:
    """`line` with what refers to other lines of its old log brought over or left out."""
    kept = {key: value for key, value in line.items() if key not in ("logicalParentUuid", "session_id")}
    asker = kept.pop("sourceToolAssistantUUID", None)
    if asker in renamed:
        kept["sourceToolAssistantUUID"] = renamed[asker]
    if line.get("type") == "assistant":
        kept["message"] = {**line["message"], "usage": usage}
    return kept


def _claude_lines(message: Message, session: str, number: int, origins: _Origins) -> Iterator[Line]:
    """Lines for a message that the log does not hold; a block of the assistant has one of its own."""
    if message["role"] == "assistant":
        answer = {"type": "message", "role": "assistant", "model": "<synthetic>", "stop_reason": None}
        answer["id"] = f"msg_{uuid5(UUID(session), f'answer {number}').hex}"
        for block in blocks(message):
            yield {"type": "assistant", "message": {**answer, "content": [block]}}
        return
    ours = {} if origins.wrote(message) else {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
    yield {"type": "user", "message": {"role": "user", "content": message["content"]}, **ours}


def _codex(messages: Sequence[Message], like: Transcript, origins: _Origins, session: str) -> Iterator[Line]:
    moment = next(iter(origins.timestamps), _written(0.0))
    yield from _codex_head(like, origins.log, session, moment)
    for message in messages:
        lines = origins.lines_of(message)
        items = [_payload(line) for line in lines] or list(_codex_items(message))
        moment = next((line["timestamp"] for line in lines if line.get("timestamp")), moment)
        for item in items:
            yield {"timestamp": moment, "type": "response_item", "payload": item}
            event = _codex_event(item)
            if event:
                yield {"timestamp": moment, "type": "event_msg", "payload": event}


def _payload(line: Line) -> Line:
    payload = line.get("payload")
    return payload if isinstance(payload, dict) else line


def _codex_head(like: Transcript, log: Mapping[int, Line], session: str, moment: str) -> Iterator[Line]:
    """What stands before the conversation: the session's own data, instructions, and the newest settings."""
    start = min((numbers[0] for numbers in like.source["lines"]), default=0)
    head = [(number, line) for number, line in log.items() if number < start]
    meta = next(
        (_payload(line) for _, line in head if line.get("type") == "session_meta" or "instructions" in line), {}
    )
    yield {"timestamp": moment, "type": "session_meta", "payload": {"timestamp": moment, **meta, "id": session}}
    contexts = [line for line in log.values() if line.get("type") == "turn_context"]
    if contexts:
        yield {**contexts[-1], "timestamp": moment}
    for _, line in head:
        if _payload(line).get("type") == "message":
            yield {"timestamp": moment, "type": "response_item", "payload": _payload(line)}


def _codex_items(message: Message) -> Iterator[Line]:
    """Response items for a message that the log does not hold."""
    kind = "output_text" if message["role"] == "assistant" else "input_text"
    for block in blocks(message):
        if block["type"] == "text":
            content = [{"type": kind, "text": block["text"]}]
            yield {"type": "message", "role": message["role"], "content": content}
        elif block["type"] == "tool_use":
            arguments = json.dumps(block.get("input"), ensure_ascii=False)
            name, call = block.get("name"), block.get("id")
            yield {"type": "function_call", "name": name, "arguments": arguments, "call_id": call}
        elif block["type"] == "tool_result":
            output = readable_text(block.get("content"))
            yield {"type": "function_call_output", "call_id": block.get("tool_use_id"), "output": output}


def _codex_event(item: Line) -> Line | None:
    """What the client shows of `item` when it resumes; it sends the items themselves."""
    if item.get("type") != "message" or item.get("role") not in ("user", "assistant"):
        return None
    text = readable_text(item.get("content"))
    return {"type": "user_message" if item["role"] == "user" else "agent_message", "message": text}


def _written(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
