"""Asks the session's planner for plans; falls back to the rules, and rests a planner that keeps failing.

Plans only: applies nothing and writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from applier.session.breaker import Breaker
from applier.session.events import EventKind
from planner.api import PlannerChoice, plan_compaction
from planner.errors import PlannerUnavailable
from planner.plan import CompactionPlan
from planner.reading.history import History
from planner.settings import PlanSettings

__all__ = ["Planning", "Tell"]

READY_SLACK = 1.2
"""A plan made beforehand may aim this much higher than what is wanted by now."""


class Tell(Protocol):
    """Reports an event by kind and one line."""

    def __call__(self, kind: EventKind, message: str) -> object:
        """Report it."""
        ...


@dataclass
class Planning:
    """The planner of a session."""

    planner: PlannerChoice
    planner_model: str
    client: Any
    settings: PlanSettings
    clock: Callable[[], float]
    tell: Tell
    breaker: Breaker
    task: str = ""
    ready: CompactionPlan | None = None
    """A plan that was made beforehand, for a history that was a prefix of the present one."""

    @property
    def asks_a_model(self) -> bool:
        """True if plans come from a model, or from an object that may ask one."""
        if not isinstance(self.planner, str):
            return True
        has_key = bool(os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN"))
        return self.planner == "model" or (self.planner == "auto" and (self.client is not None or has_key))

    def make(self, history: History, target_tokens: int, focus: str, *, rules_only: bool = False) -> CompactionPlan:
        """A guarded plan for `history`; by rules when asked, or when the planner fails or rests.

        Raises:
            CompactorError: not even the rules could.
        """
        ready, self.ready = self.ready, None
        if ready is not None and not focus and _fits(ready, history, target_tokens):
            return ready
        if rules_only or not self.asks_a_model or not self.breaker.allows(self.clock()):
            return self._planned("rules", history, target_tokens, focus)
        try:
            plan = self.ask(history, target_tokens, focus)
        except Exception as error:  # noqa: BLE001 - whatever a planner does, the agent goes on
            self.failed(error)
            return self._planned("rules", history, target_tokens, focus)
        self.succeeded()
        return plan

    def ask(self, history: History, target_tokens: int, focus: str = "") -> CompactionPlan:
        """A plan by the session's own planner, which may raise anything; safe in a thread of its own."""
        planner = self.planner if self.asks_a_model else "rules"
        return self._planned(planner, history, target_tokens, focus)

    def _planned(self, planner: PlannerChoice, history: History, target_tokens: int, focus: str) -> CompactionPlan:
        plan = plan_compaction(
            history.originals,
            self.task or _first_words(history),
            target_tokens=target_tokens,
            focus=focus,
            planner="model" if planner == "auto" else planner,
            model=self.planner_model or None,
            client=self.client,
            settings=self.settings,
            now=self.clock(),
        )
        if plan.history.digest != history.digest:
            raise PlannerUnavailable("the planner answered for another history")
        return plan

    def failed(self, error: Exception) -> None:
        """The planner has failed."""
        was = self.breaker.state(self.clock())
        self.breaker = self.breaker.failed(self.clock())
        self.tell("tier_failed", f"planner: {type(error).__name__}: {error}; planned by rules")
        if self.breaker.state(self.clock()) == "open" and was != "open":
            self.tell("breaker_opened", f"the planner failed {self.breaker.failures} times and rests")

    def succeeded(self) -> None:
        """The planner has answered."""
        if self.breaker.state(self.clock()) != "closed":
            self.tell("breaker_closed", "the planner works again")
        self.breaker = self.breaker.succeeded()


def _fits(plan: CompactionPlan, history: History, target_tokens: int) -> bool:
    known = plan.history.messages
    if known > len(history.messages) or plan.history.digest != history.digest_at(known):
        return False
    return plan.target_tokens <= target_tokens * READY_SLACK


def _first_words(history: History) -> str:
    """What the user said last, for sessions that were told no task."""
    words = [turn for turn in history.turns if turn.kind == "user"]
    texts = [history.messages_of(turn) for turn in words[:1] + words[-1:]]
    return "\n".join(
        block["text"]
        for messages in texts
        for message in messages
        for block in ([{"text": message["content"]}] if isinstance(message["content"], str) else message["content"])
        if isinstance(block.get("text"), str)
    )[:4_000]
