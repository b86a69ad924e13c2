"""`watch`: what a session would have sent, call by call."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.cli.commands.measure import curve_lines
from applier.session.presets import PRESETS


def test_compactions_and_curve_are_shown(compactor, transcript, folder):
    ran = compactor("watch", transcript, "--window", 20_000)
    assert ran.code == 0
    assert "█" in ran.out
    assert "tokens sent in each of 33 calls" in ran.out
    assert "0 invalid lists, 0 over the window, 0 unrestorable" in ran.out
    assert sorted(folder.iterdir()) == [transcript]


def test_help_of_the_page_says_what_it_shows(compactor):
    shown = " ".join(compactor("watch", "--help").out.split())
    assert "prompt sizes, compactions, restored content and cost" in shown
    assert "save and apply" not in shown


def test_json_has_every_call(compactor, transcript):
    (run,) = compactor("watch", transcript, "--window", 20_000, "--json").json
    assert len(run["calls"]) == 33
    assert all(call["sent_tokens"] <= call["history_tokens"] for call in run["calls"])
    assert [event["kind"] for event in run["compactions"]] == ["post_compact"] * len(run["compactions"])


def test_presets_are_compared_in_one_table(compactor, transcript, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = compactor("watch", transcript, "--preset", "codex", "--preset", "off", "--window", 20_000)
    assert [line.split()[0] for line in ran.out.splitlines()[2:4]] == ["codex", "off"]
    assert "…" not in ran.out


@pytest.mark.real
@pytest.mark.parametrize("model", [(), ("--model", "claude-opus-5-5")])
def test_every_name_of_a_preset_is_whole_at_80_columns(compactor, transcript, monkeypatch, model):
    monkeypatch.setenv("COLUMNS", "80")
    ran = compactor("watch", transcript, "--preset", "all", *model)
    rows = ran.out.splitlines()
    assert [line.split()[0] for line in rows[2:-1]] == list(PRESETS)
    assert "…" not in ran.out
    assert "0 in all rows: " in rows[-1]
    assert rows[-1].endswith("over, invalid, lost")


@pytest.mark.real
def test_money_stands_beside_tokens_where_the_price_of_the_model_is_known(compactor, transcript):
    small = "watch", transcript, "--window", 20_000
    priced, unpriced = (compactor(*small, *more).out for more in (("--model", "claude-opus-5-5"), ()))
    assert re.search(r"(?m)^ +\d+ plan .* ≈ \$0\.\d+ once, ≈ \$0\.\d+ less a call$", priced)
    assert re.search(r"input with claude-opus-5-5: ≈ \$0\.\d+, ≈ \$0\.\d+ without compaction", priced)
    assert "$" not in unpriced
    (run,) = compactor(*small, "--model", "claude-opus-5-5", "--json").json
    assert min(run["dollars"], run["dollars_without"]) > 0
    assert all(0 < event["dollars"]["saved"] < event["dollars"]["rebilled"] for event in run["compactions"])
    table = compactor(*small, "--preset", "codex", "--preset", "off", "--model", "claude-opus-5-5").out
    assert [line.count("≈ $") for line in table.splitlines()[2:4]] == [1, 1]


def test_preset_and_window_are_those_of_the_environment_or_the_project(compactor, transcript, folder, monkeypatch):
    (folder / "compactor.toml").write_text('preset = "codex"\nwindow_tokens = 30000\n')
    (run,) = compactor("watch", transcript, "--json").json
    assert (run["preset"], run["window_tokens"]) == ("codex", 30_000)
    monkeypatch.setenv("COMPACTOR_PRESET", "off")
    (run,) = compactor("watch", transcript, "--window", 20_000, "--json").json
    assert (run["preset"], run["window_tokens"]) == ("off", 20_000)


@given(st.lists(st.integers(0, 1000), max_size=200), st.integers(1, 80), st.integers(1, 9))
def test_curve_fits_and_is_highest_where_the_values_are(values, width, height):
    lines = curve_lines(values, width, height, top=1000)
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    if values and max(values) == 1000:
        assert "█" in lines[0]
