"""Deletes conversations that nobody used for long, or the oldest ones if the store is too large.

Content that a live conversation refers to is never deleted. A conversation is live if it was saved, continued or
restored from within a day (or the time to keep, if longer). It refers to the histories that it extends, that its states
(named JSON values) name, or that its messages mention.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from applier.store.backend import Backend
from applier.store.forgetting import HistoryFamily, Relations, names_in, remove_histories, sessions_of
from applier.store.records import Node, StoredHistory, bodies, in_parts, read, unpack
from applier.store.store import Store
from planner.errors import SettingsError
from planner.plan import Finding

LIVE_SECONDS = 86_400.0
"""Time since its last use in which a conversation is never deleted. A session records its use once an hour."""

_MENTION = re.compile(rb"[h:]([0-9a-f]{8,64})")
"""Text in a message that may be the key of a history: ``h1a2b3c4d:t12``. Also matches other texts, such as
``id:12345678``; then a history may be kept without need."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """Result of deleting old conversations, or in a dry run what would be deleted."""

    histories: tuple[StoredHistory, ...]
    """Deleted histories, oldest first."""
    kept: int
    """Number of histories that stay in the store."""
    events: int
    """Number of deleted events that belong to no history."""
    bytes_before: int
    """Size of the store's files before the deletion."""
    bytes_after: int
    """Size of the files after it; an estimate in a dry run."""
    left: tuple[Finding, ...] = ()
    """Remarks on files that may still contain deleted content."""


class _Messages:
    """Size of each stored message (`bytes`), and hex digits in it that may be keys of histories (`mentioned`), by the
    message's digest. Each message is read only once."""

    def __init__(self, backend: Backend) -> None:
        """Read all messages, in many short transactions, because other processes wait for the end of each."""
        self.bytes: dict[str, int] = {}
        self.mentioned: dict[str, set[str]] = {}
        with backend.transaction():
            digests = [key.partition("/")[2] for key in backend.keys("message/")]
        for some_digests in in_parts(digests):
            with backend.transaction():
                self.read(backend, some_digests)

    def read(self, backend: Backend, digests: Iterable[str]) -> None:
        """Read the messages with these digests that were not read before, within a transaction."""
        keys = [f"message/{digest}" for digest in dict.fromkeys(digests) if digest not in self.bytes]
        for key, body in bodies(backend, keys):
            digest, content = key.partition("/")[2], unpack(body, key)
            self.bytes[digest] = len(key) + len(body)
            if names := {name.decode() for name in _MENTION.findall(content)}:
                self.mentioned[digest] = names


def collect_garbage(
    store: Store,
    *,
    older_than_seconds: float | None = None,
    larger_than_bytes: float | None = None,
    dry_run: bool = False,
) -> Garbage:
    """Delete conversations that were not used for `older_than_seconds`; then, while the files are larger than
    `larger_than_bytes`, those unused for the longest time.

    Content that a live conversation (used within a day) refers to stays. Plans, facts, states and events are removed
    with their conversation, as by `Store.forget`; so are old events without a conversation. If the time of a history's
    last use is unknown, it does not count as old. With `dry_run` nothing is removed. Reads the whole store; other
    processes can use it except while content is removed and files are rewritten.

    Raises:
        SettingsError: a limit is no positive number.
        StoreDamaged: a record cannot be read; nothing was removed.
    """
    for limit in (older_than_seconds, larger_than_bytes):
        if limit is not None and not limit > 0:
            raise SettingsError(f"a limit of what is kept has to be more than nothing, found {limit}")
    backend, messages = store.backend, _Messages(store.backend)
    now = store.clock()
    oldest = now - max(older_than_seconds, LIVE_SECONDS) if older_than_seconds else float("-inf")
    with backend.transaction(write=not dry_run):
        before = backend.file_bytes()
        relations = Relations(backend)
        kept = _histories_to_keep(relations, messages, now, oldest, larger_than_bytes)
        removed = [history for history in relations.histories.values() if history.name not in kept.histories]
        events = list(_old_events(relations, kept, oldest))
        if not dry_run:
            if removed:
                remove_histories(relations, removed)
            backend.remove(events)
    if dry_run or not (removed or events):
        remains = list[Finding]()
        bytes_of_all = _size_in_bytes(relations, messages, relations.family(relations.histories))
        # of the files the same share stays as of the records
        after = before * _size_in_bytes(relations, messages, kept) // max(bytes_of_all, 1)
    else:
        remains, after = store.flush(), store.size().file_bytes
    return Garbage(tuple(removed), len(kept.histories), len(events), before, after, tuple(remains))


def _histories_to_keep(
    relations: Relations, messages: _Messages, now: float, oldest: float, most_bytes: float | None
) -> HistoryFamily:
    """Return the histories to keep: those used since the time `oldest` (up to `now`), and all that they refer to.

    If the files are larger than `most_bytes`, return those used in the last day, and of the others as many as fit into
    this size, the latest used ones first; with all that these refer to.
    """

    def mentions(nodes: Sequence[Node]) -> Iterator[str]:
        """Return the hex digits in the messages of `nodes` that may be keys of histories."""
        messages.read(relations.backend, (node.message for node in nodes))
        return (name for node in nodes for name in messages.mentioned.get(node.message, ()))

    def family(count: int) -> HistoryFamily:
        """Return the `count` histories that were used last, and all that they refer to."""
        return relations.family([history.name for history in latest[:count]], mentions)

    # a history without a time of its last use (0) counts as young
    young = (history for history in relations.histories.values() if not history.used or history.used > oldest)
    latest = sorted(young, key=lambda history: (history.used, history.order), reverse=True)
    file_bytes = relations.backend.file_bytes()
    if most_bytes is None or file_bytes <= most_bytes:
        return family(len(latest))
    bytes_of_all = _size_in_bytes(relations, messages, relations.family(relations.histories))
    most_record_bytes = most_bytes * bytes_of_all // file_bytes  # the same share of the records as of the files
    live_count = sum(history.used > now - LIVE_SECONDS for history in latest)
    counts = range(live_count + 1, len(latest) + 1)  # more histories take more bytes, so a binary search is possible
    fitting = bisect_right(
        counts, most_record_bytes, key=lambda count: _size_in_bytes(relations, messages, family(count))
    )
    return family(live_count + fitting)


def _size_in_bytes(relations: Relations, messages: _Messages, family: HistoryFamily) -> int:
    """Return the size of the records of a `family` of histories: messages, and nodes, which link them to histories."""
    nodes = [relations.nodes[digest] for digest in family.nodes]
    return sum(len(node.key) for node in nodes) + sum(
        messages.bytes.get(digest, 0) for digest in {node.message for node in nodes}
    )


def _old_events(relations: Relations, kept: HistoryFamily, oldest: float) -> Iterator[str]:
    """Yield the keys of events before the time `oldest` that belong to no session and mention no history of `kept`."""
    sessions = set(sessions_of(kept.states))
    for key, content in read(relations.backend, relations.backend.keys("event/")).items():
        event = json.loads(content)
        if event["time"] < oldest and event.get("session") not in sessions:
            mentioned = {name for digits in names_in(content) for name in relations.histories_with(digits)}
            if mentioned.isdisjoint(kept.histories):
                yield key
