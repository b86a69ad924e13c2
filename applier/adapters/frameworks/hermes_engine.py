"""Context engine for Hermes Agent: compacts its conversations, and answers its tools that restore and search turns.

Hermes finds the engine if both packages are installed; its ``config.yaml`` turns it on::

    plugins: {enabled: [compactor]}
    context: {engine: compactor}

Hermes asks for a compaction when its prompt reaches `threshold_tokens`. The compacted list replaces Hermes' own; after
any failure the list stays unchanged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from agent.context_engine import ContextEngine

from applier.adapters.agent_tools import AGENT_TOOLS, LOOK_UP_TOOLS, answer_call
from applier.adapters.frameworks.bridge import apply_to_groups
from applier.adapters.transcripts.openai_chat import from_openai, leading_system, strip_openai, to_openai
from applier.session import Session
from applier.settings import load_settings
from planner.errors import CompactorError
from planner.reading.messages import Message, readable_text

logger = logging.getLogger("applier.session")

_TOOLS = [tool for tool in AGENT_TOOLS if tool["name"] in LOOK_UP_TOOLS]
"""Tools by which the agent restores and searches removed turns."""
_RETRY_GROWTH = 1.05
"""Factor by which the prompt must grow before a compaction that saved nothing is tried again."""


class CompactorEngine(ContextEngine):  # type: ignore[misc]  # see mypy's overrides
    """Context engine of one Hermes agent: Hermes calls its methods to compact the conversation."""

    def __init__(self) -> None:
        """Begin without a session; no store is opened yet."""
        self._id, self._model, self.compression_count = "", "", 0
        self._session: Session | None = None
        self._retry_tokens = 0
        """Size of the prompt below which a compaction that saved nothing is not tried again; 0 if none failed."""

    def __deepcopy__(self, _memo: object) -> CompactorEngine:
        """Return a new engine, because Hermes copies the engine for another agent, which needs its own session."""
        return CompactorEngine()

    @property
    def name(self) -> str:
        """Name of the engine in Hermes' setting ``context.engine``."""
        return "compactor"

    def update_model(self, model: str, context_length: int, *more: Any, **others: Any) -> None:
        """Use this model, with `context_length` tokens as its window. The session is opened again at its next use."""
        super().update_model(model, context_length, *more, **others)
        share = load_settings().compact_at_ratio or self.threshold_percent
        self.threshold_tokens, self._model = int(context_length * share), model
        self._close()

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Store the provider's token counts of the last request, by which Hermes decides when to compact."""
        self.last_prompt_tokens = usage.get("prompt_tokens") or 0
        self.last_completion_tokens = usage.get("completion_tokens") or 0
        self.last_total_tokens = usage.get("total_tokens") or 0

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return True if the prompt reaches the threshold; after a compaction that saved nothing, only once the prompt
        has grown. `prompt_tokens`: size of the prompt; None for that of the last request."""
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        return tokens >= max(self.threshold_tokens, self._retry_tokens)

    def compress(
        self,
        messages: list[dict[str, Any]],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,  # noqa: ARG002 - each call compacts, forced or not
        memory_context: str = "",  # noqa: ARG002 - Hermes adds its memory to the prompt itself
    ) -> list[dict[str, Any]]:
        """Return `messages` compacted, with their originals stored. Return the same list if that saves nothing or
        fails. `focus_topic`: words for what the compaction is to keep."""

        def compact(plain: list[Message]) -> list[Message] | None:
            compaction = session.compact(plain, focus_topic or "")
            return compaction.messages if compaction.applied else None

        try:
            session = self._open_session()
            view = _apply_to_plain(compact, messages)
        except Exception as error:  # noqa: BLE001 - the host's agent goes on whatever fails here
            logger.warning("the messages stay as they are: %s", type(error).__name__)
            view = None
        if view is None:
            self._retry_tokens = int((current_tokens or self.last_prompt_tokens) * _RETRY_GROWTH)
            return messages
        self.compression_count, self._retry_tokens = self.compression_count + 1, 0
        return view

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """Use the stored session `session_id` from now on. After a compaction Hermes gives a conversation another id;
        this is ignored, so that the stored session stays the same."""
        if kwargs.get("boundary_reason") != "compression":
            self._close()
            self._id = session_id

    def on_session_end(self, session_id: str, messages: list[dict[str, Any]]) -> None:  # noqa: ARG002
        """Close the session; its history is in the store."""
        self._close()

    def on_session_reset(self) -> None:
        """Close the session, because another conversation begins."""
        super().on_session_reset()
        self._retry_tokens = 0
        self._close()

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the definitions of the two tools by which the agent restores and searches removed turns."""
        return [
            {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
            for tool in _TOOLS
        ]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer the agent's call of one of these tools, as JSON: ``{"content": …}`` or ``{"error": …}``."""
        try:
            session = self._open_session()
            _apply_to_plain(session.prepare, kwargs.get("messages") or [])  # the session stores the newest messages
            answer = answer_call(session, name, args)
        except CompactorError as error:
            return json.dumps({"error": str(error)})
        return json.dumps({"content": answer if isinstance(answer, str) else readable_text(answer)}, ensure_ascii=False)

    def _open_session(self) -> Session:
        """Return the session of the conversation, opened at its first use."""
        if self._session is None:
            window = {"window_tokens": self.context_length} if self.context_length else {}
            # the session compacts only when Hermes asks, never by itself in `prepare`
            settings = load_settings(**window, auto_compact=False)
            self._session = Session(session_id=self._id or None, model=self._model, settings=settings, tools=_TOOLS)
        return self._session

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None


def _apply_to_plain(act: Any, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Let `act`, a method of a session, work on Hermes' `messages`, which have OpenAI's form (`apply_to_groups`)."""
    return apply_to_groups(
        act,
        messages,
        lead=leading_system(messages),
        is_result=lambda message: message["role"] == "tool",
        to_plain=lambda group: strip_openai(from_openai(group))[0],
        from_plain=lambda message: to_openai([message]),
    )


def register(context: Any) -> None:
    """Register the engine in Hermes, which calls this function if its ``config.yaml`` enables the plugin."""
    context.register_context_engine(CompactorEngine())
