"""Statements that rules make of transcripts, each beside the record's own lines: for a reader who judges them.

Lists checks, later successes, marks of failure and facts; judges nothing itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from applier.adapters.transcripts import read_transcript
from planner.analysis import analyze
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.turns import RecordLine, call_head
from planner.programming.command_failures import check_outcomes, recoveries
from planner.programming.repository import branches, changed_files, commits, conflicts

LINES_AROUND = 4
"""Of each call of a turn that is cited so many lines of its result, at either end."""
LINE_CHARACTERS = 160

_RECORDS: dict[str, Callable[[Evidence], list[RecordLine]]] = {
    "check": check_outcomes,
    "later succeeded": recoveries,
    "change": changed_files,
    "conflict": conflicts,
    "branch": branches,
    "commit": commits,
}


@dataclass(frozen=True)
class RuleStatement:
    """What rules say of one transcript, and what its record says there."""

    transcript: str
    kind: str
    turn_ids: tuple[str, ...]
    text: str
    record: tuple[str, ...]

    def __str__(self) -> str:
        """The statement with its place, the record's lines below it."""
        head = f"{self.transcript} {','.join(self.turn_ids)} [{self.kind}] {self.text}"
        return "\n".join([head, *(f"    {line[:LINE_CHARACTERS]}" for line in self.record)])


def rule_statements(path: Path) -> list[RuleStatement]:
    """The statements that rules make of the transcript at `path`, in the order of their kinds."""
    evidence = analyze(read_transcript(path).messages).evidence
    stated = ((kind, line) for kind, read in _RECORDS.items() for line in read(evidence))
    said = [(kind, line.text, line.turn_ids) for kind, line in stated]
    for turn in evidence.turns.values():
        kind = "earlier summary" if any(turn.lines.of_sources("planner")) else "failed"
        said += [(kind, text, (turn.turn.id,)) for text in _decisive(evidence, turn)]
    return [RuleStatement(path.stem, kind, ids, text, _record(evidence, ids)) for kind, text, ids in said]


def sampled(statements: Sequence[RuleStatement], count: int, seed: int) -> list[RuleStatement]:
    """At most `count` of `statements`, the same for one seed, in their order."""
    chosen = random.Random(seed).sample(range(len(statements)), min(count, len(statements)))
    return [statements[at] for at in sorted(chosen)]


def _decisive(evidence: Evidence, turn: TurnEvidence) -> Iterator[str]:
    """What decided each failure, as a view says it: behind the call that failed, of what the user refused that he did,
    and with the line of an earlier summary the one below that belongs to it."""
    calls = {call.result_block: call for call in turn.calls}
    told: list[str] = []
    listed = set(turn.failure_lines)
    for one in turn.statements_of(turn.decisive_lines):
        text, call = one.text.strip(), calls.get(one.block)
        if one.source == "planner" and told and listed.isdisjoint(one.numbers):
            told[-1] += f" {text}"
        elif one.source == "planner":
            told.append(text)
        else:
            head = f"{call_head(call, evidence.root, failed=True)} → " if call else ""
            refused = "refused by the user, not done: " * bool(call and turn.is_refused(call))
            mark = "" if call and turn.outcomes[call.number].is_doubtful else "✗ "
            told.append(f"{mark}{head}{refused}{text}")
    yield from told


def _record(evidence: Evidence, turn_ids: Sequence[str]) -> tuple[str, ...]:
    """The calls of the turns with the beginning and end of their results; of a turn without calls its words."""
    return tuple(line for turn_id in turn_ids[-3:] for line in _record_of(evidence.turns[turn_id]))


def _record_of(turn: TurnEvidence) -> Iterator[str]:
    for _, call, outcome in turn.ended_calls:
        flag = " (error flag)" if call.is_error else ""
        yield f"{turn.turn.id} {call.name} {' '.join(call.subject.split())}: {outcome.status}{flag}"
        yield from (f"  | {line}" for line in _ends([line for line in call.text.split("\n") if line.strip()]))
    for line in _ends([line.text for line in turn.lines.of_part("assistant") if line.text.strip()]):
        yield f"{turn.turn.id} says: {line}"


def _ends(lines: list[str]) -> list[str]:
    short = len(lines) <= 2 * LINES_AROUND
    return lines if short else [*lines[:LINES_AROUND], "…", *lines[-LINES_AROUND:]]
