"""The model's own tools: what it asks for comes back exact, and what it gets wrong is told in one line."""

import pytest

from applier.adapters.agent_tools import (
    AGENT_TOOL_NAMES,
    AGENT_TOOLS,
    LOOK_UP_TOOLS,
    PROJECT_TOOLS,
    answer_call,
    handle_tool_use,
)
from applier.store.excerpt import Match, SearchResult
from planner.errors import CompactorError
from planner.evidence.calls import OWN_TOOLS
from planner.reading.lines import join_lines, turn_lines
from planner.reading.messages import read_history
from tests.strategies import image


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
        assert reference_line == reference
        assert text == text_of(history, "t2")


@pytest.mark.real
def test_lines_and_matches_of_a_turn(session, conversation):
    history = read_history(conversation[:61])
    lines = turn_lines(history, history.by_id["t3"])
    part = answer_call(session, "restore_context", {"reference": "t3", "first_line": 2, "last_line": 3})
    assert part.split("\n", 1)[1] == join_lines(lines[1:3])
    found = answer_call(session, "restore_context", {"reference": "t3", "search": "okhttp"})
    assert "okhttp" in found
    assert len(found) < len(join_lines(lines))


def test_search_shows_the_lines_around_a_hit_and_the_turn(session, conversation):
    answer = answer_call(session, "search_context", {"text": "no closing QUOTATION"})
    turn, *shown = answer.split("\n")
    hit = next(line for line in shown if "No closing quotation" in line)
    number = int(hit.split(":")[0])
    asked = {"reference": turn, "first_line": number, "last_line": number}
    assert "No closing quotation" in answer_call(session, "restore_context", asked)


def test_search_takes_words_and_filters_and_says_when_hits_were_cut(session):
    assert "No closing quotation" in answer_call(session, "search_context", {"text": "quotation closing"})
    cut = answer_call(session, "search_context", {"text": "the", "limit": 1})
    assert "more turns match" in cut
    calls = answer_call(session, "search_context", {"text": "access.log", "part": "call", "tool": "bash"})
    assert calls != answer_call(session, "search_context", {"text": "access.log"})


def test_an_answer_to_a_search_is_short_says_a_thing_once_and_names_what_it_leaves_out():
    same = "12: def drain(queue):\n13-     queue.join()"
    hits = [("t9", same), ("t4", same), *((f"t{n}", f"{n}: drain {'x' * 300}") for n in range(20, 40))]
    text = answer(hits, turns=30)
    assert text.startswith(f"t9\n{same}\nt20\n")
    assert len(text) < 5 * 400 + 200
    assert text.count("def drain") == 1
    assert text.endswith("narrow it by words, part or tool")
    assert "(t4, " in text.rsplit("\n", 1)[1]
    assert answer(hits[:1], turns=1) == f"t9\n{same}"
    assert answer(hits[:2], turns=2).endswith("… 1 more turn matches (t4): narrow it by words, part or tool")


class Stored:
    """A record of which every search finds the same."""

    page_characters = 20_000

    def __init__(self, hits, turns):
        self.result = SearchResult(tuple(Match(turn, (), excerpt, "") for turn, excerpt in hits), turns)

    def search(self, text, **filters):
        return self.result


def answer(hits, turns, limit=5):
    asked, answered = LOOK_UP_TOOLS["search_context"]
    return answered(Stored(hits, turns), asked(text="drain", limit=limit))


def test_a_turn_is_shown_with_the_lines_beside_its_hits_or_only_named():
    runs = [f"{n}- {'x' * 90}\n{n + 1}: drain {n}\n{n + 2}- {'y' * 90}" for n in (10, 20, 30, 40)]
    long, longer, short = "\n…\n".join(runs[:3]), "\n…\n".join(runs), "3: seal\n4- of the pump"
    assert answer([("t9", long), ("t4", short)], turns=2, limit=2) == f"t9\n{long}\nt4\n{short}"
    named = answer([("t4", short), ("t9", longer), ("t5", "8: sealed")], turns=3, limit=2)
    assert named.startswith(f"t4\n{short}\nt5\n8: sealed\n… 1 more turn matches (t9)")
    alone = answer([("t9", longer), ("t4", short)], turns=2, limit=1)
    assert alone.startswith(f"t9\n{longer}\n… 1 more turn matches (t4)")


def test_a_search_that_only_its_filter_leaves_empty_says_so_and_where_it_is(session):
    found = answer_call(session, "search_context", {"text": "no closing quotation", "part": "user"})
    head, turn, *_ = found.split("\n")
    assert head == "nothing with part=user; without it:"
    assert turn == answer_call(session, "search_context", {"text": "no closing quotation"}).split("\n")[0]


def test_what_matches_in_a_long_turn_is_shown_in_short_pages(session):
    messages = [{"role": "user", "content": "\n".join(f"the pump {n} must not run dry" for n in range(900))}]
    earlier = session._state.ledger.tracker.history.messages
    session.prepare([*earlier, {"role": "assistant", "content": "So."}, *messages])
    turn = answer_call(session, "search_context", {"text": "the pump 700 must"}).split("\n")[0]
    answer = answer_call(session, "restore_context", {"reference": turn, "search": "pump"})
    assert len(answer) < 3_200
    assert "goes on: ask again with first_line=" in answer


def test_a_search_within_a_turn_that_matches_nothing_shows_the_line_of_the_turn_that_does(session):
    wanted = answer_call(session, "search_context", {"text": "no closing quotation"}).split("\n")[0]
    other = "t2" if wanted != "t2" else "t3"
    head, best, *_ = answer_call(
        session, "restore_context", {"reference": other, "search": "no closing quotation"}
    ).split("\n")
    assert f"{wanted} match" in head or f"{wanted}," in head
    assert best.startswith(f"{wanted} ")
    assert "No closing quotation" in best


@pytest.mark.real
def test_a_long_original_comes_whole_in_pages_that_are_never_cut_again(session, conversation):
    grown = [*conversation[:61], *long_result()]
    session.prepare(grown)
    asked, pages = {"reference": read_history(grown).turns[-1].id}, []
    for number in range(20):
        page = handle_tool_use(session, {**call("restore_context", **asked), "id": f"toolu_p{number}"})
        use = {**call("restore_context", **asked), "id": f"toolu_p{number}"}
        grown += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [page]}]
        assert page in session.prepare(grown)[-1]["content"], "what was just restored goes out as it came"
        pages += page["content"].split("\n")
        if "goes on" not in page["content"]:
            break
        asked["first_line"] = int(page["content"].rsplit("first_line=", 1)[1])
    assert number > 0
    assert set(map(str, range(3000))) <= set(pages)


def test_an_image_comes_back_as_an_image(new_session):
    picture = image(640, 480)
    shot = {"type": "tool_use", "id": "toolu_i", "name": "screenshot", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "toolu_i", "content": [{"type": "text", "text": "seen"}, picture]}
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [shot]},
        {"role": "user", "content": [answer]},
    ]
    session = new_session()
    session.prepare(messages)
    result = handle_tool_use(session, call("restore_context", reference="t2"))
    assert picture in result["content"]


def long_result() -> list[dict]:
    use = {"type": "tool_use", "id": "toolu_long", "name": "bash", "input": {"command": "seq 0 2999"}}
    lines = "\n".join(map(str, range(3000)))
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


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("restore_context", {}, "reference"),
        ("restore_context", {"reference": "t9999"}, "t9999"),
        ("restore_context", {"reference": "t1", "first_line": 9, "last_line": 3}, "before first_line"),
        ("restore_context", {"reference": "t1", "colour": "red"}, "colour"),
        ("search_context", {"text": "zebra giraffe"}, "fewer words"),
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
    assert AGENT_TOOL_NAMES | PROJECT_TOOLS.keys() == OWN_TOOLS
    for tool in AGENT_TOOLS:
        assert set(tool) == {"name", "description", "input_schema"}
        assert tool["input_schema"]["type"] == "object"
        assert all(argument["description"] for argument in tool["input_schema"]["properties"].values())
