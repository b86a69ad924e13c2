"""Codex: its rollouts (session logs) are read as transcripts and written as sessions that it resumes.

A response item is a message, call or result that the model received or wrote. Events repeat the items for the screen
and are not read. Reasoning is encrypted and left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from applier.adapters.transcripts.document import Document, json_text, malformed
from applier.adapters.transcripts.responses import Item, ReadItems, item_blocks, spoken, to_items
from applier.adapters.transcripts.transcript import Assembly, Client, LogLine, Origins, Transcript, marked_as_host
from planner.errors import TranscriptError
from planner.evidence.hosts import is_host_text
from planner.reading.messages import Message
from planner.reading.secrets import quoted

_ENVELOPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_SILENT = frozenset(
    {"", "reasoning", "ghost_snapshot", "compaction", "compaction_summary", "additional_tools", "configuration_update"}
)
"""Types of items that are left out without a warning."""


class _Codex:
    name = "codex"
    title = "a rollout of Codex"

    def detects(self, document: Document) -> bool:
        return any(
            isinstance(value, dict) and str(value.get("type")) in _ENVELOPES and isinstance(value.get("payload"), dict)
            for _, value in document.lines
        )

    def read(self, document: Document, part: int | None) -> Transcript:
        rollout = _Rollout(document)
        for number, value in document.lines:
            try:
                rollout.read(number, value)
            except TranscriptError as error:
                rollout.assembly.warnings.append(f"{error}; left out")
        for kind, numbers in rollout.skipped.items():
            rollout.assembly.note(numbers, f"{kind} has no place in a transcript; left out")
        system = "\n\n".join(rollout.system) or None
        return rollout.assembly.finish(self, dict(document.lines), system=system, part=part)

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:
        # versions from 0.145 on want a number on each line of a rollout that they wrote
        origins = Origins(messages, like, session_id)
        lines = (*_head(like, origins), *_shown(origins), *_items(messages, origins))
        return "".join(json_text({**line, "ordinal": number}) for number, line in enumerate(lines))

    def log_name(self, session_id: str, now: datetime) -> str:
        return f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{session_id}.jsonl"

    def log_folder(self, working_folder: str, now: datetime, environment: Mapping[str, str]) -> Path:  # noqa: ARG002
        return home_folder(environment) / "sessions" / f"{now:%Y/%m/%d}"

    def logs(self, working_folder: str, environment: Mapping[str, str]) -> Iterator[Path]:
        for path in home_folder(environment).glob("sessions/**/rollout-*.jsonl"):
            if not working_folder or _working_folder(path) == working_folder:
                yield path

    def finds(self, place: Path, in_place: Path) -> bool:
        # the client searches all folders below its folder of sessions for the id in the name
        named = place.name.startswith("rollout-") and place.stem[-36:] == in_place.stem[-36:]
        return named and Path(os.path.realpath(place)).is_relative_to(os.path.realpath(in_place.parents[3]))

    def resume_command(self, session_id: str) -> str:
        return f"codex resume {session_id}"


CODEX: Client = _Codex()


def home_folder(environment: Mapping[str, str]) -> Path:
    """Return the client's folder of settings, sessions and plugins."""
    return Path(environment.get("CODEX_HOME") or "~/.codex").expanduser().absolute()


def _working_folder(rollout: Path) -> str | None:
    """Return the folder in the first line of `rollout`; None if there is none."""
    try:
        with rollout.open(encoding="utf-8") as lines:
            folder = json.loads(lines.readline())["payload"]["cwd"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return folder if isinstance(folder, str) else None


class _Rollout:
    """Reader of a rollout, line by line."""

    def __init__(self, document: Document) -> None:
        self.assembly = Assembly(document)
        self.system: list[str] = []
        """Texts of the system prompt."""
        self.skipped: dict[str, list[int]] = {}
        """Lines of unknown items, by their type."""

    def read(self, number: int, value: Any) -> None:
        """Add the line `value` with its `number`; raise TranscriptError if it has not the form of a line."""
        place = f"{self.assembly.name}, line {number}"
        if not isinstance(value, dict) or not isinstance(value.get("payload"), dict):
            raise TranscriptError(f"{place}: expected a line with a 'payload', found {quoted(value)}")
        try:
            self._line(value.get("type"), value["payload"], number)
        except ValidationError as error:
            raise malformed(error, place) from None

    def _line(self, kind: object, data: dict[str, Any], number: int) -> None:
        """Add a line with the payload `data` by its `kind`; lines of other kinds are for the screen."""
        if kind == "session_meta":
            base = data.get("base_instructions") or data.get("instructions")
            text = base.get("text") if isinstance(base, dict) else base
            self.system += [text] if isinstance(text, str) and text else []
        elif kind == "compacted":
            self._compacted(data, number)
        elif kind == "response_item":
            self._item(Item.model_validate(data), number)
        elif data.get("type") == "thread_rolled_back":
            turns = Item.model_validate(data).num_turns
            self.assembly.roll_back(turns)
            self.assembly.note([number], f"the session went back {turns} turns; these are not read")

    def _compacted(self, item: dict[str, Any], number: int) -> None:
        """Begin a new part of the conversation after a compaction: with the user's messages that it kept, and with its
        summary. The kept messages are read only if this part is read alone."""
        self.assembly.compacted(number)
        replacement = item.get("replacement_history")
        for entry in replacement if isinstance(replacement, list) else ():
            kept = Item.model_validate(entry)
            if kept.type == "message" and kept.role == "user":
                self.assembly.user(item_blocks(kept.content), number, only="part")
        if isinstance(summary := item.get("message"), str):
            self.assembly.user(summary, number, host=True, only="whole" if replacement else "")

    def _item(self, item: Item, number: int) -> None:
        """Add a response item. A system message before the conversation belongs to the system prompt, and a later one
        is text of the host. Items of unknown types are recorded in `skipped`."""
        role, content = spoken(item) or ("", [])
        texts = [str(block.get("text")) for block in content if block["type"] == "text"]
        if role == "assistant":
            self.assembly.assistant(content, number, late=True)
        elif role == "system" and not self.assembly.pieces:
            self.system.extend(texts)
        elif role == "system":
            self.assembly.user(marked_as_host("\n".join(texts)), number, host=True)
        elif role:
            is_hosts = len(texts) == len(content) and all(map(is_host_text, texts))
            self.assembly.user(content, number, host=role == "host" or is_hosts)
        elif item.type not in _SILENT:
            self.skipped.setdefault(item.type, []).append(number)


def _head(like: Transcript, origins: Origins) -> Iterator[LogLine]:
    """Yield the lines before the conversation: the session's data, the items before the first message (such as
    instructions and tools), the description of the surroundings, and the newest settings."""
    start = min((number for numbers in like.source["lines"] for number in numbers), default=0)
    lines = list(origins.log.values())
    metas: list[LogLine] = [line["payload"] for line in lines if line.get("type") == "session_meta"]
    ids = {"id": origins.session_id, "session_id": origins.session_id}
    yield _line(origins, "session_meta", {"timestamp": origins.start, **(metas or [{}])[0], **ids})
    for number, line in origins.log.items():
        if number < start and line.get("type") == "response_item":
            yield _line(origins, "response_item", line["payload"])
    # without these lines, Codex describes its surroundings to the model once more
    yield from (line for line in lines if line.get("type") == "world_state")
    contexts = [line["payload"] for line in lines if line.get("type") == "turn_context"]
    yield from (_line(origins, "turn_context", context) for context in contexts[-1:])


def _line(origins: Origins, kind: str, payload: LogLine) -> LogLine:
    return {"timestamp": origins.start, "type": kind, "payload": payload}


_SHOWN = frozenset(
    {"user_message", "agent_message", "task_started", "task_complete", "turn_aborted", "thread_rolled_back"}
)
_SHOWN_ITEMS = frozenset({"UserMessage", "AgentMessage"})


def _shown(origins: Origins) -> Iterator[LogLine]:
    """Yield the log's events from which the screen shows the conversation. Texts that a compaction wrote get no event,
    so that the screen does not show them as typed by the user."""
    for line in origins.log.values():
        event = line["payload"] if line.get("type") == "event_msg" else {}
        item = event.get("item")
        is_message = (
            event.get("type") == "item_completed" and isinstance(item, dict) and item.get("type") in _SHOWN_ITEMS
        )
        if is_message or event.get("type") in _SHOWN:
            thread = {"thread_id": origins.session_id} if "thread_id" in event else {}
            yield {**line, "payload": {**event, **thread}}


def _items(messages: Sequence[Message], origins: Origins) -> Iterator[LogLine]:
    """Yield lines with the items of `messages`. A message of the old log keeps its items; others get new ones."""
    moment = origins.start
    for message in messages:
        lines = origins.lines_of(message)
        moment = next((line["timestamp"] for line in lines if line.get("timestamp")), moment)
        old_items = [line["payload"] for line in lines if line.get("type") != "compacted"]
        for item in old_items or to_items(ReadItems(), [message]):
            yield {"timestamp": moment, "type": "response_item", "payload": item}
