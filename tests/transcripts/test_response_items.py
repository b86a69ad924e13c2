"""Items of the Responses API that nobody here knows stay as they are; calls of the provider's tools are compacted."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier import apply
from applier.adapters.transcripts.responses import read_items, to_items
from applier.session import Session
from planner.reading.messages import THINKING
from planner.validity import check_messages
from tests.strategies import plans

PIXEL = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 60).decode()


def typed_pairs(call):
    """The two items of a call of each of the provider's tools."""
    own = {"id": f"x_{call}", "call_id": call, "status": "completed"}
    out = {"call_id": call}
    chunk = {"stdout": f"a.py of {call}\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 2}}
    screen = {"type": "computer_screenshot", "image_url": PIXEL}
    operation = {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b"}
    return {
        "shell": ({"type": "shell_call", **own, "action": {"commands": ["ls", "pwd"]}}, [chunk]),
        "apply_patch": ({"type": "apply_patch_call", **own, "operation": operation}, "done"),
        "computer": ({"type": "computer_call", **own, "action": {"type": "screenshot"}}, screen),
    }, out


@st.composite
def calls(draw, call):
    pairs, out = typed_pairs(call)
    item, output = pairs[draw(st.sampled_from(sorted(pairs)))]
    return [item, {"type": f"{item['type']}_output", **out, "output": output}]


def unknown(number):
    return st.sampled_from(
        [
            [{"type": "item_reference", "id": f"msg_{number}"}],
            [{"type": "item_of_next_year", "id": f"n_{number}", "call_id": f"n{number}", "payload": {"a": [1, "b"]}}],
            [
                {"type": "mcp_approval_request", "id": f"ask_{number}", "name": "delete", "arguments": "{}"},
                {"type": "mcp_approval_response", "approval_request_id": f"ask_{number}", "approve": True},
            ],
            [{"type": "computer_call_output", "call_id": f"lost{number}", "output": {"type": "of_next_year"}}],
            [
                {"type": "function_call", "call_id": f"f{number}", "name": "run", "arguments": None},
                {"type": "function_call_output", "call_id": f"f{number}", "output": "ran"},
            ],
        ]
    )


@st.composite
def conversations(draw):
    """A user's request, and answers that call tools, items of unknown types anywhere between."""
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix the parser."}]}]
    for number in range(draw(st.integers(0, 6))):
        function = {"call_id": f"c{number}", "type": "function_call", "name": "run", "arguments": '{"n":1}'}
        output = {
            "type": "function_call_output",
            "call_id": f"c{number}",
            "output": "line\n" * draw(st.integers(1, 90)),
        }
        pair = draw(st.one_of(st.just([function, output]), calls(f"t{number}")))
        for item in pair:
            items += draw(st.one_of(st.just([]), unknown(f"{number}{item['type']}")))
            items.append(item)
        items += draw(st.sampled_from([[], [{"type": "message", "role": "user", "content": "Go on."}]]))
    return items


def unknown_of(items):
    names = ("item_reference", "item_of_next_year", "mcp_approval")
    return [item for item in items if item.get("type", "").startswith(names)]


def unpaired(items):
    """Call ids that do not have exactly one call and one result of the same tool."""
    halves = {}
    for item in items:
        if item.get("type", "").endswith(("_call", "_call_output")) and not str(item["call_id"]).startswith(
            ("n", "lost")
        ):
            halves.setdefault(item["call_id"], []).append(item["type"])
    return [kinds for kinds in halves.values() if kinds != [kinds[0], f"{kinds[0]}_output"]]


@given(conversations())
def test_items_of_any_type_become_messages_and_come_back(items):
    read = read_items(items)
    assert not read.has_foreign
    assert to_items(read, read.messages) == items
    assert [one for one in check_messages(read.messages) if one.refused and one.code != "prefill"] == []


@given(data=st.data(), items=conversations())
def test_whatever_a_plan_does_unknown_items_stay_and_calls_keep_results_of_their_own_tool(
    data, items, tmp_path_factory
):
    read = read_items(items)
    view = apply(data.draw(plans(read.messages)), read.messages, store=tmp_path_factory.mktemp("s") / "store.db")
    made = to_items(read, view)
    assert unknown_of(made) == unknown_of(items)
    assert unpaired(made) == []


@given(conversations(), st.sampled_from(["tool_use", "tool_result"]))
def test_one_half_of_a_call_that_changes_takes_the_other_along(items, half):
    read = read_items(items)
    changed = {"tool_use": {"input": {"cut": True}}, "tool_result": {"content": "[stored]"}}[half]
    edited = [
        {**one, "content": [{**b, **changed} if b["type"] == half else b for b in one["content"]]}
        for one in read.messages
    ]
    made = to_items(read, edited)
    assert len(made) == len(items)
    assert unpaired(made) == []
    assert not any(item.get("type") in ("shell_call", "computer_call", "apply_patch_call") for item in made)


@pytest.mark.parametrize("tool", ["shell", "apply_patch", "computer", "item_reference", "mcp_approval_request"])
def test_one_such_item_stops_no_compaction(tool, tmp_path, caplog):
    items = [{"type": "message", "role": "user", "content": "Fix the parser. Never touch the lexer."}]
    for number in range(60):
        lines = "\n".join(f"src/a{number}.py:{line}: foo {'x' * 60}" for line in range(60))
        items.append({"type": "function_call", "call_id": f"c{number}", "name": "bash", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": f"c{number}", "output": lines})
    pairs, out = typed_pairs("t1")
    if tool in pairs:
        own = [pairs[tool][0], {"type": f"{tool}_call_output", **out, "output": pairs[tool][1]}]
    else:
        own = [{"type": tool, "id": "i1", "name": "x", "arguments": "{}"}]
    items += [*own, {"type": "message", "role": "user", "content": "go on"}]
    session = Session("fix", model="gpt-5.5", planner="rules", window_tokens=60_000, store=tmp_path / "s.db")
    read = read_items(items)
    made = to_items(read, session.prepare(read.messages))
    assert len(made) < 12
    assert tool in pairs or own[0] in made
    read_items(items)
    assert caplog.text.count("stays as it is") <= 1


def test_a_file_is_a_document_and_reasoning_stays_sealed():
    data = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQK"}
    parts = [data, {"type": "input_file", "file_url": "https://x.org/b.pdf"}, {"type": "input_file", "file_id": "f1"}]
    items = [
        {"role": "user", "content": parts},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "gAAA"},
        {"role": "assistant", "content": "Read."},
    ]
    read = read_items(items)
    assert [block["type"] for block in read.messages[0]["content"]] == ["document"] * 3
    assert read.messages[1]["content"][0]["type"] in THINKING
    assert to_items(read, read.messages) == items
