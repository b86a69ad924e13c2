"""The server itself, through the real SDK: scripts, streams, thinking that is bound, the window, failures."""

from __future__ import annotations

import threading

import anthropic
import openai
import pytest

from applier.testing import Answer, MessagesServer, overloaded, rate_limited, refuse, say, use
from tests import http_client
from tests.openai_server import OpenAIServer

NEWEST, OLDER = "claude-opus-5-5", "claude-haiku-4-5"
HELLO = {"role": "user", "content": "Hello"}
KEY = {"x-api-key": "any"}
TOOLS = [{"name": "read", "input_schema": {"type": "object"}}]


def client_of(server):
    return anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0)


def ask(client, messages, model=NEWEST, **more):
    return client.messages.create(model=model, max_tokens=2048, messages=messages, **more)


def test_a_script_is_answered_in_order_and_its_end_for_ever():
    replies = ["one", [say("two")], Answer([say("three")]), lambda request: f"to {request.prompt}"]
    with MessagesServer(replies) as server, client_of(server) as client:
        answers = [ask(client, [HELLO]).content[0].text for _ in range(5)]
    assert answers == ["one", "two", "three", "to Hello", "to Hello"]
    assert [request.messages for request in server.requests] == [[HELLO]] * 5
    with MessagesServer(refuse()) as server, client_of(server) as client:
        assert [ask(client, [HELLO]).stop_reason for _ in range(2)] == ["refusal"] * 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_script_that_raises_is_answered_with_its_error_at_once(stream):
    def script(request):
        raise AssertionError(f"not a word of {request.prompt}")

    with MessagesServer(script) as server, client_of(server).with_options(max_retries=2) as client:
        with pytest.raises(anthropic.InternalServerError, match="script raised AssertionError: not a word of Hello"):
            ask(client, [HELLO], stream=stream)
        assert [exchange.status for exchange in server.exchanges] == [500]


def test_a_usage_that_is_said_is_the_usage_and_a_refusal_has_no_text():
    replies = [Answer([say("so")], usage={"input_tokens": 7}), refuse()]
    with MessagesServer(replies) as server, client_of(server) as client:
        usage = ask(client, [HELLO]).usage
        assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (7, 0, 0)
        refused = ask(client, [HELLO])
    assert (refused.stop_reason, refused.content) == ("refusal", [])


def test_a_stream_says_what_the_whole_answer_says():
    answer = [say("I read it, all of it, and then I tell you. " * 5), use("read", path="src/auth.ts", lines=[1, 80])]
    with MessagesServer([answer]) as server, client_of(server) as client:
        whole = ask(client, [HELLO], thinking={"type": "adaptive"}, tools=TOOLS)
        with client.messages.stream(
            model=NEWEST, max_tokens=2048, messages=[HELLO], thinking={"type": "adaptive"}, tools=TOOLS
        ) as stream:
            streamed = stream.get_final_message()
    assert [block.type for block in streamed.content] == ["thinking", "text", "tool_use"]
    assert streamed.content[1].text == whole.content[1].text
    assert streamed.content[2].input == whole.content[2].input
    assert streamed.usage.input_tokens == whole.usage.input_tokens
    assert streamed.stop_reason == "tool_use"


def talk(client, **more):
    """Two rounds with thinking; the conversation and the request that goes with it."""
    messages = [{"role": "user", "content": "First fact: 4711."}]
    for _ in range(2):
        messages.append({"role": "assistant", "content": ask(client, messages, thinking=ADAPTIVE, **more).content})
        messages.append({"role": "user", "content": "Go on."})
    return messages


ADAPTIVE = {"type": "adaptive"}


@pytest.fixture
def talked():
    with MessagesServer("fine") as server, client_of(server) as client:
        yield server, client, talk(client)


def test_thinking_comes_back_where_it_was_issued(talked):
    server, client, messages = talked
    ask(client, messages, thinking=ADAPTIVE)
    assert server.violations == []


def edited(messages):
    return [{"role": "user", "content": "First fact: gone."}, *messages[1:]]


def test_thinking_behind_an_edit_is_refused(talked):
    _, client, messages = talked
    with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
        ask(client, edited(messages), thinking=ADAPTIVE)


def test_thinking_behind_an_edit_may_be_dropped_or_stripped_or_the_model_may_be_older(talked):
    server, client, messages = talked
    binding = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    ask(client, edited(messages), extra_body={"thinking": {**ADAPTIVE, **binding}})
    stripped = [
        {**m, "content": [b for b in m["content"] if b.type != "thinking"]} if m["role"] == "assistant" else m
        for m in edited(messages)
    ]
    ask(client, stripped, thinking=ADAPTIVE)
    ask(client, edited(messages), model="claude-opus-4-8", thinking=ADAPTIVE)
    assert server.violations == []


def test_thinking_of_the_latest_answer_is_whole():
    thoughts = [{"type": "thinking", "thinking": text} for text in ("one", "two")]
    with MessagesServer([[*thoughts, say("so")]]) as server, client_of(server) as client:
        answer = ask(client, [HELLO], thinking=ADAPTIVE, model="claude-opus-4-8").content
        with pytest.raises(anthropic.BadRequestError, match="cannot be modified"):
            ask(client, [HELLO, {"role": "assistant", "content": answer[1:]}, HELLO], "claude-opus-4-8",
                thinking=ADAPTIVE)  # fmt: skip


def test_manual_thinking_comes_once_a_turn_unless_interleaved():
    calls = [[use("read")], [use("read")], "done"]
    budget = {"type": "enabled", "budget_tokens": 1024}
    for headers, thinks in (({}, [True, False]), ({"anthropic-beta": "interleaved-thinking-2025-05-14"}, [True, True])):
        with MessagesServer(calls) as server, client_of(server) as client:
            first = ask(client, [HELLO], OLDER, thinking=budget, tools=TOOLS, extra_headers=headers)
            result = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "ok"}
            messages = [HELLO, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
            second = ask(client, messages, OLDER, thinking=budget, tools=TOOLS, extra_headers=headers)
            assert [first.content[0].type == "thinking", second.content[0].type == "thinking"] == thinks


def test_the_window():
    with MessagesServer("x" * 3000, window_tokens=2_000) as server, client_of(server) as client:
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 2000 maximum"):
            ask(client, [{"role": "user", "content": "word " * 2000}])
        assert ask(client, [{"role": "user", "content": "word " * 800}]).stop_reason == "model_context_window_exceeded"
        assert [violation.rule for violation in server.violations] == [22]


def test_tokens_are_counted_as_they_are_billed():
    with MessagesServer() as server, client_of(server) as client:
        counted = client.messages.count_tokens(model=NEWEST, messages=[HELLO], system="Be brief.", tools=TOOLS)
        assert counted.input_tokens == ask(client, [HELLO], system="Be brief.", tools=TOOLS).usage.input_tokens
        assert len(server.exchanges) == 1


def test_failures_and_what_is_no_request():
    with MessagesServer([overloaded(), rate_limited(), "ok"]) as server, client_of(server) as client:
        with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            ask(client, [HELLO])
        assert ask(client.with_options(max_retries=2), [HELLO]).content[0].text == "ok"
        with pytest.raises(anthropic.NotFoundError):
            client.post("/v1/other", cast_to=object, body={})
        assert http_client.post(f"{server.url}/v1/messages", json={}).status_code == 401
        assert http_client.post(f"{server.url}/v1/messages", content=b"{", headers=KEY).status_code == 400


def test_a_stream_can_wait_in_its_middle():
    gate = threading.Event()
    with MessagesServer([Answer([say("word " * 40)], hold=gate.wait)]) as server, client_of(server) as client:
        with client.messages.stream(model=NEWEST, max_tokens=100, messages=[HELLO]) as stream:
            events = iter(stream)
            first = next(event for event in events if event.type == "text")
            assert first.text
            gate.set()
            assert stream.get_final_text() == "word " * 40
        assert server.violations == []


@pytest.mark.parametrize(
    ("fault", "end"), [("hangs_up", "}\n\n"), ("half_an_event", "content_block_d"), ("garbage", "\x00\xff\n\n")]
)
def test_a_stream_can_end_badly(fault, end):
    body = {"model": NEWEST, "max_tokens": 100, "messages": [HELLO], "stream": True}
    with MessagesServer([Answer([say("word " * 40)], fault=fault)]) as server:
        text = http_client.post(f"{server.url}/v1/messages", json=body, headers=KEY).text
    assert "message_start" in text
    assert "message_stop" not in text
    assert end in text[-120:]


def test_a_whole_answer_can_end_badly_and_an_answer_that_never_comes_is_given_up():
    faults = [Answer([say("word " * 40)], fault=fault) for fault in ("hangs_up_at_once", "hangs_up", "stalls")]
    with MessagesServer(faults) as server, client_of(server) as client:
        for _ in faults:
            with pytest.raises(anthropic.APIConnectionError):
                ask(client, [HELLO], timeout=0.3)
    assert len(server.requests) == 3


CHAT_TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


def completed(client, streamed, **request):
    """The message of a chat completion, whole or put together from its stream."""
    given = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "tools": [CHAT_TOOL], **request}
    if not streamed:
        return client.chat.completions.create(**given)
    with client.chat.completions.stream(stream_options={"include_usage": True}, **given) as running:
        return running.get_final_completion()


@pytest.mark.parametrize("streamed", [False, True])
def test_chat_completions_are_answered_by_the_same_script(streamed):
    replies = [[say("I read it."), use("read", "call_1", path="a.py")], overloaded()]
    with (
        OpenAIServer(replies) as server,
        openai.OpenAI(api_key="sk-any", base_url=f"{server.url}/v1", max_retries=0) as client,
    ):
        answer = completed(client, streamed)
        assert answer.choices[0].finish_reason == "tool_calls"
        message = answer.choices[0].message
        (call,) = message.tool_calls
        assert (message.content, call.id, call.function.arguments) == ("I read it.", "call_1", '{"path": "a.py"}')
        assert answer.usage.total_tokens > answer.usage.completion_tokens > 0
        said = {"role": "assistant", "tool_calls": [call.to_dict()]}
        with pytest.raises(openai.BadRequestError, match="call_1"):
            completed(client, streamed, messages=[said, {"role": "user", "content": "well?"}])
        with pytest.raises(openai.InternalServerError, match="Overloaded"):
            completed(client, streamed)
    assert [exchange.status for exchange in server.exchanges] == [200, 400, 529]


def test_where_a_function_is_forced_text_is_its_arguments():
    forced = {"type": "function", "function": {"name": "read"}}
    with (
        OpenAIServer('{"path": "b.py"}') as server,
        openai.OpenAI(api_key="sk-any", base_url=f"{server.url}/v1") as client,
    ):
        message = completed(client, False, tool_choice=forced).choices[0].message
    assert (message.content, message.tool_calls[0].function.arguments) == (None, '{"path": "b.py"}')
