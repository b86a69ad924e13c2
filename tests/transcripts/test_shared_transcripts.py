"""Every transcript beside the repository reads, and comes back as it was. Skipped where there are none."""

import json
from pathlib import Path

import pytest

from applier.adapters.transcripts import read_transcript, write_transcript
from planner.reading.messages import read_history

SHARED = Path(__file__).parents[3] / "shared"
LISTS = sorted((SHARED / "transcripts").glob("*.json"))
RAW = sorted((SHARED / "transcripts_raw").glob("*.json*"))

pytestmark = pytest.mark.skipif(not LISTS, reason="no ../shared/transcripts")


def test_message_lists_read_without_a_warning_and_come_back():
    for path in LISTS:
        transcript = read_transcript(path)
        assert (transcript.format, transcript.warnings) == ("anthropic", ()), path.name
        assert transcript.task == json.loads(path.read_bytes())["task"]
        assert json.loads(write_transcript(transcript.messages, transcript)) == json.loads(path.read_bytes())


def test_raw_logs_read_with_every_call_paired():
    formats = set()
    for path in RAW:
        transcript = read_transcript(path)
        formats.add(transcript.format)
        open_calls = [
            warning
            for warning in transcript.warnings
            if "does not call" in warning or ("no result" in warning and not warning.endswith("for it is the last"))
        ]
        assert open_calls == [], path.name
        assert transcript.task
        assert len(transcript.messages) > 20
        kinds = [turn.kind for turn in read_history(transcript.messages).turns]
        assert kinds[0] == "user"
        assert "other" not in kinds
    assert formats == {"claude_code", "codex", "openai"}


def test_every_conversation_of_a_chat_file_comes_back_exactly():
    for path in (path for path in RAW if path.suffix == ".json"):
        held = json.loads(path.read_bytes())
        for part in range(len(held)):
            transcript = read_transcript(path, part=part)
            assert json.loads(write_transcript(transcript.messages, transcript)) == held
