"""Triggers: the numbers of a prompt and of its costs at which a session compacts, and how full its window is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from planner.prices import ModelPrices, cache_prices, carrying_costs_more

Level = Literal["normal", "warning", "critical", "exhausted"]
"""Fullness of the context window."""

LEVELS: tuple[tuple[Level, float], ...] = (("normal", 0.0), ("warning", 0.8), ("critical", 0.95), ("exhausted", 1.0))
"""Levels of fullness, with the share of the limit at which each begins, as in Claude Code."""
HYSTERESIS_SHARE = 0.05
"""Share of the limit by which a prompt must fall below a level's threshold before the level ends. So a size near the
threshold does not change the level at every call."""

_ORDER: tuple[Level, ...] = tuple(level for level, _ in LEVELS)
"""Levels of fullness, the emptiest first."""


def level_after(level: Level, tokens: int, limit_tokens: int) -> Level:
    """Return the fullness of a window that was at `level` before and now has a prompt of `tokens`. `limit_tokens`:
    largest prompt that fits. The level rises at once, but falls only when the prompt is `HYSTERESIS_SHARE` below the
    level's threshold."""
    share = tokens / max(1, limit_tokens)
    reached = max((i for i, (_, begins) in enumerate(LEVELS) if share >= begins), default=0)
    current = _ORDER.index(level)
    while current > reached and share < LEVELS[current][1] - HYSTERESIS_SHARE:
        current -= 1
    return _ORDER[max(current, reached)]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Size and costs of a prompt, by which triggers decide whether to shorten it."""

    tokens: int
    """Tokens of the whole prompt, if it were sent now."""
    limit_tokens: int
    level: Level
    beside_tokens: int = 0
    """Tokens of system prompt and tools, which no compaction changes; included in `tokens`."""
    goal_tokens: int = 0
    """Tokens of messages that the next compaction would leave."""
    carried_tokens: int = 0
    """Tokens above `goal_tokens`, added up over all calls since the last compaction: the price of waiting."""
    growth_tokens_per_call: float = 0.0
    idle_seconds: float = 0.0
    """Seconds since the last call."""
    requested: str = ""
    """Cause of a compaction requested for this call (``tool``, ``window_exceeded``); empty without one."""
    prices: ModelPrices = field(default_factory=cache_prices)


@dataclass(frozen=True, slots=True)
class When:
    """Trigger of a row in a preset. It fires if all its fields hold; one without fields fires at every call."""

    name: str
    level: Level = "normal"
    """Fullness of the window from which the trigger fires."""
    tokens_over: int = 0
    """Size of the prompt from which the trigger fires, in tokens."""
    share_over: float = 0.0
    """Size of the prompt from which the trigger fires, as a share of the limit."""
    room_under: int = 0
    """Number of free tokens up to which the trigger fires; in a small window at most an eighth of it. 0: not used."""
    idle_seconds: float = 0.0
    """Time since the last call from which the trigger fires."""
    growth_pays: bool = False
    """True if the trigger waits until rereading the messages added since has cost as much as a compaction would."""
    dearer: bool = False
    """True if the trigger waits until the provider charges more for each token of so long a prompt, and a compaction
    would avoid that."""
    requested: bool = False
    """True if the trigger waits for a requested compaction."""

    def fires(self, measured: Measurement) -> bool:
        """Return True if the numbers `measured` meet all conditions of this trigger."""
        room, goal, prices = measured.limit_tokens - measured.tokens, measured.goal_tokens, measured.prices
        return (
            _ORDER.index(measured.level) >= _ORDER.index(self.level)
            and measured.tokens >= self.tokens_over
            and measured.tokens >= measured.limit_tokens * self.share_over
            and (not self.room_under or room <= min(self.room_under, measured.limit_tokens // 8))
            and measured.idle_seconds >= self.idle_seconds
            and (not self.growth_pays or (goal > 0 and carrying_costs_more(measured.carried_tokens, goal, prices)))
            and (not self.dearer or prices.factor(measured.tokens) > prices.factor(goal + measured.beside_tokens))
            and (not self.requested or bool(measured.requested))
        )
