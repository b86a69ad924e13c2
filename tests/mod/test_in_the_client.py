"""The mod in the real Claude Code, on the test server: it compacts, its tools answer, and whatever breaks, the client
does it by itself."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from applier import open_store
from applier.testing import MessagesServer
from tests.mod.client import BROKEN, BUILT_IN, BY_CARDS, FORKED, Model, install_mod, opened, refused

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("claude") is None, reason="needs npm install -g @anthropic-ai/claude-code"),
]
ROUNDS = 10
SEARCH, RESTORE = "mcp__compactor__search_context", "mcp__compactor__restore_context"
AUTO = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "38"}
"""Compact at about 30,000 tokens: 10,000 are the client's own."""


@pytest.fixture
def model(tmp_path):
    (tmp_path / "work").mkdir()
    return Model(ROUNDS, tmp_path / "work")


def sent_text(exchange):
    return json.dumps(exchange.request.messages)


def test_the_client_finds_the_mod_valid_and_its_tests_pass(tmp_path):
    plugin = install_mod(tmp_path)
    shutil.copy(Path(__file__).with_name("register.test.ts"), plugin)
    for command in ("validate", "test"):
        run = subprocess.run(
            ["claude", "plugin", command, str(plugin)],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stdout + run.stderr
    assert " 6 pass" in run.stdout + run.stderr


def test_compactions_on_command_and_the_tools_behind_them(tmp_path, model):
    plugin = install_mod(tmp_path)
    (tmp_path / "work/click.py").write_text("raise ImportError('a stranger')")
    model.looks = [{"name": SEARCH, "text": "LIMIT_1"}, {"name": RESTORE, "reference": "t3", "last_line": 3}]
    with MessagesServer(model, window_tokens=1_000_000) as server:
        with opened(tmp_path, server, plugin, PYTHONPATH=".") as client:
            client.type("Build the modules, never delete a file")
            client.type("/compact keep the tests")
            client.type("Go on")
            client.type("/compact")
            asked = model.asked.copy()
            client.type("/compact")  # again at once: nobody is asked
            assert model.asked == asked
            client.type("And on")
        assert refused(server) == []
        assert (model.asked[FORKED], model.asked[BUILT_IN], len(client.compactions)) == (1, 0, 3)
        assert sum(line.startswith("Nothing to compact since") for line in client.log) == 1
        assert sum(line.startswith("Compacted") for line in client.log) == 2
        assert any("compactor restore h" in line for line in client.log)
        last = sent_text(server.exchanges[-1])
        assert last.count("<compacted history=") == 1
        assert "never delete a file" in last
        looked = [text for one in server.exchanges if "LIMIT_1 = 1" in (text := sent_text(one)) and ":t4" in text]
        assert looked
        assert any("Module 0, step 3 of 3." in sent_text(one) for one in server.exchanges[-ROUNDS * 2 :])
        (session,) = {one["session_id"] for one in client.lines if "session_id" in one}
    with open_store(tmp_path / "store.db") as store:
        kinds = [event["kind"] for event in store.events(session)]
        assert kinds.count("post_compact") == 2


def test_compactions_amid_the_work_are_planned_by_cards(tmp_path, model):
    model.rounds = 40
    plugin = install_mod(tmp_path)
    with MessagesServer(model, window_tokens=1_000_000) as server:
        with opened(tmp_path, server, plugin, **AUTO) as client:
            client.type("Build the modules, never delete a file")
        assert refused(server) == []
        assert client.compactions
        assert {one["trigger"] for one in client.compactions} == {"auto"}
        assert (model.asked[BY_CARDS] > 0, model.asked[BUILT_IN]) == (True, 0)
        assert "never delete a file" in sent_text(server.exchanges[-1])


def test_whatever_breaks_the_client_compacts_by_itself_and_a_line_says_so(tmp_path, model):
    model.rounds, plugin = 2, install_mod(tmp_path)
    program = plugin / "program.json"
    works = json.loads(program.read_text("utf-8"))
    with MessagesServer(model, window_tokens=1_000_000) as server, opened(tmp_path, server, plugin) as client:
        for number, how in enumerate(BROKEN, 1):
            client.type("Build the modules")
            before = len(client.log)
            program.write_text("{}" if how == "no program" else json.dumps({**works, **BROKEN[how]}), "utf-8")
            client.type("/compact")
            assert (model.asked[BUILT_IN], len(client.compactions)) == (number, number), how
            (line,) = client.log[before:]
            assert "Claude Code compacts by itself" in line, how


def test_a_large_result_goes_out_short(tmp_path, model):
    model.rounds, plugin = 3, install_mod(tmp_path)
    model.output = 4_000
    with MessagesServer(model, window_tokens=1_000_000) as server:
        with opened(tmp_path, server, plugin, COMPACTOR_SHORTEN_OVER_TOKENS="2000") as client:
            client.type("Build the modules")
        last = sent_text(server.exchanges[-1])
    assert client.log == []
    assert f"[stored: {RESTORE}(" in last
    assert len(last) < 30_000
