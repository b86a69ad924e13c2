"""What the commands print of the store, and what they say when it cannot be had."""

import json

import pytest

from applier.cli import app
from applier.store import open_store
from planner.reading.history import read_history
from tests.store.damage import plan_for

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
HISTORY = read_history(
    [
        {"role": "user", "content": [{"type": "text", "text": "as in\nthe mock-up\nbelow"}, IMAGE]},
        {"role": "assistant", "content": "a button"},
    ]
)


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = app.run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def filled(sqlite_path):
    with open_store(sqlite_path) as store:
        store.save_history(HISTORY)
    return sqlite_path


def test_restore_counts_the_lines_that_a_search_counts(run, filled):
    assert run("restore", "t1", "--lines", "2", "--store", filled)[:2] == (0, "the mock-up\n")
    assert "2: the mock-up" in run("restore", "t1", "--search", "mock", "--store", filled)[1]
    data = json.loads(run("restore", "t1", "--lines", "1-2", "--json", "--store", filled)[1])
    assert (data["text"], data["lines"], data["messages"]) == ("as in\nthe mock-up", [1, 2], list(HISTORY.messages[:1]))


def test_restore_says_what_it_does_not_print(run, filled):
    code, out, err = run("restore", "t1", "--store", filled)
    assert (code, err) == (0, "compactor: note: not text, only with --json: image\n")
    assert "the mock-up" in out


def test_restore_names_the_turn_that_matches(run, filled):
    code, out, err = run("restore", "t1", "--search", "button", "--store", filled)
    assert (code, out) == (1, "")
    assert "no line matches 'button'; h" in err
    assert ":t2 match" in err


@pytest.mark.parametrize("lines", ["0", "3-2", "9" * 5000, "1-" + "9" * 5000, "x"])
def test_what_is_no_range_of_lines_is_told(run, filled, lines):
    code, _, err = run("restore", "t1", "--lines", lines, "--store", filled)
    assert (code, "expected lines like 3-9 or 3, counted from 1" in err) == (2, True)


@pytest.mark.parametrize("store", ["~nosuchuser/x.db", "a\0b", "mysql://host/db", "postgresql://[::1/db", "none.db"])
@pytest.mark.parametrize("command", [("restore", "t1"), ("facts",), ("log",), ("store", "verify"), ("store", "list")])
def test_a_store_that_cannot_be_had_is_one_line(run, store, command):
    code, out, err = run(*command, "--store", store)
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_the_log_prints_time_and_numbers_and_nothing_for_what_is_none(run, filled):
    with open_store(filled) as store:
        store.record_event({"time": 0, "kind": "test", "tokens_before": "many", "tokens_after": 1234})
    code, out, _ = run("log", "--store", filled)
    assert (code, "1970-01-01 00:00:00" in out, "1,234" in out, "many" in out) == (0, True, True, False)


def test_forgetting_says_what_is_left(run, filled):
    with open_store(filled) as store:
        plan_id = store.save_plan(plan_for(read_history([{"role": "user", "content": "elsewhere"}])))
        key = store.histories()[0].key
    code, out, err = run("store", "forget", key, "--yes", "--store", filled)
    assert (code, out) == (1, f"{key} is forgotten; its references restore nothing any more\n")
    assert err == (
        f"compactor: left: plans of histories that were never saved may speak of it: {plan_id}: "
        "forget them by their ids\n"
    )
    assert run("store", "forget", plan_id, "--yes", "--store", filled)[0] == 0
    assert run("store", "flush", "--store", filled) == (0, "", "")
