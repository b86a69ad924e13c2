"""Regular expressions that are compiled at their first use, so that importing the package stays fast."""

from __future__ import annotations

import re
from typing import Any, cast


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
