"""pydantic-ai's own agent and Anthropic model in a session, over the loopback server."""

import asyncio

import pytest

pytest.importorskip("pydantic_ai")

import anthropic
from pydantic_ai import Agent, ModelHTTPError, ModelRetry, RunContext, RunUsage
from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from applier.adapters.frameworks.pydantic_ai_history import CompactedHistory
from applier.session import Session
from tests.integrations.conftest import MODEL
from tests.integrations.counting import CALLS, counting_model, numbers
from tests.loopback import KEY, Loopback

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


def runs(server: Loopback, session, *questions: str, tool=numbers, listen=None, **given) -> list:
    """The runs of an agent in `session` (None: without one), each going on from the messages of the one before."""

    async def run() -> list:
        results, history = [], []
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=server.url, max_retries=0) as client:
            model = AnthropicModel(MODEL, provider=AnthropicProvider(anthropic_client=client))
            compacted = [] if session is None else [CompactedHistory(session)]
            agent = Agent(model, tools=[tool], capabilities=compacted, **given)
            for question in questions:
                results.append(await agent.run(question, message_history=history, event_stream_handler=listen))
                history = results[-1].all_messages()
        return results

    return asyncio.run(run())


def converse(server: Loopback, session, *questions: str, **given) -> list[str]:
    """What it answers."""
    return [result.output for result in runs(server, session, *questions, **given)]


def said_in(messages) -> list:
    """The parts of `messages` without what differs from run to run."""
    return [
        [
            (part.part_kind, getattr(part, "tool_call_id", ""), str(getattr(part, "content", "")))
            for part in message.parts
            if not isinstance(part, ThinkingPart)
        ]
        for message in messages
    ]


def test_the_runs_own_messages_are_what_they_are_without_a_session(new_session):
    """Those of the first run, which is compacted on its way, and those of one that goes on from it."""
    session, questions = new_session(window_tokens=9_000), ("Count for me.", "Thank you. That is all.")
    with Loopback([counting_model], window_tokens=8_500) as server:
        compacted = runs(server, session, *questions, instructions="Count.", system_prompt="You count.")
        assert server.violations == []
    with Loopback([counting_model]) as server:
        plain = runs(server, None, *questions, instructions="Count.", system_prompt="You count.")
    assert session.state.compactions >= 2
    for mine, theirs in zip(compacted, plain, strict=True):
        assert said_in(mine.new_messages()) == said_in(theirs.new_messages())
        assert said_in(mine.all_messages()) == said_in(theirs.all_messages())
    assert "That is all." in str(compacted[1].new_messages()[0].parts)


@pytest.mark.parametrize("streams", [False, True])
def test_a_prompt_that_is_too_long_is_tried_once_more(new_session, streams):
    session = new_session(window_tokens=200_000)

    async def listen(_ctx, events):
        async for _ in events:
            pass

    with Loopback([counting_model], window_tokens=8_000) as server:
        assert converse(server, session, "Count for me.", listen=listen if streams else None) == [
            f"counted {CALLS} times"
        ]
        assert {violation.rule for violation in server.violations} == {22}
    assert "recovered" in [event.kind for event in session.log()]
    assert session.state.history_messages == 2 * CALLS + 1


def test_a_prompt_that_nothing_shortens_is_refused_as_without_a_session(new_session):
    with Loopback(window_tokens=50) as server:
        with pytest.raises(ModelHTTPError, match="prompt is too long"):
            converse(server, new_session(), "A question of many words. " * 20)
        assert len(server.requests) <= 2


@pytest.mark.real
def test_a_long_run_stays_in_the_window_and_valid(new_session):
    session = new_session(window_tokens=9_000)
    with Loopback([counting_model], window_tokens=8_500) as server:
        question = "Count for me, and keep report-7.txt untouched."
        answers = converse(server, session, question, system_prompt="You count.", instructions="Never guess.")
        assert answers == [f"counted {CALLS} times"]
        assert server.violations == []
        assert all("You count." in said_by(request.body["system"]) for request in server.requests)
        assert all("Never guess." in said_by(request.body["system"]) for request in server.requests)
        assert all("report-7.txt untouched" in str(request.body["messages"]) for request in server.requests)
    assert session.state.compactions >= 2
    assert session.state.history_messages == 2 * CALLS + 1
    assert "history_changed" not in [event.kind for event in session.log()]


def said_by(system) -> str:
    return system if isinstance(system, str) else "\n".join(block["text"] for block in system)


@pytest.mark.real
def test_a_conversation_goes_on_from_the_compacted_messages(new_session):
    session = new_session(window_tokens=9_000)
    with Loopback([counting_model], window_tokens=8_500) as server:
        answers = converse(server, session, "Count for me.", "Thank you. That is all.")
        assert answers == [f"counted {CALLS} times", "counted 0 times"]
        assert server.violations == []
    assert session.state.history_messages == 2 * CALLS + 3
    assert "history_changed" not in [event.kind for event in session.log()]


def sent(session, messages):
    """What goes out for `messages`."""
    model = TestModel()
    request = ModelRequestContext(
        model=model, messages=messages, model_settings=None, model_request_parameters=ModelRequestParameters()
    )
    ctx = RunContext(deps=None, model=model, usage=RunUsage())
    return asyncio.run(CompactedHistory(session).prepare_model_request(ctx, request)).messages


def test_what_is_not_compacted_stays_the_same_object(new_session):
    messages = [
        ModelRequest([SystemPromptPart("s"), UserPromptPart(["look", BinaryContent(PIXEL, media_type="image/png")])]),
        ModelResponse([TextPart("a pixel")]),
        ModelRequest([UserPromptPart("right")]),
    ]
    assert all(a is b for a, b in zip(sent(new_session(), messages), messages, strict=True))


def test_retries_and_failures_of_tools_are_carried_as_errors(new_session):
    session = new_session()
    calls = iter(("again", "fine"))

    def moody(to: int) -> str:
        """Count, in a mood."""
        if (said := next(calls, "fine")) == "again":
            raise ModelRetry("not like this")
        return said

    moody.__name__ = "numbers"
    with Loopback([counting_model]) as server:
        assert converse(server, session, "Count for me.", tool=moody) == [f"counted {CALLS} times"]
        assert server.violations == []
    assert "not like this" in session.search("not like this").matches[0].excerpt


def test_each_run_may_have_its_own_session(new_session):
    sessions = {name: new_session(window_tokens=9_000) for name in ("one", "two")}
    with Loopback([counting_model], window_tokens=8_500) as server:
        for name, session in sessions.items():

            def session_of(ctx, name=name):
                assert isinstance(ctx, RunContext)
                return sessions[name]

            assert converse(server, session_of, "Count for me.") == [f"counted {CALLS} times"]
            assert session.state.history_messages == 2 * CALLS + 1
        assert server.violations == []


@pytest.mark.parametrize(
    ("wishes", "prompt"), [({"instructions": "Count."}, None), ({"system_prompt": "Count."}, ""), ({}, [])]
)
def test_a_run_that_begins_without_words_runs(new_session, wishes, prompt):
    agent = Agent(TestModel(), capabilities=[CompactedHistory(new_session())], **wishes)
    plain = Agent(TestModel(), **wishes)
    assert asyncio.run(agent.run(prompt)).output == asyncio.run(plain.run(prompt)).output


def test_what_cannot_be_read_and_what_has_no_session_goes_out_as_it_came(new_session, tmp_path):
    (tmp_path / "no.db").write_bytes(b"no store")
    words = [ModelRequest([UserPromptPart("hi")])]
    assert sent(lambda _ctx: Session(store=tmp_path / "no.db", session_id="a"), words) is words
    call, result = ToolCallPart("f", {}, "c1"), ToolReturnPart("f", object(), "c1")
    odd = [*words, ModelResponse([call]), ModelRequest([result])]
    assert sent(new_session(), odd) is odd
