"""Which lines show that an approach failed: flags, exit codes, error reports, rejections, the agent's words.

Words of failure in what a call merely read (source code, a grep for "error") are no failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from planner.evidence.calls import Call
from planner.reading.lines import Statement, numbers_of

__all__ = ["Failures", "failures_of"]

REPORT_LINES = 4
"""At most this many statements of one failed result are told; the first of them is decisive."""
SHORT_RESULT_LINES = 3
"""What a call read is looked through for signs of failure only when it is this short."""

_SHELL_ERROR = re.compile(
    r"^(?:rg|ls|cat|sed|grep|find|head|tail|cd|git|gh|fatal|error|bash|zsh|sh|jq|awk|stat|tree|wc): .*"
    r"(?:No such file|not found|[Pp]ermission denied|cannot|[Ii]nvalid|[Uu]nrecognized|[Uu]nknown|ambiguous|not a )"
    r"|^fatal: "
)
"""A reading command's own complaint, whatever it also printed."""
_EXIT = re.compile(
    r"(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code|exit_code)[\"']?\s*[:=]?\s*(?!0\b)-?[1-9]\d*\b",
    re.I,
)
_REPORT = re.compile(
    r"^\s*(?:[\w.]*(?:Error|Exception|Failure|Panic)\b(?:\s*\[[^\]]*\])?:|"
    r"(?:fatal|error|panic|fail(?:ed|ure)?|abort(?:ed)?)(?:\[\w+\])?:|"
    r"--- FAIL|FAIL\b|FAILED\b|✗|✖|✘|✕|×|❌|not ok\b|npm ERR!|E {3,}\S|"
    r"\d+ (?:failed|failing|errors?)\b|Tests?:.*\d+ failed|=+ .*\d+ failed)|"
    r":\d+:\d+: (?:fatal )?error|\berror TS\d+|\berror\[E\d+\]|"
    r"command not found|No such file or directory|Permission denied|ModuleNotFoundError|can(?:no|['’])t find|"
    r"Segmentation fault|timed out|Traceback \(most recent|syntax error|merge conflict|CONFLICT \(|"
    r"(?<=[)\s])(?:error|fatal): \w|is not recognized|does not exist|unknown (?:option|flag|command)|"
    r"Connection refused|"
    r"^\s*(?:Error|Failed to)\b|\bassert(?:ion)? ?(?:failed|error)\b|ELIFECYCLE|[1-9]\d* (?:failed|fail\b|errors?\b)",
    re.I | re.M,
)
_TRACE_END = re.compile(r"^\s*(?:[\w.]+(?:Error|Exception|Exit|Interrupt))\b(?::.*)?$")
_REJECTED = re.compile(
    r"user (?:doesn'?t|does not|did not|didn'?t) want|tool use was rejected|rejected by the user|"
    r"Request interrupted by user|user (?:has )?(?:rejected|denied|declined|aborted)|aborted by user",
    re.I,
)
_TOOL_ERROR = re.compile(
    r"^\s*(?:<tool_use_error>|Error:|ERROR|error:|InputValidationError|String to replace not found|"
    r"File has (?:not been read|been modified)|Error (?:editing|writing|reading|executing))"
)
_ADMITTED = re.compile(
    r"(?:(?:did|does|is|was|wo|could)n['’]?t|(?:did|does|is|was|could) not) (?:seem to |really |actually )?"
    r"(?:work|help|fix|solve|match|compile|pass|build|apply|resolve)|\bnot working\b|\bstill (?:fail|broken|not )|"
    r"\b(?:revert(?:ed|ing)?|rolled? back|undo(?:ing)?|dead end|unsuccessful|gave up|give up|abandon(?:ed|ing)?|"
    r"(?:different|another|wrong) (?:approach|way)|my (?:mistake|bad|error)|was (?:wrong|a mistake)|I was wrong|"
    r"overcomplicat\w+|oops|you['’]re (?:absolutely |quite )?right)\b",
    re.I,
)
"""The agent says of its own attempt that it failed."""
_SETBACK = re.compile(
    r"(?:do|does|did|is|was|are|were|wo|could|would|ca|has|have|had)n['’]?t\b|"
    r"\b(?:cannot|can not|did not|does not|is not|not found)\b|"
    r"\b(?:fail(?:s|ed|ing|ure)|broken?|broke|mistake|wrong|incorrect(?:ly)?|blocked|timed out|regress(?:ed|ion)|"
    r"crash(?:es|ed|ing)?|hangs?|stale|missing|try again|unfortunately|sorry|root cause|"
    r"the (?:issue|problem|bug) (?:is|was)|you['’]re right|harmless|duplicate|syntax error|"
    r"returned `?(?:\[\]|nothing|empty))",
    re.I,
)
"""The agent says that something is not as it was hoped: worth keeping, no failed approach by itself."""
_RAISED = re.compile(r"^E {3,}\S")
"""What pytest says was raised."""
_LOCATED = re.compile(r"^\s*[\w./\\@-]+\.\w{1,5}[:(]\d+(?:[:,]\d+)?\)?:? +(?!in \S+$|\w+(?:Error|Exception)$)\S")
"""``file.go:12:3: what is wrong``: what compilers, linters and test runners say of a place."""
_TOOL_SAYS = re.compile(
    r"^\s*(?:[\w.-]+: )+.*(?:No such file|not found|[Pp]ermission denied|cannot|[Ii]nvalid|[Uu]nrecognized|[Uu]nknown|"
    r"not a |HTTP [45]\d\d|(?<!\d )failed)|^\s*(?:fatal|error|panic)\b(?!: expect\(received\)).{3,}|"
    r"^\s*[Uu]nknown \w+ \w+|[Mm]erge failed|CONFLICT \("
)
_EXPECTED = re.compile(r"\bexpected\b.*\b(?:got|found|received|but|to)\b|^\s*(?:Received|Actual|got)\b ?:", re.I)
_WANTED = re.compile(r"^\s*(?:Expected|want)\b ?:", re.I)
_NAMED_TEST = re.compile(
    r"^\s*(?:--- FAIL|FAIL(?:ED)?\b[: ]+\S|\(fail\)|✗|✖|✘|✕|×|not ok|test (?:result:|\S+ \.\.\.) FAILED)"
)
_DIAGNOSED = re.compile(r"^\s*[\w./\\@-]+\.\w{1,5}[:(]\d+[:,]\d+\)?:? (?:- )?(?:fatal )?error\b")
"""``file.c:12:5: error``: a compiler gave up at that place."""
_NEW_TEXT = re.compile(r"new_str(?:ing)?:")
"""Opens the new text among the lines of a call that edits."""
_NO_FAILURE = re.compile(
    r"\b(?:0 (?:failed|failures|errors?)|no (?:errors?|failures?|issues)|without errors?|all (?:tests )?pass)",
    re.I,
)


_HEADING = re.compile(r"^\s{0,3}(?:\d+\.|#+|\*\*)\s*\S")
_ERRORS_HEADING = re.compile(r"\b(?:errors?|failures?|failed|problems?|mistakes)\b", re.I)


@dataclass(frozen=True, slots=True)
class Failures:
    """Line numbers of one turn that tell of failures and setbacks, ascending; empty when there were none."""

    lines: tuple[int, ...]
    """All that tell of failures."""
    decisive: tuple[int, ...]
    """Of each failure the statement that says most."""
    setbacks: tuple[int, ...]
    """In which the agent says that something is not as it was hoped."""


def failures_of(said: Sequence[Statement], calls: Iterable[Call]) -> Failures:
    """What of one turn, of which `said` are all statements, shows failures and setbacks.

    Failures are told by reports in results and by the agent's own admissions.
    """
    reports = [(call, report) for call in calls if (report := _report(said, call))]
    told = [statement for statement in said if _agent_says(_ADMITTED, statement)] + list(_told_before(said))
    for call, report in reports:
        told += _refused_change(said, call) if _REJECTED.search(report[0].text) else []
    return Failures(
        lines=numbers_of(chain(told, *(report for _, report in reports))),
        decisive=numbers_of(chain(told, (report[0] for _, report in reports))),
        setbacks=numbers_of(statement for statement in said if _agent_says(_SETBACK, statement)),
    )


def _told_before(said: Iterable[Statement]) -> Iterator[Statement]:
    """What stands under a heading of errors in a summary that an earlier compaction left in the user's message."""
    inside = False
    for statement in said:
        if statement.part == "user" and _HEADING.match(statement.text):
            inside = bool(_ERRORS_HEADING.search(statement.text))
        elif inside and statement.part == "user" and statement.text.lstrip().startswith(("-", "*")):
            yield statement


def _agent_says(pattern: re.Pattern[str], said: Statement) -> bool:
    return said.part == "assistant" and bool(pattern.search(said.text)) and not _NO_FAILURE.search(said.text)


def _report(said: Iterable[Statement], call: Call) -> list[Statement]:
    """The statements of a failed result that say how it failed, the most telling first; none if it did not fail.

    What was raised or complained of comes first, then which test failed, then more of both.
    """
    result = [statement for statement in said if statement.block == call.result_block]
    if call.result is None or not _has_failed(result, call):
        return []
    found: dict[str, tuple[int, Statement]] = {}
    for statement in result:
        if (rank := _rank(statement.text)) is not None:
            found.setdefault(statement.text.strip(), (rank, statement))
    of_rank = [[statement for rank, statement in found.values() if rank == wanted] for wanted in range(len(_RANKS))]
    ranked = [*of_rank[0][:1], *of_rank[1][:1], *of_rank[0][1:], *of_rank[1][1:], *chain(*of_rank[2:])]
    filled = [statement for statement in result if statement.text.strip()]
    return ranked[:REPORT_LINES] or filled[:1] + filled[-1:]


def _refused_change(said: Iterable[Statement], call: Call) -> list[Statement]:
    """The first new line of an edit that the user refused: what was tried, of which the file's name says nothing."""
    own = [statement for statement in said if statement.block == call.block]
    texts = [statement.text.strip() for statement in own]
    new = next((at for at, text in enumerate(texts) if _NEW_TEXT.fullmatch(text)), len(own))
    return [one for one in own[new + 1 :] if len(one.text) > 3 and one.text.strip() not in texts[:new]][:1]


def _rank(text: str) -> int | None:
    """How much a line says of a failure, 0 the most; None if it says nothing of one."""
    if _NO_FAILURE.search(text):
        return None
    for rank, patterns in enumerate(_RANKS):
        if any(pattern.search(text) for pattern in patterns):
            return rank
    return None


_RANKS = (
    (_TRACE_END, _RAISED, _LOCATED, _TOOL_SAYS, _EXPECTED, _REJECTED),
    (_NAMED_TEST,),
    (_WANTED, _REPORT),
    (_EXIT,),
)


def _telling(text: str) -> bool:
    return bool((_REPORT.search(text) or _REJECTED.search(text)) and not _NO_FAILURE.search(text))


def _has_failed(result: Sequence[Statement], call: Call) -> bool:
    if call.is_error:
        return True
    head = "\n".join(line.text for line in result[:6])
    if _EXIT.search(head) or _REJECTED.search(head) or _TOOL_ERROR.match(head):
        return True
    if call.kind in ("read", "search", "ask"):
        return any(_SHELL_ERROR.match(line.text) for line in result) or (
            len(result) <= SHORT_RESULT_LINES and any(_telling(line.text) for line in result)
        )
    tail = "\n".join(line.text for line in result[-4:])
    return bool(_EXIT.search(tail)) or any(_signals(line.text) for line in result)


def _signals(text: str) -> bool:
    """True for a line that begins as reports of failure do; the same words in the middle of data say nothing."""
    begins = any(p.match(text) for p in (_TRACE_END, _NAMED_TEST, _DIAGNOSED, _TOOL_SAYS, _REPORT))
    return begins and not _NO_FAILURE.search(text)
