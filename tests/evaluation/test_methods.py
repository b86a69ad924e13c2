"""Methods: what each may do to a list, and how a run finds and measures them."""

import json
import sys
from importlib.resources import files
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.adapters.transcripts import transcript_files
from applier.eval import evaluation
from applier.eval.evaluation import (
    cut_transcript,
    evaluate,
    evaluate_files,
    evaluation_means,
)
from applier.eval.methods import METHODS, PLAIN_METHODS, find_method
from applier.eval.survival import message_tokens
from planner.errors import SettingsError
from planner.validity import check_messages
from tests.bench.own_summary import summary_rows
from tests.bench.plain import best_lines, equal_cut, specifics_list
from tests.evaluation.restoring import restored_share
from tests.evaluation.work import FUTURE, PAST, TASK
from tests.strategies import histories, make_session

PLAIN = {**PLAIN_METHODS, "best-lines": best_lines, "equal-cut": equal_cut, "list": specifics_list}
MEETS_TARGET = ("newest", "best-lines", "list")
KEEPS_PAIRS = ("clear", "equal-cut", "newest")


@settings(max_examples=20)
@given(histories(), st.floats(0.01, 1))
@pytest.mark.parametrize("name", PLAIN)
def test_plain_methods_never_grow_a_list_or_part_a_pair(name, messages, ratio):
    target = int(ratio * message_tokens(messages))
    result = PLAIN[name](messages, TASK, target)
    assert message_tokens(result) <= max(message_tokens(messages), target) + 40
    if name in MEETS_TARGET:
        assert message_tokens(result) <= target
    if name in KEEPS_PAIRS:
        pairing = [v for v in check_messages(result) if v.refused and v.rule <= 2]
        assert not pairing


@pytest.fixture
def short_is_enough(monkeypatch):
    """Measure also what is far too small to compact."""
    monkeypatch.setattr(evaluation, "LEAST_PREFIX_TOKENS", 20)
    monkeypatch.setattr(evaluation, "LEAST_NEEDS", 1)


@pytest.fixture
def cuts(short_is_enough):
    return cut_transcript("job", [*PAST, *FUTURE], TASK)


def test_the_rules_planner_is_measured_whole_on_every_cut(cuts):
    rows = evaluate({"rules": find_method("rules")}, cuts, [0.9, 0.5])
    assert len(rows) == len(cuts) * 2
    assert {row.violations for row in rows} == {0}
    for cut, ratio in product(cuts, (0.9, 0.5)):
        view = find_method("rules")(list(cut.messages), cut.task, int(ratio * cut.tokens))
        assert restored_share(cut.messages, view) == 1.0
    assert {row.survival.failures_kept for row in rows} == {1.0}


def test_a_method_of_your_own_is_found_by_module_and_function(cuts, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("def nothing(messages, task, target_tokens):\n    return []\n")
    monkeypatch.syspath_prepend(tmp_path)
    (mean,) = evaluation_means(evaluate({"mine": find_method("mine:nothing")}, cuts[:1], [0.5]))
    assert (mean.size, mean.plain, mean.violations) == (0, 0, 1)
    sys.modules.pop("mine")


@pytest.mark.parametrize("name", ["best", "no.such.module:f", "json:nothing_there"])
def test_an_unknown_method_is_one_clear_error(name):
    with pytest.raises(SettingsError, match=r"best|no\.such|nothing_there"):
        find_method(name)


def test_a_module_that_is_not_found_can_be_made_known():
    with pytest.raises(SettingsError, match=r"^method no\.such:function: .*: name its folder by PYTHONPATH$"):
        find_method("no.such:function")


def test_every_method_that_is_listed_can_be_found():
    assert all(callable(find_method(name)) for name in METHODS)


def write(path, messages, **more):
    path.write_text(json.dumps({"task": TASK, "messages": messages, **more}))


def test_where_an_agent_compacted_itself_its_summary_is_measured_at_its_own_size(tmp_path):
    summary = "Tests fail: /srv/jobs/report/runner.py has DEFAULT_DEADLINE = 900."
    write(tmp_path / "job-s0.json", PAST, meta={"native_compact_summary": summary})
    write(tmp_path / "job-s1.json", [{"role": "user", "content": summary}, *FUTURE])
    own = {row.method: row for path in transcript_files([tmp_path]) for row in summary_rows(path, ["newest"])}
    assert own.keys() == {"newest", "own summary"}
    assert own["newest"].ratio == own["own summary"].ratio == own["own summary"].size
    assert "DEFAULT_DEADLINE" not in own["own summary"].recall.lost
    assert "run_report" in own["own summary"].recall.lost


@pytest.mark.real
def test_workers_give_the_same_rows_in_the_same_order(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_bytes(files("applier.eval").joinpath("transcript.json").read_bytes())
    (tmp_path / "c.json").write_text("no transcript")
    finished, paths, how = [], transcript_files([tmp_path]), (["newest", "clear"], [0.5])
    alone = evaluate_files(paths, *how, done=lambda: finished.append(1))
    assert evaluate_files(paths, *how, workers=2) == alone
    assert len(finished) == 3
    rows, (problem,) = alone
    assert {row.cut.partition("@")[0] for row in rows} == {"a", "b"}
    assert "c.json" in problem


@pytest.mark.parametrize("preset", ["relevance", "codex", "s06"])
def test_presets_stay_within_the_target_and_lose_nothing(preset, short_is_enough):
    past = make_session(60)
    (cut,) = cut_transcript("job", [*past, {"role": "assistant", "content": "src/auth.ts refresh( 840"}], "", (0.99,))
    (row,) = evaluate({preset: find_method(f"preset:{preset}")}, [cut], [0.5])
    assert row.size <= 0.5
    assert row.violations == 0
    assert row.survival.failures_kept == row.survival.demands_kept == 1
