"""The agent's next request: what it says besides its messages, and how many tokens it has by the provider's measure.

Read anew at every call: model, tools and thinking may change within one conversation. Turns the counter's estimates
into calibrated ones by what the provider's answers and errors say. Sends nothing and raises nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from applier.session.media_load import MANY_IMAGES
from planner.layout import ThinkingPolicy, thinking_policy
from planner.reading.families import model_family
from planner.reading.lazy_property import lazy_property
from planner.reading.messages import Block, blocks, cache_marks, field_of, plain_message

__all__ = [
    "WINDOW_EXCEEDED",
    "AgentCall",
    "Gauge",
    "TooHeavy",
    "TooLong",
    "fields_of_body",
    "prompt_limit_tokens",
    "read_refusal",
    "stop_reason_of",
    "used_input_tokens",
    "with_breakpoint",
]

LONG_TTL = "1h"
MAX_CACHE_MARKS = 4
"""``cache_control`` marks that one request may have (Anthropic, prompt caching)."""


@dataclass(frozen=True)
class AgentCall:
    """A request of the agent without its messages; None for what is not known."""

    model: str = ""
    system: str | Sequence[Block] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    thinking: Mapping[str, Any] | None = None
    max_output_tokens: int | None = None
    cache_control: Mapping[str, Any] | None = None
    """Mark for the whole request, which the API sets at its end."""

    @lazy_property
    def marks(self) -> list[Mapping[str, Any]]:
        """Cache marks of system and tools."""
        return list(cache_marks([list(self.tools or ()), self.system]))

    @property
    def thinking_policy(self) -> ThinkingPolicy:
        """What happens to thinking behind a change: by the model, and by how the request has it switched on.

        Manual thinking (a token budget, Claude up to 4.5) must lead the last calls, so it stays; where the request
        has the API drop what no longer fits, nothing is to be stripped either.
        """
        thinking = self.thinking or {}
        binding = thinking.get("block_binding")
        if isinstance(binding, Mapping) and binding.get("prefix_mismatch_behavior") == "drop_block":
            return "leave"
        if thinking.get("type") == "enabled" and not (self.model and model_family(self.model).preserves_thinking):
            return "leave"
        return thinking_policy(self.model)


def fields_of_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """What `body`, of the Messages API, says besides its messages, as `Session.set_request` takes it."""
    output = body.get("max_tokens")
    return {
        "model": str(body.get("model") or ""),
        "system": body.get("system"),
        "tools": body.get("tools") or (),
        "thinking": body.get("thinking"),
        "cache_control": body.get("cache_control"),
        "max_output_tokens": output if isinstance(output, int) and output > 0 else None,
    }


def with_breakpoint(
    messages: Sequence[object],
    head: int,
    call: AgentCall,
    behind: Sequence[Mapping[str, Any]],
    replaced: Sequence[Mapping[str, Any]] = (),
) -> list[object]:
    """Return `messages` with a cache mark at the end of the first `head`, the compacted part.

    Only where the caller sets marks itself, `behind` that part, on messages that it `replaced`, or for the whole
    request, and where one more is allowed. It lives as long as the longest of these, for no longer one may follow a
    shorter one.
    """
    marks = [*behind, *([call.cache_control] if call.cache_control else [])]
    lived = [*replaced, *marks]
    if not head or not lived or len(marks) + len(call.marks) >= MAX_CACHE_MARKS:
        return [*messages]
    may_be_long = all(mark.get("ttl") == LONG_TTL for mark in call.marks)
    mark = next((mark for mark in lived if may_be_long and mark.get("ttl") == LONG_TTL), lived[-1])
    listed = [*messages]
    last = plain_message(listed[head - 1])
    content = [*blocks(last)]
    if content and content[-1]["type"] in ("text", "tool_result", "tool_use") and content[-1].get("text") != "":
        content[-1] = {**content[-1], "cache_control": dict(mark)}
        listed[head - 1] = {**last, "content": content}
    return listed


MAX_RESERVE_TOKENS = 20_000
"""At most this much of the window is kept free for the answer (three-layer pipeline)."""
MAX_RESERVE_SHARE = 0.25
"""And at most this share of a small window."""
LOWEST_RATIO, HIGHEST_RATIO = 0.4, 2.5
"""The counter scales by the worst ratio measured, so a true ratio is between 0.5 and 1 (REFERENCE 4). A usage below the
lowest is that of another prompt, unless the next one is as low: then the counter is wrong, of a medium perhaps. Above
the highest it is no tokenizer but something beside the messages."""
LARGEST_EXTRA = 2.5
"""System and tools that were told may have so many times what the counter says."""
LARGEST_EXTRA_TOKENS = 2_000
"""And on top what a provider adds by itself: its prompt on how to call tools has 300 to 700 tokens."""
UNTOLD_SHARE = 0.5
"""System and tools that were not told are believed to have at most this share of the limit, until two prompts agree."""
CLEAR_GROWTH_SHARE = 0.1
CLEAR_GROWTH_TOKENS = 500
"""Two prompts say something of the ratio when they differ by so much; otherwise the difference is noise."""


def prompt_limit_tokens(window_tokens: int, max_output_tokens: int) -> int:
    """What a prompt may have at most: the window without what stays free for the answer."""
    return window_tokens - min(max_output_tokens, MAX_RESERVE_TOKENS, int(window_tokens * MAX_RESERVE_SHARE))


@dataclass(frozen=True, slots=True)
class Gauge:
    """The tokens of a prompt: ``(fixed + messages) * ratio + extra``.

    The ratio is the tokenizer's and holds for every text; `extra_tokens` is what no message explains, so that an
    untold system prompt makes no message longer than it is.
    """

    fixed_tokens: int = 0
    """System prompt and tools that were told, by the counter."""
    ratio: float = 1.0
    """The provider's tokens for one of the counter's."""
    extra_tokens: float = 0.0
    """The provider's tokens beside both; negative if it charges less for system and tools."""
    least_counted: int = 0
    least_actual: int = 0
    """The smallest prompt whose usage was told: what its messages counted, and what the provider said. Measured from
    there, the ratio is that of all the text behind it, not of the newest result alone."""
    is_resumed: bool = False
    """The ratio was measured by an earlier process, and nothing has been told since."""
    is_doubted: bool = False
    """True if the newest usage was below the lowest ratio."""

    def prompt(self, counted_tokens: float) -> int:
        """Tokens of a prompt whose messages count `counted_tokens`."""
        return max(0, math.ceil((self.fixed_tokens + counted_tokens) * self.ratio + self.extra_tokens))

    def of_messages(self, counted_tokens: float) -> int:
        """Tokens of messages that count `counted_tokens`, without what stands beside them."""
        return math.ceil(counted_tokens * self.ratio)

    def room_tokens(self, limit_tokens: int) -> int:
        """What messages may have in a prompt of at most `limit_tokens`, beside system and tools."""
        return max(1, limit_tokens - self.prompt(0))

    def countable(self, message_tokens: float) -> int:
        """The other way: what messages may count, so that they have `message_tokens`."""
        return max(0, math.floor(message_tokens / self.ratio))

    def with_fixed(self, fixed_tokens: int) -> Gauge:
        """This gauge once system and tools are told to count `fixed_tokens`: they explain what was extra."""
        told = (fixed_tokens - self.fixed_tokens) * self.ratio
        extra = max(0.0, self.extra_tokens - told) if told > 0 else self.extra_tokens
        least = max(1, round(self.least_actual + told)) if self.least_actual else 0
        extra = max(extra, -fixed_tokens * self.ratio)
        return replace(self, fixed_tokens=fixed_tokens, extra_tokens=extra, least_actual=least)

    def calibrated(self, counted_tokens: int, actual_tokens: int, limit_tokens: int) -> Gauge:
        """This gauge after a prompt whose messages counted `counted_tokens` had `actual_tokens`.

        Afterwards the same messages measure `actual_tokens`, unless that is beyond what system, tools and a tokenizer
        can explain: then as near to it as they can.
        """
        if counted_tokens <= 0 or actual_tokens <= 0:
            return self
        if actual_tokens < LOWEST_RATIO * counted_tokens:
            ratio = actual_tokens / (self.fixed_tokens + counted_tokens)
            again = Gauge(self.fixed_tokens, ratio, is_doubted=True)
            return again if self.is_doubted else replace(self, is_doubted=True)
        measured = self._measured_ratio(counted_tokens, actual_tokens)
        ratio = self._assumed_ratio(counted_tokens, actual_tokens) if measured is None else _bounded(measured)
        most = self._most_beside(counted_tokens, limit_tokens, agreed=ratio == measured)
        beside = actual_tokens - ratio * counted_tokens
        if not 0 <= beside <= most:
            beside = min(max(beside, 0.0), most)
            ratio = _bounded((actual_tokens - beside) / counted_tokens)
        least = (self.least_counted, self.least_actual)
        if not self.least_actual or counted_tokens < self.least_counted:
            least = counted_tokens, min(actual_tokens, 10**9)
        return Gauge(self.fixed_tokens, ratio, beside - ratio * self.fixed_tokens, *least)

    def _measured_ratio(self, counted: int, actual: int) -> float | None:
        """By what this prompt has beyond the smallest; None while they hardly differ."""
        grown = counted - self.least_counted
        clear = self.least_actual and abs(grown) >= _noise_tokens(counted)
        return (actual - self.least_actual) / grown if clear else None

    def _assumed_ratio(self, counted: int, actual: int) -> float:
        """As before; of a first prompt of which nothing is known, no more than the counter's own worst case."""
        if self.is_resumed or self.least_actual:
            return self.ratio
        return min(1.0, _bounded(actual / (self.fixed_tokens + counted)))

    def _most_beside(self, counted: int, limit_tokens: int, *, agreed: bool) -> float:
        """What may stand beside the messages. Untold, one prompt does not prove more than a share of the limit, for it
        may be the usage of another; two that `agreed` on the tokenizer do, and what they proved stands."""
        if self.fixed_tokens:
            return LARGEST_EXTRA * self.fixed_tokens + LARGEST_EXTRA_TOKENS
        proved = limit_tokens if agreed else min(limit_tokens, self.extra_tokens + _noise_tokens(counted))
        return max(limit_tokens * UNTOLD_SHARE, proved)

    def refused(self, counted_tokens: int, actual_tokens: int, limit_tokens: int) -> Gauge:
        """This gauge after a prompt was refused that should have been within `limit_tokens`.

        That it had `actual_tokens` is believed, however far off. Where the refusal does not say (0), the gauge is not
        doubted more than a tokenizer can be off: perhaps it was the bytes, or the window is smaller.
        """
        counted = max(1, self.fixed_tokens + counted_tokens)
        ratio = ((actual_tokens or limit_tokens + 1) - self.extra_tokens) / counted
        believed = ratio if actual_tokens else min(HIGHEST_RATIO, ratio)
        return replace(self, ratio=max(self.ratio, believed), least_actual=0)


def _noise_tokens(counted: int) -> float:
    """Prompts of so many tokens that differ by less say nothing of the ratio."""
    return max(CLEAR_GROWTH_TOKENS, CLEAR_GROWTH_SHARE * counted)


def _bounded(ratio: float) -> float:
    return min(HIGHEST_RATIO, max(LOWEST_RATIO, ratio))


def used_input_tokens(response: object) -> int:
    """What a response's ``usage`` says its prompt had, cached parts included; 0 if it says nothing.

    Where the server sampled several times, the first is of the prompt as it was sent; its own compaction is of none.
    """
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
"""How providers word it: ``prompt is too long: 9 tokens > 8 maximum`` (Anthropic), ``maximum context length is …``
(OpenAI), ``input is too long for requested model`` (Bedrock); not ``rate limit exceeded``, ``invalid api key``."""
_NUMBERS = tuple(
    re.compile(pattern, re.I | re.S)
    for pattern in (
        r"(?P<actual>(?<![\d,])\d[\d,]*+)\s{0,9}tokens?\s{0,9}>\s{0,9}(?P<maximum>\d[\d,]*+)",
        r"exceed context limit: (?P<actual>\d[\d,]*) \+ (?P<output>\d[\d,]*) > (?P<maximum>\d[\d,]*)",
        r"maximum context length (?:is|of) (?P<maximum>\d[\d,]*) tokens"
        r"(?:.{0,200}?resulted in (?P<actual>\d[\d,]*) tokens)?",
    )
)
"""By how much: ``214,001 tokens > 200,000`` and ``exceed context limit: 199211 + 20000 > 200000`` (Anthropic),
``maximum context length is 8192 tokens … resulted in 9001 tokens`` (OpenAI); not ``retry after 20 tokens``."""
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
"""No provider words its refusal longer; a body may be any size."""
MOST_DIGITS = 15
"""Of a count of tokens, with commas; a longer one is none."""
WINDOW_EXCEEDED = "model_context_window_exceeded"
"""The ``stop_reason`` of an answer that the window cut off."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """A prompt was refused for its length."""

    actual_tokens: int = 0
    """As the provider counted it; 0 if it did not say."""
    maximum_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TooHeavy:
    """Refusal of a request for its pictures or bytes."""

    images: int = 0
    """Pictures that are accepted; 0 if the error does not name them."""
    largest: int = 0
    """Bytes of a picture that are accepted; 0 if the error does not name them."""
    is_size: bool = False
    """True if the body as a whole is too large."""


def stop_reason_of(answer: object) -> object:
    """Why `answer` ended, if it is one: an SDK object or a dict."""
    return field_of(answer, "stop_reason")


def read_refusal(error: object) -> TooLong | TooHeavy | None:
    """Return what `error` (an exception, a body, a text) reports about the request's size; None if nothing."""
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
        return None
    match = next((match for pattern in _NUMBERS if (match := pattern.search(text))), None)
    if is_large and match is None:
        return TooHeavy(is_size=True)
    groups = match.groupdict("0") if match else {}
    numbers = {name: int(digits.replace(",", "")) for name, digits in groups.items() if len(digits) <= MOST_DIGITS}
    return TooLong(numbers.get("actual", 0), max(0, numbers.get("maximum", 0) - numbers.get("output", 0)))
