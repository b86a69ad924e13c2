"""A field is one class: the kitchen of the documentation, with tools unknown to general code, beside programming."""

import re
from pathlib import Path

import pytest

from planner.analysis import analyze
from planner.evidence import gather_evidence
from planner.evidence import turns as fields
from planner.evidence.turns import call_head
from planner.programming import PROGRAMMING
from planner.reading.messages import read_history
from planner.reading.tokens import TokenCounter
from planner.rules import rules_brief

COUNTER = TokenCounter(vocabulary=None)


def documented_field():
    """Return the class that the page shows; its last line, which registers it, is the test's."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    (example,) = (block for block in blocks if "class Kitchen" in block)
    names = {}
    exec(example.rpartition("\n\nregister_field")[0], names)
    return names["Kitchen"]


PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
Kitchen = documented_field()


def cooked():
    steps = [
        ("heat", {"dish": "soup", "to": "90 °C"}, "It simmers."),
        ("taste", {"dish": "soup"}, "Fine herbs, but too salty for guests."),
        ("heat", {"dish": "soup", "to": "60 °C"}, "It cools down."),
        ("taste", {"dish": "soup"}, "Good."),
        ("Bash", {"command": "make menu"}, "Exit code 2\nmake: no rule"),
    ]
    messages = [{"role": "user", "content": "Cook a soup for six guests."}]
    for number, (name, arguments, answer) in enumerate(steps):
        use = {"type": "tool_use", "id": f"c{number}", "name": name, "input": arguments}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": answer}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return [*messages, {"role": "assistant", "content": "The soup is ready."}]


def test_general_evidence_knows_no_shell_and_no_kitchen():
    turns = gather_evidence(read_history(cooked()), COUNTER).turns
    assert {call.kind for turn in turns.values() for call in turn.calls} == {"other"}
    assert [turn_id for turn_id, turn in turns.items() if turn.failed] == ["t6"], "by its exit code"


def test_a_field_reads_its_own_tools_and_leaves_others_alone():
    evidence = gather_evidence(read_history(cooked()), COUNTER, fields=(PROGRAMMING, Kitchen()))
    calls = [call for turn in evidence.turns.values() for call in turn.calls]
    assert [call.kind for call in calls] == ["run", "read", "run", "read", "run"]
    assert [turn_id for turn_id, turn in evidence.turns.items() if turn.failed] == ["t3", "t6"]
    failed = evidence.turns["t3"]
    assert [one.text for one in failed.statements_of(failed.decisive_lines)] == [
        "Fine herbs, but too salty for guests."
    ]
    assert call_head(calls[1]) == "taste soup"
    assert evidence.turns["t3"].superseded_by == "t5", "tasted again"


@pytest.fixture
def kitchen():
    fields.register_field(Kitchen())
    yield
    fields._REGISTERED.clear()


@pytest.mark.usefixtures("kitchen")
def test_a_registered_field_reads_every_history_of_the_process_and_has_its_lines_on_the_page():
    assert "- soup: 60 °C (t4)" in rules_brief(analyze(cooked()).evidence).splitlines()
