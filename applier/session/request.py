"""Agent's requests to the provider, their fields besides messages, and the provider's answers: tokens and refusals.

Fields are read again at every call, as model, tools and thinking may change within a conversation. `read_refusal` is
the only reader of the provider's errors about messages: too many tokens, pictures or bytes, or unpaired calls. Sends
nothing, raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from propcache.api import cached_property

from planner.reading.media import MANY_IMAGES
from planner.reading.messages import Block, cache_marks, field_of
from planner.reading.tokens import model_family
from planner.thinking import ThinkingPolicy, thinking_policy


@dataclass(frozen=True)
class AgentCall:
    """Fields of an agent's request to its model besides the messages; an unknown one is None, the model empty."""

    model: str = ""
    system: str | Sequence[Block] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    thinking: Mapping[str, Any] | None = None
    max_output_tokens: int | None = None
    cache_control: Mapping[str, Any] | None = None
    """Cache mark for the whole request, which the API puts at its end."""

    @cached_property
    def marks(self) -> list[Mapping[str, Any]]:
        """Marks for the provider's prompt cache in system prompt and tools."""
        return list(cache_marks([list(self.tools or ()), self.system]))

    @property
    def thinking_policy(self) -> ThinkingPolicy:
        """Treatment of the model's thinking after an earlier message changed: ``strip`` it or ``leave`` it. Some models
        refuse their thinking in a changed conversation. Thinking with a token budget (Claude up to 4.5) must precede
        the last calls, so it stays. It also stays if the request lets the API drop thinking that no longer fits."""
        thinking = self.thinking or {}
        binding = thinking.get("block_binding")
        if isinstance(binding, Mapping) and binding.get("prefix_mismatch_behavior") == "drop_block":
            return "leave"
        if thinking.get("type") == "enabled" and not (self.model and model_family(self.model).preserves_thinking):
            return "leave"
        return thinking_policy(self.model)


def fields_of_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Messages API request besides its messages, as arguments of `Session.set_request`."""
    output = body.get("max_tokens")
    return {
        "model": str(body.get("model") or ""),
        "system": body.get("system"),
        "tools": body.get("tools") or (),
        "thinking": body.get("thinking"),
        "cache_control": body.get("cache_control"),
        "max_output_tokens": output if isinstance(output, int) and output > 0 else None,
    }


def used_input_tokens(response: object) -> int:
    """Return the prompt tokens that a response reports in its ``usage``, cached ones included; 0 without a usage. If
    the server sampled several times, only the first usage belongs to the prompt as sent. A response that begins with
    the server's own compaction has no usage for that prompt."""
    usage = field_of(response, "usage") or response
    iterations = field_of(usage, "iterations")
    if isinstance(iterations, list) and iterations:
        usage = iterations[0] if field_of(iterations[0], "type") != "compaction" else None
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    values = [field_of(usage, name) for name in names]
    return sum(value for value in values if isinstance(value, int) and value > 0)


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
"""Number of characters that are read of a provider's error, which is never longer; another body may be any size."""
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
    """Return what the provider's `error` objects to in the messages; None if it is about something else. `error` is an
    exception, the body of a response, or an answer that was cut off."""
    stop_reason = stop_reason_of(error)
    if stop_reason is not None:
        return TooLong() if stop_reason == WINDOW_EXCEEDED else None
    text = " ".join(str(part) for part in (error, getattr(error, "body", "") or ""))[:_READ_CHARACTERS]
    media_numbers = next((match.groupdict("0") for pattern in _TOO_HEAVY if (match := pattern.search(text))), None)
    if media_numbers is not None:
        images, largest = (int(media_numbers.get(name, "0")[:MOST_DIGITS]) for name in ("images", "largest"))
        return TooHeavy(MANY_IMAGES if "mixed" in media_numbers else images, largest)
    is_large = getattr(error, "status_code", None) == _TOO_LARGE_STATUS or "request_too_large" in text
    if not is_large and not _TOO_LONG.search(text):
        return LostResults() if any(word in text for word in _OF_CALLS) else None
    match = next((match for pattern in _NUMBERS if (match := pattern.search(text))), None)
    if is_large and match is None:
        return TooHeavy(is_size=True)
    groups = match.groupdict("0") if match else {}
    numbers = {name: int(digits.replace(",", "")) for name, digits in groups.items() if len(digits) <= MOST_DIGITS}
    return TooLong(numbers.get("actual", 0), max(0, numbers.get("maximum", 0) - numbers.get("output", 0)))
