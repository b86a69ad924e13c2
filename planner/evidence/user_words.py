"""Which lines are the user's own words, whoever's message carries them, and which of them bind the agent.

User messages hold machine text (reminders, expanded commands, an earlier summary); tool results hold words
of the user (a rejected call, an answered question). Decides by the marks that hosts leave around them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from planner.reading.lines import Line, Statement, numbers_of, statements

__all__ = ["Bonds", "bonds_of", "is_machine_text", "own_words"]

_MACHINE_TAGS = (
    "system-reminder|system_reminder|local-command-caveat|local-command-stdout|local-command-stderr|command-name|"
    "command-message|environment_context|INSTRUCTIONS|user_instructions|user-prompt-submit-hook|ide_opened_file|"
    "ide_selection|permissions instructions|turn_aborted|current_datetime|sql_tables|reminder|bash-stdout|"
    "bash-stderr|task-notification|collaboration_mode|skill|skills_instructions|apps_instructions"
)
_OPEN = re.compile(rf"^\s*<({_MACHINE_TAGS})(?:\s[^>]*)?>", re.I)
_CLOSE = re.compile(rf"</({_MACHINE_TAGS})>", re.I)
_MACHINE_LINE = re.compile(
    r"^\s*(?:Caveat: The messages below|\[Request interrupted by user|# AGENTS\.md instructions for|"
    r"\[Image: |ARGUMENTS:\s*$|<command-args>\s*</command-args>\s*$)"
)
_SUMMARY = re.compile(
    r"^\s*(?:This session is being continued from a previous conversation|"
    r"Another language model started to solve this problem|<summary>|<compacted )"
)
_SKILL, _SKILL_ARGUMENTS = re.compile(r"^\s*Base directory for this skill"), re.compile(r"^ARGUMENTS:")
"""A host quotes a skill in the user's message; what the user gave it stands at its end."""
_SAID = re.compile(
    r"the user said:|user (?:has )?answered|user's (?:answer|response|feedback)|user (?:chose|selected|wrote|provided)|"
    r"the user provided the following|To tell you how to proceed",
    re.I,
)
_QUOTED = re.compile(r"^\s*(?:[-*]|\d+\.)?\s*[\"“].{4,}[\"”](?:\s*\([^)]*\)?)?")

_BINDING = re.compile(
    r"\b(?:must|never|always|don'?t|do not|doesn'?t|(?<!is )only|without|"
    r"should(?:n'?t)?|make sure|ensure|avoid|instead|"
    r"prefers?|require[sd]?|needs? to|have to|cannot|can'?t|won'?t|no longer|not|wants?|exactly|at least|at most|"
    r"unless|important|remember|from now on|keep|stop|leave|rather|forbidden|allowed|mandatory|strictly)\b"
    r"|(?:^|[.,;:(!]\s*|\b(?:and|but|so)\s)no\b"
    r"|^\s*(?-i:[A-Z][A-Z _-]{2,30}):\s",
    re.I,
)
_RULE = re.compile(
    r"^\s*(?:[-*]|\d+\.)\s+(?:\*\*)?(?:use|do not|don'?t|never|always|must|prefer|avoid|only|keep|run)\b"
    r"|^[^|`#]{0,60}\b(?:must|should|never|always)\b",
    re.I,
)
RULE_WORDS = 3
"""A rule has at least so many; what is shorter is a heading."""
PROJECT_RULES = 16
"""Of rules that the host quoted at most this many are obligations."""
SHORT_MESSAGE_CHARACTERS = 1_500
"""Own words up to this length bind in full; of longer ones only the sentences that say so."""
LONG_MESSAGE_LINES = 24
"""Of a pasted document at most this many binding statements are obligations: a document is not a demand."""


def is_machine_text(text: str) -> bool:
    """True if `text` as a whole was put into the user's message by the host."""
    return any(pattern.match(text) for pattern in (_OPEN, _MACHINE_LINE, _SUMMARY, _SKILL))


def own_words(lines: Iterable[Line]) -> tuple[Line, ...]:
    """The lines of `lines` that the user wrote."""
    return tuple(line for said in _own(statements(lines)) for line in said.lines)


def _own(told: Iterable[Statement]) -> Iterator[Statement]:
    block, tag, heard, summary, skill = -1, "", False, False, False
    for said in told:
        if said.block != block:
            block, tag, heard = said.block, "", False
            summary, skill = bool(_SUMMARY.match(said.text)), bool(_SKILL.match(said.text))
        if said.part == "user":
            tag, machine = _within(said.text, tag)
            skill = skill and not _SKILL_ARGUMENTS.match(said.text)
            if machine or skill or (summary and not _QUOTED.match(said.text)):
                continue
            if said.text.strip():
                yield said
        elif said.part == "result":
            heard = heard or bool(_SAID.search(said.text))
            if heard and said.text.strip():
                yield said


def _within(text: str, tag: str) -> tuple[str, bool]:
    """The machine tag still open behind `text`, and whether `text` is machine text."""
    opened = _OPEN.match(text)
    tag = opened.group(1).lower() if opened and not tag else tag
    machine = bool(tag) or bool(_MACHINE_LINE.match(text))
    closed = _CLOSE.search(text)
    return ("" if closed and closed.group(1).lower() == tag else tag), machine


@dataclass(frozen=True, slots=True)
class Bonds:
    """Line numbers of one turn whose words bind the agent, ascending."""

    lines: tuple[int, ...]
    """Words of the user, and rules of the project."""
    demands: tuple[int, ...]
    """Of the user's those that say so: what must, may not, is preferred, or was answered to a question."""


def bonds_of(told: Sequence[Statement]) -> Bonds:
    """What of one turn, of which `told` are all statements, binds the agent, whoever's message carries it."""
    own = tuple(_own(told))
    bound = set(_bound_by(own))
    return Bonds(
        lines=numbers_of({*bound, *_project_rules(told, frozenset(own))}),
        demands=numbers_of(said for said in bound if _says_so(said) or _QUOTED.match(said.text)),
    )


def _says_so(said: Statement) -> bool:
    return bool(_BINDING.search(said.text) or _RULE.match(said.text))


def _project_rules(told: Iterable[Statement], own: Collection[Statement]) -> Iterator[Statement]:
    """Rules of the project that the host put into the user's message (AGENTS.md and the like), the first ones."""
    others = (said for said in told if said.part == "user" and said not in own)
    return islice((s for s in others if _RULE.match(s.text) and len(s.text.split()) >= RULE_WORDS), PROJECT_RULES)


def _bound_by(own: Sequence[Statement]) -> Iterable[Statement]:
    if sum(len(said.text) for said in own) <= SHORT_MESSAGE_CHARACTERS:
        return own
    quoted = (said for said in own if _QUOTED.match(said.text))
    return (*own[:2], *quoted, *islice(filter(_says_so, own), LONG_MESSAGE_LINES))
