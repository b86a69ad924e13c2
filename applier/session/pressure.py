"""Size, limit and cost of a session's prompts, and pauses of tiers (ways to shorten the list) that did not help.

Knows numbers only, no messages. Values in it are replaced, never changed in place, so that copies are independent.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from applier.session.presets import Preset
from applier.session.refusals import TooHeavy, TooLong
from applier.session.request import AgentCall, Gauge, prompt_limit_tokens
from applier.session.triggers import Level, Measurement, level_after
from applier.settings import SessionSettings
from planner.prices import cache_prices
from planner.reading.media import Load, MediaLimits
from planner.reading.tokens import TokenCounter
from planner.settings import RESTORE_TOOL, bare_tool_name, restore_tool_of

GROWTH_WEIGHT = 0.1
"""Weight of the newest call in the running average of how much a call adds to the prompt."""
REARM_SHARE, FORCED_REARM_SHARE = 0.05, 0.01
"""Shares of the limit by which the history must grow before a tier (way to shorten) is tried again after a try. The
second share is for tiers that ran because the window was nearly full."""


class Pause(NamedTuple):
    """Sizes of the history at which a paused tier (way to shorten the list) is tried again."""

    history_tokens: int
    answered_tokens: int
    """Size of the messages that the model has answered, for the case that the prompt does not fit."""


@dataclass
class Pressure:
    """Sizes, limits and prices of one session's prompts, by which the session decides when to compact."""

    settings: SessionSettings
    call: AgentCall
    """Fields of the agent's next request besides its messages, such as model and tools."""
    growth_tokens: float
    """Tokens that a call adds on average."""
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
    """Pause of each tier (way to shorten the list), by its name and whether it ran because the window was nearly
    full."""
    requested: str = ""
    """Cause (``tool``, ``window_exceeded``) of a compaction requested for the next call; empty without one."""
    focus: str = ""
    """Text for the planner on what matters most in the requested compaction."""
    is_full: bool = False
    """True if system prompt and tools alone fill the window. Nothing is compacted then, as it would not help."""
    is_recovering: bool = False
    """True if the provider refused the last prepared list and a shorter one was already tried."""

    def copy(self) -> Pressure:
        """Return an independent copy of all numbers."""
        return copy.copy(self)

    @property
    def window_tokens(self) -> int:
        """Size of the model's context window."""
        return self.settings.window_of(self.call.model)

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
        wanted_name = name_in_settings or RESTORE_TOOL
        mcp_name = name_in_settings if bare_tool_name(name_in_settings) != name_in_settings else ""
        if tools is None:
            return name_in_settings
        return restore_tool_of(tools, wanted_name) or restore_tool_of(tools) or mcp_name

    def take_call(self, call: AgentCall, counter: TokenCounter) -> None:
        """Store the fields of the next request, and count its system prompt and tools by `counter`. If the new model
        has another tokenizer, the comparison with the provider's counts begins again."""
        call_before, model = self.call, call.model or self.call.model
        scales = [TokenCounter.for_model(name).scale for name in (call_before.model, model)]
        if scales[0] != scales[1]:
            self.gauge = Gauge(ratio=scales[1] / counter.scale, is_resumed=True)
        max_output_tokens = call.max_output_tokens or call_before.max_output_tokens
        self.call = replace(call, model=model, max_output_tokens=max_output_tokens)
        self.gauge = self.gauge.with_fixed(counter.request((), self.call.system, self.call.tools))

    def goal_tokens(self, preset: Preset, history_tokens: int) -> int:
        """Return the size that the next plan of `preset` should leave, without the newest, unanswered messages.
        `history_tokens`: the counted size of the whole history."""
        tier, room_tokens = preset.plan_goal, self.room_tokens
        return (
            tier.goal_tokens(room_tokens, self.gauge.of_messages(history_tokens)) if tier is not None else room_tokens
        )

    def measure(self, view_tokens: int, goal_tokens: int, idle_seconds: float) -> Measurement:
        """Return the numbers by which triggers decide whether to shorten a prompt. `view_tokens`: count of its
        messages. `goal_tokens`: tokens that the next plan would leave. `idle_seconds`: time since the last call."""
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
        """Request a compaction at the next call. `trigger`: its cause (``tool``). `focus`: what matters most in it."""
        self.requested, self.focus = trigger, focus or self.focus

    def note_sent(self, view_tokens: int, added_tokens: int | None, goal_tokens: int) -> None:
        """Record that a list of `view_tokens` is sent, to measure growth and the cost of not compacting yet.
        `added_tokens`: tokens more than in the last list; None if that is unknown. A compaction could have removed what
        exceeds `goal_tokens`."""
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

    def is_paused(self, tier: str, forced: bool, history_tokens: int, answered_tokens: int, view_tokens: int) -> bool:
        """Return True if `tier` should not be tried yet, as the history has hardly grown since the last try. `forced`:
        the tier runs because the window is nearly full, for which it has a pause of its own. If the prompt (with
        `view_tokens` of messages) does not fit, it is enough that the answered messages, now `answered_tokens`, have
        grown."""
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
        """Pause a tier (way to shorten the list) until the history, now `history_tokens`, has grown.

        It must grow by `missing_tokens` or more. If the prompt does not fit, it is enough that the answered messages,
        now `answered_tokens`, have grown as much. `forced`: the tier ran because the window is nearly full; that pause
        is shorter. `is_held`: the user has undone the compaction, so the pause is long, but ends at once if the prompt
        does not fit.
        """
        share = FORCED_REARM_SHARE if forced and not is_held else REARM_SHARE
        growth_tokens = self.gauge.countable(max(missing_tokens, self.limit_tokens * share))
        answered_limit = 0 if is_held else answered_tokens + growth_tokens
        self.pauses = {**self.pauses, (tier, forced): Pause(history_tokens + growth_tokens, answered_limit)}
