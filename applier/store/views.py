"""Originals of a list that begins with one of our views: stored with each view, looked up for each list.

A view is identified by the digest of its messages, for the same owner in the same store, never by its text, so a pasted
or forged view restores nothing. Neighbours of one role count as one message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from applier.store.store import Store
from planner.errors import ReferenceNotFound
from planner.layout import joined_messages
from planner.placeholders import first_note
from planner.plan import CompactionPlan
from planner.reading.history import History
from planner.reading.messages import Message, blocks, call_ids, message_digest, plain_message, result_ids

__all__ = ["Earlier", "holds_view", "originals_behind", "remember_view"]

MOST_ALIKE = 8
"""Largest number of remembered views with the same first note."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Originals of a list that begins with a view."""

    messages: list[Any]
    """Whole list from its beginning: `start` originals, read from the store, then the caller's later messages: the same
    objects, except that a message which the view had shortened is its original again."""
    head: int
    """Number of messages at the beginning of the caller's list that the originals replace."""
    start: int
    """Number of originals that the view had replaced."""
    key: str
    """Key of the history in the store."""
    plan_id: str
    plan: CompactionPlan | None
    """Plan from which the view was made; None if it is not stored."""


def holds_view(messages: Sequence[object]) -> bool:
    """Return True if something in `messages` looks like a view, ours or not."""
    return first_note(list(map(plain_message, messages))) is not None


def remember_view(
    store: Store, view: Sequence[object], history: History, start: int, *, owner: str = "", key: str, plan_id: str
) -> None:
    """Record that `view` was made from `history` (key `key`): the last messages of both, from `start` of the history
    on, correspond one to one; the head of the view replaces the rest. Only the same `owner` can look it up."""
    plain = [plain_message(message) for message in view]
    head = len(plain) - (len(history.messages) - start)
    joined = joined_messages((), plain[:head])
    note = first_note(joined)
    if note is None:
        return
    edited = {  # messages after the head that the view changed: their positions in the history, their digests
        str(at): message_digest(plain[at - start + head])
        for at in range(start, len(history.messages))
        if view[at - start + head] is not history.originals[at]
    }
    name, digest = _name(owner, joined[: note + 1]), _digest(joined)
    row = {"history": key, "plan": plan_id, "head": len(joined), "digest": digest, "start": start, "edited": edited}
    others = [one for one in store.get_state(name) or [] if one["digest"] != digest]
    if row not in others:
        store.set_state(name, [*others, row][-MOST_ALIKE:])


def originals_behind(store: Store, messages: Sequence[object], owner: str = "") -> Earlier | None:
    """Return the originals of `messages`; None if they do not begin with a view of `owner` in `store`."""
    plain = [plain_message(message) for message in messages]
    joined = joined_messages((), plain)
    note = first_note(joined)
    if note is None:
        return None
    for row in reversed(store.get_state(_name(owner, joined[: note + 1])) or []):
        if _digest(joined[: row["head"]]) == row["digest"]:
            return _earlier(store, messages, plain, row)
    return None


def _earlier(store: Store, messages: Sequence[object], plain: Sequence[Message], row: Mapping[str, Any]) -> Earlier:
    """Return the originals of `messages` (`plain`: as plain data), which begin with the view recorded in `row`."""
    # the recorded head counts neighbours of one role as one message
    role_changes = [at for at in range(1, len(plain)) if plain[at]["role"] != plain[at - 1]["role"]]
    head = [*role_changes, len(plain)][row["head"] - 1]
    stored, start, edited = store.load_history(row["history"]), row["start"], row["edited"]
    later = [
        stored.messages[at] if edited and edited.get(str(at)) == message_digest(as_plain) else message
        for at, (as_plain, message) in enumerate(zip(plain[head:], messages[head:], strict=True), start)
    ]
    plan = None
    with suppress(ReferenceNotFound):
        plan = store.load_plan(row["plan"]) if row["plan"] else None
    later_ids = {call_id for message in plain[head:] for call_id in call_ids(message)}
    earlier = [_with_other_ids(message, later_ids, row["history"]) for message in stored.messages[:start]]
    return Earlier([*earlier, *later], head, start, row["history"], row["plan"], plan)


def _with_other_ids(message: Message, later_ids: set[str], key: str) -> Message:
    """Return `message` with `key` appended to the ids of calls that later calls use again: after a view, a host may
    number its calls from 1."""
    if later_ids.isdisjoint((*call_ids(message), *result_ids(message))):
        return message
    content = []
    for block in blocks(message):
        changed = {field: f"{block[field]}-{key}" for field in ("id", "tool_use_id") if block.get(field) in later_ids}
        content.append({**block, **changed})
    return {**message, "content": content}


def _name(owner: str, opening: Sequence[Message]) -> str:
    return f"view:{owner}:{_digest(opening)}"


def _digest(messages: Sequence[Message]) -> str:
    return hashlib.sha256("".join(map(message_digest, messages)).encode()).hexdigest()
