"""Requests of the Responses API for a compaction, and the answers to them.

With OpenAI, Codex asks by a last item ``compaction_trigger`` and gets one sealed item; with other providers it asks in
words and gets words; other clients use an endpoint. Our item contains its view, so that any proxy can replace the item
by the view; words are recognised by their digest.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

from applier.adapters.proxy.bodies import MAX_DECODED_BYTES, parse
from applier.adapters.transcripts.openai_chat import REMAINDER
from applier.adapters.transcripts.responses import VIEW, read_items
from applier.view import view_text
from planner.reading.messages import Message, blocks, readable_text, to_json

__all__ = ["Ask", "asked", "opened", "record_in", "reply", "view_record", "without_ask"]

Ask = Literal["", "trigger", "words", "window"]
"""Way in which a request asks for a compaction: not at all, by an item, in words, by its endpoint."""
Data = dict[str, Any]
_TRIGGER, _ITEM = "compaction_trigger", "compaction"
_OURS = "compactor.1."
"""Beginning of the content of our items; items of a provider begin differently."""
_WORDS = "You are performing a CONTEXT CHECKPOINT COMPACTION."
"""Beginning of Codex' request in words (0.169). Any other wording is answered by the model."""
_ANSWER_INTRODUCTION = "Another language model started to solve this problem"
"""Beginning of the line after which Codex repeats an answer in words."""
_RECORD = {"messages": list, "users": list, "by": str}
"""Fields of a record: the view, digests of the user's texts before the view, and the conversation's digest."""
_DELTA_CHARACTERS = 400


def asked(body: Mapping[str, Any], path: str) -> Ask:
    """Return how the request `body` to `path` asks for a compaction."""
    last = _items(body)[-1] if _items(body) else None
    if not isinstance(last, dict):
        return ""
    if path.endswith("/compact"):
        return "window"
    if last.get("type") == _TRIGGER:
        return "trigger"
    is_words = last.get("role") == "user" and readable_text(last.get("content")).startswith(_WORDS)
    return "words" if is_words else ""


def without_ask(body: Data, ask: Ask) -> Data:
    """Return `body` without the item that asks."""
    return {**body, "input": body["input"][:-1]} if ask in ("trigger", "words") else body


def opened(body: Data, record_of: Callable[[str], Data | None]) -> Data:
    """Return `body` with our last answer, and the items before it that it covers, replaced by its view; the same object
    if `body` contains no answer of ours.

    `record_of` returns the record of an answer in words, by the digest of the words.
    """
    items = _items(body)
    at = next((at for at in reversed(range(len(items))) if _may_be_ours(items[at])), -1)
    record = _record_of(items[at], record_of) if at >= 0 else None
    if record is None:
        return body
    user_digests = set(record["users"])
    uncovered = [item for item in items[:at] if not (_is_ours(item) or _is_covered(item, user_digests))]
    return {**body, "input": [*uncovered, {"type": VIEW, **record}, *items[at + 1 :]]}


def record_in(body: Mapping[str, Any]) -> Data:
    """Return the record in a body returned by `opened`; empty if nothing in it was compacted here."""
    return next((item for item in body["input"] if isinstance(item, dict) and item.get("type") == VIEW), {})


def _items(body: Mapping[str, Any]) -> list[Any]:
    items = body.get("input")
    return items if isinstance(items, list) else []


def _is_ours(item: Any) -> bool:
    is_compaction = isinstance(item, dict) and item.get("type") == _ITEM
    return is_compaction and str(item.get("encrypted_content")).startswith(_OURS)


def _may_be_ours(item: Any) -> bool:
    """Return True for one of our items, and for a message that may repeat our words."""
    is_users = isinstance(item, dict) and item.get("role") == "user"
    return _is_ours(item) or (is_users and readable_text(item.get("content")).startswith(_ANSWER_INTRODUCTION))


def _record_of(item: Data, record_of: Callable[[str], Data | None]) -> Data | None:
    """Return the record of our answer `item`: from its content, or else by the digest of its words."""
    if _is_ours(item):
        return _unpacked(item["encrypted_content"])
    return record_of(_digest(readable_text(item["content"]).partition("\n")[2]))


def _is_covered(item: Data, user_digests: set[str]) -> bool:
    """Return True for an item that a view with these `user_digests` covers, though it is before our answer: Codex
    repeats the user's messages there."""
    messages = read_items([item]).messages
    return bool(messages) and (messages[0]["role"] != "user" or user_digests.issuperset(_user_digests(messages)))


def view_record(messages: Sequence[Message], view: Sequence[Message], before: Data, by: str) -> Data:
    """Return the record of an answer: the `view` of `messages`, digests of the user's texts in them and in the record
    `before`, and the digest `by` which the conversation is recognised."""
    users = sorted({*_user_digests(messages), *before.get("users", ())})
    return {"messages": list(view), "users": users, "by": by}


def _user_digests(messages: Sequence[Message]) -> Iterator[str]:
    """Yield a digest of each of the user's texts and images."""
    user_blocks = (block for message in messages if message["role"] == "user" for block in blocks(message))
    for block in user_blocks:
        if block["type"] != "tool_result":
            yield _digest(block.get("text") or to_json({**block, REMAINDER: None}))


def _digest(text: str) -> str:
    return sha256(text.strip().encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _packed(record: Data) -> str:
    return _OURS + base64.b64encode(zlib.compress(to_json(record).encode(), 6)).decode()


def _unpacked(text: str) -> Data | None:
    """Return the record in one of our items; None if the item is damaged or exceeds a body's limits."""
    try:
        packed = base64.b64decode(text[len(_OURS) :], validate=True)
        record = parse(zlib.decompressobj().decompress(packed, MAX_DECODED_BYTES))
    except (ValueError, zlib.error):
        return None
    is_whole = record is not None and all(isinstance(record.get(name), kind) for name, kind in _RECORD.items())
    return record if is_whole else None


def reply(ask: Ask, body: Data, record: Data, number: str) -> tuple[bytes, str, str]:
    """Return the answer to `ask` with the view of `record`, its media type, and the digest of its words (of an empty
    text for another `ask`); `number` makes its ids unique."""
    text = view_text(record["messages"]) if ask == "words" else ""
    item: Data = {"type": _ITEM, "id": f"cmp_{number}", "encrypted_content": _packed(record)}
    if ask == "words":
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}
    fixed = [one for _, one in read_items(body["input"]).fixed] if ask == "window" else []
    answer = {
        "id": f"resp_{number}",
        "object": "response.compaction" if ask == "window" else "response",
        "created_at": 0,
        "status": "completed",
        "model": body.get("model", ""),
        "output": [*fixed, item],
        "usage": _NO_USAGE,
    }
    if ask == "window" or not body.get("stream"):
        return json.dumps(answer).encode(), "application/json", _digest(text)
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(answer, item, text))
    return "".join(lines).encode(), "text/event-stream", _digest(text)


_NO_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


def _events(answer: Data, item: Data, text: str) -> Iterator[Data]:
    """Yield the events of a streamed `answer` with the output `item`, and its `text` in pieces; their sequence numbers
    grow by the length of the pieces."""
    started = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "sequence_number": 0, "response": started}
    yield {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    for at in range(0, len(text), _DELTA_CHARACTERS):
        delta = {"type": "response.output_text.delta", "sequence_number": 2 + at, **place}
        yield {**delta, "delta": text[at : at + _DELTA_CHARACTERS]}
    last = 2 + len(text)
    yield {"type": "response.output_item.done", "sequence_number": last, "output_index": 0, "item": item}
    yield {"type": "response.completed", "sequence_number": last + 1, "response": answer}
