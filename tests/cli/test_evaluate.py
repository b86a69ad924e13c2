"""`eval`: what survives of a person's own transcripts, as a table and as JSON."""

import json
import re
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from applier.adapters.transcripts import read_transcript
from applier.eval.evaluation import cut_transcript


@pytest.fixture
def whole_run(folder):
    path = folder / "run.json"
    path.write_bytes(files("applier.eval").joinpath("transcript.json").read_bytes())
    return path


@pytest.mark.real
def test_rules_keep_more_than_the_newest_messages(compactor, whole_run):
    arguments = ["--method", "rules", "--method", "newest", "--ratio", 0.25]
    ran = compactor("eval", whole_run, *arguments, "--json")
    assert ran.code == 0
    means = {mean["method"]: mean for mean in ran.json["means"]}
    assert means["rules"]["in_context"] > means["newest"]["in_context"]
    assert {row["method"] for row in ran.json["cuts"]} == {"rules", "newest"}


def test_table_has_a_row_for_each_target(compactor, whole_run):
    ran = compactor("eval", whole_run, "--method", "newest", "--ratio", 0.25, "--ratio", 0.1)
    rows = [line.split() for line in ran.out.splitlines() if "newest" in line]
    assert [row[1] for row in rows] == ["0.25", "0.10"]


def test_a_transcript_that_cannot_be_cut_is_told_what_a_cut_needs(compactor, transcript):
    ran = compactor("eval", transcript)
    assert ran.code == 0
    assert "a cut needs 15,000 tokens before it, and after it 8 names" in ran.out


def test_a_file_that_is_no_transcript_costs_itself_alone(compactor, whole_run, folder):
    (folder / "bad.json").write_text("{")
    ran = compactor("eval", ".", "--method", "newest", "--ratio", 0.25)
    assert ran.code == 1
    assert "newest" in ran.out
    assert "not measured: " in ran.err
    assert "bad.json" in ran.err


@pytest.mark.real
def test_losses_are_given_when_asked(compactor, whole_run):
    ran = compactor("eval", whole_run, "--method", "newest", "--ratio", 0.25, "--lost")
    assert "  demands: Please keep the public names parse_line" in ran.out


EXAMS = Path(__file__).parents[1] / "evaluation" / "exams"
EXAMPLES = Path(__file__).parents[1] / "example"


@pytest.mark.real
@pytest.mark.parametrize("content", [[], [{"type": "image", "source": {"type": "url", "url": "https://a.org/b.png"}}]])
def test_an_exam_about_a_transcript_without_text_is_told(compactor, folder, content):
    question = {"n": 1, "kind": "state", "q": "how far?", "a": "done", "answer_any": ["done"]}
    (folder / "exam.json").write_text(json.dumps({"transcript": "mute", "questions": [question]}))
    (folder / "mute.json").write_text(json.dumps([{"role": "user", "content": content}] if content else []))
    ran = compactor("eval", "mute.json", "--probes", "exam.json")
    assert (ran.code, ran.err) == (1, "compactor: mute.json: contains no text for questions\n")


def test_an_exam_is_scored_by_kind_and_says_what_is_lost(compactor):
    arguments = ["eval", EXAMPLES / "failing.json", "--probes", EXAMS / "failing.json", "--ratio", 0.3]
    ran = compactor(*arguments, "--method", "rules", "--method", "newest", "--lost")
    assert ran.code == 0, ran.err
    title, _, *rows = ran.out.splitlines()[-4:]
    assert title.split() == "method target exams size score artifact failed user decision state".split()  # noqa: SIM905
    assert [row.split()[:3] for row in rows] == [["rules", "0.30", "1"], ["newest", "0.30", "1"]]
    assert "10 user: Which file must never be changed" in ran.out
    means = compactor(*arguments, "--json").json["means"]
    assert means[0]["by_kind"].keys() == {"artifact", "failed", "user", "decision", "state"}


@pytest.mark.parametrize("ratio", ["big", 7])
def test_a_ratio_that_is_no_share_is_wrong_usage(compactor, whole_run, ratio):
    assert compactor("eval", whole_run, "--ratio", ratio).code == 2


@pytest.mark.slow
def test_folders_of_prompts_are_compared_by_recorded_answers(compactor, whole_run, folder):
    read = read_transcript(whole_run)
    cuts = [cut.name for cut in cut_transcript(whole_run.stem, read.messages, read.task)]
    for name, turns in (("a", '"t1-t40 keep 9"'), ("b", '"t1-t40 drop 0"')):
        (folder / name).mkdir()
        for cut in cuts:
            (folder / name / f"{cut}.answer.txt").write_text(f'{{"need": "", "turns": [{turns}], "facts": []}}')
    methods = ("--method", "recorded:a", "--method", "recorded:b")
    ran = compactor("eval", whole_run, *methods, "--ratio", 0.1, "--lost")
    assert ran.code == 0, ran.err
    assert [line.split()[0] for line in ran.out.splitlines()[-2:]] == ["recorded:a", "recorded:b"]
    assert re.search(r"^run@\d+ recorded:b 0\.10\n  (?:lost|bare): ", ran.out, re.M)


def test_prompts_that_are_missing_or_no_prompts_are_wrong_usage(compactor, whole_run):
    ran = compactor("eval", whole_run, "--method", "prompts:nowhere")
    assert (ran.code, "nowhere: no such folder of prompts" in ran.err) == (2, True)


def test_unknown_method_is_wrong_usage(compactor, whole_run):
    ran = compactor("eval", whole_run, "--method", "magic")
    assert ran.code == 2
    assert "there are rules, model" in ran.err


def test_folder_without_transcripts_is_named(compactor, folder):
    ran = compactor("eval", ".")
    assert ran.code == 1
    assert "no transcripts" in ran.err


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("value", "expected a function, found int"),
        ("narrow", "TypeError: narrow() takes 0 positional arguments"),
        ("raises", "KeyError: 'x'"),
        ("nothing", "expected a list of messages, found NoneType"),
        ("gone", "has no attribute 'gone'"),
        ("broken:f", "SyntaxError"),
    ],
)
def test_a_method_of_ones_own_that_is_wrong_is_one_line(compactor, whole_run, folder, monkeypatch, function, says):
    (folder / "wrong_methods.py").write_text(
        "value = 3\ndef narrow(): ...\ndef nothing(*_): ...\ndef raises(*_):\n    raise KeyError('x')\n"
    )
    (folder / "wrong_broken.py").write_text("def f(:")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr("sys.path", [*sys.path])
    name = f"wrong_{function}" if ":" in function else f"wrong_methods:{function}"
    ran = compactor("eval", whole_run, "--method", name, "--ratio", "0.1")
    assert ran.code == 2
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1
