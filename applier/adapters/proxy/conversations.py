"""Finds the conversation that a request continues, and keeps the sessions of recently used conversations open.

A conversation is recognised by its messages up to the newest answer, or by the proxy's compaction at its start, so a
client need not name it. The credentials for the provider are part of the session's id, so that no client can reach
another's conversation by its name.
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

from applier.adapters.proxy.configuration import OwnClient
from applier.adapters.proxy.metrics import PERSON
from applier.adapters.proxy.responses_api import ResponsesPlanner
from applier.session import Session
from planner.plan import Account
from planner.reading.messages import THINKING, blocks, field_of, message_digest

NAME_HEADER = "x-compactor-session"
"""Header with a client's name for its conversations; not forwarded to the provider."""
PERSON_HEADER = "x-compactor-person"
"""Header with the person who sent a request, in a team; only the proxy itself sets it, and it is not forwarded."""
CREDENTIALS = "x-api-key", "authorization", "api-key"
"""Headers with a client's key or login."""
IDLE_SECONDS = 3_600.0
"""Seconds after which an unused session is closed, because it occupies memory and the provider caches its history for
an hour at most. Sessions shared through a database are closed sooner."""
MOST_OPEN_TOKENS = 10_000_000
"""Largest number of tokens in the histories of all open sessions, at 20 to 35 bytes of memory each. A history of
340,000 tokens is read again from the store in a tenth of a second."""
_LEAST_TOKENS = 2_000
"""Smallest number of tokens counted for an open session, as a short history takes memory, too."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Name that a client may give to its conversations: ``run-7``; not ``a b``, nor a path."""
PlannerAccess = Account | ResponsesPlanner
"""Object by which the provider of a conversation can be asked for plans, with the client's credentials."""


_AnswerDigests = tuple[str, str]
"""Two digests of an answer of the model: of all messages up to it (`whole`), and of the answers alone up to it
(`alone`), which stays the same if a client edits old results. `alone` is empty as long as no answer contains a tool
call, since only a call has a unique id. Thinking is left out of both, as clients may remove it."""


@dataclass(eq=False)
class Conversation:
    """Conversation of a client, with its open session and what was last sent to the provider."""

    session: Session
    planner_access: PlannerAccess | None
    digest: str
    """Digest that distinguishes the conversation from others of the same client."""
    person: str = field(default_factory=PERSON.get)
    """Name of the person who owns the conversation, if people have tokens; else empty."""
    answer_keys: Sequence[tuple[str, str]] = ()
    """Keys that recognise the next request: the client's `Conversations.scope`, and a digest of the newest answer."""
    used_at: float = 0.0
    """Time of the conversation's last request, by the clock of `Conversations`."""
    open_tokens: int = 0
    """Number of tokens that the session had in memory at the last request."""
    counted_plans: int = 0
    """Number of planner calls of the conversation that are in the proxy's counts already."""
    replaced_digests: Sequence[str] = ()
    """Digests of the client's messages that the list `sent` replaced; empty if the messages were sent unchanged."""
    sent: Sequence[Any] = ()
    """List that was last sent in place of the client's messages; empty if the messages were sent unchanged."""

    def note_sent(self, messages: Sequence[Any], sent: Sequence[Any]) -> None:
        """Remember that `sent` was sent in place of `messages`; an empty `sent` means that they were sent unchanged."""
        self.replaced_digests, self.sent = (list(map(message_digest, messages)) if sent else []), sent

    def as_sent(self, messages: Sequence[Any]) -> list[Any]:
        """Return `messages` with the list `sent` in place of the messages that it replaced in the last request; return
        them unchanged if they do not begin with these."""
        count = len(self.replaced_digests)
        is_same = list(map(message_digest, messages[:count])) == self.replaced_digests
        return [*self.sent, *messages[count:]] if count and is_same else list(messages)


class Conversations:
    """Open conversations of a proxy: finds the one that a request continues, or opens it.

    Conversations that are unused for long, or together too large, are closed; the store has them. May be used from
    several threads.
    """

    def __init__(
        self,
        open_session: Callable[[str, str, PlannerAccess | None], Session],
        own: OwnClient | None = None,
        limit_tokens: int = MOST_OPEN_TOKENS,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        marks: Callable[[list[str]], Mapping[str, list[str]]] = lambda _: {},
    ) -> None:
        """Begin without open sessions.

        `open_session` takes a session id, the model of the request, and the access to its planner. `limit_tokens`
        bounds the tokens in all open sessions. A session unused for `idle_seconds` is closed; the next request of its
        conversation opens it again from the store. `clock` returns seconds. `marks` returns, for each session id in its
        argument, the digests of the newest answer that any proxy has seen.

        `own`: the client that this proxy was started for, if any. A request with its secret belongs to it whatever the
        key, because the key of a login changes every few hours.
        """
        self._open, self._clock = open_session, clock
        self._own_client = own or OwnClient()
        self._limit_tokens, self._idle_seconds = limit_tokens, idle_seconds
        self._marks = marks
        self._by_id: dict[str, Conversation] = {}
        """Open conversations by session id, the one unused for longest first."""
        self._open_tokens = 0
        """Number of tokens in all open sessions."""
        self._lock = threading.Lock()
        self.closing: Callable[[Conversation], object] = lambda _: None
        """Function to call with each conversation before its session is closed."""

    def __len__(self) -> int:
        """Return the number of open conversations."""
        return len(self._by_id)

    def find(
        self,
        messages: Sequence[Any],
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        planner_access: PlannerAccess | None,
        digest: str = "",
    ) -> Conversation | None:
        """Return the conversation that `messages` continue, or a new one. Return None as long as they contain neither
        an answer of a model nor a compaction by the proxy, since there is nothing to compact yet.

        `body` and `headers`: those of the request. `planner_access`: access to a model for plans, if the conversation
        is opened now; None if its provider offers none. `digest`: the `Conversation.digest` in a compaction by the
        proxy, if the messages contain one, else empty.
        """
        answers = list(_answers(messages)) or ([(digest, "")] if digest else [])
        if not answers:
            return None
        (scope, prefix), model = self._scope_and_prefix(body, headers), str(body.get("model") or "")
        digests = filter(None, [*(whole for whole, _ in answers), digest])
        # possible session ids by digest, as the id of a session contains the digest of one of its answers
        ids = {whole: f"{prefix}{short_digest(scope + whole)}" for whole in digests}
        marks = self._marks(list(ids.values()))  # digests of the newest answers that any proxy saw, by session id
        received = {digest for answer in answers for digest in answer if digest}
        with self._lock:
            # another proxy may have answered last: first look for a session whose newest answer is in this request
            continued = (key for key in reversed(ids.values()) if received.intersection(marks.get(key, ())))
            known = next(continued, None) or self._find(scope, answers, marks)
            key = known or self._new_key(ids, answers, digest, marks)
            conversation = self._by_id.pop(key, None)
            if conversation is None:
                its_digest = next(whole for whole, session_id in ids.items() if session_id == key)
                conversation = Conversation(self._open(key, model, planner_access), planner_access, its_digest)
            self._by_id[key] = conversation
            self._note_use(conversation, scope, [*filter(None, answers[-1])])
            unused = list(self._take_unused())
        for conversation_to_close in unused:  # outside the lock, because closing may wait for a call in the session
            self._close(conversation_to_close)
        return conversation

    def _note_use(self, conversation: Conversation, scope: str, newest_digests: list[str]) -> None:
        """Record the time of a request and the tokens that its session holds, and the digests of the newest answer in
        it, by which the next request of the same client (its `scope`) is recognised."""
        conversation.session.mark(newest_digests)
        conversation.used_at = self._clock()
        conversation.answer_keys = [(scope, digest) for digest in newest_digests]
        state, before = conversation.session.state, conversation.open_tokens
        # the session holds the whole history, with what compactions left out
        conversation.open_tokens = max(_LEAST_TOKENS, state.tokens + state.reclaimed_tokens)
        self._open_tokens += conversation.open_tokens - before

    def _take_unused(self) -> Iterator[Conversation]:
        """Remove and yield conversations to close: the one unused for longest, as long as it is idle or the open ones
        together are too large. The newest always stays."""
        idle_since = self._clock() - self._idle_seconds
        while len(self._by_id) > 1:
            key, oldest = next(iter(self._by_id.items()))
            if self._open_tokens <= self._limit_tokens and oldest.used_at >= idle_since:
                return
            self._open_tokens -= oldest.open_tokens
            yield self._by_id.pop(key)

    def find_open(
        self, messages: Sequence[Any], body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Conversation | None:
        """Return the open conversation that `messages` continue, or None, without opening or changing one."""
        answers = list(_answers(messages))
        with self._lock:
            key = self._find(self.scope(body, headers), answers) if answers else None
            return self._by_id.get(key or "")

    def open(self) -> list[Conversation]:
        """Return all open conversations, the one used last at the end."""
        with self._lock:
            return list(self._by_id.values())

    def sessions(self) -> list[Session]:
        """Return the sessions of all open conversations."""
        return [conversation.session for conversation in self.open()]

    def close(self) -> None:
        """Close all sessions; the store has their histories."""
        with self._lock:
            for conversation in self._by_id.values():
                self._close(conversation)
            self._by_id.clear()

    def _close(self, conversation: Conversation) -> None:
        """Count the conversation's last costs (by `closing`), then close its session."""
        self.closing(conversation)
        conversation.session.close()

    def scope(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        """Return a text that separates clients, so that none gets another's conversation even if messages are equal:
        a digest of the credentials, the client's name for its conversations, and the user or session id in `body`.

        A client can choose another's name or id, but not another's credentials. If people have tokens, the person
        replaces the credentials, since a token may be renewed. For the client that this proxy was started for it is the
        name alone, because its credentials change. Only digests of the credentials and of the scope are stored.
        """
        return self._scope_and_prefix(body, headers)[0]

    def _scope_and_prefix(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[str, str]:
        """Return the scope, and the beginning of the client's session ids: ``NAME.`` for the client that this proxy was
        started for, ``NAME.OWNER.`` for another with a name, ``proxy-`` for one without, or with one not allowed."""
        name, own, owner = headers.get(NAME_HEADER, ""), self._own_client, _owner(headers)
        if own.secret and hmac.compare_digest(name.encode(), own.secret.encode()):
            return own.name, f"{own.name}."
        if name == own.name or not _NAME.fullmatch(name):  # only the secret gives the own client's name
            name = ""
        user = field_of(body.get("metadata"), "user_id")
        return f"{owner}/{name}/{user or body.get('user') or ''}", f"{name}.{owner}." if name else "proxy-"

    def _find(self, scope: str, answers: list[_AnswerDigests], elsewhere: Container[str] = ()) -> str | None:
        """Return the id of the open conversation with the newest of `answers` as its last answer; None if there is
        none. Digests of all messages are compared before digests of answers alone. Ids in `elsewhere`, of conversations
        that another proxy continued, are ignored."""
        here = ((key, conversation) for key, conversation in self._by_id.items() if key not in elsewhere)
        ids = {answer_key: key for key, conversation in here for answer_key in conversation.answer_keys}
        digests = (*(whole for whole, _ in reversed(answers)), *(alone for _, alone in reversed(answers)))
        return next(filter(None, (ids.get((scope, digest)) for digest in digests)), None)

    def _new_key(
        self, ids: Mapping[str, str], answers: list[_AnswerDigests], digest: str, elsewhere: Container[str]
    ) -> str:
        """Return the id of a new conversation, by the digest of its first answer, so that a later process computes the
        same id; by its newest answer, if another conversation begins with the same first one. A `digest` from a
        compaction by the proxy goes before both. `ids`: session ids by digest; `elsewhere`: ids that are taken, too."""
        (first, _), (newest, _) = answers[0], answers[-1]
        is_taken = ids[first] in self._by_id or ids[first] in elsewhere
        return ids[digest or (newest if is_taken else first)]


def _answers(messages: Sequence[Any]) -> Iterator[_AnswerDigests]:
    """Yield the two digests (`_AnswerDigests`) of each answer of the model in `messages`."""
    whole, alone, is_unique = hashlib.sha256(), hashlib.sha256(), False
    for message in messages:
        content = [block for block in blocks(message) if block.get("type") not in THINKING]
        digest = message_digest({"role": message["role"], "content": content}).encode()
        whole.update(digest)
        if message["role"] == "assistant":
            alone.update(digest)
            is_unique = is_unique or any(block.get("type") == "tool_use" for block in content)
            yield whole.hexdigest(), alone.hexdigest() if is_unique else ""


def _owner(headers: Mapping[str, str]) -> str:
    """Return a digest of the person who sent a request; if people have no tokens, of the request's credentials."""
    names = (PERSON_HEADER,) if headers.get(PERSON_HEADER) else CREDENTIALS
    return short_digest(json.dumps([headers.get(name, "") for name in names]))


def short_digest(text: str) -> str:
    """Return 32 hex digits of the SHA-256 of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
