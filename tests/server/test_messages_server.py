"""The server itself, through the real SDK: scripts, streams, thinking that is bound, the window, failures."""

from __future__ import annotations

import threading

import anthropic
import httpx
import pytest

from applier.testing import Answer, MessagesServer, overloaded, rate_limited, say, use

NEWEST, OLDER = "claude-opus-5-5", "claude-haiku-4-5"
HELLO = {"role": "user", "content": "Hello"}
KEY = {"x-api-key": "any"}
TOOLS = [{"name": "read", "input_schema": {"type": "object"}}]


def client_of(server):
    return anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0)


def ask(client, messages, model=NEWEST, **more):
    return client.messages.create(model=model, max_tokens=2048, messages=messages, **more)


def test_a_script_is_answered_in_order_and_its_end_for_ever():
    with MessagesServer(["one", [say("two")], Answer([say("three")])]) as server, client_of(server) as client:
        assert [ask(client, [HELLO]).content[0].text for _ in range(4)] == ["one", "two", "three", "three"]


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
        assert httpx.post(f"{server.url}/v1/messages", json={}).status_code == 401
        assert httpx.post(f"{server.url}/v1/messages", content=b"{", headers=KEY).status_code == 400


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
        text = httpx.post(f"{server.url}/v1/messages", json=body, headers=KEY).text
    assert "message_start" in text
    assert "message_stop" not in text
    assert end in text[-120:]
