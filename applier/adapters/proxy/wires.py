"""The two APIs that the proxy speaks: where their messages are, and how an answer says what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from applier.adapters.transcripts.openai_chat import from_openai, to_openai

__all__ = ["CHAT", "MESSAGES", "Wire"]

Body = dict[str, Any]


class Wire(Protocol):
    """One API."""

    can_plan: bool
    """A planner can be asked where its requests go."""

    def messages(self, body: Body) -> list[Any] | None:
        """The conversation in `body` as Anthropic messages; None if there is none that can be compacted."""
        ...

    def with_messages(self, body: Body, messages: Sequence[Any]) -> Body:
        """`body` with another conversation."""
        ...

    def request(self, body: Body) -> dict[str, Any]:
        """What else the request says, as `Session.set_request` takes it."""
        ...

    def observed(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What of an answer, or of one event of a stream, a session should see: ``usage``, ``stop_reason``."""
        ...


class _Messages:
    """Anthropic's Messages API."""

    can_plan = True

    def messages(self, body: Body) -> list[Any] | None:
        """Not those on a thread that the server holds: the rest of it is not here."""
        messages = body.get("messages")
        return messages if isinstance(messages, list) and not body.get("thread") else None

    def with_messages(self, body: Body, messages: Sequence[Any]) -> Body:
        return {**body, "messages": list(messages)}

    def request(self, body: Body) -> dict[str, Any]:
        asked = {name: body.get(name) for name in ("system", "tools", "thinking")}
        return {"model": _model(body), **asked, "max_output_tokens": _count(body, "max_tokens")}

    def observed(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        kind = event.get("type")
        part = event.get("message") if kind == "message_start" else event.get("delta") if kind == "message_delta" else 0
        return part if isinstance(part, Mapping) else event if kind == "message" else None


class _Chat:
    """OpenAI's chat completions."""

    can_plan = False

    def messages(self, body: Body) -> list[Any] | None:
        messages = body.get("messages")
        return from_openai(messages[_instructions(messages) :]) if isinstance(messages, list) else None

    def with_messages(self, body: Body, messages: Sequence[Any]) -> Body:
        whole = body["messages"]
        return {**body, "messages": [*whole[: _instructions(whole)], *to_openai(messages)]}

    def request(self, body: Body) -> dict[str, Any]:
        instructions = [str(message.get("content")) for message in body["messages"][: _instructions(body["messages"])]]
        output = _count(body, "max_completion_tokens") or _count(body, "max_tokens")
        return {
            "model": _model(body),
            "system": "\n".join(instructions) or None,
            "tools": body.get("tools"),
            "max_output_tokens": output,
        }

    def observed(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        usage = event.get("usage")
        tokens = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
        return {"usage": {"input_tokens": tokens}} if tokens else None


def _model(body: Body) -> str:
    return str(body.get("model") or "")


def _count(body: Body, name: str) -> int | None:
    value = body.get(name)
    return value if isinstance(value, int) and value > 0 else None


def _instructions(messages: Sequence[Any]) -> int:
    """How many messages at the start are the host's instructions; they stay as they are."""
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    return next((at for at, role in enumerate(roles) if role not in ("system", "developer")), len(roles))


MESSAGES: Wire = _Messages()
CHAT: Wire = _Chat()
