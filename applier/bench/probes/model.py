"""The model behind probes: who asks, answers and judges. The one place here that reaches a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel

from planner.plan import Usage

__all__ = ["Ask", "Cost", "asking"]

TIMEOUT_SECONDS = 120.0
Shape = TypeVar("Shape", bound=BaseModel)
Ask = Callable[[type[Any], str, str], Any]
"""``ask(shape, system, prompt)``: an answer of that shape."""


@dataclass
class Cost:
    """What asking has cost so far."""

    usage: Usage = field(default_factory=Usage)


@contextmanager
def asking(client: Any = None, model: str | None = None) -> Iterator[tuple[Ask, Cost]]:
    """Something that answers, over the real SDK, and what it costs; given as to `plan_compaction`.

    Raises:
        PlannerUnavailable: there is no usable key, or the model does not answer.
    """
    from planner.model.asking import ask_structured
    from planner.model.client import open_endpoint

    cost = Cost()
    with open_endpoint(client, model, TIMEOUT_SECONDS, None) as endpoint:

        def ask(shape: type[Shape], system: str, prompt: str) -> Shape:
            answer, usage = ask_structured(endpoint, shape, system, prompt)
            cost.usage = cost.usage + usage
            return answer

        yield ask, cost
