"""One request on its way: which conversation it belongs to, what goes out for it, what its answer tells the session.

A conversation is known by what was said up to its newest answer, or by a compaction of ours that it begins with, so a
client need say nothing. Requests with neither (titles, one-shot questions, the very first one) have no session: there
is nothing to compact yet. One that asks for a compaction is answered here, if one can be made. Whatever fails here,
the request goes out as it came. Sends nothing itself; counts hold no content and no key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from applier.adapters.proxy.compactions import Ask, asked, carried, opened, reply, standing, without_ask
from applier.adapters.proxy.metrics import PERSON, Metrics
from applier.adapters.proxy.people import People
from applier.adapters.proxy.responses_planner import ResponsesPlanner
from applier.adapters.proxy.upstreams import Way
from applier.adapters.proxy.wires import MESSAGES, RESPONSES, Wire, observed
from applier.session import Session
from applier.session.persistence import SessionStore
from applier.session.planning import Planned
from planner.plan import Usage
from planner.prices import billed_tokens, dollars
from planner.proposal import Account
from planner.reading.messages import blocks, message_digest

__all__ = ["CREDENTIALS", "NAME_HEADER", "PERSON_HEADER", "Asker", "Conversations", "Gateway", "Passage"]

NAME_HEADER = "x-compactor-session"
"""By which a client may name its conversations; not forwarded."""
PERSON_HEADER = "x-compactor-person"
"""Says whose request it is where people have tokens; only the proxy's entrance sets it. Not forwarded."""
IDLE_SECONDS = 3_600.0
"""A session holds its whole history in memory; the provider's cache of it is gone after an hour at the latest. One
that goes on exactly from the store is let go sooner."""
HELD_TOKENS = 10_000_000
"""Of all histories held: 20 to 35 bytes each, with what was read and counted of them. One of 340,000 is read again from
the store in a tenth of a second."""
_LEAST_TOKENS = 2_000
"""What a session takes beside its history."""
_MOST_PLANNED = 10_000
"""Askings of planners in closed sessions that are told of: 400 bytes each."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""``run-7``; not ``a b``, nor a path."""
CREDENTIALS = "x-api-key", "authorization", "api-key"
"""Headers by which providers know who asks."""
_LOGIN_BETA = "oauth-"
"""How the beta begins without which a login's token is refused; others are of the agent's own model and request."""
Asker = Account | ResponsesPlanner
"""By whom plans are asked for where a conversation's requests go."""
_INVISIBLE = ("thinking", "redacted_thinking")
"""Blocks that a client may leave out later without having another conversation."""
_BYTES_PER_TOKEN = 4
"""Roughly, where a provider says no usage (a streamed chat completion, unless the client asks for it)."""
_logger = logging.getLogger("applier.proxy")
_TOKEN_FIELDS = {
    "uncached": "input_tokens",
    "read": "cache_read_input_tokens",
    "written": "cache_creation_input_tokens",
}


class Conversations:
    """Open sessions by conversation, the longest unused one closed first; may be used from several threads."""

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
        self._used: dict[str, float] = {}
        self._held: dict[str, int] = {}
        """Tokens of each, as of its last call."""
        self._known: dict[str, Session] = {}
        """By id, the longest unused first."""
        self._places: dict[str, list[tuple[str, str]]] = {}
        """Scope and digests of the newest answer of each, by which the next request finds it."""
        self._sent: dict[str, tuple[list[str], Sequence[Any]]] = {}
        """Digests of the newest list of each, and what went out for it."""
        self._called: dict[str, str] = {}
        """The digest that each is called by."""
        self._lock = threading.Lock()
        self._planned: deque[Planned] = deque(maxlen=_MOST_PLANNED)
        """In sessions that are closed."""
        self.closing: Callable[[Session], object] = lambda _session: None
        """Hears of each session before it is closed."""

    def __len__(self) -> int:
        """How many are open."""
        return len(self._known)

    def session(
        self,
        messages: Sequence[Any],
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        asker: Asker | None,
        called: str = "",
    ) -> Session | None:
        """The session of the conversation that `messages` continues; None if nothing in it was answered yet.

        Its planner is, or asks as, `asker`, which is the client's; None: nobody can be asked where its requests go.
        `called`: by what the conversation says that it is known (see `called`); another's is not found by it.
        """
        answers = list(_answers(messages)) or ([(called, "")] if called else [])
        if not answers:
            return None
        scope, model = self.scope(body, headers), str(body.get("model") or "")
        of = f"{name}." if (name := self._name(headers)) else "proxy-"
        ids = {call: f"{of}{_short(scope + call)}" for call in (*(whole for whole, _ in answers), called) if call}
        marks, here = self._marks(list(ids.values())), {digest for pair in answers for digest in pair if digest}
        with self._lock:
            known = (key for key in reversed(ids.values()) if here.intersection(marks.get(key, ())))
            key = next(known, None) or self._find(scope, answers, marks) or self._new_key(ids, answers, called, marks)
            self._called.setdefault(key, next((call for call, own in ids.items() if own == key), ""))
            session = self._known.pop(key, None) or self._open(key, model, asker)
            self._known[key], self._used[key] = session, self._clock()
            newest = [digest for digest in answers[-1] if digest]
            session.mark(newest)
            self._places[key] = [(scope, digest) for digest in newest]
            self._held[key] = _held_tokens(session)
            unused = list(self._let_go())
        for one in unused:  # which may wait for a call in it
            self._end(one)
        return session

    def _let_go(self) -> Iterator[Session]:
        """The longest unused ones, as far as they are idle or more is held than may be; never the newest."""
        held, idle_since = sum(self._held.values()), self._clock() - self._idle_seconds
        for key in list(self._known)[:-1]:
            if held <= self._limit_tokens and self._used[key] >= idle_since:
                return
            held -= self._held[key]
            yield self._forget(key)

    def note_sent(self, session: Session, messages: Sequence[Any], sent: Sequence[Any]) -> None:
        """Remember what went out for `messages`; nothing if it was they."""
        self._sent[session.session_id] = (list(map(message_digest, messages)) if sent else [], sent)

    def sent(
        self, messages: Sequence[Any], body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> tuple[list[str], Sequence[Any]]:
        """What went out last in the conversation that `messages` continues, and digests of what it was made of."""
        answers = list(_answers(messages))
        with self._lock:
            key = self._find(self.scope(body, headers), answers) if answers else None
            return self._sent.get(key or "", ([], []))

    def sessions(self) -> list[Session]:
        """All that are open."""
        with self._lock:
            return list(self._known.values())

    def planned(self) -> list[Planned]:
        """Who was asked for plans in all of them, closed ones included."""
        return [*self._planned, *(one for session in self.sessions() for one in session.state.planned)]

    def close(self) -> None:
        """Close all; their histories are in the store then."""
        with self._lock:
            for key in list(self._known):
                self._end(self._forget(key))

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
        metadata = body.get("metadata")
        user = metadata.get("user_id") if isinstance(metadata, Mapping) else None
        shows = (PERSON_HEADER,) if headers.get(PERSON_HEADER) else CREDENTIALS
        shown = json.dumps([headers.get(header, "") for header in shows])
        return f"{_short(shown)}/{name}/{user or body.get('user') or ''}"

    def _find(self, scope: str, answers: list[tuple[str, str]], elsewhere: Container[str] = ()) -> str | None:
        """The conversation whose newest answer stands in the list: with all before it as it was, else by itself."""
        places = {place: key for key, own in self._places.items() if key not in elsewhere for place in own}
        wholes, alones = zip(*reversed(answers), strict=True)
        keys = (places.get((scope, digest)) for digest in (*wholes, *alones))
        return next(filter(None, keys), None)

    def called(self, session: Session) -> str:
        """By what the conversation of `session` is known to who has the same key or name."""
        return self._called.get(session.session_id, "")

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

    def _forget(self, key: str) -> Session:
        for places in (self._places, self._used, self._held):
            places.pop(key)
        self._sent.pop(key, None)
        self._called.pop(key, None)
        return self._known.pop(key)

    def _end(self, session: Session) -> None:
        self._planned += session.state.planned
        self.closing(session)
        session.close()


def _held_tokens(session: Session) -> int:
    state = session.state
    return max(_LEAST_TOKENS, state.tokens + state.reclaimed_tokens)


def _answers(messages: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """The places behind each answer in `messages`: a digest of everything up to it, and one of the answers alone.

    The latter survives edits of older results; it is empty while nothing in the answers is unique.
    """
    whole, alone, is_unique = hashlib.sha256(), hashlib.sha256(), False
    for message in messages:
        shown = [block for block in blocks(message) if block.get("type") not in _INVISIBLE]
        digest = message_digest({"role": message["role"], "content": shown}).encode()
        whole.update(digest)
        if message["role"] == "assistant":
            alone.update(digest)
            is_unique = is_unique or any(block.get("type") == "tool_use" for block in shown)
            yield whole.hexdigest(), alone.hexdigest() if is_unique else ""


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _account(base_url: str, headers: Mapping[str, str]) -> Account:
    """As whom a client asks `base_url`: a planner that asks there shows the same, and nothing else."""
    shown = {name: headers[name] for name in CREDENTIALS if name in headers}
    betas = [name.strip() for name in headers.get("anthropic-beta", "").split(",")]
    login = ",".join(name for name in betas if name.startswith(_LOGIN_BETA))
    return Account(base_url, {**shown, "anthropic-beta": login} if login else shown)


@dataclass(frozen=True)
class Passage:
    """A request, the session it belongs to (None: it passes as it came), and its body for the provider."""

    wire: Wire
    raw: bytes
    session: Session | None = None
    body: dict[str, Any] = field(default_factory=dict)
    messages: list[Any] = field(default_factory=list)
    """The conversation as the client sent it, as Anthropic messages."""
    reply: tuple[bytes, str] | None = None
    """What answers it in the provider's place, and its media type."""


class Gateway:
    """Prepares requests by the sessions of their conversations."""

    def __init__(
        self, conversations: Conversations, metrics: Metrics, store: SessionStore, people: People | None = None
    ) -> None:
        """Takes over all; `store` keeps what answers in words stand for, `people` what each has spent."""
        self.conversations, self.metrics, self._store, self._people = conversations, metrics, store, people
        self._noted: WeakKeyDictionary[Session, tuple[int, str]] = WeakKeyDictionary()
        """How many askings of each session's planner are counted, and whose it is."""
        self._planners: WeakKeyDictionary[Session, ResponsesPlanner] = WeakKeyDictionary()
        """Who plans the conversations of the Responses API."""
        conversations.closing = self._note_planned

    def close(self) -> None:
        """Close all sessions, and the store."""
        self.conversations.close()
        if self._people is not None:
            self._people.close()
        self._store.close()

    def prepare(self, wire: Wire, way: Way, raw: bytes, headers: Mapping[str, str], path: str) -> Passage:
        """What is to go out on its `way` for the body `raw` of a request to `path`."""
        passing = Passage(wire, raw)
        with self._harmless():
            body = json.loads(raw)
            passing = Passage(wire, raw, body=body if isinstance(body, dict) else {})
            if wire is RESPONSES and isinstance(body, dict):
                body, passing = self._opened(body, passing, headers)
            return self._prepared(passing, body, way, headers, path)
        return passing

    def _opened(
        self, body: dict[str, Any], passing: Passage, headers: Mapping[str, str]
    ) -> tuple[dict[str, Any], Passage]:
        """`body` and `passing` with the view in place of a compaction of ours, which nobody else could read."""
        scope = _short(self.conversations.scope(body, headers))
        whole = opened(body, lambda words: self._store.use(lambda store: store.get_state(_words_name(scope, words))))
        if whole is body:
            return body, passing
        plain = RESPONSES.with_messages(whole, RESPONSES.read(whole).messages)
        return whole, Passage(passing.wire, _bytes(plain), body=plain)

    def _prepared(
        self,
        passing: Passage,
        body: Any,
        way: Way,
        headers: Mapping[str, str],
        path: str,
    ) -> Passage:
        wire, ask = passing.wire, asked(body, path) if passing.wire is RESPONSES and isinstance(body, dict) else ""
        if ask:
            body = without_ask(body, ask)
        messages = (wire.messages(body) if isinstance(body, dict) else None) or []
        called = str(standing(body).get("by", "")) if wire is RESPONSES and messages else ""
        asker = _account(way.base, headers) if wire is MESSAGES else ResponsesPlanner() if wire is RESPONSES else None
        session = self.conversations.session(messages, body, headers, asker, called) if messages else None
        if session is None:
            self.metrics.add("requests", 'kind="passed"')
            return passing
        with self._counted(session):
            session.set_request(**wire.request(body))
            planner = self._planners.setdefault(session, asker) if isinstance(asker, ResponsesPlanner) else None
            if planner is not None:
                plain = RESPONSES.with_messages(body, messages)
                planner.is_due(way.url(path.removesuffix("/compact")), headers, plain)
            if ask:
                return self._answered(ask, passing, session, body, messages, headers)
            prepared = session.prepare(messages)
        is_same = prepared == list(messages)
        if planner is not None:
            planner.went_out(as_it_came=is_same)
        self.conversations.note_sent(session, messages, [] if is_same else prepared)
        outgoing = passing.raw if is_same else _bytes(wire.with_messages(body, prepared))
        self.metrics.add("requests", f'kind="{"unchanged" if is_same else "prepared"}"')
        return Passage(wire, outgoing, session, body, messages)

    def _answered(
        self,
        ask: Ask,
        passing: Passage,
        session: Session,
        body: dict[str, Any],
        messages: list[Any],
        headers: Mapping[str, str],
    ) -> Passage:
        """The answer to a client that asks for a compaction; it passes where there is nothing to answer, and where
        something of another's stands in front, for all that is to go with it."""
        done = None if RESPONSES.read(body).has_foreign else session.compact(messages, at_limit=True)
        if done is None or (done.messages == messages and not done.stands):
            self.metrics.add("requests", 'kind="passed"')
            return passing
        held = carried(messages, done.messages, standing(body), self.conversations.called(session))
        content, media_type, words = reply(ask, body, held, _short(session.session_id + _bytes(held).decode()))
        if ask == "words":
            name = _words_name(_short(self.conversations.scope(body, headers)), words)
            kept = {**held, "history": session.state.history_key}  # is forgotten with it
            self._store.use(lambda store: store.set_state(name, kept))
        self.metrics.add("requests", 'kind="answered"')
        return Passage(passing.wire, passing.raw, session, reply=(content, media_type))

    def as_sent(self, raw: bytes, headers: Mapping[str, str]) -> bytes:
        """The body `raw` with what was sent last in place of what it was made of; changes nothing, opens nothing.

        What a conversation would gain by a compaction that is due at its next request is not known before that.
        """
        with self._harmless():
            body = json.loads(raw)
            messages = (MESSAGES.messages(body) if isinstance(body, dict) else None) or []
            known, sent = self.conversations.sent(messages, body, headers)
            if known and list(map(message_digest, messages[: len(known)])) == known:
                raw = _bytes(MESSAGES.with_messages(body, [*sent, *messages[len(known) :]]))
            self.metrics.add("requests", 'kind="passed"')
        return raw

    def shorter(self, passage: Passage, status: int, text: str) -> bytes | None:
        """What to send instead, after the provider refused `passage` with `text`; None: nothing shorter."""
        if passage.session is None:
            return None
        with self._harmless(), self._counted(passage.session):
            refusal = SimpleNamespace(status_code=status, body=text)
            messages = passage.session.recover(passage.messages, refusal)
            self.conversations.note_sent(passage.session, passage.messages, messages or [])
            return None if messages is None else _bytes(passage.wire.with_messages(passage.body, messages))
        return None

    def observe(self, passage: Passage, answer: bytes, *, is_stream: bool) -> None:
        """Tell the session what the provider counted."""
        parts = list(observed(passage.wire, answer, is_stream=is_stream))
        for part in parts:
            with self._harmless():
                if passage.session is not None:
                    passage.session.observe(part)
        with self._harmless():
            self._count(passage, parts, answer.count(b"data:") if is_stream else len(answer) // _BYTES_PER_TOKEN)
            if passage.session is not None:
                self.metrics.add("saved_tokens", amount=passage.session.state.reclaimed_tokens)
                self._note_planned(passage.session)

    def _count(self, passage: Passage, parts: Sequence[Mapping[str, Any]], answer_tokens: int) -> None:
        """Count what the provider bills; where it does not say, what was sent and received, by its length."""
        usages = [part.get("usage") for part in parts]
        billed = {name: sum(billed_tokens(usage, name) for usage in usages) for name in _TOKEN_FIELDS.values()}
        for kind, name in _TOKEN_FIELDS.items():
            self.metrics.add("prompt_tokens", f'kind="{kind}"', billed[name])
        output = max((billed_tokens(usage, "output_tokens") for usage in usages), default=0)
        usage = Usage(**billed, output_tokens=output)
        if usage == Usage():
            usage = Usage(input_tokens=len(passage.raw) // _BYTES_PER_TOKEN, output_tokens=answer_tokens)
        self.metrics.add("output_tokens", amount=output)
        self._spend(str(passage.body.get("model") or ""), usage)

    def spend_unread(self, size: int) -> None:
        """Count a request of `size` bytes that was not read, such as a batch."""
        self._spend("", Usage(input_tokens=size // _BYTES_PER_TOKEN))

    def _spend(self, model: str, usage: Usage) -> None:
        cost = dollars(model, usage) or 0.0
        self.metrics.add("dollars", amount=cost)
        if self._people is not None and PERSON.get():
            self._people.spend(PERSON.get(), usage.prompt_tokens + usage.output_tokens, cost)

    def _note_planned(self, session: Session) -> None:
        """Count the askings of its planner since the last time; that of a closed session is whose it was."""
        planned = session.state.planned
        before, person = self._noted.get(session, (0, PERSON.get()))
        self._noted[session] = len(planned), person
        token = PERSON.set(person)
        for one in planned[before:]:
            label = f'planner="{one.planner}"'
            cost = dollars(one.planner, one.usage) or 0.0
            self.metrics.add("plans", label)
            self.metrics.add("planner_failures", label, 1 if one.failure else 0)
            self.metrics.add("planner_tokens", label, one.usage.prompt_tokens + one.usage.output_tokens)
            self.metrics.add("planner_dollars", label, cost)
            self.metrics.seconds("planner_seconds", one.seconds)
            self._spend(one.planner, one.usage)
        PERSON.reset(token)

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """The boundary: no failure of ours may cost the client its request."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.metrics.add("requests", 'kind="failed"')
            place = traceback.extract_tb(error.__traceback__)[-1]
            _logger.error(
                "%s at %s:%s; the request went out as it came", type(error).__name__, place.name, place.lineno
            )

    @contextmanager
    def _counted(self, session: Session) -> Iterator[None]:
        before = session.state.compactions
        yield
        self.metrics.add("compactions", amount=session.state.compactions - before)


def _words_name(scope: str, words: str) -> str:
    """Under which the store has what an answer in words stands for."""
    return f"answer:{scope}:{words}"


def _bytes(body: dict[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate can only be sent escaped
        return json.dumps(body, separators=(",", ":")).encode()
