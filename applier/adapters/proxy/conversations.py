"""Which conversation a request belongs to, and the sessions that are open for them.

A conversation is known by what was said up to its newest answer, or by a compaction of ours that it begins with, so a
client need say nothing. What a client only chooses leads into nobody else's conversation: what he shows the provider
is in its name.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from applier.adapters.proxy.metrics import PERSON
from applier.adapters.proxy.responses_planner import ResponsesPlanner
from applier.session import Session
from planner.proposal import Account
from planner.reading.messages import THINKING, blocks, field_of, message_digest

__all__ = ["CREDENTIALS", "NAME_HEADER", "PERSON_HEADER", "Asker", "Conversation", "Conversations", "short_digest"]

NAME_HEADER = "x-compactor-session"
"""By which a client may name its conversations; not forwarded."""
PERSON_HEADER = "x-compactor-person"
"""Says whose request it is where people have tokens; only the proxy's entrance sets it. Not forwarded."""
CREDENTIALS = "x-api-key", "authorization", "api-key"
"""Headers by which providers know who asks."""
IDLE_SECONDS = 3_600.0
"""A session holds its whole history in memory; the provider's cache of it is gone after an hour at the latest. One
that goes on exactly from the store is let go sooner."""
HELD_TOKENS = 10_000_000
"""Of all histories held: 20 to 35 bytes each, with what was read and counted of them. One of 340,000 is read again from
the store in a tenth of a second."""
_LEAST_TOKENS = 2_000
"""What a session takes beside its history."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""``run-7``; not ``a b``, nor a path."""
Asker = Account | ResponsesPlanner
"""By whom plans are asked for where a conversation's requests go."""


@dataclass(eq=False)
class Conversation:
    """One that goes on here, with its open session."""

    session: Session
    asker: Asker | None
    called: str
    """The digest by which it is known to who has the same key or name."""
    person: str = field(default_factory=PERSON.get)
    """Whose it is."""
    places: Sequence[tuple[str, str]] = ()
    """Scope and digests of its newest answer, by which the next request finds it."""
    used_at: float = 0.0
    held_tokens: int = 0
    """As of its last call."""
    noted: int = 0
    """So many askings of its planner are counted."""
    made_of: Sequence[str] = ()
    sent: Sequence[Any] = ()
    """What went out last in place of a list, and digests of that; both empty where nothing was replaced."""

    def note_sent(self, messages: Sequence[Any], sent: Sequence[Any]) -> None:
        """Remember what went out for `messages`; nothing if it was they."""
        self.made_of, self.sent = (list(map(message_digest, messages)) if sent else []), sent

    def as_sent(self, messages: Sequence[Any]) -> list[Any]:
        """`messages` with what went out last in place of what it was made of."""
        count = len(self.made_of)
        is_same = list(map(message_digest, messages[:count])) == self.made_of
        return [*self.sent, *messages[count:]] if count and is_same else list(messages)


class Conversations:
    """Those with open sessions, the longest unused one closed first; may be used from several threads."""

    def __init__(
        self,
        open_session: Callable[[str, str, Asker | None], Session],
        own: tuple[str, str] = ("", ""),
        limit_tokens: int = HELD_TOKENS,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        marks: Callable[[list[str]], Mapping[str, list[str]]] = lambda _: {},
    ) -> None:
        """`open_session` takes a session id, a model and whom to ask for plans; `limit_tokens` bounds
        what open ones hold, and none is open that nobody used for `idle_seconds`; `marks` says of session ids by which
        digests of its newest answer any proxy has known each last.

        `own`: a secret, and the name of the conversations of who shows it in place of a name. They are his whatever
        key comes with them: that of a login is renewed every few hours.
        A closed one continues from the store, by its id, when its conversation comes back.
        """
        self._open, self._own, self._clock = open_session, own, clock
        self._limit_tokens, self._idle_seconds = limit_tokens, idle_seconds
        self._marks = marks
        self._known: dict[str, Conversation] = {}
        """By the session's id, the longest unused first."""
        self._held_tokens = 0
        self._lock = threading.Lock()
        self.closing: Callable[[Conversation], object] = lambda _: None
        """Hears of each before its session is closed."""

    def __len__(self) -> int:
        """How many are open."""
        return len(self._known)

    def find(
        self,
        messages: Sequence[Any],
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        asker: Asker | None,
        called: str = "",
    ) -> Conversation | None:
        """The conversation that `messages` continues; None if nothing in it was answered yet.

        Its planner is, or asks as, `asker`, which is the client's; None: nobody can be asked where its requests go.
        `called`: by what the conversation says that it is known (see `Conversation`); another's is not found by it.
        """
        answers = list(_answers(messages)) or ([(called, "")] if called else [])
        if not answers:
            return None
        scope, model = self.scope(body, headers), str(body.get("model") or "")
        of = self._family(headers)
        ids = {call: f"{of}{short_digest(scope + call)}" for call in (*(whole for whole, _ in answers), called) if call}
        marks, here = self._marks(list(ids.values())), {digest for pair in answers for digest in pair if digest}
        with self._lock:
            known = (key for key in reversed(ids.values()) if here.intersection(marks.get(key, ())))
            key = next(known, None) or self._find(scope, answers, marks) or self._new_key(ids, answers, called, marks)
            found = self._known.pop(key, None)
            if found is None:
                call = next(call for call, own in ids.items() if own == key)
                found = Conversation(self._open(key, model, asker), asker, call)
            self._known[key] = found
            self._use(found, scope, [digest for digest in answers[-1] if digest])
            unused = list(self._let_go())
        for one in unused:  # which may wait for a call in it
            self._end(one)
        return found

    def _use(self, one: Conversation, scope: str, newest: list[str]) -> None:
        """Note that `one` goes on behind its `newest` answer."""
        one.session.mark(newest)
        one.used_at, one.places = self._clock(), [(scope, digest) for digest in newest]
        state, before = one.session.state, one.held_tokens
        one.held_tokens = max(_LEAST_TOKENS, state.tokens + state.reclaimed_tokens)
        self._held_tokens += one.held_tokens - before

    def _let_go(self) -> Iterator[Conversation]:
        """The longest unused ones, as far as they are idle or more is held than may be; never the newest."""
        idle_since = self._clock() - self._idle_seconds
        while len(self._known) > 1:
            key, oldest = next(iter(self._known.items()))
            if self._held_tokens <= self._limit_tokens and oldest.used_at >= idle_since:
                return
            self._held_tokens -= oldest.held_tokens
            yield self._known.pop(key)

    def known(
        self, messages: Sequence[Any], body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Conversation | None:
        """The conversation that `messages` continues, if it is open; opens and notes nothing."""
        answers = list(_answers(messages))
        with self._lock:
            key = self._find(self.scope(body, headers), answers) if answers else None
            return self._known.get(key or "")

    def open(self) -> list[Conversation]:
        """All that are, the one used last at the end."""
        with self._lock:
            return list(self._known.values())

    def sessions(self) -> list[Session]:
        """Theirs."""
        return [one.session for one in self.open()]

    def close(self) -> None:
        """Close all; their histories are in the store then."""
        with self._lock:
            for one in self._known.values():
                self._end(one)
            self._known.clear()

    def _end(self, one: Conversation) -> None:
        self.closing(one)
        one.session.close()

    def _name(self, headers: Mapping[str, str]) -> str:
        """What the client calls its sessions: their ids begin with it. Empty if it says nothing."""
        name, (secret, own) = headers.get(NAME_HEADER, ""), self._own
        if secret and hmac.compare_digest(name.encode(), secret.encode()):
            return own
        return name if _NAME.fullmatch(name) and name != own else ""

    def scope(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        """What tells clients apart that say the same: their keys, a name, a user or session id.

        Names and ids are chosen by the client, and may be another's; what it shows the provider is its own, and where
        people have tokens, who it is: he may renew his. Of that only a digest goes in here, and of the scope only a
        digest into a session's id.
        """
        name = self._name(headers)
        if name and name == self._own[1]:
            return name
        user = field_of(body.get("metadata"), "user_id")
        return f"{_owner(headers)}/{name}/{user or body.get('user') or ''}"

    def _family(self, headers: Mapping[str, str]) -> str:
        """Return how the ids of a client's conversations begin. A name that it chose is followed by the owner: others
        may choose the same."""
        name = self._name(headers)
        if name and name != self._own[1]:
            return f"{name}.{_owner(headers)}."
        return f"{name}." if name else "proxy-"

    def _find(self, scope: str, answers: list[tuple[str, str]], elsewhere: Container[str] = ()) -> str | None:
        """The conversation whose newest answer stands in the list: with all before it as it was, else by itself."""
        places = {place: key for key, one in self._known.items() if key not in elsewhere for place in one.places}
        wholes, alones = zip(*reversed(answers), strict=True)
        keys = (places.get((scope, digest)) for digest in (*wholes, *alones))
        return next(filter(None, keys), None)

    def _new_key(
        self, ids: Mapping[str, str], answers: list[tuple[str, str]], called: str, elsewhere: Container[str]
    ) -> str:
        """A new one is called by its first answer, so that a later process gives it the same id.

        One that goes another way from there (rewound, or another client's) is called by its newest answer. Those of
        clients without a name have nothing in common by which one could be asked for all.
        """
        first, newest = answers[0][0], answers[-1][0]
        is_taken = ids[first] in self._known or ids[first] in elsewhere
        return ids[called or (newest if is_taken else first)]


def _answers(messages: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """The places behind each answer in `messages`: a digest of everything up to it, and one of the answers alone.

    The latter survives edits of older results; it is empty while nothing in the answers is unique. Thinking is in
    neither: a client may leave it out later.
    """
    whole, alone, is_unique = hashlib.sha256(), hashlib.sha256(), False
    for message in messages:
        shown = [block for block in blocks(message) if block.get("type") not in THINKING]
        digest = message_digest({"role": message["role"], "content": shown}).encode()
        whole.update(digest)
        if message["role"] == "assistant":
            alone.update(digest)
            is_unique = is_unique or any(block.get("type") == "tool_use" for block in shown)
            yield whole.hexdigest(), alone.hexdigest() if is_unique else ""


def _owner(headers: Mapping[str, str]) -> str:
    """Return the digest of what a request shows the provider, or of the person where people have tokens."""
    shows = (PERSON_HEADER,) if headers.get(PERSON_HEADER) else CREDENTIALS
    return short_digest(json.dumps([headers.get(header, "") for header in shows]))


def short_digest(text: str) -> str:
    """Return 32 hex digits that name `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
