"""Asks a session's planner (usually a model) for plans, which decide what to keep of each turn; also in advance.

If the planner fails, the rules plan. After some failures in a row the planner is paused, so that the agent does not
wait for it in vain; then it has one trial. Nothing here applies or stores a plan.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from applier.session.events import EventKind
from applier.settings import SessionSettings
from applier.store.opening import within
from planner.analysis import Analysis
from planner.api import PlannerChoice, asks_model, name_of_planner, open_planner, plan_analysis, shares_client
from planner.evidence.hosts import first_words
from planner.plan import AgentRequest, CompactionPlan, Usage
from planner.settings import PlanSettings

BreakerState = Literal["closed", "open", "half_open"]
"""State of a planner after failures: ``closed`` (it is asked), ``open`` (paused), ``half_open`` (one trial)."""

READY_SLACK = 1.2
"""Largest target of a plan made in advance that may still be used, as a multiple of the target wanted now."""
TASK_CHARACTERS = 4_000
"""Largest length of the task that a session takes from the user's first words, if it has none, in characters."""


@dataclass
class Worker:
    """Makes plans in a thread of its own, one at a time. A job is a function that works on a copy of the state; the
    caller uses its result or discards it. Nobody waits for a job, not even the end of the process."""

    debounce_seconds: float
    """Shortest time between the starts of two jobs, in seconds."""
    started_at: float | None = None
    is_closed: bool = False
    """True after the session was closed: no job is started any more, and results are discarded."""
    job: Future[CompactionPlan] | None = None
    """Job that runs or has finished, until its result is taken; None without one."""

    @property
    def is_running(self) -> bool:
        """True while the thread makes a plan."""
        return self.job is not None and not self.job.done()

    def start(self, job: Callable[[], CompactionPlan], now: float) -> bool:
        """Start `job` at the time `now`, and return True if it was started. It is not started before the result of the
        last job was taken, nor within `debounce_seconds` after the last start."""
        if self.is_closed or self.job is not None or within(self.debounce_seconds, self.started_at, now):
            return False
        self.started_at, self.job = now, Future()
        threading.Thread(target=_run, args=(job, self.job), name="compactor-plan", daemon=True).start()
        return True

    def take(self) -> Future[CompactionPlan] | None:
        """Return the job that has finished, and make room for the next; None if none has finished."""
        if self.is_closed or self.is_running:
            return None
        finished, self.job = self.job, None
        return finished


def _run(job: Callable[[], CompactionPlan], done: Future[CompactionPlan]) -> None:
    """Run `job`, and put its result or exception into `done`, where another thread takes it later."""
    try:
        done.set_result(job())
    except Exception as error:  # noqa: BLE001 - handed to the caller's side as a value
        done.set_exception(error)


@dataclass(frozen=True, slots=True)
class Planned:
    """Record of one request to a planner, with its cost and outcome, to report what planning cost."""

    planner: str
    """Name of the model that planned, ``rules``, or the `name` of a planner object."""
    usage: Usage
    failure: str = ""
    """Reason why the request gave no plan; empty if there is a plan."""
    seconds: float = 0.0
    """Duration of the request in seconds."""


@dataclass
class Planning:
    """Makes the plans of a session: by its planner, or by rules if that fails or is paused; also in advance. A shallow
    copy is independent, but shares the worker and the list of requests."""

    planner: PlannerChoice
    client: Any
    session_settings: SessionSettings
    clock: Callable[[], float]
    report: Callable[[EventKind, str], object]
    """Function that reports an event of the session, given its kind and its text."""
    task: str = ""
    agent_request: AgentRequest | None = None
    """Agent's last request to its model, which a planner without its own client may continue, as it is cached."""
    asked_at: float = 0.0
    """Time at which `agent_request` was answered, in seconds since the epoch."""
    client_follows: bool = False
    """True if the caller will pass the agent's client after the next answer; a planner without its own client waits."""
    previous: CompactionPlan | None = None
    """Plan that the next one reuses, so that a model reads no turn twice: the last one by a model, or else the last
    one by rules; whether it was applied or not."""
    read_before: int = 0
    """Tokens that planners had read for this session in earlier processes, which count towards a limit."""
    ready: CompactionPlan | None = None
    """Plan that the worker has made in advance, for a beginning of the present history."""
    read_ahead: CompactionPlan | None = None
    """Plan by a model that was stored in advance (`Session.plan_ahead`); the rules extend it at the next compaction."""
    planned: list[Planned] = field(default_factory=list)
    """Requests to planners in this process, in order. All copies share this list, as costs cannot be undone."""
    is_elsewhere: bool = False
    """True if another process that shares the session plans, or may do so now."""
    failures: int = 0
    """Number of failures of the planner since its last success."""
    failed_at: float | None = None
    """Time of the planner's last failure; None without one."""
    settings: PlanSettings = field(init=False)
    """Settings of the next plan, including the agent's model and tools."""
    worker: Worker = field(init=False)

    def __post_init__(self) -> None:
        """Take the settings of plans from the session's settings, and prepare a worker."""
        self.settings = self.session_settings.plan
        self.worker = Worker(self.session_settings.background_debounce_seconds)

    @property
    def read_tokens(self) -> int:
        """Tokens that planners have read for this session, for unused plans, too. A setting can limit them."""
        return self.read_before + sum(planned.usage.read_tokens for planned in self.planned)

    def count_read(self, tokens: int) -> None:
        """Set `read_tokens` to the total `tokens`, which another process may have stored."""
        self.read_before += tokens - self.read_tokens

    @property
    def breaker(self) -> BreakerState:
        """State of the planner after failures: ``open`` while it is paused, ``half_open`` when it has one trial."""
        if self.failures < self.session_settings.max_failures:
            return "closed"
        return "open" if within(self.session_settings.rest_seconds, self.failed_at, self.clock()) else "half_open"

    @property
    def is_under_way(self) -> bool:
        """True while a plan is being made by the worker or by another process."""
        return self.is_elsewhere or self.worker.is_running

    @property
    def asks_a_model(self) -> bool:
        """True if plans come from a model, or from a planner object that may ask a model. The planner ``auto``, if it
        has no client of its own, uses the agent's client as soon as that is known."""
        chosen = self.planner, self.session_settings.planner_model or None, self.client
        if shares_client(*chosen) and (self.client_follows or self.agent_request is not None):
            return self.agent_request is not None  # it has the agent's client; before it, only rules can plan
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
        is_small = ready is not None and ready.target_tokens <= target_tokens * READY_SLACK  # it leaves little enough
        if ready is not None and is_small and not focus and ready.history.begins(analysis.history):
            return ready
        ahead, self.read_ahead = self.read_ahead, None
        if ahead is not None and not focus and ahead.history.begins(analysis.history):
            return self._extend(ahead, analysis, target_tokens)
        plan, why_not = None, ""
        if rules_only or not self.asks_a_model:
            pass  # the rules plan, below
        elif self.is_under_way:
            why_not = "not asked: another plan is still being made"
        elif self.breaker == "open":
            why_not = "not asked: the planner is paused after failures"
        else:
            try:
                plan = self.ask(analysis, target_tokens, focus)
                self.succeeded()
            except Exception as error:  # noqa: BLE001 - whatever a planner does, the agent goes on
                self.failed(error)
        plan = plan or self._request_plan("rules", analysis, target_tokens, focus)
        if why_not:
            noted = plan.provenance.model_copy(update={"notes": (why_not, *plan.provenance.notes)})
            plan = plan.model_copy(update={"provenance": noted})
        self._reuse_next(plan)
        return plan

    def _extend(self, ahead: CompactionPlan, analysis: Analysis, target_tokens: int) -> CompactionPlan:
        """Return a plan by rules that extends the stored plan `ahead` of a model and names that model as its author."""
        self.previous = ahead  # so that the new plan reuses it
        self.count_read(max(self.read_tokens, ahead.provenance.read_tokens))
        plan = self._request_plan("rules", analysis, target_tokens, "")
        of_model = ahead.provenance.model_dump(include={"planner", "model", "prompts", "asked"})
        provenance = plan.provenance.model_copy(update={**of_model, "usage": ahead.provenance.usage})
        self.previous = plan.model_copy(update={"provenance": provenance})
        return self.previous

    def ask(self, analysis: Analysis, target_tokens: int, focus: str = "") -> CompactionPlan:
        """Return a plan by the session's own planner, with target and focus as in `make`. It may raise any exception.
        May run in a thread of its own, but not twice at the same time."""
        return self._request_plan(self.planner if self.asks_a_model else "rules", analysis, target_tokens, focus)

    def _reuse_next(self, plan: CompactionPlan) -> None:
        """Make `plan` the one that the next plan reuses, unless it is by rules and the present one by a model."""
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
            spent = getattr(error, "usage", None)  # tokens of an answer that could not be used
            usage, failure = spent if isinstance(spent, Usage) else Usage(), str(error) or type(error).__name__
            self.planned.append(Planned(name_of_planner(planner, model), usage, failure, self.clock() - started))
            raise
        author, usage = plan.provenance.model or plan.provenance.planner, plan.provenance.usage
        self.planned.append(Planned(author, usage, seconds=self.clock() - started))
        return plan

    def take_finished_plan(self) -> CompactionPlan | None:
        """Return the plan that the worker has finished, and keep it as `ready`; None if it has not finished."""
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
        """Count a failure of the planner; report it, and the pause if it causes one."""
        state_before, self.failures, self.failed_at = self.breaker, self.failures + 1, self.clock()
        self.report("tier_failed", f"planner: {type(error).__name__}: {error}; planned by rules")
        if self.breaker == "open" and state_before != "open":
            self.report("breaker_opened", f"the planner failed {self.failures} times and rests")

    def succeeded(self) -> None:
        """Reset the count of the planner's failures, and report the end of a pause."""
        if self.breaker != "closed":
            self.report("breaker_closed", "the planner works again")
        self.failures = 0
