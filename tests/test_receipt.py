"""The receipt lists the removed content in order of worth, and never content that is still in the view."""

import re

import pytest
from hypothesis import given

from applier.receipt import forecast, in_sight, receipt, receipt_of_foreign
from applier.store import open_store
from applier.view import apply
from planner import StalePlan, plan_compaction
from planner.analysis import analyze
from planner.guards import check_plan
from planner.plan import CompactionPlan
from planner.settings import PlanSettings
from tests import strategies

OPUS = PlanSettings(target_model="claude-opus-5-5")
SEEN = re.compile(r"(\d+) of (\d+) (demands|failures|decisions|names)")


def counts(text):
    """Return the kept and all numbers by kind."""
    return {kind: (int(left), int(all_of)) for left, all_of, kind in SEEN.findall(text)}


def use(number, command, result):
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": command}}
    answer = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": result}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]


HISTORY = [
    {"role": "user", "content": "Rename the module parser to reader. You must never touch the folder tests/fixtures."},
    *use(1, "cat src/parser.py", "def parse_rows(rows):\n    return rows\n" * 40),
    *use(2, "pytest src/parser_test.py", "FAILED src/parser_test.py::test_rows - KeyError: 'token'\nExit code 1"),
    *use(3, "grep -rn parse_rows src/parser.py", "src/parser.py:1:def parse_rows(rows):\n" * 20),
    {"role": "assistant", "content": "I decided to keep an alias for parse_rows until the next release."},
    {"role": "user", "content": "Go on."},
]


def test_a_summary_that_forgets_is_told_what_it_forgot_in_order_of_worth():
    text = receipt_of_foreign(HISTORY, [{"role": "user", "content": "The module is being renamed."}])
    kinds = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert kinds == ["demand", "failure", "decision", "names"]
    assert "never touch the folder tests/fixtures" in text
    assert "KeyError: 'token'" in text
    assert "parse_rows" in text
    assert all(left < all_of for left, all_of in counts(text).values())


def test_what_is_told_in_other_words_is_not_called_gone():
    told = """The module parser is to be renamed to reader. The folder tests/fixtures must never be touched.
    The test src/parser_test.py FAILED with KeyError: 'token' in test_rows. It was decided to keep an alias for
    parse_rows until the release that comes next. src/parser.py"""
    text = receipt_of_foreign(HISTORY, [{"role": "user", "content": told}])
    assert "demand (" not in text
    assert "failure (" not in text
    assert "decision (" not in text


def test_a_demand_counts_once_in_any_language_and_a_question_does_not():
    words = """For this release I want:
What does the parser do at the moment?
The folder tests/fixtures must stay as it is.
解析器的模块必须改名为读取器,测试文件夹绝对不能改动。"""
    history = [
        {"role": "user", "content": words},
        {"role": "assistant", "content": "It reads rows."},
        {"role": "user", "content": "The folder tests/fixtures must stay as it is."},
    ]
    assert counts(receipt_of_foreign(history, [{"role": "user", "content": "x"}]))["demands"] == (0, 2)


@given(strategies.answered_histories())
def test_nothing_is_gone_of_what_is_sent_whole(history):
    text = receipt_of_foreign(history, history)
    assert all(left == all_of for left, all_of in counts(text).values())
    assert "Out of" not in text


@given(strategies.answered_histories())
def test_a_receipt_fits_a_terminal_and_cannot_steer_it(history):
    for text in (receipt_of_foreign(history, history[-1:]), receipt(plan_compaction(history, "x", planner="rules"))):
        assert len(text.splitlines()) <= 15
        assert all(line.isprintable() for line in text.splitlines())


def test_no_secret_is_readable_in_it():
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9" * 2
    history = [
        {"role": "user", "content": f"You must always use the token {token} for the upload."},
        *use(1, f"upload --key {token}", f"Error: refused {token}\nExit code 1"),
        *use(2, f"upload again {token}", f"Error: refused {token}\nExit code 1"),
        {"role": "assistant", "content": f"I decided to upload with {token} by hand."},
    ]
    text = receipt_of_foreign(history, [{"role": "user", "content": "Something was uploaded."}])
    assert {line.split()[0] for line in text.splitlines() if "[secret]" in line} >= {"demand", "decision", "names"}
    assert token[:9] not in text


def test_ours_keeps_demands_and_failures_and_its_command_brings_a_turn_back(tmp_path):
    plan = plan_compaction(HISTORY, "Rename it.", planner="rules", settings=OPUS, target_ratio=0.1)
    text = receipt(plan)
    assert counts(text)["demands"][0] == counts(text)["demands"][1] == 1
    assert counts(text)["failures"] == (1, 1)
    assert f"{plan.history.tokens:,} tokens → {plan.estimated_tokens:,}" in text
    assert "$" in text
    apply(plan, store=tmp_path / "store.db")
    reference = re.search(r"compactor restore (h\w+:t\d+)", text)[1]
    with open_store(tmp_path / "store.db") as store:
        assert store.restore(reference).text


def test_a_forecast_says_the_same_and_stores_nothing(tmp_path):
    plan = plan_compaction(HISTORY, "Rename it.", planner="rules", target_ratio=0.1)
    before, after = forecast(plan, "compactor plan LOG --web"), receipt(plan)
    assert counts(before) == counts(after) == counts(in_sight(plan))
    assert before.endswith("compactor plan LOG --web")
    kept = plan_compaction(HISTORY[:1], "Rename it.", planner="rules")
    assert "nothing" in forecast(kept, "x")


def test_a_plan_without_its_history_has_no_receipt():
    plan = plan_compaction(HISTORY, "Rename it.", planner="rules")
    with pytest.raises(StalePlan):
        receipt(CompactionPlan.from_json(plan.to_json()))


@given(
    strategies.answered_histories(min_turns=3).flatmap(
        lambda history: strategies.plans(history).map(lambda plan: (history, plan))
    )
)
def test_whatever_a_plan_says_no_failure_and_no_demand_is_gone(drawn):
    history, plan = drawn
    guarded = check_plan(plan, analyze(history))
    seen = counts(receipt(guarded))
    stored = any(finding.code in ("demands_stored", "live_demoted") for finding in guarded.findings)
    assert stored or all(seen[kind][0] == seen[kind][1] for kind in ("demands", "failures") if kind in seen)
