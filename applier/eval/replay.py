"""Replays a transcript call by call through a session, to see what the session would have sent, and what that costs.

Simulates calls, prices and the clock; calls no model. Checks every list that the session returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from applier.session.edits import first_difference
from applier.session.events import Event
from applier.session.presets import Preset
from applier.session.pressure import Level
from applier.session.session import Session
from applier.settings import SessionSettings, load_settings
from applier.store.store import Store
from planner.api import PlannerChoice
from planner.errors import StoreError
from planner.prices import WRITE_5_MINUTES
from planner.reading.messages import plain_message
from planner.reading.tokens import TokenCounter
from planner.validity import check_messages

SECONDS_PER_CALL = 15.0
"""Simulated time between two calls of the agent in seconds, including the run of a tool."""


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """Simulated call of the agent's model, with the list of messages that the session would have sent."""

    history_messages: int
    """Number of messages of the transcript before this call."""
    history_tokens: int
    """Tokens of the prompt without any compaction, with the system prompt."""
    sent_tokens: int
    """Tokens of the prompt that the session would have sent, with the system prompt."""
    cached_tokens: int
    """Tokens at the beginning that are the same as in the previous call, so that they are read from the cache."""
    invalidated_tokens: int
    """Tokens of the previous call from the first message on that is changed or missing in this call."""
    limit_tokens: int
    """Largest number of tokens for the prompt that the window has room for."""
    level: Level
    """How near the prompt is to the limit, as the session judges it."""
    violations: tuple[str, ...]
    """Rules of the API that the sent list breaks, although the transcript does not."""
    events: tuple[Event, ...]
    """Events of the session during this call, such as compactions."""
    sent: Sequence[object] = field(repr=False)
    """List sent to the model; unchanged messages are the transcript's own objects."""

    def cost(self, read_price: float) -> float:
        """Return the price of the call's prompt in units of one uncached token; a cached token costs `read_price`."""
        return read_price * self.cached_tokens + WRITE_5_MINUTES * (self.sent_tokens - self.cached_tokens)


@dataclass(frozen=True, slots=True)
class Replay:
    """Results of replaying a whole transcript through a session with this `preset` and window."""

    preset: str
    window_tokens: int
    calls: tuple[ReplayedCall, ...]
    unrestorable: tuple[str, ...]
    """Problems of the store after the replay: original messages that are missing or changed."""

    @property
    def compactions(self) -> list[Event]:
        """Events of the compactions that changed messages sent earlier. Others only shortened a new tool result."""
        events = (event for call in self.calls for event in call.events if event.kind == "post_compact")
        return [event for event in events if event.trigger != "arrival"]

    @property
    def sent_tokens(self) -> int:
        """Tokens of all sent prompts together."""
        return sum(call.sent_tokens for call in self.calls)

    @property
    def invalidated_tokens(self) -> int:
        """Cached tokens that later calls changed, so that they were billed again."""
        return sum(call.invalidated_tokens for call in self.calls)

    @property
    def peak_tokens(self) -> int:
        """Size of the largest prompt that was sent."""
        return max((call.sent_tokens for call in self.calls), default=0)

    @property
    def exceeded(self) -> int:
        """Number of calls with a prompt that was too long for the window."""
        return sum(call.sent_tokens > call.limit_tokens for call in self.calls)

    @property
    def violations(self) -> list[str]:
        """Broken rules of the API in all prompts."""
        return [text for call in self.calls for text in call.violations]

    def cost(self, read_price: float) -> float:
        """Return the price of all prompts in units of one uncached token; a cached token costs `read_price`."""
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
    """Replay the transcript `messages` through a session that stores originals in `store`. The other arguments are
    those of `Session`. `replace`: the simulated agent continues with the list that the session returned; else with its
    own whole list, so that the session must recognise it."""
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
        calls.append(call)  # noqa: PERF402 - one by one, as the session's clock depends on their number
    name = preset if isinstance(preset, str) else preset.name
    return Replay(name, window_tokens, tuple(calls), tuple(_unrestorable(messages, store)))


def _replayed(
    session: Session, messages: Sequence[object], counter: TokenCounter, fixed_tokens: int, model: str, replace: bool
) -> Iterator[ReplayedCall]:
    """Replay a transcript: yield a simulated call in place of each message of the assistant. `fixed_tokens`: size of
    the system prompt. `replace`: the agent continues with the list that the session returned."""
    agents_list: list[Any] = []
    before: Sequence[Any] = ()  # the list sent last
    history_tokens, logged, tokens_by_id = fixed_tokens, 0, dict[int, int]()

    def tokens(message: object) -> int:
        """Return the tokens of `message`, from memory if this object was counted before."""
        if id(message) not in tokens_by_id:
            tokens_by_id[id(message)] = counter.message(plain_message(message))
        return tokens_by_id[id(message)]

    for at, message in enumerate(messages):
        if at and plain_message(message)["role"] == "assistant":
            sent = session.prepare(agents_list)
            first_changed = first_difference(before, sent)
            same = len(before) if first_changed is None else first_changed  # number of equal messages at the beginning
            events, state = session.log(), session.state
            yield ReplayedCall(
                history_messages=at,
                history_tokens=history_tokens,
                sent_tokens=fixed_tokens + sum(map(tokens, sent)),
                cached_tokens=(fixed_tokens if before else 0) + sum(map(tokens, sent[:same])),
                invalidated_tokens=sum(map(tokens, before[same:])),
                limit_tokens=state.limit_tokens,
                level=state.level,
                violations=tuple(_new_violations(messages[:at], sent, model)),
                events=tuple(events[logged:]),
                sent=sent,
            )
            agents_list = list(sent) if replace else agents_list
            before, logged = sent, len(events)
        agents_list.append(message)
        history_tokens += tokens(message)


def _new_violations(history: Sequence[object], sent: Sequence[object], model: str) -> Iterator[str]:
    """Yield the rules of the API that the list `sent` breaks and the `history`, from which it was made, does not."""
    if len(sent) == len(history) and all(map(is_, sent, history)):
        return
    known = {violation.code for violation in check_messages(history, model=model)}
    for violation in check_messages(sent, model=model):
        if violation.code not in known:
            yield f"after {len(history)} messages: {violation}"


def _unrestorable(messages: Sequence[object], store: Store) -> Iterator[str]:
    """Yield a text for each damaged record of the store, and each history that is not a beginning of `messages`."""
    yield from (finding.problem for finding in store.verify())
    plain = [plain_message(message) for message in messages]
    for stored in store.histories():
        try:
            stored_messages = list(store.load_history(stored.key).messages)
        except StoreError as error:
            yield str(error)
            continue
        if stored_messages != plain[: len(stored_messages)]:
            yield f"{stored.key} is not the transcript as it was"
