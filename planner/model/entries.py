"""The short forms the planner model answers in: one line of text for turns or for a fact, read word by word.

``t9 summarize 6 failed 212-219,230 | Tried a mutex; deadlocked.``, ``decision t12 4-5 | Keep the old API.``
Reads the form only; whether turns and lines exist is checked elsewhere. A near form is read as what it means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, cast, get_args

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
DEFAULT_SCORES: dict[Strategy, int] = {"keep": 7, "summarize": 5, "reference": 2, "drop": 0}
"""The score of an entry that names none."""

ENTRY_FORM = "t<turn>[-t<turn>][,…] keep|summarize|reference|drop <0-9> [failed] [<line>[-<line>],…] [| gist]"
FACT_FORM = "decision|error|file_state|dependency|constraint t<turn> [<line>[-<line>],…] | text [| user's words]"

Range = tuple[int, int]
"""First and last, both included."""


@dataclass(frozen=True)
class TurnEntry:
    """What an answer says of one or more runs of turns."""

    runs: tuple[Range, ...]
    strategy: Strategy | None
    """None: by score alone."""
    score: int
    failed: bool = False
    lines: tuple[Range, ...] = ()
    text: str = ""
    """The gist if the turn is summarized, else the reason."""
    unread: str = ""
    """Words that belong to no form."""

    @property
    def alone(self) -> bool:
        """True if it speaks of a single turn."""
        return len(self.runs) == 1 and self.runs[0][0] == self.runs[0][1]


@dataclass(frozen=True)
class FactEntry:
    """A fact an answer extracts."""

    type: FactType
    turn: int
    lines: tuple[Range, ...]
    """Where the user's words of a constraint stand."""
    text: str
    quote: str


_NUMBER = r"(\d{1,7})"
_TURNS = re.compile(rf"t{_NUMBER}(?:-t?{_NUMBER})?")
"""``t9``, ``t15-t22``, ``t15-22``."""
_LINES = re.compile(rf"{_NUMBER}(?:-{_NUMBER})?")
"""``12``, ``212-219``."""
_DASHES = str.maketrans("–—−", "---")
_STRATEGIES: dict[str, Strategy] = {name: name for name in get_args(Strategy)} | {"summarise": "summarize"}


def read_entry(form: str) -> TurnEntry | None:
    """The entry in `form`, or None if it has not the form of one."""
    head, _, text = form.partition("|")
    words = head.translate(_DASHES).lower().strip(" \t-*•\"'").split()
    at = next((at for at, word in enumerate(words) if word.strip(":,") in _STRATEGIES), len(words))
    runs = _ranges(_TURNS, "".join(words[:at]).rstrip(":"))
    if at == len(words) or not runs:
        return None
    strategy = _STRATEGIES[words[at].strip(":,")]
    marks = words[at + 1 :]
    score = _score(marks[0]) if marks else None
    marks = marks[score is not None :]
    failed = [mark for mark in marks if mark.strip(",") == "failed"]
    marks = [mark for mark in marks if mark.strip(",:") not in ("failed", "line", "lines")]
    lines = _ranges(_LINES, "".join(marks)) or ()
    return TurnEntry(
        runs,
        "summarize" if lines else strategy,
        DEFAULT_SCORES[strategy] if score is None else score,
        bool(failed),
        lines,
        text.strip(),
        "" if lines else " ".join(marks),
    )


def _score(word: str) -> int | None:
    """``7`` is 7; ``10`` the best; ``0.7`` a share of it; anything else none."""
    if not re.fullmatch(r"\d|10|[01]?\.\d{1,4}|1\.0{1,4}", word):
        return None
    return min(BEST_SCORE, round(float(word) * BEST_SCORE) if "." in word else int(word))


def _ranges(form: re.Pattern[str], text: str) -> tuple[Range, ...] | None:
    """The ranges of `text`, separated by commas; None if any is none."""
    matches = [form.fullmatch(part) for part in text.split(",") if part]
    ranges = tuple((int(m[1]), int(m[2] or m[1])) for m in matches if m is not None)
    return ranges if ranges and len(ranges) == len(matches) else None


def read_fact(form: str) -> FactEntry | None:
    """The fact in `form`, or None if it has not the form of one."""
    head, _, behind = form.partition("|")
    text, _, quote = behind.partition("|")
    words = head.translate(_DASHES).strip(" \t-*•\"'").split()
    turn = _TURNS.fullmatch(words[1]) if len(words) > 1 else None
    if turn is None or words[0] not in get_args(FactType) or not text.strip():
        return None
    lines = _ranges(_LINES, "".join(word for word in words[2:] if word not in ("line", "lines")))
    if lines is None and len(words) > 2:
        return None
    return FactEntry(
        cast(FactType, words[0]), int(turn[1]), lines or (), text.strip(), quote.strip().strip('"“”').strip()
    )
