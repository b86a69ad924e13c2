"""Lists of tasks in the forms that hosts write: what the state, the carried text and the cards say of them is one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.session.compaction import open_lists
from applier.session.history_tracker import HistoryTracker
from planner.evidence import gather_evidence
from planner.evidence.effects import task_lists
from planner.model.cards import turn_cards
from planner.reading.messages import read_history
from planner.reading.tokens import TokenCounter
from planner.rules import open_tasks
from tests.model.sample import call, plan_request

COUNTER = TokenCounter(vocabulary=None)
MARKS = {"completed": "x", "in_progress": "-", "pending": " "}
OPEN = {"pending", "in_progress", "not-started", "todo"}


def dicts(key, items):
    return [{key: text, "status": status} for text, status in items]


def checklist(items):
    return "\n".join(f"- [{MARKS[status]}] {text}" for text, status in items)


FORMS = {
    "TodoWrite": lambda items: {"todos": dicts("content", items)},
    "todowrite": lambda items: {"todos": json.dumps(dicts("content", items))},
    "write_todos": lambda items: {"todos": dicts("description", items)},
    "update_plan": lambda items: {"explanation": "as agreed", "plan": dicts("step", items)},
    "set_plan": lambda items: {"plan": json.dumps({"plan": dicts("step", items)})},
    "manage_todo_list": lambda items: {"operation": "write", "todoList": dicts("title", items)},
    "task_tracker": lambda items: {"command": "plan", "task_list": dicts("title", items)},
    "update_todo_list": lambda items: {"todos": checklist(items)},
    "attempt_completion": lambda items: {"task_progress": checklist(items)},
}
ITEMS = st.dictionaries(
    st.from_regex(r"(write|review|measure) part [a-z]{6}", fullmatch=True), st.sampled_from(sorted(MARKS)), min_size=1
).map(lambda items: list(items.items()))


def history_of(*calls):
    messages = [{"role": "user", "content": "Go on."}]
    for number, (name, arguments, result, flags) in enumerate(calls):
        messages += call(number, name, arguments, result, **flags)
    return [*messages, {"role": "assistant", "content": "So far."}]


def carried(messages):
    tracker, _ = HistoryTracker(COUNTER).extended_by(messages)
    return "\n".join(open_lists(tracker))


def left_open(messages):
    evidence = gather_evidence(read_history(messages), COUNTER)
    assert len(open_tasks(evidence)) == sum(task.is_open for one in task_lists(evidence) for task in one)
    return [task.text for one in task_lists(evidence) for task in one if task.is_open]


@given(st.lists(st.tuples(st.sampled_from(sorted(FORMS)), ITEMS, st.booleans()), min_size=1, max_size=4))
def test_state_carried_text_and_cards_agree_on_the_list_that_stands(writes):
    messages = history_of(
        *((name, FORMS[name](items), "ok", {"is_error": True} if failed else {}) for name, items, failed in writes)
    )
    standing = next((items for _, items, failed in reversed(writes) if not failed), [])
    wanted = [text for text, status in standing if status in OPEN]
    assert left_open(messages) == wanted
    again = carried(messages)
    assert [f"- [{status}] {text}" in again for text, status in standing] == [bool(wanted)] * len(standing)
    request = plan_request(messages)
    cards = "\n".join(card.text for card in turn_cards(request, list(request.evidence.turns.values()), 100_000))
    assert [text for text in wanted if text not in cards] == []


MADE = [
    ("TaskCreate", {"subject": "parse"}, "Task #7 created: parse", {}),
    ("TaskCreate", {"subject": "print"}, '{"id": "12"}', {}),
    ("TaskCreate", {"subject": "nothing"}, "no", {"is_error": True}),
]
UPDATES = {
    "none": ([], ["parse", "print"]),
    "completed": ([("TaskUpdate", {"taskId": "7", "status": "completed"}, "ok", {})], ["print"]),
    "deleted, by its number": ([("task_update", {"id": 12, "status": "deleted"}, "ok", {})], ["parse"]),
    "cancelled": ([("TaskUpdate", {"taskId": "7", "status": "cancelled"}, "ok", {})], ["print"]),
    "refused": ([("TaskUpdate", {"taskId": "7", "status": "completed"}, "no", {"is_error": True})], ["parse", "print"]),
    "renamed": ([("TaskUpdate", {"taskId": "7", "subject": "lex"}, "ok", {})], ["lex", "print"]),
    "of another": ([("TaskUpdate", {"taskId": "8", "status": "completed"}, "ok", {})], ["parse", "print"]),
}


@pytest.mark.parametrize(("updates", "wanted"), UPDATES.values(), ids=UPDATES)
def test_tasks_that_are_made_one_by_one_follow_their_updates(updates, wanted):
    messages = history_of(*MADE, *updates)
    assert left_open(messages) == wanted
    assert [text for text in wanted if f"] {text}" not in carried(messages)] == []


NO_LISTS = {
    "cleared": ("TodoWrite", {"todos": []}),
    "read": ("TodoRead", {}),
    "of a server": ("mcp__shop__create_todos", {"todos": dicts("content", [("buy milk", "pending")])}),
    "made at a server": ("mcp__tracker__create_task", {"subject": "buy milk"}),
    "items of an order": ("place_order", {"items": [{"title": "milk"}]}),
    "a plan in prose": ("ExitPlanMode", {"plan": "- first this\n- then that"}),
    "no JSON": ("update_plan", {"plan": "[{"}),
}


@pytest.mark.parametrize(("name", "arguments"), NO_LISTS.values(), ids=NO_LISTS)
def test_what_is_no_list_of_the_agent_leaves_nothing_open(name, arguments):
    messages = history_of((name, arguments, "ok #3", {}))
    assert left_open(messages) == []
    assert carried(messages) == ""


def test_a_list_that_is_cleared_is_gone_and_one_that_is_only_read_stands():
    written = ("TodoWrite", {"todos": dicts("content", [("open a PR", "pending")])}, "ok", {})
    assert left_open(history_of(written, ("TodoRead", {}, "ok", {}))) == ["open a PR"]
    assert left_open(history_of(written, ("TodoWrite", {"todos": []}, "ok", {}))) == []
