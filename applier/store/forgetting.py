"""Deletion of a conversation's records from a store, without damage to other conversations that share some of them."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from applier.store import records
from applier.store.backend import Backend
from applier.store.records import Node, StoredHistory, back_to_first, nodes_of
from planner.placeholders import KEY_DIGITS

Mentions = Callable[[Sequence[Node]], Iterable[str]]
"""Function that reads messages (as nodes), and returns the hex digits in them that may be keys of histories."""


@dataclass(slots=True)
class HistoryFamily:
    """Histories that must stay in the store together, as they refer to each other, with their messages and states."""

    histories: set[str] = field(default_factory=set)
    """Names of the histories."""
    nodes: set[str] = field(default_factory=set)
    """Digests of the nodes of the histories; a node is one message with a link to the message before it."""
    states: set[str] = field(default_factory=set)
    """Keys of the states (named JSON values) that mention one of the histories."""


class Relations:
    """Relations between the conversations in a store: which extends or mentions another, or shares a state with it.
    Valid within the transaction in which they were read."""

    def __init__(self, backend: Backend) -> None:
        """Read all messages' links, all histories (oldest first), and which histories the states mention."""
        self.backend = backend
        self.nodes = nodes_of(backend.keys("node/"))
        self.histories = {history.name: history for history in records.read_histories(backend)}
        histories = self.histories.values()
        # digests that lead to a history, in order, so that a history is found by the first digits of one
        self._digests = sorted((digest, one.name) for one in histories for digest in {one.name, one.prefix})
        states = records.read(backend, backend.keys("state/"))
        self._names = {key: names_in(content) for key, content in states.items()}
        self._states: dict[str, set[str]] = defaultdict(set)  # keys of states by the names in them
        for key, names in self._names.items():
            for name in names:
                self._states[name].add(key)

    def histories_with(self, digits: str) -> Iterator[str]:
        """Yield the names of the saved histories with a key or digest that begins with `digits`."""
        at = bisect_left(self._digests, (digits, ""))
        while at < len(self._digests) and self._digests[at][0].startswith(digits):
            yield self._digests[at][1]
            at += 1

    def family(self, names: Iterable[str], mentions: Mentions | None = None) -> HistoryFamily:
        """Return the histories `names` and all others that must stay with them in the store.

        These are the histories that they extend, mention or share a state with, and in turn those that these need.
        `mentions` returns the histories that messages mention; without it, messages are not searched.
        """
        family, new = HistoryFamily(), set(names)
        while new:
            family.histories |= new
            new_nodes = with_ancestors(self.nodes, [self.histories[name].tip for name in new]) - family.nodes
            # of all histories that end with one of these nodes (messages)
            digests = {self.nodes[digest].prefix for digest in new_nodes} | new
            states = self.states(digests) - family.states
            needed = {name for key in states for name in self._names[key]} | digests
            if mentions is not None:
                needed.update(mentions([self.nodes[digest] for digest in new_nodes]))
            family.nodes |= new_nodes
            family.states |= states
            new = {name for digits in needed for name in self.histories_with(digits)} - family.histories
        return family

    def states(self, digests: Iterable[str]) -> set[str]:
        """Return the keys of the states (named JSON values) that mention a history with one of these digests."""
        return {key for digest in digests for key in self._states.get(digest[:KEY_DIGITS], ())}

    def events(self, digests: Collection[str], states: Iterable[str]) -> set[str]:
        """Return the keys of the events that mention one of `digests`, or belong to a session with one of `states`."""
        sessions = (self.backend.keys(f"event/{json.dumps(session)}/") for session in sessions_of(states))
        keys = {key for of_session in sessions for key in of_session}
        wanted = {digest[:KEY_DIGITS] for digest in digests}
        events = records.read(self.backend, self.backend.keys("event/"))
        return keys | {key for key, content in events.items() if not wanted.isdisjoint(names_in(content))}


_NAME = re.compile(rb'"(?:h|sha256:)([0-9a-f]{%d})[0-9a-f]{,%d}(?::t[0-9]+)?"' % (KEY_DIGITS, 64 - KEY_DIGITS))
"""Whole JSON string that is the key or digest of a history, or a reference to a turn in it: ``"h1a2b3c4d…:t12"``,
``"sha256:…"``; not a key within a longer text."""
SESSION_STATE = "session:"
"""Beginning of the name under which a session's state is stored."""


def names_in(content: bytes) -> set[str]:
    """Return the first `KEY_DIGITS` hex digits of the keys and digests of histories that are strings in a JSON text."""
    return {name.decode() for name in _NAME.findall(content)}


def with_ancestors(nodes: Mapping[str, Node], digests: Iterable[str]) -> set[str]:
    """Return the `digests` of some nodes (messages with their places), and those of all nodes before them in their
    histories."""
    reached: set[str] = set()
    for digest in digests:
        reached.update(takewhile(lambda earlier: earlier not in reached, back_to_first(nodes, digest)))
    return reached


def remove_history(backend: Backend, history: StoredHistory) -> None:
    """Delete a saved history, those that it extends or that extend it, and records that nothing refers to any more. A
    shorter history that another conversation also extends stays."""
    relations = Relations(backend)
    nodes, all_histories = relations.nodes, relations.histories.values()
    last_nodes = {digest for digest, node in nodes.items() if node.prefix == history.prefix}  # one for each exact form
    last_and_later_nodes = set(last_nodes)
    for digest, node in sorted(nodes.items(), key=lambda item: item[1].position):
        if node.parent in last_and_later_nodes:
            last_and_later_nodes.add(digest)
    family_nodes = last_and_later_nodes | with_ancestors(nodes, last_nodes)
    # digests of all histories that end with one of these nodes
    family = {history.prefix, *(nodes[digest].prefix for digest in family_nodes)}
    needed_nodes = with_ancestors(nodes, [other.tip for other in all_histories if other.prefix not in family])
    remove_histories(
        relations, [other for other in all_histories if other.prefix in family and other.tip not in needed_nodes]
    )


def remove_histories(relations: Relations, removed: Collection[StoredHistory]) -> None:
    """Delete the saved histories `removed`, all records made from them, and records that nothing refers to any more."""
    backend, nodes = relations.backend, relations.nodes
    remaining = [history for history in relations.histories.values() if history not in removed]
    kept_nodes = with_ancestors(nodes, [history.tip for history in remaining])
    unused_nodes = nodes.keys() - kept_nodes
    # plans, facts, states and events belong to the digest of a whole history or of its beginning
    unused_digests = {history.prefix for history in removed} | {nodes[digest].prefix for digest in unused_nodes}
    unused_digests -= {history.prefix for history in remaining} | {nodes[digest].prefix for digest in kept_nodes}
    messages = {nodes[digest].message for digest in unused_nodes} - {nodes[digest].message for digest in kept_nodes}
    backend.remove([f"history/{history.name}" for history in removed])
    backend.remove([nodes[digest].key for digest in unused_nodes])
    backend.remove([f"message/{digest}" for digest in messages])
    for kind in ("plan", "fact"):
        backend.remove([key for key in backend.keys(f"{kind}/") if records.prefix_of(key) in unused_digests])
    # the stored search table contains words of the facts; if it is gone, other processes discard their copies, too
    backend.remove([*backend.keys(records.INDEXED), *backend.keys(records.RECENT)])
    digests = unused_digests | {history.tip for history in removed if history.prefix in unused_digests and history.tip}
    states = relations.states(digests)
    backend.remove([*states, *relations.events(digests, states)])


def sessions_of(states: Iterable[str]) -> list[str]:
    """Return the ids of the sessions that have their state among the record keys `states`."""
    names = map(state_name, states)
    return [name.removeprefix(SESSION_STATE) for name in names if name.startswith(SESSION_STATE)]


def state_name(key: str) -> str:
    """Return the name of a state (named JSON value) from its record key: ``session:a`` for ``state/"session:a"``."""
    name: str = json.loads(key.partition("/")[2])
    return name


def orphaned_plans(backend: Backend) -> list[str]:
    """Return the digests of plans for histories that are not stored, oldest first; they may quote deleted content."""
    plans = records.plan_keys(backend)
    known = {history.prefix for history in records.read_histories(backend)}
    if any(plan.prefix not in known for plan in plans):
        known |= {node.prefix for node in nodes_of(backend.keys("node/")).values()}
    return [plan.digest for plan in plans if plan.prefix not in known]
