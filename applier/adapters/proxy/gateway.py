"""Compacts the messages of each request before it is sent on, and reports the answer to the conversation's session.

Requests without a conversation (titles, one-shot questions, the very first one) have no session: there is nothing to
compact yet. A client's request for a compaction is answered here, if possible. After any failure the request is sent
unchanged. This module sends nothing itself; its counts contain no content and no key.
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

from starlette.responses import Response

from applier.adapters.proxy.conversations import CREDENTIALS, Conversation, Conversations, PlannerAccess, short_digest
from applier.adapters.proxy.entrance import People
from applier.adapters.proxy.metrics import PERSON, Metrics
from applier.adapters.proxy.responses_api import (
    CompactionAsk,
    ResponsesPlanner,
    compaction_ask,
    record_in,
    reply,
    view_record,
    with_view,
)
from applier.adapters.proxy.upstreams import Destination, RefusedError
from applier.adapters.proxy.wires import MESSAGES, RESPONSES, Wire, parse, read_answer, write
from applier.session.planning import Planned
from applier.store.opening import SessionStore
from planner.errors import StoreError
from planner.plan import Account, Usage
from planner.prices import billed_tokens, dollars
from planner.reading.messages import field_of

_MOST_PLANNED = 10_000
"""Largest number of planner calls, and of delays, that are kept for the report, at up to 400 bytes each."""
_LOGIN_BETA = "oauth-"
"""Beginning of the name of the beta (a feature in ``anthropic-beta``) that a login's token needs to be accepted."""
_BYTES_PER_TOKEN = 4
"""Rough bytes per token if a provider reports no usage (a streamed chat completion, unless the client asks for it)."""
_AS_IT_CAME = "the request went out as it came"
"""Effect of an error of the proxy, for its log; a request with this effect is counted as failed."""
_logger = logging.getLogger("applier.proxy")
_TOKEN_FIELDS = {
    "uncached": "input_tokens",
    "read": "cache_read_input_tokens",
    "written": "cache_creation_input_tokens",
}


@dataclass(frozen=True)
class ProxiedRequest:
    """Request of a client, with the body that the proxy sends to the provider."""

    wire: Wire
    """API of the request."""
    destination: Destination
    path: str
    headers: Mapping[str, str] = field(repr=False)
    raw: bytes
    """Body for the provider."""
    conversation: Conversation | None = None
    """Conversation to which the request belongs; None if it has none and is sent unchanged."""
    body: dict[str, Any] = field(default_factory=dict)
    """Request's body as data; empty if it was not read."""
    messages: list[Any] = field(default_factory=list)
    """The conversation as the client sent it, as Anthropic messages."""

    @property
    def planner_access(self) -> PlannerAccess | None:
        """Object by which the provider of this request can be asked to plan a compaction, with the client's own
        credentials; None for chat completions, whose providers are not asked."""
        if self.wire is not MESSAGES:
            return ResponsesPlanner() if self.wire is RESPONSES else None
        credentials = {name: self.headers[name] for name in CREDENTIALS if name in self.headers}
        betas = [name.strip() for name in self.headers.get("anthropic-beta", "").split(",")]
        login = ",".join(name for name in betas if name.startswith(_LOGIN_BETA))
        return Account(self.destination.base, {**credentials, "anthropic-beta": login} if login else credentials)


class Gateway:
    """Part of the proxy that finds the conversation of each request, compacts its messages and counts what it costs."""

    def __init__(
        self, conversations: Conversations, metrics: Metrics, store: SessionStore, people: People | None = None
    ) -> None:
        """Prepare requests by the sessions of `conversations`, and count in `metrics`. `store` keeps the records of
        compactions that were answered by a text. `people` pay for their requests; None if people need no token."""
        self.conversations, self.metrics, self._store, self.people = conversations, metrics, store, people
        self._planned: deque[Planned] = deque(maxlen=_MOST_PLANNED)
        self.waits: deque[float] = deque(maxlen=_MOST_PLANNED)
        """Delays of requests by compactions, in seconds."""
        self._count_lock = threading.Lock()
        conversations.closing = self._count_planning

    def close(self) -> None:
        """Close all sessions, and the store."""
        self.conversations.close()
        if self.people is not None:
            self.people.close()
        self._store.close()

    def store_problem(self) -> str:
        """Return the reason why the store cannot be used, in one line; empty if it can be used."""
        try:
            self._store.use(lambda store: store.get_state("proxy"))
        except StoreError as error:
            return " ".join(str(error).split())
        return ""

    def planned(self) -> list[Planned]:
        """Return the newest calls of planners, with their costs, in all conversations, closed ones included."""
        for conversation in self.conversations.open():
            self._count_planning(conversation)
        return list(self._planned)

    def prepare(
        self, wire: Wire, destination: Destination, raw: bytes, headers: Mapping[str, str], path: str
    ) -> ProxiedRequest | Response:
        """Compact the messages of a request to `path` of the API `wire`, with the body `raw`, and return it to be sent.

        It is unchanged if its session has nothing to compact, if it belongs to no conversation yet, and after a failure
        of the proxy. If it asks for a compaction, the proxy's answer may be returned instead. Raise RefusedError if it
        continues a thread.
        """
        proxied = ProxiedRequest(wire, destination, path, headers, raw)
        with self._errors_logged():
            body = parse(raw)
            if body is not None:
                proxied = replace(proxied, body=body)
                if wire is MESSAGES and body.get("thread"):
                    proxied = self._without_thread(proxied)
                session_body, proxied = self._with_view(proxied) if wire is RESPONSES else (proxied.body, proxied)
                if prepared := self._prepared(proxied, session_body):
                    return prepared
            self.metrics.add("requests", kind="passed")
        return proxied

    def _without_thread(self, proxied: ProxiedRequest) -> ProxiedRequest:
        """Return a request of the Messages API without its field ``thread``, which asks the provider to store the
        conversation, because a stored one cannot be compacted. A request that continues a stored thread gets the API's
        error for an unknown thread, so that the client sends the whole conversation again."""
        if field_of(proxied.body["thread"], "type") == "continue":
            self.metrics.add("requests", kind="sent_back")
            problem = "the proxy stores no thread: send the whole conversation again"
            raise RefusedError(404, "not_found_error", problem, code="thread_not_found")
        body = {key: value for key, value in proxied.body.items() if key != "thread"}
        return replace(proxied, body=body, raw=write(body))

    def _with_view(self, proxied: ProxiedRequest) -> tuple[dict[str, Any], ProxiedRequest]:
        """Replace the proxy's earlier compaction in a request of the Responses API by the compacted messages, as the
        provider cannot read it. Return the body for the session, which keeps the record of that compaction, and the
        request with the body for the provider. Without such a compaction both bodies are the request's own."""
        body, scope = proxied.body, short_digest(self.conversations.scope(proxied.body, proxied.headers))
        session_body = with_view(
            body, lambda digest: self._store.use(lambda store: store.get_state(_record_name(scope, digest)))
        )
        if session_body is body:
            return body, proxied
        plain = RESPONSES.with_messages(session_body, RESPONSES.read(session_body).messages)
        return session_body, replace(proxied, raw=write(plain), body=plain)

    def _prepared(self, proxied: ProxiedRequest, body: dict[str, Any]) -> ProxiedRequest | Response | None:
        """Return the request with the messages that its conversation's session prepared, or with the proxy's answer if
        it asks for a compaction. Return None if it belongs to no conversation yet, or asks for a compaction that only
        the provider can make. `body`: the form for the session."""
        wire, ask = proxied.wire, compaction_ask(body, proxied.path) if proxied.wire is RESPONSES else ""
        if ask in ("trigger", "words"):  # the last item, which asks for the compaction, is no message
            body = {**body, "input": body["input"][:-1]}
        messages = wire.messages(body)
        if not messages:
            return None
        planner_access = proxied.planner_access
        digest = str(record_in(body).get("by", "")) if wire is RESPONSES else ""  # of the conversation in the record
        conversation = self.conversations.find(messages, body, proxied.headers, planner_access, digest)
        if conversation is None:
            return None
        proxied = replace(proxied, conversation=conversation, messages=messages)
        access = conversation.planner_access if wire is RESPONSES else None
        planner = access if isinstance(access, ResponsesPlanner) else None
        with self._counted(conversation):
            # for the Messages API, the session itself asks the provider for plans, by `client`
            conversation.session.set_request(**wire.request(body), client=planner_access if wire is MESSAGES else None)
            if planner is not None:  # it asks for plans in requests like this one
                url = proxied.destination.url(proxied.path.removesuffix("/compact"))
                planner.use_request(url, proxied.headers, wire.with_messages(body, messages))
            if ask:
                return self._reply(ask, proxied, conversation, body)
            prepared = conversation.session.prepare(messages)
        is_same = prepared == list(messages)
        raw = proxied.raw if is_same else write(wire.with_messages(body, prepared))
        if planner is not None:
            planner.note_sent(is_unchanged=is_same)
        conversation.note_sent(messages, [] if is_same else prepared)
        self.metrics.add("requests", kind="unchanged" if is_same else "prepared")
        return replace(proxied, raw=raw, body=body)

    def _reply(
        self, ask: CompactionAsk, proxied: ProxiedRequest, conversation: Conversation, body: dict[str, Any]
    ) -> Response | None:
        """Compact the conversation for a client that asks for it, and return the answer. `ask`: how it asks, by an item
        (``trigger``), a text (``words``) or an endpoint (``window``). Return None if nothing can be compacted, or if
        the provider compacted earlier, as only it can read its own compaction. `body`: the form for the session."""
        session, messages = conversation.session, proxied.messages
        compaction = None if RESPONSES.read(body).has_foreign else session.compact(messages, at_limit=True)
        # `is_repeated`: the model has answered nothing since an earlier compaction, and the client asks for it again
        if compaction is None or (compaction.messages == messages and not compaction.is_repeated):
            return None
        record = view_record(messages, compaction.messages, record_in(body), conversation.digest)
        answer, digest = reply(ask, body, record, short_digest(session.session_id + write(record).decode()))
        if ask == "words":
            name = _record_name(short_digest(self.conversations.scope(body, proxied.headers)), digest)
            stored = {**record, "history": session.state.history_key}  # the record is deleted with this history
            self._store.use(lambda store: store.set_state(name, stored))
        self.metrics.add("requests", kind="answered")
        return answer

    def as_sent(self, raw: bytes, headers: Mapping[str, str]) -> bytes:
        """Return the body `raw` of a request to count tokens, with the compacted messages that were last sent in place
        of the client's, so that the count fits what the proxy sends. Compact nothing now."""
        with self._errors_logged():
            body = parse(raw)
            messages = (MESSAGES.messages(body) if body is not None else None) or []
            conversation = self.conversations.find_open(messages, body or {}, headers) if messages else None
            sent = conversation.as_sent(messages) if conversation else messages
            raw = raw if body is None or sent == messages else write(MESSAGES.with_messages(body, sent))
            self.metrics.add("requests", kind="passed")
        return raw

    def shorter(self, proxied: ProxiedRequest, status: int, text: str) -> bytes | None:
        """Return a body with fewer tokens after the provider refused the request with this `status` and `text` as too
        long. Return None if it was refused for another reason, or cannot be shorter."""
        conversation = proxied.conversation
        if conversation is None:
            return None
        with self._errors_logged("the provider's refusal was passed on"), self._counted(conversation):
            refusal = SimpleNamespace(status_code=status, body=text)
            messages = conversation.session.recover(proxied.messages, refusal)
            conversation.note_sent(proxied.messages, messages or [])
            return None if messages is None else write(proxied.wire.with_messages(proxied.body, messages))
        return None

    def observe(self, proxied: ProxiedRequest, answer: bytes, *, is_stream: bool) -> None:
        """Report the provider's `answer` (a stream of events if `is_stream`) to the session, and count its tokens."""
        conversation = proxied.conversation
        with self._errors_logged("the answer was not counted"):
            parts, removed = read_answer(proxied.wire, answer, is_stream=is_stream)
            for part in parts:
                with self._errors_logged("the session did not learn from the answer"):
                    if conversation is not None:
                        conversation.session.observe(part)
            # a stream has about one event for each token
            estimated_tokens = answer.count(b"data:") if is_stream else len(answer) // _BYTES_PER_TOKEN
            self._count(proxied, parts, estimated_tokens)
            if conversation is not None:
                self.metrics.add("removed_reasoning", removed)
                if removed:
                    text = "%s: the provider removed %d reasoning items behind a changed prefix"
                    _logger.info(text, conversation.session.session_id, removed)
                self.metrics.add("saved_tokens", conversation.session.state.reclaimed_tokens)
                self._count_planning(conversation)

    def _count(self, proxied: ProxiedRequest, parts: Sequence[Mapping[str, Any]], estimated_tokens: int) -> None:
        """Count the tokens that the provider reports in the `parts` of an answer, and charge them. If it reports none,
        charge an estimate: by the length of the request, and `estimated_tokens` for the answer."""
        usages = [part.get("usage") for part in parts]
        billed = {name: sum(billed_tokens(usage, name) for usage in usages) for name in _TOKEN_FIELDS.values()}
        for kind, name in _TOKEN_FIELDS.items():
            self.metrics.add("prompt_tokens", billed[name], kind=kind)
        # later events repeat the output tokens of earlier ones
        output = max((billed_tokens(usage, "output_tokens") for usage in usages), default=0)
        usage = Usage(**billed, output_tokens=output)
        if usage == Usage():
            usage = Usage(input_tokens=len(proxied.raw) // _BYTES_PER_TOKEN, output_tokens=estimated_tokens)
        self.metrics.add("output_tokens", output)
        self._spend(str(proxied.body.get("model") or ""), usage)

    def spend_unread(self, size: int) -> None:
        """Charge for a request of `size` bytes that the proxy did not read, such as a batch."""
        self._spend("", Usage(input_tokens=size // _BYTES_PER_TOKEN))

    def _spend(self, model: str, usage: Usage) -> None:
        """Add the price of `usage` to the counts, and charge tokens and price to the person who made the request."""
        cost = dollars(model, usage) or 0.0
        self.metrics.add("dollars", cost)
        if self.people is not None and PERSON.get():
            self.people.spend(PERSON.get(), usage.prompt_tokens + usage.output_tokens, cost)

    def _count_planning(self, conversation: Conversation) -> None:
        """Count the planner calls of `conversation` that are not counted yet, and charge its owner for them."""
        with self._count_lock:
            new = conversation.session.state.planned[conversation.counted_plans :]
            conversation.counted_plans += len(new)
            self._planned += new
        token = PERSON.set(conversation.person)  # the metrics and `_spend` read the person from there
        for call in new:
            cost = dollars(call.planner, call.usage) or 0.0
            self.metrics.add("plans", planner=call.planner)
            self.metrics.add("planner_failures", 1 if call.failure else 0, planner=call.planner)
            tokens = call.usage.prompt_tokens + call.usage.output_tokens
            self.metrics.add("planner_tokens", tokens, planner=call.planner)
            self.metrics.add("planner_dollars", cost, planner=call.planner)
            self.metrics.seconds("planner_seconds", call.seconds)
            self._spend(call.planner, call.usage)
        PERSON.reset(token)

    @contextmanager
    def _errors_logged(self, effect: str = _AS_IT_CAME) -> Iterator[None]:
        """Log every error in the block, with its `effect`, and suppress it, as it must not fail the request."""
        try:
            yield
        except RefusedError:  # the proxy's intended answer
            raise
        except Exception as error:  # noqa: BLE001
            self.metrics.add("requests", 1 if effect == _AS_IT_CAME else 0, kind="failed")
            place = traceback.extract_tb(error.__traceback__)[-1]
            _logger.error("%s at %s:%s; %s", type(error).__name__, place.name, place.lineno, effect)

    @contextmanager
    def _counted(self, conversation: Conversation) -> Iterator[None]:
        """Count the compactions of the conversation inside the block, and the seconds that its request waits."""
        before, started = conversation.session.state.compactions, time.perf_counter()
        yield
        count, seconds = conversation.session.state.compactions - before, time.perf_counter() - started
        self.metrics.add("compactions", count)
        if count > 0:
            self.waits.append(seconds)
            self.metrics.seconds("compaction_seconds", seconds)
            _logger.info("%s: compacted; the request waited %.2f s", conversation.session.session_id, seconds)


def _record_name(scope: str, words_digest: str) -> str:
    """Return the store's name for the record of a compaction that was answered by a text. `words_digest`: digest of the
    text. `scope`: digest that separates clients, so that none reads another's record."""
    return f"answer:{scope}:{words_digest}"
