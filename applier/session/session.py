"""One agent's history, the plan in force, and what to send next.

Decides when to compact and hands the work to tiers; never raises out of `prepare`, never changes the
caller's list, and never sends a list whose removed originals are not in the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from applier.session.events import Event, Hook, Hooks
from planner.plan import CompactionPlan
from planner.proposal import Planner

__all__ = ["Compaction", "Hook", "Session", "SessionState"]


@dataclass(frozen=True, slots=True)
class SessionState:
    """Where a session stands; a value, safe to keep."""

    session_id: str
    level: Literal["normal", "warning", "critical", "exhausted"]
    tokens: int
    """Of the list that would be sent now, with system and tools."""
    window_tokens: int
    limit_tokens: int
    """What a prompt may have: the window without the output reserve."""
    compactions: int
    reclaimed_tokens: int
    breaker: Literal["closed", "open", "half_open"]
    history_key: str
    """Under which the store has the history as of the last commit; empty before."""
    history_messages: int
    sent_messages: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did, or would do (``dry_run``)."""

    messages: list[Any]
    """What to send; the list as it was if nothing was worth compacting."""
    applied: bool
    tier: str
    reason: str
    """Why it was done or not, in one line."""
    tokens_before: int
    tokens_after: int
    first_changed_message: int | None
    invalidated_tokens: int
    payback_calls: float | None
    """After how many calls it has paid back in cache terms; None if nothing changed."""
    plan: CompactionPlan | None
    """The plan in force afterwards; None if no tier planned."""


class Session:
    """Keeps one agent within its window.

    ::

        with Session("fix the token refresh race", client=client, model=model) as session:
            while True:
                response = client.messages.create(messages=session.prepare(messages), ...)
                session.observe(response)
                messages.append({"role": "assistant", "content": response.content})
                ...

    The caller's list may keep growing uncompacted, or be replaced by what `prepare` returned; either is
    recognised. All methods may be called from several threads; one runs at a time.
    """

    def __init__(
        self,
        task: str = "",
        *,
        preset: str | Any = "relevance",
        settings: Any = None,
        store: Any = None,
        planner: Planner | Literal["auto", "model", "rules"] = "auto",
        model: str = "",
        client: Any = None,
        system: str | Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        window_tokens: int = 200_000,
        max_output_tokens: int = 8_192,
        clock: Callable[[], float] = time.time,
        hooks: Hooks | None = None,
        session_id: str | None = None,
    ) -> None:
        """Open, or with a known `session_id` and the same `store` continue, a session.

        `task` may be assigned later (``session.task = …``); empty means the user's own words. `store` is a
        store, a path, or None for the default file. `hooks` maps event kinds (``"*"`` for all) to callables.

        Raises:
            SettingsError: an unknown preset, or system and tools alone leave no room in the window.
        """
        self.task = task
        self.session_id = session_id or ""

    def prepare(self, messages: Sequence[object]) -> list[Any]:
        """What to send now, for the caller's whole list `messages` (dicts or SDK objects).

        Work is proportional to the new messages while nothing is to be done, and the returned list starts
        with the same messages as the last one until a compaction really happens. Never raises: whatever
        fails, a valid list comes back and the log says what happened.
        """
        return list(messages)

    def observe(self, response: object) -> None:
        """Take the provider's answer to the list last prepared: its ``usage`` calibrates the counter.

        `response` is an SDK message, a dict, or the usage itself; anything else is ignored.
        """

    def compact(self, messages: Sequence[object], focus: str = "", dry_run: bool = False) -> Compaction:
        """Compact now, whatever the triggers say; with `dry_run` only show it, writing nothing.

        Raises:
            CompactorError: it could not be done; the session is as it was.
        """
        raise NotImplementedError

    def request_compaction(self, focus: str = "") -> None:
        """Compact at the next `prepare`: what the model's own ``compact`` tool calls."""

    def recover(self, messages: Sequence[object], error: object) -> list[Any] | None:
        """What to send instead, after the provider answered `error` to the list last prepared.

        None if the error is not about the prompt's length, or nothing shorter can be sent: raise it then.
        The reactive retry is given once per prepared list; it is more aggressive than any trigger.
        """
        return None

    def restore(
        self, reference: str, *, lines: tuple[int, int] | None = None, search: str | None = None
    ) -> Any:
        """The stored original behind `reference` (``h1a2b3c4d:t12``, or ``t12`` of this session).

        Whole, the lines first to last (from 1, included), or those that match `search`.

        Raises:
            ReferenceNotFound: nothing in this store has that name.
        """
        raise NotImplementedError

    def search(self, text: str, limit: int = 20) -> list[tuple[str, int, str]]:
        """Where `text` (case-insensitive) stands in the whole history: (reference, line number, line)."""
        raise NotImplementedError

    def undo(self) -> bool:
        """Take back the last compaction; False if there is none. The next `prepare` sends the older view.

        Automatic compaction then waits until the list has grown further or the window forces it.
        """
        return False

    def log(self) -> list[Event]:
        """Everything that happened in this session, oldest first, earlier processes included."""
        return []

    @property
    def state(self) -> SessionState:
        """Where the session stands after the last `prepare`."""
        raise NotImplementedError

    def set_request(
        self,
        *,
        system: str | Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        max_output_tokens: int | None = None,
    ) -> None:
        """Tell what else the next request holds, for callers (middleware) that learn it per request."""

    def child(self, task: str, window_tokens: int | None = None) -> Session:
        """A session for a subagent: its own history and budget, the same store, preset and planner."""
        raise NotImplementedError

    def close(self) -> None:
        """Commit the history, stop the worker; a store that the session opened itself is closed."""

    def __enter__(self) -> Self:
        """The session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()
