"""Laws of backups and of conversations that move: what was written comes back, whole or not at all, into any store."""

import json
import os
import sqlite3
import stat
import tracemalloc
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from applier.session.session import Session
from applier.store import open_store
from applier.store.archive import back_up, export_conversation
from applier.store.listing import conversations as stored_conversations
from applier.store.records import pack, read
from planner.errors import ReferenceNotFound, StoreDamaged, StoreError
from planner.reading.messages import read_history
from tests.store.archives import import_records
from tests.store.damage import damages, fact, plan_for
from tests.store.test_retention import clear, conversations, fill, said
from tests.strategies import make_session

NUMBER = 12_345_678
few = settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def contents(store):
    """All that a store holds and says, but for when it was used."""
    keys = [one.key for one in store.histories()]
    return {
        "histories": {key: json.dumps(list(store.load_history(key).messages)) for key in keys},
        "turns": {key: [turn.id for turn in store.load_history(key).turns] for key in keys},
        "plans": {key: [store.load_plan(name).model_dump_json() for name in store.plans(key)] for key in keys},
        "facts": {key: [one.model_dump_json() for one in store.facts(key)] for key in keys},
        "states": store.states(""),
        "events": list(store.events()),
    }


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@few
@given(plans=conversations(), data=st.data())
def test_a_conversation_that_moves_is_the_same_in_the_other_store(store, plans, data):
    with TemporaryDirectory() as name, open_store(Path(name, "other.db")) as other:
        clear(store)
        saved = fill(other, plans)
        number = data.draw(st.integers(0, len(plans) - 1))
        part, key, _ = saved[number][-1]
        export_conversation(other, key, Path(name, "one"))
        assert stat.S_IMODE(os.stat(Path(name, "one")).st_mode) == 0o600
        assert sorted(os.listdir(name)) == ["one", "other.db", "other.db-shm", "other.db-wal"]
        list(store.find_facts())
        assert key in import_records(store, Path(name, "one"))
        facts = {content for kept in contents(store)["facts"].values() for content in kept}
        assert {fact.model_dump_json() for _, fact in store.find_facts()} == facts
        here, there = contents(store), contents(other)
        assert store.verify() == []
        for kind in ("histories", "turns", "plans", "facts", "states"):
            assert here[kind].items() <= there[kind].items()
        assert all(event in there["events"] for event in here["events"])
        assert here["histories"][key] == json.dumps(part)
        prefixes = read_history(part).digests
        own = [one for earlier in saved for one in earlier if prefixes[: len(one[0])] == read_history(one[0]).digests]
        assert {one[1] for one in own} <= here["histories"].keys()
        assert (store.get_state(f"session:{number}"), list(store.events(str(number)))) == (
            there["states"][f"session:{number}"],
            [event for event in there["events"] if event["session"] == str(number)],
        )
        size = store.size()
        import_records(store, Path(name, "one"))
        assert (contents(store), store.size()) == (here, size)
        export_conversation(store, key, Path(name, "again"))
        with open_store(Path(name, "again")) as again, open_store(Path(name, "one")) as one:
            assert contents(again) == contents(one) | {"events": here["events"]}


@few
@given(plans=conversations())
def test_a_backup_is_a_store_with_everything_and_fills_another(store, plans):
    clear(store)
    fill(store, plans)
    store.set_state("learned:x", {"line": "approved"})
    with TemporaryDirectory() as name:
        back_up(store, Path(name, "backup.db"))
        with open_store(Path(name, "backup.db")) as backup:
            assert contents(backup) == contents(store)
            assert backup.verify() == []
        before = contents(store)
        clear(store)
        import_records(store, Path(name, "backup.db"), is_own_backup=True)
        assert contents(store) == before


SOUND = read_history(make_session(12))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The file of a conversation, and what it holds."""
    folder = tmp_path_factory.mktemp("exported")
    with open_store(folder / "store.db") as store:
        key = store.save_history(SOUND)
        store.save_plan(plan_for(SOUND))
        store.save_facts([fact("Node 18+")], key)
        store.set_state("session:s", {"key": key})
        store.record_event({"time": 1.0, "session": "s"})
        export_conversation(store, key, folder / "one")
        return folder / "one", contents(store)


@settings(max_examples=60)
@given(damage=damages)
def test_a_damaged_file_is_taken_whole_or_not_at_all(exported, damage):
    whole, held = exported
    with TemporaryDirectory() as name, open_store(Path(name, "store.db")) as store:
        file = Path(name, "one")
        file.write_bytes(damage.applied(whole.read_bytes()))
        before = contents(store)
        try:
            import_records(store, file)
        except StoreError:
            assert contents(store) == before
        else:
            assert contents(store) == held
        assert store.verify() == []


@pytest.mark.parametrize("content", [b"", b"dear diary, " * 100, b"{}", b"SQLite format 3\0"])
def test_a_foreign_file_is_told(store, folder, content):
    (folder / "one").write_bytes(content)
    with pytest.raises(StoreError, match=r"one: .*(another file|damaged)"):
        import_records(store, folder / "one")
    with pytest.raises(StoreError, match="no such file"):
        import_records(store, folder / "none")
    assert not (folder / "none").exists()


def changed(file, sql, values=()):
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(sql, values)
        connection.commit()


def test_what_somebody_wrote_into_the_file_is_refused(store, exported, folder):
    """Its digests are right, as a record that is missing, or another database's table, leaves them."""
    for sql in (
        "DELETE FROM records WHERE key LIKE 'fact/%'",
        "CREATE TABLE more (x)",
        "CREATE TRIGGER t AFTER INSERT ON records BEGIN SELECT 1; END",
    ):
        (folder / "one").write_bytes(exported[0].read_bytes())
        changed(folder / "one", sql)
        with pytest.raises(StoreError, match=r"one: .*(nothing was imported|give another file)"):
            import_records(store, folder / "one")
        assert store.histories() == ()


@pytest.mark.parametrize("is_own_backup", [True, False])
def test_a_store_does_not_take_in_itself(folder, is_own_backup):
    (folder / "link.db").symlink_to("mine.db")
    with open_store(folder / "mine.db") as mine:
        mine.save_history(SOUND)
        for name in ("mine.db", "link.db"):
            with pytest.raises(StoreError, match="is the store that is to take it in"):
                import_records(mine, folder / name, is_own_backup=is_own_backup)


def test_a_strangers_file_approves_nothing(store, folder):
    with open_store(folder / "theirs.db") as theirs:
        key = theirs.save_history(SOUND)
        theirs.set_state("learned:x", {"line": key})
        theirs.set_state("tokens", [key])
        theirs.set_state("session:s", {"key": key, "theirs": True})
        export_conversation(theirs, key, folder / "one")
        back_up(theirs, folder / "all")
    store.set_state("session:s", {"mine": True})
    for file in ("one", "all"):
        import_records(store, folder / file)
        assert store.states("") == {"session:s": {"mine": True}}


@pytest.mark.parametrize(
    ("kind", "name", "wrong"),
    [
        ("event", '"s"/000000000001', {"time": 1e300}),
        ("event", '"s"/000000000001', {"time": "today"}),
        ("event", '"s"/000000000001', [1]),
        ("state", f'"origin:h{NUMBER:032}"', "a folder"),
        ("state", f'"origin:h{NUMBER:032}"', {"history": f"h{NUMBER:032}"}),
        ("state", f'"origin:h{NUMBER:032}"', {"history": f"h{NUMBER + 1:032}", "folder": "", "time": 1.0}),
        ("state", f'"origin:h{NUMBER:032}"', {"history": f"h{NUMBER:032}", "folder": "", "time": 1e300}),
        ("history", "", {"size_bytes": "much"}),
        ("history", "", {"groups": ["0" * 16]}),
        ("history", "", {"messages": 2}),
    ],
)
def test_what_no_store_writes_breaks_no_list_of_the_store_that_is_to_take_it(store, folder, kind, name, wrong):
    with open_store(folder / "theirs.db") as theirs:
        own = theirs.save_history(SOUND)
        with theirs.backend.transaction(write=True):
            key = f"{kind}/{name}" if name else theirs.backend.keys("history/")[0]
            before = read(theirs.backend, [key]).get(key)
            theirs.backend.remove([key])
            value = {**json.loads(before), **wrong} if before else wrong
            theirs.backend.add({key: pack(json.dumps(value).encode())})
        back_up(theirs, folder / "theirs")
    with pytest.raises(StoreError):
        import_records(store, folder / "theirs", is_own_backup=True)
    assert (store.histories(), store.events(), store.states("")) == ((), (), {})
    store.save_history(SOUND)
    assert [one.history.key for one in stored_conversations(store)] == [own]


def test_a_strangers_file_leads_to_no_conversation_but_its_own(store, folder):
    mine = store.save_history(read_history([said(1, "mine"), said(1, "alone")]))
    with open_store(folder / "theirs.db") as theirs:
        key = theirs.save_history(SOUND)
        for number, named in enumerate((mine, f"{mine}:t1", f"sha256:{store.histories()[0].prefix}")):
            theirs.set_state(f"session:{number}", {"key": key, "keys": [named]})
            theirs.set_state(f"view::{number}", [{"history": key}, {"history": named}])
        theirs.set_state("session:sound", {"key": key, "keys": [key]})
        theirs.note_origin(key, "/theirs", 1.0)
        theirs.note_origin(mine, "/theirs", 1.0)
        back_up(theirs, folder / "all")
    import_records(store, folder / "all")
    assert store.states("").keys() == {"session:sound", f"origin:{key}"}


def test_what_is_to_stay_out_of_a_store_stays_out_of_what_comes_in(folder):
    secret = "AKIA" + "IOSFODNN7" + "ABCDEFG"
    history = read_history([said(1, "first"), said(1, f"the key is {secret} here"), said(1, "last")])
    with open_store(folder / "theirs.db") as theirs:
        key = theirs.save_history(history)
        export_conversation(theirs, key, folder / "one")
    with open_store(folder / "mine" / "store.db", redact_originals=True) as mine:
        assert import_records(mine, folder / "one") == [key]
        assert secret not in json.dumps(list(mine.load_history(key).messages))
        assert mine.save_history(history) == key
        assert mine.verify() == []
        export_conversation(mine, key, folder / "clean")
        held = contents(mine)
    assert secret.encode() not in b"".join(path.read_bytes() for path in (folder / "mine").iterdir())
    with open_store(folder / "third.db") as third:
        import_records(third, folder / "clean")
        assert contents(third) == held


def test_nothing_is_written_over_unless_it_is_told(store, folder):
    store.save_history(SOUND)
    (folder / "mine").write_text("mine")
    with pytest.raises(StoreError, match="exists already; replace it by --overwrite"):
        back_up(store, folder / "mine")
    with pytest.raises(ReferenceNotFound):
        export_conversation(store, f"h{NUMBER:032}", folder / "mine", overwrite=True)
    assert (folder / "mine").read_text() == "mine"
    back_up(store, folder / "mine", overwrite=True)
    with open_store(folder / "mine") as copy:
        assert contents(copy) == contents(store)
        for place in (folder, copy.backend.place):
            with pytest.raises(StoreError, match="is no file that can be replaced; give another"):
                back_up(copy, place, overwrite=True)
    with pytest.raises(StoreError, match="cannot be written: No such file"):
        back_up(store, folder / "none" / "backup")


def test_an_import_that_fails_in_the_middle_changes_nothing(store, exported, folder):
    (folder / "one").write_bytes(exported[0].read_bytes())
    changed(folder / "one", "UPDATE records SET key = replace(key, 'plan/', 'plan/0') WHERE key LIKE 'plan/%'")
    before = contents(store)
    with pytest.raises(StoreDamaged):
        import_records(store, folder / "one", is_own_backup=True)
    assert contents(store) == before


def test_a_session_goes_on_where_its_conversation_was_taken(folder):
    messages, more = make_session(60), {"role": "user", "content": "go on"}

    def session(store):
        return Session("go on", store=store, window_tokens=20_000, planner="rules", session_id="moved")

    with open_store(folder / "here.db") as here, session(here) as began:
        view = began.compact(messages, at_limit=True).messages
        assert len(view) < len(messages)
        export_conversation(here, began.state.history_key, folder / "one")
        sent = began.prepare([*messages, more])
    with open_store(folder / "there.db") as there:
        import_records(there, folder / "one")
        with session(there) as goes_on:
            assert json.dumps(goes_on.prepare([*messages, more])) == json.dumps(sent)
            assert goes_on.restore("t3").messages == read_history(messages).messages_of(
                read_history(messages).by_id["t3"]
            )


def bomb(piece, times):
    """The body of a record that is small and becomes `piece`, so many times."""
    packing = zstandard.ZstdCompressor(level=3).compressobj(size=len(piece) * times)
    digest, packed = sha256(), b""
    for _ in range(times):
        digest.update(piece)
        packed += packing.compress(piece)
    return digest.digest() + packed + packing.flush()


@pytest.mark.parametrize(
    ("key", "piece", "times"),
    [
        ("message/{digest}", b" " * 2**20, 256),
        ("message/{digest}", b"[" + b"[]," * 2**18, 60),
        ("message/{digest}", b"[" * 2**20, 60),
        ("history/{digest}", b" " * 2**14, 100),
        ("fact/g/s/{number:012}", b" " * 2**20, 1),
        ('event/"s"/{number:012}', b" " * 2**20, 8),
        ('state/"s{number}"', b"[1," * 2**18, 4),
        ("seal/{number}", b" " * 2**20, 64),
    ],
)
def test_a_small_file_takes_no_large_memory(tmp_path, key, piece, times):
    with open_store(tmp_path / "from.db") as store:
        exported = store.save_history(read_history(make_session(5)))
        export_conversation(store, exported, tmp_path / "one.db")
    body = bomb(piece, times)
    count = 1 if len(body) > 2**12 else 40
    with closing(sqlite3.connect(tmp_path / "one.db")) as file, file:
        rows = [(key.format(digest=f"{body[:32].hex()[:60]}{at:04}", number=at), body) for at in range(count)]
        file.executemany("INSERT INTO records VALUES (?, ?)", rows)
    assert (tmp_path / "one.db").stat().st_size < 2**20
    with open_store(tmp_path / "to.db") as store:
        tracemalloc.start()
        with pytest.raises(StoreError):
            import_records(store, tmp_path / "one.db")
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 200 * 2**20
        assert store.histories() == ()
