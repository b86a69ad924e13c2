"""The Responses API through the proxy: items become messages and come back, compactions are asked for and answered."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from applier import apply, open_store
from applier.adapters.proxy import ProxyServer, ProxySettings, Upstreams
from applier.adapters.proxy.responses_api import reply, view_record, with_view
from applier.adapters.proxy.wires import MESSAGES, RESPONSES, read_answer
from applier.adapters.transcripts.responses import read_items, to_items
from applier.testing import Answer, Failure, Request, say, use
from planner.reading.messages import message_digest, result_ids
from tests import http_client
from tests.bench.client_run import run_client
from tests.hosts import hosts
from tests.mod.client import ANSWER, BRIEF, BY_CARDS, FORKED
from tests.openai_server import OpenAIServer, judge_items
from tests.strategies import plans, texts

KEY = {"authorization": "Bearer sk-1"}
LOGIN = {"authorization": "Bearer eyJ9", "chatgpt-account-id": "account-4711"}
FOREIGN = {"type": "compaction", "id": "cmp_theirs", "encrypted_content": "gAAAAsealed"}
TRIGGER = {"type": "compaction_trigger"}
ASKS_IN_WORDS = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary."
TOLD = "Another language model started to solve this problem and produced a summary of its thinking process:\n"
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
CONTEXT = "<environment_context>\n  <cwd>/app</cwd>\n</environment_context>"


def words(role: str, text: str, **more: Any) -> dict[str, Any]:
    kind = {"type": "output_text", "annotations": []} if role == "assistant" else {"type": "input_text"}
    return {"type": "message", "role": role, "content": [{**kind, "text": text}], **more}


def host_items():
    return st.sampled_from(
        [
            words("developer", "Be brief.", id="msg_host"),
            words("user", CONTEXT),
            {"type": "configuration_update", "reasoning": {"effort": "low"}},
            {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]},
            {"type": "tool_search_call", "call_id": "search", "arguments": {}},
        ]
    )


@st.composite
def user_items(draw):
    text, form = draw(texts()) or "go on", draw(st.integers(0, 3))
    if form == 0:
        return {"role": "user", "content": text}
    parts = [{"type": "input_text", "text": text}, IMAGE, {"type": "input_file", "file_id": "f1"}][: max(form, 1)]
    return {"type": "message", "role": "user", "content": parts, "metadata": {"turn": 1}}


@st.composite
def answers(draw, name: str):
    """What one answer brings, and the outputs of its calls, in any order, with a host's item between now and then."""
    items: list[dict[str, Any]] = []
    calls, outputs = draw(st.integers(0, 3)), []
    if draw(st.booleans()):
        sealed = draw(st.sampled_from(({}, {"encrypted_content": f"gAAAA{name}"}, {"encrypted_content": None})))
        items.append({"type": "reasoning", "id": f"rs_{name}", "summary": [], **sealed})
    if draw(st.booleans()):
        items.append({"type": "web_search_call", "id": f"ws_{name}", "status": "completed", "action": {"query": "x"}})
    if not calls or draw(st.booleans()):
        items.append(words("assistant", draw(texts()) or "Done.", id=f"msg_{name}", status="completed"))
    for number in range(calls):
        kind, payload = draw(st.sampled_from(CALLS))
        call = {"type": kind, "call_id": f"call_{name}_{number}", "name": "run", "status": "completed", **payload}
        items.append({key: value for key, value in call.items() if kind != "local_shell_call" or key != "name"})
        own = "custom_tool_call_output" if kind == "custom_tool_call" else "function_call_output"
        text = draw(texts(max_lines=40))
        told = json.dumps({"chunk_id": "4070ea", "exit_code": 1, "output": text}, separators=(",", ":"))
        output = draw(
            st.sampled_from((text, *([{"type": "input_text", "text": one}] for one in (text, told)), [IMAGE]))
        )
        outputs.append({"type": own, "call_id": call["call_id"], "output": output})
    return [*items, *draw(st.lists(host_items(), max_size=1)), *draw(st.permutations(outputs))]


CALLS = (
    ("function_call", {"arguments": '{ "command": "ls",  "n": 1 }'}),
    ("function_call", {"arguments": '{"path":"src/auth.ts"}', "namespace": "fs"}),
    ("function_call", {"arguments": "no JSON"}),
    ("custom_tool_call", {"input": "text(await tools.exec_command({cmd: 'ls'}))"}),
    ("custom_tool_call", {"input": 'text(await tools.exec_command({"cmd": "ls", "workdir": "/w"}))', "name": "exec"}),
    ("local_shell_call", {"action": {"type": "exec", "command": ["ls"]}}),
)


@st.composite
def item_lists(draw, foreign: bool = False):
    """What a client sends: the host's items, the user's words, answers with their calls."""
    items = [*draw(st.lists(host_items(), max_size=3)), draw(user_items())]
    if foreign:
        items.append(FOREIGN)
    for turn in range(draw(st.integers(0, 5))):
        items += draw(answers(f"{turn}"))
        items += draw(st.lists(st.one_of(user_items(), host_items()), max_size=2))
    return items


def violations(items: list[Any]) -> list[str]:
    return [str(one) for one in judge_items(Request({"input": items}, {}))]


@given(item_lists(), st.booleans())
def test_items_become_messages_and_come_back(items, foreign):
    items = [FOREIGN, *items] if foreign else items
    read = read_items(items)
    assert to_items(read, read.messages) == items
    said = [one for one in read.messages if one["role"] == "user" and not result_ids(one)]
    assert len(said) == sum(one.get("role") == "user" and one != words("user", CONTEXT) for one in items)


@given(item_lists())
def test_a_result_that_is_shortened_stays_the_output_of_its_call(items):
    read = read_items(items)
    edited = [
        {**one, "content": [{**b, "content": "[stored]"} if b["type"] == "tool_result" else b for b in one["content"]]}
        for one in read.messages
    ]
    assert to_items(read, edited) == [
        {**item, "output": "[stored]"} if str(item.get("type")).endswith("call_output") else item for item in items
    ]


def test_a_script_whose_command_is_shortened_stays_a_script():
    script = 'text(await tools.exec_command({"cmd": "make all", "workdir": "/w"}))'
    read = read_items([{"type": "custom_tool_call", "call_id": "a", "name": "exec", "input": script}])
    (message,) = read.messages
    shorter = [{**message, "content": [{**block, "input": {"cmd": "make…"}} for block in message["content"]]}]
    (item,) = to_items(read, shorter)
    assert (item["name"], item["input"]) == ("exec", 'text(await tools.exec_command({"cmd": "make…"}))')


@given(data=st.data(), items=item_lists(), foreign=st.booleans())
def test_whatever_a_plan_says_the_compacted_list_is_valid_and_what_is_the_host_s_stands(
    data, items, foreign, tmp_path_factory
):
    items = [FOREIGN, *items] if foreign else items
    read = read_items(items)
    if not read.messages:
        return
    view = apply(data.draw(plans(read.messages)), read.messages, store=tmp_path_factory.mktemp("s") / "store.db")
    made = to_items(read, view)
    assert not set(violations(made)) - set(violations(items))
    hosts_own = [item for _, item in read.fixed]
    assert [item for item in made if item in hosts_own] == [item for item in items if item in hosts_own]
    assert made[: 1 if foreign else 0] == ([FOREIGN] if foreign else [])
    again = read_items(made).messages
    assert len(again) >= len(view)


@given(data=st.data(), items=item_lists(), in_words=st.booleans())
def test_an_answer_of_ours_is_expanded_to_the_view_that_it_stands_for(data, items, in_words, tmp_path_factory):
    """Codex puts the user's messages in front of it, once more."""
    messages = read_items(items).messages
    view = apply(data.draw(plans(messages)), messages, store=tmp_path_factory.mktemp("s") / "store.db")
    ask, held = "words" if in_words else "trigger", view_record(messages, view, {}, "d1")
    answer, digest = reply(ask, {"input": items}, held, "1")
    (item,) = json.loads(answer.body)["output"]
    if in_words:
        item = words("user", TOLD + item["content"][0]["text"])
    users = [one for one in items if one.get("role") == "user"]
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    unknown = [words("user", "said meanwhile"), {"type": "message", "role": "user", "content": [picture]}]
    new, earlier = words("user", "and now?"), [] if in_words else [item]
    whole = with_view({"input": [*users, *earlier, *unknown, item, new]}, lambda name: held if name == digest else None)
    (first, second, *rest) = read_items(whole["input"]).messages
    assert rest[:-1] == view
    assert [message_digest(one) for one in (first, second, rest[-1])] == [
        message_digest(read_items([one]).messages[0]) for one in (*unknown, new)
    ]
    assert not read_items(whole["input"]).has_foreign


@given(item_lists(foreign=True))
def test_nothing_before_a_foreign_compaction_is_part_of_the_conversation(items):
    read = read_items(items)
    before = items[: items.index(FOREIGN) + 1]
    assert read.has_foreign
    assert to_items(read, read.messages[1:])[: len(before)] == before


@given(st.lists(item_lists(foreign=True), min_size=2, max_size=3))
def test_items_are_read_once_and_never_taken_for_others(lists):
    for body in ({"input": items} for items in [*lists, *lists]):
        read = RESPONSES.read(body)
        assert read == read_items(body["input"])
        assert RESPONSES.read(body) is read


@given(st.text())
def test_an_item_that_only_looks_like_ours_is_a_foreign_one(text):
    for content in (text, f"compactor.1.{text}"):
        body = {"input": [{"type": "compaction", "id": "x", "encrypted_content": content}]}
        assert with_view(body, lambda name: None) is body


@pytest.fixture
def behind(tmp_path):
    """A proxy for OpenAI's API in front of a test server."""
    opened_ones = []

    def start(server, **session) -> ProxyServer:
        session = {"window_tokens": 12_000, "max_output_tokens": 500, "planner": "rules", **session}
        upstreams, store = Upstreams("", server.url, ""), str(tmp_path / "store.db")
        opened_ones.append(ProxyServer(ProxySettings(upstreams=upstreams, store=store, session=session)).__enter__())
        return opened_ones[-1]

    yield start
    for proxy in opened_ones:
        proxy.__exit__(None, None, None)


def next_call(request):
    number = len(request.body["input"])
    return [say(f"Step {number}"), use("run", f"call_{number}_{len(request.raw)}", command=f"check module {number}")]


FIELDS = {"model": "gpt-5.5", "reasoning": {"effort": "low"}, "instructions": "Work on.", "store": False}


def worked(client, items, rounds: int) -> list[dict[str, Any]]:
    """Go on from `items` for so many rounds, streamed."""
    for number in range(rounds):
        with client.responses.stream(input=items, **FIELDS) as stream:
            answer = stream.get_final_response()
        made = [
            item.model_dump(mode="json", exclude_unset=True, exclude={"parsed_arguments"}) for item in answer.output
        ]
        calls = [item for item in made if item["type"] == "function_call"]
        lines = "\n".join(f"src/module_{at}.py:{number}: def handler_{at}(request, {number})" for at in range(60))
        items = [
            *items,
            *made,
            *({"type": "function_call_output", "call_id": c["call_id"], "output": lines} for c in calls),
        ]
    return items


def sdk_client(proxy):
    import openai  # takes a second, also where the tests that need it are skipped

    return openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="sk-1", max_retries=0)


@pytest.mark.real
def test_the_real_sdk_streams_and_is_compacted(behind):
    with OpenAIServer(next_call, window_tokens=40_000) as server:
        proxy = behind(server)
        with sdk_client(proxy) as client:
            worked(client, [words("user", "Check the modules, and never delete a file.")], 14)
        compactions, failed = proxy.metrics.value("compactions"), proxy.metrics.value("requests", kind="failed")
    assert server.violations == []
    assert compactions >= 1
    assert failed == 0
    assert max(exchange.usage.prompt_tokens for exchange in server.exchanges) < 12_000
    assert "never delete a file" in json.dumps(server.requests[-1].body["input"])


def compaction_of(client, items, ask: str) -> dict[str, Any]:
    """The item that is answered to a client that asks for a compaction."""
    if ask == "window":
        made = client.post("/responses/compact", body={"model": "gpt-5.5", "input": items}, cast_to=object)
        return made["output"][0]
    asks = TRIGGER if ask == "trigger" else words("user", ASKS_IN_WORDS)
    (item,) = client.responses.create(input=[*items, asks], **FIELDS).output
    item = item.model_dump(mode="json")
    return words("user", TOLD + item["content"][0]["text"]) if ask == "words" else item


@pytest.mark.real
@pytest.mark.parametrize(
    ("restarted", "ask"),
    [
        (False, "trigger"),
        (True, "words"),
        (True, "window"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in ((False, "words"), (False, "window"), (True, "trigger"))
        ),
    ],
)
def test_a_compaction_is_answered_and_its_answer_expanded(behind, ask, restarted, tmp_path):
    """By whichever way the client asks; by a proxy that was started anew, too, from the originals."""
    with OpenAIServer(next_call, window_tokens=90_000) as server:
        proxy = behind(server, window_tokens=80_000)
        with sdk_client(proxy) as client:
            items = worked(client, [words("user", "Check the modules.", id="msg_first")], 12)
            arrived = len(server.paths)
            item = compaction_of(client, items, ask)
            item = compaction_of(client, [items[0], item], ask)  # and again at once
        assert len(server.paths) == arrived
        assert [session.state.compactions for session in proxy.gateway.conversations.sessions()] == [1]
        if restarted:
            proxy.__exit__(None, None, None)
            proxy = behind(server, window_tokens=80_000)
        with sdk_client(proxy) as client:
            worked(client, [items[0], item], 2)
        (session,) = proxy.gateway.conversations.sessions()
        assert session.state.history_messages >= 2 * 12 + 3
        key = session.state.history_key
    assert server.violations == []
    sent = server.requests[-1].body["input"]
    assert sum("Check the modules." in json.dumps(one.get("content")) for one in sent if one.get("role") == "user") >= 1
    assert sum(one.get("id") == "msg_first" for one in sent) <= 1
    assert len(json.dumps(sent)) < len(json.dumps(items)) * 0.75
    proxy.__exit__(None, None, None)
    with open_store(tmp_path / "store.db") as store:
        assert store.forget(key) == []
        assert not [name for name in store.backend.keys("state/") if "answer:" in name]


class Planning:
    """A model that works on, and answers as a planner what is asked behind its work or by cards."""

    def __init__(self, answer: Any = ANSWER) -> None:
        self.answer, self.asked = answer, list[tuple[str, Request]]()

    def __call__(self, request: Request) -> Any:
        last = json.dumps(request.body["input"][-1])
        kind = next((kind for kind in (FORKED, BY_CARDS) if kind in last), "")
        if not kind:
            return next_call(request)
        self.asked.append((kind, request))
        return self.answer


@pytest.mark.slow
def test_the_conversation_s_own_model_plans_behind_it_while_it_is_cached_else_by_cards(behind):
    """Once behind the list as the client has it; then what the provider has cached is no longer what the client has."""
    model = Planning()
    with OpenAIServer(model, window_tokens=40_000) as server:
        proxy = behind(server, window_tokens=24_000, planner="auto")
        with sdk_client(proxy) as client:
            worked(client, [words("user", "Check the modules, and never delete a file.")], 40)
        (session,) = proxy.gateway.conversations.sessions()
        planned, failed = session.state.planned, proxy.metrics.value("requests", kind="failed")
    assert (server.violations, failed) == ([], 0)
    assert [kind for kind, _ in model.asked] == [FORKED] + [BY_CARDS] * (len(model.asked) - 1)
    assert len(model.asked) >= 2
    assert {one.planner for one in planned if one.usage.requests} == {"gpt-5.5"}
    assert not [one.failure for one in planned if one.failure]
    first, second = (request for _, request in model.asked[:2])
    for request in (first, second):
        assert request.body["model"] == "gpt-5.5"
        assert (request.body["stream"], request.body["store"], bool(request.body["instructions"])) == (
            True,
            False,
            True,
        )
        assert request.headers["authorization"] == "Bearer sk-1"
    assert planned[0].usage.cache_read_input_tokens > 4 * planned[0].usage.input_tokens
    assert BRIEF[1].removeprefix("- ").removesuffix(" (t1)") in json.dumps(server.requests[-1].body["input"])


@pytest.mark.real
@pytest.mark.parametrize(
    "answer", [Failure(500, "api_error", "down"), "no plan", Answer([say("x" * 400)], fault="garbage")]
)
def test_whatever_the_model_answers_rules_plan_and_the_work_goes_on(behind, answer):
    model = Planning(answer)
    with OpenAIServer(model, window_tokens=90_000) as server:
        proxy = behind(server, window_tokens=80_000, planner="auto")
        with sdk_client(proxy) as client:
            items = worked(client, [words("user", "Check the modules.")], 12)
            (item,) = client.responses.create(input=[*items, TRIGGER], **FIELDS).output
            worked(client, [items[0], item.model_dump(mode="json")], 1)
        (session,) = proxy.gateway.conversations.sessions()
    assert [kind for kind, _ in model.asked] == [FORKED, BY_CARDS]
    assert [one.planner for one in session.state.planned] == ["gpt-5.5", "rules"]
    assert "sk-1" not in session.state.planned[0].failure


@pytest.mark.real
def test_a_login_s_planner_is_asked_where_the_login_goes():
    with OpenAIServer(Planning()) as chatgpt, OpenAIServer("none of it") as other:
        places = Upstreams(other.url, other.url, f"{chatgpt.url}/backend-api/codex")
        session = {"window_tokens": 6_000, "max_output_tokens": 500}
        with ProxyServer(ProxySettings(upstreams=places, session=session)) as proxy:
            talk = [words("user", "Check."), words("assistant", "I will.", id="m1"), words("user", "Go on. " * 3_000)]
            body = {**FIELDS, "input": [*talk, words("assistant", "Done.", id="m2"), words("user", "And?"), TRIGGER]}
            answer = http_client.post(f"{proxy.url}/v1/responses", json=body, headers=LOGIN)
    assert answer.status_code == 200
    assert other.paths == []
    assert {path for _, path in chatgpt.paths} == {"/backend-api/codex/responses"}
    assert chatgpt.requests[0].headers["chatgpt-account-id"] == LOGIN["chatgpt-account-id"]


REMOVED = [
    {"id": "rs_1", "action": "removed", "reason": "prefix_mismatch"},
    {"id": "rs_2", "action": "removed", "reason": "prefix_mismatch"},
    {"id": "rs_3", "action": "removed", "reason": "model_downgrade"},
]
DROPPED = [
    {"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"},
    {"type": "thinking_mismatch_allowed", "path": "messages.3.content.0", "reason": "prefix_binding_mismatch"},
]
ENDED = {"object": "response", "status": "completed", "output": [words("assistant", "Done.")]}
REPORTS = [
    (RESPONSES, [{**ENDED, "input_transformations": REMOVED}], 2),
    (RESPONSES, [{"type": "response.completed", "response": {**ENDED, "input_transformations": REMOVED}}], 2),
    (RESPONSES, [{**ENDED, "input_transformations": None}], 0),
    (MESSAGES, [{"type": "message", "content": [], "input_transformations": DROPPED}], 1),
    (
        MESSAGES,
        [
            {"type": "message_start", "message": {"input_transformations": DROPPED}},
            {"type": "message_delta", "delta": {}, "input_transformations": DROPPED},
        ],
        1,
    ),
]


@pytest.mark.parametrize(("wire", "events", "removed"), REPORTS)
def test_reasoning_that_the_provider_removed_behind_a_changed_prefix_is_counted_once(wire, events, removed):
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    assert read_answer(wire, stream, is_stream=True)[1] == removed
    if len(events) == 1 and "type" not in events[0]:
        assert read_answer(wire, json.dumps(events[0]).encode(), is_stream=False)[1] == removed


def test_removed_reasoning_is_in_the_metrics_and_the_log(tmp_path, caplog):
    usage = {"input_tokens": 900, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 100}}
    with hosts(1) as (host,), caplog.at_level("INFO", "applier.proxy"):
        host.answer = lambda _: {**ENDED, "usage": usage, "input_transformations": REMOVED}
        settings = ProxySettings(upstreams=Upstreams("", host.url, ""), store=str(tmp_path / "s.db"))
        with ProxyServer(settings) as proxy:
            talk = [words("user", "a"), words("assistant", "b", id="m1"), words("user", "c")]
            http_client.post(f"{proxy.url}/v1/responses", json={"model": "gpt-6.2-sol", "input": talk}, headers=KEY)
        assert proxy.metrics.value("removed_reasoning") == 2
    assert "the provider removed 2 reasoning items behind a changed prefix" in caplog.text


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call", "local_shell_call", "shell_call"])
def test_an_answer_without_a_call_ends_the_turn(kind):
    usage = {"usage": {"input_tokens": 9}}
    assert RESPONSES.observed({**ENDED, **usage})["stop_reason"] == "end_turn"
    assert "stop_reason" not in RESPONSES.observed({**ENDED, **usage, "output": [*ENDED["output"], {"type": kind}]})


@pytest.mark.real
def test_what_cannot_be_compacted_passes_as_it_came(behind):
    """A thread that the server holds, a compaction asked for behind another's, a conversation without an answer."""
    talk = [words("user", "Check the modules."), words("assistant", "I will.", id="m1"), words("user", "Go on. " * 900)]
    bodies = (
        {"input": talk, "previous_response_id": "resp_1"},
        {"input": [*talk[:1], FOREIGN, *talk[1:], TRIGGER]},
        {"input": [*talk[:1], TRIGGER]},
        {"input": "Hello"},
    )
    with OpenAIServer("ok") as server:
        proxy = behind(server, window_tokens=3_000)
        for body in bodies:
            http_client.post(f"{proxy.url}/v1/responses", json={"model": "gpt-5.5", **body}, headers=KEY)
            assert server.requests[-1].body["input"] == body["input"]


@pytest.mark.real
def test_a_compressed_body_is_read_and_one_that_cannot_be_passes_as_it_came():
    """Codex compresses what it sends with a login."""
    raw = json.dumps({"model": "gpt-5.5", "input": [words("user", "Hi")]}).encode()
    packed = zstandard.ZstdCompressor().compress(raw)
    with hosts(1) as (chatgpt,), ProxyServer(ProxySettings(upstreams=Upstreams("", "", chatgpt.url))) as proxy:
        sent = ((packed, "zstd"), (raw, "identity"), (raw, "br"), (raw, "zstd"), (packed + b"more", "zstd"))
        for content, *encodings in (*sent, (packed, "zstd", "br"), (packed, "br, zstd")):
            headers = [*LOGIN.items(), *(("content-encoding", one) for one in encodings)]
            http_client.post(
                f"{proxy.url}/v1/responses", content=content, headers=[("content-type", "application/json"), *headers]
            )
        failed = proxy.metrics.value("requests", kind="failed")
    assert failed == 0
    assert ["content-encoding" in one.headers for one in chatgpt.arrivals] == [False, False, *[True] * 5]
    bodies = [one.body.encode("utf-8", "surrogateescape") for one in chatgpt.arrivals]
    assert bodies == [raw, raw, raw, raw, packed + b"more", packed, packed]


@pytest.mark.real
def test_a_login_a_key_and_another_provider_s_key_each_keep_their_own():
    with hosts(3) as (claude, openai_host, chatgpt):
        places = Upstreams(claude.url, openai_host.url, f"{chatgpt.url}/backend-api/codex")
        with ProxyServer(ProxySettings(upstreams=places, session={"planner": "rules"})) as proxy:
            for path in ("/v1/responses", "/v1/models", "/backend-api/codex/responses"):
                assert http_client.post(proxy.url + path, json={"input": "x"}, headers=LOGIN).status_code == 200
            for path in ("/v1/responses", "/v1/responses/compact", "/v1/models", "/v1/embeddings"):
                assert http_client.post(proxy.url + path, json={"input": "x"}, headers=KEY).status_code == 200
            refused = [http_client.get(proxy.url + path, headers=KEY).status_code for path in ("/", "/api/hello", "/x")]
            upgrade = {"upgrade": "websocket", "connection": "upgrade", **KEY}
            assert http_client.get(f"{proxy.url}/v1/responses", headers=upgrade).status_code == 426
    assert refused == [404] * 3
    assert not claude.arrivals
    assert [one.path for one in chatgpt.arrivals] == [
        f"/backend-api/codex/{name}" for name in ("responses", "models", "responses")
    ]
    assert len(openai_host.arrivals) == 4
    assert not any("account-4711" in one.headers for one in openai_host.arrivals)


@pytest.mark.real
def test_without_an_upstream_for_its_kind_a_request_is_refused():
    with ProxyServer(ProxySettings(upstreams=Upstreams(chatgpt=""))) as proxy:
        answer = http_client.post(f"{proxy.url}/v1/responses", json={"input": "x"}, headers=LOGIN)
    assert answer.status_code == 404
    assert "--chatgpt-upstream" in answer.json()["error"]["message"]


CODEX = shutil.which("codex")
NEEDS_CODEX = pytest.mark.skipif(CODEX is None, reason="needs the client: npm install -g @openai/codex")


@pytest.mark.real
@NEEDS_CODEX
@pytest.mark.parametrize("how", [{"window_tokens": 40_000}, {"asks_at": 31_000}, {"asks_at": 31_000, "in_words": True}])
def test_the_real_codex(how):
    """Compacted by the proxy, by its own request for it, by its request in words; planned by its own model."""
    done = run_client(str(CODEX), 24, planner="auto", **{"window_tokens": 200_000, **how})
    assert (done.exit_code, done.rounds, done.violations) == (0, 24, ())
    assert set(done.paths) == {"POST /v1/responses"}
    assert done.paths["POST /v1/responses"] > 25
    assert "planned by gpt-" in done.report
    assert "compactor: 0 compactions" not in done.report
    assert "bypassed" not in done.report
