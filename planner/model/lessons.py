"""One finished conversation is shown to the planner model, which notes what the next ones should know; and all that it
noted of a project, which it reviews.

Asked like a plan and through the same client, or about many conversations together by Anthropic's batch API: half the
price, answered within a day, known by an id that outlives the process. What the answers are worth is judged by who
asked.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from planner.analysis import Analysis, analyze
from planner.model.answer import Scope, json_in
from planner.model.asking import Conversation
from planner.model.cards import turn_cards
from planner.model.client import Endpoint, response_text, response_usage, unavailable
from planner.model.prompts import Prompts, safe_text
from planner.model.question import Question
from planner.plan import Usage
from planner.prices import dollars_at_most
from planner.proposal import PlanRequest
from planner.settings import PlanSettings

__all__ = [
    "MOST_REQUESTS",
    "LessonsModel",
    "ReviewedLine",
    "WrittenLesson",
    "lessons_in",
    "lessons_question",
    "review_question",
]

CARDS_TOKENS = 24_000
"""What is shown of a conversation at most: one call, whatever its length."""
ANSWER_TOKENS = 3_000
REVIEW_TOKENS, CANDIDATE_TOKENS, LINE_TOKENS = 12_000, 150, 100
"""What an answer about candidates takes at most, and what one takes in the question, and a line of the answer."""
BATCH_PRICE_SHARE = 0.5
"""Of the price of the same requests sent one by one (Anthropic, "Batch processing")."""
MOST_REQUESTS = 2_000
"""Of one batch: 256 MB are allowed, and a question by cards seldom has more than 100 KB."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 60.0
"""Between two looks whether a batch has ended; each pause is twice the one before."""
CLOCKS_SECONDS = 300.0
"""So far the provider's clock and ours may be apart."""

Shape = TypeVar("Shape", bound=BaseModel)
_OPENS = re.compile(r'\{\s*"lessons"')
"""Where an answer begins, with words or the marks of a code block before it."""


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
    """What the conversation teaches."""

    lessons: list[WrittenLesson]


class ReviewedLine(BaseModel):
    """A line that stays, made of one candidate or several."""

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
    settings: PlanSettings
    client: Any = None
    """Anthropic's, where conversations are asked about together, by a batch."""

    @property
    def name(self) -> str:
        """The model and its prompts: another one reads anew."""
        return f"{self.endpoint.model} {self.prompts.hash[7:15]}"

    def price(self, usage: Usage, *, by_batch: bool = False) -> float:
        """The dollars that `usage` costs; by the dearest price if that of the model is not known."""
        return dollars_at_most(self.endpoint.model, usage) * (BATCH_PRICE_SHARE if by_batch else 1.0)

    def reckoned(self, tokens: int) -> float:
        """The dollars that asking about a conversation of so many tokens costs at most."""
        return self.price(
            self._usage("learn_system", min(tokens, CARDS_TOKENS), ANSWER_TOKENS), by_batch=bool(self.client)
        )

    def reckoned_review(self, candidates: int) -> float:
        """The dollars that asking about so many candidates at once costs at most."""
        answer = min(REVIEW_TOKENS, candidates * LINE_TOKENS)
        return self.price(self._usage("review_system", candidates * CANDIDATE_TOKENS, answer))

    def _usage(self, system: str, tokens: int, answer: int) -> Usage:
        own = len(self.prompts.texts[system]) // 3
        return Usage(input_tokens=tokens + own, output_tokens=answer, requests=1)

    def ask(self, analysis: Analysis) -> tuple[list[WrittenLesson], Usage]:
        """What the model, asked once, notes of a conversation, and what that used.

        Raises:
            PlannerUnavailable: it gave no answer that can be read; it carries what was spent.
        """
        answer, usage = self._answer(_Answer, lessons_question(analysis, self.settings), analysis, ANSWER_TOKENS)
        return answer.lessons, usage

    def review(self, candidates: str) -> tuple[list[ReviewedLine], Usage]:
        """What the model, asked once, leaves of candidates, and what that used.

        Raises:
            PlannerUnavailable: it gave no answer that can be read; it carries what was spent.
        """
        answer, usage = self._answer(_Review, review_question(candidates), analyze([]), REVIEW_TOKENS)
        return answer.lines, usage

    def _answer(
        self, shape: type[Shape], question: Question, analysis: Analysis, most_tokens: int
    ) -> tuple[Shape, Usage]:
        deadline = time.monotonic() + self.settings.timeout_seconds
        request = _request(analysis, self.settings)
        asked = Conversation(self.endpoint, self.prompts, question, "", request, deadline, spare_tokens=0)
        try:
            return asked.create(shape, asked.prompt, most_tokens), asked.meter.usage
        except Exception as failure:  # noqa: BLE001 - any provider's, any library's
            raise asked.unavailable(failure) from None

    def send(self, conversations: Mapping[str, Analysis]) -> str:
        """Ask about `conversations`, at most `MOST_REQUESTS`, by names of letters, digits, ``_`` and ``-``; the id of
        the batch.

        Raises:
            PlannerUnavailable: it was not taken.
        """
        sent = [{"custom_id": name, "params": self._body(one)} for name, one in conversations.items()]
        with self._any_error():
            return str(self.client.messages.batches.create(requests=sent).id)

    def _body(self, analysis: Analysis) -> dict[str, Any]:
        question = lessons_question(analysis, self.settings)
        system, prompt = question.system(self.prompts), question.text(self.prompts)
        body = {**self.endpoint.body(_Answer, system, prompt, ANSWER_TOKENS, 1.0)}
        body.pop("timeout")
        return body

    def batch_since(self, time: float, requests: int) -> str:
        """The id of the newest batch of so many requests that was sent after `time`, in seconds since the epoch; empty
        if there is none: what was sent by a process that ended before it was told the id.

        Raises:
            PlannerUnavailable: it cannot be asked for.
        """
        with self._any_error():
            for batch in self.client.messages.batches.list(limit=100):  # newest first
                if batch.created_at.timestamp() < time - CLOCKS_SECONDS:
                    break
                if sum(batch.request_counts.model_dump().values()) == requests:
                    return str(batch.id)
        return ""

    def answers(self, batch: str) -> Iterator[tuple[str, list[WrittenLesson] | str, Usage]]:
        """Wait until it has ended; then each name with what the model notes, or why there is nothing, and what that
        used. A batch that the provider no longer knows has no answers.

        Raises:
            PlannerUnavailable: it cannot be reached.
        """
        import anthropic

        pause, batches = FIRST_PAUSE_SECONDS, self.client.messages.batches
        with self._any_error():
            try:
                while batches.retrieve(batch).processing_status != "ended":
                    time.sleep(pause)
                    pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
            except anthropic.NotFoundError:
                return
            for row in batches.results(batch):
                if row.result.type == "succeeded":
                    answer = lessons_in(response_text(row.result.message))
                    why = "no answer in the batch"
                    yield row.custom_id, why if answer is None else answer, response_usage(row.result.message)
                else:
                    yield row.custom_id, f"no answer in the batch: {row.result.type}", Usage()

    @contextmanager
    def _any_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - any of the SDK's
            raise unavailable(error, self.endpoint.model, self.endpoint.secrets, Usage()) from None


def lessons_question(analysis: Analysis, settings: PlanSettings) -> Question:
    """What is asked about a conversation."""
    turns = list(analysis.evidence.turns.values())
    cards = "\n".join(
        card.text for card in turn_cards(_request(analysis, settings), turns, CARDS_TOKENS, mark_kept=False)
    )
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
