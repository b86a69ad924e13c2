"""Message lists of any wrapping are read; what is no transcript is named with its place and what was expected."""

import json
import tracemalloc
from dataclasses import FrozenInstanceError

import pytest
from anthropic.types import Message as Response

from applier.adapters.transcripts import document, read_transcript
from planner.errors import TranscriptError
from planner.reading.messages import read_history

MESSAGES = [
    {"role": "user", "content": "fix the parser in a.py"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x = 1"}]},
]
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "fix the parser in a.py"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "x = 1"},
]  # fmt: skip


def jsonl(values):
    return "".join(json.dumps(value) + "\n" for value in values)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(MESSAGES),
        json.dumps(MESSAGES, indent=2),
        "\ufeff" + json.dumps({"messages": MESSAGES}),
        jsonl(MESSAGES),
        "\n" + jsonl(MESSAGES).replace("\n", "\r\n") + "\n",
        json.dumps([{"messages": MESSAGES, "id": 1}]),
        jsonl([{"messages": MESSAGES}, {"messages": []}]),
    ],
)
def test_anthropic_messages_in_any_wrapping(text, tmp_path):
    path = tmp_path / "no-telling-name.bin"
    path.write_bytes(text.encode())
    for source in (text, text.encode(), path, str(path)):
        transcript = read_transcript(source)
        assert transcript.messages == MESSAGES
        assert transcript.format.startswith("anthropic")
        assert (transcript.system, transcript.task) == (None, "fix the parser in a.py")


def test_what_stands_around_the_messages_is_kept():
    extra = {"system": [{"type": "text", "text": "Be brief."}], "tools": [{"name": "read"}], "task": "the parser"}
    transcript = read_transcript(json.dumps({**extra, "messages": MESSAGES}))
    assert (transcript.system, transcript.tools, transcript.task) == tuple(extra.values())


def test_python_lists_keep_their_very_messages():
    transcript = read_transcript(MESSAGES)
    assert all(a is b for a, b in zip(transcript.messages, MESSAGES, strict=True))
    assert read_transcript({"messages": MESSAGES, "system": "s"}).system == "s"
    assert read_transcript(tuple(MESSAGES)).messages == MESSAGES


def test_responses_of_the_sdk_are_read_as_people_append_them():
    response = Response.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": MESSAGES[1]["content"],
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )
    appended = [MESSAGES[0], {"role": "assistant", "content": response.content}, MESSAGES[2]]
    assert read_transcript(appended).messages == MESSAGES
    assert read_transcript([MESSAGES[0], response, MESSAGES[2]]).messages == MESSAGES


def test_chat_messages_are_told_by_their_content():
    for source in (CHAT, json.dumps(CHAT), jsonl(CHAT), json.dumps({"messages": CHAT, "model": "x"})):
        transcript = read_transcript(source)
        assert transcript.format in ("openai", "openai_jsonl")
        assert transcript.system == "Be brief."
        assert [m["role"] for m in transcript.messages] == ["user", "assistant", "user"]
        assert transcript.warnings == ()


def test_plain_words_alone_are_anthropic_unless_a_system_message_leads():
    plain = [{"role": "user", "content": "hello"}]
    assert read_transcript(plain).format == "anthropic"
    assert read_transcript([{"role": "system", "content": "s"}, *plain]).format == "openai"
    with_system = {"system": "s", "messages": [{"role": "system", "content": "mid"}, *plain]}
    assert read_transcript(with_system).format == "anthropic"


def test_one_of_several_conversations_can_be_named():
    text = json.dumps([{"messages": [{"role": "user", "content": words}]} for words in ("one", "two", "three")])
    first = read_transcript(text)
    assert first.messages[0]["content"] == "one"
    assert first.warnings == ("text: holds 3 conversations; this is the first (part=0 to 2)",)
    assert read_transcript(text, part=1).messages[0]["content"] == "two"
    assert read_transcript(text, part=-1).warnings == ()
    with pytest.raises(TranscriptError, match="no part 3"):
        read_transcript(text, part=3)


def test_pairs_that_do_not_match_are_reported_and_left_as_they_are():
    transcript = read_transcript([MESSAGES[0], MESSAGES[1], MESSAGES[0], MESSAGES[2]])
    assert len(transcript.messages) == 4
    assert transcript.warnings == ("input, messages[3]: a result after other content",)
    middle = read_transcript([*CHAT[:2], CHAT[0], *CHAT[2:]])
    assert middle.warnings == ("input, messages[2]: a system message inside the conversation stays where it is",)


def test_unknown_blocks_odd_text_and_other_fields_pass_through():
    messages = [
        {"role": "user", "content": [{"type": "hologram", "data": [1]}, {"type": "text", "text": "\ud83d"}]},
        {"role": "assistant", "content": "hi", "timestamp": "2026-01-01T00:00:01Z"},
    ]
    assert read_transcript(json.dumps(messages)).messages == messages


def test_a_file_over_the_bound_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(document, "MAX_MEGABYTES", 1)
    path = tmp_path / "long.jsonl"
    path.write_text(jsonl([{"role": "user", "content": "x" * 400_000}] * 4))
    with pytest.raises(TranscriptError, match=r"long.jsonl: more than 1 MB"):
        read_transcript(path)


def test_reading_holds_a_few_times_the_file(tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_text(jsonl([{"role": "user", "content": f"{number} " + "x" * 100_000} for number in range(40)]))
    tracemalloc.start()
    read_transcript(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * path.stat().st_size


def test_ten_megabytes_on_one_line_are_read():
    long = [*MESSAGES[:2], {"role": "user", "content": [{**MESSAGES[2]["content"][0], "content": "é x\\" * 2_500_000}]}]
    transcript = read_transcript(json.dumps(long))
    assert len(read_history(transcript.messages).turns) == 2
    assert len(transcript.messages[2]["content"][0]["content"]) == 10_000_000


def test_no_message_at_all_is_an_empty_transcript():
    assert read_transcript("[]").messages == []
    assert read_transcript({"messages": []}).task == ""


def test_a_transcript_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        read_transcript(MESSAGES).task = "other"


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "empty"),
        (b" \n ", "empty"),
        (b'{"messages": [{"role": "user", "cont', "line 1, column 32: the JSON breaks off here"),
        (b'{\n "messages": [\n', "line 3, column 1: the JSON breaks off here"),
        (b'[{"role": "user", "content": "x"},,]', "column 35: not JSON"),
        (b'[{"role": "user", "content": "\xe9"}]', "line 1: byte 0xe9 at offset 30 is not UTF-8"),
        ('[{"role": "user"}]'.encode("utf-16"), "UTF-16"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "line 1: byte 0x89 at offset 0 is not UTF-8"),
        (b"SQLite format 3\0", "line 1, column 1: not JSON"),
        (b"just words\nand more", "line 1, column 1: not JSON"),
        (b"7", "found int '7'"),
        (b'"words"', "found str 'words'"),
        (b"[1, 2]", "found list '[1, 2]'"),
        (b'{"a": 1, "b": 2}', "found an object with 'a', 'b'"),
        (b'{"messages": "none"}', "messages: expected a list of messages, found str"),
        (b'{"messages": [], "system": 5}', "'system' to be text or a list of blocks, found int"),
        (b'[{"content": "x"}]', "messages[0]: expected a 'role'"),
        (b'[{"role": "user", "content": "x"}, {"role": "robot", "content": "x"}]', "messages[1]"),
        (
            b'[{"role": "user", "content": 5}]',
            "messages[0]: expected 'content' to be text or a list of blocks, found int",
        ),
        (b'[{"role": "user", "content": ["x"]}]', "messages[0], block 0"),
        (b'[{"role": "user", "content": [{"text": "x"}]}]', "messages[0], block 0: expected a block with a 'type'"),
        (b'[{"role": "user", "content": "x"}, 5]', "messages[1]: expected a message"),
        (b'{"role": "user", "content": "x"}\n{"role": "user", "content": 5}', "line 2: expected 'content'"),
        (b'{"role": "user", "content": "x"}\n{"role": "us', "line 2, column 10: the JSON breaks off here"),
        (b'{"role": "user", "content": "x"}\n{]\n{"role": "user", "content": "x"}', "line 2, column 2: not JSON"),
        (b'[{"messages": [{"role": "tool", "content": "x"}]}]', "[0].messages[0]: tool_call_id"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"role": "user", "content": "x"}\n{"a": ' + b"[" * 250 + b"]" * 250 + b"}\n{}", "line 2: nested too deeply"),
        (b'{"role": "user", "content": "x"}\n{"timestamp": ' + b"9" * 5_000 + b"}\n{}", "line 2: not JSON that can"),
        (
            b'{\n"a": 1\n}\n{\n"a": 2\n}',
            "line 4, column 1: not JSON (extra data",
        ),
    ],
)
def test_what_is_no_transcript_is_told_by_file_and_place(raw, told, tmp_path):
    path = tmp_path / "session.json"
    path.write_bytes(raw)
    with pytest.raises(TranscriptError) as caught:
        read_transcript(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert told in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "told"), [("", "a directory; expected a transcript file"), ("gone.json", "No such file")]
)
def test_files_that_cannot_be_opened(name, told, tmp_path):
    with pytest.raises(TranscriptError, match=told):
        read_transcript(tmp_path / name)


@pytest.mark.parametrize("source", ["", 5, None, [MESSAGES[0], object()], "x" * 5000, "a\0b"])
def test_arguments_that_are_no_source(source):
    with pytest.raises(TranscriptError) as caught:
        read_transcript(source)
    assert len(str(caught.value)) < 400
