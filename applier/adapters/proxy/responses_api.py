"""Answers requests of OpenAI's Responses API for a compaction, and asks the provider of such requests for plans.

A client asks for a compaction in one of three ways. Codex with OpenAI adds a last item ``compaction_trigger`` and gets
one item whose content it cannot read. Codex with other providers asks by a text and gets a text. Other clients use an
endpoint. The proxy's item contains a record with the compacted messages (the view), by which any proxy can replace the
item in later requests. For an answer by a text the store has the record, under a digest of the text.

The planner uses the credentials of the conversation's requests. Its question follows the conversation's items while
the provider has them cached; otherwise it contains cards, short descriptions of the turns. A ChatGPT login allows only
streamed answers that are not stored.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, Literal

import httpx
from starlette.responses import Response

from applier.adapters.proxy.wires import MAX_DECODED_BYTES, MAX_READ_BYTES, RESPONSES, parse
from applier.adapters.transcripts.openai_chat import REMAINDER
from applier.adapters.transcripts.responses import VIEW, read_items
from applier.view import view_text
from planner.errors import PlannerUnavailable
from planner.model.planners import RelayedAnswer, RelayedPlanner, RelayedQuestion, Unanswered
from planner.plan import PlanRequest, Proposal, Usage
from planner.prices import is_warm
from planner.reading.messages import Message, blocks, readable_text, to_json

CompactionAsk = Literal["", "trigger", "words", "window"]
"""Way in which a request asks for a compaction: not at all, by an item, by a text, or by the path of its endpoint."""
Data = dict[str, Any]
_TRIGGER, _ITEM = "compaction_trigger", "compaction"
_CONTENT_START = "compactor.1."
"""Beginning of the content of the proxy's own items; items of a provider begin differently."""
_ASK_IN_WORDS = "You are performing a CONTEXT CHECKPOINT COMPACTION."
"""Beginning of the text by which Codex (0.169) asks for a compaction. Any other text is answered by the model."""
_ANSWER_INTRODUCTION = "Another language model started to solve this problem"
"""Beginning of the line that Codex puts before an earlier answer by a text, when it sends this text again."""
_RECORD = {"messages": list, "users": list, "by": str}
"""Fields of the record of a compaction, with their types: the compacted messages (the view), digests of the user's
texts before the compaction, and the digest of the conversation."""
_DELTA_CHARACTERS = 400
"""Length of the pieces in which a text is streamed."""


def compaction_ask(body: Mapping[str, Any], path: str) -> CompactionAsk:
    """Return how the request `body` to `path` asks for a compaction: ``trigger``, ``words``, ``window``, or empty."""
    last = _items(body)[-1] if _items(body) else None
    if not isinstance(last, dict):
        return ""
    if path.endswith("/compact"):
        return "window"
    if last.get("type") == _TRIGGER:
        return "trigger"
    is_in_words = last.get("role") == "user" and readable_text(last.get("content")).startswith(_ASK_IN_WORDS)
    return "words" if is_in_words else ""


def with_view(body: Data, find_record: Callable[[str], Data | None]) -> Data:
    """Return the request `body` with the proxy's newest compaction in it replaced by the compacted messages (the view),
    in an item of the type `VIEW`. Earlier items that these messages cover are left out. If `body` contains no
    compaction by the proxy, or its record cannot be read, return the same object.

    `find_record` takes the digest of an answer's text, and returns the stored record of its compaction, or None.
    """
    items = _items(body)
    at = next((at for at in reversed(range(len(items))) if _may_be_from_proxy(items[at])), None)
    record = None if at is None else _record_of(items[at], find_record)
    if at is None or record is None:
        return body
    user_digests = set(record["users"])
    uncovered = [item for item in items[:at] if not (_is_from_proxy(item) or _is_covered(item, user_digests))]
    return {**body, "input": [*uncovered, {"type": VIEW, **record}, *items[at + 1 :]]}


def record_in(body: Mapping[str, Any]) -> Data:
    """Return the record of the proxy's compaction in a `body` that `with_view` returned; empty if there is none."""
    return next((item for item in body["input"] if isinstance(item, dict) and item.get("type") == VIEW), {})


def _items(body: Mapping[str, Any]) -> list[Any]:
    items = body.get("input")
    return items if isinstance(items, list) else []


def _is_from_proxy(item: Any) -> bool:
    """Return True for a compaction item that a proxy made, which has content that it can read."""
    is_compaction = isinstance(item, dict) and item.get("type") == _ITEM
    return is_compaction and str(item.get("encrypted_content")).startswith(_CONTENT_START)


def _may_be_from_proxy(item: Any) -> bool:
    """Return True for a compaction item of a proxy, and for a message that may repeat the text of a proxy's answer."""
    is_users = isinstance(item, dict) and item.get("role") == "user"
    return _is_from_proxy(item) or (is_users and readable_text(item.get("content")).startswith(_ANSWER_INTRODUCTION))


def _record_of(item: Data, find_record: Callable[[str], Data | None]) -> Data | None:
    """Return the record of a compaction from the proxy's item; from a message that repeats the proxy's text, return
    what `find_record` returns for the digest of this text. None if there is no record."""
    if _is_from_proxy(item):
        return _unpacked(item["encrypted_content"])
    _introduction, _, text = readable_text(item["content"]).partition("\n")
    return find_record(_digest(text))


def _is_covered(item: Data, user_digests: set[str]) -> bool:
    """Return True if a compaction already covers `item`, so that it need not be sent again: content of the assistant,
    or a message of the user whose texts are all in `user_digests`. Codex repeats such messages before the compaction.
    """
    messages = read_items([item]).messages
    return bool(messages) and (messages[0]["role"] != "user" or user_digests.issuperset(_user_digests(messages)))


def view_record(messages: Sequence[Message], view: Sequence[Message], before: Data, by: str) -> Data:
    """Return the record of a compaction of `messages` to `view` (the compacted messages), by which later requests show
    it. `before`: record of an earlier compaction in the same request, else empty. `by`: digest of the conversation."""
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


def _unpacked(text: str) -> Data | None:
    """Return the record in the content of a proxy's compaction item; None if it is damaged or too large."""
    try:
        packed = base64.b64decode(text[len(_CONTENT_START) :], validate=True)
        record = parse(zlib.decompressobj().decompress(packed, MAX_DECODED_BYTES))
    except (ValueError, zlib.error):
        return None
    is_whole = record is not None and all(isinstance(record.get(name), kind) for name, kind in _RECORD.items())
    return record if is_whole else None


def reply(ask: CompactionAsk, body: Data, record: Data, number: str) -> tuple[Response, str]:
    """Return the answer to the request `body` for a compaction. If it asked by a text (`ask` is ``words``), the answer
    is a text; else an item with the compacted messages. For ``window`` (the endpoint) the definitions of tools and
    settings are in front of this item. Also return the digest of the text, under which `record` is to be stored.

    `record`: the compacted messages with digests, for later requests. `number`: makes the ids in the answer unique.
    """
    text = view_text(record["messages"]) if ask == "words" else ""
    if ask == "words":
        part = {"type": "output_text", "text": text, "annotations": []}
        message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        item: Data = {**message, "content": [part]}
    else:
        packed = base64.b64encode(zlib.compress(to_json(record).encode(), 6)).decode()
        item = {"type": _ITEM, "id": f"cmp_{number}", "encrypted_content": _CONTENT_START + packed}
    fixed = [fixed.item for fixed in read_items(body["input"]).fixed] if ask == "window" else []
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
        return Response(json.dumps(answer), media_type="application/json"), _digest(text)
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(answer, item, text))
    return Response("".join(lines), media_type="text/event-stream"), _digest(text)


_NO_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


def _events(answer: Data, item: Data, text: str) -> Iterator[Data]:
    """Yield the events of a streamed `answer` with the output `item`; its `text` comes in numbered pieces."""
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
"""Largest number of questions to the provider at the same time."""
_REQUEST_HEADERS = ("accept", "connection", "content-", "host", "keep-alive", "proxy-", "transfer-", "x-compactor-")
"""Beginnings of headers that describe one request or belong to the proxy; all others are sent with a question too."""
_ENDS = {"response.completed": "", "response.incomplete": "", "response.failed": "it failed", "error": "it failed"}
"""Types of the last event of an answer, each with the failure that it reports; empty for none."""
_LATE = "no answer in time: raise settings.timeout_seconds"
_WORK_FIELDS = ("tools", "tool_choice", "parallel_tool_calls", "include", "prompt_cache_key", "text")
"""Fields of the agent's request that a question keeps only if it follows the conversation, as both are cached."""


_AgentRequest = tuple[str, Mapping[str, str], Mapping[str, Any]]
"""URL, headers and body of the agent's newest request, which questions to the provider reuse. The body has the
conversation as the provider would get it without a compaction."""


class ResponsesPlanner:
    """Planner that asks the provider of a conversation, with the agent's own credentials, which turns to keep.

    The proxy calls `use_request` with each request of the conversation, and `note_sent` when it has the list to send.
    """

    def __init__(self) -> None:
        """Ask the conversation's own model, until `model` is set."""
        self.model = ""
        self._request: _AgentRequest | None = None
        self._cached_at: float | None = None
        """Time at which the provider last got, and cached, the client's own list; None if the last list was another."""

    @property
    def name(self) -> str:
        """Name of the model that plans."""
        return self.model or (str(self._request[2].get("model")) if self._request else "")

    def use_request(self, url: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
        """Store the agent's newest request, from which questions to the provider are made."""
        repeated = {name: value for name, value in headers.items() if not name.startswith(_REQUEST_HEADERS)}
        self._request = url, repeated, body

    def note_sent(self, *, is_unchanged: bool) -> None:
        """Note that the newest request is sent; `is_unchanged`: with the client's own list, which is then cached."""
        self._cached_at = time.monotonic() if is_unchanged else None

    def propose(self, request: PlanRequest) -> Proposal:
        """Return a proposal by the provider's model; raise PlannerUnavailable if no answer can be used."""
        agent_request, deadline = self._request, time.monotonic() + request.settings.timeout_seconds
        if agent_request is None:
            raise PlannerUnavailable("planner model: no request of this conversation has come yet")
        model, answers = str(agent_request[2].get("model") or ""), dict[str, RelayedAnswer]()
        is_cached = self._cached_at is not None and is_warm(time.monotonic() - self._cached_at)
        # tokens of the cached conversation, after which the question may be asked; 0 if it is not cached for this model
        fork_tokens = request.analysis.tokens if is_cached and self.model in ("", model) else 0
        planner = RelayedPlanner(answers, self.model or model, model, fork_tokens)
        while True:  # plan with the answers so far; if questions are left, ask them and plan again
            try:
                return planner.propose(request)
            except Unanswered as unanswered:
                questions = unanswered.questions
            with ThreadPoolExecutor(MOST_PARALLEL) as threads:
                new = threads.map(lambda question: _answer(agent_request, question, deadline), questions)
                answers |= {question.id: answer for question, answer in zip(questions, new, strict=True)}


def _question_body(body: Mapping[str, Any], question: RelayedQuestion) -> dict[str, Any]:
    """Return the body of a request with the planner's `question`, made from the `body` of the agent's request. If
    ``question.via`` is ``fork``, the question is the next message of the conversation, which the provider has cached;
    else it is the only message."""
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": question.prompt}]}
    asking = {**body, "stream": True, "store": False}
    asking.pop("max_output_tokens", None)  # the agent's limit may be too small for a plan
    if question.via == "fork":
        return {**asking, "input": [*body["input"], message]}
    alone = {key: value for key, value in asking.items() if key not in _WORK_FIELDS}
    return {**alone, "model": question.model, "instructions": question.system, "input": [message]}


def _answer(request: _AgentRequest, question: RelayedQuestion, deadline: float) -> RelayedAnswer:
    """Send `question` to the provider in a request like the agent's, and return the answer. A failure, or a `deadline`
    (by the monotonic clock) that has passed, is returned as an answer with ``failure``."""
    url, headers, body = request
    seconds_left = deadline - time.monotonic()
    if seconds_left <= 0:
        return RelayedAnswer(failure=_LATE)
    try:
        with (
            httpx.Client(timeout=seconds_left) as client,
            client.stream("POST", url, headers=headers, json=_question_body(body, question)) as answer,
        ):
            if not answer.is_success:
                return RelayedAnswer(failure=f"the provider answered {answer.status_code}")
            return _read(answer.iter_lines(), deadline)
    except httpx.TimeoutException:
        return RelayedAnswer(failure=_LATE)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return RelayedAnswer(failure=f"the answer cannot be read ({type(error).__name__})")


def _read(lines: Iterable[str], deadline: float) -> RelayedAnswer:
    """Return text and token counts from the `lines` of a streamed answer; an answer with ``failure`` if it is too long
    or later than the `deadline` (by the monotonic clock)."""
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
