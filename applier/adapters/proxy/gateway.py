"""Prepares each request for its provider, and reports the answer to the session of its conversation.

Requests without a conversation (titles, one-shot questions, the very first one) have no session: there is nothing to
compact yet. A request for a compaction is answered here, if possible. After any failure the request is sent unchanged.
Sends nothing itself; counts contain no content and no key.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from applier.adapters.proxy.conversations import CREDENTIALS, Asker, Conversation, Conversations, short_digest
from applier.adapters.proxy.entrance import People
from applier.adapters.proxy.metrics import PERSON, Metrics
from applier.adapters.proxy.responses_api import (
    Ask,
    Reply,
    ResponsesPlanner,
    asked,
    opened,
    record_in,
    reply,
    view_record,
    without_ask,
)
from applier.adapters.proxy.upstreams import RefusedError, Way
from applier.adapters.proxy.wires import MESSAGES, RESPONSES, Wire, parse, read_answer, write
from applier.session.persistence import SessionStore
from applier.session.planning import Planned
from planner.errors import StoreError
from planner.plan import Usage
from planner.prices import billed_tokens, dollars
from planner.proposal import Account
from planner.reading.messages import field_of

_MOST_PLANNED = 10_000
"""Largest number of planner calls, and of delays, that are kept for the report, at up to 400 bytes each."""
_LOGIN_BETA = "oauth-"
"""Beginning of the name of the beta that the token of a login needs; other betas are for the agent's request."""
_BYTES_PER_TOKEN = 4
"""Rough bytes per token if a provider reports no usage (a streamed chat completion, unless the client asks for it)."""
_logger = logging.getLogger("applier.proxy")
_TOKEN_FIELDS = {
    "uncached": "input_tokens",
    "read": "cache_read_input_tokens",
    "written": "cache_creation_input_tokens",
}


@dataclass(frozen=True)
class Passage:
    """A request on its way through the proxy."""

    wire: Wire
    """API of the request."""
    way: Way
    path: str
    headers: Mapping[str, str] = field(repr=False)
    raw: bytes
    """Body for the provider."""
    conversation: Conversation | None = None
    """Conversation to which the request belongs; None if it has none and passes unchanged."""
    body: dict[str, Any] = field(default_factory=dict)
    """Request's body as data; empty if it was not read."""
    messages: list[Any] = field(default_factory=list)
    """The conversation as the client sent it, as Anthropic messages."""
    reply: Reply | None = None
    """Answer of the proxy, if the provider is not asked."""
    refusal: RefusedError | None = None
    """Error of the proxy, if the provider is not asked."""

    @property
    def asker(self) -> Asker | None:
        """Object by which the conversation's provider is asked for plans; None for chat completions. For the Messages
        API it contains the client's credentials and no other headers."""
        if self.wire is not MESSAGES:
            return ResponsesPlanner() if self.wire is RESPONSES else None
        credentials = {name: self.headers[name] for name in CREDENTIALS if name in self.headers}
        betas = [name.strip() for name in self.headers.get("anthropic-beta", "").split(",")]
        login = ",".join(name for name in betas if name.startswith(_LOGIN_BETA))
        return Account(self.way.base, {**credentials, "anthropic-beta": login} if login else credentials)


class Gateway:
    """Prepares requests by the sessions of their conversations."""

    def __init__(
        self, conversations: Conversations, metrics: Metrics, store: SessionStore, people: People | None = None
    ) -> None:
        """Prepare requests by the sessions of `conversations`, and count in `metrics`. `store` keeps the records of
        answers in words. `people` charges each person for their requests; None if people have no tokens."""
        self.conversations, self.metrics, self._store, self.people = conversations, metrics, store, people
        self._planned: deque[Planned] = deque(maxlen=_MOST_PLANNED)
        self.waits: deque[float] = deque(maxlen=_MOST_PLANNED)
        """Delays of requests by compactions, in seconds."""
        self._noting = threading.Lock()
        conversations.closing = self._note_planned

    def close(self) -> None:
        """Close all sessions, and the store."""
        self.conversations.close()
        if self.people is not None:
            self.people.close()
        self._store.close()

    def store_problem(self) -> str:
        """Return why the store cannot be used, in one line; empty if it can."""
        try:
            self._store.use(lambda store: store.get_state("proxy"))
        except StoreError as error:
            return " ".join(str(error).split())
        return ""

    def planned(self) -> list[Planned]:
        """Return the newest calls of planners in all conversations, closed ones included."""
        for conversation in self.conversations.open():
            self._note_planned(conversation)
        return list(self._planned)

    def prepare(self, wire: Wire, way: Way, raw: bytes, headers: Mapping[str, str], path: str) -> Passage:
        """Return the passage of a request to `path` of the API `wire`, with the body `raw`.

        It contains the list from the session of its conversation, an answer or a refusal of the proxy, or the request
        unchanged. After a failure of the proxy it is unchanged, too.
        """
        passage = Passage(wire, way, path, headers, raw)
        with self._harmless():
            body = parse(raw)
            if body is not None:
                session_body, passage = self._read(replace(passage, body=body))
                if passage.refusal is None and (prepared := self._prepared(passage, session_body)):
                    return prepared
            self.metrics.add("requests", kind="passed" if passage.refusal is None else "sent_back")
        return passage

    def _read(self, passage: Passage) -> tuple[dict[str, Any], Passage]:
        """Return the request's body as a session reads it, and `passage` with the body as the provider reads it."""
        if passage.wire is RESPONSES:
            return self._opened(passage)
        if passage.wire is MESSAGES and passage.body.get("thread"):
            passage = _without_thread(passage)
        return passage.body, passage

    def _opened(self, passage: Passage) -> tuple[dict[str, Any], Passage]:
        """Return the same as `_read` for the Responses API. A compaction of ours is replaced by its view in both
        bodies, because the provider cannot read it; the session's body also contains its record."""
        body, scope = passage.body, short_digest(self.conversations.scope(passage.body, passage.headers))
        session_body = opened(
            body, lambda words: self._store.use(lambda store: store.get_state(_words_name(scope, words)))
        )
        if session_body is body:
            return body, passage
        plain = RESPONSES.with_messages(session_body, RESPONSES.read(session_body).messages)
        return session_body, replace(passage, raw=write(plain), body=plain)

    def _prepared(self, passing: Passage, body: dict[str, Any]) -> Passage | None:
        """Return `passing` with the list from the session of its conversation, or with our answer if it asks for a
        compaction. Return None if it belongs to no conversation yet. `body`: the request's body as a session reads it.
        """
        wire, ask = passing.wire, asked(body, passing.path) if passing.wire is RESPONSES else ""
        body = without_ask(body, ask) if ask else body
        messages = wire.messages(body)
        if not messages:
            return None
        digest, asker = str(record_in(body).get("by", "")) if wire is RESPONSES else "", passing.asker
        conversation = self.conversations.find(messages, body, passing.headers, asker, digest)
        if conversation is None:
            return None
        passage = replace(passing, conversation=conversation, messages=messages)
        planner = conversation.asker if wire is RESPONSES and isinstance(conversation.asker, ResponsesPlanner) else None
        with self._counted(conversation):
            conversation.session.set_request(**wire.request(body), client=asker if wire is MESSAGES else None)
            if planner is not None:
                url = passing.way.url(passing.path.removesuffix("/compact"))
                planner.is_due(url, passing.headers, wire.with_messages(body, messages))
            if ask:
                return self._answered(ask, passage, conversation, body)
            prepared = conversation.session.prepare(messages)
        is_same = prepared == list(messages)
        if planner is not None:
            planner.went_out(as_it_came=is_same)
        conversation.note_sent(messages, [] if is_same else prepared)
        self.metrics.add("requests", kind="unchanged" if is_same else "prepared")
        raw = passing.raw if is_same else write(wire.with_messages(body, prepared))
        return replace(passage, raw=raw, body=body)

    def _answered(self, ask: Ask, passage: Passage, conversation: Conversation, body: dict[str, Any]) -> Passage | None:
        """Return `passage` with our answer to a client that asks for a compaction in the way `ask`. Return None if
        nothing can be compacted, or if the provider compacted earlier: only the provider can read what it left."""
        session, messages = conversation.session, passage.messages
        done = None if RESPONSES.read(body).has_foreign else session.compact(messages, at_limit=True)
        if done is None or (done.messages == messages and not done.is_repeated):
            return None
        record = view_record(messages, done.messages, record_in(body), conversation.digest)
        answer = reply(ask, body, record, short_digest(session.session_id + write(record).decode()))
        if ask == "words":
            name = _words_name(short_digest(self.conversations.scope(body, passage.headers)), answer.words_digest)
            stored = {**record, "history": session.state.history_key}  # so that it is forgotten with the history
            self._store.use(lambda store: store.set_state(name, stored))
        self.metrics.add("requests", kind="answered")
        return replace(passage, reply=answer)

    def as_sent(self, raw: bytes, headers: Mapping[str, str]) -> bytes:
        """Return the body `raw` of a request that counts tokens, with the last list sent in place of its messages.
        Nothing is compacted."""
        with self._harmless():
            body = parse(raw)
            messages = (MESSAGES.messages(body) if body is not None else None) or []
            conversation = self.conversations.known(messages, body or {}, headers) if messages else None
            sent = conversation.as_sent(messages) if conversation else messages
            raw = raw if body is None or sent == messages else write(MESSAGES.with_messages(body, sent))
            self.metrics.add("requests", kind="passed")
        return raw

    def shorter(self, passage: Passage, status: int, text: str) -> bytes | None:
        """Return a shorter body after the provider refused `passage` with this `status` and `text`; None if there is
        none."""
        conversation = passage.conversation
        if conversation is None:
            return None
        with self._harmless(), self._counted(conversation):
            refusal = SimpleNamespace(status_code=status, body=text)
            messages = conversation.session.recover(passage.messages, refusal)
            conversation.note_sent(passage.messages, messages or [])
            return None if messages is None else write(passage.wire.with_messages(passage.body, messages))
        return None

    def observe(self, passage: Passage, answer: bytes, *, is_stream: bool) -> None:
        """Report the provider's `answer` to the session, and count its tokens. `is_stream`: True if it consists of
        events."""
        conversation, read = passage.conversation, read_answer(passage.wire, answer, is_stream=is_stream)
        for part in read.parts:
            with self._harmless():
                if conversation is not None:
                    conversation.session.observe(part)
        with self._harmless():
            # a stream has about an event for each token
            estimate = answer.count(b"data:") if is_stream else len(answer) // _BYTES_PER_TOKEN
            self._count(passage, read.parts, estimate)
            if conversation is not None:
                self._count_removed(conversation, read.removed_reasoning)
                self.metrics.add("saved_tokens", conversation.session.state.reclaimed_tokens)
                self._note_planned(conversation)

    def _count_removed(self, conversation: Conversation, removed: int) -> None:
        """Count and log the reasoning items that the provider removed."""
        self.metrics.add("removed_reasoning", removed)
        if removed:
            session_id = conversation.session.session_id
            _logger.info("%s: the provider removed %d reasoning items behind a changed prefix", session_id, removed)

    def _count(self, passage: Passage, parts: Sequence[Mapping[str, Any]], estimated_tokens: int) -> None:
        """Count the tokens that the provider reports in the `parts` of an answer, and charge them. Without a report,
        charge an estimate by the length of the request and `estimated_tokens` for the answer."""
        usages = [part.get("usage") for part in parts]
        billed = {name: sum(billed_tokens(usage, name) for usage in usages) for name in _TOKEN_FIELDS.values()}
        for kind, name in _TOKEN_FIELDS.items():
            self.metrics.add("prompt_tokens", billed[name], kind=kind)
        output = max((billed_tokens(usage, "output_tokens") for usage in usages), default=0)
        usage = Usage(**billed, output_tokens=output)
        if usage == Usage():
            usage = Usage(input_tokens=len(passage.raw) // _BYTES_PER_TOKEN, output_tokens=estimated_tokens)
        self.metrics.add("output_tokens", output)
        self._spend(str(passage.body.get("model") or ""), usage)

    def spend_unread(self, size: int) -> None:
        """Charge for a request of `size` bytes that was not read, such as a batch."""
        self._spend("", Usage(input_tokens=size // _BYTES_PER_TOKEN))

    def _spend(self, model: str, usage: Usage) -> None:
        """Count the price of `usage`, and charge it to the person of the request."""
        cost = dollars(model, usage) or 0.0
        self.metrics.add("dollars", cost)
        if self.people is not None and PERSON.get():
            self.people.spend(PERSON.get(), usage.prompt_tokens + usage.output_tokens, cost)

    def _note_planned(self, conversation: Conversation) -> None:
        """Count the calls of the conversation's planner that are not counted yet, and charge its owner."""
        with self._noting:
            new = conversation.session.state.planned[conversation.noted :]
            conversation.noted += len(new)
            self._planned += new
        token = PERSON.set(conversation.person)
        for one in new:
            cost = dollars(one.planner, one.usage) or 0.0
            self.metrics.add("plans", planner=one.planner)
            self.metrics.add("planner_failures", 1 if one.failure else 0, planner=one.planner)
            self.metrics.add("planner_tokens", one.usage.prompt_tokens + one.usage.output_tokens, planner=one.planner)
            self.metrics.add("planner_dollars", cost, planner=one.planner)
            self.metrics.seconds("planner_seconds", one.seconds)
            self._spend(one.planner, one.usage)
        PERSON.reset(token)

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """Suppress and log every error inside the block, because none may cost the client its request."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.metrics.add("requests", kind="failed")
            place = traceback.extract_tb(error.__traceback__)[-1]
            _logger.error(
                "%s at %s:%s; the request went out as it came", type(error).__name__, place.name, place.lineno
            )

    @contextmanager
    def _counted(self, conversation: Conversation) -> Iterator[None]:
        """Count the compactions that the conversation makes inside the block, and the time that the request waits."""
        before, started = conversation.session.state.compactions, time.perf_counter()
        yield
        done, seconds = conversation.session.state.compactions - before, time.perf_counter() - started
        self.metrics.add("compactions", done)
        if done > 0:
            self.waits.append(seconds)
            self.metrics.seconds("compaction_seconds", seconds)
            _logger.info("%s: compacted; the request waited %.2f s", conversation.session.session_id, seconds)


def _without_thread(passing: Passage) -> Passage:
    """Return `passing` without its request to store the conversation as a thread, because what the provider stores
    cannot be compacted. A request that continues a thread gets the API's error for an unknown thread, so that the
    client sends the whole conversation again (Anthropic, "Message threads")."""
    if field_of(passing.body["thread"], "type") == "continue":
        problem = "the proxy stores no thread: send the whole conversation again"
        return replace(passing, refusal=RefusedError(404, "not_found_error", problem, code="thread_not_found"))
    body = {key: value for key, value in passing.body.items() if key != "thread"}
    return replace(passing, body=body, raw=write(body))


def _words_name(scope: str, words: str) -> str:
    """Return the store's name for the record of an answer in words. `words`: the digest of these; `scope`: the digest
    of the conversation's scope."""
    return f"answer:{scope}:{words}"
