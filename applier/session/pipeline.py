"""Runs tiers: asks one for edits, weighs what they would bring, stores the originals, puts the frame into force.

The one place where a session's list changes; whatever a tier does, a list that is worse is not taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from applier.session.carryover import FileMarks, carried_text
from applier.session.commit import Committed, commit, key_for
from applier.session.compaction import Compaction
from applier.session.edits import Addition, Edits
from applier.session.frame import Frame, draft
from applier.session.outgoing import Outgoing, first_difference
from applier.session.planning import Planning
from applier.session.presets import Preset, Step
from applier.session.run import Run
from applier.session.speaker import Speaker
from applier.session.tiers import Situation, Tier
from applier.settings import SessionSettings
from applier.store.protocol import Store
from planner.economics import CACHE_LIFETIME_SECONDS, payback_calls
from planner.errors import StoreError
from planner.thinking import thinking_policy
from planner.validity import check_messages

__all__ = ["Bounds", "Pipeline"]

REARM_SHARE, FORCED_REARM_SHARE = 0.05, 0.01
"""After a step has run or was refused, the prompt grows by this share of the limit before it is tried again."""
WANTED_SHARE = 0.05
"""Turns that the agent has named come back whole up to this share of the limit."""
OUTPUT_PRICE = 5.0
"""An output token costs about five input tokens on every current Claude model."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a change must be worth."""

    min_savings_tokens: int = 0
    max_payback_calls: float = math.inf
    may_veto: bool = True


@dataclass(frozen=True)
class _Drafted:
    """A change as it would be, measured."""

    edits: Edits
    frame: Frame
    key: str
    outgoing: Outgoing
    tokens_after: int
    first_changed: int | None
    invalidated_tokens: int
    payback: float


@dataclass
class Pipeline:
    """The tiers of one session."""

    run: Run
    preset: Preset
    planning: Planning
    settings: SessionSettings
    marks: FileMarks
    speak: Speaker
    store: Callable[[], Store]
    clock: Callable[[], float]

    def arrive(self, start: int) -> None:
        """The tiers over what has just arrived, from message `start` on."""
        for tier in self.preset.arrival:
            self.attempt(tier, "arrival", Bounds(may_veto=False), new_from=start)

    def step_through(self) -> None:
        """The tiers whose triggers fire, cheapest first."""
        for step in self.preset.steps:
            reading = self.run.reading(self.clock())
            fired = next((when for when in step.when if when.fires(reading)), None)
            if fired is None or self._rests(step):
                continue
            forced = reading.level in ("critical", "exhausted")
            bounds = Bounds(may_veto=not forced)
            if not forced and not reading.requested:
                bounds = Bounds(step.min_savings_tokens, step.max_payback_calls)
            done = self.attempt(step.tier, reading.requested or fired.name, bounds)
            if done.tier and not _is_unconditional(step):
                self._rearm(step, forced)

    def _rests(self, step: Step) -> bool:
        return self.run.tokens < self.run.rearm.get(self.name_of(step.tier), 0) and not self.run.requested

    def _rearm(self, step: Step, forced: bool) -> None:
        share = FORCED_REARM_SHARE if forced else REARM_SHARE
        self.run.rearm[self.name_of(step.tier)] = self.run.tokens + int(self.run.limit_tokens * share)

    def attempt(
        self,
        tier: Tier,
        trigger: str,
        bounds: Bounds,
        *,
        new_from: int | None = None,
        focus: str = "",
        dry_run: bool = False,
    ) -> Compaction:
        """Ask one tier, and do what it says if that is worth it."""
        name = self.name_of(tier)
        with self.speak.span("tier", tier=name, trigger=trigger):
            try:
                edits = tier(self._situation(new_from, focus))
                drafted = self._drafted(edits) if edits is not None else None
            except Exception as error:  # noqa: BLE001 - a tier that fails gives way to the next
                self.speak("tier_failed", f"{type(error).__name__}: {error}", trigger=trigger, tier=name)
                return self._nothing(name, f"{type(error).__name__}: {error}")
            if drafted is None:
                return self._nothing("", "nothing to do")
            problem = self._problem(drafted, bounds)
            if dry_run:
                return self._result(name, problem or drafted.edits.reason, drafted)
            if problem:
                self.speak("not_worth_it", problem, trigger=trigger, tier=name, **self._numbers(drafted))
                return self._nothing(name, problem)
            return self._take(drafted, name, trigger, bounds)

    def _situation(self, new_from: int | None, focus: str) -> Situation:
        run = self.run
        names = [named.name for named in run.wanted.values()]
        asked = " ".join(part for part in (focus or run.focus, *names) if part)
        return Situation(
            ledger=run.ledger,
            frame=run.committed.frame,
            meter=run.meter,
            tokens=run.tokens,
            limit_tokens=run.limit_tokens,
            new_from=len(run.ledger) if new_from is None else new_from,
            make_plan=self.planning.make,
            wanted=self._wanted_that_fit(),
            focus=asked,
            carried_tokens=lambda: run.ledger.counter.text(self._carried(frozenset())),
        )

    def _wanted_that_fit(self) -> frozenset[str]:
        left = self.run.meter.countable(self.run.limit_tokens * WANTED_SHARE)
        kept: set[str] = set()
        for named in sorted(self.run.wanted.values(), key=lambda named: named.tokens):
            left -= named.tokens
            if left >= 0:
                kept.add(named.turn_id)
        return frozenset(kept)

    def _carried(self, standing_turns: frozenset[str]) -> str:
        goal = self.run.meter.countable(self.run.goal_tokens)
        ledger, rules = self.run.ledger, self.settings.permissions
        return carried_text(ledger, self.marks, rules, self.preset.carries, goal, standing_turns)

    def _with_carried(self, edits: Edits) -> Edits:
        """What survives besides the plan goes behind the newest user message, where it is read last."""
        ledger = self.run.ledger
        last = len(ledger) - 1
        if edits.plan is None or ledger.plain[last]["role"] != "user":
            return edits
        standing = frozenset(d.turn_id for d in edits.plan.turns if d.strategy == "keep")
        text = self._carried(standing)
        return replace(edits, additions=(*edits.additions, Addition(last, text))) if text else edits

    def _drafted(self, edits: Edits) -> _Drafted:
        run = self.run
        edits = self._with_carried(edits)
        key = key_for(edits, run.ledger, run.committed)
        policy = thinking_policy(self.planning.settings.target_model)
        frame = draft(run.committed.frame, edits, run.ledger, key, policy)
        after = Outgoing.of(frame, run.ledger)
        first = first_difference(run.outgoing.messages, after.messages)
        unchanged = sum(run.outgoing.counted[:first])
        cached = sum(run.outgoing.counted[: run.sent])
        tokens, tokens_after = run.tokens, run.meter.prompt(after.total)
        return _Drafted(
            edits=edits,
            frame=frame,
            key=key,
            outgoing=after,
            tokens_after=tokens_after,
            first_changed=first,
            invalidated_tokens=int(max(0, cached - unchanged) * run.meter.ratio),
            payback=self._payback(tokens, tokens_after, run.meter.prompt(unchanged), edits),
        )

    def _payback(self, before: int, after: int, unchanged: int, edits: Edits) -> float:
        prices = self.run.prices
        usage = edits.plan.provenance.usage if edits.plan else None
        planning = usage.input_tokens + OUTPUT_PRICE * usage.output_tokens if usage else 0.0
        idle = self.run.reading(self.clock()).idle_seconds
        if idle >= CACHE_LIFETIME_SECONDS:
            unchanged = after  # nothing is cached any more: all of it is written again anyway
        return payback_calls(before, before - after, unchanged, prices.write, prices.read, planning)

    def _problem(self, drafted: _Drafted, bounds: Bounds) -> str:
        """Why the change is not to be made; empty if it is."""
        saved = self.run.tokens - drafted.tokens_after
        if saved <= 0:
            return f"it would not shrink: {self.run.tokens} to {drafted.tokens_after} tokens"
        if saved < bounds.min_savings_tokens:
            return f"it would save {saved} tokens, fewer than {bounds.min_savings_tokens}"
        if drafted.payback > bounds.max_payback_calls:
            return f"it would pay back after {drafted.payback:.0f} calls, more than {bounds.max_payback_calls:.0f}"
        return self._invalid(drafted)

    def _invalid(self, drafted: _Drafted) -> str:
        """A rule of the API that the changed list breaks and the history does not."""
        model = self.planning.settings.target_model
        given = {v.code for v in check_messages(self.run.ledger.originals, model=model) if v.refused}
        found = check_messages(drafted.outgoing.messages, model=model)
        broken = next((v for v in found if v.refused and v.code not in given), None)
        return f"it would break a rule of the API: {broken}" if broken else ""

    def _take(self, drafted: _Drafted, tier: str, trigger: str, bounds: Bounds) -> Compaction:
        run, numbers = self.run, self._numbers(drafted)
        agreed = self.speak("pre_compact", drafted.edits.reason, trigger=trigger, tier=tier, **numbers)
        if bounds.may_veto and not agreed:
            self.speak("vetoed", "a hook said no", trigger=trigger, tier=tier)
            return self._nothing(tier, "vetoed by a hook")
        before = run.committed
        try:
            committed = commit(drafted.frame, drafted.key, run.ledger, self.store(), before)
        except StoreError as error:
            self.speak("store_failed", f"nothing was changed: {error}", trigger=trigger, tier=tier)
            return self._nothing(tier, f"the originals could not be stored: {error}")
        done = self._result(tier, drafted.edits.reason, drafted, applied=True)
        self._note(drafted, done, before, is_undoable=trigger != "arrival")
        run.take_into_force(committed, drafted.outgoing)
        self.speak("post_compact", drafted.edits.reason, trigger=trigger, tier=tier, **numbers)
        return done

    def add(self, addition: Addition, reason: str) -> bool:
        """Say something again behind what is cached; False if the store would not have it."""
        run = self.run
        edits = Edits(reason, additions=(addition,))
        frame = draft(run.committed.frame, edits, run.ledger, run.committed.key, "strip")
        try:
            committed = commit(frame, run.committed.key, run.ledger, self.store(), run.committed)
        except StoreError as error:
            self.speak("store_failed", f"nothing was added: {error}")
            return False
        before = run.tokens
        run.take_into_force(committed, Outgoing.of(frame, run.ledger))
        self.speak("recalled", reason, tokens_before=before, tokens_after=run.tokens)
        return True

    @staticmethod
    def name_of(tier: Tier) -> str:
        """What the log calls `tier`."""
        return str(getattr(tier, "name", None) or getattr(tier, "__name__", type(tier).__name__))

    def _note(self, drafted: _Drafted, done: Compaction, before: Committed, *, is_undoable: bool) -> None:
        run = self.run
        run.compactions += is_undoable
        run.reclaimed_tokens += done.tokens_before - done.tokens_after
        if is_undoable:
            run.undoable.append(before)
        if drafted.edits.plan is not None:
            run.kept_tokens = drafted.tokens_after
        if drafted.first_changed is not None:
            run.sent = min(run.sent, drafted.first_changed)

    def _numbers(self, drafted: _Drafted) -> dict[str, int | None]:
        return {
            "tokens_before": self.run.tokens,
            "tokens_after": drafted.tokens_after,
            "first_changed_message": drafted.first_changed,
            "invalidated_tokens": drafted.invalidated_tokens,
        }

    def _result(self, tier: str, reason: str, drafted: _Drafted, *, applied: bool = False) -> Compaction:
        return Compaction(
            messages=list(drafted.outgoing.messages),
            applied=applied,
            tier=tier,
            reason=reason,
            tokens_before=self.run.tokens,
            tokens_after=drafted.tokens_after,
            first_changed_message=drafted.first_changed,
            invalidated_tokens=drafted.invalidated_tokens,
            payback_calls=drafted.payback,
            plan=drafted.frame.plan,
        )

    def _nothing(self, tier: str, reason: str) -> Compaction:
        tokens, plan = self.run.tokens, self.run.committed.frame.plan
        messages = list(self.run.outgoing.messages)
        return Compaction(messages, False, tier, reason, tokens, tokens, None, 0, None, plan)


def _is_unconditional(step: Step) -> bool:
    return any(when.name == "every turn" for when in step.when)
