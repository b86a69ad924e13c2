"""Parts of pydantic-ai without a place in a plain message stay while all around is compacted; media keep theirs."""

import asyncio

import pytest

pytest.importorskip("pydantic_ai")

import anthropic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent, RunContext, RunUsage, Tool
from pydantic_ai.capabilities import ToolSearch
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from applier.adapters.frameworks import pydantic_ai_history
from applier.adapters.frameworks.pydantic_ai_history import CompactedHistory
from applier.testing import use
from planner.reading.tokens import TokenCounter
from tests.integrations.conftest import MODEL
from tests.loopback import KEY, Loopback

LONG = "\n".join(f"line {at} of the log, {'x' * 40}" for at in range(120))
WAV, PDF = b"RIFF" + bytes(90_000), b"%PDF-1.4 " + b"/Type /Page\n" * 3 + bytes(900_000)


def sent(session, messages):
    """What goes out for `messages`."""
    model = TestModel()
    request = ModelRequestContext(
        model=model, messages=messages, model_settings=None, model_request_parameters=ModelRequestParameters()
    )
    ctx = RunContext(deps=None, model=model, usage=RunUsage())
    return asyncio.run(CompactedHistory(session).prepare_model_request(ctx, request)).messages


def called(number, *beside):
    call = f"c{number}"
    return [
        ModelResponse([TextPart(f"step {number}"), ToolCallPart("read_log", {"n": number}, call)]),
        ModelRequest([ToolReturnPart("read_log", LONG, call), *beside]),
    ]


REQUEST_PARTS = [
    lambda n: CompactionPart(f"a summary {n}"),
    lambda n: UserPromptPart([f"look {n}", BinaryContent(WAV[:40], media_type="audio/wav")]),
    lambda n: UserPromptPart([f"look {n}", VideoUrl(f"https://x.org/{n}.mp4")]),
]
RESPONSE_PARTS = [
    lambda n: FilePart(BinaryContent(b"made", media_type="image/png"), id=f"f{n}"),
    lambda n: NativeToolCallPart("web_search", {"query": "x"}, f"alone{n}"),
]


def run_of(steps):
    """Messages of a run, and the parts in it that must stay: of a request, of a response, both or neither a step."""
    messages, staying = [ModelRequest([SystemPromptPart("You fix."), UserPromptPart("Fix the parser.")])], []
    for number, (in_request, in_response) in enumerate(steps):
        made = [in_request(number)] if in_request else []
        messages += called(number, *made)
        staying += made
        if in_response:
            part = in_response(number)
            messages += [ModelResponse([part]), ModelRequest([UserPromptPart("go on")])]
            staying.append(part)
    return [*messages, *called(99)], staying


STEPS = st.tuples(st.sampled_from([None, *REQUEST_PARTS]), st.sampled_from([None, *RESPONSE_PARTS]))


def parts_of(messages):
    """All parts; of a prompt of several pieces these."""
    parts = (part for message in messages for part in message.parts)
    return [piece for part in parts for piece in pieces_of(part)]


def pieces_of(part):
    return part.content if isinstance(part, UserPromptPart) and isinstance(part.content, list) else [part]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=3, max_size=7))
def test_parts_of_unknown_kinds_stay_in_order_and_all_around_is_compacted(new_session, steps):
    messages, parts = run_of(steps)
    staying = [pieces_of(part)[-1] for part in parts]
    view = sent(new_session(window_tokens=9_000), messages)
    parts = parts_of(view)
    assert [part for part in parts if any(part is one for one in staying)] == staying
    assert any(isinstance(part, SystemPromptPart) for part in parts)
    assert len(str(view)) < len(str(messages))


def agent_of(client, session, **given):
    model = AnthropicModel(MODEL, provider=AnthropicProvider(anthropic_client=client))
    return Agent(model, **{**given, "capabilities": [*given.get("capabilities", []), CompactedHistory(session)]})


def run(server, made):
    async def run_it():
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=server.url, max_retries=0) as client:
            return await made(client).run("Fix the parser.")

    return asyncio.run(run_it())


def read_log(n: int) -> str:
    """Read a log."""
    return LONG


def test_a_tool_that_was_discovered_stays_visible(new_session):
    session = new_session(window_tokens=9_000)
    replies = [[use("search_tools", queries=["refund"])], *([use("read_log", n=n)] for n in range(9)), "done"]

    def refund(order_id: int) -> str:
        """Refund an order."""
        return "refunded"

    with Loopback(replies, window_tokens=9_000) as server:
        tools = [Tool(refund, defer_loading=True), Tool(read_log)]
        search = ToolSearch(strategy="keywords")
        run(server, lambda client: agent_of(client, session, tools=tools, capabilities=[search]))
        assert server.violations == []
        assert all("tool_reference" in str(request.body["messages"]) for request in server.requests[1:])
    assert session.state.compactions >= 1


def test_an_instruction_that_replaced_another_goes_on_to_hold(new_session):
    session, mode = new_session(window_tokens=9_000), ["You are in PLAN mode."]

    def script(request):
        if len(server.requests) == 3:
            mode[0] = "You are in BUILD mode."
        return [use("read_log", n=len(server.requests))] if len(server.requests) < 10 else "done"

    def made(client):
        agent = agent_of(client, session, tools=[Tool(read_log)])
        agent.instructions(name="mode", on_change="append")(lambda: mode[0])
        return agent

    with Loopback(script, window_tokens=9_000) as server:
        run(server, made)
        assert server.violations == []
        holds = ["BUILD mode" in str(request.body["messages"]) for request in server.requests]
        assert holds == sorted(holds)
        assert all(holds[5:])
    assert session.state.compactions >= 1


def test_a_history_that_begins_with_the_providers_compaction_keeps_it(new_session):
    first = ModelResponse([CompactionPart("all before", provider_name="anthropic"), TextPart("I go on.")])
    messages = [first, ModelRequest([UserPromptPart("Fix the parser.")])]
    for number in range(6):
        messages += called(number)
    view = sent(new_session(window_tokens=9_000), messages)
    assert view[0] is first
    assert len(str(view)) < len(str(messages))


def test_a_search_of_the_provider_is_compacted_with_its_result(new_session):
    messages = [ModelRequest([UserPromptPart("Search.")])]
    for number in range(8):
        pages = [{"url": f"https://x.org/{number}", "title": "T", "encrypted_content": "E" * 9_000}]
        searched = [
            ThinkingPart(f"unsigned {number}"),
            NativeToolCallPart("web_search", {"query": "x"}, f"s{number}", provider_name="anthropic"),
            NativeToolReturnPart("web_search", pages, f"s{number}", provider_name="anthropic"),
            TextPart(f"found {number}"),
        ]
        messages += [ModelResponse(searched), ModelRequest([UserPromptPart("more")])]
    view = sent(new_session(window_tokens=9_000), messages)
    kinds = [type(part) for part in parts_of(view)]
    assert kinds.count(NativeToolCallPart) == kinds.count(NativeToolReturnPart) < 8


MEDIA = {
    "png": (BinaryContent(b"\x89PNG\r\n\x1a\n" + bytes(900_000), media_type="image/png"), 4784),
    "pdf": (BinaryContent(PDF, media_type="application/pdf"), 9000),
    "wav": (BinaryContent(WAV, media_type="audio/wav"), 301),
    "image": (ImageUrl("https://x.org/a.png"), 4784),
    "document": (DocumentUrl("https://x.org/a.pdf"), 3000),
}


@pytest.mark.parametrize("name", MEDIA)
@pytest.mark.parametrize("wrap", [lambda medium: medium, lambda medium: ["seen", medium]])
def test_media_count_by_their_size_in_prompts_and_in_results(name, wrap):
    medium, tokens = MEDIA[name]
    for part in (UserPromptPart(["look", medium]), ToolReturnPart("shoot", wrap(medium), "c1")):
        counted = TokenCounter().message(pydantic_ai_history._plain_of(ModelRequest([part])))
        assert tokens <= counted <= tokens + 100


def test_a_result_that_is_shortened_keeps_its_picture(new_session):
    picture = BinaryContent(bytes(9), media_type="image/png")
    result = ToolReturnPart("shoot", ["a page", picture], "c1")
    plain = pydantic_ai_history._plain_of(ModelRequest([result]))
    plain["content"][0]["content"][0] = {"type": "text", "text": "[stored]"}
    (part,) = pydantic_ai_history._rebuilt(plain, {}).parts
    assert part.content == ["[stored]", picture]
