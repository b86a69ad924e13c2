"""The APIs that the proxy understands: the messages of a request, and the report in an answer.

An answer is read after its bytes were passed on; nothing here changes or delays it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from applier.adapters.transcripts.openai_chat import from_openai, leading_system, to_openai
from applier.adapters.transcripts.response_items import OUTPUTS
from applier.adapters.transcripts.responses import ReadItems, read_items, to_items
from applier.session.refusals import WINDOW_EXCEEDED
from applier.session.request import fields_of_body
from planner.reading.messages import field_of, to_json

__all__ = ["CHAT", "MAX_READ_BYTES", "MESSAGES", "RESPONSES", "ReadAnswer", "Wire", "read_answer"]

MAX_READ_BYTES = 8 * 2**20
"""Largest answer that is read; a larger one passes unread."""
_FINAL_USAGE = ("output_tokens", "iterations")
_REMOVED = (("action", "removed"), ("type", "thinking_dropped"))
"""Fields in which OpenAI and Anthropic report that reasoning was not shown to the model."""
_BEHIND_A_CHANGE = ("prefix_mismatch", "prefix_binding_mismatch")
Body = dict[str, Any]


class _Messages:
    """Anthropic's Messages API."""

    def messages(self, body: Body) -> list[Any] | None:
        """Return the conversation in `body` as Anthropic messages; None if nothing in it can be compacted.

        For a request for the server's compaction (``compaction``) this is the client's own history.
        """
        messages = body.get("messages")
        return messages if isinstance(messages, list) and not body.get("compaction") else None

    def with_messages(self, body: Body, messages: Sequence[Any]) -> Body:
        """Return `body` with another conversation."""
        return {**body, "messages": list(messages)}

    def request(self, body: Body) -> dict[str, Any]:
        """Return the other fields of the request, as arguments of `Session.set_request`."""
        return fields_of_body(body)

    def observed(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the part of an answer or event for a session: ``usage``, ``stop_reason``."""
        kind = event.get("type")
        part = event.get("message") if kind == "message_start" else event.get("delta") if kind == "message_delta" else 0
        if not isinstance(part, Mapping):
            return event if kind == "message" else None
        usage = event.get("usage")  # the last event repeats what the first one reported; these are new
        new = {name: usage[name] for name in _FINAL_USAGE if usage.get(name)} if isinstance(usage, Mapping) else {}
        return {**part, "usage": new} if new else part


class _Chat:
    """OpenAI's chat completions; the host's instructions at the start stay unchanged."""

    def messages(self, body: Body) -> list[Any] | None:
        messages = body.get("messages")
        return from_openai(messages[leading_system(messages) :]) if isinstance(messages, list) else None

    def with_messages(self, body: Body, messages: Sequence[Any]) -> Body:
        whole = body["messages"]
        return {**body, "messages": [*whole[: leading_system(whole)], *to_openai(messages)]}

    def request(self, body: Body) -> dict[str, Any]:
        instructions = [str(message.get("content")) for message in body["messages"][: leading_system(body["messages"])]]
        fields = fields_of_body({**body, "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens")})
        return {**fields, "system": "\n".join(instructions) or None, "thinking": None}

    def observed(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        usage = event.get("usage")
        if not isinstance(usage, Mapping) or not usage.get("prompt_tokens"):
            return None
        return {"usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage.get("completion_tokens")}}


class _Responses:
    """OpenAI's Responses API; the host's own items stay in place."""

    _last: tuple[Any, ReadItems] = None, ReadItems()
    """Last items and the result of reading them, since one request needs it several times."""

    def read(self, body: Body) -> ReadItems:
        """Return the items of `body`, which nobody may change."""
        items, read = self._last
        if items is not body["input"]:
            read = read_items(body["input"])
            self._last = body["input"], read
        return read

    def messages(self, body: Body) -> list[Any] | None:
        """Return the conversation; None if the server stores it, whole or in part."""
        held = body.get("previous_response_id") or body.get("conversation")
        return self.read(body).messages if isinstance(body.get("input"), list) and not held else None

    def with_messages(self, body: Body, messages: Sequence[Any]) -> Body:
        return {**body, "input": to_items(self.read(body), messages)}

    def request(self, body: Body) -> dict[str, Any]:
        fixed = [item for _, item in self.read(body).fixed]
        groups = [body.get("tools") or (), *(item.get("tools") or () for item in fixed)]
        tools = [tool for group in groups for tool in group if isinstance(tool, dict)]
        texts = [str(body.get("instructions") or ""), *(to_json(item) for item in fixed if "tools" not in item)]
        fields = fields_of_body({"model": body.get("model"), "max_tokens": body.get("max_output_tokens")})
        return {**fields, "system": "\n".join(filter(None, texts)) or None, "tools": tools}

    def observed(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        answer = event.get("response") if str(event.get("type")).startswith("response.") else event
        if field_of(field_of(answer, "error"), "code") == "context_length_exceeded":
            return {"stop_reason": WINDOW_EXCEEDED}
        usage = field_of(answer, "usage")
        tokens = field_of(usage, "input_tokens")
        read = field_of(field_of(usage, "input_tokens_details"), "cached_tokens")
        if not isinstance(tokens, int) or not tokens:
            return None
        read = read if isinstance(read, int) else 0
        output = field_of(usage, "output_tokens") or 0
        counted = {"input_tokens": tokens - read, "cache_read_input_tokens": read, "output_tokens": output}
        return {"usage": counted, **({"stop_reason": "end_turn"} if _ends_turn(answer) else {})}


def _ends_turn(answer: object) -> bool:
    """Return True if an answer of the Responses API is complete and calls none of the client's tools."""
    items = field_of(answer, "output")
    kinds = [str(field_of(item, "type")) for item in items] if isinstance(items, list) else []
    return bool(kinds) and not any(f"{kind}_output" in OUTPUTS for kind in kinds)


Wire = _Messages | _Chat | _Responses
MESSAGES, CHAT, RESPONSES = _Messages(), _Chat(), _Responses()


@dataclass(frozen=True)
class ReadAnswer:
    """An answer as far as it was read."""

    parts: Sequence[Mapping[str, Any]] = ()
    """Parts of the answer that a session observes, in order: usage, and the reason to stop."""
    removed_reasoning: int = 0
    """Number of reasoning items or thinking blocks after a changed prefix that the provider hid from the model."""


def read_answer(wire: Wire, answer: bytes, *, is_stream: bool) -> ReadAnswer:
    """Return the report in `answer`, which is whole or a stream of events; damaged events are left out."""
    events = list(_events(answer, is_stream=is_stream)) if len(answer) <= MAX_READ_BYTES else []
    parts = [part for event in events if (part := wire.observed(event)) is not None]
    return ReadAnswer(parts, max(map(_removed_reasoning, events), default=0))  # a later event may repeat them


def _events(answer: bytes, *, is_stream: bool) -> Iterator[Body]:
    for line in [line[5:] for line in answer.split(b"\n") if line.startswith(b"data:")] if is_stream else [answer]:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


def _removed_reasoning(event: Body) -> int:
    places = (event, *(event.get(name) for name in ("response", "message", "delta")))
    lists = (field_of(place, "input_transformations") for place in places)
    entries = next((one for one in lists if isinstance(one, list)), [])
    return sum(
        field_of(entry, "reason") in _BEHIND_A_CHANGE and any(field_of(entry, key) == word for key, word in _REMOVED)
        for entry in entries
    )
