"""Which lines are the user's own words, whoever's message carries them, and which of them bind the agent.

User messages hold machine text (reminders, expanded commands, an earlier summary); tool results hold words
of the user (a rejected call, an answered question). Decides by the marks that hosts leave around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from planner.lines import Line, statements

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
    return tuple(_own(lines))


def _own(lines: Iterable[Line]) -> Iterator[Line]:
    block, tag, heard, summary, skill = -1, "", False, False, False
    for said in statements(lines):
        if said.block != block:
            block, tag, heard = said.block, "", False
            summary, skill = bool(_SUMMARY.match(said.text)), bool(_SKILL.match(said.text))
        if said.part == "user":
            tag, machine = _within(said.text, tag)
            skill = skill and not _SKILL_ARGUMENTS.match(said.text)
            if machine or skill or (summary and not _QUOTED.match(said.text)):
                continue
            if said.text.strip():
                yield from said.lines
        elif said.part == "result":
            heard = heard or bool(_SAID.search(said.text))
            if heard and said.text.strip():
                yield from said.lines


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


def bonds_of(lines: Sequence[Line]) -> Bonds:
    """What of one turn binds the agent, whoever's message carries it."""
    words = own_words(lines)
    bound = set(_bound_by(words))
    demands = (said.numbers for said in statements(words) if _demands(said.text))
    return Bonds(
        lines=tuple(sorted({*bound, *_project_rules(lines, words)})),
        demands=tuple(sorted(bound & {number for numbers in demands for number in numbers})),
    )


def _demands(text: str) -> bool:
    return bool(_BINDING.search(text) or _RULE.match(text) or _QUOTED.match(text))


def _project_rules(lines: Iterable[Line], words: Iterable[Line]) -> Iterator[int]:
    """Rules of the project that the host put into the user's message (AGENTS.md and the like), the first ones."""
    own = {line.number for line in words}
    told = (said for said in statements(lines) if said.part == "user" and said.numbers[0] not in own)
    rules = (said for said in told if _RULE.match(said.text) and len(said.text.split()) >= RULE_WORDS)
    for said in islice(rules, PROJECT_RULES):
        yield from said.numbers


def _bound_by(words: Sequence[Line]) -> Iterator[int]:
    if sum(len(line.text) for line in words) <= SHORT_MESSAGE_CHARACTERS:
        yield from (line.number for line in words)
        return
    said = tuple(statements(words))
    binding = [statement for statement in said if _BINDING.search(statement.text) or _RULE.match(statement.text)]
    quoted = [statement for statement in said if _QUOTED.match(statement.text)]
    for statement in (*said[:2], *quoted, *binding[:LONG_MESSAGE_LINES]):
        yield from statement.numbers
