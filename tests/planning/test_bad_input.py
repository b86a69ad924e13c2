"""What cannot be planned well has a defined answer: odd lists, broken ones, huge ones, unreadable ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.adapters.transcripts import from_openai, to_openai
from applier.testing import judge
from applier.view import apply, preview
from planner import (
    PlanRejected,
    PlanSettings,
    SettingsError,
    TokenCounter,
    TranscriptError,
    check_plan,
    plan_compaction,
)
from planner.reading.messages import read_history
from tests.strategies import histories, image, make_session, text
from tests.viewed import asked, plan_of, refusals, refused, said

STRATEGIES = ("keep", "summarize", "reference", "drop")
CALL = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "make"}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "done\n" * 200}


def planned(messages, **wishes):
    return plan_compaction(messages, "fix the race", **{"planner": "rules", "now": 0.0, **wishes})


def test_an_empty_list_stays_empty():
    plan = planned([])
    assert (plan.turns, plan.estimated_tokens, apply(plan)) == ((), 0, [])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("target_tokens", "4000"),
        ("target_ratio", "0.2"),
        ("focus", ["auth"]),
        ("settings", {"target_ratio": 0.2}),
        ("previous", {}),
        ("system", 3),
        ("tools", "bash"),
        ("tools", ["bash"]),
        ("tools", [None]),
        ("system", [3]),
        ("system", b"careful"),
        ("model", 3),
        ("now", "today"),
        ("store", "x.db"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(argument, value):
    with pytest.raises(SettingsError, match=f"^{argument}: expected .*, found (str|list|dict|int|NoneType)$"):
        planned(make_session(4), **{argument: value})


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("target_tokens", 10**30),
        ("target_tokens", float("inf")),
        ("target_tokens", float("nan")),
        ("now", -1.0),
        ("now", float("nan")),
        ("now", float("inf")),
    ],
)
def test_a_number_that_no_plan_can_hold_is_named(argument, value):
    with pytest.raises(SettingsError, match=f"^{argument}.* found "):
        planned(make_session(4), **{argument: value})


@pytest.mark.parametrize(
    ("uses", "problem"),
    [
        ({"Bash": "acts"}, r"tool_uses\.Bash: .* instance of ToolUse, found 'acts'"),
        ({"Bash": {"effec": "acts"}}, r"tool_uses\.Bash\.effec: there is none; did you mean effect\?"),
        (["Bash"], r"tool_uses: .* dictionary, found \['Bash'\]"),
        ({"Bash": {"object_arguments": "order"}}, r"object_arguments: input should be a valid list, found 'order'"),
    ],
)
def test_a_wrong_declaration_of_a_tool_is_named(uses, problem):
    with pytest.raises(SettingsError, match=problem):
        planned(make_session(4), tool_uses=uses)


ORDERS = {"name": "find_order", "input_schema": {"type": "object", "properties": {"order": {}, "year": {}}}}


@pytest.mark.parametrize(
    ("uses", "problems"),
    [
        ({"findorder": {"effect": "reads"}}, ["tool_uses: the agent has no tool findorder; did you mean find_order?"]),
        (
            {"find_order": {"object_arguments": ["bestellung", "yaer"]}},
            [
                "tool_uses.find_order.object_arguments: the tool has no argument bestellung; there are order, year",
                "tool_uses.find_order.object_arguments: the tool has no argument yaer; did you mean year?",
            ],
        ),
        ({"find_order": {"object_arguments": ["order"]}, "find_orders": {}, "of_another_agent": {}}, []),
    ],
)
def test_a_misspelled_name_in_a_declaration_is_reported(uses, problems):
    plan = planned(make_session(12), tool_uses=uses, tools=[ORDERS])
    assert [finding.problem for finding in plan.findings if finding.code == "misnamed_use"] == problems
    assert apply(plan)


def test_an_argument_is_only_checked_where_the_schema_lists_some():
    for schema in ({}, {"type": "object"}, {"properties": {}}, {"properties": 5}, None):
        tools = [{"name": "find_order", "input_schema": schema}]
        plan = planned(make_session(4), tool_uses={"find_order": {"object_arguments": ["order"]}}, tools=tools)
        assert "misnamed_use" not in [finding.code for finding in plan.findings]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"brief": 5}, "plan: brief: Input should be a valid string"),
        ({"turns": None}, "plan: turns: Input should be a valid list"),
        ({"turns": [5]}, "plan: turns.0: "),
        ({"history": None}, "plan: history: "),
        ({"target_model": None}, "plan: target_model: "),
        ({"brief": 5, "turns": None}, r"plan: turns: .* \(and 1 more\)"),
    ],
)
@pytest.mark.parametrize("act", [apply, preview])
def test_a_field_of_a_plan_that_was_changed_to_nonsense_is_named(change, problem, act):
    plan = planned(make_session(12))
    with pytest.raises(PlanRejected, match=problem):
        act(plan.model_copy(update=change))


def test_a_decision_that_was_changed_to_nonsense_is_named():
    plan = planned(make_session(12))
    first = plan.turns[0].model_copy(update={"strategy": "remove"})
    with pytest.raises(PlanRejected, match=r"plan: turns\.0\.strategy: Input should be 'keep'"):
        apply(plan.model_copy(update={"turns": (first, *plan.turns[1:])}))


def test_a_target_that_is_a_share_of_something_may_have_a_fraction():
    plan = planned(make_session(4), target_tokens=0.3 * 1_001)
    assert plan.target_tokens == 300
    with pytest.raises(SettingsError, match=r"found 0\.3: a share is target_ratio"):
        planned(make_session(4), target_tokens=0.3)


@pytest.mark.parametrize(("plan", "analysis"), [({}, None), (None, []), ("plan.json", make_session(4))])
def test_the_guards_name_what_is_no_plan_and_what_is_not_read(plan, analysis):
    with pytest.raises(SettingsError, match=r"^plan: expected a CompactionPlan, found "):
        check_plan(plan, analysis)
    with pytest.raises(SettingsError, match=r"^analysis: expected what .* found "):
        check_plan(planned(make_session(4)), analysis)


def test_a_target_that_system_and_tools_fill_is_refused_with_the_numbers():
    with pytest.raises(SettingsError, match=r"target_tokens 50: system and tools alone take \d+"):
        planned(make_session(4), target_tokens=50, system="You are a coding agent. " * 50)


@pytest.mark.parametrize("words", ["hi", "please fix it. " * 400])
def test_one_message_is_what_is_not_answered_yet_and_stays(words):
    messages = [{"role": "user", "content": words}]
    plan = planned(messages, target_tokens=1)
    assert apply(plan)[0] is messages[0]
    assert "target_unreachable" in {finding.code for finding in plan.findings}


@pytest.mark.parametrize(
    "messages", ["words", [3], [{"role": "user"}], [{"role": "user", "content": [{"x": 1}]}], None]
)
def test_what_is_no_list_of_messages_is_refused_by_place(messages):
    with pytest.raises(TranscriptError, match=r"^messages"):
        planned(messages)


BROKEN = {
    "unmatched call": [{"role": "assistant", "content": [CALL]}, {"role": "user", "content": "and?"}],
    "unmatched result": [{"role": "user", "content": [RESULT]}],
    "user between": [
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": "wait"},
        {"role": "user", "content": [RESULT]},
    ],
    "assistant between": [
        {"role": "assistant", "content": [CALL]},
        {"role": "assistant", "content": "hm"},
        {"role": "user", "content": [RESULT]},
    ],
    "wrong id": [
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [{**RESULT, "tool_use_id": "c2"}]},
    ],
    "parallel result missing": [
        {"role": "assistant", "content": [CALL, {**CALL, "id": "c2"}]},
        {"role": "user", "content": [RESULT]},
    ],
    "id used twice": [
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [RESULT]},
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [RESULT]},
    ],
    "blank text": [{"role": "assistant", "content": [text(" ")]}, {"role": "user", "content": ""}],
}


@pytest.mark.real
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("ratio", [0.05, 0.5])
def test_a_broken_list_is_named_and_never_made_worse(broken, ratio):
    session = make_session(12)
    messages = [*session[:5], *broken, *session[5:]]
    plan = planned(messages, target_ratio=ratio)
    before = [violation.code for violation in refused(messages)]
    after = [violation.code for violation in refused(preview(plan).messages)]
    assert len(after) <= len(before)
    assert set(after) <= {*before, *(["uncalled_result"] if "late_result" in before else [])}
    if any(violation.rule in (1, 2, 3, 9) for violation in refused(messages)):
        named = [finding.problem for finding in plan.findings if finding.code == "invalid_history"]
        assert named
        assert all(problem.startswith("messages[") for problem in named)


def named_anew(messages, name):
    """`messages` whose calls and results have ids by `name`, of the message that calls and the place in it."""
    ids = {}

    def renamed(at, index, block):
        key = {"tool_use": "id", "tool_result": "tool_use_id"}.get(block["type"])
        if key == "id":
            ids[block["id"]] = name(at, index)
        return {**block, key: ids[block[key]]} if key else block

    return [
        {**message, "content": [renamed(at, index, block) for index, block in enumerate(message["content"])]}
        if isinstance(message["content"], list)
        else message
        for at, message in enumerate(messages)
    ]


ODD_IDS = {
    "with other characters": lambda at, index: f"functions.read:{at}.{index}",
    "the same in each message": lambda at, index: f"call_{index}",
}


@given(
    histories(splits=False),
    st.sampled_from(sorted(ODD_IDS)),
    st.lists(st.sampled_from(STRATEGIES), min_size=30, max_size=30),
)
def test_ids_that_only_other_providers_take_keep_no_turn(messages, odd, strategies):
    odd_ids = named_anew(messages, ODD_IDS[odd])
    views = []
    for history in (read_history(messages), read_history(odd_ids)):
        plan = plan_of(history, dict(zip([turn.id for turn in history.turns], strategies, strict=False)))
        views.append(preview(plan, history.messages))
    plain, other = ({turn.turn_id: turn.strategy for turn in view.plan.turns} for view in views)
    assert other == plain
    assert {violation.rule for violation in refused(views[1].messages)} <= {5, 6, 7}


@pytest.mark.parametrize("odd", ODD_IDS.values(), ids=ODD_IDS)
def test_a_chat_whose_ids_only_other_providers_take_meets_its_target(odd):
    messages = named_anew(make_session(40), odd)
    plan = planned(from_openai(to_openai(messages)), target_ratio=0.3)
    assert plan.findings == ()
    assert plan.estimated_tokens <= plan.target_tokens


@pytest.mark.real
@given(histories(), st.data())
def test_any_missing_message_leaves_a_list_no_worse(messages, data):
    del messages[data.draw(st.integers(0, len(messages) - 1))]
    before = {violation.code for violation in refused(messages)}
    shown = preview(planned(messages, target_ratio=0.1))
    assert {violation.code for violation in refused(shown.messages)} <= before


def test_a_history_of_images_alone():
    messages = [{"role": "user", "content": [image(640, 480)] * 3}]
    messages += [{"role": "assistant", "content": "I see."}, {"role": "user", "content": [image(1500, 20)]}]
    plan = planned(messages * 3 + messages[:1], target_ratio=0.1)
    shown = preview(plan)
    assert refused(shown.messages) == []
    assert shown.tokens_after < shown.tokens_before / 3


HUGE = {
    "json": json.dumps([{"id": n, "name": f"user_{n}", "path": f"src/m{n}.ts"} for n in range(2_000)]),
    "one letter": "a" * 100_000,
    "blanks": " " * 100_000,
    "slashes": "/x" * 50_000,
    "dots": "a." * 50_000,
    "dashes": "-" * 100_000,
    "quotes": '"' * 100_000,
    "letters, digits": "aB3" * 33_000,
    "far from English": "文字化け" * 25_000,
    "line breaks": "\n" * 20_000,
    "open tags": "<system-reminder>" * 5_000,
    "errors": "Error: failed at src/a.ts:12:3\n" * 3_000,
    "nothing printable": "\0" * 100_000,
}


QUICK = ("json", "letters, digits", "line breaks", "errors")
KINDS = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.real) for kind in HUGE]


@pytest.mark.parametrize("kind", KINDS)
def test_one_huge_result_is_cut_to_the_target(kind):
    messages = [*make_session(4), {"role": "assistant", "content": [CALL]}]
    messages.append({"role": "user", "content": [{**RESULT, "content": HUGE[kind]}]})
    messages += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    shown = preview(planned(messages, target_tokens=4_000))
    assert shown.tokens_after <= 4_000
    assert refused(shown.messages) == []
    assert ("is the id of a stored turn" in said(shown.messages)) == (shown.tokens_before > 4_000)


@pytest.mark.real
@pytest.mark.parametrize("huge", HUGE.values(), ids=HUGE)
def test_one_huge_live_result_is_cut_only_where_no_window_holds_it(huge):
    messages = [*make_session(4), {"role": "assistant", "content": [CALL]}]
    messages.append({"role": "user", "content": [{**RESULT, "content": huge}]})
    roomy = planned(messages, target_tokens=10, settings=PlanSettings(window_tokens=10**7))
    assert preview(roomy).messages[-1]["content"][-1] == messages[-1]["content"][-1]
    small = planned(messages, target_tokens=10, settings=PlanSettings(window_tokens=8_000))
    demoted = "live_demoted" in {finding.code for finding in small.findings}
    live = TokenCounter.for_model("").messages(messages[-2:])
    assert demoted == (live > 4_000)
    assert ("lines left out here; stored whole as t5]" in said(preview(small).messages)) == demoted
    assert refused(preview(small).messages) == []


def test_hundreds_of_messages():
    messages = make_session(250)
    plan = planned(messages, target_ratio=0.1)
    assert plan.estimated_tokens <= plan.target_tokens
    assert refused(preview(plan).messages) == []


def test_lone_surrogates_and_nul_do_not_reach_what_is_written():
    messages = make_session(12)
    messages[2]["content"][0]["content"] = "TypeError: \ud800 in src/a.ts\0\n" * 60
    shown = preview(planned(messages, target_ratio=0.3))
    assert 21 in {violation.rule for violation in judge(asked(messages))}
    assert refusals(shown.messages) == []
    assert "TypeError: \ufffd in src/a.ts\0" in said(shown.messages)


@pytest.mark.parametrize("planner", ["auto", "rules"])
def test_a_wrong_folder_of_prompts_is_reported_without_a_key(planner):
    with pytest.raises(SettingsError, match="/nope"):
        plan_compaction([{"role": "user", "content": "Hi."}], "greet", planner=planner, prompts_dir="/nope")
