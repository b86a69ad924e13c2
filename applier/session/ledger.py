"""What the caller has given so far: the append-only history behind its list, whichever way it holds it.

Decides which messages of a list are new and whether earlier ones changed. Never edits a message.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from planner.evidence.calls import Call, CallKind
from planner.reading.history import History, assemble_history
from planner.reading.messages import Message, blocks, message_digest, plain_message, result_text
from planner.reading.tokens import TokenCounter

__all__ = ["Arrival", "Ledger", "Result"]

MAX_ANCHORS = 6
"""How many lists are remembered: a caller may come back with one that is a few compactions old."""


@dataclass(frozen=True, slots=True)
class Result:
    """One client tool result of the history."""

    message: int
    block: int
    tool: str
    arguments: dict[str, Any]
    text: str
    tokens: int
    is_error: bool

    @property
    def call(self) -> Call:
        """The call it answers."""
        return Call(self.tool, self.arguments, 0, None, None)

    @property
    def kind(self) -> CallKind:
        """What the call does, as far as its name tells."""
        return self.call.kind

    @property
    def place(self) -> tuple[int, int]:
        """Message and block."""
        return self.message, self.block


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a list differs from the history known before."""

    start: int
    """Index in the history of the first new message."""
    changed: bool
    """True if messages that were known before `start` have gone or changed: the history was cut there."""
    refreshed: dict[int, object]
    """Messages that say the same as before but carry other cache marks, by index in the history."""


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A list that was seen or returned, and what it stood for."""

    messages: list[object]
    history_length: int
    head: int
    """The first `head` messages stand for a compacted region; those behind map to the history one by one."""

    @property
    def offset(self) -> int:
        return self.history_length - len(self.messages)


@dataclass
class Ledger:
    """The history of one session, with what was counted about it once."""

    counter: TokenCounter
    originals: list[object] = field(default_factory=list)
    plain: list[Message] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    """Tokens of each message."""
    tokens: int = 0
    """Of all of them."""
    results: list[Result] = field(default_factory=list)
    _calls: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    _same_results: dict[tuple[str, str], list[Result]] = field(default_factory=dict)
    _anchors: list[_Anchor] = field(default_factory=list)
    _history: History | None = None

    def __len__(self) -> int:
        """Messages of the history."""
        return len(self.originals)

    @property
    def history(self) -> History:
        """The history as turns; nothing is digested again, but turns are found anew for each length."""
        if self._history is None or len(self._history.messages) != len(self.originals):
            self._history = assemble_history(self.originals, self.plain, self.digests)
        return self._history

    def turn_id(self, message: int) -> str:
        """The turn that message `message` belongs to."""
        turns = self.history.turns
        return turns[bisect_right(turns, message, key=lambda turn: turn.start) - 1].id

    def results_from(self, message: int) -> list[Result]:
        """The results of that message and those behind it; work proportional to these."""
        newest = takewhile(lambda result: result.message >= message, reversed(self.results))
        return list(newest)[::-1]

    def repeated_by(self, result: Result) -> list[Result]:
        """Earlier results of the same call with the same text, oldest first."""
        same = self._same_results.get(_identity(result), [])
        return [earlier for earlier in same if earlier.place < result.place]

    def take(self, messages: Sequence[object]) -> Arrival:
        """Find what is new in the caller's list and append it to the history.

        Raises:
            TranscriptError: a new entry is not a message.
        """
        given = list(messages)
        anchor, common = self._recognise(given)
        at = common + anchor.offset
        known = self._common(given[common:], self.originals[at:])
        start = at + known
        new = given[common + known :]
        plain = [plain_message(message, f"messages[{common + known + i}]") for i, message in enumerate(new)]
        refreshed = self._refresh(given, anchor, common)
        changed = start < len(self)
        if changed:
            self._cut(start)
        for message, data in zip(new, plain, strict=True):
            self._append(message, data)
        self._remember(_Anchor(given, len(self), anchor.head))
        return Arrival(start, changed, refreshed)

    def returned(self, sent: Sequence[object], head: int) -> None:
        """Remember a list that was handed out: its first `head` messages stand for a compacted region."""
        self._remember(_Anchor(list(sent), len(self), head))

    def load(self, history: History) -> None:
        """Start from a stored history: a session that goes on after a restart."""
        self._cut(0)
        for message in history.messages:
            self._append(message, message)
        self._anchors = [_Anchor(list(self.originals), len(self), 0)]

    def _remember(self, anchor: _Anchor) -> None:
        older = [a for a in self._anchors if len(a.messages) != len(anchor.messages) or a.head != anchor.head]
        self._anchors = [anchor, *older][:MAX_ANCHORS]

    def _recognise(self, given: list[object]) -> tuple[_Anchor, int]:
        """The remembered list that `given` starts with, or the one that shares most of the history."""
        best, common = _Anchor([], 0, 0), 0
        for anchor in self._anchors:
            shared = self._common(given, anchor.messages)
            if shared == len(anchor.messages):
                return anchor, shared
            if shared >= anchor.head and shared + anchor.offset > common + best.offset:
                best, common = anchor, shared
        return best, common

    def _common(self, given: Sequence[object], known: Sequence[object]) -> int:
        """How many messages at the front say the same; comparing objects first, their content last."""
        length = min(len(given), len(known))
        last = length - 1
        if given[:length] == known[:length] and not (length and self._mutated(known[last])):
            return length
        for at in range(length):
            if self._mutated(known[at]) or not _same(given[at], known[at]):
                return at
        return length

    def _mutated(self, message: object) -> bool:
        """True if the newest message was changed in place since it was taken."""
        if not self.originals or message is not self.originals[-1]:
            return False
        return message_digest(plain_message(message)) != self.digests[-1]

    def _refresh(self, given: list[object], anchor: _Anchor, common: int) -> dict[int, object]:
        if given[:common] == anchor.messages[:common]:
            return {}
        moved = {at + anchor.offset: given[at] for at in range(anchor.head, common) if given[at] != anchor.messages[at]}
        for index, message in moved.items():
            plain = plain_message(message)
            if message_digest(plain) == self.digests[index]:
                self.originals[index], self.plain[index] = message, plain
        self._history = None
        return moved

    def _cut(self, length: int) -> None:
        for items in (self.originals, self.plain, self.digests, self.counted):
            del items[length:]
        self.tokens = sum(self.counted)
        kept = [result for result in self.results if result.message < length]
        self.results, self._same_results = [], {}
        for result in kept:
            self._keep(result)
        self._history = None
        self._anchors = [a for a in self._anchors if a.history_length <= length]

    def _append(self, message: object, plain: Message) -> None:
        index = len(self.originals)
        self.originals.append(message)
        self.plain.append(plain)
        self.digests.append(message_digest(plain))
        self.counted.append(self.counter.message(plain))
        self.tokens += self.counted[-1]
        for at, block in enumerate(blocks(plain)):
            if block["type"] == "tool_use":
                arguments = block.get("input")
                self._calls[str(block.get("id"))] = (
                    str(block.get("name", "")),
                    arguments if isinstance(arguments, dict) else {},
                )
            elif block["type"] == "tool_result":
                tool, given = self._calls.get(str(block.get("tool_use_id")), ("", {}))
                tokens, is_error = self.counter.block(block), bool(block.get("is_error"))
                self._keep(Result(index, at, tool, given, result_text(block), tokens, is_error))

    def _keep(self, result: Result) -> None:
        self.results.append(result)
        self._same_results.setdefault(_identity(result), []).append(result)


def _identity(result: Result) -> tuple[str, str]:
    return f"{result.tool} {json.dumps(result.arguments, sort_keys=True, default=repr)}", result.text


def _same(given: object, known: object) -> bool:
    if given is known or given == known:
        return True
    return message_digest(plain_message(given)) == message_digest(plain_message(known))
