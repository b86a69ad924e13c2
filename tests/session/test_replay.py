"""A transcript through a session, call by call: the numbers add up, and real ones never go wrong."""

from dataclasses import fields, replace

import pytest

from applier.eval.replay import replay
from applier.session import PRESETS
from applier.store import open_store
from tests.bench.preset_costs import PresetJob, PresetRun, count_needs, preset_totals, run_preset
from tests.strategies import make_session


@pytest.fixture
def replayed(tmp_path):
    def make(messages, preset, window_tokens, **more):
        with open_store(tmp_path / f"{preset}.db") as store:
            return replay(messages, preset, window_tokens, store=store, **more)

    return make


def test_without_compaction_every_call_extends_the_one_before(replayed):
    messages = make_session(30)
    done = replayed(messages, "off", 1_000_000)
    assert len(done.calls) == 29
    assert done.compactions == []
    assert done.invalidated_tokens == 0
    for before, after in zip(done.calls, done.calls[1:], strict=False):
        assert after.cached_tokens == before.sent_tokens
        assert after.sent_tokens == after.history_tokens
    assert done.cost(0.0) == pytest.approx(1.25 * done.peak_tokens)


@pytest.mark.parametrize("replace", [False, True])
def test_a_compaction_shows_in_the_curve(replayed, replace):
    done = replayed(make_session(60), "relevance", 12_000, replace=replace)
    call = next(call for call in done.calls if call.invalidated_tokens)
    event = call.events[-1]
    assert event.kind == "post_compact"
    assert call.sent_tokens == event.tokens_after
    assert call.sent_tokens < call.history_tokens
    assert done.exceeded == 0
    assert done.violations == []
    assert done.unrestorable == ()
    assert done.sent_tokens == sum(call.sent_tokens for call in done.calls)


def test_the_system_prompt_counts_and_is_cached(replayed):
    plain, with_system = (replayed(make_session(10), "off", 10**6, system=text) for text in (None, "Be brief. " * 50))
    extra = with_system.calls[0].sent_tokens - plain.calls[0].sent_tokens
    assert extra > 100
    assert with_system.calls[1].cached_tokens == plain.calls[1].cached_tokens + extra


def test_totals_are_by_window_and_cost():
    zeros = {field.name: 0 for field in fields(PresetRun)}

    def row(preset, window, cost):
        return PresetRun(**zeros | {"preset": preset, "window_tokens": window, "costs": (cost, cost, cost)})

    found = preset_totals([row("a", 32, 3.0), row("b", 32, 1.0), row("a", 32, 3.0), row("a", 200, 9.0)])
    assert [(total.preset, total.window_tokens, total.costs[0]) for total in found] == [
        ("b", 32, 1.0),
        ("a", 32, 6.0),
        ("a", 200, 9.0),
    ]


def test_names_that_were_removed_and_are_needed_again_are_missed(replayed):
    """The agent reads a file, much else, and then names what stood in the file alone."""
    messages = make_session(40)
    messages[2]["content"][0]["content"] = "the port is in wobble_port_setting"
    messages += [{"role": "assistant", "content": "Now wobble_port_setting is next."}]
    whole = replayed(messages, "off", 10**6)
    needed, met = count_needs(whole.calls, messages)
    assert needed == met > 0
    cut = [replace(call, sent=call.sent[3:]) for call in whole.calls]
    needed_still, met = count_needs(cut, messages)
    assert needed_still == needed > met


SMALL = 60_000
"""Characters of the transcripts in the sample; `python -m tests.bench presets` takes all."""


@pytest.mark.real
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_real_transcripts_are_never_sent_wrong(shared_folder, preset):
    paths = [path for path in sorted(shared_folder.glob("*.json")) if path.stat().st_size < SMALL]
    for path in paths[:: max(1, len(paths) // 2)]:
        row = run_preset(PresetJob(path, preset, 12_000, replace=preset < "m"))
        assert (row.violations, row.unrestorable) == (0, 0)
        assert row.exceeded == 0 or preset == "off"
