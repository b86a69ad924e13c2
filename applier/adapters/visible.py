"""Part of a store that a caller inside a client may see: sessions with their subagents, or one history.

The program that starts the server or plugin chooses the part, never the agent. Reads only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from applier.session.persistence import load_session
from applier.store.excerpt import Restored, SearchResult
from applier.store.listing import KnownFact, facts_about, known_facts, stored_facts
from applier.store.reference import parse_reference, shortest_names
from applier.store.store import Store
from planner.errors import ReferenceNotFound
from planner.reading.lazy import lazy_property
from planner.reading.lines import Part

NOTHING_YET = "nothing was compacted in this conversation yet: all of it is still in the context"


@dataclass(frozen=True)
class VisibleConversation:
    """One stored conversation."""

    session: str
    """Id of the conversation's session; empty for a history selected by its key."""
    history_key: str
    plan_id: str


_NOBODYS = "no conversation is named here: run the client by `compactor wrap`, or set up this server with --session"
_BELOW = r"(?:\.[0-9a-f]{32})?(?:\.[0-9]{1,20})*"
"""End of the id of a session's conversation or subagent, after the session's id: the digest of a proxy's conversation,
then numbers of subagents. ``alice.work`` is another session than ``alice``, and so is ``alice.OWNER.…``, which a client
of a proxy named."""
_OF_OWNER = r"\.[0-9a-f]{32}\.[0-9a-f]{32}"
"""End of the id of a proxy's conversation, after the name that a client chose: the digest of the owner, then that of
the conversation."""
_SHOWN = 3
"""Largest number of names in an error."""


class Visible:
    """The conversations of some sessions and those below them, or of one history."""

    page_characters = 20_000
    """Size of one answer, 5,000 to 10,000 tokens, so that looking back never fills the window."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        session: str | Sequence[str] = "",
        history: str = "",
        project: str = "",
    ) -> None:
        """Show the sessions with the id or ids `session`, or the history with the key `history`; with neither, nothing.

        `project`: a folder; the facts of all conversations in it are shown, too. `open_store` may raise `StoreError`
        while there is no store; it is called again at the next use.
        """
        sessions = (session,) if isinstance(session, str) else session
        self._open, self._history, self._project = open_store, history, project
        self._shown: ContextVar[tuple[str, ...]] = ContextVar("sessions", default=tuple(filter(None, sessions)))

    @property
    def _sessions(self) -> tuple[str, ...]:
        """Ids of the visible sessions. Calls of a server run in parallel, and each has its own."""
        return self._shown.get()

    @lazy_property
    def store(self) -> Store:
        """The store, opened at first use. If that fails, the error is raised, and the next use tries again."""
        return self._open()

    def show(self, session: str) -> None:
        """Show only the session with the id `session` in the rest of the current call of a tool; nothing if it is
        empty."""
        self._shown.set((session,) if session else ())

    def close(self) -> None:
        """Close the store."""
        if "store" in self.__dict__:
            self.store.close()

    def conversations(self) -> list[VisibleConversation]:
        """Return all visible conversations, the one that was compacted last at the end."""
        if self._history:
            plans = self.store.plans(self._history)
            return [VisibleConversation("", self._history, plans[-1] if plans else "")]
        frames = {name: saved.frame for name in self._names() if (saved := load_session(self.store, name))}
        return [VisibleConversation(name, frame.key, frame.plan_id) for name, frame in frames.items() if frame.key]

    def current(self) -> VisibleConversation:
        """Return the visible session's own conversation, or else the one that was compacted last. Raise
        ReferenceNotFound if there is none."""
        conversations = self._newest_first()
        return next((one for one in conversations if one.session in self._sessions), conversations[0])

    def _newest_first(self) -> list[VisibleConversation]:
        """Return the visible conversations, beginning with the one that was compacted last. Raise ReferenceNotFound if
        there is none."""
        conversations = self.conversations()
        if not conversations:
            raise ReferenceNotFound(self._owners() or NOTHING_YET if self._sessions or self._history else _NOBODYS)
        return conversations[::-1]

    def _owners(self) -> str:
        """Return the text of an error if the session's name was chosen by clients of a proxy: it lists their owners.
        Return an empty text otherwise."""
        names = {name.rpartition(".")[0] for name in self._ending(_OF_OWNER)} if self._sessions else set()
        some = ", ".join(sorted(names)[:_SHOWN])
        return f"this name was chosen by clients of a proxy; use --session with name and owner: {some}" if names else ""

    def restore(
        self, reference: str, *, lines: tuple[int, int] | None, search: str | None, max_characters: int | None
    ) -> Restored:
        """Return the turn of `reference`, at most `max_characters` of it. `lines`: the first and last line to return;
        None for all. `search`: a text; only matching lines are returned.

        Raises:
            ReferenceNotFound: No visible conversation has the turn, or several have different turns with this id.
        """
        conversations = self._newest_first()
        if not parse_reference(reference)[0]:
            reference = self._full_reference(reference.strip(), conversations)
        within = [conversation.history_key for conversation in conversations]
        return self.store.restore(reference, lines=lines, search=search, max_characters=max_characters, within=within)

    def _full_reference(self, turn: str, conversations: Sequence[VisibleConversation]) -> str:
        """Return the full reference of a `turn` without a key. It is the turn of the session's own conversation, or
        else of the conversation that has it. Raise ReferenceNotFound if several have different ones."""
        current = self.current()
        if current.session in self._sessions or len(conversations) == 1:
            return f"{current.history_key}:{turn}"
        turns = {}
        for conversation in conversations:
            with suppress(ReferenceNotFound):
                name, messages = self.store.load_turn(f"{conversation.history_key}:{turn}")
                turns[name] = messages
        if any(messages != next(iter(turns.values())) for messages in turns.values()):
            names = ", ".join(map(self.short, list(turns)[:_SHOWN]))
            raise ReferenceNotFound(
                f"several conversations have a {turn}: write it with the key that your <compacted history=…> shows, "
                f"such as {names}"
            )
        return next(iter(turns), f"{current.history_key}:{turn}")

    def short(self, reference: str) -> str:
        """Return `reference` with its key shortened as far as the visible conversations allow. A reference to another
        conversation is returned unchanged."""
        key, _, turn = reference.rpartition(":")
        digits = {conversation.history_key.removeprefix("h") for conversation in self.conversations()}
        return f"{shortest_names(sorted(digits)).get(key.removeprefix('h'), key)}:{turn}"

    def search(self, text: str, *, part: Part | None, tool: str | None, limit: int | None) -> SearchResult:
        """Return at most `limit` turns that match `text`, with short references, the newest conversation first. `part`
        and `tool` narrow the search as in `Store.search`."""
        keys = [conversation.history_key for conversation in self._newest_first()]
        names = shortest_names([key.removeprefix("h") for key in keys])
        results = {key: self.store.search(text, key, part=part, tool=tool, limit=limit) for key in keys}
        matches = (
            replace(match, turn_id=f"{names[key.removeprefix('h')]}:{match.turn_id}")
            for key, result in results.items()
            for match in result.matches
        )
        return SearchResult(tuple(islice(matches, limit)), sum(result.turns for result in results.values()))

    def facts(self, *, kind: str | None = None, since: float = 0.0, words: str = "") -> list[KnownFact]:
        """Return the facts of the visible conversations and of the project. `kind`, `since` and `words` choose among
        them, as in `facts_about`."""
        visible = stored_facts(self.store, [conversation.history_key for conversation in self.conversations()])
        wanted: dict[str, Any] = {"kind": kind, "since": since, "words": words}
        others = known_facts(self.store, project=self._project, **wanted) if self._project else []
        facts = {(one.fact.content, one.fact.source): one for one in (*others, *visible)}
        return facts_about(facts.values(), **wanted)

    def events(self) -> list[dict[str, Any]]:
        """Return the visible events, oldest first."""
        names = self._names()
        return [event for event in self.store.events() if event.get("session") in names] if names else []

    def _names(self) -> list[str]:
        """Return the ids of the visible sessions, then those of their conversations and subagents, in the order of
        their first event."""
        return list(dict.fromkeys([*self._sessions, *self._ending(_BELOW)])) if self._sessions else []

    def _ending(self, end: str) -> list[str]:
        """Return the session ids in the store's events that are a visible session's id followed by the pattern
        `end`."""
        whole = re.compile(f"(?:{'|'.join(map(re.escape, self._sessions))}){end}")
        return [name for event in self.store.events() if whole.fullmatch(name := event.get("session", ""))]
