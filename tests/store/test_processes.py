"""Real processes on one store: writing at once, killed, forked, out of disk space, without permission."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from applier.store import open_store
from planner.errors import StoreError
from planner.reading.messages import read_history
from tests.patience import PATIENCE_SECONDS
from tests.strategies import make_session

pytestmark = pytest.mark.real

WORKER = Path(__file__).with_name("worker.py")


MOSTLY_SQLITE = pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)
"""What takes long is tried on PostgreSQL by ``--slow`` alone."""


def run(store, *actions):
    done = subprocess.run(
        [sys.executable, WORKER, store, *actions], capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr


@MOSTLY_SQLITE
def test_processes_share_a_store_and_one_that_is_killed_harms_nothing(store_url):
    run(store_url, "together", "fork", "kill")


@MOSTLY_SQLITE
def test_who_is_killed_in_a_backup_an_import_or_a_collection_leaves_a_whole_store(store_url):
    run(store_url, "killed_in_upkeep")


def test_a_backup_is_whole_whoever_writes_meanwhile(store_url):
    run(store_url, "backed_up_meanwhile")


def test_a_fork_in_mid_transaction_hangs_neither_side(store_url):
    run(store_url, "fork_in_transaction")


@pytest.mark.slow
def test_a_store_opened_twice_in_one_process_loses_nothing_to_another(sqlite_path):
    run(sqlite_path, "opened_again")


def test_a_full_disk_leaves_what_was_there(sqlite_path):
    run(sqlite_path, "full")


def test_a_store_on_a_full_disk_is_opened_and_read(sqlite_path):
    run(sqlite_path, "full_and_opened_anew")


def test_what_may_not_be_written_is_told():
    with TemporaryDirectory() as all_may_enter:
        Path(all_may_enter).chmod(0o755)
        run(Path(all_may_enter) / "folder" / "store.db", "read_only")


def test_a_store_that_another_process_holds_is_told_and_works_again(store_url):
    history = read_history(make_session(3))
    with open_store(store_url, busy_timeout_seconds=0.05) as store, closing(holder(store_url)) as other:
        with pytest.raises(StoreError, match="another process is writing to it and did not finish in time"):
            store.save_history(history)
        assert store.histories() == ()
        other.execute("ROLLBACK")
        assert store.load_history(store.save_history(history)).digest == history.digest


def holder(store_url):
    """Another connection in the middle of a write."""
    if not store_url.startswith("postgresql://"):
        connection = sqlite3.connect(store_url, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        return connection
    import psycopg

    from applier.store.postgres import PostgresBackend

    connection = psycopg.connect(store_url, autocommit=True)
    connection.execute(PostgresBackend.begin_write)
    return connection
