"""Everything that changes while a session lives, in one place, with what can be read off it.

Decides nothing: `pipeline` does, and only there is a frame taken into force.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from applier.session.commit import Committed
from applier.session.ledger import Arrival, Ledger
from applier.session.meter import Meter
from applier.session.outgoing import Outgoing
from applier.session.recall import Named, Recall
from applier.session.triggers import Level, Reading, level_after
from planner.layout.cache_cost import CachePrices

__all__ = ["Run"]

GROWTH_WEIGHT = 0.1
"""How much the newest call counts in the average growth."""


@dataclass
class Run:
    """The moving parts of one session."""

    ledger: Ledger
    meter: Meter
    limit_tokens: int
    """What a prompt may have."""
    started_at: float
    prices: CachePrices
    maximum_tokens: int = sys.maxsize
    """What the provider has said a prompt may have."""
    goal_tokens: int = 0
    """What the next plan would aim at."""
    growth_tokens: float = 0.0
    """What a call adds on average."""
    committed: Committed = field(default_factory=Committed)
    outgoing: Outgoing = field(default_factory=Outgoing)
    recall: Recall = field(default_factory=Recall)
    sent: int = 0
    """How many messages of `outgoing` the provider has seen, and so may have cached."""
    sent_counted: int = 0
    called_with: int = 0
    """Messages of the history at the last call."""
    level: Level = "normal"
    last_call_at: float | None = None
    facts_at: float | None = None
    kept_tokens: int = 0
    """Of the prompt right after the last compaction."""
    rearm: dict[tuple[str, Hashable], int] = field(default_factory=dict)
    """Below so many tokens a tier, by its name and the bounds it ran in, is not tried again."""
    held_below: int = 0
    """Below so many tokens no step is tried again: a compaction was taken back."""
    store_rests_until: float = 0.0
    """The store has failed: nothing is tried that would need it before this time."""
    undoable: list[Committed] = field(default_factory=list)
    wanted: dict[str, Named] = field(default_factory=dict)
    """Removed turns that the agent has named since, to come back with the next plan."""
    requested: str = ""
    focus: str = ""
    recovering: bool = False
    """The reactive retry for the list last prepared was given."""
    compactions: int = 0
    reclaimed_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Of the prompt that would be sent now."""
        return self.meter.prompt(self.outgoing.total)

    def no_room(self) -> str:
        """What is wrong when system and tools alone fill the window, and the cure."""
        return (
            f"system and tools take {self.meter.prompt(0)} of the {self.limit_tokens} tokens a prompt may have: "
            "send fewer tools, or raise window_tokens"
        )

    def receive(self, messages: Sequence[object]) -> Arrival:
        """Take the caller's list: afterwards `outgoing` is a valid list for it."""
        arrival = self.ledger.take(messages)
        frame = self.committed.frame
        if arrival.changed:
            self._step_back(arrival.start)
        else:
            for index, message in arrival.refreshed.items():
                if index >= frame.start:
                    self.outgoing.refresh(index + frame.offset, message)
            self.outgoing.extend(frame, self.ledger, arrival.start)
        return arrival

    def _step_back(self, start: int) -> None:
        """The history was changed from `start` on: keep what stands for the messages before it."""
        frame = self.committed.frame
        if start < frame.start or start == 0:
            self.committed = Committed()
        else:
            kept = replace(
                frame,
                stand_ins={at: text for at, text in frame.stand_ins.items() if at[0] < start},
                additions={at: text for at, text in frame.additions.items() if at < start},
                unthinking=frozenset(at for at in frame.unthinking if at < start),
            )
            self.committed = replace(self.committed, frame=kept, key="", messages=0)
        self.undoable.clear()
        self.take_into_force(self.committed, Outgoing.of(self.committed.frame, self.ledger))

    def take_into_force(self, committed: Committed, outgoing: Outgoing) -> None:
        """From now on `committed` is what is sent."""
        replanned = committed.frame.plan is not self.committed.frame.plan
        self.sent = min(self.sent, len(outgoing.messages))
        self.committed, self.outgoing = committed, outgoing
        if replanned:
            self.recall = Recall.of(committed.frame, self.ledger)
            self.wanted.clear()

    def reading(self, now: float) -> Reading:
        """What the triggers see."""
        tokens = self.tokens
        self.level = level_after(self.level, tokens, self.limit_tokens)
        return Reading(
            tokens=tokens,
            limit_tokens=self.limit_tokens,
            level=self.level,
            messages=len(self.outgoing.messages),
            kept_tokens=self.kept_tokens or self.goal_tokens,
            growth_tokens_per_call=self.growth_tokens,
            idle_seconds=0.0 if self.last_call_at is None else now - self.last_call_at,
            session_seconds=now - (self.facts_at or self.started_at),
            requested=self.requested,
            prices=self.prices,
        )

    def hand_out(self, now: float) -> list[object]:
        """The list to send, noted as sent."""
        sent = list(self.outgoing.messages)
        new = len(self.ledger) - self.called_with
        if self.called_with and new > 0:
            added = sum(self.outgoing.counted[-new:]) * self.meter.ratio
            self.growth_tokens += GROWTH_WEIGHT * (added - self.growth_tokens)
        self.called_with = len(self.ledger)
        self.ledger.returned(sent, len(self.committed.frame.head))
        self.sent, self.sent_counted = len(sent), self.outgoing.total
        self.last_call_at = now
        return sent
