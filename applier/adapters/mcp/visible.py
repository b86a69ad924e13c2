"""What one MCP server may show of a store: the conversations it was started for, and no others.

Reads only; a store that is not there yet holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from applier.session.persistence import load_session
from applier.store.protocol import Restored, Store
from planner.errors import ReferenceNotFound
from planner.plan import CompactionPlan, ExtractedFact
from planner.reading.history import History
from planner.reading.lines import Part

__all__ = ["Conversation", "Hit", "Visible"]

_NOTHING_YET = "nothing was compacted in this conversation yet: all of it still stands in the context"


@dataclass(frozen=True)
class Conversation:
    """One stored conversation; `session` is empty for a history that was named itself."""

    session: str
    history_key: str
    plan_id: str


@dataclass(frozen=True)
class Hit:
    """A turn that holds what was searched for."""

    reference: str
    excerpt: str


class Visible:
    """The part of a store that belongs to one session and those below it, or to one history."""

    def __init__(self, open_store: Callable[[], Store], *, session: str = "", history: str = "") -> None:
        """`session`: its id, or the name that a proxy's client gave; `history`: a key. One of both.

        `open_store` may raise `StoreError` while there is none; it is asked again then.
        """
        self._open, self._session, self._history = open_store, session, history
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """The store, opened when first needed.

        Raises:
            StoreError: there is none yet.
        """
        if self._store is None:
            self._store = self._open()
        return self._store

    def close(self) -> None:
        """Let go of the store."""
        if self._store is not None:
            self._store.close()

    def conversations(self) -> list[Conversation]:
        """All that may be seen, the one that was compacted last at the end."""
        if self._history:
            plans = self.store.plans(self._history)
            return [Conversation("", self._history, plans[-1] if plans else "")]
        stored = []
        for name in self._names():
            saved = load_session(self.store, name)
            if saved is not None and saved.frame.key:
                stored.append(Conversation(name, saved.frame.key, saved.frame.plan_id))
        return stored

    def current(self) -> Conversation:
        """The one that was compacted last.

        Raises:
            ReferenceNotFound: none was.
        """
        known = self.conversations()
        if not known:
            raise ReferenceNotFound(_NOTHING_YET)
        return known[-1]

    def named(self, session: str) -> Conversation:
        """The one of that session.

        Raises:
            ReferenceNotFound: it is none of those that may be seen.
        """
        for conversation in self.conversations():
            if conversation.session == session:
                return conversation
        raise ReferenceNotFound(f"{session}: no conversation of that name here")

    def restore(self, reference: str, lines: tuple[int, int] | None, search: str | None, most: int) -> Restored:
        """What stands behind `reference`, at most so many characters.

        Raises:
            ReferenceNotFound: there is no such turn here.
        """
        within = [conversation.history_key for conversation in reversed(self.conversations())]
        if not within:
            raise ReferenceNotFound(_NOTHING_YET)
        return self.store.restore(reference, lines=lines, search=search, max_characters=most, within=within)

    def search(self, text: str, part: Part | None, tool: str | None, limit: int) -> tuple[list[Hit], int]:
        """The turns that hold `text`, the newest conversation's first, and how many there are in all."""
        hits: list[Hit] = []
        turns = 0
        for conversation in reversed(self.conversations()):
            key = conversation.history_key
            result = self.store.search(text, key, part=part, tool=tool, limit=limit)
            turns += result.turns
            hits += [Hit(f"{key}:{match.turn_id}", match.excerpt) for match in result.matches]
        return hits[:limit], turns

    def facts(self) -> Sequence[ExtractedFact]:
        """Of all that may be seen."""
        return [fact for known in self.conversations() for fact in self.store.facts(known.history_key)]

    def plan(self, conversation: Conversation) -> CompactionPlan:
        """The plan in force.

        Raises:
            ReferenceNotFound: there is none.
        """
        if not conversation.plan_id:
            raise ReferenceNotFound(_NOTHING_YET)
        return self.store.load_plan(conversation.plan_id)

    def history(self, conversation: Conversation) -> History:
        """Its messages, as far as they were stored."""
        return self.store.load_history(conversation.history_key)

    def events(self) -> list[dict[str, Any]]:
        """What happened, oldest first."""
        if self._history:
            return []
        names = self._names()
        return [event for event in self.store.events() if _session_of(event) in names]

    def _names(self) -> list[str]:
        """The session itself and those below it, in the order of their first event."""
        below = (_session_of(event) for event in self.store.events())
        names = [name for name in below if name == self._session or name.startswith(f"{self._session}.")]
        return list(dict.fromkeys([self._session, *names]))


def _session_of(event: dict[str, Any]) -> str:
    return str(event.get("session") or event.get("session_id") or "")
