"""What the requests of one question cost: what the provider told of an answer; without an answer, what was sent.

A provider may bill input that it has read although its answer never came. Sends nothing itself, but holds back what
an SDK would send again of its own accord once time is up, or once nothing more may be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from threading import Lock
from typing import Any

from planner.plan import Usage

__all__ = ["HeldBack", "Meter", "metering"]

_NOTHING_SENT = frozenset(
    {
        "HeldBack",
        "ConnectError",
        "ConnectTimeout",
        "PoolTimeout",
        "ProxyError",
        "UnsupportedProtocol",
        "LocalProtocolError",
        "ConnectionRefusedError",
        "gaierror",
        "TypeError",
    }
)
"""Errors before a request goes out, of httpx and below; TypeError: an SDK takes no such argument, or finds no key."""
_GAVE_UP_WAITING = frozenset({408, 504, 524})
"""Statuses of a gateway between. Any other error status is the provider's word that it did not answer."""


class HeldBack(Exception):  # noqa: N818 - no error: what must not be sent was not
    """A request was not sent again. SDKs do not try again after this, whatever came before."""

    def __init__(self, failure: BaseException) -> None:
        """Keep `failure`, what became of the request before: not as a cause, which SDKs would look at."""
        super().__init__(str(failure))
        self.failure = failure


@dataclass
class Meter:
    """The requests of one question, one at a time; may be read and closed from another thread."""

    cost: Callable[[Mapping[str, Any]], Usage]
    """What a request with that body costs, as the counter estimates it."""
    most_tokens: float
    """What all of them may read: a request whose answer was lost is not sent again beyond it."""
    _spent: Usage = field(default_factory=Usage)
    _under_way: Mapping[str, Any] | None = None
    """The body of the request that is not answered yet."""
    _failure: BaseException | None = None
    """How the last answer was lost."""
    _closed: bool = False
    _lock: Lock = field(default_factory=Lock)

    @property
    def usage(self) -> Usage:
        """What was spent until now; what is under way counts as read."""
        with self._lock:
            return self._spent if self._under_way is None else self._spent + self.cost(self._under_way)

    def close(self) -> Usage:
        """What was spent: what comes back from now on does not change it, and nothing is sent again."""
        usage = self.usage
        with self._lock:
            if not self._closed:
                self._spent, self._under_way, self._closed = usage, None, True
            return self._spent

    def check(self, body: Mapping[str, Any]) -> None:
        """Hold back what an SDK sends again, if need be.

        Raises:
            HeldBack: it must not be sent.
        """
        with self._lock:
            lost, is_over = self._failure, self._closed
            if lost is not None and not is_over:
                is_over = (self._spent + self.cost(body)).read_tokens > self.most_tokens
        if is_over:
            raise HeldBack(lost or TimeoutError())

    def sent(self, body: Mapping[str, Any]) -> None:
        """A request goes out."""
        with self._lock:
            self._under_way = None if self._closed else body

    def answered(self, usage: Usage) -> None:
        """It was answered; not every provider tells what it has read."""
        with self._lock:
            body, self._under_way = self._under_way, None
            if body is not None and not usage.read_tokens:
                usage = self.cost(body).model_copy(update={"output_tokens": usage.output_tokens})
            if not self._closed:
                self._spent += usage

    def failed(self, failure: BaseException, attempts: int = 1) -> None:
        """It was not answered, sent `attempts` times; once that is known, it is not counted again."""
        with self._lock:
            body, self._under_way = self._under_way, None
            if body is not None and _may_be_read(failure):
                self._spent = sum([self.cost(body)] * attempts, self._spent)
                self._failure = failure

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """In this context, and in what it starts on an event loop, requests of metered clients are this question's."""
        token = _meter.set(self)
        try:
            yield
        finally:
            _meter.reset(token)


_meter: ContextVar[Meter | None] = ContextVar("meter of the planner model", default=None)


def _may_be_read(failure: BaseException) -> bool:
    """True unless it is known that nothing was sent, or that the provider did not answer."""
    error: BaseException | None = failure
    while error is not None:
        status = getattr(error, "status_code", None)
        if isinstance(status, int) and status >= 400:
            return status in _GAVE_UP_WAITING
        if type(error).__name__ in _NOTHING_SENT:
            return False
        error = error.__cause__
    return True


def metering(client: Any) -> Callable[..., Any]:
    """Middleware for `client`, of anthropic's SDK: tells the meter in force of each attempt, also of the SDK's own."""
    return _attempt_async if iscoroutinefunction(client.post) else _attempt


def _attempt(request: Any, call_next: Callable[[Any], Any]) -> Any:
    with _metered(request) as meter:
        response = call_next(request)
        _note_status(meter, response)
        return response


async def _attempt_async(request: Any, call_next: Callable[[Any], Any]) -> Any:
    with _metered(request) as meter:
        response = await call_next(request)
        _note_status(meter, response)
        return response


@contextmanager
def _metered(request: Any) -> Iterator[Meter | None]:
    meter = _meter.get()
    if meter is None:
        yield None
        return
    body = request.json if isinstance(request.json, Mapping) else {}
    meter.check(body)
    meter.sent(body)
    try:
        yield meter
    except BaseException as failure:
        meter.failed(failure)
        raise


def _note_status(meter: Meter | None, response: Any) -> None:
    """An error status is told here, for the SDK may send again before it raises one; any other by who reads it."""
    import anthropic

    http = response.http_response
    if meter is not None and not http.is_success:
        meter.failed(anthropic.APIStatusError(f"status {http.status_code}", response=http, body=None))
