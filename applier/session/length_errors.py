"""Whether a provider's error says that the prompt was too long, and by how much it says so.

Reads errors of any provider, as exceptions, bodies or text; raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["WINDOW_EXCEEDED", "TooLong", "read_too_long", "stop_reason_of"]

_TOO_LONG = re.compile(
    r"prompt is too long|context_length_exceeded|maximum context length|exceeds? (?:the )?(?:model'?s )?context|"
    r"input is too long|too many (?:input )?tokens|model_context_window_exceeded|request_too_large|"
    r"context window|input length and `?max_tokens`? exceed",
    re.I,
)
_NUMBERS = tuple(
    re.compile(pattern, re.I | re.S)
    for pattern in (
        r"(?P<actual>\d[\d,]*)\s*tokens?\s*>\s*(?P<maximum>\d[\d,]*)",
        r"exceed context limit: (?P<actual>\d[\d,]*) \+ (?P<output>\d[\d,]*) > (?P<maximum>\d[\d,]*)",
        r"maximum context length (?:is|of) (?P<maximum>\d[\d,]*) tokens(?:.*?resulted in (?P<actual>\d[\d,]*) tokens)?",
    )
)
"""How Anthropic (both) and OpenAI say by how much."""
_TOO_LARGE_STATUS = 413
WINDOW_EXCEEDED = "model_context_window_exceeded"
"""The ``stop_reason`` of an answer that the window cut off."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """A prompt was refused for its length."""

    actual_tokens: int = 0
    """As the provider counted it; 0 if it did not say."""
    maximum_tokens: int = 0


def stop_reason_of(answer: object) -> object:
    """Why `answer` ended, if it is one: an SDK object or a dict."""
    return answer.get("stop_reason") if isinstance(answer, Mapping) else getattr(answer, "stop_reason", None)


def read_too_long(error: object) -> TooLong | None:
    """What `error` says about the prompt's length; None if it is about something else."""
    stopped = stop_reason_of(error)
    if stopped is not None:
        return TooLong() if stopped == WINDOW_EXCEEDED else None
    text = " ".join(str(part) for part in (error, getattr(error, "body", "") or ""))
    if getattr(error, "status_code", None) != _TOO_LARGE_STATUS and not _TOO_LONG.search(text):
        return None
    found = next((match for pattern in _NUMBERS if (match := pattern.search(text))), None)
    said = {name: int(number.replace(",", "")) for name, number in found.groupdict("0").items()} if found else {}
    return TooLong(said.get("actual", 0), max(0, said.get("maximum", 0) - said.get("output", 0)))
