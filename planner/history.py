"""A history and its turns: the smallest runs of messages that can be treated as one.

Decides where a list may be cut: never between a call and its result. Changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from planner.errors import TranscriptError
from planner.messages import Block, Message, blocks, message_digest, plain_message

__all__ = ["History", "Turn", "TurnKind", "assemble_history", "read_history"]

TurnKind = Literal["user", "assistant", "tools", "other"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: messages ``start`` to ``stop`` (half-open) of its history."""

    id: str
    """``t1``, ``t2``, …: the place in an append-only history, so it never changes."""
    start: int
    stop: int
    kind: TurnKind
    """``user``: words of the user; ``assistant``: no client tools; ``tools``: calls and all their results;
    ``other``: anything else, always kept."""
    digest: str
    live: bool
    """True in the live tail: what the model has not answered yet."""

    @property
    def number(self) -> int:
        """1 for ``t1``."""
        return int(self.id[1:])


@dataclass(frozen=True)
class History:
    """The complete list of messages, as the caller holds them and as plain data."""

    originals: tuple[object, ...]
    messages: tuple[Message, ...]
    digests: tuple[str, ...]
    """One per message."""
    turns: tuple[Turn, ...]

    @cached_property
    def digest(self) -> str:
        """``sha256:…`` over all messages, in order."""
        return self.digest_at(len(self.messages))

    def digest_at(self, count: int) -> str:
        """The digest of the first `count` messages: a longer history keeps the digests of its prefixes."""
        return _joined_digest(self.digests[:count])

    @cached_property
    def by_id(self) -> dict[str, Turn]:
        """Turns by id."""
        return {turn.id: turn for turn in self.turns}

    def messages_of(self, turn: Turn) -> tuple[Message, ...]:
        """The plain messages of `turn`."""
        return self.messages[turn.start : turn.stop]

    def blocks_of(self, turn: Turn) -> Iterator[tuple[str, Block]]:
        """Each block of `turn` with the role of its message, in order."""
        for message in self.messages_of(turn):
            for block in blocks(message):
                yield message["role"], block

    def text_of(self, *roles: str) -> str:
        """All text blocks of messages with one of `roles`, joined by line."""
        return "\n".join(
            block["text"]
            for message in self.messages
            if message["role"] in roles
            for block in blocks(message)
            if block["type"] == "text" and isinstance(block.get("text"), str)
        )


def read_history(messages: Sequence[object]) -> History:
    """`messages` (dicts or SDK objects) as a history with its turns. The list itself is not kept.

    Raises:
        TranscriptError: an entry is not a message; the text names its index.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise TranscriptError(f"messages: expected a list of messages, found {type(messages).__name__}")
    plain = tuple(plain_message(message, f"messages[{i}]") for i, message in enumerate(messages))
    return assemble_history(messages, plain, [message_digest(message) for message in plain])


def assemble_history(
    originals: Sequence[object], plain: Sequence[Message], digests: Sequence[str]
) -> History:
    """A history from messages read and digested before: what keeps a growing one cheap."""
    return History(tuple(originals), tuple(plain), tuple(digests), tuple(_turns(plain, digests)))


def _turns(messages: Sequence[Message], digests: Sequence[str]) -> Iterator[Turn]:
    spans = list(_spans(messages))
    live_from = _live_start(spans)
    for number, (start, stop, kind) in enumerate(spans, 1):
        yield Turn(f"t{number}", start, stop, kind, _joined_digest(digests[start:stop]), number > live_from)


def _spans(messages: Sequence[Message]) -> Iterator[tuple[int, int, TurnKind]]:
    at = 0
    while at < len(messages):
        stop = at + 1
        calls = _ids(messages[at], "tool_use", "id") if messages[at]["role"] == "assistant" else set()
        if calls and stop < len(messages) and calls & _ids(messages[stop], "tool_result", "tool_use_id"):
            stop += 1
        yield at, stop, _kind(messages[at], bool(calls))
        at = stop


def _ids(message: Message, kind: str, key: str) -> set[str]:
    return {str(block.get(key)) for block in blocks(message) if block["type"] == kind}


def _kind(message: Message, has_calls: bool) -> TurnKind:
    if message["role"] == "assistant":
        return "tools" if has_calls else "assistant"
    if message["role"] == "user" and not _ids(message, "tool_result", "tool_use_id"):
        return "user"
    return "other"


def _live_start(spans: Sequence[tuple[int, int, TurnKind]]) -> int:
    """How many turns are not live: the run of user words at the end, or the last call, is live.

    A tools turn is live when the list ends with it; user words behind it are live with it only
    when they are what the model must answer next.
    """
    at = len(spans)
    while at > 0 and spans[at - 1][2] == "user":
        at -= 1
    if at == len(spans) and at > 0 and spans[at - 1][2] in ("tools", "other"):
        at -= 1
    return at


def _joined_digest(digests: Sequence[str]) -> str:
    return "sha256:" + hashlib.sha256("".join(digests).encode()).hexdigest()
