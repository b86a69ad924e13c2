"""Compacts the messages of LangChain agents and LangGraph graphs before each call of the model, through a session.

::

    agent = create_agent(model, tools, middleware=[LangChainCompaction(session)])
    agent = create_deep_agent(model, tools, middleware=[LangChainCompaction(ThreadSessions(open_session))])
    agent = create_react_agent(model, tools, pre_model_hook=pre_model_hook(session))

A session stores one conversation and decides when to compact it; a thread is LangGraph's name for a conversation. The
graph's own state keeps every message; messages that are not compacted stay the same objects. A graph that serves
several threads, or has subagents, passes `ThreadSessions`. A subagent is recognised by the namespace of LangGraph's
checkpoints, which contains the task that it runs in.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, cast

import anyio.to_thread
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.tools import ToolRuntime
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    convert_to_openai_messages,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config
from pydantic_core import to_jsonable_python

from applier.adapters.agent_tools import AGENT_TOOLS, Answer, answer_call
from applier.adapters.frameworks.bridge import OPEN_SESSIONS, OpenSessions, SessionOf, apply_to_groups, opener
from applier.adapters.transcripts.openai_chat import from_openai, strip_openai, to_openai
from applier.adapters.transcripts.transcript import opaque_block
from applier.session import Session
from applier.session.request import fields_of_body
from planner.errors import CompactorError, TranscriptError
from planner.reading.messages import OPAQUE, ROLES, Block, Message, blocks

__all__ = ["LangChainCompaction", "ThreadSessions", "context_tools", "pre_model_hook"]


class _Place(NamedTuple):
    """Place in a LangGraph graph where an agent runs, by which its session is found."""

    thread: str
    """Id of the thread (conversation); empty if it is unknown."""
    namespace: str
    """Namespace of the agent's checkpoints, which names the tasks that it runs in: ``tools:4f1c|tools:9a0e``."""


@dataclass(frozen=True)
class _Agent:
    """Agent or subagent of a thread, as of its newest call of the model."""

    session: str
    """Name of the session that compacts the agent's conversation."""
    role: str
    """Namespace of the agent without the ids of tasks: ``tools|tools``."""
    message_count: int
    """Number of messages in the agent's newest call of the model."""
    last_message: Any
    """Last message of the agent's newest call of the model."""

    def is_continued_by(self, messages: Sequence[Any]) -> bool:
        """Return True if `messages` begin with those of the newest call; to save time, only its last is compared."""
        return 0 < self.message_count <= len(messages) and messages[self.message_count - 1] == self.last_message


class ThreadSessions:
    """Sessions (each compacts one conversation) of all agents and subagents of a graph with several threads. Pass it in
    place of a function that returns a session.

    ::

        sessions = ThreadSessions(lambda name: Session(session_id=name))
        agent = create_agent(model, tools, middleware=[LangChainCompaction(sessions)], checkpointer=saver)

    The session of a thread has the thread's name and continues after a restart. That of a subagent is named
    ``thread/tools:…``. A subagent that runs again, in a new task but with all its earlier messages, keeps its session.
    A run without a thread has a session of its own.
    """

    def __init__(self, open_session: Callable[[str], Session | None], limit: int = OPEN_SESSIONS) -> None:
        """Open sessions by the function `open_session`, which takes a name; at most `limit` are open at once."""
        self._sessions, self._limit, self._lock = OpenSessions(open_session, limit), limit, threading.Lock()
        self._agents: dict[_Place, _Agent] = {}
        """Agents by the place where they ran last, the one unused for longest first."""

    def __call__(self, request: Any) -> Session | None:
        """Return the session of the agent that makes `request`: a model request, a tool's runtime, a graph's state."""
        state = getattr(request, "state", request)
        known = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
        messages: Sequence[Any] = known if isinstance(known, list) else []
        place = _place(messages)
        return self._sessions.named(self._agent(place, messages).session) if place.thread else None

    def close(self) -> None:
        """Close all sessions; their histories are in the store."""
        self._sessions.close()

    def _agent(self, place: _Place, messages: Sequence[Any]) -> _Agent:
        """Return the agent that calls the model with `messages` at `place`, and record it there. It keeps the session
        that it had at this place, or in an earlier task."""
        role = "|".join(part.split(":")[0] for part in place.namespace.split("|"))
        with self._lock:
            same_role = [at for at, one in self._agents.items() if at.thread == place.thread and one.role == role]
            # a subagent that runs again in a new task has a new place, but its earlier messages
            continued = (at for at in reversed(same_role) if self._agents[at].is_continued_by(messages))
            earlier = self._agents.pop(place if place in self._agents else next(continued, place), None)
            session = earlier.session if earlier else f"{place.thread}/{place.namespace}".rstrip("/")
            agent = _Agent(session, role, len(messages), messages[-1] if messages else None)
            self._agents[place] = agent
            while len(self._agents) > self._limit:
                del self._agents[next(iter(self._agents))]
            return agent


def _place(messages: Sequence[Any]) -> _Place:
    """Return the place of the agent that runs now. LangGraph's namespace ends with the node that runs, which is cut
    off: ``tools:4f1c|model:9a0e`` becomes ``tools:4f1c``. Without a thread, the first message's id replaces its id."""
    try:
        configurable = get_config().get("configurable", {})
    except RuntimeError:  # the call is made outside a graph
        configurable = {}
    namespace = str(configurable.get("checkpoint_ns") or "").rpartition("|")[0]
    first = getattr(messages[0], "id", None) if messages else None
    return _Place(str(configurable.get("thread_id") or (f"run-{first}" if first else "")), namespace)


def context_tools(session: Session | SessionOf[Any]) -> list[BaseTool]:
    """Return the tools by which an agent restores and searches removed turns, for an agent or a `ToolNode`.

    `session`: the session of one conversation, or a function that returns the session for a tool's runtime.
    """
    session_of = opener(session)
    return [_context_tool(session_of, **tool) for tool in AGENT_TOOLS]


def _context_tool(session_of: SessionOf[Any], name: str, description: str, input_schema: dict[str, Any]) -> BaseTool:
    """Return a tool of `AGENT_TOOLS` in LangChain's form. Its errors become its results, so that the agent goes on."""

    def call(runtime: ToolRuntime[Any, Any], **arguments: Any) -> Answer:
        """Answer the model's call from the session of the agent that runs now."""
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


Call = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncCall = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class LangChainCompaction(AgentMiddleware[Any, Any, Any]):
    """Middleware that compacts an agent's messages before each call of the model. If the provider still refuses a
    prompt as too long, it is sent once more, shorter.

    An agent with tools also gets those of `context_tools`; an agent without tools gets none.
    """

    name = "SummarizationMiddleware"
    """Name of the middleware that this one replaces: deepagents uses it instead of its own, in subagents too."""

    def __init__(self, session: Session | SessionOf[Any]) -> None:
        """Compact by `session`: the session of one conversation, or a function that returns the session of a request.

        Raises:
            SettingsError: `session` is neither a Session nor a function.
        """
        super().__init__()
        self._session_of = opener(session)
        self.tools = context_tools(self._session_of)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Call) -> ModelResponse[Any]:
        """Make one call of the model with compacted messages."""
        session, request = self._session_and_request(request)
        if session is None:
            return handler(request)
        try:
            return _reported(session, handler(_compacted(session, request)))
        except ContextOverflowError as error:
            shorter = _shorter(session, request, error)
        return _reported(session, handler(shorter))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncCall) -> ModelResponse[Any]:
        """Do the same as `wrap_model_call` for an asynchronous agent; the session works in a thread."""
        session, request = self._session_and_request(request)
        if session is None:
            return await handler(request)
        try:
            return _reported(session, await handler(await anyio.to_thread.run_sync(_compacted, session, request)))
        except ContextOverflowError as error:
            shorter = await anyio.to_thread.run_sync(_shorter, session, request, error)
        return _reported(session, await handler(shorter))

    def _session_and_request(self, request: ModelRequest[Any]) -> tuple[Session | None, ModelRequest[Any]]:
        """Return the session of `request`, if any, and the request, without `context_tools` if there is no session or
        the agent has no other tools."""
        session = self._session_of(request)
        others = [tool for tool in request.tools if not any(tool is context_tool for context_tool in self.tools)]
        is_offered = session is not None and others
        return session, request if is_offered else request.override(tools=others)


def pre_model_hook(session: Session | SessionOf[Any]) -> Callable[[Any], dict[str, list[AnyMessage]]]:
    """Return a node for LangGraph that passes compacted messages to the model as ``llm_input_messages``.

    `session`: the session of one conversation, or a function that returns the session for a graph's state.
    """
    session_of = opener(session)

    def prepared(state: Any) -> dict[str, list[AnyMessage]]:
        chosen, messages = session_of(state), state["messages"]
        view = None if chosen is None else _apply_to_plain(chosen.prepare, messages)
        return {"llm_input_messages": view or messages}

    return prepared


def _compacted(session: Session, request: ModelRequest[Any]) -> ModelRequest[Any]:
    """Return `request` with messages compacted by `session`, which also gets its model, tools and limits."""
    system, settings, model = request.system_message, dict(request.model_settings or {}), request.model
    thinking = settings.get("thinking") or getattr(model, "thinking", None)
    body = {
        "model": getattr(model, "model", "") or getattr(model, "model_name", ""),
        "system": None if system is None else system.text,
        "tools": [_tool(tool) for tool in request.tools],
        "thinking": thinking if isinstance(thinking, dict) else None,
        "max_tokens": settings.get("max_tokens") or getattr(model, "max_tokens", None),
    }
    session.set_request(**fields_of_body(body))
    return request.override(messages=_apply_to_plain(session.prepare, request.messages) or request.messages)


def _shorter(session: Session, request: ModelRequest[Any], error: Exception) -> ModelRequest[Any]:
    """Return `request` with fewer messages after the provider's `error` about its length; raise `error` if the session
    has no shorter list."""
    shorter = _apply_to_plain(lambda plain: session.recover(plain, error), request.messages)
    if shorter is None:
        raise error
    return request.override(messages=shorter)


def _tool(tool: Any) -> Mapping[str, Any]:
    """Return the definition of a LangChain `tool` in Anthropic's form, as far as the session needs it: to count its
    tokens, and to recognise the tool that restores turns."""
    if isinstance(tool, dict) and "name" in tool:
        return tool
    function = convert_to_openai_tool(tool)["function"]
    return {"name": function["name"], "description": function.get("description", ""), "input_schema": function}


def _reported(session: Session, response: ModelResponse[Any]) -> ModelResponse[Any]:
    """Report the token counts of `response` to `session`, and return the response."""
    for message in response.result:
        if isinstance(message, AIMessage) and message.usage_metadata:
            session.observe({"input_tokens": message.usage_metadata["input_tokens"]})
    return response


def _apply_to_plain(
    act: Callable[[list[Message]], list[Message] | None], messages: Sequence[AnyMessage]
) -> list[AnyMessage] | None:
    """Let `act`, a method of a session, work on LangChain's `messages` after the leading system messages."""
    lead = next((at for at, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    return apply_to_groups(act, messages, lead, lambda message: isinstance(message, ToolMessage), _plain, _from_plain)


_NO_SUCH_FORM = (ValueError, TypeError, KeyError, TranscriptError)
"""Errors that LangChain's conversion and this package's raise for a block or message of an unknown type."""


def _plain(group: list[AnyMessage]) -> Message:
    """Return `group`, one LangChain message or several results, as one Anthropic message. LangChain's own conversion is
    used if all blocks are known to it; otherwise each block is converted alone, and unknown ones are passed through."""
    if isinstance(group[0], SystemMessage):
        return {"role": "system", "content": group[0].text}
    try:
        plain = strip_openai(from_openai(convert_to_openai_messages(group)))[0]
    except _NO_SUCH_FORM:
        plain = _by_block(group)
    if plain["role"] not in ROLES or not all(map(_is_known, blocks(plain))):
        plain = _by_block(group)
    for message, block in zip(group, plain["content"], strict=False):  # of results, each message has one block
        if isinstance(message, ToolMessage) and message.status == "error":
            block["is_error"] = True
    return plain


_KNOWN = frozenset(
    {"text", "image", "document", "image_url", "input_audio", "audio", "file", "search_result", "container_upload"}
    | {"thinking", "redacted_thinking", "refusal", "compaction", "tool_reference"}
)
"""Types of blocks that this package can compact or keep."""
_PARTS_OF_KNOWN = ("reasoning", "server_tool", "_call", "_use", "_result", "_output")
"""Texts in further known types, of reasoning and of calls that a provider ran itself: ``web_search_call``."""


def _is_known(block: Block) -> bool:
    """Return True if the type of `block` is known; of a tool result, the types of all blocks in it, too."""
    inner = block.get("content") if block["type"] == "tool_result" else None
    has_known_type = block["type"] in _KNOWN or any(text in block["type"] for text in _PARTS_OF_KNOWN)
    return has_known_type and (not isinstance(inner, list) or all(map(_is_known, inner)))


def _by_block(group: list[AnyMessage]) -> Message:
    """Return `group` as one Anthropic message, each block converted alone. A message of an unknown class becomes one
    opaque block, which is passed through unchanged."""
    first = group[0]
    if isinstance(first, ToolMessage):
        results = [
            {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": _blocks(message.content)}
            for message in group
            if isinstance(message, ToolMessage)
        ]
        return {"role": "user", "content": results}
    if isinstance(first, AIMessage):
        bare = first.model_copy(update={"content": ""})  # only the calls, which LangChain can always convert
        calls = blocks(from_openai(convert_to_openai_messages([bare]))[0])
        content = [*_blocks(first.content), *(block for block in calls if block["type"] == "tool_use")]
        return {"role": "assistant", "content": content}
    if isinstance(first, HumanMessage):
        return {"role": "user", "content": _blocks(first.content)}
    return {"role": "user", "content": [opaque_block(type(first).__name__, {_MESSAGE: message_to_dict(first)})]}


_MESSAGE = "langchain"
"""Key in an opaque block that carries a complete message."""


def _blocks(content: str | list[Any]) -> list[Block]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block for item in content for block in _block(item)]


def _block(item: Any) -> Sequence[Block]:
    """Return an item of a LangChain message's content as blocks; one of an unknown type becomes an opaque block."""
    try:
        made = blocks(strip_openai(from_openai(convert_to_openai_messages([HumanMessage([item])])))[0])
    except _NO_SUCH_FORM:
        made = ()
    if made and all(map(_is_known, made)):
        return made
    kind = item.get("type") or next(iter(item), "") if isinstance(item, dict) else type(item).__name__
    return [opaque_block(str(kind), to_jsonable_python(item))]


def _from_plain(message: Message) -> list[AnyMessage]:
    """Return an Anthropic message as LangChain messages: one for each result or carried message, one for the rest."""
    if isinstance(message["content"], str):
        return cast(list[AnyMessage], convert_to_messages(to_openai([message])))
    built = list[Any]()
    for is_whole, run in groupby(message["content"], _carries_message):
        content = list(run)
        if is_whole:
            built += messages_from_dict([block["carried"][_MESSAGE] for block in content])
        else:
            built += map(_restored, convert_to_messages(to_openai([{**message, "content": content}])))
    return built


def _restored(message: Any) -> Any:
    """Return a LangChain message in which the original blocks replace the opaque blocks that carried them."""
    if not isinstance(message.content, list):
        return message
    content = [
        block["carried"] if isinstance(block, dict) and block.get("type") == OPAQUE else block
        for block in message.content
    ]
    return message.model_copy(update={"content": content})


def _carries_message(block: Block) -> bool:
    """Return True if `block` is an opaque block with a complete LangChain message, as `_by_block` makes it."""
    carried = block["carried"] if block["type"] == OPAQUE else None
    return isinstance(carried, dict) and _MESSAGE in carried
