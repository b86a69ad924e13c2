"""Damaged content is told of, by `verify` and on reading; wrong bytes never come back."""

import json
import sqlite3
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from applier.store import open_store
from planner.errors import StoreDamaged, StoreError
from planner.reading.history import read_history
from tests.store.test_keeping import fact, plan_for
from tests.strategies import make_session

HISTORY = read_history(make_session(12))


@pytest.fixture
def filled(store):
    key = store.save_history(HISTORY)
    store.save_plan(plan_for(HISTORY))
    store.save_facts([fact("Node 18+")], key)
    store.record_event({"time": 1.0})
    store.set_state("s", [1, 2])
    assert store.verify() == []
    return store


def change(store, sql, values=()):
    with store.database.transaction(write=True) as transaction:
        transaction.rows(sql, values)


@pytest.mark.parametrize("table", ["blobs", "plans", "facts", "events", "states"])
def test_a_changed_body_is_found(filled, table):
    change(filled, f"UPDATE {table} SET body = ?", (b'{"role":"user","content":"forged"}',))
    findings = filled.verify()
    assert findings
    assert all(found.code == "damaged" and found.problem.startswith(table) for found in findings)
    reads = {
        "blobs": lambda: filled.restore("t1"),
        "plans": lambda: filled.load_plan(filled.plans(HISTORY.digest)[0]),
        "facts": lambda: filled.facts(HISTORY.digest),
        "events": filled.events,
        "states": lambda: filled.get_state("s"),
    }
    with pytest.raises(StoreDamaged, match="does not match its digest"):
        reads[table]()


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("DELETE FROM blobs", "its content is missing"),
        ("DELETE FROM nodes WHERE position = 3", "the message before it is missing"),
        ("DELETE FROM nodes WHERE position > 20", "its last message is missing"),
        ("UPDATE nodes SET position = position + 1 WHERE position > 5", "does not match its digest"),
        ("UPDATE nodes SET turn = 2", "does not match its digest"),
        ("UPDATE nodes SET message = (SELECT message FROM nodes WHERE position = 4)", "does not match its digest"),
        ("UPDATE histories SET tip = (SELECT digest FROM nodes WHERE position = 4)", "its last message is"),
    ],
)
def test_a_broken_chain_is_found_and_never_read_as_something_else(filled, sql, problem):
    change(filled, sql)
    assert any(problem in found.problem for found in filled.verify())
    with pytest.raises(StoreDamaged):
        filled.load_history(HISTORY.digest)


def test_what_is_whole_comes_back_beside_what_is_damaged(filled):
    change(filled, "DELETE FROM blobs WHERE digest IN (SELECT message FROM nodes WHERE turn = 5)")
    with pytest.raises(StoreDamaged, match=r"h[0-9a-f]{8}, message 8: its content is missing"):
        filled.restore("t5")
    for turn in HISTORY.turns:
        if turn.id != "t5":
            assert filled.restore(turn.id).messages == HISTORY.messages_of(turn)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store file in which all is well."""
    path = tmp_path_factory.mktemp("damage") / "store.db"
    with open_store(path) as store:
        store.save_history(HISTORY)
    return path


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 2**24), noise=st.binary(min_size=1, max_size=64))
def test_any_damage_to_the_file_is_an_error_or_changes_nothing(sound, tmp_path, place, noise):
    damaged = bytearray(sound.read_bytes())
    size = len(damaged)
    start = place % size
    damaged[start : start + len(noise)] = noise
    path = tmp_path / "store.db"
    path.write_bytes(damaged[:size])
    try:
        with open_store(path) as store:
            store.verify()
            for turn in HISTORY.turns:
                restored = store.restore(f"{HISTORY.digest}:{turn.id}")
                assert json.dumps(restored.messages) == json.dumps(HISTORY.messages_of(turn))
            assert store.load_history(HISTORY.digest).digest == HISTORY.digest
    except StoreError:
        pass
    finally:
        for name in ("store.db-wal", "store.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_file_that_was_cut_short_is_told(sound, sqlite_path, share):
    whole = sound.read_bytes()
    sqlite_path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(StoreDamaged, match=r"store\.db: the file is damaged .* restore it from a backup"):  # noqa: SIM117
        with open_store(sqlite_path) as store:
            store.load_history(HISTORY.digest)


def test_the_file_holds_nothing_of_what_was_forgotten(sqlite_path):
    messages = [{"role": "user", "content": "x7Gq-not-to-be-found"}]
    with open_store(sqlite_path) as store:
        key = store.save_history(read_history(messages))
        store.save_history(HISTORY)
        store.forget(key)
        files = b"".join(path.read_bytes() for path in sqlite_path.parent.iterdir())
        assert b"not-to-be-found" not in files
        assert store.verify() == []
    with closing(sqlite3.connect(sqlite_path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
