"""A damaged log is read but for its damage, which is reported; a session that lost a result or a call is mended."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier import apply
from applier.adapters.transcripts import read_transcript, write_transcript
from planner import plan_compaction
from planner.errors import TranscriptError
from planner.reading.messages import blocks
from planner.validity import LOST_RESULT, answer_calls, check_messages
from tests.strategies import answered_histories
from tests.transcripts.session_logs import claude_code_logs, codex_logs

TORN = ("\0" * 40, '{"type": "assistant", "mess', "garbage", '{"a": 1}}', "[1, 2")
LOGS = st.one_of(claude_code_logs().map(lambda made: made[1].text()), codex_logs().map(lambda made: made[1]))


def copilot(words):
    """A log of Copilot CLI in which the agent runs a command after each of the user's words."""
    events = [("session.start", {"sessionId": "s"})]
    for number, text in enumerate(words):
        call = {"toolCallId": f"c{number}", "name": "bash", "arguments": {"command": "ls"}}
        events.append(("user.message", {"content": text}))
        events.append(("assistant.message", {"content": f"step {number}", "toolRequests": [call]}))
        done = {"toolCallId": f"c{number}", "success": True, "result": {"content": "a.py\nb.py"}}
        events.append(("tool.execution_complete", done))
    return "".join(
        json.dumps({"type": kind, "data": data, "id": str(at)}) + "\n" for at, (kind, data) in enumerate(events)
    )


@given(data=st.data(), log=LOGS)
def test_lines_that_hold_no_record_change_nothing_but_the_warnings(data, log):
    lines = log.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        lines.insert(data.draw(st.integers(0, len(lines))), data.draw(st.sampled_from(TORN)))
    damaged = read_transcript("\n".join(lines) + "\n")
    assert damaged.messages == read_transcript(log).messages
    assert any("left out" in warning for warning in damaged.warnings)


@given(data=st.data(), log=LOGS)
def test_a_record_behind_a_torn_one_on_the_same_line_is_read(data, log):
    lines = log.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        torn = json.dumps({"type": "assistant", "data": {"a": {"b": 1}}, "text": "cut {here}"})
        lines[at] = torn[: data.draw(st.integers(1, len(torn) - 2))] + lines[at]
    assert read_transcript("\n".join(lines) + "\n").messages == read_transcript(log).messages


@given(data=st.data(), log=LOGS)
def test_records_that_share_a_line_are_all_read(data, log):
    lines = log.splitlines()
    at = data.draw(st.integers(1, len(lines) - 1))
    glued = [*lines[:at], "".join(lines[at : at + 3]), *lines[at + 3 :]]
    assert read_transcript("\n".join(glued) + "\n").messages == read_transcript(log).messages


def test_a_text_with_line_ends_as_they_are_is_one_record():
    log = copilot(["Fix the parser.", "Never touch the lexer."])
    assert read_transcript(log.replace("a.py\\nb.py", "a.py\nb.py")).messages == read_transcript(log).messages


@pytest.mark.parametrize("tail", ["\0" * 300, "\0" * 300 + "\n", '{"type": "assistant.mess'])
def test_the_end_of_a_log_may_be_torn(tail):
    log = copilot(["Fix the parser.", "Go on."])
    damaged = read_transcript(log + tail)
    assert damaged.messages == read_transcript(log).messages
    assert any("left out" in warning for warning in damaged.warnings)


def test_a_byte_that_is_not_utf8_costs_no_more_than_itself():
    log = copilot(["Fix the parser.", "Go on now."]).encode().replace(b"step 1", b"step \xff")
    read = read_transcript(log)
    assert len(read.messages) == 6
    assert any("0xff" in warning for warning in read.warnings)


def test_a_damaged_list_of_messages_that_would_be_written_back_is_refused():
    lines = [json.dumps({"role": "user", "content": str(number)}) for number in range(4)]
    lines[2] = lines[2][:-3]
    with pytest.raises(TranscriptError, match="line 3"):
        read_transcript("\n".join(lines))


def wrong_in(messages, *more):
    """What the API refuses about calls and results."""
    codes = ("unanswered_call", "uncalled_result", "late_result", "call_role", *more)
    return [violation for violation in check_messages(messages) if violation.code in codes]


@given(data=st.data(), messages=answered_histories())
def test_a_list_that_lost_any_of_its_blocks_is_mended_with_notes(data, messages):
    lost = [{**one, "content": [block for block in blocks(one) if data.draw(st.integers(0, 4))]} for one in messages]
    lost = [one for one in lost if one["content"]]
    mended = answer_calls(lost)
    assert wrong_in(mended) == []
    kept = [block for one in lost for block in blocks(one) if block["type"] != "tool_result"]
    assert [block for one in mended for block in blocks(one) if block in kept] == kept
    assert answer_calls(mended) == mended
    if not wrong_in(lost):
        assert all(one is other for one, other in zip(mended, lost, strict=True))


@given(data=st.data(), messages=answered_histories())
def test_repeated_calls_and_results_in_the_assistants_messages_are_mended(data, messages):
    damaged = list[dict]()
    for one in messages:
        damaged += [one] * data.draw(st.sampled_from([1, 1, 2]))
        if one["role"] == "user" and data.draw(st.booleans()):
            results = [block for block in blocks(one) if block["type"] == "tool_result"]
            damaged += [{"role": "assistant", "content": results}] if results else []
    mended = answer_calls(damaged)
    assert wrong_in(mended, "repeated_call", "repeated_result") == []
    texts = [block for one in damaged for block in blocks(one) if block["type"] not in ("tool_use", "tool_result")]
    assert [block for one in mended for block in blocks(one) if block in texts] == texts
    assert answer_calls(mended) == mended


def test_a_repeated_call_keeps_its_own_result():
    call = {"type": "tool_use", "id": "c", "name": "read", "input": {}}
    rounds = [
        ({"role": "assistant", "content": [call]}, {"role": role, "content": [result]})
        for role, text in (("user", "first"), ("assistant", "second"))
        for result in [{"type": "tool_result", "tool_use_id": "c", "content": text}]
    ]
    mended = answer_calls([{"role": "user", "content": "Go."}, *rounds[0], *rounds[1]])
    assert [block["id"] for block in (*mended[1]["content"], *mended[3]["content"])] == ["c", "c_2"]
    assert mended[4] == {"role": "user", "content": [{**rounds[1][1]["content"][0], "tool_use_id": "c_2"}]}


@settings(max_examples=25)
@given(data=st.data(), log=LOGS)
def test_a_session_that_lost_lines_is_read_and_resumed_as_a_list_that_the_api_takes(data, log, tmp_path_factory):
    lines = log.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        lines.pop(data.draw(st.integers(0, len(lines) - 1)))
    try:
        read = read_transcript("\n".join(lines) + "\n")
    except TranscriptError:
        return  # nothing was said in what is left
    assert wrong_in(answer_calls(read.messages)) == []
    plan = plan_compaction(read.messages, "go on", planner="rules")
    view = apply(plan, read.messages, store=tmp_path_factory.mktemp("s") / "s.db")
    again = read_transcript(write_transcript(view, read))
    assert wrong_in(again.messages) == []


def test_a_lost_result_is_named_and_noted():
    log = copilot(["Fix the parser.", "Go on."]).splitlines()
    del log[3]
    read = read_transcript("\n".join(log) + "\n")
    assert LOST_RESULT in str(read.messages)
    assert any("call c0 has no result; a note replaces it" in warning for warning in read.warnings)
