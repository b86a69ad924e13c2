"""One request on its way: what goes out for it, and what its answer tells the session of its conversation.

Requests without a conversation (titles, one-shot questions, the very first one) have no session: there is nothing to
compact yet. One that asks for a compaction is answered here, if one can be made. Whatever fails here, the request goes
out as it came. Sends nothing itself; counts hold no content and no key.
"""

from __future__ import annotations

import json
import logging
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from applier.adapters.proxy.compactions import Ask, asked, carried, opened, reply, standing, without_ask
from applier.adapters.proxy.conversations import CREDENTIALS, Asker, Conversation, Conversations, short_digest
from applier.adapters.proxy.metrics import PERSON, Metrics
from applier.adapters.proxy.people import People
from applier.adapters.proxy.responses_planner import ResponsesPlanner
from applier.adapters.proxy.upstreams import Way
from applier.adapters.proxy.wires import MESSAGES, RESPONSES, Wire, observed
from applier.session.persistence import SessionStore
from applier.session.planning import Planned
from planner.errors import StoreError
from planner.plan import Usage
from planner.prices import billed_tokens, dollars
from planner.proposal import Account

__all__ = ["Gateway", "Passage"]

_MOST_PLANNED = 10_000
"""Askings of planners that are told of: 400 bytes each."""
_LOGIN_BETA = "oauth-"
"""How the beta begins without which a login's token is refused; others are of the agent's own model and request."""
_BYTES_PER_TOKEN = 4
"""Roughly, where a provider says no usage (a streamed chat completion, unless the client asks for it)."""
_logger = logging.getLogger("applier.proxy")
_TOKEN_FIELDS = {
    "uncached": "input_tokens",
    "read": "cache_read_input_tokens",
    "written": "cache_creation_input_tokens",
}


@dataclass(frozen=True)
class Passage:
    """A request, the conversation it belongs to (None: it passes as it came), and its body for the provider."""

    wire: Wire
    way: Way
    path: str
    headers: Mapping[str, str] = field(repr=False)
    raw: bytes
    conversation: Conversation | None = None
    body: dict[str, Any] = field(default_factory=dict)
    messages: list[Any] = field(default_factory=list)
    """The conversation as the client sent it, as Anthropic messages."""
    reply: tuple[bytes, str] | None = None
    """What answers it in the provider's place, and its media type."""

    @property
    def asker(self) -> Asker | None:
        """By whom its conversation may be planned where it goes.

        A planner of the Messages API shows there what the client does to say who asks, and nothing else.
        """
        if self.wire is not MESSAGES:
            return ResponsesPlanner() if self.wire is RESPONSES else None
        shown = {name: self.headers[name] for name in CREDENTIALS if name in self.headers}
        betas = [name.strip() for name in self.headers.get("anthropic-beta", "").split(",")]
        login = ",".join(name for name in betas if name.startswith(_LOGIN_BETA))
        return Account(self.way.base, {**shown, "anthropic-beta": login} if login else shown)


class Gateway:
    """Prepares requests by the sessions of their conversations."""

    def __init__(
        self, conversations: Conversations, metrics: Metrics, store: SessionStore, people: People | None = None
    ) -> None:
        """Takes over all; `store` keeps what answers in words stand for, `people` what each has spent."""
        self.conversations, self.metrics, self._store, self.people = conversations, metrics, store, people
        self._planned: deque[Planned] = deque(maxlen=_MOST_PLANNED)
        self._noting = threading.Lock()
        conversations.closing = self._note_planned

    def close(self) -> None:
        """Close all sessions, and the store."""
        self.conversations.close()
        if self.people is not None:
            self.people.close()
        self._store.close()

    def store_problem(self) -> str:
        """Why the store cannot be used, in one line; empty while it can."""
        try:
            self._store.use(lambda store: store.get_state("proxy"))
        except StoreError as error:
            return " ".join(str(error).split())
        return ""

    def planned(self) -> list[Planned]:
        """Who was asked for plans in all conversations, those that are closed included."""
        for conversation in self.conversations.open():
            self._note_planned(conversation)
        return list(self._planned)

    def prepare(self, wire: Wire, way: Way, raw: bytes, headers: Mapping[str, str], path: str) -> Passage:
        """What is to go out on its `way` for the body `raw` of a request to `path`."""
        passing = Passage(wire, way, path, headers, raw)
        with self._harmless():
            body = json.loads(raw)
            if isinstance(body, dict):
                passing = replace(passing, body=body)
                if wire is RESPONSES:
                    body, passing = self._opened(passing)
                if prepared := self._prepared(passing, body):
                    return prepared
            self.metrics.add("requests", kind="passed")
        return passing

    def _opened(self, passing: Passage) -> tuple[dict[str, Any], Passage]:
        """The body of `passing`, and it, with the view in place of a compaction of ours, which nobody else can read."""
        body, scope = passing.body, short_digest(self.conversations.scope(passing.body, passing.headers))
        whole = opened(body, lambda words: self._store.use(lambda store: store.get_state(_words_name(scope, words))))
        if whole is body:
            return body, passing
        plain = RESPONSES.with_messages(whole, RESPONSES.read(whole).messages)
        return whole, replace(passing, raw=_bytes(plain), body=plain)

    def _prepared(self, passing: Passage, body: dict[str, Any]) -> Passage | None:
        """`passing` with what its session sends, or answered; None where it has no session or nothing to answer."""
        wire, ask = passing.wire, asked(body, passing.path) if passing.wire is RESPONSES else ""
        body = without_ask(body, ask) if ask else body
        messages = wire.messages(body)
        if not messages:
            return None
        called, asker = str(standing(body).get("by", "")) if wire is RESPONSES else "", passing.asker
        conversation = self.conversations.find(messages, body, passing.headers, asker, called)
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
        raw = passing.raw if is_same else _bytes(wire.with_messages(body, prepared))
        return replace(passage, raw=raw, body=body)

    def _answered(self, ask: Ask, passage: Passage, conversation: Conversation, body: dict[str, Any]) -> Passage | None:
        """The answer to a client that asks for a compaction; None where there is nothing to answer, and where
        something of another's stands in front, for all that is to go with it."""
        session, messages = conversation.session, passage.messages
        done = None if RESPONSES.read(body).has_foreign else session.compact(messages, at_limit=True)
        if done is None or (done.messages == messages and not done.stands):
            return None
        held = carried(messages, done.messages, standing(body), conversation.called)
        content, media_type, words = reply(ask, body, held, short_digest(session.session_id + _bytes(held).decode()))
        if ask == "words":
            name = _words_name(short_digest(self.conversations.scope(body, passage.headers)), words)
            kept = {**held, "history": session.state.history_key}  # is forgotten with it
            self._store.use(lambda store: store.set_state(name, kept))
        self.metrics.add("requests", kind="answered")
        return replace(passage, reply=(content, media_type))

    def as_sent(self, raw: bytes, headers: Mapping[str, str]) -> bytes:
        """The body `raw` with what was sent last in place of what it was made of; changes nothing, opens nothing.

        What a conversation would gain by a compaction that is due at its next request is not known before that.
        """
        with self._harmless():
            body = json.loads(raw)
            messages = (MESSAGES.messages(body) if isinstance(body, dict) else None) or []
            conversation = self.conversations.known(messages, body, headers) if messages else None
            sent = conversation.as_sent(messages) if conversation else messages
            raw = raw if sent == messages else _bytes(MESSAGES.with_messages(body, sent))
            self.metrics.add("requests", kind="passed")
        return raw

    def shorter(self, passage: Passage, status: int, text: str) -> bytes | None:
        """What to send instead, after the provider refused `passage` with `text`; None: nothing shorter."""
        conversation = passage.conversation
        if conversation is None:
            return None
        with self._harmless(), self._counted(conversation):
            refusal = SimpleNamespace(status_code=status, body=text)
            messages = conversation.session.recover(passage.messages, refusal)
            conversation.note_sent(passage.messages, messages or [])
            return None if messages is None else _bytes(passage.wire.with_messages(passage.body, messages))
        return None

    def observe(self, passage: Passage, answer: bytes, *, is_stream: bool) -> None:
        """Tell the session what the provider counted."""
        conversation, parts = passage.conversation, list(observed(passage.wire, answer, is_stream=is_stream))
        for part in parts:
            with self._harmless():
                if conversation is not None:
                    conversation.session.observe(part)
        with self._harmless():
            self._count(passage, parts, answer.count(b"data:") if is_stream else len(answer) // _BYTES_PER_TOKEN)
            if conversation is not None:
                self.metrics.add("saved_tokens", conversation.session.state.reclaimed_tokens)
                self._note_planned(conversation)

    def _count(self, passage: Passage, parts: Sequence[Mapping[str, Any]], answer_tokens: int) -> None:
        """Count what the provider bills; where it does not say, what was sent and received, by its length."""
        usages = [part.get("usage") for part in parts]
        billed = {name: sum(billed_tokens(usage, name) for usage in usages) for name in _TOKEN_FIELDS.values()}
        for kind, name in _TOKEN_FIELDS.items():
            self.metrics.add("prompt_tokens", billed[name], kind=kind)
        output = max((billed_tokens(usage, "output_tokens") for usage in usages), default=0)
        usage = Usage(**billed, output_tokens=output)
        if usage == Usage():
            usage = Usage(input_tokens=len(passage.raw) // _BYTES_PER_TOKEN, output_tokens=answer_tokens)
        self.metrics.add("output_tokens", output)
        self._spend(str(passage.body.get("model") or ""), usage)

    def spend_unread(self, size: int) -> None:
        """Count a request of `size` bytes that was not read, such as a batch."""
        self._spend("", Usage(input_tokens=size // _BYTES_PER_TOKEN))

    def _spend(self, model: str, usage: Usage) -> None:
        cost = dollars(model, usage) or 0.0
        self.metrics.add("dollars", cost)
        if self.people is not None and PERSON.get():
            self.people.spend(PERSON.get(), usage.prompt_tokens + usage.output_tokens, cost)

    def _note_planned(self, conversation: Conversation) -> None:
        """Count the askings of its planner since the last time, for whose it is."""
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
        """The boundary: no failure of ours may cost the client its request."""
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
        before = conversation.session.state.compactions
        yield
        self.metrics.add("compactions", conversation.session.state.compactions - before)


def _words_name(scope: str, words: str) -> str:
    """Under which the store has what an answer in words stands for."""
    return f"answer:{scope}:{words}"


def _bytes(body: dict[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate can only be sent escaped
        return json.dumps(body, separators=(",", ":")).encode()
