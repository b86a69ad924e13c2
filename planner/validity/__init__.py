"""Whether the Messages API would take a list: the rules of the API, apart from the code that builds lists.

Decides nothing and repairs nothing: it says what the API would answer 400 to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from planner.reading.families import model_family
from planner.reading.messages import Block, plain_message
from planner.validity.calls import CALL_RULES
from planner.validity.content import CONTENT_RULES
from planner.validity.request import Request, Violation, place_of

__all__ = ["Violation", "check_messages"]

_Rule = Callable[[Request], Iterator[Violation]]
_RULES: tuple[_Rule, ...] = (*CALL_RULES, *CONTENT_RULES)


def check_messages(
    messages: Sequence[object],
    *,
    model: str = "",
    thinking_enabled: bool | None = None,
    system: str | Sequence[Block] | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    window_tokens: int | None = None,
    rules: Iterable[_Rule] = _RULES,
) -> list[Violation]:
    """What is wrong with `messages` (dicts or SDK objects), by rule; an empty list if nothing is.

    ``[v for v in … if v.refused]`` is what the Messages API itself refuses; the rest only stricter providers
    do. An empty `model` is a current Claude. `thinking_enabled` None leaves the rules unasked that need it,
    `window_tokens` None the one on length. `rules` are those that are asked.

    Raises:
        TranscriptError: an entry is not a message at all.
    """
    plain = [plain_message(message, place_of(at)) for at, message in enumerate(messages)]
    request = Request(plain, model_family(model), model, thinking_enabled, system, tools, window_tokens)
    found = [violation for rule in rules for violation in rule(request)]
    return sorted(found, key=lambda violation: violation.rule)
