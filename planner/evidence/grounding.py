"""Whether a text names only what its source holds: what is invented has no place in a plan.

Plain words are never questioned; a name counts as held when it stands in the source, or its parts do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from planner.evidence.names import specifics_of

__all__ = ["NameIndex", "invented"]

_HYPHENATED = re.compile(r"[A-Za-z][a-z]*(?:-[a-z]+)+")
"""Plain words with hyphens ("re-run", "head-and-tail"): prose far more often than a name."""
_TURN_ID = re.compile(r"\bt\d+(?:\s*-\s*t?\d+)?\b")


@dataclass(frozen=True)
class NameIndex:
    """What a source names."""

    text: str

    def holds(self, name: str) -> bool:
        """True if `name` stands in the source, or, of a path, the directories and the file apart."""
        if name in self.text or _HYPHENATED.fullmatch(name):
            return True
        return bool(re.search(r"[/\\]", name)) and all(part in self.text for part in re.split(r"[/\\]", name))


def invented(text: str, source: NameIndex | None) -> list[str]:
    """Names of `text` that `source` does not hold, in order; all of them without a source. Turn ids are not meant."""
    named = specifics_of(_TURN_ID.sub(" ", text))
    return [name for name in named if source is None or not source.holds(name)]
