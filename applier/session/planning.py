"""Asks the session's planner for plans, also in advance in a worker.

Falls back to the rules. After some failures in a row, the breaker opens and the planner is paused; then it has one
trial. Applies and writes nothing.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from applier.session.events import EventKind
from applier.session.persistence import within
from applier.settings import SessionSettings
from planner.analysis import Analysis
from planner.api import PlannerChoice, asks_model, name_of_planner, open_planner, plan_analysis, shares_client
from planner.evidence.hosts import first_words
from planner.plan import CompactionPlan, Usage
from planner.proposal import AgentRequest
from planner.settings import PlanSettings

BreakerState = Literal["closed", "open", "half_open"]

READY_SLACK = 1.2
"""Factor by which the target of a plan made in advance may exceed the present target for the plan to be used."""
TASK_CHARACTERS = 4_000
"""Length of the user's words that become the task of a session without one, in characters."""


@dataclass
class Worker:
    """Runner of one job at a time in a thread of its own.

    A job works on a snapshot and changes nothing; the caller uses or discards its result. Nobody waits for a job, not
    even the end of the process.
    """

    debounce_seconds: float
    """Shortest time between the starts of two jobs."""
    started_at: float | None = None
    is_closed: bool = False
    """True if no job is started any more and results are discarded."""
    job: Future[CompactionPlan] | None = None

    @property
    def is_running(self) -> bool:
        """True while a job runs."""
        return self.job is not None and not self.job.done()

    def start(self, job: Callable[[], CompactionPlan], now: float) -> bool:
        """Start `job` at the time `now`, and return True if it was started.

        It is not started while another one runs, while that one's result was not taken, or too soon after it.
        """
        if self.is_closed or self.job is not None or within(self.debounce_seconds, self.started_at, now):
            return False
        self.started_at, self.job = now, Future()
        threading.Thread(target=_run, args=(job, self.job), name="compactor-plan", daemon=True).start()
        return True

    def take(self) -> Future[CompactionPlan] | None:
        """Return the finished job, and forget it; None if none has finished."""
        if self.is_closed or self.is_running:
            return None
        done, self.job = self.job, None
        return done


def _run(job: Callable[[], CompactionPlan], done: Future[CompactionPlan]) -> None:
    try:
        done.set_result(job())
    except Exception as error:  # noqa: BLE001 - handed to the caller's side as a value
        done.set_exception(error)


@dataclass(frozen=True, slots=True)
class Planned:
    """One request to a planner."""

    planner: str
    """Model, ``rules``, or the `name` of a planner object."""
    usage: Usage
    failure: str = ""
    """Reason why the request led to no plan; empty if it did."""
    seconds: float = 0.0
    """Duration of the request."""


@dataclass
class Planning:
    """Planning of a session: the planner, its fall-back by rules, plans made in advance, and pauses after failures."""

    planner: PlannerChoice
    client: Any
    session_settings: SessionSettings
    clock: Callable[[], float]
    report: Callable[[EventKind, str], object]
    task: str = ""
    agent_request: AgentRequest | None = None
    """Agent's last request. A planner without its own client may ask the agent's model, after the cached prefix."""
    asked_at: float = 0.0
    """Time at which that request was answered."""
    client_follows: bool = False
    """True if the caller will pass the agent's client with `agent_request`; a planner that uses it waits for that."""
    previous: CompactionPlan | None = None
    """Last plan of the session, applied or not; the next one reuses what a planner has read for it."""
    read_before: int = 0
    """Tokens that planners had read for this session in earlier processes."""
    ready: CompactionPlan | None = None
    """Plan made in advance, for an earlier state of the present history."""
    read_ahead: CompactionPlan | None = None
    """Stored plan of a model, made by `Session.plan_ahead` for the next compaction; the rules go on from it."""
    planned: list[Planned] = field(default_factory=list)
    """Requests to planners in this process, in order. All copies share the list, as spending is final."""
    is_elsewhere: bool = False
    """True if another process plans for this session, or may do so now."""
    failures: int = 0
    """Number of failures of the session's planner in a row."""
    failed_at: float | None = None
    settings: PlanSettings = field(init=False)
    """Settings of the next plan, including the agent's model and tools."""
    worker: Worker = field(init=False)

    def __post_init__(self) -> None:
        """Derive the settings of plans from those of the session."""
        self.settings = self.session_settings.plan
        self.worker = Worker(self.session_settings.background_debounce_seconds)

    def copy(self) -> Planning:
        """Return an independent copy, with the same worker and record of requests."""
        return copy.copy(self)

    @property
    def read_tokens(self) -> int:
        """Tokens that planners have read for all plans, unused ones included."""
        return self.read_before + sum(planned.usage.read_tokens for planned in self.planned)

    def count_read(self, tokens: int) -> None:
        """Set `read_tokens` to `tokens`, which include the requests of this process."""
        self.read_before += tokens - self.read_tokens

    @property
    def breaker(self) -> BreakerState:
        """State of the breaker: ``open`` while the planner is paused, ``half_open`` when it has one trial."""
        if self.failures < self.session_settings.max_failures:
            return "closed"
        return "open" if within(self.session_settings.rest_seconds, self.failed_at, self.clock()) else "half_open"

    @property
    def is_under_way(self) -> bool:
        """True while a plan is being made somewhere."""
        return self.is_elsewhere or self.worker.is_running

    @property
    def asks_a_model(self) -> bool:
        """True if plans come from a model, or from an object that may ask one.

        Without its own client, ``auto`` uses the agent's as soon as that is known.
        """
        chosen = self.planner, self.session_settings.planner_model or None, self.client
        if shares_client(*chosen) and (self.client_follows or self.agent_request is not None):
            return self.agent_request is not None
        return asks_model(*chosen)

    def make(self, analysis: Analysis, target_tokens: int, focus: str, *, rules_only: bool = False) -> CompactionPlan:
        """Return a guarded plan for the history of `analysis`, with a goal of `target_tokens`.

        A plan made in advance is used if it fits. The rules plan if `rules_only`, if the planner fails or is paused,
        and while the worker waits for the planner, so that its reading is not paid for twice. `focus`: what matters
        most now, for the planner.

        Raises:
            CompactorError: even the rules failed.
        """
        ready, self.ready = self.ready, None
        if (
            ready is not None
            and not focus
            and ready.target_tokens <= target_tokens * READY_SLACK
            and ready.history.begins(analysis.history)
        ):
            return ready
        ahead, self.read_ahead = self.read_ahead, None
        if ahead is not None and not focus and ahead.history.begins(analysis.history):
            return self._go_on_from(ahead, analysis, target_tokens)
        plan = None if rules_only else self._asked(analysis, target_tokens, focus)
        plan = plan or self._planned("rules", analysis, target_tokens, focus)
        self._build_on(plan)
        return plan

    def _go_on_from(self, ahead: CompactionPlan, analysis: Analysis, target_tokens: int) -> CompactionPlan:
        """Return a plan by rules that continues the model's plan `ahead`, with that plan's cost and provenance."""
        self.previous = ahead
        self.count_read(max(self.read_tokens, ahead.provenance.read_tokens))
        plan = self._planned("rules", analysis, target_tokens, "")
        asked = ahead.provenance.model_dump(include={"planner", "model", "prompts", "asked"})
        made = plan.provenance.model_copy(update={**asked, "usage": ahead.provenance.usage})
        self.previous = plan.model_copy(update={"provenance": made})
        return self.previous

    def _asked(self, analysis: Analysis, target_tokens: int, focus: str) -> CompactionPlan | None:
        """Return the plan of the session's planner; None if there is none, it may not be asked now, or it fails."""
        if not self.asks_a_model or self.is_under_way or self.breaker == "open":
            return None
        try:
            plan = self.ask(analysis, target_tokens, focus)
        except Exception as error:  # noqa: BLE001 - whatever a planner does, the agent goes on
            self.failed(error)
            return None
        self.succeeded()
        return plan

    def ask(self, analysis: Analysis, target_tokens: int, focus: str = "") -> CompactionPlan:
        """Return a plan by the session's own planner, with the goal and focus as in `make`. It may raise anything.

        May run in a thread of its own, but not twice at the same time.
        """
        return self._planned(self.planner if self.asks_a_model else "rules", analysis, target_tokens, focus)

    def _build_on(self, plan: CompactionPlan) -> None:
        """Let the next plan reuse `plan`, unless only the plan before it has turns that a planner has read."""
        if plan.provenance.read_turns or self.previous is None or not self.previous.provenance.read_turns:
            self.previous = plan

    def _planned(self, planner: PlannerChoice, analysis: Analysis, target_tokens: int, focus: str) -> CompactionPlan:
        model, started = self.session_settings.planner_model, self.clock()
        since = max(0.0, started - self.asked_at)
        try:
            plan = plan_analysis(
                analysis,
                self.task or first_words(analysis.history, TASK_CHARACTERS),
                target_tokens=target_tokens,
                focus=focus,
                planner=open_planner("model" if planner == "auto" else planner, model or None, self.client),
                settings=self.settings,
                now=self.clock(),
                previous=self.previous,
                agent_request=self.agent_request and replace(self.agent_request, seconds_since=since),
                read_tokens=self.read_tokens,
            )
        except Exception as error:
            usage = getattr(error, "usage", None)
            spent = usage if isinstance(usage, Usage) else Usage()
            failure = str(error) or type(error).__name__
            self.planned.append(Planned(name_of_planner(planner, model), spent, failure, self.clock() - started))
            raise
        made = plan.provenance
        self.planned.append(Planned(made.model or made.planner, made.usage, seconds=self.clock() - started))
        return plan

    def take_finished_plan(self) -> CompactionPlan | None:
        """Return the worker's plan if it has finished, and keep it as `ready`; None otherwise."""
        done = self.worker.take()
        if done is None:
            return None
        if error := done.exception():
            self.failed(error)
            return None
        self.succeeded()
        self.ready = done.result()
        self._build_on(self.ready)
        return self.ready

    def failed(self, error: BaseException) -> None:
        """Count a failure of the planner."""
        was, self.failures, self.failed_at = self.breaker, self.failures + 1, self.clock()
        self.report("tier_failed", f"planner: {type(error).__name__}: {error}; planned by rules")
        if self.breaker == "open" and was != "open":
            self.report("breaker_opened", f"the planner failed {self.failures} times and rests")

    def succeeded(self) -> None:
        """Reset the count of failures after an answer."""
        if self.breaker != "closed":
            self.report("breaker_closed", "the planner works again")
        self.failures = 0
