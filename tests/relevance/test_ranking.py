"""The order of lines: every pick takes lines, whatever rounding makes of sums that should be equal."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

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


def called(number, name, result, **arguments):
    use = {"type": "tool_use", "id": f"c{number}", "name": name, "input": arguments}
    answer = {"type": "tool_result", "tool_use_id": f"c{number}", "content": result}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]


ACTS = st.sampled_from(["refund_order", "cancelTrip", "update_seat", "send_mail"])


@given(ACTS, st.integers(1, 99), st.integers(30, 60), st.integers(0, 3))
def test_what_was_done_stands_before_lines_that_are_only_names(name, number, count, place):
    rows = [f"some_body{row % 9}@shop.example order-{97 * row}" for row in range(count)]
    calls = [called(at, "get_orders", "\n".join(rows[at::3]), page=at) for at in range(3)]
    calls.insert(place, called(9, name, "ok", id=number))
    messages = [{"role": "user", "content": "Go on."}, *(message for call in calls for message in call)]
    messages += [{"role": "assistant", "content": "So far."}, {"role": "user", "content": "Next?"}]
    analysis = analyze(messages)
    picks = rank_lines(analysis.evidence, analysis.relevance, {"t1": frozenset({1})}, ("t6", "t7"), 10**6)
    assert next(picks).turn_id == f"t{place + 2}"
