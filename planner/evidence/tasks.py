"""Task lists and notes that the agent keeps with its tools: tasks in the form of any host, notes by our tool ``note``.

Some tools write the whole list each time; others create and update one task. A failed call changes nothing. Tools of
servers keep lists of other people and are not read. Notes are stored nowhere else: they are read from the calls that
wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal, get_args

from planner.evidence.calls import Call
from planner.evidence.turns import Evidence
from planner.reading.messages import parsed_result
from planner.reading.patterns import lazy_pattern

_WRITES_LIST = lazy_pattern(r"(?!mcp__).*(?:todo|(?:update|set)_?plan|task_?(?:list|tracker))", re.I)
"""Names of tools that write a whole list: ``TodoWrite``, ``write_todos``, ``update_plan``, ``task_tracker``; not
``plan_trip``, ``ExitPlanMode``, ``mcp__shop__todo``."""
_MAKES_TASK = lazy_pattern(r"task_?create|create_?task", re.I)
"""Names of tools that create one task: ``TaskCreate``, ``create_task``; not ``create_task_force``,
``mcp__tracker__create_task``."""
_UPDATES_TASK = lazy_pattern(r"task_?update|update_?task", re.I)
_CHECKLIST_KEY = "task_progress"
"""Argument of any call in which Cline and similar agents write their list of tasks."""
_CHECKBOX = lazy_pattern(r"^[ \t]{0,80}(?:[-*] |\d{1,4}\. )?\[([ xX~/-]?)\] +(\S.*)$", re.M)
"""An item of a list in Markdown: ``- [x] Read it``, ``[-] Fix it``; not ``[1] a reference``."""
_STATUS_OF_MARK = {"x": "completed", "-": "in_progress", "~": "in_progress", "/": "in_progress"}
"""Status of an item by the mark in its box; any other mark means ``pending``."""
_NUMBER = lazy_pattern(r"(?:#|\b)(\d{1,9})\b")
"""Number of a created task in a tool's answer: ``Task #5 created``, ``{"id": "5"}``."""
NUMBER_CHARACTERS = 300
"""Number of first characters of a tool's answer that are searched for the number of a task."""
_TEXT_KEYS = ("content", "step", "title", "text", "subject", "task", "description")
_ID_KEYS = ("taskId", "task_id", "id")
_CLOSED = frozenset({"completed", "complete", "done", "cancelled", "canceled", "deleted", "closed"})


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a list."""

    text: str
    status: str
    """Status in the host's words; ``pending`` by default."""
    turn_id: str = ""
    """Id of the turn that set this status."""
    number: str = ""
    """Number by which its tool updates the task; empty for an item of a list that is written whole."""

    @property
    def is_open(self) -> bool:
        """True unless the task is completed, cancelled or deleted."""
        return self.status.casefold() not in _CLOSED


def task_lists(evidence: Evidence) -> list[tuple[Task, ...]]:
    """Return the present lists that are not empty: the last one that was written whole, and the tasks that were created
    one by one."""
    written: tuple[Task, ...] = ()
    tasks_by_number: dict[str, Task] = {}
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status in ("failed", "unanswered"):
            continue
        turn_id, arguments = turn.turn.id, call.input
        tasks = written_tasks(call)
        if tasks is not None:
            written = tuple(replace(task, turn_id=turn_id) for task in tasks)
        elif _MAKES_TASK.fullmatch(call.name):
            number_match = _NUMBER.search(call.text[:NUMBER_CHARACTERS])
            number = number_match[1] if number_match else str(len(tasks_by_number) + 1)
            tasks_by_number[number] = Task(_first(arguments, _TEXT_KEYS), _status(arguments), turn_id, number)
        elif _UPDATES_TASK.fullmatch(call.name) and (task := tasks_by_number.get(_first(arguments, _ID_KEYS))):
            text, status = _first(arguments, _TEXT_KEYS) or task.text, str(arguments.get("status") or task.status)
            tasks_by_number[task.number] = Task(text, status, turn_id, task.number)
    return [tasks for tasks in (written, tuple(tasks_by_number.values())) if tasks]


def written_tasks(call: Call) -> tuple[Task, ...] | None:
    """Return the tasks of the whole list that `call` writes; None if it writes none. The list may be empty."""
    if (checklist := call.input.get(_CHECKLIST_KEY)) is not None:
        return tuple(_items(checklist)) or None
    if not _WRITES_LIST.match(call.name):
        return None
    lists = [tuple(_items(value)) for value in call.input.values() if isinstance(value, list | dict | str)]
    return next((items for items in lists if items), () if [] in call.input.values() else None)


def _items(value: object) -> Iterator[Task]:
    """Yield the tasks in a list of objects, an object that contains one, JSON text, or a Markdown checklist."""
    if isinstance(value, str):
        for mark, text in _CHECKBOX.findall(value):
            yield Task(text.strip(), _STATUS_OF_MARK.get(mark.lower(), "pending"))
        value = parsed_result(value)
    if isinstance(value, Mapping):
        value = next((inner for inner in value.values() if isinstance(inner, list)), None)
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, Mapping) and (text := _first(entry, _TEXT_KEYS)):
            yield Task(text, _status(entry))


def _status(entry: Mapping[str, Any]) -> str:
    return str(entry.get("status") or "pending")


def _first(entry: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    """Return the first text or whole number that `entry` has under one of `keys`, as text; "" without one."""
    values = (str(value) for key in keys if isinstance(value := entry.get(key), str | int))
    return next((value for value in values if value.strip()), "")


NoteKind = Literal["decision", "fact", "open"]
MOST_NOTES, MOST_CHARACTERS = 40, 600
"""Largest number of notes in a view, and of characters of each."""
_OWN_TOOL = lazy_pattern(r"(?:mcp__compactor__|compactor[-_])?note")
"""Names of our tool ``note`` in various clients; not ``mcp__tracker__note``."""


@dataclass(frozen=True, slots=True)
class Note:
    """One note of the agent."""

    kind: NoteKind
    text: str
    turn_id: str
    """Id of the turn that wrote it."""


def note_id(kind: str, text: str) -> str:
    """Return the id by which the agent can remove a note. Texts that differ only in white space have the same id."""
    return f"n{sha256(f'{kind} {_folded(text)}'.encode('utf-8', 'replace')).hexdigest()[:6]}"


def written_notes(evidence: Evidence) -> list[Note]:
    """Return the newest `MOST_NOTES` notes that were not removed, the oldest first. Equal notes are returned once."""
    notes: dict[str, Note] = {}
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status == "failed" or not _OWN_TOOL.fullmatch(call.name):
            continue
        notes.pop(_argument(call, "remove"), None)
        kind, text = _argument(call, "kind"), _folded(_argument(call, "text"))
        if text:
            known: NoteKind = next((one for one in get_args(NoteKind) if one == kind), "fact")
            notes[note_id(kind, text)] = Note(known, text[:MOST_CHARACTERS], turn.turn.id)
    return list(notes.values())[-MOST_NOTES:]


def _argument(call: Call, name: str) -> str:
    """Return the argument `name` if it is a text, else ""."""
    value = call.input.get(name)
    return value if isinstance(value, str) else ""


def _folded(text: str) -> str:
    return " ".join(text.split())
