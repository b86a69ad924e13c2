"""The part of a store that whoever asks from inside a client may see: one session and those below it, or one history.

Decided when it is made, never by who calls. A store that is not there yet holds nothing. Reads only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from applier.session.persistence import load_session
from applier.store.listing import KnownFact, facts_about, known_facts, stored_facts
from applier.store.store import Restored, SearchResult, Store
from planner.errors import ReferenceNotFound
from planner.reading.lazy_property import lazy_property
from planner.reading.lines import Part

__all__ = ["NOTHING_YET", "Conversation", "Visible"]

NOTHING_YET = "nothing was compacted in this conversation yet: all of it still stands in the context"


@dataclass(frozen=True)
class Conversation:
    """One stored conversation; `session` is empty for a history that was named itself."""

    session: str
    history_key: str
    plan_id: str


_NOBODYS = "no conversation is named here: run the client by `compactor wrap`, or set up this server with --session"
_BELOW = r"(?:\.[0-9a-f]{16})?(?:\.[0-9]+)*"
"""What stands behind a session's name in the ids below it: of a proxy's conversations, and of subagents. Another's
session that begins alike (``alice`` and ``alice.work``) is not below it."""


class Visible:
    """The part of a store that belongs to one session and those below it, or to one history."""

    page_characters = 20_000
    """What one answer may have: about 5,000 to 10,000 tokens, so that looking back never fills the window."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        session: str | Sequence[str] = "",
        history: str = "",
        project: str = "",
    ) -> None:
        """`session`: one or more ids, or names that a proxy's client gave; `history`: a key. Without one it shows
        nothing but, with a `project`, the facts of the conversations that worked in that folder.

        `open_store` may raise `StoreError` while there is none; it is asked again then.
        """
        sessions = (session,) if isinstance(session, str) else session
        self._open, self._history, self._project = open_store, history, project
        self._sessions = tuple(filter(None, sessions))

    @lazy_property
    def store(self) -> Store:
        """The store, opened when first needed; while there is none, that is an error, and it is tried again."""
        return self._open()

    def close(self) -> None:
        """Let go of the store."""
        if "store" in self.__dict__:
            self.store.close()

    def conversations(self) -> list[Conversation]:
        """All that may be seen, the one that was compacted last at the end."""
        if self._history:
            plans = self.store.plans(self._history)
            return [Conversation("", self._history, plans[-1] if plans else "")]
        frames = {name: saved.frame for name in self._names() if (saved := load_session(self.store, name))}
        return [Conversation(name, frame.key, frame.plan_id) for name, frame in frames.items() if frame.key]

    def current(self) -> Conversation:
        """The one that was compacted last.

        Raises:
            ReferenceNotFound: none was.
        """
        return self._newest_first()[0]

    def _newest_first(self) -> list[Conversation]:
        known = self.conversations()
        if not known:
            raise ReferenceNotFound(NOTHING_YET if self._sessions or self._history else _NOBODYS)
        return known[::-1]

    def restore(
        self, reference: str, *, lines: tuple[int, int] | None, search: str | None, max_characters: int | None
    ) -> Restored:
        """What stands behind `reference`, at most so many characters."""
        within = [conversation.history_key for conversation in self._newest_first()]
        return self.store.restore(reference, lines=lines, search=search, max_characters=max_characters, within=within)

    def search(self, text: str, *, part: Part | None, tool: str | None, limit: int | None) -> SearchResult:
        """The turns that match `text` by their full references, the newest conversation's first."""
        keys = [conversation.history_key for conversation in self._newest_first()]
        results = {key: self.store.search(text, key, part=part, tool=tool, limit=limit) for key in keys}
        matches = (replace(m, turn_id=f"{key}:{m.turn_id}") for key, result in results.items() for m in result.matches)
        return SearchResult(tuple(islice(matches, limit)), sum(result.turns for result in results.values()))

    def facts(self, *, kind: str | None = None, since: float = 0.0, words: str = "") -> list[KnownFact]:
        """Those of all that may be seen, and of the project, as `facts_about` chooses them."""
        own = stored_facts(self.store, [conversation.history_key for conversation in self.conversations()])
        asked: dict[str, Any] = {"kind": kind, "since": since, "words": words}
        others = known_facts(self.store, project=self._project, **asked) if self._project else []
        return facts_about({(one.fact.content, one.fact.source): one for one in (*others, *own)}.values(), **asked)

    def events(self) -> list[dict[str, Any]]:
        """What happened, oldest first."""
        names = self._names()
        return [event for event in self.store.events() if _session_of(event) in names] if names else []

    def _names(self) -> list[str]:
        """Return the sessions and those below them, in the order of their first event."""
        if not self._sessions:
            return []
        below = re.compile(f"(?:{'|'.join(map(re.escape, self._sessions))}){_BELOW}")
        names = [name for event in self.store.events() if below.fullmatch(name := _session_of(event))]
        return list(dict.fromkeys([*self._sessions, *names]))


def _session_of(event: dict[str, Any]) -> str:
    return str(event.get("session") or event.get("session_id") or "")
