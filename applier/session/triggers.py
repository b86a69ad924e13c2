"""When a tier runs: pure tables over a measurement of the session; the clock is in the measurement.

Decides by numbers alone and knows no messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.layout.cache_cost import CachePrices, best_growth_tokens

__all__ = ["LEVELS", "Level", "Measurement", "When", "level_after"]

Level = Literal["normal", "warning", "critical", "exhausted"]

LEVELS: tuple[tuple[Level, float], ...] = (
    ("normal", 0.0),
    ("warning", 0.80),
    ("critical", 0.95),
    ("exhausted", 1.0),
)
"""From which share of the limit each level begins (Claude Code as described, REFERENCE 5)."""
HYSTERESIS_SHARE = 0.05
"""A level is left only this far below where it begins, so that a count at its edge does not flutter."""

GENERAL_PRICES = CachePrices()
_ORDER: tuple[Level, ...] = tuple(level for level, _ in LEVELS)


def level_after(level: Level, tokens: int, limit_tokens: int) -> Level:
    """The level of a prompt of `tokens`, coming from `level`: rises at once, falls with hysteresis."""
    share = tokens / max(1, limit_tokens)
    reached = max((i for i, (_, begins) in enumerate(LEVELS) if share >= begins), default=0)
    held = _ORDER.index(level)
    while held > reached and share < LEVELS[held][1] - HYSTERESIS_SHARE:
        held -= 1
    return _ORDER[max(held, reached)]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the triggers see."""

    tokens: int
    """Of the whole prompt, as it would be sent."""
    limit_tokens: int
    level: Level
    beside_tokens: int = 0
    """Of these, system and tools: no compaction makes them less, and none writes them to the cache anew."""
    kept_tokens: int = 0
    """Of the messages right after the last compaction, or the size the next one would aim at."""
    growth_tokens_per_call: float = 0.0
    idle_seconds: float = 0.0
    """Since the last call."""
    session_seconds: float = 0.0
    """Since the session began, or since its facts were last extracted."""
    requested: str = ""
    """``manual``, ``tool``, ``prompt_too_long``: somebody asked for it."""
    prices: CachePrices = GENERAL_PRICES


@dataclass(frozen=True, slots=True)
class When:
    """A row of the table: fires when everything it names holds; one that names nothing fires at every turn."""

    name: str
    level: Level = "normal"
    tokens_over: int = 0
    share_over: float = 0.0
    """Of the limit."""
    room_under: int = 0
    """Tokens left to the limit; in a small window an eighth of it at most."""
    idle_seconds: float = 0.0
    session_seconds: float = 0.0
    growth_pays: bool = False
    """The prompt has grown so far that compacting again costs less than carrying it on."""
    requested: bool = False

    def fires(self, measured: Measurement) -> bool:
        """True if everything holds in `measured`."""
        return (
            _ORDER.index(measured.level) >= _ORDER.index(self.level)
            and measured.tokens >= self.tokens_over
            and measured.tokens >= measured.limit_tokens * self.share_over
            and (not self.room_under or self._is_short(measured))
            and measured.idle_seconds >= self.idle_seconds
            and measured.session_seconds >= self.session_seconds
            and (not self.growth_pays or _growth_pays(measured))
            and (not self.requested or bool(measured.requested))
        )

    def _is_short(self, measured: Measurement) -> bool:
        room = min(self.room_under, measured.limit_tokens // 8)
        return measured.limit_tokens - measured.tokens <= room


def _growth_pays(measured: Measurement) -> bool:
    best = best_growth_tokens(measured.kept_tokens, measured.growth_tokens_per_call, measured.prices)
    grown = measured.tokens - measured.beside_tokens - measured.kept_tokens
    return measured.kept_tokens > 0 and grown >= best
