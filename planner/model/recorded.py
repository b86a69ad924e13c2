"""The model planner without the model: what would be sent, and answers that were recorded for it.

For comparing prompts on transcripts, and for tests that must not reach a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import PlannerUnavailable
from planner.model.answer import answer_in, read_answer
from planner.model.asking import Outcome
from planner.model.planner import merged, outcomes_in_order
from planner.model.prompts import load_prompts
from planner.model.question import Question, Situation, plan_questions
from planner.plan import Usage
from planner.proposal import PlanRequest, Proposal
from planner.rules import RulesPlanner

__all__ = ["PromptReader", "RecordedPlanner", "rendered_prompts"]


def rendered_prompts(request: PlanRequest, prompts_dir: str | Path | None = None) -> tuple[str, ...]:
    """What the planner model would read for `request`, system prompt first: one text a question.

    Where it is not asked there is none.

    The last of several questions also holds the briefs answered to the others, which are not known here.
    """
    prompts = load_prompts(prompts_dir)
    questions, _ = plan_questions(Situation.of(request), prompts)
    return tuple(f"{question.system(prompts)}\n\n{question.text(prompts)}" for question in questions)


@dataclass
class PromptReader:
    """Plans by rules, and keeps what the model would have read."""

    prompts_dir: str | Path | None = None
    texts: tuple[str, ...] = ()

    def propose(self, request: PlanRequest) -> Proposal:
        """The rules' proposal; `texts` are the prompts afterwards."""
        self.texts = rendered_prompts(request, self.prompts_dir)
        return RulesPlanner().propose(request)


@dataclass(frozen=True)
class RecordedPlanner:
    """Plans from the texts a model answered to `rendered_prompts`, one a question, in order."""

    answers: Sequence[str]
    prompts_dir: str | Path | None = None

    def propose(self, request: PlanRequest) -> Proposal:
        """Plan ``request.history`` as the answers say; each is used as a last answer would be.

        Raises:
            PlannerUnavailable: no answer can be used, or there is not one a question.
        """
        prompts = load_prompts(self.prompts_dir)
        situation = Situation.of(request)
        questions, why_not = plan_questions(situation, prompts)
        if len(questions) != len(self.answers):
            raise PlannerUnavailable(
                f"recorded answers: {len(self.answers)} for {len(questions)} questions: record them again"
            )
        if not questions:
            return merged([], "", prompts, request, notes=(why_not,))
        answers = iter(self.answers)

        def ask(questions: Sequence[Question], notes: str) -> list[Outcome]:
            asked = zip(questions, answers, strict=False)
            return [_recorded(one, text, one.tokens(prompts, request.counter, notes), request) for one, text in asked]

        return merged(outcomes_in_order(questions, ask, situation), "recorded", prompts, request)


def _recorded(question: Question, text: str, read_tokens: int, request: PlanRequest) -> Outcome:
    """What `text` answers to `question`, used as a last answer would be."""
    usage = Usage(input_tokens=read_tokens, output_tokens=request.counter.text(text), requests=1)
    answer = answer_in(text)
    reading = read_answer(answer, question.scope, request.now) if answer is not None else None
    if reading is not None and reading.is_usable:
        return Outcome(reading, usage, notes=reading.notes(question.scope))
    error = PlannerUnavailable(f"recorded answer for {question.scope.name}: cannot be used: record it again", usage)
    return Outcome(None, usage, notes=(str(error),), error=error)
