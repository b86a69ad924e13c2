"""The order of lines: every pick takes lines, whatever rounding makes of sums that should be equal."""

from dataclasses import replace

from planner.analysis import analyze
from planner.relevance.ranking import rank_lines

SAME = "The words are the same in every turn."


def test_a_line_that_is_next_but_for_rounding_is_picked_with_its_number():
    analysis = analyze([{"role": role, "content": SAME} for role in ("user", "assistant", "user")])
    relevance = replace(
        analysis.relevance,
        weights={"a_name": 8e-12},
        names={"t1": [("a_name",)], "t2": [("a_name",)], "t3": [()]},
        bases={"t1": [2.0], "t2": [1.0 - 4e-12], "t3": [1.0]},
        turn_weights={},
    )
    picks = list(rank_lines(analysis.evidence, relevance, {}, (), 10**6))
    assert sorted((pick.turn_id, pick.numbers) for pick in picks) == [("t1", (1,)), ("t2", (1,)), ("t3", (1,))]
