"""Differences between the history and the list that is sent: the plan in force, placeholders and additions, as pure
data.

A tier returns `Edits`, `draft` makes a `Frame` of them, and a `View` is the list of that frame. A view begins with its
head, the compacted part, which replaces the first messages of the history; then it follows the history. Writes nothing:
a frame is sent only after `applier.session.persistence.commit` has stored what it removes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from applier.session.history_tracker import HistoryTracker
from applier.view import laid_out
from planner.layout import inner_mark, without_thinking
from planner.placeholders import clean
from planner.plan import CompactionPlan
from planner.reading.lazy import lazy_property
from planner.reading.media import PICTURES, Load, load_of
from planner.reading.messages import Block, Message, blocks, plain_message, unmarked
from planner.settings import RESTORE_TOOL

Place = tuple[int, int]
"""Index of a message in the history, and index of a block in that message."""

_ONLY_THINKING = "(thinking left out)"
"""Text that replaces an assistant message with only thinking, since roles must alternate."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Changes requested by a tier. They contain no message, so they cannot be sent."""

    reason: str
    """Reason for the change, in one line for the log."""
    plan: CompactionPlan | None = None
    placeholders: Mapping[Place, str] = field(default_factory=dict)
    """Texts that replace tool results or a user's text. `draft` adds a line on how to restore the original."""
    additions: Mapping[int, str] = field(default_factory=dict)
    """Texts to add at the end of user messages."""
    head: tuple[object, ...] = ()
    """Messages that replace the compacted part; empty if it does not change."""
    unweighed_from: int | None = None
    """Index of the first message that the plan has not decided on; results from there on stay shortened if they are.
    None: the plan decided on all but the live tail, so a result that it keeps is sent whole again."""


@dataclass(frozen=True)
class Frame:
    """Difference between the history and the list that is sent; an empty frame sends the history unchanged."""

    plan: CompactionPlan | None = None
    plan_id: str = ""
    """Id of the plan in the store; empty until it is stored."""
    head: tuple[object, ...] = ()
    """Compacted part: messages that replace the first `start` messages of the history."""
    start: int = 0
    """Index from which the list follows the history message by message."""
    placeholders: Mapping[Place, str] = field(default_factory=dict)
    additions: Mapping[int, str] = field(default_factory=dict)
    unthinking: frozenset[int] = frozenset()
    """Indices of messages sent without their thinking, as something before them was changed after they were written."""

    @lazy_property
    def edited(self) -> frozenset[int]:
        """Indices of the messages from `start` on that are sent with changes."""
        return frozenset(message for message, _ in self.placeholders) | self.additions.keys() | self.unthinking

    @property
    def is_empty(self) -> bool:
        """True if the frame changes nothing."""
        return not (self.plan or self.head or self.placeholders or self.additions or self.unthinking)

    def before(self, message: int) -> Frame:
        """Return this frame without its changes to message `message` of the history and later ones.

        If the head replaces that message, the frame becomes empty.
        """
        if message < self.start or message == 0:
            return Frame()
        return replace(
            self,
            placeholders={at: text for at, text in self.placeholders.items() if at[0] < message},
            additions={at: text for at, text in self.additions.items() if at < message},
            unthinking=frozenset(at for at in self.unthinking if at < message),
        )

    def unthought(self, plain: Sequence[Message], since: int) -> Frame:
        """Return this frame without the thinking of the history's messages from index `since` on.

        `plain`: the whole history. If these messages have no thinking, the frame itself is returned.
        """
        behind = range(max(since, self.start), len(plain))
        thought = {at for at in behind if without_thinking(plain[at]) is not plain[at]} - self.unthinking
        return replace(self, unthinking=self.unthinking | thought) if thought else self


def draft(frame: Frame, edits: Edits, tracker: HistoryTracker, key: str, restore_tool: str = RESTORE_TOOL) -> Frame:
    """Return `frame` with `edits` made; `bound` must still check its thinking before it is sent.

    `key`: the key under which the originals will be stored. `restore_tool`: the agent's tool that restores them, empty
    if it has none.
    """
    if edits.plan is not None:
        frame = _planned(frame, edits.plan, tracker, edits.unweighed_from)
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
    return replace(
        frame,
        head=edits.head or _head_with(frame, [text for at, text in edits.additions.items() if at < frame.start]),
        placeholders={**frame.placeholders, **placeholders},
        additions={**frame.additions, **additions},
    )


def _planned(frame: Frame, plan: CompactionPlan, tracker: HistoryTracker, unweighed_from: int | None) -> Frame:
    """Return the frame of `plan`, with the changes of `frame` to the live tail and to messages from `unweighed_from` on
    (see `Edits`)."""
    known = plan.history.messages
    layout = laid_out(plan, tracker.originals[:known])
    stop = len(layout.messages) - layout.untouched
    head, start = layout.messages[:stop], known - layout.untouched
    live = known
    while live > 0 and tracker.plain[live - 1]["role"] == "user":
        live -= 1
    goes_on = max(start, live if unweighed_from is None else min(live, unweighed_from))
    return Frame(
        plan,
        head=tuple(unmarked(m) if isinstance(m, dict) else m for m in head),  # their cache marks are old
        start=start,
        placeholders={at: text for at, text in frame.placeholders.items() if at[0] >= goes_on},
        additions={at: text for at, text in frame.additions.items() if at >= known},
        unthinking=frozenset(at for at in frame.unthinking if at >= goes_on),
    )


def _head_with(frame: Frame, texts: Sequence[str]) -> tuple[object, ...]:
    """Return the head of `frame` with `texts` added to its last message.

    If there is no head, or its last message is not the user's, the texts are dropped and the head is unchanged.
    """
    last = plain_message(frame.head[-1]) if texts and frame.head else None
    if last is None or last["role"] != "user":
        return frame.head
    content = [*blocks(last), *({"type": "text", "text": text} for text in texts)]
    return (*frame.head[:-1], {**last, "content": content})


def _restore_line(tracker: HistoryTracker, place: Place, key: str, restore_tool: str) -> str:
    """Return the line with the id of the original, and how the agent gets it, if it has a tool for that."""
    message, block = place
    reference = f"{key}:{tracker.turn_id(message)}"
    content = blocks(tracker.plain[message])[block].get("content")
    media = _counted_media(content) if isinstance(content, list) else ""
    if not restore_tool:
        return f"[stored as {reference}{media}]"
    return f'[stored: {restore_tool}("{reference}") returns it whole{media}]'


def _counted_media(content: Sequence[object]) -> str:
    """Return the number of media as text: ``, with 2 images and 1 document``; empty without media."""
    kinds = [item.get("type") for item in content if isinstance(item, dict)]
    counts = ((kind, kinds.count(kind)) for kind in ("image", "document"))
    named = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts if count]
    return f", with {' and '.join(named)}" if named else ""


def message_at(frame: Frame, tracker: HistoryTracker, index: int) -> object:
    """Return the message sent for message `index` of the history, from ``frame.start`` on: the original if unedited."""
    if index not in frame.edited:
        return tracker.originals[index]
    plain = tracker.plain[index]
    before = blocks(plain)
    content = [_with_text(block, frame.placeholders.get((index, at))) for at, block in enumerate(before)]
    if index in frame.additions:
        content.append({"type": "text", "text": frame.additions[index]})
    edited = {**plain, "content": content}
    message = without_thinking(edited) if index in frame.unthinking else edited
    return message or {"role": "assistant", "content": [{"type": "text", "text": _ONLY_THINKING}]}


def _with_text(block: Block, text: str | None) -> Block:
    """Return `block` with `text` as its content; `block` itself if `text` is None or it is of another type.

    A tool result keeps a cache mark that was inside it. A picture becomes a text.
    """
    if text is not None and block["type"] == "text":
        return {**block, "text": text}
    if text is not None and block["type"] in PICTURES:
        return {"type": "text", "text": text, **inner_mark({"content": [block]})}
    if text is None or block["type"] != "tool_result":
        return block
    return {**block, **inner_mark(block), "content": text}


def first_disagreement(one: Frame, other: Frame) -> int | None:
    """Return the index of the first message of the history that the two frames send differently.

    0 if their heads differ, None if they send the same list.
    """
    if one.start != other.start or one.head != other.head:
        return 0
    placed = {message for (message, _), _ in one.placeholders.items() ^ other.placeholders.items()}
    added = {message for message, _ in one.additions.items() ^ other.additions.items()}
    return min(placed | added | (one.unthinking ^ other.unthinking), default=None)


def bound(frame: Frame, sent: Frame, tracker: HistoryTracker, since: int = 0) -> Frame:
    """Return `frame` without the thinking that the model would refuse, in messages from index `since` on.

    Some models bind thinking to everything before it. So all thinking after the first difference between the list of
    `frame` and the list of the frame `sent`, which the model has seen, is refused.
    """
    first = first_disagreement(frame, sent)
    return frame if first is None else frame.unthought(tracker.plain, max(first, since))


@dataclass(frozen=True, slots=True)
class View:
    """List that a frame makes of the whole history, with its tokens."""

    messages: list[object] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    """Tokens of each message, by the tracker's counter."""
    total: int = 0
    """Tokens of all messages."""
    load: Load = field(default_factory=Load)
    """Pictures and bytes of all messages."""

    @classmethod
    def of(cls, frame: Frame, tracker: HistoryTracker) -> View:
        """Return the list of `frame` for the whole history."""
        plain = [plain_message(message) for message in frame.head]
        counted, load = [tracker.counter.message(message) for message in plain], sum(map(load_of, plain), Load())
        return cls(list(frame.head), counted, sum(counted), load).extended(frame, tracker, frame.start)

    def extended(self, frame: Frame, tracker: HistoryTracker, start: int) -> View:
        """Return this view with the history's messages from index `start` on added, as `frame` sends them."""
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
    """Return the index of the first message of `before` that differs in `after`; None if `after` begins with
    `before`."""
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if old is not new and old != new:
            return at
    return None if len(after) >= len(before) else len(after)
