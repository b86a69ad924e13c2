"""Computes the price of tokens in dollars, and after how many calls a change to a cached prompt has paid back.

Prices of the provider's cache are in units of the model's input price. The user's own prices take precedence over the
table of the package ``genai-prices``, and that over `_UNLISTED`. For a model in none of these, no dollars are shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from planner.plan import Provenance, Usage
from planner.reading.messages import field_of
from planner.reading.tokens import published_model

WRITE_5_MINUTES = 1.25
"""Price of writing a token to a cache of 5 minutes, in units of the input price (Anthropic, prompt caching)."""
CACHE_READ_PRICES = (0.1, 0.05, 0.025)
"""Prices of reading a token from the cache, in units of the input price: in general, for Opus and Sonnet 5.5, and for
Fable from 5.1 on."""
CACHE_LIFETIME_SECONDS = 300
"""Seconds for which the beginning of a prompt stays in a 5-minute cache after it was last read."""
_MARGIN_SECONDS = 15
"""Seconds before its end at which a cache already counts as expired, because a request takes time to arrive."""
LEAST_DOLLARS = 0.0001
"""Smallest amount that is shown as it is; a smaller one is shown as less than this."""
_MILLION = 1_000_000


class PriceBand(BaseModel):
    """Other prices for requests with a long prompt; they apply to the whole request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    above_tokens: int = Field(ge=1)
    """Size of the prompt, in tokens, above which these prices apply."""
    input: float = Field(default=1.0, gt=0)
    """Factor for the model's `input` price, and so for the prices of its cache, if the prompt is long."""
    output: float = Field(default=1.0, gt=0)
    """Factor for the model's `output` price if the prompt is long."""


class ModelPrices(BaseModel):
    """Prices of one model. The defaults are Anthropic's general ratios of cache prices to the input price."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(gt=0)
    """Dollars for a million tokens of a prompt."""
    output: float = Field(gt=0)
    """Dollars for a million tokens of an answer."""
    cache_read: float = Field(default=0.1, gt=0, le=1)
    """Price of a token that is read from the cache, in units of `input`."""
    cache_write: float | None = Field(default=1.25, ge=1)
    """Price of a token that is written to the cache, in units of `input`; None if writing costs nothing more."""
    bands: tuple[PriceBand, ...] = ()
    """Other prices for longer prompts, if the provider has some."""

    @property
    def write_price(self) -> float:
        """Price of a token that is written to the cache, in units of `input`."""
        return self.cache_write or 1.0

    def factor(self, prompt_tokens: float) -> float:
        """Return the factor by which the prices of a prompt of `prompt_tokens` are multiplied; 1 for a short one."""
        band = self._band(prompt_tokens)
        return band.input if band else 1.0

    def output_factor(self, prompt_tokens: float) -> float:
        """Return the factor by which the price of an answer is multiplied if its prompt has `prompt_tokens`."""
        band = self._band(prompt_tokens)
        return band.output if band else 1.0

    def _band(self, prompt_tokens: float) -> PriceBand | None:
        """Return the prices that apply to a prompt of `prompt_tokens`; None if it is shorter than all their limits."""
        reached = [band for band in self.bands if prompt_tokens > band.above_tokens]
        return max(reached, key=lambda band: band.above_tokens, default=None)


_GENERAL = ModelPrices(input=1, output=5)
"""Prices of an unknown model in relation to each other; they are no dollars."""
_ASSUMED = ModelPrices(input=10, output=50)
"""Prices assumed for an unknown model: those of the dearest current Claude model (Claude Fable 5.1), with the general
price of reads from the cache. The model may cost more."""
_LONG = PriceBand(above_tokens=272_000, input=2, output=1.5)
"""Prices of OpenAI's models for long prompts."""
_UNLISTED = {
    "mythos-5-1": ModelPrices(input=10, output=50, cache_read=0.025),
    "gpt-6-2-sol": ModelPrices(input=2, output=10, cache_read=0.05, bands=(_LONG,)),
    "gpt-6-2-astra": ModelPrices(input=8, output=40, cache_read=0.05, bands=(_LONG,)),
    "gemini-4-neon": ModelPrices(input=3, output=15, cache_read=0.05, cache_write=None),
    "gemini-4-hydrogen": ModelPrices(input=1.5, output=7.5, cache_read=0.05, cache_write=None),
}
"""Prices of November 2026 that the package ``genai-prices`` lacks, by a part of the model's name. Its table takes
precedence once it has them."""
_REGISTERED: dict[str, ModelPrices] = {}
"""User's own prices, by a part of the model's name."""


def is_warm(idle_seconds: float, lifetime_seconds: float = CACHE_LIFETIME_SECONDS) -> bool:
    """Return True if a prompt that was last read `idle_seconds` ago is still in the provider's cache when a request
    sent now arrives."""
    return idle_seconds + _MARGIN_SECONDS <= lifetime_seconds


def register_prices(prices: Mapping[str, ModelPrices]) -> None:
    """Use the user's own `prices`, by a part of a model's name, in this process instead of the published ones."""
    _REGISTERED.update({_plain_name(name): model_prices for name, model_prices in prices.items()})


def _plain_name(model: str) -> str:
    """Return the name `model` in the spelling of the tables: ``gpt-6-2-sol`` for ``gpt-6.2-sol``."""
    return model.lower().replace(".", "-")


def _prices_of(model: str) -> ModelPrices | None:
    """Return the prices of `model`, which may be spelled as any provider does; None if they are not known."""
    return _listed(_REGISTERED, model) or _published(model) or _listed(_UNLISTED, model)


def _listed(table: Mapping[str, ModelPrices], model: str) -> ModelPrices | None:
    """Return the prices in `table` with a key that is a part of the name `model`; None without one."""
    name = _plain_name(model)
    return next((prices for part, prices in table.items() if part in name), None)


@lru_cache(maxsize=256)
def _published(model: str) -> ModelPrices | None:
    """Return today's prices of `model` from the package ``genai-prices``; None if it has none for input and output."""
    entry = published_model(model) if model else None
    if entry is None:
        return None
    prices = entry.get_prices(datetime.now(UTC))
    base = {key: _price(prices, key) for key in ("input", "output", "cache_read", "cache_write")}
    if not base["input"] or not base["output"]:
        return None
    read, write = (round(base[key] / base["input"], 6) for key in ("cache_read", "cache_write"))
    return ModelPrices(
        input=base["input"],
        output=base["output"],
        cache_read=min(1.0, read) or _GENERAL.cache_read,
        cache_write=max(1.0, write) if write else None,
        bands=tuple(_bands(prices, base)),
    )


def _bands(prices: Any, base: Mapping[str, float]) -> Iterator[PriceBand]:
    """Yield the other prices for long prompts in `prices`, an object of ``genai-prices``, as factors of the `base`
    prices for short ones."""
    for start in sorted({tier.start for tier in getattr(prices.input_mtok, "tiers", ())}):
        factors = {key: _price(prices, key, start) / base[key] for key in ("input", "output")}
        yield PriceBand(above_tokens=start, **factors)


def _price(prices: Any, key: str, prompt_tokens: int = 0) -> float:
    """Return dollars for a million tokens of the kind `key`, such as ``cache_read``, by `prices`, an object of
    ``genai-prices``; 0 without such a price. `prompt_tokens`: size of the prompt, on which the price may depend."""
    price = getattr(prices, f"{key}_mtok", None)
    if price is None or not hasattr(price, "tiers"):
        return float(price or 0)
    reached = [tier.price for tier in price.tiers if tier.start <= prompt_tokens]
    return float(reached[-1] if reached else price.base)


def cache_prices(model: str = "") -> ModelPrices:
    """Return the prices of `model`, to compare costs. If they are not known, they are general ratios, not dollars."""
    return _prices_of(model) or _GENERAL


def payback_calls(
    context_tokens: float,
    removed_tokens: float,
    unchanged_prefix_tokens: float,
    prices: ModelPrices = _GENERAL,
    extra_cost_tokens: float = 0.0,
) -> float:
    """Return the number of calls after which removing tokens from a cached prompt has paid back, as the rest must be
    written to the cache again; infinite if it never does.

    S tokens are removed from a prompt of C tokens, and its first p tokens are unchanged. Then the C - p - S tokens
    after the first change are written to the cache again, once, at a price of w instead of r each. Each call saves
    r * S. With the same prices before and after, the number is (w - r)(C - p - S) / (r * S).

    `extra_cost_tokens`: other cost of the change, such as the planner's call, in input tokens.
    """
    remaining = context_tokens - removed_tokens
    rewritten = max(0.0, remaining - unchanged_prefix_tokens)
    factor_after = prices.factor(remaining)
    saved = prices.cache_read * (prices.factor(context_tokens) * context_tokens - factor_after * remaining)
    if removed_tokens <= 0 or saved <= 0:
        return math.inf
    return (factor_after * (prices.write_price - prices.cache_read) * rewritten + extra_cost_tokens) / saved


def carrying_costs_more(carried_tokens: float, kept_tokens: float, prices: ModelPrices) -> bool:
    """Return True as soon as going on without a compaction has cost as much as one that leaves `kept_tokens`.

    `carried_tokens`: the tokens that a compaction would have removed, added up over all calls since the last one. They
    cost r each, the price of a read: this is the rent. A compaction writes the kept tokens again, at w - r each: this
    is the price of buying. Later calls are not known. To buy when the rent reaches the price costs at most twice the
    best choice in hindsight, and no rule does better (the ski rental problem). For growing sizes see Dooly, Goldman and
    Scott, "TCP dynamic acknowledgment delay", 1998. If each call adds g tokens, this happens after
    sqrt(2 g (w - r) kept / r) added tokens, where a call costs least on average.
    """
    return prices.cache_read * carried_tokens >= (prices.write_price - prices.cache_read) * kept_tokens


def dollars(model: str, *usages: Usage) -> float | None:
    """Return the estimated cost in dollars of all `usages` of `model`; None if its prices are not known. A usage of no
    tokens costs nothing with any model."""
    prices = _prices_of(model)
    if prices is None:
        return None if any(usage != Usage() for usage in usages) else 0.0
    return sum(_cost(prices, usage) for usage in usages)


def has_prices(model: str) -> bool:
    """Return True if the prices of `model` are known."""
    return _prices_of(model) is not None


def assumed_dollars(model: str, usage: Usage) -> float:
    """Return the estimated cost in dollars of `usage` of `model`. If its prices are not known (`has_prices`), those of
    the dearest current Claude model are assumed, which may be too low."""
    return _cost(_prices_of(model) or _ASSUMED, usage)


def _cost(prices: ModelPrices, usage: Usage) -> float:
    """Return the cost of `usage` in dollars. All its requests count as equally long."""
    read = usage.cache_read_input_tokens * prices.cache_read
    written = usage.cache_creation_input_tokens * prices.write_price
    prompt = usage.prompt_tokens / max(1, usage.requests)
    entered = (usage.input_tokens + read + written) * prices.input * prices.factor(prompt)
    return (entered + usage.output_tokens * prices.output * prices.output_factor(prompt)) / _MILLION


def cached_prompt(read_tokens: int, written_tokens: int = 0) -> Usage:
    """Return the usage of a prompt: its first `read_tokens` come from the cache, its last `written_tokens` go there."""
    return Usage(cache_read_input_tokens=read_tokens, cache_creation_input_tokens=written_tokens)


def billed_tokens(usage: object, name: str) -> int:
    """Return the tokens of the kind `name`, such as ``input_tokens``, that are billed for a response. `usage`: field of
    the response, a dict or an object of the SDK. Compactions by the provider itself are only in its ``iterations``, not
    in the other fields (``BetaUsage`` in the SDK)."""
    steps = field_of(usage, "iterations")
    compactions = [step for step in steps if field_of(step, "type") == "compaction"] if isinstance(steps, list) else []
    values = (field_of(part, name) for part in (usage, *compactions))
    return sum(value for value in values if isinstance(value, int) and value > 0)


def switch_dollars(
    model: str, before: int, after: int, unchanged: int, made: Provenance | None = None
) -> dict[str, float]:
    """Return what it costs, in dollars, to replace a prompt of `before` tokens by one of `after` tokens, by name.
    Unknown costs are left out.

    ``rebilled`` is paid once, as the part after the first `unchanged` tokens is written to the cache instead of read
    from it. ``saved`` is saved by each later call. ``planning`` is the cost of the plan, whose origin is `made`.
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
    """Return `text` with `amount` in dollars after it: ``1,200 tokens ≈ $0.012``; `text` alone if that is 0 or None."""
    if not amount:
        return text
    number = f"{amount:,.2f}" if amount >= 1 else f"{max(amount, LEAST_DOLLARS):.2g}"
    return f"{text} {'≈' if amount >= LEAST_DOLLARS else '<'} ${number}".strip()


def switch_money(dollars: Mapping[str, float]) -> str:
    """Return the costs that `switch_dollars` computed as text: ``≈ $0.12 once, ≈ $0.016 less a call, planning ≈
    $0.02``."""
    forms = {"rebilled": "{} once", "saved": "{} less a call", "planning": "planning {}"}
    return ", ".join(form.format(money(dollars[name])) for name, form in forms.items() if dollars.get(name))
