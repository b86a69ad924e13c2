"""One request on its way: what goes out for it, what its answer tells the session, and what the proxy counts of both.

Whatever fails here, the request goes out as it came. Sends nothing itself; counts hold no content and no key.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from applier.adapters.proxy.conversations import Conversations, client_account, client_name, client_scope
from applier.adapters.proxy.wires import Wire, observed
from applier.session import Session

__all__ = ["Gateway", "Metrics", "Passage"]

_HELP = {
    "requests": "Requests let in, by what went out: prepared (a compacted list), unchanged (its session had nothing "
    "to compact), passed (as it came: no conversation yet, or another path), failed (as it came: an error here).",
    "upstream_responses": "Answers of the provider, by the class of their status.",
    "prompt_tokens": "Prompt tokens of conversations, as the provider counted them: uncached, read or written (cache).",
    "saved_tokens": "Prompt tokens that these would have had more without compaction.",
    "compactions": "Compactions, those after a refusal for length included.",
    "added_seconds": "Seconds spent on requests of conversations before they went out.",
}
_TOKEN_FIELDS = {
    "uncached": "input_tokens",
    "read": "cache_read_input_tokens",
    "written": "cache_creation_input_tokens",
}


class Metrics:
    """Adds up; may be used from several threads."""

    def __init__(self) -> None:
        """All zero."""
        self._values: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, label: str = "", amount: float = 1) -> None:
        """Count `amount` more of `name`; `label` is written as Prometheus wants it, ``kind="passed"``."""
        with self._lock:
            self._values[name, label] += amount  # type: ignore[assignment]

    def value(self, name: str, label: str = "") -> float:
        """What was counted."""
        return self._values[name, label]

    def text(self, open_conversations: int) -> str:
        """All of it in Prometheus' text format."""
        with self._lock:
            values = sorted(self._values.items())
        lines = []
        for name, description in _HELP.items():
            full = f"compactor_{name}_total"
            lines += [f"# HELP {full} {description}", f"# TYPE {full} counter"]
            own = [(f"{{{label}}}" if label else "", value) for (key, label), value in values if key == name]
            lines += [f"{full}{label} {value:.15g}" for label, value in own]
        gauge = "compactor_open_conversations"
        lines += [f"# HELP {gauge} Conversations whose session is open now.", f"# TYPE {gauge} gauge"]
        return "\n".join([*lines, f"{gauge} {open_conversations}"]) + "\n"


@dataclass(frozen=True)
class _Refusal:
    """A provider's error, in the form that `Session.recover` reads."""

    status_code: int
    body: str


@dataclass(frozen=True)
class Passage:
    """A request, the session it belongs to (None: it passes as it came), and its body for the provider."""

    wire: Wire
    raw: bytes
    session: Session | None = None
    body: dict[str, Any] = field(default_factory=dict)
    messages: list[Any] = field(default_factory=list)
    """The conversation as the client sent it, as Anthropic messages."""


class Gateway:
    """Prepares requests by the sessions of their conversations."""

    def __init__(self, conversations: Conversations, metrics: Metrics) -> None:
        """Takes over both."""
        self.conversations, self.metrics = conversations, metrics

    def prepare(self, wire: Wire, base_url: str, raw: bytes, headers: Mapping[str, str]) -> Passage:
        """What is to go out to `base_url` for the body `raw`."""
        with self._harmless():
            return self._prepared(wire, base_url, raw, headers)
        return Passage(wire, raw)

    def shorter(self, passage: Passage, status: int, text: str) -> bytes | None:
        """What to send instead, after the provider refused `passage` with `text`; None: nothing shorter."""
        if passage.session is None:
            return None
        with self._harmless(), self._counted(passage.session):
            messages = passage.session.recover(passage.messages, _Refusal(status, text))
            return None if messages is None else _bytes(passage.wire.with_messages(passage.body, messages))
        return None

    def observe(self, passage: Passage, answer: bytes, *, is_stream: bool) -> None:
        """Tell the session what the provider counted."""
        for part in observed(passage.wire, answer, is_stream=is_stream):
            self._count(part.get("usage"))
            with self._harmless():
                if passage.session is not None:
                    passage.session.observe(part)
        if passage.session is not None:
            self.metrics.add("saved_tokens", amount=passage.session.state.reclaimed_tokens)

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """The boundary: no failure of ours may cost the client its request."""
        try:
            yield
        except Exception:  # noqa: BLE001
            self.metrics.add("requests", 'kind="failed"')

    @contextmanager
    def _counted(self, session: Session) -> Iterator[None]:
        """Count the compactions of `session` meanwhile."""
        before = session.state.compactions
        yield
        self.metrics.add("compactions", amount=session.state.compactions - before)

    def _prepared(self, wire: Wire, base_url: str, raw: bytes, headers: Mapping[str, str]) -> Passage:
        body = json.loads(raw)
        messages = (wire.messages(body) if isinstance(body, dict) else None) or []
        session = self._session(wire, base_url, body, messages, headers) if messages else None
        if session is None:
            self.metrics.add("requests", 'kind="passed"')
            return Passage(wire, raw)
        with self._counted(session):
            session.set_request(**wire.request(body))
            prepared = session.prepare(messages)
        is_same = prepared == list(messages)
        outgoing = raw if is_same else _bytes(wire.with_messages(body, prepared))
        self.metrics.add("requests", f'kind="{"unchanged" if is_same else "prepared"}"')
        return Passage(wire, outgoing, session, body, messages)

    def _session(
        self, wire: Wire, base_url: str, body: dict[str, Any], messages: list[Any], headers: Mapping[str, str]
    ) -> Session | None:
        account = client_account(base_url, headers) if wire.can_plan else None
        model, scope = str(body.get("model") or ""), client_scope(body, headers)
        return self.conversations.session(messages, model, client_name(headers), scope, account)

    def _count(self, usage: Any) -> None:
        for kind, name in _TOKEN_FIELDS.items():
            tokens = usage.get(name) if isinstance(usage, Mapping) else None
            if isinstance(tokens, int):
                self.metrics.add("prompt_tokens", f'kind="{kind}"', tokens)


def _bytes(body: dict[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate can only be sent escaped
        return json.dumps(body, separators=(",", ":")).encode()
