"""Refusals of a request for its size or lost results: how providers word them, and the sizes that they report.

Reads errors, bodies and texts. Sends nothing and raises nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from planner.reading.media import MANY_IMAGES
from planner.reading.messages import field_of

__all__ = ["MOST_DIGITS", "WINDOW_EXCEEDED", "LostResults", "TooHeavy", "TooLong", "read_refusal", "stop_reason_of"]

_TOO_LONG = re.compile(
    r"prompt is too long|context_length_exceeded|maximum context length|exceeds? (?:the )?(?:model'?s )?context|"
    r"input is too long|too many (?:input )?tokens|model_context_window_exceeded|request_too_large|"
    r"context window|input length and `?max_tokens`? exceed",
    re.I,
)
"""Providers' errors for a long prompt: ``prompt is too long: 9 tokens > 8 maximum`` (Anthropic), ``maximum context
length is …`` (OpenAI), ``input is too long for requested model`` (Bedrock); not ``rate limit exceeded``, ``invalid api
key``."""
_NUMBERS = tuple(
    re.compile(pattern, re.I | re.S)
    for pattern in (
        r"(?P<actual>(?<![\d,])\d[\d,]*+)\s{0,9}tokens?\s{0,9}>\s{0,9}(?P<maximum>\d[\d,]*+)",
        r"exceed context limit: (?P<actual>\d[\d,]*) \+ (?P<output>\d[\d,]*) > (?P<maximum>\d[\d,]*)",
        r"maximum context length (?:is|of) (?P<maximum>\d[\d,]*) tokens"
        r"(?:.{0,200}?resulted in (?P<actual>\d[\d,]*) tokens)?",
    )
)
"""Sizes in such an error: ``214,001 tokens > 200,000`` and ``exceed context limit: 199211 + 20000 > 200000``
(Anthropic), ``maximum context length is 8192 tokens … resulted in 9001 tokens`` (OpenAI); not ``retry after 20
tokens``."""
_TOO_LARGE_STATUS = 413
_TOO_HEAVY = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"too many images[^:\d]{0,80}: ?(?P<had>\d+) ?> ?(?P<images>\d+)",
        r"contains (?P<had>\d+) images.{0,80}?maximum of (?P<images>\d+)",
        r"image exceeds [^:]{1,60}: (?P<had>\d+) bytes > (?P<largest>\d+) bytes",
        r"(?P<mixed>many-image requests)",
    )
)
"""Errors for pictures: ``Too many images and document pages: 101 > 100``, ``image exceeds 5 MB maximum: 6088408 bytes >
5242880 bytes``, ``exceed max allowed size for many-image requests``; not ``invalid image``."""
_READ_CHARACTERS = 20_000
"""Number of characters of an error that are read, more than any provider's text; a body may be any size."""
MOST_DIGITS = 15
"""Largest number of digits and commas in a count of tokens; a longer number is no count."""
WINDOW_EXCEEDED = "model_context_window_exceeded"
"""The ``stop_reason`` of an answer that the window cut off."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """Refusal of a prompt because of its length."""

    actual_tokens: int = 0
    """Size by the provider's count; 0 if the error has none."""
    maximum_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TooHeavy:
    """Refusal of a request for its pictures or bytes."""

    images: int = 0
    """Largest accepted number of pictures; 0 if the error does not name it."""
    largest: int = 0
    """Largest accepted picture in bytes; 0 if the error does not name it."""
    is_size: bool = False
    """True if the body as a whole is too large."""


@dataclass(frozen=True, slots=True)
class LostResults:
    """Refusal of calls without results."""


def stop_reason_of(answer: object) -> object:
    """Return the stop reason of `answer`, an SDK object or a dict; None for other objects."""
    return field_of(answer, "stop_reason")


def read_refusal(error: object) -> TooLong | TooHeavy | LostResults | None:
    """Return what `error` (an exception, a body, a text) reports about the request's messages; None if nothing."""
    stopped = stop_reason_of(error)
    if stopped is not None:
        return TooLong() if stopped == WINDOW_EXCEEDED else None
    text = " ".join(str(part) for part in (error, getattr(error, "body", "") or ""))[:_READ_CHARACTERS]
    heavy = next((match.groupdict("0") for pattern in _TOO_HEAVY if (match := pattern.search(text))), None)
    if heavy is not None:
        images, largest = (int(heavy.get(name, "0")[:MOST_DIGITS]) for name in ("images", "largest"))
        return TooHeavy(MANY_IMAGES if "mixed" in heavy else images, largest)
    is_large = getattr(error, "status_code", None) == _TOO_LARGE_STATUS or "request_too_large" in text
    if not is_large and not _TOO_LONG.search(text):
        return LostResults() if "tool_result" in text or "tool_call" in text else None
    match = next((match for pattern in _NUMBERS if (match := pattern.search(text))), None)
    if is_large and match is None:
        return TooHeavy(is_size=True)
    groups = match.groupdict("0") if match else {}
    numbers = {name: int(digits.replace(",", "")) for name, digits in groups.items() if len(digits) <= MOST_DIGITS}
    return TooLong(numbers.get("actual", 0), max(0, numbers.get("maximum", 0) - numbers.get("output", 0)))
