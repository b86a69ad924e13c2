"""LangChain agents and LangGraph graphs: each model call goes out as a session prepares it.

::

    agent = create_agent(model, tools, middleware=[LangChainCompaction(session)])
    agent = create_deep_agent(model, tools, middleware=[LangChainCompaction(ThreadSessions(open_session))])
    agent = create_react_agent(model, tools, pre_model_hook=pre_model_hook(session))

The graph's own state keeps every message; messages that are not compacted stay the same objects. A graph that serves
several threads, or has subagents, passes what names the session of each: `langchain_threads.ThreadSessions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import anyio.to_thread
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langchain_core.utils.function_calling import convert_to_openai_tool

from applier.adapters.frameworks.bridge import SessionOf, grouped, opener, through
from applier.adapters.frameworks.langchain_threads import context_tools
from applier.adapters.transcripts.openai_chat import from_openai, strip_openai, to_openai
from applier.session import Session
from applier.session.request import fields_of_body
from planner.reading.messages import Message

__all__ = ["LangChainCompaction", "pre_model_hook"]

Call = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncCall = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class LangChainCompaction(AgentMiddleware[Any, Any, Any]):
    """Compaction as agent middleware; a prompt that is too long is tried once more, shorter.

    An agent that has tools gets those by which it looks behind references, too; one without gets none.
    """

    name = "SummarizationMiddleware"
    """Of what it stands in for: deepagents puts it in the place of its own, in the general-purpose subagent, too."""

    def __init__(self, session: Session | SessionOf[Any]) -> None:
        """`session` is one conversation; for several threads or subagents, what names the session of each request.

        Raises:
            SettingsError: `session` is neither.
        """
        super().__init__()
        self._session_of = opener(session)
        self.tools = context_tools(self._session_of)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Call) -> ModelResponse[Any]:
        """One model call."""
        session, request = self._opened(request)
        if session is None:
            return handler(request)
        try:
            return _observed(session, handler(_prepared(session, request)))
        except ContextOverflowError as error:
            shorter = _shorter(session, request, error)
        return _observed(session, handler(shorter))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncCall) -> ModelResponse[Any]:
        """One model call of an asynchronous agent; the session works in a thread meanwhile."""
        session, request = self._opened(request)
        if session is None:
            return await handler(request)
        try:
            return _observed(session, await handler(await anyio.to_thread.run_sync(_prepared, session, request)))
        except ContextOverflowError as error:
            shorter = await anyio.to_thread.run_sync(_shorter, session, request, error)
        return _observed(session, await handler(shorter))

    def _opened(self, request: ModelRequest[Any]) -> tuple[Session | None, ModelRequest[Any]]:
        """The session of `request`, and the request with the tools that its model is to be offered."""
        session = self._session_of(request)
        others = [tool for tool in request.tools if not any(tool is own for own in self.tools)]
        is_offered = session is not None and others
        return session, request if is_offered else request.override(tools=others)


def pre_model_hook(session: Session | SessionOf[Any]) -> Callable[[Any], dict[str, list[AnyMessage]]]:
    """A LangGraph node that gives the model the prepared messages as ``llm_input_messages``.

    `session` is one conversation, or a function that names the session of a graph's state.
    """
    session_of = opener(session)

    def prepared(state: Any) -> dict[str, list[AnyMessage]]:
        chosen, messages = session_of(state), state["messages"]
        return {"llm_input_messages": (chosen and _through(chosen.prepare, messages)) or messages}

    return prepared


def _prepared(session: Session, request: ModelRequest[Any]) -> ModelRequest[Any]:
    system, settings, model = request.system_message, dict(request.model_settings or {}), request.model
    thinking = settings.get("thinking") or getattr(model, "thinking", None)
    fields = fields_of_body(
        {
            "model": getattr(model, "model", "") or getattr(model, "model_name", ""),
            "system": None if system is None else system.text,
            "tools": [_tool(tool) for tool in request.tools],
            "thinking": thinking if isinstance(thinking, dict) else None,
            "max_tokens": settings.get("max_tokens") or getattr(model, "max_tokens", None),
        }
    )
    session.set_request(**fields)
    return request.override(messages=_through(session.prepare, request.messages) or request.messages)


def _shorter(session: Session, request: ModelRequest[Any], error: Exception) -> ModelRequest[Any]:
    """A shorter request after this `error`, which is raised if there is none."""
    shorter = _through(lambda plain: session.recover(plain, error), request.messages)
    if shorter is None:
        raise error
    return request.override(messages=shorter)


def _tool(tool: Any) -> Mapping[str, Any]:
    if isinstance(tool, dict) and "name" in tool:
        return tool
    function = convert_to_openai_tool(tool)["function"]
    return {"name": function["name"], "description": function.get("description", ""), "input_schema": function}


def _observed(session: Session, response: ModelResponse[Any]) -> ModelResponse[Any]:
    for message in response.result:
        if isinstance(message, AIMessage) and message.usage_metadata:
            session.observe({"input_tokens": message.usage_metadata["input_tokens"]})
    return response


def _through(
    act: Callable[[list[Message]], list[Message] | None], messages: Sequence[AnyMessage]
) -> list[AnyMessage] | None:
    """`messages` after `act` on their plain form, None if that says None or they have none.

    System messages in front stay there, untouched; others are part of the conversation.
    """
    lead = next((at for at, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    # the results of parallel calls stand together, as in one message
    groups = grouped(messages[lead:], lambda message: isinstance(message, ToolMessage))
    view = through(act, groups, _plain, _built)
    return None if view is None else [*messages[:lead], *chain.from_iterable(view)]


def _plain(group: list[AnyMessage]) -> Message:
    if isinstance(group[0], SystemMessage):
        return {"role": "system", "content": group[0].text}
    plain = strip_openai(from_openai(convert_to_openai_messages(group)))[0]
    for message, block in zip(group, plain["content"], strict=False):
        if isinstance(message, ToolMessage) and message.status == "error":
            block["is_error"] = True
    return plain


def _built(message: Message) -> list[AnyMessage]:
    return cast(list[AnyMessage], convert_to_messages(to_openai([message])))
