"""What happens to thinking blocks when messages before them change, by what the target model demands.

On models with preserved thinking a thinking block is bound to every message before it, so all thinking behind the
first change goes. Older models drop earlier thinking themselves, but for what leads the calls that go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from planner.reading.families import model_family
from planner.reading.history import History, Turn
from planner.reading.messages import Message, blocks

__all__ = ["ThinkingPolicy", "leading_turn", "leads_with_thinking", "thinking_policy", "without_thinking"]

_THINKING = ("thinking", "redacted_thinking")

ThinkingPolicy = Literal["strip", "leave"]


def thinking_policy(model: str) -> ThinkingPolicy:
    """``strip`` for models with preserved thinking and unknown ones, ``leave`` for those that drop it themselves."""
    return "strip" if model_family(model).preserves_thinking else "leave"


def without_thinking(message: Message) -> Message | None:
    """`message` without its thinking blocks: the same object if it has none, None if nothing else was in it."""
    content = message["content"]
    if not isinstance(content, list):
        return message
    rest = [block for block in content if block["type"] not in _THINKING]
    if len(rest) == len(content):
        return message
    return {**message, "content": rest} if rest else None


def leading_turn(history: History, stands: Callable[[Turn], bool]) -> Turn | None:
    """The turn whose thinking must lead the last calls of a view in which only turns that `stands` are messages; mostly
    None.

    Manual thinking comes once, before the first call of a run, and without it the API refuses the last ("Expected
    `thinking` …, but found `tool_use`"). In a view notes and the user's words are text behind results, so a run there
    goes back over kept calls to the last kept answer.
    """
    messages, standing = history.messages, [turn for turn in history.turns if stands(turn)]
    shown = (at for turn in reversed(standing) for at in reversed(range(turn.start, turn.stop)))
    last = next((at for at in shown if messages[at]["role"] == "assistant"), -1)
    if (
        last < 0
        or leads_with_thinking(messages[last])
        or all(block["type"] != "tool_use" for block in blocks(messages[last]))
    ):
        return None
    first = last
    for turn in reversed(standing):
        if turn.stop <= last and turn.kind != "user":
            if turn.kind != "tools":
                break
            first = turn.start
    while first > 0 and not leads_with_thinking(messages[first]) and not _is_words(messages[first - 1]):
        first -= 1
    found = next((turn for turn in history.turns if turn.start == first and turn.kind == "tools"), None)
    return found if found is not None and leads_with_thinking(messages[first]) and not stands(found) else None


def leads_with_thinking(message: Message) -> bool:
    """True for a message of the assistant that begins with thinking."""
    return message["role"] == "assistant" and any(block["type"] in _THINKING for block in blocks(message)[:1])


def _is_words(message: Message) -> bool:
    return message["role"] == "user" and all(block["type"] != "tool_result" for block in blocks(message))
