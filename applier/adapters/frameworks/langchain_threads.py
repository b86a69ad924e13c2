"""One session for each conversation of a graph: its thread's own, and one for every subagent that runs on the thread.

What a subagent is, LangGraph says itself: the namespace of its checkpoints names the task that it runs in. Nothing is
guessed from names of agents or from words.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.config import get_config

from applier.adapters.agent_tools import AGENT_TOOLS, Answer, answer_call
from applier.adapters.frameworks.bridge import OPEN_SESSIONS, OpenSessions, SessionOf, opener
from applier.session import Session
from planner.errors import CompactorError

__all__ = ["ThreadSessions", "context_tools"]


@dataclass(frozen=True)
class _Agent:
    """An agent of a thread, as far as its session has seen its messages."""

    session: str
    """Its session's name."""
    role: str
    """Its namespace without the numbers of tasks."""
    messages: int
    last: Any

    def goes_on_in(self, messages: Sequence[Any]) -> bool:
        """True if `messages` begin with all that was seen."""
        return 0 < self.messages <= len(messages) and messages[self.messages - 1] == self.last


class ThreadSessions:
    """Names the session of a model call, or of a call of a tool, by its thread and by the subagent that makes it.

    ::

        sessions = ThreadSessions(lambda name: Session(session_id=name))
        agent = create_agent(model, tools, middleware=[LangChainCompaction(sessions)], checkpointer=saver)

    A thread's own session is named as the thread is, so that it goes on after a restart; a subagent's is named
    ``thread/tools:…``. A subagent that is a node of the graph, and comes back with all that it saw before, keeps its
    session. A run without a thread has a session of its own.
    """

    def __init__(self, open_session: Callable[[str], Session | None], limit: int = OPEN_SESSIONS) -> None:
        """`open_session` opens the session of a name; at most `limit` are open at once.

        Raises:
            SettingsError: `open_session` is no function.
        """
        self._sessions, self._limit, self._lock = OpenSessions(open_session, limit), limit, threading.Lock()
        self._agents: dict[tuple[str, str], _Agent] = {}
        """By thread and namespace, the longest unused first."""

    def __call__(self, request: Any) -> Session | None:
        """The session of `request`: a model's, a tool's runtime, or a graph's state."""
        messages = _messages(request)
        thread, namespace = _place(messages)
        return self._sessions.named(self._agent(thread, namespace, messages).session) if thread else None

    def close(self) -> None:
        """Close all sessions; their histories are in the store then."""
        self._sessions.close()

    def _agent(self, thread: str, namespace: str, messages: Sequence[Any]) -> _Agent:
        role = "|".join(part.split(":")[0] for part in namespace.split("|"))
        with self._lock:
            known = self._agents.pop((thread, namespace), None) or self._returned(thread, role, messages)
            session = known.session if known else f"{thread}/{namespace}".rstrip("/")
            agent = _Agent(session, role, len(messages), messages[-1] if messages else None)
            self._agents[thread, namespace] = agent
            while len(self._agents) > self._limit:
                del self._agents[next(iter(self._agents))]
            return agent

    def _returned(self, thread: str, role: str, messages: Sequence[Any]) -> _Agent | None:
        """Who ran in another task of `thread` with that role, and goes on in `messages`; forgotten there."""
        for place, agent in reversed(self._agents.items()):
            if place[0] == thread and agent.role == role and agent.goes_on_in(messages):
                return self._agents.pop(place)
        return None


def _messages(request: Any) -> Sequence[Any]:
    state = getattr(request, "state", request)
    messages = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
    return messages if isinstance(messages, list) else []


def _place(messages: Sequence[Any]) -> tuple[str, str]:
    """Thread and namespace of the agent that runs now; a run without a thread is called by its first message.

    ``tools:4f1c|model:9a0e`` is the node of a model in an agent that runs in the task ``tools:4f1c``.
    """
    try:
        configurable = get_config().get("configurable", {})
    except RuntimeError:  # called by hand, outside a graph
        configurable = {}
    namespace = str(configurable.get("checkpoint_ns") or "").rpartition("|")[0]
    first = getattr(messages[0], "id", None) if messages else None
    return str(configurable.get("thread_id") or (f"run-{first}" if first else "")), namespace


def context_tools(session: Session | SessionOf[Any]) -> list[BaseTool]:
    """``restore_context``, ``search_context`` and ``compact`` for an agent or a `ToolNode`.

    `session` is one conversation, or what names the session of a tool's runtime.
    """
    session_of = opener(session)
    return [_tool(session_of, **tool) for tool in AGENT_TOOLS]


def _tool(session_of: SessionOf[Any], name: str, description: str, input_schema: dict[str, Any]) -> BaseTool:
    def call(runtime: ToolRuntime[Any, Any], **arguments: Any) -> Answer:
        session = session_of(runtime)
        if session is None:
            raise ToolException("nothing of this conversation was compacted")
        try:
            return answer_call(session, name, arguments)
        except CompactorError as error:
            raise ToolException(str(error)) from None

    return StructuredTool(
        name=name, description=description, args_schema=input_schema, func=call, handle_tool_error=True
    )
