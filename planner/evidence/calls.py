"""Calls of a turn with their results: tool, object, and whether the call only reads or acts.

The object of a call is what it reads or changes, such as a file. Whether a tool acts follows from its declaration, from
the verb in its name, or from the field of work that knows it.
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

CallKind = Literal["read", "search", "write", "run", "ask", "other"]

_ADDRESSES = ("file_path", "path", "filename", "file", "notebook_path", "filePath", "target_file", "uri")
"""Names of arguments that contain the address of a call's object."""
_QUERIES = ("pattern", "query", "regex", "url", "prompt", "description", "question", "name", "id")
"""Names of arguments that describe what a search, question or subagent looks for, the best first."""
ARGUMENT_CHARACTERS = 120
"""Largest length of each argument that is shown for a call without address, command or query."""
RECEIPT_LINES = 5
"""Number of line breaks from which a result in plain text counts as an answer, not as the receipt of an action."""
RECEIPT_WIDTH = 400
"""Width above which a result counts as an answer, not as the receipt of an action, if it is also longer than the
call."""
PART_CHARACTERS = 60
"""Largest length of `Call.part`."""
_ASK = lazy_pattern(r"(?:^|_)ask|question|user_input|exit_?plan", re.I)
"""Names of tools that ask the user: ``AskUserQuestion``, ``ask_user``, ``ExitPlanMode``; not ``Task``."""
_KINDS: tuple[tuple[re.Pattern[str], CallKind], ...] = (
    (_ASK, "ask"),
    (lazy_pattern(r"write|edit|create|patch|replace|insert|delete|update|apply", re.I), "write"),
    (lazy_pattern(r"grep|search|find|query|rg", re.I), "search"),
    (lazy_pattern(r"read|view|open|cat|show|fetch|get|list|ls|glob", re.I), "read"),
)
"""Patterns of the verbs in tools' names, with the kind that each shows; the first match counts."""
_DECLARED: Mapping[str, CallKind] = {"reads": "read", "acts": "other"}
"""Kind of a tool by its declared effect."""
_SUBAGENT = lazy_pattern(r"^(?:Task(?:_?Output)?$|Agent|dispatch_agent|spawn_agent|subagent)", re.I)
"""Names of tools that return another agent's report: ``Task``, ``TaskOutput``; not ``TaskUpdate``, ``create_task``."""
_COMMAND_OUTPUT = "<task_type>local_bash</task_type>"
"""Text in a result of Claude Code's ``TaskOutput`` that is the output of a command, not an agent's report."""
_NOTING = lazy_pattern(r"todo|plan|task|think", re.I)
"""Names of tools with which an agent writes notes for itself."""


@dataclass(frozen=True, slots=True)
class CallReading:
    """Meaning of a call, as far as its tool's name and its arguments show it."""

    kind: CallKind = "other"
    path: str = ""
    """Address of the call's object, such as a file or a page; empty without one."""
    command: str = ""
    """Text of the command that the call runs; empty without one."""
    objects: str = ""
    """Addresses of several objects of the call, joined by commas."""
    lead: str = ""
    """Beginning of the command that only sets where it runs, such as ``cd app &&``."""
    tried: str = ""
    """Words that distinguish this attempt from others on the same object, such as the first new line of an edit."""
    removes: tuple[str, ...] = ()
    """Names of the arguments with text that the call removes."""
    adds: tuple[str, ...] = ()
    """Names of the arguments with text that the call adds."""
    is_whole: bool = False
    """True if the call replaces the whole content of its object."""
    is_local: bool = False
    """True if the call changes only the agent's own work, nothing in the outside world."""
    starts_anew: bool = False
    """True if the call changes so much that the same calls may return something else after it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a turn and its result, if it has one."""

    name: str
    input: dict[str, Any]
    block: int
    """Index of the call among the turn's blocks."""
    result_block: int | None
    """Index of the result among the turn's blocks."""
    result: Block | None
    number: int = 0
    """Index of the call among the turn's calls, from 0."""
    use: ToolUse | None = None
    """Declaration of its tool; None without one."""
    reading: CallReading = CallReading()
    identity: bytes = field(init=False)
    """Digest of the tool's name and the input, 64 bits, equal in every process."""

    def __post_init__(self) -> None:
        """Compute the digest."""
        name_and_input = f"{self.name} {to_json(self.input)}".encode("utf-8", "surrogatepass")
        object.__setattr__(self, "identity", blake2b(name_and_input, digest_size=8).digest())

    @property
    def kind(self) -> CallKind:
        """Kind of action: by the tool's declaration if there is one, else by its name and arguments."""
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
        """True if the result is another agent's report: its words of success and failure are not about the call."""
        return bool(_SUBAGENT.match(self.name)) and _COMMAND_OUTPUT not in self.text[:1_000]

    @property
    def part(self) -> str:
        """Numeric arguments by which a read selects a part of its object: ``offset 10 limit 20``; else empty."""
        if not self.path or self.kind != "read":
            return ""
        parts = " ".join(f"{key} {value}" for key, value in self.input.items() if _is_range(value))
        return " ".join(parts[:PART_CHARACTERS].split())

    @property
    def may_act(self) -> bool:
        """True unless the call's kind or name shows that it only reads, or changes only the agent's own work."""
        changes = self.kind == "other" or (self.kind == "write" and not self.path)
        return changes and not (self.is_report or self.reading.is_local or _NOTING.search(self.name))

    @property
    def acts(self) -> bool:
        """True if the call changes the outside world: ``refund_order 17``.

        The tool's declaration decides. Without one, a call that may act acts if the name of its tool has a verb of
        change, and also if its result is short enough to be a receipt.
        """
        if self.use is not None:
            return self.use.effect == "acts"
        return self.may_act and not (self.kind == "other" and self._is_answer)

    @property
    def _is_answer(self) -> bool:
        """True if the result is too much for a receipt: a list, many lines, or a long text."""
        text = self.text
        parsed = parsed_result(text)
        parts = list(parsed.values()) if isinstance(parsed, dict) else [parsed]
        is_long = text_width(text) > max(RECEIPT_WIDTH, text_width(to_json(self.input)))
        is_list = bool(parts) and all(isinstance(part, list) for part in parts)
        return is_long or is_list or (parsed is None and text.strip().count("\n") >= RECEIPT_LINES)

    @property
    def subject(self) -> str:
        """Description of the call in one line: its address, command or query, or else its arguments."""
        asks = self.kind in ("search", "ask") or self.is_report
        query = argument(self.input, _QUERIES) if asks else ""
        text = self.path or self.reading.objects or self.command or query or self._arguments
        return " ".join(text.split())

    @property
    def head_subject(self) -> str:
        """Value of `subject` without the words that only set where a command runs."""
        return self.subject.removeprefix(self.reading.lead)

    @property
    def _arguments(self) -> str:
        """Arguments in one line, with their names if there are several. Lists and objects are left out. If the tool's
        declaration names the arguments of its object, only these are shown."""
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
        """Value of `subject`, with the query of a search or the words that distinguish this attempt from others."""
        if self.sought and self.path:
            return f"{self.sought} {self.subject}"
        return f"{self.subject} {self.reading.tried}".strip()

    @property
    def text(self) -> str:
        """Text of the result; empty without one."""
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
    """Return the value of the first of `keys` that is a text or a list of texts and not empty; "" without one. The
    texts of a list are joined by blanks."""
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return " ".join(value)
    return ""


def _is_range(value: object) -> bool:
    """Return True for a number, a list of numbers or a text of numbers: ``10``, ``[1, 40]``, ``"5-9"``."""
    if isinstance(value, list):
        return bool(value) and all(map(_is_range, value))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and value != "" and not value.strip("0123456789 ,:-"))


def read_call(name: str, arguments: Mapping[str, Any]) -> CallReading:
    """Return the kind and the address of a call by its tool's name and its arguments, in any field of work."""
    kind: CallKind = next((kind for pattern, kind in _KINDS if pattern.search(name)), "other")
    return CallReading(kind, argument(arguments, _ADDRESSES))


def calls_of(
    history: History,
    turn: Turn,
    uses: Mapping[str, ToolUse] = MappingProxyType({}),
    read: Callable[[str, Mapping[str, Any]], CallReading] = read_call,
) -> tuple[Call, ...]:
    """Return the calls of the client's tools in `turn`, in order, each with its result.

    `uses`: declarations of tools, by name; `read`: function that returns the reading of a name and arguments.
    """
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
