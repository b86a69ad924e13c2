"""What the commands print of the store, and what they say when it cannot be had."""

import json

import pytest

from applier.cli import app
from applier.store import open_store
from planner.reading.messages import read_history, to_json
from tests.store.damage import fact, plan_for

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


def test_an_open_range_of_lines_ends_with_the_turn(run, sqlite_path):
    lines = [f"line {number}" for number in range(1, 6)]
    with open_store(sqlite_path) as store:
        store.save_history(read_history([{"role": "user", "content": "\n".join(lines)}]))
    for first in range(1, 6):
        code, out, _ = run("restore", "t1", "--lines", f"{first}-", "--store", sqlite_path)
        assert (code, out.splitlines()) == (0, lines[first - 1 :])
    code, out, err = run("restore", "t1", "--lines", "1000-", "--store", sqlite_path)
    assert (code, out) == (1, "")
    assert err.endswith(":t1: no line 1000; its lines: 1 to 5\n")


def test_restore_says_what_it_does_not_print(run, filled):
    code, out, err = run("restore", "t1", "--store", filled)
    assert (code, err) == (0, "compactor: note: not text, only with --json: image\n")
    assert "the mock-up" in out


def test_restore_names_the_turn_that_matches(run, filled):
    code, out, err = run("restore", "t1", "--search", "button", "--store", filled)
    assert (code, out) == (1, "")
    assert "no line matches 'button'; h" in err
    assert ":t2 match" in err


@pytest.mark.parametrize("lines", ["0", "3-2", "9" * 5000, "1-" + "9" * 5000, "x", "-3", "-"])
def test_what_is_no_range_of_lines_is_told(run, filled, lines):
    code, _, err = run("restore", "t1", "--lines", lines, "--store", filled)
    assert (code, "expected lines like 3-9, 3 or 3-, counted from 1" in err) == (2, True)


@pytest.mark.parametrize("store", ["~nosuchuser/x.db", "a\0b", "mysql://host/db", "postgresql://[::1/db", "none.db"])
@pytest.mark.parametrize("command", [("restore", "t1"), ("facts",), ("log",), ("store", "verify"), ("store", "list")])
def test_a_store_that_cannot_be_had_is_one_line(run, store, command):
    code, out, err = run(*command, "--store", store)
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_the_log_prints_time_and_numbers_and_nothing_for_what_is_none(run, filled):
    with open_store(filled) as store:
        store.record_event({"time": 0, "kind": "test", "tokens_before": "many", "tokens_after": 1234})
        for farthest in (62_135_596_799, -62_135_596_799):  # that a store takes
            store.record_event({"time": farthest, "kind": "test"})
        store.save_facts([fact("of no clock").model_copy(update={"timestamp": 1e300})], store.histories()[0].key)
    assert "9999-12-31" in run("facts", "--store", filled)[1]
    code, out, _ = run("log", "--store", filled)
    assert (code, "1970-01-01 00:00:00" in out, "1,234" in out, "many" in out) == (0, True, True, False)


def test_an_original_with_a_number_that_is_none_is_printed_as_it_is(run, filled):
    call = {"type": "tool_use", "id": "a", "name": "plot", "input": {"from": float("-inf"), "to": [1.5, float("nan")]}}
    messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": "stop"}]
    with open_store(filled) as store:
        key = store.save_history(read_history(messages))
        store.record_event({"time": 1.0, "kind": "measured", "ratio": float("inf")})
    code, out, _ = run("restore", f"{key}:t1", "--json", "--store", filled)
    assert (code, to_json(json.loads(out)["messages"])) == (0, to_json(messages[:1]))
    code, out, _ = run("log", "--json", "--store", filled)
    assert (code, json.loads(out)[-1]["ratio"]) == (0, float("inf"))


def test_forgetting_says_what_is_left(run, filled):
    with open_store(filled) as store:
        plan_id = store.save_plan(plan_for(read_history([{"role": "user", "content": "elsewhere"}])))
        key = store.histories()[0].key
    code, out, err = run("store", "forget", key, "--yes", "--store", filled)
    assert (code, out) == (1, f"{key} is forgotten; its references cannot be restored\n")
    assert err == (
        f"compactor: left: plans of histories that were never saved may speak of it: {plan_id}: "
        "forget them by their ids\n"
    )
    assert run("store", "forget", plan_id, "--yes", "--store", filled)[0] == 0
    assert run("store", "flush", "--store", filled) == (0, "", "")


def test_the_list_says_when_how_large_where_and_what_for(run, filled):
    longer = read_history([*HISTORY.messages, {"role": "user", "content": "and a\nlong " + "x" * 90}])
    other = read_history([{"role": "user", "content": "elsewhere"}])
    with open_store(filled) as store:
        store.clock = lambda: 86_400.0 * 3
        before = store.histories()[0].key
        store.note_origin(before, "/srv/site", 1.0)
        keys = [store.save_history(longer), store.save_history(other)]
        store.save_plan(plan_for(other, task="go\nthere"))
    data = json.loads(run("store", "list", "--sort", "project", "--json", "--store", filled)[1])
    assert [(one["key"], one["folder"], one["task"], one["used"]) for one in data] == [
        (keys[1], "", "go\nthere", 259_200.0),
        (keys[0], "/srv/site", "as in\nthe mock-up\nbelow", 259_200.0),
    ]
    assert data[1]["size_bytes"] == sum(len(to_json(message)) for message in longer.messages)
    code, out, _ = run("store", "list", "--sort", "size", "--store", filled)
    assert (code, "1970-01-04" in out, before in out) == (0, True, False)
    assert out.index(keys[1]) < out.index(keys[0])


def test_a_conversation_moves_by_a_file(run, filled, tmp_path):
    with open_store(filled) as store:
        key = store.histories()[0].key
    elsewhere = tmp_path / "elsewhere" / "store.db"
    assert run("store", "export", key, "-o", tmp_path / "one", "--store", filled)[0] == 0
    code, _, err = run("store", "export", key, "-o", tmp_path / "one", "--store", filled)
    assert (code, "replace it by --overwrite" in err, err.count("\n")) == (1, True, 1)
    assert run("store", "export", key, "-o", tmp_path / "one", "--overwrite", "--store", filled)[0] == 0
    code, out, _ = run("store", "import", tmp_path / "one", "--store", elsewhere)
    assert (code, key in out) == (0, True)
    assert run("restore", "t2", "--store", elsewhere)[1] == "a button\n"
    (tmp_path / "one").write_text("dear diary")
    code, out, err = run("store", "import", tmp_path / "one", "--store", elsewhere)
    assert (code, out, err.count("\n"), "give another file" in err) == (1, "", 1, True)
    assert run("store", "backup", tmp_path / "all", "--store", filled)[0] == 0
    assert run("restore", "t2", "--store", tmp_path / "all")[1] == "a button\n"
    third = tmp_path / "third.db"
    data = json.loads(run("store", "import", tmp_path / "all", "--backup", "--json", "--store", third)[1])
    assert data == {"histories": [key]}


def test_what_is_old_goes_when_one_says_yes(run, filled):
    with open_store(filled) as store:
        store.clock = lambda: 1.0
        key = store.save_history(read_history([{"role": "user", "content": "old"}]))
    for more in (("--dry-run",), ()):
        code, out, err = run("store", "gc", "--older-than", "30d", *more, "--store", filled)
        assert (code, key in out, "1 stay" in out) == (0 if more else 2, True, True)
        assert ("use --yes" in err) != bool(more)
    shown = json.loads(run("store", "gc", "--older-than", "30d", "--dry-run", "--json", "--store", filled)[1])
    assert (shown["would_remove"], shown["kept"], shown["left"]) == ([key], 1, [])
    code, out, err = run("store", "gc", "--older-than", "30d", "--larger-than", "2.5 GB", "--yes", "--store", filled)
    assert (code, "removed: " in out, err) == (0, True, "")
    assert run("restore", f"{key}:t1", "--store", filled)[0] == 1
    assert run("restore", "t2", "--store", filled)[0] == 0
    code, out, _ = run("store", "gc", "--older-than", "12h", "--store", filled)
    assert (code, "no history to remove" in out) == (0, True)


@pytest.mark.parametrize("wrong", [(), ("--older-than", "30"), ("--older-than", "0d"), ("--larger-than", "2XB")])
def test_a_limit_that_says_nothing_is_told(run, filled, wrong):
    code, out, err = run("store", "gc", *wrong, "--store", filled)
    assert (code, out, "30d" in err or "2GB" in err) == (2, "", True)
