"""Asks the planner model questions within one deadline, and asks again if an answer is unusable.

Every failure becomes an `AskedOutcome` with its cost, so that other questions continue. All requests are sent by daemon
threads: a server that never answers delays neither the caller nor the end of the process.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, Field, model_validator

from planner.brief import brief_text, check_brief, read_brief
from planner.errors import PlannerUnavailable
from planner.evidence import Evidence
from planner.model.answer import MOST_PROBLEMS, PlanAnswer, Reading, Scope, answer_in, read_answer
from planner.model.client import Endpoint, Meter, is_refusal, response_text, response_usage, unavailable
from planner.model.prompts import Prompts, safe_text
from planner.model.question import Question
from planner.plan import Usage
from planner.proposal import PlanRequest

if TYPE_CHECKING:
    import tenacity

MOST_PARALLEL = 4
"""Largest number of questions asked at once: more would meet rate limits."""
MEND_OUTPUT_TOKENS, MEND_LEAST_SECONDS = 2_048, 5.0
"""Output limit of an answer with corrected statements; and the remaining time below which no corrections are asked for.
The guards remove wrong statements then."""
THREAD_NAME = "planner model"
"""Name of the threads that ask. In them instructor's log of failed calls is suppressed, as a failure is an outcome."""
_SENT_AGAIN = frozenset({408, 409, 429})
"""HTTP statuses below 500 after which the SDKs of Anthropic and OpenAI repeat a request."""
LONGEST_PAUSE_SECONDS = 8.0
"""Longest pause between attempts, as in the SDKs."""

Shape = TypeVar("Shape", bound=BaseModel)


def left_seconds(deadline: float) -> float:
    """Return the seconds until `deadline`, by the monotonic clock; never below zero."""
    return max(0.0, deadline - time.monotonic())


@dataclass(frozen=True)
class AskedOutcome:
    """Result of one question: a reading, or the error instead of it."""

    reading: Reading | None
    usage: Usage
    model: str = ""
    """Model that was asked; if that was left to the client, the name in its response, or empty without one."""
    notes: tuple[str, ...] = ()
    """Notes for a reviewer: partly used answers, or the reason for none."""
    error: PlannerUnavailable | None = None


class Asking(ABC):
    """Question that can be asked once, with a meter of what its requests cost."""

    def __init__(self, request: PlanRequest, scope: Scope, model: str, secrets: Sequence[str], meter: Meter) -> None:
        """Store what `ask` needs. `scope`: the turns in question; `secrets`: texts that no error may contain."""
        self.request, self.scope, self.model, self.secrets, self.meter = request, scope, model, secrets, meter
        self.label = scope.name
        """Name of the question in notes."""
        self.last: Any = None
        """Newest response."""

    @abstractmethod
    def ask(self) -> AskedOutcome:
        """Ask the model and return the outcome; may raise any error of a provider."""

    def outcome(self) -> AskedOutcome:
        """Ask the model and return the outcome; an error becomes an outcome, too."""
        try:
            return self.ask()
        except Exception as failure:  # noqa: BLE001 - any provider's, any library's: it must not break the host
            self.meter.failed(failure)
            return self.failed(self.unavailable(failure))

    def record(self, response: Any) -> None:
        """Record a response and its usage. Must be called before instructor adds further usages to the response."""
        self.last = response
        self.meter.answered(response_usage(response))

    def answer(self) -> PlanAnswer:
        """Return the answer in the newest response, even if it was cut off or has another form; empty for a refusal."""
        return answer_in("" if is_refusal(self.last) else response_text(self.last))

    def used(self, reading: Reading, *, cut_off: bool = False) -> AskedOutcome:
        """Return the outcome with a usable `reading`; `cut_off`: True if the answer was incomplete."""
        return AskedOutcome(reading, self.meter.usage, self._model_name, reading.notes(self.scope, cut_off=cut_off))

    def failed(self, error: PlannerUnavailable) -> AskedOutcome:
        """Return the outcome with an `error` instead of a reading."""
        return AskedOutcome(None, self.meter.usage, self._model_name, (f"{self.label}: {error}",), error)

    def unavailable(self, failure: BaseException) -> PlannerUnavailable:
        """Return `failure` as our own error."""
        declined = is_refusal(self.last)
        return unavailable(failure, self.model, self.secrets, self.meter.usage, declined=declined)

    @property
    def _model_name(self) -> str:
        return self.model or str(getattr(self.last, "model", "") or "")


def ask_all(questions: Sequence[Asking], deadline: float) -> list[AskedOutcome]:
    """Return the outcomes of `questions`, in order, asked by up to `MOST_PARALLEL` threads; a question that is
    unfinished at `deadline` fails with a timeout."""
    outcomes: dict[int, AskedOutcome] = {}
    next_index, lock = count(), Lock()

    def work() -> None:
        while left_seconds(deadline):
            with lock:
                index = next(next_index)
            if index >= len(questions):
                return
            outcomes[index] = questions[index].outcome()

    logging.getLogger("instructor.v2.retry").addFilter(_is_from_other_thread)
    threads = [Thread(target=work, name=THREAD_NAME, daemon=True) for _ in range(min(len(questions), MOST_PARALLEL))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(left_seconds(deadline))
    late = TimeoutError()
    return [outcomes.get(index) or one.failed(one.unavailable(late)) for index, one in enumerate(questions)]


def _is_from_other_thread(record: logging.LogRecord) -> bool:
    return record.threadName != THREAD_NAME


class Mended(BaseModel):
    """Corrected statements."""

    statements: list[str] = Field(description="One for each that was asked about, in the same order; '' to leave out")


class PlannerConversation(Asking):
    """Question with cards: the first request, repetitions, and one request to correct statements."""

    def __init__(
        self,
        endpoint: Endpoint,
        prompts: Prompts,
        question: Question,
        notes: str,
        request: PlanRequest,
        deadline: float,
        spare_tokens: float,
    ) -> None:
        """Prepare to ask `question` at `endpoint`, within `deadline` by the monotonic clock.

        `notes`: briefs that were written for other pieces of the history; `spare_tokens`: tokens that may be read by
        requests after the first.
        """
        self.endpoint, self.prompts, self.deadline = endpoint, prompts, deadline
        self.system, self.prompt = question.system(prompts), question.text(prompts, notes)
        most = question.tokens(prompts, request.counter, notes) + spare_tokens
        super().__init__(request, question.scope, endpoint.model, endpoint.secrets, Meter(self._cost, most))
        self._repeats_left = self._reasks_left = 0
        """Numbers of further requests that are allowed: after temporary failures, and after unusable answers."""

    def ask(self) -> AskedOutcome:
        """Ask until an answer is usable, at least in part, then once for corrections of its brief."""
        error = None
        try:
            answer = self.create(_usable_answer(self.scope), self.prompt, self.request.settings.max_output_tokens)
        except Exception as failure:  # noqa: BLE001 - any provider's, any library's: a partial answer is used
            answer, error = self.answer(), failure
        reading = read_answer(answer, self.scope, self.request.now)
        if not reading.is_usable:
            return self.failed(self.unavailable(error or ValueError()))
        may_ask = error is None and self.request.settings.max_reasks > 0
        if may_ask and left_seconds(self.deadline) > MEND_LEAST_SECONDS:
            reading.brief = self._mended(reading.brief)
        return self.used(reading, cut_off=error is not None)

    def _count(self, text: str) -> int:
        return self.request.counter.text(text)

    def _mended(self, brief: Sequence[str]) -> tuple[str, ...]:
        """Return the lines of `brief` after the model was asked once to correct statements with invented names. They
        stay the same if there is no such statement, or the model cannot be asked or does not answer."""
        evidence = self.request.evidence
        statements = [*read_brief("\n".join(brief))]
        problems = {at: problem for at, one in enumerate(statements) if (problem := _invention(one.line, evidence))}
        if not problems:
            return tuple(brief)
        numbered = "\n".join(f"{n}. {statements[at].line}\n   {problems[at]}" for n, at in enumerate(problems, 1))
        prompt = self.prompts.render("mend", statements=safe_text(numbered))
        if not self.meter.may_read(self._count(self.system) + self._count(prompt)):
            return tuple(brief)
        try:
            mended = self.create(Mended, prompt, MEND_OUTPUT_TOKENS)
        except Exception:  # noqa: BLE001 - any provider's, any library's: the guards remove wrong statements
            return tuple(brief)
        for at, line in zip(problems, mended.statements, strict=False):
            if corrected := read_brief(f"{statements[at].heading}\n{line}"):
                statements[at] = corrected[0]
        return tuple(brief_text(statements).splitlines())

    def create(self, shape: type[Shape], prompt: str, max_output_tokens: int) -> Shape:
        """Return the model's answer to `prompt` as a `shape`.

        Requests are repeated after temporary failures and after answers of another shape, within the limits of their
        number, tokens and time.
        """
        import tenacity
        from instructor.core import Hooks

        hooks = Hooks()
        hooks.on("completion:kwargs", lambda **body: self.meter.sent(body))
        hooks.on("completion:error", lambda failure: self.meter.failed(failure))
        hooks.on("completion:response", self.record)
        seconds = left_seconds(self.deadline)
        self._repeats_left, self._reasks_left = self.endpoint.retries, self.request.settings.max_reasks
        answer: Shape = self.endpoint.create(
            response_model=shape,
            strict=False,
            hooks=hooks,
            max_retries=tenacity.Retrying(
                retry=tenacity.retry_if_exception(self._worth_another),
                stop=tenacity.stop_before_delay(seconds),
                wait=_pause_before,
                reraise=True,
            ),
            **self.endpoint.body(shape, self.system, prompt, max_output_tokens, seconds),
        )
        return answer

    def _cost(self, body: Mapping[str, Any]) -> Usage:
        """Return the estimated usage of a request, including answers that are sent back for correction."""
        texts = [message.get("content") for message in body.get("messages", ()) if message.get("role") != "system"]
        message_tokens = sum(self._count(text) for text in texts if isinstance(text, str))
        return Usage(input_tokens=self._count(self.system) + (message_tokens or self._count(self.prompt)), requests=1)

    def _worth_another(self, error: BaseException) -> bool:
        """Return True if another request is useful and allowed after `error`."""
        if _is_temporary(error):
            self._repeats_left -= 1
            return self._repeats_left >= 0 and self.meter.may_repeat()
        self._reasks_left -= 1
        is_about_answer = isinstance(error, ValueError) and self.last is not None
        if self._reasks_left < 0 or not is_about_answer or is_refusal(self.last):  # a refusal would be repeated
            return False
        last = response_usage(self.last)  # its input is sent again, with the answer and a text about what is wrong
        return self.meter.may_read(last.read_tokens + 2 * last.output_tokens)


def _usable_answer(scope: Scope) -> type[PlanAnswer]:
    """Return a `PlanAnswer` class that accepts only answers usable for `scope`, at least in part.

    The scope is not passed as instructor's ``context``, which would also render the messages as Jinja templates: a
    history with ``{{`` in it must reach the model unchanged.
    """

    class Checked(PlanAnswer):
        @model_validator(mode="after")
        def _usable(self) -> Checked:
            reading = read_answer(self, scope, 0.0)
            if not reading.is_usable:
                listed = [f"- {problem}" for problem in reading.problems[:MOST_PROBLEMS]]
                raise ValueError("\n".join(listed or ["- there is no brief, and no entry"]))
            return self

    return Checked


def _invention(line: str, evidence: Evidence) -> str:
    """Return the problem of a statement with an invented name, in words for the model; empty without one."""
    _, findings = check_brief(line, evidence)
    return next((finding.problem for finding in findings if finding.code == "invented_in_brief"), "")


def _is_temporary(failure: BaseException) -> bool:
    """Return True for overload, a rate limit, or a broken connection."""
    status = getattr(failure, "status_code", None)
    if isinstance(status, int):
        return status in _SENT_AGAIN or status >= 500
    return any(name in type(failure).__name__ for name in ("Connection", "Timeout"))


def _pause_before(attempts: tenacity.RetryCallState) -> float:
    """Return the seconds before the next attempt: after a temporary failure as many as the provider demands, or else
    more each time."""
    failure = attempts.outcome.exception() if attempts.outcome is not None else None
    if failure is None or not _is_temporary(failure):
        return 0.0
    demanded = str(getattr(getattr(failure, "response", None), "headers", {}).get("retry-after", ""))
    if demanded.isdecimal():
        return float(demanded)
    return min(LONGEST_PAUSE_SECONDS, 0.5 * 2.0 ** (attempts.attempt_number - 1))
