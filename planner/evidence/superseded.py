"""Which turns a later turn made outdated: a file read or written again, the same call made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.evidence.calls import Call
from planner.reading.messages import to_json

__all__ = ["outdated_turns"]


def outdated_turns(calls: Mapping[str, Sequence[Call]]) -> dict[str, str]:
    """For each turn all of whose calls were overtaken: the id of the last turn that did it.

    A read is overtaken by a later read or write of the same file, any call by the same call made again.
    """
    latest: dict[str, str] = {}
    outdated: dict[str, str] = {}
    for turn_id in reversed(list(calls)):
        overtakers = [_overtaker(call, latest) for call in calls[turn_id]]
        if overtakers and all(overtakers):
            outdated[turn_id] = overtakers[-1]
        for call in calls[turn_id]:
            for key in _keys(call):
                latest.setdefault(key, turn_id)
    return outdated


def _keys(call: Call) -> list[str]:
    same = f"{call.name} {to_json(call.input)}"
    return [same, f"file {call.path}"] if call.path and call.kind in ("read", "write") else [same]


def _overtaker(call: Call, latest: Mapping[str, str]) -> str:
    same = latest.get(f"{call.name} {to_json(call.input)}", "")
    if same or call.kind != "read" or not call.path or _is_partial(call):
        return same
    return latest.get(f"file {call.path}", "")


def _is_partial(call: Call) -> bool:
    """A read of some lines only is not overtaken by a read of others."""
    return any(key in call.input for key in ("offset", "limit", "view_range", "start_line", "end_line"))
