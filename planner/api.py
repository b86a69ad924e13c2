"""Makes a plan: reads the messages, asks a planner, selects what fits by its answer, and checks the result (guards)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from planner.analysis import Analysis, analyze
from planner.errors import PlannerUnavailable, SettingsError
from planner.evidence.calls import restore_tool_of
from planner.guards import check_plan, sound_proposal
from planner.pinned import unknown_view
from planner.plan import (
    MOST_TOKENS,
    AgentRequest,
    CompactionPlan,
    Finding,
    HistoryStamp,
    Planner,
    PlanRequest,
    Proposal,
    Provenance,
    TurnDecision,
    Usage,
)
from planner.reading.messages import checked_message
from planner.reading.tokens import names_provider
from planner.rules import RulesPlanner
from planner.selection import Selection, select
from planner.settings import PlannerName, PlanSettings, ToolUse, declared_uses, misnamed_uses

UNKNOWN_SHARE = 0.8
"""Share of unknown tools in the characters of all tool results from which a plan by rules has a warning."""
LEAST_UNKNOWN_CALLS = 5
"""Smallest number of calls of unknown tools for that warning."""
NAMED_TOOLS = 6
"""Largest number of unknown tools that the warning about them lists."""
WINDOW_SHARE = 0.5
"""Largest share of the model's context window for a target that is a share of the history: the agent needs the rest."""
SENT_SHARE = 0.5
"""Largest target by a lower ratio, as a share of the list that the caller passed, if that is already compacted."""
PlannerChoice = PlannerName | Planner
"""Planner by its name, or the user's own planner object."""


class Originals(NamedTuple):
    """Original messages of a list that is already compacted, planned instead so that nothing is summarized twice."""

    messages: Sequence[object]
    """Messages that were compacted, and those after them."""
    plan: CompactionPlan | None
    """Plan by which they were compacted; None if it is not stored."""


FIND_ORIGINALS: list[Callable[[Sequence[object], Any], Originals | None]] = []
"""Functions that find the original messages of a list that is already compacted, or return None; the first result
counts. They take the list, and the caller's store or None. The package `applier` adds them, as it knows the stores."""


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
    tool_uses: Mapping[str, ToolUse | Mapping[str, Any]] | None = None,
    prompts_dir: str | Path | None = None,
    store: Any = None,
    settings: PlanSettings | None = None,
    now: float | None = None,
    previous: CompactionPlan | None = None,
) -> CompactionPlan:
    """Decide for every turn of `messages` whether it stays, is summarized, replaced or dropped, so that they fit a
    target. Return the checked plan. Nothing is changed.

    Args:
        messages: The complete conversation: dicts or objects of the SDK, which are not changed. If the list is already
            compacted by `apply`, and the store has its original messages, these are planned.
        task: The agent's present task, by which turns are judged.
        target_tokens: Size of the compacted messages in tokens of the target model; it includes `system` and `tools` if
            they are passed.
        target_ratio: Size of the compacted messages alone, as a share of the conversation's tokens, in (0, 1]. Default:
            a quarter.
        focus: Words on what to keep with priority.
        planner: ``auto`` is the model if there is a client or a key, else the rules.
        model: The planner model, or an instructor provider string such as ``openai/gpt-5-mini``.
        client: An ``anthropic`` or instructor client for the planner model.
        system, tools: The agent's system prompt and tools. If one of the tools restores removed turns, the compacted
            messages name it.
        tool_uses: What the agent's tools do, by name: `ToolUse(…)`, or a dict of its fields. It takes precedence over
            the annotations in `tools`.
        prompts_dir: A folder of prompts that replace the packaged ones.
        store: Store for the plan and its facts; nothing is written without one.
        now: Timestamp of the plan's facts, in seconds since the epoch; by default the clock's. It is the only thing in
            a plan by rules that does not follow from the other arguments.
        previous: The last plan of the same agent. With it, a model reads in full only what came since, and all plans
            together read no more than ``settings.session_input_ratio`` allows.

    Raises:
        TranscriptError: `messages` is not a list of messages.
        SettingsError: an argument is of the wrong type, out of range or unknown.
        PlannerUnavailable: ``planner="model"`` and the model could not be reached or used.
        PlanRejected: a planner object did not return a `Proposal`.
    """
    check_argument("settings", settings, PlanSettings, "PlanSettings")
    check_request(model, system, tools)
    if store is not None and not hasattr(store, "save_plan"):
        raise SettingsError(f"store: expected a store, as open_store(path) returns it, found {type(store).__name__}")
    chosen = open_planner(planner, model, client, prompts_dir)
    originals = _originals(messages, store)
    settings = settings or PlanSettings()
    settings = settings.model_copy(update={"restore_tool": settings.restore_tool or restore_tool_of(tools or ())})
    analysis = analyze(originals.messages, settings.target_model, uses=declared_uses(tool_uses or {}, tools or ()))
    sent_tokens = analysis.tokens
    if originals.messages is not messages:
        sent_tokens = analysis.counter.messages(checked_message(message, "messages") for message in messages)
    fixed = analysis.counter.request((), system, tools)
    target = _target(analysis.tokens, sent_tokens, fixed, target_tokens, target_ratio, settings)
    previous = originals.plan if previous is None else previous
    plan = plan_analysis(
        analysis, task, target_tokens=target, focus=focus, planner=chosen, settings=settings, now=now, previous=previous
    )
    misnamed = [Finding(code="misnamed_use", problem=text) for text in misnamed_uses(analysis.uses, tools or ())]
    if misnamed:
        plan = plan.model_copy(update={"findings": (*plan.findings, *misnamed)})
    if store is not None:
        store.save_plan(plan)
    return plan


def _originals(messages: Sequence[object], store: Any) -> Originals:
    """Return the stored original messages if `messages` is a list that was compacted before; else `messages`."""
    return next(filter(None, (find(messages, store) for find in FIND_ORIGINALS)), Originals(messages, None))


def plan_analysis(
    analysis: Analysis,
    task: str,
    *,
    target_tokens: int,
    focus: str | None = None,
    planner: Planner,
    settings: PlanSettings | None = None,
    now: float | None = None,
    previous: CompactionPlan | None = None,
    agent_request: AgentRequest | None = None,
    read_tokens: int | None = None,
) -> CompactionPlan:
    """Return a plan for messages that were read before, as in a session. `target_tokens`: size of the compacted
    messages, without system prompt and tools.

    `agent_request`: the agent's last request, to which a planner can add its question. `read_tokens`: tokens that
    planner models have read in this session, by default as recorded in `previous`.

    Raises:
        SettingsError: `task` is no text, or another argument of the wrong type.
        PlannerUnavailable, PlanRejected: as in `plan_compaction`.
    """
    if not isinstance(task, str):
        raise SettingsError(f"task must be text that describes the agent's task, found {type(task).__name__}")
    check_argument("focus", focus, str, "text")
    check_argument("previous", previous, CompactionPlan, "a CompactionPlan")
    check_argument("now", now, int | float, "seconds since the epoch")
    when = time.time() if now is None else now
    if not 0 <= when < math.inf:
        raise SettingsError(f"now: expected seconds since the epoch, found {when}")
    if read_tokens is None:
        read_tokens = previous.provenance.read_tokens if previous is not None else 0
    settings, focus_text = settings or PlanSettings(), focus or ""
    request = PlanRequest(
        analysis, task, focus_text, target_tokens, settings, when, previous, agent_request, read_tokens
    )
    if analysis.tokens <= target_tokens:
        return _guarded(request, Proposal({}, Provenance(planner="none")), Selection(_all_fits(analysis)))
    proposal, findings = sound_proposal(analysis, planner.propose(request))
    findings = (*findings, *_unknown_view(request), *_unknown_tools(request, proposal))
    return _guarded(request, proposal, select(request, proposal), *findings)


async def plan_compaction_async(messages: Sequence[object], task: str, **options: Any) -> CompactionPlan:
    """Call `plan_compaction` in another thread, so that an event loop is not blocked. It has the same options."""
    import asyncio  # the core is synchronous: callers of `plan_compaction` need not load it

    return await asyncio.to_thread(partial(plan_compaction, messages, task, **options))


def _guarded(request: PlanRequest, proposal: Proposal, selection: Selection, *findings: Finding) -> CompactionPlan:
    """Make a plan of the decisions in `selection`, and repair it by the guards. `findings`: remarks made so far."""
    provenance = proposal.provenance
    read_tokens = min(MOST_TOKENS, request.read_tokens + provenance.usage.read_tokens)
    update = {"read_tokens": read_tokens, "filled_tokens": selection.filled_tokens}
    plan = CompactionPlan(
        task=request.task,
        history=HistoryStamp.of(request.history, request.analysis.tokens),
        target_tokens=request.target_tokens,
        target_model=request.settings.target_model,
        window_tokens=request.settings.window_tokens,
        restore_tool=request.settings.restore_tool,
        tool_uses=dict(request.analysis.uses),
        turns=tuple(selection.decisions.values()),
        brief=selection.brief,
        extracted_facts=proposal.facts,
        estimated_tokens=0,  # the guards count them
        findings=(*findings, *selection.findings),
        provenance=provenance.model_copy(update=update),
    )
    return check_plan(plan, request.analysis, request.settings.min_savings_tokens)


def _all_fits(analysis: Analysis) -> dict[str, TurnDecision]:
    """Return the decision to keep it for each turn, by turn id."""
    kept: dict[str, Any] = {"strategy": "keep", "relevance_score": 1.0, "reason": "everything fits"}
    turns = analysis.evidence.turns.items()
    return {turn_id: TurnDecision(turn_id=turn_id, failed_approach=turn.failed, **kept) for turn_id, turn in turns}


def _unknown_view(request: PlanRequest) -> tuple[Finding, ...]:
    """Return a remark if the history begins with a compacted list whose original messages are in no known store."""
    turn_id = unknown_view(request.history)
    if not turn_id:
        return ()
    fits = request.evidence.turns[turn_id].tokens <= request.target_tokens  # otherwise it is planned as any turn
    problem = (
        "this looks like the result of an earlier compaction, but no searched store has its original messages; "
        "name the store of that compaction by store=, --store or $COMPACTOR_STORE"
    )
    repair = "kept as it is" if fits else ""
    return (Finding(code="unknown_view", turn_id=turn_id, problem=problem, repair=repair),)


def _unknown_tools(request: PlanRequest, proposal: Proposal) -> tuple[Finding, ...]:
    """Return a warning if rules planned a history in which most tool results are of tools that they do not know."""
    if proposal.provenance.planner != "rules":
        return ()
    calls = [call for turn in request.evidence.turns.values() for call in turn.calls]
    unknown = [call for call in calls if call.use is None and call.kind == "other"]
    characters, all_characters = (sum(len(call.text) for call in group) for group in (unknown, calls))
    if len(unknown) < LEAST_UNKNOWN_CALLS or characters < UNKNOWN_SHARE * all_characters:
        return ()
    names = ", ".join(sorted({call.name for call in unknown})[:NAMED_TOOLS])
    problem = f"most results come from tools that the rules know nothing of: {names}"
    cure = "plan with a model, or declare them by tool_uses= or $COMPACTOR_TOOL_USES"
    return (Finding(code="rules_unsure", problem=problem, repair=cure),)


def _target(
    tokens: int,
    sent_tokens: int,
    fixed_tokens: int,
    target_tokens: float | None,
    ratio: float | None,
    settings: PlanSettings,
) -> int:
    """Return how many tokens the compacted messages may have, without system prompt and tools.

    A ratio is limited by `WINDOW_SHARE`, and by `SENT_SHARE` for a list that is already compacted. Without the second
    limit, compacted lists would grow with their originals until compaction gains nothing.

    Args:
        tokens: Size of the original messages.
        sent_tokens: Size of the list that the caller passed, which is smaller if it is already compacted.
        fixed_tokens: Size of system prompt and tools.
        target_tokens: The caller's target with system and tools; not together with `ratio`.
        ratio: The caller's target as a share of `tokens`; by default the one in `settings`.
        settings: Settings of the plan.
    """
    check_argument("target_tokens", target_tokens, int | float, "a number")
    check_argument("target_ratio", ratio, int | float, "a number")
    if target_tokens is not None and ratio is not None:
        raise SettingsError("give target_tokens or target_ratio, not both")
    if target_tokens is not None:
        if not 1 <= target_tokens <= MOST_TOKENS:
            raise SettingsError(
                f"target_tokens must be from 1 to {MOST_TOKENS}, found {target_tokens}: a share is target_ratio"
            )
        if target_tokens <= fixed_tokens:
            problem = f"system and tools alone take {fixed_tokens}, and no plan makes these shorter"
            raise SettingsError(f"target_tokens {target_tokens}: {problem}: ask for more, or leave them out")
        return max(1, int(target_tokens) - fixed_tokens)
    share = settings.target_ratio if ratio is None else ratio
    if not 0 < share <= 1:
        raise SettingsError(f"target_ratio must be above 0 and at most 1, found {share}")
    bounds = [tokens * share, WINDOW_SHARE * settings.window_tokens - fixed_tokens]
    if sent_tokens < tokens:
        bounds.append(max(share, SENT_SHARE) * sent_tokens)
    return max(0, int(min(bounds)))


def check_argument(name: str, value: object, kind: Any, wanted: str) -> None:
    """Check the argument `name` of a public function: raise a SettingsError unless its `value` is None or an instance
    of `kind`, which `wanted` describes in words."""
    if value is not None and not isinstance(value, kind):
        raise SettingsError(f"{name}: expected {wanted}, found {type(value).__name__}")


def check_request(model: object, system: Any, tools: Any) -> None:
    """Raise a SettingsError if a field of an agent's request has a wrong type; each may be None."""
    check_argument("model", model, str, "text")
    fields = ("system", system, "text or a list of blocks"), ("tools", tools, "a list of tool definitions")
    for name, value, wanted in fields:
        check_argument(name, value, Sequence, wanted)
        parts = () if name == "system" and isinstance(value, str) else value or ()
        for part in parts:
            if not isinstance(part, Mapping):
                raise SettingsError(f"{name}: expected {wanted}, each a dict, found {type(part).__name__}")


def check_planner(choice: object) -> None:
    """Raise a SettingsError unless `choice` is the name of a planner, or an object with a method ``propose``."""
    is_planner = choice in get_args(PlannerName) if isinstance(choice, str) else isinstance(choice, Planner)
    if not is_planner:
        raise SettingsError(f"planner must be 'auto', 'model', 'rules' or have a propose method, found {choice!r}")


def asks_model(choice: PlannerChoice, model: str | None = None, client: Any = None) -> bool:
    """Return True if the planner of `choice` may ask a model, which costs money. A user's own planner always may."""
    if choice != "auto":
        return choice != "rules"
    from planner.model import has_credentials

    return client is not None or has_credentials(model)


def shares_client(choice: PlannerChoice, model: str | None = None, client: Any = None) -> bool:
    """Return True if the planner of `choice` asks a model and has no client for it (`client`, or one by the provider in
    the name of the `model`), so that it uses the agent's client."""
    if isinstance(choice, str):
        return choice != "rules" and client is None and not names_provider(model)
    has_no_client = hasattr(choice, "client") and choice.client is None  # without the field it needs no client
    return has_no_client and not names_provider(getattr(choice, "model", None))


def name_of_planner(choice: PlannerChoice, model: str | None = None) -> str:
    """Return the name of the planner, to show it: ``rules``, or the model's name. For a user's own planner it is the
    attribute ``name``, or else the name of the class."""
    if not isinstance(choice, str):
        return str(getattr(choice, "name", "") or type(choice).__name__)
    if choice == "rules":
        return choice
    from planner.model import DEFAULT_MODEL

    return (model or DEFAULT_MODEL).removeprefix("anthropic/")


def open_planner(
    choice: PlannerChoice, model: str | None = None, client: Any = None, prompts_dir: str | Path | None = None
) -> Planner:
    """Return the planner object for `choice`. With ``auto``, it asks the model if there is a client or a key, and plans
    by rules if there is none, or if the model cannot be used.

    Raises:
        SettingsError: there is no such planner, or `prompts_dir` has no usable prompts.
    """
    check_planner(choice)
    if prompts_dir is not None:
        from planner.model.prompts import load_prompts

        load_prompts(prompts_dir)  # reports a wrong folder, also if rules plan
    if not isinstance(choice, str):
        return choice
    if not asks_model(choice, model, client):
        return RulesPlanner() if choice == "rules" else _OrByRules(None)
    from planner.model import ModelPlanner

    by_model = ModelPlanner(client=client, model=model, prompts_dir=prompts_dir)
    return by_model if choice == "model" else _OrByRules(by_model)


@dataclass(frozen=True)
class _OrByRules:
    """Planner for ``auto``: it asks the planner `first`, and plans by rules if `first` is None or its model cannot be
    used. A note in the plan has the reason."""

    first: Planner | None

    def propose(self, request: PlanRequest) -> Proposal:
        """Return the proposal of `first`. If it is None or its model cannot be used, return that of the rules, with a
        note on the reason and the tokens that the failed attempt used."""
        note, usage = "no client and no API key: planned by rules", Usage()
        try:
            if self.first is not None:
                return self.first.propose(request)
        except PlannerUnavailable as error:
            usage = error.usage if isinstance(error.usage, Usage) else usage
            spent = f" after {usage.requests} requests" if usage.requests > 1 else ""
            note = f"planned by rules, the model could not be had{spent}: {error}"
        proposal = RulesPlanner().propose(request)
        update = {"notes": (note, *proposal.provenance.notes), "usage": usage}
        return replace(proposal, provenance=proposal.provenance.model_copy(update=update))
