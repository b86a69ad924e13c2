"""Whether the Messages API would take a changed list: the rules of the API that cutting and merging can break.

Decides nothing and repairs nothing: it says what the API would answer 400 to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from planner.reading.families import model_family
from planner.reading.messages import plain_message
from planner.validity.request import Request, Violation, place_of
from planner.validity.rules import CALL_RULES, CONTENT_RULES

__all__ = ["Violation", "check_messages"]

_Rule = Callable[[Request], Iterator[Violation]]
_RULES: tuple[_Rule, ...] = (*CALL_RULES, *CONTENT_RULES)


def check_messages(
    messages: Sequence[object],
    *,
    model: str = "",
    thinking_enabled: bool | None = None,
    rules: Iterable[_Rule] = _RULES,
) -> list[Violation]:
    """What a change of the list may have made wrong with `messages` (dicts or SDK objects), by rule; empty if nothing.

    ``[v for v in … if v.refused]`` is what the Messages API itself refuses; the rest only stricter providers
    do. An empty `model` is a current Claude. `thinking_enabled` None leaves the rules unasked that need it. `rules`
    are those that are asked.

    Raises:
        TranscriptError: an entry is not a message at all.
    """
    plain = [plain_message(message, place_of(at)) for at, message in enumerate(messages)]
    request = Request(plain, model_family(model), thinking_enabled)
    found = [violation for rule in rules for violation in rule(request)]
    return sorted(found, key=lambda violation: violation.rule)
