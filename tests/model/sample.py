"""A small made-up conversation for the planner model's tests, and requests over it."""

from __future__ import annotations

import json
from typing import Any

from planner.analysis import analyze
from planner.plan import CompactionPlan, PlanRequest
from planner.reading.tokens import TokenCounter
from planner.settings import PlanSettings


def call(number: int, name: str, arguments: dict[str, Any], result: str, **flags: Any) -> list[dict[str, Any]]:
    """A turn of one call with its result."""
    call_id = f"call_{number}"
    use = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    return [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": result, **flags}]},
    ]


def _file(name: str, lines: int) -> str:
    return "\n".join(f"    {name}_{n} = compute_{name}({n * 111})  # keeps part {n}" for n in range(1, lines + 1))


SAMPLE: list[dict[str, Any]] = [
    {"role": "user", "content": "Make the queue drain on shutdown.\nNever touch legacy/queue_v1.py, it is frozen."},
    *call(1, "Read", {"file_path": "app/queue.py"}, _file("queue", 60)),
    *call(2, "Bash", {"command": "ls app"}, "queue.py\nworker.py\nsettings.py"),
    *call(3, "Edit", {"file_path": "app/queue.py", "new_string": "lock = threading.Lock()"}, "edited"),
    *call(4, "Bash", {"command": "pytest -q tests/test_drain.py"},
          "F\nE   TimeoutError: drain_queue waited 30 s\n1 failed in 31.02s\nExit code 1", is_error=True),
    {"role": "assistant", "content": "The lock deadlocks: drain_queue holds it while worker.stop() waits."},
    {"role": "user", "content": "Then use a sentinel instead, please."},
    *call(5, "Edit", {"file_path": "app/worker.py", "new_string": "queue.put(SENTINEL_STOP)"}, "edited"),
    *call(6, "Bash", {"command": "pytest -q tests/test_drain.py"}, ".....\n5 passed in 0.42s"),
]  # fmt: skip
"""t1 user, t2 big read, t3 ls, t4 edit, t5 failing test, t6 agent, t7 user, t8 edit, t9 live passing test."""


def plan_request(
    messages: list[dict[str, Any]] = SAMPLE,
    task: str = "Drain the queue",
    previous: CompactionPlan | None = None,
    **settings: Any,
) -> PlanRequest:
    """A request to plan for `messages`."""
    analysis = analyze(messages)
    return PlanRequest(analysis, task, "", analysis.tokens // 4, PlanSettings(**settings), 1_780_000_000.0, previous)


def answer(*turns: str, facts: tuple[str, ...] = (), brief: tuple[str, ...] = ()) -> str:
    """What a planner model would say."""
    return json.dumps({"brief": list(brief), "turns": list(turns), "facts": list(facts)})


def sent_tokens(body: dict[str, Any]) -> int:
    """What a request to the planner model reads, as its size is planned: the system prompt, and what is said."""
    system = body["system"][0]["text"] if "system" in body else body["messages"][0]["content"]
    said = [message["content"] for message in body["messages"] if message["role"] == "user"]
    return sum(map(TokenCounter().text, [system, *said]))
