"""A scripted model for agent frameworks: counts with a tool, then answers, finding its place in the last message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from applier.testing import Answer, Request, say, use

__all__ = ["CALLS", "counting_model", "delegating_model", "numbers"]

CALLS = 14


def numbers(to: int) -> str:
    """Count to a number, with words between."""
    return "\n".join(f"{n} is number {n} of the list in report-{to}.txt" for n in range(to))


def counting_model(request: Request) -> Answer:
    """The next call, or the answer when the last call was answered or nothing is to be counted."""
    done = _answered(request.messages[-1])
    made = int(done.rsplit("_", 1)[1]) + 1 if done else 0
    if made >= CALLS or (not done and "ount" not in str(request.messages[-1]["content"])):
        content = [say(f"counted {made} times")]
    else:
        content = [say(f"Count number {made}."), use("numbers", f"toolu_{made}", to=60 + made)]
    return Answer(content, headers=(("connection", "close"),))  # frameworks do not close their clients


def _answered(message: dict[str, Any]) -> str:
    """The id of the last call that `message` answers, of either API; empty if it answers none."""
    if message["role"] == "tool":
        return message["tool_call_id"]
    content = message["content"] if isinstance(message["content"], list) else []
    return ([""] + [block["tool_use_id"] for block in content if block["type"] == "tool_result"])[-1]


def delegating_model(tool: str, *inputs: dict) -> Callable[[Request], Answer]:
    """Calls `tool` with all `inputs` at once where it is told to delegate, and counts where it is told to count."""

    def answer(request: Request) -> Answer:
        spoken = [message for message in request.messages if message["role"] not in ("system", "developer")]
        if "Delegate" not in str(spoken[0]["content"]):
            return counting_model(request)
        if len(spoken) == 1:
            calls = [use(tool, f"toolu_of_{at}", **given) for at, given in enumerate(inputs)]
            return Answer([say("Others do it."), *calls], headers=(("connection", "close"),))
        return Answer([say("all of it is done")], headers=(("connection", "close"),))

    return answer
