"""`resume`: a compacted session beside the old one, which stays as it was."""

import json
import os
import re
import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from applier.adapters.transcripts import read_transcript
from planner.validity import check_messages
from tests.transcripts.session_logs import ClaudeCodeLog

CALLS, LINES = 12, 40
"""Calls of a session, and lines of each result."""
RULES = ("--planner", "rules", "--target-ratio", "0.3")


@pytest.fixture
def session(folder):
    log = ClaudeCodeLog()
    log.user("rename the module parser to reader", cwd="/w/my.app", version="2.1.0")
    for number in range(CALLS):
        key = f"toolu_{number}"
        call = {"type": "tool_use", "id": key, "name": "Read", "input": {"file_path": f"/w/my.app/part{number}.py"}}
        log.assistant(f"msg_{number}", call, cwd="/w/my.app")
        log.user(
            [{"type": "tool_result", "tool_use_id": key, "content": f"value = {number}\n" * LINES}], cwd="/w/my.app"
        )
    path = folder / "old.jsonl"
    path.write_text(log.text())
    return path


def test_compacted_session_stands_beside_the_old_one(compactor, session, folder):
    before = session.read_bytes()
    ran = compactor("resume", session, *RULES, "--json")
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
    assert "would become" in compactor("resume", session, *RULES, "--dry-run").out
    ran = compactor("resume", session, "--planner", "rules", "--target-ratio", 1)
    assert (ran.code, "Nothing to compact" in ran.out) == (0, True)
    assert list(folder.iterdir()) == [session]


def test_session_is_written_where_the_client_looks(compactor, session, folder, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder / "client"))
    told = compactor("resume", session, *RULES, "--in-client", "--json").json
    place = Path(told["file"])
    assert told["resume"] == f"cd /w/my.app && claude --resume {place.stem}"
    assert place.parent == folder / "client" / "projects" / "-w-my-app"
    assert place.is_file()
    assert stat.S_IMODE((folder / "client").stat().st_mode) == 0o700


def test_last_is_the_newest_session_and_never_an_own_result_unless_the_client_resumed_it(
    compactor, session, folder, monkeypatch
):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder / "client"))
    here = read_transcript(session).client.log_folder(str(Path.cwd()), datetime.now(UTC), os.environ)
    place = here / "11111111-1111-4111-8111-111111111111.jsonl"
    here.mkdir(parents=True)
    place.write_text(session.read_text().replace("/w/my.app", str(folder)))
    os.utime(place, (1e9, 1e9))
    command = ("resume", "last", *RULES, "--in-client", "--json")
    first = compactor(*command).json
    assert first["session"] == str(place)
    again = compactor(*command).json
    assert (again["session"], again["written"]) == (str(place), True)
    os.utime(first["file"], (4e9, 4e9))  # the client has appended to it
    assert compactor(*command).json["session"] == first["file"]


@pytest.mark.real
def test_where_the_client_does_not_look_it_is_told_to_be_put_there(compactor, session, folder, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder / "client"))
    ran = compactor("resume", session, *RULES, "-o", "new.jsonl", "--json")
    place = folder / "client" / "projects" / "-w-my-app" / f"{ran.json['session_id']}.jsonl"
    command = ran.json["resume"]
    assert f"cp new.jsonl {place} && cd /w/my.app && claude --resume {place.stem}" in command
    subprocess.run(["bash", "-c", command.partition(" && cd ")[0]], check=True)
    assert place.read_bytes() == (folder / "new.jsonl").read_bytes()
    again = compactor("resume", place, "--planner", "rules", "--target-ratio", "0.5", "--json")
    assert "cp " not in again.json["resume"], "beside a session of the client's own it is found"


def rollout(folder):
    """A rollout of Codex below `folder`, long enough to be compacted."""
    lines = [{"type": "session_meta", "payload": {"id": "s", "cwd": "/w", "history_mode": "paginated"}}]
    text = {"type": "input_text", "text": "rename the module parser to reader"}
    lines.append({"type": "response_item", "payload": {"type": "message", "role": "user", "content": [text]}})
    for number in range(CALLS):
        call = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": f"c{number}"}
        output = {"type": "function_call_output", "call_id": f"c{number}", "output": f"value = {number}\n" * LINES}
        lines += [{"type": "response_item", "payload": item} for item in (call, output)]
    path = folder / "rollout-old.jsonl"
    path.write_text("".join(json.dumps({"ordinal": at, **line}) + "\n" for at, line in enumerate(lines)))
    return path


def test_a_rollout_goes_below_the_sessions_of_the_day_with_every_line_numbered(compactor, folder, monkeypatch):
    monkeypatch.setenv("CODEX_HOME", str(folder / "codex"))
    ran = compactor("resume", rollout(folder), *RULES, "--in-client", "--json")
    place = Path(ran.json["file"])
    name = str(place.relative_to(folder / "codex" / "sessions"))
    assert re.fullmatch(rf"\d{{4}}/\d\d/\d\d/rollout-[\dT-]+-{ran.json['session_id']}\.jsonl", name)
    assert ran.json["resume"] == f"cd /w && codex resume {ran.json['session_id']}"
    lines = [json.loads(line) for line in place.read_text().splitlines()]
    assert [line["ordinal"] for line in lines] == list(range(len(lines)))


def test_a_rollout_is_found_anywhere_below_the_sessions(tmp_path):
    client = read_transcript(rollout(tmp_path)).client
    name = client.log_name("0b5c0b5c-0000-4000-8000-000000000001", datetime(2026, 1, 2, tzinfo=UTC))
    in_place = client.log_folder("/w", datetime(2026, 1, 2, tzinfo=UTC), {"CODEX_HOME": str(tmp_path)}) / name
    older = tmp_path / "sessions" / "2025" / "11" / "30" / name
    assert client.finds(older, in_place)
    assert not client.finds(older.with_name("other.jsonl"), in_place)
    assert not client.finds(tmp_path / name, in_place)


def test_a_session_is_found_by_its_id_or_as_the_last_one_of_this_folder(compactor, session, folder, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(folder / "codex"))
    number = "0b5c0b5c-0000-4000-8000-00000000000{}".format
    here = read_transcript(session).client.log_folder(str(Path.cwd()), datetime.now(UTC), os.environ)
    day = folder / "codex" / "sessions" / "2026" / "01" / "02"
    for place in (here, here.with_name("-elsewhere"), day):
        place.mkdir(parents=True)
    newest = rollout(day)
    newest = newest.rename(day / f"rollout-2026-01-02T00-00-00-{number(4)}.jsonl")
    logs = [
        here / f"{number(1)}.jsonl",
        here / f"{number(2)}.jsonl",
        here.with_name("-elsewhere") / f"{number(3)}.jsonl",
    ]
    for at, log in enumerate(logs):
        log.write_bytes(session.read_bytes())
        os.utime(log, (at, at))
    (here / "agent-1.jsonl").write_bytes(session.read_bytes())
    found = {name: _taken(compactor, name) for name in ("last", number(3), number(4))}
    assert found == {"last": str(logs[1]), number(3): str(logs[2]), number(4): str(newest)}
    newest.write_text(newest.read_text().replace('"/w"', json.dumps(str(Path.cwd()))))
    assert _taken(compactor, "last") == str(newest)
    missing = compactor("resume", number(9), *RULES)
    assert (missing.code, "no session that the clients keep has this id" in missing.err) == (2, True)


def _taken(compactor, name):
    return compactor("resume", name, *RULES, "--dry-run", "--json").json["session"]


def test_a_session_is_never_overwritten(compactor, session, folder):
    ran = compactor("resume", session, *RULES, "-o", session)
    assert (ran.code, "never overwritten" in ran.err) == (2, True)


def test_message_lists_are_no_sessions(compactor, transcript):
    ran = compactor("resume", transcript)
    assert (ran.code, "expected a session log" in ran.err) == (1, True)


def test_apply_writes_a_session_log_of_its_own(compactor, session, folder):
    assert compactor("plan", session, *RULES, "-o", "plan.json").code == 0
    assert compactor("apply", "plan.json", session, "-o", "view.jsonl").code == 0
    view = read_transcript(folder / "view.jsonl")
    assert view.format == "claude_code"
    ids = {json.loads(line).get("sessionId") for line in (folder / "view.jsonl").read_text().splitlines()}
    assert "s" not in ids
    (new,) = ids - {None}
    assert "view.jsonl" in compactor("log", "--session", new).out
