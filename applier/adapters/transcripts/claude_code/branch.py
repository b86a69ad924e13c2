"""Which lines of a session log are the conversation: the branch that the session is on.

Lines form a tree by ``parentUuid``: a rewound or edited message leaves a branch behind; the lines of parallel
calls and their results hang beside each other and belong together all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from applier.adapters.transcripts.assembly import line_ranges
from applier.adapters.transcripts.claude_code.lines import LogLine

__all__ = ["active_branch"]


def active_branch(lines: Sequence[LogLine], name: str) -> tuple[list[LogLine], list[str]]:
    """The lines of the branch that ends with the last words of the log, in order; and what was left out."""
    main = _distinct([line for line in lines if not line.of_a_subagent])
    aside = [line.number for line in lines if line.of_a_subagent and line.speaks]
    if not any(line.speaks for line in main):
        main, aside = _distinct(lines), []
    warnings = [f"{name}, {line_ranges(aside)}: conversations of subagents, not read"] if aside else []
    parents, lost = _parents(main)
    warnings += [f"{name}, line {number}: the line it follows is not in this log" for number in lost]
    chosen = _with_siblings(main, _path(main, parents))
    left = [line.number for line in main if line.speaks and line.number not in chosen]
    if left:
        warnings.append(f"{name}, {line_ranges(left)}: a branch that the session left, not read")
    return [line for line in main if line.number in chosen], warnings


def _distinct(lines: Sequence[LogLine]) -> list[LogLine]:
    """`lines` without those that repeat an earlier one, as a resumed session does."""
    seen: set[str] = set()
    kept = []
    for line in lines:
        if line.uuid is None or line.uuid not in seen:
            kept.append(line)
            seen.add(line.uuid or "")
    return kept


def _parents(lines: Sequence[LogLine]) -> tuple[dict[str, str | None], list[int]]:
    """The parent of each line by uuid, and the numbers of lines whose parent is missing.

    A missing parent, and the start of a compacted context that names none, is the line before.
    """
    known = {line.uuid for line in lines if line.uuid}
    parents: dict[str, str | None] = {}
    lost: list[int] = []
    before: str | None = None
    for line in lines:
        if line.uuid is None:
            continue
        parent = line.parent or line.logical_parent
        missing = parent is not None and parent not in known
        if missing and before is not None:
            lost.append(line.number)
        follows = missing or (parent is None and (line.names_no_parent or line.is_boundary or line.is_summary))
        parents[line.uuid] = before if follows else parent
        before = line.uuid
    return parents, lost


def _path(lines: Sequence[LogLine], parents: dict[str, str | None]) -> set[str]:
    """Uuids from the last line that speaks up to its root."""
    at = next((line.uuid for line in reversed(lines) if line.speaks and line.uuid), None)
    path: set[str] = set()
    while at is not None and at not in path:
        path.add(at)
        at = parents.get(at)
    return path


def _with_siblings(lines: Sequence[LogLine], path: set[str]) -> set[int]:
    """Numbers of the lines on `path`, and of the other pieces of the answers and results they belong to."""
    on_path = [line for line in lines if line.uuid in path or line.uuid is None]
    chosen = {line.number for line in on_path}
    answers = {line.message.id for line in on_path if line.type == "assistant" and line.message}
    done = set(_ids(on_path, "tool_result", "tool_use_id"))
    siblings = [
        line
        for line in lines
        if line.type == "assistant" and line.message and line.message.id and line.message.id in answers
    ]
    chosen.update(line.number for line in siblings)
    open_calls = set(_ids([*on_path, *siblings], "tool_use", "id")) - done
    for line in lines:
        results = set(_ids([line], "tool_result", "tool_use_id"))
        if line.number not in chosen and results and results <= open_calls:
            chosen.add(line.number)
            open_calls -= results
    return chosen


def _ids(lines: Sequence[LogLine], kind: str, key: str) -> Iterator[str]:
    for line in lines:
        for block in line.blocks:
            if block["type"] == kind:
                yield str(block.get(key))
