"""How conversations leave a store: with all that was made of them, and nothing that another one needs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from applier.store.backend import Backend
from applier.store.fact_index import forget_index
from applier.store.records import Node, StoredHistory, fields, nodes_of, read, read_histories
from planner.placeholders import SHORT_DIGITS

__all__ = [
    "SESSION_STATE",
    "events_of",
    "names_in",
    "naming",
    "plans_of_nobody",
    "remove_histories",
    "remove_history",
    "sessions_of",
    "state_name",
    "upwards",
]

_NAME = re.compile(rb'"(?:h|sha256:)([0-9a-f]{8,64})(?::t[0-9]+)?"')
"""A history's key or digest, or a reference into it, as a whole text of JSON; not one that stands within a text."""
SESSION_STATE = "session:"
"""The state with this and a session's id for a name belongs to the events of that session."""


def names_in(content: bytes) -> set[str]:
    """The hex digits of the histories that `content` has for a value."""
    return {name.decode() for name in _NAME.findall(content)}


def upwards(nodes: Mapping[str, Node], digests: Iterable[str], known: Collection[str] = ()) -> set[str]:
    """`digests` and all that stand before them in `nodes`, without what is `known`, or stands before that."""
    above: set[str] = set()
    for digest in digests:
        while digest in nodes and digest not in above and digest not in known:
            above.add(digest)
            digest = nodes[digest].parent
    return above


def remove_history(backend: Backend, history: StoredHistory) -> None:
    """Delete the history, those it extends or that extend it, and what nothing refers to any more.

    Raises:
        StoreDamaged: a record cannot be read, and it might speak of it.
    """
    keyed = nodes_of(backend.keys("node/"))
    nodes = {digest: node for digest, (_, node) in keyed.items()}
    same = {digest for digest, node in nodes.items() if node.says == history.says}
    below = set(same)
    for digest, node in sorted(nodes.items(), key=lambda item: item[1].position):
        if node.parent in below:
            below.add(digest)
    family = {history.says, *(nodes[digest].says for digest in below | upwards(nodes, same))}
    saved = read_histories(backend)
    kept = upwards(nodes, [other.tip for other in saved if other.says not in family])
    remove_histories(backend, [other for other in saved if other.says in family and other.tip not in kept], keyed)


def remove_histories(backend: Backend, removed: Sequence[StoredHistory], keyed: Mapping[str, tuple[str, Node]]) -> None:
    """Delete the histories `removed`, what was made of them, and what nothing refers to any more; `keyed`: all nodes.

    Raises:
        StoreDamaged: a record cannot be read, and it might speak of one.
    """
    nodes = {digest: node for digest, (_, node) in keyed.items()}
    others = [history for history in read_histories(backend) if history not in removed]
    kept = upwards(nodes, [history.tip for history in others])
    left = {history.says for history in others} | {nodes[digest].says for digest in kept}
    gone = ({history.says for history in removed} | {nodes[digest].says for digest in nodes.keys() - kept}) - left
    messages = {nodes[digest].message for digest in nodes.keys() - kept} - {nodes[digest].message for digest in kept}
    backend.remove([f"history/{history.name}" for history in removed])
    backend.remove([keyed[digest][0] for digest in nodes.keys() - kept])
    backend.remove([f"message/{digest}" for digest in messages])
    for kind in ("plan", "fact"):
        backend.remove([key for key in backend.keys(f"{kind}/") if fields(key, 3)[1] in gone])
    forget_index(backend)
    digests = gone | {history.tip for history in removed if history.says in gone and history.tip}
    states = naming(backend, "state", digests)
    backend.remove([*states, *events_of(backend, states), *naming(backend, "event", digests)])


def events_of(backend: Backend, states: Iterable[str]) -> list[str]:
    """The keys of the events of the sessions that `states` are the keys of."""
    return [key for session in sessions_of(states) for key in backend.keys(f"event/{json.dumps(session)}/")]


def sessions_of(states: Iterable[str]) -> list[str]:
    """The ids of the sessions that `states` are the keys of; other states are of none."""
    names = map(state_name, states)
    return [name.removeprefix(SESSION_STATE) for name in names if name.startswith(SESSION_STATE)]


def state_name(key: str) -> str:
    """What the state with this key is called, see `Store.set_state`."""
    name: str = json.loads(key.partition("/")[2])
    return name


def plans_of_nobody(backend: Backend) -> list[str]:
    """The digests of plans that were made for histories which are not stored: nobody knows whose they are."""
    plans = [fields(key, 3) for key in backend.keys("plan/")]
    known = {history.says for history in read_histories(backend)}
    if any(says not in known for _, says, _ in plans):
        known |= {node.says for _, node in nodes_of(backend.keys("node/")).values()}
    return [digest for _, digest in sorted((order, digest) for digest, says, order in plans if says not in known)]


def naming(backend: Backend, kind: str, digests: Collection[str]) -> list[str]:
    """The keys of the records of a `kind` that have for a value a history whose digest is one of `digests`."""
    shortest = {digest[:SHORT_DIGITS] for digest in digests}
    keys = []
    for key, content in read(backend, backend.keys(f"{kind}/")).items():
        near = [name for name in names_in(content) if name[:SHORT_DIGITS] in shortest]
        if any(digest.startswith(name) for name in near for digest in digests):
            keys.append(key)
    return keys
