"""What every store can do, whichever database is behind it.

All methods may be called from several threads and processes at once. What a method stored is on disk when it
returns; if it raises, nothing of it was stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from applier.store.excerpt import Match, Restored, SearchResult, find_matches, restored_part
from planner.errors import ReferenceNotFound
from planner.plan import CompactionPlan, ExtractedFact, Finding
from planner.reading.history import History
from planner.reading.lines import Part
from planner.reading.messages import Message

__all__ = ["Match", "Restored", "SearchResult", "Store", "StoreSize", "StoredHistory"]

_SUGGESTED = 3
"""Turns that an error names where a search does match."""


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """One history that was saved; a longer one saved later is another, though their messages are shared."""

    key: str
    digest: str
    messages: int
    turns: int


@dataclass(frozen=True, slots=True)
class StoreSize:
    """How much is stored."""

    histories: int
    messages: int
    """Distinct ones."""
    file_bytes: int
    """On disk, free pages within the file included."""


class Store(ABC):
    """Where originals, plans, facts, events and session states live.

    A store of your own has the abstract methods; all else follows from them. Every method raises a `StoreError` if the
    store cannot do it, and `StoreDamaged` if what is stored does not match its digest.
    """

    @abstractmethod
    def save_history(self, history: History) -> str:
        """Store every message of `history` exactly; its key. Costs what is not stored yet.

        The key is `history_key` of its digest, which says nothing of cache marks and of text as a string or a
        block. Where the digest is taken by another form of the same history, the key is made of the exact form:
        what a key gave back once, it gives back for ever.
        """

    @abstractmethod
    def load_history(self, key: str) -> History:
        """The history saved under `key`: ``h`` and 8 to 64 hex digits, or the full digest.

        Raises:
            ReferenceNotFound: no history, or more than one, has that key.
        """

    @abstractmethod
    def load_turn(self, reference: str, within: Sequence[str] | None = None) -> tuple[str, list[Message]]:
        """The full reference and the exact messages of the turn ``h1a2b3c4d:t12``, or ``t12`` in a store with one
        conversation; `within` as in `restore`.

        Raises:
            ReferenceNotFound: no such history or turn; the text says what there is.
        """

    @abstractmethod
    def histories(self) -> tuple[StoredHistory, ...]:
        """All histories saved, oldest first."""

    @abstractmethod
    def save_plan(self, plan: CompactionPlan) -> str:
        """Store `plan`, secrets redacted; its id."""

    @abstractmethod
    def load_plan(self, plan_id: str) -> CompactionPlan:
        """The plan with that id, or any longer start of its digest.

        Raises:
            ReferenceNotFound: no plan, or more than one, has that id.
        """

    @abstractmethod
    def plans(self, history_key: str) -> tuple[str, ...]:
        """Ids of the plans made for a history or for a prefix of it, oldest first."""

    @abstractmethod
    def save_facts(self, facts: Sequence[ExtractedFact], history_key: str) -> None:
        """Store `facts` of a saved history, secrets redacted; a fact that is there already counts once."""

    @abstractmethod
    def facts(self, history_key: str) -> tuple[ExtractedFact, ...]:
        """The facts of a history and of every prefix of it, oldest first."""

    @abstractmethod
    def record_event(self, event: Mapping[str, Any]) -> None:
        """Store `event`, secrets redacted. It has a ``time`` (seconds since the epoch) and may have a
        ``session``, by which it is found again.
        """

    @abstractmethod
    def events(self, session: str | None = None, *, since: float = 0.0) -> tuple[dict[str, Any], ...]:
        """The events, of one session or of all, from the time `since` on, in the order of recording."""

    @abstractmethod
    def set_state(self, name: str, value: Any) -> None:
        """Store any JSON value under `name`, exactly, in place of what was there; None removes it.

        A state that has the key of a history as one of its values is forgotten with it.
        """

    @abstractmethod
    def get_state(self, name: str) -> Any:
        """What `set_state` stored under `name`, or None."""

    @abstractmethod
    def forget(self, history_key: str) -> list[Finding]:
        """Delete a history, every one that extends it or that it extends, their plans and facts, the states and
        events that name one of them as a value, and the events of the sessions whose states (``session:ID``) these
        are; or the plan with an id like ``p1a2b3c4d``. What is left, if anything is.

        What a conversation that forks off before its end shares with it stays.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the database. The store is not to be used afterwards."""

    def restore(
        self,
        reference: str,
        *,
        lines: tuple[int, int] | None = None,
        search: str | None = None,
        max_characters: int | None = None,
        within: Sequence[str] | None = None,
    ) -> Restored:
        """What stands behind `reference`: ``h1a2b3c4d:t12``, or ``t12`` in a store with one conversation.

        `lines`: only these, first and last included. `search`: only the lines (of these) that match, found as in
        `search`: by words only if the text stands in no turn of the history. `max_characters`: at most so much text,
        cut behind a line; `Restored.next_line` says where to go on. `within`: the keys of the histories that the reader
        may see; one that these extend is seen, too. Any other is to the reader as if it were not there, and a bare
        ``t12`` means the first of `within` that is stored.

        Raises:
            ReferenceNotFound: no such history, turn or lines, or nothing in them matches; the text says what there
                is, and which turns do match.
        """
        name, messages = self.load_turn(reference, within)
        part = partial(restored_part, name, messages, lines=lines, search=search, max_characters=max_characters)
        try:
            return part(by_words=False)
        except ReferenceNotFound as error:
            if not search:
                raise
            elsewhere = self.search(search, name.rpartition(":")[0], limit=_SUGGESTED)
            if elsewhere.by_words:
                with suppress(ReferenceNotFound):
                    return part()
            raise ReferenceNotFound(f"{error}; {_turns_of(name, elsewhere)}") from None

    def search(
        self,
        text: str,
        history_key: str,
        *,
        part: Part | None = None,
        tool: str | None = None,
        limit: int | None = None,
    ) -> SearchResult:
        """The turns of a history that match `text`, whatever its case: that hold it as it stands, or else match it
        as a regular expression, or else hold any of its words. The first two stand in order of their time, the newest
        first, those behind the others where nothing but results of tools matches; the last by BM25 of the whole turn,
        whatever the store. A phrase in quotes is one word. What stands in the history, but not in the `part` or the
        calls of the `tool` that were asked for, is not looked for there by its words.

        `part`: only words of the ``user`` or ``assistant``, only a ``call`` or a ``result``. `tool`: only calls of
        this tool and their results. `limit`: at most so many turns.
        """
        return find_matches(self.load_history(history_key), text, part=part, tool=tool, limit=limit)

    def flush(self) -> list[Finding]:
        """Take what was deleted out of every file and log of the database; what is left, if anything is."""
        return []

    def verify(self) -> list[Finding]:
        """Recompute every digest; what is wrong, nothing if all is well."""
        return []

    def size(self) -> StoreSize:
        """How much is stored."""
        known = self.histories()
        return StoreSize(len(known), sum(history.messages for history in known), 0)

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()


def _turns_of(name: str, result: SearchResult) -> str:
    """Where what was looked for in the turn `name` stands instead."""
    names = [f"{name.rpartition(':')[0]}:{match.turn_id}" for match in result.matches]
    more = f" and {result.turns - len(names)} more turns" if result.turns > len(names) else ""
    return f"{', '.join(names)}{more} match" if names else "no other turn of this history does"
