"""Values that are computed at first use: regular expressions, and properties."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return ``re.compile(text, flags)``, compiled at its first use."""
    return cast("re.Pattern[str]", _Pattern(text, flags))


class _Pattern:
    """Proxy of a compiled pattern."""

    def __init__(self, text: str, flags: int) -> None:
        self.pattern = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Compile the pattern at the first use of a method, and store its methods, which Python then finds first."""
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self._flags)
        self.__dict__ |= {method: getattr(compiled, method) for method in dir(compiled) if not method.startswith("_")}
        return getattr(compiled, name)


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
