"""Tools of programming: shells, editors and patches. Reads a call's commands, its files and its effect on them, and
recognises lines of code that define a function, type or constant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.evidence.calls import Call, CallKind, CallReading, argument
from planner.programming.shell import SAYING, Command, commands_of, is_looking, shell_changes
from planner.reading.patterns import lazy_pattern

__all__ = ["commands_in", "defines", "edit_of", "folder_of", "read_tool", "writes_of"]

_COMMANDS = ("command", "cmd", "script", "code", "input")
_FOLDERS = ("workdir", "cwd", "working_directory", "working_dir")
_OLD, _NEW = ("old_string", "old_str"), ("new_string", "new_str")
_WHOLE = ("content", "file_text")
_SHELL = lazy_pattern(r"bash|shell|exec|run|terminal|command|python", re.I)
_PROCESS = lazy_pattern(r"stdin|(?:Bash|Shell|Process|Command|Task)_?Output", re.I)
"""Tools that continue a running command: ``write_stdin``, ``BashOutput``."""
_CLUSTER = "kubectl"
"""Part of the names of tools that change a cluster, not the files that they read."""
_LOOKS = frozenset({"view", "read", "open", "show", "list"})
"""Commands of editors that change nothing."""
PATCHED = lazy_pattern(r"^\*\*\* (Add|Update|Delete) File: (\S.*)(?:\n\*\*\* Move to: (\S.*))?$", re.M)
"""File of a patch in Codex's form: ``*** Update File: src/a.ts``, with its new place if it is moved."""
_PATCHING = {"Add": "written", "Update": "edited", "Delete": "removed"}
_LEAD = lazy_pattern(r"^(?:cd \S+ && )+(?=\S)")
"""Changes of folder before a command, which a short head leaves out: ``cd /srv/app && `` of ``cd /srv/app && npm
test``; not ``cd /srv`` alone."""
LEAD_CHARACTERS = 400
"""Number of first characters of a command that are searched for these."""
_REMARK = lazy_pattern(r"//|/?\*|#(?!include)|--|<!--|\W*$")
"""Comment, or a line of marks alone: ``// Load it``, ``})``."""


def read_tool(name: str, arguments: Mapping[str, Any], reading: CallReading) -> CallReading:
    """Return `reading` with the kind, command, files and edited texts of a call of a programming tool."""
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
    """Return the kind of a call: ``read`` or ``run`` for a shell, by its first command with an effect or a result; else
    the general `kind`, corrected for editors that only look."""
    if kind == "ask" or _CLUSTER in name:
        return "other" if kind == "write" else kind
    if _PROCESS.search(name):
        return "run"
    if commands:
        first = next((one for one in commands if one.words[0] not in SAYING), commands[0])
        return "read" if is_looking(first) and not shell_changes(commands) else "run"
    if kind == "other" and _SHELL.search(name):
        return "run"
    return "read" if kind == "write" and command in _LOOKS else kind


def commands_in(call: Call) -> tuple[Command, ...]:
    """Return the commands that a call runs in a shell; none for ``code`` in another language."""
    return _commands(call.name, call.input, call.command)


def _commands(name: str, arguments: Mapping[str, Any], command: str) -> tuple[Command, ...]:
    is_shell = _SHELL.search(name) is not None and command != arguments.get("code")
    return commands_of(command) if command and is_shell and not _is_script(name, arguments, command) else ()


def is_script(call: Call) -> bool:
    """Return True for a script of Codex, which calls tools not visible in its text."""
    return _is_script(call.name, call.input, call.command)


def _is_script(name: str, arguments: Mapping[str, Any], command: str) -> bool:
    """Return True for Codex's tool ``exec`` with a script instead of a shell line."""
    return name == "exec" and command == arguments.get("input")


def folder_of(call: Call) -> str:
    """Return the absolute folder in which a call runs; empty if its arguments name none."""
    folder = argument(call.input, _FOLDERS)
    return folder.rstrip("/") if folder.startswith("/") else ""


def writes_of(call: Call) -> Mapping[str, str]:
    """Return the kind of change of each file that an editing tool changes, by path, such as ``edited``; empty for other
    tools, and for an address such as ``conflict://7``."""
    if call.kind != "write":
        return {}
    if call.path and "\n" not in call.path:
        return {} if "://" in call.path else {call.path: "written" if call.reading.is_whole else "edited"}
    patched = [one for text in call.input.values() if isinstance(text, str) for one in PATCHED.findall(text)]
    return {path: f"moved to {to}" if to else _PATCHING[act] for act, path, to in patched}


def edit_of(call: Call) -> tuple[str, str]:
    """Return the text that an edit replaces, and the new text; each is empty if the call has no such argument."""
    return argument(call.input, _OLD), argument(call.input, _NEW)


def _tried(arguments: Mapping[str, Any], command: str) -> str:
    """Return the first line that a change adds, or if none, replaces; at most 80 characters; comments last."""
    old, new = argument(arguments, _OLD), argument(arguments, (*_NEW, "patch", "content"))
    new = new or "\n".join(line[1:] for line in command.splitlines() if line[:1] == "+")
    old_lines = {"", *map(str.strip, old.splitlines())}
    lines = [line for line in map(str.strip, new.splitlines()) if line not in old_lines]
    lines = lines or [old.strip().partition("\n")[0]]
    return next((line for line in lines if not _REMARK.match(line)), lines[0])[:80]


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
"""A function, type or constant of a module: ``func (s *Store) Save(``, ``export class Foo``, ``const LIMIT``; not
``return type(x)``, nor a ``const`` within a function."""
_BEFORE_CODE = lazy_pattern(r"(?:\+|\s{0,8}\d{1,9}(?:→|\t| \| ))?")
"""Marks of viewers and diffs before a line of code: ``12→``, ``+``."""


def defines(line: str) -> bool:
    """Return True for a line that defines a function, type or constant."""
    before = _BEFORE_CODE.match(line)
    return _DEFINITION.match(line[before.end() :] if before else line) is not None
