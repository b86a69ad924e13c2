"""A scripted model for agent frameworks: counts with a tool, then answers, finding its place in the last message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from applier.testing import Answer, Request, say, use
from tests.openai_server import items_of

CALLS = 14


def numbers(to: int) -> str:
    """Count to a number, with words between."""
    return "\n".join(f"{n} is number {n} of the list in report-{to}.txt" for n in range(to))


def counting_model(request: Request) -> Answer:
    """The next call, or the answer when the last call was answered or nothing is to be counted."""
    last = entries(request)[-1]
    done = _answered(last)
    made = int(done.rsplit("_", 1)[1]) + 1 if done else 0
    if made >= CALLS or (not done and "ount" not in str(last["content"])):
        content = [say(f"counted {made} times")]
    else:
        content = [say(f"Count number {made}."), use("numbers", f"toolu_{made}", to=60 + made)]
    return Answer(content, headers=(("connection", "close"),))  # frameworks do not close their clients


def entries(request: Request) -> list[dict[str, Any]]:
    """The messages or items of a request, of any API, without the host's instructions in front."""
    listed = request.body["messages"] if "messages" in request.body else items_of(request)
    return [entry for entry in listed if entry.get("role") not in ("system", "developer")]


def _answered(message: dict[str, Any]) -> str:
    """The id of the last call that an entry answers, of any API; empty if it answers none."""
    if "role" not in message or message["role"] == "tool":
        return message.get("tool_call_id") or message["call_id"]
    content = message["content"] if isinstance(message["content"], list) else []
    return ([""] + [block["tool_use_id"] for block in content if block["type"] == "tool_result"])[-1]


def delegating_model(tool: str, *inputs: dict) -> Callable[[Request], Answer]:
    """Calls `tool` with all `inputs` at once where it is told to delegate, and counts where it is told to count."""

    def answer(request: Request) -> Answer:
        spoken = entries(request)
        if "Delegate" not in str(spoken[0]["content"]):
            return counting_model(request)
        if len(spoken) == 1:
            calls = [use(tool, f"toolu_of_{at}", **given) for at, given in enumerate(inputs)]
            return Answer([say("Others do it."), *calls], headers=(("connection", "close"),))
        return Answer([say("all of it is done")], headers=(("connection", "close"),))

    return answer
