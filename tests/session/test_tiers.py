"""Each tier on its own: what it edits, what it never touches. Tiers return data and change nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.session.edits import Edits, Frame, draft, message_at, without_refused_thinking
from applier.session.history_tracker import HistoryTracker
from applier.session.pressure import Gauge
from applier.session.tiers import (
    ClearResults,
    DemoteLarge,
    PlanTurns,
    PlanWanted,
    RetreatHead,
    Situation,
    SnipMiddle,
    StubRereads,
)
from planner import TokenCounter
from planner.api import plan_analysis
from planner.plan import HistoryStamp
from planner.rules import RulesPlanner
from planner.settings import PlanSettings
from tests.strategies import CONSTRAINTS, histories, make_session

COUNTER = TokenCounter.for_model()


def edits_of(tier, situation):
    """The edits that `tier` wants; a plan that it wants is made by rules."""
    edits = tier(situation)
    if not isinstance(edits, PlanWanted):
        return edits
    target = edits.target_tokens
    return edits.edits_by(plan_analysis(edits.analysis, "fix it", target_tokens=target, planner=RulesPlanner()))


def situation_of(messages, *, new_from=0, limit_tokens=10_000, frame=None, **more):
    tracker = HistoryTracker(COUNTER)
    tracker, _ = tracker.extended_by(messages)
    shown = (tracker, frame or Frame(), Gauge(), tracker.tokens, limit_tokens, new_from)
    return Situation(*shown, PlanSettings(), **more)


def results(*texts, tool="Bash", arguments=None, error=False):
    """A history of one call a turn, with these results."""
    messages = [{"role": "user", "content": "go"}]
    for number, text in enumerate(texts):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": arguments or {"command": "make"}}
        answer = {"type": "tool_result", "tool_use_id": call["id"], "content": text, "is_error": error}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
    return messages


def first_text(edits):
    return next(iter(edits.placeholders.values()))


LONG = "\n".join(f"line {number} of a listing" for number in range(2_000))
SHORT = "fine"


def test_large_output_is_demoted_with_both_ends_shown():
    situation = situation_of(results(SHORT, LONG), limit_tokens=100_000)
    edits = DemoteLarge(5_000)(situation)
    assert list(edits.placeholders) == [(4, 0)]
    text = first_text(edits)
    assert text.startswith("line 0 of a listing")
    assert "line 1999 of a listing" in text
    assert len(text) < 2_100


def test_only_new_output_is_demoted():
    assert DemoteLarge(5_000)(situation_of(results(LONG, SHORT), new_from=4)) is None


def test_a_preview_keeps_what_failed_and_what_the_user_said():
    middle = "\n".join([LONG, "FAILED tests/test_x.py::test_y - KeyError: 'token'", LONG, "exit code 1"])
    edits = DemoteLarge(1_000, preview_characters=500)(situation_of(results(middle)))
    assert "FAILED tests/test_x.py::test_y" in first_text(edits)
    refused = "The user doesn't want to proceed with this tool use. The tool use was rejected. "
    rejected = f"{refused}To tell you how to proceed, the user said:\n{CONSTRAINTS[0]}\n{LONG}"
    edits = ClearResults(keep_last=0)(situation_of([*results(rejected, error=True), *results(SHORT)[1:]]))
    assert CONSTRAINTS[0] in first_text(edits)


def test_the_budget_takes_the_largest_results_of_the_last_message_first():
    uses = [{"type": "tool_use", "id": f"toolu_{n}", "name": "Bash", "input": {}} for n in range(3)]
    sizes = (300, 900, 600)
    answers = [
        {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": LONG[: size * 20]}
        for n, size in enumerate(sizes)
    ]
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": uses}]
    situation = situation_of([*messages, {"role": "user", "content": answers}], limit_tokens=1_000_000)
    edits = DemoteLarge(characters=20_000, preview_characters=100)(situation)
    assert [block for _, block in edits.placeholders] == [1]
    edits = DemoteLarge(characters=10_000, preview_characters=100)(situation)
    assert sorted(block for _, block in edits.placeholders) == [1, 2]
    assert DemoteLarge(characters=36_000)(situation) is None


def test_old_results_are_cleared_and_the_newest_stay():
    situation = situation_of(results(LONG, LONG, SHORT, LONG, LONG, LONG))
    edits = ClearResults(keep_last=3, over_characters=100)(situation)
    assert [message for message, _ in edits.placeholders] == [2, 4]
    assert first_text(edits) == "[Previous: used Bash]"


def test_clearing_knows_kinds_protected_tokens_and_minimum_gain():
    messages = [*results(LONG, tool="Read", arguments={"file_path": "a"}), *results(LONG, LONG)[1:]]
    for number, message in enumerate(messages[3:], 3):
        for block in message["content"]:
            key = "id" if block["type"] == "tool_use" else "tool_use_id"
            block[key] = f"{block[key]}_{number // 2}x"
    for message, answer in zip(messages[3::2], messages[4::2], strict=True):
        answer["content"][0]["tool_use_id"] = message["content"][0]["id"]
    situation = situation_of(messages)
    assert [message for message, _ in ClearResults(0, kinds=frozenset({"read"}))(situation).placeholders] == [2]
    assert [message for message, _ in ClearResults(0, protect_tokens=20_000)(situation).placeholders] == [2, 4]
    assert ClearResults(0, protect_tokens=60_000)(situation) is None
    assert ClearResults(0, min_free_tokens=10**6)(situation) is None


def test_an_unchanged_re_read_is_answered_by_a_stub():
    situation = situation_of(results(LONG, LONG, "other " + LONG, tool="Read", arguments={"file_path": "a.py"}))
    edits = StubRereads()(situation)
    assert [message for message, _ in edits.placeholders] == [4]
    assert "t2" in first_text(edits)


def test_a_re_read_is_sent_whole_when_the_first_one_is_gone():
    messages = results(LONG, LONG, tool="Read", arguments={"file_path": "a.py"})
    frame = Frame(placeholders={(2, 0): "gone"})
    assert StubRereads()(situation_of(messages, frame=frame)) is None
    frame = Frame(head=({"role": "user", "content": "note"},), start=3)
    assert StubRereads()(situation_of(messages, frame=frame)) is None


def test_a_plan_is_made_from_the_history():
    messages = make_session(40)
    situation = situation_of(messages, limit_tokens=4_000)
    plan = edits_of(PlanTurns(0.5), situation).plan
    assert plan.history.messages == len(messages)
    assert plan.estimated_tokens < 2_600


@pytest.mark.parametrize(
    ("tier", "kept"),
    [
        (PlanTurns(0.3, keep_last_messages=5), {"t38", "t39", "t40"}),
        (PlanTurns(0.3, keep_last_tokens=600, keep_user_words=True), {"t1"}),
    ],
)
def test_a_plan_keeps_both_ends_as_told(tier, kept):
    plan = edits_of(tier, situation_of(make_session(40))).plan
    assert {turn_id for turn_id, decision in plan.decisions.items() if decision.strategy == "keep"} >= kept


def test_a_plan_frees_no_more_than_a_round_may():
    texts = ("\n".join(f"row_{turn}_{n} is {turn * n} in size" for n in range(40)) for turn in range(50))
    situation = situation_of(results(*texts), limit_tokens=40_000)
    plan = edits_of(PlanTurns(0.1, max_freed_tokens=3_000), situation).plan
    assert situation.tokens - plan.estimated_tokens <= 3_300


def test_snip_keeps_both_ends_and_waits_for_a_batch():
    assert SnipMiddle(50, 3, 47)(situation_of(make_session(30))) is None
    plan = SnipMiddle(50, 3, 47, 0)(situation_of(make_session(60))).plan
    strategies = [decision.strategy for decision in plan.turns]
    assert strategies[:2] == ["keep"] * 2
    assert set(strategies[-23:]) == {"keep"}
    assert "keep" not in strategies[2:-24]


def test_the_head_retreats_until_the_rest_fits():
    situation = situation_of(make_session(60), limit_tokens=8_000)
    plan = RetreatHead(0.5)(situation).plan
    assert plan.estimated_tokens < situation.tokens / 2
    kept = [decision.strategy == "keep" for decision in plan.turns]
    assert kept[-1]
    assert not kept[0]


TIERS = [
    DemoteLarge(100, preview_characters=200),
    DemoteLarge(characters=500, preview_characters=100),
    ClearResults(1),
    ClearResults(0, preview_characters=50),
    StubRereads(10),
    SnipMiddle(4, 1, 2, 0),
    RetreatHead(0.2),
    PlanTurns(0.3),
]


@given(histories(min_turns=3, max_turns=10), st.sampled_from(TIERS))
def test_edits_name_real_places_and_leave_the_rest_alone(messages, tier):
    situation = situation_of(messages, limit_tokens=2_000)
    edits = edits_of(tier, situation)
    if edits is None:
        return
    tracker = situation.tracker
    assert all(tracker.plain[at]["content"][block]["type"] == "tool_result" for at, block in edits.placeholders)
    if edits.plan is not None:
        assert edits.plan.history == HistoryStamp.of(tracker.history, edits.plan.history.tokens)
        return
    frame = without_refused_thinking(draft(Frame(), edits, tracker, "h00000000"), Frame(), tracker)
    touched = {message for message, _ in edits.placeholders}
    for index, message in enumerate(messages):
        if index not in touched | frame.unthinking:
            assert message_at(frame, tracker, index) is message
    assert isinstance(edits, Edits)
    assert not any(index <= min(touched) for index in frame.unthinking)
