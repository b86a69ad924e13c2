"""Which turns a later turn overtook: a file read or written whole again, the same call made again with success.

A file that was edited in part since is not overtaken: it still says what the rest of the file holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from planner.evidence.calls import Call
from planner.evidence.outcomes import Status

__all__ = ["CallStatus", "Overtaken", "overtaken_turns"]

CallStatus = tuple[Call, Status]

_PARTIAL_KEYS = frozenset({"offset", "limit", "view_range", "start_line", "end_line", "lines", "pages"})
"""A read with one of these keys is of a part of the file."""
_WHOLE_KEYS = frozenset({"content", "file_text"})
"""A write with one of these keys leaves nothing of what the file held."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """What later turns did to what a turn read or wrote; ids of turns, empty where none did."""

    superseded_by: str = ""
    """The last turn that read or wrote all of it again: nothing here is news."""
    edited_later_at: str = ""
    """The last turn that changed a part of it."""


@dataclass
class _Later:
    """The calls behind the turn that is looked at, by what they were about: ids of the last turns."""

    same: dict[bytes, str] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)
    edits: dict[str, str] = field(default_factory=dict)

    def add(self, turn_id: str, call: Call) -> None:
        """Takes in a call that succeeded."""
        self.same.setdefault(call.identity, turn_id)
        if call.path and call.kind in ("read", "write") and not _is_partial(call):
            self.whole.setdefault(call.path, turn_id)
        elif call.path and call.kind == "write":
            self.edits.setdefault(call.path, turn_id)


def overtaken_turns(calls: Mapping[str, Sequence[CallStatus]]) -> dict[str, Overtaken]:
    """What later turns overtook, by turn id in order; turns that none did are left out."""
    later = _Later()
    overtaken: dict[str, Overtaken] = {}
    for turn_id in reversed(list(calls)):
        by = [_overtaker(call, later) for call, _ in calls[turn_id]]
        edits = [later.edits.get(call.path, "") for call, _ in calls[turn_id] if call.path]
        superseded = by[-1] if by and all(by) else ""
        edited = next(filter(None, reversed(edits)), "")
        if superseded or edited:
            overtaken[turn_id] = Overtaken(superseded, edited)
        for call, status in calls[turn_id]:
            if status not in ("failed", "unanswered"):
                later.add(turn_id, call)
    return dict(reversed(overtaken.items()))


def _overtaker(call: Call, later: _Later) -> str:
    whole = later.whole.get(call.path, "") if call.kind == "read" and call.path and not _is_partial(call) else ""
    return later.same.get(call.identity, "") or whole


def _is_partial(call: Call) -> bool:
    """True for a read of some lines, and for a write that changes some."""
    if call.kind == "write":
        return not _WHOLE_KEYS & call.input.keys()
    return bool(_PARTIAL_KEYS & call.input.keys())
