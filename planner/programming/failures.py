"""How commands, edits and patches ended, and which lines show why one failed.

The host's flag and the exit code decide first, then a run's own last word, then a short list of complaints. A search
that exits 1 because nothing matched did not fail; words of failure in what a call merely read are no failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice, pairwise, takewhile
from typing import Literal

from planner.evidence.calls import Call
from planner.evidence.hosts import is_running, is_wrapping
from planner.evidence.outcomes import (
    OUTCOME_LINES,
    REPORT_LINES,
    Outcome,
    Status,
    exit_code,
    failed_outcome,
    is_refusal,
    printed_lines,
    reports_error,
    says_failed,
)
from planner.programming.shell import SAYING, Command, is_looking, last_run
from planner.programming.tools import commands_in, is_script
from planner.reading.lines import Statement, numbers_of, without_escapes
from planner.reading.patterns import lazy_pattern

__all__ = ["RAN_NOTHING", "read_run"]

Verdict = Literal["passed", "failed"]

HEADING_WORDS = 6
"""A line of fewer words that ends in ":" says nothing by itself."""
DIFFERENCE_LINES = 3
"""Lines below ``Expected values to be strictly equal:`` in which the difference is looked for."""
RESPONSE_LINES = 4
"""A tool's own error, and the head of a response, stand within so many lines."""
_INTERRUPT = "\x03"
"""Input that stops a program; its end is no failure then."""
CHECKS_PENDING = 8
"""Exit code of ``gh pr checks`` while some have not ended (its manual), with ``build\tpending\t0`` for each."""
NO_OF_SOME = 123
"""Exit code of ``xargs`` if a command that it ran exited with 1 to 125 (GNU; BSD's exits 1)."""

_NONE = lazy_pattern(
    r".*\bno (?!matches found:)(?:[\w'-]+ ){1,4}?(?:found|reported|running|match(?:ed|es|ing)?|exists?)\b", re.I
)
"""How a command that looks says that there is none: ``no checks reported on the 'race' branch``; not ``no such``."""
_PENDING = lazy_pattern(r"\tpending\t")
_QUIET = lazy_pattern(r"(?:\b2|&)> ?/dev/null")
"""A command that wants to hear no complaint: ``ls a b 2>/dev/null`` asks which of them are there."""
_ABSENT = lazy_pattern(r"No such file or directory|no matches found|: no \S+ in \(|\(HTTP 404\)$|Broken pipe", re.I)
"""Messages of programs about a missing file or page, or about a pipe that nobody reads any more.
"""
_ASKING = frozenset(
    (
        *("grep", "egrep", "fgrep", "git grep", "rg", "ag", "ack", "pgrep", "which", "type", "command"),
        *("diff", "git diff", "cmp", "test", "["),
    )
)
"""Commands whose exit code 1 says that they found nothing, or "no"."""
_CHAINED = frozenset({"|", "|&", "||", ";", "\n", "&"})
"""Before these the failure of a command does not show in the exit code of the line."""

_PREFIX = lazy_pattern(r"\s*(?:@?\w[\w./-]{0,80} [\w:-]{1,40}: |\[[\w:.-]{1,40}\] )")
"""Prefix that runners of several scripts print before each line: ``@app/core test:``, ``[lint:go]``.
"""
_FAILED_RUN = lazy_pattern(
    r"\s*+(?:(?!error: ).{0,80}?\b[1-9]\d{0,9} (?:(?!checks )\w+ )?"
    r"fail(?:ed|ing|ures?|s)?(?=\s*(?:$|[,;|)(.]|=(?!\d)|in \d))"
    r"|(?:FAIL|FAILED)(?:\s*$|\t| \(|\s+[\w./@-]+(?:\s|$))|--- FAIL|test result: FAILED"
    r"|(?:\[[\w:.-]{1,40}\] ){0,3}ERROR task failed"
    r"|(?:[✖✗×]|Found|Summary:)?\s*[1-9]\d{0,9} (?:(?:problems?|errors?)\b(?! fixed| \(0 err)|issues?:)"
    r"|BUILD FAILED|make(?:\[\d+\])?: \*\*\* |npm (?:ERR!|error)|.*ELIFECYCLE|error: script \"|Exited with code [1-9])",
)
"""How a run says that it failed: ``1 failed, 4 passed in 2s``, ``FAIL\\tpkg``, ``✖ 3 problems``; not ``0 failed``,
``FAILED = 3``, ``12 errors fixed``, ``error: Item 3 failed``, ``✖ 1 problem (0 errors, 1 warning)``."""
_PASSED_TEST = lazy_pattern(
    r"\s*(?:\(pass\) |[✓✔√] |PASS:? |--- PASS|ok \d+ |.*\bPASSED(?:\s+\[ *\d+%\])?$|test .* \.\.\. ok$)"
)
"""``✔ adds (3ms)``, ``tests/test_a.py::test_b PASSED [ 50%]``, ``test a::b ... ok``; not ``PASSED = 3``."""
_PASSED_RUN = lazy_pattern(
    r"\s*(?:(?:=+ )?(?:Tests?:? +|Test Files +|✔ |✓ )?\d{1,10} (?:\w+ )?pass(?:ed|ing)?\b|0 fail(?:ed|ures?|ing)?\b"
    r"|\d{1,10} (?:examples?|runs|tests), .{0,80}\b0 failures|(?:PASS|OK)\s*$|OK \(|ok\s+\S+\s+(?:[\d.]+m?s|\(cached\))"
    r"|test result: ok|BUILD SUCCESS|All (?:checks|tests|files) pass(?:ed)?\b|Exited with code 0$"
    r"|Checked \d+ files? in .{0,40}\. No fixes applied"
    r"|(?:Success: |Found )?(?:no|0) (?:issues|errors|problems)(?: found)?\b)"
)
"""How a run says that it passed: ``1290 pass``, ``OK``, ``ok  pkg 0.3s``, ``All checks passed!``; not ``passed = 3``.
"""
RAN_NOTHING = lazy_pattern(r"no tests? (?:to run|files|found|ran)|\b0 (?:tests?|runs|pass|passed|files)\b", re.I)
"""``ok app/a 0.3s [no tests to run]``: that is no success."""
_DONE = lazy_pattern(
    r"\[[\w./-]+ (?:\(root-commit\) )?[0-9a-f]{7,40}\] |\s*\d+ files? changed|.*(?:https?://\S|->|up to date\b)"
    r"|\s*(?:[✓✔√] )?(?:To |Switched to|Already |Created|Merged|Updated|Deleted|HEAD is now|Success|Saved|Wrote|Done\b"
    r"|Committed|Pushed|Fast-forward|No (?:matches|files|results|changes)|Found \d+|nothing to commit|Everything up)"
)
"""Report of a command that did something: ``[main a1b2c3d] Fix``, ``2 files changed``, ``✓ Created issue 7``, or a line
with a URL; not ``def created``."""

_NO_FAILURE = lazy_pattern(
    r"\s*+(?:@?[\w./-]{1,80} [\w:-]{1,40}: )?\s*+(?:\(pass\)|✓|✔|√|⚠|PASS\b|--- PASS|ok\b"
    r"|(?:warning|hint|info|debug\d?)\b"
    r"|(?:note: |\w+ error )?(?:run with|version:)|finished in \d)"
    r"|.*\b(?:0 (?:fail|error)|no (?:major |new )?(?:errors?|failures?|issues)|without errors?|all (?:tests )?pass"
    r"|as expected\b|, skipping\b)"
    r"|\W*+(?:(?:errors?|fatal|failed|failures?):?)?\W*+$",
    re.I,
)
"""``(pass) fails when the file does not exist``, ``found no new issues``: words of failure that deny one, or only warn:
``warning: a.rs is never read``; and a line that says no more than that there was one, or separates: ``-----``."""
_HEADS = lazy_pattern(r"\W*(?:error|fatal|failure|panic)s?(?: output)?:\s*$", re.I)
"""``Error:`` or ``Error output:`` alone: what went wrong stands in the line below."""
_TOOL_ERROR = lazy_pattern(
    r"\s*(?:<tool_use_error>|InputValidationError|String to replace not found|File has (?:not been read|been modified)"
    r"|Error(?::| editing| writing| reading| executing)|ERROR\b|error:(?! expect\()|Your proposed edit has introduced"
    r"|apply_patch verification failed|No replacement was performed|overwrite .+\? \(y/n \[n\]\) not overwritten"
    r"|\{\s*\"errors?\": ?[\"\[{1t]\w)"
)
"""How a tool's own error begins: ``Error: no such flight``, ``String to replace not found in file``, ``{"error":
"denied"}``; not ``{"error": null}``."""
_RAISED = lazy_pattern(
    r"\s*(?:[\w.]+(?:Error|Exception|Exit|Interrupt)\b(?: \[\w+\])?(?::.*)?$|E {3,}\S)"
    r"|\s*[\w./-]+: .*(?:No such file|not found|not permitted|[Pp]ermission denied|cannot|[Ii]nvalid|[Uu]nrecognized"
    r"|(?<!-)[Uu]nknown(?!-)|not a |HTTP [45]\d\d|(?<!\d )failed)"
    r"|\s*(?:fatal|error|panic)(?: error)?(?:\[\w+\])?(?:: (?!expect\(received\))| [A-Z]).{3,}"
    r"|\(eval\):\d+: \S|\s*HTTP [45]\d\d: \S|\s*[Uu]nknown \w+ ['\"\w]|[Mm]erge failed|CONFLICT \S"
)
"""Raised errors and complaints of programs: ``KeyError: 'token'``, ``E   assert 1 == 2``, ``rg: a: No such file``,
``error[E0382]: borrow of``; not ``raise KeyError``, ``2 failed``, ``error is set; update the``."""
_LOCATED = lazy_pattern(
    r"\s*(?:\[[\w:.-]+\] |vet: )?[\w./\\@-]+\.\w{1,5}[:(]\d+(?P<column>[:,]\d+)?\)?:? +"
    r"(?!in \S+$|\+0x|\w+(?:Error|Exception)$|(?:\w*[Ww]arning|note|info)\b)[^\s:#]"
)
"""``file.go:12:3: what is wrong``: what compilers, linters and test runners say of a place; a search prints no column.
Not ``file.go:1: : # package``, nor a frame of a stack, ``file.go:12 +0x1a0``."""
_EXPECTED = lazy_pattern(
    r".*\bexpected\b(?!, run).*\b(?:got|found|received|but|to)\b|\s*(?:Received|Actual|got)\b ?:", re.I
)
"""``expected 3, got 4``, ``Received: 4``."""
_NAMED_TEST = lazy_pattern(
    r"\s*+(?!✖ failing tests:|\S \d+/\d+ checks)(?:--- FAIL|FAIL(?:ED)?\b[: ]+\S|\(fail\)|[✗✖✘✕×]|not ok"
    r"|test (?:result:|\S+ \.\.\.) FAILED|[^\t]+\tfail\t)"
)
"""Which test failed: ``--- FAIL: TestA``, ``✕ adds [2 ms]``, ``Build\tfail\t3m20s``; not ``FAILED = 3``,
``✖ failing tests:``, ``× 2/13 checks failing`` in a list of pull requests."""
_NUMBERED_TEST = lazy_pattern(r"\s{2,}\d+\) \S")
"""How Mocha lists them, in a run that failed: ``    1) adds``."""
_REPORT = lazy_pattern(
    r"\s*(?:[\w.]*(?:Error|Exception|Failure|Panic)\b(?:\s*\[[^\]]*\])?:|(?:fail(?:ed|ure)?|abort(?:ed)?)(?:\[\w+\])?:"
    r"|npm (?:err!|error)|(?:(?-i:Error(?! Context:)|FAIL|FAILED|\[?ERR_\w+)|Failed to|Diff in)\b|❌|(?:\w+ )?timed out"
    r"|Tests?:.*\d+ failed|\d+ (?:fail|error))",
    re.I,
)
"""How a line begins that reports a failure: ``Failed to open``, ``[ERR_MODULE_NOT_FOUND]``, ``EXECUTION TIMED OUT``;
not ``failing``, ``Error Context: a.md``, ``error is set; update``."""
_WORDS = lazy_pattern(
    r".*(?:command not found|No such file or directory|Permission denied|can(?:no|['’])t find|Segmentation fault"
    r"|timed out|Traceback \(most recent|syntax error|merge conflict|is not recognized|does not exist|unknown option"
    r"|Connection refused|\bassert(?:ion)? ?(?:failed|error)\b|[1-9]\d* (?:failed|fail|errors?)\b|\berror TS\d"
    r"|(?:(?<=[)\s])|\d: )(?:fatal )?(?:error|fatal): \w)",
    re.I,
)
"""Words that occur only in a report of a failure, not in the middle of data: ``a.ts(3,7): error TS2322``; not
``log.error(x)``, nor ``the error``."""
_WORD = lazy_pattern(r"[^\W\d_]{2,}")
_ECHO = lazy_pattern(
    r"(?:\[[\w:.-]{1,40}\] )?\$ |> \S|\s*at \S|\s*\S+\.go:\d+ \+0x|created by |goroutine \d|\S+\((?:\{?0x|\.\.\.\))"
)
"""How runners print what they run: ``[lint:go] $ golangci-lint run``, ``> vitest run``; and the frames of a stack."""
_EXIT = lazy_pattern(r".*\bexit\w*(?: with)?(?: code| status)?\W{1,4}-?[1-9]", re.I)
"""An exit code other than 0, wherever it stands: ``make: exit 2``; not ``exit code 0``."""
_SENTENCE = lazy_pattern(r"\s*[\w'\"(`][\w'\")`.,:/-]*(?: [\w'\"(`.:/-]+){2}")
"""Several words: ``1 file would be reformatted``; not ``## Intent``, ``} else {``, ``+ let url``."""
_PANIC = lazy_pattern(r"thread '.+ panicked at ")
_ASSERTS = lazy_pattern(r"assert|expected values", re.I)
_DIFFERENCE = lazy_pattern(r"\s*[+-] ?(?!actual|expected)['\"\w\[{]|.* !==? ")
"""``+ 'Loading'``, ``- 'Ready'``, ``'a' !== 'b'``; not ``  at run (a.js:3:7)``, ``---``."""
_RANKS = (
    (_RAISED, _LOCATED, _EXPECTED, _TOOL_ERROR),
    (_NAMED_TEST, _NUMBERED_TEST),
    (_REPORT, _WORDS),
    (_EXIT,),
)
"""How much a line says of a failure, the most first: what was raised or complained of, which test, that one was."""
BARE_RANK = 2
"""The rank of a line that says no more than that a run failed."""
_USAGE = lazy_pattern(r"\s*usage:", re.I)
"""Usage that a program prints below its complaint."""


def read_run(call: Call, result: Sequence[Statement], outcome: Outcome) -> Outcome:
    """Return how a call of a programming tool ended; of other calls the `outcome` that general signs show."""
    if outcome.status == "unanswered" or any(is_refusal(one.text) for one in result[:2]):
        return outcome
    verdict, lines = _verdict_of_run(call, result)
    running = any(is_running(one.text) for one in result[:RESPONSE_LINES])
    code = outcome.exit_code
    idle = _idle_lines(call, result, verdict, lines)
    if _has_failed(call, result, verdict, running=running):
        counts = lines if verdict == "failed" else ()
        report = _report(call, result) or list(counts)
        if counts and report and not says_failed(report[0].text):
            telling = next((one for one in reversed(counts) if " " in one.text), counts[-1])  # not ``FAIL`` alone
            report = list(dict.fromkeys([report[0], telling, *report[1:]]))
        doubtful = not _says_failed(call, result, report, counts)
        decisive = _decisive(report, result) if report else ()
        return replace(failed_outcome(report, decisive, code, counts=counts, is_doubtful=doubtful), idle=idle)
    if verdict == "passed" and not running:
        return Outcome("passed", numbers_of(lines), exit_code=code, idle=idle)
    status: Status = "running" if running else "done"
    return Outcome(status, numbers_of(_telling_lines(call, result)), exit_code=code)


def _idle_lines(
    call: Call, result: Sequence[Statement], verdict: Verdict | None, lines: Sequence[Statement]
) -> frozenset[int]:
    """Return the numbers of what a run that passed printed before its last word, and of the tests that passed."""
    if call.kind != "run":
        return frozenset()
    idle = result if verdict == "passed" else [one for one in result if is_passed_test(one.text)]
    return frozenset(number for one in idle for number in one.numbers).difference(numbers_of(lines))


def _has_failed(call: Call, result: Sequence[Statement], verdict: Verdict | None, *, running: bool) -> bool:
    """True if `call`, whose run's last word is `verdict`, failed: by the host's flag, its exit code, or its report."""
    code = exit_code(result)
    if _is_answer(call, result, code):
        return False
    if code and call.kind == "read" and _QUIET.search(call.command):
        return bool(_complaints(call, result)) or any(_signals(one.text) for one in printed_lines(result))
    if call.is_error or code or reports_error(call):
        return True
    if call.kind == "ask" or verdict == "passed" or running:
        return False
    whole = [one for one in result if not one.lines[0].continues and one.text.strip()]
    if any(is_refusal(one.text) for one in whole[:2]) or _tool_erred(whole):
        return True
    if call.kind in ("read", "search"):  # that something is not there is an answer
        return any(not _says_absent(one.text) for one in _complaints(call, whole))
    forced = any(one.before == "||" and one.words in (("true",), (":",)) for one in commands_in(call))
    forced = forced or any(_PANIC.match(one.text) for one in whole)
    succeeded = (code == 0 and not forced) or (call.is_no_error and _shows_all(call))
    if succeeded or call.is_report or call.kind == "write":
        return verdict == "failed"
    opens = call.kind == "other" or is_script(call) or call.name.startswith("mcp__")  # of a document in it speaks none
    opens = opens or _asks_for_help(call)
    # what the command itself would print, ``|| echo "✗ no such page"``, is its answer
    near = (one.text for one in (whole[:RESPONSE_LINES] if opens else whole))
    return verdict == "failed" or any(_signals(text) and text.strip() not in call.command for text in near)


def _says_failed(
    call: Call, result: Sequence[Statement], report: Sequence[Statement], counts: Sequence[Statement]
) -> bool:
    """True if more than words of its result say that `call` failed: `counts` of a run that did not end with 0, its
    host, by a flag or an exit code that a line of the `report` explains, or its tool."""
    code = exit_code(result)
    if counts and not (code == 0 and _shows_all(call)):
        return True
    if code and (call.kind in ("read", "search") or _asks_for_help(call)):
        return any(not _says_absent(one.text) for one in _complaints(call, result))
    if code:
        return any(says_failed(one.text) or failure_rank(one.text) in (0, 1) for one in report[:1])
    whole = [one for one in result if one.text.strip()]
    return call.is_error or reports_error(call) or _tool_erred(whole) or any(is_refusal(one.text) for one in whole[:2])


def _asks_for_help(call: Call) -> bool:
    return any("--help" in one.words for one in commands_in(call))


def _shows_all(call: Call) -> bool:
    """True if a failure of any of its commands would show in the exit code."""
    return _CHAINED.isdisjoint(one.before for one in commands_in(call)[1:])


def _is_answer(call: Call, result: Sequence[Statement], code: int | None) -> bool:
    """True if what looks like a failure is what was asked for: a program was stopped, a search found nothing, checks
    have not ended, or a merge that was only asked about would conflict."""
    if code == CHECKS_PENDING and any(_PENDING.search(one.text) for one in result):
        return True
    if _INTERRUPT in call.input.values() or any(one.starts("git", "merge-tree") for one in commands_in(call)):
        return True
    if code and call.kind in ("read", "search") and any(_NONE.match(one.text) for one in printed_lines(result)[-1:]):
        return True
    return code in (1, NO_OF_SOME) and _found_nothing(call, result)


def _found_nothing(call: Call, result: Sequence[Statement]) -> bool:
    """True if exit code 1 is the "no" of a search or comparison that may have run last: nothing was printed, or by
    commands that do not fail without a word, and no line of it is a complaint."""
    last, printed = last_run(commands_in(call)), printed_lines(result)
    asks = any(map(_asks, last))
    if not (asks and printed):
        return asks
    speak_up = all(one.words[0] in SAYING or is_looking(one) or _asks(one) for one in last)
    return speak_up and not (_complaints(call, printed) or any(_signals(one.text) for one in printed))


def _asks(command: Command) -> bool:
    """True for a search or comparison, by itself or behind another: ``xargs -0 grep x``, ``find -exec grep x {} +``."""
    words = command.words[:2] if command.words[0] == "git" else command.words
    return not _ASKING.isdisjoint(words if words[0] in ("xargs", "find") else [" ".join(words[:2]), words[0]])


def _verdict(text: str) -> Verdict | None:
    """Return the verdict of one line on a run; None without one."""
    prefix = _PREFIX.match(text)
    bare = text[prefix.end() :] if prefix else text
    if _FAILED_RUN.match(bare):
        return "failed"
    return "passed" if _PASSED_RUN.match(bare) else None


def _verdict_of_run(call: Call, result: Sequence[Statement]) -> tuple[Verdict | None, tuple[Statement, ...]]:
    """How a run ended, and the lines that say so: the last one decides. Of other tools counts are data.

    A failure that was counted before it stands, unless the exit code is known to be 0: of two commands in one line the
    first may have failed.
    """
    runs = call.kind == "run" and not call.is_report
    judged = [(one, verdict) for one in result if runs and (verdict := _verdict(one.text))]
    if not judged:
        return None, ()
    final = judged[-1][1]
    if exit_code(result) != 0 and any(verdict == "failed" for _, verdict in judged):
        final = "failed"
    said = [one for one, verdict in judged if verdict == final]
    return final, tuple([one for one in said if not RAN_NOTHING.search(one.text)] or said)[-OUTCOME_LINES:]


def _telling_lines(call: Call, result: Sequence[Statement]) -> Sequence[Statement]:
    """The lines of a result that say how `call` ended, where no verdict does: all of a short one."""
    filled = [one for one in result if one.text.strip()]
    printed = [one for one in filled if not is_wrapping(one.text)] or filled
    if len(printed) <= OUTCOME_LINES:
        return printed
    if call.kind in ("read", "other"):
        return ()
    telling = [one for one in printed if _DONE.match(one.text)]
    if call.kind in ("write", "search", "ask"):
        return telling[:1] or printed[:1]
    return telling[-OUTCOME_LINES:] or printed[-1:]


def _tool_erred(whole: Sequence[Statement]) -> bool:
    """True if the result opens with a tool's own error."""
    return any(_TOOL_ERROR.match(one.text) for one in whole[:1])


def _signals(text: str) -> bool:
    """True for a line that begins as reports of failure do; the same words in the middle of data say nothing, nor that
    something which was looked for is not there."""
    located = _LOCATED.match(text)
    begins = (located and located["column"]) or any(sign.match(text) for sign in (_RAISED, _NAMED_TEST, _REPORT))
    return bool(begins) and not (_NO_FAILURE.match(text) or _says_absent(text))


def _says_absent(text: str) -> bool:
    """True if a program that looks says that what it looks for is not there: ``ls: a: No such file or directory``."""
    if not _ABSENT.search(text):
        return False
    program = text.strip().partition(":")[0].rpartition("/")[2]
    return program in ("zsh", "(eval)", "gh") or is_looking(Command((program,), "", ()))


def _complaints(call: Call, lines: Sequence[Statement]) -> list[Statement]:
    """Those of `lines` in which a program of `call`, or the shell that runs it, complains: ``cat: a.py: No such file``,
    ``zsh:1: unmatched "``; not ``a.py: cannot``."""
    programs = {"fatal", "bash", "zsh", "sh", *(one.words[0] for one in commands_in(call))}
    begun = ((one, *one.text.partition(":")[::2]) for one in lines)
    return [
        one
        for one, begin, rest in begun
        if rest.strip() and " " not in begin and begin[:2] != "//" and begin.rpartition("/")[2] in programs
        if not _NO_FAILURE.match(one.text)
    ]


def _report(call: Call, result: Sequence[Statement]) -> list[Statement]:
    """The statements of a failed result that say how it failed, the most telling first.

    What was raised or complained of comes first, then which test failed, then more of both. Where a search complains a
    line with a place is no complaint: it found it elsewhere than where it could not look.
    """
    complaints = _complaints(call, result) if call.kind in ("read", "search") else []
    distinct = {one.text.strip(): one for one in reversed(result) if not (complaints and _LOCATED.match(one.text))}
    filled = [one for one in result if one.text.strip()]
    headed = {one.text.strip() for head, one in pairwise(filled) if _HEADS.match(head.text)}
    headed |= {one.text.strip() for one in complaints}
    told = ((0 if text in headed else failure_rank(one.text), one) for text, one in reversed(distinct.items()))
    ranks = [(rank, one) for rank, one in told if rank is not None]
    first, tests, *others = ([one for rank, one in ranks if rank == wanted] for wanted in range(len(_RANKS)))
    first.sort(key=lambda one: (one in complaints, _says_why(one)), reverse=True)
    if tests:  # a program under test prints lines like a report's own: its name stands for it where none says why
        why = sorted(filter(_says_why, first), key=partial(_distance, tests[0]))
        below = [one for one in first if _distance(tests[0], one) == BELOW]
        first, tests = (why, tests) if why else (tests, below)
    ranked = [*first[:1], *tests[:1], *first[1:], *tests[1:], *chain(*others)]
    if all(_is_bare(one.text) for one in ranked):
        ranked = list(dict.fromkeys([*_reasons_beside(ranked, result), *ranked]))
    return ranked[:REPORT_LINES]


def _is_bare(text: str) -> bool:
    """True for a line that says that something failed and not why: ``FAIL app/queue``, ``--- FAIL: TestA``."""
    return bool(_NAMED_TEST.match(text) or _EXIT.match(text)) or _verdict(text) == "failed"


def _reasons_beside(ranked: Sequence[Statement], result: Sequence[Statement]) -> list[Statement]:
    """Return lines near the `ranked` ones, which give no reason: the first by the script that failed, the output above
    a package of Go, or beside an exit code alone the last line with a reason, else the last and first sentence."""
    printed = takewhile(lambda one: not _USAGE.match(one.text), result)
    telling = list(filter(_says_anything, printed)) or list(filter(_says_anything, result))
    bare = next(chain((one for one in result if _verdict(one.text) == "failed"), ranked), None)
    if bare is None or _EXIT.match(bare.text):
        why = [one for one in telling if one.text.lstrip()[:1].isalpha() and _says_why(one)]
        plain = [one for one in telling if one.text.lstrip()[:1] not in "+-"]
        words = [one for one in plain if says_failed(one.text) or _SENTENCE.match(one.text)]
        words = words or (telling if bare is None or len(telling) <= OUTCOME_LINES else [])
        return why[-1:] or words[-1:] + words[:1]
    above = [one for one in telling if one.numbers < bare.numbers]
    if prefix := _PREFIX.match(bare.text):
        return ([one for one in above if one.text.startswith(prefix.group())] or above)[:1]
    return above[-1:] if bare.text.startswith("FAIL\t") else []


def _says_anything(one: Statement) -> bool:
    idle = (
        is_wrapping(one.text)
        or _ECHO.match(one.text)
        or _is_bare(one.text)
        or _NO_FAILURE.match(one.text)
        or _PASSED_RUN.match(one.text)
    )
    return bool(_WORD.search(one.text)) and not idle and not one.lines[0].continues


def _says_why(line: Statement) -> bool:
    """True if it says more than a heading: ``Errors found:``, but ``error: These files would be overwritten:``."""
    heads = line.text.rstrip().endswith(":") and len(line.text.split()) < HEADING_WORDS
    return says_failed(line.text) and not heads


BELOW = (0, 0)
"""The place of the line behind the name of a test."""


def _distance(test: Statement, line: Statement) -> tuple[int, int]:
    """How near `line` is to the name of a test, the nearest least: the line behind it, places told of before it, others
    in their order."""
    below = line.numbers[0] - test.numbers[-1]
    located = below < 0 and _LOCATED.match(line.text)
    return BELOW if below == 1 else (1, -below) if located else (2, line.numbers[0])


def is_passed_test(text: str) -> bool:
    """True for a line by which a runner says that one test passed."""
    return bool(_PASSED_TEST.match(without_escapes(text)))


def failure_rank(text: str) -> int | None:
    """How much a line says of a failure, 0 the most; None if it says nothing of one."""
    if _NO_FAILURE.match(text):
        return None
    rank = next((rank for rank, signs in enumerate(_RANKS) if any(sign.match(text) for sign in signs)), None)
    return BARE_RANK if rank == 0 and _verdict(text) == "failed" else rank  # ``error: script "lint" exited with 1``


def _decisive(report: Sequence[Statement], result: Sequence[Statement]) -> Sequence[Statement]:
    """The first line of a report; if it does not say by itself that something failed, with the verdict behind it, and
    if it announces how what came differs from what was expected, with that, of several tests that fail so of each."""
    alone = says_failed(report[0].text) or len(report) < 2 or _verdict(report[1].text) != "failed"
    same = [at for at, one in enumerate(result) if one.text.strip() == report[0].text.strip()][:REPORT_LINES]
    differences = chain.from_iterable(announced(report[0].text, result[at + 1 :]) for at in same)
    return [*report[: 1 if alone else 2], *differences]


def announced(text: str, below: Iterable[Statement]) -> list[Statement]:
    """Return the lines `below` that show the difference which a line of a report announces."""
    announces = text.rstrip().endswith(":") and _ASSERTS.search(text)
    near = islice((one for one in below if one.text.strip()), DIFFERENCE_LINES if announces else 0)
    return [one for one in near if _DIFFERENCE.match(one.text)]
