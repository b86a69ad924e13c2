"""Rules 1 to 9: calls and their results. Each says what it refuses, worded as the API words it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from applier.testing.api_request import Block, Request

__all__ = ["CALL_RULES"]

_ID = re.compile(r"^[a-zA-Z0-9_-]+\Z")
"""``toolu_01-a``; not ``toolu:01``, nor an empty one."""
_ID_KEYS = {"tool_use": "id", "server_tool_use": "id", "mcp_tool_use": "id", "tool_result": "tool_use_id"}
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def _ids(blocks: list[Block], kind: str) -> list[str]:
    return [str(block.get(_ID_KEYS[kind])) for block in blocks if block["type"] == kind]


def every_call_is_answered(request: Request) -> Iterator[str]:
    """Each ``tool_use`` has its result in the next message."""
    for (at, role, blocks), (_, next_role, follower) in pairwise([*request.merged(), (0, "", [])]):
        calls = _ids(blocks, "tool_use")
        answered = _ids(follower, "tool_result") if next_role == "user" else []
        missing = [call for call in calls if call not in answered]
        if role != "assistant" and calls:
            yield f"messages.{at}: `tool_use` blocks can only be in `assistant` messages"
        elif missing:
            yield (
                f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )


def every_result_was_called(request: Request) -> Iterator[str]:
    """Each ``tool_result`` has its ``tool_use`` in the message before."""
    before: list[str] = []
    for at, role, blocks in request.merged():
        called = before if role == "user" else []
        for index, block in enumerate(blocks):
            if block["type"] == "tool_result" and str(block.get("tool_use_id")) not in called:
                yield (
                    f"messages.{at}.content.{index}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{block.get('tool_use_id')}. Each `tool_result` block must have a corresponding `tool_use` "
                    "block in the previous message."
                )
        before = _ids(blocks, "tool_use") if role == "assistant" else []


def results_lead_their_message(request: Request) -> Iterator[str]:
    """In a user message that answers calls, the results come first."""
    for at, role, blocks in request.merged():
        kinds = [block["type"] == "tool_result" for block in blocks]
        if role == "user" and kinds != sorted(kinds, reverse=True):
            yield (
                f"messages.{at}: `tool_result` blocks must come first in the content of a `user` message; "
                f"found other content before `tool_result` at content.{kinds.index(True, kinds.index(False))}"
            )


def one_result_per_call(request: Request) -> Iterator[str]:
    """Exactly one result per id."""
    for place, call in _repeated(request, "tool_result"):
        yield f"{place}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {call}"


def call_ids_are_unique(request: Request) -> Iterator[str]:
    """Ids of calls are unique in the list."""
    for place, _call in _repeated(request, "tool_use"):
        yield f"{place}: `tool_use` ids must be unique"


def _repeated(request: Request, kind: str) -> Iterator[tuple[str, str]]:
    known: set[str] = set()
    for at, index, block in request.blocks():
        for call in _ids([block], kind):
            if call in known:
                yield f"messages.{at}.content.{index}", call
            known.add(call)


def ids_match_the_pattern(request: Request) -> Iterator[str]:
    """Ids are letters, digits, ``_`` and ``-``."""
    for at, index, block in request.blocks():
        key = _ID_KEYS.get(block["type"])
        if key and not _ID.match(str(block.get(key) or "")):
            place = f"messages.{at}.content.{index}.{block['type']}.{key}"
            yield f"{place}: String should match pattern '^[a-zA-Z0-9_-]+$'"


def inputs_are_objects(request: Request) -> Iterator[str]:
    """The input of a call is an object."""
    for at, index, block in request.blocks():
        if block["type"] in _CALLS and not isinstance(block.get("input"), dict):
            yield f"messages.{at}.content.{index}.{block['type']}.input: Input should be a valid dictionary"


def server_results_follow_their_calls(request: Request) -> Iterator[str]:
    """A server tool's result stands behind its ``server_tool_use``, in the same assistant turn.

    A paused turn goes on in the next assistant message, so neighbours of one role are read as one.
    """
    for at, role, blocks in request.merged():
        opened: set[str] = set()
        waiting: set[str] = set()
        for index, block in enumerate(blocks):
            kind, call = block["type"], str(block.get("tool_use_id"))
            if kind in _CALLS[1:]:
                opened.add(str(block.get("id")))
                waiting.add(str(block.get("id")))
            elif kind.endswith("_tool_result"):
                waiting.discard(call)
                if call not in opened:
                    yield (
                        f"messages.{at}.content.{index}: unexpected `tool_use_id` found in `{kind}` blocks: {call}. "
                        f"Each `{kind}` block must have a corresponding `server_tool_use` block before it"
                        f"{'' if role == 'assistant' else ', in an assistant message'}."
                    )
        if waiting and at + 1 < len(request.messages) and not _ids(blocks, "tool_use"):
            calls = ", ".join(sorted(waiting))
            yield f"messages.{at}: `server_tool_use` ids were found without a corresponding result block: {calls}"


CALL_RULES = (
    (1, every_call_is_answered),
    (2, every_result_was_called),
    (3, results_lead_their_message),
    (5, one_result_per_call),
    (6, call_ids_are_unique),
    (7, ids_match_the_pattern),
    (8, inputs_are_objects),
    (9, server_results_follow_their_calls),
)
"""By number. Rule 4 asks for what the API mends itself."""
