"""Feeds a transcript turn by turn through a session, as an agent would have: what would have been sent.

Simulates calls, prices and the clock; calls no model. Checks every list that it gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from applier.session.events import Event
from applier.session.frame import first_difference
from applier.session.presets import Level, Preset
from applier.session.session import Session
from applier.settings import SessionSettings, load_settings
from applier.store.store import Store
from planner.api import PlannerChoice
from planner.errors import StoreError
from planner.prices import WRITE_5_MINUTES
from planner.reading.messages import blocks, plain_message
from planner.reading.tokens import TokenCounter
from planner.validity import check_messages

__all__ = ["Replay", "ReplayedCall", "replay", "replay_calls"]

SECONDS_PER_CALL = 15.0
"""How long an agent takes from one call to the next, the tool's run included."""


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """One simulated call of the agent."""

    history_messages: int
    history_tokens: int
    """What would be sent without compaction, system included."""
    sent_tokens: int
    cached_tokens: int
    """Of these, how many the call before had sent as well, at the front."""
    invalidated_tokens: int
    """Tokens of the call before that were sent again differently, or not at all."""
    limit_tokens: int
    unanswered_tokens: int
    """Of system, newest message and the call it answers alone: nothing that a session may do makes it less."""
    level: Level
    violations: tuple[str, ...]
    """Rules of the API that the sent list breaks and the history does not."""
    events: tuple[Event, ...]
    """What happened in this call."""
    sent: Sequence[object] = field(repr=False)
    """The list; messages that are not touched are the transcript's own objects."""

    def cost(self, read_price: float, write_price: float = WRITE_5_MINUTES) -> float:
        """Input cost in units of one uncached input token."""
        return read_price * self.cached_tokens + write_price * (self.sent_tokens - self.cached_tokens)


@dataclass(frozen=True, slots=True)
class Replay:
    """A whole transcript, replayed."""

    preset: str
    window_tokens: int
    calls: tuple[ReplayedCall, ...]
    unrestorable: tuple[str, ...]
    """What should be in the store exactly and is not."""

    @property
    def compactions(self) -> list[Event]:
        """Every change of what was sent before."""
        return [event for call in self.calls for event in call.events if _is_compaction(event)]

    @property
    def sent_tokens(self) -> int:
        """Over all calls."""
        return sum(call.sent_tokens for call in self.calls)

    @property
    def invalidated_tokens(self) -> int:
        """Over all calls."""
        return sum(call.invalidated_tokens for call in self.calls)

    @property
    def peak_tokens(self) -> int:
        """The largest prompt."""
        return max((call.sent_tokens for call in self.calls), default=0)

    @property
    def exceeded(self) -> int:
        """Calls whose prompt was over what a prompt may have."""
        return sum(call.sent_tokens > call.limit_tokens for call in self.calls)

    @property
    def unavoidable(self) -> int:
        """How many of these were as long by system and unanswered messages alone."""
        return sum(call.sent_tokens > call.limit_tokens < call.unanswered_tokens for call in self.calls)

    @property
    def violations(self) -> list[str]:
        """Over all calls."""
        return [text for call in self.calls for text in call.violations]

    def cost(self, read_price: float) -> float:
        """Input cost of the whole run in units of one uncached input token."""
        return sum(call.cost(read_price) for call in self.calls)


def replay(messages: Sequence[object], preset: str | Preset, window_tokens: int, *, store: Store, **how: Any) -> Replay:
    """Run a whole transcript, with the options of `replay_calls`; `store` is left with what was removed."""
    calls = tuple(replay_calls(messages, preset, window_tokens, store=store, **how))
    name = preset if isinstance(preset, str) else preset.name
    return Replay(name, window_tokens, calls, tuple(_unrestorable(messages, store)))


def replay_calls(
    messages: Sequence[object],
    preset: str | Preset,
    window_tokens: int,
    *,
    store: Store,
    task: str = "",
    system: Any = None,
    model: str = "",
    planner: PlannerChoice = "rules",
    settings: SessionSettings | None = None,
    replace: bool = False,
) -> Iterator[ReplayedCall]:
    """The calls one by one, as they happen; `store` should be empty.

    With `replace` the simulated agent replaces its list by what it got, else its list keeps growing. Nothing is planned
    in the background unless `settings` say so.
    """
    now = 0.0
    session = Session(
        task,
        preset=preset,
        settings=settings or load_settings(background=False),
        store=store,
        planner=planner,
        model=model,
        system=system,
        window_tokens=window_tokens,
        clock=lambda: now,
    )
    watch = _Watch(session, TokenCounter.for_model(model), system, model)
    own: list[Any] = []
    for at, message in enumerate(messages):
        if at and _role(message) == "assistant":
            sent = session.prepare(own if replace else messages[:at])
            yield watch.call(messages[:at], sent)
            own = list(sent) if replace else own
            now += SECONDS_PER_CALL
        own.append(message)


class _Watch:
    """Measures what a session sends."""

    def __init__(self, session: Session, counter: TokenCounter, system: Any, model: str) -> None:
        self._session, self._counter, self._model = session, counter, model
        self._fixed = counter.request((), system)
        self._before: list[Any] = []
        self._counted: list[int] = []
        self._events = 0
        self._known: dict[int, tuple[object, int]] = {}
        self._history_tokens, self._history_length = 0, 0

    def call(self, history: Sequence[object], sent: list[Any]) -> ReplayedCall:
        counted = [self._tokens(message) for message in sent]
        first = first_difference(self._before, sent)
        same = len(self._before) if first is None else first
        self._history_tokens += sum(map(self._tokens, history[self._history_length :]))
        self._history_length = len(history)
        events = self._session.log()
        state = self._session.state
        made = ReplayedCall(
            history_messages=len(history),
            history_tokens=self._fixed + self._history_tokens,
            sent_tokens=self._fixed + sum(counted),
            cached_tokens=(self._fixed if self._before else 0) + sum(counted[:same]),
            invalidated_tokens=sum(self._counted[same:]),
            limit_tokens=state.limit_tokens,
            unanswered_tokens=self._fixed + sum(counted[-2 if _answers_a_call(sent) else -1 :]),
            level=state.level,
            violations=tuple(self._broken(history, sent)),
            events=tuple(events[self._events :]),
            sent=sent,
        )
        self._before, self._counted, self._events = sent, counted, len(events)
        return made

    def _tokens(self, message: object) -> int:
        """Counted once for each object: messages that are not touched stay the same objects."""
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = message, self._counter.message(plain_message(message))
        return known[1]

    def _broken(self, history: Sequence[object], sent: Sequence[object]) -> Iterator[str]:
        if sent and all(a is b for a, b in zip(sent, history, strict=False)) and len(sent) == len(history):
            return
        given = {violation.code for violation in check_messages(history, model=self._model)}
        for violation in check_messages(sent, model=self._model):
            if violation.code not in given:
                yield f"after {len(history)} messages: {violation}"


def _unrestorable(messages: Sequence[object], store: Store) -> Iterator[str]:
    """Every history that was stored must be the transcript's beginning, byte for byte, and verified."""
    yield from (finding.problem for finding in store.verify())
    plain = [plain_message(message) for message in messages]
    for stored in store.histories():
        try:
            held = list(store.load_history(stored.key).messages)
        except StoreError as error:
            yield str(error)
            continue
        if held != plain[: len(held)]:
            yield f"{stored.key} is not the transcript as it was"


def _answers_a_call(sent: Sequence[object]) -> bool:
    return any(block["type"] == "tool_result" for block in blocks(plain_message(sent[-1])))


def _is_compaction(event: Event) -> bool:
    return event.kind == "post_compact" and event.trigger != "arrival"


def _role(message: object) -> str:
    return str(plain_message(message)["role"])
