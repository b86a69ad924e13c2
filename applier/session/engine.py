"""What happens at one call: messages arrive, tiers run, a list goes out; nothing here may break the agent.

Not safe for threads: `Session` holds the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from applier.session.background import Worker
from applier.session.commit import Committed
from applier.session.compaction import Compaction
from applier.session.ledger import Arrival
from applier.session.length_errors import TooLong
from applier.session.outgoing import Outgoing
from applier.session.persistence import save_session
from applier.session.pipeline import REARM_SHARE, Pipeline
from applier.session.recall import Named, restored_text
from applier.session.tiers import PlanTurns
from applier.session.triggers import level_after
from applier.session.weighing import Bounds
from planner.errors import StoreError
from planner.plan import CompactionPlan
from planner.reading.messages import blocks

__all__ = ["Engine"]

AHEAD_CALLS = 4
"""A plan is made beforehand when so many more calls of average growth would fire a step that plans."""
LONG_HISTORY_TOKENS = 200_000
"""Planning by rules takes about a second for each 100,000 tokens."""
ROOM_SHARE = 0.75
"""A removed turn is said again at once only while the prompt stays below this share of the limit."""
CLEARLY_SHORTER = 0.75
"""What a reactive retry aims at, as a share of the limit."""


@dataclass
class Engine:
    """One session at work."""

    pipeline: Pipeline
    session_id: str
    compact_tool: str
    worker: Worker[CompactionPlan]
    clock: Callable[[], float]
    is_blocked: bool = False
    """System and tools alone leave no room: nothing automatic is done."""
    _is_too_large: bool = field(default=False, repr=False)
    _saved: Committed | None = field(default=None, repr=False)

    def prepare(self, messages: Sequence[object]) -> list[Any]:
        """What to send; whatever fails, a list that is valid if the caller's is."""
        run = self.pipeline.run
        received = False
        try:
            arrival = run.receive(messages)
            received = True
            self._work(arrival)
        except Exception as error:  # noqa: BLE001 - DESIGN rule 8: the host's agent never breaks
            self.pipeline.speak("prepare_failed", f"{type(error).__name__}: {error}")
        run.recovering = False
        return run.hand_out(self.clock()) if received else list(messages)

    def _work(self, arrival: Arrival) -> None:
        run, pipeline = self.pipeline.run, self.pipeline
        if arrival.changed:
            pipeline.speak("history_changed", f"messages from {arrival.start} on are not those known before")
        if self.is_blocked:
            return
        unsent = min(arrival.start, run.called_with)
        self._hear(unsent)
        pipeline.arrive(unsent)
        named = run.recall.hear(run.ledger.plain[unsent:], run.ledger)
        run.wanted.update((item.turn_id, item) for item in named)
        self._collect()
        pipeline.step_through()
        run.requested = run.focus = ""
        self._warn()
        self._bring_back([item for item in named if item.turn_id in run.wanted])
        self._plan_ahead()
        self.save()

    def _hear(self, start: int) -> None:
        """Note the files that were touched, and whether the model asked for a compaction."""
        ledger = self.pipeline.run.ledger
        self.pipeline.marks.touch(ledger.results_from(start))
        newest = ledger.plain[max(start, len(ledger) - 2) :]
        for block in (block for message in newest for block in blocks(message)):
            if block["type"] == "tool_use" and block.get("name") == self.compact_tool:
                given = block.get("input")
                self.request("tool", str(given.get("focus", "")) if isinstance(given, dict) else "")

    def _warn(self) -> None:
        """Say once that even the last resort was not enough: the provider will refuse the prompt."""
        run = self.pipeline.run
        was, self._is_too_large = self._is_too_large, run.tokens > run.limit_tokens
        if self._is_too_large and not was and self.pipeline.preset.steps:
            reason = f"{run.tokens} tokens of at most {run.limit_tokens}: no step could make it smaller"
            self.pipeline.speak("still_too_large", reason)

    def request(self, trigger: str, focus: str = "") -> None:
        """Compact at the next call."""
        run = self.pipeline.run
        run.requested, run.focus = trigger, focus or run.focus

    def _bring_back(self, named: Sequence[Named]) -> None:
        """The first turn that fits is said again at once, behind what is cached; the others with the next plan."""
        run, pipeline = self.pipeline.run, self.pipeline
        at_once = next((item for item in named if self._fits(item)), None)
        if at_once is not None:
            addition = restored_text(run.ledger, at_once, len(run.ledger) - 1)
            if pipeline.add(addition, f"{at_once.turn_id} is back: the agent named {at_once.name}"):
                del run.wanted[at_once.turn_id]
                run.recall.brought_back(at_once.turn_id)
        for item in named:
            if item.turn_id in run.wanted:
                reason = f"the agent named {item.name}: {item.turn_id} comes back with the next plan"
                pipeline.speak("recall_pending", reason)

    def _fits(self, named: Named) -> bool:
        run = self.pipeline.run
        tokens = run.meter.prompt(named.tokens) - run.meter.prompt(0)
        return (
            tokens <= self.pipeline.settings.recall_tokens
            and run.tokens + tokens <= run.limit_tokens * ROOM_SHARE
            and run.ledger.plain[-1]["role"] == "user"
        )

    def _collect(self) -> None:
        """Take up what the worker has made."""
        done = self.worker.take()
        planning = self.pipeline.planning
        if done is not None and done.error is not None:
            planning.failed(done.error)
        elif done is not None and done.value is not None:
            planning.succeeded()
            planning.ready = done.value
            self._save_facts(done.value)

    def _save_facts(self, plan: CompactionPlan) -> None:
        run, pipeline = self.pipeline.run, self.pipeline
        now = self.clock()
        if now - (run.facts_at or run.started_at) < pipeline.preset.facts_after_seconds:
            return
        run.facts_at = now
        try:
            store = pipeline.store()
            store.save_facts(plan.extracted_facts, store.save_history(run.ledger.history))
        except StoreError as error:
            pipeline.speak("store_failed", f"facts were not stored: {error}")
        else:
            pipeline.speak("facts_saved", f"{len(plan.extracted_facts)} facts stored")

    def _plan_ahead(self) -> None:
        """Have the worker plan on a snapshot while the agent waits for its answer."""
        pipeline, now = self.pipeline, self.clock()
        if not self._plans_ahead() or self.worker.is_busy or not self._is_due(now):
            return
        history, planning = pipeline.run.ledger.history, pipeline.planning
        known = planning.ready.history.turns if planning.ready is not None else 0
        if len(history.turns) - known < pipeline.settings.background_new_turns:
            return
        goal = pipeline.preset.plan_goal or PlanTurns()
        target = goal.target_tokens_for(pipeline.situation())
        self.worker.start(lambda: planning.ask(history, target), now)

    def _plans_ahead(self) -> bool:
        """As told; else when a model plans, or the history is so long that even the rules take a while."""
        told = self.pipeline.settings.background
        if told is not None:
            return told
        return self.pipeline.planning.asks_a_model or self.pipeline.run.ledger.tokens >= LONG_HISTORY_TOKENS

    def _is_due(self, now: float) -> bool:
        run, preset = self.pipeline.run, self.pipeline.preset
        reading = run.reading(now)
        if reading.session_seconds >= preset.facts_after_seconds:
            return True
        tokens = int(reading.tokens + AHEAD_CALLS * reading.growth_tokens_per_call)
        ahead = replace(reading, tokens=tokens, level=level_after(reading.level, tokens, reading.limit_tokens))
        goal = preset.plan_goal
        return any(
            when.fires(ahead) for step in preset.steps if step.tier is goal for when in step.when if not when.requested
        )

    def compact(self, messages: Sequence[object], focus: str, *, dry_run: bool) -> Compaction:
        """The manual command."""
        run, pipeline = self.pipeline.run, self.pipeline
        run.receive(messages)
        for tier in pipeline.preset.manual:
            done = pipeline.attempt(tier, "manual", Bounds(), focus=focus, dry_run=dry_run)
            if done.applied or (dry_run and done.tier):
                break
        if done.applied:
            run.ledger.returned(done.messages, len(run.committed.frame.head))
            self.save()
        return done

    def recover(self, messages: Sequence[object], refused: TooLong) -> list[Any] | None:
        """Something clearly shorter, once for each list prepared; None if there is nothing."""
        run, pipeline = self.pipeline.run, self.pipeline
        if run.recovering:
            return None
        run.receive(messages)
        run.recovering = True
        self._believe(refused)
        before = run.tokens
        for tier in pipeline.preset.recovery:
            if run.tokens > run.limit_tokens * CLEARLY_SHORTER or run.tokens == before:
                pipeline.attempt(tier, "prompt_too_long", Bounds(may_veto=False))
        if run.tokens == before:
            return None
        run.requested = run.focus = ""
        pipeline.speak("recovered", "a shorter list goes out", tokens_before=before, tokens_after=run.tokens)
        self.save()
        return run.hand_out(self.clock())

    def _believe(self, refused: TooLong) -> None:
        """The provider knows better how long the prompt was, and how long it may be."""
        run = self.pipeline.run
        if refused.maximum_tokens:
            run.maximum_tokens = refused.maximum_tokens
            run.limit_tokens = min(run.limit_tokens, run.maximum_tokens)
        counted, actual = run.outgoing.total, refused.actual_tokens
        told = actual > 0
        run.meter = run.meter.corrected(counted, actual) if told else run.meter.doubted(counted, run.limit_tokens)

    def undo(self) -> bool:
        """Back to the frame before the last compaction."""
        run, pipeline = self.pipeline.run, self.pipeline
        if not run.undoable:
            return False
        before = run.tokens
        frame = run.undoable.pop().frame
        run.take_into_force(replace(run.committed, frame=frame), Outgoing.of(frame, run.ledger))
        run.sent = 0
        run.held_below = min(run.tokens + int(run.limit_tokens * REARM_SHARE), run.limit_tokens)
        pipeline.speak("undone", "the last compaction was taken back", tokens_before=before, tokens_after=run.tokens)
        self.save()
        return True

    def save(self) -> None:
        """Store how the session stands, if that has changed."""
        run, pipeline = self.pipeline.run, self.pipeline
        if run.committed is self._saved or (self._saved is None and run.committed.frame.is_empty):
            return
        numbers = {"compactions": run.compactions, "reclaimed_tokens": run.reclaimed_tokens, "ratio": run.meter.ratio}
        before = run.undoable[-1] if run.undoable else None
        try:
            save_session(pipeline.store(), self.session_id, run.committed, before, numbers)
        except StoreError as error:
            pipeline.speak("store_failed", f"a restart would not continue from here: {error}")
        else:
            self._saved = run.committed
