"""The loopback server answers as the Messages API does: what other tests stand on."""

import anthropic
import pytest

from tests.loopback import Loopback, say, use

HELLO = [{"role": "user", "content": "Hello"}]
MODEL = "claude-haiku-5-5"

TOOL = {"name": "bash", "input_schema": {"type": "object"}}


def send(client, messages=HELLO, **more):
    return client.messages.create(model=MODEL, max_tokens=100, messages=messages, **more)


def test_answers_come_in_order_and_the_last_one_again_and_again():
    with Loopback(["one", lambda body: f"heard {body['messages'][0]['content']}"]) as server:
        client = server.client()
        assert [send(client).content[0].text for _ in range(3)] == ["one", "heard Hello", "heard Hello"]
        assert [request.prompt for request in server.requests] == ["Hello"] * 3


def test_a_stream_says_what_the_answer_says():
    call = use("bash", {"command": "ls -l"}, "toolu_1", "Let me look.")
    with (
        Loopback([call]) as server,
        server.client().messages.stream(model=MODEL, max_tokens=100, messages=HELLO) as stream,
    ):
        streamed = stream.get_final_message()
    with Loopback([call]) as server:
        whole = send(server.client())
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in whole.content]
    assert (streamed.stop_reason, streamed.usage.output_tokens) == ("tool_use", whole.usage.output_tokens)


def test_tokens_are_counted_as_they_are_billed():
    with Loopback([say("fine")]) as server:
        client = server.client()
        counted = client.messages.count_tokens(model=MODEL, messages=HELLO, system="Be brief.")
        assert counted.input_tokens == send(client, system="Be brief.").usage.input_tokens


@pytest.mark.parametrize(
    ("messages", "more", "said"),
    [
        ([{"role": "assistant", "content": "I"}], {}, "messages"),
        ([*HELLO, {"role": "assistant", "content": "Well,"}], {}, "rule 15"),
        (HELLO, {"extra_body": {"temperature": 0.0}}, "temperature"),
        (HELLO, {"tool_choice": {"type": "any"}, "tools": [TOOL]}, "forced"),
    ],
)  # fmt: skip
def test_what_the_api_refuses_is_refused(messages, more, said):
    with Loopback(enforce=True) as server:
        with pytest.raises(anthropic.BadRequestError, match=said):
            send(server.client(), messages, **more)
        assert len(server.refused) == 1


def test_a_prompt_over_the_window_is_refused_and_uses_up_no_answer():
    with Loopback(["first"], window_tokens=50) as server:
        client = server.client()
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 50 maximum"):
            send(client, [{"role": "user", "content": "long " * 100}])
        assert send(client).content[0].text == "first"
