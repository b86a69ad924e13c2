"""What requests cost whose answer never came: a provider may bill what it has read."""

import asyncio
from dataclasses import replace

import anthropic
import instructor
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.testing import Failure, overloaded
from planner.api import plan_compaction
from planner.errors import PlannerUnavailable
from planner.model import ModelPlanner
from planner.model.prefix import prefix_cost, prefix_question
from planner.model.prompts import load_prompts
from planner.model.question import QuestionBasis
from planner.plan import AgentRequest, Usage
from tests.loopback import HANG_UP, HANG_UP_HALFWAY, KEY, STALL, Loopback, billed
from tests.model.sample import SAMPLE, answer, plan_request, sent_tokens
from tests.model.test_prefix import GOOD, agent_body


def counted(text):
    """An answer whose input the provider counts as it is planned."""
    return lambda request: billed(text, input_tokens=sent_tokens(request.body))


ANSWERS = {
    "good": counted(GOOD),
    "nonsense": counted("no plan"),
    "broken off": HANG_UP,
    "broken off halfway": HANG_UP_HALFWAY,
    "gave up waiting": Failure(504, "timeout_error"),
    "refused": Failure(400, "invalid_request_error"),
    "overloaded": overloaded(),
}
UNREAD = {"refused", "overloaded"}


def spent(server, planner=None, **options):
    """What planning the sample cost, whether it came to a plan or not."""
    planner = planner or ModelPlanner(client=server.client(**options))
    try:
        return planner.propose(plan_request()).provenance.usage
    except PlannerUnavailable as failure:
        return failure.usage


@pytest.mark.real
@settings(max_examples=30)
@given(st.lists(st.sampled_from(sorted(ANSWERS)), min_size=4, max_size=4), st.sampled_from([0, 0, 0, 2]))
def test_what_is_told_is_what_the_provider_may_have_read(script, max_retries):
    with Loopback([ANSWERS[name] for name in script]) as server:
        usage = spent(server, max_retries=max_retries)
    read = [sent_tokens(r.body) for name, r in zip(script, server.requests, strict=False) if name not in UNREAD]
    assert (usage.read_tokens, usage.requests) == (sum(read), len(read))


@pytest.mark.real
def test_a_request_that_times_out_counts_as_sent_and_the_plan_by_rules_says_so():
    with Loopback([STALL]) as server, server.client(max_retries=0) as client:
        within = plan_request(timeout_seconds=3).settings
        plan = plan_compaction(SAMPLE, "Drain the queue", client=client, target_ratio=0.5, settings=within)
        sent = sent_tokens(server.requests[0].body)
    assert plan.provenance.planner == "rules"
    assert (plan.provenance.usage, plan.provenance.read_tokens) == (Usage(input_tokens=sent, requests=1), sent)


def test_where_nothing_was_sent_nothing_counts():
    with Loopback() as server:
        url = server.url
    with Loopback() as other:
        assert spent(other, base_url=url, max_retries=0) == Usage()


def test_a_connection_that_does_not_come_about_is_given_up_early():
    """So that time is not over while nobody can tell whether something was sent."""
    with Loopback([answer("t1 keep 9")]) as server:
        ModelPlanner(client=server.client()).propose(plan_request(timeout_seconds=100))
        ModelPlanner(client=server.client()).propose(plan_request(timeout_seconds=2))
    for request, seconds in zip(server.requests, (100, 2), strict=True):
        assert float(request.headers["x-stainless-read-timeout"]) == pytest.approx(seconds, rel=0.5)


def test_an_asynchronous_client_is_metered_likewise():
    async def ask(server):
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=server.url) as client:
            return await asyncio.to_thread(spent, server, ModelPlanner(client=client))

    with Loopback([HANG_UP, HANG_UP_HALFWAY, counted(GOOD)]) as server:
        usage = asyncio.run(ask(server))
    assert (usage.requests, usage.read_tokens) == (3, sum(sent_tokens(request.body) for request in server.requests))


@pytest.mark.real
def test_what_an_asynchronous_client_did_not_get_in_time_counts_once():
    async def ask(server):
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=server.url) as client:
            with pytest.raises(PlannerUnavailable) as failure:
                await asyncio.to_thread(ModelPlanner(client=client).propose, plan_request(timeout_seconds=3))
            return failure.value.usage

    with Loopback([STALL]) as server:
        usage = asyncio.run(ask(server))
        assert usage == Usage(input_tokens=sent_tokens(server.requests[0].body), requests=1)


@pytest.mark.real
def test_another_provider_counts_what_its_sdk_sent_again():
    import openai

    with (
        Loopback([HANG_UP]) as server,
        openai.OpenAI(api_key="sk-test-1234567890", base_url=f"{server.url}/v1", max_retries=1) as sdk,
    ):
        planner = ModelPlanner(client=instructor.from_openai(sdk), model="some-model")
        usage = spent(server, planner)
    assert len(server.requests) == usage.requests == 2
    assert usage.read_tokens == sum(sent_tokens(request.body) for request in server.requests)


def test_an_instructor_client_that_is_used_as_it_is_counts_what_timed_out():
    with Loopback([HANG_UP]) as server:
        client = instructor.from_anthropic(
            server.client(max_retries=0), mode=instructor.Mode.JSON, model="claude-sonnet-5-5"
        )
        usage = spent(server, ModelPlanner(client=client))
        assert usage == Usage(input_tokens=sent_tokens(server.requests[0].body), requests=1)


def test_calls_that_a_tracer_has_replaced_are_called():
    traced = []
    with Loopback([HANG_UP, counted(GOOD)]) as server:
        client = server.client(max_retries=0)
        create = client.messages.create
        client.messages.create = lambda **body: traced.append(body) or create(**body)
        usage = spent(server, ModelPlanner(client=client))
    assert len(traced) == usage.requests == 1


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(HANG_UP, id="at once"),
        pytest.param(HANG_UP_HALFWAY, id="halfway"),
        pytest.param(STALL, id="never", marks=pytest.mark.real),
    ],
)
def test_what_breaks_off_behind_the_prefix_counts_the_question_and_of_the_cache_a_tenth(behind):
    with Loopback([behind, counted(GOOD)]) as server:
        client = server.client(max_retries=0)
        agent = AgentRequest(agent_body(), client, 1.0)
        request = replace(plan_request(timeout_seconds=5), agent_request=agent)
        proposal = ModelPlanner(client=client).propose(request)
    cost = prefix_cost(request, agent, prefix_question(QuestionBasis.of(request), load_prompts()))
    assert proposal.provenance.asked == "cards"
    assert proposal.provenance.usage.read_tokens == cost.read_tokens + sent_tokens(server.requests[1].body)
    assert proposal.provenance.usage.requests == 2
