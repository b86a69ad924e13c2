"""Collects garbage: conversations that nobody used for long, or the oldest ones if the store is too large.

Content that a live conversation refers to is never removed. A conversation is live if it was saved, continued or
restored from within a day (or the time to keep, if longer); it refers to histories that it extends, that its states
name, or that its messages mention.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from applier.store.backend import Backend
from applier.store.forgetting import HistoryFamily, Kin, names_in, remove_histories, sessions_of
from applier.store.records import Node, StoredHistory, parts, read, unpack
from applier.store.store import Store
from planner.errors import SettingsError
from planner.plan import Finding

LIVE_SECONDS = 86_400.0
"""Age below which a conversation stays, however large the store is; a session records its use once an hour."""

_MENTION = re.compile(rb"[h:]([0-9a-f]{8,64})")
"""Mention of a history: ``h1a2b3c4d:t12``, ``sha256:…``; also ``id:12345678``, which refers to nothing stored."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """Content that was removed, or in a dry run would be."""

    histories: tuple[StoredHistory, ...]
    """Removed histories, oldest first."""
    kept: int
    """Number of remaining histories."""
    events: int
    """Removed events that belong to none of the histories."""
    bytes_before: int
    """Size of the store's files before."""
    bytes_after: int
    """Size after; approximate in a dry run."""
    left: tuple[Finding, ...] = ()
    """Findings about files that may still contain removed content."""


@dataclass
class _Messages:
    """Sizes of messages, and the histories they mention."""

    bytes: dict[str, int] = field(default_factory=dict)
    mentioned: dict[str, set[str]] = field(default_factory=dict)

    def read(self, backend: Backend, digests: Iterable[str]) -> None:
        """Read messages that were not read yet, within a transaction."""
        keys = [f"message/{digest}" for digest in dict.fromkeys(digests) if digest not in self.bytes]
        for some in parts(keys):
            for key, body in backend.get(some).items():
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
    """Remove conversations that were not used for `older_than_seconds`; then, while the files are larger than
    `larger_than_bytes`, the longest unused ones.

    Content that a live conversation refers to stays. Plans, facts, states and events are removed with their
    conversation, as by `Store.forget`; so are old events without a conversation. A history of unknown use does not
    count as old. With `dry_run` nothing is removed. Reads the whole store; others can use it except while content is
    removed and files are rewritten.

    Raises:
        SettingsError: a limit is no positive number.
        StoreDamaged: a record cannot be read; nothing was removed.
    """
    for limit in (older_than_seconds, larger_than_bytes):
        if limit is not None and not limit > 0:
            raise SettingsError(f"a limit of what is kept has to be more than nothing, found {limit}")
    backend, messages = store.backend, _all_messages(store.backend)
    now = store.clock()
    oldest = now - max(older_than_seconds, LIVE_SECONDS) if older_than_seconds else float("-inf")
    with backend.transaction(write=not dry_run):
        before = backend.file_bytes()
        kin = Kin(backend)
        kept = _kept(kin, messages, now, oldest, larger_than_bytes)
        removed = [one for one in kin.histories.values() if one.name not in kept.histories]
        events = list(_old_events(kin, kept, oldest))
        if not dry_run:
            if removed:
                remove_histories(kin, removed)
            backend.remove(events)
    if dry_run or not (removed or events):
        left = list[Finding]()
        after = before * _cost(kin, messages, kept) // max(_cost(kin, messages, kin.family(kin.histories)), 1)
    else:
        left, after = store.flush(), store.size().file_bytes
    return Garbage(tuple(removed), len(kept.histories), len(events), before, after, tuple(left))


def _all_messages(backend: Backend) -> _Messages:
    """Read all messages, in many short transactions, as others wait for the end of each."""
    messages = _Messages()
    with backend.transaction():
        digests = [key.partition("/")[2] for key in backend.keys("message/")]
    for some in parts(digests):
        with backend.transaction():
            messages.read(backend, some)
    return messages


def _kept(kin: Kin, messages: _Messages, now: float, oldest: float, most_bytes: float | None) -> HistoryFamily:
    """Return the histories to keep, with all that they need: those used since the time `oldest`. If the files are
    larger than `most_bytes`, they are those used in the last day, then the latest used ones as long as all fit into
    this size."""

    def mentions(nodes: Sequence[Node]) -> Iterator[str]:
        messages.read(kin.backend, (node.message for node in nodes))
        return (name for node in nodes for name in messages.mentioned.get(node.message, ()))

    size = kin.backend.file_bytes()
    is_too_large = most_bytes is not None and size > most_bytes
    young = [one for one in kin.histories.values() if not one.used or one.used > oldest]
    live = [one for one in young if not is_too_large or one.used > now - LIVE_SECONDS]
    kept = kin.family([one.name for one in live], mentions)
    if most_bytes is None or not is_too_large:
        return kept
    paid: set[str] = set()  # digests of messages that are counted already
    # in bytes of records: the same share of all records as `most_bytes` is of the files
    room = most_bytes * _cost(kin, messages, kin.family(kin.histories)) // size - _cost(kin, messages, kept, paid)
    for one in sorted(young, key=lambda one: (one.used, one.order), reverse=True):
        added = kin.family([one.name], mentions, kept)
        room -= _cost(kin, messages, added, paid)
        if room < 0:
            break
        kept.add(added)
    return kept


def _cost(kin: Kin, messages: _Messages, family: HistoryFamily, paid: set[str] | None = None) -> int:
    """Return the bytes of the nodes and messages of `family`. Messages in `paid` are not counted; others are added to
    it."""
    unpaid = {kin.nodes[digest].message for digest in family.nodes} - (paid or set())
    if paid is not None:
        paid |= unpaid
    keys = sum(len(kin.nodes[digest].key) for digest in family.nodes)
    return keys + sum(messages.bytes.get(digest, 0) for digest in unpaid)


def _old_events(kin: Kin, kept: HistoryFamily, oldest: float) -> Iterator[str]:
    """Yield the keys of events before the time `oldest` that belong to no session and mention no history of `kept`."""
    sessions = set(sessions_of(kept.states))
    for key, content in read(kin.backend, kin.backend.keys("event/")).items():
        event = json.loads(content)
        if event["time"] < oldest and event.get("session") not in sessions:
            mentioned = {name for digits in names_in(content) for name in kin.histories_with(digits)}
            if mentioned.isdisjoint(kept.histories):
                yield key
