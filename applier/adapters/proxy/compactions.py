"""How clients of the Responses API ask for a compaction, and what answers them.

Codex asks by a last item ``compaction_trigger`` and takes back one item of which it knows nothing; of a provider that
is not OpenAI it asks in words and takes back words; other clients have an endpoint. An item of ours carries the view
that it stands for, so that any proxy can put it in its place; words are found again by their digest.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

from applier.adapters.transcripts.openai_chat import REMAINDER
from applier.adapters.transcripts.responses import VIEW, read_items
from planner.reading.messages import Message, blocks, readable_text, to_json

__all__ = ["Ask", "asked", "carried", "opened", "reply", "standing", "view_text", "without_ask"]

Ask = Literal["", "trigger", "words", "window"]
"""How a compaction is asked for: not at all, by an item, in words, by the endpoint for it."""
Data = dict[str, Any]
_TRIGGER, _ITEM = "compaction_trigger", "compaction"
_OURS = "compactor.1."
"""How what our own items carry begins; a provider's is something else."""
_WORDS = "You are performing a CONTEXT CHECKPOINT COMPACTION."
"""How Codex 0.169 asks in words; one who asks in words of his own asks his model."""
_FOUND_AGAIN = "Another language model started to solve this problem"
"""How the line begins behind which Codex presents the answer to itself."""
_MOST_BYTES = 64 * 2**20
"""That an item may stand for."""
_PIECE = 400


def asked(body: Mapping[str, Any], path: str) -> Ask:
    """How the request `body` to `path` asks for a compaction."""
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
    """`body` without the item that asks."""
    return {**body, "input": body["input"][:-1]} if ask in ("trigger", "words") else body


def opened(body: Data, words: Callable[[str], Data | None]) -> Data:
    """`body` with the view in place of our own answer to its last compaction, and of what that stands for; the same
    object if there is none. `words` finds what an answer in words stands for, by its digest."""
    items = _items(body)
    at = next((at for at in reversed(range(len(items))) if _is_candidate(items[at])), -1)
    held = _held(items[at], words) if at >= 0 else None
    if held is None:
        return body
    known = set(held["users"])
    before = [item for item in items[:at] if not (_is_ours(item) or _is_known(item, known))]
    return {**body, "input": [*before, {"type": VIEW, **held}, *items[at + 1 :]]}


def standing(body: Mapping[str, Any]) -> Data:
    """What stands in a body that was `opened` (see `carried`); empty if its conversation was not compacted here."""
    return next((item for item in body["input"] if isinstance(item, dict) and item.get("type") == VIEW), {})


def _items(body: Mapping[str, Any]) -> list[Any]:
    items = body.get("input")
    return items if isinstance(items, list) else []


def _is_ours(item: Any) -> bool:
    is_compaction = isinstance(item, dict) and item.get("type") == _ITEM
    return is_compaction and str(item.get("encrypted_content")).startswith(_OURS)


def _is_candidate(item: Any) -> bool:
    """True for an item of ours, and for what may be words of ours."""
    is_users = isinstance(item, dict) and item.get("role") == "user"
    return _is_ours(item) or (is_users and readable_text(item.get("content")).startswith(_FOUND_AGAIN))


def _held(item: Data, words: Callable[[str], Data | None]) -> Data | None:
    if _is_ours(item):
        return _unpacked(item["encrypted_content"])
    return words(_digest(readable_text(item["content"]).partition("\n")[2]))


def _is_known(item: Data, known: set[str]) -> bool:
    """True for what the conversation said before: Codex repeats the user's messages in front of an answer of ours."""
    messages = read_items([item]).messages
    return bool(messages) and (messages[0]["role"] != "user" or known.issuperset(_words_of(messages)))


def carried(messages: Sequence[Message], view: Sequence[Message], before: Data, by: str) -> Data:
    """What an answer stands for: the `view` of `messages`, what the user said in them and in what stood `before`, and
    by what their conversation is found again."""
    return {"messages": list(view), "users": sorted({*_words_of(messages), *before.get("users", ())}), "by": by}


def _words_of(messages: Sequence[Message]) -> Iterator[str]:
    """A digest of each text and image of the user's."""
    own = (block for message in messages if message["role"] == "user" for block in blocks(message))
    for block in own:
        if block["type"] != "tool_result":
            yield _digest(block.get("text") or to_json({**block, REMAINDER: None}))


def _digest(text: str) -> str:
    return sha256(text.strip().encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _packed(held: Data) -> str:
    return _OURS + base64.b64encode(zlib.compress(to_json(held).encode(), 6)).decode()


def _unpacked(text: str) -> Data | None:
    """What one of our items carries; None for one that is damaged, which is as good as foreign."""
    try:
        unpacking = zlib.decompressobj()
        held = json.loads(unpacking.decompress(base64.b64decode(text[len(_OURS) :], validate=True), _MOST_BYTES))
        is_ours = all(isinstance(held[key], kind) for key, kind in (("messages", list), ("users", list), ("by", str)))
    except (ValueError, binascii.Error, zlib.error, KeyError, TypeError, RecursionError):
        return None
    return held if is_ours else None


def view_text(view: Sequence[Message]) -> str:
    """A view as words, for a client that takes nothing else."""
    return "\n\n".join(filter(None, map(_message_text, view)))


def _message_text(message: Message) -> str:
    texts = []
    for block in blocks(message):
        if block["type"] == "tool_use":
            texts.append(f"[{block.get('name')} {to_json(block.get('input'))}]")
        else:
            texts.append(readable_text(block.get("content") if block["type"] == "tool_result" else block))
    text = "\n".join(filter(None, texts))
    return f"[{message['role']}]\n{text}" if text else ""


def reply(ask: Ask, body: Data, held: Data, number: str) -> tuple[bytes, str, str]:
    """The answer to `ask`, its media type, and the digest of its words; `number` names it."""
    text = view_text(held["messages"]) if ask == "words" else ""
    item: Data = {"type": _ITEM, "id": f"cmp_{number}", "encrypted_content": _packed(held)}
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
    started = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "sequence_number": 0, "response": started}
    yield {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    for at in range(0, len(text), _PIECE):
        delta = {"type": "response.output_text.delta", "sequence_number": 2 + at, **place}
        yield {**delta, "delta": text[at : at + _PIECE]}
    last = 2 + len(text)
    yield {"type": "response.output_item.done", "sequence_number": last, "output_index": 0, "item": item}
    yield {"type": "response.completed", "sequence_number": last + 1, "response": answer}
