"""Reads messages, which may be dicts or objects of the SDK, as plain JSON data, and divides their list into turns.

A plain message is returned as the same object, so that uncompacted messages stay byte-identical when sent. Turns are
the smallest runs of messages that can be treated as one: a list may be cut between two turns, and never between a tool
call and its result. Nothing is fetched.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Literal

from propcache.api import cached_property

from planner.errors import TranscriptError
from planner.reading.secrets import quoted

Message = dict[str, Any]
"""Message of the Messages API: ``{"role": …, "content": str | list[Block]}``."""
Block = dict[str, Any]
"""Content block of a message: ``{"type": "text" | "tool_use" | "tool_result" | …}``; unknown types are kept."""
ROLES = ("user", "assistant", "system")
"""Roles of a message; only newer models accept ``system`` messages inside a conversation."""
THINKING = ("thinking", "redacted_thinking")
"""Types of blocks with a model's thinking."""
PICTURES = ("image", "document")
"""Types of content blocks that count as pictures."""
OPAQUE = "opaque"
"""Type of a block with content from another program's format that cannot be translated. Its message stays the same."""
_CHAT_ROLES = ("tool", "function")
"""Roles that only OpenAI's chat messages have."""
_CHAT_CONVERTER = "applier.adapters.transcripts.from_openai"


def checked_message(message: object, place: str) -> Message:
    """Return `message` as plain JSON data, after checking its form: the same object if it is plain already. `place`:
    its place in the caller's list, for errors.

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
    """Return `message`, a dict or an object of the SDK, as plain JSON data: the same object if it is plain already.
    `place`: its name in errors.

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
    """Return a content block as plain JSON data: the same object if it is plain already. `index`: its place."""
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
    """Return an object of the SDK as the dict it was parsed from."""
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
    """Return the index of the newest message in which the provider compacted the conversation itself, so that it reads
    nothing before that message; 0 without one. The first `known` messages are not searched, as they are no such ones.
    A compaction with null content failed, and replaces nothing (``BetaCompactionBlockParam`` in the SDK)."""
    for index in range(len(messages) - 1, known - 1, -1):
        message = messages[index]
        content = message.get("content") if type(message) is dict else field_of(message, "content")
        # tests of exact types are quick, and a session may have to test every message of a long list
        if type(content) is str or not content:
            continue
        first = content[0] if type(content) is list else None
        is_other_block = type(first) is dict and first.get("type") != "compaction"
        if not is_other_block and is_compacted(message):
            return index
    return 0


def is_compacted(message: object) -> bool:
    """Return True if `message` (a dict, or an object of the SDK) begins with the provider's own summary of everything
    before it, a ``compaction`` block."""
    content = field_of(message, "content")
    first = content[0] if isinstance(content, list | tuple) and content else None
    return field_of(first, "type") == "compaction" and field_of(first, "content") is not None


def has_user_words(message: Message) -> bool:
    """Return True if `message` is the user's and has no tool results. For the API, a new turn begins with it."""
    return message["role"] == "user" and all(block["type"] != "tool_result" for block in blocks(message))


def field_of(value: object, name: str) -> object:
    """Return the field `name` of `value`, which may be a dict or an object of the SDK; None without such a field."""
    if type(value) is dict:  # most values are; this test is ten times faster than the one for a Mapping
        return value.get(name)
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def call_ids(message: Message) -> list[str]:
    """Return the ids of the tool calls in `message`, in order, also of those that the provider runs."""
    return [str(block.get("id")) for block in blocks(message) if block["type"].endswith("tool_use")]


def result_ids(message: Message) -> list[str]:
    """Return the ids of the calls whose results are in `message`, in order, also of those that the provider ran."""
    return [str(block.get("tool_use_id")) for block in blocks(message) if block["type"].endswith("tool_result")]


def pairs_plainly(messages: Sequence[Message]) -> bool:
    """Return True if the `messages` of a turn obviously pair each call with a result: they have no calls, or they are
    an answer with calls, and a message of the user that begins with results for just these calls. False if the rules of
    the API (`planner.validity`) have to decide, as with calls that the provider runs."""
    kinds = [[block["type"] for block in blocks(message)] for message in messages]
    if not any("tool_" in kind for kind in chain.from_iterable(kinds)):
        return True
    if [message["role"] for message in messages] != ["assistant", "user"]:
        return False
    calls, results = (sum("tool_" in kind for kind in of_message) for of_message in kinds)
    is_plain = kinds[0].count("tool_use") == calls and kinds[1][:results] == ["tool_result"] * results
    return is_plain and {*call_ids(messages[0])} == {*result_ids(messages[1])}


def pictures_in(content: Sequence[object]) -> Iterator[Block]:
    """Yield the image and document blocks in the list `content` of a message, also those inside tool results."""
    for block in content:
        if isinstance(block, dict) and block.get("type") in PICTURES:
            yield block
        elif isinstance(block, dict) and isinstance(inner := block.get("content"), list):
            yield from pictures_in(inner)


def result_text(block: Block) -> str:
    """Return all text in `block`, a tool result, including nested blocks, titles and addresses, each on its lines."""
    return readable_text(block.get("content"))


def result_texts(block: Block) -> list[str]:
    """Return the text of each content block in `block`, a tool result. Joined by line breaks, they are its text."""
    content = block.get("content")
    texts_of_items = (list(_texts(item)) for item in (content if isinstance(content, list) else [content]))
    return ["\n".join(texts) for texts in texts_of_items if texts]


MOST_PARSED = 100_000
"""Largest length of a tool result that is parsed as JSON."""


def parsed_result(text: str) -> object:
    """Return the JSON object or list that the tool result `text` contains; None if it is neither, or very long."""
    try:
        return json.loads(text) if text.lstrip()[:1] in ("{", "[") and len(text) <= MOST_PARSED else None
    except (ValueError, RecursionError):
        return None


def readable_text(content: object) -> str:
    """Return the text in `content`, a text, a content block or a list of these, joined by line breaks. Images and data
    encrypted by the provider are left out."""
    return "\n".join(_texts(content))


_TEXT_KEYS = ("title", "url", "source", "text", "stdout", "stderr", "error_code")
"""Fields with readable text in blocks of search results, fetched pages and code runs."""

_LONG_KEYS = ("messages", "content", "source", "data", "text")
"""Fields of a request or message in which long media and texts may be."""
_SLICE = 2**18
"""Number of characters of a text that are written as JSON at once, so that other threads are not blocked."""
_PLACE = re.compile(r'"\\u0000(\d{1,6})\\u0000"')
"""Mark in JSON that replaces a long text, with the index of the text: ``"\\u00003\\u0000"``."""


def _texts(content: object) -> Iterator[str]:
    """Yield the readable texts in `content` (see `readable_text`), in order, also those in nested blocks."""
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
    """Yield the texts in the JSON data `value`, in order, also nested ones, but not the keys of objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings_in(inner)


def to_json(value: object) -> str:
    """Return `value` as JSON in ASCII without blanks, which can hold even lone surrogates. Keys keep their order."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def message_digest(message: Message, place: str = "message") -> str:
    """Return a SHA-256 digest by which the same message is recognised later.

    ``cache_control`` marks are ignored, as callers move them from call to call. Content that is a string has the same
    digest as a single text block with it.

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
    """Write `value` as JSON without blanks, and yield it in pieces. `options`: those of `json.dumps`; without any, the
    JSON is ASCII. Long texts of messages are yielded in slices, so that none is copied whole and other threads can run
    in between."""
    long_texts: list[str] = []
    write = json.JSONEncoder(separators=(",", ":"), **options).encode
    pieces = _PLACE.split(write(with_places(value, long_texts)))
    if [str(at) for at in range(len(long_texts))] != sorted(pieces[1::2], key=int):  # a text looks like a mark
        long_texts, pieces = [], [write(value)]
    for at, piece in enumerate(pieces):
        if at % 2 == 0:
            yield piece
        else:  # the index of a long text
            text = long_texts[int(piece)]
            yield '"'
            yield from (write(text[start : start + _SLICE])[1:-1] for start in range(0, len(text), _SLICE))
            yield '"'


def with_places(value: Any, long_texts: list[str], depth: int = 8) -> Any:
    """Return `value` with a short mark in place of each long text. The texts are added to `long_texts`, and each mark
    contains the index there. `depth`: number of nested lists and objects in which long texts are looked for."""
    if isinstance(value, str) and len(value) > _SLICE:
        long_texts.append(value)
        return f"\0{len(long_texts) - 1}\0"
    if isinstance(value, list) and depth:
        return [with_places(inner, long_texts, depth - 1) for inner in value]
    if isinstance(value, dict) and depth:
        inner = {key: with_places(value[key], long_texts, depth - 1) for key in _LONG_KEYS if key in value}
        return {**value, **inner} if inner else value
    return value


def cache_marks(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the ``cache_control`` marks in `value`: a message, block, tool, or a list of these. They show the provider
    what to cache. Blocks in a tool result may have them; in the arguments of a call they are data. Of a whole request
    only its own mark is found, not those in its lists."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from cache_marks(part)
    elif isinstance(value, Mapping):
        if isinstance(mark := value.get("cache_control"), Mapping):
            yield mark
        yield from cache_marks(value.get("content"))


def unmarked(message: Message) -> Message:
    """Return `message` without its ``cache_control`` marks, the same object if it has none."""
    return _unmarked_block(message) if any(cache_marks(message)) else message


def _unmarked(content: Sequence[Any]) -> list[Any]:
    """Return the items of `content` without ``cache_control`` marks, also those of nested blocks."""
    return [_unmarked_block(item) if isinstance(item, dict) else item for item in content]


def _unmarked_block(block: Block) -> Block:
    """Return `block` (or a message) without ``cache_control`` marks: the same object if it can have none."""
    inner = block.get("content")
    if "cache_control" not in block and not isinstance(inner, list):
        return block
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    return {**plain, "content": _unmarked(inner)} if isinstance(inner, list) else plain


TurnKind = Literal["user", "assistant", "tools", "other"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn, the smallest run of messages that can be kept or removed as one, by its place in the history."""

    id: str
    """Id of the turn, ``t1``, ``t2``, …: its place in the history, which never changes as the history only grows."""
    start: int
    """Index of the turn's first message in the history."""
    stop: int
    """Index after the turn's last message."""
    kind: TurnKind
    """Kind of the turn. ``user``: words of the user. ``assistant``: an answer without calls of a client's tools.
    ``tools``: an answer with such calls, and all their results. ``other``: anything else, such as the provider's own
    compaction, loaded tools and blocks that cannot be translated."""
    digest: str
    """Digest of the turn's messages, by which the same turn is recognised later."""
    live: bool
    """True if the model has not answered the turn yet, so that it stays whole."""
    repeated: bool = False
    """True if the turn is a host program's system message that is repeated later, word for word."""

    @property
    def number(self) -> int:
        """Number of the turn in the history: 1 for ``t1``."""
        return int(self.id[1:])

    @property
    def must_stay(self) -> bool:
        """True if a plan must not change the turn: it is of the kind ``other``, and is not repeated later."""
        return self.kind == "other" and not self.repeated


@dataclass(frozen=True)
class History:
    """Complete list of messages of a conversation, divided into turns."""

    originals: tuple[object, ...]
    """Messages as the caller's own objects."""
    messages: tuple[Message, ...]
    """The same messages as plain JSON data."""
    digests: tuple[str, ...]
    """Digest of each message, in order."""
    turns: tuple[Turn, ...]
    """Turns of the conversation, in order."""

    @cached_property
    def digest(self) -> str:
        """Digest of all messages (``sha256:…``), by which a plan is bound to its history."""
        return self.digest_at(len(self.messages))

    def digest_at(self, count: int) -> str:
        """Return the digest of the first `count` messages. It shows whether a longer history begins with them."""
        return _joined_digest(self.digests[:count])

    @cached_property
    def by_id(self) -> dict[str, Turn]:
        """Turns of the conversation by their ids."""
        return {turn.id: turn for turn in self.turns}

    def messages_of(self, turn: Turn) -> tuple[Message, ...]:
        """Return the messages of `turn` as plain JSON data."""
        return self.messages[turn.start : turn.stop]

    def blocks_of(self, turn: Turn) -> Iterator[tuple[str, Block]]:
        """Yield the role of the message and the block, for each content block of `turn` in order."""
        for message in self.messages_of(turn):
            for block in blocks(message):
                yield message["role"], block


def read_history(messages: Sequence[object], known: History | None = None) -> History:
    """Read `messages` (dicts or objects of the SDK) and divide them into turns. The list itself is not stored.

    `known`: the same conversation when it was shorter; its turns are reused, which saves time.

    Raises:
        TranscriptError: an item is no message, or not JSON data; the text names its index.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise TranscriptError(f"messages: expected a list of messages, found {type(messages).__name__}")
    plain = tuple(checked_message(message, f"messages[{i}]") for i, message in enumerate(messages))
    digests = [message_digest(message, f"messages[{i}]") for i, message in enumerate(plain)]
    return assemble_history(messages, plain, digests, known)


def assemble_history(
    originals: Sequence[object], plain: Sequence[Message], digests: Sequence[str], known: History | None = None
) -> History:
    """Divide messages that were read before into turns, and return them as a history. `originals`: the caller's
    objects; `plain`: the same as JSON data; `digests`: digest of each message; `known`: the same conversation when it
    was shorter, whose unchanged turns are reused."""
    is_longer = known is not None and known.digests == tuple(digests[: len(known.digests)])
    earlier = known.turns[:-1] if known is not None and is_longer else ()  # the last one may have more messages now
    return History(tuple(originals), tuple(plain), tuple(digests), tuple(_turns(plain, digests, earlier)))


def _turns(messages: Sequence[Message], digests: Sequence[str], earlier: Sequence[Turn]) -> Iterator[Turn]:
    """Divide `messages` into turns. The turns `earlier`, of the same history when it was shorter, are reused; they are
    copied if they are answered now (`live`) or `repeated` later."""
    starts = [*_starts(messages, earlier[-1].stop if earlier else 0), len(messages)]
    spans = [*((turn.start, turn.stop) for turn in earlier), *pairwise(starts)]
    live_from = _live_from(messages, spans)
    # a system message of text alone is not needed if it is repeated later; one that changes the tools is
    notices = (
        start
        for start, _ in spans
        if messages[start]["role"] == "system" and all(block["type"] == "text" for block in blocks(messages[start]))
    )
    last_starts = {digests[start]: start for start in notices}
    for number, (start, stop) in enumerate(spans, 1):
        live, repeated = number > live_from, last_starts.get(digests[start], start) > start
        known = earlier[number - 1] if number <= len(earlier) else None
        if known is None:
            digest = _joined_digest(digests[start:stop])
            is_fixed = any(map(_must_not_change, messages[start:stop]))
            kind = "other" if is_fixed else _kind(messages[start])
            yield Turn(f"t{number}", start, stop, kind, digest, live, repeated)
        elif (known.live, known.repeated) == (live, repeated):
            yield known
        else:
            yield replace(known, live=live, repeated=repeated)


_FIXED = (OPAQUE, "tool_reference")
"""Types of content blocks due to which their turn must not be changed."""


def _must_not_change(message: Message) -> bool:
    """Return True if `message` must be sent unchanged: it has content of another program's format that cannot be
    translated, or tools that a tool search found and so loaded (``tool_reference``)."""
    content = blocks(message)
    contents = (block.get("content") for block in content if block["type"].endswith("tool_result"))
    lists = (inner.get("tool_references") if isinstance(inner, dict) else inner for inner in contents)
    items = chain(content, *(items for items in lists if isinstance(items, list)))
    return any(isinstance(item, dict) and item.get("type") in _FIXED for item in items)


def _starts(messages: Sequence[Message], first: int) -> Iterator[int]:
    """Yield the indexes in `messages` at which turns start, from `first`, which is one of them.

    A message belongs to the turn before it if it answers a tool call there that has no result yet. An assistant's
    message also belongs to it after an assistant's message with such calls or with thinking alone, as the API counts
    the two as one message. Later messages do not matter, so turns never change as a list grows.
    """
    unanswered: set[str] = set()
    answer_before: Message | None = None  # the previous message, if it is the assistant's
    for index in range(first, len(messages)):
        message = messages[index]
        is_answer = message["role"] == "assistant"
        if unanswered:
            joins = (is_answer and answer_before is not None) or _answers(message, unanswered)
        else:
            types = [block["type"] for block in blocks(answer_before)] if answer_before is not None else []
            joins = is_answer and bool(types) and all(block_type in THINKING for block_type in types)
        if index == first or not joins:
            yield index
            unanswered = set()
        answer_before = message if is_answer else None
        if is_answer:
            unanswered |= set(call_ids(message))
        unanswered -= set(result_ids(message))


def _answers(message: Message, unanswered: set[str]) -> bool:
    """Return True if `message` has the result of one of the `unanswered` calls, or a call by code that one of them runs
    at the provider (its ``caller``)."""
    ids = result_ids(message)
    if message["role"] == "assistant":
        ids += [str(field_of(block.get("caller"), "tool_id")) for block in blocks(message)]
    return not unanswered.isdisjoint(ids)


def _kind(first: Message) -> TurnKind:
    """Return the kind of a turn, by its `first` message."""
    kinds = {block["type"] for block in blocks(first)}
    if is_compacted(first):
        return "other"
    if first["role"] == "assistant":
        return "tools" if "tool_use" in kinds else "assistant"
    return "user" if first["role"] == "user" and "tool_result" not in kinds else "other"


def _live_from(messages: Sequence[Message], spans: Sequence[tuple[int, int]]) -> int:
    """Return the number of turns that the model has answered; those after them always stay. `spans`: indexes of the
    first message of each turn, and of the one after its last.

    The assistant's last turn is answered if its calls have results and the assistant has replied to them. Else its
    messages right before that turn stay, too: for the API they are one message with the calls, and they may contain the
    thinking that the calls need.
    """
    at = len(spans)
    while at > 0 and messages[spans[at - 1][0]]["role"] != "assistant":
        at -= 1
    turn = messages[slice(*spans[at - 1])] if at > 0 else ()
    called = {call for message in turn for call in call_ids(message)}
    answered = {result for message in turn for result in result_ids(message)}
    if at == 0 or (turn[-1]["role"] == "assistant" and called <= answered):
        return at
    at -= 1
    while at > 0 and messages[spans[at][0] - 1]["role"] == "assistant":
        at -= 1
    return at


def prefix_digests(digests: Sequence[str], start: int = 0) -> Iterator[str]:
    """Yield the digest of the first `start` + 1 messages of a list, then of one more, and so on up to all. `digests`:
    digests of the single messages."""
    running = hashlib.sha256("".join(digests[:start]).encode())
    for digest in digests[start:]:
        running.update(digest.encode())
        yield _digits(running)


def _joined_digest(digests: Sequence[str]) -> str:
    return f"sha256:{_digits(hashlib.sha256(''.join(digests).encode()))}"


def _digits(running: hashlib._Hash) -> str:
    """Return the hex digits of a hash. Tests replace this function by one with few digits, so that hashes collide."""
    return running.hexdigest()
