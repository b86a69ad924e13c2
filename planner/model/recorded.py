"""The model planner without the model: what would be sent, and answers that were recorded for it.

For comparing prompts on transcripts, and for tests that must not reach a network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import PlannerUnavailable
from planner.model.answer import answer_in, read_answer
from planner.model.asking import Outcome, reading_notes
from planner.model.planner import merged, outcomes_in_order
from planner.model.prompts import load_prompts
from planner.model.question import Question, plan_questions
from planner.plan import Usage
from planner.proposal import PlanRequest, Proposal
from planner.rules import RulesPlanner

__all__ = ["PromptReader", "RecordedPlanner", "rendered_prompts"]


def rendered_prompts(request: PlanRequest, prompts_dir: str | Path | None = None) -> tuple[str, ...]:
    """What the planner model would read for `request`, system prompt first: one text a question.

    The last of several questions also holds the briefs answered to the others, which are not known here.
    """
    prompts = load_prompts(prompts_dir)
    questions = plan_questions(request, prompts)
    return tuple(f"{prompts.system}\n\n{question.text(prompts)}" for question in questions)


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
        questions = plan_questions(request, prompts)
        if len(questions) != len(self.answers):
            raise PlannerUnavailable(
                f"recorded answers: {len(self.answers)} for {len(questions)} questions: record them again"
            )
        answers = iter(self.answers)

        def ask(questions: Sequence[Question], notes: str) -> list[Outcome]:
            return list(_read(questions, answers, request, [question.text(prompts, notes) for question in questions]))

        return merged(outcomes_in_order(questions, ask), "recorded", prompts, request)


def _read(
    questions: Sequence[Question], answers: Iterator[str], request: PlanRequest, prompts: Sequence[str]
) -> Iterator[Outcome]:
    tokens = request.counter.text
    for question, text, prompt in zip(questions, answers, prompts, strict=False):
        usage = Usage(input_tokens=tokens(prompt), output_tokens=tokens(text), requests=1)
        answer = answer_in(text)
        reading = read_answer(answer, question.scope, request.now) if answer is not None else None
        if reading is not None and reading.is_usable:
            yield Outcome(reading, usage, notes=reading_notes(reading, question.scope, cut_off=False))
            continue
        error = PlannerUnavailable(f"recorded answer for {question.scope.name}: cannot be used: record it again", usage)
        yield Outcome(None, usage, notes=(str(error),), error=error)
