"""Codex: reads its session logs (rollouts) as transcripts and writes sessions that it can resume.

A response item is a message, call or result that the model received or wrote. Events repeat the items for the screen
and are not read, except those by which the session goes back. Reasoning is encrypted and left out.
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
from applier.adapters.transcripts.responses import Item, ReadItems, item_blocks, sender_and_content, to_items
from applier.adapters.transcripts.transcript import Assembly, Client, LogLine, Origins, Transcript, marked_as_host
from planner.evidence.hosts import is_host_text
from planner.reading.messages import Message
from planner.reading.secrets import quoted

_LINE_TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_SILENT = frozenset(
    {"", "reasoning", "ghost_snapshot", "compaction", "compaction_summary", "additional_tools", "configuration_update"}
)
"""Types of items without content for a transcript, such as encrypted reasoning; they are left out without a warning."""


class _Codex:
    """Format of Codex's session logs, with the methods of `Client`: reads and writes logs, and knows where they are.

    A log is in the folder of the day on which its session begins. Codex finds it by the id at the end of its name.
    """

    name = "codex"
    title = "a rollout of Codex"

    def detects(self, document: Document) -> bool:
        """Return True if a line of `document` has a type of Codex's log lines, and a payload."""
        return any(
            isinstance(value, dict) and str(value.get("type")) in _LINE_TYPES and isinstance(value.get("payload"), dict)
            for _, value in document.lines
        )

    def read(self, document: Document, part: int | None) -> Transcript:
        """Return the session in `document`, or one `part` of it. Lines that cannot be read become warnings."""
        rollout = _Rollout(document)
        for number, value in document.lines:
            place = f"{document.name}, line {number}"
            if not isinstance(value, dict) or not isinstance(value.get("payload"), dict):
                rollout.warnings.append(f"{place}: expected a line with a 'payload', found {quoted(value)}; left out")
                continue
            try:
                rollout.read(value.get("type"), value["payload"], number)
            except ValidationError as error:
                rollout.warnings.append(f"{malformed(error, place)}; left out")
        for kind, numbers in rollout.skipped.items():
            rollout.warn(numbers, f"{kind} has no place in a transcript; left out")
        return rollout.finish(self, dict(document.lines), system="\n\n".join(rollout.system) or None, part=part)

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:
        """Return `messages` as the log of a new session. Codex from 0.145 on expects a number on each line."""
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
        has_id = place.name.startswith("rollout-") and place.stem[-36:] == in_place.stem[-36:]  # the length of a UUID
        sessions = in_place.parents[3]  # above the folders for year, month and day
        return has_id and Path(os.path.realpath(place)).is_relative_to(os.path.realpath(sessions))

    def resume_command(self, session_id: str) -> str:
        return f"codex resume {session_id}"


CODEX: Client = _Codex()


def home_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder with Codex's settings, sessions and plugins: ``$CODEX_HOME``, or ``~/.codex``."""
    return Path(environment.get("CODEX_HOME") or "~/.codex").expanduser().absolute()


def _working_folder(rollout: Path) -> str | None:
    """Return the folder in which the session of the log file `rollout` began; None if its first line names none."""
    try:
        with rollout.open(encoding="utf-8") as lines:
            folder = json.loads(lines.readline())["payload"]["cwd"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return folder if isinstance(folder, str) else None


class _Rollout(Assembly):
    """Builder of a transcript from the lines of a session log of Codex."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.system: list[str] = []
        """Texts of the system prompt, in order."""
        self.skipped: dict[str, list[int]] = {}
        """Numbers of the lines with items of an unknown type, by that type; each type gets one warning."""

    def read(self, kind: object, data: dict[str, Any], number: int) -> None:
        """Read the payload `data` of log line `number`, of the type `kind`; ignore types that the model never saw."""
        if kind == "session_meta":
            base = data.get("base_instructions") or data.get("instructions")
            text = base.get("text") if isinstance(base, dict) else base
            self.system += [text] if isinstance(text, str) and text else []
        elif kind == "compacted":
            self._begin_part(data, number)
        elif kind == "response_item":
            self._add_item(Item.model_validate(data), number)
        elif data.get("type") == "thread_rolled_back":
            turns = Item.model_validate(data).num_turns
            self.roll_back(turns)
            self.warn([number], f"the session went back {turns} turns; these are not read")

    def _begin_part(self, item: dict[str, Any], number: int) -> None:
        """Begin a new part of the session after Codex compacted it: with its summary, and with the user's messages that
        it kept. These are read only if this part is read alone, because earlier lines contain them too."""
        self.begin_part(number)
        replacement = item.get("replacement_history")
        for entry in replacement if isinstance(replacement, list) else ():
            kept = Item.model_validate(entry)
            if kept.type == "message" and kept.role == "user":
                self.add_user(item_blocks(kept.content), number, only_in="part")
        if isinstance(summary := item.get("message"), str):  # a replacement is the whole context, with its summary
            self.add_user(summary, number, from_host=True, only_in="whole" if replacement else "")

    def _add_item(self, item: Item, number: int) -> None:
        """Add a response item to the conversation. A system message before the first message belongs to the system
        prompt; a later one becomes a user's message marked as Codex's own text. Record unknown types in `skipped`."""
        role, content = sender_and_content(item) or ("", [])
        texts = [str(block.get("text")) for block in content if block["type"] == "text"]
        if role == "assistant":
            self.add_assistant(content, number, late=True)
        elif role == "system" and not self.pieces:
            self.system.extend(texts)
        elif role == "system":
            self.add_user(marked_as_host("\n".join(texts)), number, from_host=True)
        elif role:
            from_host = role == "host" or (len(texts) == len(content) and all(map(is_host_text, texts)))
            self.add_user(content, number, from_host=from_host)
        elif item.type not in _SILENT:
            self.skipped.setdefault(item.type, []).append(number)


def _head(like: Transcript, origins: Origins) -> Iterator[LogLine]:
    """Yield the lines of a new log before its messages, copied from the old log: the session's data, the instructions
    and tools, the description of the surroundings, and the newest settings."""
    first_message = min((number for numbers in like.source["lines"] for number in numbers), default=0)  # its line
    lines = list(origins.log.values())
    metas: list[LogLine] = [line["payload"] for line in lines if line.get("type") == "session_meta"]
    ids = {"id": origins.session_id, "session_id": origins.session_id}
    yield _line(origins, "session_meta", {"timestamp": origins.start, **(metas or [{}])[0], **ids})
    for number, line in origins.log.items():
        if number < first_message and line.get("type") == "response_item":  # instructions and tools
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
"""Types of log lines (events) by which Codex shows a resumed conversation on its screen."""
_SHOWN_ITEMS = frozenset({"UserMessage", "AgentMessage"})
"""Types of completed items that Codex shows on its screen."""


def _shown(origins: Origins) -> Iterator[LogLine]:
    """Yield the old log's events by which Codex shows the conversation on its screen. Texts that a compaction wrote get
    no event, so that they do not look as if the user had typed them."""
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
    """Yield a log line for each response item of `messages`. Messages of the old log keep its items unchanged."""
    moment = origins.start
    for message in messages:
        lines = origins.lines_of(message)
        moment = next((line["timestamp"] for line in lines if line.get("timestamp")), moment)
        old_items = [line["payload"] for line in lines if line.get("type") != "compacted"]  # a summary has no item
        for item in old_items or to_items(ReadItems(), [message]):
            yield {"timestamp": moment, "type": "response_item", "payload": item}
