"""How a project is checked: the commands of its checks that passed, as they were given.

One that names a file or a test is of that work alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from applier.learning.kinds import Lesson, folded, sentences
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.outcomes import RAN_NOTHING
from planner.evidence.shell import Command
from planner.evidence.state import check_kind
from planner.reading.lines import statements

__all__ = ["check_commands"]

_PLAN = re.compile(r"\bI(?:['’]ll| will)\b")
MOST_WORDS, WHY_CHARACTERS = 5, 280
_REASON = re.compile(
    r"\b(?:since|because|has no|doesn['’]t have|so (?:that )?(?:the|build|tests?|it)\b.*\b(?:use|see|find))", re.I
)
_OF_ONE_WORK = re.compile(r"-run|-k|-t|--grep|.*::.*|.*\.\w{1,5}(?::\d+)?|(?!\./\.\.\.$).*/.*|.*[$`\"'*\\].*")
"""A word that names a file, a folder or a test: ``-run``, ``a.test.ts``, ``packages/core``; not ``./...``."""
_EVERYBODYS = re.compile(
    r"go (?:build|test|vet) \./\.\.\.|cargo (?:build|check|clippy|test)|make"
    r"|(?:npm|pnpm|yarn|bun)(?: run)? (?:build|check|lint|test|typecheck)"
    r"|(?:python3? -m )?(?:pytest|unittest)"
)
"""What anybody tries first in such a project."""


def check_commands(evidence: Evidence) -> Iterator[Lesson]:
    """Each command once, where it passed first; it counts if another conversation gave it, too. And what has to be
    built, where the agent says why.
    """
    told: set[str] = set()
    for turn, call, outcome in evidence.ended_calls():
        shown = outcome.status == "passed" or (outcome.status == "done" and outcome.exit_code == 0)
        if not shown or any(RAN_NOTHING.search(one.text) for one in turn.statements_of(outcome.lines)):
            continue
        for command in call.commands if call.kind == "run" else ():
            words, kind = " ".join(command.words), check_kind(command)
            if kind and _is_general(command) and not _EVERYBODYS.fullmatch(words) and words not in told:
                told.add(words)
                yield Lesson("command", f"{kind}: `{words}`", words, turn.turn.id, words, lasting=False)
            if kind == "build" and f"why {words}" not in told:
                for why in _reasons(turn):
                    told.add(f"why {words}")
                    yield Lesson("command", f"`{words}`: “{why}”", why, turn.turn.id, f"why {words}")


def _reasons(turn: TurnEvidence) -> Iterator[str]:
    """What the agent says of it at once, if that gives a reason."""
    spoken = " ".join(folded(one.text) for one in statements(turn.lines.of_part("assistant")))
    yield from islice((one for one in sentences(spoken) if _is_reason(one)), 1)


def _is_reason(sentence: str) -> bool:
    return bool(_REASON.search(sentence)) and len(sentence) <= WHY_CHARACTERS and not _PLAN.search(sentence)


def _is_general(command: Command) -> bool:
    is_whole = command.before in (";", "&&") and len(command.words) <= MOST_WORDS
    return is_whole and not any(_OF_ONE_WORK.fullmatch(word) for word in command.words)
