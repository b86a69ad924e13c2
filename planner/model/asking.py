"""Asks the planner model, again when its answer cannot be used, within one deadline for everything.

Whatever goes wrong ends as an `Outcome` with what it cost, so that one question never takes the others down. All
work is done in daemon threads: a server that never answers keeps neither the caller nor the interpreter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock, Thread
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, Field, model_validator

from planner.brief import brief_text, check_brief, read_brief
from planner.errors import PlannerUnavailable
from planner.evidence import Evidence
from planner.model.answer import MOST_PROBLEMS, Answer, Reading, Scope, answer_in, read_answer
from planner.model.client import (
    THREAD_NAME,
    Endpoint,
    Meter,
    is_passing,
    is_refusal,
    pause_before,
    response_text,
    response_usage,
    unavailable,
)
from planner.model.prompts import Prompts, safe_text
from planner.model.question import Question
from planner.plan import Usage
from planner.proposal import PlanRequest

__all__ = ["Conversation", "Deadline", "Outcome", "ask_all"]

MOST_PARALLEL = 4
"""Questions asked at once: more would rather run into rate limits than be faster."""
MEND_OUTPUT_TOKENS = 2_048
MEND_LEAST_SECONDS = 5.0
"""With less time left statements are not asked about again; the guards strike what does not hold."""

Shape = TypeVar("Shape", bound=BaseModel)


@dataclass(frozen=True)
class Deadline:
    """When a planning call must be over, by the clock that never goes back."""

    ends: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """In so many seconds from now."""
        return cls(time.monotonic() + seconds)

    def share(self, part: float) -> Deadline:
        """A deadline of its own for what may take so much of the time that is left."""
        return Deadline.after(self.left_seconds * part)

    @property
    def left_seconds(self) -> float:
        """Never below zero."""
        return max(0.0, self.ends - time.monotonic())


@dataclass(frozen=True)
class Outcome:
    """What came of one question: a reading, or the error that stands in its place."""

    reading: Reading | None
    usage: Usage
    model: str = ""
    """As the provider named it; empty if it never answered."""
    notes: tuple[str, ...] = ()
    """What a reviewer should know: that an answer was used in part, or why there is none."""
    error: PlannerUnavailable | None = None


class Asking(Protocol):
    """One question that can be asked once."""

    def outcome(self) -> Outcome:
        """Ask and read; never raises."""
        ...

    def late(self) -> Outcome:
        """What there is when time is up: nothing but what it cost."""
        ...


def ask_all(questions: Sequence[Asking], deadline: Deadline) -> list[Outcome]:
    """The outcome of each, side by side, `MOST_PARALLEL` at once; those not done in time are given up."""
    outcomes: dict[int, Outcome] = {}
    waiting, lock = count(), Lock()

    def work() -> None:
        while deadline.left_seconds:
            with lock:
                at = next(waiting)
            if at >= len(questions):
                return
            outcomes[at] = questions[at].outcome()

    logging.getLogger("instructor.v2.retry").addFilter(_is_of_others)
    threads = [Thread(target=work, name=THREAD_NAME, daemon=True) for _ in range(min(len(questions), MOST_PARALLEL))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(deadline.left_seconds)
    return [outcomes.get(at) or question.late() for at, question in enumerate(questions)]


def _is_of_others(record: logging.LogRecord) -> bool:
    return record.threadName != THREAD_NAME


class Mended(BaseModel):
    """The statements, written again."""

    statements: list[str] = Field(description="One for each that was asked about, in the same order; '' to leave out")


class Conversation:
    """One question by cards with all that is said about it."""

    def __init__(
        self,
        endpoint: Endpoint,
        prompts: Prompts,
        question: Question,
        notes: str,
        request: PlanRequest,
        deadline: Deadline,
        spare_tokens: float,
    ) -> None:
        """Nothing was asked yet. `spare_tokens` may be read beside the first asking; `notes` as in `Question.text`."""
        self.endpoint, self.prompts, self.request, self.deadline = endpoint, prompts, request, deadline
        self.scope = question.scope
        self.system, self.prompt = question.system(prompts), question.text(prompts, notes)
        self.meter = Meter(self._cost, self._count(self.system) + self._count(self.prompt) + spare_tokens)
        self.last: Any = None
        """The newest response."""
        self.left: dict[bool, int] = {}
        """How many requests more there may be: True for those sent again, False for those about an answer."""

    def outcome(self) -> Outcome:
        """Ask and read; never raises."""
        try:
            answer = self._create(_usable_answer(self.scope), self.prompt, self.request.settings.max_output_tokens)
            return self._read(answer, None)
        except Exception as failure:  # noqa: BLE001 - any provider's, any library's: it must not break the host
            return self._read(self._salvaged(), self._unavailable(failure))

    def late(self) -> Outcome:
        """What there is when time is up: nothing but what it cost."""
        return self._failed(self._unavailable(TimeoutError()))

    def _failed(self, error: PlannerUnavailable) -> Outcome:
        return Outcome(None, self.meter.usage, self._model, (f"{self.scope.name}: {error}",), error)

    @property
    def _model(self) -> str:
        return str(getattr(self.last, "model", "") or "")

    def _count(self, text: str) -> int:
        return self.request.counter.text(text)

    def _read(self, answer: Answer | None, error: PlannerUnavailable | None) -> Outcome:
        reading = read_answer(answer, self.scope, self.request.now) if answer is not None else None
        if reading is None or not reading.is_usable:
            return self._failed(error or self._unavailable(ValueError()))
        notes = reading.notes(self.scope, cut_off=error is not None)
        may_ask = error is None and self.request.settings.max_reasks > 0
        if may_ask and self.deadline.left_seconds > MEND_LEAST_SECONDS:
            reading.brief = self._mended(reading.brief)
        return Outcome(reading, self.meter.usage, self._model, notes)

    def _salvaged(self) -> Answer | None:
        """What stands of the last answer, though it was cut off or is not quite of the form asked for."""
        return None if self.last is None or is_refusal(self.last) else answer_in(response_text(self.last))

    def _unavailable(self, failure: BaseException) -> PlannerUnavailable:
        if self.last is not None and is_refusal(self.last):
            return PlannerUnavailable(
                f"planner model {self.endpoint.model}: declined to answer (refusal): try another model, "
                'or plan with planner="rules"',
                self.meter.usage,
            )
        return unavailable(failure, self.endpoint.model, self.endpoint.secrets, self.meter.usage)

    def _mended(self, brief: Sequence[str]) -> tuple[str, ...]:
        """The brief with what it names wrongly written again by the model, asked once, about those lines alone."""
        evidence = self.request.evidence
        statements = read_brief("\n".join(brief))
        doubts = {at: problem for at, one in enumerate(statements) if (problem := _doubt(one.line, evidence))}
        if not doubts:
            return tuple(brief)
        listed = "\n".join(f"{n}. {statements[at].line}\n   {doubts[at]}" for n, at in enumerate(doubts, 1))
        prompt = self.prompts.render("mend", statements=safe_text(listed))
        if not self.meter.may_read(self._count(self.system) + self._count(prompt)):
            return tuple(brief)
        try:
            mended = self._create(Mended, prompt, MEND_OUTPUT_TOKENS)
        except Exception:  # noqa: BLE001 - the guards strike what was not mended
            return tuple(brief)
        for at, line in zip(doubts, mended.statements, strict=False):
            again = read_brief(f"{statements[at].heading}\n{line}")
            if again:
                statements[at] = again[0]
        return tuple(brief_text(statements).splitlines())

    def _create(self, shape: type[Shape], prompt: str, max_output_tokens: int) -> Shape:
        """One request, and others while they fail in passing, or while its answers are not of `shape`."""
        import tenacity
        from instructor.core import Hooks

        hooks = Hooks()
        hooks.on("completion:kwargs", lambda **body: self.meter.sent(body))
        hooks.on("completion:error", lambda failure: self.meter.failed(failure))
        hooks.on("completion:response", self._record)
        seconds = self.deadline.left_seconds
        self.left = {True: self.endpoint.retries, False: self.request.settings.max_reasks}
        answer: Shape = self.endpoint.create(
            response_model=shape,
            strict=False,
            hooks=hooks,
            max_retries=tenacity.Retrying(
                retry=tenacity.retry_if_exception(self._worth_another),
                stop=tenacity.stop_before_delay(seconds),
                wait=pause_before,
                reraise=True,
            ),
            **self.endpoint.body(shape, self.system, prompt, max_output_tokens, seconds),
        )
        return answer

    def _record(self, response: Any) -> None:
        """Called by instructor with each response, before it adds the usages up in place."""
        self.last = response
        self.meter.answered(response_usage(response))

    def _cost(self, body: Mapping[str, Any]) -> Usage:
        """What a request with that body reads, as the first one was reckoned: the system prompt, and what is said."""
        spoken = sum(self._count(text) for message in body.get("messages", ()) for text in _texts(message))
        return Usage(input_tokens=self._count(self.system) + (spoken or self._count(self.prompt)), requests=1)

    def _worth_another(self, error: BaseException) -> bool:
        """True if the request may go well when it is sent again, or if `error` is about what the model answered."""
        passing = is_passing(error)
        self.left[passing] -= 1
        if self.left[passing] < 0:
            return False
        if passing:
            return self.meter.may_repeat()
        if not isinstance(error, ValueError) or self.last is None or is_refusal(self.last):
            return False  # a refusal would only be repeated
        last = response_usage(self.last)  # what is sent again, with the answer and what is wrong with it
        return self.meter.may_read(last.read_tokens + 2 * last.output_tokens)


def _usable_answer(scope: Scope) -> type[Answer]:
    """`Answer` that is valid only if it can be used for `scope`, at least in part.

    The scope is held by the class and not passed as instructor's ``context``, which would also be used to
    render the messages as Jinja templates: a history with ``{{`` in it must reach the model as it is.
    """

    class Checked(Answer):
        @model_validator(mode="after")
        def _usable(self) -> Checked:
            reading = read_answer(self, scope, 0.0)
            if not reading.is_usable:
                listed = [f"- {problem}" for problem in reading.problems[:MOST_PROBLEMS]]
                raise ValueError("\n".join(listed or ["- there is no brief, and no entry"]))
            return self

    Checked.__name__ = Checked.__qualname__ = "Answer"
    Checked.__doc__ = Answer.__doc__
    return Checked


def _doubt(line: str, evidence: Evidence) -> str:
    """What a statement names that no turn holds, in words; empty if it holds."""
    _, findings = check_brief(line, evidence)
    return next((finding.problem for finding in findings if finding.code == "invented_in_brief"), "")


def _texts(message: object) -> Iterator[str]:
    """The words of a message in most providers' form, but for the system prompt, which some send as a message."""
    if not isinstance(message, Mapping) or message.get("role") == "system":
        return
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield text
