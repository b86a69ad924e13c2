"""Decides what happens to the model's thinking when messages before it change.

Some models accept a thinking block only after exactly the messages that it was made for; for these all thinking after
the first change is removed. Older models drop earlier thinking themselves, except before the calls of the present turn.
"""

from __future__ import annotations

from collections.abc import Container
from itertools import takewhile
from typing import Literal

from planner.reading.messages import THINKING, History, Message, blocks, has_user_words
from planner.reading.tokens import model_family

ThinkingPolicy = Literal["strip", "leave"]
"""Treatment of thinking after the first changed message: removed (``strip``), or left to the API, which drops it."""


def thinking_policy(model: str) -> ThinkingPolicy:
    """Return what happens to thinking after the first changed message: ``strip`` for models that would refuse it, and
    for unknown ones; ``leave`` for models whose API drops it."""
    return "strip" if model_family(model).preserves_thinking else "leave"


def without_thinking(message: Message) -> Message | None:
    """Return `message` without its thinking blocks: the same object if it has none, and None if it has nothing else."""
    content = message["content"]
    if not isinstance(content, list):
        return message
    others = [block for block in content if block["type"] not in THINKING]
    if len(others) == len(content):
        return message
    return {**message, "content": others} if others else None


def leading_turn(history: History, kept: Container[str], model: str) -> str:
    """Return the id of a turn that must also be kept, because the API refuses the last kept calls without its thinking;
    mostly empty.

    It is empty if `model` needs no thinking there, or if the turn is among the `kept` ids already. Manual thinking
    occurs once, before the first call of a run, and without it the API refuses the last call ("Expected `thinking` …,
    but found `tool_use`"). In a compacted list, notes and the user's words are text after results, so that kept turns
    which were far apart may form one run of calls.
    """
    messages, kept_turns = history.messages, [turn for turn in history.turns if turn.id in kept]
    newest_first = (index for turn in reversed(kept_turns) for index in reversed(range(turn.start, turn.stop)))
    last_answer = next((index for index in newest_first if messages[index]["role"] == "assistant"), -1)
    has_calls = last_answer >= 0 and any(block["type"] == "tool_use" for block in blocks(messages[last_answer]))
    if thinking_policy(model) == "strip" or not has_calls or leads_with_thinking(messages[last_answer]):
        return ""
    # go back over kept turns with calls, then over messages, to one with thinking or to the user's words
    first = last_answer
    before = [turn for turn in kept_turns if turn.stop <= first and turn.kind != "user"]
    for turn in takewhile(lambda turn: turn.kind == "tools", reversed(before)):
        first = turn.start
    while first > 0 and not leads_with_thinking(messages[first]) and not has_user_words(messages[first - 1]):
        first -= 1
    leading_id = next((turn.id for turn in history.turns if turn.start == first and turn.kind == "tools"), "")
    return leading_id if leads_with_thinking(messages[first]) and leading_id not in kept else ""


def leads_with_thinking(message: Message) -> bool:
    """Return True if `message` is the assistant's and begins with thinking, which must stay at its beginning."""
    return message["role"] == "assistant" and any(block["type"] in THINKING for block in blocks(message)[:1])
