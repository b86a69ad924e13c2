"""Nothing reaches a host that was not named for it, and no key a host that it was not given for."""

from __future__ import annotations

import json
import sys
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from applier.adapters.proxy import ProxyServer, ProxySettings, Upstreams
from applier.adapters.proxy.configuration import OwnClient
from planner.errors import SettingsError
from tests import http_client
from tests.hosts import Host, hosts, message, talk
from tests.model.sample import answer

CLAUDE_TALK, OPENAI_TALK = "for-claude-only", "for-openai-only"
OPERATORS = {
    "ANTHROPIC_API_KEY": "sk-ant-operator-1111",
    "ANTHROPIC_AUTH_TOKEN": "operator-token-2222",
    "ANTHROPIC_CUSTOM_HEADERS": "x-gateway-key: operator-header-3333",
    "OPENAI_API_KEY": "sk-operator-4444",
}
"""What whoever runs the proxy has in his environment, for the public providers."""
AGENTS = {"x-api-key": "agent-key-5555", "authorization": "Bearer agent-token-6666", "api-key": "agent-key-7777"}
SECRETS = tuple(value.split()[-1] for value in (*OPERATORS.values(), *AGENTS.values()))
CLAUDE_MODEL = "claude-opus-5-5"
CLAUDES = {"/v1/messages": CLAUDE_TALK, "/v1/messages/count_tokens": CLAUDE_TALK, "/v1/models": "", "/api/hello": ""}
OPENAIS = {
    "/v1/chat/completions": OPENAI_TALK,
    "/v1/responses": OPENAI_TALK,
    "/v1/embeddings": OPENAI_TALK,
    "/v1/models": "",
    "/chat/completions": OPENAI_TALK,
    "/models": "",
}
CALLS = st.one_of(
    st.tuples(st.just("anthropic"), st.sampled_from(sorted(CLAUDES))),
    st.tuples(st.just("anthropic"), st.just("/v1/messages")),
    st.tuples(st.just("openai"), st.sampled_from(sorted(OPENAIS))),
)


def environment(patch: pytest.MonkeyPatch, names: set[str], public: Host) -> None:
    """The operator's keys by these names, with `public` where both SDKs go by themselves."""
    for name in names:
        patch.setenv(name, OPERATORS[name])
    patch.setenv("ANTHROPIC_BASE_URL", public.url)
    patch.setenv("OPENAI_BASE_URL", f"{public.url}/v1")


def send(url: str, kind: str, path: str, names: set[str]) -> httpx.Response:
    """A call as a client of that kind makes it."""
    headers = {name: AGENTS[name] for name in names}
    if kind == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    marker = (CLAUDES if kind == "anthropic" else OPENAIS)[path]
    if not marker:
        return http_client.get(url + path, headers=headers)
    body = {"model": CLAUDE_MODEL, "max_tokens": 99, "messages": talk(marker), "input": marker}
    return http_client.post(url + path, json=body, headers=headers)


@pytest.mark.real
@settings(max_examples=30)
@given(
    calls=st.lists(CALLS, min_size=1, max_size=2),
    planner=st.sampled_from(("auto", "model", "rules")),
    model=st.sampled_from(("", "claude-haiku-5-5", "anthropic/claude-haiku-5-5")),
    has_openai=st.booleans(),
    redirects=st.booleans(),
    operator=st.sets(st.sampled_from(sorted(OPERATORS))),
    keys=st.sets(st.sampled_from(("x-api-key", "authorization"))),
)
def test_everything_stays_where_it_was_sent(
    calls, planner, model, has_openai, redirects, operator, keys, tmp_path_factory
):
    with hosts(3) as (claude, openai, public), pytest.MonkeyPatch.context() as patch:
        environment(patch, operator, public)
        claude.redirects_to = public.url if redirects else ""
        given = {
            "upstreams": Upstreams(claude.url, openai.url if has_openai else ""),
            "store": str(tmp_path_factory.mktemp("store") / "store.db"),
            "session": {"window_tokens": 8_000, "planner": planner, "planner_model": model},
        }
        with ProxyServer(ProxySettings(**given)) as proxy:
            for kind, path in calls:
                given_keys = keys if kind == "anthropic" else keys & {"authorization"}
                response = send(proxy.url, kind, path, given_keys)
                refused = kind == "openai" and not has_openai
                assert response.status_code == (404 if refused else 200), response.text
                assert not refused or "OpenAI" in response.json()["error"]["message"]
        read = {name: host.read for name, host in (("claude", claude), ("openai", openai), ("public", public))}
    named = planner != "rules" and model.startswith("anthropic/")
    assert named or not public.arrivals
    assert not any(AGENTS[name].split()[-1] in read["public"] for name in AGENTS)
    assert not any(secret.split()[-1] in read["claude"] + read["openai"] for secret in OPERATORS.values())
    assert OPENAI_TALK not in read["claude"]
    assert CLAUDE_TALK not in read["openai"]
    planned = any(call == ("anthropic", "/v1/messages") for call in calls)
    assert bool(claude.questions) == (planned and planner != "rules" and not named)
    assert all(AGENTS[name].split()[-1] in question.headers for question in claude.questions for name in keys), (
        "the planner asks as the agent does"
    )
    assert not openai.questions


def test_a_key_of_anthropic_s_goes_to_anthropic_s_chat_completions():
    with hosts(2) as (claude, openai), ProxyServer(ProxySettings(upstreams=Upstreams(claude.url, openai.url))) as proxy:
        for path in ("/v1/chat/completions", "/v1/models"):
            http_client.request(
                "POST", proxy.url + path, headers={"authorization": "Bearer sk-ant-9"}, json={"messages": []}
            )
    assert (len(claude.arrivals), len(openai.arrivals)) == (2, 0)


def test_a_login_is_sent_with_the_beta_that_lets_it_in_and_no_other(tmp_path):
    betas = "context-1m-2025-08-07, oauth-2025-04-20"
    headers = {"authorization": "Bearer x", "anthropic-beta": betas}
    with hosts(1) as (claude,):
        given = {"store": str(tmp_path / "s.db"), "session": {"window_tokens": 8_000}}
        with ProxyServer(ProxySettings(upstreams=Upstreams(claude.url, ""), **given)) as proxy:
            body = {"model": CLAUDE_MODEL, "max_tokens": 99, "messages": talk("x")}
            http_client.post(f"{proxy.url}/v1/messages", json=body, headers=headers)
    assert claude.questions
    assert all("anthropic-beta: oauth-2025-04-20\n" in question.headers for question in claude.questions)


def test_once_a_login_was_renewed_the_planner_shows_the_new_one(tmp_path):
    secret = {"x-compactor-session": "own-1"}
    with hosts(1) as (claude,):
        given = {
            "store": str(tmp_path / "s.db"),
            "session": {"window_tokens": 8_000},
            "own": OwnClient("own-1", "wrap-folder"),
        }
        with ProxyServer(ProxySettings(upstreams=Upstreams(claude.url, ""), **given)) as proxy:
            for login, rounds in (("old", 1), ("new", 40)):
                body = {"model": CLAUDE_MODEL, "max_tokens": 99, "messages": talk("x", rounds)}
                shown = {**secret, "authorization": f"Bearer sk-ant-{login}"}
                http_client.post(f"{proxy.url}/v1/messages", json=body, headers=shown)
            assert len(proxy.gateway.conversations) == 1
    assert claude.questions
    assert all("Bearer sk-ant-new\n" in question.headers for question in claude.questions)


NO_ADDRESSES = ["api.example.org", "ftp://example.org", "https://", "http://[", "localhost:8000", "http://h:port"]
NO_ADDRESSES += ["https://h?key=1", "https://h/#part", "https://example org", "http://h\n"]


@pytest.mark.parametrize("address", NO_ADDRESSES)
def test_an_upstream_that_is_no_address_is_refused_at_the_start(address):
    for upstreams in ({"anthropic": address}, {"openai": address}):
        with pytest.raises(SettingsError, match="expected an address such as https://"):
            ProxyServer(ProxySettings(upstreams=Upstreams(**upstreams)))


CLIENT = """
import json, os, sys, urllib.request
headers = {"content-type": "application/json"}
path, body, *said = sys.argv[1:]
for argument in said:
    name, value = argument.split("=", 1)
    headers[name] = value
base = os.environ["ANTHROPIC_BASE_URL"] + "/v1" if path == "/messages" else os.environ["OPENAI_BASE_URL"]
data = open(body, "rb").read()
try:
    urllib.request.urlopen(urllib.request.Request(base + path, data, headers)).read()
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


@pytest.fixture
def wrapped(wrap, folder):
    """`compactor wrap` around a client that sends one long list."""

    def call(options: list[str], path: str, headers: dict[str, str], more: dict[str, str]) -> Any:
        said = [f"{name}={value}" for name, value in headers.items()]
        marker = CLAUDE_TALK if path == "/messages" else OPENAI_TALK
        body = folder / "body.json"
        body.write_text(json.dumps({"model": CLAUDE_MODEL, "max_tokens": 9, "messages": talk(marker)}))
        return wrap("--window", "8000", *options, sys.executable, "-c", CLIENT, path, body, *said, **more)

    return call


def plans(body: dict[str, Any]) -> dict[str, Any]:
    """Answers agents and planners alike."""
    return message(answer("t2: drop .1 done", brief=("STATE", "The modules are checked. [t1]")), body)


OPERATOR_AT = {"ANTHROPIC_API_KEY": OPERATORS["ANTHROPIC_API_KEY"]}


@pytest.mark.real
def test_wrap_plans_where_it_was_told_with_what_the_agent_shows_and_says_so(wrapped):
    with Host(plans) as named, Host(plans) as public:
        more = {**OPERATOR_AT, "ANTHROPIC_BASE_URL": public.url}
        done = wrapped(["--upstream", named.url], "/messages", {"x-api-key": "agent-key"}, more)
    assert not public.arrivals
    assert named.questions
    assert OPERATORS["ANTHROPIC_API_KEY"] not in named.read
    assert all("x-api-key: agent-key\n" in question.headers.lower() for question in named.questions)
    assert "compactor: planned by claude-haiku-5-5 once: " in done.err
    assert "900 tokens in, 70 out ≈ $0.0001" in done.err
    assert "compactor: Still in sight: 41 of 41 demands" in done.err


@pytest.mark.real
def test_wrap_plans_where_the_environment_points(wrapped):
    with Host(plans) as public:
        more = {**OPERATOR_AT, "ANTHROPIC_BASE_URL": public.url}
        wrapped([], "/messages", {"x-api-key": "agent-key"}, more)
    assert public.questions
    assert "agent-key" in public.read
    assert OPERATORS["ANTHROPIC_API_KEY"] not in public.read


@pytest.mark.real
def test_wrap_asks_another_provider_where_one_is_named_with_its_own_key(wrapped):
    with Host(plans) as named, Host(plans) as public:
        more = {**OPERATOR_AT, "ANTHROPIC_BASE_URL": public.url}
        options = ["--upstream", named.url, "--planner-model", "anthropic/claude-haiku-5-5"]
        wrapped(options, "/messages", {"x-api-key": "agent-key"}, more)
    assert not named.questions
    assert public.questions
    assert "agent-key" not in public.read
    assert OPERATORS["ANTHROPIC_API_KEY"] not in named.read


@pytest.mark.real
def test_wrap_sends_chat_completions_where_the_environment_points_and_says_that_rules_plan_them(wrapped):
    with Host(plans) as openai, Host(plans) as claude:
        more = {**OPERATOR_AT, "OPENAI_BASE_URL": f"{openai.url}/v1/", "ANTHROPIC_BASE_URL": claude.url}
        done = wrapped([], "/chat/completions", {"authorization": "Bearer agent-token"}, more)
    assert not claude.arrivals
    assert [one.path for one in openai.arrivals] == ["/v1/chat/completions"]
    assert "planned by rules once" in done.err
    assert "Chat completions: rules planned; --planner-model PROVIDER/MODEL names a model that plans" in done.err


@pytest.mark.real
def test_wrap_refuses_what_it_cannot_send_where_the_environment_points(wrapped):
    with Host() as claude, Host() as openai:
        more = {"OPENAI_BASE_URL": f"{openai.url}/gateway", "ANTHROPIC_BASE_URL": claude.url}
        done = wrapped([], "/chat/completions", {"authorization": "Bearer agent-token"}, more)
    assert not claude.arrivals + openai.arrivals
    assert done.out.startswith("404 ")
    assert "--openai-upstream" in done.out


@pytest.mark.real
def test_wrap_says_how_often_a_planner_failed(wrapped):
    def fails(body: dict[str, Any]) -> dict[str, Any]:
        return message("I would rather not.", body)

    with Host(fails) as named:
        done = wrapped(["--upstream", named.url, "--json"], "/messages", {"x-api-key": "agent-key"}, {})
    told = json.loads(done.err)["planned"]
    assert [(one["planner"], one["plans"], one["failures"]) for one in told] == [
        ("claude-haiku-5-5", 0, 1),
        ("rules", 1, 0),
    ]
    assert told[0]["input_tokens"] == 900 * len(named.questions)
    assert "its answers could not be used" in told[0]["last_failure"]
