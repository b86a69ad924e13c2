"""Checks a list of messages against the API's rules that cutting and merging can break, and repairs lost results.

`check_messages` reports what the API would refuse and repairs nothing. `answer_calls` gives calls without a result a
note as their result, which the model can see. It invents and removes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from planner.reading.families import model_family
from planner.reading.messages import Block, Message, blocks, plain_message, readable_text
from planner.validity.checked_request import CheckedRequest, Violation, place_of
from planner.validity.list_rules import CALL_RULES, CONTENT_RULES

__all__ = ["LOST_RESULT", "Violation", "answer_calls", "check_messages", "lost_call", "lost_result"]

_Rule = Callable[[CheckedRequest], Iterator[Violation]]
_RULES: tuple[_Rule, ...] = (*CALL_RULES, *CONTENT_RULES)


def check_messages(
    messages: Sequence[object],
    *,
    model: str = "",
    thinking_enabled: bool | None = None,
    rules: Iterable[_Rule] = _RULES,
) -> list[Violation]:
    """Return the violations of the API's rules in `messages` (dicts or SDK objects), sorted by the rule's number.

    Only rules that a change of the list can break are checked. The Messages API refuses a list for violations with
    `refused`; stricter providers refuse it for the others, too.

    `model`: the reader of the messages; empty is a current Claude. `thinking_enabled`: whether the request asks for
    thinking; if it is None, rules that depend on it are skipped. `rules`: the rules to check.

    Raises:
        TranscriptError: an entry is not a message at all.
    """
    plain = [plain_message(message, place_of(at)) for at, message in enumerate(messages)]
    request = CheckedRequest(plain, model_family(model), thinking_enabled)
    violations = [violation for rule in rules for violation in rule(request)]
    return sorted(violations, key=lambda violation: violation.rule)


LOST_RESULT = "[The result of this call was lost before it was saved: whether the call took effect is not known.]"
"""Text in place of the result of a call that has none."""
_LOST_CALL = "[A result whose call was lost:]"
"""Text before a result that has no call."""


def answer_calls(messages: Sequence[Message], *, last: bool = True) -> list[Message]:
    """Return `messages` with a note as the result of each call that has none, and results without a call as text.

    Messages that need no repair stay the same objects. `last`: False if calls at the end of the list may still run;
    these get no notes.
    """
    repaired, open_calls = list[Message](), list[str]()
    for role, group in groupby(messages, lambda message: str(message["role"])):
        run = list(group)
        if role == "user":
            repaired += _answered(run, open_calls)
        else:
            repaired += [*_notes(open_calls), *run]
        open_calls = _client_calls(run) if role == "assistant" else []
    return repaired + (_notes(open_calls) if last else [])


def _client_calls(run: Sequence[Message]) -> list[str]:
    """Return the ids of the calls of the client's tools in neighbouring messages."""
    return [str(block.get("id")) for message in run for block in blocks(message) if block["type"] == "tool_use"]


def _notes(calls: Sequence[str]) -> list[Message]:
    """Return a list of one user message with a note for each of the call ids; an empty list without ids."""
    return [{"role": "user", "content": list(map(lost_result, dict.fromkeys(calls)))}] if calls else []


def _answered(run: list[Message], calls: Sequence[str]) -> list[Message]:
    """Return `run`, neighbouring messages of the user, beginning with one result for each id in `calls`. A call without
    a result gets a note. Other results become text. If nothing is to be changed, `run` is returned."""
    results = [block for message in run for block in blocks(message) if block["type"] == "tool_result"]
    first_results = {str(block.get("tool_use_id")): block for block in reversed(results)}
    used_blocks = {id(first_results[call]) for call in calls if call in first_results}
    is_used = [id(block) in used_blocks for message in run for block in blocks(message)]
    used_come_first = is_used == sorted(is_used, reverse=True)
    has_others = any(id(block) not in used_blocks for block in results)
    if len(used_blocks) == len(set(calls)) and used_come_first and not has_others:
        return run
    answers = [first_results.get(call) or lost_result(call) for call in dict.fromkeys(calls)]
    rest = list[Message]()
    for message in run:
        if content := [block for block in blocks(message) if id(block) not in used_blocks]:
            content = [lost_call(block) if block["type"] == "tool_result" else block for block in content]
            rest.append({**message, "content": content})
    if not answers:
        return rest
    return [{"role": "user", "content": [*answers, *(rest[0]["content"] if rest else [])]}, *rest[1:]]


def lost_result(call: str) -> Block:
    """Return the note that replaces the result of `call`."""
    return {"type": "tool_result", "tool_use_id": call, "content": LOST_RESULT}


def lost_call(result: Block) -> Block:
    """Return the text block that replaces a `result` without a call; a tag marks it as the host's words."""
    text = f"{_LOST_CALL}\n{readable_text(result.get('content'))}"
    return {"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"}
