"""The MCP server inside the real client that `compactor wrap` runs: it sees that client's conversation by itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from applier.processes import program
from applier.testing import MessagesServer, Request, say, use

pytestmark = pytest.mark.real

ROUNDS = 45
SEARCH, RESTORE = "mcp__compactor__search_context", "mcp__compactor__restore_context"


class Model:
    """Counts for many rounds, then looks for an early one and restores it."""

    number = 0

    def __call__(self, request: Request):
        if not request.tools:
            return "A title"
        self.number += 1
        if self.number <= ROUNDS:
            command = f"seq {self.number} {self.number + 500}"
            return [say(f"Step {self.number}"), use("Bash", command=command, description="count")]
        if self.number == ROUNDS + 1:
            return [use(SEARCH, text="seq 3 503")]
        return [use(RESTORE, reference="t5", last_line=4)] if self.number == ROUNDS + 2 else "Done."


@pytest.mark.skipif(shutil.which("claude") is None, reason="needs the client: npm install -g @anthropic-ai/claude-code")
def test_the_client_looks_behind_its_references(tmp_path):
    config = subprocess.run(program("mcp", "--config"), capture_output=True, text=True, check=True).stdout
    servers = {"compactor": json.loads(config)}
    (tmp_path / "click.py").write_text("raise ImportError('a stranger')")
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    client = ["claude", "-p", "Count.", "--allowedTools", f"Bash,{SEARCH},{RESTORE}", "--mcp-config", "mcp.json"]
    with MessagesServer(Model(), window_tokens=60_000) as server:
        env = {
            "PATH": os.environ["PATH"], "PYTHONPATH": ".", "HOME": str(tmp_path),
            "ANTHROPIC_API_KEY": "sk-ant-loopback",
            "ANTHROPIC_BASE_URL": server.url, "COMPACTOR_STORE": str(tmp_path / "store.db"), "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }  # fmt: skip
        done = subprocess.run(
            program("wrap", "--planner", "rules", "--window", "60000", *client),
            cwd=tmp_path, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    assert (done.returncode, server.violations) == (0, [])
    found, restored = (str(exchange.request.messages[-1]) for exchange in server.exchanges[-2:])
    assert ":t5" in found
    assert "Bash command=seq 3 503" in found
    assert "Bash command=seq 3 503" in restored
