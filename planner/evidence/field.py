"""Fields of work with their own tools and signs, such as programming. General code knows none of them.

Each method receives the reading by general code, and returns it, changed only for known tools. A new field is one file:
a subclass with the necessary methods, and a call of `register_field` at the start of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.evidence.calls import Call, CallReading
from planner.evidence.outcomes import Outcome, failed_outcome
from planner.evidence.turns import Evidence, RecordLine, TurnEvidence
from planner.reading.lines import Statement

__all__ = ["Field", "Fields", "RecordLine", "failed_outcome", "register_field", "registered_fields"]


class Field:
    """Field of work that knows no tools."""

    def read_call(self, name: str, arguments: Mapping[str, Any], reading: CallReading) -> CallReading:
        """Return the effect and object of a call of the tool `name`."""
        return reading

    def read_result(self, call: Call, result: Sequence[Statement], outcome: Outcome) -> Outcome:
        """Return how a call with this result ended, and which lines show it."""
        return outcome

    def record(self, evidence: Evidence) -> Iterable[RecordLine]:
        """Return the state of the work and its products, the newest first under each heading."""
        return ()

    def common_name(self, turns: Sequence[TurnEvidence]) -> str:
        """Return the beginning that most names of objects share (a folder), to be omitted in views."""
        return ""


class Fields(Field):
    """Several fields as one: each receives the result of the one before."""

    def __init__(self, fields: Iterable[Field]) -> None:
        """Join `fields`."""
        self._fields = tuple(fields)

    def read_call(self, name: str, arguments: Mapping[str, Any], reading: CallReading) -> CallReading:
        """Return the reading of all fields in turn."""
        for one in self._fields:
            reading = one.read_call(name, arguments, reading)
        return reading

    def read_result(self, call: Call, result: Sequence[Statement], outcome: Outcome) -> Outcome:
        """Return the reading of all fields in turn."""
        for one in self._fields:
            outcome = one.read_result(call, result, outcome)
        return outcome

    def record(self, evidence: Evidence) -> Iterable[RecordLine]:
        """Return the lines of all fields."""
        return [line for one in self._fields for line in one.record(evidence)]

    def common_name(self, turns: Sequence[TurnEvidence]) -> str:
        """Return the first result that is not empty."""
        return next(filter(None, (one.common_name(turns) for one in self._fields)), "")


_REGISTERED: list[Field] = []


def register_field(field: Field) -> None:
    """Let `field` read all histories of this process, in addition to programming."""
    _REGISTERED.append(field)


def registered_fields() -> tuple[Field, ...]:
    """Return the fields that were registered, in order."""
    return tuple(_REGISTERED)
