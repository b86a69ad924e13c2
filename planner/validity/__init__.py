"""Rules of the Messages API that cutting and merging a list can break.

Decides nothing and repairs nothing: it reports what the API would answer 400 to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from planner.reading.families import model_family
from planner.reading.messages import plain_message
from planner.validity.checked_request import CheckedRequest, Violation, place_of
from planner.validity.list_rules import CALL_RULES, CONTENT_RULES

__all__ = ["Violation", "check_messages"]

_Rule = Callable[[CheckedRequest], Iterator[Violation]]
_RULES: tuple[_Rule, ...] = (*CALL_RULES, *CONTENT_RULES)


def check_messages(
    messages: Sequence[object],
    *,
    model: str = "",
    thinking_enabled: bool | None = None,
    rules: Iterable[_Rule] = _RULES,
) -> list[Violation]:
    """Return the violations of `messages` (dicts or SDK objects) that a change of the list can cause, by rule.

    ``[v for v in … if v.refused]`` are those that the Messages API itself refuses; only stricter providers refuse the
    rest. An empty `model` is a current Claude. With `thinking_enabled` None, rules that depend on it are skipped.
    `rules` may be a selection.

    Raises:
        TranscriptError: an entry is not a message at all.
    """
    plain = [plain_message(message, place_of(at)) for at, message in enumerate(messages)]
    request = CheckedRequest(plain, model_family(model), thinking_enabled)
    found = [violation for rule in rules for violation in rule(request)]
    return sorted(found, key=lambda violation: violation.rule)
