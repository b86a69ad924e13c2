"""Asking behind the agent's cached prefix: the request extends what was sent, byte for byte, or the cards are asked."""

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.testing import Failure, refuse, say, use
from planner.api import plan_compaction
from planner.errors import PlannerUnavailable
from planner.model import ModelPlanner
from planner.model.planners import RelayedPlanner
from planner.model.prefix import prefix_question, request_behind_prefix, why_not_prefix
from planner.model.prompts import load_prompts
from planner.model.question import QuestionBasis, plan_questions
from planner.plan import AgentRequest
from planner.validity import check_messages
from tests.loopback import Loopback
from tests.model.sample import SAMPLE, answer, plan_request
from tests.strategies import histories

TOOL = {"name": "Bash", "input_schema": {"type": "object"}}
MARK = {"type": "ephemeral"}
BRIEF = ("STATE", "- 5 passed in 0.42s (t9)")
GOOD = answer("t1 keep 9", brief=BRIEF)


def agent_body(messages=SAMPLE, **more):
    """A request as agents send it: the newest block marked."""
    messages = copy.deepcopy(list(messages))
    last = messages[-1]
    blocks = [{"type": "text", "text": last["content"]}] if isinstance(last["content"], str) else last["content"]
    last["content"] = [*blocks[:-1], {**blocks[-1], "cache_control": MARK}]
    system = [{"type": "text", "text": "You are careful.", "cache_control": MARK}]
    return {
        "model": "claude-opus-5-5", "max_tokens": 1_000, "system": system, "tools": [TOOL], "messages": messages,
        "thinking": {"type": "adaptive"}, "metadata": {"user_id": "u"}, "stream": True, **more,
    }  # fmt: skip


def planned(server, body=None, model=None, seconds_since=20.0, **more):
    client = server.client()
    agent = AgentRequest(body or agent_body(), client, seconds_since, **more)
    return ModelPlanner(client=client, model=model).propose(replace(plan_request(), agent_request=agent))


def test_the_question_says_what_stays_in_any_case_and_how_long_the_answer_may_be():
    question = prefix_question(QuestionBasis.of(plan_request()), load_prompts())
    index = question.split("<index>")[1].split("</index>")[0].strip().split("\n")
    assert next(line for line in index if line.startswith("t9 ")).endswith(" · LIVE")
    assert [line.split(" · ")[0] for line in index if line.endswith(" · kept")] == ["t1", "t7"]
    assert "LIVE turns and kept lines take" in question
    ((cards,), _) = plan_questions(QuestionBasis.of(plan_request()), load_prompts())
    assert cards.values["sizes"].split("\n")[-1] in question


def test_the_agents_own_model_is_asked_behind_its_prefix():
    body = agent_body()
    before = json.dumps(body)
    with Loopback([GOOD]) as server:
        proposal = planned(server, body, headers={"anthropic-beta": "context-1m-2025-08-07"})
    (request,) = server.requests
    assert request.headers["anthropic-beta"] == "context-1m-2025-08-07"
    assert (proposal.provenance.asked, proposal.provenance.model) == ("prefix", "claude-opus-5-5")
    assert proposal.provenance.usage.requests == 1
    assert proposal.brief == "\n".join(BRIEF)
    assert proposal.turns["t1"].strategy == "keep"
    assert json.dumps(body) == before
    assert server.violations == []


@pytest.mark.real
@given(histories(max_turns=8), st.sampled_from(["a question", "{{x}}"]))
def test_what_is_sent_extends_what_the_agent_sent(messages, question):
    body = agent_body(messages)
    before = copy.deepcopy(body)
    asked = request_behind_prefix(AgentRequest(body, None, 0.0), question, 8_192)
    assert body == before
    assert {key: value for key, value in asked.items() if key not in ("messages", "max_tokens")} == {
        key: value for key, value in body.items() if key not in ("messages", "max_tokens", "stream")
    }
    assert asked["max_tokens"] >= 8_192
    *same, last = asked["messages"]
    assert body["messages"][: len(same)] == same
    assert last["role"] == "user"
    assert last["content"][-1] == {"type": "text", "text": question}
    if len(same) < len(body["messages"]):
        assert last["content"][:-1] == body["messages"][-1]["content"]
    broken = {violation.rule for violation in check_messages(body["messages"])}
    assert {violation.rule for violation in check_messages(asked["messages"])} <= broken


def test_the_question_names_every_turn_and_what_was_decided_of_those_behind():
    planner = RelayedPlanner([answer("t2 summarize 6 1-3", "t3-t4 drop 0", brief=BRIEF)])
    first = plan_compaction(SAMPLE[:11], "Drain", planner=planner, target_ratio=0.4)
    request = plan_request(previous=first)
    question = prefix_question(QuestionBasis.of(request), load_prompts())
    index = question.split("<index>")[1].split("</index>")[0].strip().split("\n")
    assert [line.split(" · ")[0] for line in index] == ["t2", "t3-t4", "t1-t6", "t7", "t8", "t9"]
    assert [line.rpartition(" · ")[2] for line in index[:2]] == ["summarize 6", "drop"]
    assert "user: Then use a sentinel instead, please." in index[3]


def test_the_prefix_is_not_asked_where_that_would_read_more_than_the_session_may():
    with Loopback([GOOD]) as server:
        client = server.client()
        request = replace(plan_request(), agent_request=AgentRequest(agent_body(), client, 1.0), read_tokens=10_000)
        proposal = ModelPlanner(client=client).propose(request)
    assert server.requests == []
    assert proposal.provenance.asked == "rules"
    assert "still read" in proposal.provenance.notes[0]
    assert "tokens more" in proposal.provenance.notes[1]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tool_choice": {"type": "any"}}, "forces a tool"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2_000}, "model": "claude-sonnet-4-5"},
            "drops earlier thinking",
        ),
        ({"messages": SAMPLE, "system": "plain", "tools": [TOOL]}, "marks no cache"),
    ],
)
def test_where_the_prefix_cannot_be_asked_the_cards_are(change, why):
    body = agent_body()
    body |= change
    with Loopback([GOOD]) as server:
        proposal = planned(server, body)
    assert proposal.provenance.asked == "cards"
    assert why in proposal.provenance.notes[0]
    assert [request.body["model"] for request in server.requests] == ["claude-haiku-5-5"]


@pytest.mark.parametrize(
    ("ttl", "seconds", "cold"),
    [(None, 200, False), (None, 290, True), ("5m", 400, True), ("1h", 400, False), ("1h", 3_590, True)],
)
def test_a_cold_cache_is_not_asked(ttl, seconds, cold):
    body = agent_body()
    for block in (body["system"][0], body["messages"][-1]["content"][-1]):
        block["cache_control"] = {**MARK, **({"ttl": ttl} if ttl else {})}
    assert bool(why_not_prefix(AgentRequest(body, None, float(seconds)), None)) == cold


def test_another_model_plans_by_cards():
    with Loopback([GOOD]) as server:
        proposal = planned(server, model="claude-haiku-5-5")
    assert "another model plans" in proposal.provenance.notes[0]
    agent = AgentRequest(agent_body(), None, 1.0)
    assert why_not_prefix(agent, "anthropic/claude-opus-5-5") == ""


@pytest.mark.parametrize(
    ("behind", "why"),
    [
        ([say(GOOD), use("Bash", command="ls")], "called a tool instead"),
        ("I would rather go on with the task.", "its answer could not be used (there is no brief, and no entry)"),
        (refuse(), "its answer could not be used (it declined)"),
        (Failure(400, "invalid_request_error", "prompt is too long"), "prompt is too long"),
        (Failure(401, "authentication_error"), "refused (401)"),
    ],
)
def test_an_answer_that_is_none_is_paid_and_the_cards_are_asked(behind, why):
    with Loopback([behind, GOOD]) as server:
        proposal = planned(server)
    assert (proposal.provenance.asked, proposal.brief) == ("cards", "\n".join(BRIEF))
    assert why in proposal.provenance.notes[0]
    assert proposal.provenance.usage.requests == 1 + (why == "called a tool instead" or "answer" in why)


def test_the_question_is_no_part_of_the_conversation():
    with Loopback([GOOD]) as server:
        client = server.client()
        request = replace(plan_request(), agent_request=AgentRequest(agent_body(), client, 1.0))
        messages = [copy.deepcopy(message) for message in request.history.messages]
        ModelPlanner(client=client).propose(request)
    assert list(request.history.messages) == messages


def test_what_the_prefix_cost_is_told_where_the_cards_are_not_answered_either():
    with Loopback(["I would rather go on with the task."]) as server, server.client() as client:
        request = replace(plan_request(), agent_request=AgentRequest(agent_body(), client, 1.0))
        with pytest.raises(PlannerUnavailable, match="could not be used") as raised:
            ModelPlanner().propose(request)
        assert raised.value.usage.requests == len(server.requests) == 1 + 3
