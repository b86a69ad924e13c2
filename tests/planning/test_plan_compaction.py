"""The one call: targets met or explained, honest numbers, the same bytes again, and planners that lie."""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.store import open_store
from applier.view import apply, preview
from planner import (
    CompactionPlan,
    PlanRejected,
    PlanSettings,
    SettingsError,
    StalePlan,
    TokenCounter,
    check_plan,
    plan_compaction,
    plan_compaction_async,
    read_history,
)
from planner.analysis import analyze
from planner.plan import Proposal, Provenance
from tests.planning.planners import Answers, Liar
from tests.strategies import answered_histories, histories, make_session
from tests.viewed import MODELS, refused, said

TASK = "Fix the token refresh race in src/auth.ts"
RATIOS = st.sampled_from([0.04, 0.1, 0.25, 0.5, 0.9, 1.0])


def planned(messages, **wishes):
    return plan_compaction(messages, TASK, **{"planner": "rules", "now": 1.78e9, **wishes})


@given(st.one_of(histories(), answered_histories()), RATIOS, st.sampled_from(MODELS))
def test_the_target_is_met_or_the_plan_says_why_not(messages, ratio, model):
    plan = planned(messages, target_ratio=ratio, settings=PlanSettings(target_model=model))
    counter = TokenCounter.for_model(model)
    assert plan.target_tokens <= counter.messages(messages) * ratio
    assert plan.estimated_tokens == counter.messages(preview(plan).messages)
    explained = [finding.problem for finding in plan.findings if finding.code == "target_unreachable"]
    assert bool(explained) == (plan.estimated_tokens > plan.target_tokens)
    assert (plan.provenance.planner == "none") == (counter.messages(messages) <= plan.target_tokens)
    assert all(f"{plan.target_tokens} were asked for" in problem for problem in explained)
    assert [turn.turn_id for turn in plan.turns] == [turn.id for turn in read_history(messages).turns]


def test_a_target_that_is_not_met_calls_no_size_the_least_where_a_smaller_target_gives_less():
    messages = make_session(40)
    plans = [planned(messages, target_tokens=tokens) for tokens in (300, 100)]
    assert plans[0].estimated_tokens >= plans[1].estimated_tokens > 300
    for plan in plans:
        (said_why,) = [finding.problem for finding in plan.findings if finding.code == "target_unreachable"]
        assert f"the view takes {plan.estimated_tokens} tokens" in said_why
        assert "least" not in said_why


class LongBrief:
    """A planner that writes a longer brief than any target has room for."""

    def propose(self, request):
        said = "shows the same line forty times over, and it needs no further change at all now."
        statements = [
            f"- Read {number - 2}, part {part}, {said} (t{number})" for number in range(2, 40) for part in "abc"
        ]
        return Proposal({}, Provenance(planner="model"), brief="\n".join(["STATE", *statements]))


@pytest.mark.parametrize("tokens", range(1_800, 3_000, 300))
def test_a_brief_that_is_too_long_leaves_room_for_the_frame_of_its_note(tokens):
    results = [f"line {number} of a file\n" * 40 for number in range(40)]
    messages = [{"role": "user", "content": "Read them all."}]
    for number, text in enumerate(results):
        call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"number": number}}
        answer = {"type": "tool_result", "tool_use_id": call["id"], "content": text}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
    plan = planned(messages, planner=LongBrief(), target_tokens=tokens)
    assert plan.estimated_tokens <= tokens
    assert "brief_too_long" in {finding.code for finding in plan.findings}


@settings(max_examples=15)
@given(st.one_of(histories(), answered_histories()), RATIOS)
def test_the_same_input_gives_the_same_bytes_and_survives_a_file(messages, ratio):
    plan = planned(messages, target_ratio=ratio)
    assert planned(messages, target_ratio=ratio).to_json() == plan.to_json()
    loaded = CompactionPlan.from_json(plan.to_json())
    assert json.dumps(preview(loaded, messages).messages) == json.dumps(preview(plan).messages)
    assert preview(loaded, messages).plan == plan


@settings(max_examples=15)
@given(histories(min_turns=3), RATIOS)
def test_messages_behind_the_planned_ones_are_appended(messages, ratio):
    planned_part = messages[: read_history(messages).turns[1].stop]
    plan = planned(planned_part, target_ratio=ratio)
    view, longer = preview(plan).messages, preview(plan, messages).messages
    assert said(longer) == "\n".join(filter(None, [said(view), said(messages[len(planned_part) :])]))
    assert longer[: len(view) - 1] == view[:-1]
    assert refused(longer) == []


def test_a_plan_for_other_messages_is_refused_and_for_fewer_too():
    messages = make_session(12)
    plan = planned(messages)
    other = [{"role": "user", "content": "something else"}, *messages[1:]]
    for stale in (other, messages[:-2], []):
        with pytest.raises(StalePlan, match="plan again"):
            apply(plan, stale)
        with pytest.raises(StalePlan, match="plan again"):
            check_plan(plan, analyze(stale))
    with pytest.raises(StalePlan, match="pass the messages"):
        apply(CompactionPlan.from_json(plan.to_json()))


def test_a_moved_cache_mark_does_not_make_a_plan_stale():
    messages = make_session(12)
    plan = planned(messages)
    marked = json.loads(json.dumps(messages))
    marked[5]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    assert json.dumps(preview(plan, marked).messages) == json.dumps(preview(plan).messages)


def test_the_system_prompt_and_tools_count_against_a_target():
    messages = make_session(40)
    tools = [{"name": "bash", "description": "run " * 200, "input_schema": {"type": "object"}}]
    counter = TokenCounter.for_model("")
    plan = planned(messages, target_tokens=3_000, system="You fix races. " * 20, tools=tools)
    assert plan.target_tokens == 3_000 - counter.request((), "You fix races. " * 20, tools)
    assert counter.request(preview(plan).messages, "You fix races. " * 20, tools) <= 3_000


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"target_tokens": 0}, "target_tokens must be from 1 to 1000000000000, found 0: a share is target_ratio"),
        ({"target_ratio": 1.5}, "target_ratio must be above 0 and at most 1, found 1.5"),
        ({"target_ratio": 0.0}, "target_ratio must be above 0 and at most 1, found 0.0"),
        ({"target_ratio": float("nan")}, "target_ratio must be above 0 and at most 1, found nan"),
        ({"target_ratio": 0.5, "target_tokens": 5}, "give target_tokens or target_ratio, not both"),
        ({"planner": "oracle"}, "planner must be 'auto', 'model', 'rules' or have a propose method, found 'oracle'"),
        ({"planner": 7}, "or have a propose method, found 7"),
    ],
)
def test_wishes_that_cannot_be_are_named(wish, said):
    with pytest.raises(SettingsError, match=said):
        planned(make_session(4), **wish)


def test_a_plan_that_saves_too_little_keeps_everything():
    messages = make_session(12)
    plan = planned(messages, settings=PlanSettings(min_savings_tokens=10**6))
    assert {turn.strategy for turn in plan.turns} == {"keep"}
    assert "saves_too_little" in {finding.code for finding in plan.findings}
    assert all(a is b for a, b in zip(preview(plan).messages, messages, strict=True))


def test_a_history_within_the_target_asks_no_planner_and_keeps_everything():
    messages = make_session(3)
    assert planned(messages, target_ratio=1, planner=Answers(None)).provenance.planner == "none"
    assert all(a is b for a, b in zip(preview(planned(messages, target_ratio=1)).messages, messages, strict=True))


def test_facts_carry_the_time_that_was_given_and_the_clocks_without():
    messages = make_session(12)
    assert {fact.timestamp for fact in planned(messages, now=5.0).extracted_facts} == {5.0}
    assert {fact.timestamp > 1.7e9 for fact in plan_compaction(messages, TASK).extracted_facts} == {True}


def test_without_a_key_the_rules_plan_and_say_so():
    plan = plan_compaction(make_session(12), TASK)
    assert plan.provenance.planner == "rules"
    assert plan.provenance.notes == ("no client and no API key: planned by rules",)


def test_the_async_twin_plans_the_same_and_many_calls_do_not_meet():
    messages = make_session(3)

    async def many():
        return await asyncio.gather(
            *(plan_compaction_async(messages, TASK, planner="rules", now=1.78e9) for _ in range(100))
        )

    assert {plan.to_json() for plan in asyncio.run(many())} == {planned(messages).to_json()}


@given(histories(), st.integers(0, 10**6), st.sampled_from([0.05, 0.25, 1.0]))
def test_a_planner_that_lies_gets_a_sound_plan(messages, seed, ratio):
    plan = planned(messages, planner=Liar(seed), target_ratio=ratio)
    shown = preview(plan)
    assert refused(shown.messages, before=messages) == []
    assert shown.plan == plan
    assert plan.estimated_tokens <= max(plan.target_tokens, plan.history.tokens)
    if plan.provenance.planner != "none":
        assert {"unknown_turn", "unsound_proposal", "invented_fact"} <= {finding.code for finding in plan.findings}
    assert "/etc/passwd" not in said(shown.messages)
    assert CompactionPlan.from_json(plan.to_json()).to_json() == plan.to_json()


@pytest.mark.parametrize(
    "answer", [None, "drop it all", {}, Proposal(None, Provenance(planner="x")), Proposal({}, None)]
)
def test_an_answer_that_is_no_proposal_is_rejected(answer):
    with pytest.raises(PlanRejected, match="planner: expected"):
        planned(make_session(4), planner=Answers(answer))


def test_a_planner_that_says_nothing_leaves_it_to_the_evidence():
    messages = make_session(40)
    silent = planned(messages, planner=Answers(Proposal({}, Provenance(planner="silent"))))
    assert silent.estimated_tokens <= silent.target_tokens
    assert {turn.reason for turn in silent.turns} == {"not ranked"}


@pytest.mark.parametrize("named", [str, Path])
def test_a_store_may_be_named_by_its_path(tmp_path, named):
    messages = make_session(12)
    apply(planned(messages, target_ratio=0.3), store=named(tmp_path / "originals.db"))
    with open_store(tmp_path / "originals.db") as store:
        assert [history.messages for history in store.histories()] == [len(messages)]


def test_the_reason_for_a_dropped_turn_does_not_contradict_its_score():
    plan = plan_compaction(make_session(60), "go on", planner="rules", target_ratio=0.1, now=0.0)
    dropped = [turn for turn in plan.turns if turn.strategy == "drop" and turn.relevance_score >= 0.5]
    assert dropped
    assert all(turn.reason.endswith("(no room)") for turn in dropped)
    assert not any("no room" in turn.reason for turn in plan.turns if turn.strategy != "drop")


def test_the_rules_take_no_quotation_in_an_earlier_summary_as_a_demand():
    recap = 'This session is being continued from a previous conversation.\n- "never push the release to main"'
    messages = [{"role": "user", "content": recap}, {"role": "assistant", "content": "I go on."}]
    plan = planned([*messages, {"role": "user", "content": "Never rename the public functions."}])
    assert [fact.content for fact in plan.extracted_facts] == ["Never rename the public functions."]
    assert "invented_fact" not in {finding.code for finding in plan.findings}
