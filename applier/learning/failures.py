"""Errors of commands, with what the agent found to be the cause and what made the same check pass.

Says only what the record shows: the line that failed, the agent's words, the changes between, the turn that passed. A
failure that was wanted, and a slip of the pen, teach nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import islice, product

from applier.learning.kinds import Lesson, error_subject, folded, sentence_key, sentences
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.calls import Call
from planner.evidence.changes import changed_paths
from planner.evidence.state import check_kinds, recoveries, shortened
from planner.reading.lines import Statement, statements

__all__ = ["failures", "is_stated", "passes_again"]

MOST_REMEDIES = 3
"""Of more that was done between a failure and the success nobody knows what mended it."""
CAUSE_TURNS = 2
"""So soon behind a failure the agent says what caused it."""
CAUSE_WORDS, CAUSE_CHARACTERS, COMMAND_CHARACTERS = 6, 280, 80
_SHOWING = re.compile(r"\s*(?:2>&1)?\s*\|\s*(?:tail|head)\b[^|;&]*$|\s*2>&1\s*$")

_PROVIDES = frozenset(("install", "add", "sync", "setup", "trust", "bootstrap", "link", "restore", "ci"))
"""Words of commands that provide what was missing: ``bun install``, ``npm ci``."""
_CAUSE = re.compile(
    r"\b(?:because|since|requires?|must|doesn['’]t (?:have|exist)|already exists|isn['’]t set|default timeout)\b"
    r"|\b(?:issue|problem|cause|reason) is\b|\bneeds? to be\b|\bnot (?:configured|installed|set|available)\b"
    r"|\bthis is a\b.*\bcan(?:['’]t|not)\b|\bcan(?:['’]t|not) \w+.* (?:until|unless|without)\b",
    re.I,
)
"""The agent says why it failed: ``the ID needs to be 12 lowercase hex characters``; not ``let me fix that``."""
_DOUBT = re.compile(
    r"\b(?:seems?|probably|possibly|perhaps|maybe|might|likely|looks like|if needed|wonder|I think)\b|\?", re.I
)
_RULE = re.compile(
    r"\b(?:must|requires?|needs? to be|only|until|unless|concurrent\w*|parallel|shared?|at the same time)\b"
    r"|\bcan(?:['’]t|not)\b|\bnot (?:configured|installed|set|available)\b|\bdoes(?:n['’]t| not) have\b",
    re.I,
)
"""What will make another test fail, too: ``the ID needs to be 12 characters``; not ``it failed because of the sum``,
which the change of the code has mended for everybody."""
_WANTED = re.compile(r"\bas expected\b|\bfails? first\b|\bdemonstrat|\breproduc|\bexpected (?:to fail|failure)", re.I)
"""A test that was to fail until the work is done."""
_SLIP = re.compile(
    r"\b(?:declared and not used|imported and not used|undefined:|no new variables|unused|is not defined|syntax ?error"
    r"|unexpected token|cannot find name|typecheck\)|too many arguments|not enough arguments|cannot use)",
    re.I,
)
"""What a compiler says of a slip, which is mended as soon as it is read."""


def failures(evidence: Evidence) -> Iterator[Lesson]:
    """What failed, with what made the same check pass; what was no check only with its cause; each cause once."""
    passed = {failed: line.turn_ids[-1] for line in recoveries(evidence) for failed in line.turn_ids[:-1]}
    told: set[str] = set()
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status != "failed" or outcome.refused or call.kind != "run":
            continue
        mended = passed.get(turn.turn.id) or _passed_later(evidence, turn, call)
        why, where = (_cause(evidence, turn, check_kinds(call)) if mended else None) or ("", "")
        remedy = _remedy(evidence, turn, call, mended)
        if not (check_kinds(call) or remedy):
            continue
        behind = f": “{why}”" * bool(why) + remedy
        for line, subject in _own_lines(turn, call)[: 1 if why else None] if why or check_kinds(call) else ():
            words = folded(line.text)
            text = f"`{words.replace('`', '')}` of {_shown(evidence, call)}{behind}"
            yield Lesson("error", text, words, turn.turn.id, subject, mended, lasting=bool(why), also=where)
            told.add(why)
        if why and why not in told and not any(_own_lines(turn, other) for other in turn.failed_calls):
            told.add(why)
            text = f"{', '.join(_shown(evidence, one) for one in turn.failed_calls)} failed{behind}"
            yield Lesson("error", text, why, where, sentence_key(why), mended, also=turn.turn.id)


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
    """The turn in which all checks of `call` passed again, by whatever command; of what is no check, the last turn soon
    behind in which its program did not fail.
    """
    kinds, programs = set(check_kinds(call)), {one.words[0] for one in call.commands}
    soon = ""
    for turn, later, outcome in evidence.ended_calls():
        behind = turn.turn.number - failed.turn.number
        if behind <= 0 or later.kind not in ("run", "read"):
            continue
        if kinds and outcome.status == "passed" and kinds <= set(check_kinds(later)) and "test" not in kinds:
            return turn.turn.id
        ended = not kinds and behind <= CAUSE_TURNS and outcome.status in ("passed", "done")
        if ended and programs & {one.words[0] for one in later.commands}:
            soon = turn.turn.id
    return soon


def _cause(evidence: Evidence, failed: TurnEvidence, kinds: Collection[str]) -> tuple[str, str] | None:
    """What the agent says right behind the failure that caused it, and in which turn; None for what was wanted, for a
    slip, and where it only guesses; of a test for what no other test will meet."""
    if _SLIP.search(" ".join(one.text for one in failed.statements_of(failed.decisive_lines))):
        return None
    behind = (one for one in evidence.turns.values() if one.turn.number > failed.turn.number)
    for turn in islice(behind, CAUSE_TURNS):
        spoken = [folded(one.text) for one in statements(turn.lines.of_part("assistant")) if one.text.strip()]
        if any(_WANTED.search(text) for text in spoken):
            return None
        for sentence in (one for text in spoken for one in sentences(text)):
            is_read = len(sentence.split()) >= CAUSE_WORDS and len(sentence) <= CAUSE_CHARACTERS
            if not is_read or not _CAUSE.search(sentence) or not is_stated(sentence) or sentence.endswith(":"):
                continue
            if "test" not in kinds or _RULE.search(sentence):
                return sentence.rstrip(";"), turn.turn.id
    return None


def _remedy(evidence: Evidence, failed: TurnEvidence, failing: Call, passed: str) -> str:
    """What was run between the two turns, if it is little enough to be the remedy and no file was changed, too."""
    if not passed:
        return ""
    first, last = failed.turn.number, evidence.turns[passed].turn.number
    done: dict[str, None] = {}
    for turn, call, outcome in evidence.ended_calls():
        if first <= turn.turn.number <= last and outcome.status not in ("failed", "unanswered"):
            done |= dict.fromkeys(changed_paths(call))
            done |= {f"`{' '.join(one.words)}`": None for one in call.commands if _PROVIDES.intersection(one.words[:3])}
            if turn.turn.number > first and call.kind in ("run", "read") and not check_kinds(failing):
                done[_shown(evidence, call)] = None
    is_run = all(one.startswith("`") for one in done)
    how = f" after {', '.join(done)}" if is_run and 0 < len(done) <= MOST_REMEDIES else ""
    if check_kinds(failing):
        return f"; passed{how} at {passed}"
    return f"; then{how.removeprefix(' after')} at {passed}" if how else ""
