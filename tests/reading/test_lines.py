"""Lines: one numbering over a turn that loses no character and cuts what is too long to point at."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.reading.lines import (
    READ_LINES,
    WRAP_CHARACTERS,
    call_text,
    join_lines,
    statements,
    turn_lines,
    without_indentation,
)
from planner.reading.messages import read_history, result_text
from tests.strategies import histories, text, texts


def lines_of(words):
    """The lines of a turn that says `words` and nothing else."""
    history = read_history([{"role": "user", "content": words}])
    return turn_lines(history, history.turns[0])


@given(texts(surrogates=True))
def test_joined_lines_are_the_text(words):
    assert join_lines(lines_of(words)) == words


@given(texts(surrogates=True))
def test_no_line_is_longer_than_the_wrap(words):
    lines = lines_of(words)
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert max(len(line.text) for line in lines) <= 2 * WRAP_CHARACTERS
    assert all("\n" not in line.text for line in lines)
    assert sum(not line.continues for line in lines) == words.count("\n") + 1


@given(histories(max_turns=6))
def test_every_text_of_a_turn_is_there_block_by_block(messages):
    history = read_history(messages)
    for turn in history.turns:
        lines = turn_lines(history, turn)
        assert [line.number for line in lines] == list(range(1, len(lines) + 1))
        for index, (role, block) in enumerate(history.blocks_of(turn)):
            mine = [line for line in lines if line.block == index]
            joined = join_lines(mine)
            if block["type"] == "text":
                assert joined == block["text"]
                assert {line.part for line in mine} == {role}
            elif block["type"] == "tool_result":
                assert joined == result_text(block)
                assert {line.part for line in mine} == {"result"}
            elif block["type"] == "tool_use":
                assert joined == call_text(block)
            elif "thinking" in block["type"]:
                assert mine == []


@given(histories(max_turns=6))
def test_a_call_shows_every_string_it_was_given(messages):
    for message in messages:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                shown = call_text(block)
                assert shown.startswith(block["name"])
                assert all(value in shown for value in block["input"].values() if isinstance(value, str))


CUTS = {
    "at a sentence's end": (
        "x" * 100 + ". " + "y" * 50 + ", " + "z" * 150,
        ["x" * 100 + ". ", "y" * 50 + ", " + "z" * 150],
    ),
    "not behind a short sentence": ("Yes. " + "y" * 300, ["Yes. " + "y" * 235, "y" * 65]),
    "at the last separator": ("x" * 150 + ", " + "y" * 150, ["x" * 150 + ", ", "y" * 150]),
    "behind the next separator if it is near": ("x" * 300 + ", " + "y" * 50, ["x" * 300 + ",", " " + "y" * 50]),
    "anywhere, if there is none": ("x" * 500, ["x" * 240, "x" * 240, "x" * 20]),
}


@pytest.mark.parametrize(("words", "pieces"), CUTS.values(), ids=CUTS)
def test_a_long_line_is_cut(words, pieces):
    assert [(line.text, line.continues) for line in lines_of(words)] == [(p, at > 0) for at, p in enumerate(pieces)]


@pytest.mark.parametrize("length", [1, 80, 81, WRAP_CHARACTERS])
def test_a_physical_line_is_one_line_up_to_the_wrap(length):
    assert [line.text for line in lines_of("first\n" + "word " * 40 + "\n" + "z" * length)][-1] == "z" * length
    assert len(lines_of("first\n" + "word " * 40 + "\n" + "z" * length)) == 3


def test_a_range_inside_a_wrapped_line_keeps_its_bytes():
    lines = lines_of("\n".join(["first", "z" * 500, "last"]))
    assert join_lines(lines[1:-1]) == "z" * 500
    assert join_lines(lines[2:4]) == "z" * (500 - WRAP_CHARACTERS)


def test_what_servers_and_documents_say_has_lines():
    page = {"type": "web_search_result", "url": "https://x.org", "title": "T", "encrypted_content": "qq"}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [page]}
    asked = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    paper = {"type": "document", "title": "D", "source": {"type": "text", "data": "body"}}
    history = read_history(
        [{"role": "user", "content": [text("hi"), paper]}, {"role": "assistant", "content": [asked, found]}]
    )
    said = [(line.part, line.text) for turn in history.turns for line in turn_lines(history, turn)]
    assert said == [
        ("user", "hi"),
        ("user", "D"),
        ("user", "body"),
        ("call", "web_search query=q"),
        ("result", "T"),
        ("result", "https://x.org"),
    ]


@given(st.lists(st.text(alphabet="ab1→ \t|", max_size=12).map(lambda text: text.replace("\n", "")), min_size=1))
def test_dense_lines_lose_no_word_but_the_numbers_of_lines(texts):
    shown = without_indentation(texts)
    assert len(shown) == len(texts)
    for before, after in zip(texts, shown, strict=True):
        assert before.strip().endswith(after.strip()) or after.strip().partition("→")[2] in before
        assert set(re.findall(r"[ab]+", before)) == set(re.findall(r"[ab]+", after))


def test_dense_lines_keep_how_they_are_indented_against_each_other():
    assert without_indentation(["    12→\tif x:", "    13→\t\treturn 1"]) == ["12→if x:", "\treturn 1"]
    assert without_indentation(["      if x:", "        return 1"]) == ["if x:", "  return 1"]


def test_pieces_of_a_line_are_read_together_only_if_they_are_short_together():
    assert [said.text for said in statements(lines_of("Never " + "x" * 120 + "\nsecond"))] == [
        "Never " + "x" * 120,
        "second",
    ]
    parts = list(statements(lines_of("second " + "word " * 200)))
    assert "".join(said.text for said in parts) == "second " + "word " * 200
    assert [number for said in parts for number in said.numbers] == list(
        range(1, len(lines_of("second " + "word " * 200)) + 1)
    )


@given(histories(max_turns=6))
def test_a_line_is_the_same_however_it_is_asked_for(messages):
    history = read_history(messages)
    for turn in history.turns:
        lines = turn_lines(history, turn)
        every = list(lines)
        assert [lines[at] for at in range(len(lines))] == every == list(lines[:])
        assert all(lines.text_at(at).words(at) == line.text for at, line in enumerate(every))
        assert lines.to_read() == every
        for block in {line.block for line in every}:
            own = [line for line in every if line.block == block]
            assert list(lines.of_block(block)) == own
            assert [lines.of_block(block)[at] for at in range(len(own))] == own
            assert list(lines.outside({block})) == [line for line in every if line.block != block]
            some = {line.number for line in own[:: len(own) // 3 + 1]} | {0, len(every) + 1}
            assert lines.chosen(some, block) == [line for line in own if line.number in some]
        for said in ("user", "host", "agent", "tool"):
            assert list(lines.of_sources(said)) == [line for line in every if line.source == said]


def test_of_a_block_that_is_too_long_both_ends_are_read():
    lines = lines_of("\n".join(f"row {number}" for number in range(READ_LINES + 7)))
    half = READ_LINES // 2
    read = [line.number for line in lines.to_read()]
    assert read == [*range(1, half + 1), *range(half + 8, 2 * half + 8)]
    assert [line.text for line in lines.to_read()] == [f"row {number - 1}" for number in read]
