"""Many compactions in a row: what is counted, and where the prompts of recorded rounds go."""

import json
from pathlib import Path

import pytest

from applier.eval.evaluation import Exam
from applier.eval.survival import message_tokens
from planner.plan import Usage
from planner.reading.tokens import TokenCounter
from planner.rules import RulesPlanner
from planner.validity import check_messages
from tests.bench.__main__ import main
from tests.bench.rounds import AnsweredRounds, compact_in_rounds
from tests.bench.speed import made_session
from tests.strategies import make_session

FAILING = Path(__file__).parents[1] / "example" / "failing.json"
EXAM = Exam.model_validate_json((Path(__file__).with_name("exams") / "failing.json").read_bytes())


class Reader:
    """Plans by rules, and says it has read ten tokens a time."""

    def propose(self, request):
        proposal = RulesPlanner().propose(request)
        usage = Usage(input_tokens=10, output_tokens=1, requests=1)
        provenance = proposal.provenance.model_copy(update={"usage": usage})
        return type(proposal)(proposal.turns, provenance, proposal.facts)


def test_each_round_adds_up_what_the_planner_read_and_the_last_is_examined():
    document = json.loads(FAILING.read_text())
    run = compact_in_rounds(
        document["messages"],
        document["task"],
        Reader(),
        rounds=4,
        exam=EXAM,
        from_scratch=RulesPlanner(),
        window_tokens=3_000,
    )
    assert [each.planner_input_tokens for each in run.rounds] == [10, 20, 30, 40]
    assert run.unplanned == 0
    assert run.planner_input_ratio == 40 / TokenCounter().messages(document["messages"])
    assert all(each.sent_tokens <= each.history_tokens for each in run.rounds)
    assert {each.demands[1] for each in run.rounds} == {run.rounds[0].demands[1]}
    assert 0 < run.exam_score <= 1
    assert 0 < run.exam_score_from_scratch <= 1


def test_rounds_without_an_answer_are_counted_and_their_first_prompt_is_written(tmp_path):
    messages = make_session(40)
    run = compact_in_rounds(messages, "", AnsweredRounds(tmp_path, "job"), rounds=3, window_tokens=4_000)
    assert run.unplanned == 3
    assert run.exam_score is run.exam_score_from_scratch is None
    lengths = sorted(int(path.name.split("@")[1].split(".")[0]) for path in tmp_path.iterdir())
    assert lengths[-1] == len(messages)


@pytest.mark.parametrize("tokens", [2_000, 20_000])
def test_a_made_up_session_is_valid_of_its_size_and_always_the_same(tokens):
    messages = made_session(tokens)
    assert messages == made_session(tokens)
    assert tokens <= message_tokens(messages) < tokens + 6_000
    assert not list(check_messages(messages))


def test_tables_of_rounds_and_presets_are_printed(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "failing.json").write_bytes(FAILING.read_bytes())
    main(["rounds", str(tmp_path), "--rounds", "2", "--probes", str(Path(__file__).with_name("exams"))])
    assert "from scratch" in capsys.readouterr().out
    main(["presets", str(tmp_path), "--preset", "off", "--window", "30000", "--processes", "1"])
    assert "30,000" in capsys.readouterr().out
