"""Effects on the world outside of the conversation, such as bookings and payments, and what is still pending.

An action is a call that changes the outside world; its receipt is the part of its result that was not known before.
Calls are recognised as actions by the declaration or the name of their tool, their arguments and their result. Nothing
here depends on a language, a product or a trade.

Pending are calls that still run, questions, and the agent's task lists in the form of any host. Notes by our tool
``note`` are stored nowhere else: they are read from the calls that wrote them. A failed call changes no list and no
note. Tools of servers keep lists of other people and are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

from planner.evidence.calls import Call
from planner.evidence.hosts import is_question, is_running, running_id
from planner.evidence.turns import EndedCall, Evidence, TurnEvidence, call_head, shortened
from planner.evidence.words import figures_of, specifics_of
from planner.reading.lazy import lazy_pattern
from planner.reading.messages import parsed_result

ACTION_CHARACTERS, RECEIPT_CHARACTERS = 240, 160
"""Largest lengths of an action and of a receipt as they are shown."""
MOST_LATER = 32
"""Largest number of later successes of the same tool with which a failed action is compared."""
KNOWN_SHARE = 2 / 3
"""Smallest share of the fields of a long result that must be known already for it to be the receipt of an action. With
fewer known fields it is the answer to a question."""
ARGUMENT_CHARACTERS = 80
"""Largest length of one argument or field as it is shown."""


class CallPlace(NamedTuple):
    """Place of a call in the history."""

    turn_id: str
    number: int
    """Index of the call in its turn, from 0."""


class Pending(NamedTuple):
    """Something that waits for an end or an answer."""

    turn_id: str
    text: str
    """Description of the call, or the question."""


class _JsonField(NamedTuple):
    """One innermost value in a JSON object, as words, with its key."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Effect:
    """One completed action."""

    turn_id: str
    action: str
    """Tool and arguments."""
    receipt: str
    """New part of the result."""

    def text(self, share: float = 1.0) -> str:
        """Return the action with its receipt in one line.

        The action is cut to `share` of `ACTION_CHARACTERS`, the receipt to `share` of `RECEIPT_CHARACTERS`.
        """
        action = shortened(self.action, round(share * ACTION_CHARACTERS))
        receipt = shortened(self.receipt, round(share * RECEIPT_CHARACTERS))
        return f"{action} → {receipt}" if receipt else action


def effects(evidence: Evidence) -> list[Effect]:
    """Return the actions that succeeded, in order.

    Calls of a tool without declaration are left out if earlier actions of this tool contain all their names. Of actions
    with equal texts only the last one is returned.
    """
    names_by_tool: dict[str, set[str]] = {}
    shown: set[_JsonField] = set()  # fields of all results so far
    effect_by_text: dict[str, Effect] = {}
    acting_calls = evidence.once(_acting)
    for turn, call, outcome in evidence.ended_calls():
        fields = _fields(call.text)
        is_acting = CallPlace(turn.turn.id, call.number) in acting_calls
        if is_acting and outcome.status != "failed" and not outcome.refused:
            names = turn.once(_names_of_acts)[call.number]
            has_new_name = not names <= names_by_tool.setdefault(call.name, set())
            names_by_tool[call.name] |= names
            if has_new_name or call.use is not None:
                action = f"{call.name} {_listed(_arguments(call.input))}".strip()
                effect = Effect(turn.turn.id, action, _receipt(call, fields, shown))
                effect_by_text.pop(effect.text(), None)
                effect_by_text[effect.text()] = effect
        shown.update(fields)
    return list(effect_by_text.values())


def _names_of_acts(turn: TurnEvidence) -> dict[int, frozenset[str]]:
    """Return the names and figures in the arguments and the result of each call that may act, by call number."""
    names: dict[int, frozenset[str]] = {}
    for call in turn.calls:
        if call.acts or call.may_act:
            texts = call.text, json.dumps(call.input, ensure_ascii=False, default=str)
            names[call.number] = frozenset(chain(*map(specifics_of, texts), *map(figures_of, texts)))
    return names


def _calls_that_act(turn: TurnEvidence) -> frozenset[int]:
    return frozenset([call.number for call in turn.calls if call.acts])


def retried(evidence: Evidence) -> dict[str, CallPlace]:
    """Return the later success of each failed action, by the id of the failed turn.

    It is one of the next `MOST_LATER` successes of the same tool. Among these it is the one that has the most arguments
    in common with the failed call, of equals the earliest.
    """
    later_successes: dict[str, list[EndedCall]] = {}  # by tool, the earliest last
    success_of_turn: dict[str, CallPlace] = {}
    acting = evidence.once(_acting)
    for ended in reversed(evidence.ended_calls()):
        call, outcome = ended.call, ended.outcome
        is_action = CallPlace(ended.turn.turn.id, call.number) in acting
        of_tool = later_successes.setdefault(call.name, [])
        if is_action and outcome.status in ("done", "passed"):
            of_tool.append(ended)
        elif (is_action or call.may_act) and outcome.status == "failed" and not outcome.refused and of_tool:
            next_ones = of_tool[-MOST_LATER:][::-1]  # the earliest first, as `max` returns the first of equals
            best = max(next_ones, key=lambda success: _shared_arguments(call, success.call))
            success_of_turn[ended.turn.turn.id] = CallPlace(best.turn.turn.id, best.call.number)
    return success_of_turn


def _acting(evidence: Evidence) -> frozenset[CallPlace]:
    """Return the places of the calls that changed the world. Many services answer an action with the whole record that
    it changed or created: a long result, but most of its fields are known from the arguments or earlier results."""
    shown: set[_JsonField] = set()
    texts: set[str] = set()
    acting: set[CallPlace] = set()
    for turn, call, _ in evidence.ended_calls():
        fields = _fields(call.text)
        is_new_record = call.may_act and call.text.lstrip()[:1] == "{" and call.text not in texts
        if call.number in turn.once(_calls_that_act) or (is_new_record and _restates(call, fields, shown)):
            acting.add(CallPlace(turn.turn.id, call.number))
        shown.update(fields)
        texts.add(call.text)
    return frozenset(acting)


def _restates(call: Call, fields: Sequence[_JsonField], shown: set[_JsonField]) -> bool:
    """Return True if at least `KNOWN_SHARE` of `fields` are arguments of `call` or fields of earlier results."""
    inputs = {argument.value for argument in _leaves("", call.input)}
    known = [one for one in fields if one in shown or one.value in inputs]
    return len(known) >= KNOWN_SHARE * max(1, len(fields))


def _shared_arguments(call: Call, other: Call) -> int:
    return sum(1 for key, value in call.input.items() if other.input.get(key) == value)


def _arguments(arguments: Mapping[str, object]) -> Iterator[_JsonField]:
    """Yield each argument as one field, even if its value is a nested object."""
    return (_JsonField(str(key), _plain(value)) for key, value in arguments.items())


def _receipt(call: Call, fields: Sequence[_JsonField], shown: set[_JsonField]) -> str:
    """Return the new part of a result in one line, without the marks of JSON.

    `fields`: all fields of the result; without any, the whole result is returned. `shown`: fields of earlier results.
    A field is new if it is neither in `shown` nor an argument. Fields that are true stay, and so do those that the
    tool's declaration keeps, which come first. If no field is new, the first one stays.
    """
    if not fields:
        return " ".join(call.text.split())
    inputs = {argument.value for argument in _arguments(call.input)}
    kept = call.use.keep_fields if call.use is not None else ()
    news = [
        one for one in fields if one.key in kept or one.value == "true" or not (one in shown or one.value in inputs)
    ]
    news.sort(key=lambda one: one.key not in kept)
    return " ".join(_listed(news or fields[:1]).split())


def _fields(text: str) -> list[_JsonField]:
    """Return the fields of a result in JSON, including nested ones; an empty list for other results."""
    parsed = parsed_result(text)
    return list(_leaves("", parsed)) if parsed is not None else []


def _leaves(key: str, value: object) -> Iterator[_JsonField]:
    """Yield a field for each innermost value of `value`. `key` is the key of `value` itself, and of items of a list."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(str(name), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(key, inner)
    else:
        yield _JsonField(key, _plain(value))


def _plain(value: object) -> str:
    """Return a value of JSON as words: ``Vienna, nights: 2``."""
    if isinstance(value, Mapping):
        text = _listed(_arguments(value))
    elif isinstance(value, str):
        text = " ".join(value.split())
    elif isinstance(value, Sequence):
        text = ", ".join(map(_plain, value))
    else:
        text = json.dumps(value)
    return shortened(text, ARGUMENT_CHARACTERS)


def _listed(fields: Iterable[_JsonField]) -> str:
    """Return fields in one line: ``NORDL26, nights: 2, 3``. A value is shown without its key if it has letters, other
    than ``true``, ``false`` and ``null``, or if the field before it has the same key."""
    listed, key_before = [], ""
    for key, value in fields:
        is_clear = key == key_before or (value not in ("true", "false", "null") and any(map(str.isalpha, value)))
        listed.append(value if is_clear or not key else f"{key}: {value}")
        key_before = key
    return ", ".join(listed)


def open_calls(evidence: Evidence) -> Iterator[Pending]:
    """Yield each call before the live tail that still runs or has no result.

    The host gives each running call an id. The call has ended if a later call has this id as an argument, or if the
    host mentions it in a notice. It has not if these report that it still runs.
    """
    running: dict[str, Pending] = {}  # by the call's head, its description in a few words
    head_of_id: dict[str, str] = {}  # heads of running calls, by the host's ids
    for turn in evidence.turns.values():
        for _, call, outcome in turn.ended_calls:
            mentioned_ids = head_of_id.keys() & set(map(str, call.input.values()))
            if outcome.status in ("running", "unanswered"):
                if not mentioned_ids and not turn.turn.live:
                    head = call_head(call, evidence.root)
                    running[head] = Pending(turn.turn.id, f"{head}: {outcome.status}")
                    head_of_id[running_id(call.text) or head] = head
            elif not outcome.refused:
                _forget(mentioned_ids, head_of_id, running)
        if head_of_id and (notices := _notices(turn)):
            _forget([name for name in head_of_id if any(name in text for text in notices)], head_of_id, running)
    yield from running.values()


def _forget(ended_ids: Iterable[str], head_of_id: dict[str, str], running: dict[str, Pending]) -> None:
    """Remove the calls with these ids from both mappings of `open_calls`."""
    for call_id in ended_ids:
        running.pop(head_of_id.pop(call_id), None)


def _notices(turn: TurnEvidence) -> list[str]:
    """Return the host's blocks in `turn`, as texts, except results of calls and reports that a command still runs."""
    results = {call.result_block for call in turn.calls}
    blocks: dict[int, list[str]] = {}
    for line in turn.lines.of_sources("host", "tool"):
        if line.block not in results and line.part != "call":
            blocks.setdefault(line.block, []).append(line.text)
    return ["\n".join(texts) for texts in blocks.values() if not any(map(is_running, texts))]


def unanswered_questions(evidence: Evidence) -> Iterator[Pending]:
    """Yield the agent's last question in a message without calls, if the user has not written since. The live tail is
    not read."""
    for turn in reversed(evidence.turns.values()):
        if turn.user_lines:
            return
        asked = [line.text.strip() for line in turn.lines.of_part("assistant") if is_question(line.text)]
        if turn.turn.kind == "assistant" and asked and not turn.turn.live:
            yield Pending(turn.turn.id, asked[-1])
            return


_WRITES_LIST = lazy_pattern(r"(?!mcp__).*(?:todo|(?:update|set)_?plan|task_?(?:list|tracker))", re.I)
"""Names of tools that write a whole list: ``TodoWrite``, ``write_todos``, ``update_plan``, ``task_tracker``; not
``plan_trip``, ``ExitPlanMode``, ``mcp__shop__todo``."""
_MAKES_TASK = lazy_pattern(r"task_?create|create_?task", re.I)
"""Names of tools that create one task: ``TaskCreate``; not ``create_task_force``, ``mcp__tracker__create_task``."""
_UPDATES_TASK = lazy_pattern(r"task_?update|update_?task", re.I)
_CHECKBOX = lazy_pattern(r"^[ \t]{0,80}(?:[-*] |\d{1,4}\. )?\[([ xX~/-]?)\] +(\S.*)$", re.M)
"""An item of a list in Markdown: ``- [x] Read it``, ``[-] Fix it``; not ``[1] a reference``."""
_STATUS_OF_MARK = {"x": "completed", "-": "in_progress", "~": "in_progress", "/": "in_progress"}
"""Status of an item by the mark in its box; any other mark means ``pending``."""
_NUMBER = lazy_pattern(r"(?:#|\b)(\d{1,9})\b")
"""Number of a created task in a tool's answer: ``Task #5 created``, ``{"id": "5"}``."""
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
    """Return the present lists with tasks: the last one that was written whole, and the tasks created one by one."""
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
            number_match = _NUMBER.search(call.text[:300])
            number = number_match[1] if number_match else str(len(tasks_by_number) + 1)
            tasks_by_number[number] = Task(_first(arguments, _TEXT_KEYS), _status(arguments), turn_id, number)
        elif _UPDATES_TASK.fullmatch(call.name) and (task := tasks_by_number.get(_first(arguments, _ID_KEYS))):
            text, status = _first(arguments, _TEXT_KEYS) or task.text, str(arguments.get("status") or task.status)
            tasks_by_number[task.number] = Task(text, status, turn_id, task.number)
    return [tasks for tasks in (written, tuple(tasks_by_number.values())) if tasks]


def written_tasks(call: Call) -> tuple[Task, ...] | None:
    """Return the tasks of the whole list that `call` writes; None if it writes none. The list may be empty."""
    if (checklist := call.input.get("task_progress")) is not None:  # of any call of Cline and similar agents
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
        notes.pop(str(call.input.get("remove")), None)
        if text := _folded(call.input.get("text")):
            kind = call.input.get("kind")
            known: NoteKind = next((one for one in get_args(NoteKind) if one == kind), "fact")
            key = note_id(kind if isinstance(kind, str) else "", text)
            notes[key] = Note(known, text[:MOST_CHARACTERS], turn.turn.id)
    return list(notes.values())[-MOST_NOTES:]


def _folded(text: object) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""
