"""Record of a session: its history, the list in force, the list that was sent last, what can be undone, what is stored.

A frame is the difference between the history and the list that is sent; the frame in force makes the next list. The
ledger decides which list is valid for the messages received. It knows no triggers and no prompt sizes. Its values are
replaced, never changed in place, so that copies are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from applier.session.edits import Frame, View, first_disagreement, without_refused_thinking
from applier.session.history_tracker import Arrival, HistoryTracker
from applier.store.forgetting import SESSION_STATE
from applier.store.opening import SessionStore
from applier.store.records import NOTED_SECONDS
from applier.store.store import Store
from applier.view import remember_view
from planner.errors import ReferenceNotFound, StoreDamaged, StoreError
from planner.layout import noted_key
from planner.pinned import unknown_view
from planner.plan import CompactionPlan
from planner.reading.messages import plain_message

MOST_UNDOABLE = 10
"""Largest number of compactions that can be undone, as each needs memory for a decision on every turn."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Frame (changes that make the sent list from the history), with the key and length of the stored history."""

    frame: Frame = field(default_factory=Frame)
    key: str = ""
    """Store key of the history; empty if no history is stored, or if the caller changed its messages since."""
    messages: int = 0
    """Number of messages of the present history that the store has."""

    def holds(self, frame: Frame, length: int) -> bool:
        """Return True if the store has every message that `frame` (the changes of the list to send) replaces, so that
        nothing is lost. `length`: number of messages of the history."""
        return frame.start <= self.messages and not any(self.messages <= at < length for at in frame.edited)


class SavedFrame(BaseModel):
    """`Committed` in the form in which it is stored: the fields of a `Frame`, the history's key, its stored length."""

    model_config = ConfigDict(extra="forbid")

    key: str = Field(pattern="^(h[0-9a-f]{32,64})?$")
    messages: int = Field(ge=0)
    plan_id: str
    head: list[dict[str, Any]]
    start: int = Field(ge=0)
    placeholders: list[tuple[int, int, str]]
    additions: list[tuple[int, str]]
    unthinking: list[int]

    @classmethod
    def of(cls, committed: Committed) -> Self:
        """Return the frame in `committed` in the form in which it is stored."""
        frame = committed.frame
        return cls(
            key=committed.key,
            messages=committed.messages,
            plan_id=frame.plan_id,
            head=[plain_message(message) for message in frame.head],
            start=frame.start,
            placeholders=[(*place, text) for place, text in frame.placeholders.items()],
            additions=list(frame.additions.items()),
            unthinking=sorted(frame.unthinking),
        )

    def committed(self, store: Store) -> Committed:
        """Return the stored changes (a frame) as an object, with the plan by which they were made, unless that was
        deleted or is of another version of this program.

        Raises:
            StoreError: the store failed.
            TranscriptError: an entry of `head` is not a message.
        """
        plan = None
        with suppress(ReferenceNotFound, StoreDamaged):  # the next compaction plans from the originals
            plan = store.load_plan(self.plan_id) if self.plan_id else None
        frame = Frame(
            plan=plan,
            plan_id=self.plan_id if plan is not None else "",
            head=tuple(plain_message(message, f"head[{at}]") for at, message in enumerate(self.head)),
            start=self.start,
            placeholders={(message, block): text for message, block, text in self.placeholders},
            additions=dict(self.additions),
            unthinking=frozenset(self.unthinking),
        )
        return Committed(frame, self.key, self.messages)


class SavedSession(BaseModel):
    """State of a session in the store, from which another process can continue."""

    model_config = ConfigDict(extra="ignore")  # other versions have more fields

    version: int = 1
    frame: SavedFrame
    before: SavedFrame | None = None
    """Changes that made the list before the last compaction, to which `undo` returns; None if there was none."""
    is_sent: bool = True
    """True if the stored list was also sent; False if the model's next answer belongs to an earlier list."""
    compactions: int = 0
    ratio: float = 1.0
    """Measured factor from our count of tokens to the provider's (`Gauge.ratio`)."""
    extra_tokens: float = 0.0
    """Tokens that the provider counts in addition (`Gauge.extra_tokens`)."""
    read_tokens: int = 0
    """Tokens that planners have read for this session."""
    rests: list[tuple[str, bool, int, int]] = []
    """Tiers (ways to shorten the list) that are not tried for now, after an earlier try or `undo`: the tier's name,
    whether it ran because the window was nearly full, and the sizes of the history and of its answered part from which
    it is tried again."""
    model: str = ""
    """Agent's model in its last request; empty if there was no request."""
    thinking: dict[str, Any] | None = None
    """Field ``thinking`` of the agent's last request; None without one."""


def session_name(session_id: str) -> str:
    """Return the name under which the store has the state of the session with this id."""
    return f"{SESSION_STATE}{session_id}"


def load_session(store: Store, session_id: str) -> SavedSession | None:
    """Return the stored state of the session with this id; None if there is none.

    Raises:
        StoreDamaged: the stored state is not valid.
    """
    data = store.get_state(session_name(session_id))
    try:
        return None if data is None else SavedSession.model_validate(data)
    except ValidationError as error:
        raise StoreDamaged(f"session {session_id}: its state cannot be read: {error.errors()[0]['msg']}") from None


class Undoable(NamedTuple):
    """Earlier state of the sent list, to which `undo` can return."""

    frame: Frame
    thought_since: int | None
    """Index of the first message that the model wrote after the compaction to be undone; None until the next list was
    sent. The API may refuse the thinking of such messages after `undo`."""


@dataclass(frozen=True, slots=True)
class LastList:
    """List that was last sent to the model, to know what its next answer and its cache refer to."""

    messages: int = 0
    """Number of messages that the history had when the list was sent."""
    counted_tokens: int = 0
    """Tokens of the list's messages, by our counter."""
    at: float | None = None
    """Time at which the list was sent; None before the first list."""
    frame: Frame = field(default_factory=Frame)
    """Frame (changes to the history) that made the list, to which the model's newest answers belong."""
    undoable: tuple[Undoable, ...] = ()
    """Frames to which `undo` could return when the list was sent."""
    newest: str = ""
    """Digest of the history's last message when the list was sent, to recognize the history later."""
    is_answered: bool = False
    """True after the provider's answer to the list was reported."""


@dataclass(frozen=True, slots=True)
class KnownState:
    """Knowledge of one process about the stored state of a session that several processes share."""

    number: int | None = None
    """Number of the state that this process loaded or saved last; 0 if the store had none, None before the first."""
    is_saved: bool = False
    """True if the stored state contains everything that happened in this process."""
    is_lost: bool = False
    """True if the store could not be read at the last call."""
    frame: SavedFrame | None = None
    """Frame (changes to the history) in the stored state."""
    planner: str = ""
    """Id of the process that makes the next plan in advance, or has made it."""
    planner_until: float = 0.0
    """Time until which other processes wait for a plan made in advance instead of making one."""


@dataclass
class Ledger:
    """History of one session, the list that is sent of it, and earlier states of that list, to which `undo` returns."""

    tracker: HistoryTracker
    owner: str = ""
    """Id by which the session's compacted lists are recognized when they come back; empty if it has none."""
    keys: list[str] = field(default_factory=list)
    """Store keys of the histories that `restore` may read. A session, its parent and its children share this list."""
    committed: Committed = field(default_factory=Committed)
    """Frame in force (the changes that make the next list), with what the store has for it."""
    view: View = field(default_factory=View)
    """List that would be sent now: the whole history with the changes of the frame in force."""
    last: LastList = field(default_factory=LastList)
    undoable: tuple[Undoable, ...] = ()
    """Earlier frames (changes that made a list), to which `undo` returns, the newest last."""
    thought_since: int = 0
    """Index from which on thinking may be refused after `undo`: that of the first message written after the undone
    compaction; 0 once the next list is sent."""
    cached_messages: int = 0
    """Number of messages of `view` that the provider has received and may have cached."""
    compactions: int = 0
    arrival: Arrival = field(default_factory=lambda: Arrival(0, changed=False))
    """Difference between the caller's newest list of messages and the one before."""
    outdated_plan: CompactionPlan | None = None
    """Plan of a compacted part that is not sent any more, as the caller's newest list has other content in a message
    that it was made of; None if there is none."""
    unsent_from: int = 0
    """Index of the first message that was not sent to the model yet."""
    unknown_answers: frozenset[int] = frozenset()
    """Indices of answers to lists that another process sent. The API may refuse their thinking (the model's reasoning)
    after any other list, so it is left out."""
    strips_thinking: bool = False
    """True if the model's API refuses thinking (the model's reasoning) after an earlier message was changed."""
    store_opening: int = 0
    """Value of `SessionStore.opening` (a counter) when content was last stored. A higher one means that the store's
    file was removed, so that the content is lost."""
    noted_at: float = float("-inf")
    """Time of the last note in the store that the conversation is still used."""
    saved: tuple[Committed, int, bool] = field(default_factory=lambda: (Committed(), 0, True))
    """Values that were last stored for a restart: `committed`, tokens read by planners, `is_sent`. The session is
    stored again only if one has changed."""
    known_state: KnownState = field(default_factory=KnownState)
    answered: str = ""
    """Digest of the last list that was sent again with notes in place of lost tool results, to try that only once."""

    @property
    def unknown_view(self) -> str:
        """Store key of another conversation, if the history begins with a compacted list (a view) of that conversation
        and no known store has its originals; empty otherwise."""
        history = self.tracker.history
        turn_id = unknown_view(history)
        messages = history.messages_of(history.by_id[turn_id]) if turn_id else ()
        return next(filter(None, map(noted_key, messages)), "")

    def note_known_state(self, **changes: Any) -> None:
        """Change fields of `known_state`, which describes the state in the store."""
        self.known_state = replace(self.known_state, **changes)

    @property
    def frame(self) -> Frame:
        """Frame in force: the changes to the history that make the next list."""
        return self.committed.frame

    @property
    def is_sent(self) -> bool:
        """True if the next list has the same changes to the history as the list that was sent last."""
        return first_disagreement(self.last.frame, self.frame) is None

    def take(self, messages: Sequence[object], *, is_shared: bool) -> Arrival:
        """Add the new messages of the caller's list to the history, and make `view` a valid list for it.

        `is_shared`: another process may have sent the messages that are new to this one.

        Raises:
            TranscriptError: `messages` is not a list of messages; nothing has changed.
        """
        tracker, arrival = self.tracker.extended_by(messages)
        self.tracker, self.arrival = tracker, arrival
        is_new = not is_shared or arrival.changed  # else another process may have sent them already
        self.unsent_from = min(arrival.start if is_new else len(tracker), self.last.messages)
        committed, plan = self.committed, self.frame.plan
        if arrival.changed:  # the frame's changes before the first changed message stay
            self.undoable, self.thought_since = (), 0
            stored = min(committed.messages, arrival.start)
            committed = Committed(committed.frame.up_to(arrival.start), messages=stored)
        elif arrival.edited:  # the store and the frame's texts have the old content of these messages
            stored = min(committed.messages, *arrival.edited)
            committed = replace(committed, frame=committed.frame.without_text_of(arrival.edited), messages=stored)
            self._forget_earlier_texts(arrival.edited)
        self.outdated_plan = plan if arrival.edited and committed.frame.plan is None else None
        frame = self.without_refused_thinking(committed.frame, self.thought_since)
        if is_shared and self.strips_thinking:
            frame = self._without_unknown_thinking(frame, arrival)
        if arrival.changed or arrival.replaced or frame is not committed.frame:  # make the whole view again
            is_whole = arrival.changed and frame.is_empty  # nothing is left out, so nothing stored is needed
            self.take_into_force(Committed() if is_whole else replace(committed, frame=frame))
        else:  # only add the new messages
            self.view = self.view.extended(frame, tracker, arrival.start)
        return arrival

    def _forget_earlier_texts(self, edited: frozenset[int]) -> None:
        """Forget the earlier lists with texts of messages that the caller `edited`, so that none can be sent again."""

        def others(lists: tuple[Undoable, ...]) -> tuple[Undoable, ...]:
            return tuple(older for older in lists if not older.frame.has_text_of(edited))

        self.undoable = others(self.undoable)
        self.last = replace(self.last, undoable=others(self.last.undoable))

    def _without_unknown_thinking(self, frame: Frame, arrival: Arrival) -> Frame:
        """Return `frame` without the thinking of answers to lists that another process sent, as the API may refuse it
        after any other list. This process knows the messages up to the last list that it sent; if it sent none yet, up
        to the first answer."""
        plain, last = self.tracker.plain, self.last
        start = arrival.start
        if last.at is None:  # nothing was sent yet
            start = 1 + next((at for at, message in enumerate(plain) if message["role"] == "assistant"), len(plain))
        elif 0 < last.messages <= len(plain) and self.tracker.digests[last.messages - 1] == last.newest:
            start = last.messages + int(last.is_answered)  # the answer to the last list is known, too
        stripped = frame.without_thinking_from(plain, start)
        self.unknown_answers |= stripped.unthinking - frame.unthinking
        return stripped

    def without_refused_thinking(self, frame: Frame, since: int = 0) -> Frame:
        """Return `frame` changed to leave out thinking (the model's reasoning) that the API would refuse in messages
        from index `since` on."""
        return without_refused_thinking(frame, self.last.frame, self.tracker, since) if self.strips_thinking else frame

    def take_into_force(self, committed: Committed, view: View | None = None) -> None:
        """Use the frame (changes) in `committed` for all following lists. `view`: the list it makes, if known."""
        self.committed, self.view = committed, view or View.of(committed.frame, self.tracker)
        self.cached_messages = min(self.cached_messages, len(self.view.messages))
        if committed.key and committed.key not in self.keys:
            self.keys.append(committed.key)

    def commit(self, frame: Frame, store: SessionStore, view: View | None = None) -> None:
        """Store the content that `frame` leaves out of the list, its new plan and facts; then use `frame` for all
        following lists. `view`: the list it makes, if known.

        Raises:
            StoreError: the content could not be stored; nothing has changed.
        """
        tracker, before, view = self.tracker, self.committed, view or View.of(frame, self.tracker)
        plan = frame.plan if not frame.plan_id else None  # not stored yet; the facts of one refer to the whole history
        has_all = before.messages == len(tracker) or (plan is None and before.holds(frame, len(tracker)))
        if not (before.key and has_all):  # something that the frame leaves out, or that a fact cites, is not stored
            before = replace(before, key=store.save(tracker.history), messages=len(tracker))
        if plan is not None:
            frame = replace(frame, plan_id=store.use(lambda opened: opened.save_plan(plan)))
            store.use(lambda opened: opened.save_facts(plan.extracted_facts, before.key, plan.secrets))
        committed = replace(before, frame=frame)
        if frame.head:  # so that the list is recognized if a caller without this session passes it
            known = {"owner": self.owner, "key": committed.key, "plan_id": committed.frame.plan_id}
            store.use(lambda opened: remember_view(opened, view.messages, tracker.history, frame.start, **known))
        self.unknown_answers = frozenset()
        self.take_into_force(committed, view)

    def fall_back(self) -> None:
        """Return to the list that was sent last, after the store failed to save what the next one would leave out. The
        last list leaves out only what the store has, and it is valid because the newest answers belong to it."""
        length, last = len(self.tracker), self.last.frame.without_text_of(self.arrival.edited)
        before, self.undoable = replace(self.committed, frame=last), self.last.undoable
        if not before.holds(before.frame, length):  # the caller has changed messages since
            before = replace(before, frame=before.frame.up_to(before.messages))
        before = replace(before, frame=self.without_refused_thinking(before.frame))
        if self.unknown_answers:  # with their thinking the list would be refused; the caller still has it
            unthinking = before.frame.unthinking | self.unknown_answers
            before = replace(before, frame=replace(before.frame, unthinking=unthinking))
        self.take_into_force(before)
        self.cached_messages = 0

    def note_compaction(self, before: Frame) -> None:
        """Count a compaction, and keep the state of the list `before` it, so that `undo` can return to it."""
        self.compactions += 1
        # The plan is kept without its analysis, which is as large as the history and is made again when needed.
        older = replace(before, plan=before.plan and before.plan.unbound())
        self.undoable = (*self.undoable, Undoable(older, None))[-MOST_UNDOABLE:]

    def note_use(self, store: SessionStore) -> None:
        """Record in the store, at most once an hour, that the originals are in use, or it would delete them as old."""
        key, now = self.committed.key, store.clock()
        if key and now - self.noted_at >= NOTED_SECONDS:
            self.noted_at = now
            with suppress(StoreError):
                store.use(lambda opened: opened.note_use(key))

    def note_sent(self, sent: Sequence[object], at: float) -> None:
        """Record that the list `sent` was sent at the time `at`, so that the model's next answer belongs to it."""
        length = len(self.tracker)
        self.tracker = self.tracker.recognizing(sent, len(self.frame.head))
        self.cached_messages, self.thought_since = len(sent), 0
        self.undoable = tuple(
            older._replace(thought_since=length) if older.thought_since is None else older for older in self.undoable
        )
        newest = self.tracker.digests[-1] if length else ""
        self.last = LastList(length, self.view.total, at, self.frame, self.undoable, newest)
