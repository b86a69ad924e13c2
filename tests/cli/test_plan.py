"""`plan` and `review`: what a person decides from, and that looking at it writes nothing."""

import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from applier.testing import Failure
from planner import CompactionPlan
from tests.loopback import KEY, Loopback

TASK = "Make the parser read every line."


def test_an_empty_list_of_messages_is_said_to_be_one(compactor, folder):
    (folder / "none.json").write_text("[]")
    assert "No messages, so nothing to plan." in compactor("plan", "none.json", "--task", "x").out


@pytest.mark.real
def test_a_provider_without_its_key_is_one_line(compactor, transcript):
    ran = compactor("plan", transcript, "--planner", "model", "--model", "openai/gpt-5-mini")
    assert (ran.code, len(ran.err.splitlines())) == (1, 1)
    assert "install its package and set its key" in ran.err


def test_plan_shows_each_turn_and_writes_nothing(compactor, transcript, folder):
    ran = compactor("plan", transcript, "--planner", "rules", "--target-ratio", 0.2, "--all")
    assert ran.code == 0
    assert sorted(folder.iterdir()) == [transcript]
    rows = [line for line in ran.out.splitlines() if line.split(" ")[0].startswith("t") and line[1].isdigit()]
    assert [row.split()[0] for row in rows] == [f"t{number}" for number in range(1, len(rows) + 1)]
    for title in ("Left in place of what is removed", "Failed approaches, kept", "Facts"):
        assert title in ran.out
    assert "; target " in ran.out.splitlines()[0]
    assert "pays back after" in " ".join(ran.out.splitlines()[2:4])


def test_written_plan_is_the_printed_one(compactor, transcript, folder):
    ran = compactor("plan", transcript, "--task", TASK, "--planner", "rules", "-o", "plan.json", "--json")
    written = CompactionPlan.from_json((folder / "plan.json").read_bytes())
    assert ran.json["plan"] == written.model_dump(mode="json")
    assert ran.json["cost"]["tokens_after"] == written.estimated_tokens
    assert written.task == TASK
    assert sorted(path.name for path in folder.iterdir()) == ["plan.json", "transcript.json"]


def test_what_is_read_is_not_written_over(compactor, transcript, folder):
    whole = transcript.read_bytes()
    compactor("plan", transcript, "--planner", "rules", "-o", "plan.json")
    plan = (folder / "plan.json").read_bytes()
    (folder / "link.json").symlink_to(transcript)
    for typed, what in (
        (("plan", transcript, "--planner", "rules", "-o", transcript), "transcript"),
        (("plan", transcript, "--planner", "rules", "-o", "link.json"), "transcript"),
        (("review", "plan.json", transcript, "-o", transcript), "transcript"),
        (("apply", "plan.json", transcript, "-o", "plan.json"), "plan"),
        (("apply", "plan.json", transcript, "-o", transcript), "transcript"),
        (("apply", "plan.json", transcript, "-o", "link.json"), "transcript"),
    ):
        ran = compactor(*typed)
        assert ran.code == 2
        assert f"is the {what} itself and would be lost: name another file." in ran.err
    assert (transcript.read_bytes(), (folder / "plan.json").read_bytes()) == (whole, plan)


def test_task_is_the_transcripts_own_unless_given(compactor, transcript, example):
    assert compactor("plan", transcript, "--planner", "rules", "--json").json["plan"]["task"] == example["task"]


def test_transcript_without_a_task_asks_for_one(compactor, folder):
    (folder / "silent.json").write_text('[{"role": "assistant", "content": "hm"}]')
    ran = compactor("plan", "silent.json")
    assert ran.code == 2
    assert "--task" in ran.err


def test_auto_without_a_key_says_that_rules_planned(compactor, transcript):
    assert "no client and no API key: planned by rules" in compactor("plan", transcript).out


@pytest.mark.real
def test_model_without_a_key_is_one_clear_line(compactor, transcript):
    ran = compactor("plan", transcript, "--planner", "model")
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1


@pytest.mark.real
def test_model_plans_where_there_is_a_key(compactor, transcript, monkeypatch):
    answer = '{"need": "", "turns": ["t2 drop 0"], "facts": []}'
    with Loopback([answer]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        ran = compactor("plan", transcript, "--model", "claude-haiku-5-5")
    assert ran.code == 0, ran.err
    assert "planner model claude-haiku-5-5 sha256:" in ran.out
    assert "tokens in" in ran.out
    assert KEY not in ran.out


@pytest.mark.real
def test_why_rules_planned_where_a_model_was_to_is_said_beside_the_review(compactor, transcript, monkeypatch):
    with Loopback([Failure(401, "authentication_error")]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        ran = compactor("plan", transcript)
    assert ran.code == 0
    assert ran.err.startswith("planned by rules, the model could not be had: ")
    assert ran.err.endswith("such as ANTHROPIC_API_KEY, to a valid key\n")
    assert "filled by rules" not in ran.out


def test_prompts_that_cannot_be_used_are_named(compactor, transcript, folder):
    own = folder / "prompts"
    own.mkdir()
    (own / "plan.md").write_text("{{tsk}}")
    ran = compactor("plan", transcript, "--planner", "model", "--prompts", own)
    assert ran.code == 2
    assert "plan.md" in ran.err


def test_tools_are_declared_in_the_environment_and_never_by_a_project(compactor, transcript, folder, monkeypatch):
    plan = ("plan", transcript, "--planner", "rules", "--json")
    (folder / "compactor.toml").write_text('[tool_uses.Bash]\neffect = "reads"\n')
    refused = compactor(*plan)
    assert (refused.code, "set COMPACTOR_TOOL_USES" in refused.err) == (2, True)
    (folder / "compactor.toml").unlink()
    monkeypatch.setenv("COMPACTOR_TOOL_USES", '{"Bash": {"effect": "reads"}}')
    assert compactor(*plan).json["plan"]["tool_uses"]["Bash"]["effect"] == "reads"
    compactor("plan", transcript, transcript, "--planner", "rules", "--plans", "plans", "--workers", 1)
    (of_many,) = (folder / "plans").iterdir()
    assert CompactionPlan.from_json(of_many.read_bytes()).tool_uses["Bash"].effect == "reads"


def test_decision_can_be_changed_and_guards_check_it(compactor, transcript, plan_file, folder, example_plan):
    failed = next(own for own in example_plan.turns if own.failed_approach and own.strategy != "keep")
    dropped = next(own for own in example_plan.turns if own.strategy == "drop")
    edits = ["--set", f"{dropped.turn_id}=keep", "--set", f"{failed.turn_id}=drop"]
    ran = compactor("review", plan_file, transcript, *edits, "-o", "new.json")
    assert ran.code == 0
    changed = CompactionPlan.from_json((folder / "new.json").read_bytes())
    assert changed.decisions[dropped.turn_id].strategy == "keep"
    assert changed.decisions[dropped.turn_id].reason == "set by hand"
    assert changed.estimated_tokens > example_plan.estimated_tokens
    assert changed.decisions[failed.turn_id].strategy != "drop"
    assert f"failed_approach: {failed.turn_id}" in ran.out


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 4), st.booleans()), min_size=1, max_size=4))
def test_any_list_of_turns_can_be_kept(compactor, transcript, plan_file, ranges):
    mark = {True: "t", False: ""}
    named = ",".join(f"{mark[t]}{at}" + (f"-{mark[t]}{at + more}" if more else "") for at, more, t in ranges)
    ran = compactor("review", plan_file, transcript, "--set", f"{named}=keep", "--json")
    strategies = {turn["turn_id"]: turn["strategy"] for turn in ran.json["plan"]["turns"]}
    kept = {f"t{number}" for at, more, _ in ranges for number in range(at, at + more + 1)}
    assert {turn_id for turn_id in kept if strategies[turn_id] != "keep"} == set()


def editor(folder, monkeypatch, text, also=""):
    (folder / "text.md").write_text(text)
    (folder / "editor.sh").write_text(f'#!/bin/sh\ncp {folder}/text.md "$1"\ntouch -d 2030-01-01 "$1"\n{also}\n')
    (folder / "editor.sh").chmod(0o755)
    monkeypatch.setenv("VISUAL", str(folder / "editor.sh"))


def test_a_brief_emptied_in_the_editor_is_empty(compactor, transcript, plan_file, folder, monkeypatch):
    editor(folder, monkeypatch, "")
    assert compactor("review", plan_file, transcript, "--edit", "-o", "new.json").code == 0
    assert CompactionPlan.from_json((folder / "new.json").read_bytes()).brief == ""


def test_a_plan_that_changed_meanwhile_is_not_overwritten(compactor, transcript, plan_file, folder, monkeypatch):
    editor(folder, monkeypatch, "STATE\n- The work goes on (t1)\n", also=f"echo other >> {plan_file}")
    ran = compactor("review", plan_file, transcript, "--edit")
    assert ran.code == 2
    assert "was changed meanwhile" in ran.err
    assert plan_file.read_text().endswith("other\n")


def test_plan_file_edited_by_hand_is_checked(compactor, transcript, plan_file, example_plan):
    data = json.loads(plan_file.read_text())
    failed = next(own for own in data["turns"] if own["failed_approach"] and own["strategy"] == "summarize")
    failed["strategy"] = "drop"
    plan_file.write_text(json.dumps(data))
    assert "failed_approach: " + failed["turn_id"] in compactor("review", plan_file, transcript).out


def test_review_without_the_transcript_shows_what_the_plan_says(compactor, plan_file, example_plan):
    ran = compactor("review", plan_file)
    assert ran.code == 0
    assert f"{example_plan.estimated_tokens:,}" in ran.out
    assert "Left in place" not in ran.out


def test_review_of_another_history_is_refused(compactor, plan_file, transcript, example):
    changed = {**example, "messages": [{"role": "user", "content": "else"}, *example["messages"][1:]]}
    transcript.write_text(json.dumps(changed))
    ran = compactor("review", plan_file, transcript)
    assert ran.code == 1
    assert "plan again" in ran.err


@pytest.mark.parametrize("width", [80, 120])
def test_review_fits_the_terminal(compactor, transcript, plan_file, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    ran = compactor("review", plan_file, transcript)
    assert max(map(len, ran.out.splitlines())) <= width


def test_brief_is_replaced_and_checked_statement_by_statement(compactor, transcript, plan_file, folder):
    (folder / "brief.md").write_text("STATE\n- The work goes on (t1)\n- Wrote /no/such/place/at-all.py (t2)\n")
    ran = compactor("review", plan_file, transcript, "--brief", "brief.md", "-o", "new.json")
    assert ran.code == 0, ran.err
    assert CompactionPlan.from_json((folder / "new.json").read_bytes()).brief == "STATE\n- The work goes on (t1)"
    assert "The work goes on (t1)" in ran.out
    assert "invented_in_brief" in ran.out


def test_a_brief_of_an_editor_that_marks_utf_8_is_read(compactor, transcript, plan_file, folder):
    (folder / "brief.txt").write_bytes("\ufeffSTATE\r\n- The work goes on (t1)\r\n".encode())
    compactor("review", plan_file, transcript, "--brief", "brief.txt", "-o", "new.json")
    assert CompactionPlan.from_json((folder / "new.json").read_bytes()).brief == "STATE\n- The work goes on (t1)"


def test_brief_comes_from_standard_input_too(compactor, transcript, plan_file, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"NEXT\n- Go on (t1)\n")))
    assert (
        compactor("review", plan_file, transcript, "--brief", "-", "--json").json["plan"]["brief"]
        == "NEXT\n- Go on (t1)"
    )


def test_excerpts_far_beyond_a_turn_are_bounded_before_they_are_expanded(compactor, transcript, plan_file, folder):
    data = json.loads(plan_file.read_text())
    for turn in data["turns"]:
        turn.update({"strategy": "summarize", "excerpts": [[1, 10**300], [5, 10**9]]})
    plan_file.write_text(json.dumps(data))
    ran = compactor("review", plan_file, transcript, "-o", "new.json")
    assert ran.code == 0, ran.err
    ends = [last for own in json.loads((folder / "new.json").read_text())["turns"] for _, last in own["excerpts"]]
    assert max(ends, default=0) < 100_000
