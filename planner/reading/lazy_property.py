"""A property that is computed when it is first read, and kept."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["lazy_property"]

V = TypeVar("V", covariant=True)


class lazy_property(cached_property[V]):  # noqa: N801 - it is used as a decorator, beside `property`
    """As `functools.cached_property`, which in Python 3.11 computes under a lock of its class: two threads that plan
    would wait for each other, and a process forked meanwhile would wait for ever.

    Threads that read it first at the same time each compute it; all get the value that was kept.
    """

    if not TYPE_CHECKING:

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            """The value for `instance`, kept under the property's name, which is looked up before this."""
            return self if instance is None else instance.__dict__.setdefault(self.attrname, self.func(instance))
