"""The SDK's own tool runner with the context tools and the middleware, over the loopback server."""

import asyncio

import anthropic
import pytest

from applier.adapters.frameworks.anthropic_middleware import CompactionMiddleware
from applier.adapters.frameworks.anthropic_tools import agent_tools, async_agent_tools
from applier.testing import use
from tests.integrations.conftest import MODEL
from tests.loopback import KEY, Loopback

SCRIPT = [
    [use("count", "toolu_1", to=900)],
    [use("count", "toolu_2", to=1500)],
    [use("compact", "toolu_3", focus="the sums")],
    [use("restore_context", "toolu_4", reference="t2", search="899")],
    [use("search_context", "toolu_5", text="nowhere at all")],
    "done",
]
ASKED = {"model": MODEL, "max_tokens": 1_000, "messages": [{"role": "user", "content": "Count for me."}]}


@anthropic.beta_tool
def count(to: int) -> str:
    """Count to a number."""
    return "\n".join(map(str, range(to)))


@anthropic.beta_async_tool
async def count_async(to: int) -> str:
    """Count to a number."""
    return "\n".join(map(str, range(to)))


def results(server: Loopback) -> list[dict]:
    """The last result of each request that has one."""
    return [request.body["messages"][-1]["content"][0] for request in server.requests[1:]]


def check(server: Loopback, session) -> None:
    assert server.violations == []
    counted, _, compacted, restored, searched = results(server)
    assert counted["content"].endswith("899")
    assert "before your next turn" in compacted["content"]
    assert session.state.compactions == 1
    assert "899" in restored["content"]
    assert len(restored["content"]) < len(counted["content"])
    assert searched["is_error"] is True


@pytest.mark.real
def test_the_runner_calls_them(new_session):
    session = new_session(window_tokens=30_000)
    with Loopback(SCRIPT) as server:
        client = server.client(middleware=[CompactionMiddleware(session)])
        tools = [count, *agent_tools(session)]
        runner = client.beta.messages.tool_runner(tools=tools, thread=False, **ASKED)
        assert runner.until_done().content[0].text == "done"
        check(server, session)


@pytest.mark.real
def test_the_asynchronous_runner_calls_them(new_session):
    session = new_session(window_tokens=30_000)
    count_async.name = "count"

    async def run(url: str) -> str:
        middleware = [CompactionMiddleware(session)]
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=url, middleware=middleware) as client:
            tools = [count_async, *async_agent_tools(session)]
            runner = client.beta.messages.tool_runner(tools=tools, thread=False, **ASKED)
            return (await runner.until_done()).content[0].text

    with Loopback(SCRIPT) as server:
        assert asyncio.run(run(server.url)) == "done"
        check(server, session)


@pytest.mark.real
@pytest.mark.parametrize("stream", [False, True])
def test_the_runners_threads_do_not_switch_the_middleware_off(new_session, stream):
    session = new_session(window_tokens=30_000)
    with Loopback(SCRIPT) as server:
        client = server.client(middleware=[CompactionMiddleware(session)])
        runner = client.beta.messages.tool_runner(tools=[count, *agent_tools(session)], stream=stream, **ASKED)
        if stream:
            for running in runner:
                running.get_final_message()
        else:
            assert runner.until_done().content[0].text == "done"
        check(server, session)
        assert not any("thread" in request.body for request in server.requests)


def test_a_thread_that_is_held_by_hand_is_left_alone(new_session):
    session = new_session()
    with Loopback(["ok"]) as server:
        client = server.client(middleware=[CompactionMiddleware(session)])
        held = {"type": "continue", "previous_message_id": "msg_1"}
        client.beta.messages.create(thread=held, **ASKED)
        assert server.requests[0].body["thread"] == held
    assert session.state.history_messages == 0
