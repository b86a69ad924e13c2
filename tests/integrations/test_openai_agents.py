"""OpenAI's Agents SDK in a session: its own runner, sessions and chat models, over the loopback server."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("agents")

import openai
from agents import (
    Agent,
    Model,
    ModelResponse,
    ModelSettings,
    OpenAIProvider,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseInputParam
from pydantic import TypeAdapter

from applier.adapters.frameworks.openai_agents import CONTEXT_TOOLS, CompactedModels
from applier.settings import load_settings
from applier.testing import Answer, Failure, say, use
from planner.errors import SettingsError
from planner.reading.tokens import TokenCounter
from tests.integrations import counting
from tests.integrations.counting import CALLS, counting_model, delegating_model, entries
from tests.loopback import KEY, Loopback

QUESTION = "Count for me, and keep report-7.txt untouched."
WINDOW = 11_000


@function_tool
def numbers(to: int) -> str:
    """Count to a number."""
    return counting.numbers(to)


@pytest.fixture
def run(new_session):
    """Runs an agent against a script, in a session; gives the results, the session and the server."""

    def run(script, agent, *words, window_tokens=WINDOW, streamed=False, memory=None, responses=True):
        session = new_session(window_tokens=window_tokens, model="gpt-5.5")

        async def all_of_it(server):
            async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
                models = CompactedModels(session, OpenAIProvider(openai_client=client, use_responses=responses))
                config, done = RunConfig(model_provider=models, tracing_disabled=True), []
                for said in words:
                    options = {"run_config": config, "max_turns": 50, "session": memory}
                    if streamed:
                        result = Runner.run_streamed(agent, said, **options)
                        async for _ in result.stream_events():
                            pass
                    else:
                        result = await Runner.run(agent, said, **options)
                    done.append(result)
                return done, models

        with Loopback([script]) as server:
            done, models = asyncio.run(all_of_it(server))
            return done, session, server, models

    return run


def largest(server) -> int:
    counter = TokenCounter.for_model("gpt-5.5")
    return max(counter.text(json.dumps(entries(request))) for request in server.requests)


def well_formed(server) -> bool:
    return all(exchange.status == 200 and not exchange.violations for exchange in server.exchanges)


def counter_agent() -> Agent:
    return Agent("Counter", instructions="You count.", model="gpt-5.5", tools=[numbers, *CONTEXT_TOOLS])


@pytest.mark.parametrize("responses", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_agent_stays_in_the_window_and_its_own_session_keeps_everything(run, streamed, responses):
    memory = SQLiteSession("run-7")
    words = QUESTION, "Thank you. That is all."
    how = {"streamed": streamed, "responses": responses, "memory": memory}
    done, session, server, _ = run(counting_model, counter_agent(), *words, **how)
    assert [result.final_output for result in done] == [f"counted {CALLS} times", "counted 0 times"]
    assert well_formed(server)
    assert largest(server) < WINDOW
    assert all("report-7.txt untouched" in str(request.body) for request in server.requests)
    assert all("You count." in str(request.body) for request in server.requests)
    items = asyncio.run(memory.get_items())
    assert sum(item.get("type") == "function_call_output" for item in items) == CALLS
    assert session.state.compactions >= 1
    assert session.state.history_messages == 2 * CALLS + 3
    assert "history_changed" not in [event.kind for event in session.log()]
    assert session._state.pressure.call.model == "gpt-5.5"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_prompt_that_is_too_long_is_tried_once_more(run, streamed):
    refused = []

    def model(request):
        if len(request.raw) > 24_000:
            refused.append(request)
            problem = (
                "This model's maximum context length is 8000 tokens. However, your messages resulted in 9000 tokens."
            )
            return Failure(400, "invalid_request_error", problem)
        return counting_model(request)

    (done,), session, _, _ = run(model, counter_agent(), QUESTION, window_tokens=200_000, streamed=streamed)
    assert done.final_output == f"counted {CALLS} times"
    assert refused
    assert "recovered" in [event.kind for event in session.log()]


def test_agents_that_are_tools_of_another_have_sessions_of_their_own(run):
    helper = counter_agent().as_tool("delegate", "Have it counted.", max_turns=50)
    main = Agent("Main", model="gpt-5.5", tools=[helper, *CONTEXT_TOOLS])
    script = delegating_model("delegate", {"input": QUESTION}, {"input": "Count for another."})
    (done,), session, server, models = run(script, main, "Delegate it.")
    assert done.final_output == "all of it is done"
    assert well_formed(server)
    children = [conversation.session for conversation in models.conversations._conversations[1:]]
    assert [child.state.history_messages for child in children] == [2 * CALLS + 1] * 2
    assert all(child.state.compactions for child in children)
    assert "history_changed" not in [event.kind for one in (session, *children) for event in one.log()]


def test_an_agent_looks_things_up_again_in_its_own_conversation(run):
    def model(request):
        last = entries(request)[-1]
        if "output" in last:
            return Answer([say(last["output"])])
        return Answer([use("search_context", "toolu_s", text="heron")])

    (done,), *_ = run(model, counter_agent(), "The word is heron.")
    assert "heron" in done.final_output
    (done,), *_ = run(model, counter_agent(), "There is no word.")
    assert done.final_output.startswith("nothing in this conversation matches 'heron'")


class Recording(Model):
    """A model that answers nothing and records what it is sent."""

    model = "gpt-5.5"

    def __init__(self) -> None:
        self.sent: list[dict] = []

    async def get_response(self, **request):
        self.sent.append(request)
        return ModelResponse([], Usage(), None)

    def stream_response(self, **request):
        raise NotImplementedError


def asked(model: Model, items: list, **where) -> None:
    empty = {"system_instructions": "s", "model_settings": ModelSettings(), "tools": [], "output_schema": None}
    asyncio.run(model.get_response(input=items, **empty, handoffs=[], tracing=None, **where))


def words(number: int) -> str:
    return "\n".join(f"line {at} of report {number}" for at in range(number))


SIZES = st.integers(1, 120)
KINDS = st.lists(st.sampled_from(["function_call", "custom_tool_call", "web_search_call"]), max_size=3)
ANSWERS = st.tuples(st.booleans(), SIZES, KINDS, SIZES)


@st.composite
def conversations(draw) -> list[dict]:
    """Items of a few of a user's words, and answers with reasoning, calls of several kinds, and their outputs."""
    items: list[dict] = []
    for turn, (thinks, says, kinds, gives) in enumerate(draw(st.lists(ANSWERS, min_size=1, max_size=6))):
        if draw(st.booleans()) or not items:
            items.append({"role": "user", "content": words(says)})
        if thinks:
            items.append({"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": "sealed"})
        text = {"type": "output_text", "text": words(says), "annotations": []}
        done = {"id": f"msg_{turn}", "status": "completed"}
        items.append({"type": "message", "role": "assistant", "content": [text], **done})
        called = [(kind, f"call_{turn}_{at}") for at, kind in enumerate(kinds)]
        for kind, call in called:
            if kind == "web_search_call":
                query = {"type": "search", "query": "herons"}
                items.append({"type": kind, "id": f"ws_{call}", "status": "completed", "action": query})
            else:
                given = {"arguments": '{"to": 7}'} if kind == "function_call" else {"input": words(says)}
                items.append({"type": kind, "id": f"fc_{call}", "call_id": call, "name": "numbers", **given})
        outputs = [(kind, call) for kind, call in called if kind != "web_search_call"]
        items += [{"type": f"{kind}_output", "call_id": call, "output": words(gives)} for kind, call in outputs]
    return [*items, {"role": "user", "content": "Go on."}]


ITEMS = TypeAdapter(ResponseInputParam)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    items=conversations(),
    window=st.sampled_from([2_500, 4_000, 200_000]),
    preset=st.sampled_from(["relevance", "s06", "off"]),
)
def test_what_is_sent_is_what_the_responses_api_takes(new_session, items, window, preset):
    model = Recording()
    session = new_session(window_tokens=window, settings=load_settings(max_output_tokens=500), preset=preset)
    asked(CompactedModels(session).around(model), items)
    (request,) = model.sent
    sent = request["input"]
    ITEMS.validate_python(sent)
    if preset == "off":
        assert sent == items
    own = [item for item in sent if item in items]
    assert own == [item for item in items if item in own], "what stays is in order"
    calls = [item["call_id"] for item in sent if item.get("type") in ("function_call", "custom_tool_call")]
    outputs = [item["call_id"] for item in sent if item.get("type", "").endswith("_output")]
    assert sorted(calls) == sorted(outputs) == sorted(set(calls))
    for at, item in enumerate(sent):
        follows = items[items.index(item) + 1] if item.get("type") == "reasoning" else None
        assert follows is None or sent[at + 1] == follows, "reasoning stands before what it led to, or not at all"


def test_an_older_result_that_says_less_stays_the_answer_to_its_call(new_session):
    items = [{"role": "user", "content": "Count."}]
    for at in range(6):
        kind = "custom_tool_call" if at % 2 else "function_call"
        given = {"input": "7"} if at % 2 else {"arguments": "{}"}
        items.append({"type": kind, "call_id": f"c{at}", "name": "numbers", **given})
        items.append({"type": f"{kind}_output", "call_id": f"c{at}", "output": words(200)})
    model = Recording()
    asked(CompactedModels(new_session(window_tokens=200_000, preset="s06")).around(model), items)
    sent = model.sent[0]["input"]
    assert [{**item, "output": ""} for item in sent] == [{**item, "output": ""} for item in items]
    less = [
        len(one["output"]) < len(other["output"]) for one, other in zip(sent, items, strict=True) if "output" in one
    ]
    assert less == [True] * 3 + [False] * 3


@pytest.mark.parametrize("where", [{"previous_response_id": "resp_1"}, {"conversation_id": "conv_1"}])
def test_a_conversation_that_the_server_holds_passes_as_it_is(new_session, where):
    session, model, items = new_session(window_tokens=4_000), Recording(), [{"role": "user", "content": words(900)}]
    asked(CompactedModels(session).around(model), items, **where)
    assert model.sent[0]["input"] is items
    assert session.state.history_messages == 0


def test_what_the_provider_compacted_stands_in_front_as_it_is(new_session):
    sealed = {"type": "compaction", "encrypted_content": "sealed"}
    items = [{"role": "user", "content": "hi"}, sealed, *({"role": "user", "content": words(300)} for _ in range(9))]
    model = Recording()
    asked(CompactedModels(new_session(window_tokens=8_000)).around(model), items)
    sent = model.sent[0]["input"]
    assert sent[:2] == items[:2]
    assert len(str(sent)) < len(str(items))


def test_items_of_another_kind_reach_the_model_as_they_are(new_session):
    shot = {"type": "computer_screenshot", "image_url": "https://x.test/a"}
    items = [{"role": "user", "content": words(900)}, {"type": "computer_call_output", "call_id": "c", "output": shot}]
    model = Recording()
    asked(CompactedModels(new_session(window_tokens=4_000)).around(model), items)
    sent = model.sent[0]["input"]
    assert sent[-1] == items[-1]
    assert len(str(sent)) < len(str(items)), "what is around is compacted"


UNREADABLE = (
    "heron at dawn",
    {"type": "compactor_view"},
    {"type": "compactor_view", "messages": [5]},
    {"role": "user", "content": [{"type": "input_text", "text": {"heron at dawn"}}]},
    {"type": "function_call", "call_id": "c", "name": {"heron at dawn": 1}, "arguments": "{}"},
)


@pytest.mark.parametrize("item", UNREADABLE)
def test_whatever_fails_here_the_items_go_out_as_they_came_and_the_log_has_no_word_of_them(new_session, item, caplog):
    items, model = [{"role": "user", "content": words(900)}, item, {"role": "user", "content": "Go on."}], Recording()
    asked(CompactedModels(new_session(window_tokens=4_000)).around(model), items)
    assert model.sent[0]["input"] == items
    assert "the items go out as they came" in caplog.text
    assert "heron" not in caplog.text


def test_what_is_neither_session_nor_provider_is_refused_with_the_cure(new_session):
    with pytest.raises(SettingsError, match="session: expected a Session, found str"):
        CompactedModels("run-7")
    with pytest.raises(SettingsError, match=r"provider: expected a ModelProvider .*around\(model\)\), found Recording"):
        CompactedModels(new_session(), Recording())
