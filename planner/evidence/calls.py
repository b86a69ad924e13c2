"""The calls of a turn with their results: which tool, on what, and whether it only looks or changes something.

Tools are told apart by their names and the keys of their inputs, not by a list of products.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Literal

from planner.evidence.shell import SAYING, Command, commands_of, is_looking, shell_changes
from planner.reading.history import History, Turn
from planner.reading.lines import text_width
from planner.reading.messages import Block, result_text, to_json
from planner.reading.patterns import lazy_pattern
from planner.tools import ToolUse

__all__ = ["MOVING", "PATCHED", "WHOLE_TEXT", "Call", "CallKind", "calls_of", "superseded_turns"]

CallKind = Literal["read", "search", "write", "run", "ask", "other"]

_PATH_KEYS = ("file_path", "path", "filename", "file", "notebook_path", "filePath", "target_file", "uri")
_COMMAND_KEYS = ("command", "cmd", "script", "code", "input")
_FOLDER_KEYS = ("workdir", "cwd", "working_directory", "working_dir")
_QUERY_KEYS = ("pattern", "query", "regex", "url", "prompt", "description", "question", "name", "id")

ARGUMENT_CHARACTERS = 120
"""Length of one argument that is shown of a call without path, command or query."""

RECEIPT_WIDTH = 400
"""Width up to which a result may be the receipt of an action; what is longer, and longer than what was asked, tells."""
PART_CHARACTERS = 60
"""Length of the arguments that name the part of a file to read."""
_RUN_NAME = lazy_pattern(r"bash|shell|exec|run|terminal|command|python|execute", re.I)
_NAME_KINDS: tuple[tuple[re.Pattern[str], CallKind], ...] = (
    (lazy_pattern(r"^(?!.*kubectl).*(?:write|edit|create|patch|replace|insert|delete|update|apply)", re.I), "write"),
    (lazy_pattern(r"grep|search|find|query|rg", re.I), "search"),
    (lazy_pattern(r"read|view|open|cat|show|fetch|get|list|ls|glob", re.I), "read"),
    (_RUN_NAME, "run"),
)
"""Kinds of tools by their names; the first match counts."""
_DECLARED: Mapping[str, CallKind] = {"reads": "read", "acts": "other"}
_LOOKS = frozenset({"view", "read", "open", "show", "list"})
"""Commands of editors that change nothing."""
_ASK_NAME = lazy_pattern(r"(?:^|_)ask|question|user_input|exit_?plan", re.I)
"""``AskUserQuestion``, ``ask_user``, ``ExitPlanMode``; not ``Task``."""

_PROCESS_NAME = lazy_pattern(r"stdin|(?:Bash|Shell|Process|Command|Task)_?Output", re.I)
"""Tools that go on with a command that runs: ``write_stdin``, ``BashOutput``."""
_SUBAGENT_NAME = lazy_pattern(r"^(?:Task(?:_?Output)?$|Agent|dispatch_agent|spawn_agent|subagent)", re.I)
"""Tools whose result is another agent's report: ``Task``, ``TaskOutput``; not ``TaskUpdate``, ``create_task``."""
_OF_A_COMMAND = "<task_type>local_bash</task_type>"
"""How Claude Code says that what a ``TaskOutput`` brings is no report."""

_NOTING_NAME = lazy_pattern(r"todo|plan|task|think|patch", re.I)
"""Tools by which an agent notes something for itself, or changes files that their text names."""
_REMARK = lazy_pattern(r"(?://|/?\*|#(?!include)|--|<!--|\W*$)")
"""A comment, or a line of marks alone: ``// Load it``, ``})``; what stands behind it says more."""
PATCHED = lazy_pattern(r"^\*\*\* (Add|Update|Delete) File: (\S.*)(?:\n\*\*\* Move to: (\S.*))?$", re.M)
"""The files of a patch in Codex's form, each with what it does to it: ``*** Update File: src/a.ts``; and where it moves
it to."""
_PATCHING = {"Add": "written", "Update": "edited", "Delete": "removed"}
MOVING = lazy_pattern(r"^(?:cd \S+ && )+(?=\S)")
"""``cd /srv/app && npm test``: where a command runs says less than the command; not ``cd /srv``."""
_PARTIAL_KEY = lazy_pattern(
    r"(?:start|end|first|last|from|to|begin)(?:_?(?:line|index|at|page|byte))?(?:_number)?s?"
    r"|(?:line|byte|view)_?(?:range|numbers?|count|start|end)"
    r"|offset|limit|range|head|tail|lines?|pages?|max_?(?:lines|bytes|chars|characters|length)|num_?lines|length"
    r"|skip|take|section|chunk",
    re.I,
)
"""A read with such a key is of a part of the file: ``offset``, ``startLine``, ``view_range``; not ``path``."""
WHOLE_TEXT = frozenset({"content", "file_text"})
"""A write with one of these keys leaves nothing of what the file held."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a turn and its result, if it has one. The fields from `path` on follow from the others."""

    name: str
    input: dict[str, Any]
    block: int
    """Index of the call among the turn's blocks."""
    result_block: int | None
    result: Block | None
    number: int = 0
    """Which call of its turn it is, from 0."""
    use: ToolUse | None = None
    """The declaration of its tool, if there is one."""
    path: str = field(init=False)
    """The file it names, or empty."""
    command: str = field(init=False)
    """The command it runs, or empty. A list of arguments is joined by spaces."""
    kind: CallKind = field(init=False)
    """Kind of action, as far as its name and command show."""
    identity: bytes = field(init=False)
    """The same for calls of one tool with the same input, in every process: 64 bits tell them apart."""

    def __post_init__(self) -> None:
        """Fill what follows from the rest."""
        asked = f"{self.name} {to_json(self.input)}".encode("utf-8", "surrogatepass")
        command = self._first(_COMMAND_KEYS)
        object.__setattr__(self, "path", self._first(_PATH_KEYS))
        object.__setattr__(self, "command", command)
        kind = _kind(self.name, command, self.commands) if self.use is None else _DECLARED[self.use.effect]
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "identity", blake2b(asked, digest_size=8).digest())

    @property
    def commands(self) -> tuple[Command, ...]:
        """Commands that it runs in a shell; none for the ``code`` of another language."""
        is_shell = _RUN_NAME.search(self.name) is not None and self.command != self.input.get("code")
        return commands_of(self.command) if is_shell and not self.is_script else ()

    @property
    def is_script(self) -> bool:
        """True for a script of Codex that calls tools of which its text does not say which."""
        return self.name == "exec" and self.command == self.input.get("input")

    @property
    def folder(self) -> str:
        """The folder that it runs in, as its arguments say; empty where they don't, or by a relative path."""
        folder = self._first(_FOLDER_KEYS)
        return folder.rstrip("/") if folder.startswith("/") else ""

    @property
    def is_report(self) -> bool:
        """True if the result is prose of another agent: words of success and failure in it say nothing of the call."""
        return bool(_SUBAGENT_NAME.match(self.name)) and _OF_A_COMMAND not in self.text[:1_000]

    @property
    def part(self) -> str:
        """Which part of its file a read is of, by its own arguments: ``offset 10 limit 20``; empty for all of it."""
        reads = self.path and self.kind == "read"
        parts = [f"{key} {self.input[key]}" for key in self.input if reads and _PARTIAL_KEY.fullmatch(key)]
        return " ".join(" ".join(parts)[:PART_CHARACTERS].split())

    @property
    def writes(self) -> Mapping[str, str]:
        """The files that a call of a tool that edits changes, each with how; not what it calls so, ``conflict://7``."""
        if self.kind != "write":
            return {}
        if self.path and "\n" not in self.path:
            how = "written" if WHOLE_TEXT & self.input.keys() else "edited"
            return {} if "://" in self.path else {self.path: how}
        patched = [one for text in self.input.values() if isinstance(text, str) for one in PATCHED.findall(text)]
        return {path: f"moved to {to}" if to else _PATCHING[act] for act, path, to in patched}

    @property
    def edit(self) -> tuple[str, str]:
        """The text that an edit replaces, and what it puts there; empty where it says neither."""
        return self._first(("old_string", "old_str")), self._first(("new_string", "new_str"))

    @property
    def may_act(self) -> bool:
        """True if nothing says that it only looks, changes files or notes something for the agent itself."""
        changes = self.kind == "other" or (self.kind == "write" and not self.path)
        return changes and not (self.is_report or _NOTING_NAME.search(self.name))

    @property
    def acts(self) -> bool:
        """True if it changes what no file shows: ``refund_order 17``.

        Of a tool whose name says nothing, a result that is longer than a receipt and than what was asked is an answer.
        """
        if self.use is not None:
            return self.use.effect == "acts"
        answers = text_width(self.text) > max(RECEIPT_WIDTH, text_width(to_json(self.input)))
        return self.may_act and not (answers and self.kind == "other")

    @property
    def subject(self) -> str:
        """Object of the call in one line: its path, the files of a patch, the command, the query, or all arguments."""
        asks = self.kind in ("search", "ask") or self.is_report
        text = self.path or ", ".join(path for _, path, _ in PATCHED.findall(self.command)) or self.command
        text = text or (self._first(_QUERY_KEYS) if asks else "") or self._arguments
        return " ".join(text.split())

    @property
    def _arguments(self) -> str:
        """Its plain arguments, each with its name where there are several: numbers and flags tell calls apart, too."""
        about = self.use.object_arguments if self.use is not None else ()
        named = {key: self.input[key] for key in about if key in self.input} or self.input
        plain = {key: str(value) for key, value in named.items() if isinstance(value, str | int | float)}
        filled = {key: " ".join(value.split())[:ARGUMENT_CHARACTERS] for key, value in plain.items() if value.strip()}
        return ", ".join(f"{key}={value}" if len(filled) > 1 else value for key, value in filled.items())

    @property
    def sought(self) -> str:
        """Query of a search in one line; empty for other calls."""
        return " ".join(self._first(_QUERY_KEYS).split()) if self.kind == "search" else ""

    @property
    def attempt(self) -> str:
        """`subject` with what was tried: of a search what for, of a change of a file the first line that it would have
        put in and that says something, or taken out if that is all it does."""
        if self.sought and self.path:
            return f"{self.sought} {self.subject}"
        if self.kind != "write":
            return self.subject
        old, new = self.edit
        new = new or self._first(("patch", "content"))
        new = new or "\n".join(line[1:] for line in self.command.splitlines() if line[:1] == "+")
        before = {"", *map(str.strip, old.splitlines())}
        put_in = [line for line in map(str.strip, new.splitlines()) if line not in before]
        put_in = put_in or [old.strip().partition("\n")[0]]
        telling = next((line for line in put_in if not _REMARK.match(line)), put_in[0])
        return f"{self.subject} {telling[:80]}".strip()

    @property
    def text(self) -> str:
        """The text of its result."""
        return result_text(self.result) if self.result is not None else ""

    @property
    def is_error(self) -> bool:
        """True if the result carries the error flag."""
        return bool(self.result is not None and self.result.get("is_error"))

    @property
    def is_no_error(self) -> bool:
        """True if the result says that it is none: a host that flags what fails."""
        return self.result is not None and self.result.get("is_error") is False

    def _first(self, keys: tuple[str, ...]) -> str:
        for key in keys:
            value = self.input.get(key)
            if isinstance(value, str) and value.strip():
                return value
            if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
                return " ".join(value)
        return ""


def _kind(name: str, command: str, commands: Sequence[Command]) -> CallKind:
    if _ASK_NAME.search(name):
        return "ask"
    if _PROCESS_NAME.search(name):
        return "run"
    if commands and _RUN_NAME.search(name):
        first = next((one for one in commands if one.words[0] not in SAYING), commands[0])
        return "read" if is_looking(first) and not shell_changes(commands) else "run"
    kind: CallKind = next((own for pattern, own in _NAME_KINDS if pattern.search(name)), "other")
    return "read" if kind == "write" and command in _LOOKS else kind


def calls_of(history: History, turn: Turn, uses: Mapping[str, ToolUse] = MappingProxyType({})) -> tuple[Call, ...]:
    """Return the client calls of `turn` in order, each with the result that answers it and its tool's declaration."""
    blocks = [block for _, block in history.blocks_of(turn)]
    results = {str(b.get("tool_use_id")): (i, b) for i, b in enumerate(blocks) if b["type"] == "tool_result"}
    asked = [(index, block) for index, block in enumerate(blocks) if block["type"] == "tool_use"]
    calls = []
    for number, (index, block) in enumerate(asked):
        given = block.get("input")
        place, result = results.get(str(block.get("id")), (None, None))
        name, arguments = str(block.get("name", "")), given if isinstance(given, dict) else {}
        calls.append(Call(name, arguments, index, place, result, number, uses.get(name)))
    return tuple(calls)


def superseded_turns(calls: Mapping[str, Sequence[tuple[Call, bool]]]) -> dict[str, str]:
    """Return the turns of which nothing is news, each with the last turn that brought all of it again.

    `calls` are those of each turn in order, each with whether it succeeded. A call is brought again by the same call
    with the same result, whatever the tool is; a look at something by a later look at all of it; a file also by being
    written whole. "Go east" in another room is another thing. On another branch nothing is done again.
    """
    same: dict[bytes, str] = {}
    whole: dict[str, str] = {}
    superseded: dict[str, str] = {}
    for turn_id in reversed(list(calls)):
        own = [call for call, _ in calls[turn_id]]
        again = [same.get(_content(call)) or (_reads_whole(call) and whole.get(call.path)) or "" for call in own]
        if again and all(again):
            superseded[turn_id] = again[-1]
        for call, succeeded in calls[turn_id]:
            if succeeded:
                same.setdefault(_content(call), turn_id)
            if succeeded and (_reads_whole(call) or (call.kind == "write" and WHOLE_TEXT & call.input.keys())):
                whole.setdefault(call.path, turn_id)
        if any(_changes_branch(command) for call in own for command in call.commands):
            same, whole = {}, {}
    return superseded


def _content(call: Call) -> bytes:
    """Return a digest of what a call asked and, unless it only looks, of what came back."""
    if call.kind in ("read", "search"):
        return call.identity
    text = call.text.encode("utf-8", "surrogatepass")
    return call.identity + blake2b(text, digest_size=16).digest()


def _changes_branch(command: Command) -> bool:
    """``git switch main``, ``git checkout -b fix``; not ``git checkout -- src/a.py``."""
    changes = any(
        command.starts(*words) for words in (("git", "checkout"), ("git", "switch"), ("gh", "pr", "checkout"))
    )
    return changes and "--" not in command.words


def _reads_whole(call: Call) -> bool:
    return bool(call.path) and call.kind == "read" and not call.part
