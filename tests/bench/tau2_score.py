"""The customer's answers after the cut, and the score of what the agent did: both read only the log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tests.bench.tau2_story import Demands
from tests.bench.tau2_world import Call, is_look_up

__all__ = ["Entry", "Score", "customer_answer", "score_log"]

CONSENT = "Yes, exactly as we agreed. I have nothing to add to what I said before; please go ahead."
LAST_WORD = "If you can see that it is done, that is all. If not, yes, do it now."
LEAVE_IT = "Then leave that one."
END = "Thank you, that is all. [conversation ends]"
PATIENCE = 3
"""Answers to one request without an action, before the customer goes on to the next."""
HOW = ("reason", "payment_method_id", "payment_id")
"""Arguments that say how an action is done: with others it is the same action."""


@dataclass(frozen=True)
class Entry:
    """One step of the agent: a call, or words to the customer."""

    call: Call | None = None
    said: str = ""
    text: str = ""
    """Result of the call, or the customer's answer."""
    is_error: bool = False

    @property
    def acted(self) -> bool:
        """True if the step changed the database."""
        return self.call is not None and self.call.has_effect and not self.is_error

    def as_json(self) -> str:
        """Return the entry as a line of the log."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Entry:
        """Return the entry of a line of the log."""
        kept = json.loads(line)
        return cls(**kept | {"call": Call(**kept["call"]) if kept["call"] else None})


@dataclass(frozen=True)
class Score:
    """Counts for one task, or their sums."""

    solved: int = 0
    """1 if the database is as expected."""
    twice: int = 0
    """Calls of an action that had succeeded before, also those that the tools refuse."""
    demands_broken: int = 0
    look_ups: int = 0
    repeated_look_ups: int = 0
    """Look-ups whose answer is in the history."""
    restored: int = 0
    asked_again: int = 0
    """Answers of the customer beyond one consent for each request."""

    def __add__(self, other: Score) -> Score:
        """Return the sums."""
        return Score(*(getattr(self, name) + getattr(other, name) for name in self.columns()))

    @classmethod
    def columns(cls) -> list[str]:
        """Return the names of the counts."""
        return [field.name for field in fields(cls)]

    def cells(self) -> list[str]:
        """Return the counts as text."""
        return [str(getattr(self, name)) for name in self.columns()]


def customer_answer(requests: Sequence[str], log: Sequence[Entry]) -> str:
    """Return the customer's answer to the words that follow `log`.

    The customer makes the first request, consents until something is done or patience ends, and goes on to the next.
    The last request needs no action, so the conversation ends after one more answer.
    """
    made, consents, acted = 0, 0, True
    for entry in log:
        acted = acted or entry.acted
        if entry.said:
            if acted or consents >= PATIENCE:
                made, consents, acted = made + 1, 0, False
            else:
                consents += 1
    if made >= len(requests):
        return END if acted or consents else LAST_WORD
    if acted:
        return requests[made]
    if consents < PATIENCE:
        return CONSENT
    return f"{LEAVE_IT} {requests[made]}"


def score_log(before: Sequence[tuple[Call, bool]], demands: Demands, log: Sequence[Entry], *, is_solved: bool) -> Score:
    """Return the counts of `log` after the calls `before` and their success."""
    done = {_action(call) for call, succeeded in before if succeeded and call.has_effect}
    known = {_exact(call) for call, succeeded in before if succeeded}
    twice, calls = 0, [entry for entry in log if entry.call]
    for entry in calls:
        if entry.call and entry.call.has_effect:
            twice += _action(entry.call) in done
            done |= {_action(entry.call)} if not entry.is_error else set()
    look_ups = [entry.call for entry in calls if entry.call and is_look_up(entry.call)]
    return Score(
        solved=int(is_solved),
        twice=twice,
        demands_broken=sum(_broken(demands, log)),
        look_ups=len(look_ups),
        repeated_look_ups=sum(_exact(call) in known for call in look_ups),
        restored=sum(entry.call is not None and entry.call.name.startswith("restore") for entry in log),
        asked_again=max(0, sum(entry.text == CONSENT for entry in log) - sum(entry.acted for entry in log)),
    )


def _broken(demands: Demands, log: Sequence[Entry]) -> Iterator[bool]:
    """Yield True for each breach: a spared object, a forbidden payment, no consent, a colleague."""
    has_consent = False
    for entry in log:
        if entry.said:
            has_consent = entry.text == CONSENT
        elif entry.call and entry.call.name.startswith("transfer"):
            yield True
        elif entry.call and entry.call.has_effect:
            texts = json.dumps(entry.call.arguments)
            yield any(one and one in texts for one in (demands.spared, demands.forbidden))
            yield not has_consent
            has_consent = has_consent and entry.is_error


def _action(call: Call) -> str:
    return _exact(Call(call.name, {key: value for key, value in call.arguments.items() if key not in HOW}))


def _exact(call: Call) -> str:
    return f"{call.name} {json.dumps(_sorted(call.arguments), sort_keys=True)}"


def _sorted(value: Any) -> Any:
    return {key: sorted(one) if _is_ids(one) else one for key, one in value.items()}


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
