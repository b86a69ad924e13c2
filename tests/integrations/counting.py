"""A scripted model for agent frameworks: counts with a tool, then answers, finding its place in the last message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.loopback import Answer, say, use

__all__ = ["CALLS", "counting_model", "numbers"]

CALLS = 14


def numbers(to: int) -> str:
    """Count to a number, with words between."""
    return "\n".join(f"{n} is number {n} of the list in report-{to}.txt" for n in range(to))


def counting_model(body: dict[str, Any]) -> Answer:
    """The next call, or the answer when the last call was answered or nothing is to be counted."""
    last = body["messages"][-1]["content"]
    blocks = [{"type": "text", "text": last}] if isinstance(last, str) else last
    done = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    made = int(done[-1].rsplit("_", 1)[1]) + 1 if done else 0
    if made >= CALLS or (not done and "ount" not in str(blocks)):
        answer = say(f"counted {made} times")
    else:
        answer = use("numbers", {"to": 60 + made}, f"toolu_{made}", f"Count number {made}.")
    return replace(answer, headers=(("connection", "close"),))  # frameworks do not close their clients
