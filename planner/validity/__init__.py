"""Rules of the Messages API that cutting and merging a list can break, and the mending of lost results.

Checking reports what the API would answer 400 to, and repairs nothing. Each repair is visible to the model as a note;
nothing is invented, nothing is removed.
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

    Only rules that a change of the list can break are checked. Violations with `refused` are those that the Messages
    API itself refuses; stricter providers refuse the rest, too. An empty `model` is a current Claude. With
    `thinking_enabled` None, rules that depend on it are skipped. `rules` may be a selection.

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


def answer_calls(messages: Sequence[Message], *, last: bool = True) -> list[Message]:
    """Return `messages` with a note as the result of each call that has none, and results without a call as text.

    Messages that need no repair stay the same objects. With `last` False the calls of the last run of assistant
    messages get no notes, as they may still run.
    """
    mended, open_calls = list[Message](), list[str]()
    for role, group in groupby(messages, lambda message: str(message["role"])):
        run = list(group)
        if role == "user":
            mended += _answered(run, open_calls)
        else:
            mended += [*_notes(open_calls), *run]
        open_calls = [
            str(b.get("id")) for m in run for b in blocks(m) if role == "assistant" and b["type"] == "tool_use"
        ]
    return mended + (_notes(open_calls) if last else [])


def _notes(calls: Sequence[str]) -> list[Message]:
    """Return a list of one user message with a note for each of the call ids; an empty list without ids."""
    return [{"role": "user", "content": list(map(lost_result, dict.fromkeys(calls)))}] if calls else []


def _answered(run: list[Message], calls: Sequence[str]) -> list[Message]:
    """Return a run of the user's messages in which one result for each of the call ids comes first, a note if there is
    none, and other results are text; the same list if that is so already."""
    result_of = {call: block for m in reversed(run) for call, block in reversed(_results(m)) if call in calls}
    used_blocks = {id(block) for block in result_of.values()}
    is_used = [id(block) in used_blocks for message in run for block in blocks(message)]
    has_others = any(id(block) not in used_blocks for message in run for _, block in _results(message))
    if len(result_of) == len(set(calls)) and not has_others and is_used == sorted(is_used, reverse=True):
        return run
    results = [result_of.get(call) or lost_result(call) for call in dict.fromkeys(calls)]
    rest = [
        {**message, "content": [lost_call(b) if b["type"] == "tool_result" else b for b in content]}
        for message in run
        if (content := [block for block in blocks(message) if id(block) not in used_blocks])
    ]
    if not results:
        return rest
    return [{"role": "user", "content": [*results, *(rest[0]["content"] if rest else [])]}, *rest[1:]]


def _results(message: Message) -> list[tuple[str, Block]]:
    """Return the results in `message`, each with the id of its call."""
    return [(str(block.get("tool_use_id")), block) for block in blocks(message) if block["type"] == "tool_result"]


def lost_result(call: str) -> Block:
    """Return the note that replaces the result of `call`."""
    return {"type": "tool_result", "tool_use_id": call, "content": LOST_RESULT}


def lost_call(result: Block) -> Block:
    """Return a `result` without a call as a text block marked as the host's."""
    text = f"{_LOST_CALL}\n{readable_text(result.get('content'))}"
    return {"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"}
