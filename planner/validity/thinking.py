"""Rules 10 to 13: thinking, as far as one list shows it; rule 14 and what changed are in ``edit``."""

from __future__ import annotations

from collections.abc import Iterator

from planner.reading.messages import Message, blocks
from planner.validity.request import THINKING, Request, place_of
from planner.validity.violation import Violation

__all__ = ["THINKING_RULES"]


def thinking_is_whole(request: Request) -> Iterator[Violation]:
    """Rule 10: thinking has its text or data, in assistant messages only."""
    for at, index, block in request.blocks():
        if block["type"] not in THINKING:
            continue
        key = "thinking" if block["type"] == "thinking" else "data"
        if request.messages[at]["role"] != "assistant":
            cure = "remove it, or put it back into its assistant message"
            yield Violation(10, place_of(at, index), "thinking outside assistant messages", cure, "thinking_role")
        elif not isinstance(block.get(key), str):
            cure = "send the block back as it came, or remove it"
            yield Violation(10, place_of(at, index), f"thinking without its '{key}'", cure, "broken_thinking")


def thinking_is_in_order(request: Request) -> Iterator[Violation]:
    """Rule 10: thinking is never last in the list, and leads its message where it is switched on by hand.

    "The final block in an assistant message cannot be `thinking`"; "If an assistant message contains any
    thinking blocks, the first block must be `thinking`" (Claude up to 4.5).
    """
    last = len(request.messages) - 1
    for at, message in enumerate(request.messages):
        kinds = [block["type"] in THINKING for block in blocks(message)]
        if message["role"] != "assistant" or not any(kinds):
            continue
        if at == last and kinds[-1]:
            cure = "remove the message, or what makes it last"
            yield Violation(10, place_of(at), "the list ends with thinking", cure, "last_thinking")
        if request.family.thinks_manually and request.thinking_enabled is not False and not kinds[0]:
            cure = "put the thinking first, or remove all of this message's"
            yield Violation(10, place_of(at, 0), "thinking stands behind other content", cure, "late_thinking")


def thinking_is_signed(request: Request) -> Iterator[Violation]:
    """Rule 11: a thinking block has a signature; whether it matches, only the API can say."""
    for at, index, block in request.blocks("assistant"):
        if block["type"] == "thinking" and not (isinstance(block.get("signature"), str) and block["signature"]):
            cure = "send the block back as it came, or remove it"
            yield Violation(11, place_of(at, index), "thinking without a signature", cure, "unsigned_thinking")


def manual_thinking_leads_calls(request: Request) -> Iterator[Violation]:
    """Rule 12: with manual thinking on, the last assistant message that has ``tool_use`` starts with thinking.

    The API counts a run of calls and results as one assistant turn: thinking at the start of the run will do.
    """
    last = request.last_assistant
    if not (request.thinking_enabled and request.family.thinks_manually) or last is None:
        return
    run = [message for message in _loop(request, last) if message["role"] == "assistant"]
    calls = any(block["type"] == "tool_use" for block in blocks(request.messages[last]))
    if calls and not any(_starts_with_thinking(message) for message in (run[0], run[-1])):
        cure = "keep the thinking of this run of calls, or send the request without thinking"
        yield Violation(12, place_of(last, 0), "thinking is on, but the calls lost theirs", cure, "lost_thinking")


def no_thinking_when_off(request: Request) -> Iterator[Violation]:
    """Rule 13: with thinking off, the final assistant message holds none."""
    last = request.last_assistant
    if request.thinking_enabled is not False or last is None:
        return
    for index, block in enumerate(blocks(request.messages[last])):
        if block["type"] in THINKING:
            cure = "remove it, or switch thinking on"
            yield Violation(13, place_of(last, index), "thinking is off", cure, "thinking_off")
            return


def _loop(request: Request, last: int) -> list[Message]:
    """The messages up to `last` that belong to one run of calls: back to the last words of the user."""
    start = last
    while start > 0 and not _has_user_words(request.messages[start - 1]):
        start -= 1
    return list(request.messages[start : last + 1])


def _has_user_words(message: Message) -> bool:
    return message["role"] == "user" and all(block["type"] != "tool_result" for block in blocks(message))


def _starts_with_thinking(message: Message) -> bool:
    content = blocks(message)
    return bool(content) and content[0]["type"] in THINKING


THINKING_RULES = (
    thinking_is_whole,
    thinking_is_in_order,
    thinking_is_signed,
    manual_thinking_leads_calls,
    no_thinking_when_off,
)
