"""Asks a session's planner (usually a model) for plans, which say what to keep of each turn; also in advance.

If the planner fails, the rules plan. After some failures in a row the planner is paused, so that the agent does not
wait for it in vain; then it has one trial. Nothing here applies or stores a plan.
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
"""State of the pause after failures: ``closed`` (no pause), ``open`` (paused), ``half_open`` (one trial)."""

READY_SLACK = 1.2
"""Factor by which a plan made in advance may leave more tokens than now wanted and still be used."""
TASK_CHARACTERS = 4_000
"""Length in characters of the user's words that serve as the task of a session without one."""


@dataclass
class Worker:
    """Runs one function at a time, a job that makes a plan, in a thread of its own. A job works on a copy of the state;
    the caller uses its result or discards it. Nobody waits for a job, not even the end of the process."""

    debounce_seconds: float
    """Shortest time between the starts of two jobs, in seconds."""
    started_at: float | None = None
    is_closed: bool = False
    """True after the session was closed: no job is started any more, and results are discarded."""
    job: Future[CompactionPlan] | None = None

    @property
    def is_running(self) -> bool:
        """True while a job runs."""
        return self.job is not None and not self.job.done()

    def start(self, job: Callable[[], CompactionPlan], now: float) -> bool:
        """Start `job` at the time `now`, and return True if it was started. It is not started while another job runs,
        before that job's result was taken, or too soon after its start."""
        if self.is_closed or self.job is not None or within(self.debounce_seconds, self.started_at, now):
            return False
        self.started_at, self.job = now, Future()
        threading.Thread(target=_run, args=(job, self.job), name="compactor-plan", daemon=True).start()
        return True

    def take(self) -> Future[CompactionPlan] | None:
        """Return the finished job and forget it; None if none has finished."""
        if self.is_closed or self.is_running:
            return None
        done, self.job = self.job, None
        return done


def _run(job: Callable[[], CompactionPlan], done: Future[CompactionPlan]) -> None:
    """Run `job`, and put its result or its error into `done`, for the thread that uses it."""
    try:
        done.set_result(job())
    except Exception as error:  # noqa: BLE001 - handed to the caller's side as a value
        done.set_exception(error)


@dataclass(frozen=True, slots=True)
class Planned:
    """Record of one request to a planner, with its cost."""

    planner: str
    """Model that planned, ``rules``, or the `name` of a planner object."""
    usage: Usage
    failure: str = ""
    """Reason why the request gave no plan; empty if it gave one."""
    seconds: float = 0.0
    """Duration of the request."""


@dataclass
class Planning:
    """Planner of a session, with its substitute (the rules), plans made in advance, and pauses after failures."""

    planner: PlannerChoice
    client: Any
    session_settings: SessionSettings
    clock: Callable[[], float]
    report: Callable[[EventKind, str], object]
    """Function that reports an event of the session, from its kind and text."""
    task: str = ""
    agent_request: AgentRequest | None = None
    """Agent's last request. A planner without its own client may continue it, as the provider has it cached."""
    asked_at: float = 0.0
    """Time at which that request was answered."""
    client_follows: bool = False
    """True if the caller will pass the agent's client after the answer, so that a planner that needs it waits."""
    previous: CompactionPlan | None = None
    """Last plan, applied or not. The next plan reuses it, so that no turn is read twice by a model."""
    read_before: int = 0
    """Tokens that planners had read for this session in earlier processes."""
    ready: CompactionPlan | None = None
    """Plan that the worker has made in advance, for a beginning of the present history."""
    read_ahead: CompactionPlan | None = None
    """Plan by a model that `Session.plan_ahead` has stored for the next compaction; the rules extend it."""
    planned: list[Planned] = field(default_factory=list)
    """Requests to planners in this process, in order. All copies share this list, as costs cannot be undone."""
    is_elsewhere: bool = False
    """True if another process that shares the session plans, or may do so now."""
    failures: int = 0
    """Number of failures of the session's planner in a row."""
    failed_at: float | None = None
    """Time of the planner's last failure; None without one."""
    settings: PlanSettings = field(init=False)
    """Settings of the next plan, with the agent's model and tools."""
    worker: Worker = field(init=False)

    def __post_init__(self) -> None:
        """Take the settings of plans from those of the session."""
        self.settings = self.session_settings.plan
        self.worker = Worker(self.session_settings.background_debounce_seconds)

    def copy(self) -> Planning:
        """Return an independent copy, with the same worker and the same list of requests."""
        return copy.copy(self)

    @property
    def read_tokens(self) -> int:
        """Tokens that planners have read for all plans, unused plans included. Settings can limit them."""
        return self.read_before + sum(planned.usage.read_tokens for planned in self.planned)

    def count_read(self, tokens: int) -> None:
        """Set `read_tokens` to `tokens`, a total that includes the requests of this process."""
        self.read_before += tokens - self.read_tokens

    @property
    def breaker(self) -> BreakerState:
        """State of the pause: ``open`` while the planner is paused, ``half_open`` when it has one trial."""
        if self.failures < self.session_settings.max_failures:
            return "closed"
        return "open" if within(self.session_settings.rest_seconds, self.failed_at, self.clock()) else "half_open"

    @property
    def is_under_way(self) -> bool:
        """True while a plan is being made by the worker or by another process."""
        return self.is_elsewhere or self.worker.is_running

    @property
    def asks_a_model(self) -> bool:
        """True if plans come from a model, or from a planner object that may ask one. The planner ``auto`` uses the
        agent's client as soon as it is known, if it has none of its own."""
        chosen = self.planner, self.session_settings.planner_model or None, self.client
        if shares_client(*chosen) and (self.client_follows or self.agent_request is not None):
            return self.agent_request is not None
        return asks_model(*chosen)

    def make(self, analysis: Analysis, target_tokens: int, focus: str, *, rules_only: bool = False) -> CompactionPlan:
        """Return a plan for the history of `analysis` that leaves about `target_tokens`, as repaired by the guards.

        The guards undo decisions that would lose something needed. A plan made in advance is used if it fits. The rules
        plan if `rules_only`, if the planner fails or is paused, and while a plan is under way, so that nobody pays for
        two. `focus`: what matters most now, for the planner.

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
            return self._extend(ahead, analysis, target_tokens)
        plan = None if rules_only else self._plan_by_planner(analysis, target_tokens, focus)
        plan = plan or self._request_plan("rules", analysis, target_tokens, focus)
        self._reuse_next(plan)
        return plan

    def _extend(self, ahead: CompactionPlan, analysis: Analysis, target_tokens: int) -> CompactionPlan:
        """Return a plan by rules that extends the model's plan `ahead`, and reports that plan's author and cost."""
        self.previous = ahead
        self.count_read(max(self.read_tokens, ahead.provenance.read_tokens))
        plan = self._request_plan("rules", analysis, target_tokens, "")
        of_model = ahead.provenance.model_dump(include={"planner", "model", "prompts", "asked"})
        provenance = plan.provenance.model_copy(update={**of_model, "usage": ahead.provenance.usage})
        self.previous = plan.model_copy(update={"provenance": provenance})
        return self.previous

    def _plan_by_planner(self, analysis: Analysis, target_tokens: int, focus: str) -> CompactionPlan | None:
        """Return a plan by the session's planner; None if it is the rules, may not be asked now, or fails."""
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
        """Return a plan by the session's own planner, with target and focus as in `make`. It may raise any exception.
        May run in a thread of its own, but not twice at the same time."""
        return self._request_plan(self.planner if self.asks_a_model else "rules", analysis, target_tokens, focus)

    def _reuse_next(self, plan: CompactionPlan) -> None:
        """Make `plan` the one that the next plan reuses, unless only the earlier one was read by a model."""
        if plan.provenance.read_turns or self.previous is None or not self.previous.provenance.read_turns:
            self.previous = plan

    def _request_plan(
        self, planner: PlannerChoice, analysis: Analysis, target_tokens: int, focus: str
    ) -> CompactionPlan:
        """Ask `planner` for a plan, and record the request with its cost, also if it fails."""
        model, started = self.session_settings.planner_model, self.clock()
        seconds_since_answer = max(0.0, started - self.asked_at)
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
                agent_request=self.agent_request and replace(self.agent_request, seconds_since=seconds_since_answer),
                read_tokens=self.read_tokens,
            )
        except Exception as error:
            usage = getattr(error, "usage", None)
            usage_spent = usage if isinstance(usage, Usage) else Usage()
            failure = str(error) or type(error).__name__
            self.planned.append(Planned(name_of_planner(planner, model), usage_spent, failure, self.clock() - started))
            raise
        provenance = plan.provenance
        self.planned.append(
            Planned(provenance.model or provenance.planner, provenance.usage, seconds=self.clock() - started)
        )
        return plan

    def take_finished_plan(self) -> CompactionPlan | None:
        """Return the worker's plan if it has finished, and keep it as `ready`; None otherwise."""
        job = self.worker.take()
        if job is None:
            return None
        if error := job.exception():
            self.failed(error)
            return None
        self.succeeded()
        self.ready = job.result()
        self._reuse_next(self.ready)
        return self.ready

    def failed(self, error: BaseException) -> None:
        """Count a failure of the planner, and report if that pauses it."""
        state_before, self.failures, self.failed_at = self.breaker, self.failures + 1, self.clock()
        self.report("tier_failed", f"planner: {type(error).__name__}: {error}; planned by rules")
        if self.breaker == "open" and state_before != "open":
            self.report("breaker_opened", f"the planner failed {self.failures} times and rests")

    def succeeded(self) -> None:
        """Reset the count of failures after a plan."""
        if self.breaker != "closed":
            self.report("breaker_closed", "the planner works again")
        self.failures = 0
