"""One agent's history, the plan in force, and what to send next.

Decides when to compact and hands the work to tiers; never raises out of `prepare`, never changes the
caller's list, and never sends a list whose removed originals are not in the store.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from applier.session.assembly import Wishes, assemble_engine, resume
from applier.session.compaction import Compaction, SessionState
from applier.session.events import Event, Hooks
from applier.session.lazy_store import LazyStore
from applier.session.length_errors import WINDOW_EXCEEDED, read_too_long, stop_reason_of
from applier.session.meter import used_input_tokens
from applier.session.presets import Preset
from applier.session.triggers import prompt_limit_tokens
from applier.settings import SessionSettings, load_settings
from applier.store.excerpt import find_matches
from applier.store.protocol import Restored, Store
from planner.api import PlannerChoice
from planner.errors import ReferenceNotFound
from planner.reading.lines import turn_lines
from planner.reading.messages import Block

__all__ = ["Session"]


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
        store: Store | str | Path | None = None,
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
            SettingsError: an unknown preset or planner, or system and tools alone leave no room in the window.
            StoreError: `session_id` was given and the store cannot be read.
        """
        given = settings or load_settings(window_tokens=window_tokens, max_output_tokens=max_output_tokens)
        if settings is not None:
            sizes = {"window_tokens": window_tokens, "max_output_tokens": max_output_tokens}
            given = given.model_copy(update={name: size for name, size in sizes.items() if size})
        self.session_id = session_id or uuid.uuid4().hex[:12]
        self._wishes = Wishes(preset or given.preset, given, planner or given.planner, model, client, clock, hooks)
        self._lock = threading.RLock()
        self._store = LazyStore(store)
        self._children = 0
        self._max_output_tokens = given.max_output_tokens
        self._engine = assemble_engine(self._wishes, self.session_id, self._store, task, system, tools)
        if session_id is not None:
            resume(self._engine, self._store())

    @property
    def task(self) -> str:
        """What the agent works on; relevance is judged against it. May be assigned."""
        return self._engine.pipeline.planning.task

    @task.setter
    def task(self, task: str) -> None:
        with self._lock:
            self._engine.pipeline.planning.task = task

    def prepare(self, messages: Sequence[object]) -> list[Any]:
        """What to send now, for the caller's whole list `messages` (dicts or SDK objects).

        Work is proportional to the new messages while nothing is to be done, and the returned list starts
        with the same messages as the last one until a compaction really happens. Never raises: whatever
        fails, a valid list comes back and the log says what happened.
        """
        with self._lock:
            return self._engine.prepare(messages) if messages else []

    def observe(self, response: object) -> None:
        """Take the provider's answer to the list last prepared: its ``usage`` calibrates the counter.

        `response` is an SDK message, a dict, or the usage itself; anything else is ignored. An answer that the
        window cut off has the next `prepare` compact.
        """
        with self._lock:
            run = self._engine.pipeline.run
            run.meter = run.meter.calibrated(run.sent_counted, used_input_tokens(response))
            if stop_reason_of(response) == WINDOW_EXCEEDED:
                self._engine.request("window_exceeded")

    def compact(self, messages: Sequence[object], focus: str = "", dry_run: bool = False) -> Compaction:
        """Compact now, whatever the triggers say; with `dry_run` only show it, writing nothing.

        What stood in the way, if it was not done, is the result's ``reason``.

        Raises:
            TranscriptError: `messages` is not a list of messages.
        """
        with self._lock:
            if not dry_run:
                return self._engine.compact(messages, focus, dry_run=False)
            with self._engine.pipeline.speak.unrecorded():
                return self._engine.compact(messages, focus, dry_run=True)

    def request_compaction(self, focus: str = "") -> None:
        """Compact at the next `prepare`: what the model's own ``compact`` tool calls."""
        with self._lock:
            self._engine.request("tool", focus)

    def recover(self, messages: Sequence[object], error: object) -> list[Any] | None:
        """What to send instead, after the provider answered `error` to the list last prepared.

        None if the error is not about the prompt's length, or nothing shorter can be sent: raise it then.
        The reactive retry is given once per prepared list; it is more aggressive than any trigger.
        """
        refused = read_too_long(error)
        if refused is None:
            return None
        with self._lock:
            return self._engine.recover(messages, refused)

    def restore(self, reference: str, *, lines: tuple[int, int] | None = None, search: str | None = None) -> Restored:
        """The stored original behind `reference` (``h1a2b3c4d:t12``, or ``t12`` of this session).

        Whole, the lines first to last (from 1, included), or those that match `search`. After a restart the turns
        behind the last compaction are known again from the first `prepare` on; all that was removed always is.

        Raises:
            ReferenceNotFound: nothing in this store has that name.
        """
        with self._lock:
            store, run = self._store(), self._engine.pipeline.run
            if ":" not in reference and len(run.ledger):
                reference = f"{store.save_history(run.ledger.history)}:{reference.strip()}"
            try:
                return store.restore(reference, lines=lines, search=search)
            except ReferenceNotFound as error:
                if run.last_call_at is not None or not len(run.ledger):
                    raise
                raise ReferenceNotFound(f"{error}; later turns are known once `prepare` was called") from None

    def search(self, text: str, limit: int = 20) -> list[tuple[str, int, str]]:
        """Where `text` (any case; else as a pattern) stands in the whole history: turn, line number, line."""
        with self._lock:
            history = self._engine.pipeline.run.ledger.history
            hits = [
                (match.turn_id, number, turn_lines(history, history.by_id[match.turn_id])[number - 1].text)
                for match in find_matches(history, text).matches
                for number in match.lines
            ]
            return hits[:limit]

    def undo(self) -> bool:
        """Take back the last compaction; False if there is none. The next `prepare` sends the older view.

        Automatic compaction then waits until the list has grown further or the window forces it.
        """
        with self._lock:
            return self._engine.undo()

    def log(self) -> list[Event]:
        """Everything that happened in this session, oldest first, earlier processes included."""
        with self._lock:
            return list(self._engine.pipeline.speak.said)

    @property
    def state(self) -> SessionState:
        """Where the session stands after the last `prepare`."""
        with self._lock:
            run, planning = self._engine.pipeline.run, self._engine.pipeline.planning
            now = self._wishes.clock()
            return SessionState(
                session_id=self.session_id,
                level=run.reading(now).level,
                tokens=run.tokens,
                window_tokens=self._wishes.settings.window_tokens,
                limit_tokens=run.limit_tokens,
                compactions=run.compactions,
                reclaimed_tokens=run.reclaimed_tokens,
                breaker=planning.breaker.state(now),
                history_key=run.committed.key,
                history_messages=len(run.ledger),
                sent_messages=len(run.outgoing.messages),
            )

    def set_request(
        self,
        *,
        system: str | Sequence[Block] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        max_output_tokens: int | None = None,
    ) -> None:
        """Tell what else the next request holds, for callers (middleware) that learn it per request.

        System and tools that leave no room are no error here: the log says so, and nothing automatic is done.
        """
        with self._lock:
            engine, window = self._engine, self._wishes.settings.window_tokens
            run = engine.pipeline.run
            self._max_output_tokens = max_output_tokens or self._max_output_tokens
            run.limit_tokens = min(prompt_limit_tokens(window, self._max_output_tokens), run.maximum_tokens)
            run.meter = replace(run.meter, fixed_tokens=run.ledger.counter.request((), system, tools))
            was, engine.is_blocked = engine.is_blocked, run.meter.prompt(0) >= run.limit_tokens
            if engine.is_blocked and not was:
                engine.pipeline.speak("fixed_parts_too_large", run.no_room())

    def child(self, task: str, window_tokens: int | None = None) -> Session:
        """A session for a subagent: its own history and budget, the same store, preset and planner."""
        with self._lock:
            self._children += 1
            wishes = self._wishes
            return Session(
                task,
                preset=wishes.preset,
                settings=wishes.settings,
                store=self._store(),
                planner=wishes.planner,
                model=wishes.model,
                client=wishes.client,
                window_tokens=window_tokens,
                clock=wishes.clock,
                hooks=wishes.hooks,
                session_id=f"{self.session_id}.{self._children}",
            )

    def close(self) -> None:
        """Commit the history; a store that the session opened itself is closed."""
        with self._lock:
            if self._store.is_open and len(self._engine.pipeline.run.ledger):
                self._store().save_history(self._engine.pipeline.run.ledger.history)
            self._store.close()

    def __enter__(self) -> Self:
        """The session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()
