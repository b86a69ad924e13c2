"""Whether a text names only what its source holds: what is invented has no place in a plan.

Plain words are never questioned; a name counts as held when it stands in the source, or its parts do.
"""

from __future__ import annotations

import re

from planner.evidence.names import SpecificKind, specifics_of

__all__ = ["invented"]

_HYPHENATED = re.compile(r"[A-Za-z][a-z]*(?:-[a-z]+)+")
"""Plain words with hyphens ("re-run", "head-and-tail"): prose far more often than a name."""
_TURN_ID = re.compile(r"\bt\d+(?:\s*-\s*t?\d+)?\b")


def invented(text: str, source: str) -> list[str]:
    """Specifics of `text` that `source` does not hold, in order; ids of turns are not meant."""
    named = specifics_of(_TURN_ID.sub(" ", text))
    return [name for name, kind in named.items() if not _holds(source, name, kind)]


def _holds(source: str, name: str, kind: SpecificKind) -> bool:
    """True if `name` stands in `source`, or, of a path, the directories and the file apart."""
    if name in source or _HYPHENATED.fullmatch(name):
        return True
    return kind == "path" and all(part in source for part in re.split(r"[/\\]", name))
