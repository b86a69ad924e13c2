"""The short forms the planner model answers in: one line of text for a turn, a run of turns, or a fact.

``t9 summarize 6 failed 212-219,230 | Tried a mutex; deadlocked.``, ``decision t12 4-5 | Keep the old API.``
Reads the form only; whether turns and lines exist is checked against the history elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, cast

from planner.plan import FactType, Strategy

__all__ = [
    "BEST_SCORE",
    "ENTRY_FORM",
    "FACT_FORM",
    "FactEntry",
    "Range",
    "TurnEntry",
    "read_entry",
    "read_fact",
]

BEST_SCORE: Final = 9
ENTRY_FORM = "t<turn>[-t<turn>] keep|summarize|reference|drop <0-9> [failed] [<line>[-<line>],…] [| text]"
FACT_FORM = "decision|error|file_state|dependency|constraint t<turn> [<line>[-<line>],…] | text [| user's words]"

Range = tuple[int, int]
"""First and last, both included."""

_LINES = r"\d+(?:\s*-\s*\d+)?(?:\s*,\s*\d+(?:\s*-\s*\d+)?)*"
_ENTRY = re.compile(
    rf"""t(?P<first>\d+) (?:\s*-\s*t?(?P<last>\d+))? \s+
    (?P<strategy>keep|summari[sz]e|reference|drop) \s+ (?P<score>\d) (?![\d.])
    (?P<failed>\s+failed\b)? (?:\s+(?:lines?\s+)?(?P<lines>{_LINES}))? (?P<failed_late>\s+failed\b)?
    \s* (?:\|\s*(?P<text>.*))?""",
    re.VERBOSE | re.DOTALL,
)
_FACT = re.compile(
    rf"""(?P<type>decision|error|file_state|dependency|constraint) \s+ t(?P<turn>\d+)
    (?:\s+(?:lines?\s+)?(?P<lines>{_LINES}))? \s* \| \s* (?P<text>[^|]+?) \s* (?:\|\s*(?P<quote>.*?))?\s*""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class TurnEntry:
    """What an answer says of the turns `first` to `last`."""

    first: int
    last: int
    strategy: Strategy | None
    """None: by score alone."""
    score: int
    failed: bool
    lines: tuple[Range, ...]
    text: str
    """The gist if the turn is summarized, else the reason."""


@dataclass(frozen=True)
class FactEntry:
    """A fact an answer extracts."""

    type: FactType
    turn: int
    lines: tuple[Range, ...]
    """Where the user's words of a constraint stand."""
    text: str
    quote: str


def read_entry(form: str) -> TurnEntry | None:
    """The entry in `form`, or None if it has not the form of one."""
    match = _ENTRY.fullmatch(form.strip())
    if match is None:
        return None
    first = int(match["first"])
    lines = _ranges(match["lines"])
    strategy = cast(Strategy, match["strategy"].replace("summarise", "summarize"))
    return TurnEntry(
        first,
        int(match["last"] or first),
        "summarize" if lines else strategy,
        int(match["score"]),
        bool(match["failed"] or match["failed_late"]),
        lines,
        (match["text"] or "").strip(),
    )


def read_fact(form: str) -> FactEntry | None:
    """The fact in `form`, or None if it has not the form of one."""
    match = _FACT.fullmatch(form.strip())
    if match is None:
        return None
    quote = (match["quote"] or "").strip().strip('"“”').strip()
    return FactEntry(cast(FactType, match["type"]), int(match["turn"]), _ranges(match["lines"]), match["text"], quote)


def _ranges(text: str | None) -> tuple[Range, ...]:
    ends = [part.split("-") for part in (text or "").split(",") if part.strip()]
    return tuple((int(pair[0]), int(pair[-1])) for pair in ends)
