"""A deep agent and its subagents in sessions, over the loopback server; `pip install deepagents` for these tests."""

from __future__ import annotations

import pytest

pytest.importorskip("deepagents")

from deepagents import create_deep_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from applier.adapters.frameworks.langchain_middleware import LangChainCompaction, ThreadSessions
from tests.integrations.counting import CALLS, delegating_model
from tests.integrations.test_langgraph_threads import THREAD, compacted_alone, kinds, model_on, numbers
from tests.integrations.test_langgraph_threads import opened as opened
from tests.loopback import Loopback

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TASKS = (
    {"description": "Count for me, and keep report-7.txt untouched.", "subagent_type": "general-purpose"},
    {"description": "Count for another.", "subagent_type": "counter"},
)


def test_a_deep_agent_and_its_subagents_stay_in_the_window(opened):
    opened.window_tokens = 16_000  # its own tools take 5,000
    with Loopback([delegating_model("task", *TASKS)], window_tokens=15_000) as server:
        compaction = LangChainCompaction(ThreadSessions(opened))
        counter = {"name": "counter", "description": "counts", "system_prompt": "Count.", "middleware": [compaction]}
        agent = create_deep_agent(
            model_on(server), [numbers], middleware=[compaction], subagents=[counter], checkpointer=InMemorySaver()
        )
        state = agent.invoke({"messages": [HumanMessage("Delegate it.")]}, THREAD)
        assert state["messages"][-1].text == "all of it is done"
        assert [message.text for message in state["messages"][-3:-1]] == [f"counted {CALLS} times"] * 2
        assert server.violations == []
        assert all("restore_context" in str(request.body["tools"]) for request in server.requests)
        assert not any("summar" in str(request.body["system"]).lower() for request in server.requests)
    own = [session for name, session in opened.items() if name.startswith("one/tools:")]
    assert [session.state.history_messages for session in own] == [2 * CALLS + 1] * 2
    assert all(map(compacted_alone, own))
    assert "history_changed" not in kinds(opened["one"])
