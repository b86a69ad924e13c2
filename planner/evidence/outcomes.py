"""Outcomes of calls, by general signs: the error flag, an exit code, a status in JSON, a refusal by the user.

Decides how a call ended and which lines show why it failed. A field of work may read more from results of its tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any, Literal

from planner.evidence.calls import Call
from planner.evidence.hosts import is_running, is_wrapping
from planner.reading.lines import Statement, numbers_of
from planner.reading.messages import parsed_result
from planner.reading.patterns import lazy_pattern

Status = Literal["passed", "failed", "done", "running", "unanswered"]

OUTCOME_LINES = 3
"""Largest number of lines that show how one call ended. A result with no more lines is shown whole."""
REPORT_LINES = 4
"""Largest number of reasons of one failure; the first is decisive."""
HEAD_LINES, TAIL_LINES = 6, 4
"""Number of lines at the start and at the end of a result that are searched for an exit code."""

_EXIT_CODE = lazy_pattern(
    r"^\s*+(?:[\[<]?(?:Process|Error:|(?:The )?Command|shellId:) .{0,160}?)?\[?exit(?:ed)?(?: with)?(?: code| status)"
    r":? {0,8}(-?\d{1,10})\b|\"exit_?code\": ?(-?\d{1,10})\b|^(?:<returncode>|exitcode: )(-?\d{1,10})\b",
    re.I,
)
"""Exit code as hosts print it: ``Exit code 2``, ``Process exited with code 0``, ``"exit_code": 1``,
``<returncode>1</returncode>``; not ``# exit code 2 means usage``."""
_REJECTED = lazy_pattern(
    r"\s*+(?:The user d(?:oes|id)(?:n'?t| not) want|.{0,60}\b(?:rejected|denied|aborted) by (?:the )?user"
    r"|\[Request interrupted by user|(?:The )?(?:tool use was|user(?: has)?) (?:rejected|denied|declined|aborted))",
    re.I,
)
"""Report of a host that the user refused a call: ``The tool use was rejected``; not ``when the user denied consent``.
"""
_ERROR = lazy_pattern(
    r"\W{0,8}(?:\w{0,40}error|failed|failure|traceback)\b(?!\W{0,4}\w{0,20}\W{0,4}(?:null|none|0)\b)", re.I
)
"""Beginning of an error of a tool: ``Error: no such flight``, ``<tool_use_error>``, ``InputValidationError:``."""
_FAILURE_WORDS = lazy_pattern(
    r"error|fail|exception|not (?:found|defined|exist|enough|used|permitted|a)\b|no such|denied|refus|undefined|cannot"
    r"|can't|unable|could ?n[o'’]t|unknown(?<!-unknown)(?!-)|panic|invalid|expected|conflict|timed? ?out|want|mismatch"
    r"|should|assert|incorrect|missing|issues? found"
)
"""English words of failure in lower case. Each begins with a letter, as a search for letters takes a sixth of the time.
Most uses only select lines of a call that is known to have failed."""
_STATUS_KEYS = frozenset({"status", "statuscode", "httpstatus", "code"})
_ERROR_KEYS = frozenset({"error", "errors", "errormessage"})
_SUCCESS_KEYS = frozenset({"success", "ok", "succeeded"})

_HEADING = lazy_pattern(r"\s{0,3}(?:\d+\.|#+|\*\*)\s*\S")
"""Heading in an earlier summary: ``4. Errors``, ``## Errors``, ``**Errors**``."""
_ERRORS_HEADING = lazy_pattern(r"[\s\d.#*]*(?:errors?|failures|failed|problems|mistakes)\b", re.I)
"""Heading of a list of errors in an earlier summary: ``4. Errors and fixes:``, ``## Failed approaches``; not
``5. Problem Solving:``."""
_NO_ERROR = lazy_pattern(r"\W*(?:no\b|(?:user )?feedback\b|(?:\w[\w-]* ){0,3}fixes\b)", re.I)
"""Entry of such a list that is no error: ``- No errors``, ``- **User feedback**: …``, ``- **Previous session
fixes:**``."""
_MENDED = lazy_pattern(r"\W*(?:fix(?:ed)?|solution|solved|resolved?|resolution)\b", re.I)
"""Beginning of the line of a remedy: ``- Fixed by a lock``, ``Solution: …``."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one call. Lines are given by their numbers in the turn."""

    status: Status
    """Status of the call. ``done``: no sign of success or failure; ``running``: the call had not ended when its output
    was read; ``unanswered``: it has no result."""
    lines: tuple[int, ...]
    """Lines that show how the call ended, ascending; empty if none does."""
    refused: bool = False
    """True if the user did not allow the call."""
    exit_code: int | None = None
    """Exit code that the host prints at the start or end of the result; None without one."""
    is_doubtful: bool = False
    """True if the status is ``failed`` only because of words in the result, or of an exit code without a reason. The
    call may have succeeded, so views show the line without a mark of failure."""
    reasons: tuple[int, ...] = ()
    """Lines that show why the call failed, the most informative first."""
    decisive: tuple[int, ...] = ()
    """Those of the `reasons` that every view keeps."""
    idle: tuple[int, ...] = ()
    """Lines of the result that add nothing to the outcome."""

    @property
    def has_failed(self) -> bool:
        """True if the call failed without doubt."""
        return self.status == "failed" and not self.is_doubtful

    @property
    def has_passed(self) -> bool:
        """True if the output reports success, or if the host reports the exit code 0."""
        return self.status == "passed" or (self.status == "done" and self.exit_code == 0)


def read_outcome(call: Call, result: Sequence[Statement]) -> Outcome:
    """Return how `call` ended by general signs, without knowledge of its tool; `result`: statements of its result."""
    if call.result is None:
        return Outcome("unanswered", ())
    filled = [one for one in result if one.text.strip()]
    code = exit_code(result)
    if any(is_refusal(one.text) for one in filled[:2] if not one.lines[0].continues):
        users_words = [one for one in filled if one.lines[0].source == "user"][:REPORT_LINES]
        words = users_words or [one for one in filled if is_refusal(one.text)][:1]
        return failed_outcome(words, words[:1], code, refused=is_refusal(result[0].text))
    still_runs = any(is_running(one.text) for one in result[:HEAD_LINES])
    begins_as_error = bool(filled) and _ERROR.match(filled[0].text) is not None
    if call.is_error or code or reports_error(call) or (begins_as_error and call.kind != "ask" and not still_runs):
        reasons = _reasons(filled)
        return failed_outcome(reasons, reasons[:1], code)
    return Outcome("running" if still_runs else "done", numbers_of(_informative_lines(call, filled)), exit_code=code)


def _reasons(filled: Sequence[Statement]) -> Sequence[Statement]:
    """Return the first statements with a word of failure in the result of a failed call; else the first ones."""
    with_words = (one for one in filled if mentions_failure(one.text))
    if reasons := [*islice(with_words, REPORT_LINES)]:
        return reasons
    printed = [one for one in printed_lines(filled) if not one.lines[0].continues]
    return printed[:REPORT_LINES] or filled[:1]


def failed_outcome(
    reasons: Sequence[Statement],
    decisive: Sequence[Statement],
    code: int | None,
    *,
    counts: Sequence[Statement] = (),
    refused: bool = False,
    is_doubtful: bool = False,
) -> Outcome:
    """Return the outcome of a failed call.

    `reasons`: statements that show why it failed, the most informative first; `decisive`: those that every view keeps.
    `code`: its exit code. `counts`: statements with the counts of a run, shown with the first reasons.
    """
    order = tuple(dict.fromkeys(number for one in reasons for number in one.numbers))
    return Outcome(
        "failed",
        numbers_of([*reasons[:OUTCOME_LINES], *counts]),
        refused=refused,
        exit_code=code,
        is_doubtful=is_doubtful,
        reasons=order,
        decisive=numbers_of(decisive),
    )


def mentions_failure(text: str) -> bool:
    """Return True for a line with a word of failure."""
    return _FAILURE_WORDS.search(text.lower()) is not None


def is_refusal(text: str) -> bool:
    """Return True for a line in which a host reports that the user refused a call."""
    return bool(_REJECTED.match(text))


def exit_code(result: Sequence[Statement]) -> int | None:
    """Return the exit code that a host prints in the first or last lines of a result; None without one."""
    for statement in (*result[:HEAD_LINES], *result[HEAD_LINES:][-TAIL_LINES:]):
        if match := _EXIT_CODE.search(statement.text):
            return int(match[1] or match[2] or match[3])
    return None


def printed_lines(result: Sequence[Statement]) -> list[Statement]:
    """Return the statements of a result that are not empty and not printed around it by a host."""
    filled = (one for one in result if one.text.strip())
    return [one for one in filled if not (is_wrapping(one.text) or _EXIT_CODE.match(one.text))]


def _informative_lines(call: Call, filled: Sequence[Statement]) -> Sequence[Statement]:
    """Return the statements that show how a call ended without failure; `filled`: those of its result with text. A
    short result is returned whole. Of a longer result of a change, search or question the first statement with a URL is
    returned, or else the first one. Of other results none is returned."""
    printed = [one for one in filled if not is_wrapping(one.text)] or filled
    if len(printed) <= OUTCOME_LINES:
        return printed
    with_address = [one for one in printed if "://" in one.text]
    return (with_address or printed)[:1] if call.kind in ("write", "search", "ask") else ()


def reports_error(call: Call) -> bool:
    """Return True if the result is a JSON object with a field that reports an error.

    Such a field is an HTTP status of 400 to 599, an ``error`` that is not empty, or a ``success`` that is false. The
    content of a file and the output of a command may contain such fields without an error.
    """
    if call.kind in ("read", "run", "search") and (call.path or call.command):
        return False
    result = parsed_result(call.text)
    return isinstance(result, dict) and _has_error_field(result)


def _has_error_field(result: Mapping[str, Any], depth: int = 0) -> bool:
    """Return True if a field of `result` reports an error, or if its only field is an object with such a field.
    `depth`: 1 for this inner object."""
    for key, value in result.items():
        name = key.casefold().replace("_", "").replace("-", "")
        if name in _STATUS_KEYS and isinstance(value, int) and 400 <= value <= 599:
            return True
        if name in _ERROR_KEYS and value and not isinstance(value, int | float):
            return True
        if (name in _SUCCESS_KEYS and value is False) or (name == "iserror" and value is True):
            return True
        if depth == 0 and len(result) == 1 and isinstance(value, dict) and _has_error_field(value, 1):
            return True  # some services wrap the error in an object with one field: ``{"fehler": {"status": 409, …}}``
    return False


def listed_failures(statements: Sequence[Statement]) -> Iterator[list[Statement]]:
    """Yield the statements of each error that an earlier summary lists: the entry, and the line of its remedy if any.

    Only entries at the outermost indentation count, as lines that are indented further are causes and remedies.
    """
    in_list = False
    outermost: int | None = None  # indentation of the list's entries
    summary = [one for one in statements if one.source == "planner"]
    for index, statement in enumerate(summary):
        bare = statement.text.lstrip()
        if _HEADING.match(statement.text):
            in_list, outermost = bool(_ERRORS_HEADING.match(statement.text)), None
        elif in_list and bare.startswith(("-", "*")):
            outermost = _indent(statement) if outermost is None else outermost
            if _indent(statement) <= outermost and not (_NO_ERROR.match(bare) or _MENDED.match(bare)):
                yield [statement, *_rest_of_entry(_indent(statement), summary[index + 1 :])]


def _rest_of_entry(indent: int, after: Sequence[Statement]) -> Iterator[Statement]:
    """Yield the continuation of an entry of a list, and the line of its remedy or else the first line below the entry.
    `indent`: indentation of the entry; lines below it are indented further. `after`: statements after its first one."""
    continued = list(takewhile(lambda one: one.lines[0].continues, after))
    yield from continued
    after = after[len(continued) :]
    deeper = list(takewhile(lambda one: _indent(one) > indent, after))
    remedies = [one for one in deeper or after[:1] if _MENDED.match(one.text)]
    yield from (remedies or deeper)[:1]


def _indent(statement: Statement) -> int:
    return len(statement.text.rstrip()) - len(statement.text.strip())
