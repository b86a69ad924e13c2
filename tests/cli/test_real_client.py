"""The real Claude Code and Codex go on from what we write, against loopback servers, with a home of their own."""

import json
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from applier.adapters.transcripts import read_transcript
from applier.testing import use
from planner.reading.messages import blocks
from tests.loopback import Loopback
from tests.patience import PATIENCE_SECONDS

needs_claude = pytest.mark.skipif(
    shutil.which("claude") is None, reason="needs the client: npm install -g @anthropic-ai/claude-code"
)
needs_codex = pytest.mark.skipif(shutil.which("codex") is None, reason="needs the client: npm install -g @openai/codex")
pytestmark = pytest.mark.real

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
            cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE_SECONDS,
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
    """Without marks and the line end that the client puts between texts of the user that it joins."""
    shown = ({k: v for k, v in block.items() if k != "cache_control"} for block in blocks(message))
    return [json.dumps({k: v.rstrip("\n") if k == "text" else v for k, v in block.items()}) for block in shown]


@needs_claude
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
    assert (resumed.stdout.strip(), server.violations) == ("Going on.", [])
    # what the host says beside the conversation, the client says anew, and in a message of its own
    ours = [block for message in view for block in sent_blocks(message) if "<system-reminder>" not in block]
    assert [block for block in ours if block not in sent] == []
    assert sum(map(len, sent)) < len(before) / 2
    assert log.read_bytes() == before


class Responses(ThreadingHTTPServer):
    """A Responses API that has `files` read, one a call, and then answers in words."""

    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), ResponsesHandler)
        self.files, self.inputs = list(files), []

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self.shutdown()
        self.server_close()

    def answer(self, body):
        self.inputs.append(body["input"])
        number = len(self.inputs)
        if self.files:
            arguments = json.dumps({"cmd": f"cat {self.files.pop(0)}.txt"})
            call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": "exec_command"}
            return {**call, "arguments": arguments, "status": "completed"}
        content = [{"type": "output_text", "text": f"Answer {number}.", "annotations": []}]
        words = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
        return {**words, "status": "completed", "content": content}


class ResponsesHandler(BaseHTTPRequestHandler):
    def log_message(self, format, *args):
        pass

    def do_POST(self):
        item = self.server.answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        response = {"id": f"resp_{len(self.server.inputs)}", "object": "response", "output": [item]}
        usage = {"input_tokens": 1000, "output_tokens": 10, "total_tokens": 1010}
        events = [
            {"type": "response.created", "response": {**response, "output": []}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {**response, "usage": usage}},
        ]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode())


def codex(client, server, *arguments):
    """Run Codex with `server` as a provider of its own."""
    provider = f'{{name="loopback", base_url="http://127.0.0.1:{server.server_address[1]}/v1", wire_api="responses"}}'
    settings = ["-c", "model_provider=loopback", "-c", f"model_providers.loopback={provider}", "--skip-git-repo-check"]
    return subprocess.run(
        ["codex", "exec", *settings, "--dangerously-bypass-approvals-and-sandbox", *arguments],
        cwd=client.work, env={"HOME": str(client.home), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip


@needs_codex
def test_codex_goes_on_with_our_view_of_its_session_and_shows_no_note_as_typed(client, compactor, monkeypatch):
    (client.home / ".codex").mkdir()
    monkeypatch.setenv("CODEX_HOME", str(client.home / ".codex"))
    words = "Read the three files, never change them"
    with Responses(["alpha", "beta", "gamma"] * 2) as server:
        assert codex(client, server, words).returncode == 0
        before = server.inputs[-1]
    (log,) = (client.home / ".codex" / "sessions").glob("**/rollout-*.jsonl")
    written = compactor("resume", log.stem[-36:], "--planner", "rules", "--target-ratio", 0.3, "--in-client", "--json")
    assert written.code == 0, written.err
    with Responses([]) as server:
        resumed = codex(client, server, "resume", written.json["session_id"], "And now?")
        (sent,) = server.inputs
    assert (resumed.returncode, resumed.stdout.strip()) == (0, "Answer 1."), resumed.stderr
    assert f"session id: {written.json['session_id']}" in resumed.stderr
    texts = [part["text"] for item in sent if item["type"] == "message" for part in item["content"]]
    assert (words in "\n".join(texts), texts.count("And now?")) == (True, 1)
    assert any(text.startswith("<compacted history=") for text in texts)
    assert len(json.dumps(sent)) < len(json.dumps(before)) - 20_000
    developer = [json.dumps(item.get("content")) for item in sent if item.get("role") == "developer"]
    assert len(set(developer)) == len(developer), "the client says what it had said before"
    lines = [json.loads(line) for line in Path(written.json["file"]).read_text().splitlines()]
    shown = json.dumps([line["payload"] for line in lines if line["type"] == "event_msg"])
    assert ("<compacted" in shown, shown.count("UserMessage")) == (False, 2)
