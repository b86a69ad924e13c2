"""The real Claude Code goes on from what we write, against a loopback server, with a home of its own."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from applier.adapters.transcripts import read_transcript
from applier.program import program
from applier.testing import use
from planner.reading.messages import blocks
from tests.loopback import Loopback

SECONDS = 120
pytestmark = pytest.mark.skipif(
    shutil.which("claude") is None, reason="needs the client: npm install -g @anthropic-ai/claude-code"
)

QUIET = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER")


@pytest.fixture
def client(folder):
    """Runs the client in a folder of its own; its home is beside it."""
    work, home = folder / "work", folder / "home"
    work.mkdir()
    home.mkdir()
    for name in ("alpha", "beta", "gamma"):
        (work / f"{name}.txt").write_text(f"{name} line\n" * 400)

    def run(server, *arguments):
        own = {"HOME": home, "ANTHROPIC_API_KEY": "sk-ant-none", "ANTHROPIC_BASE_URL": server.url}
        ours = {
            "PYTHONPATH": Path(__file__).parents[2],
            "COMPACTOR_STORE": folder / "store.db",
            "PATH": os.environ["PATH"],
        }
        environment = {name: str(value) for name, value in {**own, **ours, **dict.fromkeys(QUIET, "1")}.items()}
        return subprocess.run(
            ["claude", *arguments],
            cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip

    run.work, run.home = work, home
    return run


def record(client):
    """A session that the client wrote itself: three files read, one command failed."""
    steps = [[use("Read", f"toolu_{n}", file_path=str(client.work / f"{n}.txt"))] for n in ("alpha", "beta", "gamma")]
    steps += [[use("Bash", "toolu_ls", command="ls missing.txt")], "Read them; missing.txt is not there."]
    with Loopback(steps) as server:
        ran = client(server, "-p", "Read the three files, never change them", "--allowedTools", "Read", "Bash")
    assert ran.returncode == 0, ran.stderr
    (log,) = (client.home / ".claude" / "projects").glob("*/*.jsonl")
    return log


def sent_blocks(message):
    return [json.dumps({k: v for k, v in block.items() if k != "cache_control"}) for block in blocks(message)]


def test_resumed_session_sends_our_view(client, compactor, monkeypatch):
    log = record(client)
    before = log.read_bytes()
    ran = compactor("resume", log, "--planner", "rules", "--target-ratio", 0.3, "--json")
    assert ran.code == 0, ran.err
    view = read_transcript(Path(ran.json["file"])).messages
    with Loopback(["Going on."]) as server:
        resumed = client(server, "--resume", ran.json["session_id"], "-p", "And now?")
        sent = [block for message in server.requests[-1].body["messages"] for block in sent_blocks(message)]
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.strip() == "Going on."
    assert [block for message in view for block in sent_blocks(message) if block not in sent] == []
    assert sum(map(len, sent)) < len(before) / 2
    assert log.read_bytes() == before


def test_hooks_keep_what_the_clients_own_compaction_loses(client, compactor, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(client.home / ".claude"))
    log = record(client)
    assert compactor("hooks", "install", "--yes").code == 0
    with Loopback(["<summary>Three files were read.</summary>", "Going on."]) as server:
        assert client(server, "--resume", log.stem, "-p", "/compact").returncode == 0
        assert client(server, "--resume", log.stem, "-p", "And now?").returncode == 0
        sent = json.dumps(server.requests[-1].body["messages"])
    (event,) = compactor("log", "--json").json
    assert event["kind"] == "pre_compact"
    assert f"{shlex.join(program())} restore {event['history']}:t1" in sent
    turns = [compactor("restore", f"{event['history']}:t{number}").out for number in range(1, 7)]
    assert all(any(f"400\t{name} line" in turn for turn in turns) for name in ("alpha", "beta", "gamma"))
