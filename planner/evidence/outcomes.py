"""How calls ended, and which lines show that an approach failed: flags, exit codes, reports, rejections, admissions.

A run that ended green is green whatever its log holds; a search that exits 1 because it found nothing did not fail;
words of failure in what a call merely read (source code, a grep for "error") are no failure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Literal

from planner.evidence.calls import COMMAND_CHARACTERS, Call, is_looking, last_run
from planner.evidence.hosts import is_running, is_wrapping
from planner.reading.lines import Part, Statement, numbers_of
from planner.reading.patterns import lazy_pattern

__all__ = ["Failures", "Outcome", "Status", "exit_code", "is_refusal", "read_calls"]

Verdict = Literal["passed", "failed"]
Status = Literal["passed", "failed", "done", "running", "unanswered"]

OUTCOME_LINES = 3
"""A result of at most so many lines is its own outcome; of a longer one at most so many are told."""
REPORT_LINES = 4
"""At most so many statements of one failed result stand for it; the first of them is decisive."""
RESPONSE_LINES = 4
"""A tool's own error, and the head of a response, stand within so many lines."""
SHORT_RESULT_LINES = 3
"""What a call read is looked through for signs of failure only when it is this short."""
MOST_WRAPPING = 24
"""Of what a host prints around the text of a file there are fewer lines."""
HEAD_LINES, TAIL_LINES = 6, 4
"""Hosts print an exit code within so many lines of the start or of the end of a result."""
NO_OF_SOME = 123
"""What ``xargs`` exits with if a command that it ran exited with 1 to 125 (GNU; BSD's exits 1)."""

_EXIT_CODE = lazy_pattern(
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
_SAYS_NO = lazy_pattern(
    r"(?:\w+=\S+ )*(?P<by>xargs(?: -\S*(?: [\d{]\S*)?)* |find (?=.*\{\} \+).*? -exec(?:dir)? )?"
    r"(?:(?:git (?:-C \S+ )?)?grep|[ef]grep|rg|ag|ack|pgrep|which|type|command -v"
    r"|(?:git (?:-C \S+ )?)?(?P<compares>diff|cmp|test|\[))(?: |$)",
    re.S,
)
"""Commands whose exit code 1 says that they found nothing, or "no": ``rg x``, ``xargs -0 grep x``, ``test -f a``; not
``grip``, ``! grep x``, nor ``find . -exec grep x {} \\;``, which exits 0."""
_SPEAKS_UP = lazy_pattern(r"(?:cd|pushd|popd|echo|printf|export|set|source|sleep|true|:|\w+=\S*)(?: |$)")
"""Commands that mostly succeed, and say so if they do not: ``cd src``, ``x=1``; as those that only look do."""
_SHELL_SAYS = lazy_pattern(r"-?(?:/\S{1,80}/)?(?:ba|z|da|k|fi)?sh(?::(?: line)? ?\d+)?: ")
"""How a shell complains of what it was to run: ``zsh:1: unmatched "``, ``bash: line 3: x: command not found``."""
_NONE = lazy_pattern(r"\W*no (?:[\w'-]+ ){1,4}?(?:(?:were )?found|reported|match(?:ed|es)?|exists?)\b", re.I)
"""How a command that looks says that there is none: ``no pull requests found for branch "x"``, ``no checks reported``;
not ``no such file``."""

_PREFIX = lazy_pattern(r"\s*(?:@?[\w./-]{1,80} [\w:-]{1,40}: |\[[\w:.-]{1,40}\] )")
"""What runners of several scripts print in front of each line: ``@app/core test:``, ``[lint:go]``."""
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
_DONE = lazy_pattern(
    r"\[[\w./-]+ (?:\(root-commit\) )?[0-9a-f]{7,40}\] |\s*\d+ files? changed|\s*(?:[✓✔√] )?(?:To "
    r"|Switched to|Already |"
    r"Created|Merged|Updated|Deleted|HEAD is now|Successfully|Success\b|Saved|Wrote|Done\b|Committed|Pushed"
    r"|Fast-forward|"
    r"No (?:matches|files|results|changes)|Found \d+|nothing to commit|Everything up-to-date)"
    r"|.*(?:https?://\S|->|up to date\b)",
)
"""What a command says of what it did: ``[main a1b2c3d] Fix``, ``2 files changed``, ``✓ Created issue 7``, or a line
with a URL; not ``def created``."""
_TAG = lazy_pattern(r"</?[\w-]{1,40}>")
"""A tag alone, which says nothing of how a call ended: ``</output>``."""

_PASSING = lazy_pattern(r"(?:@?[\w./-]{1,80} [\w:-]{1,40}: )?\s*(?:\(pass\)|✓|✔|√|⚠|PASS\b|--- PASS|ok\b)")
"""A line that tells of a test that passed, or only warns: ``(pass) fails when the file does not exist``."""
_NO_FAILURE = lazy_pattern(
    r"\b(?:0 (?:failed|failures|errors?)|no (?:major |new )?(?:errors?|failures?|issues)|without errors?"
    r"|all (?:tests )?pass)",
    re.I,
)
"""``0 errors``, ``found no new issues``: words of failure that deny one."""
_BARE = lazy_pattern(r"\W*(?:(?:errors?|fatal|failed|failures?):?)?\W*", re.I)
"""A line that says no more than that there was an error, or separates: ``==== FAILURES ====``, ``-----``."""
_QUIET = lazy_pattern(r"\b2> ?/dev/null|&> ?/dev/null")
"""A command that wants to hear no complaint: ``ls a b 2>/dev/null`` asks which of them are there."""
_EXIT = lazy_pattern(
    r"(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code|exit_code)[\"']?\s*[:=]?\s*(?!0\b)-?[1-9]\d*\b", re.I
)
"""An exit code other than 0, wherever it stands: ``make: exit 2``; not ``exit code 0``."""
_REJECTED = lazy_pattern(
    r"\s*(?:The user (?:doesn'?t|does not|did not|didn'?t) want|.{0,60}\b(?:rejected|denied|aborted) by (?:the )?user|"
    r"\[Request interrupted by user|(?:The )?(?:tool use was rejected|user (?:has )?(?:rejected|denied|declined"
    r"|aborted)))",
    re.I,
)
"""How hosts say that the user refused a call: ``The tool use was rejected``; not ``when the user denied consent``."""
_REFUSED_BY_TOOL = lazy_pattern(
    r"\s*(?:<tool_use_error>|InputValidationError|String to replace not found|"
    r"File has (?:not been read|been modified)|Error (?:editing|writing|reading|executing)|"
    r"Your proposed edit has introduced|apply_patch verification failed|No replacement was performed)"
)
"""How tools that edit say that they did nothing: ``String to replace not found in file``."""
_TOOL_ERROR = lazy_pattern(
    rf"{_REFUSED_BY_TOOL.pattern}|\s*(?:Error:|ERROR\b|error:)"
    r"|\s*\{\s*\"errors?\": ?+(?!null|false|\"\"|\[\]|\{\})"
)
"""How a tool's own error begins: ``Error: no such flight``, ``{"error": "denied"}``; not ``{"error": null}``."""
_HTTP_ERROR = lazy_pattern(
    r"\s*(?:<\s*)?HTTP/\d(?:\.\d)? [45]\d\d\b|.{0,120}\bstatus(?: ?code)?[\"']?\s*[:=]?\s*[45]\d\d\b(?! tokens)"
    r"|.{0,120}\(HTTP [45]\d\d\)|\s*(?:[45]\d\d )(?:Internal Server Error|Bad Request|Not Found|Unauthorized|Forbidden|"
    r"Bad Gateway|Service Unavailable|Gateway Timeout|Too Many Requests|Conflict|Unprocessable)"
    r"|.{0,120}\"statusCode\": ?[45]\d\d\b|curl: \(\d+\)",
    re.I,
)
"""A response that says no: ``HTTP/1.1 500``, ``"statusCode":404``, ``(HTTP 403)``; not ``status: 200``, ``500 files``.
"""
_SHELL_ERROR = lazy_pattern(
    r"^(?:rg|ls|cat|sed|grep|find|head|tail|cd|git|gh|fatal|error|bash|zsh|sh|jq|awk|stat|tree|wc): .*"
    r"(?:No such file|not found|[Pp]ermission denied|cannot|[Ii]nvalid|[Uu]nrecognized|[Uu]nknown|ambiguous|not a )"
    r"|^fatal: "
)
"""A reading command's own complaint, whatever it also printed: ``cat: a.py: No such file``; not ``a.py: cannot``."""
_TRACE_END = lazy_pattern(r"^\s*(?:[\w.]+(?:Error|Exception|Exit|Interrupt))\b(?::.*)?$")
"""What a traceback ends with: ``KeyError: 'token'``; not ``raise KeyError``."""
_RAISED = lazy_pattern(r"^E {3,}\S")
"""What pytest says was raised: ``E       assert 1 == 2``."""
_TOOL_SAYS = lazy_pattern(
    r"^\s*(?:[\w.-]+: )+.*(?:No such file|not found|[Pp]ermission denied|cannot|[Ii]nvalid|[Uu]nrecognized|[Uu]nknown|"
    r"not a |HTTP [45]\d\d|(?<!\d )failed)|^\s*(?:fatal|error|panic)\b(?!: expect\(received\)).{3,}|"
    r"^\s*[Uu]nknown \w+ \w+|[Mm]erge failed|CONFLICT \("
)
"""How programs complain: ``rg: tests: No such file``, ``error[E0382]: borrow of``; not ``2 failed``."""
_EXPECTED = lazy_pattern(r"\bexpected\b.*\b(?:got|found|received|but|to)\b|^\s*(?:Received|Actual|got)\b ?:", re.I)
_WANTED = lazy_pattern(r"^\s*(?:Expected|want)\b ?:", re.I)
"""``expected 3, got 4``, ``Received: 4``; and ``Expected: 3``, of which the other line says more."""
_NAMED_TEST = lazy_pattern(
    r"^\s*(?:--- FAIL|FAIL(?:ED)?\b[: ]+\S|\(fail\)|✗|✖|✘|✕|×|not ok|test (?:result:|\S+ \.\.\.) FAILED)"
)
"""Which test failed: ``--- FAIL: TestA``, ``✕ adds [2 ms]``; not ``FAILED = 3``."""
_LOCATED = lazy_pattern(
    r"^\s*(?:\[[\w:.-]+\] )?[\w./\\@-]+\.\w{1,5}[:(]\d+(?:[:,]\d+)?\)?:? +(?!in \S+$|\w+(?:Error|Exception)$)\S"
)
"""``file.go:12:3: what is wrong``: what compilers, linters and test runners say of a place."""
_DIAGNOSED = lazy_pattern(r"^\s*[\w./\\@-]+\.\w{1,5}[:(]\d+[:,]\d+\)?:? (?:- )?(?:fatal )?error\b")
"""``file.c:12:5: error``: a compiler gave up at that place."""
_AT_COLUMN = lazy_pattern(r"^(?:vet: )?[\w./\\@-]+\.\w{1,5}:\d+:\d+: (?!(?:warning|note|info)\b)\S")
"""``file.go:12:3: undefined: x``: what a compiler refuses; a search prints no column."""
_REPORT = lazy_pattern(
    r"^\s*(?:[\w.]*(?:Error|Exception|Failure|Panic)\b(?:\s*\[[^\]]*\])?:|"
    r"(?:fatal|error|panic|fail(?:ed|ure)?|abort(?:ed)?)(?:\[\w+\])?:|(?:Error|Failed to)\b|"
    r"--- FAIL|FAIL\b|FAILED\b|✗|✖|✘|✕|×|❌|not ok\b|npm ERR!|E {3,}\S|"
    r"(?:(?:EXECUTION|Command|Process|Operation|Request|Test) )?timed out|"
    r"\d+ (?:failed|failing|errors?)\b|Tests?:.*\d+ failed|=+ .*\d+ failed)|"
    r":\d+:\d+: (?:fatal )?error|\berror TS\d+|\berror\[E\d+\]|"
    r"command not found|No such file or directory|Permission denied|ModuleNotFoundError|can(?:no|['’])t find|"
    r"Segmentation fault|timed out|Traceback \(most recent|syntax error|merge conflict|CONFLICT \(|"
    r"(?<=[)\s])(?:error|fatal): \w|is not recognized|does not exist|unknown (?:option|flag|command)|"
    r"Connection refused|\bassert(?:ion)? ?(?:failed|error)\b|ELIFECYCLE|[1-9]\d* (?:failed|fail\b|errors?\b)",
    re.I | re.M,
)
"""Any report of a failure, a line that begins like one or holds words that nothing else says: ``ValueError: x``,
``a.ts:3:7 - error TS2322``, ``command not found``; not ``log.error(x)``, ``the error``."""
_TELLING = lazy_pattern(
    r"error|fail|exception|not (?:found|defined|exist|enough|used|a)\b|no such|denied|refus|"
    r"undefined|cannot|can't|unable|unknown|panic|invalid|expected|"
    r"conflict|timed? ?out|want|mismatch",
    re.I,
)
"""Words by which a line alone says that something failed; ``a.go:3:1: appendAssign: same slice`` has none."""
_RANKS = (
    (_LOCATED, _TRACE_END, _RAISED, _TOOL_SAYS, _EXPECTED, _REJECTED, _REFUSED_BY_TOOL, _HTTP_ERROR),
    (_NAMED_TEST,),
    (_WANTED, _REPORT),
    (_EXIT,),
)
"""How much a line says of a failure, the most first: what was raised or complained of, which test, that one was."""
_SIGNALS = (_TRACE_END, _NAMED_TEST, _DIAGNOSED, _AT_COLUMN, _TOOL_SAYS, _REPORT)
"""How a line of a run without a verdict says that it failed; the same words in the middle of data say nothing."""

_ADMITTED = lazy_pattern(
    r"\b(?:did(?:n['’]t| not)|could(?:n['’]t| not)) (?:seem to |really |actually |quite |cleanly )?"
    r"(?:work|help|fix|solve|compile|pass|build|apply|resolve|succeed|take effect)\b"
    r"|\b(?:approach|fix|change|attempt|patch|workaround|edit|it|that|this) (?:does(?:n['’]t| not)|is(?:n['’]t| not)) "
    r"(?:actually |really )?(?:work|working|help|helping|compile|compiling)\b"
    r"|\b(?:still|again) (?:fail(?:s|ed|ing)?\b|broken\b|does(?:n['’]t| not)\b)"
    r"|\bI(?:['’]ve| have| had)? (?:just |now )?(?:reverted|rolled back|undid|abandoned|gave up|misread|overlooked|"
    r"was wrong|made a mistake)\b|\b(?:let me|I['’]ll|I will|I['’]m) (?:revert|undo|roll back|rolling back)(?:ing)?\b"
    r"|\b(?:dead end|my (?:own )?(?:mistake|error|bad)|overcomplicat\w+|(?:took|was) (?:it )?(?:in )?the wrong way)\b",
    re.I,
)
"""The agent says of its own attempt that it failed: ``that did not work``, ``I reverted it``; not ``tests won't pass
with a race detector``, ``you're right``, ``returns as is when the format doesn't match``."""
_NEW_TEXT = lazy_pattern(r"new_str(?:ing)?:")
"""Opens the new text among the lines of a call that edits."""
_HEADING = lazy_pattern(r"^\s{0,3}(?:\d+\.|#+|\*\*)\s*\S")
_ERRORS_HEADING = lazy_pattern(r"[\s\d.#*]*(?:errors?|failures|failed|problems|mistakes)\b", re.I)
"""``4. Errors and fixes:``, ``## Failed approaches`` in an earlier summary; not ``5. Problem Solving:``, which tells
what was solved, nor ``4. **Problem 2 deep dive**:``."""

_BLOCK = attrgetter("block")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one call ended."""

    status: Status
    """``done``: nothing says that it passed or failed; ``running``: it had not ended when its output was read."""
    lines: tuple[int, ...]
    """Numbers of the lines that say so, ascending; empty where none does."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Line numbers of one turn that tell of failures, ascending; empty when there were none."""

    lines: tuple[int, ...]
    """All that tell of failures."""
    decisive: tuple[int, ...]
    """Of each failure the statement that says most."""


def read_calls(statements: Sequence[Statement], calls: Sequence[Call]) -> tuple[Failures, tuple[Outcome, ...]]:
    """The failures of one turn, by reports in results and the agent's own admissions, and how each call ended."""
    by_block = {block: list(group) for block, group in groupby(statements, key=_BLOCK)}
    by_part: defaultdict[Part, list[Statement]] = defaultdict(list)
    for group in by_block.values():
        by_part[group[0].part] += group
    admitted = [*filter(_admits, by_part["assistant"]), *_listed_before(by_part["user"])]
    reports: list[list[Statement]] = []
    outcomes: list[Outcome] = []
    for call in calls:
        result = by_block.get(call.result_block, []) if call.result_block is not None else []
        report, outcome = _judged(call, result)
        outcomes.append(outcome)
        if report and is_refusal(report[0].text):
            report = _refusal(result)
            admitted += _refused_change(by_block.get(call.block, []))
        if report:
            reports.append(report)
    failures = Failures(
        lines=numbers_of(chain(admitted, *reports)),
        decisive=numbers_of(chain(admitted, *map(_decisive, reports))),
    )
    return failures, tuple(outcomes)


def _judged(call: Call, result: Sequence[Statement]) -> tuple[list[Statement], Outcome]:
    """The report of the call's failure, empty if it did not fail, and how it ended."""
    if call.result is None:
        return [], Outcome("unanswered", ())
    runs = call.kind == "run" and not call.is_report  # counts in what another tool returns are data
    verdict, lines = _verdict_of_run(result) if runs else (None, ())
    if _has_failed(call, result, verdict):
        report = _report(call, result)
        if verdict == "failed" and report and not _TELLING.search(report[0].text):
            report = [report[0], *(line for line in lines[-1:] if line not in report[:1]), *report[1:]]
        counts = lines if verdict == "failed" else ()
        return report, Outcome("failed", numbers_of([*report[:OUTCOME_LINES], *counts]))
    if any(is_running(one.text) for one in result[:HEAD_LINES]):
        return [], Outcome("running", numbers_of(_telling_lines(call, result)))
    if verdict == "passed":
        return [], Outcome("passed", numbers_of(lines))
    return [], Outcome("done", numbers_of(_telling_lines(call, result)))


def _has_failed(call: Call, result: Sequence[Statement], verdict: Verdict | None) -> bool:
    """True if `call`, whose run's last word is `verdict`, failed: by the host's flag, its exit code, or its report."""
    code = exit_code(result)
    if code in (1, NO_OF_SOME) and _found_nothing(call, result, code):
        return False
    if code and call.kind == "read" and _QUIET.search(call.command):
        return any(_SHELL_SAYS.match(one.text) or _signals(one.text) for one in _printed_lines(result))
    if call.is_error or code not in (0, None):
        return True
    if call.kind == "ask" or verdict == "passed":
        return False
    whole = [one for one in result if not one.lines[0].continues]
    if any(is_refusal(line.text) for line in whole[:2]) or _tool_erred(call, whole):
        return True
    if call.kind in ("read", "search"):
        short = len(whole) <= SHORT_RESULT_LINES
        return any(_SHELL_ERROR.match(line.text) or (short and _tells(line.text)) for line in whole)
    return verdict == "failed" or (call.kind != "write" and _complains(call, whole, code))


def _found_nothing(call: Call, result: Sequence[Statement], code: int) -> bool:
    """True if exit code `code` is the answer of a search or comparison that may have run last: nothing was printed, or
    by others that do not fail without a word, and no line of it is a complaint."""
    commands = last_run(call.command[-COMMAND_CHARACTERS:])
    answers = [match for one in commands if (match := _SAYS_NO.match(one)) and (code == 1 or match["by"])]
    printed = _printed_lines(result)
    if not printed:
        return bool(answers)
    if code == 1 and commands and (match := _SAYS_NO.match(commands[-1])) and match["compares"] == "diff":
        return True
    if not all(_SAYS_NO.match(one) or _SPEAKS_UP.match(one) or is_looking(one) for one in commands):
        return False
    if call.kind in ("read", "search") and code == 1 and _NONE.match(printed[-1].text):
        return True
    searches = any(not match["compares"] for match in answers)
    return searches and not any(_SHELL_SAYS.match(one.text) or _signals(one.text) for one in printed)


def exit_code(result: Sequence[Statement]) -> int | None:
    """The exit code that the host prints at the start or end of a result; None without one."""
    tail = result[max(HEAD_LINES, len(result) - TAIL_LINES) :]
    for statement in (*result[:HEAD_LINES], *tail):
        if match := _EXIT_CODE.search(statement.text):
            return int(next(group for group in match.groups() if group is not None))
    return None


def _printed_lines(result: Sequence[Statement]) -> list[Statement]:
    """What the command itself printed, without what the host says around it."""
    filled = (one for one in result if one.text.strip())
    return [one for one in filled if not (is_wrapping(one.text) or _EXIT_CODE.fullmatch(one.text.strip()))]


def _verdict(text: str) -> Verdict | None:
    """What one line says of how a run ended."""
    prefix = _PREFIX.match(text)
    bare = text[prefix.end() :] if prefix else text
    if _FAILED_RUN.match(bare):
        return "failed"
    return "passed" if _PASSED_RUN.match(bare) else None


def _verdict_of_run(result: Sequence[Statement]) -> tuple[Verdict | None, tuple[Statement, ...]]:
    """How a run ended, and the lines that say so: the last one decides.

    A failure that was counted before it stands, unless the exit code is known to be 0: of two commands in one line the
    first may have failed.
    """
    judged = [(one, verdict) for one in result if (verdict := _verdict(one.text))]
    if not judged:
        return None, ()
    final = judged[-1][1]
    if final == "passed" and exit_code(result) != 0 and any(verdict == "failed" for _, verdict in judged):
        final = "failed"
    return final, tuple(one for one, verdict in judged if verdict == final)[-OUTCOME_LINES:]


def _telling_lines(call: Call, result: Sequence[Statement]) -> tuple[Statement, ...]:
    """The lines of a result that say how `call` ended, where no verdict does: all of a short one."""
    saying = (one for one in result if (bare := one.text.strip()) and not _TAG.fullmatch(bare))
    filled = list(islice(saying, MOST_WRAPPING) if call.kind == "read" else saying)
    printed = [one for one in filled if not is_wrapping(one.text)] or filled
    if len(printed) <= OUTCOME_LINES:
        return tuple(printed)
    if call.kind == "read":
        return ()
    telling = [one for one in printed if _DONE.match(one.text)]
    if call.kind in ("write", "search", "ask"):
        return tuple(telling[:1] or printed[:1])
    return tuple(telling[-OUTCOME_LINES:] or printed[-1:])


def is_refusal(text: str) -> bool:
    """True for a line in which a host says that the user refused a call."""
    return bool(_REJECTED.match(text))


def _tells(text: str) -> bool:
    return bool((_REPORT.search(text) or is_refusal(text)) and not _NO_FAILURE.search(text))


def _tool_erred(call: Call, result: Sequence[Statement]) -> bool:
    """True if the result opens with a tool's own error, or with a response that says no."""
    head = [line.text for line in result if line.text.strip()][:RESPONSE_LINES]
    http = call.kind in ("run", "other", "search") or len(result) <= SHORT_RESULT_LINES
    return any(_TOOL_ERROR.match(text) for text in head[:1]) or (http and any(map(_HTTP_ERROR.match, head)))


def _complains(call: Call, result: Sequence[Statement], code: int | None) -> bool:
    """True if a run without a verdict reports a failure, near its end where its exit code says that it passed."""
    if call.is_report:
        return False
    if call.kind == "other":
        return any(_signals(line.text) for line in result[:RESPONSE_LINES])
    printed = [line for line in result if line.text.strip()]
    return any(_signals(line.text) for line in (printed[-RESPONSE_LINES:] if code == 0 else printed))


def _signals(text: str) -> bool:
    """True for a line that begins as reports of failure do."""
    return any(pattern.match(text) for pattern in _SIGNALS) and not (_PASSING.match(text) or _NO_FAILURE.search(text))


def _report(call: Call, result: Sequence[Statement]) -> list[Statement]:
    """The statements of a failed result that say how it failed, the most telling first.

    What was raised or complained of comes first, then which test failed, then more of both. Where a search complains a
    line with a place is no complaint: it found it elsewhere than where it could not look.
    """
    searched = call.kind in ("read", "search") and any(_SHELL_ERROR.match(line.text) for line in result)
    ranks: dict[str, tuple[int, Statement]] = {}
    for one in result:
        if (rank := _rank(one.text)) is not None and not (searched and _LOCATED.match(one.text)):
            ranks.setdefault(one.text.strip(), (rank, one))
    of_rank = [[one for rank, one in ranks.values() if rank == wanted] for wanted in range(len(_RANKS))]
    ranked = [*of_rank[0][:1], *of_rank[1][:1], *of_rank[0][1:], *of_rank[1][1:], *chain(*of_rank[2:])]
    if all(_EXIT.search(one.text) for one in ranked):
        printed = [one for one in result if one.text.strip() and one not in ranked and not _says_nothing(one.text)]
        ranked = [*dict.fromkeys(printed[-1:] + printed[:1]), *ranked]
    return ranked[:REPORT_LINES]


def _rank(text: str) -> int | None:
    """How much a line says of a failure, 0 the most; None if it says nothing of one."""
    ranks = (rank for rank, patterns in enumerate(_RANKS) if any(pattern.search(text) for pattern in patterns))
    rank = next(ranks, None)
    if rank is None or _NO_FAILURE.search(text) or _PASSING.match(text) or _BARE.fullmatch(text):
        return None
    return rank


def _says_nothing(text: str) -> bool:
    return is_wrapping(text) or bool(_BARE.fullmatch(text))


def _decisive(report: Sequence[Statement]) -> Sequence[Statement]:
    """The first line of a report; if it does not say by itself that something failed, with the verdict behind it."""
    alone = bool(_TELLING.search(report[0].text)) or len(report) < 2 or _verdict(report[1].text) != "failed"
    return report[: 1 if alone else 2]


def _refusal(result: Sequence[Statement]) -> list[Statement]:
    """Of a call that the user refused what the user said of it; without such words, what the host says."""
    words = [one for one in result if one.lines[0].source == "user" and one.text.strip()]
    return words[:REPORT_LINES] or [one for one in result if one.text.strip()][:1]


def _refused_change(own: Sequence[Statement]) -> list[Statement]:
    """The first new line of an edit that the user refused: what was tried, of which the file's name says nothing."""
    texts = [statement.text.strip() for statement in own]
    new = next((at for at, text in enumerate(texts) if _NEW_TEXT.fullmatch(text)), len(own))
    return [one for one in own[new + 1 :] if len(one.text) > 3 and one.text.strip() not in texts[:new]][:1]


def _admits(one: Statement) -> bool:
    """True if the agent says that what it tried failed; not in a table."""
    in_table = one.text.lstrip().startswith("|")
    return not in_table and bool(_ADMITTED.search(one.text)) and not _NO_FAILURE.search(one.text)


def _listed_before(statements: Iterable[Statement]) -> Iterator[Statement]:
    """What stands under a heading of errors in a summary that an earlier compaction left in the user's message.

    What is indented further below tells of causes and cures, no failure of its own.
    """
    inside, outermost = False, 0
    for statement in statements:
        if statement.source != "planner":
            continue
        bare = statement.text.lstrip()
        indent = len(statement.text) - len(bare)
        if _HEADING.match(statement.text):
            inside, outermost = bool(_ERRORS_HEADING.match(statement.text)), 0
        elif inside and bare.startswith(("-", "*")) and not _NO_FAILURE.search(bare):
            outermost = outermost or indent + 1
            if indent < outermost:
                yield statement
