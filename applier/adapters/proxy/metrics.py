"""What the proxy counts, for Prometheus: no content, no key; by person where people are told apart."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["PERSON", "Metrics"]

PERSON: ContextVar[str] = ContextVar("person", default="")
"""Who asks; set for each request where it comes in, known to all that is done for it."""
_COUNTERS = {
    "arrivals": ((), "Requests let in."),
    "requests": (
        ("kind",),
        "Requests for a provider, by what went out: prepared (a compacted list), unchanged (its session had "
        "nothing to compact), passed (as it came: no conversation yet, or another path), answered (a compaction that "
        "was asked for was made here), failed (as it came: an error here).",
    ),
    "upstream_responses": (("status",), "Answers of the provider, by the class of their status."),
    "prompt_tokens": (
        ("kind",),
        "Prompt tokens of conversations, as the provider counted them: uncached, read or written (cache).",
    ),
    "output_tokens": ((), "Tokens of the provider's answers."),
    "dollars": ((), "What prompts, answers and planning cost, of models whose prices are known."),
    "saved_tokens": ((), "Prompt tokens that these would have had more without compaction."),
    "compactions": ((), "Compactions, those after a refusal for length included."),
    "added_seconds": ((), "Seconds spent on requests of conversations before they went out."),
    "plans": (("planner",), "Times that a planner was asked, by the model, or rules."),
    "planner_failures": (("planner",), "Times that no plan came of it."),
    "planner_tokens": (("planner",), "Tokens that planners read and wrote."),
    "planner_dollars": (("planner",), "What that cost, where the price is known."),
}
"""Their labels, and what they count."""
_HISTOGRAMS = {
    "first_byte_seconds": "From a request's arrival to the beginning of its answer.",
    "planner_seconds": "How long a planner took.",
}
_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Seconds; a model may think for minutes."""


class Metrics:
    """Adds up; may be used from several threads."""

    def __init__(self, *, by_person: bool = False) -> None:
        """All zero; `by_person`: with a label for who asked."""
        self._people = ("person",) if by_person else ()
        self._registry = CollectorRegistry()
        self._counters = {
            name: Counter(f"compactor_{name}", text, (*labels, *self._people), registry=self._registry)
            for name, (labels, text) in _COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(f"compactor_{name}", text, self._people, buckets=_BUCKETS, registry=self._registry)
            for name, text in _HISTOGRAMS.items()
        }
        text = "Conversations whose session is open now."
        self._open = Gauge("compactor_open_conversations", text, registry=self._registry)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count `amount` more of `name`."""
        self._labelled(self._counters[name], labels).inc(max(0.0, amount))

    def seconds(self, name: str, amount: float) -> None:
        """Note that it took so long."""
        self._labelled(self._histograms[name], {}).observe(amount)

    def _labelled(self, metric: Any, labels: dict[str, str]) -> Any:
        labels = {**labels, "person": PERSON.get()} if self._people else labels
        return metric.labels(**labels) if labels else metric

    def value(self, name: str, **labels: str) -> float:
        """What was counted, of all people together."""
        samples = next(iter(self._counters[name].collect())).samples
        own = (one for one in samples if one.name.endswith("_total") and labels.items() <= one.labels.items())
        return sum(one.value for one in own)

    def text(self, open_conversations: int) -> str:
        """All of it in Prometheus' text format."""
        self._open.set(open_conversations)
        return generate_latest(self._registry).decode()
