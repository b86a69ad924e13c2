"""The systems that can be run by name: each a small table of tiers, triggers and constants.

Constants are those of the systems themselves as REFERENCE 5 gathers them, what they do to a result on arrival
included; ``relevance``, the project's own, leaves what the model waits for whole. The last rows of every table but
``off`` only fire when the prompt would not fit at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from applier.session.carryover import Allowance
from applier.session.result_tiers import BudgetResults, ClearResults, DemoteLarge, FitNewest, StubRereads
from applier.session.tiers import PlanTurns, RetreatHead, SnipMiddle, Tier
from applier.session.triggers import When
from applier.settings import SessionSettings
from planner.errors import SettingsError

__all__ = ["PRESETS", "Preset", "Step", "preset_named", "preset_of"]

RECOVERY_SHARE = 0.6
"""A recovery leaves at most this share of what was too long, however much a user wants kept."""


@dataclass(frozen=True, slots=True)
class Step:
    """One row: a tier, when it runs, and what it must be worth."""

    tier: Tier
    when: tuple[When, ...]
    """Any of them."""
    min_savings_tokens: int = 0
    max_payback_calls: float = math.inf
    """After more calls it does not pay; neither bound counts when the window forces the step."""


@dataclass(frozen=True, slots=True)
class Preset:
    """One way to keep an agent within its window."""

    name: str
    arrival: tuple[Tier, ...] = ()
    """Over what has just arrived: nothing behind it is cached yet, so these cost no rewriting."""
    steps: tuple[Step, ...] = ()
    """Cheapest first; each is asked again after the one before it."""
    manual: tuple[Tier, ...] = (PlanTurns(),)
    """What `compact` does: the first that changes anything."""
    recovery: tuple[Tier, ...] = (PlanTurns(target_share=0.4, rules_only=True), RetreatHead(0.4), FitNewest())
    """What `recover` does, until the prompt is clearly shorter."""
    carries: Allowance | None = None
    """How much of files, lists and rules is said again behind a plan."""
    facts_after_seconds: float = math.inf
    """Extract facts to the store when a session has gone on for so long (Aircher: 30 minutes)."""
    expected_growth_tokens: float = 0.0
    """What a call adds, until it was measured."""

    @property
    def plan_goal(self) -> PlanTurns | None:
        """The step that plans, if one does."""
        tiers = (step.tier for step in self.steps)
        return next((tier for tier in tiers if isinstance(tier, PlanTurns)), None)

    def without_automatics(self) -> Preset:
        """Only what is asked for by name."""
        return replace(self, arrival=(), steps=(), facts_after_seconds=math.inf)

    def tuned(self, keep_ratio: float | None, compact_at_ratio: float | None) -> Preset:
        """This preset with its planner's goal, and when it plans by itself, as a user says; None: as they are.

        So does a recovery, which must be clearly shorter all the same; steps that run only because the prompt would
        not fit stay as they are.
        """
        return replace(
            self,
            steps=tuple(_tuned_step(step, keep_ratio, compact_at_ratio) for step in self.steps),
            manual=tuple(_tuned_tier(tier, keep_ratio) for tier in self.manual),
            recovery=tuple(_tuned_recovery(tier, keep_ratio) for tier in self.recovery),
        )


def _tuned_tier(tier: Tier, keep_ratio: float | None) -> Tier:
    if keep_ratio is None or not isinstance(tier, PlanTurns) or tier.rules_only:
        return tier
    return replace(tier, list_share=keep_ratio)


def _tuned_recovery(tier: Tier, keep_ratio: float | None) -> Tier:
    if keep_ratio is None or not isinstance(tier, PlanTurns):
        return tier
    return replace(tier, list_share=min(keep_ratio, RECOVERY_SHARE))


def _tuned_step(step: Step, keep_ratio: float | None, compact_at_ratio: float | None) -> Step:
    tier = _tuned_tier(step.tier, keep_ratio)
    if compact_at_ratio is None or not isinstance(step.tier, PlanTurns) or step.tier.rules_only:
        return replace(step, tier=tier)
    return Step(tier, (ASKED, When("compact_at", share_over=compact_at_ratio)))


ALWAYS = (When("every turn"),)
ASKED = When("asked", requested=True)
EXHAUSTED = (When("exhausted", level="exhausted"),)

SAFETY = (
    Step(PlanTurns(0.35, rules_only=True, name="aggressive"), EXHAUSTED),
    Step(ClearResults(keep_last=1, preview_characters=400, name="truncate"), EXHAUSTED),
    Step(RetreatHead(0.5), EXHAUSTED),
    Step(FitNewest(), EXHAUSTED),
)
SAFE_ARRIVAL = BudgetResults(characters=10**9)
"""Only what would not fit the window otherwise."""

FILES = Allowance(files=5, tokens_each=5_000, tokens_in_all=50_000)
"""Three-layer pipeline: at most 5 files, 5,000 tokens each, 50,000 in all."""

RELEVANT = PlanTurns(0.1, floor_tokens=8_000)
"""The less is kept, the less every call costs and the more the agent misses. On three long sessions at 200,000 tokens,
from 38,000 tokens kept to 20,000 the bill falls by 31 % and of the names that the agent needs 90 % stand, not 96 %."""
RELEVANCE = Preset(
    "relevance",
    arrival=(SAFE_ARRIVAL,),
    steps=(
        Step(
            RELEVANT,
            (
                ASKED,
                When("growth", growth_pays=True, share_over=0.2),
                When("idle", idle_seconds=300, share_over=0.2),
                When("critical", level="critical"),
            ),
            min_savings_tokens=2_000,
            max_payback_calls=20,
        ),
        Step(PlanTurns(0.06, rules_only=True, name="aggressive"), (When("critical", level="critical"),)),
        *SAFETY[1:],
    ),
    manual=(RELEVANT,),
    recovery=(replace(RELEVANT, rules_only=True), RetreatHead(0.4), FitNewest()),
    carries=replace(FILES, share_of_goal=0.1),
    facts_after_seconds=1_800,
    expected_growth_tokens=1_000,
)

SUMMARY_AND_LAST_FIVE = (
    PlanTurns(0.4, target_tokens=8_000, keep_last_messages=5, rules_only=True),
    RetreatHead(0.4),
    FitNewest(),
)
"""The one reactive retry of three-layer and s08."""

THREE_LAYER = Preset(
    "three-layer",
    arrival=(DemoteLarge(40_000, 2_000), SAFE_ARRIVAL),
    steps=(
        Step(ClearResults(3, over_tokens=1_000, kinds=frozenset(("run", "read", "write"))), ALWAYS),
        Step(
            PlanTurns(0.5, target_tokens=8_000, keep_last_messages=5),
            (ASKED, When("auto", room_under=13_000)),
            min_savings_tokens=20_000,
        ),
        *SAFETY,
    ),
    manual=(PlanTurns(0.5, target_tokens=8_000, keep_last_messages=5),),
    recovery=SUMMARY_AND_LAST_FIVE,
    carries=FILES,
)

S06 = Preset(
    "s06",
    arrival=(SAFE_ARRIVAL,),
    steps=(
        Step(ClearResults(3, over_characters=100), ALWAYS),
        Step(PlanTurns(0.5, target_tokens=4_000), (ASKED, When("threshold", tokens_over=50_000))),
        *SAFETY,
    ),
    manual=(PlanTurns(0.5, target_tokens=4_000),),
)

S08 = Preset(
    "s08",
    arrival=(BudgetResults(200_000, 2_000),),
    steps=(
        Step(SnipMiddle(50, 3, 47), ALWAYS),
        Step(ClearResults(3, over_characters=120), ALWAYS),
        Step(PlanTurns(0.5, target_tokens=8_000), (ASKED, When("auto", room_under=13_000))),
        *SAFETY,
    ),
    manual=(PlanTurns(0.5, target_tokens=8_000),),
    recovery=SUMMARY_AND_LAST_FIVE,
)

CLAUDE_CODE = Preset(
    "claude-code",
    arrival=(StubRereads(), SAFE_ARRIVAL),
    steps=(
        Step(ClearResults(5), (When("idle", idle_seconds=3_600),)),
        Step(
            PlanTurns(0.5, target_tokens=10_000, keep_last_messages=5, max_freed_tokens=50_000),
            (ASKED, When("warning", level="warning")),
            min_savings_tokens=10_000,
        ),
        *SAFETY,
    ),
    manual=(PlanTurns(0.5, target_tokens=10_000, keep_last_messages=5),),
    carries=FILES,
)

CODEX = Preset(
    "codex",
    arrival=(SAFE_ARRIVAL,),
    steps=(
        Step(
            PlanTurns(0.5, target_tokens=8_000, keep_last_tokens=20_000, keep_user_words=True),
            (ASKED, When("auto", share_over=0.9)),
        ),
        *SAFETY,
    ),
    manual=(PlanTurns(0.5, target_tokens=8_000, keep_last_tokens=20_000, keep_user_words=True),),
)

OPENCODE = Preset(
    "opencode",
    arrival=(SAFE_ARRIVAL,),
    steps=(
        Step(ClearResults(0, protect_tokens=40_000, min_free_tokens=20_000), ALWAYS),
        Step(PlanTurns(0.5, target_tokens=8_000), (ASKED, When("overflow", level="critical"))),
        *SAFETY,
    ),
    manual=(PlanTurns(0.5, target_tokens=8_000),),
)

ADK = Preset(
    "adk",
    arrival=(DemoteLarge(5_000, 1_000), SAFE_ARRIVAL),
    steps=(
        Step(PlanTurns(0.4, keep_last_messages=10), (ASKED, When("warning", level="warning"))),
        *SAFETY,
    ),
    manual=(PlanTurns(0.4, keep_last_messages=10),),
    facts_after_seconds=1_800,
)

AMP = Preset(
    "amp",
    arrival=(SAFE_ARRIVAL,),
    steps=(
        Step(PlanTurns(0.5, target_tokens=8_000, name="handoff"), (ASKED, *EXHAUSTED)),
        *SAFETY,
    ),
    manual=(PlanTurns(0.5, target_tokens=8_000, name="handoff"),),
)

OFF = Preset("off")

PRESETS: dict[str, Preset] = {
    preset.name: preset for preset in (RELEVANCE, THREE_LAYER, S06, S08, CLAUDE_CODE, CODEX, OPENCODE, ADK, AMP, OFF)
}


def preset_of(chosen: str | Preset, settings: SessionSettings) -> Preset:
    """The preset `chosen`, by name or as it is, with what `settings` say of goal and triggers.

    Raises:
        SettingsError: there is none of that name; the text lists them.
    """
    preset = chosen if isinstance(chosen, Preset) else preset_named(chosen)
    tuned = preset.tuned(settings.keep_ratio, settings.compact_at_ratio)
    return tuned if settings.auto_compact else tuned.without_automatics()


def preset_named(name: str) -> Preset:
    """The preset of that name.

    Raises:
        SettingsError: there is none; the text lists them.
    """
    if name not in PRESETS:
        raise SettingsError(f"preset {name!r} is unknown; use one of {', '.join(PRESETS)}")
    return PRESETS[name]
