"""The mod in Anthropic's Agent SDK: the real SDK and the real client, on the test server.

The SDK is large and in no environment of ours: ``pip install claude-agent-sdk``, and ``--real``.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from applier.adapters.claude_agent_plugin import PLUGIN_TOOLS, claude_agent_plugin
from applier.adapters.client_plugin import plugin_files, program_of
from applier.processes import program
from applier.testing import MessagesServer
from planner.errors import SettingsError
from tests.mod.client import _QUIET, Model

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
ROUNDS = 12


@pytest.mark.real
@pytest.mark.skipif(shutil.which("claude") is None, reason="needs Claude Code")
def test_the_client_of_the_sdk_compacts_by_relevance(tmp_path, monkeypatch):
    """As the page's example has it."""
    sdk = pytest.importorskip("claude_agent_sdk")
    (example,) = re.findall(r"```python\n(from claude_agent_sdk.*?)```", PAGE.read_text("utf-8"), re.S)
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
    for name, value in {"COMPACTOR_PLANNER": "rules", "XDG_STATE_HOME": str(tmp_path), "HOME": str(home)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COMPACTOR_STORE", str(tmp_path / "store.db"))
    names: dict = {}
    exec(example.partition("async def")[0], names)  # its options

    async def run(server) -> list[str]:
        quiet = dict.fromkeys(_QUIET, "1")
        options = names["options"]
        options.cwd, options.cli_path, options.setting_sources = work, shutil.which("claude"), []
        options.env = {"ANTHROPIC_API_KEY": "sk-ant-none", "ANTHROPIC_BASE_URL": server.url, **quiet}
        said: list[str] = []
        async with sdk.ClaudeSDKClient(options) as client:
            for words in ("Build the modules.", "/compact keep LIMIT_3", "Go on."):
                await client.query(words)
                async for message in client.receive_response():
                    said += [message.result or ""] if isinstance(message, sdk.ResultMessage) else []
        return said

    with MessagesServer([Model(ROUNDS, work)]) as server:
        said = asyncio.run(run(server))
        first, last = server.requests[0], server.requests[-1]
    assert said[::2] == ["All modules are done."] * 2
    assert {tool["name"] for tool in first.body["tools"]} >= set(PLUGIN_TOOLS)
    view = json.dumps(last.body["messages"][0])
    assert "<compacted history=" in view
    assert "LIMIT_3" in view
    assert (tmp_path / "store.db").exists()


def test_its_folder_is_whole_and_written_once(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        plugins = list(pool.map(lambda _: claude_agent_plugin("a b/s.db", tmp_path), range(16)))
    (path,) = {plugin["path"] for plugin in plugins}
    present = {str(one.relative_to(path)): one.read_bytes() for one in Path(path).rglob("*") if one.is_file()}
    argv, environment = program_of(present)
    assert argv == program("mod")
    assert environment == {"COMPACTOR_STORE": str(Path("a b/s.db").absolute())}
    assert present == plugin_files(argv, environment)
    assert list(Path(path).parent.iterdir()) == [Path(path)], "nothing is left of others' attempts"
    assert claude_agent_plugin("postgresql://h/d", tmp_path)["path"] != path


def test_bad_input_says_what_to_do(tmp_path):
    with pytest.raises(SettingsError, match="store: expected a path or an address, found int"):
        claude_agent_plugin(7)
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"name another folder: claude_agent_plugin\(folder="):
        claude_agent_plugin(folder=tmp_path / "file")
