"""What the agent said that carries the work: its conclusions, causes, decisions and what it found, by sentence.

Prose alone: code, tables and what announces the next step are left out. Decides nothing about what is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from planner.evidence.gather import Evidence, TurnEvidence
from planner.evidence.state import Said
from planner.reading.patterns import lazy_pattern

__all__ = ["conclusions"]

LEAST_CHARACTERS, MOST_CHARACTERS = 30, 260
"""A shorter sentence says too little by itself; a longer one is cut, its cut marked."""

_SENTENCE = lazy_pattern(r"(?<=[.!?])\s+(?=[A-Z`*\"“(])")
"""Between sentences: ``it. The``; not ``e.g. this``, ``a.py``."""
_BULLET = lazy_pattern(r"^\s*(?:[-*•+]|\d{1,3}[.)]|#{1,6})\s+")
_BOLD = lazy_pattern(r"\*\*")
_PLAIN_CODE = lazy_pattern(r"^\s*(?:[|{}<>]|```|[│├└─]|//|\w+\s*[:=]=?\s*$)")
"""What is no prose: a row of a table, a brace, a fence, a tree."""
_ANNOUNCES = lazy_pattern(
    r"(?:(?:now|next|first|then|good|great|ok|okay|perfect)[,.!:]? )*(?:let me|let's|i'll|i will|i need to|now) ", re.I
)
"""What only says what comes next: ``Now let me check``."""
_TELLING = lazy_pattern(
    r"\b(?:because|since|so that|instead|rather than|root cause|the (?:issue|problem|reason|cause|catch|fix|key|killer)"
    r"|turns? out|means?|already|confirmed|decid|chos|recommend|trade-?off|reject|drop(?:ped)?|keep|kept|only|never"
    r"|must|won't|can't|cannot|doesn't|didn't|isn't|no longer|not |fails?|failed|passe[sd]|remaining|left|still|require"
    r"|default|fall(?:s|ing)? back|stored?|expected|conflict|resolved?|created|pushed|merged|fixed|added|removed)",
    re.I,
)
"""Words of cause, contrast, decision and result."""


def conclusions(evidence: Evidence) -> list[Said]:
    """Sentences in which the agent states a result, a cause or a decision, in the order of the history."""
    return [Said(text, (turn.turn.id,)) for turn in evidence.turns.values() for text in _telling(turn)]


def _telling(turn: TurnEvidence) -> Iterator[str]:
    fenced = False
    for one in turn.statements_of(line.number for line in turn.lines if line.part == "assistant"):
        if one.text.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not _PLAIN_CODE.match(one.text):
            for sentence in _SENTENCE.split(_BOLD.sub("", _BULLET.sub("", one.text)).strip()):
                if len(sentence) >= LEAST_CHARACTERS and _TELLING.search(sentence) and not _ANNOUNCES.match(sentence):
                    yield sentence if len(sentence) <= MOST_CHARACTERS else f"{sentence[:MOST_CHARACTERS].rstrip()}…"
