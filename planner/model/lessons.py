"""Asks the planner model which lessons a finished conversation has for later ones, and which of them should stay.

The second question, a review, chooses and joins *candidates*: the lessons of all conversations of a project. Both are
sent by the same client as questions for a plan. The caller checks the answers. The model also reads the docstrings and
descriptions of the classes for its answers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, Field

from planner.analysis import Analysis, analyze
from planner.model.answer import Scope
from planner.model.asking import PlannerConversation
from planner.model.cards import turn_cards
from planner.model.client import Endpoint
from planner.model.prompts import Prompts, safe_text
from planner.model.question import Question
from planner.plan import PlanRequest, Usage
from planner.prices import assumed_dollars
from planner.settings import PlanSettings

CARDS_TOKENS, ANSWER_TOKENS = 24_000, 3_000
"""Largest numbers of tokens of a question for lessons: a conversation's cards, the answer."""
REVIEW_TOKENS, CANDIDATE_TOKENS, LINE_TOKENS = 12_000, 150, 100
"""Largest numbers of tokens in a review: of its answer, of one candidate (a proposed lesson) in its question, and of
one line in the answer."""

Shape = TypeVar("Shape", bound=BaseModel)


class WrittenLesson(BaseModel):
    """One line, as a model wrote it."""

    kind: str = Field(default="", description="decision, fact, wish or error")
    about: str = ""
    text: str = ""
    turn: str = ""
    words: str = Field(default="", description="Copied from the turn, letter by letter")
    mended: str = ""
    why: str = Field(default="", description="Of an error: what the agent says of its cause, letter by letter")


class _Answer(BaseModel):
    """Lessons of the conversation."""

    lessons: list[WrittenLesson]


class ReviewedLine(BaseModel):
    """Line that stays, made from one or more candidates."""

    of: list[str] = Field(description="Ids of the candidates, the best one first")
    text: str = Field(default="", description="New words; empty: those of the first candidate")
    replaces: list[str] = Field(default_factory=list, description="Ids of older candidates that it supersedes")


class _Review(BaseModel):
    """Remaining candidates."""

    lines: list[ReviewedLine]


@dataclass(frozen=True)
class LessonsModel:
    """Model that finds lessons in conversations and reviews them, with estimates of the cost."""

    endpoint: Endpoint
    prompts: Prompts
    settings: PlanSettings

    @property
    def name(self) -> str:
        """Name of the model and part of the digest of its prompts. If it changes, all conversations are read again."""
        return f"{self.endpoint.model} {self.prompts.hash[7:15]}"

    def price(self, usage: Usage) -> float:
        """Return the price of `usage` in dollars; an assumed one if the model's prices are not known."""
        return assumed_dollars(self.endpoint.model, usage)

    def estimated_cost(self, tokens: int) -> float:
        """Return the estimated highest cost in dollars of asking for the lessons of a conversation of `tokens`."""
        return self.price(self._usage("learn_system", min(tokens, CARDS_TOKENS), ANSWER_TOKENS))

    def estimated_review_cost(self, candidates: int) -> float:
        """Return the estimated highest cost in dollars of a review of this number of candidates (proposed lessons)."""
        answer = min(REVIEW_TOKENS, candidates * LINE_TOKENS)
        return self.price(self._usage("review_system", candidates * CANDIDATE_TOKENS, answer))

    def _usage(self, system: str, tokens: int, answer: int) -> Usage:
        """Estimate a question: the prompt called `system`, by three characters a token, and `tokens` of other input."""
        prompt_tokens = len(self.prompts.texts[system]) // 3
        return Usage(input_tokens=tokens + prompt_tokens, output_tokens=answer, requests=1)

    def ask(self, analysis: Analysis) -> tuple[list[WrittenLesson], Usage]:
        """Return the lessons that the model finds in a conversation, and the tokens it used.

        Raises:
            PlannerUnavailable: the model gave no readable answer; the error has the usage.
        """
        answer, usage = self._answer(_Answer, lessons_question(analysis, self.settings), analysis, ANSWER_TOKENS)
        return answer.lessons, usage

    def review(self, candidates: str) -> tuple[list[ReviewedLine], Usage]:
        """Return the lessons that should stay, as the model chose and joined them from `candidates` (a list of lessons
        as text), and the tokens it used.

        Raises:
            PlannerUnavailable: the model gave no readable answer; the error has the usage.
        """
        answer, usage = self._answer(_Review, review_question(candidates), analyze([]), REVIEW_TOKENS)
        return answer.lines, usage

    def _answer(
        self, shape: type[Shape], question: Question, analysis: Analysis, most_tokens: int
    ) -> tuple[Shape, Usage]:
        """Return the answer to `question`, of at most `most_tokens`, as an object of `shape`; and the tokens used."""
        deadline = time.monotonic() + self.settings.timeout_seconds
        request = _request(analysis, self.settings)
        conversation = PlannerConversation(self.endpoint, self.prompts, question, "", request, deadline, spare_tokens=0)
        try:
            return conversation.create(shape, conversation.prompt, most_tokens), conversation.meter.usage
        except Exception as failure:  # noqa: BLE001 - any provider's, any library's
            raise conversation.unavailable(failure) from None


def lessons_question(analysis: Analysis, settings: PlanSettings) -> Question:
    """Return the question that asks for the lessons of a conversation. It shows the turns as cards."""
    turns = list(analysis.evidence.turns.values())
    cards = turn_cards(_request(analysis, settings), turns, CARDS_TOKENS, mark_pinned=False)
    values = {"cards": "\n".join(card.text for card in cards)}
    return Question(Scope(turns), values, "learn", entries=False, secrets=analysis.secrets)


def review_question(candidates: str) -> Question:
    """Return the question that asks which of `candidates` (a list of lessons as text) should stay."""
    return Question(Scope(()), {"candidates": safe_text(candidates)}, "review", entries=False)


def _request(analysis: Analysis, settings: PlanSettings) -> PlanRequest:
    """Return a plan request, which cards and questions need, without a task; all turns fit in its target size."""
    return PlanRequest(analysis, "", "", max(1, analysis.tokens), settings, time.time())
