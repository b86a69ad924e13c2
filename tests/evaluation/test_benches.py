"""What developers measure with: told twice, suites of others, transcripts held out."""

import json
from pathlib import Path

import pytest

from applier.eval.survival import plain_text
from planner.errors import TranscriptError
from tests.bench.clients import IS_TOO_OLD, Counter, Trial
from tests.bench.continuing import judge, render, show_turn
from tests.bench.general import comparisons
from tests.bench.held_out import draw, session_of
from tests.bench.public_suites import ask_chats, ask_constraints, read_constraints, shares
from tests.bench.twice import pieces_of, repeats
from tests.strategies import make_session

FAILING = Path(__file__).parents[1] / "example" / "failing.json"
VIEW = """<compacted history="h00000000" turns="t1-t9">
Record of earlier turns, shortened.
STATE
- src/a.py: edited; now names drain_queue (t4)
FACTS
- ticket-4711 (t2)
t2 <user-words>ticket-4711 needs src/b.py, please keep what is there as it is</user-words>
t4 > Edit src/a.py → done
+ def drain_queue(): drain_queue()
t5 please keep what is there as it is
</compacted>
src/a.py src/b.py
"""
TEMPLATE = """template:
  key: kept_v1
  family: buried_constraint
  version: 1.0.0
  difficulty_policy:
    distractor_turns: {easy: 2, medium: 4, hard: 8, elite: 16}
    paraphrase_depth: {easy: 0, medium: 1, hard: 2, elite: 3}
  variables:
    - {name: action, generator: action_phrase}
  transcript:
    turns:
      - {role: user, template: "Never {{action}}."}
      - {role: distractor_block, count: "{{difficulty.distractor_turns}}"}
      - {role: user, template: "Propose a step."}
  ground_truth:
    forbidden_behaviors: ["{{action}}"]
  evaluation_items:
    - key: recall
      type: forbidden_behavior_retention
      prompt: "What must never happen?"
      expected: {check: contains_normalized, value: "{{action}}"}
"""


def test_plain_methods_get_the_real_size_of_the_planners_view(tmp_path):
    messages = make_session(12)
    (tmp_path / "shop.json").write_text(json.dumps({"task": "Ship the order", "messages": messages}))
    first, last = plain_text(messages[:1]), plain_text(messages[-1:])
    questions = [
        {"n": n, "kind": "state", "q": "?", "a": a, "answer_any": [a]} for n, a in enumerate((first, last, "no one"))
    ]
    (tmp_path / "shop.exam.json").write_text(json.dumps({"transcript": "shop", "questions": questions}))
    [(half, tenth)] = comparisons(tmp_path, "newest", [0.5, 0.1])
    assert half.kept == {"newest": 1, "newest text": 1, "equal cut": 2}
    assert half.is_below_plain
    assert [question.number for question in half.lost] == [0, 2]
    assert tenth.size <= 0.1 < half.size <= 0.5
    assert list(comparisons(tmp_path, "newest", [0.5], without=["shop"])) == []


def test_a_view_is_read_in_the_pieces_that_its_reader_meets():
    places = [(piece.place, *piece.turns) for piece in pieces_of(VIEW)]
    of_turns = [("user words", "t2"), ("entry", "t4"), ("excerpts", "t4"), ("entry", "t5")]
    assert places == [("brief", "t4"), ("facts", "t2"), *of_turns]


def test_what_stands_in_two_pieces_is_told_twice_and_what_repeats_in_one_is_not():
    found = repeats(VIEW)
    assert found.names == {"src/a.py": 2, "drain_queue": 2, "ticket-4711": 2}  # src/b.py again is a message
    assert found.cited == {"src/a.py", "drain_queue", "ticket-4711"}
    assert found.places == {("brief", "entry"): 1, ("brief", "excerpts"): 1, ("facts", "user words"): 1}
    assert found.again == 3


def test_lines_are_told_twice_whatever_mark_stands_before_them():
    line = "the same line of thirty characters and more"
    view = f'<compacted turns="t1-t2">\nt1 {line}\nt2 > Bash ls\n|   {line}\n</compacted>'
    assert repeats(view).lines == {line: 2}


def test_a_line_that_says_no_more_than_another_is_told_again_and_one_with_news_is_not():
    told = "- drain_queue waits for worker_2 (t1)"
    entries = "t1 drain_queue waits\nt2 > Read src/drain_queue.py\n| worker_2 = 4\nt3 now drain_queue returns early"
    found = repeats(f'<compacted turns="t1-t3">\nSTATE\n{told}\n{entries}\n</compacted>')
    assert found.retold == (
        ("t1 drain_queue waits", {"drain_queue"}),
    )  # and neither the value of worker_2 nor a heading


def test_the_names_of_tools_and_of_their_arguments_are_told_by_nobody():
    calls = "\n".join(
        f't{n} > exec_command rg file_{n} output_mode=content list=[{{"payment_id": {n}}}]' for n in (1, 2)
    )
    found = repeats(f'<compacted turns="t1-t2">\n{calls}\n</compacted>')
    assert (found.again, found.told, found.specifics) == (0, 0, 2)


def test_constraints_are_put_before_the_users_words_one_at_a_time(tmp_path):
    suite = tmp_path / "sssc.py"
    suite.write_text(
        'import os\nSSSCS = [{"id": 1, "sssc": "Never push."}, {"id": 2, "sssc": "Zzz qqq."}]\nos.abort()\n'
    )
    constraints = read_constraints(suite)
    asked = list(ask_constraints([FAILING], constraints, ["hard", "plain"], 0.9, "rules"))
    assert len(asked) == 8
    assert shares(asked)["hard, top"] == (2, 2)
    assert not any("Zzz qqq" in item.view for item in asked if item.wanted != "Zzz qqq." and item.wanted != "zzz qqq.")


def test_a_file_without_constraints_is_named(tmp_path):
    (tmp_path / "other.py").write_text("OTHER = []")
    with pytest.raises(TranscriptError, match=r"other\.py: no list SSSCS"):
        read_constraints(tmp_path / "other.py")


def test_literal_items_of_chats_are_held_against_the_view(tmp_path):
    pytest.importorskip("compactbench")
    (tmp_path / "kept.yaml").write_text(TEMPLATE)
    asked = list(ask_chats(tmp_path, "elite", range(1, 4), 0.25, "rules"))
    assert shares(asked) == {"forbidden": (3, 3)}


def test_sessions_are_held_out_whole_and_none_that_has_an_exam():
    names = [f"session{number}-s{piece}" for number in range(20) for piece in range(2)]
    held = draw(names, ["session3-s0"])
    assert len(held) == 10
    assert held == draw(names[::-1], ["session3-s1"])
    assert session_of("session3-s1") not in held


@pytest.mark.slow
def test_a_task_goes_on_from_the_tree_at_its_cut(tmp_path):
    """Nothing is done yet: no request is fulfilled, and of the demands those stand that stood."""
    render("command", tmp_path, "rules", 0.1)
    found = judge(tmp_path)
    assert not all(one.holds for one in found if one.kind == "accepted")
    demands = [one for one in found if one.kind == "demand"]
    assert len(demands) >= 5
    assert all(one.holds for one in demands)
    assert "Column widths must be right" in (tmp_path / "prompt.txt").read_text("utf-8")
    assert show_turn(tmp_path, "t1")


def test_a_summary_is_asked_for_before_it_is_used(tmp_path):
    assert "--answer FILE" in render("tidy", tmp_path, "own-summary", 0.1)
    assert not (tmp_path / "prompt.txt").exists()
    assert "Write a summary" in (tmp_path / "summary.prompt.txt").read_text("utf-8")


def test_a_client_that_is_too_old_for_the_plugin_does_not_fail(tmp_path):
    trial = Trial("claude", "Claude Code", tmp_path, "")
    trial.note("install", f"Claude Code 2.1.1 is too old: it compacts by itself\n{'and it refuses the mod ' * 40}")
    trial.restores(Counter())
    assert trial.cells == dict.fromkeys(("install", "restore by the agent"), IS_TOO_OLD)
