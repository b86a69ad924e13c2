"""Everything that changes while a session lives, and the list that is in force.

Takes a list in, says what would be sent, and keeps account of what was. Whether anything is to be compacted is decided
in `applier.session.call` and `applier.session.compaction`.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from typing import Any

from applier.session.events import EventKind, EventLog
from applier.session.frame import Frame, View, bound, first_disagreement
from applier.session.history_tracker import Arrival, HistoryTracker
from applier.session.persistence import Committed, SavedFrame, SavedSession, SessionStore, commit, load_session
from applier.session.planning import BreakerState, Planned, Planning
from applier.session.presets import Level, Measurement, Preset, level_after
from applier.session.request import AgentCall, Gauge, prompt_limit_tokens, with_breakpoint
from applier.settings import SessionSettings
from applier.store.records import NOTED_SECONDS
from applier.store.views import holds_view, originals_behind, remember_view
from planner.api import PlannerChoice
from planner.errors import StoreDamaged, StoreError, TranscriptError
from planner.prices import cache_prices
from planner.reading.tokens import TokenCounter
from planner.settings import RESTORE_TOOL, bare_tool_name, restore_tool_of

__all__ = ["SessionState", "State"]

GROWTH_WEIGHT = 0.1
"""How much the newest call counts in the average growth."""


@dataclass(frozen=True, slots=True)
class LastList:
    """The list that was handed out last, and how the session stood then."""

    messages: int = 0
    """Of the history."""
    counted_tokens: int = 0
    at: float | None = None
    """None before the first one."""
    frame: Frame = field(default_factory=Frame)
    """Behind whose list the newest answers were thought."""
    undoable: tuple[tuple[Frame, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """Newest stored state of a shared session, as far as this process knows: see `applier.session.sharing`."""

    number: int | None = None
    """Number of the state that was taken up or saved last; 0: the store had none; None: not asked yet."""
    is_saved: bool = False
    """True if everything that happened in this process is in that state."""
    is_lost: bool = False
    """True if the store could not be asked at the last call."""
    frame: SavedFrame | None = None
    """Frame in force there."""
    planner: str = ""
    """Process that makes a plan beforehand or has made one."""
    planner_until: float = 0.0
    """Time until which the others wait for it."""


@dataclass
class State:
    """One session: what it was opened with, and everything that moves."""

    session_id: str
    settings: SessionSettings
    preset: Preset
    store: SessionStore
    log: EventLog
    clock: Callable[[], float]
    owner: str
    """Of the views that the session makes and knows again: its id, if it was given one."""
    planner: InitVar[PlannerChoice]
    client: InitVar[Any]
    task: InitVar[str]
    call: AgentCall
    """What the agent's next request says besides its messages; its model, and how long its answer may be, as they were
    given last."""
    keys: list[str] = field(default_factory=list)
    """Histories that this session and its family have stored: what `restore` may show."""
    maximum_tokens: int = sys.maxsize
    """What the provider has said a prompt may have."""
    gauge: Gauge = field(default_factory=Gauge)
    committed: Committed = field(default_factory=Committed)
    view: View = field(default_factory=View)
    undoable: tuple[tuple[Frame, int | None], ...] = ()
    """What `undo` goes back to, newest last; and from which message of the history on answers were thought behind what
    came after it: None before such a list was handed out."""
    thought_since: int = 0
    """That message, once a compaction was taken back, until the next list is handed out."""
    last: LastList = field(default_factory=LastList)
    cached_messages: int = 0
    """How many messages of `view` the provider has seen, and so may have cached."""
    level: Level = "normal"
    carried_tokens: int = 0
    """What all calls since the last compaction have read beyond what another would have left."""
    rests: dict[tuple[str, bool], tuple[int, int]] = field(default_factory=dict)
    """Until the history counts so many tokens, or, where the prompt does not fit, so many of them are answered, a tier
    is not tried again; by its name and whether the window forces it."""
    store_failed_at: float | None = None
    noted_at: float = float("-inf")
    """When the store was told last that the conversation goes on."""
    saved: tuple[Committed, int, bool] = field(default_factory=lambda: (Committed(), 0, True))
    """What a restart would go on with, what planners had read by then, and whether it was handed out."""
    requested: str = ""
    """``manual``, ``tool``, …: somebody asked for a compaction at the next call."""
    focus: str = ""
    is_recovering: bool = False
    """The reactive retry for the list last prepared was given."""
    standing: Standing = field(default_factory=Standing)
    is_shared: bool = False
    """Other processes may serve the session, too: see `applier.session.sharing`."""
    marks: list[str] = field(default_factory=list)
    """By which its keeper knows the conversation again, as of the newest list; the other processes are told."""
    newest: str = ""
    """Digest of the last message of the list that was handed out last."""
    is_answered: bool = False
    """That list was answered, as far as anybody knows: the next answer was thought behind it."""
    strangers: frozenset[int] = frozenset()
    """Answers to lists that nobody has told this process of, whose thinking the store does not have."""
    troubles: dict[EventKind, str] = field(default_factory=dict)
    """What is wrong since some call, by the event that said so."""
    compactions: int = 0

    def __post_init__(self, planner: PlannerChoice, client: Any, task: str) -> None:
        """Take the request up, in a session that has seen nothing yet."""
        self.planning = Planning(planner, client, self.settings, self.clock, self.log, task)
        self.tracker = HistoryTracker(TokenCounter.for_model(self.call.model))
        self.growth_tokens = self.preset.expected_growth_tokens
        """What a call adds on average."""
        self.store_opening = self.store.opening
        """That of the store that was last made to hold all that is left out."""
        self.take_call(self.call)

    def copy(self) -> State:
        """Return a state to change in one call; this one stays as it is. Store, log and worker are shared."""
        copied = copy.copy(self)
        copied.tracker, copied.planning = self.tracker.copy(), copy.copy(self.planning)
        copied.view = View([*self.view.messages], [*self.view.counted])
        copied.rests, copied.troubles = {**self.rests}, {**self.troubles}
        return copied

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
    def goal_tokens(self) -> int:
        """What the next plan would leave of the messages."""
        goal, room = self.preset.plan_goal, self.gauge.room_tokens(self.limit_tokens)
        sizes = map(self.gauge.of_messages, (self.view.total, self.tracker.tokens))
        return goal.goal_tokens(room, *sizes) if goal is not None else room

    @property
    def restore_tool(self) -> str:
        """Name of the agent's tool that restores a turn; empty if it has none.

        A server's tool that the settings name in full counts even if the request does not list it: Codex lists none.
        """
        tools, named = self.call.tools, self.settings.plan.restore_tool
        called = named or RESTORE_TOOL
        in_full = named if bare_tool_name(named) != named else ""
        return called if tools is None else restore_tool_of(tools, called) or restore_tool_of(tools) or in_full

    @property
    def no_room(self) -> str:
        """What is wrong when system and tools alone fill the window, and the cure; empty if they do not."""
        fixed = min(self.gauge.of_messages(self.gauge.fixed_tokens), self.gauge.prompt(0))
        if fixed < self.limit_tokens:
            return ""
        return (
            f"system and tools take {fixed} of the {self.limit_tokens} tokens a prompt may have: "
            "send fewer tools, or raise window_tokens"
        )

    @property
    def is_sent(self) -> bool:
        """True if what is in force was handed out."""
        return first_disagreement(self.last.frame, self.committed.frame) is None

    def measure(self) -> Measurement:
        """What the triggers see."""
        tokens = self.tokens
        return Measurement(
            tokens=tokens,
            limit_tokens=self.limit_tokens,
            level=level_after(self.level, tokens, self.limit_tokens),
            beside_tokens=self.gauge.prompt(0),
            goal_tokens=self.goal_tokens,
            carried_tokens=self.carried_tokens,
            growth_tokens_per_call=self.growth_tokens,
            idle_seconds=0.0 if self.last.at is None else max(0.0, self.clock() - self.last.at),
            requested=self.requested,
            prices=cache_prices(self.call.model),
        )

    def request(self, trigger: str, focus: str = "") -> None:
        """Compact at the next call."""
        self.requested, self.focus = trigger, focus or self.focus

    def trouble(self, kind: EventKind, problem: str, message: str = "") -> None:
        """Log a problem when it begins or becomes another (as `message`), not at every call; empty ends it."""
        if problem and self.troubles.get(kind) != problem:
            self.log(kind, message or problem)
        self.troubles[kind] = problem

    def take_call(self, call: AgentCall) -> None:
        """The next request says this besides its messages; what another model's tokens are is measured anew."""
        before, model = self.call, call.model or self.call.model
        scales = [TokenCounter.for_model(name).scale for name in (before.model, model)]
        if scales[0] != scales[1]:
            self.gauge = Gauge(ratio=scales[1] / self.tracker.counter.scale, is_resumed=True)
        self.window_tokens = self.settings.window_of(model)
        most = call.max_output_tokens or before.max_output_tokens
        self.call = replace(call, model=model, max_output_tokens=most)
        self.gauge = self.gauge.with_fixed(self.tracker.counter.request((), self.call.system, self.call.tools))

    def receive(self, messages: Sequence[object]) -> Arrival:
        """Take the caller's list: afterwards `view` is a valid list for it."""
        if not len(self.tracker) and isinstance(messages, Sequence):
            self._go_on_from_view(messages)
        tracker = self.tracker.copy()  # a list that cannot be read leaves the history as it is
        arrival = tracker.take(messages)
        self.tracker = tracker
        committed, frame = self.committed, self.committed.frame
        if arrival.changed:  # what stands for the messages before it stays
            self.undoable, self.thought_since, self.rests = (), 0, {}
            frame = frame.before(arrival.start)
            committed = replace(committed, key="", messages=min(committed.messages, arrival.start))
        elif arrival.edited_from is not None:  # behind it the history no longer says what was stored
            committed = replace(committed, messages=min(committed.messages, arrival.edited_from))
        frame = self._without_strangers(self.bound(frame, self.thought_since), arrival)
        if arrival.changed or arrival.replaced or frame is not committed.frame:
            is_whole = arrival.changed and frame.is_empty
            self.take_into_force(Committed() if is_whole else replace(committed, frame=frame))
        else:
            self.view.extend(frame, self.tracker, arrival.start)
        return arrival

    def _without_strangers(self, frame: Frame, arrival: Arrival) -> Frame:
        """`frame` without the thinking of answers to lists that nobody has told of: it may be bound to those.

        Told of is all up to the list that was handed out last, and of a session that begins the first answer.
        """
        if not self.is_shared or self.call.thinking_policy != "strip":
            return frame
        plain, last = self.tracker.plain, self.last.messages
        start = arrival.start
        if self.last.at is None:
            start = 1 + next((at for at, message in enumerate(plain) if message["role"] == "assistant"), len(plain))
        elif 0 < last <= len(plain) and self.tracker.digests[last - 1] == self.newest:
            start = last + self.is_answered
        known = frame.unthought(plain, start)
        self.strangers |= known.unthinking - frame.unthinking
        return known

    def _go_on_from_view(self, messages: Sequence[object]) -> None:
        """Where the first list begins with a view that is known, its originals are the history."""
        earlier = None
        with suppress(TranscriptError, StoreError):
            for owner in (self.owner, "") if holds_view(messages) else ():
                earlier = earlier or self.store.use(partial(originals_behind, messages=messages, owner=owner))
        if earlier is None:
            return
        self.tracker.take(earlier.messages)
        plan_id = earlier.plan_id if earlier.plan is not None else ""
        frame = Frame(earlier.plan, plan_id, tuple(messages[: earlier.head]), earlier.start)
        self._go_on(Committed(frame, earlier.key, earlier.start), earlier.start)
        self.tracker.returned(messages, earlier.head)
        self.log("resumed", f"the list begins with a view of {earlier.start} messages: its originals are in the store")

    def _go_on(self, committed: Committed, messages: int) -> None:
        """`committed` was in force elsewhere when `messages` messages were sent."""
        self.take_into_force(committed)
        self.tracker.returned(self.view.messages, len(committed.frame.head))
        self.planning.previous = committed.frame.plan
        self.last = LastList(messages, frame=committed.frame, undoable=self.undoable)

    def bound(self, frame: Frame, since: int = 0) -> Frame:
        """`frame` without the thinking of messages from `since` on that would be refused behind the list it gives."""
        strips = self.call.thinking_policy == "strip"
        return bound(frame, self.last.frame, self.tracker, since) if strips else frame

    def give_up_lost(self) -> bool:
        """Where the store's file was taken away, nothing is stored any more: the list is whole, and no tier rests."""
        if self.store.opening == self.store_opening:
            return False
        self.store_opening, self.undoable, self.keys[:] = self.store.opening, (), []
        self.rests.clear()
        self.take_into_force(Committed(self.bound(Frame())))
        self.log("store_failed", "the store's file was taken away: nothing is left out that was stored there")
        return True

    def store_left_out(self) -> None:
        """Store what the view leaves out: a message came that goes without its thinking, or one that the caller has
        edited where something else stands for it.

        If the store does not take that, less is left out: as in the list handed out last, for what was thought behind
        it is valid there, and of that only what is stored.
        """
        self.give_up_lost()
        committed, length = self.committed, len(self.tracker)
        if committed.holds(committed.frame, length):
            return
        try:
            self.commit(committed.frame, self.view)
        except StoreError as error:
            self.store_failed_at = self.clock()
            before, self.undoable = replace(self.committed, frame=self.last.frame), self.last.undoable
            if not before.holds(before.frame, length):
                before = replace(before, frame=before.frame.before(before.messages))
            if self.strangers:  # with it the list would be refused; the caller has it
                unthinking = before.frame.unthinking | self.strangers
                before = replace(before, frame=replace(before.frame, unthinking=unthinking))
            self.take_into_force(before)
            self.cached_messages = 0
            if not self.troubles.get("store_failed"):
                self.log("store_failed", f"only what is stored is left out: {error}")

    def take_into_force(self, committed: Committed, view: View | None = None) -> None:
        """From now on `committed`, whose list is `view`, is what is sent."""
        self.committed, self.view = committed, view or View.of(committed.frame, self.tracker)
        self.cached_messages = min(self.cached_messages, len(self.view.messages))
        if committed.key and committed.key not in self.keys:
            self.keys.append(committed.key)

    def commit(self, frame: Frame, view: View | None = None) -> None:
        """Store what `frame` leaves out; then that is what is sent.

        Raises:
            StoreError: what was sent before is.
        """
        committed, view = commit(frame, self.tracker, self.store, self.committed), view or View.of(frame, self.tracker)
        if frame.head:
            known = {"owner": self.owner, "key": committed.key, "plan_id": committed.frame.plan_id}
            history, start = self.tracker.history, frame.start
            self.store.use(lambda store: remember_view(store, view.messages, history, start, **known))
        self.strangers = frozenset()
        self.take_into_force(committed, view)

    def note_use(self) -> None:
        """Have the store keep what the list that goes out refers to, see `collect_garbage`."""
        key, now = self.committed.key, self.clock()
        if key and now - self.noted_at >= NOTED_SECONDS:
            self.noted_at = now
            with suppress(StoreError):
                self.store.use(lambda store: store.note_use(key))

    def to_send(self, frame: Frame | None = None, view: View | None = None) -> list[Any]:
        """The list as it is sent: the view, with a cache breakpoint behind its compacted part."""
        frame, view = frame or self.committed.frame, view or self.view
        return with_breakpoint(view.messages, len(frame.head), self.call)

    def hand_out(self) -> list[Any]:
        """The list to send, noted as sent: the answer to come is thought behind it."""
        frame, length = self.committed.frame, len(self.tracker)
        new = length - self.last.messages
        if self.last.messages and new > 0:
            added = self.gauge.of_messages(sum(self.view.counted[-new:]))
            self.growth_tokens += GROWTH_WEIGHT * (added - self.growth_tokens)
        self.carried_tokens += max(0, self.gauge.of_messages(self.view.total) - self.goal_tokens)
        sent = self.to_send()
        self.tracker.returned(sent, len(frame.head))
        self.cached_messages = len(sent)
        self.thought_since = 0
        self.undoable = tuple((older, length if since is None else since) for older, since in self.undoable)
        self.last = LastList(length, self.view.total, self.clock(), frame, self.undoable)
        self.newest, self.is_answered = self.tracker.digests[-1] if length else "", False
        return sent

    def resume(self) -> None:
        """Go on where an earlier process stopped, if there was one.

        Until a request says otherwise it is for the model, and has the thinking, of the last one before.

        Raises:
            StoreError: what is stored cannot be read.
        """
        saved = self.store.use(lambda store: load_session(store, self.session_id))
        self.log.load(self.store.use(lambda store: store.events(self.session_id)))
        if saved is not None:
            if self.call.model in ("", saved.model):
                self.take_call(replace(self.call, model=saved.model, thinking=saved.thinking))
            self.go_on_from(saved)
            self.log("resumed", f"{len(self.tracker)} messages, {self.compactions} compactions")

    def go_on_from(self, saved: SavedSession) -> None:
        """Go on from `saved`, and from nothing else.

        Raises:
            StoreError: what is stored cannot be read; all is as it was before.
        """
        use, tracker = self.store.use, HistoryTracker(self.tracker.counter)
        if saved.frame.key:
            tracker.take(use(lambda store: store.load_history(saved.frame.key)).messages)
        length, committed = len(tracker), use(saved.frame.committed)
        if max(saved.frame.start, saved.before.start if saved.before else 0) > length:
            raise StoreDamaged(f"session {self.session_id}: its state goes beyond the history that is stored with it")
        self.undoable = ((use(saved.before.committed).frame, 0),) if saved.before else ()
        self.tracker, self.strangers = tracker, frozenset()
        measured = (saved.ratio, saved.extra_tokens) != (1.0, 0.0)
        self.gauge = replace(self.gauge, ratio=saved.ratio, extra_tokens=saved.extra_tokens, is_resumed=measured)
        self.planning.count_read(saved.read_tokens)
        self.compactions = saved.compactions
        self._go_on(committed, length)
        if not saved.is_sent:
            self.last = replace(self.last, frame=Frame())
        self.saved = self.committed, saved.read_tokens, saved.is_sent

    def to_save(self) -> SavedSession:
        """What a restart goes on with."""
        return SavedSession(
            frame=SavedFrame.of(self.committed),
            before=SavedFrame.of(replace(self.committed, frame=self.undoable[-1][0])) if self.undoable else None,
            is_sent=self.is_sent,
            compactions=self.compactions,
            ratio=self.gauge.ratio,
            extra_tokens=self.gauge.extra_tokens,
            read_tokens=self.planning.read_tokens,
            model=self.call.model,
            thinking=None if self.call.thinking is None else dict(self.call.thinking),
        )


@dataclass(frozen=True, slots=True)
class SessionState:
    """Where a session stands; a value, safe to keep."""

    session_id: str
    level: Level
    tokens: int
    """Of the list that would be sent now, with system and tools."""
    window_tokens: int
    limit_tokens: int
    """What a prompt may have: the window without the output reserve."""
    compactions: int
    reclaimed_tokens: int
    """What the prompt would have more if nothing had ever been compacted; what was done anew counts once."""
    breaker: BreakerState
    history_key: str
    """Under which the store has the history as of the last commit; empty before."""
    history_messages: int
    planned: tuple[Planned, ...]
    """Who was asked for plans in this process, what that cost and what failed, in order."""

    @classmethod
    def of(cls, state: State) -> SessionState:
        """Where `state` stands now; changes nothing in it."""
        return cls(
            session_id=state.session_id,
            level=state.measure().level,
            tokens=state.tokens,
            window_tokens=state.window_tokens,
            limit_tokens=state.limit_tokens,
            compactions=state.compactions,
            reclaimed_tokens=state.gauge.of_messages(max(0, state.tracker.tokens - state.view.total)),
            breaker=state.planning.breaker,
            history_key=state.committed.key,
            history_messages=len(state.tracker),
            planned=tuple(state.planning.planned),
        )
