"""A key names one history of one owner, also if the digests of several begin alike."""

import json

import httpx
import pytest
from click.testing import CliRunner

from applier import apply
from applier.adapters.proxy import ProxyServer, ProxySettings, Upstreams
from applier.adapters.visible import Visible
from applier.cli.app import compactor
from applier.session import Session
from applier.store import open_store
from applier.testing import MessagesServer
from planner.api import plan_compaction
from planner.errors import ReferenceNotFound
from planner.reading.history import read_history
from tests.mcp.test_mcp_server import ask


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


@pytest.fixture(params=[32, 48, 64])
def alike(request, monkeypatch):
    """Digests of histories that all begin with so many equal bits."""
    equal = "0" * (request.param // 4)
    monkeypatch.setattr("planner.reading.history._digits", lambda made: equal + made.hexdigest()[len(equal) :])
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
                        httpx.post(f"{proxy.url}/v1/messages", json=body, headers={"x-api-key": owner}, timeout=60)
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
