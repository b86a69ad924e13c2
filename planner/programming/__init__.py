"""Programming: shells, test runners, editors, git and files, behind the interface of `planner.evidence.field`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.evidence.calls import Call, CallReading
from planner.evidence.field import Field
from planner.evidence.outcomes import Outcome
from planner.evidence.turns import Evidence, RecordLine, TurnEvidence
from planner.programming.checks import check_outcomes, recoveries
from planner.programming.coding_tools import read_tool
from planner.programming.failures import read_run
from planner.programming.file_changes import changed_files, work_folder
from planner.programming.git import branches, commits, conflicts
from planner.reading.lines import Statement

__all__ = ["PROGRAMMING"]


class _Programming(Field):
    def read_call(self, name: str, arguments: Mapping[str, Any], reading: CallReading) -> CallReading:
        return read_tool(name, arguments, reading)

    def read_result(self, call: Call, result: Sequence[Statement], outcome: Outcome) -> Outcome:
        return read_run(call, result, outcome)

    def record(self, evidence: Evidence) -> Iterable[RecordLine]:
        yield from reversed(check_outcomes(evidence))
        yield from reversed(recoveries(evidence))
        yield from conflicts(evidence)
        yield from reversed(changed_files(evidence))
        yield from reversed(branches(evidence))
        yield from reversed(commits(evidence))

    def common_name(self, turns: Sequence[TurnEvidence]) -> str:
        return work_folder(turns)


PROGRAMMING = _Programming()
