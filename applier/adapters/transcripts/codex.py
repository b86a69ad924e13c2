"""Codex: its rollouts (session logs) are read as transcripts and written as sessions that it resumes.

Takes the response items, which the model saw; events repeat them for the screen. Reasoning is left out: it is
encrypted, and no other model can use it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from applier.adapters.transcripts.document import Document, json_text, malformed
from applier.adapters.transcripts.openai_chat import arguments_as_object, block_of_part
from applier.adapters.transcripts.transcript import Assembly, Client, LogLine, Origins, Transcript
from planner.errors import TranscriptError
from planner.evidence.hosts import is_host_text
from planner.reading.messages import Block, Message, blocks, readable_text

__all__ = ["CALLS", "CODEX", "OUTPUTS", "Item", "item_blocks", "item_result", "item_use"]

_ENVELOPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
"""Calls of the client's tools, and where each has its input."""
OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
_SILENT = frozenset(
    {"", "reasoning", "ghost_snapshot", "compaction", "compaction_summary", "additional_tools", "configuration_update"}
)


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
            rollout.read(number, value)
        for kind, numbers in rollout.skipped.items():
            rollout.assembly.note(numbers, f"{kind} has no place in a transcript; left out")
        system = "\n\n".join(rollout.system) or None
        return rollout.assembly.finish(self, dict(document.lines), system=system, part=part)

    def write(self, messages: Sequence[Message], like: Transcript, session_id: str) -> str:
        # each line has a number, as 0.145 and later want it of rollouts that they wrote
        origins = Origins(messages, like, session_id)
        lines = (*_head(like, origins), *_shown(origins), *_items(messages, origins))
        return "".join(json_text({**line, "ordinal": number}) for number, line in enumerate(lines))

    def log_name(self, session_id: str, now: datetime) -> str:
        return f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{session_id}.jsonl"

    def log_folder(self, working_folder: str, now: datetime, environment: Mapping[str, str]) -> Path:  # noqa: ARG002
        return _sessions(environment) / f"{now:%Y/%m/%d}"

    def logs(self, working_folder: str, environment: Mapping[str, str]) -> Iterator[Path]:
        for path in _sessions(environment).glob("**/rollout-*.jsonl"):
            if not working_folder or _working_folder(path) == working_folder:
                yield path

    def finds(self, place: Path, in_place: Path) -> bool:
        # it looks anywhere below its folder of sessions, by the id in the name
        named = place.name.startswith("rollout-") and place.stem[-36:] == in_place.stem[-36:]
        return named and Path(os.path.realpath(place)).is_relative_to(os.path.realpath(in_place.parents[3]))

    def resume_command(self, session_id: str) -> str:
        return f"codex resume {session_id}"


CODEX: Client = _Codex()


def _sessions(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("CODEX_HOME") or os.path.expanduser("~/.codex"), "sessions")


def _working_folder(rollout: Path) -> str | None:
    """Where a session began, as the first line of its `rollout` says; None if it does not."""
    try:
        with rollout.open(encoding="utf-8") as lines:
            folder = json.loads(lines.readline())["payload"]["cwd"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return folder if isinstance(folder, str) else None


class Item(BaseModel):
    """A response item, or an event; each type uses some of the fields."""

    type: str = ""
    role: str = ""
    content: str | list[dict[str, Any]] | None = None
    call_id: str | None = None
    name: str = ""
    arguments: str | dict[str, Any] = ""
    input: str = ""
    action: dict[str, Any] | None = None
    output: str | list[dict[str, Any]] | dict[str, Any] | None = None
    num_turns: int = 0


class _Rollout:
    """A rollout as far as it was read."""

    def __init__(self, document: Document) -> None:
        self.assembly = Assembly(document)
        self.system: list[str] = []
        self.answer = 0
        self.open: set[str] = set()
        self.answered = False
        self.skipped: dict[str, list[int]] = {}

    def read(self, number: int, value: Any) -> None:
        """Take in one line."""
        place = f"{self.assembly.name}, line {number}"
        if not isinstance(value, dict) or not isinstance(value.get("payload"), dict):
            raise TranscriptError(f"{place}: expected a line with a 'payload', found {str(value)[:60]!r}")
        try:
            self._line(value.get("type"), value["payload"], number)
        except ValidationError as error:
            raise malformed(error, place) from None

    def _line(self, kind: object, data: dict[str, Any], number: int) -> None:
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
        self.assembly.compacted(number)
        replacement = item.get("replacement_history")
        for entry in replacement if isinstance(replacement, list) else ():
            held = Item.model_validate(entry)
            if held.type == "message" and held.role == "user":
                self.assembly.user(item_blocks(held.content), number, only="part")
        if isinstance(summary := item.get("message"), str):
            self.assembly.user(summary, number, host=True, only="whole" if replacement else "")

    def _item(self, item: Item, number: int) -> None:
        if item.type == "message":
            self._message(item, number)
        elif item.type in CALLS and item.call_id:
            self.assembly.assistant(self._group(), [item_use(item)], number)
            self.open.add(item.call_id)
        elif item.type in OUTPUTS:
            self.open.discard(item.call_id or "")
            self.answered = True
            self.assembly.user([item_result(item)], number, host=True)
        elif item.type not in _SILENT:
            self.skipped.setdefault(item.type, []).append(number)

    def _message(self, item: Item, number: int) -> None:
        content = item_blocks(item.content)
        if item.role == "assistant":
            self.assembly.assistant(self._group(), content, number)
            return
        self._next_answer()
        texts = [str(block.get("text")) for block in content if block.get("type") == "text"]
        if item.role == "user":
            host = bool(content) and len(texts) == len(content) and all(map(is_host_text, texts))
            self.assembly.user(content, number, host=host)
        elif not self.assembly.pieces:
            self.system.extend(texts)
        else:
            reminder = "\n".join(["<system-reminder>", *texts, "</system-reminder>"])
            self.assembly.user(reminder, number, host=True)

    def _group(self) -> str:
        """Which answer of the API the next item belongs to: a new one once every call has its result."""
        if self.answered and not self.open:
            self._next_answer()
        return f"answer {self.answer}"

    def _next_answer(self) -> None:
        self.answer, self.answered, self.open = self.answer + 1, False, set()


_SCRIPT = "exec"
"""The tool that takes a script, in JavaScript."""
_CALLED = {"exec_command": "cmd", "apply_patch": "input"}
"""Tools that scripts call, and the key of what they are called with."""
_CALL = re.compile(r'\btools\.(exec_command|apply_patch)\(\s*(?:\{\s*"?cmd"?\s*:\s*)?("(?:[^"\\\n]|\\.)*")(?=\s*[,})])')
"""``tools.exec_command({"cmd": "ls"})``, ``tools.apply_patch("*** Begin Patch…")``; not ``{cmd: "cat " + name}``."""
_OPEN = re.compile(r"\btools\s*[.\[]|\b(?:if|for|while|switch|catch)\b|=>|\?|&&|\|\|")
"""What leaves open which calls a script makes: ``tools[name]``, ``for (``; not ``text(r.output)``."""


def item_use(item: Item) -> Block:
    """The call that `item` is; of a script that calls one tool, with words that stand in it, the call of that: several
    commands are one of several lines, as a shell would be given them."""
    name, value = item.name or "local_shell", item.action or {}
    if item.type == "function_call":
        told = item.arguments
        value = told if isinstance(told, dict) else arguments_as_object(told)
    elif item.type == "custom_tool_call":
        called = _called(item.input) if name == _SCRIPT else None
        name, value = called or (name, {"input": item.input})
    return {"type": "tool_use", "id": item.call_id, "name": name, "input": value}


def _called(script: str) -> tuple[str, dict[str, Any]] | None:
    """The one tool that a `script` calls, whatever it finds, and its input; None if its text does not say that."""
    calls = _CALL.findall(script)
    tools = [*{tool for tool, _ in calls}]
    if len(tools) != 1 or _OPEN.search(_CALL.sub("", script)):
        return None
    try:
        return tools[0], {_CALLED[tools[0]]: "\n".join(json.loads(literal) for _, literal in calls)}
    except ValueError:
        return None


def item_result(item: Item) -> Block:
    """The result that `item` is."""
    output = item.output
    failed = isinstance(output, dict) and output.get("success") is False
    content = output.get("content") if isinstance(output, dict) else output
    inner = item_blocks(content) if isinstance(content, list) else content or ""
    if item.type == "custom_tool_call_output" and isinstance(inner, list):
        failed = failed or any(str(block.get("text")).startswith("Script failed\n") for block in inner[:1])
        inner = _told(inner)
    flag = {"is_error": True} if failed else {}
    return {"type": "tool_result", "tool_use_id": item.call_id, "content": inner, **flag}


def _told(parts: Sequence[Block]) -> list[Block]:
    """What a script printed, with how its commands ended; that one of several failed is said first of all."""
    told, codes = list[Block](), list[int]()
    for part in parts:
        text, code = _ended(part["text"]) if part["type"] == "text" else ("", None)
        told.append({**part, "text": text} if text else part)
        codes += [] if code is None else [code]
    if len(codes) > 1 and any(codes) and told[0]["type"] == "text":
        told[0]["text"] += f"Process exited with code {next(filter(None, codes))}\n"
    return told


def _ended(text: str) -> tuple[str, int | None]:
    """How a command ended that a script ran and what it printed, as Codex says it of one without a script around it,
    and its code; any other text as it is."""
    try:
        told = json.loads(text) if text.startswith('{"chunk_id":') else {}
        code = told.get("exit_code")
        ended = f"running with session ID {told['session_id']}" if code is None else f"exited with code {code}"
        return f"Process {ended}\nOutput:\n{told['output']}", code
    except (ValueError, KeyError, RecursionError):
        return text, None


def item_blocks(content: str | list[dict[str, Any]] | None) -> list[Block]:
    """The blocks of an item\'s content."""
    if not isinstance(content, list):
        return [{"type": "text", "text": content}] if content else []
    return [_block(part) for part in content]


def _block(part: dict[str, Any]) -> Block:
    if part.get("type") in ("input_text", "output_text", "text"):
        return {"type": "text", "text": str(part.get("text", ""))}
    if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
        return block_of_part({"type": "image_url", "image_url": {"url": part["image_url"]}})
    return {"type": "unknown", **part}


def _head(like: Transcript, origins: Origins) -> Iterator[LogLine]:
    """What stands before the conversation: the session's own data, instructions and tools, and the newest settings."""
    start = min((min(numbers) for numbers in like.source["lines"]), default=0)
    lines = list(origins.log.values())
    metas: list[LogLine] = [line["payload"] for line in lines if line.get("type") == "session_meta"]
    own = {"id": origins.session_id, "session_id": origins.session_id}
    yield _line(origins, "session_meta", {"timestamp": origins.start, **(metas or [{}])[0], **own})
    for number, line in origins.log.items():
        if number < start and line.get("type") == "response_item":
            yield _line(origins, "response_item", line["payload"])
    # without what it knows the client to have said of its world, it says all of that once more
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
    """The events by which the client shows what was spoken, as they were; what it sends are the items alone, so that
    nothing of a compaction is shown as typed by the person."""
    for line in origins.log.values():
        event = line["payload"] if line.get("type") == "event_msg" else {}
        item = event.get("item")
        spoken = isinstance(item, dict) and event.get("type") == "item_completed" and item.get("type") in _SHOWN_ITEMS
        if spoken or event.get("type") in _SHOWN:
            own = {"thread_id": origins.session_id} if "thread_id" in event else {}
            yield {**line, "payload": {**event, **own}}


def _items(messages: Sequence[Message], origins: Origins) -> Iterator[LogLine]:
    moment = origins.start
    for message in messages:
        lines = origins.lines_of(message)
        moment = next((line["timestamp"] for line in lines if line.get("timestamp")), moment)
        held = [line["payload"] for line in lines if line.get("type") != "compacted"]
        for item in held or _new_items(message):
            yield {"timestamp": moment, "type": "response_item", "payload": item}


def _new_items(message: Message) -> Iterator[LogLine]:
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
