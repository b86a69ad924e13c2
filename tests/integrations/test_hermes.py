"""Hermes Agent with our context engine, over the loopback server.

It pins what it needs, so these run in an environment of its own: ``pip install -e . hermes-agent pytest hypothesis``.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("agent.context_engine", reason="needs hermes-agent")

from applier.adapters.frameworks.hermes_engine import CompactorEngine
from applier.testing import Answer, say, use
from tests.loopback import KEY, Loopback

CALLS = 26
CONFIG = "plugins: {enabled: [compactor]}\ncontext: {engine: compactor}\nmodel: {context_length: 64000}\n"
RUN = """
import json, sys
from run_agent import AIAgent
agent = AIAgent(
    base_url=sys.argv[1], api_key=sys.argv[2], model="gpt-5.5", api_mode="chat_completions", quiet_mode=True,
    enabled_toolsets=["terminal", "context_engine"], max_iterations=60, skip_context_files=True, skip_memory=True,
)
done = agent.run_conversation("Count, and keep report-7.txt untouched.")
engine = agent.context_compressor
print("\\n" + json.dumps([type(engine).__name__, engine.compression_count, done["final_response"]]))
"""


@pytest.fixture
def store(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("COMPACTOR_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("COMPACTOR_PLANNER", "rules")
    return tmp_path / "store.db"


def counting(request):
    """Counts in a terminal, looks behind a reference once it has one, and says what it saw."""
    number = counting.made = counting.made + 1
    if number > CALLS + 1:
        return "seen again" if "the heron is number 1" in str(request.messages[-1]) else "not seen"
    if number > CALLS:
        return Answer([use("search_context", f"toolu_{number}", text="heron")])
    word = "the heron is number 1; " if number == 1 else ""
    command = f"echo '{word}'; seq {number} {number + 1_500}"
    return Answer([say(f"step {number}"), use("terminal", f"toolu_{number}", command=command)])


@pytest.mark.real
def test_hermes_finds_the_engine_and_stays_in_the_window(store, tmp_path):
    (tmp_path / "config.yaml").write_text(CONFIG, "utf-8")
    own = {"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path)}
    counting.made = 0
    with Loopback([counting]) as server:
        command = [sys.executable, "-c", RUN, f"{server.url}/v1", KEY]
        ran = subprocess.run(command, cwd=tmp_path, env={**os.environ, **own}, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert server.violations == []
        sizes = [len(request.raw) for request in server.requests]
        assert all("report-7.txt untouched" in str(request.body) for request in server.requests)
    name, compactions, said = json.loads(ran.stdout.splitlines()[-1])
    assert (name, said) == ("CompactorEngine", "seen again")
    assert compactions >= 2
    assert max(sizes) < 3 * 64_000
    assert store.exists()


def conversation(turns: int) -> list[dict]:
    messages = [{"role": "system", "content": "You count."}, {"role": "user", "content": "Count the herons."}]
    for at in range(turns):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm"})
        messages.append(
            {"role": "tool", "tool_call_id": f"c{at}", "content": f"heron {at}\n" + f"line of {at}\n" * 900}
        )
    return messages


def started(name: str = "a", window: int = 20_000) -> CompactorEngine:
    engine = CompactorEngine()
    engine.update_model("gpt-5.5", window)
    engine.on_session_start(name)
    return engine


def test_what_stays_is_as_it_was_and_what_went_can_be_looked_up_after_a_restart(store):
    engine, messages = started(), conversation(12)
    view = engine.compress(messages, 50_000)
    assert len(str(view)) < len(str(messages)) / 2
    assert view[0] is messages[0]
    assert all(any(one is message for message in messages) for one in view[2:])
    engine.on_session_start("b", boundary_reason="compression", old_session_id="a")
    again = engine.compress([*view, *conversation(12)[2:]], 50_000)
    assert "t2-" in str(again), "planned from the originals"
    engine.on_session_end("b", again)
    other = started("a")
    answer = json.loads(other.handle_tool_call("restore_context", {"reference": "t2"}, messages=again))
    assert "heron 0" in answer["content"]


def test_each_agent_has_an_engine_of_its_own(store):
    engine = started()
    engine.compress(conversation(12), 50_000)
    assert copy.deepcopy(engine)._session is None


def test_a_store_that_fails_leaves_the_messages_alone(store):
    store.write_bytes(b"no store")
    engine, messages = started(), conversation(12)
    assert engine.compress(messages, 50_000) is messages
    assert "error" in json.loads(engine.handle_tool_call("search_context", {"text": "heron"}))


def test_where_nothing_is_to_gain_it_is_not_asked_again_at_once(store):
    engine, messages = started(), conversation(0)
    assert not engine.should_compress(14_999)
    assert engine.should_compress(15_000)
    assert engine.compress(messages, 16_000) is messages
    assert not engine.should_compress(16_500)
    assert engine.should_compress(17_000)
