"""A history that grew is planned from where it grew: the same plan and view as from scratch, at every length."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.analysis import Analysis, analyze
from planner.api import plan_analysis
from planner.evidence.calls import Call
from planner.guards import check_plan
from planner.plan import CompactionPlan
from planner.rules import RulesPlanner
from planner.validity import CALL_RULES, check_messages
from tests.strategies import histories, make_session

SHARES = st.sampled_from((0.05, 0.2, 0.5, 0.9))
FOCUSES = st.sampled_from(("", "src/a.py", "the report"))
AGAIN = [
    {"role": "assistant", "content": "I read src/a.py again and run its tests."},
    {"role": "user", "content": "Never touch src/a.py, and go on."},
]
"""Turns that say the same stand at two places."""


def planned(analysis: Analysis, share: float, focus: str) -> CompactionPlan:
    target = max(1, int(analysis.tokens * share))
    return plan_analysis(analysis, "Go on", target_tokens=target, focus=focus, planner=RulesPlanner(), now=0.0)


@pytest.mark.real
@given(histories(), st.booleans(), st.data())
def test_planning_again_is_planning_from_scratch(messages, repeats, data):
    messages = [*messages, *AGAIN, *AGAIN] if repeats else messages
    known = None
    for end in [*sorted(data.draw(st.lists(st.integers(0, len(messages)), max_size=2))), len(messages)]:
        share, focus = data.draw(SHARES), data.draw(FOCUSES)
        known = analyze(messages[:end], known=known)
        grown, fresh = planned(known, share, focus), planned(analyze(messages[:end]), share, focus)
        assert grown == fresh
        assert grown.bound.layout.messages == fresh.bound.layout.messages


@pytest.mark.real
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda plan: pickle.loads(pickle.dumps(plan))])
def test_a_copy_of_a_plan_can_be_edited_like_the_plan(copied):
    plan = planned(analyze(make_session(30)), 0.3, "")
    again = copied(plan)
    edited = tuple(
        one.model_copy(update={"strategy": "reference", "summary": "", "excerpts": ()})
        if one.strategy == "summarize"
        else one
        for one in plan.turns
    )
    views = [
        check_plan(one.model_copy(update={"turns": edited}), one.bound_analysis).bound.layout.messages
        for one in (plan, again)
    ]
    assert views[0] == views[1] != plan.bound.layout.messages


def test_calls_are_told_apart_alike_in_every_process():
    assert Call("Read", {"file_path": "a.py"}, 0, None, None).identity.hex() == "e627c9792e91ea00"


@given(histories(), st.sets(st.integers(0, 30), max_size=3), st.booleans())
def test_broken_calls_of_turns_are_those_of_the_whole_list(messages, lost, searches):
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    messages = [message for at, message in enumerate(messages) if at not in lost]
    messages = [{"role": "assistant", "content": [search]}, *messages] if searches else messages
    analysis = analyze([{"role": "user", "content": "Go on."}, *messages])
    turns = analysis.history.turns
    violations = [one for one in check_messages(analysis.history.messages, rules=CALL_RULES) if one.refused]
    owners = {next(turn for turn in turns if turn.start <= one.message < turn.stop).id for one in violations}
    assert analysis.broken.keys() == owners - {turns[-1].id}
