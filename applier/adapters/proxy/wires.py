"""Reads and writes the bodies of requests and answers in each API (`Wire`) that the proxy understands.

Limits protect the proxy's memory: they are checked before memory is taken, and a body over a limit passes unchanged.
An answer is read after its bytes were passed on. A medium is an image or a file of another kind in a message.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import zstandard

from applier.adapters.transcripts.openai_chat import from_openai, leading_system, to_openai
from applier.adapters.transcripts.responses import OUTPUTS, ReadItems, read_items, to_items
from applier.session.refusals import WINDOW_EXCEEDED
from applier.session.request import fields_of_body
from applier.store.records import count_values
from planner.reading.messages import field_of, json_pieces, to_json

MAX_BODY_BYTES = 64 * 2**20
"""Largest body kept in memory: twice the limit of the Messages API, since a larger history is compacted, too."""
MAX_DECODED_BYTES, MAX_DECODED_LINES = 6 * 2**20, 150_000
"""Largest size after decoding, in bytes, and number of lines of a compressed body. A million tokens of code have 5 MB
and 120,000 lines. In a session, each byte takes up to 20 bytes of memory, and each line 700."""
MAX_TEXT_CHARACTERS, MAX_LINES = 16 * 2**20, 400_000
"""Largest text, in characters without media, and largest number of lines of any body: four million tokens. They take
300 MB of memory at most, like a compressed body."""
_MEDIUM = re.compile(r"image|document|file|audio|video|screenshot")
"""Word in the type of an item or block that contains a medium, in all of the APIs: ``input_image``; not ``text``."""
_ENCODED = re.compile(r"(?:data:[\w./+;=-]{1,100},)?[A-Za-z0-9+/=_-]{500,}")
"""Base64 of 500 characters or more, with or without the prefix ``data:image/png;base64,``."""
LARGE_BYTES = 4 * 2**20
"""Size from which only a few bodies are prepared at the same time, to limit the memory."""
MAX_VALUES = 250_000
"""Largest number of JSON values in one body: ten for each of 25,000 messages, at most 250 bytes each."""
MAX_MESSAGES = 20_000
"""Largest number of entries in a list that is a field of a body. A session takes 7 kB of memory for each message."""
_MAX_WINDOW_BYTES = 8 * 2**20
"""Largest window of zstd that the content coding allows (RFC 9659)."""
_PIECE_BYTES = 128
"""Number of compressed bytes that are decoded at once: at most 32 blocks of 128 kB each."""
_LINE_BREAKS = (b"\\n", b"\\r", b"\\f", b"\\u")
"""Escapes in JSON that stand for a line break, or may do so."""
RawBody = bytes | AsyncIterator[bytes]
"""Body of a request: all of it in memory, or chunks as they arrive."""
Body = dict[str, Any]
"""Body of a request or an answer as JSON data."""


async def collect(body: RawBody) -> RawBody:
    """Return `body` as bytes; as chunks, without reading it to its end, if it is larger than MAX_BODY_BYTES."""
    if isinstance(body, bytes):
        return body
    start = bytearray()
    async for chunk in body:
        start += chunk
        if len(start) > MAX_BODY_BYTES:
            return join(bytes(start), body)
    return bytes(start)


async def join(start: bytes, rest: AsyncIterator[bytes] | None = None) -> AsyncIterator[bytes]:
    """Yield `start`, which was read already, then the remaining chunks `rest`."""
    yield start
    if rest is not None:
        async for chunk in rest:
            yield chunk


def decode(raw: bytes, encoding: str) -> bytes | None:
    """Return the body `raw` decompressed; None if its content `encoding` is neither ``zstd`` (which Codex sends) nor
    ``identity``, or if it is damaged or too large. Decoding stops there: five kilobytes can expand to gigabytes."""
    if encoding.strip().lower() == "identity":
        return raw
    if encoding.strip().lower() != "zstd" or len(raw) > MAX_DECODED_BYTES:
        return None
    decoder = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()
    plain = bytearray()
    try:
        for at in range(0, len(raw), _PIECE_BYTES):
            plain += decoder.decompress(raw[at : at + _PIECE_BYTES])
            if len(plain) > MAX_DECODED_BYTES:
                return None
    except zstandard.ZstdError:
        return None
    is_whole = decoder.eof and not decoder.unused_data
    return bytes(plain) if is_whole and _count_lines(plain) <= MAX_DECODED_LINES else None


def _count_lines(raw: bytes | bytearray) -> int:
    return sum(map(raw.count, _LINE_BREAKS))


def parse(raw: bytes) -> Body | None:
    """Return the JSON object in `raw`; None if it is none, or too large in values, lines, levels, messages or text."""
    if count_values(raw, MAX_VALUES) > MAX_VALUES or _count_lines(raw) > MAX_LINES:
        return None
    try:
        body = json.loads(raw.decode("utf-8-sig", "surrogatepass"))
        too_much = len(raw) > MAX_TEXT_CHARACTERS and _count_text(body) > MAX_TEXT_CHARACTERS
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    too_many = any(isinstance(value, list) and len(value) > MAX_MESSAGES for value in body.values())
    return None if too_many or too_much else body


def _count_text(value: Any, *, in_medium: bool = False) -> int:
    """Count the characters in all texts of JSON data. Base64 does not count if it is part of an image or another medium
    (`in_medium`), because it takes little memory while it is processed."""
    if isinstance(value, str):
        return 0 if in_medium and _ENCODED.fullmatch(value) else len(value)
    if isinstance(value, list):
        return sum(_count_text(inner, in_medium=in_medium) for inner in value)
    if not isinstance(value, dict):
        return 0
    kind = str(value.get("type"))
    # arguments of a call are text, also if its type has such a word in it
    in_medium = (in_medium or _MEDIUM.search(kind) is not None) and not kind.endswith("tool_use")
    return sum(_count_text(inner, in_medium=in_medium) for inner in value.values())


def write(body: Body) -> bytes:
    """Return `body` as JSON in UTF-8."""
    try:
        return b"".join(piece.encode() for piece in json_pieces(body, ensure_ascii=False))
    except UnicodeEncodeError:  # a lone surrogate can only be sent escaped
        return b"".join(piece.encode() for piece in json_pieces(body))


MAX_READ_BYTES = 8 * 2**20
"""Largest answer that is read; a larger one passes unread."""
_FINAL_USAGE = ("output_tokens", "iterations")
"""Token counts of an answer that are only complete in the last event of a stream."""
_REMOVED = (("action", "removed"), ("type", "thinking_dropped"))
"""Fields and values by which OpenAI and Anthropic report that they did not show earlier reasoning to the model."""
_CHANGED_PREFIX = ("prefix_mismatch", "prefix_binding_mismatch")
"""Reasons in a report about removed reasoning: the messages before the reasoning were changed."""


class _Messages:
    """Reader and writer of bodies of Anthropic's Messages API; the classes for other APIs have the same methods."""

    def messages(self, body: Body) -> list[Any] | None:
        """Return the conversation in the request `body` as Anthropic messages; None if it must not be compacted, such
        as a request for the server's own compaction, which needs the client's own history."""
        messages = body.get("messages")
        return messages if isinstance(messages, list) and not body.get("compaction") else None

    def with_messages(self, body: Body, messages: Sequence[Any]) -> Body:
        """Return the request `body` with `messages` in place of its conversation."""
        return {**body, "messages": list(messages)}

    def request(self, body: Body) -> dict[str, Any]:
        """Return model, system prompt, tools and limits of the request, as arguments of `Session.set_request`."""
        return fields_of_body(body)

    def observed(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what a session needs to know of an answer, or of one event of a streamed answer: ``usage`` and
        ``stop_reason``. Return None if `event` contains neither."""
        kind = event.get("type")
        if kind == "message":
            return event
        field = {"message_start": "message", "message_delta": "delta"}.get(str(kind), "")
        part, usage = event.get(field) if field else None, event.get("usage")
        if not isinstance(part, Mapping):
            return None
        # the last event repeats counts of the first event, which must not be added up: only these are new
        new = {name: usage[name] for name in _FINAL_USAGE if usage.get(name)} if isinstance(usage, Mapping) else {}
        return {**part, "usage": new} if new else part


class _Chat:
    """Reader and writer of bodies of OpenAI's chat completions, with the methods of `_Messages`. System messages at the
    start stay unchanged."""

    def messages(self, body: Body) -> list[Any] | None:
        messages = body.get("messages")
        return from_openai(messages[leading_system(messages) :]) if isinstance(messages, list) else None

    def with_messages(self, body: Body, messages: Sequence[Any]) -> Body:
        old = body["messages"]
        return {**body, "messages": [*old[: leading_system(old)], *to_openai(messages)]}

    def request(self, body: Body) -> dict[str, Any]:
        instructions = [str(message.get("content")) for message in body["messages"][: leading_system(body["messages"])]]
        fields = fields_of_body({**body, "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens")})
        return {**fields, "system": "\n".join(instructions) or None, "thinking": None}

    def observed(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the token counts of an answer, under Anthropic's names; None if `event` contains none."""
        usage = event.get("usage")
        if not isinstance(usage, Mapping) or not usage.get("prompt_tokens"):
            return None
        return {"usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage.get("completion_tokens")}}


class _Responses:
    """Reader and writer of bodies of OpenAI's Responses API, with the methods of `_Messages`. Items that define tools
    or settings keep their places."""

    _last_read: tuple[Any, ReadItems] = None, ReadItems()
    """Items that were read last, and the result, because one request needs it several times."""

    def read(self, body: Body) -> ReadItems:
        """Convert the items of the request `body` to messages. The result is cached, so do not change it."""
        items, read = self._last_read
        if items is not body["input"]:
            read = read_items(body["input"])
            self._last_read = body["input"], read
        return read

    def messages(self, body: Body) -> list[Any] | None:
        """Return the conversation; None if the server stores it, whole or in part, so that it cannot be compacted."""
        is_stored = body.get("previous_response_id") or body.get("conversation")
        return self.read(body).messages if isinstance(body.get("input"), list) and not is_stored else None

    def with_messages(self, body: Body, messages: Sequence[Any]) -> Body:
        return {**body, "input": to_items(self.read(body), messages)}

    def request(self, body: Body) -> dict[str, Any]:
        """Return the arguments of `Session.set_request`. Items outside the conversation that define tools count as
        tools; the others count as text of the system prompt."""
        fixed = [fixed.item for fixed in self.read(body).fixed]
        groups = [body.get("tools") or (), *(item.get("tools") or () for item in fixed)]
        tools = [tool for group in groups for tool in group if isinstance(tool, dict)]
        texts = [str(body.get("instructions") or ""), *(to_json(item) for item in fixed if "tools" not in item)]
        fields = fields_of_body({"model": body.get("model"), "max_tokens": body.get("max_output_tokens")})
        return {**fields, "system": "\n".join(filter(None, texts)) or None, "tools": tools}

    def observed(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return token counts under Anthropic's names, and the reason to stop; None if `event` contains neither."""
        # an event of a stream contains the answer; without a stream it is the answer itself
        answer = event.get("response") if str(event.get("type")).startswith("response.") else event
        if field_of(field_of(answer, "error"), "code") == "context_length_exceeded":
            return {"stop_reason": WINDOW_EXCEEDED}
        usage = field_of(answer, "usage")
        tokens = field_of(usage, "input_tokens")
        cached = field_of(field_of(usage, "input_tokens_details"), "cached_tokens")
        if not isinstance(tokens, int) or not tokens:
            return None
        cached = cached if isinstance(cached, int) else 0
        output = field_of(usage, "output_tokens") or 0
        counted = {"input_tokens": tokens - cached, "cache_read_input_tokens": cached, "output_tokens": output}
        return {"usage": counted, **({"stop_reason": "end_turn"} if _ends_turn(answer) else {})}


def _ends_turn(answer: object) -> bool:
    """Return True if an answer of the Responses API ends the agent's turn: it is complete and calls no tool."""
    items = field_of(answer, "output")
    kinds = [str(field_of(item, "type")) for item in items] if isinstance(items, list) else []
    return bool(kinds) and not any(f"{kind}_output" in OUTPUTS for kind in kinds)


Wire = _Messages | _Chat | _Responses
MESSAGES, CHAT, RESPONSES = _Messages(), _Chat(), _Responses()


def read_answer(wire: Wire, answer: bytes, *, is_stream: bool) -> tuple[Sequence[Mapping[str, Any]], int]:
    """Return the parts of `answer` for `Session.observe`, in order, each with ``usage`` or ``stop_reason``; and the
    number of reasoning items that the provider did not show to the model, because messages before were changed.

    `answer` is a JSON object, or a stream of events if `is_stream`. Damaged events are left out; an answer larger than
    MAX_READ_BYTES is not read.
    """
    events = list(_events(answer, is_stream=is_stream)) if len(answer) <= MAX_READ_BYTES else []
    parts = [part for event in events if (part := wire.observed(event)) is not None]
    return parts, max(map(_removed_reasoning, events), default=0)  # not the sum: events repeat it


def _events(answer: bytes, *, is_stream: bool) -> Iterator[Body]:
    """Yield the JSON objects in a stream of server-sent events, or else the `answer`, which is one JSON object."""
    data = [line[5:] for line in answer.split(b"\n") if line.startswith(b"data:")] if is_stream else [answer]
    for line in data:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


def _removed_reasoning(event: Body) -> int:
    """Return the number of reasoning items that, by the provider's report in `event`, were hidden from the model
    because messages before them were changed."""
    holders = (event, *(event.get(name) for name in ("response", "message", "delta")))
    reports = (field_of(holder, "input_transformations") for holder in holders)
    entries = next((report for report in reports if isinstance(report, list)), [])
    changed = [entry for entry in entries if field_of(entry, "reason") in _CHANGED_PREFIX]
    return sum(any(field_of(entry, key) == word for key, word in _REMOVED) for entry in changed)
