"""A team's proxy: one file says all of it, each person has a token of his own and spends no more than his quota."""

from __future__ import annotations

import json
import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import anthropic
import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from pydantic_core import PydanticUndefined

from applier import open_store
from applier.adapters.proxy import ProxyServer
from applier.adapters.proxy.configuration import LimitTable, TeamSettings, read_team, team_proxy
from applier.adapters.proxy.conversations import CREDENTIALS, PERSON_HEADER, Conversations
from applier.adapters.proxy.entrance import People, create_token, list_tokens, revoke_token
from applier.adapters.proxy.metrics import Metrics
from applier.cli.app import run
from applier.store.opening import SessionStore
from planner.errors import SettingsError, StoreError
from planner.reading.messages import read_history
from planner.settings import CheckedSettings
from tests import http_client
from tests.bench.proxy_load import conversation
from tests.hosts import hosts
from tests.openai_server import OpenAIServer

ROOT = Path(__file__).parents[2]
MODEL = "claude-opus-5-5"
TEAM_KEY, OPENAI_KEY = "sk-ant-team-4711", "sk-team-0815"
ENVIRONMENT = {"TEAM_KEY": TEAM_KEY, "TEAM_OPENAI": OPENAI_KEY}
DAY = 86_400.0
HELLO = {"model": MODEL, "max_tokens": 99, "messages": [{"role": "user", "content": "Hello"}]}
PATHS = {"/v1/messages": HELLO, "/v1/chat/completions": HELLO, "/v1/responses": {"model": "gpt", "input": "Hello"}}


@dataclass
class Team:
    """A proxy of a team, and the tokens of its people."""

    proxy: ProxyServer
    tokens: dict[str, str]

    def post(self, path="/v1/messages", body=None, **headers):
        return http_client.post(self.proxy.url + path, json=body or PATHS[path], headers=headers)


def written(folder, server, text="", store=""):
    """The file of a team with its upstreams at `server`, and what `text` says besides."""
    path = folder / "proxy.toml"
    top, _, tables = text.partition("[")
    path.write_text(
        f'port = 0\nstore = "{store or folder / "team.db"}"\n{top}\n[upstreams]\nanthropic = "{server.url}"\n'
        f'openai = "{server.url}"\nanthropic_key_variable = "TEAM_KEY"\nopenai_key_variable = "TEAM_OPENAI"\n'
        f'[session]\nplanner = "rules"\nwindow_tokens = 24000\n{"[" * bool(tables)}{tables}',
        "utf-8",
    )
    return path


@contextmanager
def team(folder, server, text="", keys=True):
    path = written(folder, server, text)
    if not keys:
        path.write_text("\n".join(line for line in path.read_text().splitlines() if "key_variable" not in line))
    with open_store(str(folder / "team.db")) as store:
        tokens = {name: create_token(store, name, 0.0) for name in ("ada", "bob")}
    with ProxyServer(team_proxy(read_team(path), ENVIRONMENT)) as proxy:
        yield Team(proxy, tokens)


@pytest.mark.parametrize("path", PATHS)
def test_who_has_no_token_is_told_in_the_form_of_his_api(path, tmp_path):
    with OpenAIServer("ok") as server, team(tmp_path, server) as of:
        with open_store(str(tmp_path / "team.db")) as store:
            gone = create_token(store, "eve", 0.0)
            revoke_token(store, "eve", 1.0)
        for headers in (
            {},
            {"x-compactor-token": "cpt_wrong"},
            {"authorization": f"Bearer {gone}"},
            {"x-api-key": gone},
        ):
            answer = of.post(path, **headers)
            error = answer.json()["error"]
            assert (answer.status_code, answer.headers["x-should-retry"]) == (401, "false")
            assert ("type" in answer.json()) == (path == "/v1/messages")
            assert error.get("code") == (None if path == "/v1/messages" else "invalid_api_key")
            assert gone not in answer.text
        assert server.exchanges == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("header", ["x-compactor-token", "authorization", "x-api-key"])
def test_a_token_opens_and_the_key_of_the_team_goes_out_instead(path, header, tmp_path):
    if header == "x-api-key" and path != "/v1/messages":
        header = "api-key"
    with OpenAIServer("ok") as server, team(tmp_path, server) as of:
        token = of.tokens["ada"]
        own = {header: f"Bearer {token}" if header == "authorization" else token}
        others = {"x-api-key": "own-key"} if header == "x-compactor-token" and path == "/v1/messages" else {}
        assert of.post(path, **own, **others, **{PERSON_HEADER: "bob"}).status_code == 200
        sent = server.exchanges[0].request.headers
    key = {"x-api-key": TEAM_KEY} if path == "/v1/messages" else {"authorization": f"Bearer {OPENAI_KEY}"}
    assert {name: sent[name] for name in CREDENTIALS if name in sent} == key
    assert token not in str(dict(sent))
    assert not [name for name in sent if name.startswith("x-compactor")]


def test_without_a_key_of_the_team_each_shows_his_own_beside_the_token(tmp_path):
    with OpenAIServer("ok") as server, team(tmp_path, server, keys=False) as of:
        token = of.tokens["ada"]
        assert of.post(**{"x-api-key": token}).status_code == 401
        assert of.post(**{"x-compactor-token": token, "x-api-key": "own-key"}).status_code == 200
        (exchange,) = server.exchanges
    assert exchange.request.headers["x-api-key"] == "own-key"


KEYS = st.dictionaries(st.sampled_from(CREDENTIALS), st.sampled_from(["k1", "k2"]))
NAMES = st.sampled_from(["", "run-1", "ada", "bob"])
USERS = st.sampled_from([{}, {"user": "ada"}, {"metadata": {"user_id": "ada"}}])


@given(KEYS, KEYS, NAMES, USERS)
def test_no_key_name_or_body_leads_into_the_conversations_of_another(of_ada, of_bob, name, body):
    """And a person's own are his with whatever key comes along."""
    scope = Conversations(lambda *_: None).scope
    named = {"x-compactor-session": name}
    adas = scope(body, {PERSON_HEADER: "ada", **of_ada, **named})
    assert adas == scope(body, {PERSON_HEADER: "ada", **of_bob, **named})
    assert adas != scope(body, {PERSON_HEADER: "bob", **of_ada, **named})
    assert adas != scope(body, {**of_ada, **named})


def test_two_people_who_say_the_same_have_two_conversations(tmp_path):
    whole = {**HELLO, "messages": conversation("same", 30)}
    with OpenAIServer("ok", window_tokens=10**6) as server, team(tmp_path, server) as of:
        for token in of.tokens.values():
            assert of.post(body=whole, authorization=f"Bearer {token}").status_code == 200
        sessions = of.proxy.gateway.conversations.sessions()
        assert len({session.session_id for session in sessions}) == 2
        assert http_client.get(of.proxy.url + "/metrics", headers={"x-api-key": of.tokens["bob"]}).status_code == 200
    text = of.proxy.metrics.text(0)  # what the last answer cost is heard of once it is out
    for person in of.tokens:
        assert f'compactor_requests_total{{kind="prepared",person="{person}"}} 1.0' in text
        assert f'compactor_plans_total{{person="{person}",planner="rules"}} 1.0' in text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_what_the_provider_counts_is_what_counts_until_the_quota_is_spent(path, stream, tmp_path):
    with OpenAIServer("ok ok ok") as server, team(tmp_path, server, "[limits]\ntokens_a_day = 20\n") as of:
        ada, bob = ({"x-compactor-token": token} for token in of.tokens.values())
        body = {
            **PATHS[path],
            "stream": stream,
            **({"stream_options": {"include_usage": True}} if "chat" in path else {}),
        }
        answers = [of.post(path, body, **ada) for _ in range(20)]
        fine = [answer for answer in answers if answer.status_code == 200]
        bobs = of.post(path, body, **bob)
        refused = answers[-1]
        used = sum(one.usage.prompt_tokens + one.usage.output_tokens for one in server.exchanges[:-1])
        spent = of.proxy.gateway.people.spent("ada")
    assert 0 < len(fine) < 20
    assert bobs.status_code == 200, "his is another's"
    assert spent["tokens"] == used >= 20
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= DAY
    error = refused.json()["error"]
    kinds = {"/v1/messages": "rate_limit_error", "/v1/responses": "usage_limit_reached"}
    assert error["type"] == kinds.get(path, "insufficient_quota")
    assert "ada has spent" in error["message"]


@pytest.mark.real
def test_real_clients_understand_what_they_are_told(tmp_path):
    """And do not try again until midnight."""
    with (
        OpenAIServer("ok") as server,
        team(tmp_path, server, "[limits.people.ada]\ndollars_a_day = 0.0000001\n") as of,
    ):
        claude = partial(anthropic.Anthropic, base_url=of.proxy.url)
        gpt = partial(openai.OpenAI, base_url=f"{of.proxy.url}/v1")
        with claude(api_key="x") as client, pytest.raises(anthropic.AuthenticationError, match="no token"):
            client.messages.create(**HELLO)
        with gpt(api_key="x") as client, pytest.raises(openai.AuthenticationError, match="invalid_api_key"):
            client.models.list()
        with claude(auth_token=of.tokens["ada"], api_key=None) as client:
            client.messages.create(**HELLO)
            while not of.proxy.gateway.people.spent("ada")["dollars"]:
                pass  # is counted once the answer is out
            with pytest.raises(anthropic.RateLimitError, match="quota"):
                client.messages.create(**HELLO)
        with gpt(api_key=of.tokens["ada"]) as client, pytest.raises(openai.RateLimitError, match="quota"):
            client.chat.completions.create(model="gpt", messages=HELLO["messages"])
        assert of.post(authorization=f"Bearer {of.tokens['bob']}").status_code == 200


def test_what_is_not_read_counts_by_its_size(tmp_path):
    limits = "[limits]\ntokens_a_day = 1000\n"
    with OpenAIServer("ok") as server, team(tmp_path, server, limits, keys=False) as of:
        token = {"x-compactor-token": of.tokens["ada"], "x-api-key": "any"}
        of.post("/v1/messages/batches", {"requests": ["x" * 8_000]}, **token)
        assert of.proxy.gateway.people.spent("ada")["tokens"] == pytest.approx(2_000, abs=20)
        assert of.post(**token).status_code == 429


NEEDED = [
    *(("POST", f"/v1/{name}") for name in ("messages", "messages/count_tokens", "chat/completions", "responses")),
    *(("POST", f"/{name}") for name in ("messages", "messages/count_tokens", "chat/completions", "responses")),
    *(("GET", path) for path in ("/v1/models", "/v1/models/claude-opus-5-5", "/models", "/", "/api/hello")),
]
OTHERS = [
    *(("GET", f"/v1/{name}") for name in ("files", "organizations/me", "messages/batches", "responses/resp_1")),
    *(("POST", f"/v1/{name}") for name in ("files", "messages/batches", "messages/../files", "messages/%2e%2e/files")),
    *(("POST", f"/v1/{name}") for name in ("messages/", "/messages", "messages%2Fbatches", "models", "embeddings")),
    *(("GET", "/v1/models/.."), ("GET", "/v1/models/."), ("HEAD", "/v1/models/..")),
    *(("DELETE", "/v1/models/ft:ours"), ("GET", "/v1/chat/completions"), ("GET", "/api/oauth/profile")),
]


def status_of(of: Team, method: str, path: str, header: str) -> int:
    """As it is written: a client of HTTP would make the path plain."""
    url = httpx.URL(of.proxy.url)
    with socket.create_connection((url.host, url.port)) as client:
        shown = f"host: {url.netloc.decode()}\r\n{header}: {of.tokens['ada']}\r\nconnection: close\r\n"
        body = "content-type: application/json\r\ncontent-length: 2\r\n\r\n{}" if method == "POST" else "\r\n"
        client.sendall(f"{method} {path} HTTP/1.1\r\n{shown}{body}".encode())
        return int(client.makefile("rb").readline().split()[1])


@pytest.mark.parametrize("header", ["x-api-key", "x-compactor-token"])
def test_the_key_of_the_team_goes_out_on_the_paths_that_agents_need_and_no_others(header, tmp_path):
    with hosts(1) as (host,), team(tmp_path, host) as of:
        assert [call for call in NEEDED if status_of(of, *call, header) != 200] == []
        arrived = len(host.arrivals)
        assert [call for call in OTHERS if status_of(of, *call, header) != 403] == []
        assert len(host.arrivals) == arrived == len(NEEDED)


def test_other_paths_are_opened_by_the_file(tmp_path):
    with hosts(1) as (host,):
        path = written(tmp_path, host)
        path.write_text(path.read_text().replace("[session]", 'paths = ["/v1/embeddings", "/v1/files/*"]\n[session]'))
        token = {}
        with open_store(str(tmp_path / "team.db")) as store:
            token["ada"] = create_token(store, "ada", 0.0)
        with ProxyServer(team_proxy(read_team(path), ENVIRONMENT)) as proxy:
            of = Team(proxy, token)
            opened = [("POST", "/v1/embeddings"), ("GET", "/v1/files/f1")]
            closed = [("POST", "/v1/embeddings/x"), ("GET", "/v1/files"), ("GET", "/v1/files/../organizations")]
            statuses = [status_of(of, *call, "x-compactor-token") for call in (*opened, *closed)]
    assert statuses == [200] * 2 + [403] * 3


def test_who_shows_a_key_of_his_own_reaches_what_that_reaches(tmp_path):
    with hosts(1) as (host,), team(tmp_path, host, keys=False) as of:
        own = {"x-compactor-token": of.tokens["ada"], "x-api-key": "own-key"}
        assert http_client.get(f"{of.proxy.url}/v1/files", headers=own).status_code == 200


AMOUNTS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["ada", "bob"]), st.integers(1, 100)), max_size=12)


@settings(max_examples=12)
@given(AMOUNTS, st.booleans())
def test_what_is_spent_counts_over_processes_and_restarts_until_midnight(tmp_path_factory, amounts, broken):
    """And over a time in which the store cannot be used."""
    path, now = str(tmp_path_factory.mktemp("quota") / "store.db"), [0.5 * DAY]
    stores = [SessionStore(path) for _ in range(3)]
    several = [People(store, lambda _: LimitTable(tokens_a_day=100), lambda: now[0]) for store in stores]
    for process, person, tokens in amounts:
        now[0] += 10
        used, stores[process].use = stores[process].use, unusable if broken else stores[process].use
        several[process].spend(person, tokens, 0.0)
        stores[process].use = used
    for one in several:
        one.close()
    now[0] += 10
    several.append(People(SessionStore(path), lambda _: LimitTable(tokens_a_day=100), lambda: now[0]))
    for person in ("ada", "bob"):
        whole = sum(tokens for _, name, tokens in amounts if name == person)
        for one in several:
            one.person("")  # looks again
            assert one.spent(person)["tokens"] == whole
            assert (one.wait_seconds(person) > 0) == (whole >= 100)
    now[0] += DAY
    assert [one.wait_seconds("ada") for one in several] == [0] * 4
    several[0].person("")
    with open_store(path) as store:
        assert store.states("proxy-spent:") == {}
    for store in stores:
        store.close()


def unusable(_act):
    raise StoreError("gone")


def test_a_store_that_cannot_be_used_refuses_nobody(tmp_path):
    store = SessionStore(str(tmp_path / "store.db"))
    now = [0.0]
    with open_store(str(tmp_path / "store.db")) as opened:
        token = create_token(opened, "ada", 0.0)
    people = People(store, lambda _: LimitTable(), lambda: now[0])
    store.use = unusable
    for _ in range(3):
        now[0] += 60
        assert people.person(token) == "ada"
        assert people.person("cpt_other") == ""


@pytest.mark.parametrize("redacts", [False, True])
def test_a_token_is_shown_once_and_never_stored(redacts, tmp_path):
    path = tmp_path / "store.db"
    with open_store(str(path), redact_originals=redacts) as store:
        token = create_token(store, "ada", 7.0)
        with pytest.raises(SettingsError, match="revoke it first"):
            create_token(store, "ada", 8.0)
        people = People(SessionStore(store), lambda _: LimitTable(), lambda: 9.0)
        assert people.person(token) == "ada"
        assert [people.person(other) for other in ("", token[:-1], f"{token}x", token.upper())] == [""] * 4
        revoke_token(store, "ada", 9.0)
        with pytest.raises(SettingsError, match="has no token"):
            revoke_token(store, "ada", 9.0)
        renewed = create_token(store, "ada", 10.0)
        again = People(SessionStore(store), lambda _: LimitTable(), lambda: 11.0)
        assert (again.person(token), again.person(renewed)) == ("", "ada")
        (known,) = list_tokens(store)
        assert (known.created, known.revoked) == (10.0, None)
    assert token.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "a b", "../x", "ada:bob", "-x", "x" * 65, "ada\n", 'a"b'])
def test_what_is_no_name_is_refused(name, tmp_path):
    with open_store(str(tmp_path / "store.db")) as store, pytest.raises(SettingsError, match="a person's name has"):
        create_token(store, name, 0.0)


WRONG = {
    "hots = 1": ("hots", "did you mean host"),
    "host = 5": ("host", "valid string"),
    'host = "a b/c"': ("host", "should match pattern"),
    'port = "8787"': ("port", "valid integer"),
    "port = 70000": ("port", "65535"),
    'store = "store.db"': ("store", "set an absolute path"),
    'store = "mysql://host/db"': ("store", "expected a path"),
    'store = ":memory:"': ("store", "give a path"),
    'store = "postgresql://bob:pw@db/x"': ("store", "chmod 600"),
    'tokens = "yes"': ("tokens", "valid boolean"),
    'host = "0.0.0.0"\ntokens = false': ("tokens", "set true"),
    "tokens = false\n[limits]\ndollars_a_day = 1": ("limits", "set tokens = true"),
    'log_level = "loud"': ("log_level", "'debug', 'info'"),
    "grace_seconds = -1": ("grace_seconds", "greater than or equal to 0"),
    "[upstreams]": ("upstreams", "set at least one"),
    '[upstreams]\npaths = ["v1/files"]': ("upstreams.paths", "should match pattern"),
    '[upstreams]\nanthropic = "example.org"': ("upstreams.anthropic", "such as https://api.example.org"),
    '[upstreams]\nantropic = "http://a"': ("upstreams.antropic", "did you mean anthropic"),
    "[limits]\ntokens_a_day = 1.5": ("limits.tokens_a_day", "valid integer"),
    "[limits.people.ada]\ntokens = 1": ("limits.people.ada.tokens", "did you mean tokens_a_day"),
    "[retention]\nolder_than_days = 0": ("retention.older_than_days", "greater than 0"),
    '[session]\npreset = "relevance"\nwindow = 1': ("session", "window_tokens"),
    '[session]\nproject = "/x"': ("session.project", "leave it out"),
    "port = ": ("", "cannot be read as TOML"),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_in_the_file_is_said_by_file_key_and_cure(text, tmp_path):
    path, (key, cure) = tmp_path / "proxy.toml", WRONG[text]
    top = "" if "store" in text else f'store = "{tmp_path / "store.db"}"\n'
    bottom = "" if "[upstreams]" in text else '\n[upstreams]\nanthropic = "http://127.0.0.1:1"\n'
    path.write_text(top + text + bottom, "utf-8")
    with pytest.raises(SettingsError) as raised:
        read_team(path)
    said = str(raised.value)
    assert said.startswith(f"{path}: ")
    assert key in said
    assert cure in said
    assert "\n" not in said
    assert "pw" not in said


@pytest.mark.parametrize("case", ["port taken", "store", "key", "beside", "token beside"])
def test_it_does_not_start_with_what_is_wrong_and_says_so_in_a_line(case, tmp_path, monkeypatch, capsys):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value if case != "key" else "")
    more: list[str] = []
    with OpenAIServer("ok") as server:
        config = written(tmp_path, server)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cure = "upstreams.anthropic_key_variable: $TEAM_KEY holds no key"
        if case == "port taken":
            config.write_text(config.read_text().replace("port = 0\n", f"port = {taken.getsockname()[1]}\n"))
            cure = f"port: 127.0.0.1:{taken.getsockname()[1]}: Address already in use; choose another host or port"
        if case == "store":
            (tmp_path / "team.db").mkdir()
            cure = "store: "
        if "beside" in case:
            more = ["--port", "1"] if case == "beside" else ["--port", "1", "token", "list"]
        assert run(["proxy", "--config", str(config), *more]) == 2
    said = capsys.readouterr().err
    assert said.startswith("compactor: port: with --config" if more else f"compactor: {config}: {cure}")
    assert said.count("\n") == 1


def test_tokens_are_created_listed_and_revoked_by_command(tmp_path, capsys):
    with OpenAIServer("ok") as server:
        of = ["--config", str(written(tmp_path, server))]
    for name in ("ada", "bob"):
        assert run(["proxy", "token", "create", name, *of]) == 0
    first, second = capsys.readouterr().out.split()
    assert (first[:4], len(first), first != second) == ("cpt_", 47, True)
    assert run(["proxy", "token", "create", "ada", *of]) == 2
    assert run(["proxy", *of, "token", "revoke", "ada"]) == 0
    assert run(["proxy", "token", "revoke", "eve", *of]) == 2
    assert "compactor: 'eve' has no token: " in capsys.readouterr().err
    assert run(["proxy", "token", "list", "--json", *of]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["revoked"] is None) for row in rows] == [("ada", False), ("bob", True)]
    assert run(["proxy", "token", "list"]) == 2
    assert "its settings: --config FILE" in capsys.readouterr().err


@pytest.mark.parametrize("value", [None, "", "two words", "line\nend"])
def test_a_variable_without_a_key_is_named(value, tmp_path):
    with OpenAIServer("ok") as server:
        read = read_team(written(tmp_path, server))
    with pytest.raises(SettingsError, match=r"upstreams.anthropic_key_variable: \$TEAM_KEY holds no key"):
        team_proxy(read, {**ENVIRONMENT, "TEAM_KEY": value} if value is not None else {})


def test_neither_the_working_folder_nor_variables_are_asked(tmp_path, monkeypatch):
    (tmp_path / "compactor.toml").write_text("window_tokens = 5000\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPACTOR_PRESET", "codex")
    monkeypatch.setenv("COMPACTOR_PROXY_TOKEN", "other")
    with OpenAIServer("ok") as server, team(tmp_path, server) as of:
        own = of.proxy._session_settings
        assert (own.window_tokens, own.preset, own.planner) == (24_000, "relevance", "rules")
        assert of.post(authorization=f"Bearer {of.tokens['ada']}").status_code == 200


def test_ready_says_which_part_is_not_and_health_that_it_lives(tmp_path):
    with OpenAIServer("ok") as server, team(tmp_path, server) as of:
        get = partial(http_client.get, headers={"host": "anything"})
        assert get(of.proxy.url + "/ready").json() == {"ready": True, "store": "ok", "anthropic": "ok", "openai": "ok"}
        assert get(of.proxy.url + "/health").text == "ok\n"
        assert get(of.proxy.url + "/metrics").status_code == 401


def test_a_part_that_is_gone_is_named(tmp_path, caplog):
    with team(tmp_path, SimpleNamespace(url="http://127.0.0.1:1")) as of:
        of.proxy.gateway.close()
        (tmp_path / "team.db").unlink()
        (tmp_path / "team.db").mkdir()
        answer = http_client.get(of.proxy.url + "/ready")
        parts = {"store": "cannot be used", "anthropic": "cannot be reached", "openai": "cannot be reached"}
        assert (answer.status_code, answer.json()) == (503, {"ready": False, **parts})
        assert all(f"{name}: ConnectError (an empty address leaves it out)" in caplog.text for name in list(parts)[1:])
        assert http_client.get(of.proxy.url + "/health").text == "ok\n"


def test_conversations_that_nobody_used_go_and_people_stay(tmp_path):
    with open_store(str(tmp_path / "team.db")) as store:
        for store.clock, name in ((lambda: time.time() - 9 * DAY, "old"), (time.time, "new")):
            store.save_history(read_history(conversation(name, 2)))
    with OpenAIServer("ok") as server, team(tmp_path, server, "[retention]\nolder_than_days = 3\n") as of:
        with open_store(str(tmp_path / "team.db")) as store:
            while len(store.histories()) > 1:
                time.sleep(0.01)
            assert "new" in str(store.load_history(store.histories()[0].key).messages)
        assert of.post(authorization=f"Bearer {of.tokens['ada']}").status_code == 200


def keys_of(model, front=""):
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, CheckedSettings):
            yield from keys_of(kind, f"{front}{name}.")
        else:
            yield f"{front}{name}", field.default


def test_every_key_of_the_file_and_every_metric_is_described():
    text = (ROOT / "docs" / "team.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for key, default in keys_of(TeamSettings):
        (row,) = (row for row in rows if f"`{key}`" in row.split(" | ")[0])
        if default not in (None, "", (), PydanticUndefined):
            shown = f"{default:g}" if type(default) in (int, float) else str(default).lower()
            assert shown in row.split(" | ")[1], key
    samples = [family.name for family in text_string_to_metric_families(Metrics().text(0))]
    counted = {name for name in samples if not name.endswith("_created")} - {"compactor_arrivals"}
    assert {name for name in counted if name not in text} == set()


def test_the_example_is_a_file_that_is_read():
    read = read_team(ROOT / "docs" / "team" / "proxy.toml")
    proxy = team_proxy(read, {"TEAM_ANTHROPIC_KEY": "k", "TEAM_OPENAI_KEY": "k"})
    assert proxy.has_people
    assert json.dumps(read.model_dump()).count("null") == 1, "ci has no bound in dollars"
