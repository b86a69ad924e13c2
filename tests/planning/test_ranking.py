"""The order of lines: every pick takes lines, whatever rounding makes of sums that should be equal."""

from array import array
from dataclasses import replace

from planner.analysis import analyze
from planner.evidence.line_names import Rows
from planner.relevance.ranking import rank_lines

SAME = "The words are the same in every turn."


def test_a_line_that_is_next_but_for_rounding_is_picked_with_its_number():
    analysis = analyze([{"role": role, "content": SAME} for role in ("user", "assistant", "user")])
    named, nothing = Rows(array("I", [0]), array("I", [0, 1])), Rows(array("I"), array("I", [0, 0]))
    relevance = replace(
        analysis.relevance,
        weights=array("d", [8e-12]),
        names={"t1": named, "t2": named, "t3": nothing},
        bases={"t1": array("d", [2.0]), "t2": array("d", [1.0 - 4e-12]), "t3": array("d", [1.0])},
        turn_weights={},
    )
    picks = list(rank_lines(analysis.evidence, relevance, {}, (), 10**6))
    assert sorted((pick.turn_id, pick.numbers) for pick in picks) == [("t1", (1,)), ("t2", (1,)), ("t3", (1,))]
