"""What `prepare` costs when nothing is to be done, by length of the history.

Times this machine; says nothing about what is sent.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from applier.session.session import Session

__all__ = ["Steady", "steady_state"]

CALLS = 40
LINES_PER_RESULT = 30


@dataclass(frozen=True, slots=True)
class Steady:
    """Nothing to do, at one length."""

    messages: int
    tokens: int
    milliseconds: float
    """Of one `prepare` with two new messages; the median."""
    copied_milliseconds: float
    """The same for a caller that makes all its messages anew for every call, as a gateway does."""


def steady_state(lengths: Sequence[int] = (10_000, 50_000, 150_000, 600_000)) -> list[Steady]:
    """At about so many tokens each."""
    return [_steady(length) for length in lengths]


def _steady(tokens: int) -> Steady:
    per_turn = 600
    messages = _conversation(tokens // per_turn)
    with tempfile.TemporaryDirectory() as folder:
        same = _median(Path(folder, "a.db"), messages, copied=False)
        copied = _median(Path(folder, "b.db"), messages, copied=True)
        with Session(store=Path(folder, "c.db"), window_tokens=10**8, planner="rules") as session:
            session.prepare(messages)
            return Steady(len(messages), session.state.tokens, same, copied)


def _median(path: Path, messages: list[dict[str, Any]], *, copied: bool) -> float:
    known = len(messages) - 2 * CALLS
    taken: list[float] = []
    with Session(store=path, window_tokens=10**8, planner="rules") as session:
        session.prepare(messages[:known])
        for length in range(known + 2, len(messages) + 1, 2):
            given = _copy(messages[:length]) if copied else messages[:length]
            started = time.perf_counter()
            session.prepare(given)
            taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1_000


def _copy(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**message, "content": [dict(block) for block in message["content"]]} for message in messages]


def _conversation(turns: int) -> list[dict[str, Any]]:
    """A task and `turns` calls with their results, about 600 tokens each."""
    messages: list[dict[str, Any]] = [_message("user", {"type": "text", "text": "Make the tests pass."})]
    for number in range(max(turns, CALLS + 1)):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "read", "input": {"path": f"src/m{number}.py"}}
        text = "\n".join(f"{line}\tvalue_{line} = compute({number}, {line})" for line in range(LINES_PER_RESULT))
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": text}
        messages += [_message("assistant", call), _message("user", result)]
    return messages


def _message(role: str, block: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": [block]}
