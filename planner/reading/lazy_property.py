"""Property that is computed when it is first read, and kept."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

V = TypeVar("V", covariant=True)


class lazy_property(cached_property[V]):  # noqa: N801 - it is used as a decorator, beside `property`
    """Cached property without a lock.

    `functools.cached_property` of Python 3.11 computes under a lock of its class: two planning threads would wait for
    each other, and a process forked meanwhile would wait for ever. Threads that read it first at the same time each
    compute it; all get the same stored value.
    """

    if not TYPE_CHECKING:

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            """Return the value for `instance`, stored under the property's name, which Python looks up first."""
            return self if instance is None else instance.__dict__.setdefault(self.attrname, self.func(instance))
