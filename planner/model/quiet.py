"""Keeps instructor's own logger silent about failures that are returned as outcomes.

Touches no record of anyone else's calls, and no handler or level of the host's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["instructor_quiet"]

_asking: ContextVar[bool] = ContextVar("asking the planner model", default=False)


def _unless_asking(_record: logging.LogRecord) -> bool:
    return not _asking.get()


@contextmanager
def instructor_quiet() -> Iterator[None]:
    """In this context (and what it starts on an event loop) instructor logs no failed call."""
    logging.getLogger("instructor.v2.retry").addFilter(_unless_asking)
    token = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(token)
