"""`Session`: the only object that a host uses. It has the lock and the state; `chain` has the steps of a call.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from applier.session import chain
from applier.session.compaction import Compaction
from applier.session.events import Event, EventLog, Hooks
from applier.session.history_tracker import HistoryTracker
from applier.session.ledger import Ledger
from applier.session.persistence import SessionStore
from applier.session.planning import Planning
from applier.session.presets import Preset, preset_named
from applier.session.pressure import Pressure
from applier.session.refusals import WINDOW_EXCEEDED, read_refusal, stop_reason_of
from applier.session.request import AgentCall, used_input_tokens
from applier.session.sharing import Sharing
from applier.session.state import SessionState, Setup, State
from applier.settings import SessionSettings, load_settings
from applier.store.excerpt import find_matches
from applier.store.store import Restored, SearchResult, Store
from planner.api import PlannerChoice, check_argument, check_planner, check_request
from planner.errors import ReferenceNotFound, SettingsError, StoreError, TranscriptError
from planner.plan import CompactionPlan
from planner.prices import register_prices
from planner.proposal import AgentRequest
from planner.reading.lines import Part
from planner.reading.messages import Block, compacted_start, message_digest, plain_message
from planner.reading.tokens import TokenCounter
from planner.settings import declared_uses
from planner.validity import answer_calls

__all__ = ["Session"]

logger = logging.getLogger("applier.session")

PAGE_CHARACTERS, PAGE_SHARE = 20_000, 0.7
"""Characters of one page of restored content, 5,000 to 10,000 tokens, and at most so many characters for each token of
the limit."""
CLOSE_SECONDS = 5.0
"""Longest time that `close` waits for a call in another thread."""


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
    recognised. All methods may be called from several threads; one runs at a time. `state`, `task` and `log` never
    wait for another.
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
        clock: Callable[[], float] = time.time,
        hooks: Hooks | None = None,
        session_id: str | None = None,
        is_shared: bool = False,
    ) -> None:
        """Open a session; with a known `session_id` and the same `store`, continue it.

        None takes the value from the environment, the project file, or the defaults of `SessionSettings` (preset
        ``relevance``, planner ``auto``, a window of 200,000 tokens). `task` may be assigned later; empty means the
        user's own words. `model`: the agent's model, which decides token counts, cache prices and the treatment of
        thinking. `client`: the planner's client. `store`: a store, a path, or None for the default file, opened when
        first needed. `is_shared`: other processes may serve the same `session_id` from the same store, call by call.
        The store is read at the first call, and each answer must be passed to `observe`. `hooks` maps event kinds
        (``"*"`` for all) to callables.

        Raises:
            SettingsError: a wrong type, an unknown preset, planner or hook, system and tools that leave no room, or
                nothing to share the session by.
            StoreError: `session_id` was given, it is not shared, and the store cannot be read.
        """
        settings = _sized(settings, window_tokens)
        register_prices(settings.prices)
        planner = settings.planner if planner is None else planner
        check_planner(planner)
        check_request(model, system, tools)
        _check_session(task, preset, clock, hooks, session_id)
        self.session_id = session_id or uuid.uuid4().hex[:12]
        self._lock, self._hooks, self._children = threading.RLock(), hooks, 0
        self._owns_store = not isinstance(store, SessionStore)
        shared = store if isinstance(store, SessionStore) else SessionStore(store)
        shared.folder, shared.clock = settings.project, clock
        preset = preset_named(settings.preset if preset is None else preset).tuned(settings)
        log, call = EventLog(self.session_id, clock, hooks, shared), AgentCall(model or settings.plan.target_model)
        uses = declared_uses(settings.tool_uses, tools or ())
        tracker = HistoryTracker(TokenCounter.for_model(call.model), uses=uses)
        self._state = State(
            Setup(self.session_id, settings, preset, shared, log, clock, is_shared),
            Ledger(tracker, session_id or "", store_opening=shared.opening),
            Pressure(settings, call, preset.expected_growth_tokens),
            Planning(planner, client, settings, clock, log, task),
        )
        self._state.take_call(replace(call, system=system, tools=tools))
        self._draft: State | None = None
        self._mended = ""
        if no_room := self._state.pressure.no_room:
            raise SettingsError(no_room)
        self._sharing = Sharing(self.session_id) if is_shared else None
        if is_shared and session_id is None:
            raise SettingsError("is_shared: a session is shared by its session_id")
        if session_id is not None and not is_shared:
            self._state.resume()
        _SESSIONS.add(self)

    @contextmanager
    def _alone(self) -> Iterator[State]:
        """Yield a copy of the state to one caller at a time; it becomes the state at the end, in one step.

        An interrupted call leaves the session unchanged. A hook that calls the session works on the same copy.
        """
        with self._lock:
            if self._draft is not None:
                yield self._draft
                return
            try:
                self._draft = draft = self._state.copy()
                yield draft
                self._state = draft
            finally:
                self._draft = None

    @contextmanager
    def _turn(self) -> Iterator[State]:
        """Yield the same as `_alone`, after loading the state from the last call in any process."""
        with self._alone() as state, self._sharing.turn(state) if self._sharing else nullcontext():
            yield state

    def _note(self, state: State) -> None:
        if self._sharing is not None:
            self._sharing.note(state)

    def mark(self, marks: list[str]) -> None:
        """Store `marks`, by which the keeper of sessions recognises the conversation; for a shared session, for every
        process."""
        self._state.setup.marks[:] = marks

    @property
    def task(self) -> str:
        """Task of the agent, on which relevance depends. May be assigned."""
        return self._state.planning.task

    @task.setter
    def task(self, task: str) -> None:
        _check_task(task)
        with self._alone() as state:
            state.planning.task = task

    def prepare(self, messages: Sequence[object]) -> list[Any]:
        """Return the list to send now, for the caller's whole list `messages` (dicts or SDK objects).

        While there is nothing to do, known messages are only compared, and the returned list starts with the same
        messages as the last one. Never raises: after any failure a valid list is returned and the log reports it.
        """
        closed, messages = _split(messages)
        with self._turn() as state:
            if not messages:
                return []
            made, sent = chain.prepare(state, messages)
            state.become(made)
            return [*closed, *sent]

    async def prepare_async(self, messages: Sequence[object]) -> list[Any]:
        """Return the result of `prepare` from a thread of its own; the event loop continues meanwhile."""
        import asyncio  # the core is synchronous: a caller that uses threads of its own need not load it

        return await asyncio.to_thread(self.prepare, messages)

    def observe(self, response: object) -> None:
        """Read the provider's answer to the last prepared list: its ``usage`` calibrates the gauge.

        `response` is an SDK message, a dict, or the usage itself; anything else is ignored. After an answer that the
        window cut off, the next `prepare` compacts.
        """
        with self._alone() as state:
            used, last, pressure = used_input_tokens(response), state.ledger.last, state.pressure
            pressure.gauge = pressure.gauge.calibrated(last.counted_tokens, used, pressure.limit_tokens)
            state.ledger.last = replace(last, is_answered=last.is_answered or used > 0)
            if stop_reason_of(response) == WINDOW_EXCEEDED:
                pressure.request("window_exceeded")
            if stop_reason_of(response) == "end_turn" and state.is_in_turn:
                chain.plan_ahead(state, is_turn_over=True)
            self._note(state)

    def note_sent(
        self,
        body: Mapping[str, Any],
        client: Any,
        *,
        path: str = "/v1/messages",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Record the request that was sent and answered, for middleware that has the whole request.

        A planner without its own client then uses the agent's `client`, after the prefix that the provider has cached
        or with cards.

        Raises:
            SettingsError: an argument of the wrong type.
        """
        check_argument("body", body, Mapping, "a dict")
        check_argument("headers", headers, Mapping, "a dict")
        with self._alone() as state:
            state.planning.agent_request = AgentRequest(body, client, 0.0, path, dict(headers or {}))
            state.planning.asked_at = state.setup.clock()

    def set_request(
        self,
        *,
        model: str = "",
        system: str | Sequence[Block] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: Mapping[str, Any] | None = None,
        max_output_tokens: int | None = None,
        cache_control: Mapping[str, Any] | None = None,
        client: Any = None,
        client_follows: bool = False,
    ) -> None:
        """Record the other fields of the next request, for callers (middleware) that learn them per request.

        `client` replaces the planner's, if it has one, as the key of a login changes after some hours. With
        `client_follows` the caller calls `note_sent` after the answer, and a planner that uses the agent's client waits
        for that. Missing arguments count as unknown; a missing `model` means the last one. If system and tools leave no
        room, the log reports it and nothing automatic happens.

        Raises:
            SettingsError: an argument of the wrong type; nothing has changed.
        """
        check_request(model, system, tools)
        check_argument("max_output_tokens", max_output_tokens, int, "a number of tokens")
        check_argument("thinking", thinking, Mapping, "a dict")
        check_argument("cache_control", cache_control, Mapping, "a dict")
        with self._alone() as state:
            state.planning.client_follows = client_follows
            state.planning.client = state.planning.client and (client or state.planning.client)
            state.take_call(AgentCall(model, system, tools, thinking, max_output_tokens, cache_control))
            no_room = state.pressure.no_room
            state.pressure.is_full = bool(no_room)
            state.setup.log.trouble("fixed_parts_too_large", "no room" if no_room else "", no_room)

    def compact(
        self, messages: Sequence[object], focus: str = "", dry_run: bool = False, at_limit: bool = False
    ) -> Compaction:
        """Compact now, whatever the triggers are; with `dry_run` only show the result and write nothing.

        `at_limit`: the present prompt counts as the window, so that a share of it is left. The result's ``reason``
        explains why nothing was compacted.

        Raises:
            TranscriptError: `messages` is not a list of messages.
        """
        closed, messages = _split(messages)
        with self._turn() if not dry_run else self._alone() as state:
            state.setup.log.records = not dry_run
            try:
                done = chain.compact(state, messages, focus, dry_run=dry_run, at_limit=at_limit)
            finally:
                state.setup.log.records = True
        first = done.first_changed_message
        changed = None if first is None else first + len(closed)
        return replace(done, messages=[*closed, *done.messages], first_changed_message=changed) if closed else done

    def plan_ahead(self, messages: Sequence[object]) -> bool:
        """Ask the model for the next `compact` now, and store its plan for this process or another; False if none was
        asked.

        `compact` goes on from it by rules, without a question, while the history begins with the one that was planned;
        not with a focus.

        Raises:
            TranscriptError: `messages` is not a list of messages.
            StoreError: the plan cannot be stored.
        """
        _, messages = _split(messages)
        with self._turn() as state:
            return chain.store_plan_ahead(state, messages)

    def request_compaction(self, focus: str = "") -> None:
        """Compact at the next `prepare`; the model's own ``compact`` tool calls this."""
        with self._alone() as state:
            state.pressure.request("tool", focus)
            self._note(state)

    def recover(self, messages: Sequence[object], error: object) -> list[Any] | None:
        """Return the list to send instead, after the provider answered the last prepared list with `error`.

        After an error about the prompt's length this is a shorter list, once per prepared list and shorter than any
        trigger makes it. After an error about calls without results it has a note for each. None after other errors, or
        if nothing helps: raise the error then. Never raises.
        """
        refused = read_refusal(error)
        if refused is None:
            return self._answered(messages, error)
        closed, messages = _split(messages)
        with self._turn() as state:
            shorter = chain.recover(state, messages, refused)
        return None if shorter is None else [*closed, *shorter]

    def _answered(self, messages: Sequence[object], error: object) -> list[Any] | None:
        """Return the prepared list with a note for each lost result, once for a list; None if that changes nothing."""
        if "tool_result" not in str(error) and "tool_call" not in str(error):
            return None
        sent = self.prepare(messages)
        try:
            mended = answer_calls([plain_message(message) for message in sent])
        except TranscriptError:
            return None
        digest = "".join(map(message_digest, mended))
        if mended == sent or digest == self._mended:
            return None
        self._mended = digest
        return mended

    def undo(self) -> bool:
        """Undo the last compaction, at most ten in a row; return False if there is none. The next `prepare` sends the
        older view, unless the store fails to save what that view leaves out.

        Automatic compaction then waits until the list has grown further or the window forces it.
        """
        with self._turn() as state:
            return chain.undo(state)

    def restore(
        self,
        reference: str,
        *,
        lines: tuple[int, int] | None = None,
        search: str | None = None,
        max_characters: int | None = None,
    ) -> Restored:
        """Return the stored original of a turn: ``t12`` of this session, or ``h1a2b3c4d:t12`` of its family.

        Return the whole turn, only `lines` (first to last, from 1), or only lines that match `search`; `max_characters`
        returns a page, see `Restored.next_line`. After a restart, turns after the last compaction are known again from
        the first `prepare` on; removed turns always are.

        Raises:
            ReferenceNotFound: neither this session nor its family has that reference.
        """
        if not isinstance(reference, str):
            raise ReferenceNotFound(f"{reference!r} is no reference; expected one like t12")
        with self._alone() as state:
            ledger, store, own = state.ledger, state.setup.store, state.ledger.committed.key
            name, known = reference.strip(), len(ledger.tracker) > 0
            if known:
                with suppress(StoreError):  # a full disk can still be read
                    own = store.save(ledger.tracker.history)
                    state.give_up_lost()
                    ledger.keys[:] = [*(older for older in ledger.keys if older != own), own]
            if own and ":" not in name:
                name = f"{own}:{name}"
            within, most = tuple(ledger.keys), max_characters
            try:
                return store.use(
                    lambda store: store.restore(name, lines=lines, search=search, max_characters=most, within=within)
                )
            except ReferenceNotFound as error:
                if ledger.last.at is not None or not known:
                    raise
                unknown = f"{error}; later turns are known once `prepare` was called"
                raise ReferenceNotFound(unknown, error.elsewhere) from None

    def search(
        self, text: str, *, part: Part | None = None, tool: str | None = None, limit: int | None = 20
    ) -> SearchResult:
        """Return the turns of the whole history that match `text`, best first; see `Store.search`.

        Raises:
            SettingsError: an argument of the wrong type.
            StoreError: `text` is too long, or as a pattern takes too long.
        """
        if not isinstance(text, str):
            raise SettingsError(f"text: expected text to search for, found {type(text).__name__}")
        check_argument("tool", tool, str, "a tool's name")
        check_argument("limit", limit, int, "a number of turns")
        with self._alone() as state:
            return find_matches(state.ledger.tracker.history, text, part=part, tool=tool, limit=limit)

    @property
    def page_characters(self) -> int:
        """Largest length of one answer of the agent's look-up tools, so that it fits and is never cut."""
        return min(PAGE_CHARACTERS, int(self._state.pressure.limit_tokens * PAGE_SHARE))

    def log(self) -> list[Event]:
        """Events of this session, oldest first, earlier processes included."""
        return list(self._state.setup.log.events)

    @property
    def state(self) -> SessionState:
        """State of the session after the last complete call; does not wait for a running call."""
        return SessionState.of(self._state)

    @property
    def plan(self) -> CompactionPlan | None:
        """Plan in force, with its history unless another process made it; None without a plan."""
        return self._state.ledger.frame.plan

    def child(self, task: str, window_tokens: int | None = None) -> Session:
        """Return a session for a subagent: its own history and budget, the same store, preset and planner."""
        with self._alone() as state:
            self._children += 1
            child = Session(
                task,
                preset=state.setup.preset,
                settings=state.setup.settings,
                store=state.setup.store,
                planner=state.planning.planner,
                model=state.pressure.call.model,
                client=state.planning.client,
                window_tokens=window_tokens,
                clock=state.setup.clock,
                hooks=self._hooks,
                session_id=f"{self.session_id}.{self._children}",
            )
            state.ledger.keys += child._state.ledger.keys
            child._state.ledger.keys = state.ledger.keys
            return child

    def close(self) -> None:
        """Commit the history and close a store that the session opened itself. Waits 5 s at most for anything.

        Never raises: the log reports a failure of the store, which already has everything that was removed.
        """
        if not self._lock.acquire(timeout=CLOSE_SECONDS):
            logger.warning("session %s: closed while a call was running; its store stays open", self.session_id)
            return
        state = self._state
        store, tracker = state.setup.store, state.ledger.tracker
        state.planning.worker.is_closed = True
        try:
            if store.is_open and len(tracker):
                store.save(tracker.history)
        except StoreError as error:
            state.setup.log("store_failed", f"the newest messages were not stored: {error}")
        finally:
            if self._owns_store:
                store.close()
            self._lock.release()

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close it."""
        self.close()


_SESSIONS: weakref.WeakSet[Session] = weakref.WeakSet()


def _in_forked_child() -> None:
    """Replace a lock that another thread of the parent process had, because nobody releases it in the child."""
    for session in list(_SESSIONS):
        if session._lock.acquire(blocking=False):
            session._lock.release()
        else:
            session._lock, session._draft = threading.RLock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


def _check_task(task: object) -> None:
    """Raise a SettingsError unless `task` is text; an empty text means the user's own words."""
    if not isinstance(task, str):
        raise SettingsError(f"task: expected text that describes the agent's task, found {type(task).__name__}")


def _split(messages: Sequence[object]) -> tuple[list[object], Sequence[object]]:
    """Return the messages before the server's newest compaction, which are sent unchanged and not read any more, and
    the session's messages after them."""
    start = compacted_start(messages) if isinstance(messages, list | tuple) else 0
    return (list(messages[:start]), messages[start:]) if start else ([], messages)


def _sized(settings: object, window_tokens: int | None) -> SessionSettings:
    """Return `settings` (default: of environment and project) with this window, if it is not None."""
    check_argument("settings", settings, SessionSettings, "SessionSettings(…)")
    if not isinstance(settings, SessionSettings):
        return load_settings(window_tokens=window_tokens)
    return settings if window_tokens is None else settings.changed(window_tokens=window_tokens)


def _check_session(task: object, preset: object, clock: object, hooks: object, session_id: object) -> None:
    _check_task(task)
    check_argument("preset", preset, str | Preset, "a name or a Preset")
    check_argument("hooks", hooks, Mapping, "callables by event kind")
    check_argument("session_id", session_id, str, "text")
    if not callable(clock):
        raise SettingsError(f"clock: expected a function that gives seconds, found {type(clock).__name__}")
