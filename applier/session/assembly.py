"""Puts a session's parts together, and takes up one that an earlier process left.

Wires only; what the parts do is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from applier.session.background import Worker
from applier.session.breaker import Breaker
from applier.session.carryover import FileMarks
from applier.session.engine import Engine
from applier.session.events import Hooks
from applier.session.lazy_store import LazyStore
from applier.session.ledger import Ledger
from applier.session.meter import Meter
from applier.session.outgoing import Outgoing
from applier.session.persistence import load_session
from applier.session.pipeline import Pipeline
from applier.session.planning import Planning
from applier.session.presets import Preset, preset_named
from applier.session.run import Run
from applier.session.speaker import Speaker
from applier.session.triggers import prompt_limit_tokens
from applier.settings import SessionSettings
from applier.store.protocol import Store
from planner.api import PlannerChoice, check_planner
from planner.errors import SettingsError
from planner.layout.cache_cost import cache_prices
from planner.reading.messages import Block
from planner.reading.tokens import TokenCounter

__all__ = ["Wishes", "assemble_engine", "resume"]


@dataclass(frozen=True)
class Wishes:
    """What a session was asked to be; a child is asked the same."""

    preset: str | Preset
    settings: SessionSettings
    planner: PlannerChoice
    model: str
    client: Any
    clock: Callable[[], float]
    hooks: Hooks | None


def assemble_engine(
    wishes: Wishes,
    session_id: str,
    store: LazyStore,
    task: str,
    system: str | Sequence[Block] | None,
    tools: Sequence[Mapping[str, Any]] | None,
) -> Engine:
    """A new engine.

    Raises:
        SettingsError: an unknown preset or planner, or no room beside system and tools.
    """
    check_planner(wishes.planner)
    settings, clock = wishes.settings, wishes.clock
    preset = wishes.preset if isinstance(wishes.preset, Preset) else preset_named(wishes.preset)
    preset = preset if settings.auto_compact else preset.without_automatics()
    run = _run(wishes, preset, system, tools)
    if run.meter.prompt(0) >= run.limit_tokens:
        raise SettingsError(run.no_room())
    speak = Speaker(session_id, clock, wishes.hooks, store)
    planning = Planning(
        wishes.planner,
        settings.planner_model,
        wishes.client,
        settings.plan.model_copy(update={"target_model": wishes.model or settings.plan.target_model}),
        clock,
        speak,
        Breaker(settings.max_failures, settings.rest_seconds),
        task,
    )
    marks = FileMarks(settings.file_roots)
    worker = Worker[Any](settings.background_debounce_seconds)
    pipeline = Pipeline(run, preset, planning, settings, marks, speak, store, clock)
    return Engine(pipeline, session_id, settings.compact_tool, worker, clock)


def _run(
    wishes: Wishes,
    preset: Preset,
    system: str | Sequence[Block] | None,
    tools: Sequence[Mapping[str, Any]] | None,
) -> Run:
    settings = wishes.settings
    counter = TokenCounter.for_model(wishes.model or settings.plan.target_model)
    limit = prompt_limit_tokens(settings.window_tokens, settings.max_output_tokens)
    goal = preset.plan_goal
    return Run(
        ledger=Ledger(counter),
        meter=Meter(counter.request((), system, tools)),
        limit_tokens=limit,
        started_at=wishes.clock(),
        prices=cache_prices(wishes.model),
        goal_tokens=goal.goal_tokens(limit) if goal is not None else limit,
        growth_tokens=preset.expected_growth_tokens,
    )


def resume(engine: Engine, store: Store) -> None:
    """Go on where an earlier process stopped, if there was one.

    Raises:
        StoreError: what is stored cannot be read.
    """
    saved = load_session(store, engine.session_id)
    engine.pipeline.speak.load(store)
    if saved is None:
        return
    run = engine.pipeline.run
    committed = saved.current(store)
    if committed.key:
        run.ledger.load(store.load_history(committed.key))
    run.take_into_force(committed, Outgoing.of(committed.frame, run.ledger))
    run.ledger.returned(run.outgoing.messages, len(committed.frame.head))
    previous = saved.previous(store)
    run.undoable = [previous] if previous is not None else []
    run.compactions, run.reclaimed_tokens = saved.compactions, saved.reclaimed_tokens
    run.kept_tokens = run.tokens
    run.called_with = len(run.ledger)
    engine.pipeline.speak("resumed", f"{len(run.ledger)} messages, {run.compactions} compactions")
