"""The plugin in the real OpenCode, on the test server: it compacts, its tools answer, and whatever breaks, OpenCode
does it by itself or keeps every word."""

import json
import os
import shutil
import subprocess
import urllib.request
from contextlib import contextmanager

import pytest

from applier.adapters.client_plugin import plugin_files, put_plugin
from applier.processes import program
from applier.testing import MessagesServer, say, use
from tests.mod.client import ANSWER, BROKEN, BY_CARDS
from tests.patience import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("opencode") is None, reason="needs npm install -g opencode-ai"),
]
ROUNDS, BUILT_IN, NO_QUESTION, TITLE = 8, "its own summary", "the one word", "a title"
MODEL = {"providerID": "anthropic", "modelID": "claude-sonnet-5-5"}
QUIET = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
SUMMARY = "## Goal\nModules were built."


class Model:
    """Calls tools, `ROUNDS` after each message of the user; answers as a planner, and as OpenCode's own summary."""

    def __init__(self):
        self.number, self.asked, self.looks = 0, [], []

    def __call__(self, request):
        text = json.dumps(request.messages)
        if not request.tools:
            summarizes = "summar" in text or "conversation history" in text
            kind = next((kind for kind in (BY_CARDS, NO_QUESTION) if kind in text), BUILT_IN if summarizes else TITLE)
            self.asked += [kind] * (kind != TITLE)
            return {BY_CARDS: ANSWER, NO_QUESTION: "done"}.get(kind, SUMMARY)
        if self.looks and "<compacted history=" in text:
            return [self.looks.pop(0)]
        self.number += 1
        n = self.number
        call = use("bash", command=f"seq {n}000 {n}400", description="Count")
        return "All is done." if n % (ROUNDS + 1) == 0 else [say(f"Module {n}."), call]


@contextmanager
def opened(folder, server):
    """OpenCode with the plugin, by its HTTP interface; yields a function that posts to it or, without a body, reads."""
    config, work = folder / "home/.config/opencode", folder / "work"
    for path in (config / "plugins", work):
        path.mkdir(parents=True)
    place = config / "plugins/compactor"
    put_plugin(plugin_files(program("mod"), {"COMPACTOR_STORE": str(folder / "store.db")}, "opencode"), place)
    model = {"name": "a model", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
    options = {"baseURL": f"{server.url}/v1", "apiKey": "none"}
    settings = {"permission": "allow", "compaction": {"preserve_recent_tokens": 2_000}}
    provider = {"anthropic": {"options": options, "models": {MODEL["modelID"]: model}}}
    (config / "opencode.json").write_text(json.dumps({**settings, "provider": provider}), "utf-8")
    (work / "click.py").write_text("raise ImportError('a stranger')")
    quiet = dict.fromkeys((f"OPENCODE_DISABLE_{name}" for name in QUIET), "1")
    with (folder / "log").open("w") as log, subprocess.Popen(
        ["opencode", "serve", "--port", "0", "--print-logs"],
        cwd=work, env={"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "PYTHONPATH": ".", **quiet},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
    ) as process:  # fmt: skip
        url = next(line for line in process.stdout if "http" in line).split()[-1]

        def do(path, body=None):
            data = None if body is None else json.dumps(body).encode()
            asked = urllib.request.Request(url + path, data, {"content-type": "application/json"})
            with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
                return json.loads(answer.read())

        do.plugin, do.log = place, folder / "log"
        try:
            yield do
        finally:
            process.terminate()


def types(do, session, text):
    """What the agent answers at the end."""
    answer = do(f"/session/{session}/message", {"model": MODEL, "parts": [{"type": "text", "text": text}]})
    return "\n".join(part["text"] for part in answer["parts"] if part["type"] == "text")


def compacts(do, session):
    """The summary that the client keeps."""
    do(f"/session/{session}/summarize", MODEL)
    last = do(f"/session/{session}/message")[-1]
    return "\n".join(part["text"] for part in last["parts"] if part["type"] == "text")


def test_compactions_on_command_and_the_tools_behind_them(tmp_path):
    model = Model()
    model.looks = [use("search_context", text="1200"), use("restore_context", reference="t3", last_line=3)]
    with MessagesServer(model, window_tokens=1_000_000) as server:
        with opened(tmp_path, server) as do:
            session = do("/session", {})["id"]
            types(do, session, "Build the modules, never delete a file")
            views = [compacts(do, session)]
            types(do, session, "Go on")
            views.append(compacts(do, session))
            assert types(do, session, "And on") == "All is done."
        assert (server.violations, model.asked) == ([], [BY_CARDS, BY_CARDS])
    assert all("never delete a file" in view and view.count("<compacted history=") == 1 for view in views)
    sent = [json.dumps(exchange.request.messages) for exchange in server.exchanges]
    assert "never delete a file" in sent[-1]
    assert SUMMARY not in sent[-1]
    assert any('"name": "search_context"' in text and "203: 1200" in text for text in sent)
    assert any('"name": "restore_context"' in text and "t3 lines 1 to 3 of" in text for text in sent)
    assert do.log.read_text().count("Compacted: ") == 2
    tools = {tool["name"]: tool["input_schema"] for tool in server.exchanges[-1].request.body["tools"]}
    assert tools["restore_context"]["required"] == ["reference"]


def test_whatever_breaks_opencode_compacts_by_itself_and_a_line_says_so(tmp_path):
    model = Model()
    with MessagesServer(model, window_tokens=1_000_000) as server, opened(tmp_path, server) as do:
        file = do.plugin / "program.json"
        works = json.loads(file.read_text("utf-8"))
        for how, broken in BROKEN.items():
            session = do("/session", {})["id"]
            types(do, session, "Build the modules")
            file.write_text("{}" if how == "no program" else json.dumps({**works, **broken}), "utf-8")
            assert SUMMARY in compacts(do, session), how
        assert set(model.asked) == {BUILT_IN}
    assert do.log.read_text().count("OpenCode compacts by itself") == len(BROKEN)


def test_a_program_that_fails_behind_the_question_costs_no_word(tmp_path):
    """What the model answers then is a plan, and no summary."""
    model = Model()
    with MessagesServer(model, window_tokens=1_000_000) as server, opened(tmp_path, server) as do:
        session = do("/session", {})["id"]
        types(do, session, "Build the modules, never delete a file")
        file = do.plugin / "program.json"
        works, once = json.loads(file.read_text("utf-8")), tmp_path / "once"
        argv = ["sh", "-c", f'test -e {once} && exit 1; touch {once}; exec "$@"', "sh", *works["argv"]]
        file.write_text(json.dumps({**works, "argv": argv}), "utf-8")
        compacts(do, session)
        assert types(do, session, "Go on") == "All is done."
    assert model.asked == [BY_CARDS]
    last = json.dumps(server.exchanges[-1].request.messages)
    assert ("Module 1." in last, "never delete a file" in last, "REQUEST" in last) == (True, True, False)
    assert "nothing was compacted" in do.log.read_text()
