"""What models charge, in dollars. Knows the few that plan; of others it says nothing rather than guess.

Cached input is priced as `planner.layout.cache_cost` says.
"""

from __future__ import annotations

from planner.layout.cache_cost import cache_prices
from planner.plan import Usage
from planner.reading.families import MODEL_PRICES

__all__ = ["dollars"]

_MILLION = 1_000_000
_LONG_PROMPT_TOKENS, _LONG_PROMPT_FACTOR = 100_000, 5.0
"""Of Haiku 5.5: a request with a longer prompt costs so many times as much, the whole of it."""


def dollars(model: str, usage: Usage) -> float | None:
    """What `usage` cost with `model`; None if its price is not known. An estimate: requests count as equally long."""
    prices = MODEL_PRICES.get(model.removeprefix("claude-"))
    if prices is None:
        return 0.0 if usage == Usage() else None
    cached = cache_prices(model)
    read, written = usage.cache_read_input_tokens * cached.read, usage.cache_creation_input_tokens * cached.write
    cost = (usage.input_tokens + read + written) * prices.input + usage.output_tokens * prices.output
    is_long = "haiku-5-5" in model and usage.prompt_tokens > _LONG_PROMPT_TOKENS * max(1, usage.requests)
    return cost * (_LONG_PROMPT_FACTOR if is_long else 1.0) / _MILLION
