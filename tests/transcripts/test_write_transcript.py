"""What is written back is the file it was read from, with the messages replaced and nothing else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.adapters.transcripts import read_transcript, write_transcript
from tests.transcripts.chat_strategies import histories
from tests.transcripts.session_logs import conversations


@settings(max_examples=40)
@given(conversations() | histories(), st.integers(0, 3))
def test_unchanged_messages_give_the_same_file_back(messages, wrapping):
    around = {"id": "größe", "messages": messages, "after": [1]}
    value = [messages, around, [around, {"messages": []}], [{"messages": []}, around]][wrapping]
    transcript = read_transcript(json.dumps(value), part=1 if wrapping == 3 else None)
    assert json.loads(write_transcript(transcript.messages, transcript)) == value


@settings(max_examples=40)
@given(conversations())
def test_a_file_keeps_its_letters(messages):
    text = json.dumps({"id": "größe", "messages": messages}, indent=2, ensure_ascii=False) + "\n"
    transcript = read_transcript(text)
    assert write_transcript(transcript.messages, transcript) == text


@settings(max_examples=30)
@given(conversations() | histories().filter(bool))
def test_jsonl_comes_back_line_by_line(messages):
    text = "".join(json.dumps(message) + "\n" for message in messages)
    transcript = read_transcript(text)
    assert transcript.format.endswith("jsonl")
    written = write_transcript(transcript.messages, transcript)
    assert [json.loads(line) for line in written.split("\n")[:-1]] == messages


def test_the_system_message_of_a_chat_stands_first_again():
    chat = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "one", "name": "ann"},
        {"role": "assistant", "content": "two"},
    ]
    transcript = read_transcript(chat)
    view = [{"role": "user", "content": "a note"}, transcript.messages[-1]]
    assert json.loads(write_transcript(view, transcript)) == [chat[0], {"role": "user", "content": "a note"}, chat[2]]


def test_only_the_conversation_that_was_read_is_replaced():
    records = [{"messages": [{"role": "user", "content": words}], "task_id": words} for words in ("one", "two")]
    transcript = read_transcript(json.dumps(records), part=1)
    written = json.loads(write_transcript([{"role": "user", "content": "short"}], transcript))
    assert written == [records[0], {"messages": [{"role": "user", "content": "short"}], "task_id": "two"}]
    assert records[1]["messages"][0]["content"] == "two"


@pytest.mark.parametrize("text", ["\ud83d alone", "é"])
def test_every_text_can_be_written(text):
    transcript = read_transcript([{"role": "user", "content": text}])
    written = write_transcript(transcript.messages, transcript)
    assert json.loads(written.encode()) == transcript.messages
