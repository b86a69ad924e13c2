"""A real client through the proxy: what it compacts, what it leaves alone, and how conversations are told apart."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic
import pytest

from applier.adapters.proxy import wires
from applier.adapters.proxy.configuration import OwnClient
from applier.adapters.visible import Visible
from applier.store import open_store
from applier.testing import Answer, MessagesServer, Request, say, use
from applier.testing.prompt_cache import request_tokens
from planner.reading.messages import plain_message
from tests import http_client
from tests.openai_server import OpenAIServer
from tests.patience import PATIENCE_SECONDS
from tests.server.agent import SYSTEM, TOOLS, Script, Tools, one_call, work
from tests.strategies import make_session

MODEL = "claude-opus-5-5"
ADAPTIVE = {"type": "adaptive"}
CHAT_FIELDS = ("role", "content", "tool_calls", "tool_call_id")
HELLO = [{"role": "user", "content": "Hello"}]
SECRET = "sk-ant-secret-4711"
KEY = {"x-api-key": SECRET}


def client_of(proxy, **more):
    return anthropic.Anthropic(base_url=proxy.url, api_key=SECRET, max_retries=0, **more)


def send_with(client, *, streamed=True):
    def send(**given):
        if not streamed:
            return client.messages.create(max_tokens=2048, **given)
        with client.messages.stream(max_tokens=2048, **given) as stream:
            return stream.get_final_message()

    return send


@pytest.mark.real
@pytest.mark.parametrize("streamed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_long_conversation_stays_in_the_window(streamed, proxied, tmp_path):
    tools = Tools(tmp_path)
    with MessagesServer(Script(one_call, rounds=50), window_tokens=24_000) as server:
        proxy = proxied(server, session={"window_tokens": 24_000, "planner": "rules"})
        with client_of(proxy) as client:
            messages = work(send_with(client, streamed=streamed), tools, turns=1, model=MODEL, thinking=ADAPTIVE)
        assert server.violations == []
        assert len(messages) == 100
        assert proxy.metrics.value("compactions") >= 2
        assert proxy.metrics.value("requests", kind="failed") == 0
        body = server.exchanges[-1].request.body
        plain = [plain_message(message) for message in messages]
        lists = ({**body, "messages": plain[:at]} for at in range(1, 100, 2))
        without = sum(request_tokens(Request(whole, {})) for whole in lists)
        sent = sum(exchange.usage.prompt_tokens for exchange in server.exchanges)
        assert sent + proxy.metrics.value("saved_tokens") == pytest.approx(without, rel=0.05)
        assert {exchange.request.headers["authorization"] for exchange in server.exchanges} == {f"Bearer {SECRET}"}


@pytest.mark.real
@pytest.mark.parametrize("background", [None, False])
def test_plans_are_made_beside_the_answers_unless_it_is_switched_off(background, proxied, tmp_path):
    tools = Tools(tmp_path)
    session = {"window_tokens": 12_000, "planner": "rules", "background": background, "background_debounce_seconds": 0}
    with MessagesServer(Script(one_call, rounds=26), window_tokens=12_000) as server:
        proxy = proxied(server, session=session)
        with client_of(proxy) as client:
            work(send_with(client), tools, turns=1, model=MODEL, thinking=ADAPTIVE)
        (opened,) = proxy.gateway.conversations.sessions()
        assert (opened._state.planning.worker.started_at is not None) == (background is None)
        assert proxy.metrics.value("compactions") == len(proxy.gateway.waits) >= 2
        assert proxy.metrics.value("compaction_seconds") == pytest.approx(sum(proxy.gateway.waits))


def test_what_is_not_compacted_passes_byte_for_byte(proxied):
    body = b'{ "model":"claude-opus-5-5","max_tokens":9, "messages":[{"role":"user","content":"Hi \\u00e9"}] ,"x":1.0}'
    with MessagesServer("ok") as server:
        proxy = proxied(server)
        for path in ("/v1/messages", "/v1/messages?beta=true", "/v1/messages/count_tokens"):
            assert http_client.post(proxy.url + path, content=body, headers=KEY).status_code == 200
        assert [exchange.request.raw for exchange in server.exchanges] == [body, body]
        assert http_client.get(proxy.url + "/v1/models?limit=3", headers=KEY).json() == {"type": "list", "data": []}
        assert [path for _, path in server.paths] == [
            "/v1/messages", "/v1/messages?beta=true", "/v1/messages/count_tokens", "/v1/models?limit=3",
        ]  # fmt: skip


@pytest.mark.parametrize("name", ["messages", "chat/completions", "responses", "messages/count_tokens"])
def test_every_route_is_there_without_its_version_too(name, proxied, tmp_path):
    """OpenCode posts to ``/messages``."""
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    body = {"model": MODEL, "max_tokens": 9, "messages": talk, "input": talk}
    with OpenAIServer("ok") as server:
        proxy = proxied(server)
        for path in (f"/{name}", f"/v1/{name}"):
            assert http_client.post(proxy.url + path, json=body, headers={**KEY, "user-agent": "x"}).status_code == 200
        assert [path for _, path in server.paths] == [f"/v1/{name}"] * 2
        assert len(proxy.gateway.conversations) == (name != "messages/count_tokens")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 4}', b'{"messages": [3]}', b"\xff\x00", b"[" * 9999])
def test_what_is_no_request_passes_as_it_came(body, proxied):
    with MessagesServer("ok") as server:
        direct = http_client.post(f"{server.url}/v1/messages", content=body, headers=KEY)
        through = http_client.post(f"{proxied(server).url}/v1/messages", content=body, headers=KEY)
        assert (through.status_code, through.content) == (direct.status_code, direct.content)


def test_a_stream_passes_as_it_arrives(proxied):
    gate = threading.Event()
    with (
        MessagesServer([Answer([say("word " * 40)], hold=gate.wait)]) as server,
        client_of(proxied(server)) as client,
        client.messages.stream(model=MODEL, max_tokens=100, messages=HELLO) as stream,
    ):
        first = next(event for event in stream if event.type == "text")
        gate.set()
        assert (first.text, stream.get_final_text()) == ("word " * 8, "word " * 40)


def test_a_stream_is_counted_before_its_end_so_that_the_next_request_finds_it(proxied):
    body = {"model": MODEL, "max_tokens": 9_000, "messages": HELLO, "stream": True}
    with MessagesServer([Answer([say("word " * 4_000)])]) as server:
        proxy = proxied(server)
        http_client.post(f"{proxy.url}/v1/messages", json=body, headers=KEY)
        assert proxy.metrics.value("output_tokens") == server.exchanges[0].usage.output_tokens


def conversation(client, first, rounds, *, system="Be brief.", **more):
    messages = [{"role": "user", "content": first}]
    for number in range(rounds):
        answer = client.messages.create(model=MODEL, max_tokens=99, messages=messages, system=system, **more)
        messages += [
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": f"{first}: more of {number}"},
        ]
    return messages


def test_conversations_are_told_apart(proxied):
    numbers = iter(range(10_000))
    with MessagesServer(lambda request: f"answer {next(numbers)}") as server:
        proxy = proxied(server)
        with client_of(proxy) as client:
            conversation(client, "Fix the race", 3)
            conversation(client, "Fix the race", 3)  # another client's, with the same first words
            conversation(client, "Sub-agent: search", 3, system="You search.")
            conversation(client, "A title, please", 1, system="You write titles.")
        assert len(proxy.gateway.conversations) == 3


def test_clients_that_say_who_they_are_are_told_apart_by_that(proxied):
    with MessagesServer("ok") as server:
        proxy = proxied(server)
        with client_of(proxy) as client:
            for user in ("session-1", "session-2"):
                conversation(client, "Hello", 3, metadata={"user_id": user})
            conversation(client, "Hello", 3, extra_headers={"x-compactor-session": "mine"})
        ids = [session.session_id for session in proxy.gateway.conversations.sessions()]
        assert sorted(re.sub(r"[0-9a-f]{32}", "", name) for name in ids) == ["mine..", "proxy-", "proxy-"]
        assert all("x-compactor-session" not in exchange.request.headers for exchange in server.exchanges)


def test_a_client_that_changes_old_results_keeps_its_session(proxied, tmp_path):
    tools = Tools(tmp_path)
    with MessagesServer(Script(one_call, rounds=6)) as server:
        proxy = proxied(server)
        with client_of(proxy) as client:
            messages = work(send_with(client), tools, turns=1, model="claude-opus-4-8")
            cleared = {**messages[2], "content": [{**messages[2]["content"][0], "content": "[cleared]"}]}
            again = [*messages[:2], cleared, *messages[3:], {"role": "user", "content": "Go on."}]
            client.messages.create(model="claude-opus-4-8", max_tokens=99, messages=again)
        assert len(proxy.gateway.conversations) == 1


@pytest.mark.real
@pytest.mark.parametrize("anew", [False, True])
def test_who_shows_another_key_gets_nothing_of_a_conversation_whose_name_and_answers_he_knows(anew, proxied, tmp_path):
    tools = Tools(tmp_path)
    named = {"model": MODEL, "metadata": {"user_id": "ann"}, "extra_headers": {"x-compactor-session": "run-7"}}
    with MessagesServer(Script(one_call, rounds=16), window_tokens=12_000) as server:
        proxy = proxied(server)
        with client_of(proxy) as client:
            messages = work(send_with(client), tools, turns=1, **named)
        assert proxy.metrics.value("compactions") >= 1
        own = [plain_message(message) for message in messages]
        for message in (message for message in own if message["role"] == "user"):
            blocks = message["content"] if isinstance(message["content"], list) else []
            message["content"] = [{**block, "content": "bob's"} for block in blocks] or "bob's"
        if anew:
            proxy.__exit__(None, None, None)
            proxy = proxied(server)
        with anthropic.Anthropic(base_url=proxy.url, api_key="sk-ant-bob", max_retries=0) as client:
            send_with(client)(messages=[*own, {"role": "user", "content": "What was said before?"}], **named)
        ids = [session.session_id for session in proxy.gateway.conversations.sessions()]
        assert [session_id.startswith("run-7.") for session_id in ids] == [True] * (1 if anew else 2)
        sent = server.exchanges[-1].request.messages
        said = {text for message in sent if message["role"] == "user" for text in texts_of(message)}
        assert said == {"bob's", "What was said before?"}


def texts_of(message):
    blocks = message["content"] if isinstance(message["content"], list) else [{"text": message["content"]}]
    return [block.get("content") or block["text"] for block in blocks]


def test_a_proxy_that_starts_anew_goes_on_where_it_was(proxied, tmp_path):
    tools = Tools(tmp_path)
    with MessagesServer(Script(one_call, rounds=16), window_tokens=12_000) as server:
        proxy = proxied(server)
        with client_of(proxy) as client:
            messages = work(send_with(client), tools, turns=1, model=MODEL, thinking=ADAPTIVE)
        (before,) = proxy.gateway.conversations.sessions()
        compactions = before.state.compactions
        proxy.__exit__(None, None, None)
        proxy = proxied(server)
        with client_of(proxy) as client:
            asked = [*messages, {"role": "user", "content": "And?"}]
            send_with(client)(messages=asked, system=SYSTEM, tools=TOOLS, model=MODEL, thinking=ADAPTIVE)
        (after,) = proxy.gateway.conversations.sessions()
        assert (after.session_id, after.state.compactions) == (before.session_id, compactions)
        assert compactions >= 1
        *_, last, resumed = [exchange.request.messages for exchange in server.exchanges]
        assert resumed[: len(last)] == last
        assert server.violations == []


@pytest.mark.real
def test_a_prompt_that_is_too_long_is_sent_again_shorter(proxied, tmp_path):
    """The window is smaller than the session was told."""
    tools = Tools(tmp_path)
    with MessagesServer(Script(one_call, rounds=26), window_tokens=6_000) as server:
        proxy = proxied(server)
        with client_of(proxy) as client:
            messages = work(send_with(client), tools, turns=1, model="claude-opus-4-8")
        assert len(messages) == 52
        assert {violation.rule for violation in server.violations} == {22}


def next_command(request):
    """The next call of a long talk of calls, by how many there were."""
    number = sum(message["role"] == "tool" for message in request.messages)
    return [
        say(f"Step {number}"),
        use("bash", f"call_{number}_{len(request.raw)}", command=f"seq {number} {number + 300}"),
    ]


@pytest.mark.real
def test_streamed_chat_completions(proxied, tmp_path):
    """The real client streams: it reads what the provider sent, and the usage behind it reaches the session."""
    import openai  # takes a second, also where this test is skipped

    tools = Tools(tmp_path)
    messages = [{"role": "user", "content": "Check the modules."}]
    with OpenAIServer(next_command) as server:
        proxy = proxied(server, session={"window_tokens": 5_000, "max_output_tokens": 500, "planner": "rules"})
        with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="any", max_retries=0) as client:
            for _ in range(16):
                given = {"model": "gpt-5.5", "messages": messages, "stream_options": {"include_usage": True}}
                with client.chat.completions.stream(**given) as stream:
                    message = stream.get_final_completion().choices[0].message
                (call,) = message.tool_calls
                function = {"name": call.function.name, "arguments": call.function.arguments}
                calls = [{"id": call.id, "type": "function", "function": function}]
                output = tools.run("bash", json.loads(call.function.arguments))
                messages += [
                    {"role": "assistant", "content": message.content, "tool_calls": calls},
                    {"role": "tool", "tool_call_id": call.id, "content": output},
                ]
        proxy.__exit__(None, None, None)  # the client reads no further than [DONE]
        counted = proxy.metrics.value("prompt_tokens", kind="uncached")
        assert proxy.metrics.value("compactions") >= 2
        assert proxy.metrics.value("requests", kind="failed") == 0
        assert proxy.metrics.value("saved_tokens") > 0
    assert counted == sum(exchange.usage.prompt_tokens for exchange in server.exchanges)
    assert max(len(request.raw) for request in server.requests) < 5_000 * 3


@pytest.mark.real
def test_chat_completions(proxied, tmp_path):
    """OpenAI's clients: compacted alike; instructions, tools and other fields are untouched."""
    tools = Tools(tmp_path)
    instructions = {"role": "developer", "content": "Be brief."}
    messages = [instructions, {"role": "user", "content": "Check the modules."}]
    fields = {"model": "gpt-5.5", "tools": [{"type": "function", "function": {"name": "bash"}}], "seed": 7}
    with OpenAIServer(next_command) as server, http_client.Client() as client:
        proxy = proxied(server, session={"window_tokens": 5_000, "max_output_tokens": 500, "planner": "rules"})
        for _ in range(16):
            answer = client.post(
                f"{proxy.url}/v1/chat/completions", json={**fields, "messages": messages}, headers=KEY
            ).json()
            message = answer["choices"][0]["message"]
            messages.append(message)
            for call in message["tool_calls"]:
                output = tools.run("bash", json.loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
        assert proxy.metrics.value("compactions") >= 2
    assert len(messages) == 34
    assert max(len(request.raw) for request in server.requests) < 5_000 * 3
    assert all(request.messages[0] == instructions for request in server.requests)
    assert all({key: request.body[key] for key in fields} == fields for request in server.requests)
    assert all(set(message) <= set(CHAT_FIELDS) for request in server.requests for message in request.messages)


def test_tokens_are_counted_of_the_list_that_would_be_sent(proxied, tmp_path):
    tools = Tools(tmp_path)
    with MessagesServer(Script(one_call, rounds=16), window_tokens=12_000) as server:
        proxy = proxied(server)
        with client_of(proxy) as client:
            messages = work(send_with(client), tools, turns=1, model=MODEL)
            assert proxy.metrics.value("compactions") >= 1
            asked = [*messages, {"role": "user", "content": "And?"}]
            counted = client.messages.count_tokens(model=MODEL, messages=asked, system=SYSTEM, tools=TOOLS)
            state = proxy.gateway.conversations.sessions()[0].state
            alone = client.messages.count_tokens(model=MODEL, messages=asked[-1:])
            send_with(client)(model=MODEL, messages=asked, system=SYSTEM, tools=TOOLS)
        assert counted.input_tokens == server.exchanges[-1].usage.prompt_tokens
        assert alone.input_tokens < 100
        assert len(proxy.gateway.conversations) == 1
        assert state.history_messages == len(messages) - 1, "counting tells the session nothing"
        assert proxy.metrics.value("requests", kind="failed") == 0


@pytest.mark.parametrize("path", ["/v1/files", "/v1/messages/batches", "/v1/messages"])
def test_what_the_proxy_does_not_read_is_never_held_and_never_too_large(path, proxied, monkeypatch):
    """A provider answers as soon as the first piece is there; the second is sent only then."""
    monkeypatch.setattr(wires, "MAX_BODY_BYTES", 1_000)
    arrived, pieces = threading.Event(), []

    class Upstream(BaseHTTPRequestHandler):
        def do_POST(self):
            pieces.append(self.rfile.read(5_000))
            arrived.set()
            pieces.append(self.rfile.read(int(self.headers["content-length"]) - 5_000))
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_):
            pass

    def body():
        yield b"a" * 5_000
        assert arrived.wait(PATIENCE_SECONDS), "the proxy holds what it should pass on"
        yield b"b" * 5_000

    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        proxy = proxied(f"http://127.0.0.1:{server.server_port}")
        headers = {**KEY, "content-length": "10000"}
        answer = http_client.post(proxy.url + path, content=body(), headers=headers)
        server.shutdown()
    assert (answer.status_code, answer.text) == (200, "ok")
    assert b"".join(pieces) == b"a" * 5_000 + b"b" * 5_000


@pytest.mark.real
@pytest.mark.parametrize("shows", ["secret", "name"])
def test_a_login_that_is_renewed_goes_on_where_it_was_in_the_next_run_too(shows, proxied, tmp_path):
    """Of who shows the run's secret; who knows only the name that its conversations have is somebody else."""
    own, tools = [OwnClient("own-run-1", "wrap-folder"), OwnClient("own-run-2", "wrap-folder")], Tools(tmp_path)
    with MessagesServer(Script(one_call, rounds=16), window_tokens=12_000) as server:
        proxy = proxied(server, own=own[0])
        with client_of(proxy, default_headers={"x-compactor-session": "own-run-1"}) as client:
            messages = work(send_with(client), tools, turns=1, model=MODEL, metadata={"user_id": "session-1"})
        (before,) = proxy.gateway.conversations.sessions()
        proxy.__exit__(None, None, None)
        proxy = proxied(server, own=own[1])
        shown = {"x-compactor-session": "own-run-2" if shows == "secret" else "wrap-folder"}
        with anthropic.Anthropic(base_url=proxy.url, api_key="renewed", max_retries=0, default_headers=shown) as client:
            asked = [*messages, {"role": "user", "content": "And?"}]
            send_with(client)(
                messages=asked, system=SYSTEM, tools=TOOLS, model=MODEL, metadata={"user_id": "session-2"}
            )
        (after,) = proxy.gateway.conversations.sessions()
        *_, last, resumed = [exchange.request.messages for exchange in server.exchanges]
    assert before.session_id.startswith("wrap-folder.")
    assert (after.session_id == before.session_id) == (shows == "secret")
    assert (resumed[: len(last)] == last) == (shows == "secret")


@pytest.mark.real
def test_a_request_that_compacts_takes_the_clients_own_history_and_its_block_comes_back_first(proxied):
    """On demand: the answer is the block alone, its cost stands in ``iterations``; a later list begins with it."""
    block = {"type": "compaction", "content": "What was done.", "signature": "c2ln"}
    cost = {"type": "compaction", "input_tokens": 20_000, "cache_read_input_tokens": 7, "output_tokens": 90}
    usage = {"input_tokens": 0, "output_tokens": 0, "iterations": [{**cost, "cache_creation_input_tokens": 0}]}
    history = [*make_session(40), {"role": "assistant", "content": "Done."}, {"role": "user", "content": "And now?"}]
    answers = ["Done.", Answer([block], "compaction", usage=usage), "Going on."]
    with MessagesServer(answers, window_tokens=200_000) as server:
        proxy = proxied(server, session={"window_tokens": 4_000, "planner": "rules"})
        with client_of(proxy) as client:

            def ask(messages, **more):
                given = {"model": MODEL, "max_tokens": 64, "betas": ["compact-2026-09-04"], **more}
                return client.beta.messages.create(messages=messages, **given)

            ask(history)
            answer = ask(history, compaction={"type": "summarize"})
            behind = [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "Go on."}]
            ask(behind)
        proxy.__exit__(None, None, None)
        ours, whole, later = (exchange.request.body["messages"] for exchange in server.exchanges)
        assert server.violations == []
        assert (len(ours) < len(history), whole) == (True, history)
        assert later == [{"role": "assistant", "content": [block]}, {"role": "user", "content": "Go on."}]
        assert proxy.metrics.value("requests", kind="failed") == 0
        spent = sum(exchange.usage.prompt_tokens for exchange in (server.exchanges[0], server.exchanges[2]))
        counted = sum(proxy.metrics.value("prompt_tokens", kind=kind) for kind in ("uncached", "read", "written"))
        assert counted == spent + 20_007


def test_a_name_that_two_keys_use_shows_a_look_up_the_conversation_of_one_owner(proxied, tmp_path):
    """Without the owner it shows neither, whoever came first."""
    tools = Tools(tmp_path)
    with MessagesServer(Script(one_call, rounds=16), window_tokens=12_000) as server:
        proxy = proxied(server)
        for key in ("key-of-ann", "key-of-bob"):
            with client_of(proxy, default_headers={"x-api-key": key, "x-compactor-session": "run-7"}) as client:
                work(send_with(client), tools, turns=1, model=MODEL)
        names = [session.session_id for session in proxy.gateway.conversations.sessions()]
    owners = {name.rpartition(".")[0] for name in names}
    with open_store(tmp_path / "store.db") as store:
        assert len(owners) == len(names) == 2
        assert Visible(lambda: store, session="run-7").conversations() == []
        for owner in owners:
            (one,) = Visible(lambda store=store: store, session=owner).conversations()
            assert one.session.rpartition(".")[0] == owner
