"""Finds out how commands, checks, edits and patches of an agent ended, and which lines show why one failed.

The error flag and the exit code decide first. Then the verdict of a run decides: a printed line that reports whether it
passed, by counts (``2 failed``) or words (``BUILD SUCCESS``). A search that exits with 1 because nothing matched did
not fail. Words of failure in text that a call only read are no failure.

Checks are commands that run a test, linter, type checker or build. There are statements on the last run of each check,
and on failed commands that passed later, for the page of memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import cache, partial
from itertools import pairwise
from typing import Literal

from planner.evidence.calls import (
    OUTCOME_LINES,
    REPORT_LINES,
    Call,
    Outcome,
    error_field_of,
    exit_code,
    failed_outcome,
    is_refusal,
    mentions_failure,
    printed_lines,
)
from planner.evidence.error_signs import Sign, error_sign
from planner.evidence.hosts import running_id, without_boilerplate
from planner.evidence.turns import EndedCall, Evidence, RecordLine, TurnEvidence, call_head, shortened
from planner.programming.coding_tools import PREPARING, Command, commands_in, is_looking, last_run, without_paging
from planner.reading.lazy import lazy_pattern
from planner.reading.lines import Statement, numbers_of
from planner.reading.messages import parsed_result

Verdict = Literal["passed", "failed"]

LINE_CHARACTERS = 400
"""Number of first characters of a printed line in which signs of success or failure are looked for."""
HEAD_CHARACTERS = 40
"""Largest length of the words before the counts in the last line of a run: ``Tests:`` in ``Tests: 2 failed``."""

_ASKING = frozenset(
    (
        *("grep", "egrep", "fgrep", "git grep", "rg", "ag", "ack", "pgrep", "which", "type", "command"),
        *("diff", "git diff", "cmp", "test", "["),
    )
)
"""Commands that ask a question. Their exit code 1 means "no" or that nothing matched, and is no failure."""
_HIDING = frozenset({"|", "|&", "||", ";", "\n", "&"})
"""Shell operators after which the exit code of the line no longer shows whether the command before them failed."""

_PREFIX = lazy_pattern(r"\s{0,8}(?:@?\w[\w./-]{0,80} [\w:-]{1,40}: |\[[\w:.-]{1,40}\] )")
"""Name of a script that some runners print before each line of its output: ``@app/core test:``, ``[lint:go]``."""
_COUNT = lazy_pattern(
    r"(\d(?<!\w\d)\d{0,8}) (?:(?!checks)[a-z]{1,20} )?(pass|fail|error|problem|issue)(?:ed|ing|e?s|ures?)?\b"
    r"(?! fixed|:? \(0 err)",
    re.I,
)
"""Count of tests or errors: ``12 passed``, ``1 test failed``; not ``12 errors fixed``, ``2 checks failing``."""
_FAILED = lazy_pattern(r"[=\s]{0,12}(?:--- |[A-Z]{1,20} )?(?:FAIL|FAILED|ERROR)(?=\s(?!= )|$)")
"""Line by which a run reports its failure: ``FAIL\\tpkg``, ``BUILD FAILED``; not ``FAILED = 3``."""
_PASSED = lazy_pattern(
    r"\s{0,8}(?:(?:PASS|OK|ok)(?=\s(?!= )|$)|BUILD SUCCESS|All \w+ pass|Exited with code 0$)"
    r"|.{0,80}\bno (?:issues|fixes)\b",
    re.I,
)
"""Line by which a run reports its success: ``ok  pkg 0.3s``, ``All checks passed!``; not ``passed = 3``."""
_PASSED_TEST = lazy_pattern(r"\s{0,80}(?:\(pass\) |[✓✔√] |(?:--- )?PASS:? |ok \d|\S{1,200} PASSED)")
"""Line about a test that passed: ``✔ adds (3ms)``, ``--- PASS: TestA``, ``tests/test_a.py::test_b PASSED``."""
_FAILED_TEST = lazy_pattern(
    r"\s{0,80}(?:--- FAIL|FAIL(?:ED)?\b[: ]{1,4}\S|\(fail\)|[✗✖✘✕×] (?!\d+/\d|failing)|not ok )"
)
"""Line about a test that failed: ``--- FAIL: TestA``, ``✕ adds [2 ms]``; not ``× 2/13 checks failing``."""
RAN_NOTHING = lazy_pattern(r"no tests? (?:to run|files|found|ran)|\b0 (?:tests?|runs|pass|passed|files)\b", re.I)
"""Report that a run had no tests, which is no success: ``ok app/a 0.3s [no tests to run]``."""
_EXIT = lazy_pattern(r"[eE](?<!\w[eE])(?i:xit(?:ed|s)?(?: with)?(?: code| status)?)\W{1,4}-?[1-9]")
"""Report of an exit code other than 0 in an output: ``make: exit 2``, ``script "lint" exited with code 1``."""
_NAMES_ERROR = lazy_pattern(
    r"\s{0,80}(?:[\w.]{0,80}(?:Error|ERROR|Exception|error|exception|fatal|panic)(?: ?\[\w{1,40}\])?: "
    r"(?!expect\()\S|[\w.]{1,80}(?:Error|Exception|Exit|Interrupt)$|E {3,12}\S|(?:EXECUTION )?TIMED OUT|Failed to "
    r"|CONFLICT |Diff in |Traceback |HTTP [45]\d\d: )"
)
"""Error with its kind: ``KeyError: 'token'``, ``error[E0382]: borrow``, ``E   assert 1``; not ``raise KeyError``."""
_LOCATED = lazy_pattern(
    r"\s{0,80}(?:\[[\w:.-]{1,40}\] |vet: )?[\w./\\@-]{1,200}[:(]\d{1,9}(?P<column>[:,]\d{1,9})?\)?:? {1,8}"
    r"(?!in \S{1,80}$|\+0x|\w{0,80}(?:Error|Exception)$|(?:\w{0,80}[Ww]arning|note|info)\b)[^\s:#]"
)
"""Message about a place in a file, as compilers, linters and test runners print it: ``file.go:12:3: reason``; not
``file.go:1: : # package``, nor a stack frame, ``file.go:12 +0x1a0``. Searches print places, too, but without a column.
"""
_COMPLAINS = lazy_pattern(r"\s{0,80}(?!Expected)[\w./()-]{1,80}(?: \w{1,20} \d{1,9})?: (?!expect\()\S")
"""Error message that begins with a program's name: ``rg: a: No such file``, ``bash: line 1: tsc: not found``."""
_DENIES = lazy_pattern(
    r"\s{0,80}(?:\(pass\)|[✓✔√⚠]|(?:--- )?PASS\b|ok\b|(?:warning|hint|info|debug|note)\d?\b|finished in \d)"
    r"|.{0,200}\b(?:0 (?:fail|error)|no (?:new )?(?:errors?|failures?|issues)|without errors?|as expected\b)"
    r"|\W*(?:(?:errors?|fatal|failed|failures?):?)?\W*$",
    re.I,
)
"""Line that reports no failure in spite of its words: ``found no new issues``, ``warning: a.rs is never read``."""
_ABSENT = lazy_pattern(r"no such file or directory|no matches found|HTTP 404", re.I)
_FRAME = lazy_pattern(
    r"\s{0,80}at \S|\s{0,80}\S{1,200}\.go:\d+ \+0x|created by |goroutine \d|\S{1,200}\((?:\{?0x|\.\.\.\))"
)
"""Stack frame of an error: ``at run (a.js:3)``, ``goroutine 7``."""
_WORDS = lazy_pattern(r"\s*+(?![#{}+*|-]).*[^\W\d_]{2}")
"""Line of words, and no heading, code or row of a table: ``boom``; not ``## Intent``, ``} else {``."""
_DONE = lazy_pattern(
    r"\[[\w./-]{1,120} (?:\(root-commit\) )?[0-9a-f]{7,40}\] |\s{0,8}(?:\d+ files? changed|[✓✔√] |[A-Z][a-z]{2,20}ed\b"
    r"|HEAD is now|To )|.{0,300}https?://\S"
)
"""Report of a completed action: ``[main a1b2c3d] Fix``, ``2 files changed``, ``Created issue 7``, or a URL."""


class _Result:
    """Result of one call of a programming tool, with the shell commands that the call ran."""

    def __init__(self, call: Call, statements: Sequence[Statement]) -> None:
        self.call, self.kind, self.commands = call, call.kind, commands_in(call)
        self.statements, self.printed = statements, printed_lines(statements)
        self.verdict = cache(_verdict)  # each line is judged several times

    def is_flagged(self, code: int | None) -> bool:
        """Return True if the call reports a failure outside of its printed text: by the error flag, by the exit code
        `code`, or by a status in JSON."""
        error = error_field_of(self.call, self.call.text)
        return self.call.is_error or bool(code) or bool(error and error.is_sure)

    def shows_all(self) -> bool:
        """Return True if the exit code shows a failure of any command: True for ``a && b``, False for ``a; b``."""
        return _HIDING.isdisjoint([command.before for command in self.commands[1:]])


class _Rank(Enum):
    """Kinds of lines about a failure, the most informative first."""

    REASON = auto()
    FAILED_TEST = auto()
    WORDS = auto()
    """Line that has words of failure, but names neither an error nor a test."""
    EXIT_CODE = auto()


def read_run(call: Call, result: Sequence[Statement], outcome: Outcome) -> Outcome:
    """Return how a call of a programming tool ended, and which lines of its `result` show it. `outcome`: how it ended
    by general rules; it is returned for other tools, and if the call has no result or the user refused it."""
    is_programming = call.kind in ("run", "write") or call.command or call.path or not call.name
    is_refused = outcome.refused or any(is_refusal(line.text) for line in result[:2])
    if not is_programming or outcome.status == "unanswered" or is_refused:
        return outcome
    judged = _Result(call, result)
    verdict, counts = _verdict_of_run(judged)
    idle = _idle_lines(judged, verdict, counts)
    has_ended = outcome.status != "running"
    if has_ended and _has_failed(judged, outcome, verdict):
        signs = counts if verdict == "failed" else ()
        report = _report(judged, signs)
        doubtful = outcome.is_doubtful or not _is_certain(judged, outcome, report, signs)
        # the second line is decisive, too, if only that one shows that something failed
        needs_second = len(report) > 1 and not mentions_failure(report[0].text)
        decisive = report[: 2 if needs_second and _verdict(report[1].text) == "failed" else 1]
        failed = failed_outcome(report, decisive, outcome.exit_code, counts=signs, is_doubtful=doubtful)
        return replace(failed, idle=idle)
    if has_ended and verdict == "passed":
        return Outcome("passed", numbers_of(counts), exit_code=outcome.exit_code, idle=idle)
    lines = numbers_of(_last_lines(judged))
    return replace(outcome, status="done" if has_ended else "running", lines=lines, reasons=(), decisive=())


def _idle_lines(result: _Result, verdict: Verdict | None, counts: Sequence[Statement]) -> tuple[int, ...]:
    """Return the numbers of the lines that add nothing to how a run ended: if it passed, all lines except `counts`,
    the lines with its verdict; else the lines about passed tests."""
    if result.kind != "run":
        return ()
    idle = [line for line in result.statements if verdict == "passed" or _PASSED_TEST.match(line.text)]
    return tuple(sorted({*numbers_of(idle)} - {*numbers_of(counts)}))


def _has_failed(result: _Result, outcome: Outcome, verdict: Verdict | None) -> bool:
    """Return True if a call failed. The error flag or an exit code decides first; then the `verdict` of a run, or of a
    change, read or search an error message."""
    code = outcome.exit_code
    if any(command.starts("git", "merge-tree") for command in result.commands) or _is_answer_no(result, code):
        return False
    if result.is_flagged(code) or (outcome.status == "failed" and result.kind != "run"):
        return True
    if result.kind == "write":  # the words of a file's editor decide; those in JSON or about a record may be data
        edits_file = result.call.path or result.call.reading.is_local or result.call.reading.adds
        is_report = edits_file and parsed_result(result.call.text) is None
        return bool(is_report) and any(_reports_failure(line.text) for line in result.printed[:1])
    if result.kind in ("read", "search"):
        return any(not _is_absence(line.text) for line in _complaints(result, result.printed))
    return (result.kind == "run" or not result.call.name) and _has_run_failed(result, code, verdict)


def _has_run_failed(result: _Result, code: int | None, verdict: Verdict | None) -> bool:
    """Return True if the printed lines of a run show that it failed, although its error flag and exit `code` do not.
    Without a verdict, a line that no successful command prints is enough, if flag and code show no success."""
    if result.call.is_report:
        return False
    if verdict is not None:
        return verdict == "failed"
    hides_failure = any(command.before == "||" and command.words in (("true",), (":",)) for command in result.commands)
    if (code == 0 and not hides_failure) or (result.call.is_no_error and result.shows_all()):
        return False
    begins_as_error = any(error_sign(line.text) is Sign.LABEL for line in result.printed[:1])
    signs = (line.text.strip() for line in result.printed if _is_sign(line.text))
    return begins_as_error or any(sign not in result.call.command for sign in signs)


def _reports_failure(text: str) -> bool:
    """Return True if the line `text` has words of failure, not counting those in paths such as ``src/error.py``."""
    words = " ".join(word for word in text[:LINE_CHARACTERS].split() if "/" not in word)
    return mentions_failure(words) and not _DENIES.match(text)


def _is_sign(text: str) -> bool:
    """Return True for a line that no successful command prints: an error with its kind or place, or a failed test."""
    located = _LOCATED.match(text)
    begins = (located and located["column"]) or _NAMES_ERROR.match(text) or _FAILED_TEST.match(text)
    return bool(begins) and not _DENIES.match(text)


def _is_certain(result: _Result, outcome: Outcome, report: Sequence[Statement], counts: Sequence[Statement]) -> bool:
    """Return True if a failed call surely failed. An exit code without a reason in the `report` (lines that show the
    failure) does not prove it, nor do words in a result; `counts`, the lines with the verdict of a failed run, do."""
    code = outcome.exit_code
    if counts and not (code == 0 and result.shows_all()):
        return True
    if code and (result.kind in ("read", "search") or any("--help" in command.words for command in result.commands)):
        return any(not _is_absence(line.text) for line in _complaints(result, result.statements))
    if code:
        reasons = (_Rank.REASON, _Rank.FAILED_TEST)
        return any(mentions_failure(line.text) or _rank(line.text, result) in reasons for line in report[:1])
    return result.is_flagged(code) or result.kind == "write" or (outcome.status == "failed" and result.kind != "run")


def _is_answer_no(result: _Result, code: int | None) -> bool:
    """Return True if the exit `code` is no failure: the program was stopped, a search found nothing, or a read ended
    without an error message."""
    if "\x03" in result.call.input.values():  # input that stops a program
        return True
    if not code:
        return False
    last, printed = last_run(result.commands), result.printed
    only_looks = all(command.words[0] in PREPARING or is_looking(command) or _asks(command) for command in last)
    if code in (1, 123) and any(map(_asks, last)):  # 123: a command that GNU's xargs ran exited with 1 to 125
        return not printed or (only_looks and not _has_signs(result))
    if result.kind != "read" or not (printed or only_looks):
        return False
    return not (_has_signs(result) or any(_reports_failure(line.text) for line in printed))


def _has_signs(result: _Result) -> bool:
    """Return True if a printed line is an error or failed test (`_is_sign`), or a message of a program (``cat: …``)."""
    return any(_is_sign(line.text) for line in result.printed) or bool(_complaints(result, result.printed))


def _asks(command: Command) -> bool:
    """Return True for a search or comparison, for which exit code 1 means "no": ``xargs -0 grep x``."""
    words = command.words[:2] if command.words[0] == "git" else command.words
    if words[0] in ("xargs", "find"):
        return not _ASKING.isdisjoint(words)
    return words[0] in _ASKING or " ".join(words[:2]) in _ASKING


def _is_absence(text: str) -> bool:
    """Return True if a program that only reads reports an absence: ``ls: a: No such file or directory``. The shell does
    so, too, for a pattern without matches: ``zsh: no matches found``."""
    program = text.strip().partition(":")[0].rpartition("/")[2]
    only_reads = program in ("zsh", "(eval)", "gh") or is_looking(Command((program,), "", ()))
    return only_reads and _ABSENT.search(text) is not None


def _complaints(result: _Result, lines: Iterable[Statement]) -> list[Statement]:
    """Return the `lines` that begin with the name of a program which the call ran: ``cat: a.py: No such file``."""
    programs = {"fatal", "bash", "zsh", "sh", *(command.words[0] for command in result.commands)}
    complaints = []
    for line in lines:
        program, _, message = line.text.partition(":")
        if message.strip() and program.rpartition("/")[2] in programs:
            complaints.append(line)
    return complaints


def _verdict(text: str) -> Verdict | None:
    """Return whether a printed line reports that a run passed or failed, by counts (``2 failed``) or its first words
    (``PASS``); None if it reports neither."""
    text = text[:LINE_CHARACTERS]
    prefix = _PREFIX.match(text)
    bare = text[prefix.end() :] if prefix else text
    if first_count := _COUNT.search(bare):
        head = bare[: first_count.start()].strip(" =✔✓")
        if first_count[2].lower() in ("pass", "fail"):
            sums_up = len(head) <= HEAD_CHARACTERS and len(head.split()) <= 2 and "error" not in head.lower()
        else:
            sums_up = head.strip("✖✗× ") in ("", "Found", "Summary:")
        if sums_up:  # a line such as ``Tests: 2 failed``, and no sentence
            if any(int(count[1]) for count in _COUNT.finditer(bare) if count[2].lower() != "pass"):
                return "failed"
            return None if head.startswith(("✖", "✗", "×")) else "passed"  # a cross is no success, even with 0
    if _FAILED.match(bare) or _EXIT.search(bare[:HEAD_CHARACTERS]):
        return "failed"
    return "passed" if _PASSED.match(bare) else None


def _verdict_of_run(result: _Result) -> tuple[Verdict | None, Sequence[Statement]]:
    """Return the verdict of a run, and the last lines that report it. The last line with a verdict decides; but if any
    reports a failure and the exit code is not known to be 0, the run failed, as it may be about the first of two
    commands. Calls that run nothing have no verdict, as counts in their results are data."""
    is_run = result.kind == "run" and not result.call.is_report
    judged = [(verdict, line) for line in result.printed if (verdict := result.verdict(line.text))] if is_run else []
    if not judged:
        return None, ()
    has_failure = any(verdict == "failed" for verdict, _ in judged)
    verdict_of_run = "failed" if has_failure and exit_code(result.statements) != 0 else judged[-1][0]
    lines = [line for verdict, line in judged if verdict == verdict_of_run]
    counts = [line for line in lines if not RAN_NOTHING.search(line.text)] or lines
    return verdict_of_run, counts[-OUTCOME_LINES:]


def _last_lines(result: _Result) -> Sequence[Statement]:
    """Return the lines that show how a call ended without failure or verdict: all of a short result; of a run, the
    reports of completed actions or its last line; of a change, search or question, the first line."""
    printed = result.printed or [line for line in result.statements if line.text.strip()]
    if len(printed) <= OUTCOME_LINES:
        return printed
    if result.kind == "run":
        return [line for line in printed if _DONE.match(line.text)][-OUTCOME_LINES:] or printed[-1:]
    return printed[:1] if result.kind in ("write", "search", "ask") else ()


# Why a call failed.


def _rank(text: str, result: _Result) -> _Rank | None:
    """Return what the line `text` shows about a failure (a reason, a test, words, an exit code); None if nothing."""
    verdict, text = result.verdict(text), text[:LINE_CHARACTERS]
    has_words, rank = mentions_failure(text), None
    if _FAILED_TEST.match(text):
        rank = _Rank.FAILED_TEST
    elif verdict == "failed":
        rank = _Rank.WORDS
    elif _NAMES_ERROR.match(text) or _LOCATED.match(text) or (has_words and _COMPLAINS.match(text)):
        rank = _Rank.REASON
    elif has_words and len(text.split()) > 1:
        rank = _Rank.WORDS
    elif _EXIT.search(text):
        rank = _Rank.EXIT_CODE
    # tested last, as most lines have no rank
    return None if rank and (_DENIES.match(text) or _FRAME.match(text)) else rank


def _report(result: _Result, counts: Sequence[Statement]) -> list[Statement]:
    """Return the lines that show how a call failed, the most informative first.

    For a read or search they are error messages of its programs, for a change one line. For other calls they are a
    reason and a failed test, then further ones, or else lines with words of failure. Lines with exit codes and
    `counts`, those with the verdict of a failed run, follow. Without a reason, the last words above a verdict are
    shown, or the first and the last words.
    """
    if result.kind in ("read", "search") and (complaints := _complaints(result, result.statements)):
        return complaints
    if result.kind == "write" and result.printed:
        lines = [line for line in result.printed if not _DENIES.match(line.text)] or result.printed
        return [line for line in lines if mentions_failure(line.text)][:1] or lines[:1]
    ranked = _ranked(result)
    reasons, tests = ranked[_Rank.REASON], ranked[_Rank.FAILED_TEST]
    if tests:
        # the tested program may print lines that look like reasons, so only those with words of failure count
        reasons = [line for line in reasons if mentions_failure(line.text)]
        reasons.sort(key=partial(_distance, tests[0]))
    report = [*reasons[:1], *tests[:1], *reasons[1:], *tests[1:]] or ranked[_Rank.WORDS]
    if not reasons and all(result.verdict(line.text) or line in tests for line in report):
        others = [line for line in result.printed if not (_DENIES.match(line.text) or result.verdict(line.text))]
        words = [line for line in others if _WORDS.match(line.text) and not _FRAME.match(line.text)]
        if verdict := next((line for line in report if result.verdict(line.text) == "failed"), None):
            words = [line for line in words if line.numbers < verdict.numbers][-1:]
        report = list(dict.fromkeys([*tests, *words[:1], *words[-1:], *report]))
    if counts and report and not mentions_failure(report[0].text):
        report.insert(1, next((line for line in reversed(counts) if " " in line.text), counts[-1]))
    filled = [line for line in result.statements if line.text.strip()]
    return list(dict.fromkeys([*report, *ranked[_Rank.EXIT_CODE], *counts]))[:REPORT_LINES] or filled[:1]


def _ranked(result: _Result) -> dict[_Rank, list[Statement]]:
    """Return the distinct printed lines about a failure by their rank; reasons with words of failure come first."""
    ranked: dict[_Rank, list[Statement]] = {rank: [] for rank in _Rank}
    distinct = {line.text.strip(): line for line in reversed(result.printed)}
    for line in reversed(distinct.values()):
        rank = _rank(line.text, result)
        if rank is not None:
            ranked[rank].append(line)
    ranked[_Rank.REASON].sort(key=lambda line: mentions_failure(line.text), reverse=True)
    return ranked


def _distance(test: Statement, line: Statement) -> tuple[bool, int]:
    """Return a sort key that puts lines first that may explain a failed `test`: those before it that name a place in a
    file, the nearest first, and the line right after the test."""
    below = line.numbers[0] - test.numbers[-1]
    is_located = below < 0 and _LOCATED.match(line.text) is not None
    is_near = is_located or below == 1
    return not is_near, -below if is_located else line.numbers[0]


CheckKind = Literal["test", "lint", "typecheck", "build"]

OUTCOME_CHARACTERS, COMMAND_CHARACTERS = 120, 120
"""Largest lengths in the statement on a check: of each line that shows how it ended, and of its command."""

_LAUNCHER = lazy_pattern(
    r"time|nice|sudo|env|exec|timeout|npx|bunx|bundle|python[\d.]*|run|uv|poetry|pipenv|pdm|hatch|rye"
)
"""Words before the program that a command really runs: ``timeout 60 npx``, ``uv run``, ``.venv/bin/python -m``."""
_RUNNER = lazy_pattern(
    r"npm|yarn|pnpm|bun|deno|mise|make|just|task|rake|rails|gradlew?|mvn|dotnet|mix|swift|cargo|go|nx|turbo|composer|bazel|ruff"
)
"""Programs that run a target, which follows them: ``bun --filter @a/core build``, ``make -C app test``."""
_VALUED = frozenset({"-C", "--filter", "--cwd", "--prefix", "-w"})
"""Options of such programs after which the next word is a value, not the target."""
_PROGRAMS: Mapping[str, CheckKind] = {
    **dict.fromkeys(("tsc", "mypy", "pyright", "basedpyright"), "typecheck"),
    **dict.fromkeys(("eslint", "ruff check", "biome", "golangci-lint", "flake8", "rubocop"), "lint"),
    **dict.fromkeys(("pytest", "jest", "vitest", "rspec", "mocha", "tox", "nextest", "ctest", "unittest"), "test"),
    **dict.fromkeys(("tsup", "webpack", "cargo check"), "build"),
}
"""Programs that run checks, each with the kind of check: ``npx tsc -p .``; not ``npm install jest``, where the name is
an argument."""
_TASKS: Mapping[str, CheckKind] = {
    **dict.fromkeys(("typecheck", "type-check", "vet"), "typecheck"),
    **dict.fromkeys(("lint", "clippy"), "lint"),
    **dict.fromkeys(("test", "tests"), "test"),
    **dict.fromkeys(("build", "compile", "all"), "build"),
}
"""Targets that run checks, each with the kind of check: ``make lint``."""
_RUNS_NOTHING = frozenset({"--help", "--version", "-h", "-V"})
"""Options with which a program only prints something about itself and checks nothing."""


def check_kinds(call: Call) -> list[CheckKind]:
    """Return the kinds of checks that `call` runs, in order: two for ``make lint && make test``, none for ``ls``."""
    kinds = map(check_kind, commands_in(call)) if call.kind == "run" else ()
    return list(dict.fromkeys(kind for kind in kinds if kind))


def check_kind(command: Command) -> CheckKind | None:
    """Return the kind of check (test, lint, typecheck, build) that a command runs; None if it runs no check. The first
    word that is no launcher, runner, option, value or number shows it. ``go test -c`` is a build."""
    if command.starts("go", "test") and "-c" in command.words:
        return "build"
    if not _RUNS_NOTHING.isdisjoint(command.words):
        return None
    has_runner = False
    for before, word in pairwise(("", *command.words)):
        name = word.rpartition("/")[2]
        if _RUNNER.fullmatch(name):
            has_runner = True
        elif not (_LAUNCHER.fullmatch(name) or word[0] in "-0123456789" or before in _VALUED):
            # the name of a target, or a part of it, shows the kind of check: ``test:unit``
            parts = (name, *name.split(":")) if has_runner and name == word else ()
            kinds = [_PROGRAMS.get(name), _PROGRAMS.get(f"{before} {name}"), *map(_TASKS.get, parts)]
            return next(filter(None, kinds), None)
    return None


def check_outcomes(evidence: Evidence) -> list[RecordLine]:
    """Return a statement on the last run of each kind of check (test, lint, typecheck, build), if its result shows how
    it ended: "test: `pytest` failed: 2 failed, 31 passed"."""
    ended_calls = [
        ended for ended in evidence.ended_calls() if ended.outcome.status != "unanswered" and not ended.outcome.refused
    ]
    last_runs = {kind: index for index, ended in enumerate(ended_calls) for kind in check_kinds(ended.call)}
    records: list[RecordLine] = []
    for index in dict.fromkeys(last_runs.values()):
        run, end = ended_calls[index], _end_of(ended_calls, index)
        if text := _check_outcome(evidence, run.call, end):
            kinds = check_kinds(run.call)
            is_unclear = len(kinds) > 1 and end.outcome.status == "failed"  # any of them may have failed
            label = f"{'one of ' if is_unclear else ''}{', '.join(kinds)}"
            records.append(RecordLine(f"{label}: {text}", tuple(dict.fromkeys([run.turn.turn.id, end.turn.turn.id]))))
    return records


def _end_of(ended_calls: Sequence[EndedCall], index: int) -> EndedCall:
    """Return the call that shows how the run at `index` ended: itself, or the last call with the id of its command as
    an argument, if that went on in the background."""
    run = ended_calls[index]
    command_id = running_id(run.call.text) if run.outcome.status == "running" else ""
    if not command_id:
        return run
    later = reversed(ended_calls[index + 1 :])
    return next((ended for ended in later if command_id in map(str, ended.call.input.values())), run)


def _check_outcome(evidence: Evidence, run: Call, end: EndedCall) -> str:
    """Return words on how the check `run` ended at the call `end`: "`pytest` failed: 2 failed"; else ""."""
    command = f"`{shortened(evidence.shown(run.subject), COMMAND_CHARACTERS)}`"
    outcome, code = end.outcome, end.outcome.exit_code
    statements = end.turn.statements_of(outcome.lines)
    lines = [plain for statement in statements if (plain := without_boilerplate(statement.text).strip())]
    if lines and all(map(RAN_NOTHING.search, lines)):
        return ""
    words = " · ".join(shortened(line, OUTCOME_CHARACTERS) for line in lines[-2:])
    if outcome.status == "running":
        return f"{command} was still running: {words}" if words else f"{command} was still running"
    if end.call.is_error or code:
        return f"{command} failed: {words}" if words else f"{command} failed"
    if outcome.status in ("passed", "failed"):
        return f"{command}: {words}"
    if code == 0 and any(map(check_kind, last_run(commands_in(run)))):
        return f"{command}: exit code 0"
    return f"{command} printed nothing" if not end.call.text.strip() else ""


def recoveries(evidence: Evidence) -> list[RecordLine]:
    """Return a statement on each command that failed and passed later, as its counts or exit code show, so that nobody
    takes the failure for the present state."""
    failed: dict[str, list[str]] = {}  # ids of the turns in which a command failed, by tool and command
    lines: list[RecordLine] = []
    for turn, call, outcome in evidence.ended_calls():
        command = f"{call.name} {without_paging(call.command)}"
        if call.kind != "run" or outcome.refused or not call.command:
            continue
        if outcome.has_failed:
            failed.setdefault(command, []).append(turn.turn.id)
        elif _shows_success(turn, call, outcome) and (ids := failed.pop(command, None)):
            text = f"{call_head(call, evidence.root)} failed; the same command passed at {turn.turn.id}"
            lines.append(RecordLine(text, (*dict.fromkeys(ids), turn.turn.id)))
    return lines


def _shows_success(turn: TurnEvidence, call: Call, outcome: Outcome) -> bool:
    """Return True if counts of tests or an exit code show that a command passed. A run without tests does not count."""
    if outcome.status == "passed":
        return not all(RAN_NOTHING.search(line.text) for line in turn.statements_of(outcome.lines))
    return outcome.status == "done" and outcome.exit_code == 0 and "|" not in call.command
