"""Fields of work with their own tools and signs, such as programming. General code knows none of them.

A *reading* is what was read from a call or a result. Each method receives the reading of the general code, and returns
it, with changes for the tools that the field knows. A new field is one file: a subclass of `Field`, and a call of
`register_field` at the start of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.evidence.calls import Call, CallReading
from planner.evidence.outcomes import Outcome
from planner.evidence.turns import Evidence, RecordLine, TurnEvidence
from planner.reading.lines import Statement


class Field:
    """Field of work that knows no tools; a subclass overrides what it knows better."""

    def read_call(self, name: str, arguments: Mapping[str, Any], reading: CallReading) -> CallReading:
        """Return the kind and object of a call of the tool `name`; `reading`: what general code read."""
        return reading

    def read_result(self, call: Call, result: Sequence[Statement], outcome: Outcome) -> Outcome:
        """Return how `call` ended, and which lines show it; `outcome`: what general code read from `result`."""
        return outcome

    def record(self, evidence: Evidence) -> Iterable[RecordLine]:
        """Return statements on the state of the work, the newest first under each heading."""
        return ()

    def common_name(self, turns: Sequence[TurnEvidence]) -> str:
        """Return the beginning that most names of objects share, such as a folder. Views leave it out."""
        return ""


class Fields(Field):
    """Several fields as one: each receives the reading of the one before."""

    def __init__(self, fields: Iterable[Field]) -> None:
        """Join `fields`."""
        self._fields = tuple(fields)

    def read_call(self, name: str, arguments: Mapping[str, Any], reading: CallReading) -> CallReading:
        """Return the reading after all fields."""
        for one in self._fields:
            reading = one.read_call(name, arguments, reading)
        return reading

    def read_result(self, call: Call, result: Sequence[Statement], outcome: Outcome) -> Outcome:
        """Return the outcome after all fields."""
        for one in self._fields:
            outcome = one.read_result(call, result, outcome)
        return outcome

    def record(self, evidence: Evidence) -> Iterable[RecordLine]:
        """Return the lines of all fields."""
        return [line for one in self._fields for line in one.record(evidence)]

    def common_name(self, turns: Sequence[TurnEvidence]) -> str:
        """Return the common name of the first field that has one."""
        return next(filter(None, (one.common_name(turns) for one in self._fields)), "")


_REGISTERED: list[Field] = []


def register_field(field: Field) -> None:
    """Let `field` read all histories of this process, in addition to programming."""
    _REGISTERED.append(field)


def registered_fields() -> tuple[Field, ...]:
    """Return the fields that were registered, in order."""
    return tuple(_REGISTERED)
