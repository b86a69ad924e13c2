"""LangChain agents and LangGraph graphs: each model call goes out as a session prepares it.

::

    agent = create_agent(model, tools, middleware=[LangChainCompaction(session)])
    agent = create_react_agent(model, tools, pre_model_hook=pre_model_hook(session))

The graph's own state keeps every message; messages that are not compacted stay the same objects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AnyMessage

from applier.adapters.frameworks.langchain_messages import through

if TYPE_CHECKING:
    from applier.session import Session

__all__ = ["LangChainCompaction", "pre_model_hook"]

Call = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncCall = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class LangChainCompaction(AgentMiddleware[Any, Any, Any]):
    """Compaction as agent middleware; a prompt that is too long is tried once more, shorter."""

    def __init__(self, session: Session) -> None:
        """`session` is one conversation: give each its own."""
        super().__init__()
        self._session = session

    def wrap_model_call(self, request: ModelRequest[Any], handler: Call) -> ModelResponse[Any]:
        """One model call."""
        try:
            return self._observed(handler(request.override(messages=self._prepared(request))))
        except ContextOverflowError as error:
            shorter = self._shorter(request, error)
            if shorter is None:
                raise
        return self._observed(handler(request.override(messages=shorter)))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncCall) -> ModelResponse[Any]:
        """One model call of an asynchronous agent; the session works in a thread meanwhile."""
        prepared = await anyio.to_thread.run_sync(self._prepared, request)
        try:
            return self._observed(await handler(request.override(messages=prepared)))
        except ContextOverflowError as error:
            shorter = await anyio.to_thread.run_sync(self._shorter, request, error)
            if shorter is None:
                raise
        return self._observed(await handler(request.override(messages=shorter)))

    def _prepared(self, request: ModelRequest[Any]) -> list[AnyMessage]:
        system = request.system_message
        self._session.set_request(system=None if system is None else system.text)
        return through(self._session.prepare, request.messages) or request.messages

    def _shorter(self, request: ModelRequest[Any], error: Exception) -> list[AnyMessage] | None:
        return through(lambda plain: self._session.recover(plain, error), request.messages)

    def _observed(self, response: ModelResponse[Any]) -> ModelResponse[Any]:
        for message in response.result:
            if isinstance(message, AIMessage) and message.usage_metadata:
                self._session.observe({"input_tokens": message.usage_metadata["input_tokens"]})
        return response


def pre_model_hook(session: Session) -> Callable[[Any], dict[str, list[AnyMessage]]]:
    """A LangGraph node that gives the model the prepared messages as ``llm_input_messages``."""

    def prepared(state: Any) -> dict[str, list[AnyMessage]]:
        return {"llm_input_messages": through(session.prepare, state["messages"]) or state["messages"]}

    return prepared
