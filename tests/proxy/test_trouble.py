"""Whatever goes wrong before, behind or inside the proxy: a clear answer, nothing lost, nothing let in."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from applier.adapters.proxy import ProxyServer, ProxySettings, Upstreams
from applier.adapters.proxy.metrics import Metrics
from applier.testing import Answer, MessagesServer, overloaded, rate_limited, say
from planner.errors import SettingsError
from tests import http_client
from tests.patience import PATIENCE_SECONDS
from tests.server.agent import Script, Tools, one_call, work

MODEL = "claude-opus-5-5"
KEY = {"x-api-key": "sk-ant-secret-4711"}
HELLO = {"model": MODEL, "max_tokens": 99, "messages": [{"role": "user", "content": "Hello"}]}
TALK = {**HELLO, "messages": [*HELLO["messages"], {"role": "assistant", "content": "Hi"}, *HELLO["messages"]]}


def post(proxy, body=TALK, path="/v1/messages", **headers):
    return http_client.post(proxy.url + path, json=body, headers={**KEY, **headers})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example:80"}, 403),
        ({"host": "localhost"}, 200),
    ],
)
def test_strangers_are_refused(headers, status, proxied):
    with MessagesServer("ok") as server:
        assert post(proxied(server), **headers).status_code == status
        assert len(server.exchanges) == (status == 200)


def test_a_page_of_its_own_origin_is_let_in(proxied):
    with MessagesServer("ok") as server:
        proxy = proxied(server)
        assert post(proxy, origin=proxy.url).status_code == 200


@pytest.mark.parametrize(("token", "status"), [("right", 200), ("wrong", 401), ("", 401), ("rightt", 401)])
def test_a_token_is_asked_for(token, status, proxied):
    with MessagesServer("ok") as server:
        proxy = proxied(server, token="right")
        assert post(proxy, **{"x-compactor-token": token}).status_code == status
        assert http_client.get(proxy.url + "/metrics").status_code == 401
        assert all("x-compactor-token" not in exchange.request.headers for exchange in server.exchanges)


def test_beyond_loopback_a_token_is_needed():
    with pytest.raises(SettingsError, match="set a token"):
        ProxyServer(ProxySettings(host="0.0.0.0"))


@pytest.mark.real
def test_a_large_request_passes_and_what_is_too_large_is_the_provider_s_to_say(proxied):
    large = {**HELLO, "messages": [{"role": "user", "content": "x" * 30_000_000}]}
    with MessagesServer("ok", window_tokens=20_000_000) as server:
        proxy = proxied(server)
        assert post(proxy, large).status_code == 200
        body = b"x" * (65 * 2**20)
        answer = http_client.post(proxy.url + "/v1/messages", content=body, headers=KEY)
        assert "not valid JSON" in answer.text


def test_errors_of_the_provider_pass_as_they_came(proxied):
    with MessagesServer([overloaded(), rate_limited(), "ok"]) as server:
        proxy = proxied(server)
        busy, limited, fine = (post(proxy) for _ in range(3))
    assert (busy.status_code, busy.json()["error"]["type"], busy.headers["retry-after-ms"]) == (
        529,
        "overloaded_error",
        "1",
    )
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "0")
    assert fine.json()["content"][0]["text"] == "ok"
    assert fine.headers["request-id"]


def test_a_provider_that_is_not_there(proxied):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    answer = post(proxied(f"http://127.0.0.1:{port}"))
    assert (answer.status_code, answer.json()["type"]) == (502, "error")
    assert f"http://127.0.0.1:{port} cannot be reached (ConnectError)" in answer.json()["error"]["message"]
    assert KEY["x-api-key"] not in answer.text


def test_an_error_about_an_upstream_shows_no_password(proxied):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    answer = post(proxied(f"http://ann:secret-word@127.0.0.1:{port}/base"))
    assert f"http://127.0.0.1:{port} cannot" in answer.text
    assert "secret-word" not in answer.text


def raw_answer(proxy, request):
    """Return all that the proxy answers to the bytes of a `request`, up to the end of the connection."""
    with socket.create_connection(proxy.address) as client:
        client.sendall(request.encode())
        return client.makefile("rb").read().decode()


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/files", "/messages", "/metrics"])
def test_a_body_of_two_lengths_is_refused_with_whatever_is_behind_it(path, proxied):
    behind = "POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n"
    with MessagesServer("ok") as server:
        lengths = "content-length: 5\r\ntransfer-encoding: chunked\r\n"
        request = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{lengths}\r\n0\r\n\r\n{behind}"
        answer = raw_answer(proxied(server), request)
        assert answer.startswith("HTTP/1.1 400 ")
        assert "send one of them" in answer
        assert answer.count("HTTP/1.1 ") == 1
        assert server.exchanges == []


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("http://127.0.0.1/v1/messages", "ask for a path"),
        ("http://evil.example/v1/messages", "ask for a path"),
        ("@evil.example/v1/messages", "ask for a path"),
        ("*", "ask for a path"),
        ("?limit=3", "ask for a path"),
        ("/v1/messages#part", "this path cannot be asked for"),
        ("/v1/models?" + "a" * 70_000, "this path cannot be asked for"),
    ],
)
def test_a_target_that_no_upstream_can_be_asked_for_is_refused(target, problem, proxied):
    with MessagesServer("ok") as server:
        headers = "host: 127.0.0.1\r\nx-api-key: sk-ant-x\r\nconnection: close\r\ncontent-length: 0\r\n"
        answer = raw_answer(proxied(server), f"POST {target} HTTP/1.1\r\n{headers}\r\n")
        assert answer.startswith("HTTP/1.1 400 ")
        assert problem in answer
        assert server.paths == []


def test_headers_of_a_connection_end_at_the_proxy(proxied):
    named = {"connection": "X-Hop, content-length", "x-hop": "1", "te": "trailers", "x-kept": "2"}
    with MessagesServer("ok") as server:
        assert post(proxied(server), **named).status_code == 200
        (exchange,) = server.exchanges
        received = {name.lower() for name in exchange.request.headers}
        assert "x-kept" in received
        assert not {"x-hop", "te"} & received


def test_a_provider_that_does_not_answer(proxied):
    gate = threading.Event()
    with MessagesServer(lambda request: str(gate.wait())) as server:
        answer = post(proxied(server, upstreams=Upstreams(server.url, server.url, read_seconds=0.2)))
        gate.set()
    assert (answer.status_code, answer.json()["error"]["type"]) == (504, "timeout_error")


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SettingsError, match="choose another"):
        ProxyServer(ProxySettings(port=taken.getsockname()[1]))


def ending(ask):
    """How what is asked for ends: its last bytes, or the error of one that breaks off."""
    try:
        return ask().content[-60:]
    except httpx.RemoteProtocolError as error:
        return str(error)


@pytest.mark.parametrize("fault", ["hangs_up", "half_an_event", "garbage"])
@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_ends_badly_ends_the_same_way(fault, stream, proxied):
    answer = Answer([say("word " * 40)], fault=fault)
    with MessagesServer([answer]) as server:
        proxy = proxied(server)
        body = {**TALK, "stream": stream}
        direct = ending(lambda: http_client.post(f"{server.url}/v1/messages", json=body, headers=KEY))
        assert ending(lambda: post(proxy, body)) == direct
        assert proxy.metrics.value("requests", kind="failed") == 0


def test_an_answer_that_cannot_be_counted_is_no_failed_request(proxied, caplog):
    with MessagesServer([Answer([say("ok")], usage={"input_tokens": 10**400})]) as server:
        proxy = proxied(server)
        assert post(proxy).json()["content"][0]["text"] == "ok"
        assert proxy.metrics.value("requests", kind="failed") == 0
    assert "the answer was not counted" in caplog.text
    assert "as it came" not in caplog.text


def test_a_client_that_hangs_up_frees_the_stream_and_the_next_is_served(proxied):
    gate = threading.Event()
    answers = [Answer([say("word " * 400)], hold=gate.wait), "ok"]
    with MessagesServer(answers) as server:
        proxy = proxied(server)
        with http_client.stream(
            "POST", proxy.url + "/v1/messages", json={**TALK, "stream": True}, headers=KEY
        ) as answer:
            next(answer.iter_raw())
        gate.set()
        assert post(proxy).json()["content"][0]["text"] == "ok"


def test_a_client_that_hangs_up_before_the_answer_begins_frees_the_stream(proxied):
    """The provider would go on to the end of an answer that nobody reads, and bill it."""
    asked, gone, freed = threading.Event(), threading.Event(), threading.Event()

    class Upstream(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.set()
            gone.wait(PATIENCE_SECONDS)
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x" * 65_536)
            except OSError:
                freed.set()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        proxy = proxied(f"http://127.0.0.1:{server.server_port}")
        content = json.dumps(TALK).encode()
        headers = f"host: 127.0.0.1\r\nx-api-key: a\r\ncontent-length: {len(content)}\r\n"
        with socket.create_connection(proxy.address) as client:
            client.sendall(f"POST /v1/messages HTTP/1.1\r\n{headers}\r\n".encode() + content)
            assert asked.wait(PATIENCE_SECONDS)
        assert http_client.get(proxy.url + "/health").text == "ok\n"
        gone.set()
        assert freed.wait(PATIENCE_SECONDS)
        server.shutdown()


def test_a_store_that_cannot_be_opened_costs_no_request(proxied, tmp_path):
    (tmp_path / "file").write_text("x")
    with MessagesServer(Script(one_call, rounds=10)) as server:
        proxy = proxied(server, store=str(tmp_path / "file" / "store.db"))
        with anthropic.Anthropic(base_url=proxy.url, api_key="any", max_retries=0) as client:
            messages = work(lambda **given: client.messages.create(max_tokens=2048, **given), Tools(tmp_path), turns=1,
                            model=MODEL)  # fmt: skip
        assert len(messages) == 20
        last = server.exchanges[-1].request
        assert [message["role"] for message in last.messages] == ["user", "assistant"] * 9 + ["user"]


def test_no_key_is_stored_or_shown(proxied, tmp_path, capfd):
    with MessagesServer(Script(one_call, rounds=20), window_tokens=12_000) as server:
        proxy = proxied(server)
        secret = "sk-ant-secret-4711"
        with anthropic.Anthropic(base_url=proxy.url, api_key=secret, max_retries=0) as client:
            work(lambda **given: client.messages.create(max_tokens=2048, **given), Tools(tmp_path), turns=1,
                 model=MODEL)  # fmt: skip
        metrics = http_client.get(proxy.url + "/metrics").text
        proxy.__exit__(None, None, None)
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    assert stored
    assert secret.encode() not in stored
    assert secret not in metrics + "".join(capfd.readouterr())


REQUESTS = "compactor_requests_total{"


def test_a_list_that_grows_uncompacted_is_left_alone_at_every_call(proxied):
    """It is parsed anew for each request; what is counted and sent goes by what it says."""
    messages, raws = [], []
    with MessagesServer("ok") as server:
        proxy = proxied(server)
        for number in range(3):
            messages += [{"role": "user", "content": f"Step {number}: é"}]
            raws.append(json.dumps({"model": MODEL, "max_tokens": 9, "messages": messages}, indent=1))
            assert http_client.post(proxy.url + "/v1/messages", content=raws[-1], headers=KEY).status_code == 200
            messages += [{"role": "assistant", "content": [{"type": "text", "text": "ok"}]}]
        assert proxy.metrics.value("requests", kind="unchanged") == 2, "the first is no conversation yet"
        assert proxy.metrics.value("requests", kind="prepared") == 0
        assert [exchange.request.raw.decode() for exchange in server.exchanges] == raws


def test_metrics_say_every_digit():
    metrics = Metrics()
    for amount in (1_234_567, 98_765_432_101):
        metrics.add("prompt_tokens", amount, kind="input")
    metrics.add("added_seconds", 0.25)
    samples = [one for family in text_string_to_metric_families(metrics.text(0)) for one in family.samples]
    values = {one.name: one.value for one in samples}
    assert values["compactor_prompt_tokens_total"] == metrics.value("prompt_tokens") == 98_766_666_668
    assert values["compactor_added_seconds_total"] == 0.25


def test_metrics_and_health(proxied):
    with MessagesServer("ok") as server:
        proxy = proxied(server)
        post(proxy)
        post(proxy, HELLO)
        text = http_client.get(proxy.url + "/metrics").text
        assert http_client.get(proxy.url + "/health").text == "ok\n"
    assert 'compactor_requests_total{kind="unchanged"} 1' in text
    assert 'compactor_requests_total{kind="passed"} 1' in text
    assert 'compactor_upstream_responses_total{status="2xx"} 2' in text
    assert "compactor_open_conversations 1" in text
    counted = {line.split('kind="')[1].split('"')[0] for line in text.splitlines() if line.startswith(REQUESTS)}
    (help_text,) = (line for line in text.splitlines() if line.startswith("# HELP compactor_requests_total"))
    assert all(kind in help_text for kind in counted)
    assert "refused" not in help_text, "what the guard refuses is not counted"


@pytest.mark.slow
def test_fifty_conversations_at_once(proxied):
    with MessagesServer(lambda request: json.dumps(request.messages[0]["content"])) as server:
        proxy = proxied(server)
        failures = []

        def talk(number: int) -> None:
            messages = [{"role": "user", "content": f"I am {number}"}]
            for _ in range(3):
                answer = post(proxy, {**HELLO, "messages": messages})
                if answer.status_code != 200 or str(number) not in answer.text:
                    failures.append(answer.text)
                messages += [
                    {"role": "assistant", "content": answer.json()["content"]},
                    {"role": "user", "content": f"{number} goes on"},
                ]

        threads = [threading.Thread(target=talk, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(proxy.gateway.conversations) == 50
        assert server.violations == []


def test_an_unknown_preset_is_said_at_the_start():
    with pytest.raises(SettingsError, match=r"preset 'nosuch' is unknown .*COMPACTOR_PRESET.*: use one of "):
        ProxyServer(ProxySettings(session={"preset": "nosuch"}))
