"""What holds for every command: help, exit codes, one-line errors that say what to do."""

import subprocess
import sys

import pytest

from applier.cli.app import COMMANDS


def test_help_names_every_command_with_a_line_about_it(compactor):
    ran = compactor("--help")
    assert ran.code == 0
    lines = {line.split()[0]: line.split()[1:] for line in ran.out.splitlines() if line.startswith("  ")}
    assert all(lines[name] for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(compactor, name):
    assert compactor(name, "--help").code == 0


def test_no_command_is_wrong_usage_and_shows_help(compactor):
    ran = compactor()
    assert ran.code == 2
    assert "plan" in ran.err
    assert ran.out == ""


def test_version(compactor):
    assert compactor("--version").out.startswith("compactor, version ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["plan"], "Missing argument 'TRANSCRIPT'"),
        (["plan", "nowhere.json"], "'nowhere.json' does not exist"),
        (["plan", "transcript.json", "--target-ratio", "1.5"], "1.5 is not in the range"),
        (["plan", "transcript.json", "--target-ratio", "0.5", "--target-tokens", "9"], "exclude each other"),
        (["plan", "transcript.json", "--planner", "best"], "'best' is not one of"),
        (["plan", "transcript.json", "--set", "t3=forget"], "expected t12=STRATEGY"),
        (["plan", "transcript.json", "--set", "3=keep"], "expected t12=STRATEGY"),
        (["plan", "transcript.json", "--prompts", "nowhere"], "'nowhere' does not exist"),
        (["review", "plan.json", "--set", "t3=keep"], "need TRANSCRIPT"),
        (["review", "plan.json", "transcript.json", "--set", "t999=keep"], "the plan has turns t1 to t"),
        (["apply", "plan.json", "transcript.json"], "say by -o where"),
        (["apply", "plan.json", "transcript.json", "-o", "no/where.json"], "no such folder"),
        (["restore", "t1", "--lines", "9-3"], "expected lines like 3-9"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(compactor, transcript, plan_file, arguments, says):
    ran = compactor(*arguments)
    assert ran.code == 2
    assert says in ran.err
    assert ran.err.startswith("compactor: ")
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan", "broken.json", "--task", "x"], "broken.json"),
        (["plan", "number.json", "--task", "x"], "number.json"),
        (["review", "broken.json"], "broken.json"),
        (["review", "old-plan.json"], "version"),
        (["apply", "plan.json", "other.json", "-o", "out.json"], "plan again"),
        (["restore", "t1"], "no store there yet"),
        (["facts"], "no store there yet"),
        (["log"], "no store there yet"),
        (["store", "verify"], "no store there yet"),
        (["undo", "transcript.json", "-o", "out.json"], "nothing to undo"),
    ],
)
def test_failed_work_is_one_line_and_code_1(compactor, transcript, plan_file, folder, arguments, says):
    (folder / "broken.json").write_text('{"messages": [')
    (folder / "number.json").write_text("17")
    (folder / "other.json").write_text('[{"role": "user", "content": "hello"}]')
    (folder / "old-plan.json").write_text(plan_file.read_text().replace('"version": 1', '"version": 0'))
    before = sorted(folder.iterdir())
    ran = compactor(*arguments)
    assert ran.code == 1
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1
    assert sorted(folder.iterdir()) == before


def test_reader_that_leaves_early_gets_no_traceback(folder, transcript):
    command = [
        sys.executable,
        "-m",
        "applier.cli",
        "plan",
        str(transcript),
        "--task",
        "x",
        "--planner",
        "rules",
        "--all",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
