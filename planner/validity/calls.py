"""Rules 1 to 9: calls and their results."""

from __future__ import annotations

from collections.abc import Iterator

from planner.reading.patterns import lazy_pattern
from planner.validity.request import Request, Violation, place_of

__all__ = ["CALL_RULES"]

_ID = lazy_pattern(r"[a-zA-Z0-9_-]+")
_ID_KEYS = {"tool_use": "id", "tool_result": "tool_use_id"}


def calls_have_results(request: Request) -> Iterator[Violation]:
    """Rule 1: every ``tool_use`` has its ``tool_result`` in the next user message; nothing stands between."""
    for calls, answers, _ in request.rounds:
        answered = {call for _, _, call in answers}
        for at, index, call in calls:
            if call not in answered:
                problem = f"call {call} has no result in the message behind it"
                cure = "put its tool_result first in the user message right behind it, or remove the call"
                yield Violation(1, place_of(at, index), problem, cure, "unanswered_call")
    for at, index, block in request.blocks("user", "system"):
        if block["type"] == "tool_use":
            cure = "move it into an assistant message, or remove it"
            yield Violation(1, place_of(at, index), "a call outside assistant messages", cure, "call_role")


def results_have_calls(request: Request) -> Iterator[Violation]:
    """Rule 2: every ``tool_result`` has its ``tool_use`` in the message before."""
    paired: set[tuple[int, int]] = set()
    for calls, answers, _ in request.rounds:
        called = {call for _, _, call in calls}
        paired |= {(at, index) for at, index, call in answers if call in called}
    for at, index, block in request.blocks():
        if block["type"] == "tool_result" and (at, index) not in paired:
            problem = f"a result for {block.get('tool_use_id')}, which the message before does not call"
            cure = "put it right behind its call, or remove it"
            yield Violation(2, place_of(at, index), problem, cure, "uncalled_result")


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


def results_stand_as_their_calls(request: Request) -> Iterator[Violation]:
    """Rule 4, for strict providers: results of parallel calls are in one user message, in the order of the calls."""
    for calls, answers, behind in request.rounds:
        order = {call: number for number, (_, _, call) in reversed(list(enumerate(calls)))}
        results = [(at, call) for at, _, call in answers if call in order]
        for apart in sorted({at for at, _ in results} - {behind}):
            split = min(call for at, call in results if at == apart)
            problem = f"the result for {split} stands apart from those of the calls beside it"
            yield Violation(4, place_of(apart), problem, f"move it into {place_of(behind)}", "split_results")
        if [call for _, call in results] != sorted((call for _, call in results), key=order.__getitem__):
            cure = "sort the results as the calls are"
            yield Violation(4, place_of(behind), "results in another order than their calls", cure, "result_order")


def roles_alternate(request: Request) -> Iterator[Violation]:
    """Rule 4, for strict providers: no two neighbours have one role; the Messages API merges them."""
    before = ""
    for at, message in enumerate(request.messages):
        role = message["role"]
        if role == before and role != "system":
            problem, cure = f"two {role} messages in a row", "merge it into the one before"
            yield Violation(4, place_of(at), problem, cure, "alternation")
        before = before if role == "system" else role


def ids_are_plain_and_unique(request: Request) -> Iterator[Violation]:
    """Rules 5 to 7: one result per id, one call per id in the list, and ids match ``^[a-zA-Z0-9_-]+$``."""
    known: set[tuple[str, str]] = set()
    for at, index, block in request.blocks():
        kind, place = block["type"], place_of(at, index)
        key = _ID_KEYS.get(kind)
        if key is None:
            continue
        name = str(block.get(key))
        if (kind, name) in known and kind == "tool_result":
            yield Violation(5, place, f"a second result for {name}", "keep one", "repeated_result")
        elif (kind, name) in known:
            yield Violation(6, place, f"a second call with the id {name}", "give each its own", "repeated_call")
        known.add((kind, name))
        if not (isinstance(block.get(key), str) and _ID.fullmatch(name)):
            problem = f"{key} {block.get(key)!r} is not made of letters, digits, _ and -"
            yield Violation(7, place, problem, "rename it in the call and its result", "bad_id")


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


CALL_RULES = (
    calls_have_results,
    results_have_calls,
    results_come_first,
    results_stand_as_their_calls,
    roles_alternate,
    ids_are_plain_and_unique,
    inputs_are_objects,
    server_calls_and_results_pair,
)
