"""Reads an agent's tool calls and their results: tool, object, whether a call only reads or acts, and how it ended.

The object of a call is what it reads or changes, such as a file. Whether a tool acts follows from the user's
declaration, from the verb in its name, or from the kind of work that knows it. How a call ended is read by general
signs: the error flag, an exit code, a refusal by the user, `planner.evidence.error_signs`; with the lines that show why
it failed. A kind of work (a `Field`, such as programming) may read more from the calls and results of its tools.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate, chain, islice, pairwise, takewhile
from types import MappingProxyType
from typing import Any, Literal

from planner.evidence.error_signs import ErrorField, Sign, error_field, error_sign
from planner.evidence.hosts import is_running, is_wrapping
from planner.evidence.words import words_of
from planner.reading.lazy import lazy_pattern
from planner.reading.lines import Statement, line_count, numbers_of, text_width
from planner.reading.messages import Block, History, Turn, parsed_result, result_text, result_texts, to_json
from planner.settings import TOOL_NAME, ToolUse

CallKind = Literal["read", "search", "write", "run", "ask", "other"]

_ADDRESSES = ("file_path", "path", "filename", "file", "notebook_path", "filePath", "target_file", "uri")
"""Names of arguments that contain the address of what a call reads or changes, such as a file's path."""
_QUERIES = ("pattern", "query", "regex", "url", "prompt", "description", "question", "name", "id")
"""Names of arguments that describe what a search, question or subagent looks for, the best first."""
ARGUMENT_CHARACTERS = 120
"""Largest length of each argument in the description of a call that has no address, command or query."""
RECEIPT_LINES = 5
"""Smallest number of line breaks in a plain text result of a call that answers a question. A shorter result may be the
receipt of an action, such as a booking."""
RECEIPT_WIDTH = 400
"""Largest width (a Chinese character counts as 3) of a result that may be the receipt of an action; if the call itself
is wider, its width counts. A longer result answers a question."""
PART_CHARACTERS = 60
"""Largest length of `Call.part`, the text on which part of its object a call reads."""
_ASK = lazy_pattern(r"(?:^|_)ask|question|user_input|exit_?plan", re.I)
"""Names of tools that ask the user: ``AskUserQuestion``, ``ask_user``, ``ExitPlanMode``; not ``Task``."""


def _word(verbs: str) -> str:
    """Return a pattern for one of `verbs` as a word of a name: ``get`` in ``userGet``; not in ``budget``."""
    return rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{verbs})(?![a-z])"


_KINDS: tuple[tuple[re.Pattern[str], CallKind], ...] = (
    (_ASK, "ask"),
    (lazy_pattern(_word("write|edit|create|patch|replace|insert|delete|update|apply")), "write"),
    (lazy_pattern(_word("grep|search|find|query|rg")), "search"),
    (lazy_pattern(_word("read|view|cat|show|fetch|get|list|ls|glob|describe")), "read"),
)
"""Patterns of verbs in tools' names, each with the kind of call that it shows; the first match counts."""
_SEVERAL = lazy_pattern(r"(?<=[a-z])(?:_and_|And(?=[A-Z]))")
"""Part of the name of a tool that does several things, such as ``find_and_book``, so that one verb says too little."""
_OPENS = lazy_pattern(_word("open"))
"""Name of a tool that shows a file if an argument is an address: ``open``; a door or ticket has none."""
_DECLARED: Mapping[str, CallKind] = {"reads": "read", "acts": "other"}
"""Kind of a tool's calls by the declared effect of the tool."""
_SUBAGENT = lazy_pattern(r"^(?:Task(?:_?Output)?$|Agent|dispatch_agent|spawn_agent|subagent)", re.I)
"""Names of tools that return another agent's report: ``Task``, ``TaskOutput``; not ``TaskUpdate``, ``create_task``."""
_COMMAND_OUTPUT = "<task_type>local_bash</task_type>"
"""Mark of a result of Claude Code's tool ``TaskOutput`` which is the output of a command, not an agent's report."""
_NOTING = lazy_pattern(r"todo|plan|task|think|scratchpad|update_topic", re.I)
"""Names of tools with which an agent writes notes for itself, so that they change nothing in the outside world."""


@dataclass(frozen=True, slots=True)
class CallReading:
    """Meaning of a tool call, as far as the tool's name and the arguments show it."""

    kind: CallKind = "other"
    path: str = ""
    """Address of what the call reads or changes, such as a file or a page; empty without one."""
    command: str = ""
    """Text of the command that the call runs; empty without one."""
    objects: str = ""
    """Addresses of what the call changes, joined by commas, if its command names them, as a patch does; else empty."""
    lead: str = ""
    """Beginning of the command that only sets where it runs, such as ``cd app &&``."""
    tried: str = ""
    """Words that distinguish this attempt from others on the same object, such as the first new line of an edit."""
    removes: tuple[str, ...] = ()
    """Names of the arguments that hold text which the call removes, such as ``old_string``."""
    adds: tuple[str, ...] = ()
    """Names of the arguments that hold text which the call adds, such as ``new_string``."""
    is_whole: bool = False
    """True if the call replaces the whole content of its object, such as a file."""
    is_local: bool = False
    """True if the call changes only the agent's own work, such as files, and nothing in the outside world."""
    installs: str = ""
    """Part of the command that adds something on which the work then depends, with its name; empty without one."""
    starts_anew: bool = False
    """True if the call changes so much that the same calls may return something else after it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of the agent, and its result if it has one."""

    name: str
    """Name of the tool."""
    input: dict[str, Any]
    """Arguments of the call."""
    block: int
    """Index of the call among the content blocks of the turn."""
    result_block: int | None
    """Index of the result among the content blocks of the turn; None without a result."""
    result: Block | None
    number: int = 0
    """Index of the call among the turn's calls, from 0."""
    use: ToolUse | None = None
    """Declaration of what the tool does, by the user or by its annotations; None without one."""
    reading: CallReading = CallReading()
    kind: CallKind = field(init=False)
    """Kind of action: by the declaration of the tool if there is one, else by its name and arguments."""
    path: str = field(init=False)
    """Address of what the call reads or changes, such as a file; empty without one."""
    command: str = field(init=False)
    """Text of the command that the call runs; empty without one."""
    identity: bytes = field(init=False)
    """Digest of the tool's name and the input (64 bits), by which equal calls are found."""

    def __post_init__(self) -> None:
        """Compute the attributes that follow from others, once, as they are read often."""
        name_and_input = f"{self.name} {to_json(self.input)}".encode("utf-8", "surrogatepass")
        object.__setattr__(self, "kind", self.reading.kind if self.use is None else _DECLARED[self.use.effect])
        object.__setattr__(self, "path", self.reading.path)
        object.__setattr__(self, "command", self.reading.command)
        object.__setattr__(self, "identity", blake2b(name_and_input, digest_size=8).digest())

    @property
    def is_report(self) -> bool:
        """True if the result is the report of another agent. Its words of failure are not about this call."""
        return bool(_SUBAGENT.match(self.name)) and _COMMAND_OUTPUT not in self.text[:1_000]

    @property
    def part(self) -> str:
        """Part of its object that a reading call selects by numbers: ``offset 10 limit 20``; empty if it reads all."""
        if not self.path or self.kind != "read":
            return ""
        parts = " ".join([f"{key} {value}" for key, value in self.input.items() if _is_range(value)])
        return " ".join(parts[:PART_CHARACTERS].split())

    @property
    def may_act(self) -> bool:
        """True if the call could change the outside world. False if its kind or name shows that it only reads, or that
        it changes only the agent's own work."""
        changes = self.kind == "other" or (self.kind == "write" and not self.path)
        return changes and not (
            own_tool(self.name) or self.is_report or self.reading.is_local or _NOTING.search(self.name)
        )

    @property
    def returns_data(self) -> bool:
        """True if the result is content that the call read or found, such as a page or a log, and no report on the call
        itself. False for a command that reads: its output may report a failure."""
        return self.kind in ("read", "search") and not self.command

    @property
    def acts(self) -> bool:
        """True if the call changes the outside world: ``refund_order 17``. A tool of this package changes nothing
        there. Otherwise the user's declaration of the tool decides. Without one, a call that could act does so if the
        tool's name has a verb of change (the kind is ``write``), or if the result is short enough to be a receipt."""
        if self.use is not None:
            return self.use.effect == "acts" and not own_tool(self.name)
        return self.may_act and not (self.kind == "other" and self._is_answer)

    @property
    def _is_answer(self) -> bool:
        """True if the result is too long for the receipt of an action: a list, many lines, or a long text."""
        text = self.text
        parsed = parsed_result(text)
        values = list(parsed.values()) if isinstance(parsed, dict) else [parsed]
        on_one_line = text if parsed is None else json.dumps(parsed, ensure_ascii=False)
        is_long = text_width(on_one_line) > max(RECEIPT_WIDTH, text_width(to_json(self.input)))
        is_list = any(values) and all(isinstance(value, list) for value in values)
        return is_long or is_list or (parsed is None and text.strip().count("\n") >= RECEIPT_LINES)

    @property
    def subject(self) -> str:
        """Description of the call on one line: its path, command or query, or else its arguments. Empty for a note of
        the agent, as only the list of its present notes shows them."""
        if own_tool(self.name) == NOTE_TOOL:
            return ""
        asks = self.kind in ("search", "ask") or self.is_report
        query = argument(self.input, _QUERIES) if asks else ""
        text = self.path or self.reading.objects or self.command or query or self._arguments
        return " ".join(text.split())

    @property
    def head_subject(self) -> str:
        """Description of the call on one line, without words that only set where a command runs (``cd app &&``)."""
        return self.subject.removeprefix(self.reading.lead)

    @property
    def _arguments(self) -> str:
        """Arguments of the call on one line, without nested ones, with their names if there are several. Those that by
        declaration name what the call reads or changes come first; of a tool that reads, only these are shown."""
        keys = self.use.object_arguments if self.use is not None else ()
        of_object = {key: self.input[key] for key in keys if key in self.input}
        shown = of_object if of_object and not self.acts else {**of_object, **self.input}
        values = {key: value for key, value in shown.items() if isinstance(value, str | int | float)}
        plain = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        filled = {key: " ".join(value.split())[:ARGUMENT_CHARACTERS] for key, value in plain.items() if value.strip()}
        return ", ".join(f"{key}={value}" if len(filled) > 1 else value for key, value in filled.items())

    @property
    def sought(self) -> str:
        """Query of a search on one line, which describes the search better than its path; empty for other calls."""
        return " ".join(argument(self.input, _QUERIES).split()) if self.kind == "search" else ""

    @property
    def attempt(self) -> str:
        """Description of the call on one line, detailed enough to distinguish several attempts: with the query of a
        search, or the first new line of an edit."""
        if self.sought and self.path:
            return f"{self.sought} {self.subject}"
        return f"{self.subject} {self.reading.tried}".strip()

    @property
    def text(self) -> str:
        """Text of the call's result; empty without a result."""
        return result_text(self.result) if self.result is not None else ""

    @property
    def is_error(self) -> bool:
        """True if the host program set the error flag of the result to true."""
        return bool(self.result is not None and self.result.get("is_error"))

    @property
    def is_no_error(self) -> bool:
        """True if the host program set the error flag of the result to false, instead of leaving it out."""
        return self.result is not None and self.result.get("is_error") is False


def argument(arguments: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return the first argument under one of `keys` that is a text or a list of texts, and not empty; else "". The
    texts of a list are joined by blanks."""
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return " ".join(value)
    return ""


def _is_range(value: object) -> bool:
    """Return True if an argument selects a range: ``10``, ``[1, 40]``, ``"5-9"``."""
    if isinstance(value, list):
        return bool(value) and all(map(_is_range, value))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and value != "" and not value.strip("0123456789 ,:-"))


def read_call(name: str, arguments: Mapping[str, Any]) -> CallReading:
    """Find out from the tool's `name` and the arguments what kind of action a call is, and on which object."""
    path = argument(arguments, _ADDRESSES)
    kind: CallKind = "read" if path and _OPENS.search(name) else "other"
    if not _SEVERAL.search(name):
        kind = next((kind for pattern, kind in _KINDS if pattern.search(name)), kind)
    return CallReading(kind, path)


def calls_of(
    history: History,
    turn: Turn,
    uses: Mapping[str, ToolUse] = MappingProxyType({}),
    read: Callable[[str, Mapping[str, Any]], CallReading] = read_call,
) -> tuple[Call, ...]:
    """Return the tool calls in `turn`, in order, each with its result. Tools that the provider runs are left out.
    `uses`: the user's declarations of tools, by name; `read`: function that reads a tool's name and arguments."""
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


RESTORE_TOOL = "restore_context"
"""Name of the tool with which an agent reads removed content by its id."""
NOTE_TOOL = "note"
"""Name of the tool with which an agent writes and removes its notes."""
OWN_TOOLS = frozenset({RESTORE_TOOL, "search_context", "facts", "compact", NOTE_TOOL})
"""Names of the tools that this package gives to agents."""
_SERVER = "compactor"
"""Name of this project's MCP server, unless the person who configured it chose another."""


def bare_tool_name(name: str) -> str:
    """Return the name of a tool without that of its MCP server, which clients put before it. For
    ``mcp__SERVER__restore_context`` it is ``restore_context``, whatever the server. For this project's server, the
    forms of Copilot (``compactor-restore_context``) and OpenCode (``compactor_restore_context``) are known, too."""
    server, _, tool = name.rpartition("__")
    return tool if server else re.sub(f"^{_SERVER}[-_]", "", name)


def own_tool(name: str) -> str:
    """Return the name of a tool of this package without that of its server, in the forms of various clients:
    ``note`` for ``mcp__compactor__note``; empty for other tools, such as ``mcp__tracker__note``."""
    tool = re.sub(f"^(?:mcp__{_SERVER}__|{_SERVER}[-_])", "", name)
    return tool if tool in OWN_TOOLS else ""


def restore_tool_of(tools: Sequence[Mapping[str, Any]], called: str = RESTORE_TOOL) -> str:
    """Return the full name of the agent's tool that restores removed content, from its `tools`; empty without one.
    `called`: the tool's name without its server. The host program's own tool is preferred to one of this project's
    server, and that to one of an unknown server."""
    all_names = (str((tool.get("function") or tool).get("name", "")) for tool in tools)
    names = [name for name in all_names if called in (name, bare_tool_name(name)) and re.fullmatch(TOOL_NAME, name)]
    on_our_server = re.compile(rf"(.*{_SERVER}__|{_SERVER}[-_]){re.escape(called)}")
    of_host = (name for name in names if name == called)
    of_our_server = filter(on_our_server.fullmatch, names)
    return next(chain(of_host, of_our_server, names), "")


Status = Literal["passed", "failed", "done", "running", "unanswered"]

OUTCOME_LINES = 3
"""Largest number of lines that show how one call ended. A result of at most so many lines is shown whole."""
REPORT_LINES = 4
"""Largest number of lines that are taken as the reasons of one failure. The first of them is always kept."""
HEAD_LINES, TAIL_LINES = 6, 4
"""Number of lines at the start and at the end of a result in which an exit code is looked for."""

_EXIT_CODE = lazy_pattern(
    r"^\s*+(?:[\[<]?(?:Process|Error:|(?:The )?Command|shellId:) .{0,160}?)?\[?exit(?:ed)?(?: with)?(?: code| status)"
    r":? {0,8}(-?\d{1,10})\b|\"exit_?code\": ?(-?\d{1,10})\b|^(?:<returncode>|exitcode: )(-?\d{1,10})\b",
    re.I,
)
"""Exit code of a command as host programs print it: ``Exit code 2``, ``Process exited with code 0``,
``"exit_code": 1``, ``<returncode>1</returncode>``; not ``# exit code 2 means usage``."""
_REJECTED = lazy_pattern(
    r"\s*+(?:The user d(?:oes|id)(?:n'?t| not) want|.{0,60}\b(?:rejected|denied|aborted) by (?:the )?user"
    r"|\[Request interrupted by user|(?:The )?(?:tool use was|user(?: has)?) (?:rejected|denied|declined|aborted))",
    re.I,
)
"""Line of a host program on a call that the user refused: ``The tool use was rejected``; not ``the user denied it``."""
_FAILURE_WORDS = lazy_pattern(
    r"error|fail|exception|not (?:found|defined|exist|enough|used|permitted|a)\b|no such|denied|refus|undefined|cannot"
    r"|can't|unable|could ?n[o'’]t|unknown(?<!-unknown)(?!-)|panic|invalid|expected|conflict|timed? ?out|want|mismatch"
    r"|should|assert|incorrect|missing|issues? found"
)
"""English words of failure in lower case. Most uses only select lines in the result of a call that is known to have
failed. Each word begins with a letter, as the search then takes a sixth of the time."""

_HEADING = lazy_pattern(r"\s{0,3}(?:\d+\.|#+|\*\*)\s*\S")
"""Heading in an earlier summary: ``4. Errors``, ``## Errors``, ``**Errors**``."""
_ERRORS_HEADING = lazy_pattern(r"[\s\d.#*]*(?:errors?|failures|failed|problems|mistakes)\b", re.I)
"""Heading of a list of errors in an earlier summary: ``4. Errors and fixes:``; not ``5. Problem Solving:``."""
_NO_ERROR = lazy_pattern(r"\W*(?:no\b|(?:user )?feedback\b|(?:\w[\w-]* ){0,3}fixes\b)", re.I)
"""Item of a list of errors that is no error: ``- No errors``, ``- **User feedback**: …``, ``- **Previous fixes:**``."""
_MENDED = lazy_pattern(r"\W*(?:fix(?:ed)?|solution|solved|resolved?|resolution)\b", re.I)
"""Beginning of a line that describes the remedy of an error: ``- Fixed by a lock``, ``Solution: …``."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one tool call ended, and the lines that show it, by their numbers in the turn."""

    status: Status
    """End of the call. ``done``: no sign of success or failure; ``running``: the call had not ended when its output was
    read; ``unanswered``: it has no result."""
    lines: tuple[int, ...]
    """Lines that show how the call ended, ascending; empty if no line does."""
    refused: bool = False
    """True if the user did not allow the call."""
    exit_code: int | None = None
    """Exit code of the command, which the host program prints at the start or end of the result; None without one."""
    is_doubtful: bool = False
    """True if the status is ``failed`` only because of words in the result, or of an exit code without a reason. The
    call may have succeeded, so views show the line without a mark of failure."""
    reasons: tuple[int, ...] = ()
    """Lines that show why the call failed, the most informative first."""
    decisive: tuple[int, ...] = ()
    """Lines among the `reasons` that every compacted conversation keeps."""
    idle: tuple[int, ...] = ()
    """Lines of the result that add nothing to how the call ended, such as the progress of a successful run."""

    @property
    def has_failed(self) -> bool:
        """True if the call surely failed, and not only by words in its result."""
        return self.status == "failed" and not self.is_doubtful

    @property
    def has_passed(self) -> bool:
        """True if the call surely succeeded: its output reports that, or the host program reports the exit code 0."""
        return self.status == "passed" or (self.status == "done" and self.exit_code == 0)


def read_outcome(call: Call, result: Sequence[Statement]) -> Outcome:
    """Find out how `call` ended by general signs, such as an error flag or an exit code, without knowledge of its tool.
    `result`: the lines of its result."""
    if call.result is None:
        return Outcome("unanswered", ())
    for text, lines in _texts_of(call, result):
        if failure := _failure_in(call, text, lines):
            return failure
    filled, code = [line for line in result if line.text.strip()], _exit_code(call, result)
    if call.is_error:
        reasons = _reasons(filled)
        return failed_outcome(reasons, reasons[:1], code)
    status: Status = "running" if _still_runs(result) else "done"
    return Outcome(status, numbers_of(_informative_lines(call, filled)), exit_code=code)


def _texts_of(call: Call, result: Sequence[Statement]) -> Iterator[tuple[str, Sequence[Statement]]]:
    """Yield each text of the result with its lines, as each may report how the call ended. The texts of a call that
    only reads count as one: the later ones are not about the call, but what it read."""
    texts = result_texts(call.result or {})
    if len(texts) < 2 or call.returns_data or call.is_report:
        yield call.text, result
        return
    numbers = [line.numbers[0] for line in result]
    ends = accumulate(map(line_count, texts), initial=numbers[0])
    for text, (first, stop) in zip(texts, pairwise(ends), strict=True):
        yield text, result[bisect_left(numbers, first) : bisect_left(numbers, stop)]


def _failure_in(call: Call, text: str, lines: Sequence[Statement]) -> Outcome | None:
    """Return the outcome of `call` if `text`, a text of its result with these `lines`, reports a failure or refusal."""
    filled, code = [line for line in lines if line.text.strip()], _exit_code(call, lines)
    if any(is_refusal(line.text) for line in filled[:2] if not line.lines[0].continues):
        users_words = [line for line in filled if line.lines[0].source == "user"][:REPORT_LINES]
        words = users_words or [line for line in filled if is_refusal(line.text)][:1]
        return failed_outcome(words, words[:1], code, refused=is_refusal(filled[0].text))
    error = error_field_of(call, text)
    begins_as_error = _begins_as_error(call, text, filled) and not _still_runs(lines)
    is_declared = call.use is not None and call.use.effect == "acts"  # so a status in words is about the call itself
    is_sure = bool(code) or begins_as_error or bool(error and (error.is_sure or is_declared))
    if is_sure or error:
        reasons = _reasons(filled, error.name if error else "")
        return failed_outcome(reasons, reasons[:1], code, is_doubtful=not (is_sure or call.is_error))
    return None


def _exit_code(call: Call, lines: Sequence[Statement]) -> int | None:
    """Return the exit code of `call` in `lines` of its result. One in a log that the call read is not its own."""
    return None if call.returns_data else exit_code(lines)


def _begins_as_error(call: Call, text: str, filled: Sequence[Statement]) -> bool:
    """Return True if `text`, with the `filled` lines, begins with a report of an error: ``Error: no such flight``. In a
    file or a long answer, such words may be content."""
    if not filled or call.kind == "ask" or parsed_result(text) is not None:  # of JSON, the fields decide
        return False
    sign, is_short = error_sign(filled[0].text), sum(not line.lines[0].continues for line in filled) <= OUTCOME_LINES
    if (call.path or call.command) and call.kind in ("read", "search"):
        return sign is Sign.LABEL and is_short
    return sign is Sign.LABEL or (sign is Sign.WORDS and (call.acts or is_short))


def _still_runs(result: Sequence[Statement]) -> bool:
    """Return True if one of the first `HEAD_LINES` of `result` reports that the command has not ended yet."""
    return any(is_running(line.text) for line in result[:HEAD_LINES])


def _reasons(filled: Sequence[Statement], name: str = "") -> Sequence[Statement]:
    """Return the lines that show best why a call failed: the one with the field `name`, which reports the error, and
    the first ones with a word of failure; or else the first ones of its `filled` lines."""
    naming = [line for line in filled if name and f'"{name}"' in line.text][:1]
    with_words = (line for line in filled if line not in naming and mentions_failure(line.text))
    if reasons := [*naming, *islice(with_words, REPORT_LINES - len(naming))]:
        # a line of one word, such as the heading ``### Error``, comes last
        return sorted(reasons, key=lambda line: len(words_of(line.text)) < 2)
    printed = [line for line in printed_lines(filled) if not line.lines[0].continues]
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
    """Make the outcome of a failed call. `reasons`: lines that show why it failed, the most informative first;
    `decisive`: those that every compacted conversation keeps; `code`: its exit code; `counts`: lines such as ``2
    failed, 3 passed``, shown with the reasons."""
    order = tuple(dict.fromkeys(number for line in reasons for number in line.numbers))
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
    """Return True if `text`, a line, has a word of failure such as ``denied`` or ``not found``."""
    return _FAILURE_WORDS.search(text.lower()) is not None


def is_refusal(text: str) -> bool:
    """Return True if the host program reports by the line `text` that the user refused a call."""
    return bool(_REJECTED.match(text))


def exit_code(result: Sequence[Statement]) -> int | None:
    """Return the exit code of a command that the host program prints at the start or end of `result`, or None."""
    for statement in (*result[:HEAD_LINES], *result[HEAD_LINES:][-TAIL_LINES:]):
        if match := _EXIT_CODE.search(statement.text):
            return int(match[1] or match[2] or match[3])
    return None


def printed_lines(result: Sequence[Statement]) -> list[Statement]:
    """Return the lines of a result that the tool itself printed: no empty ones, and none that the host program adds
    around the output, such as the exit code."""
    filled = (line for line in result if line.text.strip())
    return [line for line in filled if not (is_wrapping(line.text) or _EXIT_CODE.match(line.text))]


def _informative_lines(call: Call, filled: Sequence[Statement]) -> Sequence[Statement]:
    """Return the lines that show how a call without a failure ended: all `filled` lines of a short result; of a longer
    one, if the call changed, searched or asked something, the first line with a URL or else the first."""
    later = (line for line in filled if not is_wrapping(line.text))
    first = [*islice(later, OUTCOME_LINES + 1)] or filled
    if len(first) <= OUTCOME_LINES:
        return first
    if call.kind not in ("write", "search", "ask"):
        return ()
    return [next((line for line in chain(first, later) if "://" in line.text), first[0])]


def error_field_of(call: Call, text: str) -> ErrorField | None:
    """Return the field that reports an error if `text`, a text of the result of `call`, is a JSON object with one. The
    content of a file and the output of a command may contain such fields without an error."""
    if call.kind in ("read", "run", "search") and (call.path or call.command):
        return None
    result = parsed_result(text)
    asked = f"{call.name} {to_json(call.input)}"
    return error_field(result, asked, may_act=call.may_act) if isinstance(result, dict) else None


def listed_failures(statements: Sequence[Statement]) -> Iterator[list[Statement]]:
    """Find the errors that an earlier summary lists, so that a later compaction keeps them. Yield for each error its
    line, and the line of its remedy if there is one. Only items at the outermost indentation count, as lines that are
    indented further are causes and remedies."""
    in_list = False
    outermost: int | None = None  # indentation of the list's entries
    summary = [line for line in statements if line.source == "planner"]
    for index, statement in enumerate(summary):
        bare = statement.text.lstrip()
        if _HEADING.match(statement.text):
            in_list, outermost = bool(_ERRORS_HEADING.match(statement.text)), None
        elif in_list and bare.startswith(("-", "*")):
            outermost = _indent(statement) if outermost is None else outermost
            if _indent(statement) <= outermost and not (_NO_ERROR.match(bare) or _MENDED.match(bare)):
                yield [statement, *_rest_of_entry(_indent(statement), summary[index + 1 :])]


def _rest_of_entry(indent: int, after: Sequence[Statement]) -> Iterator[Statement]:
    """Yield the lines `after` an error in a list that belong to it: its continuation, and its remedy or else the first
    line below it. Its details are indented further than `indent`."""
    continued = list(takewhile(lambda line: line.lines[0].continues, after))
    yield from continued
    after = after[len(continued) :]
    deeper = list(takewhile(lambda line: _indent(line) > indent, after))
    remedies = [line for line in deeper or after[:1] if _MENDED.match(line.text)]
    yield from (remedies or deeper)[:1]


def _indent(statement: Statement) -> int:
    return len(statement.text.rstrip()) - len(statement.text.strip())
