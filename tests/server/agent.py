"""A small agent over the real SDK whose tools really run, and a script that keeps it busy."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from applier.testing import Answer, Request, say, use
from tests.strategies import image

TOOLS = [
    {
        "name": "bash",
        "description": "Run a command.",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
    {
        "name": "look",
        "description": "Take a screenshot.",
        "input_schema": {"type": "object", "properties": {"page": {"type": "string"}}},
    },
]
SYSTEM = "You are a coding agent. Work step by step. " * 10
COMMANDS = (
    "seq {n} {m} | sed 's/^/row /'",
    'for i in $(seq 1 60); do echo "src/module_$i.py:{n}: def handler_$i(request, {n})"; done',
    "cat missing_{n}.txt",
    "seq 1 90 | awk '{{print \"test_case_\" $1 \" PASSED in {n} ms\"}}'; echo '90 passed'",
)
"""What the scripted model runs: long output, code, a failure, a passing test run."""


def command(number: int) -> str:
    return COMMANDS[number % len(COMMANDS)].format(n=number, m=number + 220)


@dataclass
class Tools:
    """Runs what the model calls, in a folder."""

    folder: Path
    ran: list[str] = field(default_factory=list)

    def run(self, name: str, arguments: dict[str, Any]) -> str | list[dict[str, Any]]:
        self.ran.append(name)
        if name == "look":
            return [image(640, 480), {"type": "text", "text": f"page {arguments['page']}"}]
        done = subprocess.run(
            ["bash", "-c", arguments["command"]],
            cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else f"Exit code {done.returncode}\n{done.stderr}"

    def answer(self, call: Any) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call.id, "content": self.run(call.name, call.input)}


Moves = Callable[[int], list[dict[str, Any]]]
"""From the number of a round to the blocks of its answer."""


def one_call(number: int) -> list[dict[str, Any]]:
    return [say(f"Step {number}: run the next command."), use("bash", command=command(number))]


def parallel_calls(number: int) -> list[dict[str, Any]]:
    return [say(f"Step {number}."), *(use("bash", command=command(number + at)) for at in range(2))]


def screenshots(number: int) -> list[dict[str, Any]]:
    return [use("look", page=f"p{number}"), use("bash", command=command(number))]


def server_tools(number: int) -> list[dict[str, Any]]:
    search = {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search", "input": {"query": "x"}}
    hit = {"type": "web_search_result", "url": f"https://example.org/{number}", "title": "Docs", "page_age": None}
    sealed = {**hit, "encrypted_content": "QUJD" * 40}
    found = {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{number}", "content": [sealed]}
    return [say("Let me search."), search, found, *one_call(number)]


@dataclass
class Script:
    """Calls tools for so many rounds, then ends the turn; counts its own answers."""

    moves: Moves
    rounds: int
    number: int = 0

    def __call__(self, request: Request) -> Answer:
        self.number += 1
        return Answer(self.moves(self.number) if self.number % self.rounds else [say(f"Done after {self.number}.")])


def work(
    send: Callable[..., Any],
    tools: Tools,
    turns: int,
    *,
    reminders: bool = False,
    marks: bool = False,
    **request: Any,
) -> list[Any]:
    """Give the agent `turns` tasks and let it work; the whole conversation, which only ever grew.

    With `reminders` a system message stands behind each task, with `marks` a cache mark on the newest message alone.
    """
    messages: list[Any] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Task {turn}: never delete rows; check module {turn} again."})
        if reminders:
            messages.append({"role": "system", "content": f"Task {turn} has the tools bash and look."})
        while True:
            sent = with_mark(messages) if marks else messages
            response = send(messages=sent, system=SYSTEM, tools=TOOLS, **request)
            messages.append({"role": "assistant", "content": response.content})
            calls = [block for block in response.content if block.type == "tool_use"]
            if not calls:
                break
            messages.append({"role": "user", "content": [tools.answer(call) for call in calls]})
    return messages


def with_mark(messages: list[Any]) -> list[Any]:
    """`messages` with a cache mark on the last block, as clients send them: each time on another message."""
    *before, last = messages
    content = last["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    marked = [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]
    return [*before, {**last, "content": marked}]
