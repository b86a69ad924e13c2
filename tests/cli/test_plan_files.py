"""`plan` over many files: one row each, whatever ends it, and on any number of processes."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from applier.fleet import EMPTY_ROW, PlanOptions, plan_row
from applier.processes import in_processes, program
from applier.testing import Failure
from planner import CompactionPlan
from tests.cli.conftest import interruptible
from tests.loopback import KEY, Loopback

RULES = ("--planner", "rules")
MANY = 8
"""Files enough that a run is under way when it is ended."""
PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"
BEGIN_RAY = """
import ray, sys
options = dict(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=80_000_000)
ray.init(**options, _node_ip_address="127.0.0.1", _temp_dir=sys.argv[1])
"""
FROM_PATHS = """
paths = [{"path": path} for path in sys.argv[2:]]
planned_rows(ray.data.from_items(paths), PlanOptions(target_ratio=0.25)).write_json("rows of paths")
ray.shutdown()
"""


@pytest.fixture
def files(folder, example):
    """Five transcripts, in a folder and one below it, a foreign file and one that breaks off."""
    (folder / "in" / "below").mkdir(parents=True)
    for number in range(5):
        place = folder / "in" / ("below" if number % 2 else "") / f"run{number}.json"
        place.write_text(json.dumps({**example, "messages": example["messages"][: 9 + 2 * number]}))
    (folder / "in" / "package.json").write_text('{"name": "foreign"}')
    (folder / "in" / "broken.jsonl").write_text('[{"role": "user", "content": "x')
    (folder / "in" / "notes.txt").write_text("no transcript")
    return Path("in")


def rows_of(text):
    return sorted((json.loads(line) for line in text.splitlines()), key=lambda row: row["path"])


@cache
def row_of(path):
    """The row of a file of `files` or `many`, which have the same files in each test."""
    return plan_row(path, PlanOptions())


@pytest.mark.real
def test_each_file_is_a_row_and_what_is_none_costs_itself_alone(compactor, files):
    ran = compactor("plan", files, *RULES)
    rows = rows_of(ran.out)
    assert ran.code == 1
    assert rows == [row_of(row["path"]) for row in rows]
    assert [row["path"] for row in rows if row["error"]] == ["in/broken.jsonl", "in/package.json"]
    assert all(row["keep"] + row["summarize"] + row["reference"] + row["drop"] == row["turns"] for row in rows)
    table = ran.err.splitlines()
    assert table[2].split()[:3] == ["anthropic", "5", f"{sum(row['messages'] for row in rows)}"]
    assert sum("not planned: 1, " in line for line in table) == 2
    assert table[-1] == "compactor: not planned: 2 of 7 files; the reasons are in their rows"


@pytest.mark.real
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_run_that_ended_anywhere_goes_on_to_the_rows_of_one_run(compactor, files, data):
    output, paths = files.parent / "rows.jsonl", sorted(map(str, files.rglob("*.json*")))
    rows = data.draw(st.permutations([row_of(path) for path in paths]))
    whole = "".join(json.dumps(row) + "\n" for row in rows).encode()
    output.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    places = data.draw(st.permutations([files, files / "run4.json", files / "below"]))
    compactor("plan", *places, *RULES, "-o", output, "--workers", data.draw(st.integers(1, 2)))
    assert rows_of(output.read_text()) == rows_of(whole.decode())


@pytest.mark.real
def test_what_stands_is_not_planned_again_and_what_changed_is(compactor, files):
    assert compactor("plan", files, *RULES, "-o", "rows.jsonl").code == 1
    output = files.parent / "rows.jsonl"
    before = {row["path"]: row for row in rows_of(output.read_text())}
    (files / "broken.jsonl").unlink()
    (files / "package.json").write_text((files / "run0.json").read_text())
    ran = compactor("plan", files, *RULES, "-o", output)
    assert (ran.code, ran.out) == (0, "")
    assert "5 were planned before" in ran.err
    after = {row["path"]: row for row in rows_of(output.read_text())}
    assert after["in/package.json"] == before["in/run0.json"] | {"path": "in/package.json"}
    assert {**before, **after} == before | {"in/package.json": after["in/package.json"]}


def test_a_file_of_something_else_is_never_written_over(compactor, files):
    output = files.parent / "rows.jsonl"
    own = json.dumps(EMPTY_ROW | {"path": "in/run0.json", "options": PlanOptions(focus="else").digest})
    for text, says in (
        ("notes, no row", "line 1: is not a row"),
        ('{"path": "x"}\n', "line 1: is not a row"),
        ('[{"role": "user", "content": "hi"}]', "line 1: is not a row"),
        (f"{own}\n", "planned with other options"),
    ):
        output.write_text(text)
        ran = compactor("plan", files, *RULES, "-o", output)
        assert (ran.code, ran.out) == (2, "")
        assert says in ran.err
        assert output.read_text() == text
    output.unlink()
    assert compactor("plan", files / "run0.json", *RULES, "--workers", 2).code == 2
    for wrong in (("--web",), ("--all",), ("--part", "0"), ("--set", "t1=keep")):
        assert compactor("plan", files, *wrong).code == 2
    (files.parent / "empty").mkdir()
    assert "no transcripts" in compactor("plan", "empty").err


@pytest.mark.real
def test_plans_are_written_before_their_rows_and_apply(compactor, files):
    ran = compactor("plan", files, *RULES, "--plans", "in/plans", "-o", "in/rows.jsonl")
    assert ran.code == 1
    rows = rows_of((files / "rows.jsonl").read_text())
    plans = {row["path"]: files / "plans" / row["plan"] for row in rows if row["plan"]}
    assert len(plans) == 5
    for path, plan in plans.items():
        assert compactor("apply", plan, path, "--dry-run").code == 0
    again = compactor("plan", files, *RULES, "--plans", "in/plans", "-o", "in/rows.jsonl")
    assert "5 were planned before" in again.err
    assert rows_of((files / "rows.jsonl").read_text()) == rows
    assert CompactionPlan.from_json(plan.read_bytes())


@pytest.fixture
def many(folder, example):
    (folder / "in").mkdir()
    for number in range(MANY):
        begun = example["messages"][: 9 if number == 0 else None]
        text = json.dumps({**example, "messages": [*begun, {"role": "user", "content": f"Go on with {number}."}]})
        (folder / "in" / f"run{number:02}.json").write_text(text)
    return Path("in")


def begun(folder, **how):
    """A run of the real program, once it has written a row."""
    command = program("plan", "in", *RULES, "-o", "rows.jsonl", "--workers", "2")
    how = {"preexec_fn": interruptible, **how}
    run = subprocess.Popen(
        command, cwd=folder, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how
    )
    output = folder / "rows.jsonl"
    while run.poll() is None and not (output.exists() and output.stat().st_size):
        time.sleep(0.01)
    return run


def assert_goes_on(folder, compactor):
    assert compactor("plan", "in", *RULES, "-o", "rows.jsonl").code == 0
    rows = rows_of((folder / "rows.jsonl").read_text())
    assert [row["path"] for row in rows] == [f"in/run{number:02}.json" for number in range(MANY)]
    assert all(row == row_of(row["path"]) for row in rows[::3])


def assert_ends(group):
    """All processes of the `group` end."""
    with suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            time.sleep(0.02)


@pytest.mark.real
def test_a_killed_run_leaves_no_process_and_goes_on(compactor, many):
    run = begun(many.parent)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    assert_ends(run.pid)
    assert 0 < len((many.parent / "rows.jsonl").read_bytes().splitlines()) < MANY
    assert_goes_on(many.parent, compactor)


@pytest.mark.real
@pytest.mark.parametrize("send", [os.killpg, pytest.param(os.kill, marks=pytest.mark.slow)])
def test_ctrl_c_ends_with_the_table_so_far(compactor, many, send):
    """At a terminal all processes get it; from `kill` one does."""
    run = begun(many.parent)
    send(run.pid, signal.SIGINT)
    _, err = run.communicate()
    assert_ends(run.pid)
    assert run.returncode == 130
    count = len(rows_of((many.parent / "rows.jsonl").read_text()))
    lines = err.splitlines()  # where the first row was just being written there is none
    assert [line.split()[:2] for line in lines if line.startswith("anthropic")] == [["anthropic", str(count)]][:count]
    assert f"{MANY - count} left: run the command again to continue" in lines
    assert lines[-1] == "compactor: interrupted; nothing was half-written"
    assert_goes_on(many.parent, compactor)


@pytest.mark.real
def test_two_runs_do_not_write_the_same_rows(compactor, many):
    run = begun(many.parent)
    ran = compactor("plan", many, *RULES, "-o", "rows.jsonl")
    assert (ran.code, "another run writes to it" in ran.err) == (2, True)
    assert run.wait() == 0
    run.communicate()


@pytest.mark.real
def test_a_full_disk_is_said_and_the_run_goes_on_where_it_was(compactor, many):
    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))

    run = begun(many.parent, preexec_fn=small, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    _, err = run.communicate()
    assert run.returncode == 1
    assert err.splitlines()[-1].startswith("compactor: rows.jsonl: File too large")
    text = (many.parent / "rows.jsonl").read_text()
    assert len(text) <= 2_000
    assert text.endswith("}\n")
    assert_goes_on(many.parent, compactor)
    assert compactor("plan", many, *RULES, "-o", "/dev/full").err.count("No space left on device") == 1


@pytest.mark.real
def test_a_process_that_dies_takes_only_its_item_with_it():
    dies = "__import__('os')._exit(1)"
    items = [dies, *(f"{number} + 1" for number in range(9)), dies + " "]
    done = dict(in_processes(eval, items, 2))
    assert done == {item: None if dies in item else eval(item) for item in items}


@pytest.mark.real
def test_a_model_is_asked_up_to_the_cap(compactor, files, monkeypatch):
    with Loopback('{"need": "", "turns": ["t2 drop 0"], "facts": []}') as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        ran = compactor("plan", files, "--cap", "0.001", "-o", "rows.jsonl")
        assert (ran.code, len(server.requests), (files.parent / "rows.jsonl").exists()) == (2, 0, False)
        assert "7 files may cost" in ran.err
        assert "more than --cap 0.001: raise --cap, or use --planner rules" in ran.err
        ran = compactor("plan", files, "-o", "rows.jsonl", "--workers", 1)
        rows = [row for row in rows_of((files.parent / "rows.jsonl").read_text()) if not row["error"]]
        assert len(server.requests) == 5
        assert {(row["planner"], row["model"]) for row in rows} == {("model", "claude-haiku-5-5")}
        assert all(row["input_tokens"] > 0 for row in rows)
        assert "7 files to plan with claude-haiku-5-5: at most" in ran.err
        compactor("plan", files, "-o", "rows.jsonl")
        assert len(server.requests) == 5


@pytest.mark.real
def test_a_model_that_does_not_answer_ends_the_run_and_its_files_are_tried_again(compactor, files, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    how = ("-o", "rows.jsonl", "--workers", 1)
    with Loopback(lambda _: Failure(401, "authentication_error", "no")) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        ran = compactor("plan", *sorted(files.rglob("run*.json")), *how)
    assert ran.code == 1
    assert "stopped after " in ran.err
    assert "2 left: run the command again to continue" in ran.err
    rows = rows_of((files.parent / "rows.jsonl").read_text())
    assert [row["cause"] for row in rows] == ["PlannerUnavailable"] * 3
    assert KEY not in ran.err + str(rows)
    with Loopback('{"need": "", "turns": ["t2 drop 0"], "facts": []}') as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert compactor("plan", *sorted(files.rglob("run*.json")), *how).code == 0
    assert len(rows_of((files.parent / "rows.jsonl").read_text())) == 5


def test_what_a_row_quotes_of_a_foreign_file_holds_no_secret(tmp_path):
    (tmp_path / "keys.json").write_text("AKIAIOSFODNN7EXAMPLE is the key")
    row = plan_row(str(tmp_path / "keys.json"), PlanOptions())
    assert row["error"].startswith("line 1, column 1: not JSON")
    assert "AKIAIOSFODNN7" not in str(row)


@pytest.fixture
def place():
    """A folder whose name stays short however often tests ran: the path of a socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")
def test_a_stage_of_ray_gives_the_same_rows(files, place):
    """The page's own code, and files that only Ray's workers read. What listens does so on this machine alone."""
    environment = {**os.environ, "HOME": str(place), "RAY_USAGE_STATS_ENABLED": "0"}
    files.rename("logs")
    paths = sorted(str(path) for path in Path("logs").resolve().rglob("*.json*"))
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    (place / "stage.py").write_text(BEGIN_RAY + shown + FROM_PATHS)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(place / "stage.py"), str(place), *paths]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, start_new_session=True)
    assert ran.returncode == 0, ran.stderr
    expected = [plan_row(path, PlanOptions(target_ratio=0.25)) for path in paths]
    for folder in ("rows", "rows of paths"):
        rows = rows_of("".join(part.read_text() for part in Path(folder).iterdir()))
        made = [row | {"path": os.path.abspath(row["path"])} for row in rows if "notes.txt" not in row["path"]]
        assert made == expected
