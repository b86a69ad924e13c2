"""A planner that is asked the model's questions and answers by rules, for measuring cost and carrying on.

Its page is as long as the model's would be, so that later questions are as long as real ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from planner.brief import PageStatement, brief_text, fit_brief, read_brief
from planner.evidence import TurnEvidence
from planner.later_plans import written_brief
from planner.model.planners import RelayedPlanner, rendered_prompts
from planner.model.question import QuestionBasis, brief_tokens
from planner.plan import PlanRequest, Proposal
from planner.rules import rules_brief

STATEMENT_WORDS = 30
EARLIER_SHARE = 0.7
"""Largest share of the page for statements of the earlier page."""


class ScriptedPlanner:
    """Planner that answers questions with a page of rules' statements and the agent's words."""

    def propose(self, request: PlanRequest) -> Proposal:
        """Return the answers as a proposal, with the size of the questions as usage."""
        answers = [_answer(request)] * len(rendered_prompts(request))
        return RelayedPlanner(answers).propose(request)


def _answer(request: PlanRequest) -> str:
    basis = QuestionBasis.of(request)
    earlier, new = basis.earlier, basis.new
    most = brief_tokens(basis, basis.turns) / request.counter.scale
    known, _ = fit_brief(brief_text(written_brief(earlier)) if earlier else "", request.counter, EARLIER_SHARE * most)
    ids = {turn.turn.id for turn in new}
    record = [one for one in read_brief(rules_brief(request.evidence)) if ids.intersection(one.turns)]
    page, _ = fit_brief(brief_text([*read_brief(known), *record, *_said(new)]), request.counter, most)
    best = max(new, key=lambda turn: request.relevance.of_turn(turn.turn.id)).turn.id
    return json.dumps({"brief": page.splitlines(), "turns": [f"{best} summarize 7 1-9"]})


def _said(turns: Sequence[TurnEvidence]) -> Iterable[PageStatement]:
    """Yield the first words of the agent in each turn."""
    for turn in reversed(turns):
        words = next((line.text.split() for line in turn.lines if line.part == "assistant" and line.text.strip()), [])
        if words:
            yield PageStatement("FACTS", " ".join(words[:STATEMENT_WORDS]), (turn.turn.id,))
