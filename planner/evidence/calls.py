"""Calls of a turn with their results: tool, object, whether the call only reads or acts, and how it ended.

The object of a call is what it reads or changes, such as a file. Whether a tool acts follows from its declaration, from
the verb in its name, or from the field of work that knows it. Outcomes are read by general signs: the error flag, an
exit code, a status in JSON, a refusal by the user. They include the lines that show why a call failed. A field of work
may read more from calls and results of its tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice, takewhile
from types import MappingProxyType
from typing import Any, Literal

from planner.evidence.hosts import is_running, is_wrapping
from planner.reading.lazy import lazy_pattern
from planner.reading.lines import Statement, numbers_of, text_width
from planner.reading.messages import Block, History, Turn, parsed_result, result_text, to_json
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
"""Width above which a result longer than its call counts as an answer, not as the receipt of an action."""
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
    kind: CallKind = field(init=False)
    """Kind of action: by the tool's declaration if there is one, else by its name and arguments."""
    path: str = field(init=False)
    """Address of the call's object; empty without one."""
    command: str = field(init=False)
    """Text of the command that the call runs; empty without one."""
    identity: bytes = field(init=False)
    """Digest of the tool's name and the input, 64 bits, equal in every process."""

    def __post_init__(self) -> None:
        """Compute the fields that follow from others."""
        name_and_input = f"{self.name} {to_json(self.input)}".encode("utf-8", "surrogatepass")
        object.__setattr__(self, "kind", self.reading.kind if self.use is None else _DECLARED[self.use.effect])
        object.__setattr__(self, "path", self.reading.path)
        object.__setattr__(self, "command", self.reading.command)
        object.__setattr__(self, "identity", blake2b(name_and_input, digest_size=8).digest())

    @property
    def is_report(self) -> bool:
        """True if the result is another agent's report: its words of success and failure are not about the call."""
        return bool(_SUBAGENT.match(self.name)) and _COMMAND_OUTPUT not in self.text[:1_000]

    @property
    def part(self) -> str:
        """Numeric arguments by which a read selects a part of its object: ``offset 10 limit 20``; else empty."""
        if not self.path or self.kind != "read":
            return ""
        parts = " ".join([f"{key} {value}" for key, value in self.input.items() if _is_range(value)])
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


Status = Literal["passed", "failed", "done", "running", "unanswered"]

OUTCOME_LINES = 3
"""Largest number of lines that show how one call ended. A result with no more lines is shown whole."""
REPORT_LINES = 4
"""Largest number of reasons of one failure; the first is decisive."""
HEAD_LINES, TAIL_LINES = 6, 4
"""Number of lines at the start and at the end of a result that are searched for an exit code."""

_EXIT_CODE = lazy_pattern(
    r"^\s*+(?:[\[<]?(?:Process|Error:|(?:The )?Command|shellId:) .{0,160}?)?\[?exit(?:ed)?(?: with)?(?: code| status)"
    r":? {0,8}(-?\d{1,10})\b|\"exit_?code\": ?(-?\d{1,10})\b|^(?:<returncode>|exitcode: )(-?\d{1,10})\b",
    re.I,
)
"""Exit code as hosts print it: ``Exit code 2``, ``Process exited with code 0``, ``"exit_code": 1``,
``<returncode>1</returncode>``; not ``# exit code 2 means usage``."""
_REJECTED = lazy_pattern(
    r"\s*+(?:The user d(?:oes|id)(?:n'?t| not) want|.{0,60}\b(?:rejected|denied|aborted) by (?:the )?user"
    r"|\[Request interrupted by user|(?:The )?(?:tool use was|user(?: has)?) (?:rejected|denied|declined|aborted))",
    re.I,
)
"""Report of a host that the user refused a call: ``The tool use was rejected``; not ``when the user denied consent``.
"""
_ERROR = lazy_pattern(
    r"\W{0,8}(?:\w{0,40}error|failed|failure|traceback)\b(?!\W{0,4}\w{0,20}\W{0,4}(?:null|none|0)\b)", re.I
)
"""Beginning of an error of a tool: ``Error: no such flight``, ``<tool_use_error>``, ``InputValidationError:``."""
_FAILURE_WORDS = lazy_pattern(
    r"error|fail|exception|not (?:found|defined|exist|enough|used|permitted|a)\b|no such|denied|refus|undefined|cannot"
    r"|can't|unable|could ?n[o'’]t|unknown(?<!-unknown)(?!-)|panic|invalid|expected|conflict|timed? ?out|want|mismatch"
    r"|should|assert|incorrect|missing|issues? found"
)
"""English words of failure in lower case. Each begins with a letter, as a search for letters takes a sixth of the time.
Most uses only select lines of a call that is known to have failed."""
_STATUS_KEYS = frozenset({"status", "statuscode", "httpstatus", "code"})
_ERROR_KEYS = frozenset({"error", "errors", "errormessage"})
_SUCCESS_KEYS = frozenset({"success", "ok", "succeeded"})

_HEADING = lazy_pattern(r"\s{0,3}(?:\d+\.|#+|\*\*)\s*\S")
"""Heading in an earlier summary: ``4. Errors``, ``## Errors``, ``**Errors**``."""
_ERRORS_HEADING = lazy_pattern(r"[\s\d.#*]*(?:errors?|failures|failed|problems|mistakes)\b", re.I)
"""Heading of a list of errors in an earlier summary: ``4. Errors and fixes:``; not ``5. Problem Solving:``."""
_NO_ERROR = lazy_pattern(r"\W*(?:no\b|(?:user )?feedback\b|(?:\w[\w-]* ){0,3}fixes\b)", re.I)
"""Entry of such a list that is no error: ``- No errors``, ``- **User feedback**: …``, ``- **Previous fixes:**``."""
_MENDED = lazy_pattern(r"\W*(?:fix(?:ed)?|solution|solved|resolved?|resolution)\b", re.I)
"""Beginning of the line of a remedy: ``- Fixed by a lock``, ``Solution: …``."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one call. Lines are given by their numbers in the turn."""

    status: Status
    """Status of the call. ``done``: no sign of success or failure; ``running``: the call had not ended when its output
    was read; ``unanswered``: it has no result."""
    lines: tuple[int, ...]
    """Lines that show how the call ended, ascending; empty if none does."""
    refused: bool = False
    """True if the user did not allow the call."""
    exit_code: int | None = None
    """Exit code that the host prints at the start or end of the result; None without one."""
    is_doubtful: bool = False
    """True if the status is ``failed`` only because of words in the result, or of an exit code without a reason. The
    call may have succeeded, so views show the line without a mark of failure."""
    reasons: tuple[int, ...] = ()
    """Lines that show why the call failed, the most informative first."""
    decisive: tuple[int, ...] = ()
    """Those of the `reasons` that every view keeps."""
    idle: tuple[int, ...] = ()
    """Lines of the result that add nothing to the outcome."""

    @property
    def has_failed(self) -> bool:
        """True if the call failed without doubt."""
        return self.status == "failed" and not self.is_doubtful

    @property
    def has_passed(self) -> bool:
        """True if the output reports success, or if the host reports the exit code 0."""
        return self.status == "passed" or (self.status == "done" and self.exit_code == 0)


def read_outcome(call: Call, result: Sequence[Statement]) -> Outcome:
    """Return how `call` ended by general signs, without knowledge of its tool; `result`: statements of its result."""
    if call.result is None:
        return Outcome("unanswered", ())
    filled = [one for one in result if one.text.strip()]
    code = exit_code(result)
    if any(is_refusal(one.text) for one in filled[:2] if not one.lines[0].continues):
        users_words = [one for one in filled if one.lines[0].source == "user"][:REPORT_LINES]
        words = users_words or [one for one in filled if is_refusal(one.text)][:1]
        return failed_outcome(words, words[:1], code, refused=is_refusal(result[0].text))
    still_runs = any(is_running(one.text) for one in result[:HEAD_LINES])
    begins_as_error = bool(filled) and _ERROR.match(filled[0].text) is not None
    if call.is_error or code or reports_error(call) or (begins_as_error and call.kind != "ask" and not still_runs):
        reasons = _reasons(filled)
        return failed_outcome(reasons, reasons[:1], code)
    return Outcome("running" if still_runs else "done", numbers_of(_informative_lines(call, filled)), exit_code=code)


def _reasons(filled: Sequence[Statement]) -> Sequence[Statement]:
    """Return the first statements with a word of failure in the result of a failed call; else the first ones."""
    with_words = (one for one in filled if mentions_failure(one.text))
    if reasons := [*islice(with_words, REPORT_LINES)]:
        return reasons
    printed = [one for one in printed_lines(filled) if not one.lines[0].continues]
    return printed[:REPORT_LINES] or filled[:1]


def failed_outcome(
    reasons: Sequence[Statement],
    decisive: Sequence[Statement],
    code: int | None,
    *,
    counts: Sequence[Statement] = (),
    refused: bool = False,
    is_doubtful: bool = False,
) -> Outcome:
    """Return the outcome of a failed call.

    `reasons`: statements that show why it failed, the most informative first; `decisive`: those that every view keeps.
    `code`: its exit code. `counts`: statements with the counts of a run, shown with the first reasons.
    """
    order = tuple(dict.fromkeys(number for one in reasons for number in one.numbers))
    return Outcome(
        "failed",
        numbers_of([*reasons[:OUTCOME_LINES], *counts]),
        refused=refused,
        exit_code=code,
        is_doubtful=is_doubtful,
        reasons=order,
        decisive=numbers_of(decisive),
    )


def mentions_failure(text: str) -> bool:
    """Return True for a line with a word of failure."""
    return _FAILURE_WORDS.search(text.lower()) is not None


def is_refusal(text: str) -> bool:
    """Return True for a line in which a host reports that the user refused a call."""
    return bool(_REJECTED.match(text))


def exit_code(result: Sequence[Statement]) -> int | None:
    """Return the exit code that a host prints in the first or last lines of a result; None without one."""
    for statement in (*result[:HEAD_LINES], *result[HEAD_LINES:][-TAIL_LINES:]):
        if match := _EXIT_CODE.search(statement.text):
            return int(match[1] or match[2] or match[3])
    return None


def printed_lines(result: Sequence[Statement]) -> list[Statement]:
    """Return the statements of a result that are not empty and not printed around it by a host."""
    filled = (one for one in result if one.text.strip())
    return [one for one in filled if not (is_wrapping(one.text) or _EXIT_CODE.match(one.text))]


def _informative_lines(call: Call, filled: Sequence[Statement]) -> Sequence[Statement]:
    """Return the statements that show how a call ended without failure; `filled`: those of its result with text. A
    short result is returned whole. Of a longer result of a change, search or question the first statement with a URL is
    returned, or else the first one. Of other results none is returned."""
    printed = [one for one in filled if not is_wrapping(one.text)] or filled
    if len(printed) <= OUTCOME_LINES:
        return printed
    with_address = [one for one in printed if "://" in one.text]
    return (with_address or printed)[:1] if call.kind in ("write", "search", "ask") else ()


def reports_error(call: Call) -> bool:
    """Return True if the result is a JSON object with a field that reports an error.

    Such a field is an HTTP status of 400 to 599, an ``error`` that is not empty, or a ``success`` that is false. The
    content of a file and the output of a command may contain such fields without an error.
    """
    if call.kind in ("read", "run", "search") and (call.path or call.command):
        return False
    result = parsed_result(call.text)
    return isinstance(result, dict) and _has_error_field(result)


def _has_error_field(result: Mapping[str, Any], depth: int = 0) -> bool:
    """Return True if a field of `result`, or of the only object in it, reports an error; `depth`: 1 for that object."""
    for key, value in result.items():
        name = key.casefold().replace("_", "").replace("-", "")
        if name in _STATUS_KEYS and isinstance(value, int) and 400 <= value <= 599:
            return True
        if name in _ERROR_KEYS and value and not isinstance(value, int | float):
            return True
        if (name in _SUCCESS_KEYS and value is False) or (name == "iserror" and value is True):
            return True
        if depth == 0 and len(result) == 1 and isinstance(value, dict) and _has_error_field(value, 1):
            return True  # some services wrap the error in an object with one field: ``{"fehler": {"status": 409, …}}``
    return False


def listed_failures(statements: Sequence[Statement]) -> Iterator[list[Statement]]:
    """Yield the statements of each error that an earlier summary lists: the entry, and the line of its remedy if any.

    Only entries at the outermost indentation count, as lines that are indented further are causes and remedies.
    """
    in_list = False
    outermost: int | None = None  # indentation of the list's entries
    summary = [one for one in statements if one.source == "planner"]
    for index, statement in enumerate(summary):
        bare = statement.text.lstrip()
        if _HEADING.match(statement.text):
            in_list, outermost = bool(_ERRORS_HEADING.match(statement.text)), None
        elif in_list and bare.startswith(("-", "*")):
            outermost = _indent(statement) if outermost is None else outermost
            if _indent(statement) <= outermost and not (_NO_ERROR.match(bare) or _MENDED.match(bare)):
                yield [statement, *_rest_of_entry(_indent(statement), summary[index + 1 :])]


def _rest_of_entry(indent: int, after: Sequence[Statement]) -> Iterator[Statement]:
    """Yield the continuation of an entry of a list, and the line of its remedy or else the first line below the entry.
    `indent`: indentation of the entry; lines below it are indented further. `after`: statements after its first one."""
    continued = list(takewhile(lambda one: one.lines[0].continues, after))
    yield from continued
    after = after[len(continued) :]
    deeper = list(takewhile(lambda one: _indent(one) > indent, after))
    remedies = [one for one in deeper or after[:1] if _MENDED.match(one.text)]
    yield from (remedies or deeper)[:1]


def _indent(statement: Statement) -> int:
    return len(statement.text.rstrip()) - len(statement.text.strip())
