"""Codex rollouts: items that the model saw become messages; events and reasoning do not."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.adapters.transcripts import read_transcript
from planner.analysis import analyze
from planner.evidence import gather_evidence
from planner.programming.repository import file_changes
from planner.reading.messages import read_history
from planner.reading.tokens import TokenCounter
from tests.transcripts.session_logs import codex_logs


def lines(*items, kind="response_item"):
    return "".join(json.dumps({"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": i}) + "\n" for i in items)


def said(role, words, kind="input_text"):
    return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}


def shell(key):
    return {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": key}


def output(key, told="ok"):
    return {"type": "function_call_output", "call_id": key, "output": told}


def flat(messages):
    """Messages with every content as blocks."""
    return [
        {**m, "content": [{"type": "text", "text": m["content"]}] if isinstance(m["content"], str) else m["content"]}
        for m in messages
    ]


@settings(max_examples=60)
@given(codex_logs())
def test_a_rollout_reads_as_the_conversation_it_was_written_of(pair):
    messages, text = pair
    transcript = read_transcript(text)
    assert transcript.messages == flat(messages)
    assert (transcript.format, transcript.system) == ("codex", "Be brief.")


def test_late_calls_of_the_same_answer_stay_with_it():
    text = lines(said("user", "list twice"), shell("a"), shell("b"), output("a"), shell("c"), output("c"), output("b"))
    messages = read_transcript(text).messages
    assert [m["role"] for m in messages] == ["user", "assistant", "user"]
    assert [b["tool_use_id"] for b in messages[2]["content"]] == ["a", "b", "c"]


def test_instructions_are_the_system_prompt_and_later_ones_a_reminder():
    text = lines({"id": "x", "instructions": "Base."}, kind="session_meta") + lines(
        said("developer", "Sandbox: none."),
        said("user", "<environment_context>\n<cwd>/w</cwd>\n</environment_context>"),
        said("user", "remove the old plugin"),
        said("assistant", "Done.", "output_text"),
        said("developer", "Now in plan mode."),
        said("user", "please push"),
    )
    transcript = read_transcript(text)
    assert transcript.system == "Base.\n\nSandbox: none."
    assert transcript.task == "remove the old plugin"
    assert transcript.messages[3]["content"] == "<system-reminder>\nNow in plan mode.\n</system-reminder>"


def test_every_kind_of_call_and_output():
    text = lines(
        said("user", "patch it"),
        {"type": "reasoning", "summary": [], "encrypted_content": "…"},
        {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin", "call_id": "a"},
        {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"]}, "call_id": "b"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "Success"},
        {"type": "function_call_output", "call_id": "b", "output": {"content": "no such file", "success": False}},
        {"type": "web_search_call", "action": {"type": "search", "query": "x"}},
        {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {"query": "issues"}},
        {"type": "tool_search_output", "call_id": "s", "execution": "client", "tools": []},
        shell("c"),
        output(
            "c", [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:image/png;base64,AA"}]
        ),
    )
    transcript = read_transcript(text)
    _, asked, told, _, pictured = transcript.messages
    assert [b["input"] for b in asked["content"]] == [{"input": "*** Begin"}, {"type": "exec", "command": ["ls"]}]
    assert told["content"][1] == {
        "type": "tool_result",
        "tool_use_id": "b",
        "content": "no such file",
        "is_error": True,
    }
    assert [b["type"] for b in pictured["content"][0]["content"]] == ["text", "image"]
    kinds = {7: "web_search_call", 8: "tool_search_call", 9: "tool_search_output"}
    expected = (f"text, line {line}: {kind} has no place in a transcript; left out" for line, kind in kinds.items())
    assert transcript.warnings == (*expected,)


HEAD = "Script completed\nWall time 0.1 seconds\nOutput:\n"
SCRIPTS = {
    'text(await tools.exec_command({"cmd": "cat /nope/x", "workdir": "/w"}))': (
        ("exec_command", {"cmd": "cat /nope/x"}),
        '{"chunk_id":"369b9e","wall_time_seconds":0.000007792,"exit_code":1,"original_token_count":22,"output":"cat: '
        '/nope/x: No such file or directory\\n"}',
        "Process exited with code 1\nOutput:\ncat: /nope/x: No such file or directory\n",
    ),
    'const r = await tools.exec_command({cmd: "sleep 3; echo \\"done\\"", yield_time_ms: 500}); text(r);': (
        ("exec_command", {"cmd": 'sleep 3; echo "done"'}),
        '{"chunk_id":"6b0d3d","wall_time_seconds":0.501465713,"session_id":86242,"original_token_count":0,"output":""}',
        "Process running with session ID 86242\nOutput:\n",
    ),
    'const r = await tools.exec_command({"cmd": "seq 3"}); text(r.output);': (
        ("exec_command", {"cmd": "seq 3"}),
        "1\n2\n3\n",
        "1\n2\n3\n",
    ),
    'text(await tools.apply_patch("*** Begin Patch\\n*** Add File: a.txt\\n+hello\\n*** End Patch"))': (
        ("apply_patch", {"input": "*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch"}),
        "{}",
        "{}",
    ),
}
"""What scripts say, the outputs that Codex 0.169 made of them, and how both are read."""
OPEN_SCRIPTS = (
    'for (const f of files) text(await tools.exec_command({cmd: "cat a"}))',
    'text(await tools.exec_command({cmd: "cat " + name}))',
    'const r = await tools.exec_command({cmd: "make"}); if (r.exit_code) text(await tools.exec_command({cmd: "ls"}))',
    'text(await tools.exec_command({cmd: "exit 3"})); text(await tools.write_stdin({session_id: 1}))',
    "text(await tools.exec_command({cmd: `ls ${folder}`}))",
    'text(await tools.exec_command({cmd: "\\x6cs"}))',
)
"""Which calls these make, and what with, their text alone does not say."""


def scripted(script, *printed):
    """A script and its output, as Codex writes them."""
    parts = [{"type": "input_text", "text": part} for part in printed]
    return (
        {"type": "custom_tool_call", "name": "exec", "input": script, "call_id": "a"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": parts},
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_that_calls_one_tool_is_read_as_that_call_and_its_output_as_that_of_a_command(script):
    (name, called), printed, wanted = SCRIPTS[script]
    text = lines(said("user", "go on"), *scripted(script, HEAD, printed))
    _, asked, told = read_transcript(text).messages
    assert [(block["name"], block["input"]) for block in asked["content"]] == [(name, called)]
    assert [block["text"] for block in told["content"][0]["content"]] == [HEAD, wanted]


@pytest.mark.parametrize("script", OPEN_SCRIPTS)
def test_a_script_whose_text_leaves_open_what_it_calls_stays_a_script(script):
    _, asked, _ = read_transcript(lines(said("user", "go on"), *scripted(script, HEAD))).messages
    assert [(block["name"], block["input"]) for block in asked["content"]] == [("exec", {"input": script})]


@pytest.mark.parametrize(("number", "status"), [(0, "failed"), (1, "running"), (2, "done"), (3, "done")])
def test_the_planner_knows_how_a_script_s_call_ended_and_which_file_it_wrote(number, status):
    script, (_, printed, _) = list(SCRIPTS.items())[number]
    read = read_history(read_transcript(lines(said("user", "go on"), *scripted(script, HEAD, printed))).messages)
    evidence = gather_evidence(read, TokenCounter.for_model(""))
    assert [outcome.status for turn in evidence.turns.values() for outcome in turn.outcomes] == [status]
    assert [change.path for change in file_changes(evidence)] == (["a.txt"] if number == 3 else [])


def printed(code, output):
    told = {"chunk_id": "1", "wall_time_seconds": 0.1, "exit_code": code, "original_token_count": 2, "output": output}
    return json.dumps(told, separators=(",", ":"))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_a_script_of_several_commands_is_one_call_of_all_of_them_that_failed_if_one_did(codes):
    script = "".join(f'text(await tools.exec_command({{cmd: "make {n}"}}));\n' for n in range(len(codes)))
    parts = scripted(script, HEAD, *(printed(code, f"made {n}\n") for n, code in enumerate(codes)))
    read = read_transcript(lines(said("user", "go on"), *parts)).messages
    (call,), (result,) = read[1]["content"], read[2]["content"]
    assert (call["name"], call["input"]["cmd"].split("\n")) == (
        "exec_command",
        [f"make {n}" for n in range(len(codes))],
    )
    assert [f"made {n}" in part["text"] for n, part in enumerate(result["content"][1:])] == [True] * len(codes)
    evidence = analyze(read).evidence
    (outcome,) = [outcome for turn in evidence.turns.values() for outcome in turn.outcomes]
    assert (outcome.status == "failed") == any(codes)


def test_a_script_of_several_patches_is_one_patch_of_all_of_them():
    patches = [f"*** Begin Patch\n*** Add File: {name}.txt\n+x\n*** End Patch" for name in "ab"]
    script = " ".join(f"text(await tools.apply_patch({json.dumps(patch)}));" for patch in patches)
    read = read_transcript(lines(said("user", "go on"), *scripted(script, HEAD, "{}", "{}"))).messages
    evidence = analyze(read).evidence
    assert read[1]["content"][0]["input"] == {"input": "\n".join(patches)}
    assert [change.path for change in file_changes(evidence)] == ["a.txt", "b.txt"]


def test_a_script_that_types_into_a_program_is_a_call_of_that():
    script = (
        'const r = await tools.write_stdin({session_id:7,chars:"\\u0003",yield_time_ms:1000}); text(JSON.stringify(r));'
    )
    read = read_transcript(lines(said("user", "go on"), *scripted(script, HEAD, printed(1, "^C")))).messages
    call = read[1]["content"][0]
    assert (call["name"], call["input"]) == ("write_stdin", {"session_id": 7, "chars": "\x03"})
    evidence = analyze(read).evidence
    assert [outcome.status for turn in evidence.turns.values() for outcome in turn.outcomes] != ["failed"]


def test_a_script_that_failed_has_failed():
    broken = scripted("throw new Error('boom')", HEAD.replace("completed", "failed"), "Script error:\nError: boom")
    (result,) = read_transcript(lines(said("user", "go on"), *broken)).messages[-1]["content"]
    assert result["is_error"]


def test_turns_that_the_session_went_back_over_are_not_read():
    text = (
        lines(said("user", "keep this one"), said("assistant", "kept", "output_text"))
        + lines(said("user", "a wrong turn"), shell("a"), output("a"))
        + lines({"type": "thread_rolled_back", "num_turns": 1}, kind="event_msg")
        + lines(said("user", "a better turn"))
    )
    transcript = read_transcript(text)
    assert [m["content"][0]["text"] for m in transcript.messages] == ["keep this one", "kept", "a better turn"]
    assert "line 6: the session went back 1 turns" in transcript.warnings[0]


def test_a_compaction_is_read_whole_or_by_part():
    replaced = {"message": "Summary: it works.", "replacement_history": [said("user", "build the thing now")]}
    text = (
        lines(said("user", "build the thing now"), said("assistant", "built", "output_text"))
        + lines(replaced, kind="compacted")
        + lines(said("user", "ship the thing now"))
    )
    texts = [
        [m["content"] if isinstance(m["content"], str) else m["content"][0]["text"] for m in transcript.messages]
        for transcript in (read_transcript(text), read_transcript(text, part=-1))
    ]
    assert texts[0] == ["build the thing now", "built", "Summary: it works.", "ship the thing now"]
    assert texts[1] == ["build the thing now", "ship the thing now"]


def test_a_line_of_another_form_is_named():
    (warning,) = read_transcript(lines(said("user", "hi"), {**shell("a"), "call_id": 5})).warnings
    assert warning.startswith("text, line 2: call_id")
    warnings = read_transcript(lines(said("user", "hi")) + '{"type": "message"}\n{}\n').warnings
    assert warnings[0] == "text, line 2: expected a line with a 'payload', found {'type': 'message'}; left out"
