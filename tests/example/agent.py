"""A plain agent loop over the Messages API: send, run the tools, append, again.

Decides nothing about compaction: give the client a `CompactionMiddleware` and the loop below goes on for
ever as it stands. The list of messages is the caller's and only grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from tests.example.workspace import TOOLS

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]
"""From a ``tool_use`` block to its ``tool_result`` block."""

REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). To tell you how to proceed, the user said:\n"
)
"""How Claude Code tells the agent that a call was refused, with what the user typed behind it."""
SYSTEM = (
    "You are a coding agent. You work in /workspace with the tools bash, read, write and edit. "
    "Run the tests after every change, and say briefly what you do and why."
)


class Person(Protocol):
    """Who the agent works for."""

    def next_words(self, messages: list[Any]) -> str | None:
        """What they say when the agent has answered (or at the start); None when they are content."""

    def refuses(self, call: Mapping[str, Any]) -> str | None:
        """Why this tool call may not run, in their words; None when it may."""

    def interrupts(self, call: Mapping[str, Any]) -> str | None:
        """What they typed while this call ran; None if nothing."""


def run_agent(
    send: Callable[..., Any],
    person: Person,
    answer: Answer,
    messages: list[Any],
    *,
    model: str = "claude-sonnet-5-5",
    tools: list[dict[str, Any]] = TOOLS,
) -> Iterator[list[Any]]:
    """Work until the person is content; yields `messages` each time they have grown by a call or an answer.

    `send` is ``client.messages.create``, of a client with `CompactionMiddleware` or not, or `plain_loop.ask` with a
    session. `answer` runs a tool call: a workspace's own method, or one that knows more `tools`. `messages` may hold
    an unfinished run: the loop goes on where it ended.
    """
    if not messages and (words := person.next_words(messages)):
        messages.append({"role": "user", "content": words})
    while messages:
        response = send(model=model, max_tokens=4096, system=SYSTEM, tools=tools, messages=messages)
        messages.append({"role": "assistant", "content": response.content})
        calls = [block.model_dump(mode="json") for block in response.content if block.type == "tool_use"]
        follow = _results(calls, person, answer) if calls else person.next_words(messages)
        if follow is None:
            yield messages
            return
        messages.append({"role": "user", "content": follow})
        yield messages


def _results(calls: list[dict[str, Any]], person: Person, answer: Answer) -> list[dict[str, Any]]:
    results = [_result(call, person, answer) for call in calls]
    words = [text for call in calls if (text := person.interrupts(call))]
    return results + [{"type": "text", "text": text} for text in words]


def _result(call: dict[str, Any], person: Person, answer: Answer) -> dict[str, Any]:
    reason = person.refuses(call)
    if reason is None:
        return answer(call)
    return {"type": "tool_result", "tool_use_id": call["id"], "content": REFUSED + reason, "is_error": True}
