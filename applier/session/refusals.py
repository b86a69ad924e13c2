"""Provider's errors about the messages of a request: too many tokens, pictures or bytes, or calls without results.

`read_refusal` is the only reader of such errors. Sends nothing, raises nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from planner.reading.media import MANY_IMAGES
from planner.reading.messages import field_of

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
"""Sizes in an error about a long prompt: ``214,001 tokens > 200,000`` and ``exceed context limit: 199211 + 20000 >
200000`` (Anthropic), ``maximum context length is 8192 tokens … resulted in 9001 tokens`` (OpenAI); not ``retry after 20
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
"""Providers' errors for pictures: ``Too many images and document pages: 101 > 100``, ``image exceeds 5 MB maximum:
6088408 bytes > 5242880 bytes``, ``exceed max allowed size for many-image requests``; not ``invalid image``."""
_OF_CALLS = "tool_result", "tool_call", "ids must be unique"
"""Words in errors about tool calls without results: ``tool_use ids were found without tool_result blocks``, ``tool_use
ids must be unique``."""
_READ_CHARACTERS = 20_000
"""Number of characters that are read of an error's text. A provider's error is shorter; another body may be long."""
MOST_DIGITS = 15
"""Largest number of digits and commas that a count of tokens in an error may have."""
WINDOW_EXCEEDED = "model_context_window_exceeded"
"""Value of ``stop_reason`` in an answer that was cut off because the window was full."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """Provider's refusal of a prompt because it has too many tokens, so that a shorter one must be sent."""

    actual_tokens: int = 0
    """Size of the prompt by the provider's count; 0 if the error does not name it."""
    maximum_tokens: int = 0
    """Largest prompt that the provider accepts; 0 if the error does not name it."""


@dataclass(frozen=True, slots=True)
class TooHeavy:
    """Provider's refusal of a request because of its pictures or its bytes, so that some must be removed."""

    images: int = 0
    """Largest number of pictures that the provider accepts; 0 if the error does not name it."""
    largest: int = 0
    """Size of the largest picture that the provider accepts, in bytes; 0 if the error does not name it."""
    is_size: bool = False
    """True if the request as a whole has too many bytes."""


@dataclass(frozen=True, slots=True)
class LostResults:
    """Provider's refusal because a tool call has no result, or a result no call, so that notes must be added."""


def stop_reason_of(answer: object) -> object:
    """Return why the model ended `answer` (an SDK object or a dict), such as ``end_turn``; None for other objects."""
    return field_of(answer, "stop_reason")


def read_refusal(error: object) -> TooLong | TooHeavy | LostResults | None:
    """Return why the provider refused the messages; None if `error` is about something else. `error`: an exception, the
    body of a response, or an answer that was cut off."""
    stop_reason = stop_reason_of(error)
    if stop_reason is not None:  # an answer, not an error
        return TooLong() if stop_reason == WINDOW_EXCEEDED else None
    text = " ".join(str(part) for part in (error, getattr(error, "body", "") or ""))[:_READ_CHARACTERS]
    media_numbers = next((match.groupdict("0") for pattern in _TOO_HEAVY if (match := pattern.search(text))), None)
    if media_numbers is not None:
        images, largest = (int(media_numbers.get(name, "0")[:MOST_DIGITS]) for name in ("images", "largest"))
        # an error about ``many-image requests`` names no number: a request with a large picture may have `MANY_IMAGES`
        return TooHeavy(MANY_IMAGES if "mixed" in media_numbers else images, largest)
    is_large = getattr(error, "status_code", None) == _TOO_LARGE_STATUS or "request_too_large" in text
    if not is_large and not _TOO_LONG.search(text):
        return LostResults() if any(word in text for word in _OF_CALLS) else None
    match = next((match for pattern in _NUMBERS if (match := pattern.search(text))), None)
    if is_large and match is None:  # no count of tokens
        return TooHeavy(is_size=True)
    groups = match.groupdict("0") if match else {}
    numbers = {name: int(digits.replace(",", "")) for name, digits in groups.items() if len(digits) <= MOST_DIGITS}
    return TooLong(numbers.get("actual", 0), max(0, numbers.get("maximum", 0) - numbers.get("output", 0)))
