"""Compacts the messages of agents of OpenAI's Agents SDK before each call of the model, through a session.

::

    config = RunConfig(model_provider=CompactedModels(Session(session_id="run-7")))
    agent = Agent("Coder", tools=[*mine, *CONTEXT_TOOLS])
    result = await Runner.run(agent, "Hello", session=SQLiteSession("run-7"), run_config=config)

A `Session` stores one conversation and decides when to compact it. The SDK's own session keeps every item; items that
are not compacted are sent unchanged. Agents that a run calls as tools have a `Session` of their own. Conversations
stored on the server (`previous_response_id`, `conversation_id`) are not compacted, nor are items before a
``compaction`` item of the provider.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio.to_thread
from agents import FunctionTool, Handoff, Model, ModelProvider, ModelResponse, MultiProvider, Tool
from agents.tool_context import ToolContext

from applier.adapters.agent_tools import AGENT_TOOLS, answer_call
from applier.adapters.frameworks.bridge import RunConversation, RunConversations
from applier.adapters.transcripts.openai_chat import arguments_as_object, plain_entry
from applier.adapters.transcripts.responses import ReadItems, read_items, to_items
from applier.session import Session
from applier.session.request import fields_of_body
from planner.errors import CompactorError, SettingsError
from planner.reading.messages import Message

__all__ = ["CONTEXT_TOOLS", "CompactedModels"]

logger = logging.getLogger("applier.session")

_ARGUMENTS = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")
"""Positional parameters of a model's methods, in order; all others are passed by keyword."""
_PASSED_ON = ("close", "get_retry_advice", "_cleanup_on_run_end", "_supports_default_prompt_cache_key")
"""Other methods of a model that the SDK's runner calls; they are taken from the wrapped model."""


class CompactedModels(ModelProvider):
    """Model provider whose models compact the messages of a run before each call. If the provider still refuses a
    prompt as too long, it is sent once more, shorter."""

    def __init__(self, session: Session, provider: ModelProvider | None = None) -> None:
        """Compact by `session`, and take models from `provider`; None for the SDK's default provider.

        Raises:
            SettingsError: `session` is not a Session, or `provider` is not a ModelProvider.
        """
        if provider is not None and not isinstance(provider, ModelProvider):
            wanted = "a ModelProvider (for a model object: CompactedModels(session).around(model))"
            raise SettingsError(f"provider: expected {wanted}, found {type(provider).__name__}")
        self.conversations = RunConversations(session)
        self._provider = provider or MultiProvider()

    def get_model(self, model_name: str | None) -> Model:
        """Return the provider's model with this name, with compaction before each call."""
        return self.around(self._provider.get_model(model_name))

    def around(self, model: Model) -> Model:
        """Return `model` with compaction before each call, for an `Agent` that has a model object instead of a name."""
        return _CompactedModel(model, self.conversations)

    async def aclose(self) -> None:
        """Close the provider; the session stays open."""
        await self._provider.aclose()


class _CompactedModel(Model):
    """Model that compacts the items of each call, then calls another model with them."""

    def __init__(self, model: Model, conversations: RunConversations) -> None:
        self._model, self._conversations = model, conversations
        for name in _PASSED_ON:
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))

    async def get_response(self, *values: Any, **named: Any) -> ModelResponse:
        """Call the model with compacted items; if it refuses them as too long, once more with fewer."""
        call = _Call(self._conversations, self._model, {**dict(zip(_ARGUMENTS, values, strict=False)), **named})
        request = await anyio.to_thread.run_sync(call.prepared)
        try:
            response = await self._model.get_response(**request)
        except Exception as error:  # noqa: BLE001 - raised again unless it is about the length
            request = await anyio.to_thread.run_sync(call.shorter, error)
            response = await self._model.get_response(**request)
        call.observe(response.output, response.usage)
        return response

    async def stream_response(self, *values: Any, **named: Any) -> AsyncIterator[Any]:
        """Do the same as `get_response` for a streamed answer, as long as nothing of it was passed on."""
        call = _Call(self._conversations, self._model, {**dict(zip(_ARGUMENTS, values, strict=False)), **named})
        has_begun = False
        request = await anyio.to_thread.run_sync(call.prepared)
        try:
            async for event in self._model.stream_response(**request):
                has_begun = True
                yield call.observed_event(event)
            return
        except Exception as error:
            if has_begun:
                raise
            request = await anyio.to_thread.run_sync(call.shorter, error)
        async for event in self._model.stream_response(**request):
            yield call.observed_event(event)


class _Call:
    """One call of a model: its request, compacted or shorter, and what its answer reports to the session."""

    def __init__(self, conversations: RunConversations, model: Model, request: dict[str, Any]) -> None:
        self._conversations, self._model, self._request = conversations, model, request
        self._conversation: RunConversation | None = None

    def prepared(self) -> dict[str, Any]:
        """Return the request with compacted items; unchanged if the server stores earlier items of the conversation."""
        if self._request.get("previous_response_id") or self._request.get("conversation_id"):
            return self._request
        if isinstance(items := self._request["input"], str):
            self._request["input"] = [{"role": "user", "content": items}]
        return self._with_result_of(self._session_prepared) or self._request

    def shorter(self, error: Exception) -> dict[str, Any]:
        """Return a shorter request after the provider's `error` about the length; raise `error` if there is none."""
        if (conversation := self._conversation) is None:  # the request went out unchanged
            raise error
        request = self._with_result_of(lambda plain: conversation.session.recover(plain, error))
        if request is None:
            raise error
        return request

    def observed_event(self, event: Any) -> Any:
        """Return `event` of a stream unchanged, after reporting it to the session if it is the last one."""
        if event.type == "response.completed":
            self.observe(event.response.output, event.response.usage)
        return event

    def observe(self, output: Sequence[Any], usage: Any) -> None:
        """Report the token count to the session, and note the ids of the tool calls in the items `output`."""
        if self._conversation is not None:
            call_ids = (item.call_id for item in output if getattr(item, "type", "") == "function_call")
            self._conversation.call_ids = frozenset(call_ids)
            self._conversation.session.observe({"input_tokens": getattr(usage, "input_tokens", 0)})

    def _session_prepared(self, plain: list[Message]) -> list[Message]:
        """Find the conversation that these Anthropic messages continue, and return them compacted by its session."""
        self._conversation = self._conversations.find(plain)
        body = {
            "model": str(getattr(self._model, "model", "")),
            "system": self._request["system_instructions"],
            "tools": [*map(_definition, self._request["tools"]), *map(_handoff_definition, self._request["handoffs"])],
            "max_tokens": self._request["model_settings"].max_tokens,
        }
        self._conversation.session.set_request(**fields_of_body(body))
        return self._conversation.session.prepare(plain)

    def _with_result_of(self, act: Callable[[list[Message]], list[Message] | None]) -> dict[str, Any] | None:
        """Return the request with the result of `act`, which gets the items as Anthropic messages. Return None without
        messages, if `act` returns None, and after any error; the request is then sent unchanged."""
        try:
            read = read_items(list(map(plain_entry, self._request["input"])))
            view = act(read.messages) if read.messages else None
            return None if view is None else {**self._request, "input": to_items(read, view)}
        except Exception as error:  # noqa: BLE001 - its text may quote the conversation
            logger.warning("the items go out as they came: %s", type(error).__name__)
            return None


def _definition(tool: Tool) -> dict[str, Any]:
    schema = getattr(tool, "params_json_schema", {})
    return {"name": tool.name, "description": getattr(tool, "description", ""), "input_schema": schema}


def _handoff_definition(handoff: Handoff[Any, Any]) -> dict[str, Any]:
    name, description = handoff.tool_name, handoff.tool_description
    return {"name": name, "description": description, "input_schema": handoff.input_json_schema}


async def _answer(context: ToolContext[Any], arguments: str) -> Any:
    """Answer a call of a context tool from the session of the agent that made it. `arguments`: JSON text. An error of
    the session becomes the answer, so that the run goes on."""
    models = getattr(context.run_config, "model_provider", None)
    if not isinstance(models, CompactedModels):
        return "nothing of this conversation was compacted"
    session = models.conversations.session_of_call(context.tool_call_id)
    try:
        values = arguments_as_object(arguments)
        answer = await anyio.to_thread.run_sync(answer_call, session, context.tool_name, values)
    except CompactorError as error:
        return str(error)
    if isinstance(answer, str):
        return answer
    items = to_items(ReadItems(), [{"role": "user", "content": answer}])
    # the SDK expects the types ``text`` and ``image`` in a tool's output, not ``input_text`` and ``input_image``
    return [{**part, "type": part["type"].removeprefix("input_")} for item in items for part in item["content"]]


CONTEXT_TOOLS: list[Tool] = [
    FunctionTool(tool["name"], tool["description"], tool["input_schema"], _answer, strict_json_schema=False)
    for tool in AGENT_TOOLS
]
"""Tools by which an agent restores and searches removed turns, for its ``tools`` if it runs with `CompactedModels`."""
