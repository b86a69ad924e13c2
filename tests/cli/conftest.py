"""A small real transcript, a store of its own for each test, and the command line in this process."""

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pytest

from applier.cli.app import run
from planner import CompactionPlan, plan_compaction
from tests.transcripts.session_logs import ClaudeCodeLog

MESSAGES = 67
"""How much of the example agent's run: 34 turns, failures and the user's constraints among them."""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(scope="session")
def example():
    """The beginning of the run, as the file has it."""
    whole = json.loads(files("applier.eval").joinpath("transcript.json").read_text("utf-8"))
    return {"task": whole["task"], "messages": whole["messages"][:MESSAGES]}


@pytest.fixture(scope="session")
def example_plan(example) -> CompactionPlan:
    return plan_compaction(example["messages"], "Make the parser read every line.", planner="rules", target_ratio=0.2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder; the store is in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPACTOR_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture
def transcript(folder: Path, example) -> Path:
    path = folder / "transcript.json"
    path.write_text(json.dumps(example))
    return path


@pytest.fixture
def session_log(folder: Path) -> Path:
    """A session of Claude Code: one wish, and twenty files that were read."""
    log = ClaudeCodeLog()
    log.user("rename the module parser to reader, and never touch tests/")
    for number in range(20):
        key = f"toolu_{number}"
        call = {"type": "tool_use", "id": key, "name": "Bash", "input": {"command": f"cat src/part{number}.py"}}
        log.assistant(f"msg_{number}", call)
        log.user([{"type": "tool_result", "tool_use_id": key, "content": "x = 1\n" * 200}])
    path = folder / "session.jsonl"
    path.write_text(log.text())
    return path


@pytest.fixture
def plan_file(folder: Path, example_plan) -> Path:
    path = folder / "plan.json"
    path.write_text(example_plan.to_json())
    return path


@pytest.fixture
def compactor(folder: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(*arguments: object) -> Ran:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return call


@pytest.fixture
def applied(compactor, transcript, plan_file) -> Path:
    """The view that `apply` wrote; the originals are in the store."""
    assert compactor("apply", plan_file, transcript, "-o", "view.json").code == 0
    return transcript.parent / "view.json"


def interruptible():
    """As from a terminal: what a shell starts in the background ignores interrupts, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
