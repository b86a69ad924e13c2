"""What a change to the list would bring and cost, and why it is not to be made, if so.

Measures and judges; stores nothing and puts nothing into force.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from applier.session.edits import Edits
from applier.session.frame import Frame, draft
from applier.session.outgoing import Outgoing, first_difference
from applier.session.run import Run
from planner.layout.cache_cost import CACHE_LIFETIME_SECONDS, payback_calls
from planner.layout.thinking import thinking_policy
from planner.validity import check_messages

__all__ = ["Bounds", "Drafted", "Objection", "measure", "objection"]

OUTPUT_PRICE = 5.0
"""An output token costs about five input tokens on every current Claude model."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a change must be worth."""

    min_savings_tokens: int = 0
    max_payback_calls: float = math.inf
    may_veto: bool = True


@dataclass(frozen=True)
class Drafted:
    """A change as it would be, measured."""

    edits: Edits
    frame: Frame
    key: str
    outgoing: Outgoing
    tokens_before: int
    tokens_after: int
    first_changed: int | None
    invalidated_tokens: int
    payback: float

    @property
    def numbers(self) -> dict[str, int | None]:
        """As an event says them."""
        return {
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "first_changed_message": self.first_changed,
            "invalidated_tokens": self.invalidated_tokens,
        }


def measure(run: Run, edits: Edits, key: str, model: str, now: float) -> Drafted:
    """`edits` made on paper."""
    frame = draft(run.committed.frame, edits, run.ledger, key, thinking_policy(model))
    after = Outgoing.of(frame, run.ledger)
    first = first_difference(run.outgoing.messages, after.messages)
    unchanged = sum(run.outgoing.counted[:first])
    cached = sum(run.outgoing.counted[: run.sent])
    tokens_after = run.meter.prompt(after.total)
    return Drafted(
        edits=edits,
        frame=frame,
        key=key,
        outgoing=after,
        tokens_before=run.tokens,
        tokens_after=tokens_after,
        first_changed=first,
        invalidated_tokens=int(max(0, cached - unchanged) * run.meter.ratio),
        payback=_payback(run, tokens_after, run.meter.prompt(unchanged), edits, now),
    )


def _payback(run: Run, after: int, unchanged: int, edits: Edits, now: float) -> float:
    usage = edits.plan.provenance.usage if edits.plan else None
    planning = usage.input_tokens + OUTPUT_PRICE * usage.output_tokens if usage else 0.0
    if run.last_call_at is not None and now - run.last_call_at >= CACHE_LIFETIME_SECONDS:
        unchanged = after  # nothing is cached any more: all of it is written again anyway
    before = run.tokens
    return payback_calls(before, before - after, unchanged, run.prices.write, run.prices.read, planning)


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a change is not to be made."""

    reason: str
    missing_tokens: int = 0
    """So much more must be there before the same change can be worth it: what a plan leaves does not shrink."""


def objection(run: Run, drafted: Drafted, bounds: Bounds, model: str) -> Objection | None:
    """What speaks against the change; None if it may be made."""
    saved = drafted.tokens_before - drafted.tokens_after
    missing = bounds.min_savings_tokens - saved
    if saved <= 0:
        return Objection(f"it would not shrink: {drafted.tokens_before} to {drafted.tokens_after} tokens", missing)
    if missing > 0:
        return Objection(f"it would save {saved} tokens, fewer than {bounds.min_savings_tokens}", missing)
    if drafted.payback > bounds.max_payback_calls:
        calls, most = drafted.payback, bounds.max_payback_calls
        return Objection(f"it would pay back after {calls:.0f} calls, more than {most:.0f}")
    broken = _broken_rule(run, drafted, model)
    return Objection(broken) if broken else None


def _broken_rule(run: Run, drafted: Drafted, model: str) -> str:
    """A rule of the API that the changed list breaks and the history does not."""
    found = [v for v in check_messages(drafted.outgoing.messages, model=model) if v.refused]
    if not found:
        return ""
    given = {violation.code for violation in check_messages(run.ledger.originals, model=model)}
    broken = next((violation for violation in found if violation.code not in given), None)
    return f"it would break a rule of the API: {broken}" if broken else ""
