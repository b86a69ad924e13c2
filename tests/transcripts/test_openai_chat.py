"""An OpenAI history read here comes back as the OpenAI history it was, and what was changed comes back changed."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from applier.adapters.transcripts import from_openai, strip_openai, to_openai
from planner.errors import TranscriptError
from planner.reading.messages import read_history, result_text
from tests.transcripts.chat_strategies import histories

CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{ "path": "a.py" }'}}


@given(histories())
def test_a_chat_history_comes_back_as_it_was_also_through_json(history):
    before = copy.deepcopy(history)
    converted = from_openai(history)
    assert to_openai(converted) == before
    assert to_openai(json.loads(json.dumps(converted))) == before
    assert history == before, "the input is never written to"


@settings(max_examples=50)
@given(histories())
def test_calls_and_results_pair_as_the_anthropic_api_wants_them(history):
    read = read_history(from_openai(history))
    calls = [c["id"] for m in history for c in m.get("tool_calls") or []]
    paired = [
        block["id"]
        for turn in read.turns
        if turn.kind == "tools" and turn.stop - turn.start == 2
        for _, block in read.blocks_of(turn)
        if block["type"] == "tool_use"
    ]
    assert paired == calls


@settings(max_examples=50)
@given(histories())
def test_stripped_messages_hold_only_what_the_anthropic_api_knows(history):
    bare = strip_openai(from_openai(history))
    conversation = [m for m in bare if m["role"] in ("user", "assistant")]
    assert all(set(m) == {"role", "content"} for m in conversation)
    calls = [b for m in conversation if isinstance(m["content"], list) for b in m["content"] if b["type"] == "tool_use"]
    assert all(set(call) == {"type", "id", "name", "input"} and isinstance(call["input"], dict) for call in calls)
    assert strip_openai(bare) == bare


@settings(max_examples=50)
@given(histories(), st.data())
def test_a_shortened_result_comes_back_shortened_and_all_else_as_it_was(history, data):
    converted = from_openai(history)
    places = [
        (i, j)
        for i, m in enumerate(converted)
        if m["role"] == "user" and isinstance(m["content"], list)
        for j, b in enumerate(m["content"])
        if b["type"] == "tool_result"
    ]
    if not places:
        return
    i, j = data.draw(st.sampled_from(places))
    content = list(converted[i]["content"])
    key = content[j]["tool_use_id"]
    content[j] = {**content[j], "content": "[elsewhere]"}
    after = to_openai([*converted[:i], {**converted[i], "content": content}, *converted[i + 1 :]])
    assert len(after) == len(history)
    changed = [(a, b) for a, b in zip(after, history, strict=True) if a != b]
    assert [a["content"] for a, _ in changed] == ["[elsewhere]"] * len(changed)
    assert len(changed) <= 1
    assert all(b["tool_call_id"] == key for _, b in changed)


def test_plain_messages_are_the_same_objects():
    history = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
    ]
    assert all(a is b for a, b in zip(from_openai(history), history, strict=True))


def test_the_arguments_text_is_kept_to_the_byte_beside_the_object():
    [message] = from_openai([{"role": "assistant", "content": None, "tool_calls": [CALL]}])
    assert message["content"][0]["input"] == {"path": "a.py"}
    assert to_openai([message])[0]["tool_calls"][0]["function"]["arguments"] == '{ "path": "a.py" }'


def test_changed_arguments_win_over_the_text_they_were_read_from():
    [message] = from_openai([{"role": "assistant", "content": None, "tool_calls": [CALL]}])
    block = {**message["content"][0], "input": {"path": "b.py"}}
    [back] = to_openai([{**message, "content": [block]}])
    assert json.loads(back["tool_calls"][0]["function"]["arguments"]) == {"path": "b.py"}


def test_broken_arguments_can_still_be_read():
    broken = {**CALL, "function": {"name": "read", "arguments": '{"path": "a.p'}}
    [message] = from_openai([{"role": "assistant", "content": None, "tool_calls": [broken]}])
    assert message["content"][0]["input"] == {"arguments": '{"path": "a.p'}


def test_parallel_results_are_one_message_and_a_refusal_is_words():
    other = {**CALL, "id": "call_2"}
    converted = from_openai(
        [
            {"role": "assistant", "content": None, "tool_calls": [CALL, other]},
            {"role": "tool", "tool_call_id": "call_2", "content": "two"},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "one"}]},
            {"role": "assistant", "content": None, "refusal": "I can't help with that."},
        ]
    )
    assert [m["role"] for m in converted] == ["assistant", "user", "assistant"]
    assert [result_text(block) for block in converted[1]["content"]] == ["two", "one"]
    assert converted[2]["content"] == [{"type": "text", "text": "I can't help with that."}]


def test_images_and_files_become_blocks_that_can_be_counted():
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
    ]
    [message] = strip_openai(from_openai([{"role": "user", "content": parts}]))
    assert [block["type"] for block in message["content"]] == ["image", "image", "document"]
    assert message["content"][0]["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}


def test_an_anthropic_history_goes_over_without_its_thinking():
    messages = [
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Look."},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "ä.py"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "x = 1"}]},
            {"type": "text", "text": "and now?"},
        ]},
    ]  # fmt: skip
    function = {"name": "read", "arguments": '{"path":"ä.py"}'}
    assert to_openai(messages) == [
        {
            "role": "assistant",
            "content": "Look.",
            "tool_calls": [{"id": "t1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": [{"type": "text", "text": "x = 1"}]},
        {"role": "user", "content": [{"type": "text", "text": "and now?"}]},
    ]


def test_sdk_objects_are_read_without_the_fields_nobody_set():
    class ChatCompletionMessage(BaseModel):
        role: str
        content: str | None = None
        refusal: str | None = None
        tool_calls: list[dict[str, Any]] | None = None

    [converted] = from_openai([ChatCompletionMessage(role="assistant", tool_calls=[CALL])])
    assert converted["content"][0]["name"] == "read"
    assert to_openai([converted]) == [{"role": "assistant", "tool_calls": [CALL]}]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"content": "x"}, "role"),
        ({"role": "robot", "content": "x"}, "robot"),
        ({"role": "user", "content": 7}, "'content' to be text or a list of parts, found 7"),
        ({"role": "user", "content": None}, "'content' to be text or a list of parts, found None"),
        ({"role": "tool", "content": "x"}, "tool_call_id"),
        ({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}, "arguments"),
        ({"role": "assistant", "tool_calls": [{"id": "a", "type": "function"}]}, "'function' or a 'custom'"),
        ({"role": "user", "content": [{"type": "text"}]}, ": text: expected text, found None"),
        ({"role": "user", "content": ["words"]}, ": type: expected text"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "u"}]}, "image_url: expected an object"),
        ({"role": "assistant", "tool_calls": {"id": "a"}}, "tool_calls: expected a list"),
        ({"role": "assistant", "content": None, "refusal": 5}, "refusal: expected text"),
        ("just words", "found str"),
    ],
)
def test_what_is_no_chat_message_is_named_with_its_index(message, told):
    with pytest.raises(TranscriptError, match=r"messages\[1\]") as caught:
        from_openai([{"role": "user", "content": "hi"}, message])
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
