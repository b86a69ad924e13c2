"""Subagents of LangGraph that run on one thread: each has a session of its own, over the loopback server."""

from __future__ import annotations

import pytest

pytest.importorskip("langchain")

from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from applier.adapters.frameworks.bridge import OpenSessions
from applier.adapters.frameworks.langchain_middleware import LangChainCompaction, ThreadSessions
from applier.session import Session
from applier.testing import Answer, say, use
from planner.errors import SettingsError
from tests.integrations import counting
from tests.integrations.conftest import MODEL
from tests.integrations.counting import CALLS, counting_model, delegating_model
from tests.loopback import KEY, Loopback

THREAD = {"configurable": {"thread_id": "one"}, "recursion_limit": 100}
COUNT = {"role": "user", "content": "Count for me, and keep report-7.txt untouched."}


@tool
def numbers(to: int) -> str:
    """Count to a number."""
    return counting.numbers(to)


def model_on(server: Loopback) -> ChatAnthropic:
    return ChatAnthropic(model=MODEL, api_key=KEY, base_url=server.url, max_tokens=1_000, max_retries=0)


@pytest.fixture
def opened(new_session):
    """Opens sessions by name, and holds all that were opened."""

    class Opened(dict):
        window_tokens = 11_000

        def __call__(self, name: str) -> Session:
            self[name] = new_session(session_id=name, window_tokens=self.window_tokens)
            return self[name]

    return Opened()


def kinds(session: Session) -> list[str]:
    return [event.kind for event in session.log()]


def compacted_alone(session: Session) -> bool:
    return session.state.compactions >= 1 and "history_changed" not in kinds(session)


def delegating_agent(server: Loopback, sessions: ThreadSessions, **options):
    """An agent whose tool is another agent; both have the middleware."""
    compaction = LangChainCompaction(sessions)
    counter = create_agent(model_on(server), [numbers], middleware=[compaction])

    @tool
    def delegate(task: str) -> str:
        """Have it done by another."""
        return counter.invoke({"messages": [HumanMessage(task)]})["messages"][-1].text

    return create_agent(model_on(server), [delegate], middleware=[compaction], **options)


TWO_TASKS = {"task": "Count for me, and keep report-7.txt untouched."}, {"task": "Count for another."}


def test_subagents_at_once_on_one_thread_never_throw_away_anothers_plan(opened):
    with Loopback([delegating_model("delegate", *TWO_TASKS)], window_tokens=10_000) as server:
        agent = delegating_agent(server, ThreadSessions(opened), checkpointer=InMemorySaver())
        state = agent.invoke({"messages": [HumanMessage("Delegate it.")]}, THREAD)
        assert state["messages"][-1].text == "all of it is done"
        assert [m.text for m in state["messages"][-3:-1]] == [f"counted {CALLS} times"] * 2
        assert server.violations == []
    assert len(opened) == 3
    own = [session for name, session in opened.items() if name.startswith("one/tools:")]
    assert [session.state.history_messages for session in own] == [2 * CALLS + 1] * 2
    assert all(map(compacted_alone, own))
    assert "history_changed" not in kinds(opened["one"])


@pytest.mark.real
def test_a_node_that_comes_back_keeps_its_session(opened):
    saver = InMemorySaver()
    with Loopback([counting_model], window_tokens=10_000) as server:
        worker = create_agent(model_on(server), [numbers], middleware=[LangChainCompaction(ThreadSessions(opened))])
        graph = StateGraph(MessagesState).add_node("worker", worker).add_edge(START, "worker").compile(saver)
        graph.invoke({"messages": [COUNT]}, THREAD)
        graph.invoke({"messages": [HumanMessage("Thank you. That is all.")]}, THREAD)
        assert server.violations == []
    (session,) = opened.values()
    assert session.state.history_messages == 2 * CALLS + 3
    assert compacted_alone(session)


@pytest.mark.real
def test_a_thread_goes_on_after_a_restart(opened):
    saver = InMemorySaver()
    with Loopback([counting_model], window_tokens=10_000) as server:
        for words in (COUNT, HumanMessage("Thank you. That is all.")):
            sessions = ThreadSessions(opened)
            agent = create_agent(
                model_on(server), [numbers], middleware=[LangChainCompaction(sessions)], checkpointer=saver
            )
            before = opened["one"].state.compactions if opened else 0
            agent.invoke({"messages": [words]}, THREAD)
            sessions.close()
        assert server.violations == []
    assert opened["one"].state.compactions == before >= 1
    last, after_restart = (request.body["messages"] for request in server.requests[-2:])
    assert after_restart[: len(last)] == last
    assert len(str(after_restart)) < sum(len(numbers.invoke({"to": 60 + made})) for made in range(CALLS))


def test_runs_without_a_thread_have_a_session_each(opened):
    with Loopback([counting_model], window_tokens=10_000) as server:
        agent = create_agent(model_on(server), [numbers], middleware=[LangChainCompaction(ThreadSessions(opened))])
        for _ in range(2):
            agent.invoke({"messages": [COUNT]}, {"recursion_limit": 100})
        assert server.violations == []
    assert len(opened) == 2
    assert all(map(compacted_alone, opened.values()))


def test_an_agent_looks_behind_references_of_its_own_conversation_only(opened):
    asked: list[str] = []

    def model(request):
        last = request.messages[-1]["content"]
        if "Delegate" in str(request.messages[0]["content"]):
            return delegating_model("delegate", {"task": "Find what was said."})(request)
        if isinstance(last, list) and last[0]["type"] == "tool_result":
            asked.append(str(last[0]["content"]))
            return Answer([say("found")], headers=(("connection", "close"),))
        call = use("search_context", "toolu_s", text="Delegate")
        return Answer([call], headers=(("connection", "close"),))

    with Loopback([model]) as server:
        agent = delegating_agent(server, ThreadSessions(opened), checkpointer=InMemorySaver())
        agent.invoke({"messages": [HumanMessage("Delegate it.")]}, THREAD)
        agent.invoke({"messages": [HumanMessage("And again, what did I say first?")]}, THREAD)
        assert server.violations == []
    assert asked == ["nothing in this conversation matches 'Delegate': try fewer words"]
    assert {"restore_context", "search_context", "compact"} <= {one["name"] for one in server.requests[0].body["tools"]}


@given(names=st.lists(st.sampled_from("abcde"), max_size=12), limit=st.integers(1, 4))
def test_a_session_is_opened_again_only_where_so_many_others_were_used_since(names, limit):
    opened: list[str] = []

    def open_session(name: str) -> Session:
        opened.append(name)
        return Session(planner="rules")

    sessions = OpenSessions(open_session, limit)
    used: list[str] = []
    for name in names:
        count, is_open = len(opened), name in used[-limit:]
        assert sessions.named(name) is sessions.named(name)
        assert opened[count:] == ([] if is_open else [name])
        used = [*(other for other in used if other != name), name]


@pytest.mark.parametrize("wrong", [None, "main", 7])
def test_what_is_no_session_is_refused_with_the_cure(wrong):
    with pytest.raises(SettingsError, match="a Session, or a function that names the session of a request, found"):
        LangChainCompaction(wrong)
    with pytest.raises(SettingsError, match=r"such as lambda name: Session\(session_id=name\), found"):
        ThreadSessions(wrong)


def test_a_function_that_opens_something_else_leaves_the_messages_alone(caplog):
    compaction = LangChainCompaction(ThreadSessions(lambda name: name))
    with Loopback(["hello"]) as server:
        agent = create_agent(model_on(server), [], middleware=[compaction])
        assert agent.invoke({"messages": [HumanMessage("hi")]}, THREAD)["messages"][-1].text == "hello"
    assert "session 'one': expected a Session" in caplog.text
