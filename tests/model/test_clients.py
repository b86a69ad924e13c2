"""Every way to reach a planner model: clients of the SDK and of instructor, provider strings, the environment."""

import asyncio
import subprocess
import sys

import anthropic
import instructor
import pytest

from applier.testing import Failure
from planner.errors import PlannerUnavailable, SettingsError
from planner.model import DEFAULT_MODEL, ModelPlanner, has_credentials
from planner.model.client import is_refusal, response_text
from tests.loopback import KEY, Loopback
from tests.model.sample import answer, plan_request

GOOD = answer("t1 keep 9")


@pytest.mark.real
def test_importing_the_planner_loads_no_sdk():
    code = (
        "import sys, planner, planner.model; "
        "print([m for m in sys.modules if m.split('.')[0] in ('anthropic', 'instructor', 'openai')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.real
def test_the_environment_is_enough(monkeypatch):
    with Loopback([GOOD]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert has_credentials()
        proposal = ModelPlanner(model="anthropic/claude-opus-5-5").propose(plan_request())
        assert proposal.provenance.model == "claude-opus-5-5"
        assert server.requests[0].body["model"] == "claude-opus-5-5"
        assert KEY in server.requests[0].headers["authorization"]


def test_no_key_is_said_before_anything_is_sent(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not has_credentials()
    with pytest.raises(PlannerUnavailable, match="no API key found: set ANTHROPIC_API_KEY, or choose"):
        ModelPlanner().propose(plan_request())
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    with pytest.raises(PlannerUnavailable, match=r"Config file not found at .*/default\.json"):
        ModelPlanner().propose(plan_request())


@pytest.mark.parametrize("key", [f"{KEY}\n", f" {KEY}", "sk-ant-…-copied"])
def test_a_key_that_cannot_be_one_is_refused_without_being_repeated(key, capfd):
    with Loopback([GOOD]) as server:
        with pytest.raises(PlannerUnavailable, match="copy it again") as failure:
            ModelPlanner(client=server.client(api_key=key)).propose(plan_request())
        assert server.requests == []
    assert key.strip() not in str(failure.value)
    assert capfd.readouterr() == ("", "")


def test_a_key_in_an_error_text_is_taken_out():
    said = Failure(400, "invalid_request_error", f"bad key {KEY} and sk-proj-aaaabbbbcccc")
    with Loopback([said]) as server, pytest.raises(PlannerUnavailable, match=r"bad key \(key\) and \(key\)"):
        ModelPlanner(client=server.client()).propose(plan_request())


def test_a_word_in_place_of_a_key_takes_no_letter_out_of_an_error_text():
    said = Failure(400, "invalid_request_error", "too many turns")
    with Loopback([said]) as server, pytest.raises(PlannerUnavailable, match="too many turns"):
        ModelPlanner(client=server.client(api_key="any")).propose(plan_request())


def test_the_callers_client_stays_as_it_was():
    with Loopback([GOOD]) as server:
        client = server.client(timeout=77.0, max_retries=5)
        ModelPlanner(client=client).propose(plan_request())
        assert (client.timeout, client.max_retries, client.is_closed()) == (77.0, 5, False)


def test_an_instructor_client_in_json_mode_is_used_as_it_is():
    with Loopback([GOOD]) as server:
        client = instructor.from_anthropic(server.client(), mode=instructor.Mode.JSON, model="claude-sonnet-5-5")
        proposal = ModelPlanner(client=client).propose(plan_request())
    assert server.requests[0].body["model"] == "claude-sonnet-5-5"
    assert proposal.provenance.model == "claude-sonnet-5-5"


def test_an_instructor_client_that_forces_a_tool_is_asked_without_one():
    with Loopback([GOOD]) as server:
        client = instructor.from_anthropic(server.client())
        with pytest.raises(SettingsError, match=r"forces a tool.*pass model= too, or build it with Mode\.JSON"):
            ModelPlanner(client=client).propose(plan_request())
        ModelPlanner(client=client, model=DEFAULT_MODEL).propose(plan_request())
    assert "tool_choice" not in server.requests[0].body


@pytest.mark.real
def test_another_provider_through_instructor():
    import openai

    with (
        Loopback([answer("t99 keep 3"), GOOD]) as server,
        openai.OpenAI(api_key="sk-test-1234567890", base_url=f"{server.url}/v1") as sdk,
    ):
        proposal = ModelPlanner(client=instructor.from_openai(sdk), model="some-model").propose(plan_request())
    assert proposal.turns["t1"].score == 1.0
    assert proposal.provenance.model == "some-model"
    assert proposal.provenance.usage.requests == 2
    assert proposal.provenance.usage.output_tokens == sum(each.usage.output_tokens for each in server.exchanges)
    assert server.requests[0].body["messages"][0]["role"] == "system"


@pytest.mark.real
def test_an_answer_of_openai_s_responses_is_used_although_instructor_expects_a_call():
    import openai

    with (
        Loopback([GOOD]) as server,
        openai.OpenAI(api_key="sk-test-1234567890", base_url=f"{server.url}/v1") as sdk,
    ):
        client = instructor.from_openai(sdk, mode=instructor.Mode.RESPONSES_TOOLS)
        proposal = ModelPlanner(client=client, model="some-model").propose(plan_request())
    assert proposal.turns["t1"].score == 1.0
    assert [path for _, path in server.paths] == ["/v1/responses"] * 3


def responses_answer(part, **more):
    """Return an answer of OpenAI's Responses with reasoning and this part of a message."""
    from openai.types.responses import Response

    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    thought = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    return Response.model_validate({
        "id": "r", "object": "response", "created_at": 1, "model": "m", "output": [thought, message], "tools": [],
        "tool_choice": "auto", "parallel_tool_calls": True, **more,
    })  # fmt: skip


@pytest.mark.real
def test_refusals_and_texts_of_openai_s_responses_are_read():
    said = {"type": "output_text", "text": GOOD, "annotations": []}
    filtered = responses_answer(said, status="incomplete", incomplete_details={"reason": "content_filter"})
    refused = responses_answer({"type": "refusal", "refusal": "I cannot help with that."})
    cut_off = responses_answer(said, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert [is_refusal(one) for one in (filtered, refused, cut_off)] == [True, True, False]
    assert response_text(cut_off) == GOOD


@pytest.mark.real
def test_a_refused_key_of_another_provider_is_not_taken_for_anthropic_s(monkeypatch):
    with Loopback([Failure(401, "authentication_error", "wrong key sk-test-1234567890")]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-1234567890")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        with pytest.raises(PlannerUnavailable, match="set the provider's variable, such as") as caught:
            ModelPlanner(model="openai/gpt-5-mini").propose(plan_request())
    assert "1234567890" not in str(caught.value)


@pytest.mark.real
def test_a_provider_string_reaches_another_provider(monkeypatch):
    with Loopback([GOOD]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-1234567890")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        assert has_credentials("openai/gpt-5-mini")
        proposal = ModelPlanner(model="openai/gpt-5-mini").propose(plan_request())
    assert proposal.provenance.model == "openai/gpt-5-mini"
    body = server.requests[0].body
    assert body["model"] == "gpt-5-mini"
    assert not {"tools", "tool_choice"} & body.keys(), "current models refuse a forced tool on this endpoint"
    assert body["response_format"]["type"] == "json_schema"


def test_a_provider_that_cannot_be_set_up_is_said():
    for model in ("openai/gpt-5-mini", "nobody/model"):
        with pytest.raises(PlannerUnavailable, match=f"{model}: no client for this provider"):
            ModelPlanner(model=model).propose(plan_request())


def test_what_is_no_client_is_named():
    with pytest.raises(SettingsError, match=r"expected anthropic\.Anthropic.* found Loopback"):
        ModelPlanner(client=Loopback()).propose(plan_request())


async def asked(server, plan):
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=server.url) as client:
        return await plan(ModelPlanner(client=client))


async def in_a_thread(planner):
    return await asyncio.to_thread(planner.propose, plan_request())


async def where_it_would_block_its_loop(planner):
    return planner.propose(plan_request())


@pytest.mark.parametrize("plan", [in_a_thread, where_it_would_block_its_loop])
def test_an_asynchronous_client_is_asked_by_its_address_and_key(plan):
    with Loopback([answer("t99 keep 1"), GOOD]) as server:
        proposal = asyncio.run(asked(server, plan))
    assert proposal.turns["t1"].score == 1.0
    assert proposal.provenance.usage.requests == 2
    assert KEY in str(server.requests[0].headers)


def test_an_asynchronous_instructor_client_is_told_to_be_the_other():
    client = instructor.from_anthropic(anthropic.AsyncAnthropic(api_key="sk-test-1234567890"))
    with pytest.raises(SettingsError, match="pass the one of the synchronous SDK"):
        ModelPlanner(client=client, model="some-model").propose(plan_request())
