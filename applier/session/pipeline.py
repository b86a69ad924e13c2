"""Runs tiers: asks one for edits, weighs what they would bring, stores the originals, puts the frame into force.

The one place where a session's list changes; whatever a tier does, a list that is worse is not taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from applier.session.carryover import FileMarks, carried_text
from applier.session.commit import Committed, commit, key_for
from applier.session.compaction import Compaction
from applier.session.edits import Addition, Edits
from applier.session.frame import draft
from applier.session.outgoing import Outgoing
from applier.session.planning import Planning
from applier.session.presets import Preset, Step
from applier.session.run import Run
from applier.session.speaker import Speaker
from applier.session.tiers import Situation, Tier
from applier.session.weighing import Bounds, Drafted, measure, objection
from applier.settings import SessionSettings
from applier.store.protocol import Store
from planner.errors import StoreError

__all__ = ["REARM_SHARE", "Pipeline"]

FORCED = Bounds(may_veto=False)
"""Of a step that the window forces."""
REARM_SHARE, FORCED_REARM_SHARE = 0.05, 0.01
"""After a step has run or was refused, the prompt grows by this share of the limit, or by what was missing, before
it is tried again."""
LEAST_SAVINGS_SHARE = 0.4
"""In a small window, saving this share of the limit is enough whatever a preset's constant says."""
WANTED_SHARE = 0.05
"""Turns that the agent has named come back whole up to this share of the limit."""
STORE_REST_SECONDS = 30.0
"""After the store has failed, this long nothing is compacted."""


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
        for tier in self.preset.arrival if self._may_store() else ():
            self.attempt(tier, "arrival", Bounds(may_veto=False), new_from=start)

    def step_through(self) -> None:
        """The tiers whose triggers fire, cheapest first."""
        for step in self.preset.steps:
            if not self._may_store():
                return
            reading = self.run.reading(self.clock())
            fired = next((when for when in step.when if when.fires(reading)), None)
            if fired is None:
                continue
            forced = reading.level in ("critical", "exhausted")
            bounds = FORCED if forced else Bounds()
            if not forced and not reading.requested:
                least = min(step.min_savings_tokens, int(reading.limit_tokens * LEAST_SAVINGS_SHARE))
                bounds = Bounds(least, step.max_payback_calls)
            if not reading.requested and self._rests(step.tier, bounds):
                continue
            trigger = reading.requested or (reading.level if forced else fired.name)
            done = self.attempt(step.tier, trigger, bounds)
            if done.applied and not _is_unconditional(step):
                self._rest(step.tier, bounds)
                self._rest(step.tier, FORCED)

    def _may_store(self) -> bool:
        """False for a while after the store has failed: a plan would be made in vain at every call."""
        return self.clock() >= self.run.store_rests_until

    def _rests(self, tier: Tier, bounds: Bounds) -> bool:
        run = self.run
        return run.tokens < max(run.held_below, run.rearm.get((self.name_of(tier), bounds), 0))

    def _rest(self, tier: Tier, bounds: Bounds, missing_tokens: int = 0) -> None:
        share = FORCED_REARM_SHARE if bounds == FORCED else REARM_SHARE
        wait = max(missing_tokens, int(self.run.limit_tokens * share))
        self.run.rearm[self.name_of(tier), bounds] = self.run.tokens + wait

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
                edits = tier(self.situation(new_from, focus))
                drafted = self._drafted(edits) if edits is not None else None
            except Exception as error:  # noqa: BLE001 - a tier that fails gives way to the next
                self.speak("tier_failed", f"{type(error).__name__}: {error}", trigger=trigger, tier=name)
                self._rest(tier, bounds)
                return self._nothing(name, f"{type(error).__name__}: {error}")
            if drafted is None:
                return self._nothing("", "nothing to do")
            problem = objection(self.run, drafted, bounds, self._model)
            if dry_run:
                return self._result(name, problem.reason if problem else drafted.edits.reason, drafted)
            if problem is not None:
                self.speak("not_worth_it", problem.reason, trigger=trigger, tier=name, **drafted.numbers)
                self._rest(tier, bounds, problem.missing_tokens)
                return self._nothing(name, problem.reason)
            done = self._take(drafted, name, trigger, bounds)
            if not done.applied:
                self._rest(tier, bounds)
            return done

    def situation(self, new_from: int | None = None, focus: str = "") -> Situation:
        """The session as a tier sees it."""
        run = self.run
        wanted = self._wanted_that_fit()
        names = [named.name for turn_id, named in run.wanted.items() if turn_id not in wanted]
        asked = " ".join(part for part in (focus or run.focus, *names) if part)
        return Situation(
            ledger=run.ledger,
            frame=run.committed.frame,
            meter=run.meter,
            tokens=run.tokens,
            limit_tokens=run.limit_tokens,
            new_from=len(run.ledger) if new_from is None else new_from,
            make_plan=self.planning.make,
            wanted=wanted,
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

    def _drafted(self, edits: Edits) -> Drafted:
        edits = self._with_carried(edits)
        key = key_for(edits, self.run.ledger, self.run.committed)
        return measure(self.run, edits, key, self._model, self.clock())

    @property
    def _model(self) -> str:
        return self.planning.settings.target_model

    def _take(self, drafted: Drafted, tier: str, trigger: str, bounds: Bounds) -> Compaction:
        run = self.run
        agreed = self.speak("pre_compact", drafted.edits.reason, trigger=trigger, tier=tier, **drafted.numbers)
        if bounds.may_veto and not agreed:
            self.speak("vetoed", "a hook said no", trigger=trigger, tier=tier)
            return self._nothing(tier, "vetoed by a hook")
        before = run.committed
        try:
            committed = commit(drafted.frame, drafted.key, run.ledger, self.store(), before)
        except StoreError as error:
            run.store_rests_until = self.clock() + STORE_REST_SECONDS
            self.speak("store_failed", f"nothing was changed: {error}", trigger=trigger, tier=tier)
            return self._nothing(tier, f"the originals could not be stored: {error}")
        done = self._result(tier, drafted.edits.reason, drafted, applied=True)
        self._note(drafted, done, before, is_undoable=trigger != "arrival")
        run.take_into_force(committed, drafted.outgoing)
        self.speak("post_compact", drafted.edits.reason, trigger=trigger, tier=tier, **drafted.numbers)
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

    def _note(self, drafted: Drafted, done: Compaction, before: Committed, *, is_undoable: bool) -> None:
        run = self.run
        run.compactions += is_undoable
        run.reclaimed_tokens += done.tokens_before - done.tokens_after
        if is_undoable:
            run.undoable.append(before)
        if drafted.edits.plan is not None:
            run.kept_tokens = drafted.tokens_after
        if drafted.first_changed is not None:
            run.sent = min(run.sent, drafted.first_changed)

    def _result(self, tier: str, reason: str, drafted: Drafted, *, applied: bool = False) -> Compaction:
        return Compaction(
            messages=list(drafted.outgoing.messages),
            applied=applied,
            tier=tier,
            reason=reason,
            tokens_before=drafted.tokens_before,
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
