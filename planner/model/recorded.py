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

    Where it is not asked there is none.

    The last of several questions also holds the briefs answered to the others, which are not known here.
    """
    prompts = load_prompts(prompts_dir)
    questions, _ = plan_questions(request, prompts)
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
        questions, why_not = plan_questions(request, prompts)
        if len(questions) != len(self.answers):
            raise PlannerUnavailable(
                f"recorded answers: {len(self.answers)} for {len(questions)} questions: record them again"
            )
        answers = iter(self.answers)

        def ask(questions: Sequence[Question], notes: str) -> list[Outcome]:
            read = [question.tokens(prompts, request.counter, notes) for question in questions]
            return list(_read(questions, answers, request, read))

        if not questions:
            return merged([], "", prompts, request, notes=(why_not,))
        return merged(outcomes_in_order(questions, ask, request), "recorded", prompts, request)


def _read(
    questions: Sequence[Question], answers: Iterator[str], request: PlanRequest, read_tokens: Sequence[int]
) -> Iterator[Outcome]:
    for question, text, read in zip(questions, answers, read_tokens, strict=False):
        usage = Usage(input_tokens=read, output_tokens=request.counter.text(text), requests=1)
        answer = answer_in(text)
        reading = read_answer(answer, question.scope, request.now) if answer is not None else None
        if reading is not None and reading.is_usable:
            yield Outcome(reading, usage, notes=reading_notes(reading, question.scope, cut_off=False))
            continue
        error = PlannerUnavailable(f"recorded answer for {question.scope.name}: cannot be used: record it again", usage)
        yield Outcome(None, usage, notes=(str(error),), error=error)
