"""Cache arithmetic against the published figures, and the laws behind it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plan import Provenance, Usage
from planner.prices import (
    ModelPrices,
    PriceBand,
    cache_prices,
    carrying_costs_more,
    dollars,
    money,
    payback_calls,
    switch_dollars,
    switch_money,
)


def reading_at(price):
    """General prices but for what a token from the cache costs."""
    return ModelPrices(input=1, output=5, cache_read=price)


@pytest.mark.parametrize(
    ("kept_ratio", "read_price", "calls"),
    [
        (0.3, 0.1, 3.8),
        (0.3, 0.05, 8.0),
        (0.3, 0.025, 16.3),
        (0.15, 0.1, 1.1),
        (0.15, 0.05, 2.4),
        (0.15, 0.025, 4.8),
    ],
)
def test_payback_of_150k_tokens_behind_a_10k_prefix(kept_ratio, read_price, calls):
    removed = 150_000 * (1 - kept_ratio)
    assert payback_calls(150_000, removed, 10_000, reading_at(read_price)) == pytest.approx(calls, abs=0.05)


def test_removing_nothing_never_pays_back():
    assert payback_calls(100_000, 0, 10_000) == math.inf


@given(
    context=st.integers(1_000, 500_000),
    removed_ratio=st.floats(0.01, 0.9),
    prefix_ratio=st.floats(0, 1),
    read=st.sampled_from([0.1, 0.05, 0.025]),
)
def test_payback_is_where_both_courses_cost_the_same(context, removed_ratio, prefix_ratio, read):
    removed = context * removed_ratio
    prefix = (context - removed) * prefix_ratio
    calls = payback_calls(context, removed, prefix, reading_at(read))
    rewritten = context - removed - prefix
    leaving_alone = calls * read * context
    compacting = 1.25 * rewritten - read * rewritten + calls * read * (context - removed)
    assert compacting == pytest.approx(leaving_alone, rel=1e-6, abs=1e-3)


READS = st.sampled_from([0.1, 0.05, 0.025])


def carried(added, prices, kept, compacts):
    """What calls read beyond `kept`, of which each brings so much more, and what they compact for; `compacts` says
    when, by what was carried since the last time and the number of the call."""
    cost, grown, since = 0.0, 0, 0
    for number, tokens in enumerate(added):
        grown += tokens
        if compacts(since, number):
            cost, grown, since = cost + (prices.cache_write - prices.cache_read) * kept, 0, 0
        cost, since = cost + prices.cache_read * grown, since + grown
    return cost


@given(kept=st.integers(5_000, 100_000), growth=st.integers(10, 500), read=READS)
def test_where_each_call_adds_as_much_the_moment_is_that_of_the_least_cost_per_call(kept, growth, read):
    prices = reading_at(read)

    def cost(distance):
        return read * (kept + distance / 2) + (1.25 - read) * kept * growth / distance

    grown = since = 0
    while not carrying_costs_more(since, kept, prices):
        grown, since = grown + growth, since + grown
    best = math.sqrt(2 * growth * (1.25 - read) * kept / read)
    assert cost(grown) <= cost(best) * 1.05


@given(added=st.lists(st.integers(0, 30_000), max_size=9), kept=st.integers(1_000, 40_000), read=READS)
def test_whatever_comes_it_costs_at_most_twice_what_the_best_moments_would_have(added, kept, read):
    """The best are found by trying all; on top comes what the call carries at which the rent comes to the price."""
    prices = reading_at(read)
    ours = carried(added, prices, kept, lambda since, _: carrying_costs_more(since, kept, prices))
    chosen = (lambda _, number, when=when: bool(when >> number & 1) for when in range(2 ** len(added)))
    best = min(carried(added, prices, kept, compacts) for compacts in chosen)
    assert ours <= 2 * best + read * sum(added) + 1e-6


def test_prices_follow_the_model():
    assert cache_prices("claude-opus-5-5").cache_read == 0.05
    assert cache_prices("anthropic/claude-sonnet-5.5").cache_read == 0.05
    assert cache_prices("claude-fable-5.1-20261001").cache_read == 0.025
    assert cache_prices("claude-sonnet-4-5").cache_read == 0.1


LONG = PriceBand(above_tokens=272_000, input=2, output=1.5)


@pytest.mark.parametrize(
    ("model", "prices"),
    [
        ("claude-fable-5-2", ModelPrices(input=8, output=40, cache_read=0.025)),
        ("claude-mythos-5-2", ModelPrices(input=8, output=40, cache_read=0.025)),
        ("claude-mythos-5-1", ModelPrices(input=10, output=50, cache_read=0.025)),
        ("claude-opus-5", ModelPrices(input=5, output=25)),
        ("us.anthropic.claude-opus-4-8-v1:0", ModelPrices(input=5, output=25)),
        ("claude-sonnet-5[1m]", ModelPrices(input=2, output=10)),
        ("claude-haiku-4-5@20251001", ModelPrices(input=1, output=5)),
        (
            "claude-haiku-5-5",
            ModelPrices(input=0.1, output=0.5, bands=[{"above_tokens": 1e5, "input": 5, "output": 5}]),
        ),
        ("openai/gpt-6.2-sol", ModelPrices(input=2, output=10, cache_read=0.05, bands=[LONG])),
        ("openai:gpt-6.1-sol", ModelPrices(input=2, output=10, cache_read=0.05, bands=[LONG])),
        ("gpt-6.2-astra", ModelPrices(input=8, output=40, cache_read=0.05, bands=[LONG])),
        ("gpt-6-astra", ModelPrices(input=10, output=50, bands=[LONG])),
        ("gpt-6.1-terra", ModelPrices(input=1, output=5, cache_read=0.05, bands=[LONG])),
        ("gpt-6-luna", ModelPrices(input=0.1, output=0.5, bands=[LONG])),
        ("gemini-4-neon", ModelPrices(input=3, output=15, cache_read=0.05, cache_write=None)),
        ("gemini-4-hydrogen", ModelPrices(input=1.5, output=7.5, cache_read=0.05, cache_write=None)),
    ],
)
def test_the_prices_of_autumn_2026(model, prices):
    assert cache_prices(model) == prices


def test_a_prompt_above_a_band_is_dearer_as_a_whole():
    short, long = (Usage(input_tokens=size, output_tokens=1_000) for size in (272_000, 300_000))
    assert dollars("gpt-6.1-sol", short) == pytest.approx(0.272 * 2 + 0.001 * 10)
    assert dollars("gpt-6.1-sol", long) == pytest.approx(0.3 * 2 * 2 + 0.001 * 10 * 1.5)


def test_without_a_price_for_cache_writes_a_written_token_costs_as_much_as_any_other():
    written, plain = Usage(cache_creation_input_tokens=1_000), Usage(input_tokens=1_000)
    assert dollars("gemini-4-hydrogen", written) == dollars("gemini-4-hydrogen", plain)


PRICED = ["claude-opus-5-5", "anthropic/claude-sonnet-5.5", "claude-fable-5-1", "claude-haiku-5-5"]
MADE = Provenance(planner="model", model="claude-haiku-5-5", usage=Usage(input_tokens=1_000_000, requests=20))


@given(
    before=st.integers(2_000, 300_000),
    after=st.floats(0.01, 0.99),
    unchanged=st.floats(0, 1),
    model=st.sampled_from(PRICED),
)
def test_what_a_switch_costs_once_is_earned_by_what_it_saves_when_it_has_paid_back(before, after, unchanged, model):
    after = int(before * after)
    unchanged = int(after * unchanged)
    calls = payback_calls(before, before - after, unchanged, cache_prices(model))
    switch = switch_dollars(model, before, after, unchanged)
    assert switch["rebilled"] == pytest.approx(calls * switch["saved"], abs=1e-9)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_of_a_model_whose_price_is_not_known_nothing_is_said(before, after, unchanged):
    assert switch_dollars("nobodys-1", before, after, unchanged) == {}
    assert switch_dollars("", before, after, unchanged, MADE) == {"planning": pytest.approx(0.1)}
    assert dollars("nobodys-1", Usage(input_tokens=before + 1), Usage()) is None
    assert money(None, "7 tokens") == money(0.0, "7 tokens") == "7 tokens"
    assert switch_money({}) == ""


@given(st.floats(0.0001, 10**6))
def test_money_is_within_a_twentieth_and_no_longer_than_it_needs_to_be(amount):
    text = money(amount, "7 tokens").removeprefix("7 tokens ≈ $")
    assert float(text.replace(",", "")) == pytest.approx(amount, rel=0.05)
    assert "e" not in text


def test_money_is_said_in_one_way():
    assert money(0.0123) == "≈ $0.012"
    assert money(1234.5) == "≈ $1,234.50"
    assert money(0.00001) == "< $0.0001"
    switch = switch_dollars("claude-opus-5-5", 100_000, 20_000, 0, MADE)
    assert switch_money(switch) == "≈ $0.096 once, ≈ $0.016 less a call, planning ≈ $0.1"
