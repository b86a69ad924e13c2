"""Hostile text of any shape is read: long lines that used to take minutes, and a thousand calls in one message."""

import pytest

from planner.analysis import analyze
from planner.evidence import gather_evidence
from planner.evidence.calls import CallReading
from planner.evidence.grounding import NameIndex, invented
from planner.evidence.hosts import answered_offer, is_host_text, without_boilerplate
from planner.evidence.words import parts_of, specifics_of, without_root
from planner.programming import PROGRAMMING
from planner.programming.command_failures import check_outcomes, recoveries
from planner.programming.repository import branches, changed_files, common_root, file_paths
from planner.reading.lines import Lines, turn_lines
from planner.reading.messages import read_history
from planner.reading.tokens import TokenCounter
from planner.rules import latest_request, urls

SIZE = 32_768
SHAPES = (
    ".", "-", "/", "a", " ", "_", "0", "~", ":", "\\", "<", "\"", "a/", "A_", "a.", "a-", "a:", "1,", "1.", "a b ", "=",
    "a=a ",
    "./", "/a", "/a ", "https://", "error: ", "x: ", "\"=\"", "<reminder>", "</reminder>", "[", "(", "'", "t1-", "é",
    "if ", "no a ", "that didn't work if ", "f(0x",
    "\ud800",
)  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_line_of_anything_is_read(shape):
    line = (shape * SIZE)[:SIZE]
    index = NameIndex([line])
    invented(line, index)
    for name in specifics_of(line):
        parts_of(name)
    without_root(line, common_root(file_paths(line)) or "/a")
    is_host_text(line)
    without_boilerplate(line)
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": line, "path": line}}
    messages = [
        {"role": "user", "content": line},
        {"role": "assistant", "content": [{"type": "text", "text": line}, call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": line}]},
        {"role": "assistant", "content": line},
        {"role": "user", "content": "yes"},
    ]
    evidence = analyze(messages).evidence
    assert evidence.turns["t2"].calls[0].kind == "run"
    for told in (changed_files, check_outcomes, urls, branches):
        told(evidence)
    latest_request(evidence)
    recoveries(evidence)


class Counted:
    """Counts how often something is taken out of it."""

    taken = 0

    def __iter__(self):
        for one in super().__iter__():
            type(self).taken += 1
            yield one


class CountedBlocks(Counted, list):
    """A list that does."""


class CountedNumbers(Counted, frozenset):
    """Numbers that do."""


class CountedTexts(Counted, tuple):
    """Texts that do."""


@pytest.mark.parametrize("calls", [10, 1_000])
def test_each_block_is_taken_as_often_whatever_the_number_of_calls(calls):
    uses = [
        {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": f"make t{n}"}} for n in range(calls)
    ]
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "Exit code 1\nno"} for n in range(calls)]
    content = CountedBlocks(results)
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": content},
    ]
    history = read_history(messages)
    CountedBlocks.taken = 0
    turn = gather_evidence(history, TokenCounter(vocabulary=None)).turns["t2"]
    assert CountedBlocks.taken <= 8 * calls
    assert len([outcome for outcome in turn.outcomes if outcome.status == "failed"]) == calls


def test_what_many_texts_do_not_hold_is_not_looked_for_in_each_of_them_for_ever():
    texts = CountedBlocks(f"wrote src/file_{n}.py" for n in range(2_000))
    index = NameIndex(texts)
    CountedBlocks.taken = 0
    assert [invented(f"wrote src/file_{n}.py", index) for n in range(1_000, 2_000)] == [[]] * 1_000
    assert invented("wrote src/file_2001.py", index) == ["src/file_2001.py"]
    assert CountedBlocks.taken <= 300_000


def test_the_lines_of_each_of_many_calls_are_chosen_without_looking_at_those_of_others():
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "a\nb"} for n in range(500)]
    uses = [{"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": "make"}} for n in range(500)]
    history = read_history([{"role": "assistant", "content": uses}, {"role": "user", "content": results}])
    lines = Lines(CountedTexts(turn_lines(history, history.turns[0]).texts))
    numbers = CountedNumbers(range(1, len(lines) + 1, 2))
    chosen = [line.number for block in range(1_000) for line in lines.chosen(numbers, block)]
    assert chosen == sorted(numbers)
    assert [line.number for block in range(1_000) for line in lines.of_block(block)] == [*range(1, len(lines) + 1)]
    assert CountedNumbers.taken <= 2 * len(numbers)
    assert CountedTexts.taken <= 2 * len(lines.texts)


def test_an_answer_is_looked_for_in_a_long_offer():
    assert answered_offer("1", ()) is None
    assert PROGRAMMING.read_call("Bash", {}, CallReading()).kind == "run"
