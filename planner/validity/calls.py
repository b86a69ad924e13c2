"""Rules 1 to 9: calls and their results."""

from __future__ import annotations

from collections.abc import Iterator

from planner.reading.messages import blocks
from planner.reading.patterns import lazy_pattern
from planner.validity.request import Request, Violation, place_of

__all__ = ["CALL_RULES"]

_ID = lazy_pattern(r"[a-zA-Z0-9_-]+")
_ID_KEYS = {"tool_use": "id", "tool_result": "tool_use_id"}


def calls_have_results(request: Request) -> Iterator[Violation]:
    """Rule 1: every ``tool_use`` has its ``tool_result`` in the next user message; nothing stands between."""
    for asked, answers in request.rounds:
        answered = {call for answer in answers for call in request.results[answer]}
        for at, index, call in _calls(request, asked):
            if call not in answered:
                yield Violation(
                    1,
                    place_of(at, index),
                    f"call {call} has no result in the message behind it{_elsewhere(request, call)}",
                    "put its tool_result first in the user message right behind it, or remove the call",
                    "unanswered_call",
                )


def only_assistants_call(request: Request) -> Iterator[Violation]:
    """Rule 1, too: a ``tool_use`` anywhere else can have no result."""
    for at, index, block in request.blocks("user", "system"):
        if block["type"] == "tool_use":
            cure = "move it into an assistant message, or remove it"
            yield Violation(1, place_of(at, index), "a call outside assistant messages", cure, "call_role")


def results_have_calls(request: Request) -> Iterator[Violation]:
    """Rule 2: every ``tool_result`` has its ``tool_use`` in the message before."""
    called: dict[int, frozenset[str]] = {}
    for asked, answers in request.rounds:
        calls = {call for _, _, call in _calls(request, asked)}
        called |= dict.fromkeys(answers, frozenset(calls))
    for at, index, block in request.blocks():
        if block["type"] == "tool_result" and str(block.get("tool_use_id")) not in called.get(at, ()):
            yield Violation(
                2,
                place_of(at, index),
                f"a result for {block.get('tool_use_id')}, which the message before does not call",
                "put it right behind its call, or remove it",
                "uncalled_result",
            )


def results_come_first(request: Request) -> Iterator[Violation]:
    """Rule 3: ``tool_result`` blocks come first in a user message's content; text after."""
    leads = True
    for at, index, block in request.blocks():
        role = request.messages[at]["role"]
        if index == 0 and (at == 0 or request.messages[at - 1]["role"] != role):
            leads = True
        if block["type"] != "tool_result":
            leads = False
        elif role == "user" and not leads:
            cure = "move the results to the front of the message"
            yield Violation(3, place_of(at, index), "a result behind other content", cure, "late_result")
            leads = True


def results_stay_together(request: Request) -> Iterator[Violation]:
    """Rule 4, for strict providers: results of parallel calls are all in one user message."""
    for asked, answers in request.rounds:
        calls = {call for _, _, call in _calls(request, asked)}
        for answer in answers[1:]:
            if split := calls.intersection(request.results[answer]):
                yield Violation(
                    4,
                    place_of(answer),
                    f"the result for {min(split)} stands apart from those of the calls beside it",
                    f"move it into {place_of(answers[0])}",
                    "split_results",
                )


def results_keep_the_order_of_calls(request: Request) -> Iterator[Violation]:
    """Rule 4, for strict providers: results of parallel calls stand in the order of the calls."""
    for asked, answers in request.rounds:
        calls = {call: number for number, (_, _, call) in reversed(list(enumerate(_calls(request, asked))))}
        given = [call for answer in answers for call in request.results[answer] if call in calls]
        if sorted(given, key=calls.__getitem__) != given:
            cure = "sort the results as the calls are"
            yield Violation(4, place_of(answers[0]), "results in another order than their calls", cure, "result_order")


def roles_alternate(request: Request) -> Iterator[Violation]:
    """Rule 4, for strict providers: no two neighbours have one role; the Messages API merges them."""
    before = ""
    for at, message in enumerate(request.messages):
        role = message["role"]
        if role == before and role != "system":
            problem, cure = f"two {role} messages in a row", "merge it into the one before"
            yield Violation(4, place_of(at), problem, cure, "alternation")
        before = before if role == "system" else role


def calls_have_one_result(request: Request) -> Iterator[Violation]:
    """Rule 5: exactly one result per id."""
    yield from _repeats(request, 5, "tool_result", "a second result for", "keep one", "repeated_result")


def call_ids_are_unique(request: Request) -> Iterator[Violation]:
    """Rule 6: ``tool_use`` ids are unique in the list."""
    yield from _repeats(request, 6, "tool_use", "a second call with the id", "give each its own", "repeated_call")


def ids_are_plain(request: Request) -> Iterator[Violation]:
    """Rule 7: ids match ``^[a-zA-Z0-9_-]+$``."""
    for at, index, block in request.blocks():
        key = _ID_KEYS.get(block["type"])
        if key and not (isinstance(block.get(key), str) and _ID.fullmatch(block[key])):
            problem = f"{key} {block.get(key)!r} is not made of letters, digits, _ and -"
            yield Violation(7, place_of(at, index), problem, "rename it in the call and its result", "bad_id")


def inputs_are_objects(request: Request) -> Iterator[Violation]:
    """Rule 8: ``input`` is an object."""
    for at, index, block in request.blocks():
        if block["type"].endswith("tool_use") and not isinstance(block.get("input"), dict):
            problem = f"input is {type(block.get('input')).__name__}, not an object"
            yield Violation(8, place_of(at, index), problem, "parse it, or send {}", "bad_input")


def server_calls_and_results_pair(request: Request) -> Iterator[Violation]:
    """Rule 9: a server tool's result needs its ``server_tool_use`` before it, in the same assistant turn.

    A turn goes on in the next assistant message after ``pause_turn``, and when code that the server runs
    calls a client tool: results alone do not end it. The user's words do, and then no call may be open.
    """
    called: dict[str, str] = {}
    for at, index, block in request.blocks():
        kind = block["type"]
        if request.messages[at]["role"] == "user" and kind != "tool_result":
            for call, where in called.items():
                problem, cure = f"server call {call} has no result", "remove the call"
                yield Violation(9, where, problem, cure, "unanswered_server_call")
            called = {}
        elif kind in ("server_tool_use", "mcp_tool_use"):
            called[str(block.get("id"))] = place_of(at, index)
        elif kind.endswith("_tool_result") and called.pop(str(block.get("tool_use_id")), None) is None:
            problem = f"a server result for {block.get('tool_use_id')} without its call"
            yield Violation(9, place_of(at, index), problem, "keep both or remove both", "uncalled_server_result")


def _calls(request: Request, asked: range) -> Iterator[tuple[int, int, str]]:
    """Message, block and id of each client call in the messages `asked`."""
    for at in asked:
        for index, block in enumerate(blocks(request.messages[at])):
            if block["type"] == "tool_use":
                yield at, index, str(block.get("id"))


def _elsewhere(request: Request, call: str) -> str:
    found = request.first_answer.get(call)
    return "" if found is None else f"; it stands in {place_of(found)}"


def _repeats(request: Request, rule: int, kind: str, problem: str, cure: str, code: str) -> Iterator[Violation]:
    seen: set[str] = set()
    for at, index, block in request.blocks():
        if block["type"] == kind:
            name = str(block.get(_ID_KEYS[kind]))
            if name in seen:
                yield Violation(rule, place_of(at, index), f"{problem} {name}", cure, code)
            seen.add(name)


CALL_RULES = (
    calls_have_results,
    only_assistants_call,
    results_have_calls,
    results_come_first,
    results_stay_together,
    results_keep_the_order_of_calls,
    roles_alternate,
    calls_have_one_result,
    call_ids_are_unique,
    ids_are_plain,
    inputs_are_objects,
    server_calls_and_results_pair,
)
