"""A client that has the provider hold its conversation sends it whole here, and it is compacted as any other."""

from __future__ import annotations

import anthropic
import pytest

from applier.testing import MessagesServer
from tests import http_client
from tests.server.agent import SYSTEM, TOOLS, Script, Tools, one_call

MODEL = "claude-opus-5-5"
KEY = {"x-api-key": "any"}


@pytest.mark.real
def test_the_sdk_s_thread_stays_in_the_window(proxied, tmp_path):
    tools = Tools(tmp_path)
    with MessagesServer(Script(one_call, rounds=40), window_tokens=24_000) as server:
        proxy = proxied(server)
        with anthropic.Anthropic(base_url=proxy.url, api_key="any", max_retries=0) as client:
            thread = client.beta.messages.thread(model=MODEL, max_tokens=2048, system=SYSTEM, tools=TOOLS)
            answer = thread.send({"role": "user", "content": "Check the modules."})
            while calls := [block for block in answer.content if block.type == "tool_use"]:
                results = [(call.id, tools.run(call.name, call.input)) for call in calls]
                content = [{"type": "tool_result", "tool_use_id": name, "content": text} for name, text in results]
                answer = thread.send({"role": "user", "content": content})
        assert server.violations == []
        assert proxy.metrics.value("compactions") >= 1
        assert proxy.metrics.value("requests", kind="failed") == 0
    assert len(thread.messages) == 80
    assert not any("thread" in exchange.request.body for exchange in server.exchanges)


def test_a_thread_is_not_known_here_whoever_asks(proxied):
    """By the API's words for it, for clients that read these by themselves, such as Claude Code."""
    with MessagesServer("ok") as server:
        proxy = proxied(server)
        body = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "And?"}]}
        thread = {"type": "continue", "previous_message_id": "msg_1"}
        answer = http_client.post(f"{proxy.url}/v1/messages", json={**body, "thread": thread}, headers=KEY)
        assert proxy.metrics.value("requests", kind="sent_back") == 1
        http_client.post(f"{proxy.url}/v1/messages", json={**body, "thread": {"type": "create"}}, headers=KEY)
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")
    assert answer.json()["error"]["details"] == {"error_code": "thread_not_found"}
    assert [exchange.request.body for exchange in server.exchanges] == [body]
