"""What is sent in place of the history: the plan in force, stand-ins and additions, as pure data.

Draws up frames and the lists they give. Writes nothing: a frame is sent only after `commit` has stored what
it removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from applier.session.edits import Addition, Edits, StandIn
from applier.session.ledger import Ledger
from applier.view import preview
from planner.layout.thinking import ThinkingPolicy, without_thinking
from planner.plan import CompactionPlan
from planner.reading.messages import Message, blocks, plain_message

__all__ = ["Frame", "Place", "draft", "message_at", "unmarked"]

Place = tuple[int, int]
"""Message of the history, and block in it."""

_ONLY_THINKING = "(thinking left out)"
"""What stands where an assistant message held nothing else: roles must go on alternating."""


@dataclass(frozen=True)
class Frame:
    """How the history stands in the list that is sent; the empty frame sends it as it is."""

    plan: CompactionPlan | None = None
    head: tuple[object, ...] = ()
    """Messages that stand for the first `start` messages of the history."""
    start: int = 0
    """From here on the list and the history go message by message."""
    stand_ins: Mapping[Place, str] = field(default_factory=lambda: MappingProxyType({}))
    additions: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    unthinking: frozenset[int] = frozenset()
    """Messages that are sent without their thinking: something before them changed after it was thought."""

    @property
    def offset(self) -> int:
        """What to add to an index of the history, from `start` on, to have it in the list."""
        return len(self.head) - self.start

    @cached_property
    def edited(self) -> frozenset[int]:
        """Messages of the history, from `start` on, that are not sent as they are."""
        return frozenset(message for message, _ in self.stand_ins) | self.additions.keys() | self.unthinking

    @property
    def is_empty(self) -> bool:
        """True if nothing stands in place of anything."""
        return not (self.plan or self.stand_ins or self.additions)


def draft(frame: Frame, edits: Edits, ledger: Ledger, key: str, thinking: ThinkingPolicy) -> Frame:
    """`frame` with `edits` made: what would be sent if they are committed.

    `key` names the history under which the originals will be stored.
    """
    if edits.plan is not None:
        frame = _planned(frame, edits.plan, ledger, edits.unweighed_from)
    stand_ins = {
        (made.message, made.block): f"{made.text}\n{_cure(ledger, made, key)}"
        for made in edits.stand_ins
        if made.message >= frame.start
    }
    frame = replace(frame, head=_with_additions(frame, edits.additions))
    additions = _joined_additions(frame, edits.additions)
    touched = [message for message, _ in stand_ins] + list(additions)
    unthinking = _late_thinking(ledger, min(touched)) if touched and thinking == "strip" else frozenset()
    return replace(
        frame,
        stand_ins=MappingProxyType({**frame.stand_ins, **stand_ins}),
        additions=MappingProxyType({**frame.additions, **additions}),
        unthinking=frame.unthinking | unthinking,
    )


def _planned(frame: Frame, plan: CompactionPlan, ledger: Ledger, unweighed_from: int | None) -> Frame:
    """The frame of `plan`; what was done to the live tail, and to what else it has not weighed, goes on."""
    known = plan.history.messages
    rendered = preview(plan, ledger.originals[:known]).messages
    same = 0
    while same < min(len(rendered), known) and rendered[-1 - same] is ledger.originals[known - 1 - same]:
        same += 1
    start = known - same
    live = _live_start(ledger, known)
    goes_on = max(start, live if unweighed_from is None else min(live, unweighed_from))
    return Frame(
        plan,
        tuple(unmarked(message) for message in rendered[: len(rendered) - same]),
        start,
        MappingProxyType({at: text for at, text in frame.stand_ins.items() if at[0] >= goes_on}),
        MappingProxyType({at: text for at, text in frame.additions.items() if at >= known}),
        frozenset(at for at in frame.unthinking if at >= goes_on),
    )


def _live_start(ledger: Ledger, known: int) -> int:
    """Where the live tail of the first `known` messages begins."""
    at = known
    while at > 0 and ledger.plain[at - 1]["role"] == "user":
        at -= 1
    return at


def _with_additions(frame: Frame, additions: Iterable[Addition]) -> tuple[object, ...]:
    """The head, with what is added to a message that it stands for behind its own last user message."""
    texts = [added.text for added in additions if added.message < frame.start]
    if not texts or not frame.head:
        return frame.head
    last = plain_message(frame.head[-1])
    if last["role"] != "user":
        return frame.head
    content = [*blocks(last), *({"type": "text", "text": text} for text in texts)]
    return (*frame.head[:-1], {**last, "content": content})


def _joined_additions(frame: Frame, additions: Iterable[Addition]) -> dict[int, str]:
    joined: dict[int, str] = {}
    for added in additions:
        if added.message >= frame.start:
            before = joined.get(added.message) or frame.additions.get(added.message)
            joined[added.message] = f"{before}\n{added.text}" if before else added.text
    return joined


def _cure(ledger: Ledger, made: StandIn, key: str) -> str:
    return f'[stored: restore_context("{key}:{ledger.turn_id(made.message)}") returns it whole]'


def _late_thinking(ledger: Ledger, first: int) -> frozenset[int]:
    """Messages behind `first` whose thinking no longer follows what it was thought after."""
    return frozenset(
        at for at in range(first + 1, len(ledger)) if without_thinking(ledger.plain[at]) is not ledger.plain[at]
    )


def message_at(frame: Frame, ledger: Ledger, index: int) -> object:
    """What is sent for message `index` of the history, from ``frame.start`` on: the original if unedited."""
    if index not in frame.edited:
        return ledger.originals[index]
    content = [
        {**block, "content": frame.stand_ins[index, at]} if (index, at) in frame.stand_ins else block
        for at, block in enumerate(blocks(ledger.plain[index]))
    ]
    if index in frame.additions:
        content.append({"type": "text", "text": frame.additions[index]})
    message: Message | None = {**ledger.plain[index], "content": content}
    if message is not None and index in frame.unthinking:
        message = without_thinking(message)
    return message or {"role": "assistant", "content": [{"type": "text", "text": _ONLY_THINKING}]}


def unmarked(message: object) -> object:
    """`message` without cache marks: those of a compacted region are stale, and a request has four."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    content: Sequence[object] = message["content"]
    if not any(isinstance(block, dict) and "cache_control" in block for block in content):
        return message
    bare = [
        {name: value for name, value in block.items() if name != "cache_control"} if isinstance(block, dict) else block
        for block in content
    ]
    return {**message, "content": bare}
