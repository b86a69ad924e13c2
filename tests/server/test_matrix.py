"""An agent whose tools really run, compacted by a session, on the server that keeps the API's rules: none is broken."""

from __future__ import annotations

import anthropic
import pytest

from applier.adapters.frameworks.anthropic_middleware import CompactionMiddleware
from applier.session import Session
from applier.testing import MessagesServer
from tests.server.agent import Script, Tools, one_call, parallel_calls, screenshots, server_tools, work

pytestmark = pytest.mark.real

NEWEST, OLDER, RECENT = "claude-opus-5-5", "claude-haiku-4-5", "claude-opus-4-8"
ADAPTIVE = {"type": "adaptive"}
MANUAL = {"type": "enabled", "budget_tokens": 1024}
INTERLEAVED = {"anthropic-beta": "interleaved-thinking-2025-05-14"}
MARKED = {"cache_control": {"type": "ephemeral"}}

CASES = {
    "manual thinking": (one_call, {"model": OLDER, "thinking": MANUAL}),
    "manual thinking between calls": (one_call, {"model": OLDER, "thinking": MANUAL, "extra_headers": INTERLEAVED}),
    "adaptive, preserved thinking": (one_call, {"model": NEWEST, "thinking": ADAPTIVE}),
    "no thinking": (one_call, {"model": RECENT}),
    "system messages": (one_call, {"model": RECENT, "thinking": ADAPTIVE, "reminders": True}),
    "parallel calls": (parallel_calls, {"model": NEWEST, "thinking": ADAPTIVE}),
    "images": (screenshots, {"model": NEWEST, "thinking": ADAPTIVE}),
    "server tools": (server_tools, {"model": NEWEST, "thinking": ADAPTIVE}),
    "a cache mark that moves": (one_call, {"model": NEWEST, "thinking": ADAPTIVE, "marks": True}),
    "automatic cache marks": (one_call, {"model": NEWEST, "extra_body": MARKED}),
}


@pytest.fixture
def session(tmp_path):
    with Session("Check the modules", planner="rules", window_tokens=8_000, store=tmp_path / "store.db") as session:
        yield session


def compactions(session):
    return session.state.compactions


STREAMED = [pytest.param(case, True, id=f"{case}, streamed") for case in CASES]
WHOLE = [pytest.param("server tools", False, id="server tools")]
"""Answers that are not streamed; `test_one_long_run_that_thinks_once` has them with manual thinking."""


@pytest.mark.parametrize(("case", "streamed"), [*STREAMED, *WHOLE])
def test_no_rule_is_broken(case, streamed, session, tmp_path):
    moves, request = CASES[case]
    tools = Tools(tmp_path)
    with MessagesServer(Script(moves, rounds=7), window_tokens=8_000) as server:
        client = anthropic.Anthropic(
            base_url=server.url, api_key="any", max_retries=0, middleware=[CompactionMiddleware(session)]
        )

        def send(**given):
            if not streamed:
                return client.messages.create(max_tokens=2048, **given)
            with client.messages.stream(max_tokens=2048, **given) as stream:
                return stream.get_final_message()

        with client:
            messages = work(send, tools, turns=3, **request)
    assert server.violations == []
    assert compactions(session) >= 2
    assert len(tools.ran) >= 18
    assert len(messages) >= 42


def test_one_long_run_that_thinks_once(session, tmp_path):
    with (
        MessagesServer(Script(one_call, rounds=25), window_tokens=8_000) as server,
        anthropic.Anthropic(
            base_url=server.url, api_key="any", max_retries=0, middleware=[CompactionMiddleware(session)]
        ) as client,
    ):
        work(client.messages.create, Tools(tmp_path), turns=1, max_tokens=2048, model=OLDER, thinking=MANUAL)
    assert server.violations == []
    assert [exchange.content[0]["type"] for exchange in server.exchanges].count("thinking") == 1
    assert compactions(session) >= 2
    assert not any("lost theirs" in event.message for event in session.log())


def test_the_tool_runner(session, tmp_path):
    tools = Tools(tmp_path)

    @anthropic.beta_tool
    def bash(command: str) -> str:
        """Run a command."""
        return str(tools.run("bash", {"command": command}))

    with (
        MessagesServer(Script(one_call, rounds=20), window_tokens=8_000) as server,
        anthropic.Anthropic(
            base_url=server.url, api_key="any", max_retries=0, middleware=[CompactionMiddleware(session)]
        ) as client,
    ):
        runner = client.beta.messages.tool_runner(
            model=NEWEST,
            max_tokens=2048,
            thinking=ADAPTIVE,
            tools=[bash],
            messages=[{"role": "user", "content": "Check the modules."}],
            thread=False,
        )
        runner.until_done()
    assert server.violations == []
    assert len(tools.ran) == 19
    assert compactions(session) >= 2
