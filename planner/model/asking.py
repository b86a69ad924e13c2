"""Asks the planner model questions within one deadline, and asks again if an answer is unusable.

Every failure becomes an `AskedOutcome` with its cost, so that the other questions continue. Daemon threads ask all
questions for a plan: a server that never answers delays neither the caller nor the end of the process.
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
from planner.plan import PlanRequest, Usage

if TYPE_CHECKING:
    import tenacity

MOST_PARALLEL = 4
"""Largest number of questions asked at once. More would meet the provider's rate limits."""
MEND_OUTPUT_TOKENS, MEND_LEAST_SECONDS = 2_048, 5.0
"""Limits of the request to correct statements with made-up names: its output tokens, and the time that must remain
before the deadline. Without that request, such statements are removed later."""
THREAD_NAME = "planner model"
"""Name of the threads that send requests."""
_SENT_AGAIN = frozenset({408, 409, 429})
"""HTTP statuses below 500 after which a request is repeated, as the SDKs of Anthropic and OpenAI do."""
LONGEST_PAUSE_SECONDS = 8.0
"""Longest pause before a request is repeated, as in the SDKs."""

Shape = TypeVar("Shape", bound=BaseModel)


def left_seconds(deadline: float) -> float:
    """Return the seconds until `deadline`, a time of the monotonic clock; 0 if it has passed."""
    return max(0.0, deadline - time.monotonic())


@dataclass(frozen=True)
class AskedOutcome:
    """Result of one question to a planner model: the usable parts of its answer, or an error; and the tokens used."""

    reading: Reading | None
    usage: Usage
    model: str = ""
    """Model that was asked. If the client chose it, the name in its response; empty without a response."""
    notes: tuple[str, ...] = ()
    """Notes for the person who reviews the plan: which parts of the answer were not used, or why there is none."""
    error: PlannerUnavailable | None = None


class Asking(ABC):
    """Question to a planner model, which a subclass sends in its own way; with the cost of its requests."""

    def __init__(self, request: PlanRequest, scope: Scope, model: str, secrets: Sequence[str], meter: Meter) -> None:
        """Store what `ask` needs. `scope`: turns that the answer may be about; `secrets`: keys that no error text may
        contain; `meter`: counts the tokens of the requests."""
        self.request, self.scope, self.model, self.secrets, self.meter = request, scope, model, secrets, meter
        self.label = scope.name
        """Name of the question in notes for a reviewer."""
        self.last: Any = None
        """Newest response of the model; None before the first."""

    @abstractmethod
    def ask(self) -> AskedOutcome:
        """Ask the model, read its answer and return the outcome. May raise any error of a provider's SDK."""

    def outcome(self) -> AskedOutcome:
        """Ask the model and return the outcome; an exception becomes an outcome with that error and its cost."""
        try:
            return self.ask()
        except Exception as failure:  # noqa: BLE001 - any provider's, any library's: it must not break the host
            self.meter.failed(failure)
            return self.failed(self.unavailable(failure))

    def record(self, response: Any) -> None:
        """Store `response` and count its tokens. Call it before instructor gets the response, as instructor adds the
        usage of earlier attempts to it."""
        self.last = response
        self.meter.answered(response_usage(response))

    def answer(self) -> PlanAnswer:
        """Return the answer in the newest response, even if it is cut off; an empty one if the model refused."""
        return answer_in("" if is_refusal(self.last) else response_text(self.last))

    def used(self, reading: Reading, *, cut_off: bool = False) -> AskedOutcome:
        """Return the outcome of a usable answer. `reading`: its usable parts; `cut_off`: True if it was incomplete."""
        return AskedOutcome(reading, self.meter.usage, self._model_name, reading.notes(self.scope, cut_off=cut_off))

    def failed(self, error: PlannerUnavailable) -> AskedOutcome:
        """Return the outcome of a question that has no usable answer because of `error`."""
        return AskedOutcome(None, self.meter.usage, self._model_name, (f"{self.label}: {error}",), error)

    def unavailable(self, failure: BaseException) -> PlannerUnavailable:
        """Return `failure`, any exception of a provider's SDK, as our own error, with the cost and without keys."""
        declined = is_refusal(self.last)
        return unavailable(failure, self.model, self.secrets, self.meter.usage, declined=declined)

    @property
    def _model_name(self) -> str:
        return self.model or str(getattr(self.last, "model", "") or "")


def _is_from_other_thread(record: logging.LogRecord) -> bool:
    """Return False for instructor's log of a failed call in our threads, which hides it: the failure is returned."""
    return record.threadName != THREAD_NAME


def ask_all(questions: Sequence[Asking], deadline: float) -> list[AskedOutcome]:
    """Ask `questions` in up to `MOST_PARALLEL` threads, and return their outcomes in order. A question without an
    answer at `deadline` fails with a timeout; the others keep their answers."""
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
    return [outcomes.get(n) or question.failed(question.unavailable(late)) for n, question in enumerate(questions)]


class Mended(BaseModel):
    """Corrected statements."""

    statements: list[str] = Field(description="One for each that was asked about, in the same order; '' to leave out")


class PlannerConversation(Asking):
    """Question in a conversation of its own: the model sees cards, not the agent's messages. It may take several
    requests: repetitions after failures, and one more to correct statements with made-up names."""

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
        """Prepare to ask `question` at `endpoint` before `deadline`. `notes`: pages of memory that the model wrote for
        other parts of the conversation; `spare_tokens`: limit of the input tokens of all requests but the first."""
        self.endpoint, self.prompts, self.deadline = endpoint, prompts, deadline
        self.system, self.prompt = question.system(prompts), question.text(prompts, notes)
        most = question.tokens(prompts, request.counter, notes) + spare_tokens
        super().__init__(request, question.scope, endpoint.model, endpoint.secrets, Meter(self._cost, most))
        self._repeats_left = self._reasks_left = 0
        """Numbers of further requests: `_repeats_left` after temporary failures, `_reasks_left` after bad answers."""

    def ask(self) -> AskedOutcome:
        """Ask until an answer is usable, at least in part; then once more to correct made-up names in its brief."""
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

    def _mended(self, brief: Sequence[str]) -> tuple[str, ...]:
        """Ask the model once to correct the statements of `brief` with names that the conversation lacks. Without an
        answer, the brief stays the same."""
        statements = [*read_brief("\n".join(brief))]
        found = {at: _invention(statement.line, self.request.evidence) for at, statement in enumerate(statements)}
        problems = {at: problem for at, problem in found.items() if problem}
        if not problems:
            return tuple(brief)
        numbered = "\n".join(f"{n}. {statements[at].line}\n   {problems[at]}" for n, at in enumerate(problems, 1))
        prompt = self.prompts.render("mend", statements=safe_text(numbered))
        if not self.meter.may_read(self.request.counter.text(self.system) + self.request.counter.text(prompt)):
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
        """Send `prompt` and return the model's answer as an object of the class `shape`. The request is repeated after
        temporary failures and after answers that do not fit `shape`, as long as the limits on the number of requests,
        on tokens and on time allow."""
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
        """Estimate the input of the request with this `body`; of the first prompt if it has no messages that can be
        read. The messages of a repeated request also contain the unusable answer and its mistakes."""
        count = self.request.counter.text
        texts = [message.get("content") for message in body.get("messages", ()) if message.get("role") != "system"]
        message_tokens = sum(count(text) for text in texts if isinstance(text, str))
        return Usage(input_tokens=count(self.system) + (message_tokens or count(self.prompt)), requests=1)

    def _worth_another(self, error: BaseException) -> bool:
        """Return True if the request should be repeated after `error`. Each call counts as one repetition."""
        if _is_temporary(error):
            self._repeats_left -= 1
            return self._repeats_left >= 0 and self.meter.may_repeat()
        self._reasks_left -= 1
        is_about_answer = isinstance(error, ValueError) and self.last is not None
        if self._reasks_left < 0 or not is_about_answer or is_refusal(self.last):  # a refusal would be repeated
            return False
        last = response_usage(self.last)  # the next request repeats its input and answer, and lists the mistakes
        return self.meter.may_read(last.read_tokens + 2 * last.output_tokens)


def _usable_answer(scope: Scope) -> type[PlanAnswer]:
    """Return a subclass of `PlanAnswer` whose validation fails for an unusable answer, so that instructor asks again.
    The scope is not passed as instructor's ``context``, as that would render ``{{`` in the messages as templates."""

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
    """Return a sentence for the model on the names in a statement that no turn contains; empty if there are none."""
    _, findings = check_brief(line, evidence)
    return next((finding.problem for finding in findings if finding.code == "invented_in_brief"), "")


def _is_temporary(failure: BaseException) -> bool:
    """Return True if the same request may succeed later: after overload, a rate limit, or a broken connection."""
    status = getattr(failure, "status_code", None)
    if isinstance(status, int):
        return status in _SENT_AGAIN or status >= 500
    return any(name in type(failure).__name__ for name in ("Connection", "Timeout"))


def _pause_before(attempts: tenacity.RetryCallState) -> float:
    """Return the seconds to wait: after a temporary failure as the header ``retry-after`` demands, else twice as many
    as the last time; 0 after an unusable answer."""
    failure = attempts.outcome.exception() if attempts.outcome is not None else None
    if failure is None or not _is_temporary(failure):
        return 0.0
    demanded = str(getattr(getattr(failure, "response", None), "headers", {}).get("retry-after", ""))
    if demanded.isdecimal():
        return float(demanded)
    return min(LONGEST_PAUSE_SECONDS, 0.5 * 2.0 ** (attempts.attempt_number - 1))
