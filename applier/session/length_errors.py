"""Whether a provider's error says that the prompt was too long, and by how much it says so.

Reads errors of any provider, as exceptions, bodies or text; raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["WINDOW_EXCEEDED", "TooLong", "read_too_long"]

_TOO_LONG = re.compile(
    r"prompt is too long|context_length_exceeded|maximum context length|exceeds? (?:the )?(?:model'?s )?context|"
    r"input is too long|too many (?:input )?tokens|model_context_window_exceeded|request_too_large|"
    r"context window|input length and `?max_tokens`? exceed",
    re.I,
)
_NUMBERS = re.compile(r"(\d[\d,]*)\s*tokens?\s*>\s*(\d[\d,]*)")
_TOO_LARGE_STATUS = 413
WINDOW_EXCEEDED = "model_context_window_exceeded"
"""The ``stop_reason`` of an answer that the window cut off."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """A prompt was refused for its length."""

    actual_tokens: int = 0
    """As the provider counted it; 0 if it did not say."""
    maximum_tokens: int = 0


def read_too_long(error: object) -> TooLong | None:
    """What `error` says about the prompt's length; None if it is about something else."""
    stopped = error.get("stop_reason") if isinstance(error, Mapping) else getattr(error, "stop_reason", None)
    if stopped is not None:
        return TooLong() if stopped == WINDOW_EXCEEDED else None
    text = " ".join(str(part) for part in (error, getattr(error, "body", "") or ""))
    if getattr(error, "status_code", None) != _TOO_LARGE_STATUS and not _TOO_LONG.search(text):
        return None
    numbers = _NUMBERS.search(text)
    return TooLong(*(int(number.replace(",", "")) for number in numbers.groups())) if numbers else TooLong()
