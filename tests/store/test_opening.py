"""Where the store is, who may read it, and files that are not a store or not one this version reads."""

import os
import sqlite3
import stat
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.store import STORE_VARIABLE, default_path, open_store
from applier.store.opening import FORMAT, store_place
from applier.store.records import unpack
from planner.errors import StoreError, StoreReplaced
from planner.reading.messages import read_history
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


@pytest.mark.parametrize("mask", [0, 0o22, 0o77])
def test_only_the_owner_enters_and_reads_a_new_store(tmp_path, mask):
    before = os.umask(mask)
    try:
        with open_store(tmp_path / "a" / "b" / "store.db") as store:
            store.save_history(HISTORY)
            folders = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", tmp_path / "a" / "b")}
            files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a" / "b").iterdir()}
    finally:
        os.umask(before)
    assert folders == {0o700}
    assert files == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm"), 0o600)


def test_a_link_that_leads_nowhere_is_refused(tmp_path):
    (tmp_path / "store.db").symlink_to(tmp_path / "theirs.db")
    with pytest.raises(StoreError, match=r"store\.db: the store cannot be made here: No such file"):
        open_store(tmp_path / "store.db")
    assert not (tmp_path / "theirs.db").exists()


def test_a_file_with_another_name_is_refused_and_not_touched(tmp_path):
    open_store(tmp_path / "store.db").close()
    os.link(tmp_path / "store.db", tmp_path / "other.db")
    for name in ("store.db", "other.db"):
        with pytest.raises(StoreError, match="has another name, by a link: give the store a file of its own"):
            open_store(tmp_path / name)


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_a_link_beside_the_store_is_not_written_through(tmp_path, ending):
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / f"store.db{ending}").symlink_to(tmp_path / "theirs")
    with pytest.raises(StoreError, match=f"store.db{ending}: the file has another name"):
        open_store(tmp_path / "store.db")
    assert (tmp_path / "theirs").read_text() == "theirs"


@pytest.mark.real
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused():
    with TemporaryDirectory() as all_may_enter:
        folder = Path(all_may_enter)
        folder.chmod(0o777)
        open_store(folder / "store.db").close()
        (folder / "store.db").chmod(0o666)
        os.chown(folder / "store.db", 1, 1)
        code = (
            "import os, sys\n"
            "from applier.store import open_store; from planner.errors import StoreError\n"
            "os.setuid(65534)\n"
            "try: open_store(sys.argv[1])\n"
            "except StoreError as error: print(error)"
        )
        command = [sys.executable, "-c", code, str(folder / "store.db")]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
        assert "belongs to another user, who could read it: give another file" in done.stdout


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("~nosuchuser/x.db", "give the store's path in full"),
        ("a\0b.db", "give the store's path in full"),
        ("\ud800.db", "give the store's path in full"),
        ("x" * 5000, "the store cannot be made here: File name too long"),
        (":memory:", "give a path"),
        ("sqlite:///:memory:", "give a path"),
        ("sqlite:///", "expected a path, sqlite:///path or postgresql://user@host/name"),
        (":memory:", "originals must outlive the process: give a path"),
        ("sqlite:///:memory:", "originals must outlive the process: give a path"),
        ("file::memory:?cache=shared", "originals must outlive the process: give a path"),
        ("file:store.db?mode=rw", "originals must outlive the process: give a path"),
        ("mysql://host/db", "expected a path, sqlite:///path or postgresql://user@host/name"),
        ("sqlite://store.db", "expected a path, sqlite:///path or postgresql://user@host/name"),
        ("postgresql://[::1/db", "postgresql://user@host/name (of user and password / is %2F"),
        ("postgresql://u@localhost:port/db", "postgresql://"),
        ("postgresql://a\0b/db", "expected a path"),
        ("/dev/null", "it cannot be opened; check that it is a file and may be written"),
        ("/proc/nothing/store.db", "the store cannot be made here"),
    ],
)
def test_a_name_that_no_store_can_have_is_told_with_the_cure(name, cure, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as raised:
        open_store(name, busy_timeout_seconds=1)
    assert cure in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [3, 0, 1.5, [], {"path": "x.db"}, False])
def test_what_is_no_name_of_a_store_is_not_taken_for_none(name):
    with pytest.raises(StoreError, match="expected a path, sqlite:///path or postgresql://"):
        open_store(name)


@pytest.mark.real
def test_who_has_no_home_is_told_to_name_a_store(tmp_path):
    """As a user of a container has it: no HOME, and no entry in the list of users."""
    code = (
        "import os\n"
        "from applier.store import open_store; from planner.errors import StoreError\n"
        "os.setuid(54321)\n"
        "try: open_store()\n"
        "except StoreError as error: print(error)"
    )
    if os.geteuid() != 0:
        pytest.skip("only root becomes a user that does not exist")
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH")}
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=kept, cwd=root, check=False)
    assert done.stdout == "there is no home folder to keep a store in: name its file by $COMPACTOR_STORE\n", done.stderr


def test_commits_are_durable(sqlite_path):
    with open_store(sqlite_path) as store, store.backend.transaction():
        asked = {name: store.backend.rows(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous")}
        assert asked == {"journal_mode": "wal", "synchronous": 2}


def test_what_is_opened_twice_in_a_process_is_one_store(sqlite_path, tmp_path):
    (tmp_path / "link.db").symlink_to(sqlite_path)
    with open_store(sqlite_path) as first, open_store(tmp_path / "link.db") as second:
        first.save_history(HISTORY)
        assert [one.digest for one in second.histories()] == [HISTORY.digest]
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
    with open_store(store_url) as store, store.backend.transaction(write=True):
        store.backend.rows("UPDATE compactor_schema SET version = ?", (FORMAT + 1,))
    with pytest.raises(StoreError, match=r"made by a newer version .* update relevance-compactor"):
        open_store(store_url)


def test_a_store_whose_file_was_taken_away_is_told_before_anything_is_lost(sqlite_path):
    with open_store(sqlite_path) as store:
        store.save_history(HISTORY)
        sqlite_path.unlink()
        with pytest.raises(StoreReplaced, match=r"store\.db: the store cannot be read: No such file"):
            store.save_history(HISTORY)
        with open_store(sqlite_path) as fresh:
            assert fresh.histories() == ()
            with pytest.raises(StoreReplaced, match="the file was replaced while in use; open the store again"):
                store.histories()
            fresh.save_history(HISTORY)


def test_a_server_that_is_not_there_is_told_without_the_password(tmp_path):
    pytest.importorskip("psycopg", reason="PostgreSQL tests need psycopg")
    with pytest.raises(StoreError, match="postgresql:///db: ") as raised:
        open_store(f"postgresql://bob:hunter22@/db?host={tmp_path}", busy_timeout_seconds=1)
    assert "hunter22" not in str(raised.value)


PARTS = st.text(st.sampled_from("a/@:#?%&=[]\\ \t,ä\0"), max_size=3)


@settings(max_examples=100)
@given(
    scheme=st.sampled_from(["postgresql:/", "postgres:/", "postgresql+psycopg:/", "mysql:/", "POSTGRES:"]),
    **dict.fromkeys(("before", "behind"), PARTS),
)
def test_no_error_and_no_place_tells_of_a_password(scheme, before, behind):
    address = f"{scheme}/bob:{before}hunter22{behind}@127.0.0.1:1/db"
    told = []
    for use in (store_place, open_store):
        try:
            told.append(str(use(address)))
        except StoreError as error:
            told.append(str(error))
    assert "hunter22" not in "".join(told)


@pytest.mark.real
def test_a_store_on_sqlite_loads_no_other_database():
    names = "{'psycopg', 'anthropic', 'instructor'}"
    code = f"import sys, applier.store; assert not {names} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_store_of_a_version_before_the_first_is_told_and_not_touched(store_url, version):
    with open_store(store_url) as store, store.backend.transaction(write=True):
        store.backend.rows("DROP TABLE records")
        store.backend.rows("CREATE TABLE blobs (body INTEGER)")
        store.backend.rows("UPDATE compactor_schema SET version = ?", (version,))
    cure = rf"made by a version from before 0\.1\.0 \(store format {version}, .* give another file"
    for _ in range(2):
        with pytest.raises(StoreError, match=cure):
            open_store(store_url)


def test_what_was_packed_by_zlib_is_read(store):
    """As every version did until it took zstd."""
    key = store.save_history(HISTORY)
    with store.backend.transaction(write=True):
        packed = {}
        for name in store.backend.keys("message/"):
            content = unpack(store.backend.get([name])[name], name)
            packed[name] = bytes.fromhex(name.partition("/")[2]) + zlib.compress(content, 4)
        store.backend.remove(packed)
        store.backend.add(packed)
    assert list(store.load_history(key).messages) == list(HISTORY.messages)
    assert store.verify() == []
