"""Asks the planner model about one piece, again when its answer cannot be used, and keeps what can be used.

Everything that can go wrong ends as an `Outcome`, so that one piece never takes the others down.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from planner.errors import PlannerUnavailable
from planner.model.answer import Answer, Reading, answer_model, read_answer
from planner.model.clients import Endpoint
from planner.model.failures import unavailable
from planner.model.pieces import Piece
from planner.model.quiet import instructor_quiet
from planner.model.responses import is_refusal, last_answer, response_text, response_usage
from planner.model.scope import Scope
from planner.plan import Usage
from planner.settings import PlanSettings

__all__ = ["Outcome", "ask", "good_enough", "salvage_note"]


@dataclass(frozen=True)
class Outcome:
    """What came of one piece: a reading, or the error that stands in its place."""

    reading: Reading | None
    usage: Usage
    model: str
    """As the provider named it; empty if it never answered."""
    note: str = ""
    error: PlannerUnavailable | None = None


@dataclass
class _Attempts:
    """What the model answered so far."""

    usage: Usage = field(default_factory=Usage)
    last: Any = None

    def record(self, response: Any) -> None:
        """Called by instructor with each response, before it adds the usages up in place."""
        self.last = response
        self.usage = self.usage + response_usage(response)

    def worth_another(self, error: BaseException) -> bool:
        """True if `error` is about what the model answered; a refusal would only be repeated."""
        return isinstance(error, ValueError) and self.last is not None and not is_refusal(self.last)


def ask(endpoint: Endpoint, system: str, piece: Piece, settings: PlanSettings, now: float) -> Outcome:
    """The model's view of `piece`; `system` is the system prompt, `now` stamps the facts."""
    attempts = _Attempts()
    error: PlannerUnavailable | None = None
    answer: Answer | None
    try:
        with instructor_quiet():
            answer = _create(endpoint, system, piece, settings, attempts)
    except Exception as failure:  # noqa: BLE001 - any provider's, any library's: it must not break the host
        error = _error(failure, attempts, endpoint)
        answer = None if is_refusal(attempts.last) else last_answer(response_text(attempts.last))
    model = str(getattr(attempts.last, "model", "") or "")
    reading = read_answer(answer, piece.scope, now) if answer is not None else None
    if error is None:
        return Outcome(reading, attempts.usage, model)
    if reading is not None and good_enough(reading, piece.scope):
        return Outcome(reading, attempts.usage, model, salvage_note(reading, piece.scope, attempts.usage))
    return Outcome(None, attempts.usage, model, f"{piece.scope.name} ranked by the rules: {error}", error)


def _create(endpoint: Endpoint, system: str, piece: Piece, settings: PlanSettings, attempts: _Attempts) -> Answer:
    import tenacity
    from instructor.core import Hooks

    hooks = Hooks()
    hooks.on("completion:response", attempts.record)
    retrying = tenacity.Retrying if endpoint.loop is None else tenacity.AsyncRetrying
    arguments: dict[str, Any] = {
        "response_model": answer_model(piece.scope),
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": piece.prompt}],
        "strict": False,
        "hooks": hooks,
        "max_retries": retrying(
            stop=tenacity.stop_after_attempt(settings.max_reasks + 1),
            retry=tenacity.retry_if_exception(attempts.worth_another),
            reraise=True,
        ),
        **endpoint.request,
    }
    if endpoint.speaks_anthropic:
        arguments |= _anthropic_request(system, piece, settings)
    if endpoint.loop is None:
        answer: Answer = endpoint.create(**arguments)
        return answer
    awaited: Answer = asyncio.run_coroutine_threadsafe(endpoint.create(**arguments), endpoint.loop).result()
    return awaited


def _anthropic_request(system: str, piece: Piece, settings: PlanSettings) -> dict[str, Any]:
    """The system prompt where a cache can hold it, and the schema that the API holds the answer to."""
    import anthropic

    schema = anthropic.transform_schema(Answer)
    return {
        "system": [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": piece.prompt}],
        "max_tokens": settings.max_output_tokens,
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
    }


def _error(failure: Exception, attempts: _Attempts, endpoint: Endpoint) -> PlannerUnavailable:
    if is_refusal(attempts.last):
        return PlannerUnavailable(
            f"planner model {endpoint.model}: declined to answer (refusal): try another model, "
            'or plan with planner="rules"'
        )
    return unavailable(failure, endpoint.model, endpoint.secrets)


def good_enough(reading: Reading, scope: Scope) -> bool:
    """Most entries can be used, and they rank at least half of the turns."""
    return reading.mostly_usable and 2 * len(reading.turns) >= len(scope.to_plan)


def salvage_note(reading: Reading, scope: Scope, usage: Usage) -> str:
    """What a reviewer should know of an answer that was used in part."""
    left = len(scope.to_plan) - len(reading.turns)
    wrong = f"{reading.wrong_entries} of {reading.entries} entries could not be used"
    text = f"{scope.name}: {wrong if reading.wrong_entries else 'the answer was cut off'}"
    text += f" after {usage.requests} answers" if usage.requests > 1 else ""
    return f"{text}; {left} turns ranked by the rules" if left else text
