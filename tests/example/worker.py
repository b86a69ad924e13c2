"""The example agent as a process of its own: keeps its messages and its session in a folder, so that it may be
killed at any moment and started again: ``python -m tests.example.worker FOLDER URL ROUNDS``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anthropic

from applier.adapters.agent_tools import AGENT_TOOL_NAMES, AGENT_TOOLS, handle_tool_use
from applier.adapters.frameworks.anthropic_middleware import CompactionMiddleware
from applier.session import Session
from planner.reading.messages import plain_message
from tests.example.agent import run_agent
from tests.example.screenplay import load_screenplay
from tests.example.scripted import ScriptedPerson
from tests.example.workspace import TOOLS, Workspace
from tests.loopback import KEY

MODEL = "claude-sonnet-5-5"
STORY = Path(__file__).parent / "long"
WINDOW_TOKENS = 24_000


def open_session(folder: Path) -> Session:
    """The agent's session, new or as it was left."""
    return Session(
        session_id="example", store=folder / "store.db", model=MODEL, planner="rules", window_tokens=WINDOW_TOKENS
    )


def saved_messages(folder: Path) -> list[dict[str, Any]]:
    """The agent's own record of its conversation, one message a line."""
    path = folder / "messages.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main(folder: Path, url: str, rounds: int) -> None:
    """Go on with the conversation in `folder`, to the end of the play."""
    _, play = load_screenplay(STORY, rounds)
    workspace, messages = Workspace(folder / "workspace"), saved_messages(folder)
    kept = len(messages)
    with open_session(folder) as session, (folder / "messages.jsonl").open("a") as log:

        def answer(call: Mapping[str, Any]) -> dict[str, Any]:
            mine = call["name"] in AGENT_TOOL_NAMES
            return handle_tool_use(session, call) if mine else workspace.answer(call)

        middleware = [CompactionMiddleware(session)]
        with anthropic.Anthropic(api_key=KEY, base_url=url, middleware=middleware) as client:
            for grown in run_agent(
                client.messages.create,
                ScriptedPerson(play),
                answer,
                messages,
                model=MODEL,
                tools=[*TOOLS, *AGENT_TOOLS],
            ):
                log.writelines(json.dumps(plain_message(message)) + "\n" for message in grown[kept:])
                log.flush()
                kept = len(grown)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
