"""Whether a part that keeps failing is asked again: closed, open, half-open; a value with a given clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["Breaker", "BreakerState"]

BreakerState = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True)
class Breaker:
    """Opens after `max_failures` in a row; lets one trial through after `rest_seconds`."""

    max_failures: int = 3
    """Claude Code and s08 give up after three (REFERENCE 5)."""
    rest_seconds: float = 300.0
    failures: int = 0
    opened_at: float | None = None

    def state(self, now: float) -> BreakerState:
        """Where it stands at `now`."""
        if self.opened_at is None:
            return "closed"
        return "half_open" if now - self.opened_at >= self.rest_seconds else "open"

    def allows(self, now: float) -> bool:
        """True if the part may be asked."""
        return self.state(now) != "open"

    def failed(self, now: float) -> Breaker:
        """After a failure: a failed trial opens it again at once."""
        failures = self.failures + 1
        opens = failures >= self.max_failures or self.opened_at is not None
        return replace(self, failures=failures, opened_at=now if opens else None)

    def succeeded(self) -> Breaker:
        """After a success."""
        return replace(self, failures=0, opened_at=None)
