"""Append-only history of the messages that the caller has passed, whether it keeps its own list or replaces it by ours.

Decides which messages of a list are new, and whether earlier ones were changed. Keeps its own copies and never edits a
message, so that a caller's edits in place are noticed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from planner.analysis import Analysis, analyze_history, call_alone
from planner.errors import TranscriptError
from planner.evidence.calls import Call
from planner.plan import CompactionPlan
from planner.reading.media import Load, load_of
from planner.reading.messages import (
    History,
    Message,
    assemble_history,
    blocks,
    cache_marks,
    call_ids,
    checked_message,
    message_digest,
    plain_message,
    result_ids,
    result_text,
)
from planner.reading.tokens import TokenCounter
from planner.settings import ToolUse

MAX_HEADS = 6
"""Number of remembered compacted parts: a caller may return with a list from before a few compactions."""


@dataclass(frozen=True, slots=True)
class Result:
    """One client tool result of the history."""

    message: int
    block: int
    call: Call
    """Call that the result answers, as the agent made it; without a name if it is not in the list."""
    text: str
    tokens: int
    is_error: bool

    @property
    def place(self) -> tuple[int, int]:
        """Message and block."""
        return self.message, self.block


@dataclass(frozen=True, slots=True)
class Arrival:
    """Difference between a list and the history known before."""

    start: int
    """Index in the history of the first new message."""
    changed: bool
    """True if known messages from `start` on were removed or changed: the history was cut there."""
    replaced: bool = False
    """True if messages before `start` are other objects than before, with other cache marks or content."""
    edited_from: int | None = None
    """Index of the first of these messages that has other content but the same role and calls; None without one."""


class _Head(NamedTuple):
    """Compacted part that was sent."""

    messages: list[object]
    replaced: int
    """Number of the history's messages that it replaced."""
    digest: str
    """Digest of its first message."""


@dataclass
class HistoryTracker:
    """History of one session, with everything that was counted or read from it."""

    counter: TokenCounter
    originals: list[object] = field(default_factory=list)
    """Caller's own objects."""
    plain: list[Message] = field(default_factory=list)
    """Content of the messages at the time they were passed."""
    digests: list[str] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    """Tokens of each message."""
    loads: list[Load] = field(default_factory=list)
    """Pictures and bytes of each message."""
    marks: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    """Cache marks of the messages that have some."""
    tokens: int = 0
    """Tokens of all messages."""
    results: list[Result] = field(default_factory=list)
    _calls: dict[str, Call] = field(default_factory=dict)
    _heads: list[_Head] = field(default_factory=list)
    """Compacted parts that were sent, the newest first."""
    _replaced: dict[int, list[object]] = field(default_factory=dict)
    """Messages that were sent in place of single messages of the history, by index."""
    uses: Mapping[str, ToolUse] = field(default_factory=dict)
    """Declarations of the agent's tools, by name."""
    known_analysis: Analysis | None = None
    """Analysis that was made last, of this history or of its beginning; None before the first."""
    _history: History | None = None

    def __len__(self) -> int:
        """Messages of the history."""
        return len(self.originals)

    @property
    def history(self) -> History:
        """Return the history as turns; only new turns are made."""
        if self._history is None or len(self._history.messages) != len(self.originals):
            self._history = assemble_history(self.originals, self.plain, self.digests, self._history)
        return self._history

    @property
    def analysis(self) -> Analysis:
        """Return the analysis of the history; only new turns are read."""
        history = self.history
        if self.known_analysis is None or self.known_analysis.history is not history:
            self.known_analysis = analyze_history(history, self.counter, self.known_analysis, self.uses)
        return self.known_analysis

    def know(self, plan: CompactionPlan | None) -> None:
        """Take over the analysis that was made for `plan`, whose history is the beginning of this one."""
        read = plan.bound_analysis if plan is not None else None
        known = self.known_analysis
        if read is not None and (known is None or len(read.history.turns) > len(known.history.turns)):
            self.known_analysis = read

    @property
    def live_start(self) -> int:
        """Return the index of the first message that the model has not answered yet, or of the call that it answers."""
        return next((turn.start for turn in self.history.turns if turn.live), len(self))

    @property
    def answered_tokens(self) -> int:
        """Return the tokens of all messages before the live tail, which a plan may remove."""
        return sum(self.counted[: self.live_start])

    def turn_id(self, message: int) -> str:
        """Return the id of the turn that contains message `message`."""
        turns = self.history.turns
        return turns[bisect_right(turns, message, key=lambda turn: turn.start) - 1].id

    def results_from(self, message: int) -> list[Result]:
        """Return the tool results in message `message` and all later ones."""
        return self.results[bisect_left(self.results, message, key=lambda result: result.message) :]

    def marks_between(self, start: int, stop: int) -> list[Mapping[str, Any]]:
        """Return the cache marks of the messages from index `start` to before `stop`, in order."""
        return [mark for at, marks in sorted(self.marks.items()) if start <= at < stop for mark in marks]

    def _copy(self) -> HistoryTracker:
        return replace(
            self,
            originals=[*self.originals],
            plain=[*self.plain],
            digests=[*self.digests],
            counted=[*self.counted],
            loads=[*self.loads],
            marks={**self.marks},
            results=[*self.results],
            _calls={**self._calls},
        )

    def taken(self, messages: Sequence[object]) -> tuple[HistoryTracker, Arrival]:
        """Return the history with the new messages of the caller's list added, and which ones these are.

        Raises:
            TranscriptError: `messages` is not a list, or a new entry is not a message.
        """
        if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
            raise TranscriptError(f"messages: expected a list of messages, found {type(messages).__name__}")
        tracker = self._copy()
        return tracker, tracker._take(list(messages))

    def _take(self, passed: list[object]) -> Arrival:
        head, start = self._head_of(passed)
        own = passed[head:]
        for index, place in ((index, index - start) for index in self._replaced if start <= index < start + len(own)):
            own[place] = self._original(own[place], index)
        known = len(self)
        at, marked = self._unchanged(own, start, min(known, start + len(own)))
        places = range(head + at - start, len(passed))
        new = [(checked_message(own[place - head], f"messages[{place}]"), own[place - head]) for place in places]
        is_edit = self._is_edit([plain for plain, _ in new], at)
        for index in marked:
            self._take_marks(index, own[index - start])
        if at < known:
            self._cut(at)
        for plain, message in new:
            self._append(message, plain)
        if is_edit:
            return Arrival(known, changed=False, replaced=True, edited_from=at)
        self._heads = [one for one in self._heads if one.replaced <= at]
        self._replaced = {index: sent for index, sent in self._replaced.items() if index < at}
        return Arrival(at, at < known, bool(marked))

    def sent(self, sent: Sequence[object], head: int) -> HistoryTracker:
        """Return this history, which recognizes the list `sent` when the caller passes it. The first `head` messages of
        `sent` are its compacted part."""
        start, heads, replaced = len(self) - len(sent) + head, self._heads, {**self._replaced}
        if head:
            older = [one for one in heads if one.messages != sent[:head]]
            same = next((one.digest for one in heads if one.messages[0] is sent[0]), "")
            digest = same or message_digest(plain_message(sent[0]))
            heads = [_Head(list(sent[:head]), start, digest), *older][:MAX_HEADS]
        for index, message in enumerate(sent[head:], start):
            if message is not self.originals[index]:
                known = replaced.get(index, [])
                if not any(message is one for one in known):
                    replaced[index] = [*known, message]
        return replace(self, _heads=heads, _replaced=replaced)

    def _head_of(self, passed: Sequence[object]) -> tuple[int, int]:
        """Return the length of the compacted part at the front of `passed`, and the number of the history's messages
        that it replaced; 0, 0 if `passed` does not begin with a part that was sent."""
        if not (passed and self.plain and self._heads):
            return 0, 0
        is_original = passed[0] == self.plain[0]
        first = self.digests[0] if is_original else message_digest(plain_message(passed[0]))
        for head, start, digest in self._heads:
            if first == digest and len(passed) >= len(head) and all(map(_say_the_same, passed[1:], head[1:])):
                return len(head), start
        return 0, 0

    def _original(self, message: object, index: int) -> object:
        """Return `message`, or the original of index `index` if `message` was sent in its place."""
        sent = self._replaced.get(index)
        if sent is None or message == self.plain[index]:
            return message
        return self.originals[index] if any(_say_the_same(message, one) for one in sent) else message

    def _unchanged(self, own: Sequence[object], start: int, stop: int) -> tuple[int, list[int]]:
        """Return the index of the first message from `start` on with changed content (`stop` if there is none), and the
        indices of earlier ones that only have other cache marks. `own` begins at index `start` of the history.

        Dicts are compared with the stored copy, texts first by identity: edits in place are noticed, and unchanged
        messages cost next to nothing.
        """
        if own[: stop - start] == self.plain[start:stop]:
            return stop, []
        marked: list[int] = []
        for index, message in enumerate(own[: stop - start], start):
            is_dict = isinstance(message, dict)
            if message == self.plain[index] if is_dict else message is self.originals[index]:
                continue
            if message_digest(plain_message(message)) != self.digests[index]:
                return index, marked
            if is_dict:
                marked.append(index)
        return stop, marked

    def _is_edit(self, new: Sequence[Message], at: int) -> bool:
        """Return True if the messages `new` are those from index `at` on, edited in place, and later ones."""
        known = self.plain[at:]
        if not known or len(new) < len(known) or message_digest(new[len(known) - 1]) != self.digests[-1]:
            return False
        return all(_part(one) == _part(other) for one, other in zip(known, new, strict=False))

    def _take_marks(self, index: int, message: object) -> None:
        """Store the other cache marks of a known message."""
        self.originals[index], self.plain[index] = message, _copied(plain_message(message))
        self._note_marks(index, self.plain[index])
        self._history = None

    def _note_marks(self, index: int, message: Message) -> None:
        self.marks.pop(index, None)
        if marks := list(cache_marks(message)):
            self.marks[index] = marks

    def _cut(self, length: int) -> None:
        for items in (self.originals, self.plain, self.digests, self.counted, self.loads):
            del items[length:]
        self.marks = {index: marks for index, marks in self.marks.items() if index < length}
        self.tokens = sum(self.counted)
        self.results = [result for result in self.results if result.message < length]
        self._history = None

    def _append(self, message: object, plain: Message) -> None:
        index = len(self.originals)
        self.digests.append(message_digest(plain))
        self.counted.append(self.counter.message(plain))
        self.loads.append(load_of(plain))
        self._note_marks(index, plain)
        self.originals.append(message)
        self.plain.append(_copied(plain))
        self.tokens += self.counted[-1]
        for at, block in enumerate(blocks(plain)):
            if block["type"] == "tool_use":
                self._calls[str(block.get("id"))] = _call(block.get("name", ""), block.get("input"))
            elif block["type"] == "tool_result":
                call = self._calls.get(str(block.get("tool_use_id"))) or _call("", None)
                tokens, is_error = self.counter.block(block), bool(block.get("is_error"))
                self.results.append(Result(index, at, call, result_text(block), tokens, is_error))


def _copied(message: Message) -> Message:
    """Return a copy of `message`, whose lists and dicts may nest to any depth."""
    copied = dict(message)
    stack: list[Any] = [copied]
    while stack:
        part = stack.pop()
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(value, dict | list):
                part[key] = value.copy()
                stack.append(part[key])
    return copied


def _call(name: object, arguments: object) -> Call:
    return call_alone(str(name), arguments if isinstance(arguments, dict) else {})


def _say_the_same(message: object, known: object) -> bool:
    if message is known or message == known:
        return True
    return message_digest(plain_message(message)) == message_digest(plain_message(known))


def _part(message: Message) -> tuple[str, list[str], list[str]]:
    """Return the role, the call ids and the answered call ids of `message`."""
    return message["role"], call_ids(message), result_ids(message)
