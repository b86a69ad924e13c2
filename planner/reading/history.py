"""History and its turns, the smallest runs of messages that can be treated as one.

Decides where a list may be cut: never between a call and its result. Changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Literal

from planner.errors import TranscriptError
from planner.reading.lazy_property import lazy_property
from planner.reading.messages import (
    OPAQUE,
    THINKING,
    Block,
    Message,
    blocks,
    call_ids,
    checked_message,
    field_of,
    is_compacted,
    message_digest,
    result_ids,
)

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
    """Return True for a system message of text alone, which is not needed if it is repeated later. A system message
    that changes the tools is needed."""
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
    """Return the kind of a turn by its first message."""
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
    """Return the digest of messages with these digests."""
    return f"sha256:{_digits(hashlib.sha256(''.join(digests).encode()))}"


def _digits(running: hashlib._Hash) -> str:
    """Return the hex digits of a running hash; tests shorten them to make two histories collide."""
    return running.hexdigest()
