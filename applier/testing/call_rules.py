"""Rules 1 to 9: calls and their results, worded as the API words its refusals."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from applier.testing.api_request import Request, Violation

__all__ = ["CALL_RULES"]

_ID = re.compile(r"^[a-zA-Z0-9_-]+\Z")
"""``toolu_01-a``; not ``toolu:01``, nor an empty one."""
_ID_KEYS = {"tool_use": "id", "server_tool_use": "id", "mcp_tool_use": "id", "tool_result": "tool_use_id"}


def _ids(blocks: list[dict[str, Any]], kind: str) -> list[str]:
    return [str(block.get(_ID_KEYS[kind])) for block in blocks if block["type"] == kind]


def every_call_is_answered(request: Request) -> Iterator[Violation]:
    """Rule 1: each ``tool_use`` has its result in the next message; only a prefilled last message may wait."""
    merged = request.merged()
    for place, (at, role, blocks) in enumerate(merged):
        calls = _ids(blocks, "tool_use")
        if role != "assistant" and calls:
            yield Violation(1, f"messages.{at}: `tool_use` blocks can only be in `assistant` messages")
            continue
        follower = merged[place + 1] if place + 1 < len(merged) else None
        answered = _ids(follower[2], "tool_result") if follower and follower[1] == "user" else []
        missing = [call for call in calls if call not in answered]
        if missing:
            yield Violation(
                1,
                f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message.",
            )


def every_result_was_called(request: Request) -> Iterator[Violation]:
    """Rule 2: each ``tool_result`` has its ``tool_use`` in the message before."""
    before: list[str] = []
    for at, role, blocks in request.merged():
        for index, block in enumerate(blocks):
            if block["type"] == "tool_result" and (role != "user" or str(block.get("tool_use_id")) not in before):
                yield Violation(
                    2,
                    f"messages.{at}.content.{index}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{block.get('tool_use_id')}. Each `tool_result` block must have a corresponding `tool_use` "
                    "block in the previous message.",
                )
        before = _ids(blocks, "tool_use") if role == "assistant" else []


def results_lead_their_message(request: Request) -> Iterator[Violation]:
    """Rule 3: in a user message that answers calls, the results come first."""
    for at, role, blocks in request.merged():
        kinds = [block["type"] == "tool_result" for block in blocks]
        if role == "user" and kinds != sorted(kinds, reverse=True):
            yield Violation(
                3,
                f"messages.{at}: `tool_result` blocks must come first in the content of a `user` message; "
                f"found other content before `tool_result` at content.{kinds.index(True, kinds.index(False))}",
            )


def one_result_per_call(request: Request) -> Iterator[Violation]:
    """Rule 5: exactly one result per id."""
    for at, index, call in _repeated(request, "tool_result"):
        yield Violation(
            5,
            f"messages.{at}.content.{index}: each tool_use must have a single result. "
            f"Found multiple `tool_result` blocks with id: {call}",
        )


def call_ids_are_unique(request: Request) -> Iterator[Violation]:
    """Rule 6: ids of calls are unique in the list."""
    for at, index, _call in _repeated(request, "tool_use"):
        yield Violation(6, f"messages.{at}.content.{index}: `tool_use` ids must be unique")


def _repeated(request: Request, kind: str) -> Iterator[tuple[int, int, str]]:
    times: Counter[str] = Counter()
    for at, index, block in request.blocks():
        if block["type"] == kind:
            call = str(block.get(_ID_KEYS[kind]))
            times[call] += 1
            if times[call] > 1:
                yield at, index, call


def ids_match_the_pattern(request: Request) -> Iterator[Violation]:
    """Rule 7: ids are letters, digits, ``_`` and ``-``."""
    for at, index, block in request.blocks():
        key = _ID_KEYS.get(block["type"])
        if key and not _ID.match(str(block.get(key) or "")):
            yield Violation(
                7,
                f"messages.{at}.content.{index}.{block['type']}.{key}: String should match pattern '^[a-zA-Z0-9_-]+$'",
            )


def inputs_are_objects(request: Request) -> Iterator[Violation]:
    """Rule 8: the input of a call is an object."""
    for at, index, block in request.blocks():
        if block["type"] in ("tool_use", "server_tool_use", "mcp_tool_use") and not isinstance(
            block.get("input"), dict
        ):
            yield Violation(
                8, f"messages.{at}.content.{index}.{block['type']}.input: Input should be a valid dictionary"
            )


def server_results_follow_their_calls(request: Request) -> Iterator[Violation]:
    """Rule 9: a server tool's result stands behind its ``server_tool_use``, in the same assistant turn.

    A paused turn goes on in the next assistant message, so neighbours of one role are read as one.
    """
    for at, role, blocks in request.merged():
        opened: set[str] = set()
        for index, block in enumerate(blocks):
            kind = block["type"]
            if kind in ("server_tool_use", "mcp_tool_use"):
                opened.add(str(block.get("id")))
            elif kind.endswith("_tool_result") and str(block.get("tool_use_id")) not in opened:
                yield Violation(
                    9,
                    f"messages.{at}.content.{index}: unexpected `tool_use_id` found in `{kind}` blocks: "
                    f"{block.get('tool_use_id')}. Each `{kind}` block must have a corresponding "
                    f"`server_tool_use` block before it{'' if role == 'assistant' else ', in an assistant message'}.",
                )
        answered = {str(block.get("tool_use_id")) for block in blocks if block["type"].endswith("_tool_result")}
        waiting = opened - answered
        if waiting and at + 1 < len(request.messages) and not _ids(blocks, "tool_use"):
            yield Violation(
                9,
                f"messages.{at}: `server_tool_use` ids were found without a corresponding result block: "
                f"{', '.join(sorted(waiting))}",
            )


CALL_RULES = (
    every_call_is_answered,
    every_result_was_called,
    results_lead_their_message,
    one_result_per_call,
    call_ids_are_unique,
    ids_match_the_pattern,
    inputs_are_objects,
    server_results_follow_their_calls,
)
