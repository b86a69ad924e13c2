"""Size, limit and cost of a session's prompts, triggers that depend on them, and pauses of tiers (ways to shorten).

`Gauge` corrects our estimates of tokens by the provider's own counts. Knows numbers only, no messages. Values in it
are replaced, never changed in place, so that copies are independent.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from applier.session.history_tracker import Load
from applier.session.refusals import TooHeavy, TooLong
from applier.session.request import AgentCall
from applier.settings import SessionSettings
from planner.evidence.calls import RESTORE_TOOL, bare_tool_name, restore_tool_of
from planner.prices import ModelPrices, cache_prices, carrying_costs_more
from planner.reading.media import MANY_IMAGES
from planner.reading.tokens import TokenCounter

GROWTH_WEIGHT = 0.1
"""Weight of the newest call in the running average of how much a call adds to the prompt."""


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Largest numbers of pictures and bytes in a request: the API's, until an error names smaller ones."""

    images: int = 100
    """Largest number of images and document pages."""
    size: int = 30_000_000
    """Largest number of bytes of all messages; the whole request, with system and tools, may have 32 MB."""
    largest: int = sys.maxsize
    """Largest size of one picture, in characters of base64; without a limit until an error names it."""

    def excess(self, load: Load) -> float:
        """Return the largest share of any limit that a request with this `load` uses: 0.5 for half as many pictures as
        are allowed. Above 1 a provider refuses it. With a large picture at most `MANY_IMAGES` are allowed."""
        share_with_large = load.images / MANY_IMAGES if load.large else 0.0
        return max(load.images / self.images, load.size / self.size, load.largest / self.largest, share_with_large)


MAX_RESERVE_TOKENS = 20_000
"""Largest part of the window kept free for the answer, in tokens (as in the three-layer pipeline)."""
MAX_RESERVE_SHARE = 0.25
"""Largest share of a small window that is kept free for the answer."""
LOWEST_RATIO, HIGHEST_RATIO = 0.4, 2.5
"""Bounds of `Gauge.ratio`, outside of which a measurement is not believed. Our counter assumes the worst ratio that was
measured, so a true ratio is between 0.5 and 1. A lower count by the provider belongs to another prompt, unless the next
one is as low: then our counter is wrong, perhaps about a picture. A higher count means further content in the prompt.
"""
LARGEST_EXTRA = 2.5
"""Largest believable factor from our count of a known system prompt and tools to the provider's count."""
LARGEST_EXTRA_TOKENS = 2_000
"""Tokens that a provider may add itself: its prompt on how to call tools has 300 to 700 tokens."""
UNKNOWN_SHARE = 0.5
"""Largest share of the limit that a system prompt and tools are assumed to have if the session does not know them."""
CLEAR_GROWTH_SHARE = 0.1
"""Smallest difference in size between two prompts from which `Gauge.ratio` is measured, as a share of our count."""
CLEAR_GROWTH_TOKENS = 500
"""Smallest difference in size between two prompts from which `Gauge.ratio` is measured, in tokens; less is noise."""


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
    """Provider's count of that smallest prompt. The ratio is measured from it to the newest prompt, so that it covers
    all text in between and not only the newest result."""
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
        known_tokens = (fixed_tokens - self.fixed_tokens) * self.ratio  # by the provider's counter
        extra = max(0.0, self.extra_tokens - known_tokens) if known_tokens > 0 else self.extra_tokens
        # the smallest prompt's size, as if it had had this system prompt and these tools
        least = max(1, round(self.least_actual + known_tokens)) if self.least_actual else 0
        extra = max(extra, -fixed_tokens * self.ratio)  # never less than no tokens for system prompt and tools
        return replace(self, fixed_tokens=fixed_tokens, extra_tokens=extra, least_actual=least)

    def calibrated(self, counted_tokens: int, actual_tokens: int, limit_tokens: int) -> Gauge:
        """Return this formula, corrected by a prompt that the provider counted as `actual_tokens`. `counted_tokens`:
        our count of its messages. The corrected formula gives `actual_tokens` for the same prompt, or the nearest
        believable number. `limit_tokens` (the largest prompt) bounds the size of an unknown system prompt."""
        if counted_tokens <= 0 or actual_tokens <= 0:
            return self
        if actual_tokens < LOWEST_RATIO * counted_tokens:  # not believed before it happens twice in a row
            ratio = actual_tokens / (self.fixed_tokens + counted_tokens)
            restarted = Gauge(self.fixed_tokens, ratio, is_doubted=True)
            return restarted if self.is_doubted else replace(self, is_doubted=True)
        # then split the provider's count into messages (by the ratio) and the rest, beside the messages
        measured = self._measured_ratio(counted_tokens, actual_tokens)
        ratio = self._assumed_ratio(counted_tokens, actual_tokens) if measured is None else _bounded(measured)
        most_beside = self._most_beside(counted_tokens, limit_tokens, agreed=ratio == measured)
        beside_tokens = actual_tokens - ratio * counted_tokens  # system prompt, tools and extra tokens
        if not 0 <= beside_tokens <= most_beside:  # then the ratio must be different
            beside_tokens = min(max(beside_tokens, 0.0), most_beside)
            ratio = _bounded((actual_tokens - beside_tokens) / counted_tokens)
        smallest = (self.least_counted, self.least_actual)
        if not self.least_actual or counted_tokens < self.least_counted:
            smallest = counted_tokens, min(actual_tokens, 10**9)
        return Gauge(self.fixed_tokens, ratio, beside_tokens - ratio * self.fixed_tokens, *smallest)

    def _measured_ratio(self, counted: int, actual: int) -> float | None:
        """Return the provider's tokens for each of ours in the text that this prompt has more than the smallest prompt
        so far. `counted`, `actual`: our count and the provider's. None if the two prompts hardly differ in size."""
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
        """Return the largest number of a prompt's tokens that may belong to system prompt and tools, not to messages.
        If these are unknown, one count by the provider is believed up to a share of the limit, as it may be that of
        another prompt. If two counts `agreed` on the ratio, they are believed up to the whole limit."""
        if self.fixed_tokens:
            return LARGEST_EXTRA * self.fixed_tokens + LARGEST_EXTRA_TOKENS
        proved = limit_tokens if agreed else min(limit_tokens, self.extra_tokens + _noise_tokens(counted))
        return max(limit_tokens * UNKNOWN_SHARE, proved)

    def refused(self, counted_tokens: int, actual_tokens: int, limit_tokens: int) -> Gauge:
        """Return this formula, corrected after the provider refused a prompt that seemed to fit. `counted_tokens`: our
        count of its messages. `actual_tokens`: the provider's count, always believed. If it named none (0), the ratio
        rises to at most `HIGHEST_RATIO`: perhaps the bytes were too many, or the window is smaller."""
        counted = max(1, self.fixed_tokens + counted_tokens)
        ratio = ((actual_tokens or limit_tokens + 1) - self.extra_tokens) / counted
        believed = ratio if actual_tokens else min(HIGHEST_RATIO, ratio)
        return replace(self, ratio=max(self.ratio, believed), least_actual=0)


def _noise_tokens(counted: int) -> float:
    """Return the smallest difference in size to a prompt of `counted` tokens from which the ratio is measured."""
    return max(CLEAR_GROWTH_TOKENS, CLEAR_GROWTH_SHARE * counted)


def _bounded(ratio: float) -> float:
    """Return `ratio` within the bounds of believable ratios."""
    return min(HIGHEST_RATIO, max(LOWEST_RATIO, ratio))


Level = Literal["normal", "warning", "critical", "exhausted"]
"""Fullness of the context window: ``critical`` is nearly full, and at ``exhausted`` the prompt does not fit."""

LEVELS: tuple[tuple[Level, float], ...] = (("normal", 0.0), ("warning", 0.8), ("critical", 0.95), ("exhausted", 1.0))
"""Levels of fullness, with the share of the limit at which each begins, as in Claude Code."""
LEVEL_ORDER: tuple[Level, ...] = tuple(level for level, _ in LEVELS)
"""Levels of fullness, the emptiest first."""
HYSTERESIS_SHARE = 0.05
"""Share of the limit by which a prompt must be below a level's threshold before the level ends, so that a size near the
threshold does not change the level at every call."""


def level_after(level: Level, tokens: int, limit_tokens: int) -> Level:
    """Return the fullness of a window that was at `level` before and now has a prompt of `tokens`. `limit_tokens`:
    largest prompt that fits. The level rises at once, but falls only when the prompt is `HYSTERESIS_SHARE` below the
    level's threshold."""
    share = tokens / max(1, limit_tokens)
    reached = max((i for i, (_, begins) in enumerate(LEVELS) if share >= begins), default=0)
    current = LEVEL_ORDER.index(level)
    while current > reached and share < LEVELS[current][1] - HYSTERESIS_SHARE:
        current -= 1
    return LEVEL_ORDER[max(current, reached)]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Size and costs of a prompt, by which triggers decide whether to shorten it."""

    tokens: int
    """Tokens of the whole prompt, if it were sent now."""
    limit_tokens: int
    level: Level
    beside_tokens: int = 0
    """Tokens of system prompt and tools, which no compaction changes; included in `tokens`."""
    goal_tokens: int = 0
    """Tokens of messages that the next compaction would leave."""
    carried_tokens: int = 0
    """Tokens above `goal_tokens`, added up over all calls since the last compaction: the price of waiting."""
    growth_tokens_per_call: float = 0.0
    idle_seconds: float = 0.0
    """Seconds since the last call."""
    requested: str = ""
    """Cause of a compaction requested for this call (``tool``, ``window_exceeded``); empty without one."""
    prices: ModelPrices = field(default_factory=cache_prices)


@dataclass(frozen=True, slots=True)
class When:
    """Trigger of a row in a preset. It fires if all its fields hold; one without fields fires at every call."""

    name: str
    level: Level = "normal"
    """Fullness of the window from which the trigger fires."""
    tokens_over: int = 0
    """Size of the prompt from which the trigger fires, in tokens."""
    share_over: float = 0.0
    """Size of the prompt from which the trigger fires, as a share of the limit."""
    room_under: int = 0
    """Number of free tokens up to which the trigger fires; in a small window at most an eighth of it. 0: not used."""
    idle_seconds: float = 0.0
    """Time since the last call from which the trigger fires."""
    growth_pays: bool = False
    """True if the trigger waits until reading the messages that were added since the last compaction, again in each
    call, has cost as much as a compaction would."""
    dearer: bool = False
    """True if the trigger waits for a prompt so long that each token costs more, which a compaction would avoid."""
    requested: bool = False
    """True if the trigger waits for a requested compaction."""

    def fires(self, measured: Measurement) -> bool:
        """Return True if the numbers `measured` meet all conditions of this trigger."""
        room, goal, prices = measured.limit_tokens - measured.tokens, measured.goal_tokens, measured.prices
        return (
            LEVEL_ORDER.index(measured.level) >= LEVEL_ORDER.index(self.level)
            and measured.tokens >= self.tokens_over
            and measured.tokens >= measured.limit_tokens * self.share_over
            and (not self.room_under or room <= min(self.room_under, measured.limit_tokens // 8))
            and measured.idle_seconds >= self.idle_seconds
            and (not self.growth_pays or (goal > 0 and carrying_costs_more(measured.carried_tokens, goal, prices)))
            and (not self.dearer or prices.factor(measured.tokens) > prices.factor(goal + measured.beside_tokens))
            and (not self.requested or bool(measured.requested))
        )


class Pause(NamedTuple):
    """Sizes of the history at which a paused tier (way to shorten the list) is tried again."""

    history_tokens: int
    answered_tokens: int
    """Size of the messages that the model has answered; it decides if the prompt does not fit."""


@dataclass
class Pressure:
    """Sizes, limits and prices of one session's prompts, by which the session decides when to compact."""

    settings: SessionSettings
    call: AgentCall
    """Fields of the agent's next request besides its messages, such as model and tools."""
    growth_tokens: float
    """Tokens that a call adds on average."""
    window_tokens: int = 0
    """Size of the context window of the model that `call` names."""
    gauge: Gauge = field(default_factory=Gauge)
    """Formula that turns our token counts into the provider's token counts."""
    maximum_tokens: int = sys.maxsize
    """Longest prompt that the provider accepts, as far as its errors have shown it."""
    limits: MediaLimits = field(default_factory=MediaLimits)
    """Largest number of pictures, and of bytes, that the provider accepts."""
    level: Level = "normal"
    """Fullness of the window at the last call."""
    carried_tokens: int = 0
    """Tokens that a compaction would have saved, added up over all calls since the last one."""
    left_tokens: int = 0
    """Tokens that the last plan left, without the newest messages; the next plan will hardly leave less."""
    pauses: dict[tuple[str, bool], Pause] = field(default_factory=dict)
    """Pause of each tier (way to shorten the list), by its name and whether the window was nearly full."""
    requested: str = ""
    """Cause (``tool``, ``window_exceeded``) of a compaction requested for the next call; empty without one."""
    focus: str = ""
    """Text for the planner on what matters most in the requested compaction."""
    is_full: bool = False
    """True if system prompt and tools alone fill the window. Nothing is compacted then, as it would not help."""
    is_recovering: bool = False
    """True if the provider refused the last prepared list and a shorter one was already tried."""

    @property
    def limit_tokens(self) -> int:
        """Largest size of a prompt: the window without the part kept free for the answer."""
        answer_tokens = self.call.max_output_tokens or self.settings.max_output_tokens
        return min(prompt_limit_tokens(self.window_tokens, answer_tokens), self.maximum_tokens)

    @property
    def room_tokens(self) -> int:
        """Tokens that remain for messages, after system prompt and tools."""
        return self.gauge.room_tokens(self.limit_tokens)

    @property
    def no_room(self) -> str:
        """Error text, with the remedy, if system prompt and tools alone fill the window; empty if they do not."""
        # tokens that the provider counts in addition may be a mistake: alone they stop nothing
        fixed_tokens = min(self.gauge.of_messages(self.gauge.fixed_tokens), self.gauge.prompt(0))
        if fixed_tokens < self.limit_tokens:
            return ""
        return (
            f"system and tools take {fixed_tokens} of the {self.limit_tokens} tokens a prompt may have: "
            "send fewer tools, or raise window_tokens"
        )

    @property
    def restore_tool(self) -> str:
        """Name of the agent's tool that returns a removed turn; empty if none is known. An MCP tool whose full name is
        in the settings counts even if the request does not list it, as Codex lists none."""
        tools, name_in_settings = self.call.tools, self.settings.plan.restore_tool
        if tools is None:
            return name_in_settings
        wanted_name = name_in_settings or RESTORE_TOOL
        is_mcp_name = bare_tool_name(name_in_settings) != name_in_settings  # ``mcp__compactor__restore_context``
        mcp_name = name_in_settings if is_mcp_name else ""
        return restore_tool_of(tools, wanted_name) or restore_tool_of(tools) or mcp_name

    def take_call(self, call: AgentCall, counter: TokenCounter) -> None:
        """Store the fields of the next request, and count its system prompt and tools by `counter`. If the new model
        has another tokenizer, earlier counts of the provider are forgotten."""
        call_before, model = self.call, call.model or self.call.model
        scales = [TokenCounter.for_model(name).scale for name in (call_before.model, model)]
        if scales[0] != scales[1]:
            self.gauge = Gauge(ratio=scales[1] / counter.scale, is_resumed=True)  # `counter` stays the first model's
        max_output_tokens = call.max_output_tokens or call_before.max_output_tokens
        self.call = replace(call, model=model, max_output_tokens=max_output_tokens)
        self.window_tokens = self.settings.window_of(model)
        self.gauge = self.gauge.with_fixed(counter.request((), self.call.system, self.call.tools))

    def request(self, trigger: str, focus: str = "") -> None:
        """Request a compaction at the next call. `trigger`: its cause (``tool``). `focus`: what matters most in it."""
        self.requested, self.focus = trigger, focus or self.focus

    def note_sent(self, view_tokens: int, added_tokens: int | None, goal_tokens: int) -> None:
        """Record that a list of `view_tokens` is sent, to measure growth and the cost of not compacting yet.
        `added_tokens`: tokens more than in the last list; None if that is unknown. `goal_tokens`: tokens that a
        compaction would have left."""
        if added_tokens is not None:
            self.growth_tokens += GROWTH_WEIGHT * (self.gauge.of_messages(added_tokens) - self.growth_tokens)
        self.carried_tokens += max(0, self.gauge.of_messages(view_tokens) - goal_tokens)

    def refuse_load(self, refused: TooHeavy, load: Load) -> None:
        """Lower the limits after the provider refused a request of this `load` for its pictures or bytes."""
        limits = self.limits
        size = min(limits.size, load.size - 1) if refused.is_size else limits.size
        self.limits = MediaLimits(refused.images or limits.images, size, refused.largest or limits.largest)

    def refuse(self, refused: TooLong, view_tokens: int) -> None:
        """Lower the limit, and correct the token formula, after the provider refused a prompt as too long.
        `view_tokens`: counted tokens of its messages."""
        self.maximum_tokens = refused.maximum_tokens or self.maximum_tokens
        self.gauge = self.gauge.refused(view_tokens, refused.actual_tokens, self.limit_tokens)
