"""Everything that changes while a session lives, in one value, with what can be read off it.

Decides nothing: `applier.session.session` does, and only there is a frame taken into force.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from applier.session.carryover import FileMarks
from applier.session.events import EventLog
from applier.session.frame import Frame, View, first_disagreement, late_thinking
from applier.session.gauge import Gauge, prompt_limit_tokens
from applier.session.history_tracker import Arrival, HistoryTracker
from applier.session.persistence import Committed, SavedSession, SessionStore
from applier.session.planning import Planning
from applier.session.presets import Preset
from applier.session.recall import Named, Recall
from applier.session.request import AgentCall, with_breakpoint
from applier.session.triggers import Level, Measurement, level_after
from applier.settings import SessionSettings
from applier.store.protocol import Store
from planner.layout.cache_cost import CachePrices, cache_prices
from planner.plan import CompactionPlan
from planner.reading.history import read_history
from planner.reading.tokens import TokenCounter

__all__ = ["Rest", "State"]

GROWTH_WEIGHT = 0.1
"""How much the newest call counts in the average growth."""
MOST_UNDOABLE = 10
"""So many compactions can be taken back: each one holds a decision for every turn of its history."""


@dataclass(frozen=True, slots=True)
class Told:
    """The last prompt whose usage the provider told."""

    tokens: int
    messages: int
    """Of the history, when it was sent."""
    frame: Frame
    spared_tokens: int
    """What it would have had more."""


@dataclass(frozen=True, slots=True)
class Handed:
    """How the session stood when a list was handed out last."""

    committed: Committed
    undoable: list[Committed]
    held_below: int


@dataclass(frozen=True, slots=True)
class Rest:
    """How long a tier is not tried again."""

    below_tokens: int
    """While the prompt has fewer;"""
    below_answered_tokens: int
    """but where it does not fit the window, only while of what came since the last plan less was answered."""


@dataclass
class State:
    """One session: what it was opened with, and everything that moves."""

    session_id: str
    settings: SessionSettings
    preset: Preset
    store: SessionStore
    log: EventLog
    planning: Planning
    marks: FileMarks
    clock: Callable[[], float]
    keys: list[str]
    """Histories that this session and its family have stored: what `restore` may show."""
    tracker: HistoryTracker
    call: AgentCall
    """What the agent's next request says besides its messages."""
    model: str
    """The agent's: of its request, or the one the session was opened for."""
    window_tokens: int
    max_output_tokens: int
    started_at: float
    gauge: Gauge = field(default_factory=Gauge)
    maximum_tokens: int = sys.maxsize
    """What the provider has said a prompt may have."""
    growth_tokens: float = 0.0
    """What a call adds on average."""
    committed: Committed = field(default_factory=Committed)
    view: View = field(default_factory=View)
    recall: Recall = field(default_factory=Recall)
    sent: int = 0
    """How many messages of `view` the provider has seen, and so may have cached."""
    sent_counted: int = 0
    called_with: int = 0
    """Messages of the history at the last call."""
    level: Level = "normal"
    last_call_at: float | None = None
    facts_at: float | None = None
    kept_tokens: int = 0
    """Of the messages right after the last compaction."""
    rearm: dict[tuple[str, Hashable], Rest] = field(default_factory=dict)
    """How long a tier, by its name and the bounds it ran in, is not tried again."""
    held_below: int = 0
    """Below so many tokens no step is tried again: a compaction was taken back."""
    store_failed_at: float | None = None
    undoable: list[Committed] = field(default_factory=list)
    handed: Handed | None = None
    """None before the first list, and once the history went another way since."""
    thought_behind: list[tuple[int, Frame]] = field(default_factory=lambda: [(0, Frame())])
    """From which message of the history on answers were thought behind the list of which frame (without its plan), in
    order; the first of so many stands for all that came before."""
    awaited: int = -1
    """Where the answer will stand that may be on its way."""
    store_reopened: int = 0
    """How often the store had been opened anew when it was last made to hold all that is left out."""
    saved: Committed | None = None
    """What a restart would go on with."""
    saved_read_tokens: int = 0
    """What planners had read by then."""
    wanted: dict[str, Named] = field(default_factory=dict)
    """Removed turns that the agent has named since, to come back with the next plan."""
    requested: str = ""
    focus: str = ""
    is_recovering: bool = False
    """The reactive retry for the list last prepared was given."""
    is_blocked: bool = False
    """System and tools alone leave no room: nothing automatic is done."""
    is_too_large: bool = False
    """Even the last resort was not enough."""
    failing: dict[str, str] = field(default_factory=dict)
    """What failed at the last call, by the kind of its event."""
    compactions: int = 0
    reclaimed_tokens: int = 0
    told: Told | None = None

    @property
    def limit_tokens(self) -> int:
        """What a prompt may have."""
        return min(prompt_limit_tokens(self.window_tokens, self.max_output_tokens), self.maximum_tokens)

    @property
    def tokens(self) -> int:
        """Of the prompt that would be sent now."""
        return self.gauge.prompt(self.view.total)

    @property
    def spared_tokens(self) -> int:
        """What the prompt would have more if nothing had ever been compacted; as the provider counts, once it did."""
        if self.told is not None:
            return self.told.spared_tokens
        return self.gauge.of_messages(max(0, self.tracker.tokens - self.view.total))

    @property
    def room_tokens(self) -> int:
        """What the messages may have beside system and tools."""
        return max(1, self.limit_tokens - self.gauge.prompt(0))

    @property
    def answered_tokens(self) -> int:
        """What came since the last plan and is no longer waited for: a plan may take it."""
        counted = self.tracker.counted[self.committed.frame.start : self.tracker.live_start]
        return self.gauge.of_messages(sum(counted))

    @property
    def restore_tool(self) -> str:
        """The agent's tool that brings back what was removed; empty if it has none."""
        return self.call.restore_tool(self.settings.plan.restore_tool)

    @property
    def prices(self) -> CachePrices:
        """What the agent's model charges for cached tokens."""
        return cache_prices(self.model)

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

    def take_call(self, call: AgentCall) -> None:
        """The next request says this besides its messages; another model is counted for anew."""
        if call.model and call.model != self.model:
            self.model = call.model
            counter = TokenCounter.for_model(call.model)
            if counter.scale != self.tracker.counter.scale:
                self.tracker.recount(counter)
                self.view = View.of(self.committed.frame, self.tracker)
                self.gauge, self.told = Gauge(), None
        self.window_tokens = self.settings.window_of(self.model)
        self.call = replace(call, model=self.model)
        self.max_output_tokens = call.max_output_tokens or self.max_output_tokens
        self.gauge = self.gauge.with_fixed(self.call.fixed_tokens(self.tracker.counter))

    def receive(self, messages: Sequence[object]) -> Arrival:
        """Take the caller's list: afterwards `view` is a valid list for it."""
        arrival = self.tracker.take(messages)
        if arrival.edited_from is not None:
            self._holds_at_most(arrival.edited_from)
        if arrival.changed:
            self._step_back(arrival.start)
            return arrival
        self._expect_thinking()
        frame = self.committed.frame
        for index in arrival.replaced:
            self.view.replace(frame, self.tracker, index)
        self.view.extend(frame, self.tracker, arrival.start)
        if self.handed is None:  # what an earlier process was answered may be among the new messages
            bound = self.bound(frame)
            if bound is not frame:
                self.take_into_force(replace(self.committed, frame=bound), View.of(bound, self.tracker))
        return arrival

    def _expect_thinking(self) -> None:
        """An answer that came without thinking has none to leave out."""
        frame, came = self.committed.frame, self.awaited < len(self.tracker)
        if came and self.awaited in frame.unthinking - late_thinking(self.tracker, self.awaited - 1):
            self.committed = replace(self.committed, frame=replace(frame, unthinking=frame.unthinking - {self.awaited}))

    def _step_back(self, start: int) -> None:
        """The history was changed from `start` on: keep what stands for the messages before it."""
        self.handed = None
        self.thought_behind = [one for one in self.thought_behind if one[0] <= start] or [(0, Frame())]
        frame = self.bound(self.committed.frame.before(start))
        stored = min(self.committed.messages, start)
        self.committed = (
            Committed() if frame.is_empty else replace(self.committed, frame=frame, key="", messages=stored)
        )
        self.undoable.clear()
        self.told = None
        self.take_into_force(self.committed, View.of(self.committed.frame, self.tracker))
        self._hear_anew()

    def _holds_at_most(self, messages: int) -> None:
        """Behind so many messages the history no longer says what was stored."""

        def cut(committed: Committed) -> Committed:
            return replace(committed, messages=min(committed.messages, messages))

        self.committed, self.undoable = cut(self.committed), [cut(old) for old in self.undoable]

    @property
    def is_awaited(self) -> bool:
        """True if an answer may be on its way to be the next message."""
        return self.awaited == len(self.tracker)

    def bound(self, frame: Frame) -> Frame:
        """`frame` without the thinking that was thought behind another list than it gives, where that would be refused;
        an answer that may be on its way included."""
        if self.call.thinking_policy != "strip":
            return frame
        stops = [start for start, _ in self.thought_behind[1:]] + [len(self.tracker) + 1]
        for (start, behind), stop in zip(self.thought_behind, stops, strict=True):
            first = first_disagreement(frame, behind)
            if first is None:
                continue
            late = late_thinking(self.tracker, max(first, start - 1, frame.start - 1)) | behind.unthinking
            if self.is_awaited and first < self.awaited:
                late |= {self.awaited}
            late = frozenset(at for at in late if max(start, frame.start) <= at < stop)
            frame = replace(frame, unthinking=frame.unthinking | late) if late - frame.unthinking else frame
        return frame

    def note_thought_behind(self, start: int) -> None:
        """Answers from message `start` on are thought behind the list as it stands."""
        frame = replace(self.committed.frame, plan=None)
        known = [one for one in self.thought_behind if one[0] < start] or [(0, frame)]
        if first_disagreement(known[-1][1], frame) is not None:
            known.append((start, frame))
        if len(known) > MOST_UNDOABLE:
            known[:2] = [(0, known[1][1])]
        self.thought_behind = known

    @property
    def is_left_out_stored(self) -> bool:
        """True if the store has every message that `view` does not hold as it came."""
        return self.committed.holds(self.committed.frame, len(self.tracker))

    def store_anew(self) -> None:
        """Where the store was opened anew, it holds nothing of before: nothing counts as stored until it is stored
        again, the plans and what placeholders name as far as it is known.

        Raises:
            StoreError: it does not take it.
        """
        if self.store.reopened == self.store_reopened:
            return
        before = [self.committed, *self.undoable]
        for length in sorted({one.messages for one in before if one.key}):
            self.store.use(partial(_save_first, self.tracker, length))
        for one in before:
            if one.frame.plan is not None:
                self.store.use(partial(_save_plan, one.frame.plan))
        self.committed, *self.undoable = [replace(one, key="", messages=0) for one in before]
        self.store_reopened = self.store.reopened
        self.log("store_failed", "the store's file was taken away: what is left out is stored again, in a new one")

    def fall_back(self) -> None:
        """The store would not have what `view` leaves out: back to what leaves out only what is stored.

        That is the list handed out last, for what was thought behind it is valid there; else what the store does not
        hold goes out as it came.
        """
        committed, undoable = self.committed, self.undoable
        if self.handed is not None:
            before, undoable, self.held_below = self.handed.committed, self.handed.undoable, self.handed.held_below
            committed = replace(committed, frame=before.frame, plan_id=before.plan_id)
        if not committed.holds(committed.frame, len(self.tracker)):
            committed = replace(committed, frame=committed.frame.before(committed.messages))
        self.take_into_force(committed, View.of(committed.frame, self.tracker))
        self.undoable, self.sent = [*undoable], 0

    def take_into_force(self, committed: Committed, view: View) -> None:
        """From now on `committed` is what is sent."""
        replanned = committed.frame.plan is not self.committed.frame.plan
        self.sent = min(self.sent, len(view.messages))
        self.committed, self.view = committed, view
        if committed.key and committed.key not in self.keys:
            self.keys.append(committed.key)
        if replanned:
            self._hear_anew()

    def may_go_back(self, before: Committed) -> None:
        """A compaction has taken the place of `before`, which `undo` goes back to."""
        if (
            before.frame.plan is not None
        ):  # what it was made from is read anew for each plan, and as large as the history
            before = replace(before, frame=replace(before.frame, plan=before.frame.plan.unbound()))
        self.undoable = [*self.undoable, before][-MOST_UNDOABLE:]

    def _hear_anew(self) -> None:
        """What is removed, and what of it is wanted, is no longer what it was."""
        self.recall = Recall.of(self.committed.frame, self.tracker)
        self.wanted.clear()

    def resume(self, saved: SavedSession) -> None:
        """Go on where an earlier process stopped; the tracker has loaded its history.

        Until a request says otherwise it is for the model, and has the thinking, of the last one before.
        """
        if self.model in ("", saved.model):
            self.take_call(replace(self.call, model=saved.model, thinking=saved.thinking))
        measured = (saved.ratio, saved.extra_tokens) != (1.0, 0.0)
        self.gauge = replace(self.gauge, ratio=saved.ratio, extra_tokens=saved.extra_tokens, is_resumed=measured)
        self.take_into_force(saved.committed, View.of(saved.committed.frame, self.tracker))
        self.tracker.returned(self.view.messages, len(saved.committed.frame.head))
        self.undoable = [saved.before] if saved.before is not None else []
        self.compactions, self.reclaimed_tokens = saved.compactions, saved.reclaimed_tokens
        self.kept_tokens = self.gauge.of_messages(self.view.total)
        self.called_with = self.awaited = len(self.tracker)
        self.thought_behind = [(0, replace(saved.committed.frame, plan=None))]
        self.planning.previous, self.planning.read_tokens = saved.committed.frame.plan, saved.read_tokens
        self.saved_read_tokens = saved.read_tokens

    def to_save(self) -> SavedSession:
        """What a restart goes on with."""
        before = self.undoable[-1] if self.undoable else None
        return SavedSession(
            committed=self.committed,
            before=before,
            compactions=self.compactions,
            reclaimed_tokens=self.reclaimed_tokens,
            ratio=self.gauge.ratio,
            extra_tokens=self.gauge.extra_tokens,
            read_tokens=self.planning.read_tokens,
            model=self.model,
            thinking=self.call.thinking,
        )

    def measure(self, now: float, goal_tokens: int) -> Measurement:
        """What the triggers see; `goal_tokens` is what a first plan would leave of the messages."""
        tokens = self.tokens
        self.level = level_after(self.level, tokens, self.limit_tokens)
        return Measurement(
            tokens=tokens,
            limit_tokens=self.limit_tokens,
            level=self.level,
            beside_tokens=self.gauge.prompt(0),
            kept_tokens=self.kept_tokens or goal_tokens,
            growth_tokens_per_call=self.growth_tokens,
            idle_seconds=0.0 if self.last_call_at is None else max(0.0, now - self.last_call_at),
            session_seconds=max(0.0, now - (self.facts_at or self.started_at)),
            requested=self.requested,
            prices=self.prices,
        )

    def take_usage(self, tokens: int) -> None:
        """The provider counted `tokens` for the list handed out last: that calibrates, and says what was spared.

        Where another frame came into force since the prompt before, the difference is what it removed.
        """
        self.gauge = self.gauge.calibrated(self.sent_counted, tokens, self.limit_tokens)
        if tokens <= 0:
            return
        known, frame, spared = self.told, self.committed.frame, self.spared_tokens
        if known is not None and known.frame is not frame:
            new = self.gauge.of_messages(sum(self.tracker.counted[known.messages : self.called_with]))
            spared = max(0, spared + known.tokens + new - tokens)
        self.told = Told(tokens, self.called_with, frame, spared)

    def to_send(self, frame: Frame | None = None, view: View | None = None) -> list[object]:
        """The list as it is sent: the view, with a cache breakpoint behind its compacted part."""
        frame, view = frame or self.committed.frame, view or self.view
        return with_breakpoint(view.messages, len(frame.head), self.call)

    def hand_out(self, now: float) -> list[object]:
        """The list to send, noted as sent.

        An answer still to come is thought behind it, so nothing that went before is wrong for that one any more.
        """
        frame, length = self.committed.frame, len(self.tracker)
        if any(at >= length for at in frame.unthinking):
            known = frozenset(at for at in frame.unthinking if at < length)
            self.committed = replace(self.committed, frame=replace(frame, unthinking=known))
        self.note_thought_behind(length)
        self.awaited = length
        self.handed = Handed(self.committed, [*self.undoable], self.held_below)
        sent = self.to_send()
        new = len(self.tracker) - self.called_with
        if self.called_with and new > 0:
            added = self.gauge.of_messages(sum(self.view.counted[-new:]))
            self.growth_tokens += GROWTH_WEIGHT * (added - self.growth_tokens)
        self.called_with = len(self.tracker)
        self.tracker.returned(sent, len(self.committed.frame.head))
        self.sent, self.sent_counted = len(sent), self.view.total
        self.last_call_at = now
        return sent


def _save_first(tracker: HistoryTracker, count: int, store: Store) -> None:
    store.save_history(read_history(tracker.originals[:count]))


def _save_plan(plan: CompactionPlan, store: Store) -> None:
    store.save_plan(plan)
