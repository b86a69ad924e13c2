"""When a tier runs: pure tables over a reading of the session; the clock is in the reading.

Decides by numbers alone and knows no messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.layout.cache_cost import CachePrices, best_growth_tokens

__all__ = [
    "LEVELS",
    "Level",
    "Reading",
    "When",
    "level_after",
    "output_reserve_tokens",
    "prompt_limit_tokens",
]

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

MAX_RESERVE_TOKENS = 20_000
"""At most this much of the window is kept free for the answer (three-layer pipeline)."""
MAX_RESERVE_SHARE = 0.25
"""And at most this share of a small window."""

GENERAL_PRICES = CachePrices()
_ORDER: tuple[Level, ...] = tuple(level for level, _ in LEVELS)


def output_reserve_tokens(window_tokens: int, max_output_tokens: int) -> int:
    """What of the window stays free for the answer."""
    return min(max_output_tokens, MAX_RESERVE_TOKENS, int(window_tokens * MAX_RESERVE_SHARE))


def prompt_limit_tokens(window_tokens: int, max_output_tokens: int) -> int:
    """What a prompt may have at most."""
    return window_tokens - output_reserve_tokens(window_tokens, max_output_tokens)


def level_after(level: Level, tokens: int, limit_tokens: int) -> Level:
    """The level of a prompt of `tokens`, coming from `level`: rises at once, falls with hysteresis."""
    share = tokens / max(1, limit_tokens)
    reached = max((i for i, (_, begins) in enumerate(LEVELS) if share >= begins), default=0)
    held = _ORDER.index(level)
    while held > reached and share < LEVELS[held][1] - HYSTERESIS_SHARE:
        held -= 1
    return _ORDER[max(held, reached)]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the triggers see."""

    tokens: int
    """Of the whole prompt, as it would be sent."""
    limit_tokens: int
    level: Level
    messages: int = 0
    kept_tokens: int = 0
    """Of the prompt right after the last compaction, or the size the next one would aim at."""
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
    messages_over: int = 0
    idle_seconds: float = 0.0
    session_seconds: float = 0.0
    growth_pays: bool = False
    """The prompt has grown so far that compacting again costs less than carrying it on."""
    requested: bool = False

    def fires(self, reading: Reading) -> bool:
        """True if everything holds in `reading`."""
        return (
            _ORDER.index(reading.level) >= _ORDER.index(self.level)
            and reading.tokens >= self.tokens_over
            and reading.tokens >= reading.limit_tokens * self.share_over
            and (not self.room_under or self._is_short(reading))
            and (not self.messages_over or reading.messages > self.messages_over)
            and reading.idle_seconds >= self.idle_seconds
            and reading.session_seconds >= self.session_seconds
            and (not self.growth_pays or _growth_pays(reading))
            and (not self.requested or bool(reading.requested))
        )

    def _is_short(self, reading: Reading) -> bool:
        room = min(self.room_under, reading.limit_tokens // 8)
        return reading.limit_tokens - reading.tokens <= room


def _growth_pays(reading: Reading) -> bool:
    best = best_growth_tokens(reading.kept_tokens, reading.growth_tokens_per_call, reading.prices)
    return reading.kept_tokens > 0 and reading.tokens - reading.kept_tokens >= best
