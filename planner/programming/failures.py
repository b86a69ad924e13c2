"""Outcomes of commands, edits and patches, and the lines that show why one failed.

The flag and the exit code decide first, then the last counts or verdict of a run. A search that exits with 1 because
nothing matched did not fail; words of failure in text that a call only read are no failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Literal

from planner.evidence.calls import Call
from planner.evidence.outcomes import (
    OUTCOME_LINES,
    REPORT_LINES,
    Outcome,
    exit_code,
    failed_outcome,
    is_refusal,
    mentions_failure,
    printed_lines,
    reports_error,
)
from planner.programming.coding_tools import commands_in
from planner.programming.shell import SAYING, Command, is_looking, last_run
from planner.reading.lines import Statement, numbers_of
from planner.reading.patterns import lazy_pattern

__all__ = ["RAN_NOTHING", "read_run"]

Verdict = Literal["passed", "failed"]

LINE_CHARACTERS = 400
"""Number of characters at the beginning of a line that are searched for signs of success or failure."""
HEAD_CHARACTERS = 40
"""Length of the words before the counts of a run."""
HEADING_WORDS = 6
"""Number of words below which a line that ends in ":" is no reason by itself."""
_INTERRUPT = "\x03"
"""Input that stops a program, whose end is then no failure."""
NO_OF_SOME = 123
"""Exit code of ``xargs`` if a command that it ran exited with 1 to 125 (GNU)."""

_ASKING = frozenset(
    (
        *("grep", "egrep", "fgrep", "git grep", "rg", "ag", "ack", "pgrep", "which", "type", "command"),
        *("diff", "git diff", "cmp", "test", "["),
    )
)
"""Commands whose exit code 1 means "no" or that nothing matched."""
_CHAINED = frozenset({"|", "|&", "||", ";", "\n", "&"})
"""Operators before which the failure of a command does not show in the exit code of the line."""

_PREFIX = lazy_pattern(r"\s{0,8}(?:@?\w[\w./-]{0,80} [\w:-]{1,40}: |\[[\w:.-]{1,40}\] )")
"""Prefix of each line in the output of runners of several scripts: ``@app/core test:``, ``[lint:go]``."""
_COUNT = lazy_pattern(
    r"\b(\d{1,9}) (?:(?!checks)[a-z]{1,20} )?(pass|fail|error|problem|issue)(?:ed|ing|e?s|ures?)?\b"
    r"(?! fixed|:? \(0 err)",
    re.I,
)
"""``12 passed``, ``1 test failed``, ``0 errors``; not ``12 errors fixed``, ``2 checks failing``."""
_FAILED = lazy_pattern(r"[=\s]{0,12}(?:--- |[A-Z]{1,20} )?(?:FAIL|FAILED|ERROR)(?=\s(?!= )|$)")
"""``FAIL\\tpkg``, ``--- FAIL: TestA``, ``BUILD FAILED``, ``ERROR task failed``; not ``FAILED = 3``."""
_PASSED = lazy_pattern(
    r"\s{0,8}(?:(?:PASS|OK|ok)(?=\s(?!= )|$)|BUILD SUCCESS|All \w+ pass|Exited with code 0$)"
    r"|.{0,80}\bno (?:issues|fixes)\b",
    re.I,
)
"""``ok  pkg 0.3s``, ``OK (3 tests)``, ``All checks passed!``, ``Success: no issues found``; not ``passed = 3``."""
_PASSED_TEST = lazy_pattern(r"\s{0,80}(?:\(pass\) |[✓✔√] |(?:--- )?PASS:? |ok \d|\S{1,200} PASSED)")
"""One test that passed: ``✔ adds (3ms)``, ``--- PASS: TestA``, ``tests/test_a.py::test_b PASSED``."""
_FAILED_TEST = lazy_pattern(
    r"\s{0,80}(?:--- FAIL|FAIL(?:ED)?\b[: ]{1,4}\S|\(fail\)|[✗✖✘✕×] (?!\d+/\d|failing)|not ok )"
)
"""One test that failed: ``--- FAIL: TestA``, ``✕ adds [2 ms]``; not ``× 2/13 checks failing``."""
RAN_NOTHING = lazy_pattern(r"no tests? (?:to run|files|found|ran)|\b0 (?:tests?|runs|pass|passed|files)\b", re.I)
"""Run without tests, which is no success: ``ok app/a 0.3s [no tests to run]``."""
_EXIT = lazy_pattern(r"\bexit(?:ed|s)?(?: with)?(?: code| status)?\W{1,4}-?[1-9]", re.I)
"""An exit code other than 0: ``make: exit 2``, ``script "lint" exited with code 1``."""
_NAMES_ERROR = lazy_pattern(
    r"\s{0,80}(?:[\w.]{0,80}(?:Error|ERROR|Exception|error|exception|fatal|panic)(?: ?\[\w{1,40}\])?: "
    r"(?!expect\()\S|[\w.]{1,80}(?:Error|Exception|Exit|Interrupt)$|E {3,12}\S|(?:EXECUTION )?TIMED OUT|Failed to "
    r"|CONFLICT |Diff in |Traceback |HTTP [45]\d\d: )"
)
"""``KeyError: 'token'``, ``error[E0382]: borrow of``, ``E   assert 1 == 2``; not ``raise KeyError``."""
_LOCATED = lazy_pattern(
    r"\s{0,80}(?:\[[\w:.-]{1,40}\] |vet: )?[\w./\\@-]{1,200}[:(]\d{1,9}(?P<column>[:,]\d{1,9})?\)?:? {1,8}"
    r"(?!in \S{1,80}$|\+0x|\w{0,80}(?:Error|Exception)$|(?:\w{0,80}[Ww]arning|note|info)\b)[^\s:#]"
)
"""Message at a place, as compilers, linters and test runners print it: ``file.go:12:3: reason``. Searches print no
column. Not ``file.go:1: : # package``, nor a frame of a stack, ``file.go:12 +0x1a0``."""
_COMPLAINS = lazy_pattern(r"\s{0,80}(?!Expected)[\w./()-]{1,80}(?: \w{1,20} \d{1,9})?: (?!expect\()\S")
"""Complaint of a program: ``rg: a: No such file``, ``bash: line 1: tsc: command not found``."""
_DENIES = lazy_pattern(
    r"\s{0,80}(?:\(pass\)|[✓✔√⚠]|(?:--- )?PASS\b|ok\b|(?:warning|hint|info|debug|note)\d?\b|finished in \d)"
    r"|.{0,200}\b(?:0 (?:fail|error)|no (?:new )?(?:errors?|failures?|issues)|without errors?|as expected\b)"
    r"|\W*(?:(?:errors?|fatal|failed|failures?):?)?\W*$",
    re.I,
)
"""Words of failure that are denied, or only a warning: ``found no new issues``, ``warning: a.rs is never read``; and a
line with no other word."""
_HEADS = lazy_pattern(r"\W*(?:error|fatal|failure|panic)s?(?: output)?:\s*$", re.I)
"""``Error:`` or ``Error output:`` alone: the reason is the line below."""
_FRAME = lazy_pattern(
    r"\s{0,80}at \S|\s{0,80}\S{1,200}\.go:\d+ \+0x|created by |goroutine \d|\S{1,200}\((?:\{?0x|\.\.\.\))"
)
"""A frame of a stack."""
_ECHO = lazy_pattern(r"(?:\[[\w:.-]{1,40}\] )?[$>] \S")
"""Command that a runner prints before it runs it: ``[lint:go] $ golangci-lint run``, ``> vitest run``."""
_ABSENT = lazy_pattern(r"no such file or directory|no matches found|HTTP 404", re.I)
_WORD = lazy_pattern(r"[^\W\d_]{2}")
_MARKS = frozenset("#{}+-*|")
"""Marks that begin a heading or code."""
_DONE = lazy_pattern(
    r"\[[\w./-]{1,120} (?:\(root-commit\) )?[0-9a-f]{7,40}\] |\s{0,8}(?:\d+ files? changed|[✓✔√] |[A-Z][a-z]{2,20}ed\b"
    r"|HEAD is now|To )|.{0,300}https?://\S"
)
"""Report of a completed action: ``[main a1b2c3d] Fix``, ``2 files changed``, ``Created issue 7``, or a line with a
URL."""


class _Result:
    """Statements of one result, each judged once."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        self.statements, self.printed = statements, printed_lines(statements)
        self.verdict = cache(_verdict)


def read_run(call: Call, statements: Sequence[Statement], outcome: Outcome) -> Outcome:
    """Return how a call of a programming tool ended; for other calls the `outcome` by general signs."""
    is_ours = call.kind in ("run", "write") or call.command or call.path or not call.name
    if not is_ours or outcome.status == "unanswered" or any(is_refusal(one.text) for one in statements[:2]):
        return outcome
    result = _Result(statements)
    verdict, counts = _verdict_of_run(call, result)
    idle = _idle_lines(call, result, verdict, counts)
    if outcome.status != "running" and _has_failed(call, result, outcome, verdict):
        counts = counts if verdict == "failed" else ()
        report = _report(call, result, counts)
        doubtful = not _is_certain(call, result, outcome, report, counts)
        failed = failed_outcome(report, _decisive(report), outcome.exit_code, counts=counts, is_doubtful=doubtful)
        return replace(failed, idle=idle)
    if outcome.status != "running" and verdict == "passed":
        return Outcome("passed", numbers_of(counts), exit_code=outcome.exit_code, idle=idle)
    return replace(
        outcome,
        status="running" if outcome.status == "running" else "done",
        lines=numbers_of(_last_lines(call, result)),
        reasons=(),
        decisive=(),
    )


def _idle_lines(call: Call, result: _Result, verdict: Verdict | None, counts: Sequence[Statement]) -> tuple[int, ...]:
    """Return the numbers of the lines that a passed run printed before its verdict, and of lines about passed tests."""
    if call.kind != "run":
        return ()
    every = result.statements
    idle = every if verdict == "passed" else [one for one in every if _PASSED_TEST.match(one.text)]
    counted = numbers_of(counts)
    return tuple(number for number in numbers_of(idle) if number not in counted)


def _has_failed(call: Call, result: _Result, outcome: Outcome, verdict: Verdict | None) -> bool:
    """Return True if a call failed; `verdict`: that of the last counts in its output.

    The flag or an exit code of a failure decides first. Without them, changes, reads and searches failed if their tool
    complains; runs by their verdict, and if no exit code shows success, by lines that only failures print.
    """
    code = outcome.exit_code
    if any(one.starts("git", "merge-tree") for one in commands_in(call)) or _is_no(call, result, code):
        return False
    if _is_flagged(call, code) or (outcome.status == "failed" and call.kind != "run"):
        return True
    if call.kind == "write":
        return any(_is_report(one.text) for one in result.printed[:1])
    if call.kind in ("read", "search"):
        return any(not _is_absence(one.text) for one in _complaints(call, result.printed))
    if (call.kind != "run" and call.name) or call.is_report or verdict == "passed":
        return False
    is_tried = any(one.before == "||" and one.words in (("true",), (":",)) for one in commands_in(call))
    if (code == 0 and not is_tried) or (call.is_no_error and _shows_all(call)):
        return verdict == "failed"
    echoed = call.command
    return verdict == "failed" or any(_is_sign(one.text) and one.text.strip() not in echoed for one in result.printed)


def _is_flagged(call: Call, code: int | None) -> bool:
    """Return True if the host, an exit code or a status in JSON reports a failure."""
    return call.is_error or bool(code) or reports_error(call)


def _is_report(text: str) -> bool:
    """Return True for a line with words of failure outside of names."""
    words = " ".join(word for word in text[:LINE_CHARACTERS].split() if "/" not in word)
    return mentions_failure(words) and not _DENIES.match(text)


def _is_sign(text: str) -> bool:
    """Return True for a line that no successful command prints: an error by name or place, or a failed test."""
    located = _LOCATED.match(text)
    begins = (located and located["column"]) or _NAMES_ERROR.match(text) or _FAILED_TEST.match(text)
    return bool(begins) and not _DENIES.match(text)


def _is_certain(
    call: Call, result: _Result, outcome: Outcome, report: Sequence[Statement], counts: Sequence[Statement]
) -> bool:
    """Return True if a failure is certain: by counts of a run, the flag, or an exit code with a reason in the first
    line of `report`. Words in a result alone, or an exit code without a reason, are not enough."""
    code = outcome.exit_code
    if counts and not (code == 0 and _shows_all(call)):
        return True
    if code and (call.kind in ("read", "search") or _asks_for_help(call)):
        return any(not _is_absence(one.text) for one in _complaints(call, result.statements))
    if code:
        return any(mentions_failure(one.text) or _rank(one.text, result) in (0, 1) for one in report[:1])
    return _is_flagged(call, code) or call.kind == "write" or (outcome.status == "failed" and call.kind != "run")


def _asks_for_help(call: Call) -> bool:
    return any("--help" in one.words for one in commands_in(call))


def _shows_all(call: Call) -> bool:
    """Return True if the exit code shows a failure of any of the call's commands."""
    return _CHAINED.isdisjoint(one.before for one in commands_in(call)[1:])


def _is_no(call: Call, result: _Result, code: int | None) -> bool:
    """Return True if an exit code is no failure but an answer: of a stopped program, of a read without a complaint, or
    the "no" of a search that may have run last, if no other output may be a failure."""
    if _INTERRUPT in call.input.values() or not code:
        return _INTERRUPT in call.input.values()
    last, printed = last_run(commands_in(call)), result.printed
    speak_up = all(one.words[0] in SAYING or is_looking(one) or _asks(one) for one in last)
    if code not in (1, NO_OF_SOME) or not any(map(_asks, last)):
        looks = call.kind == "read" and (bool(printed) or speak_up)
        return looks and not (_has_signs(call, printed) or any(_is_report(one.text) for one in printed))
    return not printed or (speak_up and not _has_signs(call, printed))


def _has_signs(call: Call, printed: Sequence[Statement]) -> bool:
    """Return True if a program complains in one of these lines, or no successful command prints it."""
    return any(_is_sign(one.text) for one in printed) or bool(_complaints(call, printed))


def _asks(command: Command) -> bool:
    """Return True for a search or comparison, also as an argument of another command: ``xargs -0 grep x``, ``find -exec
    grep x``."""
    words = command.words[:2] if command.words[0] == "git" else command.words
    return not _ASKING.isdisjoint(words if words[0] in ("xargs", "find") else [" ".join(words[:2]), words[0]])


def _is_absence(text: str) -> bool:
    """Return True if a program that reads reports that its object is missing: ``ls: a: No such file or directory``."""
    program = text.strip().partition(":")[0].rpartition("/")[2]
    looks = program in ("zsh", "(eval)", "gh") or is_looking(Command((program,), "", ()))
    return looks and _ABSENT.search(text) is not None


def _complaints(call: Call, lines: Iterable[Statement]) -> list[Statement]:
    """Return the lines in which a program of `call`, or its shell, complains: ``cat: a.py: No such file``."""
    programs = {"fatal", "bash", "zsh", "sh", *(one.words[0] for one in commands_in(call))}
    begun = ((one, *one.text.partition(":")[::2]) for one in lines)
    return [one for one, begin, rest in begun if rest.strip() and begin.rpartition("/")[2] in programs]


def _verdict(text: str) -> Verdict | None:
    """Return the verdict of one line on a run, by its counts or its first words."""
    text = text[:LINE_CHARACTERS]
    prefix = _PREFIX.match(text)
    bare = text[prefix.end() :] if prefix else text
    found = [*_COUNT.finditer(bare)]
    counts = [(int(one[1]), one[2].lower()) for one in found]
    head = bare[: found[0].start()].strip(" =✔✓") if found else ""
    is_brief = len(head) <= HEAD_CHARACTERS and len(head.split()) <= 2 and "error" not in head.lower()
    if counts and (is_brief if counts[0][1] in ("pass", "fail") else head.strip("✖✗× ") in ("", "Found", "Summary:")):
        if any(number for number, kind in counts if kind != "pass"):
            return "failed"
        return None if head.startswith(("✖", "✗", "×")) else "passed"
    if _FAILED.match(bare) or _EXIT.search(bare[:HEAD_CHARACTERS]):
        return "failed"
    return "passed" if _PASSED.match(bare) else None


def _verdict_of_run(call: Call, result: _Result) -> tuple[Verdict | None, tuple[Statement, ...]]:
    """Return the verdict of a run and its last lines; in the output of other tools counts are data.

    A failure counted before the last verdict remains a failure, unless the exit code is known to be 0, as the first of
    two commands in one line may have failed.
    """
    runs = call.kind == "run" and not call.is_report
    printed = result.printed if runs else ()
    judged = [(one, verdict) for one in printed if (verdict := result.verdict(one.text))]
    if not judged:
        return None, ()
    code = exit_code(result.statements)
    final = "failed" if code != 0 and any(verdict == "failed" for _, verdict in judged) else judged[-1][1]
    lines = [one for one, verdict in judged if verdict == final]
    return final, tuple([one for one in lines if not RAN_NOTHING.search(one.text)] or lines)[-OUTCOME_LINES:]


def _last_lines(call: Call, result: _Result) -> Sequence[Statement]:
    """Return the lines that show how a call without a verdict ended: all of a short result, else the first line of a
    change or search, and the last ones of a run."""
    printed = result.printed or [one for one in result.statements if one.text.strip()]
    if len(printed) <= OUTCOME_LINES:
        return printed
    if call.kind == "run":
        return [one for one in printed if _DONE.match(one.text)][-OUTCOME_LINES:] or printed[-1:]
    return printed[:1] if call.kind in ("write", "search", "ask") else ()


# Why a call failed.


def _rank(text: str, result: _Result) -> int | None:
    """Return how much a line shows about a failure: 0 a reason, 1 a failed test, 2 words alone, 3 an exit code."""
    verdict, text = result.verdict(text), text[:LINE_CHARACTERS]
    if _FAILED_TEST.match(text):
        rank = 1
    elif verdict == "failed":
        rank = 2
    elif _NAMES_ERROR.match(text) or _LOCATED.match(text) or (_COMPLAINS.match(text) and mentions_failure(text)):
        rank = 0
    elif mentions_failure(text) and not _ECHO.match(text) and len(text.split()) > 1:
        rank = 2
    elif _EXIT.search(text):
        rank = 3
    else:
        return None
    return None if _DENIES.match(text) or _FRAME.match(text) else rank


def _report(call: Call, result: _Result, counts: Sequence[Statement]) -> list[Statement]:
    """Return the statements that show how a call failed, the most informative first.

    A read, search or change is shown by its programs' complaints or one line. Statements of other calls are ranked by
    `_rank`: a reason, a failed test, further reasons and tests, or else words of failure; then exit codes and `counts`.
    A line below a mere heading (``Error:``) is a reason; if no line is one, a line printed near the verdict comes
    first. With failed tests only lines with words of failure count as reasons, those nearest to the first test first.
    """
    complaints = _complaints(call, result.statements) if call.kind in ("read", "search") else []
    shown = result.printed
    if complaints:
        return complaints
    if call.kind == "write" and shown:
        return ([one for one in shown if not _DENIES.match(one.text)] or shown)[:1]
    distinct = {one.text.strip(): one for one in reversed(shown)}
    below_headings = {one.text.strip() for head, one in pairwise(shown) if _HEADS.match(head.text)}
    ranked: list[list[Statement]] = [[], [], [], []]
    for text, one in reversed(distinct.items()):
        rank = 0 if text in below_headings else _rank(one.text, result)
        if rank is not None:
            ranked[rank].append(one)
    reasons, tests, words, exit_codes = ranked
    reasons.sort(key=lambda one: (one.text.strip() in below_headings, _gives_reason(one)), reverse=True)
    if tests:  # a program under test prints lines like a report's own: only one that gives a reason counts
        reasons = sorted(filter(_gives_reason, reasons), key=partial(_distance, tests[0]))
    report = [*reasons[:1], *tests[:1], *reasons[1:], *tests[1:]] or words
    if not reasons and all(result.verdict(one.text) or one in tests for one in report):
        report = list(dict.fromkeys([*tests, *_printed_beside(report, result), *report]))
    if counts and report and not mentions_failure(report[0].text):
        report.insert(1, next((one for one in reversed(counts) if " " in one.text), counts[-1]))
    filled = [one for one in result.statements if one.text.strip()]
    return list(dict.fromkeys([*report, *exit_codes, *counts]))[:REPORT_LINES] or filled[:1]


def _gives_reason(line: Statement) -> bool:
    """Return True for more than a heading: ``error: These files would be overwritten:``, not ``Errors found:``."""
    heads = line.text.rstrip().endswith(":") and len(line.text.split()) < HEADING_WORDS
    return mentions_failure(line.text) and not heads


def _distance(test: Statement, line: Statement) -> tuple[bool, int]:
    """Return a sort key for `line` by its distance from a failed `test`: first lines with a place in a file, the
    nearest before the test first, and the line right after it; then others in their order."""
    below = line.numbers[0] - test.numbers[-1]
    located = below < 0 and _LOCATED.match(line.text) is not None
    return (not (located or below == 1), -below if located else line.numbers[0])


def _printed_beside(report: Sequence[Statement], result: _Result) -> list[Statement]:
    """Return the last line with words above the first verdict, by the same script; without a verdict the first and the
    last line with words."""
    with_words = [one for one in result.printed if _has_words(one, result)]
    bare = next((one for one in report if result.verdict(one.text) == "failed"), None)
    if bare is None:
        return [*with_words[:1], *with_words[-1:]]
    prefix = _PREFIX.match(bare.text)
    above = [one for one in with_words if one.numbers < bare.numbers]
    return [one for one in above if not prefix or one.text.startswith(prefix.group())][-1:]


def _has_words(one: Statement, result: _Result) -> bool:
    idle = _ECHO.match(one.text) or _FRAME.match(one.text) or _DENIES.match(one.text) or result.verdict(one.text)
    begins = one.text.lstrip()[:1] not in _MARKS
    return begins and _WORD.search(one.text) is not None and not idle and not one.lines[0].continues


def _decisive(report: Sequence[Statement]) -> Sequence[Statement]:
    """Return the first line of a report; with the verdict after it if it has no word of failure."""
    alone = len(report) < 2 or mentions_failure(report[0].text) or _verdict(report[1].text) != "failed"
    return report[: 1 if alone else 2]
