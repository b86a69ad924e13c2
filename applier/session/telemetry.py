"""OpenTelemetry spans and counters for a session, when the ``otel`` extra is there; nothing otherwise.

Only reports what events say; the host configures where it goes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from applier.session.events import Event

__all__ = ["Telemetry"]

SCOPE = "relevance-compactor"


class Telemetry:
    """Counters of compactions, and a span around each."""

    def __init__(self) -> None:
        """Find OpenTelemetry; without it every call is free."""
        self._tracer: Any = None
        if importlib.util.find_spec("opentelemetry") is None:
            return
        from opentelemetry import metrics, trace

        meter = metrics.get_meter(SCOPE)
        self._tracer = trace.get_tracer(SCOPE)
        self._compactions = meter.create_counter("compactor.compactions")
        self._reclaimed = meter.create_counter("compactor.reclaimed_tokens", unit="token")
        self._invalidated = meter.create_counter("compactor.invalidated_tokens", unit="token")
        self._failures = meter.create_counter("compactor.failures")

    @contextmanager
    def span(self, name: str, **attributes: str | int) -> Iterator[None]:
        """A span named ``compactor.{name}``."""
        if self._tracer is None:
            yield
            return
        with self._tracer.start_as_current_span(f"compactor.{name}", attributes=attributes):
            yield

    def count(self, event: Event) -> None:
        """Add what `event` says to the counters."""
        if self._tracer is None:
            return
        attributes = {"trigger": event.trigger, "tier": event.tier}
        if event.kind == "post_compact":
            self._compactions.add(1, attributes)
            self._reclaimed.add(event.reclaimed_tokens, attributes)
            self._invalidated.add(event.invalidated_tokens, attributes)
        elif event.kind in ("tier_failed", "store_failed", "prepare_failed"):
            self._failures.add(1, {"kind": event.kind})
