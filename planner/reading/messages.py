"""Messages as plain JSON data, from dicts or the SDK's own objects; and the readable text of their blocks.

Reads only, fetches nothing. A plain message is returned as the same object, so that uncompacted messages stay
byte-identical when sent.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.errors import TranscriptError
from planner.reading.secrets import quoted

Message = dict[str, Any]
"""One message: ``{"role": …, "content": str | list[Block]}``."""
Block = dict[str, Any]
"""Content block: ``{"type": "text" | "tool_use" | "tool_result" | …}``; unknown types pass through."""
ROLES = ("user", "assistant", "system")
"""Roles of a message; only newer models accept ``system`` messages inside a conversation."""
THINKING = ("thinking", "redacted_thinking")
"""Types of blocks with a model's thinking."""
OPAQUE = "opaque"
"""Type of a block with content that an adapter cannot translate; its message is kept as it is."""
_CHAT_ROLES = ("tool", "function")
"""Roles that only OpenAI's chat messages have."""
_CHAT_CONVERTER = "applier.adapters.transcripts.from_openai"


def checked_message(message: object, place: str) -> Message:
    """Return `message` as plain JSON data: the same object if it is plain already. `place`: its place in the caller's
    list, for errors.

    Raises:
        TranscriptError: `message` is in OpenAI's form, has no known role, or has content that is neither text nor a
            list of blocks.
    """
    if isinstance(message, dict) and (message.get("role") in _CHAT_ROLES or "tool_calls" in message):
        what = "'tool_calls'" if "tool_calls" in message else f"role {message['role']!r}"
        raise TranscriptError(f"{place}: {what} is OpenAI's form: convert the list first, by {_CHAT_CONVERTER}")
    plain = plain_message(message, place)
    if plain["role"] not in (*ROLES, "developer"):  # an adapter converts OpenAI's developer messages back
        raise TranscriptError(f'{place}: expected a role "user" or "assistant", found {quoted(plain["role"])}')
    return plain


def plain_message(message: object, place: str = "message") -> Message:
    """Return `message` as plain JSON data: the same object if it is plain already. `place`: its name in errors.

    Raises:
        TranscriptError: `message` has no role, or its content is neither text nor a list of blocks.
    """
    data = message if isinstance(message, dict) else _dumped(message, place)
    role, content = data.get("role"), data.get("content")
    if not isinstance(role, str):
        raise TranscriptError(f'{place}: expected a \'role\' of "user" or "assistant", found {quoted(role)}')
    if isinstance(content, str):
        return data
    if not isinstance(content, list | tuple):
        raise TranscriptError(
            f"{place}: expected 'content' to be text or a list of blocks, found {type(content).__name__}"
        )
    plain = [_plain_block(block, place, index) for index, block in enumerate(content)]
    if isinstance(content, list) and all(new is old for new, old in zip(plain, content, strict=True)):
        return data
    return {**data, "content": plain}


def _plain_block(block: object, message_place: str, index: int) -> Block:
    """Return `block` as plain JSON data; `message_place` and `index` name it in errors."""
    data = block if isinstance(block, dict) else _dumped(block, f"{message_place}, block {index}")
    if not isinstance(data.get("type"), str):
        raise TranscriptError(
            f"{message_place}, block {index}: expected a block with a 'type', found {quoted(data, 80)}"
        )
    inner = data.get("content")
    if isinstance(inner, list) and any(not isinstance(item, dict | str) for item in inner):
        data = {**data, "content": [_dumped(item, f"{message_place}, block {index}") for item in inner]}
    return data


def _dumped(value: object, place: str) -> dict[str, Any]:
    """Return an SDK object as the dict it was parsed from, without unset fields."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        dumped = dump(mode="json", exclude_unset=True, warnings=False)  # unknown types are no warning
        if isinstance(dumped, dict):
            return dumped
    if isinstance(value, Mapping):
        return dict(value)
    raise TranscriptError(f"{place}: expected a message or block as a dict, found {type(value).__name__}")


def blocks(message: Message) -> Sequence[Block]:
    """Return the content blocks of `message`; text content counts as one text block."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def compacted_start(messages: Sequence[object], known: int = 0) -> int:
    """Return the index of the message with the server's newest compaction, which replaces all before it; 0 without one.
    The first `known` messages are known to contain none.

    A compaction with null content failed, and replaces nothing (``BetaCompactionBlockParam`` in the SDK)."""
    for index in range(len(messages) - 1, known - 1, -1):
        message = messages[index]
        content = message.get("content") if type(message) is dict else field_of(message, "content")
        # exact types are quick to test, and a session looks through the whole list if its messages are new objects
        if type(content) is str or not content:
            continue
        first = content[0] if type(content) is list else None
        is_other_block = type(first) is dict and first.get("type") != "compaction"
        if not is_other_block and is_compacted(message):
            return index
    return 0


def is_compacted(message: object) -> bool:
    """Return True for a message (a dict, or an SDK object) that begins with a ``compaction`` block of the server."""
    content = field_of(message, "content")
    first = content[0] if isinstance(content, list | tuple) and content else None
    return field_of(first, "type") == "compaction" and field_of(first, "content") is not None


def has_user_words(message: Message) -> bool:
    """Return True for a user's message without results of tools; the API counts what follows as a new turn."""
    return message["role"] == "user" and all(block["type"] != "tool_result" for block in blocks(message))


def field_of(value: object, name: str) -> object:
    """Return the field `name` of `value`, a dict or an SDK object; None without such a field."""
    if type(value) is dict:  # most values are; this test is ten times faster than the one for a Mapping
        return value.get(name)
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def call_ids(message: Message) -> list[str]:
    """Return the ids of the calls in `message`, in order, including those that the server runs."""
    return [str(block.get("id")) for block in blocks(message) if block["type"].endswith("tool_use")]


def result_ids(message: Message) -> list[str]:
    """Return the ids of the calls that `message` answers, in order, whoever ran them."""
    return [str(block.get("tool_use_id")) for block in blocks(message) if block["type"].endswith("tool_result")]


def result_text(block: Block) -> str:
    """Return all text in a result, including nested blocks, titles and addresses, by line."""
    return readable_text(block.get("content"))


MOST_PARSED = 100_000
"""Number of characters of a result above which it is not parsed."""


def parsed_result(text: str) -> object:
    """Return a result parsed as a JSON object or list; None if it is neither, or very long."""
    try:
        return json.loads(text) if text.lstrip()[:1] in ("{", "[") and len(text) <= MOST_PARSED else None
    except (ValueError, RecursionError):
        return None


def readable_text(content: object) -> str:
    """Return the text in `content` for a reader, one text a line, without images and sealed data. `content` is a text,
    a block, or a list of these."""
    return "\n".join(_texts(content))


_TEXT_KEYS = ("title", "url", "source", "text", "stdout", "stderr", "error_code")
"""Fields with text for a reader in search results, fetched pages and code runs."""

_LONG_KEYS = ("messages", "content", "source", "data", "text")
"""Fields of a body or message in which long media and texts may be."""
_PLACE_DEPTH = 8
"""Largest number of nested lists and objects in which long texts are searched."""
_SLICE = 2**18
"""Number of characters of a text that are written as JSON at once."""
_PLACE = re.compile(r'"\\u0000(\d{1,6})\\u0000"')
"""Mark in JSON that replaces a long text and contains its index: ``"\\u00003\\u0000"``."""


def _texts(content: object) -> Iterator[str]:
    """Yield the texts of `content` for a reader, in order, without images and sealed data."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for item in content:
            yield from _texts(item)
    elif isinstance(content, dict) and content.get("type") != "image":
        yield from (content[key] for key in _TEXT_KEYS if isinstance(content.get(key), str))
        source = content.get("source")
        if isinstance(source, dict) and source.get("type") in ("text", "content"):
            yield from _texts(source.get("data", source.get("content")))
        yield from _texts(content.get("content"))


def strings_in(value: object) -> Iterator[str]:
    """Yield the texts in JSON data, in their order, without the keys of objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings_in(inner)


def to_json(value: object) -> str:
    """Return `value` as compact JSON in ASCII: lone surrogates survive, key order is kept."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def message_digest(message: Message, place: str = "message") -> str:
    """Return the SHA-256 of `message`.

    ``cache_control`` marks are ignored, as callers move them from call to call. Content that is a string has the same
    digest as a single text block.

    Raises:
        TranscriptError: `message` contains data that JSON cannot express.
    """
    content, digest = {**message, "content": _unmarked(blocks(message))}, hashlib.sha256()
    try:
        for piece in json_pieces(content, sort_keys=True):
            digest.update(piece.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise TranscriptError(f"{place}: expected JSON data: {error}") from None
    return digest.hexdigest()


def json_pieces(value: object, **options: Any) -> Iterator[str]:
    """Yield pieces that together are compact JSON of `value`. `options`: those of `json.dumps`; without any, the JSON
    is ASCII.

    Long texts of messages are yielded in slices, so that none is copied whole and other threads can run in between.
    """
    long: list[str] = []
    write = json.JSONEncoder(separators=(",", ":"), **options).encode
    parts = _PLACE.split(write(with_places(value, long)))
    if [str(at) for at in range(len(long))] != sorted(parts[1::2], key=int):  # a text of `value` looks like a mark
        long, parts = [], [write(value)]
    for at, part in enumerate(parts):
        if at % 2 == 0:
            yield part
        else:  # the index of a long text
            text = long[int(part)]
            yield '"'
            yield from (write(text[start : start + _SLICE])[1:-1] for start in range(0, len(text), _SLICE))
            yield '"'


def with_places(value: Any, long: list[str], depth: int = _PLACE_DEPTH) -> Any:
    """Return `value` with a mark instead of each long text, and add the texts to `long`; a mark contains the index
    there. `depth`: number of nested lists and objects in which texts are searched."""
    if isinstance(value, str) and len(value) > _SLICE:
        long.append(value)
        return f"\0{len(long) - 1}\0"
    if isinstance(value, list) and depth:
        return [with_places(inner, long, depth - 1) for inner in value]
    if isinstance(value, dict) and depth:
        inner = {key: with_places(value[key], long, depth - 1) for key in _LONG_KEYS if key in value}
        return {**value, **inner} if inner else value
    return value


def cache_marks(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the ``cache_control`` marks in `value`: a message, block, tool, body, or a list of these. Marks inside
    results are included, ``cache_control`` in the arguments of a call is no mark."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from cache_marks(part)
    elif isinstance(value, Mapping):
        if isinstance(mark := value.get("cache_control"), Mapping):
            yield mark
        yield from cache_marks(value.get("content"))


def unmarked(message: Message) -> Message:
    """Return `message` without its cache marks; the same object if it has none."""
    return _unmarked_block(message) if any(cache_marks(message)) else message


def _unmarked(content: Sequence[Any]) -> list[Any]:
    """Return content blocks without their cache marks."""
    return [_unmarked_block(item) if isinstance(item, dict) else item for item in content]


def _unmarked_block(block: Block) -> Block:
    """Return a block or message without its cache marks; the same object if it has no field that may have one."""
    inner = block.get("content")
    if "cache_control" not in block and not isinstance(inner, list):
        return block
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    return {**plain, "content": _unmarked(inner)} if isinstance(inner, list) else plain
