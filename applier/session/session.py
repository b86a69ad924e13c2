"""`Session`: the one object that a host talks to. It holds the lock and the state; `call` says what happens at a call.

Never raises out of `prepare`, never changes the caller's list, and never sends a list whose removed originals are not
in the store.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from applier.session import call
from applier.session.carryover import FileMarks
from applier.session.compaction import Compaction, SessionState
from applier.session.events import Event, EventLog, Hooks
from applier.session.gauge import WINDOW_EXCEEDED, read_too_long, stop_reason_of, used_input_tokens
from applier.session.history_tracker import HistoryTracker
from applier.session.persistence import SessionStore, load_session
from applier.session.planning import Breaker, Planning, Worker
from applier.session.presets import Preset, preset_of
from applier.session.request import AgentCall
from applier.session.state import State
from applier.settings import SessionSettings, load_settings
from applier.store.excerpt import find_matches
from applier.store.protocol import Restored, SearchResult, Store
from planner.api import PlannerChoice, check_argument, check_planner, check_system, check_tools
from planner.errors import ReferenceNotFound, SettingsError, StoreDamaged, StoreError
from planner.plan import CompactionPlan
from planner.proposal import AgentRequest
from planner.reading.lines import Part
from planner.reading.messages import Block
from planner.reading.tokens import TokenCounter

__all__ = ["Session"]

logger = logging.getLogger("applier.session")

PAGE_CHARACTERS, PAGE_SHARE = 20_000, 0.7
"""What one look behind a reference brings: about 5,000 to 10,000 tokens, so that it never fills the window; in a small
one at most so many characters for each token of the limit."""
CLOSE_SECONDS = 5.0
"""So long `close` waits for a call that another thread is in."""
FORK_SECONDS = 2.0
"""So long a fork waits for calls that other threads are in, all sessions together; by rules they take less."""


class Session:
    """Keeps one agent within its window.

    ::

        with Session("fix the token refresh race", client=client, model=model) as session:
            while True:
                response = client.messages.create(messages=session.prepare(messages), ...)
                session.observe(response)
                messages.append({"role": "assistant", "content": response.content})
                ...

    The caller's list may keep growing uncompacted, or be replaced by what `prepare` returned; either is
    recognised. All methods may be called from several threads; one runs at a time.
    """

    def __init__(
        self,
        task: str = "",
        *,
        preset: str | Preset | None = None,
        settings: SessionSettings | None = None,
        store: Store | str | Path | SessionStore | None = None,
        planner: PlannerChoice | None = None,
        model: str = "",
        client: Any = None,
        system: str | Sequence[Block] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        window_tokens: int | None = None,
        max_output_tokens: int | None = None,
        clock: Callable[[], float] = time.time,
        hooks: Hooks | None = None,
        session_id: str | None = None,
    ) -> None:
        """Open, or with a known `session_id` and the same `store` continue, a session.

        What is None comes from the environment, the project file, or the defaults of `SessionSettings`
        (preset ``relevance``, planner ``auto``, a window of 200,000 tokens). `task` may be assigned later;
        empty means the user's own words. `model` is the agent's; it decides token counts, cache prices and
        what happens to thinking. `client` is the planner's. `store` is a store, a path, or None for the
        default file, opened when first needed. `hooks` maps event kinds (``"*"`` for all) to callables.

        Raises:
            SettingsError: an argument of the wrong type, an unknown preset, planner or hook, or system and tools
                alone leave no room in the window.
            StoreError: `session_id` was given and the store cannot be read.
        """
        settings = _settings(settings, window_tokens, max_output_tokens)
        planner = settings.planner if planner is None else planner
        check_planner(planner)
        _check_task(task)
        _check_request(model, system, tools, max_output_tokens)
        check_argument("preset", preset, str | Preset, "a name or a Preset")
        check_argument("hooks", hooks, Mapping, "callables by event kind")
        check_argument("session_id", session_id, str, "text")
        if not callable(clock):
            raise SettingsError(f"clock: expected a function that gives seconds, found {type(clock).__name__}")
        self.session_id = session_id or uuid.uuid4().hex[:12]
        self._lock = threading.RLock()
        self._hooks, self._children = hooks, 0
        shared = SessionStore(store)
        log = EventLog(self.session_id, clock, hooks, shared)
        worker = Worker[CompactionPlan](settings.background_debounce_seconds)
        breaker = Breaker(settings.max_failures, settings.rest_seconds)
        asked = Planning(planner, settings.planner_model, client, settings.plan, clock, log, breaker, worker, task)
        chosen = preset_of(settings.preset if preset is None else preset, settings)
        request = AgentCall(model or settings.plan.target_model, system, tools)
        self._state = _new_state(self.session_id, settings, chosen, shared, log, asked, clock, request)
        if self._state.no_room:
            raise SettingsError(self._state.no_room)
        if session_id is not None:
            _resume(self._state)
        _SESSIONS.add(self)

    @property
    def task(self) -> str:
        """What the agent works on; relevance is judged against it. May be assigned."""
        return self._state.planning.task

    @task.setter
    def task(self, task: str) -> None:
        _check_task(task)
        with self._lock:
            self._state.planning.task = task

    def prepare(self, messages: Sequence[object]) -> list[Any]:
        """What to send now, for the caller's whole list `messages` (dicts or SDK objects).

        Work is proportional to the new messages while nothing is to be done, and the returned list starts
        with the same messages as the last one until a compaction really happens. Never raises: whatever
        fails, a valid list comes back and the log says what happened.
        """
        with self._lock:
            return call.prepare(self._state, messages) if messages else []

    def observe(self, response: object) -> None:
        """Take the provider's answer to the list last prepared: its ``usage`` calibrates the gauge.

        `response` is an SDK message, a dict, or the usage itself; anything else is ignored. An answer that the
        window cut off has the next `prepare` compact.
        """
        with self._lock:
            state = self._state
            state.take_usage(used_input_tokens(response))
            if stop_reason_of(response) == WINDOW_EXCEEDED:
                call.request(state, "window_exceeded")

    def note_sent(
        self,
        body: Mapping[str, Any],
        client: Any,
        *,
        path: str = "/v1/messages",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Tell what was sent to the provider, for middleware that has the whole request, once it was answered.

        A planner without a client of its own then asks the agent's `client`, behind the prefix that the provider has
        cached or with cards.

        Raises:
            SettingsError: an argument of the wrong type.
        """
        check_argument("body", body, Mapping, "a dict")
        check_argument("headers", headers, Mapping, "a dict")
        with self._lock:
            planning = self._state.planning
            planning.agent_request = AgentRequest(body, client, 0.0, path, dict(headers or {}))
            planning.asked_at = self._state.clock()

    def set_request(
        self,
        *,
        model: str = "",
        system: str | Sequence[Block] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: Mapping[str, Any] | None = None,
        thinking: Mapping[str, Any] | None = None,
        betas: Sequence[str] | Set[str] | None = None,
        max_output_tokens: int | None = None,
        client_follows: bool = False,
    ) -> None:
        """Tell what else the next request holds, for callers (middleware) that learn it per request.

        With `client_follows` the caller calls `note_sent` once the request is answered, and a planner that asks with
        the agent's client waits for that.
        What is left out counts as not known; `model` as the one known before. System and tools that leave no room are
        no error here: the log says so, and nothing automatic is done.

        Raises:
            SettingsError: an argument of the wrong type; what was known before stands.
        """
        _check_request(model, system, tools, max_output_tokens)
        check_argument("tool_choice", tool_choice, Mapping, "a dict")
        check_argument("thinking", thinking, Mapping, "a dict")
        check_argument("betas", betas, list | tuple | Set, "a list of names")
        with self._lock:
            state = self._state
            state.planning.client_follows = client_follows
            state.take_call(
                AgentCall(model, system, tools, tool_choice, thinking, tuple(betas or ()), max_output_tokens)
            )
            was, state.is_blocked = state.is_blocked, bool(state.no_room)
            if state.is_blocked and not was:
                state.log("fixed_parts_too_large", state.no_room)

    def compact(self, messages: Sequence[object], focus: str = "", dry_run: bool = False) -> Compaction:
        """Compact now, whatever the triggers say; with `dry_run` only show it, writing nothing.

        What stood in the way, if it was not done, is the result's ``reason``.

        Raises:
            TranscriptError: `messages` is not a list of messages.
        """
        with self._lock, self._state.log.unrecorded() if dry_run else nullcontext():
            return call.compact(self._state, messages, focus, dry_run=dry_run)

    def request_compaction(self, focus: str = "") -> None:
        """Compact at the next `prepare`: what the model's own ``compact`` tool calls."""
        with self._lock:
            call.request(self._state, "tool", focus)

    def recover(self, messages: Sequence[object], error: object) -> list[Any] | None:
        """What to send instead, after the provider answered `error` to the list last prepared.

        None if the error is not about the prompt's length, or nothing shorter can be sent: raise it then.
        The reactive retry is given once per prepared list; it is more aggressive than any trigger.
        """
        refused = read_too_long(error)
        if refused is None:
            return None
        with self._lock:
            return call.recover(self._state, messages, refused)

    def undo(self) -> bool:
        """Take back the last compaction, ten at most; False if there is none. The next `prepare` sends the older view,
        unless that leaves out something (thinking bound to the newer one) which the store does not take.

        Automatic compaction then waits until the list has grown further or the window forces it.
        """
        with self._lock:
            return call.undo(self._state)

    def restore(
        self,
        reference: str,
        *,
        lines: tuple[int, int] | None = None,
        search: str | None = None,
        max_characters: int | None = None,
    ) -> Restored:
        """The stored original behind `reference` (``h1a2b3c4d:t12``, or ``t12`` of this session).

        Whole, the lines first to last (from 1, included), or those that match `search`; `max_characters` gives it in
        pages, see `Restored.next_line`. After a restart the turns behind the last compaction are known again from the
        first `prepare` on; all that was removed always is.

        Raises:
            ReferenceNotFound: nothing in this session, or in those of its family, has that name.
        """
        if not isinstance(reference, str):
            raise ReferenceNotFound(f"{reference!r} is no reference; expected one like t12")
        with self._lock:
            state, name = self._state, reference.strip()
            if len(state.tracker):
                key = state.store.use(lambda store: store.save_history(state.tracker.history))
                state.store_anew()
                state.keys[:] = [*(known for known in state.keys if known != key), key]
                name = name if ":" in name else f"{key}:{name}"
            within = tuple(state.keys)
            try:
                return state.store.use(
                    lambda store: store.restore(
                        name, lines=lines, search=search, max_characters=max_characters, within=within
                    )
                )
            except ReferenceNotFound as error:
                if state.last_call_at is not None or not len(state.tracker):
                    raise
                raise ReferenceNotFound(f"{error}; later turns are known once `prepare` was called") from None

    def search(
        self, text: str, *, part: Part | None = None, tool: str | None = None, limit: int | None = 20
    ) -> SearchResult:
        """The turns of the whole history that match `text`, best first; see `Store.search`.

        Raises:
            SettingsError: an argument of the wrong type.
            StoreError: `text` is too long, or as a pattern takes too long.
        """
        if not isinstance(text, str):
            raise SettingsError(f"text: expected text to search for, found {type(text).__name__}")
        check_argument("tool", tool, str, "a tool's name")
        check_argument("limit", limit, int, "a number of turns")
        with self._lock:
            return find_matches(self._state.tracker.history, text, part=part, tool=tool, limit=limit)

    @property
    def page_characters(self) -> int:
        """How much a tool by which the agent looks back should answer at once, so that it fits and is never cut."""
        return min(PAGE_CHARACTERS, int(self._state.limit_tokens * PAGE_SHARE))

    def log(self) -> list[Event]:
        """Everything that happened in this session, oldest first, earlier processes included."""
        with self._lock:
            return list(self._state.log.events)

    @property
    def state(self) -> SessionState:
        """Where the session stands after the last `prepare`."""
        with self._lock:
            return SessionState.of(self._state)

    def child(self, task: str, window_tokens: int | None = None) -> Session:
        """A session for a subagent: its own history and budget, the same store, preset and planner."""
        with self._lock:
            self._children += 1
            state = self._state
            child = Session(
                task,
                preset=state.preset,
                settings=state.settings,
                store=state.store,
                planner=state.planning.planner,
                model=state.model,
                client=state.planning.client,
                window_tokens=window_tokens,
                clock=state.clock,
                hooks=self._hooks,
                session_id=f"{self.session_id}.{self._children}",
            )
            state.keys += child._state.keys
            child._state.keys = state.keys
            return child

    def close(self) -> None:
        """Commit the history; a store that the session opened itself is closed. Waits for nothing longer than 5 s.

        Never raises: if the store fails, the log says so, and all that was removed is in it already.
        """
        if not self._lock.acquire(timeout=CLOSE_SECONDS):
            logger.warning("session %s: closed while a call was running; its store stays open", self.session_id)
            return
        try:
            state = self._state
            state.planning.worker.close()
            try:
                if state.store.is_open and len(state.tracker):
                    state.store.use(lambda store: store.save_history(state.tracker.history))
            except StoreError as error:
                state.log("store_failed", f"the newest messages were not stored: {error}")
            state.store.close()
        finally:
            self._lock.release()

    def _after_fork(self) -> None:
        """In a child process: a lock that another thread held is held for ever, and what it was doing half done."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
            return
        self._lock = threading.RLock()
        self._state.store.after_fork()
        self._state = _fresh(self._state)

    def __enter__(self) -> Self:
        """The session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


_SESSIONS: weakref.WeakSet[Session] = weakref.WeakSet()
_held: list[Session] = []
"""Sessions whose locks are held while the process forks."""


def _before_fork() -> None:
    """Wait, for a while, until no other thread is in a call.

    What a call holds besides its session's lock (of a module that it imports) would be held in the child for ever.
    """
    deadline = time.monotonic() + FORK_SECONDS
    _held.extend(s for s in list(_SESSIONS) if s._lock.acquire(timeout=max(0.0, deadline - time.monotonic())))


def _forked(*, in_child: bool) -> None:
    while _held:
        _held.pop()._lock.release()
    if in_child:
        for session in list(_SESSIONS):
            session._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _forked(in_child=False),
        after_in_child=lambda: _forked(in_child=True),
    )


def _check_task(task: object) -> None:
    """Raise a SettingsError unless `task` is text; empty is the user's own words."""
    if not isinstance(task, str):
        raise SettingsError(f"task: expected text that says what the agent works on, found {type(task).__name__}")


def _check_request(model: object, system: object, tools: object, max_output_tokens: object) -> None:
    """Raise a SettingsError unless these can be of a request."""
    check_argument("model", model, str, "text")
    check_system(system)
    check_tools(tools)
    check_argument("max_output_tokens", max_output_tokens, int, "a number of tokens")


def _settings(
    given: SessionSettings | None, window_tokens: int | None, max_output_tokens: int | None
) -> SessionSettings:
    """The settings as given or as they are found, with the sizes that were given beside them."""
    if given is not None and not isinstance(given, SessionSettings):
        raise SettingsError(f"settings: expected SessionSettings(…), found {type(given).__name__}")
    if given is None:
        return load_settings(window_tokens=window_tokens, max_output_tokens=max_output_tokens)
    sizes = {"window_tokens": window_tokens, "max_output_tokens": max_output_tokens}
    return given.changed(**{name: size for name, size in sizes.items() if size is not None})


def _new_state(
    session_id: str,
    settings: SessionSettings,
    preset: Preset,
    store: SessionStore,
    log: EventLog,
    planning: Planning,
    clock: Callable[[], float],
    request: AgentCall,
) -> State:
    """The state of a session that has seen nothing yet."""
    state = State(
        session_id=session_id,
        settings=settings,
        preset=preset,
        store=store,
        log=log,
        planning=planning,
        marks=FileMarks(settings.file_roots),
        clock=clock,
        keys=[],
        tracker=HistoryTracker(TokenCounter.for_model(request.model)),
        call=request,
        model=request.model,
        window_tokens=settings.window_tokens,
        max_output_tokens=settings.max_output_tokens,
        started_at=clock(),
        growth_tokens=preset.expected_growth_tokens,
        store_reopened=store.reopened,
    )
    state.take_call(request)
    return state


def _fresh(old: State) -> State:
    """A state that has seen nothing yet, for the same session."""
    worker = Worker[CompactionPlan](old.settings.background_debounce_seconds)
    planning = Planning(
        old.planning.planner,
        old.planning.planner_model,
        old.planning.client,
        old.settings.plan,
        old.clock,
        old.log,
        old.planning.breaker,
        worker,
        old.planning.task,
    )
    return _new_state(old.session_id, old.settings, old.preset, old.store, old.log, planning, old.clock, old.call)


def _resume(state: State) -> None:
    """Go on where an earlier process stopped, if there was one.

    Raises:
        StoreError: what is stored cannot be read.
    """
    saved = state.store.use(lambda store: load_session(store, state.session_id))
    state.log.load(state.store.use(lambda store: store.events(state.session_id)))
    if saved is None:
        return
    key = saved.committed.key
    if key:
        state.tracker.load(state.store.use(lambda store: store.load_history(key)))
    if max(known.frame.start for known in (saved.committed, saved.before or saved.committed)) > len(state.tracker):
        raise StoreDamaged(f"session {state.session_id}: its state goes beyond the history that is stored with it")
    state.resume(saved)
    state.log("resumed", f"{len(state.tracker)} messages, {state.compactions} compactions")
