"""Claude Code session logs: one line per block becomes the conversation the model had."""

import json
import re

import pytest
from hypothesis import given, settings

from applier.adapters.transcripts import read_transcript, write_transcript
from planner.errors import TranscriptError
from planner.evidence.hosts import own_words
from planner.reading.lines import turn_lines
from planner.reading.messages import read_history
from planner.validity import LOST_RESULT
from tests.transcripts.session_logs import ClaudeCodeLog, claude_code_logs


def text(words):
    return {"type": "text", "text": words}


def call(key, **arguments):
    return {"type": "tool_use", "id": key, "name": "Bash", "input": arguments}


def result(key, content="done"):
    return {"type": "tool_result", "tool_use_id": key, "content": content}


def spoken(transcript):
    """The texts of a transcript, in order."""
    contents = [m["content"] for m in transcript.messages]
    return [t for c in contents for t in ([c] if isinstance(c, str) else [b["text"] for b in c if "text" in b])]


@settings(max_examples=60)
@given(claude_code_logs())
def test_a_log_reads_as_the_conversation_it_was_written_of(pair):
    messages, log = pair
    transcript = read_transcript(log.text())
    assert transcript.messages == messages
    assert transcript.format == "claude_code"


@settings(max_examples=40)
@given(claude_code_logs())
def test_what_is_written_back_reads_as_the_same_messages(pair):
    transcript = read_transcript(pair[1].text())
    again = read_transcript(write_transcript(transcript.messages, transcript))
    assert (again.messages, again.task, again.format) == (transcript.messages, transcript.task, "claude_code")


def test_results_logged_in_the_middle_of_an_answer_are_one_message_behind_it():
    log = ClaudeCodeLog()
    log.user("look at both files")
    log.assistant("msg_1", call("toolu_a", path="a"))
    log.user([result("toolu_a")])
    log.assistant("msg_1", call("toolu_b", path="b"))
    log.user([result("toolu_b")])
    transcript = read_transcript(log.text())
    assert [m["role"] for m in transcript.messages] == ["user", "assistant", "user"]
    assert transcript.messages[2]["content"] == [result("toolu_a"), result("toolu_b")]
    assert transcript.source["lines"] == ((1,), (2, 4), (3, 5))
    assert transcript.warnings == ()


def test_a_left_branch_and_a_subagent_are_not_read_and_said_so():
    log = ClaudeCodeLog()
    start = log.user("make it fast")
    log.user("make it slow")
    log.assistant("msg_1", text("slow it is"))
    log.assistant("msg_2", text("fast it is"), parent=start)
    log.user("you are a subagent", parent=None, isSidechain=True)
    log.user("thanks", parent="line-4")
    transcript = read_transcript(log.text())
    assert spoken(transcript) == ["make it fast", "fast it is", "thanks"]
    assert transcript.warnings == (
        "text, line 5: conversations of subagents, not read",
        "text, lines 2-3: a branch that the session left, not read",
    )


def test_an_answer_that_stands_before_its_request_is_read_behind_it():
    log = ClaudeCodeLog()
    start = log.user("look around")
    asked = log.user("make it fast", parent=start)
    log.assistant("msg_1", text("fast it is"), parent=asked)
    log.lines[1], log.lines[2] = log.lines[2], log.lines[1]
    transcript = read_transcript(log.text())
    assert spoken(transcript) == ["look around", "make it fast", "fast it is"]
    assert transcript.warnings == ()
    again = read_transcript(write_transcript(transcript.messages, transcript))
    assert again.messages == transcript.messages


def test_a_subagents_own_log_is_read():
    log = ClaudeCodeLog()
    log.user("find the bug", isSidechain=True)
    log.assistant("msg_1", text("found"), isSidechain=True)
    assert spoken(read_transcript(log.text())) == ["find the bug", "found"]


def test_lines_that_a_resumed_session_repeats_are_read_once():
    log = ClaudeCodeLog()
    log.user("hello there")
    log.assistant("msg_1", text("hi"))
    log.lines += [dict(line) for line in log.lines]
    assert spoken(read_transcript(log.text())) == ["hello there", "hi"]


def compacted_log(**metadata):
    log = ClaudeCodeLog()
    log.user("first task: parse the file")
    log.assistant("msg_1", text("parsed"))
    log.user("second task: write the file")
    log.assistant("msg_2", text("written"))
    log.add(
        "system",
        None,
        subtype="compact_boundary",
        content="Conversation compacted",
        logicalParentUuid=log.at,
        compactMetadata={"trigger": "auto", "preTokens": 9, **metadata},
    )
    log.user("This session is being continued from a previous conversation …", isCompactSummary=True)
    log.assistant("msg_3", text("going on"))
    return log


def test_a_compacted_session_is_read_whole_and_a_part_can_be_named():
    log = compacted_log()
    whole = read_transcript(log.text())
    assert spoken(whole)[0] == "first task: parse the file"
    assert len(whole.messages) == 5
    assert "continued from a previous" not in str(whole.messages), "the originals are read in its place"
    assert any("line 6: summaries of what is read as it was" in warning for warning in whole.warnings)
    assert whole.task == "second task: write the file"
    assert any("line 5: the agent compacted here" in warning for warning in whole.warnings)
    assert spoken(read_transcript(log.text(), part=0))[-1] == "written"
    assert len(read_transcript(log.text(), part=-1).messages) == 2
    with pytest.raises(TranscriptError, match=r"no part 2; the session has 2 \(0 to 1\)"):
        read_transcript(log.text(), part=2)


def test_what_a_compaction_left_as_it_was_stands_behind_its_summary():
    log = compacted_log(preservedSegment={"headUuid": "line-3", "anchorUuid": "line-6", "tailUuid": "line-4"})
    last = spoken(read_transcript(log.text(), part=-1))
    assert last[1:] == ["second task: write the file", "written", "going on"]


def test_attachments_are_what_the_model_was_told():
    log = ClaudeCodeLog()
    log.user("look at this")
    log.add("attachment", attachment={"type": "file", "filename": "a.py", "content": {"file": {"content": "x = 1"}}})
    log.add("attachment", attachment={"type": "queued_command", "prompt": "and use only the standard library"})
    log.add("attachment", attachment={"type": "queued_command", "prompt": "done", "commandMode": "task-notification"})
    log.add("attachment", attachment={"type": "plan_mode_exit"})
    sent = [{"content": f"<system-reminder>\n{words}\n</system-reminder>"} for words in ("one", "two")]
    log.add("attachment", attachment={"type": "nested_memory", "content": "- one"}, rendered=sent)
    log.assistant("msg_1", text("fine"))
    transcript = read_transcript(log.text())
    assert spoken(transcript)[1:5] == [
        "<system-reminder>\nfile a.py:\nx = 1\n</system-reminder>",
        "and use only the standard library",
        "done",
        "\n".join(message["content"] for message in sent),
    ]
    assert transcript.task == "and use only the standard library"
    assert transcript.warnings == ("text, line 5: attachments without text; left out",)


def test_words_of_the_host_set_no_task():
    log = ClaudeCodeLog()
    log.user("rename the module to parser")
    log.user("Generate a title for the work that was done here", isMeta=True)
    log.add(
        "system", subtype="local_command", content="<local-command-stdout>all is well here now</local-command-stdout>"
    )
    log.user([text("[Request interrupted by user for tool use]")])
    transcript = read_transcript(log.text())
    assert len(transcript.messages) == 4
    assert transcript.task == "rename the module to parser"


def test_words_that_the_log_says_are_the_hosts_stay_the_hosts():
    log = ClaudeCodeLog()
    log.user("rename the module to parser")
    log.user("You must never push to main", isMeta=True)
    log.user([text("Always answer in French")], isMeta=True)
    transcript = read_transcript(log.text())
    assert spoken(transcript)[1:] == [
        "<system-reminder>\nYou must never push to main\n</system-reminder>",
        "<system-reminder>\nAlways answer in French\n</system-reminder>",
    ]
    history = read_history(transcript.messages)
    words = [line.text for turn in history.turns for line in own_words(turn_lines(history, turn))]
    assert words == ["rename the module to parser"]


def test_words_of_the_user_beside_a_result_stay_with_it():
    log = ClaudeCodeLog()
    log.user("look at the file")
    log.assistant("msg_1", call("toolu_a"), call("toolu_b"))
    log.user([result("toolu_b"), text("but leave b.py alone")])
    log.user([result("toolu_a")])
    transcript = read_transcript(log.text())
    assert transcript.messages[2]["content"] == [result("toolu_a"), result("toolu_b"), text("but leave b.py alone")]


def test_blank_text_and_errors_of_the_api_are_left_out_with_their_lines():
    log = ClaudeCodeLog()
    log.user("go on with the work")
    log.assistant("msg_1", text("\n\n"))
    log.assistant("msg_1", text("working"))
    log.assistant("msg_2", text("API Error: 529"), isApiErrorMessage=True)
    transcript = read_transcript(log.text())
    assert spoken(transcript) == ["go on with the work", "working"]
    assert transcript.warnings == (
        "text, line 4: errors of the API, not words of the model; left out",
        "text, line 2: blank text of the assistant is left out",
    )


def test_lost_calls_and_results_become_notes_and_the_last_call_stays_open():
    log = ClaudeCodeLog()
    log.user("run them")
    log.assistant("msg_1", call("toolu_a"))
    log.user("stop, not that one", parent="somewhere-else")
    log.user([result("toolu_lost")])
    log.assistant("msg_2", call("toolu_b"))
    transcript = read_transcript(log.text())
    assert [m["role"] for m in transcript.messages] == ["user", "assistant", "user", "user", "user", "assistant"]
    note = {"type": "tool_result", "tool_use_id": "toolu_a", "content": LOST_RESULT}
    assert transcript.messages[2]["content"] == [note]
    assert "result whose call was lost" in str(transcript.messages[4])
    assert transcript.warnings == (
        "text, line 3: the line it follows is not in this log",
        "text, line 2: call toolu_a has no result; a note replaces it",
        "text, line 5: call toolu_b has no result in the next message, for it is the last",
    )


def test_a_damaged_line_is_left_out_wherever_it_is():
    log = ClaudeCodeLog()
    log.user("hello there")
    log.assistant("msg_1", text("hi"))
    whole = log.text()
    transcript = read_transcript(whole[:-30])
    assert spoken(transcript) == ["hello there"]
    assert transcript.warnings[0].startswith("text, line 2, column")
    broken = read_transcript(whole.replace('"isSidechain": false', "", 1))
    assert spoken(broken) == ["hi"]
    assert re.match(r"text, line 1, column \d+: not JSON", broken.warnings[0])


def test_unknown_blocks_and_streamed_json_without_a_tree_are_read():
    lines = [
        {"type": "system", "subtype": "init", "session_id": "s", "tools": ["Bash"]},
        {"type": "user", "session_id": "s", "message": {"role": "user", "content": "hello there"}},
        {"type": "assistant", "session_id": "s", "uuid": "u1", "parent_tool_use_id": None,
         "message": {"id": "m", "role": "assistant", "content": [{"type": "hologram", "data": 1}]}},
        {"type": "result", "subtype": "success", "result": "x"},
    ]  # fmt: skip
    transcript = read_transcript("\n".join(map(json.dumps, lines)))
    assert transcript.messages[1]["content"] == [{"type": "hologram", "data": 1}]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"message": {"role": "user", "content": 5}}, "line 2: message.content"),
        ({"message": {"content": "x"}}, "line 2: message.role"),
        ({"message": {"role": "user", "content": [{"text": "x"}]}}, "line 2: expected a block with a 'type'"),
        ({"uuid": 7}, "line 2: uuid"),
    ],
)
def test_a_line_of_another_form_is_named(change, told):
    log = ClaudeCodeLog()
    log.user("hello there")
    log.user("and again")
    log.lines[1].update(change)
    transcript = read_transcript(log.text())
    assert spoken(transcript) == ["hello there"]
    assert told in transcript.warnings[0]


def test_a_log_without_words_is_no_transcript():
    log = ClaudeCodeLog()
    log.assistant("msg_1", text("API Error"), isApiErrorMessage=True)
    with pytest.raises(TranscriptError, match="found none"):
        read_transcript(log.text())


def test_a_resumed_session_repeats_nothing_that_the_client_attaches_by_itself():
    log = ClaudeCodeLog()
    for kind in ("skill_listing", "agent_listing_delta", "environment", "attribution", "mcp_instructions_delta"):
        log.add("attachment", attachment={"type": kind, "content": f"listed by {kind}"})
    log.user("make it fast")
    log.add("attachment", attachment={"type": "file", "filename": "a.py", "content": {"file": {"content": "x = 1"}}})
    log.assistant("msg_1", text("fast it is"))
    log.user("thanks")
    transcript = read_transcript(log.text())
    assert "listed by" not in write_transcript(transcript.messages, transcript)
    assert "x = 1" in write_transcript(transcript.messages, transcript)
    assert transcript.warnings == ("text, lines 1-5: attachments that the client sends again by itself; left out",)


def test_a_summary_without_its_originals_is_read():
    log = ClaudeCodeLog()
    log.add("system", None, subtype="compact_boundary", content="Conversation compacted", compactMetadata={})
    log.user("This session is being continued: the parser is done.", isCompactSummary=True)
    log.assistant("msg_1", text("going on"))
    assert "the parser is done" in str(read_transcript(log.text()).messages)
