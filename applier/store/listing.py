"""Lists the conversations of a store, each once in its latest form, and their facts by type, place, time and words."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from applier.store.backend import Backend
from applier.store.forgetting import Kin
from applier.store.records import Node, PlanKey, StoredHistory, plan_keys, read, read_messages, way_back
from applier.store.search import ranked
from applier.store.store import Store
from planner.errors import StoreDamaged
from planner.evidence.hosts import first_words
from planner.plan import ExtractedFact
from planner.reading.messages import read_history

TASK_CHARACTERS = 200
"""Longest task taken from the user's first words."""


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """History that no other history continues."""

    history: StoredHistory
    folder: str
    """Folder it worked in; empty if unknown."""
    task: str
    """Task of its latest plan, or the user's first words."""


def conversations(store: Store) -> list[StoredConversation]:
    """Return the conversations of `store`, the longest unused first."""
    folders = {name.partition(":")[2]: state.get("folder", "") for name, state in store.states("origin:").items()}
    backend, listed = store.backend, []
    with backend.transaction():
        kin = Kin(backend)
        continued = {kin.nodes[node.parent].prefix for node in kin.nodes.values() if node.parent in kin.nodes}
        ends = {history.prefix: history for history in kin.histories.values() if history.prefix not in continued}
        latest = {plan.prefix: plan for plan in plan_keys(backend)}
        for history in sorted(ends.values(), key=lambda one: (one.used, one.order)):
            nodes = [kin.nodes[digest] for digest in way_back(kin.nodes, history.tip)]
            plan = next((latest[node.prefix] for node in nodes if node.prefix in latest), None)
            earlier = (kin.histories[node.prefix].key for node in nodes if node.prefix in kin.histories)
            folder = next((folders[key] for key in (history.key, *earlier) if folders.get(key)), "")
            listed.append(StoredConversation(history, folder, _task_of(backend, nodes[-1:], history.key, plan)))
    return listed


def _task_of(backend: Backend, first: Sequence[Node], key: str, plan: PlanKey | None) -> str:
    """Return the task of `plan`, or the user's words in the `first` message; empty if either record is damaged."""
    with suppress(StoreDamaged):
        task = str(json.loads(read(backend, [plan.key])[plan.key])["task"]) if plan else ""
        return task or first_words(read_history(read_messages(backend, first, key)), TASK_CHARACTERS)
    return ""


MOST_FACTS, AT_ONCE = 1_000, 200
"""Largest number of facts that a search by words returns, and the number that are read from the store together."""


class KnownFact(NamedTuple):
    """Fact with the conversation that it comes from."""

    history: str
    """Key of the conversation."""
    folder: str
    """Folder of its conversation; empty if unknown."""
    fact: ExtractedFact

    @property
    def reference(self) -> str:
        """Reference that restores the fact's turn: ``h1a2b3c4d:t12``."""
        return f"{self.history}:{self.fact.source}"


def stored_facts(store: Store, histories: Sequence[str]) -> list[KnownFact]:
    """Return the facts of these histories and of those they continue, oldest first."""
    return [KnownFact(key, store.origin(key).folder, fact) for key in histories for fact in store.facts(key)]


def known_facts(
    store: Store, *, project: str = "", kind: str | None = None, since: float = 0.0, words: str = ""
) -> list[KnownFact]:
    """Return the facts of this `kind`, extracted at the time `since` or later, the oldest first. They come from all
    conversations, or from those in the folder `project`; a folder has each fact once. With `words`, the `MOST_FACTS`
    that match best are returned, the best first."""
    folders: dict[str, str] = {}
    if project:
        noted = {str(one["history"]): str(one["folder"]) for one in store.states("origin:").values()}
        within = {folder for folder in set(noted.values()) if is_within(folder, project)}
        folders = {key: folder for key, folder in noted.items() if folder in within}
    latest: dict[tuple[str, ...], KnownFact] = {}
    facts = store.find_facts(words, kind=kind, since=since, histories=set(folders) if project else None)
    while next_facts := list(islice(facts, AT_ONCE)):
        folders |= store.folders({key for key, _ in next_facts} - folders.keys())
        for key, fact in next_facts:
            folder = folders[key]
            latest.setdefault((folder, fact.type, fact.content, fact.source), KnownFact(key, folder, fact))
        if words.strip() and len(latest) >= MOST_FACTS:
            break
    return list(latest.values())[:MOST_FACTS] if words.strip() else list(latest.values())[::-1]


def facts_about(
    facts: Iterable[KnownFact], *, kind: str | None = None, since: float = 0.0, words: str = ""
) -> list[KnownFact]:
    """Return those of `facts` that are of this `kind` and were extracted at the time `since` or later, in their order.
    With `words`, only facts with one of them are returned, the best match first."""
    some = [one for one in facts if kind in (None, one.fact.type) and one.fact.timestamp >= since]
    if not words.strip():
        return some
    return [some[rank.at] for rank in ranked([f"{one.fact.content}\n{one.fact.quote}" for one in some], words)]


def is_within(folder: str, project: str) -> bool:
    """Return True if `folder` is `project` or below it, and not in another repository; links are followed."""
    if not folder or not project:
        return False
    inner, outer = (Path(os.path.realpath(place)) for place in (folder, project))
    between = [inner, *inner.parents][: len(inner.parts) - len(outer.parts)]
    # a repository has a folder ``.git``; a worktree, which belongs to the project, has a file
    return inner.is_relative_to(outer) and not any((place / ".git").is_dir() for place in between)
