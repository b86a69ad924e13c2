"""Messages as plain JSON data, from dicts or the SDK's own objects; their readable text; and the turns of a history.

Reads only, fetches nothing. A plain message is returned as the same object, so that uncompacted messages stay
byte-identical when sent. Turns are the smallest runs of messages that can be treated as one: a list may be cut between
two turns, and never between a call and its result.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Literal

from planner.errors import TranscriptError
from planner.reading.lazy import lazy_property
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
    """Return the text in `content`, a text, a block or a list of these, one a line, without images and sealed data."""
    return "\n".join(_texts(content))


_TEXT_KEYS = ("title", "url", "source", "text", "stdout", "stderr", "error_code")
"""Fields with text for a reader in search results, fetched pages and code runs."""

_LONG_KEYS = ("messages", "content", "source", "data", "text")
"""Fields of a body or message in which long media and texts may be."""
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


def with_places(value: Any, long: list[str], depth: int = 8) -> Any:
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
    return [_unmarked_block(item) if isinstance(item, dict) else item for item in content]


def _unmarked_block(block: Block) -> Block:
    """Return a block or message without its cache marks; the same object if it has no field that may have one."""
    inner = block.get("content")
    if "cache_control" not in block and not isinstance(inner, list):
        return block
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    return {**plain, "content": _unmarked(inner)} if isinstance(inner, list) else plain


TurnKind = Literal["user", "assistant", "tools", "other"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: the messages of its history from index ``start`` up to, but not including, ``stop``."""

    id: str
    """Id ``t1``, ``t2``, …: the place in an append-only history, which never changes."""
    start: int
    stop: int
    kind: TurnKind
    """Kind of the turn. ``user``: words of the user. ``assistant``: an answer without calls of a client's tools.
    ``tools``: an answer with such calls, and all their results. ``other``: anything else, such as the server's own
    compaction, loaded tools and opaque blocks."""
    digest: str
    live: bool
    """True in the live tail, which the model has not answered yet."""
    repeated: bool = False
    """True for a host's system message that is repeated later, word for word."""

    @property
    def number(self) -> int:
        """Number in the id: 1 for ``t1``."""
        return int(self.id[1:])

    @property
    def must_stay(self) -> bool:
        """True for a turn of kind ``other``, which a plan keeps as it is unless it is repeated later."""
        return self.kind == "other" and not self.repeated


@dataclass(frozen=True)
class History:
    """Complete list of messages, as the caller's objects and as plain data."""

    originals: tuple[object, ...]
    messages: tuple[Message, ...]
    digests: tuple[str, ...]
    """Digest of each message, in order."""
    turns: tuple[Turn, ...]

    @lazy_property
    def digest(self) -> str:
        """Digest of all messages, in order: ``sha256:…``."""
        return self.digest_at(len(self.messages))

    def digest_at(self, count: int) -> str:
        """Return the digest of the first `count` messages; a longer history has the same digests for its beginnings."""
        return _joined_digest(self.digests[:count])

    @lazy_property
    def by_id(self) -> dict[str, Turn]:
        """Turns by id."""
        return {turn.id: turn for turn in self.turns}

    def messages_of(self, turn: Turn) -> tuple[Message, ...]:
        """Return the plain messages of `turn`."""
        return self.messages[turn.start : turn.stop]

    def blocks_of(self, turn: Turn) -> Iterator[tuple[str, Block]]:
        """Yield each block of `turn` with the role of its message, in order."""
        for message in self.messages_of(turn):
            for block in blocks(message):
                yield message["role"], block


def read_history(messages: Sequence[object], known: History | None = None) -> History:
    """Return `messages` (dicts or SDK objects) as a history with its turns; the list itself is not kept.

    Turns of `known`, the beginning of the same history, are reused.

    Raises:
        TranscriptError: an entry is not a message, or not JSON data; the text names its index.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise TranscriptError(f"messages: expected a list of messages, found {type(messages).__name__}")
    plain = tuple(checked_message(message, f"messages[{i}]") for i, message in enumerate(messages))
    digests = [message_digest(message, f"messages[{i}]") for i, message in enumerate(plain)]
    return assemble_history(messages, plain, digests, known)


def assemble_history(
    originals: Sequence[object], plain: Sequence[Message], digests: Sequence[str], known: History | None = None
) -> History:
    """Return a history of messages that were read and digested before; unchanged turns of `known` are reused."""
    goes_on = known is not None and known.digests == tuple(digests[: len(known.digests)])
    earlier = known.turns[:-1] if known is not None and goes_on else ()  # the last one may go on
    return History(tuple(originals), tuple(plain), tuple(digests), tuple(_turns(plain, digests, earlier)))


def _turns(messages: Sequence[Message], digests: Sequence[str], earlier: Sequence[Turn]) -> Iterator[Turn]:
    """Yield all turns. `earlier`: the first turns of a shorter history with the same beginning. These are reused, or
    copied if they are live or repeated in only one of the two histories."""
    starts = [*_starts(messages, earlier[-1].stop if earlier else 0), len(messages)]
    spans = [*((turn.start, turn.stop) for turn in earlier), *pairwise(starts)]
    live_from = _live_from(messages, spans)
    last_starts = {digests[start]: start for start, _ in spans if _is_notice(messages[start])}
    for number, (start, stop) in enumerate(spans, 1):
        live, repeated = number > live_from, last_starts.get(digests[start], start) > start
        known = earlier[number - 1] if number <= len(earlier) else None
        if known is None:
            digest = _joined_digest(digests[start:stop])
            is_fixed = any(map(_holds_fixed, messages[start:stop]))
            kind = "other" if is_fixed else _kind(messages[start])
            yield Turn(f"t{number}", start, stop, kind, digest, live, repeated)
        elif (known.live, known.repeated) == (live, repeated):
            yield known
        else:
            yield replace(known, live=live, repeated=repeated)


_FIXED = (OPAQUE, "tool_reference")
"""Types of blocks whose turn must not be changed."""


def _holds_fixed(message: Message) -> bool:
    """Return True if `message` contains a block that must stay: content that an adapter cannot translate, or tools
    that a search returned. Without the latter the model could not call these tools."""
    content = blocks(message)
    inner = (block.get("content") for block in content if block["type"].endswith("tool_result"))
    lists = (held.get("tool_references") if isinstance(held, dict) else held for held in inner)
    items = chain(content, *(items for items in lists if isinstance(items, list)))
    return any(isinstance(item, dict) and item.get("type") in _FIXED for item in items)


def _is_notice(message: Message) -> bool:
    """Return True for a system message that may be repeated: of text alone, as one that changes the tools is needed."""
    return message["role"] == "system" and all(block["type"] == "text" for block in blocks(message))


def _starts(messages: Sequence[Message], first: int) -> Iterator[int]:
    """Yield the indices at which turns start; `first` is one of them, and the indices before it are left out.

    A message belongs to the turn before if it answers a call that is still open there. An assistant's message also
    belongs to it after an assistant's message with open calls or with thinking alone, as the API counts the two as one
    message. Whether a message starts a turn does not depend on later messages, so turns never change as a list grows.
    """
    unanswered: set[str] = set()
    answer_before: Message | None = None  # the message before, if it is the assistant's
    for index in range(first, len(messages)):
        message = messages[index]
        is_answer = message["role"] == "assistant"
        if unanswered:
            joins = (is_answer and answer_before is not None) or _goes_on(message, unanswered)
        else:
            joins = is_answer and answer_before is not None and _is_thought(answer_before)
        if index == first or not joins:
            yield index
            unanswered = set()
        answer_before = message if is_answer else None
        if is_answer:
            unanswered |= set(call_ids(message))
        unanswered -= set(result_ids(message))


def _goes_on(message: Message, unanswered: set[str]) -> bool:
    """Return True if `message` answers one of the `unanswered` calls, or contains a call that one of them made. The
    latter is programmatic tool calling: code that runs on the server calls a client's tool."""
    ids = result_ids(message)
    if message["role"] == "assistant":
        ids += [str(field_of(block.get("caller"), "tool_id")) for block in blocks(message)]
    return not unanswered.isdisjoint(ids)


def _is_thought(message: Message) -> bool:
    """Return True if `message` contains thinking and nothing else."""
    types = [block["type"] for block in blocks(message)]
    return bool(types) and all(one in THINKING for one in types)


def _kind(first: Message) -> TurnKind:
    kinds = {block["type"] for block in blocks(first)}
    if is_compacted(first):
        return "other"
    if first["role"] == "assistant":
        return "tools" if "tool_use" in kinds else "assistant"
    return "user" if first["role"] == "user" and "tool_result" not in kinds else "other"


def _live_from(messages: Sequence[Message], spans: Sequence[tuple[int, int]]) -> int:
    """Return the number of turns before the live tail. `spans`: start and stop of each turn.

    The tail begins after the assistant's last turn; or with it, if its calls have no results yet, or the assistant has
    not answered the results. Then the assistant's messages right before that turn are also in the tail. For the API
    they are one message with the calls, and they may contain the thinking that the calls need.
    """
    at = len(spans)
    while at > 0 and messages[spans[at - 1][0]]["role"] != "assistant":
        at -= 1
    if at == 0 or _ends_answered(messages[slice(*spans[at - 1])]):
        return at
    at -= 1
    while at > 0 and messages[spans[at][0] - 1]["role"] == "assistant":
        at -= 1
    return at


def _ends_answered(turn: Sequence[Message]) -> bool:
    """Return True if `turn` ends with a message of the assistant and each of its calls has a result."""
    called = {call for message in turn for call in call_ids(message)}
    answered = {result for message in turn for result in result_ids(message)}
    return turn[-1]["role"] == "assistant" and called <= answered


def prefix_digests(digests: Sequence[str], start: int = 0) -> Iterator[str]:
    """Yield the digest of the first `start` + 1 messages, of one more, and so on, from `digests` of single messages."""
    running = hashlib.sha256("".join(digests[:start]).encode())
    for digest in digests[start:]:
        running.update(digest.encode())
        yield _digits(running)


def _joined_digest(digests: Sequence[str]) -> str:
    return f"sha256:{_digits(hashlib.sha256(''.join(digests).encode()))}"


def _digits(running: hashlib._Hash) -> str:
    """Return the hex digits of a running hash; tests shorten them to make two histories collide."""
    return running.hexdigest()
