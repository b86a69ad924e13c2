"""The breaker as a state table with a clock that is set by hand."""

from hypothesis import given
from hypothesis import strategies as st

from applier.session.planning import Planning
from applier.settings import SessionSettings
from tests.session.agent import Clock


def planning(clock, **settings):
    return Planning("rules", None, SessionSettings(**settings), clock, lambda *event: None)


def test_opens_after_three_failures_and_lets_one_trial_through():
    clock = Clock()
    planner = planning(clock, rest_seconds=60)
    for _ in range(2):
        planner.failed(ValueError())
        assert planner.breaker == "closed"
    planner.failed(ValueError())
    clock.pass_(59)
    assert planner.breaker == "open"
    clock.pass_(1)
    assert planner.breaker == "half_open"
    planner.failed(ValueError())
    clock.pass_(1)
    assert planner.breaker == "open", "a failed trial opens it again at once"
    planner.succeeded()
    assert planner.breaker == "closed"


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 400))))
def test_a_success_closes_it_and_an_open_one_had_failures(steps):
    clock = Clock()
    planner = planning(clock)
    for fails, seconds in steps:
        clock.pass_(seconds)
        planner.failed(ValueError()) if fails else planner.succeeded()
        if not fails:
            assert planner.breaker == "closed"
        if planner.breaker != "closed":
            assert planner.failures >= 3
