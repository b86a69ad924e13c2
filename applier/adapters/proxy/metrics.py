"""Counts what the proxy does (requests, tokens, costs, times), for Prometheus; in a team, for each person."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

PERSON: ContextVar[str] = ContextVar("person", default="")
"""Name of the person who sent the present request; set when the request is let in, empty if people have no tokens."""
_COUNTERS = {
    "arrivals": ((), "Requests let in."),
    "requests": (
        ("kind",),
        "Requests for a provider, by what went out: prepared (a compacted list), unchanged (its session had "
        "nothing to compact), passed (as it came: no conversation yet, another path, or over a limit), answered (a "
        "compaction that was asked for was made here), sent_back (it continued a thread; the client sends the whole "
        "conversation), failed (as it came: an error here).",
    ),
    "upstream_responses": (("status",), "Answers of the provider, by the class of their status."),
    "prompt_tokens": (
        ("kind",),
        "Prompt tokens of conversations, as the provider counted them: uncached, read or written (cache).",
    ),
    "output_tokens": ((), "Tokens of the provider's answers."),
    "dollars": ((), "Price of prompts, answers and planning, for models with known prices."),
    "saved_tokens": ((), "Prompt tokens that compaction saved."),
    "compactions": ((), "Compactions, those after a refusal for length included."),
    "removed_reasoning": ((), "Reasoning items and thinking blocks behind a changed prefix that the provider removed."),
    "added_seconds": ((), "Seconds spent on requests of conversations before they went out."),
    "plans": (("planner",), "Calls of planners, by the model, or rules."),
    "planner_failures": (("planner",), "Calls of planners without a plan."),
    "planner_tokens": (("planner",), "Tokens that planners read and wrote."),
    "planner_dollars": (("planner",), "Price of these, where it is known."),
}
"""Labels and description of each counter."""
_HISTOGRAMS = {
    "first_byte_seconds": "Time from a request's arrival to the beginning of its answer.",
    "compaction_seconds": "Time that a request waited for its compaction.",
    "planner_seconds": "Time that a planner took.",
}
_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Upper bounds of the histograms' buckets, in seconds; a model may think for minutes."""


class Metrics:
    """Counters and histograms of the proxy; may be used from several threads."""

    def __init__(self, *, by_person: bool = False) -> None:
        """Start at zero. `by_person`: True to count each person's requests apart, by a label."""
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
        text = "Conversations with an open session."
        self._open = Gauge("compactor_open_conversations", text, registry=self._registry)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add `amount` to the counter `name` with these `labels`, for the person of the present request."""
        self._labelled(self._counters[name], labels).inc(max(0.0, amount))

    def seconds(self, name: str, amount: float) -> None:
        """Add a time of `amount` seconds to the histogram `name`."""
        self._labelled(self._histograms[name], {}).observe(amount)

    def _labelled(self, metric: Any, labels: dict[str, str]) -> Any:
        labels = {**labels, "person": PERSON.get()} if self._people else labels
        return metric.labels(**labels) if labels else metric

    def value(self, name: str, **labels: str) -> float:
        """Return the sum over all people of the counter `name` with these `labels`, or of the histogram's times."""
        metric, end = (self._counters[name], "_total") if name in self._counters else (self._histograms[name], "_sum")
        samples = next(iter(metric.collect())).samples
        matching = (each for each in samples if each.name.endswith(end) and labels.items() <= each.labels.items())
        return sum(sample.value for sample in matching)

    def text(self, open_conversations: int) -> str:
        """Return all counts in the text format of Prometheus. `open_conversations`: their present number."""
        self._open.set(open_conversations)
        return generate_latest(self._registry).decode()
