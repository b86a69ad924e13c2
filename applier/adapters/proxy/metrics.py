"""Counters of the proxy, as Prometheus reads them. Holds no content and no key."""

from __future__ import annotations

import threading
from collections import Counter

__all__ = ["Metrics"]

_HELP = {
    "requests": "Requests that came in, by what was done: prepared, unchanged, passed, failed, refused.",
    "upstream_responses": "Answers of the provider, by class of status.",
    "prompt_tokens": "Prompt tokens as the provider counted them: uncached, read, written.",
    "saved_tokens": "Prompt tokens that compaction spared, by the session's own count.",
    "compactions": "Compactions.",
    "added_seconds": "Time from a request's last byte to its first byte upstream.",
    "open_conversations": "Sessions open now.",
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
