"""A small body never becomes a large one here, and one over a limit passes as it came."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from applier.adapters.proxy import wires
from applier.store.records import count_values
from applier.testing import MessagesServer
from tests import http_client
from tests.bench.hostile_bodies import HOSTILE, peak_mb, warm_up
from tests.bench.proxy_load import RunningProxy
from tests.hosts import hosts

SLOW = ("6 MB", "different lines", "compressed", "20,000 messages")
PICTURES = ("one picture of 60 MB", "a hundred pictures, 60 MB")
TEXTS = st.text(st.sampled_from('ab",:[]{}\\\n\u0122\U0001f600\ud83d'), max_size=6)
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(-9, 9), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
)


def size_of(value) -> int:
    """How many values are in it, itself included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(size_of, inner))


@given(st.dictionaries(TEXTS, VALUES, max_size=4), st.booleans(), st.integers(0, 12))
def test_no_body_has_more_values_than_were_counted_before_one_was_built(body, escaped, most):
    raw = json.dumps(body, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wires, "MAX_VALUES", most)
        counted, parsed = count_values(raw, most), wires.parse(raw)
    assert parsed == (body if counted <= most else None)
    assert parsed is None or size_of(parsed) - 1 <= counted


@given(st.lists(st.sampled_from(["{}", "a,b", 1]), max_size=40))
def test_commas_and_brackets_in_strings_count_only_where_they_might_matter(values):
    raw = json.dumps({"messages": values}).encode()
    assert count_values(raw, len(values) + 2) <= len(values) + 2


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-be"])
def test_json_of_another_encoding_is_not_read(encoding):
    assert wires.parse('{"a": "\u0122"}'.encode(encoding)) is None


def test_a_list_of_too_many_messages_is_not_read():
    for count, is_read in ((wires.MAX_MESSAGES, True), (wires.MAX_MESSAGES + 1, False)):
        assert (wires.parse(json.dumps({"messages": [0] * count}).encode()) is not None) == is_read


@given(st.binary(max_size=3_000), st.integers(0, 3_000), st.binary(max_size=2))
def test_what_was_compressed_comes_back_whole_within_the_limit_or_not_at_all(plain, most, behind):
    packed = zstandard.ZstdCompressor().compress(plain)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wires, "MAX_DECODED_BYTES", max(most, len(packed)))
        expected = plain if len(plain) <= max(most, len(packed)) else None
        assert wires.decode(packed, " ZSTD") == expected
        assert not behind or wires.decode(packed + behind, "zstd") is None
        assert wires.decode(packed[:-1], "zstd") is None


@pytest.mark.parametrize("line_break", ["\n", "\r", "\u2028", "\x85"])
def test_a_text_of_too_many_lines_is_not_decoded(line_break):
    for count, is_read in ((wires.MAX_DECODED_LINES, True), (wires.MAX_DECODED_LINES + 1, False)):
        plain = json.dumps({"messages": ["a", line_break * count]}).encode()
        assert (wires.decode(zstandard.ZstdCompressor().compress(plain), "zstd") is not None) == is_read


@pytest.mark.parametrize("line_break", ["\n", "\u2028"])
def test_a_body_of_too_many_lines_is_not_read(line_break):
    for count, is_read in ((wires.MAX_LINES, True), (wires.MAX_LINES + 1, False)):
        assert (wires.parse(json.dumps({"messages": ["a", line_break * count]}).encode()) is not None) == is_read


def test_media_leave_room_for_text_that_is_bounded(monkeypatch):
    most = wires.MAX_TEXT_CHARACTERS // 100
    monkeypatch.setattr(wires, "MAX_TEXT_CHARACTERS", most)
    encoded, words = "iVBORw0KGgo/" * (most // 8), "a word " * (most // 7 - 100)
    source = {"type": "base64", "media_type": "image/png", "data": encoded}
    media = [
        {"type": "tool_result", "content": [{"type": "image", "source": source}]},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}},
    ]
    texts = [
        {"type": "text", "text": encoded},
        {"type": "tool_use", "input": {"source": source}},
        {"type": "tool_result", "content": encoded},
        {"type": "document", "source": {"type": "text", "data": words}},
    ]
    for kinds, is_read in ((media, True), (texts, False)):
        for one in kinds:
            assert (wires.parse(json.dumps({"messages": [one, words]}).encode()) is not None) == is_read, one["type"]


def test_a_body_over_a_limit_passes_as_it_came(proxied):
    body = b'{"model": "claude-opus-5-5", "max_tokens": 9, "x": [%s0], "messages": [' % (b"0," * wires.MAX_VALUES)
    body += (
        b'{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "?"}]}'
    )
    with MessagesServer("ok") as server:
        proxy = proxied(server)
        http_client.post(f"{proxy.url}/v1/messages", content=body, headers={"x-api-key": "any"})
        assert [exchange.request.raw for exchange in server.exchanges] == [body]
        assert proxy.metrics.value("requests", kind="passed") == 1
        assert proxy.metrics.value("requests", kind="failed") == 0


@contextmanager
def attacked():
    """Start a proxy that has loaded everything, and say how much memory it has taken so far."""
    with hosts(1) as (upstream,), RunningProxy(upstream.url, 20_000) as proxy:
        warm_up(proxy.url)
        yield proxy, peak_mb(proxy.process_id)
        proxy.kill()


@pytest.fixture(scope="module")
def attacked_by_all():
    """One proxy for all bodies that are small themselves: together they take no more than one may."""
    with attacked() as proxy_and_memory:
        yield proxy_and_memory


def assert_body_is_bounded(name, proxy, before):
    body = HOSTILE[name]()
    assert body.send(proxy.url) in (200, 0)
    assert http_client.get(f"{proxy.url}/health").text == "ok\n"
    assert peak_mb(proxy.process_id) - before <= body.most_mb


@pytest.mark.real
@pytest.mark.parametrize("name", [name for name in HOSTILE if not name.endswith(SLOW) and name not in PICTURES])
def test_no_body_takes_more_memory_than_it_may(attacked_by_all, name):
    """Those that a session works on for long are measured by the command beside it: `tests.bench.hostile_bodies`."""
    assert_body_is_bounded(name, *attacked_by_all)


@pytest.mark.real
@pytest.mark.parametrize("name", [PICTURES[0], pytest.param(PICTURES[1], marks=pytest.mark.slow)])
def test_no_body_of_pictures_takes_more_memory_than_it_may(name):
    with attacked() as (proxy, before):
        assert_body_is_bounded(name, proxy, before)
