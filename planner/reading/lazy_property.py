"""A property that is computed when it is first read, and kept.

As `functools.cached_property`, which in Python 3.11 computes under a lock of its class: two threads that plan would
wait for each other, and a process forked meanwhile would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["lazy_property"]

V = TypeVar("V")


class lazy_property(Generic[V]):  # noqa: N801 - it is used as a decorator, beside `property`
    """Decorates a method without arguments, of a class whose objects have a ``__dict__`` and do not change.

    Threads that read it first at the same time each compute it; all get the value that was kept.
    """

    def __init__(self, compute: Callable[[Any], V]) -> None:
        """`compute` is the method."""
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """Values are kept under the method's own name, which is looked up before this descriptor."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> V: ...

    def __get__(self, instance: object, owner: type | None = None) -> Self | V:
        """The value for `instance`."""
        if instance is None:
            return self
        value: V = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value
