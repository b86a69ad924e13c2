"""A session that several processes serve from one store, as proxies behind a balancer do: who may plan, and what of it
each call leaves for the next process.

What is in force is saved only where nobody else has put something else into force. Nobody waits long for another: a
call that finds the session held goes on with the view that stands. While the store cannot be reached each process goes
on with what it knows.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from applier.session.frame import Frame
from applier.session.persistence import load_session, session_name
from applier.session.presets import Level
from applier.session.request import Gauge
from applier.session.state import State
from applier.store.store import Store
from planner.errors import StoreDamaged, StoreError
from planner.reading.tokens import TokenCounter

__all__ = ["Sharing", "marks_of"]

HOLD_SECONDS = 2.0
"""So long a call waits for another process that is in the same session."""
PLAN_SECONDS = 120.0
"""So long the others wait for a plan that a process makes beforehand, unless the window forces one."""


class Standing(BaseModel):
    """Where a session stood after a call, besides what is in force (`SavedSession`): small, and saved with each."""

    model_config = ConfigDict(extra="ignore")  # other versions say more

    saves: int = 0
    lists: int = 0
    """How many were handed out."""
    frames: int = 0
    """How often something else came into force."""
    is_doubtful: bool = False
    """Two lists were handed out at once: behind which of them the next answer was thought nobody knows."""
    history: str = ""
    """The key of what is stored of it, with which this is forgotten."""
    marks: list[str] = []
    """See `State.marks`."""
    model: str = ""
    """The agent's, whose tokens were measured."""
    messages: int = 0
    """Of the list handed out last; and what it counted, and when that was."""
    counted_tokens: int = 0
    at: float | None = None
    level: Level = "normal"
    growth_tokens: float = 0.0
    carried_tokens: int = 0
    cached_messages: int = 0
    rests: list[tuple[str, bool, int, int]] = []
    gauge: Gauge = Field(default_factory=Gauge)
    maximum_tokens: int = sys.maxsize
    requested: str = ""
    focus: str = ""
    planner: str = ""
    """The process that makes a plan beforehand or has made one, and until when the others wait for that."""
    planner_until: float = 0.0


class Sharing:
    """What this process knows of a session that others may serve, too."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.process = uuid.uuid4().hex
        self.known: Standing | None = None
        """As it was taken up or saved last; None if this process goes by something else."""
        self._is_lost = False
        """The store did not say where the session stands when it was asked last."""

    @contextmanager
    def turn(self, state: State) -> Iterator[None]:
        """One call: alone in the session if that can be had soon, from where the last one has left it. Never raises by
        itself."""
        with ExitStack() as stack:
            problem, is_alone = "", False
            try:
                is_alone = stack.enter_context(state.store.hold(session_name(state.session_id), HOLD_SECONDS))
                self.take_up(state)
                state.store_failed_at = None if self._is_lost else state.store_failed_at
                self._is_lost = False
            except Exception as error:  # noqa: BLE001 - DESIGN rule 8: the host's agent never breaks
                problem, state.store_failed_at = f"this process goes on by what it knows: {error}", state.clock()
                self._is_lost = True
            state.trouble("store_failed", problem)
            state.planning.is_elsewhere = not is_alone or self._is_planned_elsewhere(state)
            before = state.last
            yield
            try:
                self._save(state, is_list=state.last is not before)
            except Exception as error:  # noqa: BLE001
                state.trouble("store_failed", f"other processes do not know of the newest call: {error}")

    def take_up(self, state: State) -> None:
        """Go on where the last call has left the session, in whatever process that was.

        Raises:
            StoreError: the store does not say.
        """
        data = state.store.use(lambda store: store.get_state(_name(state.session_id)))
        standing, known = _read(data, state.session_id), self.known
        if known is not None and standing.saves == known.saves:
            return
        self.known = None
        if known is None or standing.frames != known.frames:
            saved = state.store.use(lambda store: load_session(store, state.session_id))
            if saved is not None:
                state.go_on_from(saved)
        if standing.saves:
            _go_on(state, standing)
        self.known = standing

    def note(self, state: State) -> None:
        """Tell what was learned between two calls, unless another process had one meanwhile, or the last one here is
        not told of: a list must not be told without what was in force."""
        known = self.known
        if known is None or state.is_unsaved or known.at != state.last.at:
            return

        def change(before: Standing) -> tuple[Standing | None, bool]:
            return (self._standing(state, before) if before.saves == known.saves else None), False

        try:
            self._change(state, change)
        except StoreError as error:
            state.trouble("store_failed", f"other processes do not know of the newest call: {error}")

    def _save(self, state: State, *, is_list: bool) -> None:
        """Store where the session stands, unless another process has put something else into force meanwhile.

        Raises:
            StoreError: it could not.
        """
        known, is_new = self.known, state.is_unsaved
        if is_new:
            state.commit_forks()

        def change(before: Standing) -> tuple[Standing | None, bool]:
            if known is None or before.frames != known.frames:
                return before.model_copy(update={"lists": before.lists + is_list, "is_doubtful": is_list}), False
            is_doubtful = is_list and before.lists != known.lists
            numbers = {"lists": before.lists + is_list, "frames": before.frames + is_new, "is_doubtful": is_doubtful}
            return self._standing(state, before).model_copy(update=numbers), is_new

        saved = self._change(state, change)
        if known is None or saved is None or saved.frames != known.frames + is_new:
            self.known = None
            return
        if saved.is_doubtful:
            state.last = replace(state.last, frame=Frame())
        state.note_saved()

    def _change(self, state: State, change: Callable[[Standing], tuple[Standing | None, bool]]) -> Standing | None:
        """Store what `change` makes of where the session stands, and with it what is in force if that is new; what was
        stored."""
        name, stored = _name(state.session_id), list[Standing]()

        def changed(data: Any) -> Mapping[str, Any]:
            standing, is_new = change(_read(data, state.session_id))
            if standing is None:
                return {}
            stored[:] = [standing.model_copy(update={"saves": standing.saves + 1})]
            rows = {name: stored[0].model_dump(mode="json")}
            frame = {session_name(state.session_id): state.to_save().model_dump(mode="json")} if is_new else {}
            return {**rows, **frame}

        state.store.use(lambda store: store.change_states(name, changed))
        if stored:
            self.known = stored[0]
        return self.known if stored else None

    def _standing(self, state: State, before: Standing) -> Standing:
        """Where `state` stands; what others have counted stands in `before`."""
        last, planning = state.last, state.planning
        planner = (before.planner, before.planner_until) if before.planner != self.process else ("", 0.0)
        if planning.worker.job is not None or planning.ready is not None:
            planner = self.process, (planning.worker.started_at or 0.0) + PLAN_SECONDS
        return Standing(
            saves=before.saves,
            lists=before.lists,
            frames=before.frames,
            is_doubtful=before.is_doubtful,
            history=state.committed.key,
            marks=state.marks,
            model=state.call.model,
            messages=last.messages,
            counted_tokens=last.counted_tokens,
            at=last.at,
            level=state.level,
            growth_tokens=state.growth_tokens,
            carried_tokens=state.carried_tokens,
            cached_messages=state.cached_messages,
            rests=[(*tier, *until) for tier, until in state.rests.items()],
            gauge=state.gauge,
            maximum_tokens=state.maximum_tokens,
            requested=state.requested,
            focus=state.focus,
            planner=planner[0],
            planner_until=planner[1],
        )

    def _is_planned_elsewhere(self, state: State) -> bool:
        known = self.known
        return known is not None and known.planner != self.process and state.clock() < known.planner_until


def _name(session_id: str) -> str:
    return f"standing:{session_id}"


def _read(data: Any, session_id: str) -> Standing:
    """
    Raises:
        StoreDamaged: it is not what this module writes.
    """
    try:
        return Standing.model_validate(data or {})
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise StoreDamaged(f"session {session_id}: where it stands cannot be read: {problem}") from None


def _go_on(state: State, standing: Standing) -> None:
    """`standing` is how the last call has left `state`."""
    state.level, state.growth_tokens, state.carried_tokens = (
        standing.level,
        standing.growth_tokens,
        standing.carried_tokens,
    )
    state.maximum_tokens, state.cached_messages = standing.maximum_tokens, standing.cached_messages
    state.requested, state.focus = standing.requested, standing.focus
    state.rests = {(tier, forced): (history, answered) for tier, forced, history, answered in standing.rests}
    scales = [TokenCounter.for_model(model).scale for model in (standing.model, state.call.model)]
    if scales[0] == scales[1]:
        state.gauge = standing.gauge.with_fixed(state.gauge.fixed_tokens)
    last = replace(state.last, messages=standing.messages, counted_tokens=standing.counted_tokens, at=standing.at)
    state.last = replace(last, frame=Frame()) if standing.is_doubtful else last


def marks_of(store: Store, session_ids: Sequence[str]) -> dict[str, list[str]]:
    """By which their keeper knows the conversations of those sessions that `store` knows, by their ids.

    Raises:
        StoreError: it cannot say.
    """
    states = store.get_states([_name(session_id) for session_id in session_ids])
    return {name.removeprefix(_name("")): _read(state, name).marks for name, state in states.items()}
