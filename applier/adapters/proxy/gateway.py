"""One request on its way: what goes out for it, and what its answer tells the session.

Whatever fails here, the request goes out as it came. Sends nothing itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from applier.adapters.proxy.conversations import Conversations, client_account, client_name, client_scope
from applier.adapters.proxy.metrics import Metrics
from applier.adapters.proxy.usage_reader import UsageReader
from applier.adapters.proxy.wires import Wire
from applier.session import Session

__all__ = ["Gateway", "Passage"]


@dataclass(frozen=True)
class Refused:
    """A provider's error, in the form that `Session.recover` reads."""

    status_code: int
    body: str

    def __str__(self) -> str:
        """What it says."""
        return self.body


@dataclass
class Passage:
    """A request, the session it belongs to (None: it passes as it came), and its body for the provider."""

    wire: Wire
    raw: bytes
    body: dict[str, Any] | None = None
    session: Session | None = None
    messages: list[Any] | None = None
    """The conversation as the client sent it, as Anthropic messages."""

    def reader(self, content_type: str) -> UsageReader:
        """For the answer."""
        return UsageReader(self.wire, is_stream="event-stream" in content_type)


class Gateway:
    """Prepares requests by the sessions of their conversations."""

    def __init__(self, conversations: Conversations, metrics: Metrics) -> None:
        """Takes over both."""
        self.conversations, self.metrics = conversations, metrics

    def prepare(self, wire: Wire, base_url: str, raw: bytes, headers: Mapping[str, str]) -> Passage:
        """What is to go out to `base_url` for the body `raw`."""
        try:
            passage = self._prepared(wire, base_url, raw, headers)
        except Exception:  # noqa: BLE001 - the boundary: no failure of ours may cost the client its request
            self.metrics.add("requests", 'kind="failed"')
            return Passage(wire, raw)
        if passage.session is None:
            self.metrics.add("requests", 'kind="passed"')
        return passage

    def shorter(self, passage: Passage, status: int, text: str) -> bytes | None:
        """What to send instead, after the provider refused `passage` with `text`; None: nothing shorter."""
        if passage.session is None or passage.messages is None or passage.body is None:
            return None
        try:
            before = passage.session.state.compactions
            messages = passage.session.recover(passage.messages, Refused(status, text))
            self.metrics.add("compactions", amount=passage.session.state.compactions - before)
            return None if messages is None else _bytes(passage.wire.with_messages(passage.body, messages))
        except Exception:  # noqa: BLE001 - the same boundary
            self.metrics.add("requests", 'kind="failed"')
            return None

    def observe(self, passage: Passage, parts: list[Mapping[str, Any]]) -> None:
        """Tell the session what the provider counted."""
        for part in parts:
            self._count(part.get("usage"))
            try:
                if passage.session is not None:
                    passage.session.observe(part)
            except Exception:  # noqa: BLE001 - the same boundary
                self.metrics.add("requests", 'kind="failed"')
        if passage.session is not None:
            self.metrics.add("saved_tokens", amount=passage.session.state.spared_tokens)

    def _prepared(self, wire: Wire, base_url: str, raw: bytes, headers: Mapping[str, str]) -> Passage:
        body = json.loads(raw)
        messages = wire.messages(body) if isinstance(body, dict) else None
        if not messages:
            return Passage(wire, raw)
        model = str(body.get("model") or "")
        name, scope = client_name(headers), client_scope(body, headers)
        account = client_account(base_url, headers) if wire.can_plan else None
        session = self.conversations.session(messages, model, name, scope, account)
        if session is None:
            return Passage(wire, raw)
        before = session.state.compactions
        session.set_request(**wire.request(body))
        prepared = session.prepare(messages)
        self.metrics.add("compactions", amount=session.state.compactions - before)
        if _is_same(prepared, messages):
            self.metrics.add("requests", 'kind="unchanged"')
            return Passage(wire, raw, body, session, messages)
        self.metrics.add("requests", 'kind="prepared"')
        return Passage(wire, _bytes(wire.with_messages(body, prepared)), body, session, messages)

    def _count(self, usage: Any) -> None:
        fields = {
            "uncached": "input_tokens",
            "read": "cache_read_input_tokens",
            "written": "cache_creation_input_tokens",
        }
        for kind, field in fields.items():
            tokens = usage.get(field) if isinstance(usage, Mapping) else None
            if isinstance(tokens, int):
                self.metrics.add("prompt_tokens", f'kind="{kind}"', tokens)


def _is_same(prepared: list[Any], messages: list[Any]) -> bool:
    return len(prepared) == len(messages) and all(a is b for a, b in zip(prepared, messages, strict=True))


def _bytes(body: dict[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate can only be sent escaped
        return json.dumps(body, separators=(",", ":")).encode()
