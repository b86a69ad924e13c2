"""Failures and the user's words found in a list without labels, and labels found literally."""

import json
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given

from applier.eval.survival import failure_traces, measure_survival, user_demands
from planner.errors import TranscriptError
from tests.bench.labels import Labels, failure_flags, measure_labels, read_labels
from tests.evaluation.work import PAST, call, result
from tests.strategies import histories


@given(histories())
def test_an_unchanged_list_lost_nothing(messages):
    survival = measure_survival(messages, messages)
    assert survival.failures_kept == survival.demands_kept == 1


@given(histories())
def test_an_empty_list_lost_every_failure_and_demand(messages):
    survival = measure_survival(messages, [])
    assert len(survival.failures_lost) == survival.failures
    assert len(survival.demands_lost) == survival.demands


@pytest.mark.parametrize(
    ("output", "is_error", "line"),
    [
        ("FAILED tests/test_a.py::test_x - KeyError: 'token'\nexit code 1", False, "FAILED tests/test_a.py::test_x"),
        ("Exit code 127\nbash: rg: command not found", True, "bash: rg: command not found"),
        ("Traceback (most recent call last):\n  File 'x'\nValueError: bad port", False, "ValueError: bad port"),
        ("The user doesn't want to proceed. The user said: use the pool instead", True, None),
        ("The tool use was rejected, the user said:\nuse the pool instead", True, "use the pool instead"),
        ("found 3 errors in the log you asked for", False, None),
        ("Exit code 0\nall good", False, None),
    ],
)
def test_a_failure_is_told_by_its_most_telling_lines(output, is_error, line):
    traces = list(failure_traces([call(1, "Bash", command="x"), result(1, output, is_error)]))
    if line:
        assert line in " ".join(traces[0])
    else:
        assert not any("3 errors" in told or "all good" in told for lines in traces for told in lines)


def test_demands_are_sentences_of_the_user_that_bind():
    told = [
        {
            "role": "user",
            "content": "Hello there. Please never touch the schema! <system-reminder>always x</system-reminder>",
        },
        {"role": "user", "content": "[Request interrupted by user]"},
        {"role": "user", "content": "we must " + "x" * 3_000},
        {"role": "assistant", "content": "I should never do that."},
    ]
    assert list(user_demands(told)) == ["Please never touch the schema!"]


LABELS = {
    "transcript": "job",
    "cut": 6,
    "failed": [{"tried": "signal.alarm", "outcome": "never fires in a worker"}],
    "constraints": ["Never change the public API"],
    "questions": [{"question": "Which file?", "answers": ["runner.py", "DEFAULT_DEADLINE"]}],
}


def test_labels_are_found_whatever_the_white_space_and_need_all_of_an_answer(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(LABELS))
    labels = read_labels([tmp_path])["job"]
    whole = measure_labels(labels, PAST)
    assert (whole.failed, whole.constraints, whole.answers, whole.lost) == ((True,), (True,), (True,), ())
    part = measure_labels(labels, [{"role": "user", "content": "signal.alarm: never\n  fires in a worker; runner.py"}])
    assert part.failed == (True,)
    assert part.lost == ("Never change the public API", "Which file?")


OWN = Path(__file__).with_name("labels")
TRANSCRIPTS = {
    "transcript": Path(str(files("applier.eval").joinpath("transcript.json"))),
    **{name: Path(__file__).parents[1] / "example" / f"{name}.json" for name in ("failing", "service")},
}


def test_failures_of_the_own_transcripts_are_flagged_and_little_else():
    """Labels by reading every result; the floor is what this had when it was made, less one turn."""
    flags = [
        failure_flags(labels, json.loads(TRANSCRIPTS[name].read_text())["messages"])
        for name, labels in read_labels([OWN]).items()
    ]
    right, false, missed = (sum(len(getattr(own, name)) for own in flags) for name in ("right", "false", "missed"))
    assert right / (right + missed) >= 0.94
    assert right / (right + false) >= 0.85


def test_flags_are_right_false_or_missed_and_unknown_without_all_labels():
    labels = Labels.model_validate({**LABELS, "failing_messages": [2, 4]})
    flags = failure_flags(labels, PAST)
    assert (flags.right, flags.missed, flags.recall) == (("t3",), ("t2",), 0.5)
    assert flags.precision == 1 / (1 + len(flags.false))
    assert failure_flags(Labels.model_validate(LABELS), PAST) is None


def test_a_file_that_holds_no_labels_is_named(tmp_path):
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**LABELS, "cut": "last"}))
    with pytest.raises(TranscriptError, match=r"job\.json: cut: "):
        read_labels([path])
    assert Labels.model_validate(LABELS).cut == 6
