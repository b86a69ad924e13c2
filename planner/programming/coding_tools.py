"""Tools of programming: shells, editors and patches. Reads the commands of a call, and the files that it changes.

Also recognises lines of code that define a function, type or constant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from planner.evidence.calls import Call, CallKind, CallReading, argument
from planner.programming.shell import PREPARING, Command, commands_of, is_looking, shell_changes
from planner.reading.patterns import lazy_pattern

_COMMANDS = ("command", "cmd", "script", "code", "input")
"""Names of arguments that contain a command, the best first."""
_FOLDERS = ("workdir", "cwd", "working_directory", "working_dir")
"""Names of arguments that contain the folder in which a command runs."""
_OLD, _NEW = ("old_string", "old_str"), ("new_string", "new_str")
"""Names of arguments that contain the text that an edit replaces, and the new text."""
_WHOLE = ("content", "file_text")
"""Names of arguments that contain a whole new file."""
_SHELL = lazy_pattern(r"bash|shell|exec|run|terminal|command|python", re.I)
"""Names of tools that run commands."""
_PROCESS = lazy_pattern(r"stdin|(?:Bash|Shell|Process|Command|Task)_?Output", re.I)
"""Names of tools that continue a running command: ``write_stdin``, ``BashOutput``."""
_CLUSTER = "kubectl"
"""Part of the names of tools that change a cluster, not the files that they read."""
_LOOKS = frozenset({"view", "read", "open", "show", "list"})
"""Commands of editors that change nothing."""
PATCHED = lazy_pattern(r"^\*\*\* (Add|Update|Delete) File: (\S.*)(?:\n\*\*\* Move to: (\S.*))?$", re.M)
"""File of a patch in Codex's form: ``*** Update File: src/a.ts``, with its new place if it is moved."""
_PATCHING = {"Add": "written", "Update": "edited", "Delete": "removed"}
"""Kind of change by its word in a patch."""
_LEAD = lazy_pattern(r"^(?:cd \S+ && )+(?=\S)")
"""Changes of folder before another command: ``cd /srv/app && `` in ``cd /srv/app && npm test``."""
LEAD_CHARACTERS = 400
"""Number of first characters of a command that are searched for changes of folder."""
_REMARK = lazy_pattern(r"//|/?\*|#(?!include)|--|<!--|\W*$")
"""Beginning of a comment, or a line of marks alone: ``// Load it``, ``})``."""
ATTEMPT_CHARACTERS = 80
"""Largest length of the line that distinguishes one edit of a file from others."""


def read_tool(name: str, arguments: Mapping[str, Any], reading: CallReading) -> CallReading:
    """Return `reading` with the kind, the command and the files of a call, and the arguments with its edited texts."""
    command = argument(arguments, _COMMANDS)
    commands = _commands(name, arguments, command)
    kind = _kind(name, command, commands, reading.kind)
    adds = tuple(key for key in (*_WHOLE, *_NEW, "new_source") if key in arguments)
    lead = _LEAD.match(" ".join(command[:LEAD_CHARACTERS].split())) if command.startswith("cd ") else None
    return replace(
        reading,
        kind=kind,
        command=command,
        objects=", ".join(path for _, path, _ in PATCHED.findall(command)),
        lead=lead.group() if lead else "",
        tried=_tried(arguments, command) if kind == "write" else "",
        removes=tuple(key for key in _OLD if key in arguments) if kind == "write" else (),
        adds=adds if kind == "write" else (),
        is_whole=kind == "write" and not arguments.keys().isdisjoint(_WHOLE),
        is_local="patch" in name.lower() or bool(command and _SHELL.search(name)),
        starts_anew=any(map(_changes_branch, commands)),
    )


def _kind(name: str, command: str, commands: Sequence[Command], kind: CallKind) -> CallKind:
    """Return the kind of a call; `kind`: the one by general signs. A shell line has the kind ``read`` if its main
    command only reads and no command changes a file, else ``run``."""
    if kind == "ask" or _CLUSTER in name:
        return "other" if kind == "write" else kind
    if _PROCESS.search(name):
        return "run"
    if commands:
        first = next((one for one in commands if one.words[0] not in PREPARING), commands[0])
        return "read" if is_looking(first) and not shell_changes(commands) else "run"
    if kind == "other" and _SHELL.search(name):
        return "run"
    return "read" if kind == "write" and command in _LOOKS else kind


def commands_in(call: Call) -> tuple[Command, ...]:
    """Return the commands that a call runs in a shell; none if the tool runs code in another language."""
    return _commands(call.name, call.input, call.command)


def _commands(name: str, arguments: Mapping[str, Any], command: str) -> tuple[Command, ...]:
    """Return the commands in the text `command` among the arguments of the tool `name`."""
    is_shell = _SHELL.search(name) is not None and command != arguments.get("code")
    return commands_of(command) if command and is_shell and not _is_script(name, arguments, command) else ()


def _is_script(name: str, arguments: Mapping[str, Any], command: str) -> bool:
    """Return True for Codex's tool ``exec`` with a script in place of a shell line."""
    return name == "exec" and command == arguments.get("input")


def folder_of(call: Call) -> str:
    """Return the absolute folder in which a call runs; empty if its arguments name none."""
    folder = argument(call.input, _FOLDERS)
    return folder.rstrip("/") if folder.startswith("/") else ""


def writes_of(call: Call) -> Mapping[str, str]:
    """Return the kind of change, such as ``edited``, of each file that a call of an editor changes, by path.

    The result is empty for other calls, and for an address such as ``conflict://7``.
    """
    if call.kind != "write":
        return {}
    if call.path and "\n" not in call.path:
        return {} if "://" in call.path else {call.path: "written" if call.reading.is_whole else "edited"}
    patched = [one for text in call.input.values() if isinstance(text, str) for one in PATCHED.findall(text)]
    return {path: f"moved to {to}" if to else _PATCHING[act] for act, path, to in patched}


class Replacement(NamedTuple):
    """Texts of an edit."""

    old: str
    """Text that the edit replaces."""
    new: str


def edit_of(call: Call) -> Replacement:
    """Return the texts of an edit; each is empty if the call has no such argument."""
    return Replacement(argument(call.input, _OLD), argument(call.input, _NEW))


def _tried(arguments: Mapping[str, Any], command: str) -> str:
    """Return the first line that an edit adds, or if it adds none, the first that it replaces. A comment is returned
    only if there is no other line."""
    old, new = argument(arguments, _OLD), argument(arguments, (*_NEW, "patch", "content"))
    new = new or "\n".join(line[1:] for line in command.splitlines() if line[:1] == "+")
    old_lines = {"", *map(str.strip, old.splitlines())}
    lines = [line for line in map(str.strip, new.splitlines()) if line not in old_lines]
    lines = lines or [old.strip().partition("\n")[0]]
    return next((line for line in lines if not _REMARK.match(line)), lines[0])[:ATTEMPT_CHARACTERS]


def _changes_branch(command: Command) -> bool:
    """Return True for a command that goes to another branch: ``git switch main``, ``git checkout -b fix``; not ``git
    checkout -- src/a.py``."""
    forms = (("git", "checkout"), ("git", "switch"), ("gh", "pr", "checkout"))
    return "--" not in command.words and any(command.starts(*words) for words in forms)


_DEFINITION = lazy_pattern(
    r"[ \t]{0,8}"
    r"(?:(?:export|default|public|private|protected|static|async|abstract|final|pub|unsafe)[ \t]){0,4}"
    r"(?:def|class|func|function|fn|interface|type|struct|enum|trait|impl|module"
    r"|(?<![ \t])const|(?<=export )const|(?<=pub )const)"
    r"[ \t]{1,4}(?:\([^()\n]{0,60}\)[ \t]{0,2})?[A-Za-z_]"
)
"""Beginning of a function, type or constant of a module: ``func (s *Store) Save(``, ``export class Foo``, ``const
LIMIT``; not ``return type(x)``, nor a ``const`` within a function."""
_BEFORE_CODE = lazy_pattern(r"(?:\+|\s{0,8}\d{1,9}(?:→|\t| \| ))?")
"""Mark of a viewer or a diff before a line of code: ``12→``, ``+``."""


def defines(line: str) -> bool:
    """Return True for a line that defines a function, type or constant."""
    before = _BEFORE_CODE.match(line)
    return _DEFINITION.match(line[before.end() :] if before else line) is not None
