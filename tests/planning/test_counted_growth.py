"""Planning does no more for each part of a larger input: counted in calls of functions, for a clock is no law."""

from cProfile import Profile

import pytest

from planner import plan_compaction
from tests.bench.growth import TASK, calls_in_one_message, calls_in_turns, long_result, unanswered_calls

INPUTS = {
    "calls in one message": calls_in_one_message,
    "calls, each in a turn of its own": calls_in_turns,
    "messages with calls that nothing answers": unanswered_calls,
    "lines of one result": long_result,
}
LESS, MORE = 60, 480
SPARE = 1.2
"""Sorting, and that the first parts cost less than those of a list that is full."""


def plan(messages):
    plan_compaction(messages, TASK, target_ratio=0.1, planner="rules", now=0.0)


def counted(messages):
    """How often functions are called, built-in ones included, while `messages` are planned."""
    profile = Profile()
    profile.runcall(plan, messages)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.real
@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
def test_work_grows_with_an_input_and_no_faster(make):
    plan(make(MORE))  # what is loaded and remembered from then on is nobody's work
    assert counted(make(MORE)) / counted(make(LESS)) < SPARE * MORE / LESS
