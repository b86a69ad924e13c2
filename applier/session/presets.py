"""Presets: named ways to keep an agent within its window, such as that of Claude Code.

A preset is a table. Each row has a tier (one way to shorten the list), a trigger (numbers that make the row run) and a
smallest saving. The constants are those of the systems themselves; ``relevance``, the project's own, changes the newest
messages only if they would not fit. The last rows of every table except ``off`` run only if the prompt would not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from applier.session.pressure import When
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

RECOVERY_SHARE = 0.6
"""Largest share that is kept of a list that the provider refused, whatever the user's settings are."""


@dataclass(frozen=True, slots=True)
class Step:
    """Row of a preset: a tier (one way to shorten the list), its triggers, and its smallest saving."""

    tier: Tier
    when: tuple[When, ...]
    """Triggers (conditions to run) of the row; one is enough."""
    min_savings_tokens: int = 0
    """Smallest saving in tokens for a change, unless it is requested or the window is nearly full."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Named way to keep an agent within its window: tiers (ways to shorten the list), their triggers and order."""

    name: str
    arrival: tuple[Tier, ...] = ()
    """Tiers (ways to shorten) for new tool results, which lose no cache, as nothing after a new result is cached."""
    steps: tuple[Step, ...] = ()
    """Rows (a tier with its trigger), cheapest first: cheap ones, the one that makes a plan, then last resorts."""
    manual: tuple[Tier, ...] = (PlanTurns(),)
    """Tiers (ways to shorten) for a requested compaction, tried in order until one changes the list."""
    recovery: tuple[Tier, ...] = (PlanTurns(target_share=0.4, rules_only=True), RetreatHead(0.4), FitNewest())
    """Tiers (ways to shorten) for a prompt that the provider refused, run in order until it is much shorter."""
    files_share: float = 0.0
    """Share of the tokens left by a plan that may be used to repeat the files that the agent read last."""
    expected_growth_tokens: float = 0.0
    """Tokens that a call is assumed to add until that was measured."""

    def tuned(self, settings: SessionSettings) -> Preset:
        """Return this preset with the user's `settings` in place of its constants.

        ``keep_ratio`` sets how much a plan leaves, and ``compact_at_ratio`` when it is made; None changes nothing.
        After a refusal by the provider at most `RECOVERY_SHARE` is kept. Rows for a prompt that would not fit do not
        change. Without ``auto_compact``, the list is only shortened by `Session.compact` or after a refusal.
        """
        keep_share, compact_at = settings.keep_ratio, settings.compact_at_ratio
        keep_in_recovery = None if keep_share is None else min(keep_share, RECOVERY_SHARE)

        def tuned_step(step: Step) -> Step:
            if not isinstance(step.tier, PlanTurns) or step.tier.rules_only:  # a cheap row, or a last resort
                return step
            tier = _tuned_tier(step.tier, keep_share)
            if compact_at is None:
                return replace(step, tier=tier)
            # with the user's own trigger, no smallest saving delays the row
            return Step(tier, (ASKED, When("compact_at", share_over=compact_at)))

        return replace(
            self,
            arrival=self.arrival if settings.auto_compact else (),
            steps=tuple(map(tuned_step, self.steps)) if settings.auto_compact else (),
            manual=tuple(_tuned_tier(tier, keep_share) for tier in self.manual),
            recovery=tuple(_tuned_tier(tier, keep_in_recovery) for tier in self.recovery),
        )


def _tuned_tier(tier: Tier, share: float | None) -> Tier:
    """Return `tier` with the goal to leave the user's `share` of the history; unchanged if `share` is None, or if the
    tier makes no plan."""
    if share is None or not isinstance(tier, PlanTurns):
        return tier
    return replace(tier, target_share=share, history_share=share, target_tokens=0)


ALWAYS = (When("every turn"),)
"""Trigger that fires at every call."""
ASKED = When("asked", requested=True)
"""Trigger for a requested compaction."""
EXHAUSTED = (When("exhausted", level="exhausted"),)
"""Trigger for a prompt that would not fit."""

SAFETY = (
    Step(PlanTurns(0.35, rules_only=True, name="aggressive"), EXHAUSTED),
    Step(ClearResults(keep_last=1, preview_characters=400, name="truncate"), EXHAUSTED),
    Step(RetreatHead(0.5), EXHAUSTED),
    Step(FitNewest(), EXHAUSTED),
)
"""Last resorts of a preset, for a prompt that would not fit otherwise, from the weakest to the strongest."""
SAFE_ARRIVAL = DemoteLarge()
"""Tier that shortens only new results that would not fit the window otherwise."""

LEAST_SAVINGS_TOKENS = 2_000
"""Smallest saving of a plan that is neither requested nor forced, as everything after the first change is billed again.
Some presets have a larger one."""
RELEVANT = PlanTurns(0.1, floor_tokens=8_000)
"""Tier for a requested compaction. It leaves little: a tenth of the room for messages, but at least 8,000 tokens."""
A_FIFTH = replace(RELEVANT, target_share=0.2, history_share=0.2)
"""Tier for an automatic compaction, which leaves a fifth of the history, and at most a fifth of the room in the window,
but at least 8,000 tokens where they fit.

A share of the window alone would be half of a short history, and next to nothing of one with large results. On nineteen
sessions at 200,000 tokens, with cache reads at a tenth of the price, it keeps 97.4 % of the names that the agent needs
(`python -m tests.bench presets`). To leave 15 % costs 7 % less and keeps 95.7 %; to leave a tenth costs 16 % less and
keeps 92.9 %. With knowledge of each whole session one could choose moments that cost 7 % less (`python -m tests.bench
least`).
"""
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
"""Recovery of the presets three-layer and s08: a short plan by rules, with the last five messages whole."""


def _system(
    name: str,
    plan: PlanTurns,
    when: When,
    *cheaper: Step,
    arrival: tuple[Tier, ...] = (SAFE_ARRIVAL,),
    min_savings_tokens: int = LEAST_SAVINGS_TOKENS,
    **more: Any,
) -> Preset:
    """Return a preset that imitates another system: it runs the rows `cheaper`, then makes a plan by the tier `plan` on
    request or if `when` fires, then the last resorts. `more`: further fields of the preset."""
    steps = (*cheaper, Step(plan, (ASKED, when), min_savings_tokens), *SAFETY)
    by_hand = replace(plan, max_freed_tokens=0)  # `Session.compact` may free any number of tokens
    return Preset(name, arrival, steps, manual=(by_hand,), **more)


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
    """Return the preset (table of ways to shorten the list) called `name`. Raise SettingsError if there is none."""
    if isinstance(name, Preset):
        return name
    if name not in PRESETS:
        places = "argument `preset`, variable COMPACTOR_PRESET or the project's compactor.toml"
        raise SettingsError(f"preset {name!r:.80} is unknown (from the {places}): use one of {', '.join(PRESETS)}")
    return PRESETS[name]
