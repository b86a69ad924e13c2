"""Which session a request of a framework belongs to: the one given, or what a function names for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from planner.errors import StoreError

if TYPE_CHECKING:
    from applier.session import Session

__all__ = ["session_or_none"]

logger = logging.getLogger("applier.session")

R = TypeVar("R")


def session_or_none(session: Session | Callable[[R], Session | None], request: R) -> Session | None:
    """The session of `request`; None, which leaves it as it came, where none is named or the store cannot open it."""
    try:
        return session(request) if callable(session) else session
    except StoreError as error:
        logger.warning("no session could be opened, the request goes out as it came: %s", error)
        return None
