"""What a history changed: the files that were written, and in each the functions that were edited or defined.

Reads calls and their results alone; of a function that an edit does not show, the file as it was last seen tells.
Tells the old text of an edit from the new.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from planner.evidence.calls import PATCHED, REMARK, Call
from planner.evidence.gather import Evidence, TurnEvidence
from planner.evidence.names import definitions_in
from planner.evidence.shell import Command, shell_changes
from planner.reading.lines import Line, call_parts
from planner.reading.patterns import lazy_pattern

__all__ = [
    "FileChange",
    "changed_paths",
    "edit_sides",
    "file_changes",
    "known_path",
    "unchanged_lines",
]

NEW_TEXT, OLD_TEXT = ("content", "file_text", "new_string", "new_str", "new_source"), ("old_string", "old_str")
"""Where calls that write keep what they write, and what they replace."""
PROSE = (".md", ".mdx", ".rst", ".txt", ".adoc")
"""Files that tell of code and define none, as far as their names say."""
_PART = lazy_pattern(r"\w+")
_HUNK = lazy_pattern(r"^@@ (.*)$", re.M)
"""Where a hunk of a patch is: ``@@ def load(self):``; not ``@@``."""


@dataclass
class FileChange:
    """What was done to one file."""

    path: str
    turns: list[str] = field(default_factory=list)
    """Those that changed it."""
    failed_turn: str = ""
    """Where the last attempt to change it failed."""
    failed_last: bool = False
    by_command: str = ""
    """How a shell command changed it last, in words; empty where a tool that edits did."""
    undone: str = ""
    """The command that took back all changes of the repository since."""
    written: bool = False
    """True if its whole text was written."""
    defines: list[str] = field(default_factory=list)
    edits: list[str] = field(default_factory=list)
    """Functions and types that edits were in."""


def file_changes(evidence: Evidence) -> list[FileChange]:
    """The files that were written, in the order of their first change."""
    changes: dict[str, FileChange] = {}
    for turn, call, outcome in evidence.ended_calls():
        if call.kind == "run" and outcome.status not in ("failed", "running", "unanswered"):
            _note_commands(changes, call, turn.turn.id)
        for path, old, new in () if turn.is_refused(call) else written_texts(call):
            change = changes.setdefault(path, FileChange(path))
            change.failed_last = outcome.status == "failed"
            if change.failed_last:
                change.failed_turn = turn.turn.id
            else:
                change.turns.append(turn.turn.id)
                change.by_command = change.undone = ""
                change.written = not old and bool({"content", "file_text"} & call.input.keys())
                _note_names(change, old, new)
    return list(changes.values())


def written_texts(call: Call) -> Iterator[tuple[str, str, str]]:
    """Path, old and new text of what a call changes."""
    if call.kind != "write":
        return
    if call.path and "\n" not in call.path:
        old, new = _values(call, OLD_TEXT), _values(call, NEW_TEXT)
        yield call.path, old, new
        return
    patch = next((value for value in call.input.values() if isinstance(value, str)), "")
    starts = list(PATCHED.finditer(patch))
    for at, start in enumerate(starts):
        body = patch[start.end() : starts[at + 1].start() if at + 1 < len(starts) else len(patch)]
        lines = _HUNK.sub(r" \1", body).split("\n")
        old = "\n".join(line[1:] for line in lines if line[:1] in ("-", " "))
        yield start[1], old, "\n".join(line[1:] for line in lines if line[:1] in ("+", " "))


def changed_paths(call: Call) -> Iterator[str]:
    """The files that a call changes."""
    yield from (path for path, _, _ in written_texts(call))
    yield from (path for path, _ in (shell_changes(call.commands) if call.kind == "run" else ()))


def _taking_back(command: Command) -> str:
    """What of a command takes back changes of the whole repository: ``git reset --hard``; not ``git stash pop``."""
    words = [word for word in command.words[:4] if word != "--"][:3]
    if words[:2] == ["git", "stash"]:
        return "" if words[2:] and words[2] in _STASHED else "git stash"
    takes = words[:2] in (["git", "checkout"], ["git", "restore"]) and words[2:] == ["."]
    return " ".join(words) if takes or words == ["git", "reset", "--hard"] else ""


_STASHED = frozenset({"pop", "apply", "list", "show", "drop", "branch", "clear"})
"""What ``git stash`` does to what is put away already."""


def known_path(path: str, known: Iterable[str]) -> str:
    """The one of `known` that a relative `path` ends, else `path`."""
    ending = f"/{path.removeprefix('./')}"
    return next((one for one in known if one == path or (path[:1] != "/" and one.endswith(ending))), path)


def _note_commands(changes: dict[str, FileChange], call: Call, turn_id: str) -> None:
    brings_back = any(one.starts("git", "stash", act) for one in call.commands for act in ("pop", "apply"))
    taken_back = next(filter(None, map(_taking_back, call.commands)), "")
    for change in changes.values():
        if brings_back:
            change.undone = ""
        elif taken_back:
            change.undone = taken_back
            change.turns.append(turn_id)
    for path, how in shell_changes(call.commands):
        path = known_path(path, changes)
        change = changes.setdefault(path, FileChange(path))
        change.turns.append(turn_id)
        change.by_command, change.failed_last = how, False
        change.defines, change.edits = [], []


def edit_sides(call: Call, lines: Sequence[Line]) -> Mapping[int, str]:
    """For the lines of a call that edits: ``-`` for the old text, ``+`` for the new, by line number, and ``=`` for
    what stands in both.

    `lines` are all those of the call's block.
    """
    if call.kind != "write":
        return {}
    parts = [key for key, count in call_parts(call.name, call.input) for key in ("", *[key] * (count - 1))]
    sides: dict[str, dict[int, str]] = {"-": {}, "+": {}}
    for line, key in zip(lines, parts, strict=False):
        if side := "-" if key in OLD_TEXT else "+" if key in NEW_TEXT else "":
            sides[side][line.number] = line.text.strip()
    same = {*sides["-"].values()} & {*sides["+"].values()} - {""}
    return {number: "=" if text in same else side for side, own in sides.items() for number, text in own.items()}


def unchanged_lines(turn: TurnEvidence) -> frozenset[int]:
    """Numbers of the lines that edits of `turn` took over from the old text: they only say where."""
    sides = (edit_sides(call, turn.lines_of(call.block)) for call in turn.calls)
    return frozenset(number for own in sides for number, side in own.items() if side == "=")


def _values(call: Call, keys: Sequence[str]) -> str:
    return "\n".join(value for key in keys if isinstance(value := call.input.get(key), str))


def _note_names(change: FileChange, old: str, new: str) -> None:
    before, own = _bodies(old), {} if change.path.endswith(PROSE) else _bodies(new)
    gone = {*_PART.findall(old)} - {*_PART.findall(new)}
    for names in (change.defines, change.edits):
        names[:] = [name for name in names if gone.isdisjoint(_PART.findall(name))]
    _put_first(change.defines, [name for name in own if name not in before])
    edited = [name for name, body in own.items() if before.get(name, body) != body]
    _put_first(change.edits, [name for name in edited if name not in change.defines])


def _bodies(code: str) -> dict[str, list[str]]:
    """What `code` defines, each with its lines up to the next one, but for remarks and marks alone."""
    found = definitions_in(code)
    places = pairwise([*(match.start() for match in found), len(code)])
    texts = {match["name"]: code[start:stop] for match, (start, stop) in zip(found, places, strict=True)}
    return {
        name: [line for line in map(str.strip, text.split("\n")) if not REMARK.match(line)]
        for name, text in texts.items()
    }


def _put_first(names: list[str], newer: Sequence[str]) -> None:
    fresh = dict.fromkeys(newer)
    names[:] = [*fresh, *(name for name in names if name not in fresh)]
