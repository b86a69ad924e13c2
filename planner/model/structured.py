"""Asks a model anything whose answer has a shape, over the planner's own endpoints; for measuring, not for planning."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

from planner.model.clients import Endpoint
from planner.model.failures import unavailable
from planner.model.quiet import instructor_quiet
from planner.model.responses import response_usage
from planner.plan import Usage

__all__ = ["ask_structured"]

Shape = TypeVar("Shape", bound=BaseModel)

MAX_ATTEMPTS = 3


def ask_structured(
    endpoint: Endpoint, shape: type[Shape], system: str, prompt: str, max_output_tokens: int = 4_096
) -> tuple[Shape, Usage]:
    """The answer to `prompt` in the shape asked for, and what it cost over all attempts.

    Raises:
        PlannerUnavailable: no attempt gave an answer of that shape, or the model could not be used.
    """
    from instructor.core import Hooks

    responses: list[Usage] = []
    hooks = Hooks()
    hooks.on("completion:response", lambda response: responses.append(response_usage(response)))
    asked = [{"role": "user", "content": prompt}]
    told: dict[str, Any] = {"messages": [{"role": "system", "content": system}, *asked]}
    if endpoint.speaks_anthropic:
        told = {"system": system, "messages": asked, "max_tokens": max_output_tokens, **_held_to(shape)}
    try:
        with instructor_quiet():
            answer: Shape = endpoint.create(
                response_model=shape,
                strict=False,
                hooks=hooks,
                max_retries=MAX_ATTEMPTS - 1,
                **told,
                **endpoint.request,
            )
    except Exception as failure:  # noqa: BLE001 - any provider's, any library's
        raise unavailable(failure, endpoint.model, endpoint.secrets) from None
    return answer, sum(responses, Usage())


def _held_to(shape: type[BaseModel]) -> dict[str, Any]:
    import anthropic

    return {"output_config": {"format": {"type": "json_schema", "schema": anthropic.transform_schema(shape)}}}
