"""Checks a list of messages against the API's rules that cutting and merging can break, and repairs lost results.

`check_messages` reports what the API would refuse and repairs nothing. `answer_calls` gives calls without a result a
note as their result, which the model can see. It invents and removes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby

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

    Results in an assistant's message move into a user's message after it, and a call with the id of an earlier one gets
    another id. Messages that need no repair stay the same objects. `last`: False if calls at the end of the list may
    still run; these get no notes.
    """
    repaired, open_calls, known_ids, new_ids = list[Message](), list[str](), set[str](), dict[str, str]()
    for role, group in groupby(_with_results_by_users(messages), lambda message: str(message["role"])):
        run = list(group)
        if role == "user":
            repaired += _answered([_renamed(message, new_ids) for message in run], open_calls)
        else:
            repaired += _notes(open_calls)
        if role == "assistant":
            new_ids = {}
            run = [_with_own_ids(message, known_ids, new_ids) for message in run]
        if role != "user":
            repaired += run
        open_calls = _client_calls(run) if role == "assistant" else []
    return repaired + (_notes(open_calls) if last else [])


def _with_results_by_users(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield `messages`; results in an assistant's message follow it in a message of the user."""
    for message in messages:
        content = blocks(message) if message["role"] == "assistant" else []
        results = [block for block in content if block["type"] == "tool_result"]
        rest = [block for block in content if block["type"] != "tool_result"]
        if rest or not results:
            yield {**message, "content": rest} if results else message
        if results:
            yield {"role": "user", "content": results}


def _with_own_ids(message: Message, known_ids: set[str], new_ids: dict[str, str]) -> Message:
    """Return `message` with another id for each call whose id is in `known_ids`, and add its ids to these.

    `new_ids`: ids of this run of messages, by the ids that their results name; the first call with an id gets its
    result.
    """
    content = list[Block]()
    for block in blocks(message):
        if block["type"] == "tool_use":
            call = own = str(block.get("id"))
            if call in known_ids:
                own = next(name for number in count(2) if (name := f"{call}_{number}") not in known_ids)
                block = {**block, "id": own}
            known_ids.add(own)
            new_ids.setdefault(call, own)
        content.append(block)
    is_same = all(block is old for block, old in zip(content, blocks(message), strict=True))
    return message if is_same else {**message, "content": content}


def _renamed(message: Message, new_ids: Mapping[str, str]) -> Message:
    """Return `message` with the new ids of the calls in its results."""
    ids = {id(block): str(block.get("tool_use_id")) for block in blocks(message) if block["type"] == "tool_result"}
    if all(new_ids.get(call, call) == call for call in ids.values()):
        return message
    content = [
        {**block, "tool_use_id": new_ids.get(ids[id(block)], ids[id(block)])} if id(block) in ids else block
        for block in blocks(message)
    ]
    return {**message, "content": content}


def _client_calls(run: Sequence[Message]) -> list[str]:
    """Return the ids of the calls of the client's tools in neighbouring messages."""
    return [str(block.get("id")) for message in run for block in blocks(message) if block["type"] == "tool_use"]


def _notes(calls: Sequence[str]) -> list[Message]:
    """Return a list of one user message with a note for each of the call ids; an empty list without ids."""
    return [{"role": "user", "content": list(map(lost_result, dict.fromkeys(calls)))}] if calls else []


def _answered(run: list[Message], calls: Sequence[str]) -> list[Message]:
    """Return `run`, neighbouring messages of the user, beginning with one result for each id in `calls`.

    A call without a result gets a note. Other results become text. If nothing is to be changed, `run` is returned.
    """
    placed = {(at, index): block for at, message in enumerate(run) for index, block in enumerate(blocks(message))}
    results = [place for place, block in placed.items() if block["type"] == "tool_result"]
    first_results = {str(placed[place].get("tool_use_id")): place for place in reversed(results)}
    used = {first_results[call] for call in calls if call in first_results}
    is_used = [place in used for place in placed]
    used_come_first = is_used == sorted(is_used, reverse=True)
    if len(used) == len(set(calls)) == len(results) and used_come_first:
        return run
    answers = [
        placed[first_results[call]] if call in first_results else lost_result(call) for call in dict.fromkeys(calls)
    ]
    rest = list[Message]()
    for at, message in enumerate(run):
        if content := [block for index, block in enumerate(blocks(message)) if (at, index) not in used]:
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
