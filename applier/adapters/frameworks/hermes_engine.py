"""Context engine for Hermes Agent: it compacts the conversations and answers the agent's tools.

Hermes finds the engine if both packages are installed; its ``config.yaml`` turns it on::

    plugins: {enabled: [compactor]}
    context: {engine: compactor}

Hermes asks for a compaction when its prompt reaches `threshold_tokens`. The view replaces Hermes' own list; after any
failure the list stays unchanged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from itertools import chain
from typing import Any

from agent.context_engine import ContextEngine

from applier.adapters.agent_tools import AGENT_TOOLS, LOOK_UP_TOOLS, answer_call
from applier.adapters.frameworks.bridge import grouped, through
from applier.adapters.transcripts.openai_chat import from_openai, leading_system, strip_openai, to_openai
from applier.session import Session
from applier.settings import load_settings
from planner.errors import CompactorError
from planner.reading.messages import Message, readable_text

logger = logging.getLogger("applier.session")

_ASKED_AGAIN = 1.05
"""Growth of the prompt, as a factor, after which a compaction without result is tried again."""


class CompactorEngine(ContextEngine):  # type: ignore[misc]  # see mypy's overrides
    """Engine for one agent's conversation, in a session with the name of Hermes' session."""

    def __init__(self) -> None:
        """Read the settings of the environment; no store is opened yet."""
        self._id, self._model, self.compression_count = "", "", 0
        self._session: Session | None = None
        self._not_below = 0

    def __deepcopy__(self, _memo: object) -> CompactorEngine:
        """Return an engine for another agent, with a session of its own."""
        return CompactorEngine()

    @property
    def name(self) -> str:
        """Name in ``context.engine``."""
        return "compactor"

    def update_model(self, model: str, context_length: int, *more: Any, **others: Any) -> None:
        """Use this model, and `context_length` as its window. The session is opened again at its next use."""
        super().update_model(model, context_length, *more, **others)
        share = load_settings().compact_at_ratio or self.threshold_percent
        self.threshold_tokens, self._model = int(context_length * share), model
        self._close()

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Use the provider's token count."""
        self.last_prompt_tokens = usage.get("prompt_tokens") or 0
        self.last_completion_tokens = usage.get("completion_tokens") or 0
        self.last_total_tokens = usage.get("total_tokens") or 0

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return True if the prompt reaches the threshold; after a compaction without result, only once it has
        grown."""
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        return tokens >= max(self.threshold_tokens, self._not_below)

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
        try:
            view = self._compacted(messages, focus_topic or "")
        except Exception as error:  # noqa: BLE001 - the host's agent goes on whatever fails here
            logger.warning("the messages stay as they are: %s", type(error).__name__)
            view = None
        if view is None:
            self._not_below = int((current_tokens or self.last_prompt_tokens) * _ASKED_AGAIN)
            return messages
        self.compression_count, self._not_below = self.compression_count + 1, 0
        return view

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """Use the session `session_id` from now on. If Hermes gives a conversation another id after a compaction, the
        session keeps its name."""
        if kwargs.get("boundary_reason") != "compression":
            self._close()
            self._id = session_id

    def on_session_end(self, session_id: str, messages: list[dict[str, Any]]) -> None:  # noqa: ARG002
        """Close the session; its history is in the store."""
        self._close()

    def on_session_reset(self) -> None:
        """Close the session, because another conversation begins."""
        super().on_session_reset()
        self._not_below = 0
        self._close()

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return ``restore_context`` and ``search_context``."""
        return [
            {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
            for tool in AGENT_TOOLS
            if tool["name"] in LOOK_UP_TOOLS
        ]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Return the answer of one of the tools, as JSON."""
        try:
            session = self._opened()
            _through(session.prepare, kwargs.get("messages") or [])
            answer = answer_call(session, name, args)
        except CompactorError as error:
            return json.dumps({"error": str(error)})
        return json.dumps({"content": answer if isinstance(answer, str) else readable_text(answer)}, ensure_ascii=False)

    def _compacted(self, messages: Sequence[dict[str, Any]], focus: str) -> list[dict[str, Any]] | None:
        session = self._opened()

        def act(plain: list[Message]) -> list[Message] | None:
            done = session.compact(plain, focus)
            return done.messages if done.applied else None

        return _through(act, messages)

    def _opened(self) -> Session:
        if self._session is None:
            window = {"window_tokens": self.context_length} if self.context_length else {}
            # the session compacts only when Hermes asks, never by itself in `prepare`
            settings = load_settings(**window, auto_compact=False)
            self._session = Session(session_id=self._id or None, model=self._model, settings=settings)
        return self._session

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None


def _through(act: Any, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the messages that `act` makes of `messages`, as `bridge.through` does. System messages in front stay."""
    lead = leading_system(messages)
    groups = grouped(messages[lead:], lambda message: message["role"] == "tool")
    view = through(act, groups, lambda group: strip_openai(from_openai(group))[0], lambda one: to_openai([one]))
    return None if view is None else [*messages[:lead], *chain.from_iterable(view)]


def register(context: Any) -> None:
    """Register the engine; Hermes calls this if its ``config.yaml`` enables the plugin."""
    context.register_context_engine(CompactorEngine())
