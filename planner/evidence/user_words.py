"""Which lines bind the agent: the user's own words, what an earlier summary quotes of them, rules of the project.

Whose words a line is was decided before (`evidence.sources`); nothing here turns foreign text into the user's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from planner.evidence.calls import Call
from planner.evidence.sources import attributed
from planner.reading.lines import Line, Lines, Statement, numbers_of
from planner.reading.patterns import lazy_pattern

__all__ = ["Constraints", "constraints_of", "own_words"]

_QUOTED = lazy_pattern(r"\s*(?:[-*]|\d+\.)?\s*[\"“][^\"”]{4,}[\"”]")
"""A whole line in quotes: ``- "never touch main"``; not ``the word "main" is``."""
_BINDING = lazy_pattern(
    r"\b(?:must|never|always|don'?t|do not|doesn'?t|(?<!is )only|without|"
    r"should(?:n'?t)?|make sure|ensure|avoid|instead|"
    r"prefers?|require[sd]?|needs? to|have to|cannot|can'?t|won'?t|no longer|not|wants?|exactly|at least|at most|"
    r"unless|important|remember|from now on|keep|stop|leave|rather|forbidden|allowed|mandatory|strictly)\b"
    r"|(?:^|[.,;:(!]\s*|\b(?:and|but|so|please)\s)no\b"
    r"|^\s*(?-i:[A-Z][A-Z _-]{2,30}):\s",
    re.I,
)
"""Words that oblige: ``never push``, ``please no mocks``, ``LIMIT: 3``; not ``is only a test``, ``I know``."""
_RULE = lazy_pattern(
    r"^\s*(?:[-*]|\d+\.)\s+(?:\*\*)?(?:use|do not|don'?t|never|always|must|prefer|avoid|only|keep|run)\b"
    r"|^[^|`#]{0,60}\b(?:must|should|never|always)\b",
    re.I,
)
"""How project rules are written: ``- Use bun``, ``Commits must be signed``; not ``# Usage``, ``| must | cell |``."""
RULE_WORDS = 3
"""A rule has at least so many; what is shorter is a heading."""
PROJECT_RULES = 16
"""Of rules that the host quoted at most this many bind."""
SHORT_MESSAGE_CHARACTERS = 1_500
"""Own words up to this length bind in full; of longer ones only the sentences that say so."""
LONG_MESSAGE_LINES = 24
"""Of a pasted document at most this many binding statements bind: a document is not a demand."""
QUOTED_LINES = 48
"""Of a message, or of an earlier summary, at most this many quoted lines bind."""
PINNED_CHARACTERS = 6_000
"""Of one turn at most so much is pinned, the first words first: two pages of orders must not fill a view."""


def own_words(lines: Lines, calls: Sequence[Call] = ()) -> tuple[Line, ...]:
    """The lines of one turn that the user wrote."""
    return tuple(line for line in attributed(lines, calls) if line.source == "user" and line.text.strip())


@dataclass(frozen=True, slots=True)
class Constraints:
    """Line numbers of one turn whose words bind the agent, ascending."""

    lines: tuple[int, ...]
    """Words of the user, and rules of the project."""
    pinned: tuple[int, ...]
    """Of the user's those that say so: what must, may not, is preferred, or was answered to a question."""


def constraints_of(statements: Sequence[Statement]) -> Constraints:
    """What of one turn, of which `statements` are all, with their sources, binds the agent."""
    own = [one for one in statements if one.source == "user" and one.text.strip()]
    bound = [*_binding(own), *_quoted_before(statements)]
    pinned = [one for one in bound if says_so(one) or one.part == "result" or _QUOTED.match(one.text)]
    return Constraints(numbers_of([*bound, *_project_rules(statements)]), numbers_of(_at_most(pinned)))


def says_so(statement: Statement) -> bool:
    """True if a statement of the user says that it binds: must, never, only, instead."""
    return bool(_BINDING.search(statement.text) or _RULE.match(statement.text))


def _at_most(pinned: Iterable[Statement]) -> Iterator[Statement]:
    left = PINNED_CHARACTERS
    for statement in pinned:
        left -= len(statement.text)
        if left < 0:
            return
        yield statement


def _binding(own: Sequence[Statement]) -> Sequence[Statement]:
    if sum(len(one.text) for one in own) <= SHORT_MESSAGE_CHARACTERS:
        return own
    quoted = (one for one in own if _QUOTED.match(one.text))
    chosen = (*own[:2], *islice(quoted, QUOTED_LINES), *islice(filter(says_so, own), LONG_MESSAGE_LINES))
    return list(dict.fromkeys(chosen))


def _quoted_before(statements: Iterable[Statement]) -> Iterator[Statement]:
    """What a summary that an earlier compaction left in the user's message quotes of the user."""
    return islice((one for one in statements if one.source == "planner" and _QUOTED.match(one.text)), QUOTED_LINES)


def _project_rules(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Rules of the project that the host put into the user's message (AGENTS.md and the like), the first ones."""
    hosts = (one for one in statements if one.source == "host" and one.part == "user")
    return islice((one for one in hosts if _RULE.match(one.text) and _has_words(one.text)), PROJECT_RULES)


def _has_words(text: str) -> bool:
    return len(text.split()) >= RULE_WORDS
