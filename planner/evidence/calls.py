"""Calls of a turn with their results: tool, object, and whether the call only reads or acts.

A tool's effect follows from its declaration, from the verb in its name, or from the field of work that knows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Literal

from planner.reading.history import History, Turn
from planner.reading.lines import text_width
from planner.reading.messages import Block, parsed_result, result_text, to_json
from planner.reading.patterns import lazy_pattern
from planner.settings import ToolUse

__all__ = ["Call", "CallKind", "CallReading", "argument", "calls_of", "read_call", "superseded_turns"]

CallKind = Literal["read", "search", "write", "run", "ask", "other"]

_ADDRESSES = ("file_path", "path", "filename", "file", "notebook_path", "filePath", "target_file", "uri")
"""Names of arguments that contain the address of a call's object."""
_QUERIES = ("pattern", "query", "regex", "url", "prompt", "description", "question", "name", "id")
"""Names of arguments that describe what a search, question or subagent looks for, the best first."""
ARGUMENT_CHARACTERS = 120
"""Length of each argument shown for a call without address, command or query."""
RECEIPT_LINES = 5
"""Number of line breaks from which a result in plain text is a table, and no receipt of an action."""
RECEIPT_WIDTH = 400
"""Largest width of a result that may be the receipt of an action; a result longer than this and than the call is an
answer."""
PART_CHARACTERS = 60
"""Largest length of the arguments that select a part of an object, as shown."""
_ASK = lazy_pattern(r"(?:^|_)ask|question|user_input|exit_?plan", re.I)
"""``AskUserQuestion``, ``ask_user``, ``ExitPlanMode``; not ``Task``."""
_KINDS: tuple[tuple[re.Pattern[str], CallKind], ...] = (
    (_ASK, "ask"),
    (lazy_pattern(r"write|edit|create|patch|replace|insert|delete|update|apply", re.I), "write"),
    (lazy_pattern(r"grep|search|find|query|rg", re.I), "search"),
    (lazy_pattern(r"read|view|open|cat|show|fetch|get|list|ls|glob", re.I), "read"),
)
"""Kinds of tools by the verbs in their names; the first match counts."""
_DECLARED: Mapping[str, CallKind] = {"reads": "read", "acts": "other"}
"""Kind of a tool by its declared effect."""
_SUBAGENT = lazy_pattern(r"^(?:Task(?:_?Output)?$|Agent|dispatch_agent|spawn_agent|subagent)", re.I)
"""Tools whose result is another agent's report: ``Task``, ``TaskOutput``; not ``TaskUpdate``, ``create_task``."""
_OF_A_COMMAND = "<task_type>local_bash</task_type>"
"""Claude Code's mark of a ``TaskOutput`` that is no report."""
_NOTING = lazy_pattern(r"todo|plan|task|think", re.I)
"""Tools by which an agent notes something for itself."""


@dataclass(frozen=True, slots=True)
class CallReading:
    """Meaning of a tool's name and arguments. A field returns the reading it receives, or a changed copy."""

    kind: CallKind = "other"
    path: str = ""
    """Address of the call's object: a file, a page; empty without one."""
    command: str = ""
    """Text of the command that it runs."""
    objects: str = ""
    """Several objects of the call, in words."""
    lead: str = ""
    """Beginning of the command that only sets where it runs, such as ``cd app &&``; omitted in one-line heads."""
    tried: str = ""
    """Words that distinguish this attempt from the next one on the same object."""
    removes: tuple[str, ...] = ()
    """Arguments with text that the call removes."""
    adds: tuple[str, ...] = ()
    """Arguments with text that the call adds."""
    is_whole: bool = False
    """True if the call replaces the whole content of its object."""
    is_local: bool = False
    """True if the call changes only the agent's own work, nothing in the outside world."""
    starts_anew: bool = False
    """True if the same calls may return something else afterwards, because the whole state changes."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a turn and its result, if it has one."""

    name: str
    input: dict[str, Any]
    block: int
    """Index of the call among the turn's blocks."""
    result_block: int | None
    result: Block | None
    number: int = 0
    """Index of the call in its turn, from 0."""
    use: ToolUse | None = None
    """Declaration of its tool; None without one."""
    reading: CallReading = CallReading()
    identity: bytes = field(init=False)
    """Digest that is equal for calls of one tool with the same input, in every process; 64 bits."""

    def __post_init__(self) -> None:
        """Compute the digest."""
        asked = f"{self.name} {to_json(self.input)}".encode("utf-8", "surrogatepass")
        object.__setattr__(self, "identity", blake2b(asked, digest_size=8).digest())

    @property
    def kind(self) -> CallKind:
        """Kind of action, as far as the declaration, the name and the arguments show."""
        return self.reading.kind if self.use is None else _DECLARED[self.use.effect]

    @property
    def path(self) -> str:
        """Address of the call's object; empty without one."""
        return self.reading.path

    @property
    def command(self) -> str:
        """Text of the command that the call runs; empty without one."""
        return self.reading.command

    @property
    def is_report(self) -> bool:
        """True if the result is another agent's prose, in which words of success and failure are not about the call."""
        return bool(_SUBAGENT.match(self.name)) and _OF_A_COMMAND not in self.text[:1_000]

    @property
    def part(self) -> str:
        """Numeric arguments of a read, which select a part of its object: ``offset 10 limit 20``; else empty."""
        reads = self.path and self.kind == "read"
        parts = [f"{key} {value}" for key, value in self.input.items() if reads and _is_range(value)]
        return " ".join(" ".join(parts)[:PART_CHARACTERS].split())

    @property
    def may_act(self) -> bool:
        """True unless something shows that the call only reads, or changes only the agent's own work."""
        changes = self.kind == "other" or (self.kind == "write" and not self.path)
        return changes and not (self.is_report or self.reading.is_local or _NOTING.search(self.name))

    @property
    def acts(self) -> bool:
        """True if the call changes the outside world: ``refund_order 17``.

        If the tool's name shows nothing, a result that is a list, a table or longer than a receipt counts as an answer.
        """
        if self.use is not None:
            return self.use.effect == "acts"
        return self.may_act and not (self.kind == "other" and self._is_answer)

    @property
    def _is_answer(self) -> bool:
        """True if the result is too much for a receipt: a list, many lines, or text longer than the input."""
        text = self.text
        parsed = parsed_result(text)
        parts = list(parsed.values()) if isinstance(parsed, dict) else [parsed]
        is_long = text_width(text) > max(RECEIPT_WIDTH, text_width(to_json(self.input)))
        is_list = bool(parts) and all(isinstance(part, list) for part in parts)
        return is_long or is_list or (parsed is None and text.strip().count("\n") >= RECEIPT_LINES)

    @property
    def subject(self) -> str:
        """Object of the call in one line: its address, command or query, or all arguments."""
        asks = self.kind in ("search", "ask") or self.is_report
        text = self.path or self.reading.objects or self.command
        return " ".join((text or (argument(self.input, _QUERIES) if asks else "") or self._arguments).split())

    @property
    def head_subject(self) -> str:
        """Value of `subject` without the words that only set where a command runs."""
        return self.subject.removeprefix(self.reading.lead)

    @property
    def _arguments(self) -> str:
        """Texts, numbers and flags among the arguments, with their names if there are several; only those that the
        tool's declaration calls its object, if it does."""
        keys = self.use.object_arguments if self.use is not None else ()
        shown = {key: self.input[key] for key in keys if key in self.input} or self.input
        plain = {key: str(value) for key, value in shown.items() if isinstance(value, str | int | float)}
        filled = {key: " ".join(value.split())[:ARGUMENT_CHARACTERS] for key, value in plain.items() if value.strip()}
        return ", ".join(f"{key}={value}" if len(filled) > 1 else value for key, value in filled.items())

    @property
    def sought(self) -> str:
        """Query of a search in one line; empty for other calls."""
        return " ".join(argument(self.input, _QUERIES).split()) if self.kind == "search" else ""

    @property
    def attempt(self) -> str:
        """Value of `subject` with the words that distinguish this attempt from others."""
        if self.sought and self.path:
            return f"{self.sought} {self.subject}"
        return f"{self.subject} {self.reading.tried}".strip()

    @property
    def text(self) -> str:
        """Text of the result."""
        return result_text(self.result) if self.result is not None else ""

    @property
    def is_error(self) -> bool:
        """True if the result has the error flag."""
        return bool(self.result is not None and self.result.get("is_error"))

    @property
    def is_no_error(self) -> bool:
        """True if the host set the error flag to false."""
        return self.result is not None and self.result.get("is_error") is False


def argument(arguments: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return the first text that is not empty among the arguments `keys`, a list joined by blanks; else ""."""
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return " ".join(value)
    return ""


def _is_range(value: object) -> bool:
    """Return True for a number or several: ``10``, ``[1, 40]``, ``"5-9"``."""
    if isinstance(value, list):
        return bool(value) and all(map(_is_range, value))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and value != "" and not value.strip("0123456789 ,:-"))


def read_call(name: str, arguments: Mapping[str, Any]) -> CallReading:
    """Return what the name and the arguments of a call show, in any field of work."""
    kind: CallKind = next((kind for pattern, kind in _KINDS if pattern.search(name)), "other")
    return CallReading(kind, argument(arguments, _ADDRESSES))


def calls_of(
    history: History,
    turn: Turn,
    uses: Mapping[str, ToolUse] = MappingProxyType({}),
    read: Callable[[str, Mapping[str, Any]], CallReading] = read_call,
) -> tuple[Call, ...]:
    """Return the client calls of `turn` in order, each with its result and its tool's declaration."""
    blocks = [block for _, block in history.blocks_of(turn)]
    results = {str(b.get("tool_use_id")): (i, b) for i, b in enumerate(blocks) if b["type"] == "tool_result"}
    call_blocks = [(index, block) for index, block in enumerate(blocks) if block["type"] == "tool_use"]
    calls = []
    for number, (index, block) in enumerate(call_blocks):
        input_value = block.get("input")
        result_index, result = results.get(str(block.get("id")), (None, None))
        name, arguments = str(block.get("name", "")), input_value if isinstance(input_value, dict) else {}
        calls.append(Call(name, arguments, index, result_index, result, number, uses.get(name), read(name, arguments)))
    return tuple(calls)


def superseded_turns(calls: Mapping[str, Sequence[tuple[Call, bool]]]) -> dict[str, str]:
    """Return for each turn id whose calls are all repeated later the id of the turn that repeats its last call.

    `calls`: the calls of each turn in order, each with its success. A call is repeated by the same call with the same
    result; a read of an object by a later read of all of it, or by a call that writes it whole. A call with another
    result, such as "go east" in another room, is no repetition.
    """
    turn_of_content: dict[bytes, str] = {}
    turn_of_whole: dict[str, str] = {}
    superseded: dict[str, str] = {}
    for turn_id in reversed(list(calls)):
        turn_calls = [call for call, _ in calls[turn_id]]
        later_ids = [
            turn_of_content.get(_content(call)) or (_reads_whole(call) and turn_of_whole.get(call.path)) or ""
            for call in turn_calls
        ]
        if later_ids and all(later_ids):
            superseded[turn_id] = later_ids[-1]
        for call, succeeded in calls[turn_id]:
            if succeeded:
                turn_of_content.setdefault(_content(call), turn_id)
            if succeeded and (_reads_whole(call) or call.reading.is_whole):
                turn_of_whole.setdefault(call.path, turn_id)
        if any(call.reading.starts_anew for call in turn_calls):
            turn_of_content, turn_of_whole = {}, {}
    return superseded


def _content(call: Call) -> bytes:
    """Return a digest of a call's input and, unless it only reads, of its result."""
    if call.kind in ("read", "search"):
        return call.identity
    text = call.text.encode("utf-8", "surrogatepass")
    return call.identity + blake2b(text, digest_size=16).digest()


def _reads_whole(call: Call) -> bool:
    return bool(call.path) and call.kind == "read" and not call.part
