"""What is written of a session log is a session log: chained, under an id of its own, and it reads as the view."""

import json
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from applier.adapters.transcripts import read_transcript, write_transcript
from planner.reading.messages import message_digest
from tests.transcripts.session_logs import ClaudeCodeLog, claude_code_logs, codex_logs

SESSION = "0b5c2f1e-0000-4000-8000-00000000abcd"
NOTE = '<compacted history="h1a2b3c4d" turns="t1-t3">\nWhat stood here.\n</compacted>'


@st.composite
def views(draw, messages):
    """What a plan may leave: a note in place of the first messages, joined to words of the user behind it."""
    assistants = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    if not assistants or draw(st.booleans()):
        return [{"role": "user", "content": [{"type": "text", "text": NOTE}]}]
    start = draw(st.sampled_from(assistants))
    return [{"role": "user", "content": [{"type": "text", "text": NOTE}]}, *messages[start:]]


def digests(messages):
    return [message_digest(message) for message in messages]


def written_lines(text):
    return [json.loads(line) for line in text.splitlines()]


@settings(max_examples=60)
@given(claude_code_logs(), st.data())
def test_a_view_of_a_claude_code_session_is_a_chained_log_of_its_own(pair, data):
    old = read_transcript(pair[1].text())
    view = data.draw(views(old.messages))
    text = write_transcript(view, old, session_id=SESSION)
    assert digests(read_transcript(text).messages) == digests(view)
    *lines, title = written_lines(text)
    assert [line["parentUuid"] for line in lines] == [None, *(line["uuid"] for line in lines[:-1])]
    assert title["leafUuid"] == lines[-1]["uuid"]
    assert {line["sessionId"] for line in lines} == {SESSION}
    assert len({UUID(line["uuid"]) for line in lines}) == len(lines)
    assert not any(f'"{line["uuid"]}"' in text for line in pair[1].lines if "uuid" in line)


@settings(max_examples=60)
@given(codex_logs(), st.data())
def test_a_view_of_a_codex_session_is_a_rollout_of_its_own(pair, data):
    old = read_transcript(pair[1])
    view = data.draw(views(old.messages))
    text = write_transcript(view, old, session_id=SESSION)
    new = read_transcript(text)
    assert (digests(new.messages), new.system) == (digests(view), "Be brief.")
    meta, *lines = written_lines(text)
    assert (meta["type"], meta["payload"]["id"]) == ("session_meta", SESSION)
    assert {line["type"] for line in lines} <= {"turn_context", "response_item", "event_msg"}
    assert [line["ordinal"] for line in (meta, *lines)] == list(range(len(lines) + 1))


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
KEPT = st.lists(st.sampled_from([{"type": "text", "text": "words"}, IMAGE]), max_size=3)


@given(codex_logs(), KEPT, KEPT)
@settings(max_examples=20)
def test_a_message_that_the_rollout_lacks_is_written_with_every_block_of_it(pair, beside, inside):
    """A note joined to words and pictures of the user; a result that was shortened, with a picture in it."""
    old = read_transcript(pair[1])
    note = {"type": "text", "text": NOTE}
    call = {"type": "tool_use", "id": "c", "name": "view_image", "input": {"path": "a.png"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [note, *inside]}
    view = [
        {"role": "user", "content": [note, *beside]},
        {"role": "assistant", "content": [{"type": "text", "text": "Looking."}, call]},
        {"role": "user", "content": [result]},
    ]
    assert digests(read_transcript(write_transcript(view, old, session_id=SESSION)).messages) == digests(view)


@given(claude_code_logs())
@settings(max_examples=20)
def test_the_same_view_gives_the_same_bytes(pair):
    old = read_transcript(pair[1].text())
    assert write_transcript(old.messages, old) == write_transcript(list(old.messages), old)


def session():
    """A call with what the client keeps beside its result for the screen, in a folder, at a version."""
    log = ClaudeCodeLog()
    where = {"cwd": "/w", "version": "2.1.0", "gitBranch": "main", "userType": "external"}
    log.user("list the files", **where)
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
    asked = log.assistant("msg_1", call, **where)
    log.lines[-1]["message"]["usage"] = {"input_tokens": 150_000, "cache_read_input_tokens": 10_000}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py"}
    log.user([result], toolUseResult={"stdout": "a.py"}, sourceToolAssistantUUID=asked, **where)
    return log


def test_lines_that_stay_keep_what_the_client_wrote_into_them():
    old = read_transcript(session().text())
    view = [{"role": "user", "content": NOTE}, *old.messages[1:]]
    note, asked, answered, _ = written_lines(write_transcript(view, old, session_id=SESSION))
    assert note["isCompactSummary"] is True
    assert (note["cwd"], note["version"], note["gitBranch"]) == ("/w", "2.1.0", "main")
    assert asked["message"]["id"] == "msg_1"
    assert answered["toolUseResult"] == {"stdout": "a.py"}
    assert answered["sourceToolAssistantUUID"] == asked["uuid"]


def test_the_size_the_client_reads_is_that_of_the_view():
    """It takes the newest usage for the size of its context; the old one would make it compact at once."""
    old = read_transcript(session().text())
    asked = written_lines(write_transcript(old.messages, old, session_id=SESSION))[1]
    assert 0 < asked["message"]["usage"]["input_tokens"] < 1_000
    assert asked["message"]["usage"]["cache_read_input_tokens"] == 0


def test_a_note_beside_words_of_the_user_is_a_summary_of_its_own_and_they_stay_theirs():
    old = read_transcript(session().text())
    texts = [{"type": "text", "text": text} for text in ("list the files", NOTE)]
    view = [{"role": "user", "content": texts}]
    text = write_transcript(view, old, session_id=SESSION)
    assert read_transcript(text).messages == view
    typed, note, _ = written_lines(text)
    assert [line["message"]["content"] for line in (typed, note)] == ["list the files", NOTE]
    assert [line.get("isVisibleInTranscriptOnly", False) for line in (typed, note)] == [False, True]


def test_a_rollout_shows_what_was_spoken_and_no_note_as_typed_by_the_person():
    """Lines as 0.169 writes them: events carry the thread and the turn."""
    start = {"type": "session_meta", "payload": {"id": "old", "session_id": "old", "history_mode": "paginated"}}
    tools = {"type": "response_item", "payload": {"type": "additional_tools", "role": "developer", "tools": []}}
    world = {"type": "world_state", "payload": {"full": True, "state": {"skills": {}}}}
    words = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list the files"}]}
    call = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "a.py"}
    typed = {"type": "UserMessage", "content": [{"type": "text", "text": "list the files"}]}
    events = [
        {"type": "task_started", "turn_id": "t"},
        {"type": "item_completed", "thread_id": "old", "turn_id": "t", "item": typed},
        {"type": "token_count", "info": {"last_token_usage": {"input_tokens": 200_000}}},
        {"type": "task_complete", "turn_id": "t"},
    ]
    items = [{"type": "response_item", "payload": item} for item in (words, call, output)]
    shown = [{"type": "event_msg", "payload": event} for event in events]
    old = read_transcript("".join(json.dumps(line) + "\n" for line in (start, tools, world, *items, *shown)))
    lines = written_lines(write_transcript([{"role": "user", "content": NOTE}], old, session_id=SESSION))
    kinds = ["session_meta", "response_item", "world_state", *["event_msg"] * 3, "response_item"]
    assert [line["type"] for line in lines] == kinds
    assert (lines[0]["payload"]["id"], lines[0]["payload"]["session_id"]) == (SESSION, SESSION)
    assert [line["payload"] for line in lines[1:3]] == [tools["payload"], world["payload"]]
    assert [line["payload"] for line in lines[3:6]] == [events[0], {**events[1], "thread_id": SESSION}, events[3]]


def test_a_changed_answer_gets_lines_of_the_same_form():
    old = read_transcript(session().text())
    call = old.messages[1]["content"][0]
    view = [old.messages[0], {"role": "assistant", "content": [{"type": "text", "text": "Looking."}, call]}]
    text = write_transcript([*view, old.messages[2]], old, session_id=SESSION)
    words, asked = written_lines(text)[1:3]
    assert words["message"]["id"] == asked["message"]["id"] != "msg_1"
    assert digests(read_transcript(text).messages) == digests([*view, old.messages[2]])
