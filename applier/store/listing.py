"""The conversations of a store, each once and as it stands last: when it was used, how large it is, where, what for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from applier.store.family import Kin
from applier.store.records import Node, StoredHistory, fields, read, read_messages
from applier.store.store import Store
from planner.errors import StoreDamaged
from planner.reading.messages import blocks

__all__ = ["StoredConversation", "conversations"]

TASK_CHARACTERS = 200
"""Of what a user said first so much stands for a task that no plan names."""


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A history that no other goes on from."""

    history: StoredHistory
    folder: str
    """Where it worked; empty if nobody noted it."""
    task: str
    """Of its latest plan, or what the user said first."""


def conversations(store: Store) -> list[StoredConversation]:
    """Those of `store`, the one used longest ago first.

    Raises:
        StoreDamaged: something of one cannot be read.
    """
    folders = {name.partition(":")[2]: state.get("folder", "") for name, state in store.states("origin:").items()}
    backend = store.backend
    with backend.transaction():
        kin = Kin(backend)
        inner = {kin.nodes[node.parent].says for node in kin.nodes.values() if node.parent in kin.nodes}
        ends = {history.says: history for history in kin.histories.values() if history.says not in inner}
        plans = sorted((fields(key, 3) for key in backend.keys("plan/")), key=lambda parts: parts[2])
        latest = {says: f"plan/{digest}/{says}/{order}" for digest, says, order in plans}
        listed = []
        for history in sorted(ends.values(), key=lambda one: (one.used, one.order)):
            way = list(_way(kin.nodes, history.tip))
            plan = next((latest[node.says] for node in way if node.says in latest), "")
            task = ""
            with suppress(StoreDamaged):  # the others are listed all the same
                task = json.loads(read(backend, [plan])[plan])["task"] if plan else ""
                task = task or _first_words(read_messages(backend, way[-1:], history.key))
            keys = [history.key, *(one.key for node in way for one in map(kin.histories.get, (node.says,)) if one)]
            folder = next((folders[key] for key in keys if folders.get(key)), "")
            listed.append(StoredConversation(history, folder, task))
    return listed


def _first_words(messages: list[Any]) -> str:
    texts = (str(block.get("text", "")) for message in messages for block in blocks(message))
    return "\n".join(filter(None, texts))[:TASK_CHARACTERS]


def _way(nodes: Mapping[str, Node], digest: str) -> Iterator[Node]:
    """From the last message back to the first."""
    while digest in nodes:
        yield nodes[digest]
        digest = nodes[digest].parent
