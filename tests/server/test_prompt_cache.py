"""The bill: what is read, written and paid in full as a conversation grows, changes and rests."""

import pytest

from applier.testing import CACHE_READ_PRICES, PromptCache, PromptUsage, Request

MODEL = "claude-sonnet-5-5"
LONG = "word " * 3000


def charge(cache, *texts, marks=(), now=0.0, **body):
    content = [
        {"type": "text", "text": text, **({"cache_control": marks[at]} if at in marks else {})}
        for at, text in enumerate(texts)
    ]
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], **body}
    return cache.charge(Request(body, {}), now)


FIVE, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}


def test_without_marks_everything_is_paid_in_full():
    cache = PromptCache()
    first, again = charge(cache, LONG), charge(cache, LONG)
    assert first == again
    assert first.prompt_tokens == first.input_tokens


def test_a_marked_prefix_is_written_once_and_read_afterwards():
    cache = PromptCache()
    first = charge(cache, LONG, "a", marks={0: FIVE})
    second = charge(cache, LONG, "b", marks={0: FIVE})
    assert (first.written_5m, first.cache_read_input_tokens) == (second.cache_read_input_tokens, 0)
    assert (second.written_5m, second.input_tokens) == (0, first.input_tokens)


def test_a_growing_conversation_writes_only_what_is_new():
    cache = PromptCache()
    first = charge(cache, LONG, "a", marks={1: FIVE})
    second = charge(cache, LONG, "a", LONG, marks={2: FIVE})
    assert second.cache_read_input_tokens == first.written_5m
    assert second.written_5m == second.prompt_tokens - first.written_5m


def test_the_look_back_ends_after_twenty_blocks():
    cache = PromptCache()
    charge(cache, LONG, marks={0: FIVE})
    near = charge(cache, LONG, *"abcdefghijklmnopqrs", marks={19: FIVE})
    assert near.cache_read_input_tokens
    cache = PromptCache()
    charge(cache, LONG, marks={0: FIVE})
    far = charge(cache, LONG, *"abcdefghijklmnopqrst", marks={20: FIVE})
    assert not far.cache_read_input_tokens


def test_a_change_invalidates_everything_behind_it():
    cache = PromptCache()
    charge(cache, LONG, LONG, marks={0: FIVE, 1: FIVE})
    changed = charge(cache, LONG, LONG + "!", marks={0: FIVE, 1: FIVE})
    assert changed.cache_read_input_tokens == changed.prompt_tokens - changed.written_5m
    assert not charge(cache, "other " + LONG, marks={0: FIVE}).cache_read_input_tokens


def test_another_thinking_mode_keeps_the_system_prompt_and_loses_the_messages():
    cache = PromptCache()
    system = [{"type": "text", "text": LONG, "cache_control": FIVE}]
    first = charge(cache, LONG, marks={0: FIVE}, system=system)
    second = charge(cache, LONG, marks={0: FIVE}, system=system, thinking={"type": "adaptive"})
    assert 0 < second.cache_read_input_tokens < first.written_5m


def test_what_is_short_is_not_cached():
    cache = PromptCache()
    assert charge(cache, "short", marks={0: FIVE}) == charge(cache, "short", marks={0: FIVE})


def test_an_entry_lives_five_minutes_from_its_last_use_or_an_hour():
    cache = PromptCache()
    charge(cache, LONG, marks={0: FIVE})
    assert charge(cache, LONG, marks={0: FIVE}, now=299).cache_read_input_tokens
    assert charge(cache, LONG, marks={0: FIVE}, now=598).cache_read_input_tokens
    assert not charge(cache, LONG, marks={0: FIVE}, now=899).cache_read_input_tokens
    hour = charge(cache, "hour " + LONG, marks={0: HOUR})
    assert hour.written_1h
    assert charge(cache, "hour " + LONG, marks={0: HOUR}, now=3599).cache_read_input_tokens


def test_the_bill_at_three_prices():
    cache = PromptCache()
    usages = [charge(cache, LONG, marks={0: FIVE}) for _ in range(3)]
    bill, size = sum(usages, PromptUsage()), usages[0].prompt_tokens
    assert bill.prompt_tokens == 3 * size
    for price in CACHE_READ_PRICES:
        assert bill.cost(price) == pytest.approx(size * (1.25 + 2 * price))
