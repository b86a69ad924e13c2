"""What every store can do, whichever database is behind it.

All methods may be called from several threads and processes at once. What a method stored is on disk when it
returns; if it raises, nothing of it was stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from planner.plan import CompactionPlan, ExtractedFact, Finding
from planner.reading.history import History
from planner.reading.lines import Part
from planner.reading.messages import Block, Message

__all__ = ["Match", "Restored", "SearchResult", "Store", "StoreSize", "StoredHistory"]


@dataclass(frozen=True, slots=True)
class Restored:
    """What stands behind a reference: all of a turn, a range of its lines, or the lines that match a search."""

    reference: str
    """The full reference: ``h1a2b3c4d:t12``."""
    messages: tuple[Message, ...]
    """The exact messages of the whole turn, as new objects."""
    text: str
    """The text that was asked for; of a search the lines that match, numbered, with some around each."""
    blocks: tuple[Block, ...] = ()
    """The same as content of a ``tool_result``: `text`, with the images and documents where they stand in it."""
    lines: tuple[int, int] = (0, 0)
    """The first and the last line that `text` goes over, in the numbering of `planner.reading.lines.turn_lines`;
    zeros if it has none."""
    total_lines: int = 0
    """How many lines the turn has."""
    next_line: int | None = None
    """Where to go on if `text` is not all that was asked for."""
    matches: tuple[int, ...] = ()
    """With a search: the numbers of the lines that match."""


@dataclass(frozen=True, slots=True)
class Match:
    """A turn that holds what was searched for."""

    turn_id: str
    lines: tuple[int, ...]
    """Numbers of all its lines that match, in the numbering of `planner.reading.lines.turn_lines`."""
    excerpt: str
    """The best of these, numbered, best first, with the line before and behind each, long ones cut around the match;
    names others that match and, where calls ran at once, the call of a result and the result of a call."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The turns that match a search, best first, see `Store.search`."""

    matches: tuple[Match, ...]
    turns: int
    """How many turns match; more than there are `matches` where a limit cut."""
    by_words: bool = False
    """True if the text stands nowhere and matches nothing as a pattern: these hold some of its words."""


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


class Store(Protocol):
    """Where originals, plans, facts, events and session states live.

    Every method raises a `StoreError` if the store cannot do it, and `StoreDamaged` if what is stored does
    not match its digest.
    """

    def save_history(self, history: History) -> str:
        """Store every message of `history` exactly; its key. Costs what is not stored yet.

        The key is `history_key` of its digest, which says nothing of cache marks and of text as a string or a
        block. Where the digest is taken by another form of the same history, the key is made of the exact form:
        what a key gave back once, it gives back for ever.
        """
        ...

    def load_history(self, key: str) -> History:
        """The history saved under `key`: ``h`` and 8 to 64 hex digits, or the full digest.

        Raises:
            ReferenceNotFound: no history, or more than one, has that key.
        """
        ...

    def histories(self) -> tuple[StoredHistory, ...]:
        """All histories saved, oldest first."""
        ...

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
        ...

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
        ...

    def save_plan(self, plan: CompactionPlan) -> str:
        """Store `plan`, secrets redacted; its id."""
        ...

    def load_plan(self, plan_id: str) -> CompactionPlan:
        """The plan with that id, or any longer start of its digest.

        Raises:
            ReferenceNotFound: no plan, or more than one, has that id.
        """
        ...

    def plans(self, history_key: str) -> tuple[str, ...]:
        """Ids of the plans made for a history or for a prefix of it, oldest first."""
        ...

    def save_facts(self, facts: Sequence[ExtractedFact], history_key: str) -> None:
        """Store `facts` of a saved history, secrets redacted; a fact that is there already counts once."""
        ...

    def facts(self, history_key: str) -> tuple[ExtractedFact, ...]:
        """The facts of a history and of every prefix of it, oldest first."""
        ...

    def record_event(self, event: Mapping[str, Any]) -> None:
        """Store `event`, secrets redacted. It has a ``time`` (seconds since the epoch) and may have a
        ``session``, by which it is found again.
        """
        ...

    def events(self, session: str | None = None, *, since: float = 0.0) -> tuple[dict[str, Any], ...]:
        """The events, of one session or of all, from the time `since` on, in the order of recording."""
        ...

    def set_state(self, name: str, value: Any) -> None:
        """Store any JSON value under `name`, exactly, in place of what was there; None removes it.

        A state that has the key of a history as one of its values is forgotten with it.
        """
        ...

    def get_state(self, name: str) -> Any:
        """What `set_state` stored under `name`, or None."""
        ...

    def forget(self, history_key: str) -> list[Finding]:
        """Delete a history, every one that extends it or that it extends, their plans and facts, the states and
        events that name one of them as a value, and the events of the sessions whose states (``session:ID``) these
        are; or the plan with an id like ``p1a2b3c4d``. What is left, if anything is.

        What a conversation that forks off before its end shares with it stays.
        """
        ...

    def flush(self) -> list[Finding]:
        """Take what was deleted out of every file and log of the database; what is left, if anything is."""
        ...

    def verify(self) -> list[Finding]:
        """Recompute every digest; what is wrong, nothing if all is well."""
        ...

    def size(self) -> StoreSize:
        """How much is stored."""
        ...

    def close(self) -> None:
        """Let go of the database. The store is not to be used afterwards."""
        ...

    def __enter__(self) -> Self:
        """The store itself."""
        ...

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        ...
