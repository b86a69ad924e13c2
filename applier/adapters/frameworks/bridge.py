"""What every bridge does: it finds the session of a request, and prepares foreign messages by their plain form.

Nothing here raises: what cannot be prepared goes out as it came.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

from applier.session import Session
from applier.settings import load_settings
from planner.errors import SettingsError, StoreError
from planner.reading.messages import Message, message_digest

__all__ = ["SessionOf", "opener", "through"]

logger = logging.getLogger("applier.session")

R = TypeVar("R")
T = TypeVar("T")
SessionOf = Callable[[R], "Session | None"]
"""Names the session of a request; None leaves it alone."""


def opener(session: Session | SessionOf[R]) -> SessionOf[R]:
    """What names the session of a request: always `session`, or what that says.

    Where none can be opened, because the store or the settings fail, that is None, and the log says so once; settings
    that no session could be opened with are said now.
    """
    if not callable(session):
        return lambda _request: session
    try:
        load_settings()
    except SettingsError as error:
        logger.warning("sessions with the settings of this environment cannot be opened: %s", error)

    def opened(request: R) -> Session | None:
        try:
            return session(request)
        except (StoreError, SettingsError) as error:
            _say_once(f"no session could be opened, requests go out as they came: {error}")
            return None

    return opened


@cache
def _say_once(problem: str) -> None:
    logger.warning(problem)


def through(
    act: Callable[[list[Message]], list[Message] | None],
    foreign: Sequence[T],
    plain: Callable[[T], Message],
    built: Callable[[Message], T],
) -> list[T] | None:
    """`foreign` messages after `act` on their `plain` form; what that leaves as it was is the same object.

    None if `act` says None, or a message has no plain form.
    """
    try:
        pairs = [(plain(message), message) for message in foreign]
    except Exception as error:  # noqa: BLE001 - what only its own provider understands must reach it all the same
        logger.warning("the messages go out as they came: %s: %s", type(error).__name__, error)
        return None
    view = act([message for message, _ in pairs])
    if view is None:
        return None
    known = {message_digest(message): original for message, original in pairs}
    return [known.get(message_digest(message)) or built(message) for message in view]
