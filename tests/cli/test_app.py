"""What holds for every command: help, exit codes, one-line errors that say what to do."""

import json
import subprocess
import sys

import pytest

from applier.cli.app import COMMANDS
from applier.cli.commands.servers import PROJECT_VARIABLE, SESSION_VARIABLE, TOKEN_VARIABLE
from applier.cli.options import naming_store
from applier.settings import load_settings
from applier.store import STORE_VARIABLE


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
        (["plna", "transcript.json"], "Did you mean 'plan'?"),
        (["undo", "transcript.json", "-o", "transcript.json"], "is the view itself"),
        (["watch", "transcript.json", "--web", "--json"], "--json and --web exclude each other"),
        (["learn", "--into", "/etc/hosts", "--yes"], "/etc/hosts: expected a text file of the project"),
        (["plan"], "Missing argument 'TRANSCRIPT...'"),
        (["plan", "nowhere.json"], "'nowhere.json' does not exist"),
        (["plan", "transcript.json", "--target-ratio", "1.5"], "1.5 is not in the range"),
        (["plan", "transcript.json", "--target-ratio", "0.5", "--target-tokens", "9"], "exclude each other"),
        (["plan", "transcript.json", "--planner", "best"], "'best' is not one of"),
        (["plan", "transcript.json", "--set", "t3=forget"], "expected t12=STRATEGY"),
        (["plan", "transcript.json", "--set", "3,=keep"], "expected t12=STRATEGY"),
        (["restore", "t9-t3"], "the range runs backwards; expected t3-t9"),
        (
            ["apply", "plan.json", "transcript.json", "-o", "transcript.json"],
            "is the transcript itself",
        ),
        (["plan", "transcript.json", "--prompts", "nowhere"], "'nowhere' does not exist"),
        (["review", "plan.json", "--set", "t3=keep"], "need TRANSCRIPT"),
        (["review", "plan.json", "transcript.json", "--set", "t999=keep"], "the plan has turns t1 to t"),
        (["apply", "plan.json", "transcript.json"], "name the new transcript with -o FILE"),
        (["apply", "plan.json", "transcript.json", "-o", "no/where.json"], "no such folder"),
        (["apply", "plan.json", "transcript.json", "-o", "."], "is a directory"),
        (["plan", "broken-too.json", "-o", "no/where.json"], "'no': no such folder: make it first"),
        (["undo", "transcript.json", "-o", "no/where.json"], "no such folder"),
        (["restore", "t1", "--lines", "9-3"], "expected lines like 3-9"),
        (["plan", "transcript.json", "--set", "t5-t2=keep"], "the range runs backwards; expected t2-t5"),
        (["plan", "transcript.json", "--set", f"t{'9' * 5_000}=keep"], "expected t12=STRATEGY"),
        (["review", "plan.json", "transcript.json", "--set", "t1-t99999999=keep"], "the plan has turns t1 to t"),
        (["plan", "transcript.json", "--target-tokens", "9" * 30], "is not in the range"),
        (["plan", "transcript.json", "--target-tokens", "9" * 5_000], "--target-tokens"),
        (["review", "plan.json", "--brief", "brief.txt"], "'brief.txt' does not exist"),
        (["review", "plan.json", "--brief", "plan.json"], "need TRANSCRIPT"),
        (["review", "plan.json", "--web"], "need TRANSCRIPT"),
        (["plan", "with-system.json", "--target-tokens", "10"], "target_tokens 10: system and tools alone take"),
        (["wrap"], "CLIENT"),
        (["proxy", "--host", "0.0.0.0"], "COMPACTOR_PROXY_TOKEN"),
        (["proxy", "--window", "1"], "--window"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(compactor, transcript, plan_file, arguments, says):
    whole = {**json.loads(transcript.read_text()), "system": "You are a coding agent. " * 20}
    transcript.with_name("with-system.json").write_text(json.dumps(whole))
    transcript.with_name("broken-too.json").write_text("{")
    ran = compactor(*arguments)
    assert ran.code == 2
    assert says in ran.err
    assert ran.err.startswith("compactor: ")
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""


@pytest.mark.real
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan", "broken.json", "--task", "x"], "broken.json"),
        (["plan", "number.json", "--task", "x"], "number.json"),
        (["review", "broken.json"], "broken.json"),
        (
            ["review", "transcript.json"],
            "holds a transcript, expected a plan: name PLAN before TRANSCRIPT, or make one with `compactor plan ",
        ),
        (["log", "--store", "."], "a folder, not a store"),
        (["review", "old-plan.json"], "version"),
        (["review", "huge-plan.json"], "huge-plan.json: history.tokens"),
        (["review", "endless-plan.json"], "endless-plan.json: target_tokens"),
        (["review", "digits-plan.json"], "digits-plan.json: expected a plan as JSON"),
        (["plan", "digits.json", "--task", "x"], "digits.json, line 1"),
        (["plan", "deep.json", "--task", "x"], "nested too deeply"),
        (["apply", "plan.json", "other.json", "-o", "out.json"], "other.json: the plan was made for"),
        (["review", "plan.json", "other.json"], "or name the transcript that it was made for"),
        (["plan", "object.json"], "object.json, messages: expected a list of messages, found dict"),
        (["watch", "other.json"], "other.json: contains no answer of an agent"),
        (["store", "import", "broken.json", "--store", "new.db"], "not a store of this program"),
        (["eval", "transcript.json", "--probes", "plan.json"], "docs/evaluation.md describes an exam"),
        (["restore", "t1"], "no store there yet"),
        (["restore", "t1-t999999999", "--store", "full.db"], "t35"),
        (["facts"], "no store there yet"),
        (["log"], "no store there yet"),
        (["store", "verify"], "no store there yet"),
        (["undo", "transcript.json", "-o", "out.json"], "nothing to undo"),
        (["facts", f"h{'f' * 32}", "--store", "full.db"], f"no history h{'f' * 32} in this store; "),
        (["facts", "hffffffff", "--store", "full.db"], "hffffffff is too short for a key"),
        (["facts", "nonsense", "--store", "full.db"], "is no history key"),
        (["wrap", "/no/such/client"], "No such file"),
        (["mcp", "--history", "nonsense"], "no store there yet"),
        (["mcp", "--history", f"h{'f' * 32}", "--store", "full.db"], f"no history h{'f' * 32} in this store"),
        (["mcp", "--history", "hffffffff", "--store", "full.db"], "hffffffff is too short for a key"),
        (["mcp", "--history", "x", "--store", "full.db"], "is no history key"),
    ],
)
def test_failed_work_is_one_line_and_code_1(compactor, transcript, plan_file, folder, arguments, says):
    (folder / "broken.json").write_text('{"messages": [')
    (folder / "number.json").write_text("17")
    (folder / "object.json").write_text('{"messages": {"role": "user", "content": "hello"}}')
    (folder / "other.json").write_text('[{"role": "user", "content": "hello"}]')
    (folder / "old-plan.json").write_text(plan_file.read_text().replace('"version": 1', '"version": 0'))
    plan = json.loads(plan_file.read_text())
    plans = {
        "huge": {**plan, "history": {**plan["history"], "tokens": 10**400}},
        "endless": {**plan, "target_tokens": 10**400},
    }
    for name, data in plans.items():
        (folder / f"{name}-plan.json").write_text(json.dumps(data))
    (folder / "digits-plan.json").write_text('{"version": ' + "9" * 5_000 + "}")
    (folder / "digits.json").write_text('[{"role": "user", "content": "x", "n": ' + "9" * 5_000 + "}]")
    (folder / "deep.json").write_text("[" * 250 + "]" * 250)
    assert compactor("apply", plan_file, transcript, "-o", "view.json", "--store", "full.db").code == 0
    before = {file for file in folder.iterdir() if "full.db" not in file.name}
    ran = compactor(*arguments)
    assert ran.code == 1
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""
    assert {file for file in folder.iterdir() if "full.db" not in file.name} == before


@pytest.mark.parametrize("text", ["\ud83d alone", "a\u0000b"])
def test_odd_text_in_a_transcript_is_planned_and_written(compactor, folder, text):
    messages = [{"role": "user", "content": text, "timestamp": 10**400}, {"role": "assistant", "content": "x " * 900}]
    (folder / "odd.json").write_text(json.dumps([*messages, {"role": "user", "content": "go on please"}]))
    assert compactor("plan", "odd.json", "--planner", "rules", "--task", text, "-o", "p.json", "--all").code == 0
    assert compactor("apply", "p.json", "odd.json", "-o", "view.json").code == 0
    assert compactor("apply", "p.json", "odd.json", "-o", "-").code == 0


@pytest.mark.real
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


@pytest.mark.parametrize("name", [STORE_VARIABLE, TOKEN_VARIABLE, SESSION_VARIABLE, PROJECT_VARIABLE])
def test_a_variable_of_ours_is_no_unknown_setting(monkeypatch, name):
    monkeypatch.setenv(name, "/tmp")  # a client under `wrap` runs our commands with them
    load_settings()


@pytest.mark.parametrize("address", ["postgresql://bob:hunter22@db/x", "postgres://bob:hunter22@db/x"])
def test_no_password_of_a_store_is_told(monkeypatch, address):
    monkeypatch.setenv("COMPACTOR_STORE", address)
    assert naming_store() == "compactor"


def test_a_plan_and_a_transcript_in_the_wrong_order_are_named(compactor, transcript, plan_file):
    swapped = compactor("review", transcript, plan_file)
    assert swapped.code == 1
    first = "name PLAN before TRANSCRIPT, or"
    cure = f"{first} make one with `compactor plan {transcript} -o plan.json`"
    assert swapped.err == f"compactor: {transcript}: holds a transcript, expected a plan: {cure}\n"
    planned = compactor("plan", plan_file)
    cure = f"`compactor review {plan_file}` shows it; if both are named, PLAN is before TRANSCRIPT"
    assert planned.err == f"compactor: {plan_file}: holds a plan, expected a transcript: {cure}\n"


def test_an_unknown_variable_is_compared_without_its_prefix(compactor, transcript, monkeypatch):
    monkeypatch.setenv("COMPACTOR_FOO", "1")
    assert "COMPACTOR_FOO sets nothing: there are COMPACTOR_" in compactor("plan", transcript).err
    monkeypatch.delenv("COMPACTOR_FOO")
    monkeypatch.setenv("COMPACTOR_WINDOW_TOKEN", "1")
    assert "did you mean COMPACTOR_WINDOW_TOKENS?" in compactor("plan", transcript).err
    monkeypatch.delenv("COMPACTOR_WINDOW_TOKEN")
    monkeypatch.setenv("COMPACTOR_PLAN__NOPE", "1")
    assert "COMPACTOR_PLAN__NOPE sets nothing: there are COMPACTOR_PLAN__" in compactor("plan", transcript).err


def test_the_list_of_commands_cuts_no_text(compactor):
    listed = compactor("--help").out.partition("Commands:")[2]
    assert "why and what to do." in " ".join(listed.split())
    assert "..." not in listed


@pytest.mark.parametrize(("name", "value"), [("WINDOW_TOKENS", "many"), ("PLAN__TARGET_RATIO", "7"), ("PLAN", "[]")])
def test_a_bad_value_of_a_variable_is_an_error_with_its_name(compactor, transcript, monkeypatch, name, value):
    monkeypatch.setenv(f"COMPACTOR_{name}", value)
    ran = compactor("plan", transcript)
    assert ran.code == 2
    assert ran.err.startswith(f"compactor: environment variable COMPACTOR_{name}: setting ")


def test_nothing_to_plan_is_a_result(compactor, folder):
    (folder / "empty.json").write_text('{"messages": []}')
    ran = compactor("plan", "empty.json", "--planner", "rules")
    assert (ran.code, ran.err) == (0, "")
    assert "No messages, so nothing to plan." in ran.out


def test_a_model_without_a_key_gets_advice_that_a_command_line_can_follow(compactor, transcript):
    ran = compactor("plan", transcript, "--planner", "model")
    assert ran.code == 1
    assert ran.err.endswith("no API key found: set ANTHROPIC_API_KEY, or choose the planner `rules`\n")
