"""Finds what an agent changed in the outside world, such as bookings and payments, and what is still pending.

An action is a tool call that changes the outside world; its receipt is the part of its result that was not known
before. Calls are recognised as actions by the declaration or the name of their tool, their arguments and their result.
Nothing here depends on a language, a product or a trade.

Pending are calls that still run, questions, and the agent's task lists in the form of any host program. Notes by this
package's tool ``note`` are stored nowhere else: they are read from the calls that wrote them. A failed call changes no
list and no note. Tools of servers keep lists of other people and are not read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, get_args

from planner.evidence.calls import NOTE_TOOL, Call, own_tool
from planner.evidence.error_signs import is_state
from planner.evidence.hosts import is_question, is_running, running_id
from planner.evidence.turns import EndedCall, Evidence, TurnEvidence, call_head, shortened
from planner.evidence.words import figures_of, plain_text, specifics_of, values_in, values_of
from planner.reading.lazy import lazy_pattern
from planner.reading.messages import parsed_result

ACTION_CHARACTERS, RECEIPT_CHARACTERS = 240, 160
"""Largest lengths of the text that describes an action, and of the new part of its result."""
MOST_LATER = 32
"""Largest number of later successes of the same tool among which the one that repeats a failed action is looked for."""
KNOWN_SHARE = 2 / 3
"""Smallest share of values in a long JSON result that are known already, if the result is the receipt of an action (the
changed record). With fewer known values, it is the answer to a question."""
ARGUMENT_CHARACTERS = 80
"""Length to which one argument or JSON value is cut in the text about an effect."""
DEEPEST = 8
"""Largest depth of nested values in that text."""


_LONE_KEY = lazy_pattern(r",?(?: [^\s,]{1,40}:)?…$")
"""End of a cut text, with the name of a field that lost its value: ``, amount:…``."""


class CallPlace(NamedTuple):
    """Place of a tool call in the conversation."""

    turn_id: str
    number: int
    """Index of the call in its turn, from 0."""


class Pending(NamedTuple):
    """Tool call that still runs, or question that the user has not answered. A compaction must not forget it."""

    turn_id: str
    text: str
    """Description of the call in a few words, or the question."""


class _JsonField(NamedTuple):
    """One value in a JSON object (a text, number, …, no object or list) as words, with its key."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Effect:
    """Change that one or several equal tool calls made in the outside world: ``book_hotel Vienna, nights: 2``."""

    turn_ids: tuple[str, ...]
    """Id of the turn of each call, in order."""
    action: str
    """Name of the tool, and the arguments, first those that name the object."""
    receipt: str
    """Part of the result that was not known before, such as a booking number."""

    @property
    def tool(self) -> str:
        """Name of the tool."""
        return self.action.partition(" ")[0]

    @property
    def object(self) -> str:
        """First argument, which names what the action changes: ``Vienna``; empty without arguments."""
        return self.action.partition(" ")[2].partition(", ")[0]

    def text(self, share: float = 1.0) -> str:
        """Return the action with the new part of its result on one line: ``book_hotel Vienna → NORDL26``; of several
        calls with their number: ``2× transfer Ada, 50``. The action is cut to `share` of `ACTION_CHARACTERS`, the
        receipt to `share` of `RECEIPT_CHARACTERS`."""
        count = len(self.turn_ids)
        times = "" if count == 1 else f"{count}× "
        action = _cut(self.action, round(share * ACTION_CHARACTERS))
        receipt = _cut(self.receipt, round(share * RECEIPT_CHARACTERS))
        text = f"{times}{action} → {receipt}" if receipt else f"{times}{action}"
        return text.rstrip(": ")  # on a page, a line that ends in a colon is no statement


def _cut(text: str, most: int) -> str:
    """Cut `text` to `most` characters, and add the first field or id with a digit from the part that is left out:
    ``send_mail Your refund… amount: 41.6``. A field that loses its value loses its name, too."""
    if len(text) <= most:
        return text
    kept = _LONE_KEY.sub("…", shortened(text, most))
    left_out = text[len(kept) - 1 :]
    fields = (field for field in left_out.split(", ")[1:] if any(map(str.isdigit, field)))
    names = (name for word in left_out.split() for name in specifics_of(word) if any(map(str.isdigit, name)))
    number = next((part for part in chain(fields, names) if 2 * len(part) < most), "")
    return f"{_LONE_KEY.sub('…', shortened(text, most - len(number) - 1))} {number}" if number else kept


def effects(evidence: Evidence) -> list[Effect]:
    """Return the changes that tool calls made in the outside world, in order, so that no agent repeats them. Equal
    actions with equal receipts are one effect, in the place of the last one. Calls of unanswered turns are left out, as
    these turns stay whole."""
    shown: set[_JsonField] = set()  # fields in the results so far
    acting_calls, done = evidence.once(_acting), list[tuple[str, Call, str]]()
    for turn, call, outcome in evidence.ended_calls():
        fields = _fields(call.text)
        is_acting = CallPlace(turn.turn.id, call.number) in acting_calls and not turn.turn.live
        if is_acting and outcome.status not in ("failed", "unanswered") and not outcome.refused:
            done.append((turn.turn.id, call, _receipt(call, fields, shown)))
        shown.update(fields)
    shared = _shared_arguments(call for _, call, _ in done)
    turns_of_effects: dict[tuple[str, str], tuple[str, ...]] = {}  # by action and receipt
    for turn_id, call, receipt in done:
        effect = _action(call, shared.get(call.name, frozenset())), receipt
        turns_of_effects[effect] = (*turns_of_effects.pop(effect, ()), turn_id)
    return [Effect(turn_ids, action, receipt) for (action, receipt), turn_ids in turns_of_effects.items()]


def _shared_arguments(calls: Iterable[Call]) -> dict[str, frozenset[str]]:
    """Return by tool the names of the arguments that hardly distinguish its `calls`: they have less than half as many
    different values as the argument with most."""
    values: dict[str, dict[str, set[str]]] = {}
    for call in calls:
        for key, value in _arguments(call.input):
            values.setdefault(call.name, {}).setdefault(key, set()).add(value)
    most = {tool: max(map(len, of_keys.values())) for tool, of_keys in values.items()}
    return {
        tool: frozenset(key for key, different in of_keys.items() if 2 * len(different) < most[tool])
        for tool, of_keys in values.items()
    }


def by_weight(all_effects: Sequence[Effect]) -> list[Effect]:
    """Return `all_effects` with the newest one of each tool first, then the second newest of each, and so on, so that
    many calls of one tool, such as moves in a game, do not take the place of one payment. Effects after which the same
    tool changed the same object again come last."""
    of_tool, of_object = Counter[str](), Counter[tuple[str, str]]()
    ranks: dict[Effect, tuple[int, int]] = {}
    for effect in reversed(all_effects):
        of_tool[effect.tool] += 1
        of_object[effect.tool, effect.object] += 1
        ranks[effect] = of_object[effect.tool, effect.object], of_tool[effect.tool]
    return sorted(ranks, key=ranks.__getitem__)


def _action(call: Call, shared: Container[str]) -> str:
    """Return the name of the tool and the arguments on one line: first those that name the object of the action, so
    that they stay if the line is cut, and last those with the names `shared`, which hardly distinguish the calls."""
    objects = _object_of(call)
    arguments = sorted(
        call.input.items(),
        key=lambda item: (item[0] in shared, objects.isdisjoint(_leaves(str(item[0]), item[1]))),
    )
    return f"{call.name} {_listed(_arguments(dict(arguments)))}".strip()


def _calls_that_act(turn: TurnEvidence) -> tuple[int, ...]:
    """Return the indexes of the turn's calls that change the outside world."""
    return tuple([call.number for call in turn.calls if call.acts])


def retried(evidence: Evidence) -> dict[str, CallPlace]:
    """Return for each turn with a failed action the later call that succeeded in its place, so that the failure is not
    shown without it. That call is one of the next `MOST_LATER` successes of the same tool with the same object: the one
    that has the most arguments in common with the failed call, and of several such calls the earliest."""
    later_successes: dict[str, list[EndedCall]] = {}  # by tool, in reverse order
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
            same = [success for success in next_ones if _object_of(call).issubset(_leaves("", success.call.input))]
            if same:
                items = call.input.items()
                best = max(same, key=lambda one: sum(one.call.input.get(key) == value for key, value in items))
                success_of_turn[ended.turn.turn.id] = CallPlace(best.turn.turn.id, best.call.number)
    return success_of_turn


def worked_later(evidence: Evidence) -> dict[str, dict[int, str]]:
    """Return by turn id, and by the number of each call that failed there, the id of the next turn in which the same
    call succeeded, so that nobody takes the failure for the present state. Commands are left out (see `recoveries`)."""
    turn_of_success: dict[bytes, str] = {}  # by the call's identity
    later: dict[str, dict[int, str]] = {}
    for turn, call, outcome in reversed(evidence.ended_calls()):
        if call.kind == "run":
            continue
        if outcome.status in ("done", "passed"):
            turn_of_success[call.identity] = turn.turn.id
        elif outcome.has_failed and not outcome.refused and call.identity in turn_of_success:
            later.setdefault(turn.turn.id, {})[call.number] = turn_of_success[call.identity]
    return later


class LaterReport(NamedTuple):
    """Later result that may report what became of a failed action."""

    turn_id: str
    lines: tuple[int, ...]
    """Numbers of the lines that report it: the first line of the call, and the new line of its result."""


def reported_later(evidence: Evidence) -> dict[CallPlace, LaterReport]:
    """Return for each failed action without a later success the result that may show what became of it: if only the
    answer was lost, the action may have been done. Among the next `MOST_LATER` calls, those count that have the object
    of the action as an argument and a new line in their result. The newest one with a figure of the action's other
    arguments, such as the amount, is returned; if there is none, the newest one that does not act."""
    calls, acting, succeeded = evidence.ended_calls(), evidence.once(_acting), evidence.once(retried)
    reports: dict[CallPlace, LaterReport] = {}
    shown: set[str] = set()  # lines of the results before the action
    for at, (turn, call, outcome) in enumerate(calls):
        place = CallPlace(turn.turn.id, call.number)
        is_action = (place in acting or call.may_act) and place.turn_id not in succeeded
        if is_action and outcome.status == "failed" and not outcome.refused:
            later = list(islice(calls, at + 1, at + 1 + MOST_LATER))[::-1]  # the newest first
            looks = [ended for ended in later if CallPlace(ended.turn.turn.id, ended.call.number) not in acting]
            has_amount = _has_amount_of(call)
            by_amount = (_report_of(call, ended, shown, has_amount) for ended in later)
            by_object = (_report_of(call, ended, shown, _has_word) for ended in looks)
            if report := next(filter(None, chain(by_amount, by_object)), None):
                reports[place] = report
        shown.update(line.text.strip() for line in turn.lines.of_block(call.result_block))
    return reports


def _report_of(
    action: Call, ended: EndedCall, shown: Container[str], may_report: Callable[[str], bool]
) -> LaterReport | None:
    """Return the lines of a later call that may show what became of `action`: of the new lines that `may_report` it,
    the first one with a state, such as ``cancelled``, or else the first. `shown`: result lines before the action."""
    turn, call, outcome = ended
    names = {field.value for field in _object_of(action)}
    is_same = bool(names) and names.issubset(field.value for field in _leaves("", call.input))
    if outcome.status == "failed" or not is_same:
        return None
    lines = turn.lines.of_block(call.result_block)
    new_lines = [line for line in lines if line.text.strip() not in shown and may_report(line.text)]
    if not new_lines:
        return None
    states = [field.value for field in _fields(call.text) if is_state(*field)]
    best = max(new_lines, key=lambda line: any(f'"{state}"' in line.text for state in states))
    return LaterReport(turn.turn.id, (turn.lines.of_block(call.block)[0].number, best.number))


def _has_amount_of(action: Call) -> Callable[[str], bool]:
    """Return a test whether a text has a figure, such as the amount, of the arguments of `action` except its object."""
    names = {field.value for field in _object_of(action)}
    others = (field.value for field in _leaves("", action.input) if field.value not in names)
    amounts = {value for other in others for figure in figures_of(other) for value in values_of(figure)}
    return lambda text: bool(amounts) and not amounts.isdisjoint(values_in(plain_text(text)))


def _has_word(text: str) -> bool:
    return any(map(str.isalnum, text))


def _acting(evidence: Evidence) -> frozenset[CallPlace]:
    """Return the places of the calls that change the outside world: those with `Call.acts`, and those with long results
    of mostly known values, as many services answer an action with the whole record that it changed."""
    shown: set[_JsonField] = set()
    texts: set[str] = set()  # results since the last action, as an action may restore what was before
    texts_of_tools: set[tuple[str, str]] = set()
    acting: set[CallPlace] = set()
    for turn, call, _ in evidence.ended_calls():
        fields, of_tool = _fields(call.text), (call.name, call.text)
        is_known = call.text in texts or of_tool in texts_of_tools
        is_new_record = call.may_act and call.text.lstrip()[:1] == "{" and not is_known
        if call.number in turn.once(_calls_that_act) or (is_new_record and _restates(call, fields, shown)):
            acting.add(CallPlace(turn.turn.id, call.number))
            texts.clear()
        shown.update(fields)
        texts.add(call.text)
        texts_of_tools.add(of_tool)
    return frozenset(acting)


def _restates(call: Call, fields: Sequence[_JsonField], shown: set[_JsonField]) -> bool:
    """Return True if most of the result's `fields` were known before, as arguments or from results so far (`shown`)."""
    inputs = {argument.value for argument in _leaves("", call.input)}
    known = [value for value in fields if value in shown or value.value in inputs]
    return len(known) >= KNOWN_SHARE * max(1, len(fields))


def _object_of(call: Call) -> frozenset[_JsonField]:
    """Return the arguments that name the object of an action: those that the user declared, else the first identifier
    that is no number or date, else the first argument."""
    arguments = list(_leaves("", call.input))
    keys = call.use.object_arguments if call.use is not None else ()
    declared = [argument for argument in arguments if argument.key in keys]
    names = [argument for argument in arguments if argument.value in specifics_of(argument.value)]
    identifiers = [name for name in names if figures_of(name.value) != [name.value]]
    return frozenset(declared or (identifiers or arguments)[:1])


def _arguments(arguments: Mapping[str, object], depth: int = 0) -> Iterator[_JsonField]:
    """Yield each argument of a call, with its value as words. `depth`: how deep the arguments are nested."""
    return (_JsonField(str(key), _plain(value, depth)) for key, value in arguments.items())


def _receipt(call: Call, fields: Sequence[_JsonField], shown: set[_JsonField]) -> str:
    """Return the new part of a call's result on one line. Of JSON these are the `fields` that are neither in earlier
    results (`shown`) nor arguments; in any case those that are true, a state such as ``booked``, or declared to be
    kept, which come first; or else the first one with a value. Other results are returned whole."""
    if not fields:
        return " ".join(call.text.split())
    inputs = {argument.value for argument in _arguments(call.input)}
    kept_keys = call.use.keep_fields if call.use is not None else ()
    filled = [field for field in fields if field.value]
    new_fields = [
        field
        for field in filled
        if field.key in kept_keys
        or field.value == "true"
        or is_state(*field)
        or not (field in shown or field.value in inputs)
    ]
    new_fields.sort(key=lambda field: field.key not in kept_keys)
    return " ".join(_listed(new_fields or filled[:1]).split())


def _fields(text: str) -> list[_JsonField]:
    """Return all values in a JSON result, including nested ones, with their keys; empty for other results."""
    parsed = parsed_result(text)
    return list(_leaves("", parsed)) if parsed is not None else []


def _leaves(key: str, value: object) -> Iterator[_JsonField]:
    """Yield each text, number, … in the JSON data `value` with its key, which items of a list share."""
    waiting: list[tuple[str, object]] = [(key, value)]
    while waiting:  # without recursion, as the data may be nested deeper than calls may
        name, inner = waiting.pop()
        if isinstance(inner, Mapping):
            waiting += [(str(inner_name), item) for inner_name, item in [*inner.items()][::-1]]
        elif isinstance(inner, list):
            waiting += [(name, item) for item in inner[::-1]]
        else:
            yield _JsonField(name, _plain(inner))


def _plain(value: object, depth: int = 0) -> str:
    """Return a JSON value as words, without JSON marks: ``Vienna, nights: 2``. What is nested deeper than `DEEPEST` is
    replaced by ``…``."""
    if depth > DEEPEST:
        text = "…"
    elif isinstance(value, Mapping):
        text = _listed(_arguments(value, depth + 1))
    elif isinstance(value, str):
        text = " ".join(value.split())
    elif isinstance(value, Sequence):
        text = ", ".join(_plain(item, depth + 1) for item in value)
    else:
        text = json.dumps(value)
    return shortened(text, ARGUMENT_CHARACTERS)


def _listed(fields: Iterable[_JsonField]) -> str:
    """Return JSON values on one line, without empty ones: ``NORDL26, nights: 2, 3``. The key is left out if the value
    has letters, so that it is clear by itself, or if the value before has the same key."""
    listed, key_before = [], ""
    for key, value in fields:
        if not value:
            continue
        is_clear = key == key_before or (value not in ("true", "false", "null") and any(map(str.isalpha, value)))
        listed.append(value if is_clear or not key else f"{key}: {value}")
        key_before = key
    return ", ".join(listed)


def open_calls(evidence: Evidence) -> Iterator[Pending]:
    """Yield each tool call that still runs or has no result, except in the newest turns that are always kept. The host
    program gives each running call an id. If a later call has this id as an argument, or a message of the host has it,
    the call has ended, unless that call or message reports that it still runs."""
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
                for call_id in mentioned_ids:
                    running.pop(head_of_id.pop(call_id), None)
        if head_of_id and (notices := _notices(turn)):
            for call_id in [name for name in head_of_id if any(name in text for text in notices)]:
                running.pop(head_of_id.pop(call_id), None)
    yield from running.values()


def _notices(turn: TurnEvidence) -> list[str]:
    """Return the texts of the host program in `turn`, without reports that a command still runs."""
    results = {call.result_block for call in turn.calls}
    blocks: dict[int, list[str]] = {}
    for line in turn.lines.of_sources("host", "tool"):
        if line.block not in results and line.part != "call":
            blocks.setdefault(line.block, []).append(line.text)
    return ["\n".join(texts) for texts in blocks.values() if not any(map(is_running, texts))]


def unanswered_questions(evidence: Evidence) -> Iterator[Pending]:
    """Yield the agent's last question to the user, if they have not written since. It is in a message without calls,
    but not in the newest turns that are always kept."""
    for turn in reversed(evidence.turns.values()):
        if turn.user_lines:
            return
        questions = [line.text.strip() for line in turn.lines.of_part("assistant") if is_question(line.text)]
        if turn.turn.kind == "assistant" and questions and not turn.turn.live:
            yield Pending(turn.turn.id, questions[-1])
            return


_WRITES_LIST = lazy_pattern(r"(?!mcp__).*(?:todo|(?:update|set)_?plan|task_?(?:list|tracker))", re.I)
"""Names of tools that write a whole list: ``TodoWrite``, ``write_todos``, ``update_plan``, ``task_tracker``; not
``plan_trip``, ``ExitPlanMode``, ``mcp__shop__todo``."""
_MAKES_TASK = lazy_pattern(r"task_?create|create_?task", re.I)
"""Names of tools that create one task: ``TaskCreate``; not ``create_task_force``, ``mcp__tracker__create_task``."""
_UPDATES_TASK = lazy_pattern(r"task_?update|update_?task", re.I)
_CHECKBOX = lazy_pattern(r"^[ \t]{0,80}(?:[-*] |\d{1,4}\. )?\[([ xX~/-]?)\] +(\S.*)$", re.M)
"""Item of a task list in Markdown: ``- [x] Read it``, ``[-] Fix it``; not ``[1] a reference``."""
_STATUS_OF_MARK = {"x": "completed", "-": "in_progress", "~": "in_progress", "/": "in_progress"}
"""Status of an item of a Markdown task list, by the mark in its box; any other mark means ``pending``."""
_NUMBER = lazy_pattern(r"(?:#|\b)(\d{1,9})\b")
"""Number of a new task in the result of the call that created it: ``Task #5 created``, ``{"id": "5"}``."""
_TEXT_KEYS = ("content", "step", "title", "text", "subject", "task", "description")
_ID_KEYS = ("taskId", "task_id", "id")
_CLOSED = frozenset({"completed", "complete", "done", "cancelled", "canceled", "deleted", "closed"})


@dataclass(frozen=True, slots=True)
class Task:
    """One task in a task list that the agent keeps for itself."""

    text: str
    status: str
    """Status in the words of the host program; ``pending`` by default."""
    turn_id: str = ""
    """Id of the turn that set this status."""
    number: str = ""
    """Number by which a tool updates the task; empty if the agent always writes the list as a whole."""

    @property
    def is_open(self) -> bool:
        """True if the task is still to be done: it is not completed, cancelled or deleted."""
        return self.status.casefold() not in _CLOSED


def task_lists(evidence: Evidence) -> list[tuple[Task, ...]]:
    """Return the agent's present task lists: the last one that was written as a whole, and the tasks that were created
    one by one. Empty lists are left out."""
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
    """Return the tasks if `call` writes a whole task list, which may be empty; None if it writes no list."""
    if (checklist := call.input.get("task_progress")) is not None:  # of any call of Cline and similar agents
        return tuple(_items(checklist)) or None
    if not _WRITES_LIST.match(call.name):
        return None
    lists = [tuple(_items(value)) for value in call.input.values() if isinstance(value, list | dict | str)]
    return next((items for items in lists if items), () if [] in call.input.values() else None)


def _items(value: object) -> Iterator[Task]:
    """Yield the tasks in an argument: a list of objects, an object with one, the same as JSON text, or a checklist."""
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
    """Return the first text or whole number under one of `keys`, as text; else ""."""
    values = (str(value) for key in keys if isinstance(value := entry.get(key), str | int))
    return next((value for value in values if value.strip()), "")


NoteKind = Literal["decision", "fact", "open"]
MOST_NOTES, MOST_CHARACTERS = 40, 600
"""Largest number of the agent's notes that are shown to it, and of characters of each."""


@dataclass(frozen=True, slots=True)
class Note:
    """Note that the agent wrote with this package's tool ``note``, to see it again after every compaction."""

    kind: NoteKind
    text: str
    turn_id: str
    """Id of the turn that wrote it."""


def note_id(kind: str, text: str) -> str:
    """Return the id by which the agent can remove a note. It is made from the note, without regard to white space, so
    that no counter has to be stored."""
    return f"n{sha256(f'{kind} {_folded(text)}'.encode('utf-8', 'replace')).hexdigest()[:6]}"


def written_notes(evidence: Evidence) -> list[Note]:
    """Return the newest `MOST_NOTES` of the agent's notes that it has not removed, the oldest first, each once."""
    notes: dict[str, Note] = {}
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status == "failed" or own_tool(call.name) != NOTE_TOOL:
            continue
        notes.pop(str(call.input.get("remove")), None)
        if text := _folded(call.input.get("text")):
            kind = call.input.get("kind")
            known: NoteKind = next((known_kind for known_kind in get_args(NoteKind) if known_kind == kind), "fact")
            key = note_id(kind if isinstance(kind, str) else "", text)
            notes[key] = Note(known, text[:MOST_CHARACTERS], turn.turn.id)
    return list(notes.values())[-MOST_NOTES:]


def _folded(text: object) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""
