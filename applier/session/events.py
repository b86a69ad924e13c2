"""Events of a session, such as a compaction or a failure of the store, and their reports to the user's program.

Events go to hooks (the program's functions), the log, the store and OpenTelemetry. No hook can break the session.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from operator import methodcaller
from typing import Any, Literal, get_args

from applier.store.opening import SessionStore
from planner.errors import SettingsError, StoreError
from planner.prices import switch_money
from planner.settings import nearest

logger = logging.getLogger("applier.session")

EventKind = Literal[
    "pre_compact",
    "post_compact",
    "not_worth_it",
    "vetoed",
    "tier_failed",
    "history_changed",
    "history_edited",
    "unknown_view",
    "misnamed_use",
    "breaker_opened",
    "breaker_closed",
    "learned",
    "recovered",
    "undone",
    "resumed",
    "fixed_parts_too_large",
    "still_too_large",
    "store_failed",
    "prepare_failed",
]

_WARNINGS = frozenset(
    ("tier_failed", "breaker_opened", "fixed_parts_too_large", "store_failed", "prepare_failed", "misnamed_use")
)
_EVERYTHING = "*"  # key of hooks for all events


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a session, such as a compaction. Tokens are estimates of whole prompts."""

    kind: EventKind
    session_id: str
    at: float
    """Time of the event in seconds since the epoch, by the session's clock."""
    trigger: str = ""
    """Cause of the compaction: ``critical`` (nearly full), ``idle``, ``manual``, ``edited``, ``prompt_too_long``, …"""
    tier: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    first_changed_message: int | None = None
    """Index of the first message of the last sent list that the compaction changed; None if it changed nothing."""
    invalidated_tokens: int = 0
    """Tokens after the first changed message, which the provider had cached and must now read again."""
    message: str = ""
    """Description of the event in one line, for a person."""
    dollars: Mapping[str, float] = field(default_factory=dict)
    """Costs and savings in dollars by name (`planner.prices.switch_dollars`); empty if the price is unknown."""
    waited_seconds: float = 0.0
    """Time that the agent waited for a compaction; short if the plan was made in advance."""

    @property
    def reclaimed_tokens(self) -> int:
        """Tokens that the compaction freed; 0 for an event that freed none."""
        return max(0, self.tokens_before - self.tokens_after)

    def as_json(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        return asdict(self)


Hook = Callable[[Event], object]
"""Function of the user's program that receives events. If it returns False for a ``pre_compact`` event, the compaction
is not made, unless it is forced: the window is nearly full, a new tool result is shortened, the request has too many
pictures or bytes, or the provider refused the last list. Its exceptions are logged and ignored."""
Hooks = Mapping[str, Hook | Sequence[Hook]]
"""Hooks (functions of the user's program) by the kind of event that they receive; under ``"*"`` for all events."""


class EventLog:
    """Reports a session's events to the log, hooks, OpenTelemetry and store; keeps them for `Session.log`."""

    def __init__(self, session_id: str, clock: Callable[[], float], hooks: Hooks | None, store: SessionStore) -> None:
        """Begin with an empty log. Raise SettingsError if `hooks` has a hook for an unknown kind of event."""
        self.events: list[Event] = []
        self._session_id = session_id
        self._clock = clock
        self._hooks = _checked_hooks(hooks or {})
        self.telemetry = Telemetry()
        self._store = store
        self.troubles: dict[EventKind, str] = {}
        """Problems that have been reported and have not ended yet, by the kind of event."""
        self._unrecorded: list[dict[str, Any]] = []
        self.records = True
        """True if events are written to the store; False during a dry run."""

    def trouble(self, kind: EventKind, problem: str, message: str = "") -> None:
        """Report a problem that may last for many calls, only when it begins or changes. An empty `problem` ends it.
        `message`: text of the event; without it, `problem` is the text."""
        if problem and self.troubles.get(kind) != problem:
            self(kind, message or problem)
        self.troubles[kind] = problem

    def __call__(self, kind: EventKind, message: str, **fields: Any) -> bool:
        """Report an event with this `message` and these `fields` of `Event`. Return False if a hook returned False,
        which forbids the compaction that a ``pre_compact`` event announces."""
        event = Event(kind, self._session_id, self._clock(), message=message, **fields)
        self.events.append(event)
        self.telemetry.count(event)
        level = logging.WARNING if event.kind in _WARNINGS else logging.INFO
        text = "; ".join(filter(None, (event.message, switch_money(event.dollars))))
        logger.log(level, "%s: %s", event.kind, text, extra={"compactor_event": event.as_json()})
        answers = [_ask(hook, event) for kind in (event.kind, _EVERYTHING) for hook in self._hooks.get(kind, ())]
        if self.records:  # not during a dry run
            self._unrecorded.append({**event.as_json(), "time": event.at, "session": self._session_id})
            self._record(kind)
        return not any(answer is False for answer in answers)

    def _record(self, kind: EventKind) -> None:
        """Write all events to the store that are not there yet. If the store fails, the next event tries again. An
        event ``resumed`` waits for the next one, so that a session that is only opened again writes nothing."""
        while self._unrecorded and kind != "resumed":
            try:
                self._store.use(methodcaller("record_event", self._unrecorded[0]))
            except StoreError as error:
                logger.warning("event not recorded: %s", error)
                return
            del self._unrecorded[0]

    def load(self, earlier: Sequence[Mapping[str, Any]]) -> None:
        """Put stored events of earlier processes of this session before the events of this process. Records without a
        session's id, such as notes of an adapter, are left out."""
        session_events = (data for data in earlier if "session_id" in data)
        event_fields = ({name: data[name] for name in Event.__slots__ if name in data} for data in session_events)
        self.events = [*(Event(**fields) for fields in event_fields), *self.events]


def _checked_hooks(hooks: Hooks) -> dict[str, list[Hook]]:
    """Return a list of hooks for each kind of event. Raise SettingsError for an unknown kind or what is no function."""
    kinds = (*get_args(EventKind), _EVERYTHING)
    checked: dict[str, list[Hook]] = {}
    for kind, hook in hooks.items():
        if kind not in kinds:
            raise SettingsError(f"hooks: no event is called {kind!r}: {nearest(str(kind), kinds)}")
        checked[kind] = list(hook) if isinstance(hook, Sequence) and not callable(hook) else [hook]
        for one in checked[kind]:
            if not callable(one):
                raise SettingsError(f"hooks: expected callables, found {type(one).__name__}")
    return checked


def _ask(hook: Hook, event: Event) -> object:
    try:
        return hook(event)
    except Exception:  # a listener's own trouble must not reach the agent
        logger.exception("hook for %s failed", event.kind)
        return None


SCOPE = "relevance-compactor"
"""Name under which OpenTelemetry lists these counters and spans."""


class Telemetry:
    """OpenTelemetry counters of compactions, and a span (a timed record) around each, if the extra ``otel`` is
    installed. The user's program decides where the data goes."""

    def __init__(self) -> None:
        """Create the counters if OpenTelemetry is installed; without it, the methods do nothing."""
        self._tracer: Any = None
        if importlib.util.find_spec("opentelemetry") is None:
            return
        from opentelemetry import metrics, trace

        meter = metrics.get_meter(SCOPE)
        self._tracer = trace.get_tracer(SCOPE)
        self._compactions = meter.create_counter("compactor.compactions")
        self._reclaimed = meter.create_up_down_counter("compactor.reclaimed_tokens", unit="token")
        self._invalidated = meter.create_counter("compactor.invalidated_tokens", unit="token")
        self._failures = meter.create_counter("compactor.failures")

    def span(self, name: str, **attributes: str | int) -> Any:
        """Return a context manager that times its block as the span ``compactor.{name}``."""
        if self._tracer is None:
            return nullcontext()
        return self._tracer.start_as_current_span(f"compactor.{name}", attributes=attributes)

    def count(self, event: Event) -> None:
        """Add an event's tokens, or its failure, to the OpenTelemetry counters."""
        if self._tracer is None:
            return
        attributes = {"trigger": event.trigger, "tier": event.tier}
        if event.kind == "post_compact":
            self._compactions.add(1, attributes)
            self._invalidated.add(event.invalidated_tokens, attributes)
        if event.kind in ("post_compact", "undone"):  # undone: a negative number, so that compacting again counts once
            self._reclaimed.add(event.tokens_before - event.tokens_after, attributes)
        if event.kind in ("tier_failed", "store_failed", "prepare_failed"):
            self._failures.add(1, {"kind": event.kind})
