"""The extension in the real Pi, on the test server: it compacts, its tools answer, and whatever breaks, Pi does it by
itself."""

import json
import os
import shlex
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from applier.adapters.client_plugin import plugin_files
from applier.processes import program
from applier.testing import MessagesServer, say, use
from tests.mod.client import ANSWER, BROKEN, BY_CARDS
from tests.patience import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        shutil.which("pi") is None, reason="needs npm install -g @earendil-works/pi-coding-agent, and its Node"
    ),
]
ROUNDS, BUILT_IN = 8, "its own summary"
MODEL = {"id": "claude-sonnet-5-5", "contextWindow": 200_000, "maxTokens": 8_000, "input": ["text", "image"]}


class Model:
    """Calls tools, `rounds` after each message of the user; answers as a planner, and as Pi's own summary."""

    def __init__(self):
        self.number, self.rounds, self.asked, self.looks = 0, ROUNDS, [], []

    def __call__(self, request):
        if not request.tools:
            self.asked.append(kind := BY_CARDS if BY_CARDS in json.dumps(request.messages) else BUILT_IN)
            return ANSWER if kind == BY_CARDS else "## Goal\nModules were built."
        if self.looks and "<compacted history=" in json.dumps(request.messages[0]):
            return [self.looks.pop(0)]
        self.number += 1
        n, is_last = self.number, self.number % (self.rounds + 1) == 0
        return "All is done." if is_last else [say(f"Module {n}."), use("bash", command=f"seq {n}000 {n}400")]


@contextmanager
def opened(folder, server, **more):
    """Pi with the extension, by its RPC; yields what types a line and waits for the end of what it does."""
    home = folder / "home" / ".pi" / "agent"
    extension, work = home / "extensions" / "compactor", folder / "work"
    for path in (extension, work):
        path.mkdir(parents=True)
    for name, content in plugin_files(program("mod"), {"COMPACTOR_STORE": str(folder / "store.db")}, "pi").items():
        (extension / name).write_bytes(content)
    provider = {"baseUrl": server.url, "api": "anthropic-messages", "apiKey": "none", "models": [{**MODEL, **more}]}
    (home / "models.json").write_text(json.dumps({"providers": {"loop": provider}}), "utf-8")
    (home / "settings.json").write_text(json.dumps({"compaction": {"keepRecentTokens": 2_000}}), "utf-8")
    (work / "click.py").write_text("raise ImportError('a stranger')")
    with subprocess.Popen(
        ["pi", "--mode", "rpc", "--offline", "--model", f"loop/{MODEL['id']}", "--session-id", "a-session"],
        cwd=work, env={"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "PYTHONPATH": "."},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        lines = []

        def do(end, **command):
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                lines.append(json.loads(line))
                if lines[-1]["type"] == end:
                    return lines[-1]
            raise AssertionError(f"Pi ended: {lines[-3:]}")

        do.extension, do.lines = extension, lines
        try:
            yield do
        finally:
            process.stdin.close()
            process.wait(PATIENCE_SECONDS)


def shown(lines):
    return [line["message"] for line in lines if line.get("method") == "notify"]


def test_compactions_on_command_and_the_tools_behind_them(tmp_path):
    model = Model()
    model.looks = [use("search_context", text="1200"), use("restore_context", reference="t3", last_line=3)]
    with MessagesServer(model, window_tokens=1_000_000) as server:
        with opened(tmp_path, server) as do:
            do("agent_settled", type="prompt", message="Build the modules, never delete a file")
            do("compaction_end", type="compact", customInstructions="keep the tests")
            do("agent_settled", type="prompt", message="Go on")
            do("compaction_end", type="compact")
            do("agent_settled", type="prompt", message="And on")
            notes = shown(do.lines)
            do("extension_ui_request", type="prompt", message="/compactor preview keep the tests")
            preview = shown(do.lines)[-1]
        assert (server.violations, model.asked, len(notes)) == ([], [BY_CARDS], 2)
        assert preview.startswith("A compaction now:")
        assert "Still in sight: 1 of 1 demands" in preview
        assert all(note.startswith("Compacted") and "compactor restore h" in note for note in notes)
        first, *others = server.exchanges[-1].request.messages
        assert json.dumps(first).count("<compacted history=") == 1
        assert "never delete a file" in json.dumps(first)
        assert "<compacted" not in json.dumps(others)
        looked = [text for one in server.exchanges if ":t2" in (text := json.dumps(one.request.messages[1:]))]
        assert any('Module 2.\\nbash command=seq 2000 2400\\n2000"' in text for text in looked)


def test_compactions_amid_the_work(tmp_path):
    model = Model()
    model.rounds = 28
    with MessagesServer(model, window_tokens=1_000_000) as server:
        with opened(tmp_path, server, contextWindow=32_000) as do:
            do("agent_settled", type="prompt", message="Build the modules, never delete a file")
            ended = [line for line in do.lines if line["type"] == "compaction_end"]
        assert server.violations == []
        assert {line["reason"] for line in ended} == {"threshold"}
        assert set(model.asked) == {BY_CARDS}
        sent = [exchange.request.messages for exchange in server.exchanges]
        assert all("Module 28." in json.dumps(one) for one in sent[-1:])
        assert all("never delete a file" in json.dumps(one) for one in sent[:-1])


def test_whatever_breaks_pi_compacts_by_itself_and_a_line_says_so(tmp_path):
    model = Model()
    with MessagesServer(model, window_tokens=1_000_000) as server, opened(tmp_path, server) as do:
        file = do.extension / "program.json"
        works = json.loads(file.read_text("utf-8"))
        for how, broken in BROKEN.items():
            do("agent_settled", type="prompt", message="Build the modules")
            file.write_text("{}" if how == "no program" else json.dumps({**works, **broken}), "utf-8")
            before = len(do.lines)
            ended = do("compaction_end", type="compact")
            (line, *receipts) = shown(do.lines[before:])
            assert "Pi compacts by itself" in line, how
            assert receipts == [], how
            assert "Modules were built" in ended["result"]["summary"], how
        assert set(model.asked) == {BUILT_IN}
        do("agent_settled", type="prompt", message="Build the modules, never delete a file")
        no_plan = f'test "$1" != compact && exec {shlex.join(works["argv"])} "$1"'
        file.write_text(json.dumps({**works, "argv": ["sh", "-c", no_plan, "sh"]}), "utf-8")
        do("compaction_end", type="compact")
        receipt = shown(do.lines)[-1]
    assert receipt.startswith("Pi compacted:")
    assert "Build the modules" in receipt
    assert "compactor restore h" in receipt
