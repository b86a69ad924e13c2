"""The planners that ask no model themselves: somebody else asks for them, or has asked before.

Pure functions of a request and of the answers that came back, by what was asked: a second call puts the same questions
and finds their answers. Reads answers as last ones: what cannot be used is not asked about again here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from planner.errors import PlannerUnavailable
from planner.model.answer import Scope, answer_in, read_answer
from planner.model.asking import Outcome
from planner.model.client import DEFAULT_MODEL
from planner.model.planners import asked_proposal, outcomes_in_order
from planner.model.prefix import prefix_question
from planner.model.prompts import Prompts, load_prompts
from planner.model.question import Question, Situation
from planner.plan import Usage
from planner.proposal import PlanRequest, Proposal

__all__ = ["RecordedPlanner", "RelayedAnswer", "RelayedPlanner", "RelayedQuestion", "Unanswered"]


@dataclass(frozen=True)
class RelayedQuestion:
    """What somebody with a login is to ask."""

    via: Literal["fork", "complete"]
    """Behind the agent's own transcript, by its own model; or by itself."""
    prompt: str
    system: str = ""
    model: str = ""
    """Empty: the agent's."""
    max_tokens: int = 0
    """Of the answer; 0: whoever asks decides."""

    @property
    def id(self) -> str:
        """The same for the same question."""
        said = "\0".join((self.via, self.model, self.system, self.prompt))
        return f"{self.via}-{hashlib.sha256(said.encode('utf-8', 'replace')).hexdigest()[:16]}"


@dataclass(frozen=True)
class RelayedAnswer:
    """What came back."""

    text: str = ""
    usage: Usage = field(default_factory=Usage)
    failure: str = ""
    """Why there is no text; empty if there is."""


class Unanswered(BaseException):
    """Questions that must be asked first. No failure: whoever plans by rules when a planner fails lets it pass."""

    def __init__(self, questions: Sequence[RelayedQuestion]) -> None:
        """These are to be asked, and then the same planned again."""
        super().__init__(f"{len(questions)} questions")
        self.questions = tuple(questions)


@dataclass(frozen=True)
class RelayedPlanner:
    """Plans from `answers`; what they leave open it raises as `Unanswered`."""

    answers: Mapping[str, RelayedAnswer]
    """By the id of the question."""
    model: str = ""
    """The model that cards are for; empty: the default one."""
    agent_model: str = ""
    """Who answers behind the agent's prefix."""
    prefix_tokens: int = 0
    """Of the agent's transcript as it was sent last: asked behind it first. 0: there is none, cards are asked."""
    prompts_dir: str | Path | None = field(default=None, repr=False)

    def propose(self, request: PlanRequest) -> Proposal:
        """Plan ``request.history``; what the answers leave out the rules rank.

        Raises:
            Unanswered: questions have no answer yet.
            PlannerUnavailable: no answer can be used.
        """
        return asked_proposal(request, load_prompts(self.prompts_dir), self._behind_prefix, self._by_cards)

    def _behind_prefix(self, situation: Situation, prompts: Prompts) -> tuple[list[Outcome], tuple[str, ...]]:
        """What came of asking behind the agent's prefix, if that is to be done; else why not."""
        request = situation.request
        if not self.prefix_tokens:
            return [], ()
        question = RelayedQuestion("fork", prefix_question(situation, prompts))
        cost = Usage(
            input_tokens=request.counter.text(question.prompt), cache_read_input_tokens=self.prefix_tokens, requests=1
        )
        if cost.read_tokens > request.input_left_tokens:
            left = int(request.input_left_tokens)
            return [], (f"not asked behind the agent's prefix: the session's planners may read {left} tokens more",)
        (answer,) = self._answers([question])
        everything = Scope(list(request.evidence.turns.values()))
        return [_outcome(answer, everything, request, self.agent_model, "not answered behind the agent's prefix")], ()

    def _by_cards(
        self, questions: Sequence[Question], prompts: Prompts, situation: Situation
    ) -> tuple[list[Outcome], str]:
        request, model = situation.request, self.model or DEFAULT_MODEL
        most = request.settings.max_output_tokens

        def ask(some: Sequence[Question], notes: str) -> list[Outcome]:
            put = [
                RelayedQuestion("complete", one.text(prompts, notes), one.system(prompts), model, most) for one in some
            ]
            return [
                _outcome(answer, one.scope, request, model, f"planner model {model}: no answer for {one.scope.name}")
                for one, answer in zip(some, self._answers(put), strict=True)
            ]

        return outcomes_in_order(questions, ask, situation), model

    def _answers(self, questions: Sequence[RelayedQuestion]) -> list[RelayedAnswer]:
        missing = [question for question in questions if question.id not in self.answers]
        if missing:
            raise Unanswered(missing)
        return [self.answers[question.id] for question in questions]


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
        return asked_proposal(request, load_prompts(self.prompts_dir), lambda *_: ([], ()), self._by_cards)

    def _by_cards(
        self, questions: Sequence[Question], prompts: Prompts, situation: Situation
    ) -> tuple[list[Outcome], str]:
        if len(questions) != len(self.answers):
            count = f"{len(self.answers)} for {len(questions)} questions"
            raise PlannerUnavailable(f"recorded answers: {count}: record them again")
        request, answers = situation.request, iter(self.answers)

        def ask(some: Sequence[Question], notes: str) -> list[Outcome]:
            return [_recorded(next(answers), one, request, one.tokens(prompts, request.counter, notes)) for one in some]

        return outcomes_in_order(questions, ask, situation), "recorded"


def _recorded(text: str, question: Question, request: PlanRequest, read_tokens: int) -> Outcome:
    usage = Usage(input_tokens=read_tokens, output_tokens=request.counter.text(text), requests=1)
    problem = f"recorded answer for {question.scope.name}: cannot be used: record it again"
    return _outcome(RelayedAnswer(text, usage), question.scope, request, "", problem)


def _outcome(answer: RelayedAnswer, scope: Scope, request: PlanRequest, model: str, problem: str) -> Outcome:
    """What `answer` says of `scope`, used as a last answer would be; `problem` if it cannot be."""
    reading = None if answer.failure else read_answer(answer_in(answer.text), scope, request.now)
    if reading is not None and reading.is_usable:
        return Outcome(reading, answer.usage, model, reading.notes(scope))
    error = PlannerUnavailable(f"{problem} ({answer.failure})" if answer.failure else problem, answer.usage)
    return Outcome(None, answer.usage, model, (str(error),), error)
