"""Messages are read as they are: SDK objects like dicts, plain ones untouched, nonsense refused by place."""

import json
import tracemalloc

import anthropic.types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import TranscriptError
from planner.reading.messages import (
    blocks,
    checked_message,
    json_pieces,
    message_digest,
    plain_message,
    readable_text,
    result_text,
    to_json,
    unmarked,
)
from tests.strategies import histories, image, text, texts

CONTENT = [
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    {"type": "text", "text": "Reading.", "citations": None},
    {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a.py"}},
    {"type": "a_block_of_next_year", "payload": {"deep": [1]}},
]
RESPONSE = anthropic.types.Message.construct(
    id="msg_1",
    type="message",
    role="assistant",
    model="claude-opus-5-5",
    content=CONTENT,
    stop_reason="tool_use",
    stop_sequence=None,
    usage={"input_tokens": 3, "output_tokens": 4},
)
"""As the SDK builds it from what comes over the wire, leniently."""


@given(histories())
def test_plain_messages_come_back_as_the_same_objects(messages):
    assert all(plain_message(message) is message for message in messages)


def test_sdk_content_reads_as_the_dicts_it_was_parsed_from():
    assert plain_message({"role": "assistant", "content": RESPONSE.content}) == {
        "role": "assistant",
        "content": CONTENT,
    }
    assert plain_message({"role": "assistant", "content": tuple(RESPONSE.content)})["content"] == CONTENT
    assert blocks(plain_message(RESPONSE)) == CONTENT


def test_sdk_content_has_the_digest_of_its_json():
    sdk = plain_message({"role": "assistant", "content": RESPONSE.content})
    assert message_digest(sdk) == message_digest({"role": "assistant", "content": CONTENT})


def test_sdk_blocks_inside_a_result_are_read_too():
    inner = anthropic.types.TextBlock(type="text", text="done")
    message = plain_message(
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [inner]}]}
    )
    assert result_text(message["content"][0]) == "done"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (7, "messages.3.: expected a message or block as a dict, found int"),
        ("hello", "found str"),
        ({"content": "hello"}, 'expected a \'role\' of "user" or "assistant", found None'),
        ({"role": "bot", "content": "hello"}, 'expected a role "user" or "assistant", found \'bot\''),
        ({"role": "", "content": "hello"}, 'expected a role "user" or "assistant", found \'\''),
        ({"role": "user"}, "expected 'content' to be text or a list of blocks, found NoneType"),
        ({"role": "user", "content": ["hello"]}, "messages.3., block 0: expected"),
        ({"role": "tool", "tool_call_id": "c", "content": "x"}, "role 'tool' is OpenAI's form: .*from_openai"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "'tool_calls' is OpenAI's form: .*from_openai"),
        (
            {"role": "user", "content": [text("a"), {"text": "b"}]},
            "messages.3., block 1: expected a block with a 'type'",
        ),
    ],
)
def test_what_is_no_message_is_refused_by_place(message, said):
    with pytest.raises(TranscriptError, match=said) as error:
        checked_message(message, "messages[3]")
    assert "\n" not in str(error.value)


@given(histories(), st.data())
def test_digest_does_not_see_cache_marks(messages, data):
    for message in messages:
        assert message_digest(marked(message, data)) == message_digest(message)


def marked(message, data):
    """`message` with cache marks on some of its blocks, those inside results included."""
    content = [{**block, **mark(data)} for block in blocks(message)]
    for block in content:
        if isinstance(block.get("content"), list):
            block["content"] = [{**inner, **mark(data)} for inner in block["content"]]
    return {**message, "content": content}


def mark(data):
    return data.draw(
        st.sampled_from([{}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}, {"cache_control": None}])
    )


@given(texts(surrogates=True), texts())
def test_digest_sees_every_change_of_text(one, other):
    first, second = ({"role": "user", "content": words} for words in (one, other))
    assert message_digest(first) != message_digest(second)
    assert message_digest(first) == message_digest({"role": "user", "content": [text(one)]})
    assert message_digest(first) != message_digest({"role": "assistant", "content": one})


LONG = 2**19
PIECES = ["ab+/", 'a"\\b\n', "\0", "0", '"\0000\0"', "ä界\U0001f600", "\ud83d", "\ude00"]


@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=3),
    st.lists(st.sampled_from(["\x000\x00", "a"])),
    st.booleans(),
)
def test_long_texts_in_pieces_are_the_same_json(parts, others, in_ascii):
    long = "".join(parts) * (LONG // len("".join(parts)) + 1)
    source = {"type": "base64", "data": long}
    result = {"type": "tool_result", "content": [{"type": "image", "source": source}, text(long), *map(text, others)]}
    message = {"role": "user", "content": [*map(text, others), result, {"type": "tool_use", "input": {"a": long}}]}
    for value in (message, {**message, "content": long}, {"messages": [message] * 2}, long, others):
        whole = json.dumps(value, ensure_ascii=in_ascii, sort_keys=True, separators=(",", ":"))
        assert "".join(json_pieces(value, ensure_ascii=in_ascii, sort_keys=True)) == whole


def test_a_digest_takes_no_copy_of_a_picture():
    source = {"type": "base64", "media_type": "image/png", "data": "ab+/" * 2**22}
    message = {"role": "user", "content": [{"type": "image", "source": source}]}
    tracemalloc.start()
    message_digest(message)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**22


def test_to_json_carries_lone_surrogates():
    assert to_json({"a": "\ud800"}) == '{"a":"\\ud800"}'


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ("plain", "plain"),
        (None, ""),
        ([text("a"), image(), text("b")], "a\nb"),
        (["a", "b"], "a\nb"),
        ([{"type": "search_result", "source": "https://x.org", "title": "T", "content": [text("c")]}], "T\nhttps://x.org\nc"),
        ([{"type": "web_search_result", "url": "https://x.org", "title": "T", "encrypted_content": "qq"}], "T\nhttps://x.org"),
        ({"type": "code_execution_result", "stdout": "1", "stderr": "2", "return_code": 0, "content": []}, "1\n2"),
        ({"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}, "max_uses_exceeded"),
        (
            {"type": "web_fetch_result", "url": "https://x.org",
             "content": {"type": "document", "title": "D", "source": {"type": "text", "data": "page"}}},
            "https://x.org\nD\npage",
        ),
    ],
)  # fmt: skip
def test_result_text_is_what_a_reader_sees(content, read):
    assert result_text({"type": "tool_result", "content": content}) == read == readable_text(content)


def test_a_message_loses_its_cache_marks_and_nothing_else():
    mark = {"type": "ephemeral"}
    result = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "text", "text": "b", "cache_control": mark}],
    }
    for content, plain in (
        ("hello", "hello"),
        ([{"type": "text", "text": "a", "cache_control": mark}], [{"type": "text", "text": "a"}]),
        ([result], [{**result, "content": [{"type": "text", "text": "b"}]}]),
    ):
        assert unmarked({"role": "user", "content": content, "cache_control": mark}) == {
            "role": "user",
            "content": plain,
        }
    own = {"role": "user", "content": "hello"}
    assert unmarked(own) is own
