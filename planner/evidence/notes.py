"""The notes that the agent wrote down by our tool ``note`` and did not remove: what it wants to survive.

The record of its calls is their only store: they are kept, searched and restored with it, in every client alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, get_args

from planner.evidence.calls import Call
from planner.evidence.turns import Evidence
from planner.reading.patterns import lazy_pattern

__all__ = ["MOST_CHARACTERS", "Note", "NoteKind", "note_id", "written_notes"]

NoteKind = Literal["decision", "fact", "open"]
MOST_NOTES, MOST_CHARACTERS = 40, 600
"""The newest notes that a view shows, and the beginning of each."""
_OWN_TOOL = lazy_pattern(r"(?:mcp__compactor__|compactor[-_])?note")
"""Our tool as clients call it; not ``mcp__tracker__note``."""


@dataclass(frozen=True, slots=True)
class Note:
    """One note, with the turn whose call wrote it."""

    kind: NoteKind
    text: str
    turn_id: str


def note_id(kind: str, text: str) -> str:
    """Return the id by which the agent removes the note; the same note has the same id."""
    return f"n{sha256(f'{kind} {_folded(text)}'.encode('utf-8', 'replace')).hexdigest()[:6]}"


def written_notes(evidence: Evidence) -> list[Note]:
    """Return the notes that were not removed, oldest first, each once; at most `MOST_NOTES`, the newest."""
    notes: dict[str, Note] = {}
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status == "failed" or not _OWN_TOOL.fullmatch(call.name):
            continue
        notes.pop(_argument(call, "remove"), None)
        kind, text = _argument(call, "kind"), _folded(_argument(call, "text"))
        if text:
            known: NoteKind = next((one for one in get_args(NoteKind) if one == kind), "fact")
            notes[note_id(kind, text)] = Note(known, text[:MOST_CHARACTERS], turn.turn.id)
    return list(notes.values())[-MOST_NOTES:]


def _argument(call: Call, name: str) -> str:
    value = call.input.get(name)
    return value if isinstance(value, str) else ""


def _folded(text: str) -> str:
    return " ".join(text.split())
