"""With OpenTelemetry there, compactions are spans and counters; the rest of a session does not know."""

import pytest

from tests.session.agent import Agent, Clock
from tests.strategies import make_session

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from applier.session.events import Event, Telemetry


@pytest.fixture(scope="module")
def collected():
    """A span exporter and a metric reader behind the global providers, which can be set only once."""
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(tracing)
    metrics.set_meter_provider(MeterProvider([reader]))
    return spans, reader


def counts(reader):
    found = reader.get_metrics_data().resource_metrics[0].scope_metrics
    return {
        metric.name: sum(point.value for point in metric.data.data_points)
        for scope in found
        for metric in scope.metrics
    }


def test_compactions_are_counted_and_traced(collected, session_of):
    spans, reader = collected
    session = session_of(window_tokens=8_000)
    Agent(session).play(make_session(40))
    done = [event for event in session.log() if event.kind == "post_compact"]
    named = [span for span in spans.get_finished_spans() if span.name == "compactor.tier"]
    assert {span.attributes["tier"] for span in named} >= {event.tier for event in done}
    assert {span.attributes["session"] for span in named} == {session.session_id}
    assert counts(reader)["compactor.compactions"] == len(done)
    assert counts(reader)["compactor.reclaimed_tokens"] == sum(event.reclaimed_tokens for event in done)


def test_what_is_undone_and_compacted_again_is_reclaimed_once(collected, session_of):
    _, reader = collected
    before = counts(reader).get("compactor.reclaimed_tokens", 0) if reader.get_metrics_data() else 0
    session, history = session_of(window_tokens=60_000), make_session(60)
    session.prepare(history)
    for _ in range(3):
        assert session.compact(history).applied
        assert session.undo()
    assert session.compact(history).applied
    assert counts(reader)["compactor.reclaimed_tokens"] - before == session.state.reclaimed_tokens > 0


def test_failures_are_counted(collected):
    _, reader = collected
    before = counts(reader).get("compactor.failures", 0) if reader.get_metrics_data() else 0
    Telemetry().count(Event("store_failed", "s", Clock()()))
    assert counts(reader)["compactor.failures"] == before + 1
