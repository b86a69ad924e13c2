"""Pressure on a session: size, limit and cost of its prompt, and paused tiers.

Measures numbers and knows no messages. Values in it are replaced, never changed in place.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from applier.session.presets import Level, Measurement, Preset, level_after
from applier.session.request import AgentCall, Gauge, TooHeavy, TooLong, prompt_limit_tokens
from applier.settings import SessionSettings
from planner.prices import cache_prices
from planner.reading.media import Load, MediaLimits
from planner.reading.tokens import TokenCounter
from planner.settings import RESTORE_TOOL, bare_tool_name, restore_tool_of

GROWTH_WEIGHT = 0.1
"""Weight of the newest call in the average growth."""
REARM_SHARE, FORCED_REARM_SHARE = 0.05, 0.01
"""Growth, as a share of the limit, before a tier that has run or was rejected is tried again. The whole history must
grow by the first share; for a forced tier, its answered part by the second."""


class Pause(NamedTuple):
    """Sizes below which a tier is not tried again."""

    history_tokens: int
    answered_tokens: int
    """Size of the history without the live tail. It counts only if the prompt does not fit."""


@dataclass
class Pressure:
    """Sizes, limits and prices of one session's prompts."""

    settings: SessionSettings
    call: AgentCall
    """Agent's next request without its messages; model and output length as last set."""
    growth_tokens: float
    """Tokens that a call adds on average."""
    gauge: Gauge = field(default_factory=Gauge)
    maximum_tokens: int = sys.maxsize
    """Longest prompt in tokens that the provider accepts, as far as its errors show."""
    limits: MediaLimits = field(default_factory=MediaLimits)
    """Largest numbers of pictures and bytes that the provider accepts."""
    level: Level = "normal"
    carried_tokens: int = 0
    """Tokens that all calls since the last compaction have read and another compaction would have removed."""
    left_tokens: int = 0
    """Tokens left by the last plan, without the live tail: the next plan is not expected to leave less."""
    pauses: dict[tuple[str, bool], Pause] = field(default_factory=dict)
    """Pause of each tier, by its name and whether the window forces it."""
    requested: str = ""
    """Trigger (``manual``, ``tool``, …) of a compaction requested for the next call."""
    focus: str = ""
    is_full: bool = False
    """True if system and tools of the newest request alone fill the window; nothing automatic happens then."""
    is_recovering: bool = False
    """True if a shorter list was already tried after the last prepared one was refused."""

    def copy(self) -> Pressure:
        """Return an independent copy."""
        return copy.copy(self)

    @property
    def window_tokens(self) -> int:
        """Context window of the model."""
        return self.settings.window_of(self.call.model)

    @property
    def limit_tokens(self) -> int:
        """Tokens that a prompt may have."""
        most = self.call.max_output_tokens or self.settings.max_output_tokens
        return min(prompt_limit_tokens(self.window_tokens, most), self.maximum_tokens)

    @property
    def room_tokens(self) -> int:
        """Tokens available for messages, after system and tools."""
        return self.gauge.room_tokens(self.limit_tokens)

    @property
    def no_room(self) -> str:
        """Problem and remedy if system and tools alone fill the window; empty if they do not."""
        fixed = min(self.gauge.of_messages(self.gauge.fixed_tokens), self.gauge.prompt(0))
        if fixed < self.limit_tokens:
            return ""
        return (
            f"system and tools take {fixed} of the {self.limit_tokens} tokens a prompt may have: "
            "send fewer tools, or raise window_tokens"
        )

    @property
    def restore_tool(self) -> str:
        """Name of the agent's tool that restores a turn; empty if it has none.

        An MCP tool whose full name is in the settings counts even if the request does not list it, as Codex lists none.
        """
        tools, named = self.call.tools, self.settings.plan.restore_tool
        called = named or RESTORE_TOOL
        in_full = named if bare_tool_name(named) != named else ""
        return called if tools is None else restore_tool_of(tools, called) or restore_tool_of(tools) or in_full

    def take_call(self, call: AgentCall, counter: TokenCounter) -> None:
        """Store the next request's model, system and tools, counted by the history's `counter`.

        With another tokenizer, the measurement of the provider's tokens begins again.
        """
        before, model = self.call, call.model or self.call.model
        scales = [TokenCounter.for_model(name).scale for name in (before.model, model)]
        if scales[0] != scales[1]:
            self.gauge = Gauge(ratio=scales[1] / counter.scale, is_resumed=True)
        most = call.max_output_tokens or before.max_output_tokens
        self.call = replace(call, model=model, max_output_tokens=most)
        self.gauge = self.gauge.with_fixed(counter.request((), self.call.system, self.call.tools))

    def goal_tokens(self, preset: Preset, history_tokens: int) -> int:
        """Return the tokens that the next plan of `preset` should leave, without the live tail.

        `history_tokens`: the counted size of the whole history.
        """
        goal, room = preset.plan_goal, self.room_tokens
        return goal.goal_tokens(room, self.gauge.of_messages(history_tokens)) if goal is not None else room

    def measure(self, view_tokens: int, goal_tokens: int, idle_seconds: float) -> Measurement:
        """Return the numbers for the triggers, for a prompt whose messages count `view_tokens`.

        `goal_tokens`: tokens that the next plan would leave. `idle_seconds`: time since the last call.
        """
        tokens = self.gauge.prompt(view_tokens)
        return Measurement(
            tokens=tokens,
            limit_tokens=self.limit_tokens,
            level=level_after(self.level, tokens, self.limit_tokens),
            beside_tokens=self.gauge.prompt(0),
            goal_tokens=goal_tokens,
            carried_tokens=self.carried_tokens,
            growth_tokens_per_call=self.growth_tokens,
            idle_seconds=idle_seconds,
            requested=self.requested,
            prices=cache_prices(self.call.model),
        )

    def request(self, trigger: str, focus: str = "") -> None:
        """Request a compaction at the next call. `trigger` is its cause (``tool``); `focus` tells the planner what
        matters."""
        self.requested, self.focus = trigger, focus or self.focus

    def note_sent(self, view_tokens: int, added_tokens: int | None, goal_tokens: int) -> None:
        """Record that a list with `view_tokens` is sent, which has `added_tokens` more than the last one.

        `added_tokens` is None if the last list is unknown. What exceeds `goal_tokens` could have been removed.
        """
        if added_tokens is not None:
            self.growth_tokens += GROWTH_WEIGHT * (self.gauge.of_messages(added_tokens) - self.growth_tokens)
        self.carried_tokens += max(0, self.gauge.of_messages(view_tokens) - goal_tokens)

    def refuse_load(self, refused: TooHeavy, load: Load) -> None:
        """Record that the provider refused a request of this `load` because of its pictures or bytes."""
        limits = self.limits
        size = min(limits.size, load.size - 1) if refused.is_size else limits.size
        self.limits = MediaLimits(refused.images or limits.images, size, refused.largest or limits.largest)

    def refuse(self, refused: TooLong, view_tokens: int) -> None:
        """Record that the provider refused a prompt with `view_tokens` of messages because of its length."""
        self.maximum_tokens = refused.maximum_tokens or self.maximum_tokens
        self.gauge = self.gauge.refused(view_tokens, refused.actual_tokens, self.limit_tokens)

    def is_paused(self, tier: str, forced: bool, history_tokens: int, answered_tokens: int, view_tokens: int) -> bool:
        """Return True if `tier` is still paused, for a history of `history_tokens`.

        A tier has one pause for when the window forces it (`forced`), and one for when it does not. If the prompt with
        `view_tokens` of messages does not fit, only the size `answered_tokens` of the history without its live tail
        counts.
        """
        pause = self.pauses.get((tier, forced), Pause(0, 0))
        if history_tokens >= pause.history_tokens:
            return False
        return self.gauge.prompt(view_tokens) <= self.limit_tokens or answered_tokens < pause.answered_tokens

    def pause(
        self,
        tier: str,
        forced: bool,
        history_tokens: int,
        answered_tokens: int,
        missing_tokens: int,
        *,
        is_held: bool = False,
    ) -> None:
        """Pause `tier` until the history, now `history_tokens`, has grown by `missing_tokens` or more.

        If the prompt does not fit, it is enough that the answered part, now `answered_tokens`, has grown as much; a
        tier that `is_held` is then tried at once. `forced`: the window forced the tier; its pause is shorter, unless it
        `is_held`.
        """
        share = FORCED_REARM_SHARE if forced and not is_held else REARM_SHARE
        growth = self.gauge.countable(max(missing_tokens, self.limit_tokens * share))
        answered = 0 if is_held else answered_tokens + growth
        self.pauses = {**self.pauses, (tier, forced): Pause(history_tokens + growth, answered)}
