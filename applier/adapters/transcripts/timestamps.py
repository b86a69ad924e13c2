"""Times as logs write them, as seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["seconds"]


def seconds(value: object) -> float | None:
    """`value`, ISO 8601 (UTC where it names no zone) or a number of seconds, in seconds; None if neither."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
