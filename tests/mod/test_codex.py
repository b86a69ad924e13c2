"""Our plugin in the real Codex, on the test server: beside Codex' own summary the agent gets a page of ours, and its
tools answer for its own thread."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from applier.processes import program
from applier.testing import say, use
from tests.openai_server import OpenAIServer
from tests.patience import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("codex") is None, reason="needs npm install -g @openai/codex"),
]
LIMIT, ROUNDS = 40_000, 14


class Model:
    """Counts, and restores a turn once it has our page; keeps the page and the answer."""

    def __init__(self):
        self.number, self.page, self.restored = 0, "", ""

    def __call__(self, request):
        items = request.body["input"]
        if self.page and not self.restored:
            self.restored = json.dumps(items[-1])
        page = next((text for text in map(json.dumps, items) if "<compacted history=" in text), "")
        if page and not self.page:
            self.page = page
            call = "text(await tools.mcp__compactor__restore_context({reference: 't3', last_line: 3}))"
            return [use("exec", custom=call)]
        self.number += 1
        command = json.dumps({"cmd": f"seq {self.number}000 {self.number}900"})
        again = [say(f"Step {self.number}."), use("exec", custom=f"text(await tools.exec_command({command}))")]
        return "Done." if self.number > ROUNDS else again


@pytest.fixture
def run(tmp_path):
    """Run a command in a home of its own."""
    with_codex = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "CODEX_API_KEY": "sk-none"}

    def run(*command):
        done = subprocess.run(
            [*command], cwd=tmp_path, env=with_codex, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def count(run, server):
    """Let Codex work until it has compacted; hooks are trusted as a person does under /hooks."""
    options = ["-c", f'openai_base_url="{server.url}/v1"', "-c", f"model_auto_compact_token_limit={LIMIT}"]
    rest = ("--skip-git-repo-check", "--dangerously-bypass-hook-trust", "Count, and never delete a file")
    return run("codex", "exec", *options, *rest)


def test_a_page_of_ours_stands_beside_codexs_summary_and_its_turns_can_be_restored(run, tmp_path):
    assert "trust the one of compactor" in run(*program("install", "codex", "--yes")).stdout
    run(*program("status", "codex"))
    model = Model()
    with OpenAIServer(model, window_tokens=10_000_000) as server:
        count(run, server)
    assert server.violations == []
    assert json.loads(model.page)["role"] == "developer"
    assert "never delete a file" in model.page
    assert "t3 lines 1 to 3 of" in model.restored
    settings = tmp_path / ".codex/config.toml"
    assert "compactor" in settings.read_text()
    run(*program("uninstall", "codex", "--yes"))
    assert "compactor" not in settings.read_text()
    assert not (tmp_path / ".codex/compactor").exists()


def test_whatever_breaks_codex_goes_on_with_its_own_summary(run, tmp_path):
    run(*program("install", "codex", "--yes", "--store", str(tmp_path / "no" / "store.db")))
    Path(tmp_path, "no").write_text("a file where the store's folder would be")
    model = Model()
    with OpenAIServer(model, window_tokens=10_000_000) as server:
        done = count(run, server)
    assert (server.violations, model.page) == ([], "")
    assert done.stdout.strip().endswith("Done.")
