"""A key names one history of one owner: for histories whose digests begin alike, and in stores from before."""

import json
import sqlite3
from contextlib import closing
from hashlib import sha256

import pytest
from click.testing import CliRunner

from applier import apply
from applier.adapters.proxy import ProxyServer, ProxySettings, Upstreams
from applier.adapters.visible import Visible
from applier.cli.app import compactor
from applier.session import Session
from applier.store import open_store
from applier.store.archive import export_conversation
from applier.store.opening import FORMAT, OLD_FORMAT
from applier.testing import MessagesServer
from planner.api import plan_compaction
from planner.errors import ReferenceNotFound
from planner.reading.messages import read_history
from tests import http_client
from tests.mcp.test_mcp_server import ask
from tests.store.archives import import_records
from tests.store.test_restore import SAME_START


def talk(owner, ending="go on", rounds=12):
    """A conversation of one owner, whose name is in every result."""
    messages = [{"role": "user", "content": f"Task of {owner}"}]
    for at in range(rounds):
        call = {"type": "tool_use", "id": f"c{at}", "name": "bash", "input": {"command": f"cat {owner}{at}"}}
        result = {"type": "tool_result", "tool_use_id": f"c{at}", "content": f"{owner} keeps this {at}\n" * 60}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return [*messages, {"role": "assistant", "content": "done"}, {"role": "user", "content": ending}]


def session(path, owner):
    return Session("work", planner="rules", store=path, session_id=owner, window_tokens=20_000)


@pytest.fixture(params=[*(pytest.param(bits, marks=pytest.mark.slow) for bits in (32, 48)), 64])
def alike(request, monkeypatch):
    """Digests of histories that all begin with so many equal bits."""
    equal = "0" * (request.param // 4)
    monkeypatch.setattr("planner.reading.messages._digits", lambda made: equal + made.hexdigest()[len(equal) :])
    return equal


class TestKeysThatBeginAlike:
    @pytest.fixture
    def path(self, alike, tmp_path):
        """A store with a compacted session each of two owners."""
        path = tmp_path / "store.db"
        for owner in ("alice", "bob"):
            with session(path, owner) as own:
                assert own.compact(talk(owner)).applied
        return path

    @pytest.mark.parametrize(("owner", "other"), [("alice", "bob"), ("bob", "alice")])
    def test_each_session_and_server_restores_its_own(self, path, alike, owner, other):
        messages = read_history(talk(owner)).messages
        with session(path, owner) as again, open_store(path) as store:
            seen = Visible(lambda: store, session=owner)
            foreign = session(path, other)
            strange = foreign.state.history_key
            foreign.close()
            for reference in ("t2", f"h{alike[:8]}:t2", f"{again.state.history_key}:t2"):
                assert again.restore(reference).messages == messages[1:3]
                restored = seen.restore(reference, lines=None, search=None, max_characters=None)
                assert restored.messages == messages[1:3]
            for record in (again, seen):
                found = json.dumps(
                    [match.excerpt for match in record.search("keeps", part=None, tool=None, limit=9).matches]
                )
                assert (owner in found, other in found) == (True, False)
            with pytest.raises(ReferenceNotFound):
                again.restore(f"{strange}:t2")
            with pytest.raises(ReferenceNotFound):
                seen.restore(f"{strange}:t2", lines=None, search=None, max_characters=None)
            assert again.prepare(
                [*talk(owner), {"role": "assistant", "content": "k"}, {"role": "user", "content": "?"}]
            )

    def test_the_servers_tool_restores_its_own(self, path, alike):
        for owner, other in (("alice", "bob"), ("bob", "alice")):
            references = ("t2", f"h{alike[:8]}:t2", f"h{alike}:t2")
            for restored in ask(path, *(("restore_context", {"reference": one}) for one in references), session=owner):
                assert (f"{owner} keeps this 0" in restored, f"{other} keeps" in restored) == (True, False)

    def test_the_command_restores_what_a_key_names_and_nothing_by_its_beginning(self, path, alike):
        for owner in ("alice", "bob"):
            with session(path, owner) as own:
                key = own.state.history_key
            ran = CliRunner().invoke(compactor, ["restore", f"{key}:t2", "--store", str(path)])
            assert f"{owner} keeps this 0" in ran.output
            ran = CliRunner().invoke(compactor, ["restore", f"h{alike}:t2", "--store", str(path)])
            assert (ran.exit_code != 0, "keeps" in ran.output) == (True, False)

    def test_a_proxy_serves_each_key_from_its_own(self, alike, tmp_path):
        with MessagesServer("ok") as server:
            settings = ProxySettings(
                upstreams=Upstreams(server.url),
                store=str(tmp_path / "store.db"),
                session={"window_tokens": 8_000, "planner": "rules"},
            )
            with ProxyServer(settings) as proxy:
                for end in (61, 63, 65):
                    for owner in ("alice", "bob"):
                        body = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": talk(owner, rounds=40)[:end]}
                        http_client.post(f"{proxy.url}/v1/messages", json=body, headers={"x-api-key": owner})
            sent = [exchange.request.raw.decode() for exchange in server.exchanges]
        assert all(("alice" in one) != ("bob" in one) for one in sent)
        with open_store(tmp_path / "store.db") as store:
            compacted = {event["session"] for event in store.events() if event["kind"] == "post_compact"}
            visible = [Visible(lambda: store, session=name) for name in compacted]
            asked = {"lines": None, "search": None, "max_characters": None}
            restored = [str(one.restore("t2", **asked).messages) for one in visible]
        assert len(compacted) == 2
        assert sorted(("alice" in one, "bob" in one) for one in restored) == [(False, True), (True, False)]

    def test_a_view_names_one_history_of_the_store(self, path):
        messages = talk("carol")
        plan = plan_compaction(messages, "work", planner="rules", target_ratio=0.2)
        with open_store(path) as store:
            view = json.dumps(apply(plan, messages, store=store))
            key = view.split('history=\\"')[1].split('\\"')[0]
            assert list(store.restore(f"{key}:t2").messages) == messages[1:3]


def old_store(path, records):
    """Write a store as version 4 had it: short keys in states and events."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE records (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID")
        connection.execute("CREATE TABLE compactor_schema (version INTEGER NOT NULL)")
        connection.execute("INSERT INTO compactor_schema VALUES (?)", (OLD_FORMAT,))
        connection.executemany("INSERT INTO records VALUES (?, ?)", records.items())


def record(value):
    content = json.dumps(value).encode()
    return sha256(content).digest() + content


def shortened(path):
    """The records of a store as version 4 would have written them."""
    with closing(sqlite3.connect(path)) as connection:
        records = dict(connection.execute("SELECT key, body FROM records"))
    with open_store(path) as store, store.backend.transaction():
        names = [one.partition("/")[2] for one in store.backend.keys("history/")]
        plans = [one.split("/")[1] for one in store.backend.keys("plan/")]
    whole = {f"h{name[:32]}": f"h{name[:8]}" for name in names} | {f"p{name[:32]}": f"p{name[:8]}" for name in plans}
    with open_store(path) as store:
        states, events = store.states(""), store.events()
    for key in [key for key in records if key.startswith(("state/", "event/"))]:
        del records[key]
    for number, event in enumerate(events, 10**9):
        records[f"event/{json.dumps(event.get('session'))}/{number:012}"] = record(_short(event, whole))
    for name, value in states.items():
        records[f"state/{json.dumps(_short(name, whole))}"] = record(_short(value, whole))
    return records


def _short(value, whole):
    text = json.dumps(value)
    for long, short in whole.items():
        text = text.replace(long, short)
    return json.loads(text)


class TestOldStores:
    @pytest.fixture
    def filled(self, tmp_path):
        """A store with all that sessions and commands write, as version 4 wrote it."""
        path = tmp_path / "new.db"
        with session(path, "alice") as own:
            assert own.compact(talk("alice")).applied
            key = own.state.history_key
        with open_store(path) as store:
            store.note_origin(key, "/srv/site", 5.0)
            store.record_event({"time": 1.0, "kind": "undo", "history": key, "message": "to whole.json"})
            store.set_state("answer:1:2", {"messages": [{"role": "user", "content": key}], "history": key})
        records = shortened(path)
        assert key.encode() not in b"".join(records.values())
        old_store(tmp_path / "old.db", records)
        return tmp_path / "old.db", key

    def test_a_session_goes_on_with_its_view_its_undo_and_its_facts(self, filled):
        path, key = filled
        with session(path, "alice") as again:
            assert again.state.history_key == key
            assert again.state.compactions == 1
            assert again.restore("t2").messages == again.restore(f"{key[:9]}:t2").messages
            assert again.prepare(talk("alice")) != talk("alice")
            assert again.undo()
        with open_store(path) as store:
            assert store.verify() == []
            assert store.origin(key) == ("/srv/site", 5.0)
            assert [
                event["history"] for event in store.events() if event.get("kind") == "undo" and "history" in event
            ] == [key]
            short = {"role": "user", "content": key[:9]}
            assert store.get_state("answer:1:2") == {"messages": [short], "history": key}

    def test_all_of_a_conversation_is_forgotten(self, filled):
        path, key = filled
        with open_store(path) as store:
            assert store.forget(key) == []
            with store.backend.transaction():
                assert store.backend.keys("") == ["order"]

    def test_it_is_upgraded_once(self, filled):
        path, _ = filled
        for _ in range(2):
            with open_store(path) as store, store.backend.transaction():
                assert store.backend.rows("SELECT version FROM compactor_schema") == [(FORMAT,)]

    def test_a_short_key_of_two_histories_is_not_guessed(self, tmp_path):
        with open_store(tmp_path / "new.db") as store:
            keys = [store.save_history(read_history([{"role": "user", "content": text}])) for text in SAME_START]
            store.set_state("session:bob", {"frame": {"key": keys[0]}})
            store.note_origin(keys[1], "/srv/site", 5.0)
            store.set_state("other", {"version": 1})
            store.record_event({"time": 1.0, "session": "bob", "history": keys[0]})
        old_store(tmp_path / "old.db", shortened(tmp_path / "new.db"))
        with open_store(tmp_path / "old.db") as store:
            assert store.states("") == {"other": {"version": 1}}
            assert len(store.events("bob")) == 1
            assert [store.restore(f"{key}:t1").text for key in keys] == list(SAME_START)

    @pytest.mark.parametrize("is_own_backup", [True, False])
    def test_an_old_file_is_imported_with_whole_keys(self, filled, tmp_path, is_own_backup):
        path, key = filled
        with open_store(tmp_path / "in.db") as store:
            if not is_own_backup:
                path = self.exported(path, key, tmp_path)
            assert import_records(store, path, is_own_backup=is_own_backup) == [key]
            assert store.get_state("session:alice")["frame"]["key"] == key
        with session(tmp_path / "in.db", "alice") as again:
            assert again.restore("t2").messages == read_history(talk("alice")).messages[1:3]

    def exported(self, path, key, folder):
        """The file of one conversation as version 4 wrote it, sealed."""
        with open_store(path) as store:
            export_conversation(store, key, folder / "out.db")
        records = shortened(folder / "out.db")
        del records["seal"]
        seal = sha256()
        for name, body in sorted(records.items()):
            seal.update(f"{len(name)} {len(body)} {name} ".encode() + body)
        old_store(folder / "one.db", records | {"seal": seal.digest()})
        return folder / "one.db"
