"""The trigger tables, row by row and as laws; time only ever comes in as a number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.session.pressure import LEVELS, Measurement, When, level_after, prompt_limit_tokens
from planner.prices import cache_prices

HAIKU = cache_prices("claude-haiku-5-5")


@pytest.mark.parametrize(
    ("level", "share", "after"),
    [
        ("normal", 0.79, "normal"),
        ("normal", 0.80, "warning"),
        ("normal", 0.96, "critical"),
        ("normal", 1.00, "exhausted"),
        ("warning", 0.76, "warning"),
        ("warning", 0.74, "normal"),
        ("critical", 0.91, "critical"),
        ("critical", 0.89, "warning"),
        ("exhausted", 0.96, "exhausted"),
        ("exhausted", 0.94, "critical"),
        ("exhausted", 0.20, "normal"),
    ],
)
def test_levels_rise_at_once_and_fall_late(level, share, after):
    assert level_after(level, round(share * 100_000), 100_000) == after


@given(st.lists(st.integers(0, 2_000), max_size=30), st.sampled_from([level for level, _ in LEVELS]))
def test_a_level_is_never_below_what_the_tokens_say(counts, level):
    for tokens in counts:
        level = level_after(level, tokens, 1_000)
        assert level == level_after(level, tokens, 1_000), "the same count moves nothing"
        assert tokens / 1_000 >= dict(LEVELS)[level] - 0.05
        assert level_after("normal", tokens, 1_000) in [name for name, at in LEVELS if at <= dict(LEVELS)[level]]


@pytest.mark.parametrize(
    ("window", "output", "limit"),
    [
        (200_000, 8_192, 191_808),
        (200_000, 64_000, 180_000),
        (32_000, 8_192, 24_000),
        (32_000, 64_000, 24_000),
    ],
)
def test_the_limit_leaves_room_for_the_answer(window, output, limit):
    assert prompt_limit_tokens(window, output) == limit


def measured(**changes):
    return Measurement(**{"tokens": 50_000, "limit_tokens": 100_000, "level": "normal", **changes})


@pytest.mark.parametrize(
    ("when", "changes", "fires"),
    [
        (When("always"), {}, True),
        (When("warning", level="warning"), {"level": "critical"}, True),
        (When("warning", level="warning"), {"level": "normal"}, False),
        (When("s06", tokens_over=50_000), {"tokens": 50_000}, True),
        (When("s06", tokens_over=50_000), {"tokens": 49_999}, False),
        (When("proactive", share_over=0.7), {"tokens": 70_000}, True),
        (When("proactive", share_over=0.7), {"tokens": 69_999}, False),
        (When("auto", room_under=13_000), {"tokens": 87_500}, True),
        (When("auto", room_under=13_000), {"tokens": 87_499}, False),
        (When("auto", room_under=13_000), {"tokens": 187_000, "limit_tokens": 200_000}, True),
        (When("idle", idle_seconds=3_600, tokens_over=10), {"idle_seconds": 3_600.0}, True),
        (When("idle", idle_seconds=3_600), {"idle_seconds": 3_599.0}, False),
        (When("asked", requested=True), {"requested": "tool"}, True),
        (When("asked", requested=True), {}, False),
        # 230,000 tokens read at 0.1 cost what 20,000 cost that are written at 1.25 instead of read
        (When("growth", growth_pays=True), {"goal_tokens": 20_000, "carried_tokens": 230_001}, True),
        (When("growth", growth_pays=True), {"goal_tokens": 20_000, "carried_tokens": 229_000}, False),
        (When("growth", growth_pays=True), {"goal_tokens": 0, "carried_tokens": 230_001}, False),
        # all of a prompt costs five times as much above 100,000 tokens
        (When("price", dearer=True), {"tokens": 100_001, "goal_tokens": 20_000, "prices": HAIKU}, True),
        (When("price", dearer=True), {"tokens": 100_000, "goal_tokens": 20_000, "prices": HAIKU}, False),
        (When("price", dearer=True), {"tokens": 150_000, "goal_tokens": 100_001, "prices": HAIKU}, False),
        (When("price", dearer=True), {"tokens": 150_000, "goal_tokens": 20_000}, False),
    ],
)
def test_rows(when, changes, fires):
    assert when.fires(measured(**changes)) is fires
