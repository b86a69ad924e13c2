"""The transcripts that are kept happened: they can be played again, are valid, and show no machine."""

import json
import re
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from planner.reading.messages import blocks, read_history
from planner.validity import check_messages
from tests.example.record import RECORDINGS, record


def kept(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_kept_transcripts_are_valid_and_begin_with_their_task(path):
    transcript = kept(path)
    asked = transcript["messages"][:-1]  # the last is an answer
    assert check_messages(asked) == []
    assert transcript["messages"][0] == {"role": "user", "content": transcript["task"]}
    assert transcript["messages"][-1]["role"] == "assistant"


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_kept_transcripts_show_no_machine(path):
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 500_000
    assert not re.search(r"(?<![\w.])/(root|home|tmp|opt|work|Users|private|var)/", text)


@pytest.mark.real
@pytest.mark.parametrize("folder", ["failing", "service"])
def test_what_was_recorded_happens_again(folder):
    path, (story, rounds) = next((p, s) for p, s in RECORDINGS.items() if s[0].name == folder)
    again, before = record(story, rounds, most_messages=10), kept(path)["messages"]
    if sys.version_info[:2] == (3, 11):  # tracebacks look different in others
        assert again == before[: len(again)]
    assert [calls(message) for message in again] == [calls(message) for message in before[: len(again)]]


def calls(message: dict) -> list[dict]:
    return [block for block in blocks(message) if block["type"] == "tool_use"]


def test_the_demo_transcript_is_long_and_holds_what_the_demo_is_about():
    transcript = json.loads(files("applier.eval").joinpath("transcript.json").read_text(encoding="utf-8"))
    history = read_history(transcript["messages"])
    results = [b for m in history.messages for b in blocks(m) if b["type"] == "tool_result"]
    assert 150 <= len(history.turns) <= 250
    assert sum(bool(block.get("is_error")) for block in results) >= 12
    assert sum("the user said:" in block["content"] for block in results) >= 2
    assert any(len(block["content"]) > 8_000 and "\n" not in block["content"] for block in results)
