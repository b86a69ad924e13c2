"""The one call that plans: reads the messages, asks a planner, fits and guards what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from planner.broken import broken_turns
from planner.compose import check_plan as check_against
from planner.compose import compose_plan
from planner.errors import PlannerUnavailable, SettingsError, StalePlan
from planner.evidence import gather_evidence
from planner.plan import CompactionPlan
from planner.proposal import Planner, PlanRequest, Proposal
from planner.reading.history import History, read_history
from planner.reading.messages import blocks
from planner.reading.tokens import MESSAGE_OVERHEAD, TokenCounter
from planner.rules import RulesPlanner
from planner.settings import PlanSettings

__all__ = ["PlannerChoice", "check_plan", "check_planner", "plan_compaction", "plan_compaction_async"]

PlannerChoice = Literal["auto", "model", "rules"] | Planner


def plan_compaction(
    messages: Sequence[object],
    task: str,
    *,
    target_tokens: int | None = None,
    target_ratio: float | None = None,
    focus: str | None = None,
    planner: PlannerChoice = "auto",
    model: str | None = None,
    client: Any = None,
    system: Any = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    prompts_dir: str | Path | None = None,
    store: Any = None,
    settings: PlanSettings | None = None,
    now: float | None = None,
) -> CompactionPlan:
    """A validated plan that brings `messages` down to a target, bound to them; nothing is changed or written.

    Args:
        messages: The complete history: dicts or SDK objects, never a compacted view. Not mutated.
        task: What the agent works on now; relevance is judged against it.
        target_tokens: Size of the view in tokens of the target model, system and tools included when given.
        target_ratio: The same as a share of the history's tokens, in (0, 1]. Default: a quarter.
        focus: What to keep above all.
        planner: ``auto`` (the model if there is a client or a key, else rules), ``model``, ``rules``, or an object
            with ``propose(request) -> Proposal``.
        model: The planner model, or an instructor provider string such as ``openai/gpt-5-mini``.
        client: An ``anthropic`` or instructor client for the planner model.
        system: The agent's system prompt; counted against `target_tokens`.
        tools: The agent's tool definitions; counted likewise.
        prompts_dir: A folder of prompts that override the packaged ones.
        store: Where to record the plan and its facts; nothing is recorded without one.
        settings: See `PlanSettings`.
        now: Seconds since the epoch, the timestamp of the plan's facts; the clock's if None. All else in a plan by
            rules follows from the other arguments alone.

    Raises:
        TranscriptError: `messages` is not a list of messages.
        SettingsError: a target out of range, or an unknown planner.
        PlannerUnavailable: ``planner="model"`` and the model could not be reached or used.
        PlanRejected: a planner object answered with something that is no `Proposal`.
    """
    asked = _planner(planner, model, client, prompts_dir)
    settings = settings or PlanSettings()
    history = read_history(messages)
    counter = TokenCounter.for_model(settings.target_model)
    evidence = gather_evidence(history, counter)
    fixed = counter.request((), system, tools)
    target = _target(evidence.tokens, _marks(history), fixed, target_tokens, target_ratio, settings)
    request = PlanRequest(
        history, evidence, task, focus or "", target, counter, settings, time.time() if now is None else now
    )
    plan = compose_plan(request, asked.propose(request), broken_turns(history))
    if store is not None:
        store.save_plan(plan)
    return plan


async def plan_compaction_async(messages: Sequence[object], task: str, **options: Any) -> CompactionPlan:
    """`plan_compaction` in a thread of its own; takes the same options, and asynchronous clients besides."""
    names = ("planner", "model", "client", "prompts_dir")
    given = {name: options.pop(name) for name in names if name in options}
    asked = _planner(given.get("planner", "auto"), given.get("model"), given.get("client"), given.get("prompts_dir"))
    return await asyncio.to_thread(partial(plan_compaction, messages, task, planner=asked, **options))


def check_plan(plan: CompactionPlan, history: History) -> CompactionPlan:
    """`plan` behind the guards again, as after a person's edit: repaired, counted, bound to `history`.

    Raises:
        StalePlan: the plan was made for another history.
    """
    if plan.history.digest != history.digest:
        raise StalePlan(f"the plan was made for other messages than these {len(history.messages)}: plan again")
    evidence = gather_evidence(history, TokenCounter.for_model(plan.target_model))
    return check_against(plan, history, evidence, broken_turns(history))


def _marks(history: History) -> int:
    """Tokens of roles and block marks: a ratio is one of words, and few blocks are left in a view."""
    return MESSAGE_OVERHEAD * sum(len(blocks(message)) for message in history.messages)


def _target(
    tokens: int,
    marks_tokens: int,
    fixed_tokens: int,
    target_tokens: int | None,
    ratio: float | None,
    settings: PlanSettings,
) -> int:
    if target_tokens is not None and ratio is not None:
        raise SettingsError("give target_tokens or target_ratio, not both")
    if target_tokens is not None:
        if target_tokens <= 0:
            raise SettingsError(f"target_tokens must be positive, found {target_tokens}")
        return max(0, target_tokens - fixed_tokens)
    share = settings.target_ratio if ratio is None else ratio
    if not 0 < share <= 1:
        raise SettingsError(f"target_ratio must be above 0 and at most 1, found {share}")
    return tokens if share == 1 else int((tokens - marks_tokens) * share)


def check_planner(choice: object) -> None:
    """Raise a SettingsError unless `choice` is a `PlannerChoice`."""
    if choice not in ("auto", "model", "rules") if isinstance(choice, str) else not isinstance(choice, Planner):
        raise SettingsError(f"planner must be 'auto', 'model', 'rules' or have a propose method, found {choice!r}")


def _planner(choice: PlannerChoice, model: str | None, client: Any, prompts_dir: str | Path | None) -> Planner:
    """The planner that `choice` names."""
    check_planner(choice)
    if not isinstance(choice, str):
        return choice
    if choice == "rules":
        return RulesPlanner()
    from planner.model import ModelPlanner, has_credentials

    if choice == "auto" and client is None and not has_credentials(model):
        return _Noted("no client and no API key: planned by rules")
    asked = ModelPlanner(client=client, model=model, prompts_dir=prompts_dir)
    return asked if choice == "model" else _WithRulesBehind(asked)


@dataclass(frozen=True)
class _Noted:
    """The rules planner, with a word on why it was asked."""

    note: str

    def propose(self, request: PlanRequest) -> Proposal:
        proposal = RulesPlanner().propose(request)
        return replace(proposal, provenance=proposal.provenance.model_copy(update={"notes": (self.note,)}))


@dataclass(frozen=True)
class _WithRulesBehind:
    """A planner whose place the rules take when it cannot be had."""

    first: Planner

    def propose(self, request: PlanRequest) -> Proposal:
        try:
            return self.first.propose(request)
        except PlannerUnavailable as error:
            return _Noted(f"planned by rules, the model could not be had: {error}").propose(request)
