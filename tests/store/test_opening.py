"""Where the store is, who may read it, and files that are not a store or not one this version reads."""

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from applier.store import STORE_VARIABLE, default_path, open_store
from applier.store.migrations import MIGRATIONS
from planner.errors import StoreError
from planner.reading.history import read_history
from tests.strategies import make_session

HISTORY = read_history(make_session(4))


def test_the_default_is_a_file_of_the_users_state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv(STORE_VARIABLE)
    with open_store() as store:
        store.save_history(HISTORY)
    assert default_path().is_file()
    assert default_path().parts[-2:] == ("relevance-compactor", "store.db")


def test_the_environment_names_the_store(tmp_path, monkeypatch):
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "named.db"))
    open_store().close()
    assert (tmp_path / "named.db").is_file()


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"])
def test_a_path_may_be_written_as_an_address(tmp_path, form):
    path = tmp_path / "a" / "b" / "store.db"
    open_store(form.format(path)).close()
    assert path.is_file()


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_only_the_owner_reads_a_new_store(sqlite_path):
    with open_store(sqlite_path) as store:
        store.save_history(HISTORY)
        modes = {stat.S_IMODE(path.stat().st_mode) for path in sqlite_path.parent.iterdir()}
        assert modes == {0o600}


def test_commits_are_durable(sqlite_path):
    with open_store(sqlite_path) as store, store.database.transaction() as transaction:
        asked = {name: transaction.rows(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous")}
        assert asked == {"journal_mode": "wal", "synchronous": 2}


def test_one_process_has_one_connection_to_a_file(sqlite_path, tmp_path):
    (tmp_path / "link.db").symlink_to(sqlite_path)
    with open_store(sqlite_path) as first, open_store(tmp_path / "link.db") as second:
        assert first.database is second.database
        first.close()
        first.close()
        assert second.load_history(second.save_history(HISTORY)).digest == HISTORY.digest


def test_a_file_of_another_program_is_refused_and_not_touched(sqlite_path):
    with closing(sqlite3.connect(sqlite_path)) as other:
        other.execute("CREATE TABLE histories (theirs)")
    before = sqlite_path.read_bytes()
    with pytest.raises(StoreError, match=r"store\.db: not a store of this program; give another file"):
        open_store(sqlite_path)
    assert sqlite_path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_not_touched(sqlite_path):
    sqlite_path.write_text("dear diary, " * 100)
    with pytest.raises(StoreError, match=r"store\.db: not a store of this program; give another file"):
        open_store(sqlite_path)
    assert sqlite_path.read_text() == "dear diary, " * 100


def test_a_folder_is_no_store(tmp_path):
    with pytest.raises(StoreError, match="it cannot be opened; check that it is a file and may be written"):
        open_store(tmp_path)


def test_a_newer_store_asks_for_an_update(store_url):
    with open_store(store_url) as store, store.database.transaction(write=True) as transaction:
        transaction.rows("UPDATE compactor_schema SET version = ?", (len(MIGRATIONS) + 1,))
    with pytest.raises(StoreError, match=r"made by a newer version .* update relevance-compactor"):
        open_store(store_url)


def test_a_store_whose_file_was_taken_away_is_told_before_anything_is_lost(sqlite_path):
    with open_store(sqlite_path) as store:
        store.save_history(HISTORY)
        sqlite_path.unlink()
        with pytest.raises(StoreError, match=r"store\.db: the store cannot be read: No such file"):
            store.save_history(HISTORY)
        with open_store(sqlite_path) as fresh:
            assert fresh.histories() == ()
            with pytest.raises(StoreError, match="the file was replaced while in use; open the store again"):
                store.histories()
            fresh.save_history(HISTORY)


def test_a_server_that_is_not_there_is_told_without_the_password(tmp_path):
    pytest.importorskip("psycopg", reason="PostgreSQL tests need psycopg")
    with pytest.raises(StoreError, match="postgresql:///db: ") as raised:
        open_store(f"postgresql://bob:hunter22@/db?host={tmp_path}", busy_timeout_seconds=1)
    assert "hunter22" not in str(raised.value)


def test_a_store_on_sqlite_loads_no_other_database():
    names = "{'psycopg', 'anthropic', 'instructor'}"
    code = f"import sys, applier.store; assert not {names} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
