"""Conversation of each request, and the open sessions of the conversations.

A conversation is recognised by its messages up to the newest answer, or by our compaction at its start, so a client
need not name it. A client's name for a conversation never reaches another client's: the credentials for the provider
are part of the session's id.
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
from applier.adapters.proxy.responses_api import ResponsesPlanner
from applier.session import Session
from planner.proposal import Account
from planner.reading.messages import THINKING, blocks, field_of, message_digest

__all__ = ["CREDENTIALS", "NAME_HEADER", "PERSON_HEADER", "Asker", "Conversation", "Conversations", "short_digest"]

NAME_HEADER = "x-compactor-session"
"""Header with a client's name for its conversations; not forwarded."""
PERSON_HEADER = "x-compactor-person"
"""Header with the owner of a request if people have tokens; only the proxy's entrance sets it; not forwarded."""
CREDENTIALS = "x-api-key", "authorization", "api-key"
"""Headers with a client's key or login."""
IDLE_SECONDS = 3_600.0
"""Time after which an unused session is closed, because it occupies memory and the provider caches its history for an
hour at most. Sessions shared through a database are closed sooner."""
HELD_TOKENS = 10_000_000
"""Largest number of tokens in all open histories, at 20 to 35 bytes of memory each. A history of 340,000 tokens is read
again from the store in a tenth of a second."""
_LEAST_TOKENS = 2_000
"""Smallest size counted for an open session, as a short history takes memory, too."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""``run-7``; not ``a b``, nor a path."""
Asker = Account | ResponsesPlanner
"""Function that asks for plans at the upstream of a conversation."""


@dataclass(eq=False)
class Conversation:
    """A conversation with its open session."""

    session: Session
    asker: Asker | None
    digest: str
    """Digest that distinguishes it from other conversations of its owner."""
    person: str = field(default_factory=PERSON.get)
    """Name of its owner, if people have tokens."""
    places: Sequence[tuple[str, str]] = ()
    """Pairs of a scope and a digest of its newest answer, by which the next request is assigned to it."""
    used_at: float = 0.0
    held_tokens: int = 0
    """Tokens in its memory, as of its last call."""
    noted: int = 0
    """Number of its planner's calls that are counted already."""
    made_of: Sequence[str] = ()
    """Digests of the messages that `sent` replaced."""
    sent: Sequence[Any] = ()
    """Last list sent, if it differed from the client's messages; else empty, like `made_of`."""

    def note_sent(self, messages: Sequence[Any], sent: Sequence[Any]) -> None:
        """Remember that `sent` replaced `messages`, or, if it is empty, that `messages` were sent unchanged."""
        self.made_of, self.sent = (list(map(message_digest, messages)) if sent else []), sent

    def as_sent(self, messages: Sequence[Any]) -> list[Any]:
        """Return `messages` with the beginning replaced by the last list sent, if it was made from them."""
        count = len(self.made_of)
        is_same = list(map(message_digest, messages[:count])) == self.made_of
        return [*self.sent, *messages[count:]] if count and is_same else list(messages)


class Conversations:
    """Conversations with open sessions, for several threads; the one unused for longest is closed first."""

    def __init__(
        self,
        open_session: Callable[[str, str, Asker | None], Session],
        own: tuple[str, str] = ("", ""),
        limit_tokens: int = HELD_TOKENS,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        marks: Callable[[list[str]], Mapping[str, list[str]]] = lambda _: {},
    ) -> None:
        """Begin without open sessions.

        `open_session` takes a session id, a model and who asks for plans. `limit_tokens` bounds the memory of open
        sessions. A session unused for `idle_seconds` is closed; the next request of its conversation opens it again
        from the store. `marks` maps session ids to the digests of the newest answer that any proxy has seen.

        `own`: the secret of the own client, and the name of its conversations. A request with this secret belongs to
        that client whatever its key: the key of a login changes every few hours.
        """
        self._open, self._clock = open_session, clock
        self._own_secret, self._own_name = own
        self._limit_tokens, self._idle_seconds = limit_tokens, idle_seconds
        self._marks = marks
        self._known: dict[str, Conversation] = {}
        """Conversations by session id, the one unused for longest first."""
        self._held_tokens = 0
        self._lock = threading.Lock()
        self.closing: Callable[[Conversation], object] = lambda _: None
        """Function that receives each conversation before its session is closed."""

    def __len__(self) -> int:
        """Return the number of open conversations."""
        return len(self._known)

    def find(
        self,
        messages: Sequence[Any],
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        asker: Asker | None,
        digest: str = "",
    ) -> Conversation | None:
        """Return the conversation that `messages` continues; None if it has no answer yet. `asker` plans a new
        conversation; None: its upstream offers no planner. `digest`: the `Conversation.digest` in the messages, if our
        compaction is among them."""
        answers = list(_answers(messages)) or ([(digest, "")] if digest else [])
        if not answers:
            return None
        scope, model = self.scope(body, headers), str(body.get("model") or "")
        start = self._family(headers)
        ids = {one: f"{start}{short_digest(scope + one)}" for one in (*(whole for whole, _ in answers), digest) if one}
        marks, received = self._marks(list(ids.values())), {one for pair in answers for one in pair if one}
        with self._lock:
            # first the sessions that any proxy saw end with an answer of this request
            continued = (key for key in reversed(ids.values()) if received.intersection(marks.get(key, ())))
            key = (
                next(continued, None) or self._find(scope, answers, marks) or self._new_key(ids, answers, digest, marks)
            )
            conversation = self._known.pop(key, None)
            if conversation is None:
                own_digest = next(one for one, session_id in ids.items() if session_id == key)
                conversation = Conversation(self._open(key, model, asker), asker, own_digest)
            self._known[key] = conversation
            self._use(conversation, scope, [one for one in answers[-1] if one])
            unused = list(self._let_go())
        for one in unused:  # this may wait for a call in it
            self._end(one)
        return conversation

    def _use(self, one: Conversation, scope: str, newest: list[str]) -> None:
        """Record the digests `newest` of the newest answer of `one`, its time of use, and its size."""
        one.session.mark(newest)
        one.used_at, one.places = self._clock(), [(scope, digest) for digest in newest]
        state, before = one.session.state, one.held_tokens
        one.held_tokens = max(_LEAST_TOKENS, state.tokens + state.reclaimed_tokens)
        self._held_tokens += one.held_tokens - before

    def _let_go(self) -> Iterator[Conversation]:
        """Remove and yield conversations, the longest unused first, that are idle or too large; keep the newest."""
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
        """Return the conversation that `messages` continues, if it is open; change nothing."""
        answers = list(_answers(messages))
        with self._lock:
            key = self._find(self.scope(body, headers), answers) if answers else None
            return self._known.get(key or "")

    def open(self) -> list[Conversation]:
        """Return all open conversations, the one used last at the end."""
        with self._lock:
            return list(self._known.values())

    def sessions(self) -> list[Session]:
        """Return the sessions of all open conversations."""
        return [one.session for one in self.open()]

    def close(self) -> None:
        """Close all sessions; the store has their histories."""
        with self._lock:
            for one in self._known.values():
                self._end(one)
            self._known.clear()

    def _end(self, one: Conversation) -> None:
        self.closing(one)
        one.session.close()

    def _name(self, headers: Mapping[str, str]) -> str:
        """Return the client's name for its sessions, which begins their ids; empty without one."""
        name = headers.get(NAME_HEADER, "")
        if self._own_secret and hmac.compare_digest(name.encode(), self._own_secret.encode()):
            return self._own_name
        return name if _NAME.fullmatch(name) and name != self._own_name else ""

    def scope(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        """Return the key that separates clients with equal messages: credentials, name, user or session id. The own
        client has its name alone, as its credentials change.

        A client can choose another's name or id, but not another's credentials. If people have tokens, the person
        replaces the credentials, since a token may be renewed. Only digests of the credentials and of the scope are
        stored.
        """
        name = self._name(headers)
        if name and name == self._own_name:
            return name
        user = field_of(body.get("metadata"), "user_id")
        return f"{_owner(headers)}/{name}/{user or body.get('user') or ''}"

    def _family(self, headers: Mapping[str, str]) -> str:
        """Return the beginning of the ids of a client's conversations; a chosen name is followed by its owner."""
        name = self._name(headers)
        if name and name != self._own_name:
            return f"{name}.{_owner(headers)}."
        return f"{name}." if name else "proxy-"

    def _find(self, scope: str, answers: list[tuple[str, str]], elsewhere: Container[str] = ()) -> str | None:
        """Return the id of the open conversation that ends with one of `answers`, the newest first: matched with
        everything before the answer, else by the answers alone. Ids in `elsewhere` do not match."""
        places = {place: key for key, one in self._known.items() if key not in elsewhere for place in one.places}
        wholes, alones = zip(*reversed(answers), strict=True)
        keys = (places.get((scope, digest)) for digest in (*wholes, *alones))
        return next(filter(None, keys), None)

    def _new_key(
        self, ids: Mapping[str, str], answers: list[tuple[str, str]], digest: str, elsewhere: Container[str]
    ) -> str:
        """Return the id of a new conversation, from its first answer, so that a later process computes the same id. A
        branch (rewound, or another client's) gets its id from its newest answer. Ids of clients without a name share no
        prefix, so that nobody can list them."""
        first, newest = answers[0][0], answers[-1][0]
        is_taken = ids[first] in self._known or ids[first] in elsewhere
        return ids[digest or (newest if is_taken else first)]


def _answers(messages: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield for each answer in `messages` a digest of everything up to it, and one of the answers alone. The second
    does not change if older results are edited; it is empty while nothing in the answers is unique. Neither includes
    thinking, which a client may leave out later."""
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
    """Return the digest of a request's credentials, or of the person if people have tokens."""
    names = (PERSON_HEADER,) if headers.get(PERSON_HEADER) else CREDENTIALS
    return short_digest(json.dumps([headers.get(name, "") for name in names]))


def short_digest(text: str) -> str:
    """Return 32 hex digits that name `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
