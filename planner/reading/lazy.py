"""Regular expressions and properties that are computed at their first use, so that importing the package stays fast."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that works like ``re.compile(text, flags)``, but is compiled only when it is first used."""
    return cast("re.Pattern[str]", _Pattern(text, flags))


class _Pattern:
    """Proxy of a compiled pattern, which it compiles at the first call of one of its methods."""

    def __init__(self, text: str, flags: int) -> None:
        self.pattern = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Compile the pattern, and store all its methods as attributes, which Python then finds without this method."""
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self._flags)
        self.__dict__ |= {method: getattr(compiled, method) for method in dir(compiled) if not method.startswith("_")}
        return getattr(compiled, name)


V = TypeVar("V", covariant=True)


class lazy_property(cached_property[V]):  # noqa: N801 - it is used as a decorator, beside `property`
    """Property that is computed at its first use and then stored, without a lock. `functools.cached_property` of Python
    3.11 has a lock: two planning threads would wait for each other, and a process forked meanwhile would wait for ever.
    If threads read this property first at the same time, each computes the value, and all get the same stored one."""

    if not TYPE_CHECKING:

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            """Return the value for `instance`. It is stored as an attribute of the same name, which Python finds before
            this property at the next use."""
            return self if instance is None else instance.__dict__.setdefault(self.attrname, self.func(instance))
