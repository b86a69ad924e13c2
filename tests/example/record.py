"""Plays a screenplay for real and writes its transcript: ``python -m tests.example.record``.

The agent, the SDK, the server and every command are real; only the model's and the user's words are written.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import applier.eval
from applier.testing import Answer
from planner.reading.messages import plain_message
from tests.example.agent import SYSTEM, run_agent
from tests.example.screenplay import Call, Screenplay, load_screenplay
from tests.example.scripted import ScriptedModel, ScriptedPerson
from tests.example.workspace import TOOLS, Workspace
from tests.loopback import Loopback

HERE = Path(__file__).parent
RECORDINGS = {
    Path(applier.eval.__file__).with_name("transcript.json"): (HERE / "story", 2),
    HERE / "failing.json": (HERE / "failing", 0),
    HERE / "service.json": (HERE / "service", 0),
}
"""Each transcript that is kept, with its screenplay and how many rounds of it."""


def seeded(seed: list[Call], folder: Path) -> Workspace:
    """A workspace in `folder` in which `seed` has been done."""
    workspace = Workspace(folder)
    for call in seed:
        done = workspace.answer({"id": "seed", "name": call.name, "input": call.input})
        if done.get("is_error"):
            raise RuntimeError(f"the seed failed: {done['content']}")
    return workspace


def played(play: Screenplay) -> Loopback:
    """A server whose model speaks from `play` and which refuses what the API refuses."""
    model = ScriptedModel(play)
    return Loopback([lambda request: Answer(**model.answer(request.body))])


def record(folder: Path, rounds: int = 0, most_messages: int = 10**6) -> list[dict[str, Any]]:
    """The messages of a run of the screenplay in `folder`, as plain data."""
    seed, play = load_screenplay(folder, rounds)
    messages: list[Any] = []
    with tempfile.TemporaryDirectory() as place, played(play) as server:
        workspace = seeded(seed, Path(place))
        for _ in run_agent(server.client().messages.create, ScriptedPerson(play), workspace.answer, messages):
            if len(messages) >= most_messages:
                break
    return [plain_message(message) for message in messages]


def as_text(task: str, messages: list[dict[str, Any]]) -> str:
    """A transcript file: one message a line, so that changes can be read."""
    head = json.dumps({"task": task, "system": SYSTEM, "tools": TOOLS}, ensure_ascii=False)
    lines = ",\n".join(json.dumps(message, ensure_ascii=False) for message in messages)
    return f'{head[:-1]}, "messages": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    for path, (folder, rounds) in RECORDINGS.items():
        messages = record(folder, rounds)
        path.write_text(as_text(messages[0]["content"], messages), encoding="utf-8")
        print(f"{path.name}: {len(messages)} messages, {path.stat().st_size} bytes")
