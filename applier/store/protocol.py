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
from planner.reading.messages import Message

__all__ = ["Match", "Restored", "Store", "StoreSize", "StoredHistory"]


@dataclass(frozen=True, slots=True)
class Restored:
    """What stands behind a reference."""

    reference: str
    """The full reference: ``h1a2b3c4d:t12``."""
    messages: tuple[Message, ...]
    """The exact messages of the whole turn, as new objects."""
    text: str
    """The turn's text; a range of its lines; or the lines that match, numbered, with two around each."""
    matches: tuple[int, ...] = ()
    """With a search: the numbers of the lines that match."""


@dataclass(frozen=True, slots=True)
class Match:
    """A turn that holds what was searched for."""

    turn_id: str
    lines: tuple[int, ...]
    """Numbers of the lines that match, in the numbering of `planner.reading.lines.turn_lines`."""
    excerpt: str
    """These lines, numbered, with two around each."""


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
        """Store every message of `history` exactly; the history key. Costs what is not stored yet."""
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

    def restore(self, reference: str, *, lines: tuple[int, int] | None = None, search: str | None = None) -> Restored:
        """What stands behind `reference`: ``h1a2b3c4d:t12``, or ``t12`` in a store with one conversation.

        `lines`: only these, first and last included. `search`: only the lines (of these) that hold this
        text, whatever its case, or if none does, that match it as a regular expression.

        Raises:
            ReferenceNotFound: no such history, turn or lines; the text says what there is.
        """
        ...

    def search(self, text: str, history_key: str) -> list[Match]:
        """The turns of a history that hold `text`, searched for as in `restore`."""
        ...

    def save_plan(self, plan: CompactionPlan) -> str:
        """Store `plan`; its id."""
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
        """Store any JSON value under `name`, exactly, in place of what was there; None removes it."""
        ...

    def get_state(self, name: str) -> Any:
        """What `set_state` stored under `name`, or None."""
        ...

    def forget(self, history_key: str) -> None:
        """Delete a history, every one that extends it or that it extends, and their plans and facts.

        What a conversation that forks off before its end shares with it stays.
        """
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
