"""What a tier sees, and the one signature of all tiers.

A tier decides which edits to make and makes none: it returns them, or None when there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from applier.session.edits import Edits
from applier.session.frame import Frame
from applier.session.ledger import Ledger, Result
from applier.session.meter import Meter
from planner.plan import CompactionPlan
from planner.reading.history import History

__all__ = ["MakePlan", "Situation", "Tier"]


class MakePlan(Protocol):
    """How a tier gets a plan: the planner, its fall-back and its breaker are behind this."""

    def __call__(self, history: History, target_tokens: int, focus: str, *, rules_only: bool = False) -> CompactionPlan:
        """A guarded plan of about `target_tokens`, by the counter.

        Raises:
            PlanError: no planner could make one.
        """
        ...


@dataclass(frozen=True)
class Situation:
    """The session as one tier sees it."""

    ledger: Ledger
    frame: Frame
    meter: Meter
    tokens: int
    """Of the whole prompt as it would be sent now."""
    limit_tokens: int
    new_from: int
    """Index in the history of the first message that was not sent yet."""
    make_plan: MakePlan
    wanted: Collection[str] = ()
    """Ids of turns that the agent has named since they were removed: a plan keeps them."""
    focus: str = ""
    carried_tokens: Callable[[], int] = int
    """What will be said again behind a plan, by the counter: files, lists, rules."""

    def standing(self) -> list[Result]:
        """Tool results that are still sent whole, oldest first."""
        return [result for result in self.ledger.results if self.stands(result)]

    def new_results(self) -> list[Result]:
        """Those of them that were not sent yet; work proportional to the new ones."""
        return [result for result in self.ledger.results_from(self.new_from) if self.stands(result)]

    def stands(self, result: Result) -> bool:
        """True if `result` is sent whole."""
        return result.message >= self.frame.start and result.place not in self.frame.stand_ins


Tier = Callable[[Situation], Edits | None]
"""``__name__`` or a ``name`` attribute names it in the log."""
