"""Everything that changes while a session lives, and the list that is in force.

Takes a list in, says what would be sent, and keeps account of what was. Whether anything is to be compacted is decided
in `applier.session.call` and `applier.session.compaction`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from applier.session.carryover import FileMarks, Recall
from applier.session.events import EventKind, EventLog
from applier.session.frame import Frame, View, bound, first_disagreement
from applier.session.history_tracker import Arrival, HistoryTracker
from applier.session.persistence import (
    Committed,
    SavedFrame,
    SavedSession,
    SessionStore,
    commit,
    load_session,
)
from applier.session.planning import Planning
from applier.session.presets import Level, Measurement, Preset, level_after
from applier.session.request import AgentCall, Gauge, prompt_limit_tokens, with_breakpoint
from applier.settings import SessionSettings
from applier.store.store import Store
from applier.store.views import holds_view, originals_behind, remember_view
from planner.errors import StoreDamaged, StoreError, TranscriptError
from planner.prices import CachePrices, cache_prices
from planner.reading.tokens import TokenCounter

__all__ = ["Bounds", "Rest", "State"]

GROWTH_WEIGHT = 0.1
"""How much the newest call counts in the average growth."""
MOST_UNDOABLE = 10
"""So many compactions can be taken back: each one holds a decision for every turn of its history."""


class Undoable(NamedTuple):
    """What `undo` goes back to."""

    committed: Committed
    since: int | None = None
    """Answers from this message of the history on were thought behind what came after it; None before there was one."""


@dataclass(frozen=True, slots=True)
class LastList:
    """The list that was handed out last, and how the session stood then."""

    messages: int = 0
    """Of the history."""
    counted_tokens: int = 0
    at: float | None = None
    committed: Committed | None = None
    """None before the first list, and once the history went another way since."""
    undoable: tuple[Undoable, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a change must be worth."""

    min_savings_tokens: int = 0
    max_payback_calls: float = math.inf
    may_veto: bool = True


@dataclass(frozen=True, slots=True)
class Rest:
    """How long a tier is not tried again."""

    below_tokens: int = 0
    """While the prompt has fewer;"""
    below_answered_tokens: int = 0
    """but where it does not fit the window, only while of what came since the last plan less was answered."""


@dataclass
class State:
    """One session: what it was opened with, and everything that moves."""

    session_id: str
    settings: SessionSettings
    preset: Preset
    store: SessionStore
    log: EventLog
    clock: Callable[[], float]
    planning: Planning
    owner: str
    """Of the views that the session makes and knows again: its id, if it was given one."""
    call: AgentCall
    """What the agent's next request says besides its messages; its model, and how long its answer may be, as they were
    given last."""
    keys: list[str] = field(default_factory=list)
    """Histories that this session and its family have stored: what `restore` may show."""
    maximum_tokens: int = sys.maxsize
    """What the provider has said a prompt may have."""
    committed: Committed = field(default_factory=Committed)
    view: View = field(default_factory=View)
    undoable: tuple[Undoable, ...] = ()
    last: LastList = field(default_factory=LastList)
    sent: Frame = field(default_factory=Frame)
    """Behind whose list the newest answers were thought."""
    thought_since: int = 0
    """From this message of the history on, where a compaction was taken back."""
    recall: Recall = field(default_factory=Recall)
    cached_messages: int = 0
    """How many messages of `view` the provider has seen, and so may have cached."""
    level: Level = "normal"
    kept_tokens: int = 0
    """Of the messages right after the last compaction."""
    rests: dict[tuple[str, Bounds], Rest] = field(default_factory=dict)
    """How long a tier, by its name and the bounds it ran in, is not tried again."""
    held_below: int = 0
    """Below so many tokens no step is tried again: a compaction was taken back."""
    store_failed_at: float | None = None
    store_opening: int = 0
    """The opening of the store that was last made to hold all that is left out."""
    saved: tuple[Committed | None, int, bool] = (None, 0, True)
    """What a restart would go on with, what planners had read by then, and whether it was handed out."""
    requested: str = ""
    focus: str = ""
    is_recovering: bool = False
    """The reactive retry for the list last prepared was given."""
    troubles: dict[EventKind, str] = field(default_factory=dict)
    """What is wrong since some call, by the event that said so."""
    compactions: int = 0

    def __post_init__(self) -> None:
        """Take the request up, in a session that has seen nothing yet."""
        self.tracker = HistoryTracker(TokenCounter.for_model(self.call.model))
        self.gauge, self.marks = Gauge(), FileMarks(self.settings.file_roots)
        self.growth_tokens = self.preset.expected_growth_tokens
        """What a call adds on average."""
        self.store_opening = self.store.opening
        self.take_call(self.call)

    def begun_anew(self) -> State:
        """The same session when it has seen nothing yet."""
        planner = self.planning
        planning = Planning(planner.planner, planner.client, self.settings, self.clock, self.log, planner.task)
        planning.breaker = planner.breaker
        return State(
            self.session_id,
            self.settings,
            self.preset,
            self.store,
            self.log,
            self.clock,
            planning,
            self.owner,
            self.call,
        )

    @property
    def limit_tokens(self) -> int:
        """What a prompt may have."""
        most = self.call.max_output_tokens or self.settings.max_output_tokens
        return min(prompt_limit_tokens(self.window_tokens, most), self.maximum_tokens)

    @property
    def tokens(self) -> int:
        """Of the prompt that would be sent now."""
        return self.gauge.prompt(self.view.total)

    @property
    def reclaimed_tokens(self) -> int:
        """What the prompt would have more if nothing had ever been compacted; what was done anew counts once."""
        return self.gauge.of_messages(max(0, self.tracker.tokens - self.view.total))

    @property
    def goal_tokens(self) -> int:
        """What the next plan would leave of the messages."""
        goal, room = self.preset.plan_goal, self.gauge.room_tokens(self.limit_tokens)
        return goal.goal_tokens(room, self.gauge.of_messages(self.view.total)) if goal is not None else room

    @property
    def answered_tokens(self) -> int:
        """What came since the last plan and is no longer waited for: a plan may take it."""
        return self.gauge.of_messages(sum(self.tracker.counted[self.committed.frame.start : self.tracker.live_start]))

    @property
    def restore_tool(self) -> str:
        """The agent's tool that brings back what was removed; empty if it has none."""
        return self.call.restore_tool(self.settings.plan.restore_tool)

    @property
    def prices(self) -> CachePrices:
        """What the agent's model charges for cached tokens."""
        return cache_prices(self.call.model)

    @property
    def no_room(self) -> str:
        """What is wrong when system and tools alone fill the window, and the cure; empty if they do not."""
        fixed = self.gauge.of_messages(self.gauge.fixed_tokens)
        if fixed < self.limit_tokens:
            return ""
        return (
            f"system and tools take {fixed} of the {self.limit_tokens} tokens a prompt may have: "
            "send fewer tools, or raise window_tokens"
        )

    def measure(self) -> Measurement:
        """What the triggers see."""
        tokens = self.tokens
        return Measurement(
            tokens=tokens,
            limit_tokens=self.limit_tokens,
            level=level_after(self.level, tokens, self.limit_tokens),
            beside_tokens=self.gauge.prompt(0),
            kept_tokens=self.kept_tokens or self.goal_tokens,
            growth_tokens_per_call=self.growth_tokens,
            idle_seconds=0.0 if self.last.at is None else max(0.0, self.clock() - self.last.at),
            requested=self.requested,
            prices=self.prices,
        )

    def trouble(self, kind: EventKind, problem: str, message: str = "") -> None:
        """Log a problem when it begins or becomes another (as `message`), not at every call; empty ends it."""
        if problem and self.troubles.get(kind) != problem:
            self.log(kind, message or problem)
        self.troubles[kind] = problem

    def take_call(self, call: AgentCall) -> None:
        """The next request says this besides its messages; what another model's tokens are is measured anew."""
        before, model = self.call, call.model or self.call.model
        if model != before.model:
            scale = TokenCounter.for_model(model).scale / TokenCounter.for_model(before.model).scale
            if scale != 1:
                ratio = TokenCounter.for_model(model).scale / self.tracker.counter.scale
                self.gauge = Gauge(ratio=ratio, is_resumed=True)
        self.window_tokens = self.settings.window_of(model)
        most = call.max_output_tokens or before.max_output_tokens
        self.call = replace(call, model=model, max_output_tokens=most)
        self.gauge = self.gauge.with_fixed(self.call.fixed_tokens(self.tracker.counter))

    def receive(self, messages: Sequence[object]) -> Arrival:
        """Take the caller's list: afterwards `view` is a valid list for it."""
        if not len(self.tracker) and isinstance(messages, Sequence):
            self._go_on_from_view(messages)
        arrival = self.tracker.take(messages)
        if arrival.edited_from is not None:
            self._holds_at_most(arrival.edited_from)
        if arrival.changed:
            self._step_back(arrival.start)
            return arrival
        frame = self.committed.frame
        for index in arrival.replaced:
            self.view.replace(frame, self.tracker, index)
        self.view.extend(frame, self.tracker, arrival.start)
        fit = self._bound(frame)
        if fit is not frame:
            self.take_into_force(replace(self.committed, frame=fit))
        return arrival

    def _go_on_from_view(self, messages: Sequence[object]) -> None:
        """Where the first list begins with a view that is known, its originals are the history."""
        earlier = None
        with suppress(TranscriptError, StoreError):
            for owner in (self.owner, "") if holds_view(messages) else ():
                earlier = earlier or self.store.use(partial(originals_behind, messages=messages, owner=owner))
        if earlier is None:
            return
        self.tracker.take(earlier.messages)
        frame = Frame(earlier.plan, tuple(messages[: earlier.head]), earlier.start)
        self.take_into_force(Committed(frame, earlier.key, earlier.start, earlier.plan_id))
        self.tracker.returned(messages, earlier.head)
        self.sent, self.planning.previous = replace(frame, plan=None), earlier.plan
        self.kept_tokens = self.gauge.of_messages(self.view.total)
        self.last = replace(self.last, messages=earlier.start)
        self.log("resumed", f"the list begins with a view of {earlier.start} messages: its originals are in the store")

    def _step_back(self, start: int) -> None:
        """The history was changed from `start` on: keep what stands for the messages before it."""
        self.last = replace(self.last, committed=None)
        frame = self._bound(self.committed.frame.before(start))
        stored = min(self.committed.messages, start)
        self.undoable, self.thought_since = (), 0
        stands = replace(self.committed, frame=frame, key="", messages=stored)
        self.take_into_force(Committed() if frame.is_empty else stands)
        self.recall = Recall.of(frame, self.tracker)

    def _holds_at_most(self, messages: int) -> None:
        """Behind so many messages the history no longer says what was stored."""

        def cut(committed: Committed) -> Committed:
            return replace(committed, messages=min(committed.messages, messages))

        self.committed = cut(self.committed)
        self.undoable = tuple(old._replace(committed=cut(old.committed)) for old in self.undoable)

    def _bound(self, frame: Frame) -> Frame:
        """`frame` without the thinking that would be refused behind the list it gives."""
        strips = self.call.thinking_policy == "strip"
        return bound(frame, self.sent, self.tracker, self.thought_since) if strips else frame

    def give_up_lost(self) -> None:
        """Where the store's file was taken away, nothing is stored any more: the list goes out whole."""
        if self.store.opening != self.store_opening:
            self.store_opening, self.undoable, self.keys[:] = self.store.opening, (), []
            self.last = replace(self.last, committed=None)
            self.take_into_force(self._whole())
            self.log("store_failed", "the store's file was taken away: nothing is left out that was stored there")

    def _whole(self) -> Committed:
        return Committed(self._bound(Frame()))

    def fall_back(self) -> None:
        """The store would not have what `view` leaves out: back to what leaves out only what is stored.

        That is the list handed out last, for what was thought behind it is valid there; else what the store does not
        hold goes out as it came.
        """
        committed, before = self.committed, self.last.committed
        if before is not None:
            self.undoable = self.last.undoable
            committed = replace(committed, frame=before.frame, plan_id=before.plan_id)
        if not committed.holds(committed.frame, len(self.tracker)):
            committed = replace(committed, frame=committed.frame.before(committed.messages))
        self.take_into_force(committed)
        self.cached_messages = 0

    def take_into_force(self, committed: Committed, view: View | None = None) -> None:
        """From now on `committed`, whose list is `view`, is what is sent."""
        replanned = committed.frame.plan is not self.committed.frame.plan
        self.committed, self.view = committed, view or View.of(committed.frame, self.tracker)
        self.cached_messages = min(self.cached_messages, len(self.view.messages))
        if committed.key and committed.key not in self.keys:
            self.keys.append(committed.key)
        if replanned:
            self.recall = Recall.of(committed.frame, self.tracker)

    def commit(self, frame: Frame, view: View | None = None) -> None:
        """Store what `frame` leaves out; then that is what is sent.

        Raises:
            StoreError: what was sent before is.
        """
        committed, view = commit(frame, self.tracker, self.store, self.committed), view or View.of(frame, self.tracker)
        if frame.head:
            self.store.use(lambda store: self._remember(store, committed, view.messages))
        self.take_into_force(committed, view)

    def _remember(self, store: Store, committed: Committed, sent: Sequence[object]) -> None:
        start, key, plan_id = committed.frame.start, committed.key, committed.plan_id
        remember_view(store, sent, self.tracker.history, start, owner=self.owner, key=key, plan_id=plan_id)

    def may_go_back(self, before: Committed) -> None:
        """A compaction has taken the place of `before`, which `undo` goes back to."""
        plan = before.frame.plan
        if plan is not None:  # what it was made from is read anew for each plan, and as large as the history
            before = replace(before, frame=replace(before.frame, plan=plan.unbound()))
        self.undoable = (*self.undoable, Undoable(before))[-MOST_UNDOABLE:]

    def go_back(self) -> None:
        """Take the last compaction back."""
        (older, since), self.undoable = self.undoable[-1], self.undoable[:-1]
        self.thought_since = since or 0
        self.take_into_force(replace(self.committed, frame=older.frame, plan_id=older.plan_id))
        self.cached_messages = 0

    def to_send(self, frame: Frame | None = None, view: View | None = None) -> list[Any]:
        """The list as it is sent: the view, with a cache breakpoint behind its compacted part."""
        frame, view = frame or self.committed.frame, view or self.view
        return with_breakpoint(view.messages, len(frame.head), self.call)

    def hand_out(self) -> list[Any]:
        """The list to send, noted as sent: the answer to come is thought behind it."""
        frame, length = self.committed.frame, len(self.tracker)
        self.sent, self.thought_since = replace(frame, plan=None), 0
        if self.undoable and self.undoable[-1].since is None:
            self.undoable = tuple(old if old.since is not None else old._replace(since=length) for old in self.undoable)
        new = length - self.last.messages
        if self.last.messages and new > 0:
            added = self.gauge.of_messages(sum(self.view.counted[-new:]))
            self.growth_tokens += GROWTH_WEIGHT * (added - self.growth_tokens)
        sent = self.to_send()
        self.tracker.returned(sent, len(frame.head))
        self.cached_messages = len(sent)
        self.last = LastList(length, self.view.total, self.clock(), self.committed, self.undoable)
        return sent

    def resume(self) -> None:
        """Go on where an earlier process stopped, if there was one.

        Until a request says otherwise it is for the model, and has the thinking, of the last one before.

        Raises:
            StoreError: what is stored cannot be read.
        """
        use = self.store.use
        saved = use(lambda store: load_session(store, self.session_id))
        self.log.load(use(lambda store: store.events(self.session_id)))
        if saved is None:
            return
        if saved.frame.key:
            self.tracker.load(use(lambda store: store.load_history(saved.frame.key)))
        if max(one.start for one in (saved.frame, saved.before or saved.frame)) > len(self.tracker):
            raise StoreDamaged(f"session {self.session_id}: its state goes beyond the history that is stored with it")
        committed, self.undoable = (
            use(saved.frame.committed),
            () if saved.before is None else (Undoable(use(saved.before.committed), 0),),
        )
        if self.call.model in ("", saved.model):
            self.take_call(replace(self.call, model=saved.model, thinking=saved.thinking))
        measured = (saved.ratio, saved.extra_tokens) != (1.0, 0.0)
        self.gauge = replace(self.gauge, ratio=saved.ratio, extra_tokens=saved.extra_tokens, is_resumed=measured)
        self.take_into_force(committed)
        self.tracker.returned(self.view.messages, len(committed.frame.head))
        self.compactions = saved.compactions
        self.kept_tokens = self.gauge.of_messages(self.view.total)
        length = len(self.tracker)
        self.last = replace(self.last, messages=length)
        self.sent = replace(committed.frame, plan=None) if saved.is_sent else Frame()
        self.planning.previous, self.planning.read_tokens = committed.frame.plan, saved.read_tokens
        self.saved = self.committed, saved.read_tokens, saved.is_sent
        self.log("resumed", f"{len(self.tracker)} messages, {self.compactions} compactions")

    @property
    def is_sent(self) -> bool:
        """True if what is in force was handed out."""
        return first_disagreement(self.sent, self.committed.frame) is None

    def to_save(self) -> SavedSession:
        """What a restart goes on with."""
        return SavedSession(
            frame=SavedFrame.of(self.committed),
            before=SavedFrame.of(self.undoable[-1].committed) if self.undoable else None,
            is_sent=self.is_sent,
            compactions=self.compactions,
            ratio=self.gauge.ratio,
            extra_tokens=self.gauge.extra_tokens,
            read_tokens=self.planning.read_tokens,
            model=self.call.model,
            thinking=None if self.call.thinking is None else dict(self.call.thinking),
        )
