"""LangChain's own agent and Anthropic chat model in a session, over the loopback server."""

import asyncio
import warnings

import pytest

pytest.importorskip("langchain")

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config

from applier.adapters.frameworks.langchain_middleware import LangChainCompaction, pre_model_hook
from applier.session import Session
from tests.integrations import counting
from tests.integrations.conftest import MODEL
from tests.integrations.counting import CALLS, counting_model
from tests.loopback import KEY, Loopback

QUESTION = {"messages": [HumanMessage("Count for me, and keep report-7.txt untouched.")]}
DEEP = {"recursion_limit": 100}


@tool
def numbers(to: int) -> str:
    """Count to a number."""
    return counting.numbers(to)


def model_on(server: Loopback) -> ChatAnthropic:
    return ChatAnthropic(model=MODEL, api_key=KEY, base_url=server.url, max_tokens=1_000, max_retries=0)


def check(server: Loopback, session, state) -> None:
    assert state["messages"][-1].text == f"counted {CALLS} times"
    assert len(state["messages"]) == 2 * CALLS + 2
    assert all("report-7.txt untouched" in str(request.body["messages"]) for request in server.requests)
    assert session.state.compactions >= 2
    assert "history_changed" not in [event.kind for event in session.log()]


def test_an_agent_stays_in_the_window_and_its_state_keeps_everything(new_session):
    session = new_session(window_tokens=9_000)
    with Loopback([counting_model], window_tokens=8_000) as server:
        agent = create_agent(
            model_on(server), [numbers], system_prompt="You count.", middleware=[LangChainCompaction(session)]
        )
        state = agent.invoke(QUESTION, DEEP)
        assert server.violations == []
        assert all("You count." in str(request.body["system"]) for request in server.requests)
        check(server, session, state)


def test_an_asynchronous_agent_with_a_checkpointer(new_session):
    session = new_session(window_tokens=9_000)
    with Loopback([counting_model], window_tokens=8_000) as server:
        model, saver = model_on(server), InMemorySaver()
        agent = create_agent(model, [numbers], middleware=[LangChainCompaction(session)], checkpointer=saver)
        config = {**DEEP, "configurable": {"thread_id": "1"}}

        async def run():
            async with model._async_client:
                return await agent.ainvoke(QUESTION, config)

        check(server, session, asyncio.run(run()))
        state = agent.invoke({"messages": [HumanMessage("Thank you. That is all.")]}, config)
        assert state["messages"][-1].text == "counted 0 times"
        assert server.violations == []
    assert session.state.history_messages == 2 * CALLS + 3


@pytest.mark.real
def test_a_prompt_that_is_too_long_is_tried_once_more(new_session):
    session = new_session(window_tokens=200_000)
    with Loopback([counting_model], window_tokens=8_000) as server:
        agent = create_agent(model_on(server), [numbers], middleware=[LangChainCompaction(session)])
        check_text = agent.invoke(QUESTION, DEEP)["messages"][-1].text
        assert check_text == f"counted {CALLS} times"
        assert len(server.violations) >= 1
    assert "recovered" in [event.kind for event in session.log()]


@pytest.mark.real
def test_a_langgraph_agent_takes_the_hook(new_session):
    session = new_session(window_tokens=9_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LangGraph moved this function; graphs that use it are still about
        from langgraph.prebuilt import create_react_agent

        with Loopback([counting_model], window_tokens=8_000) as server:
            agent = create_react_agent(model_on(server), [numbers], pre_model_hook=pre_model_hook(session))
            check(server, session, agent.invoke(QUESTION, DEEP))


def test_what_is_not_compacted_stays_the_same_object(new_session):
    call = {"name": "numbers", "args": {"to": 2}, "id": "toolu_1", "type": "tool_call"}
    messages = [
        SystemMessage("s"),
        HumanMessage(
            [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "https://x.test/a"}}]
        ),
        AIMessage([{"type": "text", "text": "twice"}], tool_calls=[call, {**call, "id": "toolu_2"}]),
        ToolMessage("1", tool_call_id="toolu_1"),
        ToolMessage("no", tool_call_id="toolu_2", status="error"),
        HumanMessage("go on"),
    ]
    prepared = pre_model_hook(new_session())({"messages": messages})["llm_input_messages"]
    assert all(a is b for a, b in zip(prepared, messages, strict=True))


@pytest.mark.real
def test_each_thread_of_a_graph_has_its_own_session(new_session):
    sessions = {name: new_session(window_tokens=9_000) for name in ("1", "2")}
    with Loopback([counting_model], window_tokens=8_000) as server:
        middleware = LangChainCompaction(lambda _request: sessions[get_config()["configurable"]["thread_id"]])
        agent = create_agent(model_on(server), [numbers], middleware=[middleware], checkpointer=InMemorySaver())
        for thread in sessions:
            agent.invoke(QUESTION, {**DEEP, "configurable": {"thread_id": thread}})
        assert server.violations == []
    for session in sessions.values():
        assert session.state.history_messages == 2 * CALLS + 1
        assert session._state.pressure.call.model == MODEL, "the request says it"
        assert "history_changed" not in [event.kind for event in session.log()]


ODD = {
    "a video": HumanMessage([{"type": "video", "base64": "AAAA", "mime_type": "video/mp4"}]),
    "a role of its own": ChatMessage("hm", role="critic"),
    "arguments that are no JSON": AIMessage("", tool_calls=[{"name": "f", "args": {"x": object()}, "id": "c1"}]),
    "a call without an id": AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": None}]),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_only_another_provider_understands_reaches_it(new_session, odd):
    messages = [HumanMessage("look"), odd, HumanMessage("go on")]
    sent = pre_model_hook(new_session())({"messages": messages})["llm_input_messages"]
    assert list(map(id, sent)) == list(map(id, messages))
    model = GenericFakeChatModel(messages=iter([AIMessage("seen")]))
    agent = create_agent(model, [], middleware=[LangChainCompaction(new_session())])
    assert agent.invoke({"messages": messages})["messages"][-1].text == "seen"


QUOTED = (
    [{"type": "text", "text": "heron", "at": {1}}],
    [{"type": "heron at dawn", "source": {1}}],
    [{"text": "heron"}],
)


@pytest.mark.parametrize("content", QUOTED)
def test_whatever_fails_here_the_messages_go_out_as_they_came_and_the_log_has_no_word_of_them(
    new_session, content, caplog
):
    messages = [HumanMessage(content), AIMessage("Yes."), HumanMessage("Go on.")]
    assert pre_model_hook(new_session())({"messages": messages})["llm_input_messages"] == messages
    assert "heron" not in caplog.text


def test_system_messages_stay_where_they_stand(new_session):
    messages = [
        SystemMessage("s"),
        HumanMessage("hi"),
        SystemMessage("mind the gap"),
        AIMessage("ok"),
        HumanMessage("?"),
    ]
    prepared = pre_model_hook(new_session())({"messages": messages})["llm_input_messages"]
    assert all(a is b for a, b in zip(prepared, messages, strict=True))


def test_a_session_that_cannot_be_opened_leaves_the_messages_alone(tmp_path):
    (tmp_path / "no.db").write_bytes(b"no store")
    lost = LangChainCompaction(lambda _request: Session(store=tmp_path / "no.db", session_id="a"))
    model = GenericFakeChatModel(messages=iter([AIMessage("one"), AIMessage("two")]))
    agent = create_agent(model, [], middleware=[lost])
    assert agent.invoke({"messages": [HumanMessage("hi")]})["messages"][-1].text == "one"
    assert asyncio.run(agent.ainvoke({"messages": [HumanMessage("hi")]}))["messages"][-1].text == "two"
