"""What tokens cost: in dollars, and in cache terms what changing a prompt's prefix costs and when it has paid back.

Cache prices are in units of the model's input price. Dollars are known of the few models that plan; of others nothing
is said rather than guessed. Knows nothing of sessions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.plan import Provenance, Usage
from planner.reading.messages import field_of
from planner.settings import ModelPrices

__all__ = [
    "CACHE_LIFETIME_SECONDS",
    "CACHE_READ_PRICES",
    "WRITE_5_MINUTES",
    "billed_tokens",
    "cache_prices",
    "cached_prompt",
    "carrying_costs_more",
    "dollars",
    "dollars_at_most",
    "is_warm",
    "money",
    "payback_calls",
    "register_prices",
    "switch_dollars",
    "switch_money",
]

WRITE_5_MINUTES = 1.25
"""Writing a prefix to the cache (Anthropic, prompt caching)."""
CACHE_READ_PRICES = (0.1, 0.05, 0.025)
"""Reading it: the general price, Opus and Sonnet 5.5, Fable and Mythos 5.1."""
CACHE_LIFETIME_SECONDS = 300
"""How long an unread 5-minute entry lives; after that nothing is left to invalidate."""
_MARGIN_SECONDS = 15
"""A prefix that goes cold while a question behind it is under way is cold already."""
DEAREST = "fable-5-1"
LEAST_DOLLARS = 0.0001
"""Less is said to be less."""
_MILLION = 1_000_000


_PRICES = {
    "fable-5-1": ModelPrices(input=10, output=50, cache_read=0.025),
    "mythos-5-1": ModelPrices(input=10, output=50, cache_read=0.025),
    "opus-5-5": ModelPrices(input=4, output=20, cache_read=0.05),
    "sonnet-5-5": ModelPrices(input=2, output=10, cache_read=0.05),
    "haiku-5-5": ModelPrices(input=0.1, output=0.5, long_prompt_factor=5),
}
"""By what stands in a name (Anthropic, "Pricing" and the models' own pages, as of November 2026)."""
_GENERAL = ModelPrices(input=1, output=5)
_OWN: dict[str, ModelPrices] = {}
"""Likewise, as the user says; these come first."""


def is_warm(idle_seconds: float, lifetime_seconds: float = CACHE_LIFETIME_SECONDS) -> bool:
    """True if a question can still be asked behind a prefix that was last read so long ago."""
    return idle_seconds + _MARGIN_SECONDS <= lifetime_seconds


def register_prices(prices: Mapping[str, ModelPrices]) -> None:
    """Take over the user's own `prices`, by what stands in a model's name, in place of what is known here."""
    _OWN.update({_plain_name(name): own for name, own in prices.items()})


def _plain_name(model: str) -> str:
    return model.lower().replace(".", "-")


def _prices_of(model: str) -> ModelPrices | None:
    """What `model` charges, as any provider spells its name; None if that is not known."""
    name, known = _plain_name(model), (*_OWN.items(), *_PRICES.items())
    return next((prices for own, prices in known if own in name), None)


def cache_prices(model: str = "") -> ModelPrices:
    """What `model` charges for its cache, in units of its input; the general prices if it is not known."""
    return _prices_of(model) or _GENERAL


def payback_calls(
    context_tokens: float,
    removed_tokens: float,
    unchanged_prefix_tokens: float,
    prices: ModelPrices = _GENERAL,
    extra_cost_tokens: float = 0.0,
) -> float:
    """After how many calls removing tokens from a cached context costs less than leaving it alone.

    Of a context of C tokens with an unchanged prefix of p, removing S writes the C - p - S behind the first
    change anew, once, and saves r * S a call: N = (w - r)(C - p - S) / (r * S), where neither prompt is a long one, and
    the price of the planner's own call, in input tokens, on top. Infinite if nothing is removed.
    """
    left = context_tokens - removed_tokens
    rewritten = max(0.0, left - unchanged_prefix_tokens)
    after = prices.factor(left)
    saved = prices.cache_read * (prices.factor(context_tokens) * context_tokens - after * left)
    if removed_tokens <= 0 or saved <= 0:
        return math.inf
    return (after * (prices.cache_write - prices.cache_read) * rewritten + extra_cost_tokens) / saved


def carrying_costs_more(carried_tokens: float, kept_tokens: float, prices: ModelPrices) -> bool:
    """True once it has cost as much to go on as a compaction costs that leaves `kept_tokens`.

    `carried_tokens` is what all calls since the last one have read beyond what one would leave, at r a token: rent. To
    buy is to write anew what stays, (w - r) a token. Who knows nothing of the calls to come and buys when the rent
    comes to the price pays at most twice what he would have, had he known them all, and no rule does better (ski
    rental; for what keeps growing Dooly, Goldman and Scott, "TCP dynamic acknowledgment delay", 1998). Where each call
    adds g tokens that is after sqrt(2 g (w - r) kept / r) of them, when a call costs least on average.
    """
    return prices.cache_read * carried_tokens >= (prices.cache_write - prices.cache_read) * kept_tokens


def dollars(model: str, *usages: Usage) -> float | None:
    """What `usages` cost with `model`, together; None if its price is not known.

    An estimate: requests of one of them count as equally long.
    """
    prices = _prices_of(model)
    if prices is None:
        return None if any(usage != Usage() for usage in usages) else 0.0
    return sum(_cost(prices, usage) for usage in usages)


def dollars_at_most(model: str, usage: Usage) -> float:
    """What `usage` costs with `model`; by the dearest price that is known if its own is not."""
    known = dollars(model, usage)
    return (dollars(DEAREST, usage) or 0.0) if known is None else known


def _cost(prices: ModelPrices, usage: Usage) -> float:
    read = usage.cache_read_input_tokens * prices.cache_read
    written = usage.cache_creation_input_tokens * prices.cache_write
    cost = (usage.input_tokens + read + written) * prices.input + usage.output_tokens * prices.output
    return cost * prices.factor(usage.prompt_tokens / max(1, usage.requests)) / _MILLION


def cached_prompt(read_tokens: int, written_tokens: int = 0) -> Usage:
    """The usage of a prompt that a cache has but for its end, which is written to it."""
    return Usage(cache_read_input_tokens=read_tokens, cache_creation_input_tokens=written_tokens)


def billed_tokens(usage: object, name: str) -> int:
    """What `usage` of an answer (a dict, or the SDK's) bills under `name`, such as ``input_tokens``.

    The server's own compactions stand in ``iterations`` alone, not in the fields beside it (``BetaUsage`` in the SDK).
    """
    entries = field_of(usage, "iterations")
    compactions = [e for e in entries if field_of(e, "type") == "compaction"] if isinstance(entries, list) else []
    values = (field_of(part, name) for part in (usage, *compactions))
    return sum(value for value in values if isinstance(value, int) and value > 0)


def switch_dollars(
    model: str, before: int, after: int, unchanged: int, made: Provenance | None = None
) -> dict[str, float]:
    """What it costs to go on with a prompt of `after` tokens, the first `unchanged` as they were, in place of `before`.

    ``rebilled`` once: what stands behind the first change is written to the cache, where it would have been read from
    it; ``saved`` by each call from then on; ``planning``: the plan that was `made`. Without what is not known.
    """
    prices, planning = _prices_of(model), dollars(made.model, made.usage) if made else None
    spent = {"planning": planning} if planning else {}
    if prices is None:
        return spent
    kept = min(unchanged, after)
    prompts = cached_prompt(before), cached_prompt(after), cached_prompt(kept, after - kept)
    now, later, first = (_cost(prices, prompt) for prompt in prompts)
    return {"rebilled": first - later, "saved": max(0.0, now - later), **spent}


def money(amount: float | None, text: str = "") -> str:
    """`text` with `amount` dollars behind it, ``1,200 tokens ≈ $0.012``; `text` alone if they are none or unknown."""
    if not amount:
        return text
    number = f"{amount:,.2f}" if amount >= 1 else f"{max(amount, LEAST_DOLLARS):.2g}"
    return f"{text} {'≈' if amount >= LEAST_DOLLARS else '<'} ${number}".strip()


def switch_money(dollars: Mapping[str, float]) -> str:
    """What `switch_dollars` says, in words: ``≈ $0.12 once, ≈ $0.016 less a call, planning ≈ $0.02``; or nothing."""
    forms = {"rebilled": "{} once", "saved": "{} less a call", "planning": "planning {}"}
    return ", ".join(form.format(money(dollars[name])) for name, form in forms.items() if dollars.get(name))
