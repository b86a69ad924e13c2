"""Asks the planner model, again when its answer cannot be used, within one deadline for everything.

Whatever goes wrong ends as an `Outcome` with what it cost, so that one question never takes the others down. All
work is done in daemon threads: a server that never answers keeps neither the caller nor the interpreter.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from threading import Lock, Thread
from typing import Any, TypeVar

from pydantic import BaseModel, Field, model_validator

from planner.brief import brief_text, check_brief, read_brief
from planner.errors import PlannerUnavailable
from planner.evidence import Evidence
from planner.model.answer import Answer, Reading, Scope, answer_in, read_answer
from planner.model.client import (
    Endpoint,
    is_refusal,
    response_text,
    response_usage,
    retries_of,
    sdk_timeout,
    unavailable,
)
from planner.model.meter import Meter
from planner.model.prompts import Prompts, safe_text
from planner.plan import Usage

__all__ = ["Conversation", "Deadline", "Outcome", "ask_all", "ask_structured", "in_time", "reading_notes"]

MOST_PARALLEL = 4
"""Questions asked at once: more would rather run into rate limits than be faster."""
MEND_OUTPUT_TOKENS = 2_048
MEND_LEAST_SECONDS = 5.0
"""With less time left statements are not asked about again; the guards strike what does not hold."""
MOST_PROBLEMS = 12
"""Problems sent back at once; a model mends the kind, not each one."""

Shape = TypeVar("Shape", bound=BaseModel)
Result = TypeVar("Result")


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


class Mended(BaseModel):
    """The statements, written again."""

    statements: list[str] = Field(description="One for each that was asked about, in the same order; '' to leave out")


@dataclass
class Conversation:
    """One question to the planner model with all that is said about it."""

    endpoint: Endpoint
    prompts: Prompts
    system: str
    prompt: str
    scope: Scope
    evidence: Evidence
    """Of the whole history: what a brief's statements are held against."""
    max_output_tokens: int
    max_reasks: int
    now: float
    deadline: Deadline
    count: Callable[[str], int]
    """The tokens of a text."""
    spare_tokens: float
    """What may be read beside the first asking."""
    meter: Meter = field(init=False)
    last: Any = None
    """The newest response."""

    def __post_init__(self) -> None:
        """Nothing was asked yet."""
        self.meter = Meter(self._cost, self._first_tokens + self.spare_tokens)

    def outcome(self) -> Outcome:
        """Ask and read; never raises."""
        try:
            with _instructor_quiet(), self.meter.in_force():
                answer: Answer = self._create(_usable_answer(self.scope), self.prompt, self.max_output_tokens)
                return self._read(answer, None)
        except Exception as failure:  # noqa: BLE001 - any provider's, any library's: it must not break the host
            return self._read(self._salvaged(), self._unavailable(failure))

    def late(self) -> Outcome:
        """What there is when time is up: nothing but what it cost."""
        usage = self.meter.close()
        error = self._unavailable(TimeoutError())
        return Outcome(None, usage, notes=(f"{self.scope.name}: {error}",), error=error)

    def _read(self, answer: Answer | None, error: PlannerUnavailable | None) -> Outcome:
        model = str(getattr(self.last, "model", "") or "")
        reading = read_answer(answer, self.scope, self.now) if answer is not None else None
        if reading is None or not reading.is_usable:
            error = error or self._unavailable(ValueError())
            return Outcome(None, self.meter.usage, model, (f"{self.scope.name}: {error}",), error)
        notes = reading_notes(reading, self.scope, cut_off=error is not None)
        if error is None and self.max_reasks and self.deadline.left_seconds > MEND_LEAST_SECONDS:
            reading.brief = self._mended(reading.brief)
        return Outcome(reading, self.meter.usage, model, notes)

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
        statements = read_brief("\n".join(brief))
        doubts = {at: problem for at, one in enumerate(statements) if (problem := _doubt(one.line, self.evidence))}
        if not doubts:
            return tuple(brief)
        listed = "\n".join(f"{n}. {statements[at].line}\n   {doubts[at]}" for n, at in enumerate(doubts, 1))
        prompt = self.prompts.render("mend", statements=safe_text(listed))
        if not self._may_read(self.count(self.system) + self.count(prompt)):
            return tuple(brief)
        try:
            mended: Mended = self._create(Mended, prompt, MEND_OUTPUT_TOKENS)
        except Exception:  # noqa: BLE001 - the guards strike what was not mended
            return tuple(brief)
        for at, line in zip(doubts, mended.statements, strict=False):
            again = read_brief(f"{statements[at].heading}\n{line}")
            if again:
                statements[at] = again[0]
        return tuple(brief_text(statements).splitlines())

    def _create(self, shape: type[Shape], prompt: str, max_output_tokens: int) -> Shape:
        """One request, and others while its answers are not of `shape`."""
        try:
            return self._answer(shape, prompt, max_output_tokens)
        except Exception as failure:
            self.meter.failed(failure, 1 + retries_of(failure))
            raise

    def _answer(self, shape: type[Shape], prompt: str, max_output_tokens: int) -> Shape:
        import tenacity
        from instructor.core import Hooks

        hooks = Hooks()
        hooks.on("completion:kwargs", lambda **body: self.meter.sent(body))
        hooks.on("completion:response", self._record)
        retrying = tenacity.Retrying if self.endpoint.loop is None else tenacity.AsyncRetrying
        arguments: dict[str, Any] = {
            "response_model": shape,
            "strict": False,
            "hooks": hooks,
            "max_retries": retrying(
                stop=tenacity.stop_after_attempt(self.max_reasks + 1),
                retry=tenacity.retry_if_exception(self._worth_another),
                reraise=True,
            ),
            **_request(self.endpoint, shape, self.system, prompt, max_output_tokens, self.deadline.left_seconds),
        }
        if self.endpoint.loop is None:
            answer: Shape = self.endpoint.create(**arguments)
            return answer
        awaited = asyncio.run_coroutine_threadsafe(self.endpoint.create(**arguments), self.endpoint.loop)
        try:
            return awaited.result(self.deadline.left_seconds)  # type: ignore[no-any-return]
        finally:
            awaited.cancel()

    def _record(self, response: Any) -> None:
        """Called by instructor with each response, before it adds the usages up in place."""
        self.last = response
        self.meter.answered(response_usage(response))

    def _cost(self, body: Mapping[str, Any]) -> Usage:
        """What a request with that body reads, as the first one was reckoned: the system prompt, and what is said."""
        said = sum(self.count(text) for message in body.get("messages", ()) for text in _texts(message))
        return Usage(input_tokens=self.count(self.system) + (said or self.count(self.prompt)), requests=1)

    @property
    def _first_tokens(self) -> int:
        return self.count(self.system) + self.count(self.prompt)

    def _worth_another(self, error: BaseException) -> bool:
        """True if `error` is about what the model answered; a refusal would only be repeated."""
        answered = isinstance(error, ValueError) and self.last is not None and not is_refusal(self.last)
        if not answered or not self.deadline.left_seconds:
            return False
        last = response_usage(self.last)  # what is sent again, with the answer and what is wrong with it
        return self._may_read(last.read_tokens + 2 * last.output_tokens)

    def _may_read(self, tokens: int) -> bool:
        """True if so much more may be read beside the first asking."""
        return max(0, self.meter.usage.read_tokens - self._first_tokens) + tokens <= self.spare_tokens


def ask_all(conversations: Sequence[Conversation], deadline: Deadline) -> list[Outcome]:
    """The outcome of each, side by side, `MOST_PARALLEL` at once; those not done in time are given up."""
    outcomes: dict[int, Outcome] = {}
    waiting, lock = count(), Lock()

    def work() -> None:
        while deadline.left_seconds:
            with lock:
                at = next(waiting)
            if at >= len(conversations):
                return
            outcomes[at] = conversations[at].outcome()

    threads = [
        Thread(target=contextvars.copy_context().run, args=(work,), name="planner model", daemon=True)
        for _ in range(min(len(conversations), MOST_PARALLEL))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(deadline.left_seconds)
    return [outcomes.get(at) or conversation.late() for at, conversation in enumerate(conversations)]


def in_time(work: Callable[[], Result], deadline: Deadline) -> Result:
    """What `work` returns, done in a thread of its own that is given up at the deadline.

    Raises:
        TimeoutError: it was not done in time.
        Exception: whatever `work` raised.
    """
    results: list[Result] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as failure:  # noqa: BLE001 - raised again below
            failures.append(failure)

    thread = Thread(target=contextvars.copy_context().run, args=(run,), name="planner model", daemon=True)
    thread.start()
    thread.join(deadline.left_seconds)
    if failures:
        raise failures[0]
    if not results:
        raise TimeoutError
    return results[0]


def reading_notes(reading: Reading, scope: Scope, *, cut_off: bool) -> tuple[str, ...]:
    """What a reviewer should know of an answer that was used in part; empty if all of it could be used."""
    if not cut_off and not reading.problems:
        return ()
    parts = [f"{reading.wrong_entries} of {reading.entries} entries could not be used as they were"]
    parts = (["the answer was cut off"] if cut_off else []) + (parts if reading.wrong_entries else [])
    parts += reading.problems[:MOST_PROBLEMS]
    return (f"{scope.name}: {'; '.join(parts)}",)


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


def _request(
    endpoint: Endpoint, shape: type[BaseModel], system: str, prompt: str, max_output_tokens: int, timeout: float
) -> Mapping[str, Any]:
    """What is sent; to Claude with the system prompt where a cache can hold it, and the schema it is held to."""
    asked = {"role": "user", "content": prompt}
    request: dict[str, Any] = {**endpoint.request}
    if "timeout" in request:
        request["timeout"] = max(0.001, min(timeout, request["timeout"]))
    if not endpoint.speaks_anthropic:
        return {"messages": [{"role": "system", "content": system}, asked], **request}
    request["timeout"] = sdk_timeout(request["timeout"])
    import anthropic

    schema = anthropic.transform_schema(shape)
    schema["required"] = list(schema["properties"])  # what has a default is still asked for
    return {
        "system": [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}],
        "messages": [asked],
        "max_tokens": max_output_tokens,
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
        **request,
    }


def ask_structured(
    endpoint: Endpoint, shape: type[Shape], system: str, prompt: str, max_output_tokens: int = 4_096
) -> tuple[Shape, Usage]:
    """The answer to `prompt` in the shape asked for, and what it cost over all attempts.

    Raises:
        PlannerUnavailable: no attempt gave an answer of that shape, or the model could not be used.
    """
    from instructor.core import Hooks

    spent: list[Usage] = []
    hooks = Hooks()
    hooks.on("completion:response", lambda response: spent.append(response_usage(response)))
    request = _request(endpoint, shape, system, prompt, max_output_tokens, float("inf"))
    try:
        with _instructor_quiet():
            answer: Shape = endpoint.create(response_model=shape, strict=False, hooks=hooks, max_retries=2, **request)
    except Exception as failure:  # noqa: BLE001 - any provider's, any library's
        raise unavailable(failure, endpoint.model, endpoint.secrets, sum(spent, Usage())) from None
    return answer, sum(spent, Usage())


_asking: ContextVar[bool] = ContextVar("asking the planner model", default=False)


def _unless_asking(_record: logging.LogRecord) -> bool:
    return not _asking.get()


@contextmanager
def _instructor_quiet() -> Iterator[None]:
    """In this context (and what it starts on an event loop) instructor logs no failed call: it is an outcome.

    Touches no record of anyone else's calls, and no handler or level of the host's.
    """
    logging.getLogger("instructor.v2.retry").addFilter(_unless_asking)
    token = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(token)
