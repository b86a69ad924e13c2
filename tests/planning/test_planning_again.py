"""A history that grew is planned from where it grew: the same plan and view as from scratch, at every length."""

from hypothesis import given
from hypothesis import strategies as st

from planner.analysis import Analysis, analyze
from planner.api import plan_analysis
from planner.plan import CompactionPlan
from planner.rules import RulesPlanner
from tests.strategies import histories

SHARES = st.sampled_from((0.05, 0.2, 0.5, 0.9))
FOCUSES = st.sampled_from(("", "src/a.py", "the report"))
AGAIN = [
    {"role": "assistant", "content": "I read src/a.py again and run its tests."},
    {"role": "user", "content": "Never touch src/a.py, and go on."},
]
"""Turns that say the same stand at two places."""


def planned(analysis: Analysis, share: float, focus: str) -> CompactionPlan:
    target = max(1, int(analysis.tokens * share))
    return plan_analysis(analysis, "Go on", target_tokens=target, focus=focus, planner=RulesPlanner(), now=0.0)


@given(histories(), st.booleans(), st.data())
def test_planning_again_is_planning_from_scratch(messages, repeats, data):
    messages = [*messages, *AGAIN, *AGAIN] if repeats else messages
    known = None
    for end in [*sorted(data.draw(st.lists(st.integers(0, len(messages)), max_size=2))), len(messages)]:
        share, focus = data.draw(SHARES), data.draw(FOCUSES)
        known = analyze(messages[:end], known=known)
        grown, fresh = planned(known, share, focus), planned(analyze(messages[:end]), share, focus)
        assert grown == fresh
        assert grown.bound.layout.messages == fresh.bound.layout.messages
