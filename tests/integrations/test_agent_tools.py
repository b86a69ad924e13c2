"""The model's own tools: what it asks for comes back exact, and what it gets wrong is told in one line."""

import pytest

from applier.adapters.frameworks.agent_tools import (
    AGENT_TOOL_NAMES,
    AGENT_TOOLS,
    answer_call,
    handle_tool_use,
)
from planner.errors import CompactorError
from planner.reading.history import read_history
from planner.reading.lines import join_lines, turn_lines


@pytest.fixture
def session(new_session, conversation):
    """A session that has compacted."""
    session = new_session()
    for length in range(1, 62, 4):
        session.prepare(conversation[:length])
    assert session.state.compactions
    return session


def call(name: str, **given: object) -> dict:
    return {"type": "tool_use", "id": "toolu_7", "name": name, "input": given}


def text_of(history, turn_id: str) -> str:
    return join_lines(turn_lines(history, history.by_id[turn_id]))


def test_a_turn_comes_back_whole_by_either_form_of_its_id(session, conversation):
    history = read_history(conversation[:61])
    key = session.restore("t2").reference.split(":")[0]
    for reference in ("t2", f"{key}:t2"):
        result = handle_tool_use(session, call("restore_context", reference=reference))
        assert result["tool_use_id"] == "toolu_7"
        assert "is_error" not in result
        reference_line, text = result["content"].split("\n", 1)
        assert reference_line == f"{key}:t2"
        assert text == text_of(history, "t2")


def test_lines_and_matches_of_a_turn(session, conversation):
    history = read_history(conversation[:61])
    lines = turn_lines(history, history.by_id["t3"])
    part = answer_call(session, "restore_context", {"reference": "t3", "first_line": 2, "last_line": 3})
    assert part.split("\n", 1)[1] == join_lines(lines[1:3])
    found = answer_call(session, "restore_context", {"reference": "t3", "search": "okhttp"})
    assert "okhttp" in found
    assert len(found) < len(join_lines(lines))


def test_search_names_turn_and_line(session, conversation):
    found = answer_call(session, "search_context", {"text": "no closing QUOTATION"})
    turn, _, number, *_ = found.split("\n")[0].replace(":", " ").split(" ")
    again = answer_call(
        session, "restore_context", {"reference": turn, "first_line": int(number), "last_line": int(number)}
    )
    assert "No closing quotation" in again


def test_a_long_original_is_cut_and_says_how_to_go_on(session, conversation):
    grown = [*conversation[:61], *long_result()]
    session.prepare(grown)
    text = answer_call(session, "restore_context", {"reference": read_history(grown).turns[-1].id})
    assert len(text) < RESULT_CHARACTERS + 200
    assert "ask for first_line and last_line" in text


def long_result() -> list[dict]:
    use = {"type": "tool_use", "id": "toolu_long", "name": "bash", "input": {"command": "seq 0 4999"}}
    lines = "\n".join(map(str, range(5000)))
    result = {"type": "tool_result", "tool_use_id": "toolu_long", "content": lines}
    return [
        {"role": "assistant", "content": [{"type": "text", "text": "As you wish."}]},
        {"role": "user", "content": "Count."},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]


def test_compact_is_done_at_the_next_call(new_session, conversation):
    session = new_session(window_tokens=60_000)
    session.prepare(conversation[:45])
    assert session.state.compactions == 0
    told = handle_tool_use(session, call("compact", focus="the query language"))
    assert "before your next turn" in told["content"]
    session.prepare(conversation[:47])
    assert session.state.compactions == 1


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("restore_context", {}, "reference"),
        ("restore_context", {"reference": "t9999"}, "t9999"),
        ("restore_context", {"reference": "t1", "first_line": 9, "last_line": 3}, "before first_line"),
        ("restore_context", {"reference": "t1", "colour": "red"}, "colour"),
        ("search_context", {"text": "nobody ever wrote this"}, "fewer words"),
        ("search_context", {"text": ""}, "text"),
        ("fly", {}, "no such tool"),
    ],
)
def test_what_cannot_be_done_is_an_error_result_in_one_line(session, name, given, says):
    result = handle_tool_use(session, call(name, **given))
    assert result["is_error"] is True
    assert says in result["content"]
    assert "\n" not in result["content"]
    with pytest.raises(CompactorError, match=says):
        answer_call(session, name, given)


def test_definitions_are_what_the_api_takes_and_describe_every_argument():
    assert {tool["name"] for tool in AGENT_TOOLS} == AGENT_TOOL_NAMES
    for tool in AGENT_TOOLS:
        assert set(tool) == {"name", "description", "input_schema"}
        assert tool["input_schema"]["type"] == "object"
        assert all(argument["description"] for argument in tool["input_schema"]["properties"].values())
