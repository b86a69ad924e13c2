"""Feeds a transcript turn by turn through a session, as an agent would have: what would have been sent.

Simulates calls, prices and the clock; calls no model. Checks every list that it gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import is_
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
from planner.reading.messages import plain_message
from planner.reading.tokens import TokenCounter
from planner.validity import check_messages

__all__ = ["Replay", "ReplayedCall", "replay"]

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
        events = (event for call in self.calls for event in call.events if event.kind == "post_compact")
        return [event for event in events if event.trigger != "arrival"]

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
    def violations(self) -> list[str]:
        """Over all calls."""
        return [text for call in self.calls for text in call.violations]

    def cost(self, read_price: float) -> float:
        """Input cost of the whole run in units of one uncached input token."""
        return sum(call.cost(read_price) for call in self.calls)


def replay(
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
) -> Replay:
    """Run a whole transcript; `store`, which should be empty, is left with what was removed.

    With `replace` the simulated agent replaces its list by what it got, else its list keeps growing. Nothing is planned
    in the background unless `settings` say so.
    """
    calls: list[ReplayedCall] = []
    session = Session(
        task,
        preset=preset,
        settings=settings or load_settings(background=False),
        store=store,
        planner=planner,
        model=model,
        system=system,
        window_tokens=window_tokens,
        clock=lambda: len(calls) * SECONDS_PER_CALL,
    )
    counter = TokenCounter.for_model(model)
    for call in _replayed(session, messages, counter, counter.request((), system), model, replace):
        calls.append(call)  # noqa: PERF402 - one by one, for the clock goes by them
    name = preset if isinstance(preset, str) else preset.name
    return Replay(name, window_tokens, tuple(calls), tuple(_unrestorable(messages, store)))


def _replayed(
    session: Session, messages: Sequence[object], counter: TokenCounter, fixed_tokens: int, model: str, replace: bool
) -> Iterator[ReplayedCall]:
    """A call wherever the assistant takes the word; system and tools have `fixed_tokens` of each prompt."""
    own: list[Any] = []
    before: Sequence[Any] = ()
    history_tokens, logged, known = fixed_tokens, 0, dict[int, int]()

    def tokens(message: object) -> int:
        """Counted once for each object: messages that are not touched stay the same objects, and all of them live."""
        if id(message) not in known:
            known[id(message)] = counter.message(plain_message(message))
        return known[id(message)]

    for at, message in enumerate(messages):
        if at and plain_message(message)["role"] == "assistant":
            sent = session.prepare(own)
            first = first_difference(before, sent)
            same = len(before) if first is None else first
            events, state = session.log(), session.state
            yield ReplayedCall(
                history_messages=at,
                history_tokens=history_tokens,
                sent_tokens=fixed_tokens + sum(map(tokens, sent)),
                cached_tokens=(fixed_tokens if before else 0) + sum(map(tokens, sent[:same])),
                invalidated_tokens=sum(map(tokens, before[same:])),
                limit_tokens=state.limit_tokens,
                level=state.level,
                violations=tuple(_broken(messages[:at], sent, model)),
                events=tuple(events[logged:]),
                sent=sent,
            )
            own = list(sent) if replace else own
            before, logged = sent, len(events)
        own.append(message)
        history_tokens += tokens(message)


def _broken(history: Sequence[object], sent: Sequence[object], model: str) -> Iterator[str]:
    if len(sent) == len(history) and all(map(is_, sent, history)):
        return
    known = {violation.code for violation in check_messages(history, model=model)}
    for violation in check_messages(sent, model=model):
        if violation.code not in known:
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
