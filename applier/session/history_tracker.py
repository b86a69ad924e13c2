"""The history of a session: all messages that the caller has passed, which only grows.

The caller passes its whole list at each call, or goes on with the shortened list that the session returned. This module
decides which messages of a list are new, and whether earlier ones were changed. It keeps its own copies, to notice
changes that the caller makes in place, and never changes a message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from planner.analysis import Analysis, analyze_history, call_alone
from planner.errors import TranscriptError
from planner.evidence.calls import Call
from planner.plan import CompactionPlan
from planner.reading.media import MANY_IMAGES_PIXELS, image_size, source_data, visible_pages
from planner.reading.messages import (
    Block,
    History,
    Message,
    assemble_history,
    blocks,
    cache_marks,
    call_ids,
    checked_message,
    json_pieces,
    message_digest,
    pictures_in,
    plain_message,
    result_ids,
    result_text,
)
from planner.reading.tokens import TokenCounter
from planner.settings import ToolUse

MAX_HEADS = 6
"""Number of sent lists that are recognized, as a caller may pass back a list from before a few compactions."""


@dataclass(frozen=True, slots=True)
class Load:
    """Numbers and sizes of the pictures (images and documents) in messages, to compare with a provider's limits."""

    images: int = 0
    """Number of images and document pages."""
    large: int = 0
    """Number of images with more than `MANY_IMAGES_PIXELS` on a side."""
    size: int = 0
    """Bytes of the messages as JSON."""
    largest: int = 0
    """Size of the largest picture, in characters of base64."""

    def __add__(self, other: Load) -> Load:
        """Return the load of both together; the largest picture is the larger one of the two."""
        largest = max(self.largest, other.largest)
        return Load(self.images + other.images, self.large + other.large, self.size + other.size, largest)


def load_of(message: Message) -> Load:
    """Count the pictures (images and documents) and the bytes of `message`, to compare with a provider's limits."""
    pieces = json_pieces(message, ensure_ascii=False, default=str)
    size = sum(len(piece.encode(errors="replace")) for piece in pieces)
    return sum((picture_load(picture) for picture in pictures_in(blocks(message))), Load(size=size))


def picture_load(picture: Block) -> Load:
    """Count one image or document. Its `size` is 0, as the bytes of a message are counted as a whole."""
    if picture["type"] == "document":
        return Load(images=visible_pages(picture), largest=len(source_data(picture)))
    is_large = max(image_size(picture) or (0,)) > MANY_IMAGES_PIXELS
    return Load(1, int(is_large), largest=len(source_data(picture)))


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one tool call in the history."""

    message: int
    block: int
    call: Call
    """Call that this result answers, as the agent made it; without a name if the history lacks the call."""
    text: str
    tokens: int
    is_error: bool

    @property
    def place(self) -> tuple[int, int]:
        """Position of the result: index of its message, and index of its block in that message."""
        return self.message, self.block


@dataclass(frozen=True, slots=True)
class Arrival:
    """Difference between the list that the caller has passed now and the history that was known before."""

    start: int
    """Index in the history of the first message that was not known before."""
    changed: bool
    """True if the caller removed or changed known messages from `start` on, so that they were cut from the history."""
    replaced: bool = False
    """True if messages before `start` were replaced by ones with other cache marks or other content."""
    edited: frozenset[int] = frozenset()
    """Indices of the known messages that the caller gave other content, with the same role and calls."""


class _Head(NamedTuple):
    """Compacted messages at the beginning of a sent list, by which the list is recognized when it comes back."""

    messages: list[object]
    replaced: int
    """Number of messages of the history that were compacted into it."""
    digest: str
    """Digest of its first message, by which it is found quickly."""


@dataclass
class HistoryTracker:
    """History of one session, with all that was counted and read of it, so that each message is read only once."""

    counter: TokenCounter
    originals: list[object] = field(default_factory=list)
    """Messages of the history as the caller's own objects, which are sent."""
    plain: list[Message] = field(default_factory=list)
    """Copies of the messages as dicts, made when the caller passed them, to notice later changes."""
    digests: list[str] = field(default_factory=list)
    """Digests of the messages, by which changed content is noticed."""
    counted: list[int] = field(default_factory=list)
    """Tokens of each message, by `counter`."""
    loads: list[Load] = field(default_factory=list)
    """Number of pictures and size in bytes of each message."""
    marks: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    """Marks for the provider's prompt cache that the caller has set, by the index of the message."""
    tokens: int = 0
    """Tokens of all messages together."""
    results: list[Result] = field(default_factory=list)
    """Results of all tool calls in the history."""
    _calls: dict[str, Call] = field(default_factory=dict)
    """Calls of tools in the history, by id."""
    _heads: list[_Head] = field(default_factory=list)
    """Compacted beginnings of the lists that were sent, the newest first."""
    _replaced: dict[int, list[object]] = field(default_factory=dict)
    """Changed forms in which single messages of the history were sent, by the index of the message."""
    uses: Mapping[str, ToolUse] = field(default_factory=dict)
    """Declarations of what the agent's tools do, by the user or by the tools' annotations, by tool name."""
    known_analysis: Analysis | None = None
    """Newest `analysis`, of this history or of its beginning; None before the first."""
    _history: History | None = None

    def __len__(self) -> int:
        """Return the number of messages of the history."""
        return len(self.originals)

    @property
    def history(self) -> History:
        """Messages of the history as turns. Only new turns are made at each call."""
        if self._history is None or len(self._history.messages) != len(self.originals):
            self._history = assemble_history(self.originals, self.plain, self.digests, self._history)
        return self._history

    @property
    def analysis(self) -> Analysis:
        """Data that plans need of the history (calls, failures, …). Only new turns are read at each call."""
        history = self.history
        if self.known_analysis is None or self.known_analysis.history is not history:
            self.known_analysis = analyze_history(history, self.counter, self.known_analysis, self.uses)
        return self.known_analysis

    def analysis_of(self, messages: int) -> Analysis:
        """Return the analysis of only the first `messages` messages, which must be whole turns, to plan these again."""
        history = assemble_history(self.originals[:messages], self.plain[:messages], self.digests[:messages])
        return analyze_history(history, self.counter, self.known_analysis, self.uses)

    def adopt_analysis(self, plan: CompactionPlan | None) -> None:
        """Use the analysis that `plan` was made from, if it covers more turns than the known one, so that no turn is
        read twice. The plan must be for a beginning of this history; None changes nothing."""
        analysis = plan.bound_analysis if plan is not None else None
        known = self.known_analysis
        if analysis is not None and (known is None or len(analysis.history.turns) > len(known.history.turns)):
            self.known_analysis = analysis

    @property
    def live_start(self) -> int:
        """Index of the first message that no plan may change: the newest words of the user, or the call whose results
        the model has not answered yet."""
        return next((turn.start for turn in self.history.turns if turn.live), len(self))

    @property
    def answered_tokens(self) -> int:
        """Tokens of all messages that the model has answered; only these may be removed by a plan."""
        return sum(self.counted[: self.live_start])

    def turn_id(self, message: int) -> str:
        """Return the id (``t12``) of the turn that contains the message at index `message`."""
        turns = self.history.turns
        return turns[bisect_right(turns, message, key=lambda turn: turn.start) - 1].id

    def marks_between(self, start: int, stop: int) -> list[Mapping[str, Any]]:
        """Return the caller's prompt-cache marks in the messages from index `start` to before `stop`, in order."""
        return [mark for at, marks in sorted(self.marks.items()) if start <= at < stop for mark in marks]

    def extended_by(self, messages: Sequence[object]) -> tuple[HistoryTracker, Arrival]:
        """Return this history with the new messages of the caller's list added, and which ones are new.

        Raises:
            TranscriptError: `messages` is not a list, or a new entry is not a message.
        """
        if not is_list(messages):
            raise TranscriptError(f"messages: expected a list of messages, found {type(messages).__name__}")
        # copy the lists that are changed below, so that this object stays as it is
        growing = ("originals", "plain", "digests", "counted", "loads", "marks", "results", "_calls")
        tracker = replace(self, **{name: copy(getattr(self, name)) for name in growing})
        passed = list(messages)
        head, start = self._compacted_part_of(passed)
        later = passed[head:]  # one for one the messages of the history from index `start` on
        for index in self._replaced:  # messages that came back shortened are replaced by their originals
            if start <= index < start + len(later):
                later[index - start] = self._original_of(later[index - start], index)
        length = len(self)
        first_changed, marked = self._compare(later, start, min(length, start + len(later)))
        unknown = enumerate(later[first_changed - start :], head + first_changed - start)
        new = [(checked_message(message, f"messages[{place}]"), message) for place, message in unknown]
        edited = self._edited_in_place([plain for plain, _ in new], first_changed)
        for index in marked:
            tracker._replace_marks(index, later[index - start])
        if first_changed < length:  # the caller removed, replaced or edited messages
            tracker._truncate(first_changed)
        for plain, message in new:
            tracker._append(message, plain)
        if edited:
            return tracker, Arrival(length, changed=False, replaced=True, edited=edited)
        # lists that were made of messages which the caller has changed are recognized no more
        tracker._heads = [part for part in self._heads if part.replaced <= first_changed]
        tracker._replaced = {index: sent for index, sent in self._replaced.items() if index < first_changed}
        return tracker, Arrival(first_changed, first_changed < length, bool(marked))

    def recognizing(self, sent: Sequence[object], head: int) -> HistoryTracker:
        """Return this history, prepared to recognize the list `sent` if the caller passes it back. `head`: number of
        messages at the front of `sent` that are compacted and replace the beginning of the history."""
        start, heads, replaced = len(self) - len(sent) + head, self._heads, {**self._replaced}
        if head:  # put it first, as the newest
            older = [part for part in heads if part.messages != sent[:head]]
            known_digest = next((part.digest for part in heads if part.messages[0] is sent[0]), "")
            digest = known_digest or message_digest(plain_message(sent[0]))
            heads = [_Head(list(sent[:head]), start, digest), *older][:MAX_HEADS]
        for index, message in enumerate(sent[head:], start):
            if message is not self.originals[index]:  # sent in a changed form
                known_forms = replaced.get(index, [])
                if not any(message is part for part in known_forms):
                    replaced[index] = [*known_forms, message]
        return replace(self, _heads=heads, _replaced=replaced)

    def _compacted_part_of(self, passed: Sequence[object]) -> tuple[int, int]:
        """Return how many messages at the front of `passed` are compacted ones that were sent before. Also return how
        many messages of the history were compacted into them; 0, 0 if `passed` begins with none."""
        if not (passed and self.plain and self._heads):
            return 0, 0
        is_original = passed[0] == self.plain[0]
        first = self.digests[0] if is_original else message_digest(plain_message(passed[0]))
        for head, start, digest in self._heads:
            if first == digest and len(passed) >= len(head) and all(map(_has_same_content, passed[1:], head[1:])):
                return len(head), start
        return 0, 0

    def _original_of(self, message: object, index: int) -> object:
        """Return the original at `index` if `message` is a changed form in which it was sent; else `message`."""
        sent = self._replaced.get(index)
        if sent is None or message == self.plain[index]:
            return message
        return self.originals[index] if any(_has_same_content(message, form) for form in sent) else message

    def _compare(self, passed: Sequence[object], start: int, stop: int) -> tuple[int, list[int]]:
        """Compare the history from index `start` to before `stop` with the list `passed`, which begins at `start`.
        Return the index of the first message with changed content (`stop` if there is none), and the indices of earlier
        ones with only other cache marks. Dicts are compared with the stored copies, so that edits in place are noticed;
        SDK objects by identity, or else by their digests."""
        if passed[: stop - start] == self.plain[start:stop]:
            return stop, []
        marked: list[int] = []
        for index, message in enumerate(passed[: stop - start], start):
            is_dict = isinstance(message, dict)
            if message == self.plain[index] if is_dict else message is self.originals[index]:
                continue
            if message_digest(plain_message(message)) != self.digests[index]:
                return index, marked
            if is_dict:
                marked.append(index)
        return stop, marked

    def _edited_in_place(self, new: Sequence[Message], at: int) -> frozenset[int]:
        """Return the indices of known messages that the caller has edited without a change of the turns. `new`: the
        caller's messages from index `at` on. It must have all known messages with the same roles and calls, the last
        one unchanged, else the result is empty: then messages were removed or replaced."""
        known = self.plain[at:]
        if not known or len(new) < len(known) or message_digest(new[len(known) - 1]) != self.digests[-1]:
            return frozenset()
        if any(_role_and_ids(old) != _role_and_ids(edited) for old, edited in zip(known, new, strict=False)):
            return frozenset()
        changes = enumerate(zip(self.digests[at:], new, strict=False), at)
        return frozenset(index for index, (digest, edited) in changes if message_digest(edited) != digest)

    def _replace_marks(self, index: int, message: object) -> None:
        """Replace the known message at `index` by `message`, which only has other cache marks."""
        self.originals[index], self.plain[index] = message, _copied(plain_message(message))
        self._note_marks(index, self.plain[index])
        self._history = None

    def _note_marks(self, index: int, message: Message) -> None:
        self.marks.pop(index, None)
        if marks := list(cache_marks(message)):
            self.marks[index] = marks

    def _truncate(self, length: int) -> None:
        """Remove the messages from index `length` on from the history."""
        for items in (self.originals, self.plain, self.digests, self.counted, self.loads):
            del items[length:]
        self.marks = {index: marks for index, marks in self.marks.items() if index < length}
        self.tokens = sum(self.counted)
        self.results = [result for result in self.results if result.message < length]
        self._history = None

    def _append(self, message: object, plain: Message) -> None:
        """Add the caller's `message` at the end of the history. `plain`: the same message as a dict."""
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


def is_list(messages: object) -> bool:
    """Return True if `messages` is any collection of messages; False for a text, a dict or a single object."""
    return isinstance(messages, Iterable) and not isinstance(messages, str | bytes | Mapping)


def _copied(message: Message) -> Message:
    """Return a deep copy of `message`; its lists and dicts may be nested to any depth."""
    copied = dict(message)
    stack: list[Any] = [copied]
    while stack:
        part = stack.pop()
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(value, dict | list):
                part[key] = value.copy()
                stack.append(part[key])
    return copied


def _call(name: object, arguments: object) -> Call:  # malformed arguments count as none
    return call_alone(str(name), arguments if isinstance(arguments, dict) else {})


def _has_same_content(message: object, known: object) -> bool:
    """Return True if `message` has the content of the message `known`, whatever its type and cache marks are."""
    if message is known or message == known:
        return True
    return message_digest(plain_message(message)) == message_digest(plain_message(known))


def _role_and_ids(message: Message) -> tuple[str, list[str], list[str]]:
    """Return the role of `message`, the ids of its calls, and the ids of the calls that it answers."""
    return message["role"], call_ids(message), result_ids(message)
