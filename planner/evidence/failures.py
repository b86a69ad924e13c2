"""Which lines show that an approach failed: flags, exit codes, error reports, rejections, the agent's words.

Words of failure in what a call merely read (source code, a grep for "error") are no failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from planner.evidence.calls import Call
from planner.lines import Line

__all__ = ["failure_lines"]

REPORT_LINES = 3
"""At most this many lines of one failed result are obligations: the decisive ones."""

_EXIT = re.compile(
    r"(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code|exit_code)[\"']?\s*[:=]?\s*(?!0\b)-?[1-9]\d*\b",
    re.I,
)
_REPORT = re.compile(
    r"^\s*(?:[\w.]*(?:Error|Exception|Failure|Panic)\b(?:\s*\[[^\]]*\])?:|"
    r"(?:fatal|error|panic|fail(?:ed|ure)?|abort(?:ed)?)(?:\[\w+\])?:|"
    r"--- FAIL|FAIL\b|FAILED\b|✗|✖|✘|×|❌|not ok\b|npm ERR!|E {3,}\S|"
    r"\d+ (?:failed|failing|errors?)\b|Tests?:.*\d+ failed|=+ .*\d+ failed)|"
    r":\d+:\d+: (?:fatal )?error|\berror TS\d+|\berror\[E\d+\]|"
    r"command not found|No such file or directory|Permission denied|ModuleNotFoundError|cannot find|"
    r"Segmentation fault|timed out|Traceback \(most recent|syntax error|merge conflict|CONFLICT \(|"
    r"is not recognized|does not exist|unknown (?:option|flag|command)|Connection refused|"
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
_AGENT_WORDS = re.compile(
    r"(?:(?:did|does|is|wo|was|are|could) ?n[o']t|can ?not|can't) (?:seem to )?"
    r"(?:work|help|fix|solve|match|exist|compile|pass|build|apply|found|find|resolve|run|be )|"
    r"\b(?:fail(?:s|ed|ing|ure)|broken?|broke|revert(?:ed|ing)?|rolled back|undo|mistake|wrong|incorrect(?:ly)?|"
    r"unsuccessful|dead end|blocked|timed out|regress(?:ed|ion)|crash(?:es|ed|ing)?|hangs?|"
    r"still (?:fail|broken|the same|not|see|get)|different approach|another (?:approach|way)|try again|"
    r"unfortunately|oops|my (?:bad|error)|root cause|the (?:issue|problem|bug) (?:is|was)|gave up|give up|abandon)",
    re.I,
)
_NO_FAILURE = re.compile(
    r"\b(?:0 (?:failed|failures|errors?)|no (?:errors?|failures?|issues)|without errors?|all (?:tests )?pass)",
    re.I,
)


def failure_lines(lines: Sequence[Line], calls: Iterable[Call]) -> tuple[int, ...]:
    """Numbers of the lines of one turn that show its failure, with the call that failed; empty if none did."""
    found: set[int] = set()
    for call in calls:
        found |= _failed_call(lines, call)
    found |= {line.number for line in lines if _agent_admits(line)}
    return tuple(sorted(found))


def _agent_admits(line: Line) -> bool:
    return line.part == "assistant" and bool(_AGENT_WORDS.search(line.text)) and not _NO_FAILURE.search(line.text)


def _failed_call(lines: Sequence[Line], call: Call) -> set[int]:
    if call.result is None:
        return set()
    result = [line for line in lines if line.block == call.result_block]
    return {line.number for line in _decisive(result, call)}


def _decisive(result: Sequence[Line], call: Call) -> Iterator[Line]:
    """The lines of a failed result that say how it failed; nothing if it did not fail."""
    if not _has_failed(result, call):
        return
    telling = [line for line in result if _telling(line.text)]
    ends = [line for line in telling if _TRACE_END.match(line.text)]
    chosen = ends[-1:] + [line for line in telling if line not in ends[-1:]]
    if not chosen:
        filled = [line for line in result if line.text.strip()]
        chosen = filled[:1] + filled[-1:]
    yield from sorted(set(chosen[:REPORT_LINES]), key=lambda line: line.number)


def _telling(text: str) -> bool:
    return bool((_REPORT.search(text) or _REJECTED.search(text)) and not _NO_FAILURE.search(text))


def _has_failed(result: Sequence[Line], call: Call) -> bool:
    if call.is_error:
        return True
    head = "\n".join(line.text for line in result[:6])
    if _EXIT.search(head) or _REJECTED.search(head) or _TOOL_ERROR.match(head):
        return True
    if call.kind in ("read", "search", "ask"):
        return len(result) <= 3 and any(_telling(line.text) for line in result)
    tail = "\n".join(line.text for line in result[-4:])
    return bool(_EXIT.search(tail)) or any(_telling(line.text) for line in result)
