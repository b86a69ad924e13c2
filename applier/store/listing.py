"""Lists of a store's conversations, each in its newest form, and of the facts that were extracted from them."""

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
from applier.store.forgetting import Relations
from applier.store.records import Node, PlanKey, StoredHistory, back_to_first, plan_keys, read, read_messages
from applier.store.search import ranked
from applier.store.store import Store
from planner.errors import StoreDamaged
from planner.evidence.hosts import first_words
from planner.plan import ExtractedFact
from planner.reading.messages import read_history

TASK_CHARACTERS = 200
"""Largest length of a task that is taken from the user's first words, in characters."""


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """Conversation in the store, with its newest and longest list of messages."""

    history: StoredHistory
    folder: str
    """Working folder of the conversation; empty if unknown."""
    task: str
    """Task of the conversation's newest plan, or the user's first words."""


def conversations(store: Store) -> list[StoredConversation]:
    """Return the conversations in `store` to list or delete them, those unused for the longest time first. A history
    that a longer one extends is no conversation of its own."""
    folders = {name.partition(":")[2]: state.get("folder", "") for name, state in store.states("origin:").items()}
    backend, listed = store.backend, []
    with backend.transaction():
        relations = Relations(backend)
        all_nodes, histories = relations.nodes, relations.histories
        # digests of the histories that end with a message after which another is stored
        continued = {all_nodes[node.parent].prefix for node in all_nodes.values() if node.parent in all_nodes}
        longest = {history.prefix: history for history in histories.values() if history.prefix not in continued}
        newest_plans = {plan.prefix: plan for plan in plan_keys(backend)}
        for history in sorted(longest.values(), key=lambda history: (history.used, history.order)):
            nodes = [all_nodes[digest] for digest in back_to_first(all_nodes, history.tip)]  # last message first
            plan = next((newest_plans[node.prefix] for node in nodes if node.prefix in newest_plans), None)
            earlier_keys = (histories[node.prefix].key for node in nodes if node.prefix in histories)
            folder = next((folders[key] for key in (history.key, *earlier_keys) if folders.get(key)), "")
            listed.append(StoredConversation(history, folder, _task_of(backend, nodes[-1:], history.key, plan)))
    return listed


def _task_of(backend: Backend, first: Sequence[Node], key: str, plan: PlanKey | None) -> str:
    """Return the task of a conversation: that of its newest `plan`, or without one the user's words in its `first`
    message (a list of one node, or none). Return an empty text if the record is damaged. `key`: key for errors."""
    with suppress(StoreDamaged):
        task = str(json.loads(read(backend, [plan.key])[plan.key])["task"]) if plan else ""
        return task or first_words(read_history(read_messages(backend, first, key)), TASK_CHARACTERS)
    return ""


MOST_FACTS, AT_ONCE = 1_000, 200
"""Largest number of facts that a search by words returns, and the number that are read from the store together."""


class KnownFact(NamedTuple):
    """Fact (a decision, error, constraint, …) with the conversation that it comes from."""

    history: str
    """Key of the conversation that the fact comes from: ``h1a2b3c4d``."""
    folder: str
    """Working folder of this conversation; empty if unknown."""
    fact: ExtractedFact

    @property
    def reference(self) -> str:
        """Name of the turn from which the fact was extracted, to restore it: ``h1a2b3c4d:t12``."""
        return f"{self.history}:{self.fact.source}"


def stored_facts(store: Store, histories: Sequence[str]) -> list[KnownFact]:
    """Return the facts extracted from the conversations with these keys, oldest first, each with its conversation."""
    return [KnownFact(key, store.origin(key).folder, fact) for key in histories for fact in store.facts(key)]


def known_facts(
    store: Store, *, project: str = "", kind: str | None = None, since: float = 0.0, words: str = ""
) -> list[KnownFact]:
    """Return the facts that were extracted from all stored conversations, oldest first; of facts repeated in
    conversations of the same folder, only the newest.

    `project`: only from conversations in this folder. `kind`: only of this type. `since`: only those extracted at this
    time or later. `words`: only the `MOST_FACTS` that match these words best, the best first.
    """
    folders: dict[str, str] = {}
    if project:
        folder_of = {str(origin["history"]): str(origin["folder"]) for origin in store.states("origin:").values()}
        inner_folders = {folder for folder in set(folder_of.values()) if is_within(folder, project)}
        folders = {key: folder for key, folder in folder_of.items() if folder in inner_folders}
    latest: dict[tuple[str, ...], KnownFact] = {}  # newest first, or best first
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
    """Return those of `facts` with the type `kind` (None: any) that were extracted at the time `since` or later, in
    their order. With `words`, only facts with one of these words are returned, the best match first."""
    chosen = [fact for fact in facts if kind in (None, fact.fact.type) and fact.fact.timestamp >= since]
    if not words.strip():
        return chosen
    return [chosen[at] for at, _ in ranked([f"{fact.fact.content}\n{fact.fact.quote}" for fact in chosen], words)]


def is_within(folder: str, project: str) -> bool:
    """Return True if `folder` is `project` or inside it, but not in another repository there. Links are followed."""
    if not folder or not project:
        return False
    inner, outer = (Path(os.path.realpath(place)) for place in (folder, project))
    below_project = [inner, *inner.parents][: len(inner.parts) - len(outer.parts)]
    # a repository has a folder ``.git``; a worktree, which belongs to the project, has a file
    return inner.is_relative_to(outer) and not any((place / ".git").is_dir() for place in below_project)
