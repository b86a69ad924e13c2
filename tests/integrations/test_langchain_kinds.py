"""Blocks and messages of LangChain that have no plain form stay as they are; all around them is compacted."""

import copy

import pytest

pytest.importorskip("langchain")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, ChatMessage, FunctionMessage, HumanMessage, ToolMessage

from applier.adapters.frameworks import langchain_middleware
from applier.adapters.frameworks.langchain_middleware import pre_model_hook

LONG = "\n".join(f"src/a.py:{at}: foo {'x' * 60}" for at in range(60))
BLOCKS = [
    {"type": "video", "base64": "AAAA", "mime_type": "video/mp4"},
    {"type": "file", "url": "https://x.org/a.pdf", "mime_type": "application/pdf"},
    {"type": "image", "file_id": "file_9"},
    {"type": "text-plain", "text": "a document", "mime_type": "text/plain"},
    {"type": "media", "mime_type": "application/pdf", "data": "AAAA"},
    {"cachePoint": {"type": "default"}},
    {"type": "block_of_next_year", "inner": {"a": [1, None]}},
]


def steps(number):
    call = {"name": "bash", "args": {"command": f"grep foo{number}"}, "id": f"c{number}"}
    return [
        AIMessage(f"step {number}", tool_calls=[call], id=f"a{number}"),
        ToolMessage(LONG, tool_call_id=f"c{number}", id=f"t{number}"),
    ]


def odd(number, block, form):
    """Messages that hold `block` in one of several ways, or are of a kind of their own."""
    content = [{"type": "text", "text": f"look {number}"}, block]
    call = {"name": "shoot", "args": {}, "id": f"s{number}"}
    return {
        "user": [HumanMessage(content, id=f"u{number}")],
        "result": [AIMessage("", tool_calls=[call]), ToolMessage(content, tool_call_id=f"s{number}")],
        "chat": [ChatMessage(f"critic {number}", role="critic", id=f"k{number}")],
        "function": [FunctionMessage(f"ran {number}", name="f", id=f"f{number}")],
    }[form]


ODD = st.tuples(st.sampled_from(BLOCKS), st.sampled_from(["user", "result", "chat", "function"]))


def contents_of(messages):
    """Blocks, and texts of messages of other kinds than the usual ones."""
    found = []
    for message in messages:
        if isinstance(message, ChatMessage | FunctionMessage):
            found.append(message.content)
        elif isinstance(message.content, list):
            found += [part for part in message.content if part in BLOCKS]
    return found


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=st.lists(st.one_of(st.none(), ODD), min_size=6, max_size=12))
def test_blocks_of_unknown_kinds_stay_in_order_and_stop_no_compaction(new_session, places):
    messages = [HumanMessage("Fix the parser. Never touch the lexer.", id="h")]
    for number, place in enumerate(places):
        messages += steps(number)
        messages += odd(number, *place) if place else []
    messages.append(HumanMessage("go on", id="last"))
    before = copy.deepcopy(messages)
    view = pre_model_hook(new_session(window_tokens=12_000))({"messages": messages})["llm_input_messages"]
    assert messages == before
    assert contents_of(view) == contents_of(messages)
    assert len(str(view)) < len(str(messages))
    calls = [call["id"] for message in view if isinstance(message, AIMessage) for call in message.tool_calls]
    assert calls == [message.tool_call_id for message in view if isinstance(message, ToolMessage)]


@pytest.mark.parametrize("form", ["user", "chat", "function"])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_message_that_is_joined_with_others_gets_back_what_it_carried(block, form):
    (message,) = odd(1, block, form)
    plain = langchain_middleware._plain([message])
    note = {"type": "text", "text": "a note"}
    built = langchain_middleware._from_plain({**plain, "content": [note, *plain["content"]]})
    assert contents_of(built) == contents_of([message])
    assert "opaque" not in str(built)
