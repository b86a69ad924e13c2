"""Which lines show that an approach failed: flags, exit codes, error reports, rejections, the agent's words.

Words of failure in what a call merely read (source code, a grep for "error") are no failure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter

from planner.evidence.boilerplate import is_wrapping
from planner.evidence.calls import Call
from planner.evidence.outcomes import (
    OUTCOME_LINES,
    Outcome,
    Verdict,
    exit_code,
    exits_by_answer,
    found_nothing,
    printed_lines,
    telling_lines,
    verdict,
    verdict_of_run,
)
from planner.reading.lines import Part, Statement, numbers_of
from planner.reading.patterns import held_words, holds_any, lazy_pattern

__all__ = ["Failures", "failures_of", "has_failed", "is_refusal", "read_calls"]

REPORT_LINES = 4
"""At most this many statements of one failed result stand for it; the first of them is decisive."""
RESPONSE_LINES = 4
"""A tool's own error, and the head of a response, stand within so many lines."""
SHORT_RESULT_LINES = 3
"""What a call read is looked through for signs of failure only when it is this short."""

_SHELL_ERROR = lazy_pattern(
    r"^(?:rg|ls|cat|sed|grep|find|head|tail|cd|git|gh|fatal|error|bash|zsh|sh|jq|awk|stat|tree|wc): .*"
    r"(?:No such file|not found|[Pp]ermission denied|cannot|[Ii]nvalid|[Uu]nrecognized|[Uu]nknown|ambiguous|not a )"
    r"|^fatal: "
)
"""A reading command's own complaint, whatever it also printed."""
_EXIT = lazy_pattern(
    r"(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code|exit_code)[\"']?\s*[:=]?\s*(?!0\b)-?[1-9]\d*\b",
    re.I,
)
_REPORT = lazy_pattern(
    r"^\s*(?:[\w.]*(?:Error|Exception|Failure|Panic)\b(?:\s*\[[^\]]*\])?:|"
    r"(?:fatal|error|panic|fail(?:ed|ure)?|abort(?:ed)?)(?:\[\w+\])?:|"
    r"--- FAIL|FAIL\b|FAILED\b|✗|✖|✘|✕|×|❌|not ok\b|npm ERR!|E {3,}\S|"
    r"\d+ (?:failed|failing|errors?)\b|Tests?:.*\d+ failed|=+ .*\d+ failed)|"
    r":\d+:\d+: (?:fatal )?error|\berror TS\d+|\berror\[E\d+\]|"
    r"command not found|No such file or directory|Permission denied|ModuleNotFoundError|can(?:no|['’])t find|"
    r"Segmentation fault|timed out|Traceback \(most recent|syntax error|merge conflict|CONFLICT \(|"
    r"(?<=[)\s])(?:error|fatal): \w|is not recognized|does not exist|unknown (?:option|flag|command)|"
    r"Connection refused|"
    r"^\s*(?:(?:EXECUTION|Command|Process|Operation|Request|Test) )?timed out|^\s*(?:Error|Failed to)\b"
    r"|\bassert(?:ion)? ?(?:failed|error)\b|ELIFECYCLE|[1-9]\d* (?:failed|fail\b|errors?\b)",
    re.I | re.M,
)
_REPORT_WORDS = (
    *("error", "exception", "fail", "panic", "fatal", "abort", "✗", "✖", "✘", "✕", "×", "❌", "not ok", "npm err!"),
    *("e   ", "not found", "no such file", "denied", "t find", "segmentation", "timed out", "traceback", "conflict"),
    *("not recognized", "not exist", "unknown", "refused", "elifecycle"),
)
"""Every match of `_REPORT` holds one of these, in lower case."""
_TRACE_END = lazy_pattern(r"^\s*(?:[\w.]+(?:Error|Exception|Exit|Interrupt))\b(?::.*)?$")
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
_REFUSED_WORDS = (
    *("tool_use_error", "inputvalidationerror", "string to replace", "file has ", "error ", "proposed edit"),
    *("apply_patch", "no replacement"),
)
"""Every match of `_REFUSED_BY_TOOL` holds one of these, in lower case."""
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
_HTTP_WORDS = (
    *("http", "status", "curl: (", "internal server error", "bad request", "not found", "unauthorized", "forbidden"),
    *("bad gateway", "service unavailable", "gateway timeout", "too many requests", "conflict", "unprocessable"),
)
"""Every match of `_HTTP_ERROR` holds one of these, in lower case."""
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
_RAISED = lazy_pattern(r"^E {3,}\S")
"""What pytest says was raised."""
_LOCATED = lazy_pattern(
    r"^\s*(?:\[[\w:.-]+\] )?[\w./\\@-]+\.\w{1,5}[:(]\d+(?:[:,]\d+)?\)?:? +(?!in \S+$|\w+(?:Error|Exception)$)\S"
)
"""``file.go:12:3: what is wrong``: what compilers, linters and test runners say of a place."""
_TOOL_SAYS = lazy_pattern(
    r"^\s*(?:[\w.-]+: )+.*(?:No such file|not found|[Pp]ermission denied|cannot|[Ii]nvalid|[Uu]nrecognized|[Uu]nknown|"
    r"not a |HTTP [45]\d\d|(?<!\d )failed)|^\s*(?:fatal|error|panic)\b(?!: expect\(received\)).{3,}|"
    r"^\s*[Uu]nknown \w+ \w+|[Mm]erge failed|CONFLICT \("
)
_TOOL_WORDS = (
    *("no such file", "not found", "permission denied", "cannot", "invalid", "unrecognized", "unknown", "not a "),
    *("http ", "failed", "fatal", "error", "panic", "conflict ("),
)
"""Every match of `_TOOL_SAYS` holds one of these, in lower case."""
_EXPECTED = lazy_pattern(r"\bexpected\b.*\b(?:got|found|received|but|to)\b|^\s*(?:Received|Actual|got)\b ?:", re.I)
_WANTED = lazy_pattern(r"^\s*(?:Expected|want)\b ?:", re.I)
_NAMED_TEST = lazy_pattern(
    r"^\s*(?:--- FAIL|FAIL(?:ED)?\b[: ]+\S|\(fail\)|✗|✖|✘|✕|×|not ok|test (?:result:|\S+ \.\.\.) FAILED)"
)
_DIAGNOSED = lazy_pattern(r"^\s*[\w./\\@-]+\.\w{1,5}[:(]\d+[:,]\d+\)?:? (?:- )?(?:fatal )?error\b")
"""``file.c:12:5: error``: a compiler gave up at that place."""
_AT_COLUMN = lazy_pattern(r"^(?:vet: )?[\w./\\@-]+\.\w{1,5}:\d+:\d+: (?!(?:warning|note|info)\b)\S")
"""``file.go:12:3: undefined: x``: what a compiler refuses; a search prints no column."""
_NEW_TEXT = lazy_pattern(r"new_str(?:ing)?:")
"""Opens the new text among the lines of a call that edits."""
_NO_FAILURE = lazy_pattern(
    r"\b(?:0 (?:failed|failures|errors?)|no (?:major |new )?(?:errors?|failures?|issues)|without errors?"
    r"|all (?:tests )?pass)",
    re.I,
)


_PASSING = lazy_pattern(r"(?:@?[\w./-]{1,80} [\w:-]{1,40}: )?\s*(?:\(pass\)|✓|✔|√|⚠|PASS\b|--- PASS|ok\b)")
"""A line that tells of a test that passed, or only warns: ``(pass) fails when the file does not exist``."""
_TELLING = lazy_pattern(
    r"error|fail|exception|not (?:found|defined|exist|enough|used|a)\b|no such|denied|refus|"
    r"undefined|cannot|can't|unable|unknown|panic|invalid|expected|"
    r"conflict|timed? ?out|want|mismatch",
    re.I,
)
"""Words by which a line alone says that something failed; ``a.go:3:1: appendAssign: same slice`` has none."""
_BARE = lazy_pattern(r"\s*(?:error|fatal|failed|failure):?\s*", re.I)
"""A line that says no more than that there was an error."""
_HEADING = lazy_pattern(r"^\s{0,3}(?:\d+\.|#+|\*\*)\s*\S")
_ERRORS_HEADING = lazy_pattern(r"\b(?:errors?|failures?|failed|problems?|mistakes)\b", re.I)


_BLOCK = attrgetter("block")


@dataclass(frozen=True, slots=True)
class Failures:
    """Line numbers of one turn that tell of failures, ascending; empty when there were none."""

    lines: tuple[int, ...]
    """All that tell of failures."""
    decisive: tuple[int, ...]
    """Of each failure the statement that says most."""


def failures_of(statements: Sequence[Statement], calls: Sequence[Call]) -> Failures:
    """What of one turn, of which `statements` are all, with their sources, shows failures."""
    return read_calls(statements, calls)[0]


def read_calls(statements: Sequence[Statement], calls: Sequence[Call]) -> tuple[Failures, tuple[Outcome, ...]]:
    """The failures of one turn, by reports in results and the agent's own admissions, and how each call ended."""
    by_block = {block: list(group) for block, group in groupby(statements, key=_BLOCK)}
    by_part: defaultdict[Part, list[Statement]] = defaultdict(list)
    for group in by_block.values():
        by_part[group[0].part] += group
    spoken = by_part["assistant"]
    admitted = [one for one in spoken if _says(_ADMITTED, one)] + list(_listed_before(by_part["user"]))
    reports: list[list[Statement]] = []
    outcomes: list[Outcome] = []
    for call in calls:
        result = by_block.get(call.result_block, []) if call.result_block is not None else []
        report, outcome = _judged(call, result)
        outcomes.append(outcome)
        if report:
            reports.append(_refusal(result) if _REJECTED.match(report[0].text) else report)
            admitted += _refused_change(by_block.get(call.block, [])) if _REJECTED.match(report[0].text) else []
    failures = Failures(
        lines=numbers_of(chain(admitted, *reports)),
        decisive=numbers_of(chain(admitted, *map(_decisive, reports))),
    )
    return failures, tuple(outcomes)


def _judged(call: Call, result: Sequence[Statement]) -> tuple[list[Statement], Outcome]:
    """The report of the call's failure, empty if it did not fail, and how it ended."""
    if call.result is None:
        return [], Outcome("unanswered", ())
    runs = call.kind in ("run", "other") and not call.is_report
    word, lines = verdict_of_run(result) if runs else (None, ())
    if has_failed(call, result, word):
        partly = call.kind in ("read", "search") and any(_SHELL_ERROR.match(line.text) for line in result)
        report = _report(result, matches=partly)
        if word == "failed" and report and not _TELLING.search(report[0].text):
            report = [report[0], *(line for line in lines[-1:] if line not in report[:1]), *report[1:]]
        return report, Outcome("failed", numbers_of([*report[:OUTCOME_LINES], *(lines if word == "failed" else ())]))
    if word == "passed":
        return [], Outcome("passed", numbers_of(lines))
    return [], Outcome("done", numbers_of(telling_lines(call, result)))


def _refusal(result: Sequence[Statement]) -> list[Statement]:
    """Of a call that the user refused what the user said of it; without such words, what the host says."""
    words = [one for one in result if one.lines[0].source == "user" and one.text.strip()]
    return words[:REPORT_LINES] or [one for one in result if one.text.strip()][:1]


def _decisive(report: Sequence[Statement]) -> Sequence[Statement]:
    """The first line of a report; if it does not say by itself that something failed, with the verdict behind it."""
    alone = bool(_TELLING.search(report[0].text)) or len(report) < 2 or verdict(report[1].text) != "failed"
    return report[: 1 if alone else 2]


def _listed_before(statements: Iterable[Statement]) -> Iterator[Statement]:
    """What stands under a heading of errors in a summary that an earlier compaction left in the user's message."""
    inside = False
    for statement in statements:
        if statement.source != "planner":
            continue
        if _HEADING.match(statement.text):
            inside = bool(_ERRORS_HEADING.search(statement.text))
        elif inside and statement.text.lstrip().startswith(("-", "*")) and not _NO_FAILURE.search(statement.text):
            yield statement


def _says(pattern: re.Pattern[str], statement: Statement) -> bool:
    return (
        bool(pattern.search(statement.text))
        and not statement.text.lstrip().startswith("|")
        and not _NO_FAILURE.search(statement.text)
    )


def _report(result: Sequence[Statement], *, matches: bool = False) -> list[Statement]:
    """The statements of a failed result that say how it failed, the most telling first.

    What was raised or complained of comes first, then which test failed, then more of both. With `matches` a line
    with a place is no complaint: a search found it elsewhere than where it could not look.
    """
    words = held_words([statement.text for statement in result], _FAILURE_WORDS)
    ranks: dict[str, tuple[int, Statement]] = {}
    for statement in result:
        if (rank := _rank(statement.text, words, matches=matches)) is not None:
            ranks.setdefault(statement.text.strip(), (rank, statement))
    of_rank = [[statement for rank, statement in ranks.values() if rank == wanted] for wanted in range(len(_RANKS))]
    ranked = [*of_rank[0][:1], *of_rank[1][:1], *of_rank[0][1:], *of_rank[1][1:], *chain(*of_rank[2:])]
    if all(_EXIT.search(statement.text) for statement in ranked):
        printed = [one for one in result if one.text.strip() and one not in ranked and not _says_nothing(one.text)]
        ranked = [*dict.fromkeys(printed[-1:] + printed[:1]), *ranked]
    return ranked[:REPORT_LINES]


def is_refusal(text: str) -> bool:
    """True for a line in which a host says that the user refused a call."""
    return bool(_REJECTED.match(text))


def _says_nothing(text: str) -> bool:
    return is_wrapping(text) or bool(_BARE.fullmatch(text))


def _refused_change(own: Sequence[Statement]) -> list[Statement]:
    """The first new line of an edit that the user refused: what was tried, of which the file's name says nothing."""
    texts = [statement.text.strip() for statement in own]
    new = next((at for at, text in enumerate(texts) if _NEW_TEXT.fullmatch(text)), len(own))
    return [one for one in own[new + 1 :] if len(one.text) > 3 and one.text.strip() not in texts[:new]][:1]


def _rank(text: str, words: Sequence[str], *, matches: bool = False) -> int | None:
    """How much a line says of a failure, 0 the most; None if it says nothing of one, as every line without a place that
    holds none of `words`: those of `_FAILURE_WORDS` that stand near it."""
    folded = text.casefold()
    located = _LOCATED.match(text) is not None
    if located and matches:
        return None
    if not (located or holds_any(folded, words)):
        return None
    if _NO_FAILURE.search(text) or _PASSING.match(text) or _BARE.fullmatch(text):
        return None
    if located:
        return 0
    for rank, patterns in enumerate(_RANKS):
        if any(holds_any(folded, words) and pattern.search(text) for pattern, words in patterns):
            return rank
    return None


_RANKS: tuple[tuple[tuple[re.Pattern[str], tuple[str, ...]], ...], ...] = (
    (
        (_TRACE_END, ("error", "exception", "exit", "interrupt")),
        (_RAISED, ("e   ",)),
        (_TOOL_SAYS, _TOOL_WORDS),
        (_EXPECTED, ("expected", "received", "actual", "got")),
        (_REJECTED, ("user", "rejected")),
        (_REFUSED_BY_TOOL, _REFUSED_WORDS),
        (_HTTP_ERROR, _HTTP_WORDS),
    ),
    ((_NAMED_TEST, ("fail", "✗", "✖", "✘", "✕", "×", "not ok")),),
    ((_WANTED, ("expected", "want")), (_REPORT, _REPORT_WORDS)),
    ((_EXIT, ("exit", "return")),),
)
"""Patterns by rank, each with words of which every match holds one, in lower case."""
_FAILURE_WORDS = tuple(sorted({word for rank in _RANKS for _, words in rank for word in words}))
"""Without one of these, and without a place, a line says nothing of a failure."""


def _telling(text: str) -> bool:
    return bool((_REPORT.search(text) or _REJECTED.match(text)) and not _NO_FAILURE.search(text))


def has_failed(call: Call, result: Sequence[Statement], word: Verdict | None) -> bool:
    """True if `call`, whose run's last word is `word`, failed: by the host's flag, its exit code, or its report."""
    if found_nothing(call, result):
        return False
    result = [one for one in result if not one.lines[0].continues]
    if exits_by_answer(call, result):
        result = printed_lines(result)
        word, _ = verdict_of_run(result)
    elif call.is_error or exit_code(result) not in (0, None):
        return True
    if call.kind == "ask" or word == "passed":
        return False
    if any(_REJECTED.match(line.text) for line in result[:2]) or _tool_erred(call, result):
        return True
    if call.kind in ("read", "search"):
        return any(_SHELL_ERROR.match(line.text) for line in result) or (
            len(result) <= SHORT_RESULT_LINES and any(_telling(line.text) for line in result)
        )
    return word == "failed" or (call.kind != "write" and _complains(call, result))


def _tool_erred(call: Call, result: Sequence[Statement]) -> bool:
    """True if the result opens with a tool's own error, or with a response that says no."""
    head = [line.text for line in result if line.text.strip()][:RESPONSE_LINES]
    http = call.kind in ("run", "other", "search") or len(result) <= SHORT_RESULT_LINES
    return any(_TOOL_ERROR.match(text) for text in head[:1]) or (http and any(map(_HTTP_ERROR.match, head)))


def _complains(call: Call, result: Sequence[Statement]) -> bool:
    """True if a run without a verdict reports a failure, near its end where its exit code says that it passed."""
    if call.is_report:
        return False
    if call.kind == "other":
        return any(_signals(line.text) for line in result[:RESPONSE_LINES])
    printed = [line for line in result if line.text.strip()]
    return any(_signals(line.text) for line in (printed[-RESPONSE_LINES:] if exit_code(result) == 0 else printed))


def _signals(text: str) -> bool:
    """True for a line that begins as reports of failure do; the same words in the middle of data say nothing."""
    if _PASSING.match(text) or _NO_FAILURE.search(text):
        return False
    return any(p.match(text) for p in (_TRACE_END, _NAMED_TEST, _DIAGNOSED, _AT_COLUMN, _TOOL_SAYS, _REPORT))
