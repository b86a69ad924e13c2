"""Conversation of each request, and the open sessions of the conversations.

A conversation is recognised by its messages up to the newest answer, or by our compaction at its start, so a client
need not name it. The credentials for the provider are part of the session's id, so that no client can reach a
conversation of another one by its name.
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
from typing import Any, NamedTuple

from applier.adapters.proxy.configuration import OwnClient
from applier.adapters.proxy.metrics import PERSON
from applier.adapters.proxy.responses_api import ResponsesPlanner
from applier.session import Session
from planner.proposal import Account
from planner.reading.messages import THINKING, blocks, field_of, message_digest

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
"""Object by which the upstream of a conversation is asked for plans."""


class Place(NamedTuple):
    """Key by which a request is assigned to an open conversation."""

    scope: str
    """Result of `Conversations.scope`."""
    digest: str
    """Digest of the conversation's newest answer."""


class _AnswerDigests(NamedTuple):
    """Digests that identify an answer in a list of messages. Neither includes thinking, which clients may leave out."""

    whole: str
    """Digest of all messages up to the answer."""
    alone: str
    """Digest of the answers up to this one, without other messages: it stays the same if a client edits old results.
    Empty while no answer contains a call, whose id is unique."""

    @property
    def known(self) -> list[str]:
        """The digests that are not empty."""
        return [digest for digest in self if digest]


@dataclass(eq=False)
class Conversation:
    """A conversation with its open session."""

    session: Session
    asker: Asker | None
    digest: str
    """Digest that distinguishes it from other conversations of its owner."""
    person: str = field(default_factory=PERSON.get)
    """Name of its owner if people have tokens, else empty."""
    places: Sequence[Place] = ()
    """Places by which its next request is assigned to it."""
    used_at: float = 0.0
    """Time of its last request, by the clock of `Conversations`."""
    held_tokens: int = 0
    """Tokens that its session keeps in memory, as of its last request."""
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
        """Return `messages` with the last list sent in place of the messages that it replaced. If they do not begin
        with those, return a copy of `messages`."""
        count = len(self.made_of)
        is_same = list(map(message_digest, messages[:count])) == self.made_of
        return [*self.sent, *messages[count:]] if count and is_same else list(messages)


class Conversations:
    """Conversations with open sessions, for several threads; the one unused for longest is closed first."""

    def __init__(
        self,
        open_session: Callable[[str, str, Asker | None], Session],
        own: OwnClient | None = None,
        limit_tokens: int = HELD_TOKENS,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        marks: Callable[[list[str]], Mapping[str, list[str]]] = lambda _: {},
    ) -> None:
        """Begin without open sessions.

        `open_session` takes a session id, the model of the request, and the asker. `limit_tokens` bounds the tokens in
        all open sessions. A session unused for `idle_seconds` is closed; the next request of its conversation opens it
        again from the store. `clock` returns seconds. `marks` returns, for each session id in its argument, the digests
        of the newest answer that any proxy has seen.

        `own`: the client that this proxy was started for, if any. A request with its secret belongs to it whatever the
        key, because the key of a login changes every few hours.
        """
        self._open, self._clock = open_session, clock
        self._own = own or OwnClient()
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
        """Return the conversation that `messages` continues, or a new one; None if there is no answer in them yet.

        `body` and `headers`: those of the request. `asker` asks for plans if the conversation is opened now; None if
        its upstream offers no model for plans. `digest`: the `Conversation.digest` in our compaction, if there is one
        in the messages, else empty.
        """
        answers = list(_answers(messages)) or ([_AnswerDigests(digest, "")] if digest else [])
        if not answers:
            return None
        scope, model = self.scope(body, headers), str(body.get("model") or "")
        start = self._family(headers)
        digests = [*(answer.whole for answer in answers), digest]
        ids = {one: f"{start}{short_digest(scope + one)}" for one in digests if one}
        marks = self._marks(list(ids.values()))
        received = {one for answer in answers for one in answer.known}
        with self._lock:
            # another proxy may have answered last: first look for a session whose newest answer is in this request
            continued = (key for key in reversed(ids.values()) if received.intersection(marks.get(key, ())))
            key = (
                next(continued, None) or self._find(scope, answers, marks) or self._new_key(ids, answers, digest, marks)
            )
            conversation = self._known.pop(key, None)
            if conversation is None:
                own_digest = next(one for one, session_id in ids.items() if session_id == key)
                conversation = Conversation(self._open(key, model, asker), asker, own_digest)
            self._known[key] = conversation
            self._use(conversation, scope, answers[-1].known)
            unused = list(self._let_go())
        for one in unused:  # outside the lock, because closing may wait for a call in the session
            self._end(one)
        return conversation

    def _use(self, one: Conversation, scope: str, newest: list[str]) -> None:
        """Record the digests `newest` of the newest answer of `one`, its time of use, and its size."""
        one.session.mark(newest)
        one.used_at, one.places = self._clock(), [Place(scope, digest) for digest in newest]
        state, before = one.session.state, one.held_tokens
        one.held_tokens = max(_LEAST_TOKENS, state.tokens + state.reclaimed_tokens)
        self._held_tokens += one.held_tokens - before

    def _let_go(self) -> Iterator[Conversation]:
        """Remove and yield conversations, the one unused for longest first, while it is idle or all together are too
        large. The newest always stays."""
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
        """Return the open conversation that `messages` continues; None if there is none. Nothing is opened or changed.
        `body` and `headers`: those of the request."""
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
        if self._own.secret and hmac.compare_digest(name.encode(), self._own.secret.encode()):
            return self._own.name
        return name if _NAME.fullmatch(name) and name != self._own.name else ""

    def scope(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        """Return the key that separates clients whose messages are equal. It consists of a digest of the credentials,
        the client's name for its sessions, and the user or session id in `body`.

        A client can choose another's name or id, but not another's credentials. If people have tokens, the person
        replaces the credentials, since a token may be renewed. The key of the client that this proxy was started for is
        its name alone, because its credentials change. Only digests of the credentials and of the scope are stored.
        """
        name = self._name(headers)
        if name and name == self._own.name:
            return name
        user = field_of(body.get("metadata"), "user_id")
        return f"{_owner(headers)}/{name}/{user or body.get('user') or ''}"

    def _family(self, headers: Mapping[str, str]) -> str:
        """Return the beginning of the ids of a client's conversations: ``NAME.`` for the own client, ``NAME.OWNER.``
        for another client with a name, ``proxy-`` for one without."""
        name = self._name(headers)
        if name and name != self._own.name:
            return f"{name}.{_owner(headers)}."
        return f"{name}." if name else "proxy-"

    def _find(self, scope: str, answers: list[_AnswerDigests], elsewhere: Container[str] = ()) -> str | None:
        """Return the id of the open conversation that ends with one of `answers`, the newest first; None if none does.
        Digests of all messages are compared before those of the answers alone. Ids in `elsewhere` are ignored."""
        places = {place: key for key, one in self._known.items() if key not in elsewhere for place in one.places}
        newest_first = answers[::-1]
        digests = (*(one.whole for one in newest_first), *(one.alone for one in newest_first))
        keys = (places.get(Place(scope, digest)) for digest in digests)
        return next(filter(None, keys), None)

    def _new_key(
        self, ids: Mapping[str, str], answers: list[_AnswerDigests], digest: str, elsewhere: Container[str]
    ) -> str:
        """Return the id of a new conversation. It is made from the first answer, so that a later process computes the
        same id. A conversation with the same beginning as a known one gets its id from its newest answer."""
        first, newest = answers[0].whole, answers[-1].whole
        is_taken = ids[first] in self._known or ids[first] in elsewhere
        return ids[digest or (newest if is_taken else first)]


def _answers(messages: Sequence[Any]) -> Iterator[_AnswerDigests]:
    """Yield for each answer in `messages` the digests of all messages, and of all answers, up to it."""
    whole, alone, is_unique = hashlib.sha256(), hashlib.sha256(), False
    for message in messages:
        shown = [block for block in blocks(message) if block.get("type") not in THINKING]
        digest = message_digest({"role": message["role"], "content": shown}).encode()
        whole.update(digest)
        if message["role"] == "assistant":
            alone.update(digest)
            is_unique = is_unique or any(block.get("type") == "tool_use" for block in shown)
            yield _AnswerDigests(whole.hexdigest(), alone.hexdigest() if is_unique else "")


def _owner(headers: Mapping[str, str]) -> str:
    """Return the digest of the person who owns a request; without a person, of the request's credentials."""
    names = (PERSON_HEADER,) if headers.get(PERSON_HEADER) else CREDENTIALS
    return short_digest(json.dumps([headers.get(name, "") for name in names]))


def short_digest(text: str) -> str:
    """Return 32 hex digits of the SHA-256 of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
