"""Limits which conversations of a store an agent's tools may read: those of a session and its subagents, or one.

The program that starts the server or plugin chooses them, never the agent. Nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from propcache.api import cached_property

from applier.session.ledger import load_session
from applier.store.excerpt import Restored, SearchResult
from applier.store.listing import KnownFact, facts_about, known_facts, stored_facts
from applier.store.records import parse_key, parse_reference, shortest_names
from applier.store.store import Store
from planner.errors import ReferenceNotFound, StoreError
from planner.placeholders import history_key
from planner.reading.lines import Part


@dataclass(frozen=True)
class VisibleConversation:
    """Stored conversation that an agent's tools may read."""

    session: str
    """Id of the conversation's session; empty if it was selected by the key of its history."""
    history_key: str
    plan_id: str
    """Id of the plan by which it was compacted last; empty if it was not compacted."""


_NO_CONVERSATION = (
    "no conversation is named here: run the client by `compactor wrap`, or set up this server with --session"
)
_BELOW = r"(?:\.[0-9a-f]{32})?(?:\.[0-9]{1,20})*"
"""End of the id of a session's conversation or subagent, after the session's id: a digest of a proxy's conversation,
then numbers of subagents. Ids such as ``alice.work`` and ``alice.OWNER.…`` are others than ``alice``."""
_OF_OWNER = r"\.[0-9a-f]{32}\.[0-9a-f]{32}"
"""End of the id of a proxy's conversation, after the name that a client chose: a digest of the client's person or
credentials, then one of the conversation."""
_MOST_NAMES = 3
"""Largest number of names that an error lists."""


class Visible:
    """Conversations that an agent's tools may read: those of some sessions and their subagents, or a single one."""

    page_characters = 20_000
    """Largest size of one answer, 5,000 to 10,000 tokens, so that looking back never fills the agent's window."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        session: str | Sequence[str] = "",
        history: str = "",
        project: str = "",
        is_typed: bool = False,
    ) -> None:
        """Allow the sessions with the id or ids `session`, or the history with the key `history`; with neither, none.

        `project`: a folder; the facts of all conversations in it may be read too. `is_typed`: True if a person typed
        the id of the session, so that it may be wrong. `open_store` may raise `StoreError` while there is no store; it
        is called again at the next use.
        """
        sessions = (session,) if isinstance(session, str) else session
        self._open, self._history, self._project = open_store, history, project
        self._is_typed = is_typed
        self._session_ids: ContextVar[tuple[str, ...]] = ContextVar("sessions", default=tuple(filter(None, sessions)))

    @property
    def _sessions(self) -> tuple[str, ...]:
        """Ids of the sessions that the present call may read. Calls of a server run in parallel; each has its own."""
        return self._session_ids.get()

    @cached_property
    def store(self) -> Store:
        """Store that contains the conversations, opened at first use. If that fails, the next use tries again."""
        return self._open()

    def show(self, session: str) -> None:
        """Allow only the session with the id `session` (empty: none) in the rest of the present call of a tool."""
        self._session_ids.set((session,) if session else ())

    def close(self) -> None:
        """Close the store, if it was opened."""
        if "store" in self.__dict__:
            self.store.close()

    def conversations(self) -> list[VisibleConversation]:
        """Return all conversations that may be read: those of the sessions themselves, then those of their subagents by
        their last event, the newest at the end."""
        if self._history:
            plans = self.store.plans(self._history)
            return [VisibleConversation("", self._history, plans[-1] if plans else "")]
        # a frame describes the newest compaction of a session
        frames = {name: saved.frame for name in self._names() if (saved := load_session(self.store, name))}
        return [VisibleConversation(name, frame.key, frame.plan_id) for name, frame in frames.items() if frame.key]

    def current(self) -> VisibleConversation:
        """Return the conversation of a session itself; if only subagents are stored, the one with the newest event.
        Raise ReferenceNotFound if there is none."""
        conversations = self._newest_first()
        return next((one for one in conversations if one.session in self._sessions), conversations[0])

    def _newest_first(self) -> list[VisibleConversation]:
        """Return the conversations that may be read: those of subagents, the newest first, then those of the sessions
        themselves. If there are none, raise ReferenceNotFound with the reason."""
        if conversations := self.conversations():
            return conversations[::-1]
        if not self._sessions:
            raise ReferenceNotFound(_NO_CONVERSATION)
        # clients of a proxy may have chosen the name, so that it does not identify one client
        owned = sorted({name.rpartition(".")[0] for name in self._sessions_with(_OF_OWNER)})
        if owned:
            some = ", ".join(owned[:_MOST_NAMES])
            problem = f"this name was chosen by clients of a proxy; use --session with name and owner: {some}"
            raise ReferenceNotFound(problem)
        raise ReferenceNotFound(
            f"nothing was compacted under the name {' or '.join(map(repr, self._sessions))} yet: all of this "
            "conversation is still in the context, or it has another name or store"
        )

    def doubt(self) -> str:
        """Return a text if the id of the session may be mistyped, because nothing is stored under it; else an empty
        text. Raise ReferenceNotFound if no conversation may be read at all."""
        if not (self._sessions or self._history):
            raise ReferenceNotFound(_NO_CONVERSATION)
        try:
            if self._is_typed:
                self._newest_first()  # it raises an error if nothing is stored
        except (ReferenceNotFound, StoreError) as error:
            return str(error)
        return ""

    def restore(
        self, reference: str, *, lines: tuple[int, int] | None, search: str | None, max_characters: int | None
    ) -> Restored:
        """Return the original of the turn with the id `reference` (``t12`` or ``h1a2b3c4d:t12``), at most
        `max_characters` of it. `lines`: the first and last line to return; None for all. `search`: a text; only lines
        that match it are returned.

        Raises:
            ReferenceNotFound: No conversation that may be read has the turn, or several have different turns with this
                id.
        """
        conversations = self._newest_first()
        if not parse_reference(reference)[0]:
            reference = self._full_reference(reference.strip(), conversations)
        within = [conversation.history_key for conversation in conversations]
        return self.store.restore(reference, lines=lines, search=search, max_characters=max_characters, within=within)

    def _full_reference(self, turn: str, conversations: Sequence[VisibleConversation]) -> str:
        """Return ``h1a2b3c4d:t12`` for the `turn` ``t12`` of the session itself, or else of another conversation that
        has such a turn. Raise ReferenceNotFound if several have different ones."""
        current = self.current()
        if current.session in self._sessions or len(conversations) == 1:
            return f"{current.history_key}:{turn}"
        messages_by_name = {}
        for conversation in conversations:
            with suppress(ReferenceNotFound):
                name, messages = self.store.load_turn(f"{conversation.history_key}:{turn}")
                messages_by_name[name] = messages
        first = next(iter(messages_by_name.values()), None)
        if any(messages != first for messages in messages_by_name.values()):
            names = ", ".join(map(self.short, list(messages_by_name)[:_MOST_NAMES]))
            raise ReferenceNotFound(
                f"several conversations have a {turn}: write it with the key that your <compacted history=…> shows, "
                f"such as {names}"
            )
        return next(iter(messages_by_name), f"{current.history_key}:{turn}")

    def short(self, reference: str) -> str:
        """Return the turn's id `reference` with the key in front shortened as far as it stays unique among the
        conversations that may be read. Return the id of a turn of another conversation unchanged."""
        key, _, turn = reference.rpartition(":")
        digits = {conversation.history_key.removeprefix("h") for conversation in self.conversations()}
        return f"{shortest_names(sorted(digits)).get(key.removeprefix('h'), key)}:{turn}"

    def search(self, text: str, *, part: Part | None, tool: str | None, limit: int | None) -> SearchResult:
        """Return at most `limit` turns that match `text`, with ids such as ``h1a:t12``: those of subagents first (by
        newest event), then those of the session. `part` (sender or kind of text) and `tool` narrow the search."""
        keys = [conversation.history_key for conversation in self._newest_first()]
        names = shortest_names([key.removeprefix("h") for key in keys])  # keys as short as they stay unique
        results = {key: self.store.search(text, key, part=part, tool=tool, limit=limit) for key in keys}
        matches = (
            replace(match, turn_id=f"{names[key.removeprefix('h')]}:{match.turn_id}")
            for key, result in results.items()
            for match in result.matches
        )
        return SearchResult(tuple(islice(matches, limit)), sum(result.turns for result in results.values()))

    def facts(self, *, kind: str | None = None, since: float = 0.0, words: str = "") -> list[KnownFact]:
        """Return the facts (decisions, errors, constraints …) extracted from the conversations that may be read, and
        from all others of the project. `kind`, `since` and `words` choose among them, as in `facts_about`. Without a
        project, raise ReferenceNotFound if there is no conversation."""
        conversations = self.conversations() if self._project else self._newest_first()[::-1]  # this one may raise
        visible = stored_facts(self.store, [conversation.history_key for conversation in conversations])
        filters: dict[str, Any] = {"kind": kind, "since": since, "words": words}
        others = known_facts(self.store, project=self._project, **filters) if self._project else []
        facts = {(one.fact.content, one.fact.source): one for one in (*others, *visible)}
        return facts_about(facts.values(), **filters)

    def events(self) -> list[dict[str, Any]]:
        """Return the stored events, such as compactions, of the conversations that may be read, oldest first. Raise
        ReferenceNotFound if there are none and no conversation."""
        if self._history:
            key, plans = history_key(parse_key(self._history)), self.store.plans(self._history)
            return [one for one in self.store.events() if one.get("history") == key or one.get("plan") in plans]
        names = self._names()
        events = [event for event in self.store.events() if event.get("session") in names] if names else []
        if not events:
            self._newest_first()  # it raises the error
        return events

    def _names(self) -> list[str]:
        """Return the ids of the sessions that may be read, then those of their subagents, by last event."""
        return list(dict.fromkeys([*self._sessions, *self._sessions_with(_BELOW)])) if self._sessions else []

    def _sessions_with(self, end: str) -> list[str]:
        """Return the session ids in the store that are one of `_sessions` (the ids that may be read) with an ending
        that matches the regular expression `end`, such as `_BELOW`; the one with the newest event last."""
        whole = re.compile(f"(?:{'|'.join(map(re.escape, self._sessions))}){end}")
        names = [name for event in self.store.events() if whole.fullmatch(name := event.get("session", ""))]
        return list(dict.fromkeys(reversed(names)))[::-1]
