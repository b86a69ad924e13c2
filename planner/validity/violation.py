"""What a rule finds wrong: which rule, where, what, and what would mend it. A value, never an exception."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MENDED_BY_THE_API", "Violation"]

MENDED_BY_THE_API = frozenset({"alternation", "result_order"})
"""Codes of what the Messages API mends itself: it merges neighbours of one role and pairs results by id."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One place of a request that breaks one rule."""

    rule: int
    """1 to 24: the function that checks it says what it demands."""
    place: str
    """``messages[3].content[1]``, ``messages[3]``, ``system[0]``, ``tools[2]`` or ``messages``."""
    problem: str
    cure: str
    code: str
    """Tells the problems of one rule apart: ``alternation``, ``split_results``, …"""

    @property
    def refused(self) -> bool:
        """True if the Messages API answers 400; False if only stricter providers refuse it."""
        return self.code not in MENDED_BY_THE_API

    def __str__(self) -> str:
        """One line: the place, the problem, the cure and the rule."""
        return f"{self.place}: {self.problem}; {self.cure} (rule {self.rule})"
