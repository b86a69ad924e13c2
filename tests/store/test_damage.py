"""Damaged content is told of, by `verify` and on reading; wrong bytes never come back."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import HealthCheck, example, given, settings

from applier.store import open_store
from planner.errors import StoreDamaged
from tests.store.damage import HISTORY, Damage, check_damage, damages, fill, read_all, sound_store


@pytest.fixture
def filled(store):
    fill(store)
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
    return sound_store(tmp_path_factory.mktemp("damage") / "store.db")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damages)
@example(Damage("cut", 0.9712, b"x"))  # an index has lost a row: it was not deleted, and said to be forgotten
@example(Damage("taken out", 0.978, b"\xff" * 8))
@example(Damage("over", 0.4045942313116535, b"\xff" * 8))  # a row says that it is larger than any memory
def test_any_damage_to_the_file_is_an_error_or_changes_nothing(sound, tmp_path, damage):
    check_damage(sound, damage, tmp_path / "store.db")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (table, column)
        for table, columns in {
            "blobs": ("body",),
            "nodes": ("parent", "position", "turn", "message", "says"),
            "histories": ("says", "tip"),
            "plans": ("digest", "says", "body"),
            "facts": ("says", "digest", "body"),
            "events": ("digest", "body", "time"),
            "states": ("digest", "body"),
            "compactor_schema": ("version",),
        }.items()
        for column in columns
    ],
)
@pytest.mark.parametrize("value", ["text", 7, 2**62, -1, 0.5, b"", b"bytes", "\ud800".encode("utf-8", "surrogatepass")])
def test_values_of_any_type_in_any_column_are_an_error_or_change_nothing(sound, sqlite_path, table, column, value):
    """SQLite gives back whatever a damaged file holds, whatever the column was declared as."""
    sqlite_path.write_bytes(sound.read_bytes())
    with closing(sqlite3.connect(sqlite_path)) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT max(rowid) FROM {table})", (value,))
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
