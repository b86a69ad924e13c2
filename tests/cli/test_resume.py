"""`resume`: a compacted session beside the old one, which stays as it was."""

import json
import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from applier.adapters.transcripts import client_file, client_finds, read_transcript
from planner.validity import check_messages
from tests.transcripts.session_logs import ClaudeCodeLog


@pytest.fixture
def session(folder):
    log = ClaudeCodeLog()
    log.user("rename the module parser to reader", cwd="/w/my.app", version="2.1.0")
    for number in range(30):
        key = f"toolu_{number}"
        call = {"type": "tool_use", "id": key, "name": "Read", "input": {"file_path": f"/w/my.app/part{number}.py"}}
        log.assistant(f"msg_{number}", call, cwd="/w/my.app")
        log.user([{"type": "tool_result", "tool_use_id": key, "content": f"value = {number}\n" * 150}], cwd="/w/my.app")
    path = folder / "old.jsonl"
    path.write_text(log.text())
    return path


def test_compacted_session_stands_beside_the_old_one(compactor, session, folder):
    before = session.read_bytes()
    ran = compactor("resume", session, "--planner", "rules", "--json")
    assert ran.code == 0, ran.err
    path = Path(ran.json["file"])
    assert (path.parent, path.stem) == (folder, ran.json["session_id"])
    assert ran.json["resume"].endswith(f" && cd /w/my.app && claude --resume {path.stem}")
    assert session.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    view = read_transcript(path)
    assert check_messages(view.messages) == []
    assert path.stat().st_size < len(before) / 2
    assert compactor("undo", path, "-o", "whole.jsonl").code == 0
    assert read_transcript(folder / "whole.jsonl").messages == read_transcript(session).messages


def test_dry_run_and_nothing_to_do_write_nothing(compactor, session, folder):
    assert "would become" in compactor("resume", session, "--planner", "rules", "--dry-run").out
    ran = compactor("resume", session, "--planner", "rules", "--target-ratio", 1)
    assert (ran.code, "Nothing to compact" in ran.out) == (0, True)
    assert list(folder.iterdir()) == [session]


def test_session_is_written_where_the_client_looks(compactor, session, folder, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder / "client"))
    told = compactor("resume", session, "--planner", "rules", "--in-client", "--json").json
    place = Path(told["file"])
    assert told["resume"] == f"cd /w/my.app && claude --resume {place.stem}"
    assert place.parent == folder / "client" / "projects" / "-w-my-app"
    assert place.is_file()
    assert stat.S_IMODE((folder / "client").stat().st_mode) == 0o700


def test_where_the_client_does_not_look_it_is_told_to_be_put_there(compactor, session, folder, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder / "client"))
    ran = compactor("resume", session, "--planner", "rules", "-o", "new.jsonl", "--json")
    place = folder / "client" / "projects" / "-w-my-app" / f"{ran.json['session_id']}.jsonl"
    command = ran.json["resume"]
    assert f"cp new.jsonl {place} && cd /w/my.app && claude --resume {place.stem}" in command
    subprocess.run(["bash", "-c", command.partition(" && cd ")[0]], check=True)
    assert place.read_bytes() == (folder / "new.jsonl").read_bytes()
    again = compactor("resume", place, "--planner", "rules", "--target-ratio", "0.5", "--json")
    assert "cp " not in again.json["resume"], "beside a session of the client's own it is found"


def test_a_rollout_is_found_anywhere_below_the_sessions(tmp_path):
    text = json.dumps({"type": "session_meta", "payload": {"id": "s", "cwd": "/w"}}) + "\n"
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    read = read_transcript(text + json.dumps({"type": "response_item", "payload": item}) + "\n")
    session_id = "0b5c0b5c-0000-4000-8000-000000000001"
    in_place = client_file(read, session_id, datetime(2026, 1, 2, tzinfo=UTC), {"CODEX_HOME": str(tmp_path)})
    older = tmp_path / "sessions" / "2025" / "11" / "30" / in_place.name
    assert client_finds(read, older, in_place)
    assert not client_finds(read, older.with_name("other.jsonl"), in_place)
    assert not client_finds(read, tmp_path / in_place.name, in_place)


def test_rollouts_have_their_own_place(tmp_path):
    text = json.dumps({"type": "session_meta", "payload": {"id": "s", "cwd": "/w"}}) + "\n"
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    read = read_transcript(text + json.dumps({"type": "response_item", "payload": item}) + "\n")
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    place = client_file(read, "0b5c", now, {"CODEX_HOME": str(tmp_path)})
    assert place == tmp_path / "sessions/2026/01/02/rollout-2026-01-02T03-04-05-0b5c.jsonl"


def test_a_session_is_never_overwritten(compactor, session, folder):
    ran = compactor("resume", session, "--planner", "rules", "-o", session)
    assert (ran.code, "never overwritten" in ran.err) == (2, True)


def test_message_lists_are_no_sessions(compactor, transcript):
    ran = compactor("resume", transcript)
    assert (ran.code, "expected a session log" in ran.err) == (1, True)


def test_apply_writes_a_session_log_of_its_own(compactor, session, folder):
    assert compactor("plan", session, "--planner", "rules", "-o", "plan.json").code == 0
    assert compactor("apply", "plan.json", session, "-o", "view.jsonl").code == 0
    view = read_transcript(folder / "view.jsonl")
    assert view.format == "claude_code"
    ids = {json.loads(line).get("sessionId") for line in (folder / "view.jsonl").read_text().splitlines()}
    assert "s" not in ids
