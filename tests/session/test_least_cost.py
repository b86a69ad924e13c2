"""The bound that presets are held against is the least over all moments at which could be compacted."""

from itertools import combinations
from math import inf, isclose

from hypothesis import given
from hypothesis import strategies as st

from planner.prices import WRITE_5_MINUTES
from tests.bench.least_cost import Arrivals, least_cost


def cost_of(of, price, kept_share, room, moments, appends):
    """What a session costs that is compacted before the calls in `moments`."""
    cost, prompt, same = 0.0, 0.0, 0.0
    for call, new in enumerate(of.new):
        fixed = (price if call else WRITE_5_MINUTES) * of.fixed
        if call in moments:
            kept = kept_share * min(sum(of.new[:call]), room)
            prompt, cost = kept + new, cost + fixed + WRITE_5_MINUTES * (kept - same + new) + price * same
            same = kept if appends else 0.0
        else:
            cost, prompt = cost + fixed + price * prompt + WRITE_5_MINUTES * new, prompt + new
            if prompt > room and call:
                return inf
    return cost


@given(
    st.lists(st.integers(1, 5_000), min_size=1, max_size=7),
    st.integers(0, 3_000),
    st.sampled_from((0.1, 0.05, 0.025)),
    st.sampled_from((0.0, 0.1, 0.5, 1.0)),
    st.integers(6_000, 40_000),
    st.booleans(),
)
def test_no_choice_of_moments_is_cheaper_and_one_is_as_cheap(new, fixed, price, kept_share, room, appends):
    of = Arrivals(tuple(new), fixed)
    after_first = range(1, len(new))
    choices = [moments for count in range(len(new)) for moments in combinations(after_first, count)]
    costs = [cost_of(of, price, kept_share, room, moments, appends) for moments in choices]
    assert isclose(least_cost(of, price, kept_share, room, appends=appends), min(costs))
