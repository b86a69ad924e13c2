"""What reaches a terminal, a pipe or a file: nothing that steers, nothing cut in a pipe, nothing readable by others."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import applier.cli
from tests.cli.conftest import interruptible
from tests.patience import PATIENCE_SECONDS

ESC = "\x1b]0;owned\x07\x1b[31m"


def run_apart(*arguments, **environment):
    """The command in a process of its own, its output a pipe of bytes."""
    return subprocess.run(
        [sys.executable, "-m", "applier.cli", *map(str, arguments)],
        env={**{k: v for k, v in os.environ.items() if k != "COLUMNS"}, **environment},
        capture_output=True,
    )


@pytest.mark.slow
def test_a_terminal_without_the_characters_gets_all_the_others(transcript):
    ran = run_apart("plan", transcript, "--planner", "rules", PYTHONIOENCODING="cp1252")
    assert ran.returncode == 0, ran.stderr
    assert b" ? " in ran.stdout.splitlines()[0]
    assert "\n? t" in "\n" + ran.stdout.decode("cp1252").replace("\n  ", "\n")


@pytest.mark.real
def test_errors_need_no_more_than_the_terminal_has(folder):
    ran = run_apart("plan", "✗.json", "--task", "x", PYTHONIOENCODING="ascii")
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)
    assert b"Traceback" not in ran.stderr


@pytest.mark.real
def test_a_transcript_keeps_its_characters_whatever_the_terminal_has(compactor, folder):
    messages = [
        {"role": "user", "content": "✗ → in Łódź"},
        {"role": "assistant", "content": "x " * 900},
        {"role": "user", "content": "go on"},
    ]
    (folder / "t.json").write_text(json.dumps(messages, ensure_ascii=False), "utf-8")
    assert compactor("plan", "t.json", "--planner", "rules", "-o", "p.json", "--task", "x").code == 0
    ran = run_apart("apply", "p.json", "t.json", "-o", "-", PYTHONIOENCODING="cp1252")
    assert json.loads(ran.stdout.decode("utf-8")) == json.loads(compactor("apply", "p.json", "t.json", "-o", "-").out)
    restored = run_apart("restore", "t1", PYTHONIOENCODING="cp1252").stdout.decode("utf-8")
    assert restored == "✗ → in Łódź\n"


@pytest.mark.real
def test_a_pipe_gets_whole_lines(folder):
    name = "a/" * 60 + "the-file-that-grep-looks-for.py"
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": f"cat {name}"}}
    messages = [
        {"role": "user", "content": "look at the file " + "and at the next one " * 20 + "to the last word"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x = 1\n" * 500}]},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "go on please"},
    ]
    (folder / "t.json").write_text(json.dumps(messages))
    ran = run_apart("plan", folder / "t.json", "--planner", "rules", "--target-ratio", "0.5")
    row = next(line for line in ran.stdout.decode().splitlines() if line.startswith("t1 "))
    assert "…" not in row


def test_a_width_that_is_none_is_as_if_unsaid(compactor, transcript, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    unsaid = compactor("plan", transcript, "--planner", "rules").out
    assert unsaid
    for columns in ("0", "-5", "wide"):
        monkeypatch.setenv("COLUMNS", columns)
        assert compactor("plan", transcript, "--planner", "rules").out == unsaid


def test_no_color_means_no_style_at_all(compactor, transcript, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in compactor("plan", transcript, "--planner", "rules").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in compactor("plan", transcript, "--planner", "rules").out


@pytest.mark.parametrize("name", [f"evil{ESC}.json", f"gone{ESC}.json"])
def test_file_names_steer_no_terminal(compactor, folder, name):
    (folder / f"evil{ESC}.json").write_text(json.dumps([{"role": "user", "content": 5}]))
    ran = compactor("plan", name, "--task", "x")
    assert ran.code in (1, 2)
    assert "\x1b" not in ran.err
    assert "\x07" not in ran.err


def test_notes_of_a_transcript_steer_no_terminal(compactor, folder):
    call = {"type": "tool_use", "id": f"t{ESC}", "name": f"Bash{ESC}", "input": {}}
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [call]}]
    (folder / "t.json").write_text(json.dumps(messages))
    ran = compactor("plan", "t.json", "--task", "x", "--planner", "rules")
    assert "messages[1]: call t" in ran.err
    assert "\x1b" not in ran.err + ran.out


def test_where_a_plan_went_steers_no_terminal(compactor, transcript, folder):
    ran = compactor("plan", transcript, "--planner", "rules", "-o", f"plan{ESC}.json")
    assert (folder / f"plan{ESC}.json").exists()
    assert "\x1b" not in ran.out


def test_plans_and_views_are_their_owners_alone(compactor, transcript, folder):
    old = os.umask(0)
    try:
        assert compactor("plan", transcript, "--planner", "rules", "-o", "plan.json").code == 0
        assert compactor("apply", "plan.json", transcript, "-o", "view.json").code == 0
    finally:
        os.umask(old)
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in ("plan.json", "view.json")} == {0o600}


def test_a_device_is_written_to_and_stays_a_device(compactor, transcript, plan_file, folder):
    null = folder / "null"
    null.symlink_to("/dev/null")
    assert compactor("apply", plan_file, transcript, "-o", null).code == 0
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert null.is_symlink()


@pytest.mark.real
def test_a_pipe_is_written_to_and_stays_a_pipe(compactor, transcript, plan_file, folder):
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert compactor("apply", plan_file, transcript, "-o", pipe).code == 0
        assert json.loads(reader.communicate(timeout=PATIENCE_SECONDS)[0])["messages"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.slow
def test_standard_output_by_its_name_is_written_to(transcript, plan_file):
    written = run_apart("apply", plan_file, transcript, "-o", "/dev/stdout")
    assert written.returncode == 0, written.stderr
    assert b'"messages"' in written.stdout


def test_a_device_without_room_is_named(compactor, transcript):
    ran = compactor("plan", transcript, "--planner", "rules", "-o", "/dev/full")
    assert (ran.code, ran.err) == (1, "compactor: /dev/full: No space left on device\n")


READ_ONLY = """
import os, sys
from pathlib import Path
from applier.cli.files import write_whole
if os.geteuid() == 0:
    os.setuid(65534)  # root may write to any file
try:
    write_whole(Path("kept.json"), "new")
except OSError as error:
    print(f"{Path(error.filename).name}: {error.strerror}")
"""


@pytest.mark.real
def test_a_file_that_may_not_be_written_is_not_replaced():
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "kept.json").write_text("old")
        (Path(name) / "kept.json").chmod(0o444)
        Path(name).chmod(0o777)
        paths = os.pathsep.join([str(Path(applier.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        ran = subprocess.run(
            [sys.executable, "-c", READ_ONLY], cwd=name, env={**os.environ, "PYTHONPATH": paths}, capture_output=True
        )
        assert ran.stdout.decode() == "kept.json: may not be written\n", ran.stderr
        assert (Path(name) / "kept.json").read_text() == "old"


def test_links_that_lead_in_a_circle_are_no_traceback(compactor, transcript, folder):
    circle = folder / "circle"
    circle.symlink_to("circle")
    for arguments in (["plan", circle], ["review", circle], ["store", "verify", "--store", circle]):
        ran = compactor(*arguments)
        assert ran.code in (1, 2)
        assert len(ran.err.splitlines()) == 1
    assert compactor("plan", transcript, "--planner", "rules", "-o", circle).code == 0
    assert json.loads(circle.read_text())["turns"]


@pytest.mark.real
@pytest.mark.parametrize("arguments", [["plan", "pipe", "-o", "out.json"], ["apply", "pipe", "pipe", "-o", "out.json"]])
def test_an_interrupted_command_says_so_and_writes_nothing(folder, arguments):
    os.mkfifo("pipe")
    command = [sys.executable, "-m", "applier.cli", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=interruptible)
    with process, open("pipe", "w"):  # open as soon as the command reads it, and silent
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (130, b"")
    assert err.strip() == b"compactor: interrupted; nothing was half-written"
    assert [path.name for path in folder.iterdir() if path.name != "store.db"] == ["pipe"]


@pytest.mark.real
def test_a_command_interrupted_while_it_loads_says_so():
    code = "import sys; sys.modules['applier.cli.app'] = Interrupted(); from applier.cli import main; main()"
    loading = "class Interrupted:\n    def __getattr__(self, name): raise KeyboardInterrupt\n"
    ran = subprocess.run([sys.executable, "-c", loading + code], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (130, b"")
    assert ran.stderr.strip() == b"compactor: interrupted; nothing was half-written"


def test_only_one_module_prints():
    for path in Path(applier.cli.__file__).parent.rglob("*.py"):
        if path.stem != "screen":
            assert not re.search(r"click\.s?echo\(|(?<!\.)\bprint\(|Console\(", path.read_text("utf-8")), path
