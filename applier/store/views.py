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
    """Whole list from its beginning: originals, and the caller's later messages as their own objects."""
    head: int
    """Number of messages of the list that replace the first `start` messages."""
    start: int
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
    """Store that `view` shows `history` with the key `key`: the messages from `start` on one by one, the earlier ones
    by its head; only a look-up for the same `owner` returns it."""
    plain = [plain_message(message) for message in view]
    head = len(plain) - (len(history.messages) - start)
    joined = joined_messages((), plain[:head])
    note = first_note(joined)
    if note is None:
        return
    edited = {
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
    changes = [at for at in range(1, len(plain)) if plain[at]["role"] != plain[at - 1]["role"]]
    head = [*changes, len(plain)][row["head"] - 1]
    stored, start, edited = store.load_history(row["history"]), row["start"], row["edited"]
    behind = [
        stored.messages[at] if edited and edited.get(str(at)) == message_digest(message) else own
        for at, (message, own) in enumerate(zip(plain[head:], messages[head:], strict=True), start)
    ]
    plan = None
    with suppress(ReferenceNotFound):
        plan = store.load_plan(row["plan"]) if row["plan"] else None
    taken = {name for message in plain[head:] for name in call_ids(message)}
    hidden = [_apart(message, taken, row["history"]) for message in stored.messages[:start]]
    return Earlier([*hidden, *behind], head, start, row["history"], row["plan"], plan)


def _apart(message: Message, taken: set[str], key: str) -> Message:
    """Return `message` with new ids for calls whose ids are `taken` later: a host may count its calls from the start
    after a view."""
    if taken.isdisjoint((*call_ids(message), *result_ids(message))):
        return message
    content = []
    for block in blocks(message):
        names = {name: f"{block[name]}-{key}" for name in ("id", "tool_use_id") if block.get(name) in taken}
        content.append({**block, **names})
    return {**message, "content": content}


def _name(owner: str, opening: Sequence[Message]) -> str:
    return f"view:{owner}:{_digest(opening)}"


def _digest(messages: Sequence[Message]) -> str:
    return hashlib.sha256("".join(map(message_digest, messages)).encode()).hexdigest()
