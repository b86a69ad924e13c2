"""How a conversation leaves a store: with all that was made of it, and nothing that another one needs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from applier.store.backend import Backend
from applier.store.fact_index import forget_index
from applier.store.records import StoredHistory, fields, nodes_of, read, read_histories
from planner.placeholders import SHORT_DIGITS

__all__ = ["plans_of_nobody", "remove_history"]

_NAME = re.compile(rb'"(?:h|sha256:)([0-9a-f]{8,64})(?::t[0-9]+)?"')
"""A history's key or digest, or a reference into it, as a whole text of JSON; not one that stands within a text."""
SESSION_STATE = "session:"
"""The state with this and a session's id for a name belongs to the events of that session."""


def remove_history(backend: Backend, history: StoredHistory) -> None:
    """Delete the history, those it extends or that extend it, and what nothing refers to any more.

    Raises:
        StoreDamaged: a record cannot be read, and it might speak of it.
    """
    keyed = nodes_of(backend.keys("node/"))
    nodes = {digest: node for digest, (_, node) in keyed.items()}

    def upwards(digests: Collection[str]) -> set[str]:
        """`digests` and all that stand before them."""
        above: set[str] = set()
        for digest in digests:
            while digest in nodes and digest not in above:
                above.add(digest)
                digest = nodes[digest].parent
        return above

    same = {digest for digest, node in nodes.items() if node.says == history.says}
    below = set(same)
    for digest, node in sorted(nodes.items(), key=lambda item: item[1].position):
        if node.parent in below:
            below.add(digest)
    family = {history.says, *(nodes[digest].says for digest in below | upwards(same))}
    saved = read_histories(backend)
    kept = upwards([other.tip for other in saved if other.says not in family])
    gone = family - {nodes[digest].says for digest in kept}
    removed = [other for other in saved if other.says in family and other.tip not in kept]
    messages = {nodes[digest].message for digest in nodes.keys() - kept} - {nodes[digest].message for digest in kept}
    backend.remove([f"history/{other.name}" for other in removed])
    backend.remove([keyed[digest][0] for digest in nodes.keys() - kept])
    backend.remove([f"message/{digest}" for digest in messages])
    for kind in ("plan", "fact"):
        backend.remove([key for key in backend.keys(f"{kind}/") if fields(key, 3)[1] in gone])
    forget_index(backend)
    _remove_naming(backend, gone | {other.tip for other in removed if other.says in gone and other.tip})


def plans_of_nobody(backend: Backend) -> list[str]:
    """The digests of plans that were made for histories which are not stored: nobody knows whose they are."""
    plans = [fields(key, 3) for key in backend.keys("plan/")]
    known = {history.says for history in read_histories(backend)}
    if any(says not in known for _, says, _ in plans):
        known |= {node.says for _, node in nodes_of(backend.keys("node/")).values()}
    return [digest for _, digest in sorted((order, digest) for digest, says, order in plans if says not in known)]


def _remove_naming(backend: Backend, digests: Collection[str]) -> None:
    """Delete the states and events one of whose values names one of the histories `digests`, and all events of the
    sessions whose states these are.
    """
    for key in _naming(backend, "state", digests):
        backend.remove([key])
        name = json.loads(key.partition("/")[2])
        if name.startswith(SESSION_STATE):
            backend.remove(backend.keys(f"event/{json.dumps(name.removeprefix(SESSION_STATE))}/"))
    backend.remove(_naming(backend, "event", digests))


def _naming(backend: Backend, kind: str, digests: Collection[str]) -> list[str]:
    """The keys of the records of a `kind` that name a history whose digest is one of `digests`."""
    shortest = {digest[:SHORT_DIGITS] for digest in digests}
    naming = []
    for key, content in read(backend, backend.keys(f"{kind}/")).items():
        names = {name.decode() for name in _NAME.findall(content)}
        near = [name for name in names if name[:SHORT_DIGITS] in shortest]
        if any(digest.startswith(name) for name in near for digest in digests):
            naming.append(key)
    return naming
