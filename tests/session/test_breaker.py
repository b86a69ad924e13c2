"""The breaker as a state table with a given clock."""

from hypothesis import given
from hypothesis import strategies as st

from applier.session.planning import Breaker


def test_opens_after_three_failures_and_lets_one_trial_through():
    breaker = Breaker(rest_seconds=60)
    for _ in range(2):
        breaker = breaker.failed(100.0)
        assert breaker.state(100.0) == "closed"
    breaker = breaker.failed(100.0)
    assert breaker.state(159.0) == "open"
    assert breaker.state(160.0) == "half_open"
    assert breaker.failed(160.0).state(161.0) == "open", "a failed trial opens it again at once"
    assert breaker.succeeded().state(161.0) == "closed"


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 400))))
def test_a_success_closes_it_and_an_open_one_had_failures(steps):
    breaker, now = Breaker(), 0.0
    for fails, seconds in steps:
        now += seconds
        breaker = breaker.failed(now) if fails else breaker.succeeded()
        if not fails:
            assert breaker.state(now) == "closed"
        if breaker.state(now) != "closed":
            assert breaker.failures >= breaker.max_failures
