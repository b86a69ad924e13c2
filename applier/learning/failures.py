"""Errors of checks, with the command that made the same check pass.

Says only what the record shows: the line that failed, what was run between, the turn that passed. Where a file was
changed, too, nobody knows what mended it; and what one conversation met, the next may never meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from applier.learning.kinds import Lesson, error_subject, folded
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.calls import Call
from planner.evidence.changes import changed_paths
from planner.evidence.state import check_kinds, recoveries, shortened
from planner.reading.lines import Statement

__all__ = ["failures", "is_stated", "passes_again"]

MOST_REMEDIES = 3
"""Of more that was run between a failure and the success nobody knows what mended it."""
COMMAND_CHARACTERS = 80
_SHOWING = re.compile(r"\s*(?:2>&1)?\s*\|\s*(?:tail|head)\b[^|;&]*$|\s*2>&1\s*$")

_PROVIDES = frozenset(("install", "add", "sync", "setup", "trust", "bootstrap", "link", "restore", "ci"))
"""Words of commands that provide what was missing: ``bun install``, ``npm ci``."""
_DOUBT = re.compile(
    r"\b(?:seems?|probably|possibly|perhaps|maybe|might|likely|looks like|if needed|wonder|I think)\b|\?", re.I
)


def failures(evidence: Evidence) -> Iterator[Lesson]:
    """The lines by which checks failed, each with what made the same check pass, if that shows."""
    passed = {failed: line.turn_ids[-1] for line in recoveries(evidence) for failed in line.turn_ids[:-1]}
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status != "failed" or outcome.refused or call.kind != "run" or not check_kinds(call):
            continue
        again = passed.get(turn.turn.id) or _passed_later(evidence, turn, call)
        remedy = _remedy(evidence, turn, again) if again else ""
        behind = f"; passed after {remedy} at {again}" if remedy else ""
        for line, subject in _own_lines(turn, call):
            words = folded(line.text)
            text = f"`{words.replace('`', '')}` of {_shown(evidence, call)}{behind}"
            yield Lesson("error", text, words, turn.turn.id, subject, again if remedy else "", lasting=False)


def passes_again(failed: TurnEvidence, later: TurnEvidence) -> bool:
    """True if a check that fails in `failed` passes in `later`, or of what is no check its program or tool does not
    fail."""
    ended = [call for call, outcome in later.ended_calls if outcome.status in ("passed", "done")]
    return later.turn.number > failed.turn.number and any(map(_is_same, product(failed.failed_calls, ended)))


def _is_same(pair: tuple[Call, Call]) -> bool:
    kinds, others = map(set, map(check_kinds, pair))
    programs, also = ({one.words[0] for one in call.commands} or {call.name} for call in pair)
    return bool(kinds & others or (not kinds and programs & also))


def is_stated(sentence: str) -> bool:
    """False if it doubts, or asks."""
    return not _DOUBT.search(sentence)


def _shown(evidence: Evidence, call: Call) -> str:
    """The command without what only says how much of its output is shown."""
    bare = _SHOWING.sub("", call.subject)
    return f"`{shortened(evidence.shown(bare), COMMAND_CHARACTERS).replace('`', '')}`"


def _own_lines(turn: TurnEvidence, call: Call) -> list[tuple[Statement, str]]:
    """The lines that decide how `call` failed and are not everybody's, each with what it is about."""
    lines = [one for one in turn.statements_of(turn.decisive_lines) if one.block == call.result_block]
    return [(one, subject) for one in lines if (subject := error_subject(one.text))]


def _passed_later(evidence: Evidence, failed: TurnEvidence, call: Call) -> str:
    """The turn in which all checks of `call` passed again, by whatever command; of tests nobody knows if these ran."""
    kinds = set(check_kinds(call))
    for turn, later, outcome in evidence.ended_calls():
        is_later = turn.turn.number > failed.turn.number and outcome.status == "passed" and "test" not in kinds
        if is_later and later.kind in ("run", "read") and kinds <= set(check_kinds(later)):
            return turn.turn.id
    return ""


def _remedy(evidence: Evidence, failed: TurnEvidence, passed: str) -> str:
    """What was run between the two turns and provides something, if it is little and no file was changed, too."""
    first, last = failed.turn.number, evidence.turns[passed].turn.number
    ran: dict[str, None] = {}
    for turn, call, outcome in evidence.ended_calls():
        if first <= turn.turn.number <= last and outcome.status not in ("failed", "unanswered"):
            if any(changed_paths(call)):
                return ""
            ran |= {f"`{' '.join(one.words)}`": None for one in call.commands if _PROVIDES.intersection(one.words[:3])}
    return ", ".join(ran) if len(ran) <= MOST_REMEDIES else ""
