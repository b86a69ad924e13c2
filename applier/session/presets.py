"""Presets: systems that can be run by name, each a small table of tiers, their triggers, and constants.

The constants are those of the systems themselves, including their treatment of new results; ``relevance``, the
project's own, keeps the live tail whole. The last rows of every table except ``off`` fire only if the prompt would not
fit at all. A trigger decides by numbers alone, time included.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from applier.session.tiers import (
    ClearResults,
    DemoteLarge,
    FitNewest,
    PlanTurns,
    RetreatHead,
    SnipMiddle,
    StubRereads,
    Tier,
)
from applier.settings import SessionSettings
from planner.errors import SettingsError
from planner.prices import cache_prices, carrying_costs_more
from planner.settings import ModelPrices

Level = Literal["normal", "warning", "critical", "exhausted"]

LEVELS: tuple[tuple[Level, float], ...] = (("normal", 0.0), ("warning", 0.8), ("critical", 0.95), ("exhausted", 1.0))
"""Levels with the share of the limit at which each begins, as in Claude Code."""
HYSTERESIS_SHARE = 0.05
"""Distance below the threshold at which a level ends, so that a count near it does not flutter."""

_ORDER: tuple[Level, ...] = tuple(level for level, _ in LEVELS)


def level_after(level: Level, tokens: int, limit_tokens: int) -> Level:
    """Return the level of a prompt of `tokens`, of which `limit_tokens` fit, if the level was `level` before.

    It rises at once. It falls only when the prompt is `HYSTERESIS_SHARE` below the level's threshold.
    """
    share = tokens / max(1, limit_tokens)
    reached = max((i for i, (_, begins) in enumerate(LEVELS) if share >= begins), default=0)
    held = _ORDER.index(level)
    while held > reached and share < LEVELS[held][1] - HYSTERESIS_SHARE:
        held -= 1
    return _ORDER[max(held, reached)]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Numbers that triggers read."""

    tokens: int
    """Tokens of the whole prompt, as it would be sent."""
    limit_tokens: int
    level: Level
    beside_tokens: int = 0
    """Tokens of system and tools, a part of `tokens` that a compaction neither reduces nor rewrites in the cache."""
    goal_tokens: int = 0
    """Message tokens that the next compaction would leave."""
    carried_tokens: int = 0
    """Tokens above `goal_tokens` that all calls since the last compaction have read."""
    growth_tokens_per_call: float = 0.0
    idle_seconds: float = 0.0
    """Seconds since the last call."""
    requested: str = ""
    """Trigger of a requested compaction: ``manual``, ``tool``, ``prompt_too_long``."""
    prices: ModelPrices = field(default_factory=cache_prices)


@dataclass(frozen=True, slots=True)
class When:
    """Condition of a row. It fires if all its fields hold; one without fields fires at every call."""

    name: str
    level: Level = "normal"
    tokens_over: int = 0
    share_over: float = 0.0
    """Share of the limit that the prompt must exceed."""
    room_under: int = 0
    """Largest remaining number of tokens to the limit; in a small window at most an eighth of it."""
    idle_seconds: float = 0.0
    growth_pays: bool = False
    """True if the row waits until reading what was added has cost as much as another compaction would."""
    dearer: bool = False
    """True if the row waits for a prompt in a dearer price band that a compaction would leave."""
    requested: bool = False

    def fires(self, measured: Measurement) -> bool:
        """Return True if every condition holds in `measured`."""
        room, goal, prices = measured.limit_tokens - measured.tokens, measured.goal_tokens, measured.prices
        return (
            _ORDER.index(measured.level) >= _ORDER.index(self.level)
            and measured.tokens >= self.tokens_over
            and measured.tokens >= measured.limit_tokens * self.share_over
            and (not self.room_under or room <= min(self.room_under, measured.limit_tokens // 8))
            and measured.idle_seconds >= self.idle_seconds
            and (not self.growth_pays or (goal > 0 and carrying_costs_more(measured.carried_tokens, goal, prices)))
            and (not self.dearer or prices.factor(measured.tokens) > prices.factor(goal + measured.beside_tokens))
            and (not self.requested or bool(measured.requested))
        )


RECOVERY_SHARE = 0.6
"""Largest size after a recovery as a share of the refused list, whatever goal a user has set."""


@dataclass(frozen=True, slots=True)
class Step:
    """Row of a preset: a tier, its trigger, and its smallest saving."""

    tier: Tier
    when: tuple[When, ...]
    """Conditions of the row, of which one is enough."""
    min_savings_tokens: int = 0
    """Smallest saving in tokens; ignored when the window forces the step."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Way to keep an agent within its window."""

    name: str
    arrival: tuple[Tier, ...] = ()
    """Tiers for new results: nothing after them is cached yet, so these cost no rewriting."""
    steps: tuple[Step, ...] = ()
    """Rows, cheapest first. Rows before the planning row are cheap, rows after it are last resorts."""
    manual: tuple[Tier, ...] = (PlanTurns(),)
    """Tiers of `compact`, tried in order until one changes something."""
    recovery: tuple[Tier, ...] = (PlanTurns(target_share=0.4, rules_only=True), RetreatHead(0.4), FitNewest())
    """Tiers of `recover`, run in order until the prompt is clearly shorter."""
    files_share: float = 0.0
    """Share of the tokens left by a plan that may be spent on repeating the files read last."""
    expected_growth_tokens: float = 0.0
    """Tokens added by a call, until they are measured."""

    @property
    def cheap(self) -> tuple[Step, ...]:
        """Rows before the planning row."""
        return self.steps[: self._planning_at]

    @property
    def planning(self) -> tuple[Step, ...]:
        """Planning row, as a tuple of one row; empty without one."""
        return self.steps[self._planning_at : self._planning_at + 1]

    @property
    def last_resorts(self) -> tuple[Step, ...]:
        """Rows after the planning row."""
        return self.steps[self._planning_at + 1 :]

    @property
    def _planning_at(self) -> int:
        rows = enumerate(self.steps)
        return next((at for at, row in rows if isinstance(row.tier, PlanTurns)), len(self.steps))

    @property
    def plan_goal(self) -> PlanTurns | None:
        """Tier of the planning row; None without one."""
        tiers = (row.tier for row in self.planning)
        return next((tier for tier in tiers if isinstance(tier, PlanTurns)), None)

    def tuned(self, settings: SessionSettings) -> Preset:
        """Return this preset as changed by the user's `settings`.

        `keep_ratio` replaces the goal of tiers that plan, and `compact_at_ratio` the trigger of the planning row; a
        setting that is None changes nothing. A recovery keeps at most `RECOVERY_SHARE`. Rows that run only because the
        prompt would not fit do not change. Without `auto_compact`, only `manual` and `recovery` are left.
        """
        keep, compact_at = settings.keep_ratio, settings.compact_at_ratio
        keep_in_recovery = None if keep is None else min(keep, RECOVERY_SHARE)
        when = None if compact_at is None else (ASKED, When("compact_at", share_over=compact_at))
        return replace(
            self,
            arrival=self.arrival if settings.auto_compact else (),
            steps=tuple(_tuned_step(step, keep, when) for step in self.steps) if settings.auto_compact else (),
            manual=tuple(_tuned_tier(tier, keep) for tier in self.manual),
            recovery=tuple(_tuned_tier(tier, keep_in_recovery) for tier in self.recovery),
        )


def _tuned_tier(tier: Tier, share: float | None) -> Tier:
    """Return `tier` with the user's `share` of the history as its goal; `tier` itself if it does not plan."""
    if share is None or not isinstance(tier, PlanTurns):
        return tier
    return replace(tier, target_share=share, history_share=share, target_tokens=0)


def _tuned_step(step: Step, keep_ratio: float | None, when: tuple[When, ...] | None) -> Step:
    """Return `step`, if it is a planning row, with the user's `keep_ratio` and trigger; else `step` itself.

    With the user's trigger, no smallest saving delays it.
    """
    if not isinstance(step.tier, PlanTurns) or step.tier.rules_only:
        return step
    tier = _tuned_tier(step.tier, keep_ratio)
    return replace(step, tier=tier) if when is None else Step(tier, when)


ALWAYS = (When("every turn"),)
ASKED = When("asked", requested=True)
EXHAUSTED = (When("exhausted", level="exhausted"),)

SAFETY = (
    Step(PlanTurns(0.35, rules_only=True, name="aggressive"), EXHAUSTED),
    Step(ClearResults(keep_last=1, preview_characters=400, name="truncate"), EXHAUSTED),
    Step(RetreatHead(0.5), EXHAUSTED),
    Step(FitNewest(), EXHAUSTED),
)
SAFE_ARRIVAL = DemoteLarge()
"""Tier that shortens only results that would not fit the window otherwise."""

LEAST_SAVINGS_TOKENS = 2_000
"""Smallest saving of a plan that nobody forces or requests, since everything after the change is billed again. Some
presets have a larger one."""
RELEVANT = PlanTurns(0.1, floor_tokens=8_000)
"""Planning on request. It frees as much as possible: the less is kept, the cheaper is a call, and the more the agent
misses."""
A_FIFTH = replace(RELEVANT, target_share=0.2, history_share=0.2)
"""Automatic planning, which leaves a fifth of the history, and at most a fifth of the room in the window. A share of
the window alone would be half of a short history, and next to nothing of one with large results. On nineteen sessions
at 200,000 tokens, with cache reads at a tenth of the price, it keeps .974 of the names that the agent needs
(`python -m tests.bench presets`). To leave 15 % costs 7 % less and keeps .957; to leave a tenth costs 16 % less and
keeps .929. With knowledge of each whole session one could choose moments that cost 7 % less
(`python -m tests.bench least`)."""
RELEVANCE = Preset(
    "relevance",
    arrival=(SAFE_ARRIVAL,),
    steps=(
        Step(
            A_FIFTH,
            (
                ASKED,
                When("growth", growth_pays=True),
                When("price", dearer=True),
                When("idle", idle_seconds=300, share_over=0.2),
                When("critical", level="critical"),
            ),
            LEAST_SAVINGS_TOKENS,
        ),
        Step(PlanTurns(0.06, rules_only=True, name="aggressive"), (When("critical", level="critical"),)),
        *SAFETY[1:],
    ),
    manual=(RELEVANT,),
    recovery=(replace(RELEVANT, rules_only=True), RetreatHead(0.4), FitNewest()),
    files_share=0.1,
    expected_growth_tokens=1_000,
)

SUMMARY_AND_LAST_FIVE = (
    PlanTurns(0.4, target_tokens=8_000, keep_last_messages=5, rules_only=True),
    RetreatHead(0.4),
    FitNewest(),
)
"""Recovery of the presets three-layer and s08: a short plan by rules, and the last five messages."""


def _system(
    name: str,
    plan: PlanTurns,
    when: When,
    *cheaper: Step,
    arrival: tuple[Tier, ...] = (SAFE_ARRIVAL,),
    min_savings_tokens: int = LEAST_SAVINGS_TOKENS,
    **more: Any,
) -> Preset:
    """Return the preset of another system: it runs the `cheaper` steps, then plans by `plan` on request or if `when`
    fires.

    A compaction by command frees as much as possible. `more`: further fields of the preset.
    """
    steps = (*cheaper, Step(plan, (ASKED, when), min_savings_tokens), *SAFETY)
    return Preset(name, arrival, steps, manual=(replace(plan, max_freed_tokens=0),), **more)


THREE_LAYER = _system(
    "three-layer",
    PlanTurns(0.5, target_tokens=8_000, keep_last_messages=5),
    When("auto", room_under=13_000),
    Step(ClearResults(3, over_tokens=1_000, kinds=frozenset(("run", "read", "write"))), ALWAYS),
    arrival=(DemoteLarge(40_000),),
    recovery=SUMMARY_AND_LAST_FIVE,
    files_share=0.5,
    min_savings_tokens=20_000,
)
S06 = _system(
    "s06",
    PlanTurns(0.5, target_tokens=4_000),
    When("threshold", tokens_over=50_000),
    Step(ClearResults(3, over_characters=100), ALWAYS),
)
S08 = _system(
    "s08",
    PlanTurns(0.5, target_tokens=8_000),
    When("auto", room_under=13_000),
    Step(SnipMiddle(50, 3, 47), ALWAYS),
    Step(ClearResults(3, over_characters=120), ALWAYS),
    arrival=(DemoteLarge(characters=200_000),),
    recovery=SUMMARY_AND_LAST_FIVE,
)
CLAUDE_CODE = _system(
    "claude-code",
    PlanTurns(0.5, target_tokens=10_000, keep_last_messages=5, max_freed_tokens=50_000),
    When("warning", level="warning"),
    Step(ClearResults(5), (When("idle", idle_seconds=3_600),)),
    arrival=(StubRereads(), SAFE_ARRIVAL),
    files_share=0.5,
    min_savings_tokens=10_000,
)
CODEX = _system(
    "codex",
    PlanTurns(0.5, target_tokens=8_000, keep_last_tokens=20_000, keep_user_words=True),
    When("auto", share_over=0.9),
)
OPENCODE = _system(
    "opencode",
    PlanTurns(0.5, target_tokens=8_000),
    When("overflow", level="critical"),
    Step(ClearResults(0, protect_tokens=40_000, min_free_tokens=20_000), ALWAYS),
)
ADK = _system(
    "adk",
    PlanTurns(0.4, keep_last_messages=10),
    When("warning", level="warning"),
    arrival=(DemoteLarge(5_000, preview_characters=1_000),),
)
AMP = _system("amp", PlanTurns(0.5, target_tokens=8_000, name="handoff"), *EXHAUSTED)
OFF = Preset("off")

PRESETS: dict[str, Preset] = {
    preset.name: preset for preset in (RELEVANCE, THREE_LAYER, S06, S08, CLAUDE_CODE, CODEX, OPENCODE, ADK, AMP, OFF)
}


def preset_named(name: str | Preset) -> Preset:
    """Return the preset called `name`, or `name` itself if it is a `Preset`. Raise SettingsError if there is none."""
    if isinstance(name, Preset):
        return name
    if name not in PRESETS:
        places = "argument `preset`, variable COMPACTOR_PRESET or the project's compactor.toml"
        raise SettingsError(f"preset {name!r:.80} is unknown (from the {places}): use one of {', '.join(PRESETS)}")
    return PRESETS[name]
