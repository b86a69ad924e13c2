"""`apply`, `restore`, `facts`, `log`, `undo`, `store`: the way there and the way back."""

import json
import re
import sqlite3
import stat
from itertools import pairwise

import pytest

from applier.adapters.transcripts import to_openai
from planner import CompactionPlan, plan_compaction, read_history
from planner.validity import check_messages


def test_view_is_valid_smaller_and_keeps_what_stands_around_it(applied, example, example_plan):
    view = json.loads(applied.read_text())
    assert view["task"] == example["task"]
    assert len(view["messages"]) < len(example["messages"])
    assert check_messages(view["messages"]) == []


def test_every_reference_restores_exactly(compactor, applied, example, example_plan):
    history = read_history(example["messages"])
    removed = [own.turn_id for own in example_plan.turns if own.strategy != "keep"]
    for turn_id in removed[:10]:
        messages = compactor("restore", turn_id, "--json").json["messages"]
        assert messages == list(history.messages_of(history.by_id[turn_id]))


def test_several_turns_are_restored_each_below_its_reference(compactor, applied, example):
    history = read_history(example["messages"])
    key = compactor("store", "list", "--json").json[0]["key"]
    for named in ("t2-t3,t5", "2-3,5", f"{key}:t2-t3,t5"):
        values = compactor("restore", named, "--json").json
        assert [one["messages"] for one in values] == [
            list(history.messages_of(history.by_id[turn_id])) for turn_id in ("t2", "t3", "t5")
        ]
    texts = [compactor("restore", turn_id).out for turn_id in ("t2", "t3")]
    heads = [one["reference"] for one in compactor("restore", "t2-t3", "--json").json]
    assert compactor("restore", "t2-t3").out == "".join(
        f"{head}\n{text}" for head, text in zip(heads, texts, strict=True)
    )


def test_restore_prints_text_lines_and_matches(compactor, applied):
    whole = compactor("restore", "t2").out.splitlines()
    assert compactor("restore", "t2", "--lines", "2-3").out.splitlines() == whole[1:3]
    assert "1: " in compactor("restore", "t2", "--search", whole[0].split()[0]).out
    missing = compactor("restore", "t2", "--search", "quagga xylophone")
    assert missing.code == 1
    assert "no line matches" in missing.err


@pytest.mark.parametrize("reference", ["t999", f"h{0:032}:t1", "twelve"])
def test_unknown_reference_is_one_clear_line(compactor, applied, reference):
    ran = compactor("restore", reference)
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1


def test_plan_and_log_say_what_a_switch_costs_and_saves_where_the_price_is_known(compactor, transcript):
    how = "--planner", "rules", "-o", "plan.json"
    assert "$" not in compactor("plan", transcript, *how).out.split("Task: ")[0]
    priced = compactor("plan", transcript, *how, "--target-model", "claude-opus-5-5").out
    verdict = " ".join(priced.split("Task: ")[0].split())
    once, less = re.findall(r"≈ \$\S*\d", verdict)
    assert compactor("apply", "plan.json", transcript, "-o", "view.json").code == 0
    assert f"to view.json; {once} once, {less} less a call" in " ".join(compactor("log").out.split())


def test_facts_and_log_tell_what_was_kept_and_done(compactor, applied, example_plan):
    facts = compactor("facts", "--json").json
    assert len(facts) == len({fact.model_dump_json() for fact in example_plan.extracted_facts})
    constraints = compactor("facts", "--type", "constraint", "--json").json
    assert constraints == [fact for fact in facts if fact["type"] == "constraint"]
    (event,) = compactor("log", "--json").json
    assert event["kind"] == "apply"
    assert event["tokens_after"] == example_plan.estimated_tokens
    assert "view.json" in compactor("log").out


def test_undo_gives_everything_back_with_what_was_said_since(compactor, applied, example, folder):
    view = json.loads(applied.read_text())
    since = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks."}]
    applied.write_text(json.dumps({**view, "messages": [*view["messages"], *since]}))
    assert compactor("undo", applied, "-o", "whole.json").code == 0
    whole = json.loads((folder / "whole.json").read_text())
    assert whole["messages"] == [*example["messages"], *since]
    assert [event["kind"] for event in compactor("log", "--json").json] == ["apply", "undo"]


def test_an_openai_view_is_undone_where_notes_stand_beside_results(compactor, folder):
    chat = [{"role": "user", "content": "Find me a flight, but never one of HAT."}]
    for day in range(1, 13):
        function = {"name": "find_flight", "arguments": f'{{"day": {day}}}'}
        asked = {"id": f"call_{day}", "type": "function", "function": function}
        found = "\n".join(f"flight {number} on day {day} costs {number * day}" for number in range(30))
        chat += [{"role": "assistant", "content": None, "tool_calls": [asked]},
                 {"role": "tool", "tool_call_id": f"call_{day}", "content": found},
                 {"role": "assistant", "content": f"Day {day} has thirty flights."},
                 {"role": "user", "content": f"And day {day + 1}?"}]  # fmt: skip
    (folder / "chat.json").write_text(json.dumps(chat))
    assert compactor("plan", "chat.json", "--planner", "rules", "--target-ratio", "0.3", "-o", "plan.json").code == 0
    keep = ("--set", "t2=keep", "--set", "t20=keep")
    assert compactor("review", "plan.json", "chat.json", *keep, "-o", "plan.json").code == 0
    assert compactor("apply", "plan.json", "chat.json", "-o", "view.json").code == 0
    view = json.loads((folder / "view.json").read_text())
    assert any((a["role"], b["role"]) == ("tool", "user") for a, b in pairwise(view))
    since = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks."}]
    for more in ([], since):
        (folder / "view.json").write_text(json.dumps([*view, *more]))
        assert compactor("undo", "view.json", "-o", "whole.json").code == 0
        assert json.loads((folder / "whole.json").read_text()) == [*chat, *more]


def test_machines_read_what_was_undone_and_forgotten(compactor, applied, example, folder):
    undone = compactor("undo", applied, "-o", "whole.json", "--json").json
    assert (undone["originals"], undone["added"], undone["output"]) == (len(example["messages"]), 0, "whole.json")
    assert compactor("store", "flush", "--json").json == {"left": []}
    assert compactor("store", "forget", undone["history"], "--yes", "--json").json == {"left": []}
    assert compactor("store", "list", "--json").json == []


def test_undo_of_a_view_that_was_edited_is_refused(compactor, applied, folder):
    view = json.loads(applied.read_text())
    view["messages"][0]["content"][0]["text"] += " and more"
    applied.write_text(json.dumps(view))
    ran = compactor("undo", applied, "-o", "whole.json")
    assert ran.code == 1
    assert "the compacted part was edited" in ran.err
    assert not (folder / "whole.json").exists()


def test_dry_run_writes_nothing_not_even_a_store(compactor, transcript, plan_file, folder):
    ran = compactor("apply", plan_file, transcript, "--dry-run", "-o", "view.json")
    assert ran.code == 0
    assert "would become" in ran.out
    assert sorted(path.name for path in folder.iterdir()) == ["plan.json", "transcript.json"]


def test_what_the_guards_say_of_an_edited_plan_is_said_where_it_is_applied(compactor, transcript, plan_file, folder):
    said = compactor("apply", plan_file, transcript, "-o", "view.json")
    assert (said.code, said.err) == (0, "")
    plan = json.loads(plan_file.read_text())
    plan["brief"] = "STATE\n- Deployed from src/never_seen.py to port 48611 (t1)"
    plan_file.write_text(json.dumps(plan))
    ran = compactor("apply", plan_file, transcript, "-o", "edited.json")
    assert ran.code == 0
    assert "src/never_seen.py" in ran.err


@pytest.mark.real
@pytest.mark.parametrize("output", [None, "other.json"])
def test_what_is_edited_is_saved(compactor, transcript, plan_file, folder, monkeypatch, output):
    before = plan_file.read_text()
    monkeypatch.setenv("VISUAL", "sed -i '$ a ## CONSTRAINTS'")
    typed = ("review", plan_file, transcript, "--edit", *(("-o", output) if output else ()))
    ran = compactor(*typed)
    saved = folder / (output or plan_file.name)
    assert (ran.code, str(saved.name) in ran.err) == (0, True)
    assert "CONSTRAINTS" in CompactionPlan.from_json(saved.read_text()).brief
    assert (plan_file.read_text() == before) == bool(output)


def test_standard_output_carries_the_view_alone(compactor, transcript, plan_file, applied):
    ran = compactor("apply", plan_file, transcript, "-o", "-")
    assert ran.out == applied.read_text()
    assert "tokens became" in ran.err


def test_failed_store_leaves_no_view(compactor, transcript, plan_file, folder):
    (folder / "store.db").write_text("not a database, but long enough to be taken for one" * 9)
    ran = compactor("apply", plan_file, transcript, "-o", "view.json")
    assert ran.code == 1
    assert "store.db" in ran.err
    assert not (folder / "view.json").exists()


def test_replaced_file_keeps_its_permissions_and_nothing_is_left_beside_it(compactor, transcript, plan_file, folder):
    target = folder / "view.json"
    target.write_text("old")
    target.chmod(0o600)
    assert compactor("apply", plan_file, transcript, "-o", target).code == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert not list(folder.glob(".view*"))


def test_openai_history_comes_back_an_openai_history(compactor, folder, example):
    chat = to_openai(example["messages"])
    (folder / "chat.json").write_text(json.dumps(chat))
    assert compactor("plan", "chat.json", "--task", "x", "--planner", "rules", "-o", "plan.json").code == 0
    assert compactor("apply", "plan.json", "chat.json", "-o", "view.json").code == 0
    view = json.loads((folder / "view.json").read_text())
    assert {message["role"] for message in view} <= {"user", "assistant", "tool", "system"}
    assert len(json.dumps(view)) < len(json.dumps(chat)) / 2
    assert compactor("undo", "view.json", "-o", "whole.json").code == 0
    assert json.loads((folder / "whole.json").read_text()) == chat


def test_messages_behind_the_planned_ones_stay(compactor, transcript, example, plan_file, folder):
    more = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks."}]
    transcript.write_text(json.dumps({**example, "messages": [*example["messages"], *more]}))
    assert compactor("apply", plan_file, transcript, "-o", "view.json").code == 0
    assert json.loads((folder / "view.json").read_text())["messages"][-2:] == more


def test_nothing_to_do_is_no_error(compactor, folder, example):
    few = example["messages"][:3]
    plan = plan_compaction(few, "x", planner="rules", target_ratio=1.0)
    (folder / "few.json").write_text(json.dumps(few))
    (folder / "plan.json").write_text(plan.to_json())
    assert compactor("apply", "plan.json", "few.json", "-o", "view.json").code == 0
    assert json.loads((folder / "view.json").read_text()) == few


def test_verify_says_whether_all_is_whole(compactor, applied, folder):
    ran = compactor("store", "verify")
    assert ran.code == 0
    assert "all whole" in ran.out
    with sqlite3.connect(folder / "store.db") as database:
        database.execute("UPDATE records SET body = x'00' WHERE key LIKE 'message/%'")
    database.close()
    damaged = compactor("store", "verify", "--json")
    assert damaged.code == 1
    assert damaged.json["findings"]


def test_conversation_is_forgotten_only_when_one_says_yes(compactor, applied, folder):
    (known,) = compactor("store", "list", "--json").json
    assert known["key"] in compactor("store", "list").out
    refused = compactor("store", "forget", known["key"])
    assert refused.code == 2
    assert "--yes" in refused.err
    assert len(compactor("store", "list", "--json").json) == 1
    assert compactor("store", "forget", known["key"], "--yes").code == 0
    assert compactor("restore", known["key"] + ":t1").code == 1
    assert "no history" in compactor("store", "list").out
