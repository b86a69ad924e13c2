"""How many tokens the next prompt has, in the provider's own measure as soon as it has told one.

Turns the counter's estimates into calibrated ones; counts nothing itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

__all__ = ["Meter", "used_input_tokens"]

LOWEST_RATIO, HIGHEST_RATIO = 0.4, 2.5
"""A usage outside of this belongs to another request (server tools, an edited prompt): not believed.
The counter scales by the worst ratio measured, so a true ratio stands between 0.5 and 1."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Tokens beside the messages, and how the provider counts against the counter."""

    fixed_tokens: int = 0
    """System prompt and tools, by the counter."""
    ratio: float = 1.0
    """The provider's tokens for one of the counter's."""

    def prompt(self, counted_tokens: float) -> int:
        """Tokens of a prompt whose messages count `counted_tokens`."""
        return math.ceil((self.fixed_tokens + counted_tokens) * self.ratio)

    def countable(self, prompt_tokens: float) -> int:
        """The other way: what messages may count, so that the prompt has `prompt_tokens`."""
        return max(0, math.floor(prompt_tokens / self.ratio) - self.fixed_tokens)

    def calibrated(self, counted_tokens: int, actual_tokens: int) -> Meter:
        """This meter after a prompt whose messages counted `counted_tokens` had `actual_tokens`."""
        counted = self.fixed_tokens + counted_tokens
        if counted <= 0 or not LOWEST_RATIO <= actual_tokens / counted <= HIGHEST_RATIO:
            return self
        return replace(self, ratio=actual_tokens / counted)

    def corrected(self, counted_tokens: int, actual_tokens: int) -> Meter:
        """This meter after a refusal said that the prompt had `actual_tokens`: believed, however far off."""
        return replace(self, ratio=max(self.ratio, actual_tokens / max(1, self.fixed_tokens + counted_tokens)))

    def doubted(self, counted_tokens: int, limit_tokens: int) -> Meter:
        """This meter after a prompt was refused that should have been within `limit_tokens`, without numbers.

        Not doubted more than a tokenizer can be off: perhaps it was the bytes, or the window is smaller.
        """
        counted = max(1, self.fixed_tokens + counted_tokens)
        return replace(self, ratio=max(self.ratio, min(HIGHEST_RATIO, (limit_tokens + 1) / counted)))


def used_input_tokens(response: object) -> int:
    """What a response's ``usage`` says its prompt had, cached parts included; 0 if it says nothing."""
    usage = _field(response, "usage") or response
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    values = [_field(usage, name) for name in names]
    return sum(value for value in values if isinstance(value, int) and value > 0)


def _field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
