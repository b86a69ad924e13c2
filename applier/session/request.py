"""Agent's requests to the provider: their fields besides messages, and their measured tokens.

Fields are read again at every call, as model, tools and thinking may change within a conversation. `Gauge` corrects our
estimates of tokens by the provider's own counts. Sends nothing, raises nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from propcache.api import cached_property

from planner.layout import ThinkingPolicy, thinking_policy
from planner.reading.messages import Block, blocks, cache_marks, field_of, plain_message
from planner.reading.tokens import model_family

LONG_TTL = "1h"
"""Longer one of the two lifetimes of cached content, as written in a mark for the prompt cache."""
MAX_CACHE_MARKS = 4
"""Largest number of ``cache_control`` marks in one request (Anthropic, prompt caching)."""


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


def with_breakpoint(
    messages: Sequence[object],
    head: int,
    call: AgentCall,
    behind: Sequence[Mapping[str, Any]],
    replaced: Sequence[Mapping[str, Any]] = (),
) -> list[object]:
    """Return `messages` with a prompt-cache mark at the end of the first `head` messages, the compacted part.

    So the provider caches that part, which will stay the same. The mark is set only if the caller sets marks, and one
    more is allowed. `behind`: the caller's marks after the compacted part. `replaced`: the caller's marks on messages
    that were compacted. The mark has the longer lifetime if one of these has it, and if all marks before it do, as a
    longer one may not follow a shorter one.
    """
    marks = [*behind, *([call.cache_control] if call.cache_control else [])]
    all_marks = [*replaced, *marks]
    if not head or not all_marks or len(marks) + len(call.marks) >= MAX_CACHE_MARKS:
        return [*messages]
    may_be_long = all(mark.get("ttl") == LONG_TTL for mark in call.marks)
    mark = next((mark for mark in all_marks if may_be_long and mark.get("ttl") == LONG_TTL), all_marks[-1])
    marked_messages = [*messages]
    last = plain_message(marked_messages[head - 1])
    content = [*blocks(last)]
    if content and content[-1]["type"] in ("text", "tool_result", "tool_use") and content[-1].get("text") != "":
        content[-1] = {**content[-1], "cache_control": dict(mark)}
        marked_messages[head - 1] = {**last, "content": content}
    return marked_messages


MAX_RESERVE_TOKENS = 20_000
"""Largest part of the window kept free for the answer, in tokens (three-layer pipeline)."""
MAX_RESERVE_SHARE = 0.25
"""Largest share of a small window that is kept free for the answer."""
LOWEST_RATIO, HIGHEST_RATIO = 0.4, 2.5
"""Bounds of `Gauge.ratio`, outside of which a measurement is not believed. Our counter assumes the worst ratio
measured, so a true ratio is between 0.5 and 1. A lower count by the provider belongs to another prompt, unless the next
one is as low: then our counter is wrong, perhaps about a picture. A higher count shows further content in the prompt,
not another tokenizer."""
LARGEST_EXTRA = 2.5
"""Largest believable factor from our count of a known system prompt and tools to the provider's count."""
LARGEST_EXTRA_TOKENS = 2_000
"""Tokens that a provider may add itself: its prompt on how to call tools has 300 to 700 tokens."""
UNTOLD_SHARE = 0.5
"""Largest share of the limit that a system prompt and tools are assumed to have if the session does not know them."""
CLEAR_GROWTH_SHARE = 0.1
"""Smallest difference between two prompts that shows the true ratio of tokens, as a share of our count."""
CLEAR_GROWTH_TOKENS = 500
"""Smallest difference between two prompts that shows the true ratio of tokens, in tokens; less is noise."""


def prompt_limit_tokens(window_tokens: int, max_output_tokens: int) -> int:
    """Return the largest size of a prompt: the window without the part kept free for the answer."""
    return window_tokens - min(max_output_tokens, MAX_RESERVE_TOKENS, int(window_tokens * MAX_RESERVE_SHARE))


@dataclass(frozen=True, slots=True)
class Gauge:
    """Formula for the provider's tokens of a prompt: ``(fixed_tokens + messages) * ratio + extra_tokens``. The ratio
    corrects our tokenizer's counts of all text. The extra tokens belong to no known text, so that an unknown system
    prompt does not make messages seem longer."""

    fixed_tokens: int = 0
    """Tokens of the known system prompt and tools, by our counter."""
    ratio: float = 1.0
    """Factor from our count of tokens to the provider's count."""
    extra_tokens: float = 0.0
    """Tokens that the provider counts in addition; negative if it charges less for system prompt and tools."""
    least_counted: int = 0
    """Our count for the messages of the smallest prompt whose size the provider has reported."""
    least_actual: int = 0
    """Provider's count of the same prompt, from which on the ratio is measured. So the ratio covers all later text and
    not only the newest result."""
    is_resumed: bool = False
    """True if the ratio was measured by an earlier process, or follows from the tokenizers after a change of the model,
    and the provider reported no count since."""
    is_doubted: bool = False
    """True if the provider's newest count was too low to be believed."""

    def prompt(self, counted_tokens: float) -> int:
        """Return the provider's count of a prompt, estimated from `counted_tokens`, our count of its messages."""
        return max(0, math.ceil((self.fixed_tokens + counted_tokens) * self.ratio + self.extra_tokens))

    def of_messages(self, counted_tokens: float) -> int:
        """Return the provider's count of messages, estimated from our count `counted_tokens`."""
        return math.ceil(counted_tokens * self.ratio)

    def room_tokens(self, limit_tokens: int) -> int:
        """Return the tokens that remain for messages in a prompt of at most `limit_tokens`."""
        return max(1, limit_tokens - self.prompt(0))

    def countable(self, message_tokens: float) -> int:
        """Return our count of messages that the provider counts as `message_tokens` (the inverse of `of_messages`)."""
        return max(0, math.floor(message_tokens / self.ratio))

    def with_fixed(self, fixed_tokens: int) -> Gauge:
        """Return this formula for a system prompt and tools of `fixed_tokens`, by our counter. Tokens that become known
        this way no longer count as extra."""
        known_tokens = (fixed_tokens - self.fixed_tokens) * self.ratio
        extra = max(0.0, self.extra_tokens - known_tokens) if known_tokens > 0 else self.extra_tokens
        least = max(1, round(self.least_actual + known_tokens)) if self.least_actual else 0
        extra = max(extra, -fixed_tokens * self.ratio)
        return replace(self, fixed_tokens=fixed_tokens, extra_tokens=extra, least_actual=least)

    def calibrated(self, counted_tokens: int, actual_tokens: int, limit_tokens: int) -> Gauge:
        """Return this formula, corrected by a prompt that the provider counted as `actual_tokens`. `counted_tokens`:
        our count of its messages. The corrected formula gives `actual_tokens` for the same prompt, or the nearest
        number that system prompt, tools and a tokenizer can explain. `limit_tokens` bounds an unknown system prompt."""
        if counted_tokens <= 0 or actual_tokens <= 0:
            return self
        if actual_tokens < LOWEST_RATIO * counted_tokens:
            ratio = actual_tokens / (self.fixed_tokens + counted_tokens)
            restarted = Gauge(self.fixed_tokens, ratio, is_doubted=True)
            return restarted if self.is_doubted else replace(self, is_doubted=True)
        measured = self._measured_ratio(counted_tokens, actual_tokens)
        ratio = self._assumed_ratio(counted_tokens, actual_tokens) if measured is None else _bounded(measured)
        most_beside = self._most_beside(counted_tokens, limit_tokens, agreed=ratio == measured)
        beside_tokens = actual_tokens - ratio * counted_tokens
        if not 0 <= beside_tokens <= most_beside:
            beside_tokens = min(max(beside_tokens, 0.0), most_beside)
            ratio = _bounded((actual_tokens - beside_tokens) / counted_tokens)
        smallest = (self.least_counted, self.least_actual)
        if not self.least_actual or counted_tokens < self.least_counted:
            smallest = counted_tokens, min(actual_tokens, 10**9)
        return Gauge(self.fixed_tokens, ratio, beside_tokens - ratio * self.fixed_tokens, *smallest)

    def _measured_ratio(self, counted: int, actual: int) -> float | None:
        """Return the ratio of the provider's count to ours, measured as the slope between this and the smallest prompt.
        `counted` and `actual`: our count and the provider's. None if the two prompts hardly differ in size."""
        grown = counted - self.least_counted
        clear = self.least_actual and abs(grown) >= _noise_tokens(counted)
        return (actual - self.least_actual) / grown if clear else None

    def _assumed_ratio(self, counted: int, actual: int) -> float:
        """Return the ratio of the provider's count to ours before it is measured: the present one, or that of the first
        prompt. Our counter assumes the worst case, so the ratio is at most 1."""
        if self.is_resumed or self.least_actual:
            return self.ratio
        return min(1.0, _bounded(actual / (self.fixed_tokens + counted)))

    def _most_beside(self, counted: int, limit_tokens: int, *, agreed: bool) -> float:
        """Return the largest number of a prompt's tokens that may belong to no message (but to system prompt and
        tools). If these are unknown, one count proves at most a share of the limit, as it may be that of another
        prompt. Two that `agreed` on the ratio prove up to the whole limit."""
        if self.fixed_tokens:
            return LARGEST_EXTRA * self.fixed_tokens + LARGEST_EXTRA_TOKENS
        proved = limit_tokens if agreed else min(limit_tokens, self.extra_tokens + _noise_tokens(counted))
        return max(limit_tokens * UNTOLD_SHARE, proved)

    def refused(self, counted_tokens: int, actual_tokens: int, limit_tokens: int) -> Gauge:
        """Return this formula, corrected after the provider refused a prompt that seemed to fit. `counted_tokens`: our
        count of its messages. The provider's `actual_tokens` are always believed. If it named none (0), the correction
        stays within a tokenizer's possible error: perhaps the bytes were too many, or the window is smaller."""
        counted = max(1, self.fixed_tokens + counted_tokens)
        ratio = ((actual_tokens or limit_tokens + 1) - self.extra_tokens) / counted
        believed = ratio if actual_tokens else min(HIGHEST_RATIO, ratio)
        return replace(self, ratio=max(self.ratio, believed), least_actual=0)


def _noise_tokens(counted: int) -> float:
    """Return the difference between two prompts of this size below which it shows nothing about the ratio."""
    return max(CLEAR_GROWTH_TOKENS, CLEAR_GROWTH_SHARE * counted)


def _bounded(ratio: float) -> float:
    """Return `ratio` within the bounds of believable ratios."""
    return min(HIGHEST_RATIO, max(LOWEST_RATIO, ratio))


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
