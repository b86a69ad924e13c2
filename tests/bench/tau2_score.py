"""The customer's answers after the cut, and the score of what the agent did: both read only the log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.bench.tau2_story import Demands
from tests.bench.tau2_world import Call

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


class Score(NamedTuple):
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
    return CONSENT if consents < PATIENCE else f"{LEAVE_IT} {requests[made]}"


def score_log(before: Sequence[tuple[Call, bool]], demands: Demands, log: Sequence[Entry], *, is_solved: bool) -> Score:
    """Return the counts of `log` after the calls `before` and their success."""
    done = {_key(call, HOW) for call, succeeded in before if succeeded and call.has_effect}
    known = {_key(call) for call, succeeded in before if succeeded}
    look_ups = [entry.call for entry in log if entry.call and entry.call.is_look_up]
    twice = 0
    for entry in log:
        if entry.call and entry.call.has_effect:
            twice += _key(entry.call, HOW) in done
            done |= set() if entry.is_error else {_key(entry.call, HOW)}
    return Score(
        solved=int(is_solved),
        twice=twice,
        demands_broken=sum(_broken(demands, log)),
        look_ups=len(look_ups),
        repeated_look_ups=sum(_key(call) in known for call in look_ups),
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
            texts = json.dumps(dict(entry.call.arguments))
            yield any(one and one in texts for one in (demands.spared, demands.forbidden))
            yield not has_consent
            has_consent = has_consent and entry.is_error


def _key(call: Call, without: Sequence[str] = ()) -> str:
    """Return the call as text, the same for any order of its arguments and of their parts."""
    given = {name: value for name, value in call.arguments.items() if name not in without}
    parts = {name: sorted(map(str, value)) if isinstance(value, list) else value for name, value in given.items()}
    return f"{call.name} {json.dumps(parts, sort_keys=True)}"
