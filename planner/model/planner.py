"""The planner that asks a model: cards in, a short answer out, one `Proposal` for selection and guards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Literal

from planner.brief import brief_text, read_brief
from planner.errors import PlannerUnavailable
from planner.model.asking import Conversation, Deadline, Outcome, ask_all
from planner.model.client import open_endpoint, running_loop
from planner.model.prefix import ask_behind_prefix, why_not_prefix
from planner.model.prompts import Prompts, load_prompts
from planner.model.question import Question, earlier_plan, plan_questions
from planner.plan import CompactionPlan, ExtractedFact, Provenance, Usage
from planner.proposal import PlanRequest, Proposal, TurnProposal
from planner.rules import RulesPlanner

__all__ = ["ModelPlanner", "merged", "outcomes_in_order"]

PREFIX_SHARE = 0.6
"""Of the time, what the question behind the agent's prefix may take: the rest is for the cards, should it fail."""


@dataclass(frozen=True)
class ModelPlanner:
    """Plans by asking a model."""

    client: Any = None
    """``anthropic.Anthropic``, ``AsyncAnthropic`` (inside `plan_compaction_async`), an instructor client, or
    None: the SDK's own settings from the environment."""
    model: str | None = None
    """A Claude model, ``provider/model`` for others by instructor's strings, or None: `DEFAULT_MODEL`."""
    prompts_dir: str | Path | None = None
    """A folder whose prompts take the place of the packaged ones."""
    loop: asyncio.AbstractEventLoop | None = field(default_factory=running_loop, repr=False)
    """Where an asynchronous client lives: the loop this planner is made in."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Plan ``request.history``; what the model leaves out or gets wrong the rules rank.

        Raises:
            PlannerUnavailable: no question got an answer that can be used; it carries what was spent.
            SettingsError: the prompts or the client cannot be used.
        """
        deadline = Deadline.after(request.settings.timeout_seconds)
        prompts = load_prompts(self.prompts_dir)
        behind = self._ask_behind_prefix(request, prompts, deadline)
        if behind is not None and behind.reading is not None:
            return merged([behind], behind.model, prompts, request, asked="prefix")
        questions = [question for question in plan_questions(request, prompts) if question.scope.to_plan]
        outcomes, model = self._ask(questions, prompts, request, deadline) if questions else ([], "")
        return merged([*([behind] if behind else []), *outcomes], model, prompts, request)

    def _ask_behind_prefix(self, request: PlanRequest, prompts: Prompts, deadline: Deadline) -> Outcome | None:
        """What the agent's own model says behind its cached prefix; None if there is none to ask."""
        agent = request.agent_request
        if agent is None:
            return None
        why_not = why_not_prefix(agent, self.model)
        if why_not:
            error = PlannerUnavailable(why_not)
            return Outcome(None, Usage(), notes=(f"not asked behind the agent's prefix: {why_not}",), error=error)
        client, share = self.client or agent.client, deadline.share(PREFIX_SHARE)
        return ask_behind_prefix(request, agent, prompts, client, self.loop, share)

    def _ask(
        self, questions: Sequence[Question], prompts: Prompts, request: PlanRequest, deadline: Deadline
    ) -> tuple[list[Outcome], str]:
        settings = request.settings
        with open_endpoint(self.client, self.model, settings.timeout_seconds, self.loop) as endpoint:

            def conversation(question: Question, notes: str) -> Conversation:
                return Conversation(
                    endpoint=endpoint,
                    prompts=prompts,
                    prompt=question.text(prompts, notes),
                    scope=question.scope,
                    evidence=request.evidence,
                    max_output_tokens=settings.max_output_tokens,
                    max_reasks=settings.max_reasks,
                    now=request.now,
                    deadline=deadline,
                )

            def ask(questions: Sequence[Question], notes: str) -> list[Outcome]:
                return ask_all([conversation(question, notes) for question in questions], deadline)

            return outcomes_in_order(questions, ask), endpoint.model


def outcomes_in_order(
    questions: Sequence[Question], ask: Callable[[Sequence[Question], str], list[Outcome]]
) -> list[Outcome]:
    """The outcomes of `questions`: all but the last side by side, then the last with the briefs of the others.

    So one brief is written by the model that sees the newest turns; a call of its own that merges would write the
    newest part twice.
    """
    first = ask(questions[:-1], "") if len(questions) > 1 else []
    return [*first, *ask(questions[-1:], _brief_of(first))]


def _brief_of(outcomes: Sequence[Outcome]) -> str:
    """All statements of the briefs of `outcomes`, under one set of headings."""
    lines = [line for outcome in outcomes if outcome.reading is not None for line in ("STATE", *outcome.reading.brief)]
    return brief_text(read_brief("\n".join(lines)))


def merged(
    outcomes: Sequence[Outcome],
    model: str,
    prompts: Prompts,
    request: PlanRequest,
    asked: Literal["cards", "prefix"] = "cards",
) -> Proposal:
    """`outcomes`, in the order of the history, over what is known without them; `model` as it was asked for.

    Raises:
        PlannerUnavailable: none of them can be used.
    """
    usage = reduce(add, (outcome.usage for outcome in outcomes), Usage())
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors and len(errors) == len(outcomes):
        raise PlannerUnavailable(str(errors[-1]), usage)
    prior, earlier = RulesPlanner().propose(request), earlier_plan(request)
    turns: dict[str, TurnProposal] = dict(prior.turns)
    turns |= _decided(earlier) if earlier else {}
    facts: dict[tuple[str, str], ExtractedFact] = {}
    for outcome in outcomes:
        if outcome.reading is not None:
            turns |= outcome.reading.turns
            facts |= {(fact.type, fact.content): fact for fact in outcome.reading.facts}
    whole = outcomes[-1:] if outcomes and outcomes[-1].reading is not None and outcomes[-1].reading.brief else outcomes
    provenance = Provenance(
        planner="model" if outcomes else "rules",
        model=model or next((outcome.model for outcome in outcomes if outcome.model), ""),
        prompts=prompts.hash,
        usage=usage,
        asked=asked if outcomes else "rules",
        notes=tuple(note for outcome in outcomes for note in outcome.notes),
    )
    brief = _brief_of(whole) or (earlier.brief if earlier else "") or prior.brief
    return replace(prior, turns=turns, provenance=provenance, facts=(*prior.facts, *facts.values()), brief=brief)


def _decided(earlier: CompactionPlan) -> dict[str, TurnProposal]:
    """What the previous plan decided of the turns that its planner saw: it stands until something new is said."""
    return {
        decision.turn_id: TurnProposal(
            turn_id=decision.turn_id,
            score=decision.relevance_score,
            reason=decision.reason,
            strategy=decision.strategy,
            summary=decision.summary,
            excerpts=decision.excerpts,
            failed_approach=decision.failed_approach,
        )
        for decision in earlier.turns[: earlier.history.turns - 1]
    }
