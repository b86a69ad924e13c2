"""What was forgotten is in no file of the store any more, or the store says where it still is."""

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from applier.store import history_key, open_store
from planner.errors import ReferenceNotFound
from planner.plan import Provenance
from planner.reading.messages import read_history
from tests.store.damage import fact, plan_for
from tests.strategies import make_session

SECRET = "x7Gq-not-to-be-found"
NOISE = "".join(chr(33 + n * 7 % 90) for n in range(60))  # too short and mixed to be compressed


def user(text):
    return {"role": "user", "content": text}


HISTORY = read_history([user(f"{SECRET} {NOISE}"), {"role": "assistant", "content": f"yes, {SECRET}"}, user("more")])
OTHER = read_history(make_session(6))


def fill(store, history=HISTORY, session="a"):
    """All that a session leaves of a history."""
    key = store.save_history(history)
    store.save_plan(plan_for(history, task=f"find {SECRET}"))
    store.save_facts([fact(f"is {SECRET}")], key)
    view = [user(f"view of {SECRET}")] * 3
    frame = {"key": key, "head": view}
    store.set_state(f"session:{session}", {"version": 1, "frame": frame, "before": None})
    store.record_event({"time": 1.0, "session": session, "message": f"saw {SECRET}"})
    store.record_event({"time": 2.0, "kind": "undo", "history": key, "message": f"wrote {SECRET}"})
    return key


def bytes_of(folder):
    return b"".join(path.read_bytes() for path in Path(folder).iterdir())


def test_no_file_holds_what_was_forgotten(sqlite_path):
    with open_store(sqlite_path) as store:
        kept = store.save_history(OTHER)
        store.set_state("session:b", {"frame": {"key": kept}, "text": f"see {history_key(HISTORY.digest)}:t1"})
        store.record_event({"time": 3.0, "session": "b"})
        key = fill(store)
        assert SECRET.encode() in bytes_of(sqlite_path.parent)
        assert store.forget(key) == []
        assert SECRET.encode() not in bytes_of(sqlite_path.parent)
        assert store.verify() == []
        assert store.load_history(kept).messages == OTHER.messages
        assert store.get_state("session:a") is None
        assert store.get_state("session:b") is not None
        assert store.events() == ({"time": 3.0, "session": "b"},)
    with closing(sqlite3.connect(sqlite_path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("seed", [25, 35, 52])
def test_no_byte_is_left_however_the_records_were_moved_about(sqlite_path, seed):
    """With these seeds some were, in pages from which a neighbour had been moved."""
    chance, kept = random.Random(seed), {}
    with open_store(sqlite_path) as store:
        for number in range(chance.randint(3, 60)):
            word = "".join(chance.choices("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=24))
            messages = [user(f"{word} {number}")]
            for at in range(chance.randint(1, 12)):
                noise = "".join(chr(chance.randint(33, 126)) for _ in range(chance.choice((20, 150, 200, 3000, 9000))))
                messages.append({"role": "user" if at % 2 else "assistant", "content": word + noise})
            key = store.save_history(read_history(messages))
            kept[key] = word
            for _ in range(chance.randint(0, 4)):
                store.record_event({"time": 1.0, "session": f"s{number}", "history": key, "m": word})
            store.set_state(f"session:s{number}", {"k": key, "sec": word})
            if chance.random() < 0.3:
                forgotten = chance.choice(list(kept))
                assert store.forget(forgotten) == []
                assert kept.pop(forgotten).encode() not in bytes_of(sqlite_path.parent)


def test_a_forgotten_conversation_leaves_no_row(store):
    keys = [fill(store, read_history(HISTORY.messages[:count]), f"s{count}") for count in (1, 2, 3)]
    store.forget(keys[1])
    assert (store.size().histories, store.size().messages) == (0, 0)
    assert store.events() == ()
    assert [store.get_state(f"session:s{count}") for count in (1, 2, 3)] == [None] * 3
    with store.backend.transaction():
        assert store.backend.keys("") == ["order"]


def test_a_state_of_a_conversation_that_forks_off_stays(store):
    fork = read_history([*HISTORY.messages[:2], user("another way")])
    key, kept = store.save_history(HISTORY), store.save_history(fork)
    store.set_state("session:fork", {"key": kept})
    store.forget(key)
    assert store.get_state("session:fork") == {"key": kept}
    assert store.load_history(kept).messages == fork.messages


@pytest.mark.real
def test_what_a_reader_of_another_process_holds_back_is_told(sqlite_path):
    with open_store(sqlite_path, busy_timeout_seconds=0.1) as store:
        key = fill(store)
        code = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "c.execute('BEGIN'); c.execute('SELECT * FROM records').fetchall(); print(flush=True); sys.stdin.read()"
        )
        command = [sys.executable, "-c", code, str(sqlite_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
            reader.stdout.readline()
            (left,) = store.forget(key)
            assert left.code == "left"
            assert left.problem.startswith(f"{sqlite_path}-wal still holds what was deleted: another process reads")
            assert SECRET.encode() in bytes_of(sqlite_path.parent)
            with pytest.raises(ReferenceNotFound):
                store.load_history(key)
            reader.stdin.close()
        assert store.flush() == []
        assert SECRET.encode() not in bytes_of(sqlite_path.parent)


def test_a_server_says_what_its_logs_keep(postgres_url):
    with open_store(postgres_url) as store:
        problems = [left.problem for left in store.forget(fill(store))]
    assert problems == [
        f"{store.backend.place}: the server's write-ahead log, its replicas and backups keep "
        "what was deleted for a while"
    ]


def test_a_plan_of_a_history_that_was_never_saved_is_told_and_forgotten_by_its_id(store):
    key = store.save_history(OTHER)
    plan = plan_for(HISTORY).model_copy(update={"provenance": Provenance(planner="rules", notes=(SECRET,))})
    plan_id = store.save_plan(plan)
    orphans = [left for left in store.forget(key) if "never saved" in left.problem]
    assert [left.problem for left in orphans] == [
        f"plans of histories that were never saved may speak of it: {plan_id}"
    ]
    assert [left for left in store.forget(plan_id) if "never saved" in left.problem] == []
    with pytest.raises(ReferenceNotFound):
        store.load_plan(plan_id)


def test_what_is_saved_again_after_it_was_forgotten_is_there(store):
    key = store.save_history(HISTORY)
    store.forget(key)
    assert store.load_history(store.save_history(HISTORY)).messages == HISTORY.messages


def test_no_file_of_a_servers_tables_holds_what_was_forgotten(postgres_url):
    """Its planner's samples of the columns included; its write-ahead log is named in what is left."""
    psycopg = pytest.importorskip("psycopg")
    tables = Path(postgres_url.split("host=")[1], "data", "base")

    def held():
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("ANALYZE; CHECKPOINT")
        return any(SECRET.encode() in path.read_bytes() for path in tables.rglob("*") if path.is_file())

    with open_store(postgres_url) as store:
        key = fill(store)
        assert store.search(f"zebra {SECRET}", key).turns == 2
        assert held()
        store.forget(key)
        assert not held()
