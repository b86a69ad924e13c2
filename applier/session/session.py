"""`Session`, which shortens the message list of a running agent so that it always fits the model's context window.

It is the only object that an agent's program uses: it locks and stores the state, and `chain` does the work of each
call. `prepare` never raises, never changes the caller's list, and removes nothing that is not in the store first.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from operator import is_
from pathlib import Path
from typing import Any, Self

from applier.session import chain
from applier.session.compaction import Compaction
from applier.session.events import Event, Hooks
from applier.session.planning import Planning
from applier.session.presets import Preset
from applier.session.refusals import read_refusal
from applier.session.request import AgentCall
from applier.session.sharing import Sharing
from applier.session.state import SessionState, Setup, State
from applier.session.undo import undo
from applier.settings import SessionSettings
from applier.store.excerpt import Restored, SearchResult, check_selection, find_matches
from applier.store.opening import SessionStore
from applier.store.store import Store
from planner.api import PlannerChoice, check_argument, check_planner, check_request
from planner.errors import ReferenceNotFound, SettingsError, StoreError
from planner.plan import AgentRequest, CompactionPlan
from planner.reading.lines import Part
from planner.reading.messages import Block, compacted_start

logger = logging.getLogger("applier.session")

PAGE_CHARACTERS, PAGE_SHARE = 20_000, 0.7
"""Limits of one page of restored content: characters (5,000 to 10,000 tokens), and characters for each token that a
prompt may have. The smaller of the two counts, so that a page also fits a small window."""
MAX_CHILD_NUMBER = 10**15
"""Limit of the random numbers in the ids of children, large enough that two processes never draw the same one."""
CLOSE_SECONDS = 5.0
"""Longest time that `close` waits for a call that still runs in another thread."""


class CallGuard:
    """Holder of a session's state, which lets only one call at a time change it, also if several threads call."""

    def __init__(self, state: State) -> None:
        """Begin with `state` as the session's state."""
        self.state = state
        self._lock, self._process = threading.RLock(), os.getpid()
        self._draft: State | None = None  # copy on which a running call works
        self._sharing = Sharing(state.setup.session_id) if state.setup.is_shared else None

    @property
    def lock(self) -> threading.RLock:
        """Lock of the session's calls. In a forked process it is a new one if another thread of the parent held it, as
        that thread does not exist here, so that nobody would release the lock."""
        if self._process != os.getpid():  # a forked process
            self._process = os.getpid()
            if self._lock.acquire(blocking=False):
                self._lock.release()
            else:
                self._lock, self._draft = threading.RLock(), None
        return self._lock

    @contextmanager
    def exclusively(self) -> Iterator[State]:
        """Yield a copy of the state to one thread at a time; when the block ends, the copy becomes the state. So an
        interrupted call changes nothing. A hook that calls the session within a call works on the same copy."""
        with self.lock:
            if self._draft is not None:  # a hook calls
                yield self._draft
                return
            try:
                self._draft = draft = self.state.copy()
                yield draft
                self.state = draft
            finally:
                self._draft = None

    @contextmanager
    def across_processes(self) -> Iterator[State]:
        """Yield the state as `exclusively` does. If processes share the session, first load the state after the last
        call in any of them, and store the new state afterwards."""
        with self.exclusively() as state, self._sharing.around_call(state) if self._sharing else nullcontext():
            yield state

    @contextmanager
    def newest(self) -> Iterator[State]:
        """Yield the state as `across_processes` does, but store nothing, for a call that changes nothing for others."""
        with self.exclusively() as state:
            if self._sharing is not None:
                self._sharing.load(state)
            yield state

    def note(self, state: State) -> None:
        """Store changes that were made between two calls, if other processes share the session."""
        if self._sharing is not None:
            self._sharing.note(state)


class Session:
    """Keeps the conversation of one agent within the model's context window, by compacting its older messages.

    ::

        with Session("fix the token refresh race", client=client, model=model) as session:
            while True:
                response = client.messages.create(messages=session.prepare(messages), ...)
                session.observe(response)
                messages.append({"role": "assistant", "content": response.content})
                ...

    The caller may keep its whole list, or go on with the list that `prepare` returned; either is recognised. All
    methods may be called from several threads; one runs at a time. To read `state`, `task` or `log` never waits for
    another.
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

        By default, settings are those of the environment and the project file, and decide about preset, planner and
        window: ``relevance``, ``auto``, and the known window of the model or else 200,000 tokens.

        Args:
            task: May be assigned later; empty means the user's own words.
            store: A store, a path, or None for the default file; opened when first needed.
            model: The agent's model; it decides token counts, cache prices and the treatment of thinking.
            client: The planner's client.
            system: The agent's system prompt, counted as part of each prompt, as are its `tools`.
            clock: Function that returns the seconds since the epoch.
            hooks: Callables by event kind, ``"*"`` for all events.
            is_shared: Other processes may serve the same `session_id` from the same store, call by call. The store is
                read at each call but not before, and each answer must be passed to `observe`.

        Raises:
            SettingsError: a wrong type, an unknown preset, planner or hook, no room for messages, no id to share by.
            StoreError: `session_id` was given, it is not shared, and the store cannot be read.
        """
        check_request(model, system, tools)
        _check_task(task)
        setup = Setup.of(settings, window_tokens, preset, store, clock, hooks, session_id, is_shared)
        planner = setup.settings.planner if planner is None else planner
        check_planner(planner)
        planning = Planning(planner, client, setup.settings, clock, setup.log, task)
        call = AgentCall(model or setup.settings.plan.target_model, system, tools)
        state = State.of(setup, planning, call, session_id or "")
        self.session_id, self._hooks = setup.session_id, hooks
        self._owns_store, self._guard = not isinstance(store, SessionStore), CallGuard(state)
        if session_id is not None and not is_shared:
            state.resume()

    @property
    def _state(self) -> State:
        return self._guard.state

    def mark(self, marks: list[str]) -> None:
        """Set the session's `marks`: digests by which the proxy later finds the session of a request. If processes
        share the session, the marks are stored, and all of them can read them (`applier.session.sharing.marks_of`)."""
        self._state.setup.marks[:] = marks

    @property
    def task(self) -> str:
        """Text that describes the agent's task; turns that are relevant to it are kept first. May be assigned."""
        return self._state.planning.task

    @task.setter
    def task(self, task: str) -> None:
        _check_task(task)
        with self._guard.exclusively() as state:
            state.planning.task = task

    def prepare(self, messages: Sequence[object]) -> list[Any]:
        """Return the list of messages to send to the model now, for the caller's whole list `messages`.

        The messages may be dicts or SDK objects. While nothing has to be compacted, the returned list begins with the
        same messages as the last one, so that the provider's prompt cache stays valid. Never raises: after any failure
        a valid list is returned, and the log reports the failure. A value that is no list is returned unchanged.
        """
        unread, messages = self._split(messages)
        with self._guard.across_processes() as state:
            sent = chain.prepare(state, messages)
            return [*unread, *sent] if unread else sent

    async def prepare_async(self, messages: Sequence[object]) -> list[Any]:
        """Run `prepare` in another thread, so that the event loop is not blocked, and return its result."""
        import asyncio  # the core is synchronous: a caller that uses threads of its own need not load it

        return await asyncio.to_thread(self.prepare, messages)

    def observe(self, response: object) -> None:
        """Read the provider's answer to the last prepared list, to learn how it counts tokens. `response` is an SDK
        message, a dict, or its ``usage`` alone; anything else is ignored. After an answer that was cut off because the
        window was full, the next `prepare` compacts."""
        with self._guard.exclusively() as state:
            chain.observe(state, response)
            self._guard.note(state)

    def note_sent(
        self,
        body: Mapping[str, Any],
        client: Any,
        *,
        path: str = "/v1/messages",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Record a request that was sent and answered, so that the planner may ask the agent's own model.

        For middleware that sees the whole request: its `body`, the `path` and `headers` of its HTTP call, and the
        `client` that sent it. A planner without its own client then uses that client and continues the request, which
        the provider has cached.

        Raises:
            SettingsError: an argument of the wrong type.
        """
        check_argument("body", body, Mapping, "a dict")
        check_argument("headers", headers, Mapping, "a dict")
        with self._guard.exclusively() as state:
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
        """Record the fields of the next request besides its messages, for middleware that sees each request.

        They decide token counts, limits and cache marks. A field that is not passed counts as unknown; a missing
        `model` or `max_output_tokens` means the last one. `client` replaces the planner's client, if it has one,
        because the key of a login changes after some hours. `client_follows`: the caller will call `note_sent` after
        the answer, so a planner that uses the agent's client waits for that. If system prompt and tools leave no room
        for messages, the log reports it, and nothing is compacted automatically.

        Raises:
            SettingsError: an argument of the wrong type; nothing has changed.
        """
        check_request(model, system, tools)
        check_argument("max_output_tokens", max_output_tokens, int, "a number of tokens")
        check_argument("thinking", thinking, Mapping, "a dict")
        check_argument("cache_control", cache_control, Mapping, "a dict")
        with self._guard.exclusively() as state:
            state.planning.client_follows = client_follows
            if state.planning.client and client:  # a planner without its own client uses the one of `note_sent`
                state.planning.client = client
            state.take_call(AgentCall(model, system, tools, thinking, max_output_tokens, cache_control))
            no_room = state.pressure.no_room
            state.pressure.is_full = bool(no_room)
            state.setup.log.trouble("fixed_parts_too_large", "no room" if no_room else "", no_room)

    def compact(
        self, messages: Sequence[object], focus: str = "", dry_run: bool = False, at_limit: bool = False
    ) -> Compaction:
        """Compact now, even if there is no need yet; with `dry_run` only return what would happen, and write nothing.

        `focus`: text for the planner on what matters most now. `at_limit`: the window of the agent's program is full,
        so the size of the present prompt counts as the limit, and the plan leaves a share of it. If nothing was
        compacted, ``reason`` of the result says why.

        Raises:
            TranscriptError: `messages` is not a list of messages.
        """
        unread, messages = self._split(messages)
        with self._guard.newest() if dry_run else self._guard.across_processes() as state:
            state.setup.log.records = not dry_run
            try:
                trial = state.copy() if dry_run else state
                compaction = chain.compact(trial, messages, focus, dry_run=dry_run, at_limit=at_limit)
                state.planning = trial.planning  # what a planner has read and cost counts, also for a dry run
            finally:
                state.setup.log.records = True
        if not unread:  # messages before the API's own compaction, if there was one
            return compaction
        first = compaction.first_changed_message
        changed = None if first is None else first + len(unread)
        return replace(compaction, messages=[*unread, *compaction.messages], first_changed_message=changed)

    def plan_ahead(self, messages: Sequence[object]) -> bool:
        """Ask the model now for the plan of the next `compact`, and store the plan, so that `compact` need not wait.

        Return False if no model was asked. A later `compact`, in this process or another, extends the stored plan by
        rules and asks no model, if the history still begins with the planned messages. With a focus, it makes a new
        plan.

        Raises:
            TranscriptError: `messages` is not a list of messages.
            StoreError: the plan cannot be stored.
        """
        _, messages = self._split(messages)
        with self._guard.across_processes() as state:
            return chain.store_plan_ahead(state, messages)

    def request_compaction(self, focus: str = "") -> None:
        """Compact at the next `prepare`, with `focus` as in `compact`. The agent calls this by its ``compact`` tool."""
        with self._guard.exclusively() as state:
            state.pressure.request("tool", focus)
            self._guard.note(state)

    def recover(self, messages: Sequence[object], error: object) -> list[Any] | None:
        """Return another list to send, after the provider refused the last prepared list with `error`.

        If the prompt was too long, or its pictures or bytes too many, the returned list is smaller; that is tried once
        for each prepared list. If calls had no results, a note is added for each such call. After other errors, or if
        nothing helps, None is returned, and the caller should raise `error`. Never raises.
        """
        refused = read_refusal(error)
        if refused is None:
            return None
        unread, messages = self._split(messages)
        with self._guard.across_processes() as state:
            accepted = chain.recover(state, messages, refused)
        return None if accepted is None else [*unread, *accepted]

    def undo(self) -> bool:
        """Undo the last compaction; return False if there is none. The last ten can be undone, one by one; after a
        restart only the last.

        The next `prepare` sends the list as it was before the compaction, unless the store fails to save what that list
        leaves out. Then nothing is compacted automatically until the list has grown further or does not fit the window.
        """
        with self._guard.across_processes() as state:
            return undo(state)

    def restore(
        self,
        reference: str,
        *,
        lines: tuple[int, int] | None = None,
        search: str | None = None,
        max_characters: int | None = None,
    ) -> Restored:
        """Return the original messages of a turn that a compaction removed or shortened.

        `reference` is ``t12`` for a turn of this session, or ``h1a2b3c4d:t12`` for one of its parent or children. The
        result has the whole turn, only its `lines` (first to last, from 1), or only lines that match `search`. With
        `max_characters` it is a page of at most this length, but of at least one line; ``next_line`` of the result
        begins the next page. After a restart, turns newer than the last compaction are known again only after the first
        `prepare`.

        If the list begins with a view (a compacted list) that the store does not know, a turn needs its key, as a bare
        ``t12`` may name a turn of that view or of this session.

        Raises:
            ReferenceNotFound: neither this session nor its parent or children have that turn, or its key is missing.
            SettingsError: another argument of the wrong type.
        """
        if not isinstance(reference, str):
            raise ReferenceNotFound(f"{reference!r} is no reference; expected one like t12")
        check_selection(lines, search, max_characters)
        wanted = {"lines": lines, "search": search, "max_characters": max_characters}
        with self._guard.newest() as state:
            return state.restore(reference, **wanted)

    def search(
        self, text: str, *, part: Part | None = None, tool: str | None = None, limit: int | None = 20
    ) -> SearchResult:
        """Return at most `limit` turns of the whole history that match `text`, best first, removed turns included.

        `part` restricts the search to one part of each turn, such as the user's words, and `tool` to the calls of that
        tool. `Store.search` describes how `text` is read.

        Raises:
            SettingsError: an argument of the wrong type, an unknown `part`, or a `limit` below zero.
            StoreError: `text` is too long, or as a pattern takes too long.
        """
        if not isinstance(text, str):
            raise SettingsError(f"text: expected text to search for, found {type(text).__name__}")
        check_argument("tool", tool, str, "a tool's name")
        with self._guard.newest() as state:
            return find_matches(state.ledger.tracker.history, text, part=part, tool=tool, limit=limit)

    @property
    def page_characters(self) -> int:
        """Largest length of one answer of the tools that read removed content, so that it fits the window whole."""
        return min(PAGE_CHARACTERS, int(self._state.pressure.limit_tokens * PAGE_SHARE))

    def log(self) -> list[Event]:
        """Return the events of this session (compactions, failures, …), oldest first, also of earlier processes."""
        return list(self._state.setup.log.events)

    @property
    def state(self) -> SessionState:
        """Size, limits and number of compactions after the last complete call. Does not wait for a running call."""
        return SessionState.of(self._state)

    @property
    def plan(self) -> CompactionPlan | None:
        """Plan by which the present list was made; None without one. A plan of another process lacks its messages."""
        return self._state.ledger.frame.plan

    def child(
        self, task: str, window_tokens: int | None = None, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> Session:
        """Return a session for a subagent with its own `task`, `tools` and history, and the same store, preset and
        planner. `window_tokens`: size of the subagent's context window; None takes the one of the settings. The child's
        id is the id of this session and a random number, so no child continues a child of an earlier process."""
        with self._guard.exclusively() as state:
            child = Session(
                task,
                preset=state.setup.preset,
                settings=state.setup.settings,
                store=state.setup.store,
                planner=state.planning.planner,
                model=state.pressure.call.model,
                client=state.planning.client,
                tools=tools,
                window_tokens=window_tokens,
                clock=state.setup.clock,
                hooks=self._hooks,
                session_id=f"{self.session_id}.{uuid.uuid4().int % MAX_CHILD_NUMBER}",
            )
            state.ledger.keys += child._state.ledger.keys  # so that each can restore turns of the other
            child._state.ledger.keys = state.ledger.keys
            return child

    def close(self) -> None:
        """Store the newest messages, and close the store if the session opened it. Waits at most `CLOSE_SECONDS` for a
        call in another thread; if that still runs, the store stays open. Never raises: the log reports a failure of the
        store, which already has everything that was removed."""
        if not self._guard.lock.acquire(timeout=CLOSE_SECONDS):
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
            self._guard.lock.release()

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close the session."""
        self.close()

    def _split(self, messages: Sequence[object]) -> tuple[list[object], Sequence[object]]:
        """Split `messages` at the newest compaction by the API itself, as the model reads only the messages from there
        on. Return the unread messages before it, which stay as they are, and those that the session may compact."""
        if not isinstance(messages, list | tuple):
            return [], messages
        known = self._state.ledger.tracker.originals  # they have no such compaction: only newer messages are searched
        goes_on = len(known) <= len(messages) and all(map(is_, known, messages))
        start = compacted_start(messages, len(known) if goes_on else 0)
        return (list(messages[:start]), messages[start:]) if start else ([], messages)


def _check_task(task: object) -> None:
    if not isinstance(task, str):
        raise SettingsError(f"task: expected text that describes the agent's task, found {type(task).__name__}")
