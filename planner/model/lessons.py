"""One finished conversation is shown to the planner model, which notes what the next ones should know; and all that it
noted of a project, which it reviews.

Asked like a plan and through the same client; what the answers are worth is judged by who asked.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.analysis import Analysis, analyze
from planner.errors import PlannerUnavailable
from planner.model.answer import Scope, json_in
from planner.model.asking import Conversation
from planner.model.cards import turn_cards
from planner.model.client import Endpoint, unavailable
from planner.model.prompts import Prompts, safe_text
from planner.model.question import Question
from planner.plan import Usage
from planner.proposal import PlanRequest
from planner.settings import PlanSettings

__all__ = ["LessonsModel", "ReviewedLine", "WrittenLesson", "lessons_in", "lessons_question", "review_question"]

CARDS_TOKENS = 24_000
"""What is shown of a conversation at most: one call, whatever its length."""
ANSWER_TOKENS = 3_000
REVIEW_TOKENS, CANDIDATE_TOKENS, LINE_TOKENS = 12_000, 150, 100
"""What an answer about candidates takes at most, and what one takes in the question, and a line of the answer."""

Shape = TypeVar("Shape", bound=BaseModel)
_OPENS = re.compile(r'\{\s*"lessons"')
"""Where an answer begins, with words or the marks of a code block before it."""


class WrittenLesson(BaseModel):
    """One line, as a model wrote it."""

    model_config = ConfigDict(extra="ignore")

    kind: str = Field(default="", description="decision, fact, wish or error")
    about: str = ""
    text: str = ""
    turn: str = ""
    words: str = Field(default="", description="Copied from the turn, letter by letter")
    mended: str = ""
    why: str = Field(default="", description="Of an error: what the agent says of its cause, letter by letter")


class _Answer(BaseModel):
    """What the conversation teaches."""

    lessons: list[WrittenLesson]


class ReviewedLine(BaseModel):
    """A line that stays, made of one candidate or several."""

    model_config = ConfigDict(extra="ignore")

    of: list[str] = Field(description="Ids of the candidates, the best one first")
    text: str = Field(default="", description="New words; empty: those of the first candidate")
    replaces: list[str] = Field(default_factory=list, description="Ids of older candidates that it supersedes")


class _Review(BaseModel):
    """What stays of the candidates."""

    lines: list[ReviewedLine]


@dataclass(frozen=True)
class LessonsModel:
    """A model that can be asked, one conversation a call."""

    endpoint: Endpoint
    prompts: Prompts

    @property
    def name(self) -> str:
        """The model and its prompts: another one reads anew."""
        return f"{self.endpoint.model} {self.prompts.hash[7:15]}"

    def reckoned(self, tokens: int) -> Usage:
        """What asking about a conversation of so many tokens uses, the longest answer with it."""
        system = len(self.prompts.texts["learn_system"]) // 3
        return Usage(input_tokens=min(tokens, CARDS_TOKENS) + system, output_tokens=ANSWER_TOKENS, requests=1)

    def reckoned_review(self, candidates: int) -> Usage:
        """What asking about so many candidates at once uses, the longest answer with it."""
        system = len(self.prompts.texts["review_system"]) // 3
        answer = min(REVIEW_TOKENS, candidates * LINE_TOKENS)
        return Usage(input_tokens=candidates * CANDIDATE_TOKENS + system, output_tokens=answer, requests=1)

    def ask(self, analysis: Analysis, settings: PlanSettings) -> tuple[list[WrittenLesson], Usage]:
        """What the model, asked once, notes of a conversation, and what that used.

        Raises:
            PlannerUnavailable: it gave no answer that can be read; it carries what was spent.
        """
        answer, usage = self._answer(_Answer, lessons_question(analysis, settings), analysis, settings, ANSWER_TOKENS)
        return answer.lessons, usage

    def review(self, candidates: str, settings: PlanSettings) -> tuple[list[ReviewedLine], Usage]:
        """What the model, asked once, leaves of candidates, and what that used.

        Raises:
            PlannerUnavailable: it gave no answer that can be read; it carries what was spent.
        """
        answer, usage = self._answer(_Review, review_question(candidates), analyze([]), settings, REVIEW_TOKENS)
        return answer.lines, usage

    def _answer(
        self, shape: type[Shape], question: Question, analysis: Analysis, settings: PlanSettings, most_tokens: int
    ) -> tuple[Shape, Usage]:
        deadline = time.monotonic() + settings.timeout_seconds
        request = _request(analysis, settings)
        asked = Conversation(self.endpoint, self.prompts, question, "", request, deadline, spare_tokens=0)
        try:
            return asked.create(shape, asked.prompt, most_tokens), asked.meter.usage
        except Exception as failure:  # noqa: BLE001 - any provider's, any library's
            raise asked.unavailable(failure) from None

    def body(self, analysis: Analysis, settings: PlanSettings) -> dict[str, Any]:
        """What is sent of a conversation that is asked about with others, by a batch of Anthropic's."""
        question = lessons_question(analysis, settings)
        system, prompt = question.system(self.prompts), question.text(self.prompts)
        body = {**self.endpoint.body(_Answer, system, prompt, ANSWER_TOKENS, 1.0)}
        body.pop("timeout")
        return body

    def unavailable(self, error: Exception) -> PlannerUnavailable:
        """`error` of the provider's SDK as ours."""
        return unavailable(error, self.endpoint.model, self.endpoint.secrets, Usage())


def lessons_question(analysis: Analysis, settings: PlanSettings) -> Question:
    """What is asked about a conversation."""
    turns = list(analysis.evidence.turns.values())
    cards = "\n".join(card.text for card in turn_cards(_request(analysis, settings), turns, CARDS_TOKENS))
    return Question(Scope(turns, ()), {"cards": cards, "brief": ""}, "learn", entries=False)


def review_question(candidates: str) -> Question:
    """What is asked about all candidates."""
    return Question(Scope((), ()), {"candidates": safe_text(candidates), "brief": ""}, "review", entries=False)


def lessons_in(text: str) -> list[WrittenLesson] | None:
    """What an answer notes, among words or cut off; None if it is no answer."""
    match = _OPENS.search(text)
    fields = json_in(text[match.start() :]) if match else None
    try:
        return _Answer.model_validate(fields).lessons
    except ValidationError:
        return None


def _request(analysis: Analysis, settings: PlanSettings) -> PlanRequest:
    return PlanRequest(analysis, "", "", max(1, analysis.tokens), settings, time.time())
