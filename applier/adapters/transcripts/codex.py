"""A Codex rollout (its session log) as a transcript.

Takes the response items, which the model saw; events repeat them for the screen. Reasoning is left out: it is
encrypted, and no other model can use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from applier.adapters.transcripts.assembly import Assembly, Only, line_ranges
from applier.adapters.transcripts.document import Document
from applier.adapters.transcripts.openai_chat import arguments_as_object, block_of_part
from applier.adapters.transcripts.transcript import Transcript, seconds
from planner.errors import TranscriptError
from planner.evidence.hosts import is_host_text
from planner.reading.messages import Block

__all__ = ["is_codex", "read_codex"]

_ENVELOPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_SILENT = frozenset({"", "reasoning", "ghost_snapshot", "compaction", "compaction_summary"})


class _Line(BaseModel):
    """One line: a payload in its envelope, or (older versions) the bare item."""

    model_config = ConfigDict(extra="allow")

    type: str = ""
    timestamp: str | None = None
    payload: dict[str, Any] | None = None


class _Item(BaseModel):
    """A response item, or an event; each type uses some of the fields."""

    type: str = ""
    role: str = ""
    content: str | list[dict[str, Any]] | None = None
    call_id: str | None = None
    name: str = ""
    arguments: str = ""
    input: str = ""
    action: dict[str, Any] | None = None
    output: str | list[dict[str, Any]] | dict[str, Any] | None = None
    num_turns: int = 0


def is_codex(values: Sequence[tuple[int, Any]]) -> bool:
    """True if one of `values` is a line of a rollout."""
    return any(
        isinstance(value, dict)
        and (
            (value.get("type") in _ENVELOPES and isinstance(value.get("payload"), dict))
            or value.get("type") in _CALLS | _OUTPUTS
        )
        for _, value in values
    )


def read_codex(document: Document, values: Sequence[tuple[int, Any]], part: int | None) -> Transcript:
    """The conversation of the rollout; only its `part`-th part between compactions if named.

    Raises:
        TranscriptError: a line is not as the format has it, or nothing was said.
    """
    rollout = _Rollout(document, dict(values))
    for number, value in values:
        rollout.read(number, value)
    return rollout.finish(part)


class _Rollout:
    def __init__(self, document: Document, log: dict[int, Any]) -> None:
        self.document, self.log = document, log
        self.assembly = Assembly(document.name)
        self.system: list[str] = []
        self.answer = 0
        self.open: set[str] = set()
        self.answered = False
        self.skipped: dict[str, list[int]] = {}

    def read(self, number: int, value: Any) -> None:
        """Take in one line."""
        try:
            self._line(_Line.model_validate(value), value, number)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(step) for step in first["loc"]) or "line"
            place = f"{self.document.name}, line {number}"
            raise TranscriptError(f"{place}: {field}: {first['msg']}, found {first['input']!r:.60}") from None

    def _line(self, line: _Line, value: dict[str, Any], number: int) -> None:
        bare = line.payload is None
        data = value if line.payload is None else line.payload
        when = seconds(line.timestamp)
        if line.type == "session_meta" or (bare and "instructions" in data):
            self._instructions(data)
        elif line.type == "compacted":
            self._compacted(data, number, when)
        elif line.type == "response_item" or bare:
            self._item(_Item.model_validate(data), number, when)
        elif data.get("type") == "thread_rolled_back":
            turns = _Item.model_validate(data).num_turns
            self.assembly.roll_back(turns)
            note = f"{self.document.name}, line {number}: the session went back {turns} turns; these are not read"
            self.assembly.warnings.append(note)

    def finish(self, part: int | None) -> Transcript:
        """The transcript."""
        if self.document.torn:
            self.assembly.warnings.append(f"{self.document.torn}; left out")
        for kind, numbers in self.skipped.items():
            place = f"{self.document.name}, {line_ranges(numbers)}"
            self.assembly.warnings.append(f"{place}: {kind} has no place in a transcript; left out")
        system = "\n\n".join(self.system) or None
        return self.assembly.finish("codex", self.document, self.log, system=system, part=part)

    def _instructions(self, meta: dict[str, Any]) -> None:
        base = meta.get("base_instructions") or meta.get("instructions")
        text = base.get("text") if isinstance(base, dict) else base
        if isinstance(text, str) and text:
            self.system.append(text)

    def _compacted(self, item: dict[str, Any], number: int, when: float | None) -> None:
        self.assembly.compacted(number)
        replacement = item.get("replacement_history")
        for entry in replacement if isinstance(replacement, list) else ():
            held = _Item.model_validate(entry)
            if held.type == "message" and held.role == "user":
                self.assembly.user(_blocks(held.content), number, when, only="part")
        summary = item.get("message")
        if isinstance(summary, str):
            only: Only = "whole" if replacement else ""
            self.assembly.user(summary, number, when, host=True, only=only)

    def _item(self, item: _Item, number: int, when: float | None) -> None:
        if item.type == "message":
            self._message(item, number, when)
        elif item.type in _CALLS and item.call_id:
            group = self._group()
            self.open.add(item.call_id)
            self.assembly.assistant(group, [_use(item)], number, when)
        elif item.type in _OUTPUTS:
            self.open.discard(item.call_id or "")
            self.answered = True
            self.assembly.user([_result(item)], number, when, host=True)
        elif item.type not in _SILENT:
            self.skipped.setdefault(item.type, []).append(number)

    def _message(self, item: _Item, number: int, when: float | None) -> None:
        content = _blocks(item.content)
        if item.role == "assistant":
            self.assembly.assistant(self._group(), content, number, when)
            return
        self._next_answer()
        texts = [str(block.get("text")) for block in content if block.get("type") == "text"]
        if item.role == "user":
            host = bool(content) and len(texts) == len(content) and all(map(is_host_text, texts))
            self.assembly.user(content, number, when, host=host)
        elif not self.assembly.pieces:
            self.system.extend(texts)
        else:
            reminder = "\n".join(["<system-reminder>", *texts, "</system-reminder>"])
            self.assembly.user(reminder, number, when, host=True)

    def _group(self) -> str:
        """Which answer of the API the next item belongs to: a new one once every call has its result."""
        if self.answered and not self.open:
            self._next_answer()
        return f"answer {self.answer}"

    def _next_answer(self) -> None:
        self.answer, self.answered, self.open = self.answer + 1, False, set()


def _use(item: _Item) -> Block:
    if item.type == "function_call":
        value = arguments_as_object(item.arguments)
    else:
        value = {"input": item.input} if item.type == "custom_tool_call" else item.action or {}
    return {"type": "tool_use", "id": item.call_id, "name": item.name or "local_shell", "input": value}


def _result(item: _Item) -> Block:
    output = item.output
    failed = isinstance(output, dict) and output.get("success") is False
    content = output.get("content") if isinstance(output, dict) else output
    inner = _blocks(content) if isinstance(content, list) else content or ""
    flag = {"is_error": True} if failed else {}
    return {"type": "tool_result", "tool_use_id": item.call_id, "content": inner, **flag}


def _blocks(content: str | list[dict[str, Any]] | None) -> list[Block]:
    if not isinstance(content, list):
        return [{"type": "text", "text": content}] if content else []
    return [_block(part) for part in content]


def _block(part: dict[str, Any]) -> Block:
    if part.get("type") in ("input_text", "output_text", "text"):
        return {"type": "text", "text": str(part.get("text", ""))}
    if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
        return block_of_part({"type": "image_url", "image_url": {"url": part["image_url"]}})
    return {"type": "unknown", **part}
