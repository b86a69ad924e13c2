"""Responses API in the proxy: its requests for a compaction with our answers, and a planner that asks its provider.

With OpenAI, Codex asks for a compaction by a last item ``compaction_trigger`` and gets one sealed item; with other
providers it asks in words and gets words; other clients use an endpoint. Our item contains its view, so that any proxy
can replace the item by the view; words are recognised by their digest.

The planner uses the credentials of the conversation's requests. Its question follows the conversation's items while
the provider has them cached; else it consists of cards. A ChatGPT login allows only streamed answers that are not
stored.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

import httpx

from applier.adapters.proxy.wires import MAX_DECODED_BYTES, MAX_READ_BYTES, RESPONSES, parse
from applier.adapters.transcripts.openai_chat import REMAINDER
from applier.adapters.transcripts.responses import VIEW, read_items
from applier.view import view_text
from planner.errors import PlannerUnavailable
from planner.model.planners import RelayedAnswer, RelayedPlanner, RelayedQuestion, Unanswered
from planner.plan import Usage
from planner.prices import is_warm
from planner.proposal import PlanRequest, Proposal
from planner.reading.messages import Message, blocks, readable_text, to_json

__all__ = [
    "Ask",
    "OwnRequest",
    "ResponsesPlanner",
    "asked",
    "opened",
    "record_in",
    "reply",
    "view_record",
    "without_ask",
]

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
    if `body` contains no answer of ours. `record_of` returns the record of an answer in words, by the digest of the
    words."""
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
    """Return True for an item before our answer that the view covers: Codex repeats the user's messages there."""
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


MOST_PARALLEL = 4
"""Largest number of questions asked at the same time."""
_REQUEST_HEADERS = ("accept", "connection", "content-", "host", "keep-alive", "proxy-", "transfer-", "x-compactor-")
"""Beginnings of headers that describe one request or belong to the proxy; all others are the client's."""
_ENDS = {"response.completed": "", "response.incomplete": "", "response.failed": "it failed", "error": "it failed"}
"""Types of the last event of an answer, each with the fault it reports."""
_LATE = "no answer in time: raise settings.timeout_seconds"
_WORK_FIELDS = ("tools", "tool_choice", "parallel_tool_calls", "include", "prompt_cache_key", "text")
"""Fields for the conversation's own answers; a question that follows its items keeps them, for the cache."""


@dataclass(frozen=True)
class OwnRequest:
    """The agent's newest request in a conversation; questions to the provider are made from it."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: Mapping[str, Any] = field(repr=False)
    """Body with the conversation as it would go out."""

    def asking(self, question: RelayedQuestion) -> dict[str, Any]:
        """Return the body of `question`, after the items of this request or alone."""
        words = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": question.prompt}]}
        body = {**self.body, "stream": True, "store": False}
        body.pop("max_output_tokens", None)  # it bounds the conversation's answers
        if question.via == "fork":
            return {**body, "input": [*self.body["input"], words]}
        alone = {key: value for key, value in body.items() if key not in _WORK_FIELDS}
        return {**alone, "model": question.model, "instructions": question.system, "input": [words]}


class ResponsesPlanner:
    """Planner of a session that asks the conversation's own provider; gets each request before it is sent."""

    def __init__(self, model: str = "") -> None:
        """Ask `model` with cards; empty: the conversation's own model."""
        self.model = model
        self._request: OwnRequest | None = None
        self._cached_at: float | None = None
        """Time when the provider last received the client's own list; None if it received another one."""

    @property
    def name(self) -> str:
        """Name of the model that plans."""
        return self.model or (str(self._request.body.get("model")) if self._request else "")

    def is_due(self, url: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
        """Take the request that is about to go to `url`: planners send its `headers` and continue its `body`."""
        repeated = {name: value for name, value in headers.items() if not name.startswith(_REQUEST_HEADERS)}
        self._request = OwnRequest(url, repeated, body)

    def went_out(self, *, as_it_came: bool) -> None:
        """Note that the request was sent, unchanged (`as_it_came`) or with another list than the client has."""
        self._cached_at = time.monotonic() if as_it_came else None

    def propose(self, request: PlanRequest) -> Proposal:
        """Return a proposal by the provider's model; raise PlannerUnavailable if no answer can be used."""
        own, deadline = self._request, time.monotonic() + request.settings.timeout_seconds
        if own is None:
            raise PlannerUnavailable("planner model: no request of this conversation has come yet")
        model, answers = str(own.body.get("model") or ""), dict[str, RelayedAnswer]()
        warm = self._cached_at is not None and is_warm(time.monotonic() - self._cached_at)
        tokens = request.analysis.tokens if warm and self.model in ("", model) else 0
        planner = RelayedPlanner(answers, self.model or model, model, tokens)
        while True:  # each round answers what the one before it asked
            try:
                return planner.propose(request)
            except Unanswered as asked:
                with ThreadPoolExecutor(MOST_PARALLEL) as threads:
                    new = threads.map(lambda question: _answer(own, question, deadline), asked.questions)
                    answers |= {question.id: one for question, one in zip(asked.questions, new, strict=True)}


def _answer(own: OwnRequest, question: RelayedQuestion, deadline: float) -> RelayedAnswer:
    """Ask `question` like the agent's `own` request, and return the answer; a failure is returned as an answer, too."""
    left = deadline - time.monotonic()
    if left <= 0:
        return RelayedAnswer(failure=_LATE)
    try:
        with (
            httpx.Client(timeout=left) as client,
            client.stream("POST", own.url, headers=own.headers, json=own.asking(question)) as answer,
        ):
            if not answer.is_success:
                return RelayedAnswer(failure=f"the provider answered {answer.status_code}")
            return _read(answer.iter_lines(), deadline)
    except httpx.TimeoutException:
        return RelayedAnswer(failure=_LATE)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return RelayedAnswer(failure=f"the answer cannot be read ({type(error).__name__})")


def _read(lines: Iterable[str], deadline: float) -> RelayedAnswer:
    """Return the text in a stream of events, with the provider's usage."""
    pieces, size = list[str](), 0
    for line in lines:
        size += len(line)
        if time.monotonic() > deadline or size > MAX_READ_BYTES:
            return RelayedAnswer(failure=_LATE)
        event = json.loads(line[5:]) if line.startswith("data:") else {}
        kind = event.get("type") if isinstance(event, dict) else ""
        if kind == "response.output_text.delta":
            pieces.append(str(event["delta"]))
        elif kind in _ENDS:
            counted = RESPONSES.observed(event) or {}
            usage = Usage(**counted.get("usage", {}), requests=1)
            return RelayedAnswer("".join(pieces), usage, _ENDS[kind])
    return RelayedAnswer(failure="the answer broke off")
