"""Counters of the proxy, as Prometheus reads them. Holds no content and no key."""

from __future__ import annotations

import threading
from collections import Counter

__all__ = ["Metrics"]

_HELP = {
    "requests": "Requests let in, by what went out: prepared (a compacted list), unchanged (its session had nothing "
    "to compact), passed (as it came: no conversation yet, or another path), failed (as it came: an error here).",
    "upstream_responses": "Answers of the provider, by the class of their status.",
    "prompt_tokens": "Prompt tokens of conversations, as the provider counted them: uncached, read or written (cache).",
    "saved_tokens": "Prompt tokens that these would have had more without compaction.",
    "compactions": "Compactions, those after a refusal for length included.",
    "added_seconds": "Seconds spent on requests of conversations before they went out.",
    "open_conversations": "Conversations whose session is open now.",
}
_GAUGES = ("open_conversations",)


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

    def text(self, **gauges: float) -> str:
        """All of it in Prometheus' text format, `gauges` as they are now."""
        with self._lock:
            values = {**self._values, **{(name, ""): value for name, value in gauges.items()}}
        lines = []
        for name, description in _HELP.items():
            kind = "gauge" if name in _GAUGES else "counter"
            full = f"compactor_{name}" if name in _GAUGES else f"compactor_{name}_total"
            lines += [f"# HELP {full} {description}", f"# TYPE {full} {kind}"]
            known = [(label, value) for (key, label), value in sorted(values.items()) if key == name]
            lines += [f"{full}{{{label}}} {value:g}" if label else f"{full} {value:g}" for label, value in known]
        return "\n".join(lines) + "\n"
