"""Differences between the full conversation (the history) and the list of messages that is sent, as pure data.

A tier (one way to shorten the list) returns `Edits`. `draft` makes a `Frame` of them, which holds all differences, and
a `View` is the resulting list. The list begins with the compacted part (`head`), which replaces the first messages of
the history; after it, the list follows the history. Nothing is stored here: `Ledger.commit` first stores what a
frame leaves out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from propcache.api import cached_property

from applier.session.history_tracker import HistoryTracker, Load, load_of
from applier.session.request import AgentCall
from applier.view import laid_out
from planner.layout import inner_mark, without_thinking
from planner.placeholders import clean
from planner.plan import CompactionPlan
from planner.reading.messages import PICTURES, Block, Message, blocks, plain_message, unmarked

Place = tuple[int, int]
"""Position of a block: index of its message in the history, and its index in that message."""

_ONLY_THINKING = "(thinking left out)"
"""Text sent in place of an assistant message with nothing but thinking, if that is left out: roles must alternate."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Changes to the sent list that a tier (one way to shorten it) asks for. `draft` makes them part of a `Frame`."""

    reason: str
    """Reason for the change, in one line for the log."""
    plan: CompactionPlan | None = None
    placeholders: Mapping[Place, str] = field(default_factory=dict)
    """Short texts to send in place of tool results or a user's text; `draft` adds a line on how to restore them."""
    additions: Mapping[int, str] = field(default_factory=dict)
    """Texts to add at the end of user messages, by the index of the message."""
    head: tuple[object, ...] = ()
    """Messages to send in place of the beginning of the history; empty if these stay as they are now."""
    undecided_from: int | None = None
    """Index of the first message that `plan` did not decide on. Tool results from there on stay shortened if they are.
    None: the plan decided on all but the newest, unanswered messages, so that results it keeps are sent whole again."""


@dataclass(frozen=True)
class Frame:
    """All changes that make the sent list from the history (the full conversation); without any, it is the history."""

    plan: CompactionPlan | None = None
    plan_id: str = ""
    """Id of `plan` in the store; empty until it is stored."""
    head: tuple[object, ...] = ()
    """Compacted part of the list: messages that are sent in place of the first `start` messages of the history."""
    start: int = 0
    """Number of messages at the beginning of the history that `head` replaces."""
    placeholders: Mapping[Place, str] = field(default_factory=dict)
    """Short texts that are sent in place of single blocks of later messages."""
    additions: Mapping[int, str] = field(default_factory=dict)
    """Texts that are added at the end of user messages, by the index of the message."""
    unthinking: frozenset[int] = frozenset()
    """Indices of messages sent without their thinking (the model's reasoning). Something before them was changed after
    they were written, so the API may refuse it."""

    @cached_property
    def edited(self) -> frozenset[int]:
        """Indices of the messages, after the replaced beginning, that are not sent as they are in the history."""
        return frozenset(message for message, _ in self.placeholders) | self.additions.keys() | self.unthinking

    @property
    def is_empty(self) -> bool:
        """True if there are no changes, so that the history is sent as it is."""
        return not (self.plan or self.head or self.placeholders or self.additions or self.unthinking)

    def up_to(self, message: int) -> Frame:
        """Return this frame with only its changes to messages before index `message`, from which on the caller sent
        others. If the replaced beginning of the history includes that message, the result is an empty frame."""
        if message < self.start or message == 0:
            return Frame()
        return replace(
            self,
            placeholders={at: text for at, text in self.placeholders.items() if at[0] < message},
            additions={at: text for at, text in self.additions.items() if at < message},
            unthinking=frozenset(at for at in self.unthinking if at < message),
        )

    @property
    def _read_messages(self) -> int:
        """Number of messages at the beginning of the history that the compacted part may quote. These are all that the
        plan covers: its brief (page of memory at the top) quotes kept messages, too."""
        return max(self.start, self.plan.history.messages if self.plan else 0)

    def has_text_of(self, edited: Collection[int]) -> bool:
        """Return True if a text that this frame sends may hold the old content of the messages `edited` (indices)."""
        is_replaced = any(at < self._read_messages for at in edited)
        return is_replaced or any(message in edited for message, _ in self.placeholders)

    def without_text_of(self, edited: Collection[int]) -> Frame:
        """Return this frame without all texts that may hold the old content of the messages `edited` (indices), after
        the caller changed these in place. Without any such text, the frame itself is returned."""
        if not self.has_text_of(edited):
            return self
        first = min(edited)
        frame = replace(
            self,
            placeholders={place: text for place, text in self.placeholders.items() if place[0] not in edited},
            additions={at: text for at, text in self.additions.items() if at <= first},  # later ones may quote it
        )
        if first >= self._read_messages:
            return frame
        return replace(frame, plan=None, plan_id="", head=(), start=0)  # the compacted part may quote it, too

    def without_thinking_from(self, plain: Sequence[Message], since: int) -> Frame:
        """Return this frame changed to leave out the thinking of all messages from index `since` on. `plain`: the whole
        history. If these messages have no thinking, the frame itself is returned."""
        later = range(max(since, self.start), len(plain))
        with_thinking = {at for at in later if without_thinking(plain[at]) is not plain[at]} - self.unthinking
        return replace(self, unthinking=self.unthinking | with_thinking) if with_thinking else self


def draft(frame: Frame, edits: Edits, tracker: HistoryTracker, key: str, restore_tool: str = "") -> Frame:
    """Return `frame` (the changes that make the sent list) with the `edits` that a tier wants added.

    `without_refused_thinking` must check the result before it is sent. `key`: key under which the originals will be
    stored. `restore_tool`: name of the agent's tool that restores them, for the short texts; empty if it has none.
    """
    if edits.plan is not None:
        frame = _planned(frame, edits.plan, tracker, edits.undecided_from)
    placeholders = {
        place: f"{clean(text)}\n{_restore_line(tracker, place, key, restore_tool)}"
        for place, text in edits.placeholders.items()
        if place[0] >= frame.start
    }
    additions = {
        at: f"{frame.additions[at]}\n{text}" if at in frame.additions else text
        for at, text in edits.additions.items()
        if at >= frame.start
    }
    to_head = [text for at, text in edits.additions.items() if at < frame.start]  # their messages are compacted
    return replace(
        frame,
        head=edits.head or _head_with(frame, to_head),
        placeholders={**frame.placeholders, **placeholders},
        additions={**frame.additions, **additions},
    )


def _planned(frame: Frame, plan: CompactionPlan, tracker: HistoryTracker, undecided_from: int | None) -> Frame:
    """Return the frame that carries out a new `plan`. It keeps those changes of the old `frame` that the plan does not
    decide on: to the newest, unanswered messages, and to messages from `undecided_from` on (see `Edits`)."""
    planned_messages = plan.history.messages
    layout = laid_out(plan, tracker.originals[:planned_messages])
    stop = len(layout.messages) - layout.untouched
    head, start = layout.messages[:stop], planned_messages - layout.untouched
    live_start = planned_messages
    while live_start > 0 and tracker.plain[live_start - 1]["role"] == "user":  # not answered yet
        live_start -= 1
    kept_from = max(start, live_start if undecided_from is None else min(live_start, undecided_from))
    return Frame(
        plan,
        head=tuple(unmarked(m) if isinstance(m, dict) else m for m in head),  # their cache marks are old
        start=start,
        placeholders={at: text for at, text in frame.placeholders.items() if at[0] >= kept_from},
        additions={at: text for at, text in frame.additions.items() if at >= planned_messages},
        unthinking=frozenset(at for at in frame.unthinking if at >= kept_from),
    )


def _head_with(frame: Frame, texts: Sequence[str]) -> tuple[object, ...]:
    """Return the messages that replace the history's beginning, with `texts` added to the last of them. If there are
    none, or the last one is not the user's, they are returned unchanged and the texts are lost."""
    last = plain_message(frame.head[-1]) if texts and frame.head else None
    if last is None or last["role"] != "user":
        return frame.head
    content = [*blocks(last), *({"type": "text", "text": text} for text in texts)]
    return (*frame.head[:-1], {**last, "content": content})


def _restore_line(tracker: HistoryTracker, place: Place, key: str, restore_tool: str) -> str:
    """Return the line below a shortened content by which the agent gets the original: ``[stored as h1a2:t5]``."""
    message, block = place
    reference = f"{key}:{tracker.turn_id(message)}"
    content = blocks(tracker.plain[message])[block].get("content")
    media = _counted_media(content) if isinstance(content, list) else ""
    if not restore_tool:
        return f"[stored as {reference}{media}]"
    return f'[stored: {restore_tool}("{reference}") returns it whole{media}]'


def _counted_media(content: Sequence[object]) -> str:
    """Return the number of pictures and documents as text: ``, with 2 images and 1 document``; empty without any."""
    kinds = [item.get("type") for item in content if isinstance(item, dict)]
    counts = ((kind, kinds.count(kind)) for kind in ("image", "document"))
    texts = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts if count]
    return f", with {' and '.join(texts)}" if texts else ""


def message_at(frame: Frame, tracker: HistoryTracker, index: int) -> object:
    """Return message `index` of the history as it is sent, with the changes of `frame`; the same object if it has none.
    The message must come after the replaced beginning of the history."""
    if index not in frame.edited:
        return tracker.originals[index]
    message = with_texts(tracker.plain[index], frame.placeholders, index, frame.additions.get(index, ""))
    if index in frame.unthinking:
        message = without_thinking(message)
    return message or {"role": "assistant", "content": [{"type": "text", "text": _ONLY_THINKING}]}


def with_texts(message: object, texts: Mapping[Place, str], index: int, addition: str = "") -> Any:
    """Return `message`, which has this `index`, with `texts` in place of some of its blocks, and with the text
    `addition` at its end. If that changes nothing, the same object is returned."""
    plain = plain_message(message)
    content = [_with_text(block, texts.get((index, at))) for at, block in enumerate(blocks(plain))]
    if addition:
        content.append({"type": "text", "text": addition})
    return message if content == blocks(plain) else {**plain, "content": content}


def _with_text(block: Block, text: str | None) -> Block:
    """Return `block` with `text` in place of its content, for a tool result, a text or a picture (which becomes a
    text). Cache marks stay. Other blocks, or any block if `text` is None, are returned unchanged."""
    if text is not None and block["type"] == "text":
        return {**block, "text": text}
    if text is not None and block["type"] in PICTURES:
        return {"type": "text", "text": text, **inner_mark({"content": [block]})}  # with the picture's cache mark
    if text is None or block["type"] != "tool_result":
        return block
    return {**block, **inner_mark(block), "content": text}


def first_disagreement(frame: Frame, other_frame: Frame) -> int | None:
    """Return the index of the first message of the history that two sets of changes (frames) send differently. 0 if
    they replace the beginning differently, None if they send the same list."""
    if frame.start != other_frame.start or frame.head != other_frame.head:
        return 0
    replaced = {message for (message, _), _ in frame.placeholders.items() ^ other_frame.placeholders.items()}
    extended = {message for message, _ in frame.additions.items() ^ other_frame.additions.items()}
    return min(replaced | extended | (frame.unthinking ^ other_frame.unthinking), default=None)


def without_refused_thinking(frame: Frame, sent: Frame, tracker: HistoryTracker, since: int = 0) -> Frame:
    """Return `frame` without the thinking that the API would refuse, in messages from index `since` on. Some models
    accept their thinking only after exactly the messages that preceded it. So all thinking after the first difference
    between the list of `frame` and the list last sent (by the frame `sent`) is left out."""
    first = first_disagreement(frame, sent)
    return frame if first is None else frame.without_thinking_from(tracker.plain, max(first, since))


@dataclass(frozen=True, slots=True)
class View:
    """List that is sent to the model, made of the whole history and the changes of a frame, with its size."""

    messages: list[object] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    """Tokens of each message, by our counter."""
    total: int = 0
    """Tokens of all messages together."""
    load: Load = field(default_factory=Load)
    """Number of pictures and size in bytes of all messages together."""

    @classmethod
    def of(cls, frame: Frame, tracker: HistoryTracker) -> View:
        """Return the list that results from applying the changes of `frame` to the whole history."""
        plain = [plain_message(message) for message in frame.head]
        counted, load = [tracker.counter.message(message) for message in plain], sum(map(load_of, plain), Load())
        return cls(list(frame.head), counted, sum(counted), load).extended(frame, tracker, frame.start)

    def extended(self, frame: Frame, tracker: HistoryTracker, start: int) -> View:
        """Return this list and, after it, the messages of the history from index `start` on, changed by `frame`."""
        messages, counted, total, load = [*self.messages], [*self.counted], self.total, self.load
        for index in range(start, len(tracker)):
            message = message_at(frame, tracker, index)
            is_original = message is tracker.originals[index]
            messages.append(message)
            plain = plain_message(message)
            counted.append(tracker.counted[index] if is_original else tracker.counter.message(plain))
            total, load = total + counted[-1], load + (tracker.loads[index] if is_original else load_of(plain))
        return View(messages, counted, total, load)


def first_difference(before: Sequence[object], after: Sequence[object]) -> int | None:
    """Return the index of the first message of `before` that `after` has not at the same place; None without one."""
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if old is not new and old != new:
            return at
    return None if len(after) >= len(before) else len(after)


LONG_TTL = "1h"
"""Longer one of the two lifetimes of cached content, as written in a mark for the prompt cache."""
MAX_CACHE_MARKS = 4
"""Largest number of ``cache_control`` marks in one request (Anthropic, prompt caching)."""


def with_breakpoint(messages: Sequence[object], frame: Frame, tracker: HistoryTracker, call: AgentCall) -> list[object]:
    """Return `messages`, which `frame` made, with a prompt-cache mark at the end of the compacted part.

    So the provider caches that part, which stays the same in later calls. The mark is set only if the caller sets
    marks, and one more is allowed. It has the longer lifetime if a mark of the caller on a message has it, and if all
    marks in system prompt and tools do: the API refuses a longer lifetime after a shorter one.
    """
    head, marked_messages = len(frame.head), [*messages]
    marks = tracker.marks_between(frame.start, len(tracker)) + ([call.cache_control] if call.cache_control else [])
    all_marks = tracker.marks_between(0, frame.start) + marks
    if not head or not all_marks or len(marks) + len(call.marks) >= MAX_CACHE_MARKS:
        return marked_messages
    may_be_long = all(mark.get("ttl") == LONG_TTL for mark in call.marks)  # those of system prompt and tools
    mark = next((mark for mark in all_marks if may_be_long and mark.get("ttl") == LONG_TTL), all_marks[-1])
    last = plain_message(marked_messages[head - 1])
    content = [*blocks(last)]
    # the API accepts no mark on an empty text or on thinking
    if content and content[-1]["type"] in ("text", "tool_result", "tool_use") and content[-1].get("text") != "":
        content[-1] = {**content[-1], "cache_control": dict(mark)}
        marked_messages[head - 1] = {**last, "content": content}
    return marked_messages
