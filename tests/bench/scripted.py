"""A planner that is asked what the model would be asked, and answers by rules: for the bill, and for what carries on.

Its page is as long as the model is told, so that the questions after it are as long as real ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from planner.brief import Statement, brief_text, fit_brief, read_brief
from planner.evidence import TurnEvidence
from planner.model.planners import RecordedPlanner, rendered_prompts
from planner.model.question import Situation, brief_tokens
from planner.proposal import PlanRequest, Proposal, written_brief
from planner.rules import rules_brief

__all__ = ["ScriptedPlanner"]

STATEMENT_WORDS = 30
EARLIER_SHARE = 0.7
"""Of the page, what the statements of the page before keep at most."""


class ScriptedPlanner:
    """Answers the questions about a history with a page of what rules read off it and what the agent said."""

    def propose(self, request: PlanRequest) -> Proposal:
        """The proposal that the answers are; its usage is what was to be read."""
        answers = [_answer(request)] * len(rendered_prompts(request))
        return RecordedPlanner(answers).propose(request)


def _answer(request: PlanRequest) -> str:
    situation = Situation.of(request)
    earlier, new = situation.earlier, situation.new
    most = brief_tokens(situation, situation.turns) / request.counter.scale
    known, _ = fit_brief(brief_text(written_brief(earlier)) if earlier else "", request.counter, EARLIER_SHARE * most)
    ids = {turn.turn.id for turn in new}
    record = [one for one in read_brief(rules_brief(request.evidence)) if ids.intersection(one.turns)]
    page, _ = fit_brief(brief_text([*read_brief(known), *record, *_said(new)]), request.counter, most)
    best = max(new, key=lambda turn: request.relevance.of_turn(turn.turn.id)).turn.id
    return json.dumps({"brief": page.splitlines(), "turns": [f"{best} summarize 7 1-9"]})


def _said(turns: Sequence[TurnEvidence]) -> Iterable[Statement]:
    """The first words of the agent in each turn."""
    for turn in reversed(turns):
        words = next((line.text.split() for line in turn.lines if line.part == "assistant" and line.text.strip()), [])
        if words:
            yield Statement("FACTS", " ".join(words[:STATEMENT_WORDS]), (turn.turn.id,))
