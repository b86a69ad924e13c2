"""How a call ended: its exit code, and the lines that say whether a run passed or failed, with what counts.

A run that ended green is green whatever its log holds; a search that exits 1 because it found nothing did not fail.
Reads results only; what a failure's lines are is for `evidence.failures` to say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from planner.evidence.boilerplate import is_wrapping
from planner.evidence.calls import COMMAND_CHARACTERS, Call, is_looking, last_run, passed_on
from planner.reading.lines import Statement
from planner.reading.patterns import held_words, holds_any, lazy_pattern

__all__ = [
    "Outcome",
    "Status",
    "Verdict",
    "exit_code",
    "exits_by_answer",
    "found_nothing",
    "printed_lines",
    "telling_lines",
    "verdict",
    "verdict_of_run",
]

Verdict = Literal["passed", "failed"]
Status = Literal["passed", "failed", "done", "unanswered"]

OUTCOME_LINES = 3
"""A result of at most so many lines is its own outcome; of a longer one at most so many are told."""
MOST_WRAPPING = 24
"""Of what a host prints around the text of a file there are fewer lines."""
HEAD_LINES, TAIL_LINES = 6, 4
"""Hosts print an exit code within so many lines of the start or of the end of a result."""

_EXIT = lazy_pattern(
    r"^\s*(?:Process exited with code|Exit code:?|Error: Exit code|exit status|exited with code|"
    r"\[?(?:The )?[Cc]ommand (?:completed|finished|exited|failed) with exit code:?"
    r"|<shellId: \S+ completed with exit code)"
    r" *(-?\d{1,10})\b"
    r"|^\s*Command .{0,160} executed with exit code (\d{1,10})\b"
    r"|^\s*\{.{0,200}\"exit_?[cC]ode\": ?(-?\d{1,10})\b|\"exit_?[cC]ode\": ?(-?\d{1,10})\b"
    r"|^\s*(?:exit(?:ed)?(?: with)?(?: code| status)|return ?code)\s*[:=]?\s*(-?\d{1,10})\b"
    r"|\[[Ee]xited with code (-?\d{1,10})\]$",
)
"""``Exit code 2``, ``Process exited with code 0``, ``"exit_code": 1``; not ``# exit code 2 means usage``."""
_SEARCHES = lazy_pattern(
    r"(?:\w+=\S+ )*(?:(?:git (?:-C \S+ )?)?grep|[ef]grep|rg|ag|ack|pgrep|which|type|command -v)(?: |$)"
)
"""Commands whose exit code 1 says that they found nothing: ``rg x``, ``git grep x``; not ``grip``, ``! grep x``."""
_COMPARES = lazy_pattern(r"(?:\w+=\S+ )*(?:(?:git (?:-C \S+ )?)?diff|cmp|test|\[)(?: |$)")
"""Commands whose exit code 1 says "no" and nothing else: ``git diff --quiet``, ``test -f a``; not ``difft``."""
_SPEAKS_UP = lazy_pattern(r"(?:cd|pushd|popd|echo|printf|export|set|source|sleep|true|:|\w+=\S*)(?: |$)")
"""Commands that mostly succeed, and say so if they do not: ``cd src``, ``x=1``; as those that only look do."""
_NO_OF_SOME = 123
"""What ``xargs`` exits with if a command that it ran exited with 1 to 125 (GNU; BSD's exits 1)."""
_SHELL_SAYS = lazy_pattern(r"-?(?:/\S{1,80}/)?(?:ba|z|da|k|fi)?sh(?::(?: line)? ?\d+)?: ")
"""How a shell complains of what it was to run: ``zsh:1: unmatched "``, ``bash: line 3: x: command not found``."""
_NONE = lazy_pattern(r"\W*no (?:[\w'-]+ ){1,4}?(?:(?:were )?found|reported|match(?:ed|es)?|exists?)\b", re.I)
"""How a command that looks says that there is none: ``no pull requests found for branch "x"``, ``no checks reported``;
not ``no such file``."""

_FAILED_RUN = lazy_pattern(
    r"^\s*(?:=+ )?.{0,80}?\b[1-9]\d{0,9} (?:tests? |specs? |examples? |suites? )?fail(?:ed|ing|ures?"
    r"|s)?(?=\s*(?:$|[,;|)(=.]|in \d))"
    r"|^\s*(?:FAIL|FAILED)(?:\s*$|\t| \(|\s+[\w./@-]+(?:\s|$))|^--- FAIL|^test result: FAILED"
    r"|.*ERROR task failed|^\s*(?:BUILD FAILED|Build failed|make(?:\[\d+\])?: \*\*\* )|^npm (?:ERR!|error)"
    r"|^\s*(?:✖|✗|×|Found|Summary:)?\s*[1-9]\d{0,9} (?:(?:problems?|errors?)\b(?! fixed)|issues?:)"
    r"|^error: script \"|^\s*error Command failed|.*ELIFECYCLE|^error: could not compile|^Exited with code [1-9]",
)
"""How a run says that it failed: ``1 failed, 4 passed in 2s``, ``FAIL\\tpkg``, ``✖ 3 problems``; not ``0 failed``,
``FAILED = 3``, ``12 errors fixed``."""
_PASSED_RUN = lazy_pattern(
    r"^\s*(?:=+ )?(?:Tests?:? +|Test Files +|✔ |✓ )?\d{1,10} (?:tests? |specs? )?pass(?:ed|ing)?\b"
    r"|^\s*\d{1,10} (?:examples?|runs|tests), .{0,80}\b0 failures|^\s*0 fail(?:ed|ures?|ing)?\b"
    r"|^OK(?:\s*$| \()|^PASS\s*$|^ok\s+\S+\s+(?:[\d.]+m?s|\(cached\))|^test result: ok"
    r"|^\s*(?:BUILD SUCCESS|Build succeeded)|^All (?:checks|tests|files) (?:passed|pass)\b"
    r"|^\s*(?:Success: no issues found|Found no errors|Found 0 errors|0 (?:errors|issues|problems)\b|No issues found)"
    r"|^Exited with code 0$|^Checked \d+ files? in .{0,40}\. No fixes applied",
    re.I,
)
"""How a run says that it passed: ``1290 pass``, ``OK``, ``ok  pkg 0.3s``, ``All checks passed!``; not ``passed = 3``.
"""
_FAILED_WORDS = ("fail", "err", "issue", "problem", "***", "exited", "elifecycle")
_PASSED_WORDS = ("pass", "ok", "succe", "no fixes")
"""Every match of `_FAILED_RUN` holds one of the first, every match of either one of all, in lower case."""
_PREFIX = lazy_pattern(r"\s*(?:@?[\w./-]{1,80} [\w:-]{1,40}: |\[[\w:.-]{1,40}\] )")
"""What runners of several scripts print in front of each line: ``@app/core test:``, ``[lint:go]``."""
_DONE = lazy_pattern(
    r"\[[\w./-]+ (?:\(root-commit\) )?[0-9a-f]{7,40}\] |\s*\d+ files? changed|\s*(?:[✓✔√] )?(?:To "
    r"|Switched to|Already |"
    r"Created|Merged|Updated|Deleted|HEAD is now|Successfully|Success\b|Saved|Wrote|Done\b|Committed|Pushed"
    r"|Fast-forward|"
    r"No (?:matches|files|results|changes)|Found \d+|nothing to commit|Everything up-to-date)",
)
_DONE_WITHIN = lazy_pattern(r"https?://\S|->|up to date\b")
"""What a command says of what it did: a URL, ``[main a1b2c3d] Fix``, ``2 files changed``, ``✓ Created issue 7``; how
its line begins, and what may stand anywhere in it."""

_TAG = lazy_pattern(r"</?[\w-]{1,40}>")
"""A tag alone, which says nothing of how a call ended: ``</output>``."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one call ended."""

    status: Status
    """``done``: nothing says that it passed or failed."""
    lines: tuple[int, ...]
    """Numbers of the lines that say so, ascending; empty where none does."""


def exit_code(result: Sequence[Statement]) -> int | None:
    """The exit code that the host prints at the start or end of a result; None without one."""
    tail = result[max(HEAD_LINES, len(result) - TAIL_LINES) :]
    for statement in (*result[:HEAD_LINES], *tail):
        if ("xit" in statement.text or "return" in statement.text) and (match := _EXIT.search(statement.text)):
            return int(next(group for group in match.groups() if group is not None))
    return None


def found_nothing(call: Call, result: Sequence[Statement]) -> bool:
    """True if a search or comparison exits 1, which is its answer and no failure; so is 123 of an ``xargs`` of it."""
    last = _said_no(call, result)
    if not last:
        return False
    lines = printed_lines(result)
    if not lines:
        return any(_SEARCHES.match(one) or _COMPARES.match(one) for one in last)
    if _COMPARES.match(last[-1]) and "diff" in last[-1].split(" ", 3)[:3]:
        return True
    looked = call.kind in ("read", "search") and all(map(_would_say, last))
    return looked and bool(_NONE.match(lines[-1].text))


def exits_by_answer(call: Call, result: Sequence[Statement]) -> bool:
    """True if exit code 1 is the answer of a search that ran behind other commands: what is printed is theirs, and
    says whether one of them failed."""
    last = _said_no(call, result)
    others = [one for one in last if not _SEARCHES.match(one)]
    if len(others) == len(last) or not all(map(_would_say, others)):
        return False
    return not any(_SHELL_SAYS.match(one.text) for one in printed_lines(result))


def _said_no(call: Call, result: Sequence[Statement]) -> list[str]:
    """The commands of `call` that may have said "no" by its exit code; none if that is another."""
    code = exit_code(result)
    if code not in (1, _NO_OF_SOME):
        return []
    last = last_run(call.command[-COMMAND_CHARACTERS:])
    if code == 1:
        return [passed_on(one) or one for one in last]
    return [ran for ran in map(passed_on, last) if ran]


def _would_say(command: str) -> bool:
    """True for a command that does not fail without a word."""
    return bool(_SPEAKS_UP.match(command)) or is_looking(command)


def printed_lines(result: Sequence[Statement]) -> list[Statement]:
    """What the command itself printed, without what the host says around it."""
    filled = (one for one in result if one.text.strip())
    return [one for one in filled if not (is_wrapping(one.text) or _EXIT.fullmatch(one.text.strip()))]


def verdict(text: str, failed: Sequence[str] = _FAILED_WORDS, passed: Sequence[str] = _PASSED_WORDS) -> Verdict | None:
    """What one line says of how a run ended, if it holds one of the words that stand near it."""
    folded = text.casefold()
    may_fail = holds_any(folded, failed)
    if not (may_fail or holds_any(folded, passed)):
        return None
    prefix = _PREFIX.match(text)
    bare = text[prefix.end() :] if prefix else text
    if may_fail and _FAILED_RUN.match(bare):
        return "failed"
    return "passed" if _PASSED_RUN.match(bare) else None


def verdict_of_run(result: Sequence[Statement]) -> tuple[Verdict | None, tuple[Statement, ...]]:
    """How a run ended, and the lines that say so: the last one decides.

    A failure that was counted before it stands, unless the exit code is known to be 0: of two commands in one line the
    first may have failed.
    """
    near = held_words([one.text for one in result], (*_FAILED_WORDS, *_PASSED_WORDS))
    failed, passed = [word for word in near if word in _FAILED_WORDS], [word for word in near if word in _PASSED_WORDS]
    judged = [(one, word) for one in result if (word := verdict(one.text, failed, passed))] if near else []
    if not judged:
        return None, ()
    final = judged[-1][1]
    if final == "passed" and exit_code(result) != 0 and any(word == "failed" for _, word in judged):
        final = "failed"
    return final, tuple(one for one, word in judged if word == final)[-OUTCOME_LINES:]


def telling_lines(call: Call, result: Sequence[Statement]) -> tuple[Statement, ...]:
    """The lines of a result that say how `call` ended, where no verdict does: all of a short one."""
    saying = (one for one in result if (bare := one.text.strip()) and not _TAG.fullmatch(bare))
    filled = list(islice(saying, MOST_WRAPPING) if call.kind == "read" else saying)
    printed = [one for one in filled if not is_wrapping(one.text)] or filled
    if len(printed) <= OUTCOME_LINES:
        return tuple(printed)
    if call.kind == "read":
        return ()
    telling = [one for one in printed if _DONE.match(one.text) or _DONE_WITHIN.search(one.text)]
    if call.kind in ("write", "search", "ask"):
        return tuple(telling[:1] or printed[:1])
    return tuple(telling[-OUTCOME_LINES:] or printed[-1:])
