"""Damaged content is told of, by `verify` and on reading; wrong bytes never come back."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import HealthCheck, example, given, settings

from applier.store import open_store
from applier.store.records import order_of, pack
from planner.errors import StoreDamaged
from planner.reading.messages import read_history
from tests.store.damage import HISTORY, Damage, check_damage, damages, fill, plan_for, read_all, sound_store
from tests.strategies import make_session


@pytest.fixture
def filled(store):
    fill(store)
    assert store.verify() == []
    return store


def rewrite(store, prefix, changed):
    """Have the records whose keys begin with `prefix` be what `changed` makes of key and body; None: not there."""
    with store.backend.transaction(write=True):
        bodies = dict(store.backend.get(store.backend.keys(prefix)))
        store.backend.remove(bodies)
        others = [changed(key, body) for key, body in bodies.items()]
        store.backend.add(dict(filter(None, others)))


@pytest.mark.parametrize("kind", ["message", "plan", "fact", "event", "state"])
@pytest.mark.parametrize("forged", [b"", b"forged", pack(b'{"role":"user","content":"forged"}')[:-1]])
def test_a_changed_body_is_found(filled, kind, forged):
    rewrite(filled, f"{kind}/", lambda key, _: (key, forged))
    findings = filled.verify()
    assert findings
    assert all(found.code == "damaged" and found.problem.startswith(kind) for found in findings)
    reads = {
        "message": lambda: filled.restore("t1"),
        "plan": lambda: filled.load_plan(filled.plans(HISTORY.digest)[0]),
        "fact": lambda: filled.facts(HISTORY.digest),
        "event": filled.events,
        "state": lambda: filled.get_state("s"),
    }
    with pytest.raises(StoreDamaged, match="does not match its digest"):
        reads[kind]()


@pytest.mark.parametrize("kind", ["message", "plan", "history"])
def test_a_body_that_stands_under_anothers_key_is_found(filled, kind):
    other = read_history(make_session(3))
    filled.save_history(other)
    filled.save_plan(plan_for(other))
    with filled.backend.transaction(write=True):
        first, last, *_ = filled.backend.keys(f"{kind}/")
        bodies = filled.backend.get([first, last])
        filled.backend.remove([first, last])
        filled.backend.add({first: bodies[last], last: bodies[first]})
    assert filled.verify()
    reads = {
        "message": lambda: [filled.load_history(history.digest) for history in (HISTORY, other)],
        "history": lambda: filled.load_history(HISTORY.digest),
        "plan": lambda: [filled.load_plan(name) for name in filled.plans(HISTORY.digest)],
    }
    with pytest.raises(StoreDamaged):
        reads[kind]()


def part_of(key, name):
    return key.split("/")[["node", "group", "position", "turn", "parent", "message", "says"].index(name)]


def with_part(key, name, value):
    parts = key.split("/")
    parts[["node", "group", "position", "turn", "parent", "message", "says"].index(name)] = value
    return "/".join(parts)


@pytest.mark.parametrize(
    ("prefix", "changed", "problem"),
    [
        ("message/", lambda *_: None, "its content is missing"),
        ("node/", lambda key, _: None if part_of(key, "position") == "3" else (key, b""), "before it is missing"),
        ("node/", lambda key, _: None if int(part_of(key, "position")) > 20 else (key, b""), "last message is missing"),
        ("node/", lambda key, _: (with_part(key, "turn", "2"), b""), "missing or damaged"),
        ("node/", lambda key, _: (with_part(key, "message", "0" * 64), b""), "missing or damaged"),
        ("node/", lambda key, _: (with_part(key, "turn", "two"), b""), "is the key of no message"),
        ("node/", lambda key, _: (key[:-1], b""), "is the key of no message"),
        ("node/", lambda key, _: (key + "/", b""), "is the key of no record"),
    ],
)
def test_a_broken_chain_is_found_and_never_read_as_something_else(filled, prefix, changed, problem):
    rewrite(filled, prefix, changed)
    assert any(problem in found.problem for found in filled.verify())
    with pytest.raises(StoreDamaged):
        filled.load_history(HISTORY.digest)


def test_a_damaged_fact_keeps_no_other_fact_from_being_stored(filled):
    known = filled.facts(HISTORY.digest)[0]
    rewrite(filled, "fact/", lambda key, _: (key, b"forged"))
    filled.save_facts([known.model_copy(update={"content": "Node 20+"})], HISTORY.digest)
    with filled.backend.transaction():
        assert len(filled.backend.keys("fact/")) == 2


def test_what_is_whole_comes_back_beside_what_is_damaged(filled):
    with filled.backend.transaction(write=True):
        damaged = [part_of(key, "message") for key in filled.backend.keys("node/") if part_of(key, "turn") == "5"]
        filled.backend.remove([f"message/{digest}" for digest in damaged])
    with pytest.raises(StoreDamaged, match=r"h[0-9a-f]{32}, message 8: its content is missing"):
        filled.restore("t5")
    for turn in HISTORY.turns:
        if turn.id != "t5":
            assert filled.restore(turn.id).messages == HISTORY.messages_of(turn)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store file in which all is well."""
    return sound_store(tmp_path_factory.mktemp("damage") / "store.db")


@pytest.mark.real
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damages)
@example(Damage("cut", 0.9712, b"x"))  # an index has lost a row: it was not deleted, and said to be forgotten
@example(Damage("taken out", 0.978, b"\xff" * 8))
@example(Damage("over", 0.4045942313116535, b"\xff" * 8))  # a row says that it is larger than any memory
def test_any_damage_to_the_file_is_an_error_or_changes_nothing(sound, tmp_path, damage):
    check_damage(sound, damage, tmp_path / "store.db")


HALF = "\ud800".encode("utf-8", "surrogatepass")
VALUES = ["text", 7, b"bytes", *(pytest.param(value, marks=pytest.mark.real) for value in (2**62, -1, 0.5, b"", HALF))]


@pytest.mark.parametrize("kind", ["message", "node", "history", "plan", "fact", "event", "state", "order"])
@pytest.mark.parametrize("column", ["key", "body"])
@pytest.mark.parametrize("value", VALUES)
def test_values_of_any_type_in_any_column_are_an_error_or_change_nothing(sound, sqlite_path, kind, column, value):
    """SQLite gives back whatever a damaged file holds, whatever the column was declared as."""
    sqlite_path.write_bytes(sound.read_bytes())
    with closing(sqlite3.connect(sqlite_path)) as connection:
        last = "SELECT max(key) FROM records WHERE key LIKE ?"
        connection.execute(f"UPDATE records SET {column} = ? WHERE key = ({last})", (value, f"{kind}%"))
        connection.commit()
    read_all(sqlite_path)


def test_a_store_without_a_version_is_damaged(sound, sqlite_path):
    sqlite_path.write_bytes(sound.read_bytes())
    with closing(sqlite3.connect(sqlite_path)) as connection:
        connection.execute("DELETE FROM compactor_schema")
        connection.commit()
    with pytest.raises(StoreDamaged, match="its version cannot be read; restore it from a backup"):
        open_store(sqlite_path)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_file_that_was_cut_short_is_told(sound, sqlite_path, share):
    whole = sound.read_bytes()
    sqlite_path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(StoreDamaged, match=r"store\.db: the file is damaged .* restore it from a backup"):  # noqa: SIM117
        with open_store(sqlite_path) as store:
            store.load_history(HISTORY.digest)


def test_the_key_of_no_record_is_told():
    with pytest.raises(StoreDamaged, match="is the key of no record"):
        order_of("fact/a/b/0000000\x000003")
