"""Tools by which an agent restores and searches removed turns, in the form of the anthropic SDK's tool runner.

::

    runner = client.beta.messages.tool_runner(tools=[*mine, *agent_tools(session)], …)
"""

from __future__ import annotations

from functools import partial
from typing import Any

import anthropic
import anyio.to_thread
from anthropic.lib.tools import BetaAsyncFunctionTool, BetaFunctionTool, ToolError

from applier.adapters.agent_tools import AGENT_TOOLS, answer_call
from applier.session import Session
from planner.errors import CompactorError

__all__ = ["agent_tools", "async_agent_tools"]


def agent_tools(session: Session) -> list[BetaFunctionTool[Any]]:
    """Return the tools by which a model looks up removed turns of `session`, for the tool runner of ``Anthropic``."""
    return [anthropic.beta_tool(partial(_answer, session, tool["name"]), **tool) for tool in AGENT_TOOLS]


def async_agent_tools(session: Session) -> list[BetaAsyncFunctionTool[Any]]:
    """Return the same tools as `agent_tools` for ``AsyncAnthropic``; the store is read in a worker thread."""

    async def answer_in_thread(name: str, /, **arguments: Any) -> Any:
        return await anyio.to_thread.run_sync(partial(_answer, session, name, **arguments))

    return [anthropic.beta_async_tool(partial(answer_in_thread, tool["name"]), **tool) for tool in AGENT_TOOLS]


def _answer(session: Session, name: str, /, **arguments: Any) -> Any:
    """Answer a call of the tool `name`; an error of the session becomes a failed result."""
    try:
        return answer_call(session, name, arguments)
    except CompactorError as error:
        raise ToolError(str(error)) from None
