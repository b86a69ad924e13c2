"""Exams: the questions hold what they say, the literal score counts them, and a round of readings goes its way."""

import json
import re
from importlib.resources import files
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.eval.evaluation import Exam, ExamView, exam_means, exam_samples, exam_views, read_exams
from applier.eval.survival import plain_text
from planner.errors import TranscriptError
from planner.reading.lines import one_line
from tests.bench.__main__ import main
from tests.bench.answer_sheets import AnswerSheet, advance_round, graded_views, read_sheets
from tests.bench.own_summary import OWN_SUMMARY, summary_views
from tests.evaluation.work import PAST, TASK

EXAMS = Path(__file__).with_name("exams")
TRANSCRIPTS = [
    Path(str(files("applier.eval").joinpath("transcript.json"))),
    Path(__file__).parents[1] / "example" / "failing.json",
]
EXAM = {
    "transcript": "job",
    "questions": [
        {"n": 1, "kind": "artifact", "q": "Which file?", "a": "runner.py", "answer_any": ["report/runner.py"]},
        {"n": 2, "kind": "user", "q": "What must stay?", "a": "the API", "answer_any": ["change the  public API"]},
    ],
}


@pytest.mark.parametrize("path", sorted(EXAMS.glob("*.json")), ids=lambda path: path.stem)
def test_every_answer_of_the_own_exams_stands_in_its_evidence(path):
    (sample,) = exam_samples(read_exams([path]), TRANSCRIPTS)
    assert [question.number for question in sample.exam.questions] == list(range(1, 17))
    kinds = [question.kind for question in sample.exam.questions]
    assert [kinds.count(kind) for kind in ("artifact", "failed", "user", "decision", "state")] == [5, 4, 3, 2, 2]
    for question in sample.exam.questions:
        evidence = [one_line(plain_text([sample.messages[at]])) for at in question.evidence]
        scores = [sample.exam.literal_scores(text)[question.number] for text in evidence]
        assert any(scores), question.text
        unfounded = [text for text in question.answer_any if not any(one_line(text) in held for held in evidence)]
        assert unfounded == [], question.text


@pytest.mark.real
def test_the_rules_planner_passes_the_own_exams_and_more_size_is_never_worse():
    for sample in exam_samples(read_exams([EXAMS]), TRANSCRIPTS):
        small, large = exam_views(sample, ["rules"], [0.2, 1.0])
        (first,), (second,) = (exam_means([(view, view.scores)]) for view in (small, large))
        assert second.score == 1.0
        assert 0.6 <= first.score <= second.score


def exam():
    return Exam.model_validate(EXAM)


def view(text, method="rules"):
    return ExamView(exam(), method, ratio=0.1, size=0.1, text=text)


def test_white_space_does_not_matter_and_one_accepted_string_is_enough():
    shown = view("in /srv/jobs/report/runner.py; Never change\n   the public API")
    assert shown.scores == {1: 1.0, 2: 1.0}
    assert [question.number for question in view("runner.py").lost] == [1, 2]


@given(st.text(), st.text())
def test_more_text_never_scores_less(text, more):
    known = "never change the public API " + text
    assert fmean(view(known + more).scores.values()) >= fmean(view(known).scores.values()) >= 0.5


@pytest.fixture
def sample(tmp_path):
    summary = "Never change the public API"
    document = {"task": TASK, "messages": PAST, "meta": {"native_compact_summary": summary}}
    (tmp_path / "job.json").write_text(json.dumps(document))
    (found,) = exam_samples([exam()], [tmp_path / "job.json"])
    return found


def test_the_agents_own_summary_stands_beside_methods_at_its_size(sample, tmp_path):
    views = list(summary_views(sample, tmp_path / "job.json", ["newest"]))
    assert [view.method for view in views] == [OWN_SUMMARY, "newest"]
    assert views[0].scores == {1: 0.0, 2: 1.0}
    assert views[0].size == views[0].ratio == views[1].ratio
    assert views[1].size <= views[0].size


def test_a_recorded_method_writes_the_prompt_until_it_is_answered(sample, tmp_path):
    method = f"recorded:{tmp_path / 'answers'}"
    assert list(exam_views(sample, [method], [0.9])) == []
    (prompt,) = (tmp_path / "answers").iterdir()
    assert prompt.name == "job@0.9.prompt.txt"
    assert TASK in prompt.read_text()
    answer = '{"need": "", "turns": ["t2 keep 9"], "facts": []}'
    (tmp_path / "answers" / "job@0.9.answer.txt").write_text(answer)
    (planned,) = exam_views(sample, [method], [0.9])
    assert planned.scores[1] == 1.0


def test_a_round_goes_from_views_to_answers_to_blind_grades(tmp_path):
    views = [view("report/runner.py was read", "rules"), view("nothing", "newest")]
    first = advance_round(tmp_path, views)
    assert (first.views, len(first.to_answer), first.to_grade) == (2, 2, ())
    for path in first.to_answer:
        shown = path.read_text()
        assert "Which file?" in shown
        assert not {"rules", "newest", "runner.py\n"} & set(shown.split(" "))
        own = {"1": "runner.py"} if "runner.py" in shown else {"1": "UNKNOWN"}
        (tmp_path / "answers" / f"{path.stem}.json").write_text(json.dumps({**own, "2": "UNKNOWN"}))
    second = advance_round(tmp_path, views)
    (sheet,) = second.to_grade
    told = sheet.read_text()
    assert "right: runner.py" in told
    assert "newest" not in told
    grades = {name: 1 if answer == "runner.py" else 0 for name, answer in re.findall(r"^(\w{8}): (.*)$", told, re.M)}
    assert sorted(grades.values()) == [0, 0, 0, 1]
    (tmp_path / "grades" / "any.json").write_text(json.dumps(grades))
    assert advance_round(tmp_path, views) == type(second)(2, (), ())
    graded = graded_views(views, read_sheets(tmp_path))
    assert [(view.method, sheet.grades) for view, sheet in graded] == [
        ("rules", {1: 1, 2: 0}),
        ("newest", {1: 0, 2: 0}),
    ]


def test_an_answer_that_changed_is_graded_anew_and_look_ups_are_a_reading_of_their_own(tmp_path):
    views = [view("nothing")]
    (shown,) = advance_round(tmp_path, views).to_answer
    answers = tmp_path / "answers" / f"{shown.stem}.json"
    answers.write_text('{"1": "x.py", "2": "UNKNOWN"}')
    (sheet,) = advance_round(tmp_path, views).to_grade
    names = re.findall(r"^(\w{8}): ", sheet.read_text(), re.M)
    (tmp_path / "grades" / "a.json").write_text(json.dumps(dict.fromkeys(names, -0.5)))
    assert advance_round(tmp_path, views).to_grade == ()
    answers.write_text('{"1": "runner.py", "2": "UNKNOWN"}')
    (tmp_path / "answers" / f"{shown.stem}.lookups.json").write_text(
        json.dumps({"answers": {"1": "runner.py"}, "lookup_calls": 2, "lookup_tokens": 90})
    )
    (sheet,) = advance_round(tmp_path, views).to_grade
    assert len(re.findall(r"^\w{8}: runner.py$", sheet.read_text(), re.M)) == 2
    kept = {sheet.lookup_calls: sheet.grades for sheet in read_sheets(tmp_path)}
    assert kept == {None: {2: -0.5}, 2: {}}


def test_a_reader_who_may_look_things_up_is_told_how_and_each_look_up_is_counted(tmp_path, capsys):
    transcript, exam = tmp_path / "job.json", tmp_path / "exam.json"
    transcript.write_text(json.dumps({"task": TASK, "messages": PAST}))
    exam.write_text(json.dumps(EXAM))
    step = ["exams", str(transcript), "--probes", str(exam), "--ratio", "0.1", "--look-ups"]
    main([*step, "--write-views", str(tmp_path / "round")])
    (told,) = (tmp_path / "round" / "views").glob("*.lookups.txt")
    name = told.name.partition(".")[0]
    assert f"look-up {(tmp_path / 'round').resolve()} {name} search_context" in told.read_text()
    assert "look nothing up" not in told.read_text()
    main(["look-up", str(tmp_path / "round"), name, "search_context", "text=runner.py"])
    main(["look-up", str(tmp_path / "round"), name, "restore_context", "reference=t900"])
    assert "runner.py" in (said := capsys.readouterr().out)
    assert "[look-up 2 of 5" in said
    (tmp_path / "round" / "answers" / told.name.replace("txt", "json")).write_text('{"answers": {"1": "runner.py"}}')
    main([*step, "--write-views", str(tmp_path / "round")])
    (sheet,) = (sheet for sheet in read_sheets(tmp_path / "round") if sheet.lookup_calls is not None)
    assert sheet.lookup_calls == 2
    assert 0 < sheet.lookup_tokens < 1_000


def test_grades_of_another_view_do_not_count():
    old = AnswerSheet(transcript="job", method="rules", ratio=0.1, view_sha=view("old").sha, grades={1: 1})
    assert graded_views([view("new")], [old]) == []
    assert len(graded_views([view("old")], [old])) == 1


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("exam.json", '{"transcript": "x", "questions": []}', "questions: "),
        ("exam.json", "{}", "transcript: field required"),
        ("exam.json", "no", "the whole file: "),
    ],
)
def test_a_file_that_is_no_exam_is_named_with_the_field(tmp_path, name, text, complaint):
    (tmp_path / name).write_text(text)
    with pytest.raises(TranscriptError, match=rf"exam\.json: {complaint}"):
        read_exams([tmp_path])


def test_a_grade_that_is_none_is_refused_with_its_file(tmp_path):
    advance_round(tmp_path, [view("x")])
    (tmp_path / "grades" / "g.json").write_text('{"abc": 0.7}')
    with pytest.raises(TranscriptError, match=r"g\.json: abc: "):
        advance_round(tmp_path, [view("x")])


def test_an_exam_without_its_transcript_is_one_clear_error():
    with pytest.raises(TranscriptError, match="job: the exam's transcript is not among"):
        list(exam_samples([exam()], []))


def test_a_round_is_led_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    arguments = [str(TRANSCRIPTS[1]), "--probes", str(EXAMS / "failing.json"), "--ratio", "0.3"]
    main(["exams", *arguments, "--write-views", str(tmp_path / "round")])
    shown = capsys.readouterr().out
    assert "0.30" in shown
    assert "1 views in" in shown
    (view,) = (tmp_path / "round" / "views").iterdir()
    (tmp_path / "round" / "answers" / f"{view.stem}.json").write_text('{"1": "anything"}')
    main(["exams", *arguments, "--write-views", str(tmp_path / "round")])
    assert "to grade: " in capsys.readouterr().out


def test_labels_and_flags_are_printed_by_method(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    main(["labels", str(TRANSCRIPTS[1]), "--labels", str(Path(__file__).with_name("labels")), "--method", "newest"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "newest" in line]
    assert [row[2] for row in rows] == ["0.25", "0.10"]
    assert all(len(row) == 8 for row in rows)
